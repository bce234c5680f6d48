//! Messages of the PostgreSQL protocol, as few as the clients of this benchmark need.

/// `SSLRequest`, which the server answers with one letter.
pub(super) const TLS_REQUEST: &[u8] = b"\0\0\0\x08\x04\xd2\x16\x2f";
/// `Terminate`: how a client says that it leaves.
pub(super) const TERMINATE: &[u8] = b"X\0\0\0\x04";
/// `SELECT 1`, as a simple query.
pub(super) const SELECT_1: &[u8] = b"Q\0\0\0\x0dSELECT 1\0";

/// The start-up message of protocol 3.0.
pub(super) fn start_up(user: &str, database: &str) -> Vec<u8> {
    let mut body = b"\0\x03\0\0".to_vec();
    for text in ["user", user, "database", database, ""] {
        body.extend(text.as_bytes());
        body.push(0);
    }
    let mut message = length(body.len() + 4).to_vec();
    message.extend(body);
    message
}

/// A simple query.
pub(super) fn query(sql: &str) -> Vec<u8> {
    frame(b'Q', &[sql.as_bytes(), b"\0"])
}

/// The password in clear text. Aurora DSQL asks for its tokens like this, within TLS.
pub(super) fn password(password: &str) -> Vec<u8> {
    frame(b'p', &[password.as_bytes(), b"\0"])
}

/// Prepares a statement by name, and describes it as most drivers do.
pub(super) fn prepare(name: &str, sql: &str) -> Vec<u8> {
    let mut message = frame(b'P', &[name.as_bytes(), b"\0", sql.as_bytes(), b"\0\0\0"]);
    message.extend(frame(b'D', &[b"S", name.as_bytes(), b"\0"]));
    message.extend(frame(b'S', &[]));
    message
}

/// Executes a prepared statement with one parameter, as text.
pub(super) fn execute(name: &str, parameter: &str) -> Vec<u8> {
    let value = length(parameter.len());
    let mut message =
        frame(b'B', &[b"\0", name.as_bytes(), b"\0\0\0\0\x01", &value, parameter.as_bytes(), b"\0\0"]);
    message.extend(frame(b'E', &[b"\0\0\0\0\0"]));
    message.extend(frame(b'S', &[]));
    message
}

fn frame(kind: u8, body: &[&[u8]]) -> Vec<u8> {
    let size: usize = body.iter().map(|part| part.len()).sum();
    let mut message = vec![kind];
    message.extend(length(size + 4));
    body.iter().for_each(|part| message.extend(*part));
    message
}

/// A length of the protocol. What this benchmark sends is short.
fn length(length: usize) -> [u8; 4] {
    u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes()
}

/// The complete frames at the start of some bytes: kind and body.
pub(super) fn frames(mut bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    std::iter::from_fn(move || {
        let (kind, body, rest) = split(bytes)?;
        bytes = rest;
        Some((kind, body))
    })
}

/// Splits the first frame off: its kind, its body and what follows. `None` if it is not complete.
pub(super) fn split(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&kind, rest) = bytes.split_first()?;
    let (size, _) = rest.split_first_chunk::<4>()?;
    let size = usize::try_from(u32::from_be_bytes(*size)).ok()?;
    let (frame, rest) = rest.split_at_checked(size)?;
    Some((kind, frame.get(4..)?, rest))
}

/// The values of a `DataRow`, as text.
pub(super) fn values(row: &[u8]) -> Vec<Option<String>> {
    let mut values = Vec::new();
    let mut rest = row.get(2..).unwrap_or_default();
    while let Some((size, after)) = rest.split_first_chunk::<4>() {
        let size = usize::try_from(i32::from_be_bytes(*size));
        let (value, after) = match size {
            Ok(size) => match after.split_at_checked(size) {
                Some((value, after)) => (Some(String::from_utf8_lossy(value).into_owned()), after),
                None => break,
            },
            // NULL has the length -1.
            Err(_) => (None, after),
        };
        values.push(value);
        rest = after;
    }
    values
}

/// One field of an error or a notice, such as `C` for its SQLSTATE.
pub(super) fn field(body: &[u8], name: u8) -> String {
    let fields = body.split(|byte| *byte == 0);
    let text = fields.filter_map(|field| field.strip_prefix(&[name])).next();
    text.map(|text| String::from_utf8_lossy(text).into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_as_the_protocol_says() {
        assert_eq!(query("SELECT 1"), SELECT_1);
        assert_eq!(start_up("a", "b"), b"\0\0\0\x1b\0\x03\0\0user\0a\0database\0b\0\0");
        assert_eq!(
            execute("s", "xy"),
            b"B\0\0\0\x13\0s\0\0\0\0\x01\0\0\0\x02xy\0\0E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04"
        );
    }

    #[test]
    fn frames_end_where_one_is_not_complete() {
        let bytes = b"C\0\0\0\x06a\0Z\0\0\0\x05IZ\0\0\0";
        let found: Vec<_> = frames(bytes).collect();
        assert_eq!(found, [(b'C', &b"a\0"[..]), (b'Z', &b"I"[..])]);
    }

    #[test]
    fn a_row_has_values_and_nulls() {
        let row = b"\0\x02\0\0\0\x02ab\xff\xff\xff\xff";
        assert_eq!(values(row), [Some("ab".to_owned()), None]);
    }

    #[test]
    fn an_error_has_a_code() {
        assert_eq!(field(b"SERROR\0C53400\0Mno\0\0", b'C'), "53400");
        assert_eq!(field(b"SERROR\0\0", b'C'), "");
    }
}
