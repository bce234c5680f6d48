//! Writers of frames. Each appends one frame to `out`.

use crate::protocol::{ServerError, client, server};

/// A frame of this type, with the body that `body` appends.
pub fn frame(out: &mut Vec<u8>, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
    out.push(kind);
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out);
    // Nothing that the gateway writes itself comes near 4 GB.
    let length = u32::try_from(out.len() - start).unwrap_or(u32::MAX);
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

fn string(out: &mut Vec<u8>, text: &[u8]) {
    // A zero byte inside would end the string early, and what follows would be read as something else.
    if text.contains(&0) {
        out.extend(text.iter().copied().filter(|&byte| byte != 0));
    } else {
        out.extend_from_slice(text);
    }
    out.push(0);
}

fn fields(out: &mut Vec<u8>, kind: u8, error: &ServerError) {
    frame(out, kind, |out| {
        let severity = error.severity.as_str();
        let all = [
            (b'S', Some(severity)),
            (b'V', Some(severity)),
            (b'C', Some(&*error.sqlstate)),
            (b'M', Some(&*error.message)),
            (b'D', error.detail.as_deref()),
            (b'H', error.hint.as_deref()),
            (b'R', error.routine.as_deref()),
        ];
        for (field, text) in all {
            if let Some(text) = text {
                out.push(field);
                string(out, text.as_bytes());
            }
        }
        out.push(0);
    });
}

/// ErrorResponse.
pub fn error(out: &mut Vec<u8>, error: &ServerError) {
    fields(out, server::ERROR, error);
}

/// NoticeResponse.
pub fn notice(out: &mut Vec<u8>, notice: &ServerError) {
    fields(out, server::NOTICE, notice);
}

/// ReadyForQuery. The status is `I`, `T` or `E`.
pub fn ready_for_query(out: &mut Vec<u8>, status: u8) {
    out.extend_from_slice(&[server::READY_FOR_QUERY, 0, 0, 0, 5, status]);
}

/// ParameterStatus.
pub fn parameter_status(out: &mut Vec<u8>, name: &str, value: &str) {
    frame(out, server::PARAMETER_STATUS, |out| {
        string(out, name.as_bytes());
        string(out, value.as_bytes());
    });
}

/// BackendKeyData: a process id and a secret, four bytes each.
pub fn backend_key_data(out: &mut Vec<u8>, key: [u8; 8]) {
    frame(out, server::BACKEND_KEY_DATA, |out| out.extend_from_slice(&key));
}

/// CommandComplete.
pub fn command_complete(out: &mut Vec<u8>, tag: &str) {
    frame(out, server::COMMAND_COMPLETE, |out| string(out, tag.as_bytes()));
}

/// A frame without a body, such as ParseComplete or Sync.
pub fn bare(out: &mut Vec<u8>, kind: u8) {
    out.extend_from_slice(&[kind, 0, 0, 0, 4]);
}

/// Query.
pub fn query(out: &mut Vec<u8>, sql: &[u8]) {
    frame(out, client::QUERY, |out| string(out, sql));
}

/// Parse. `rest` is what follows the name: the text with its zero byte, and the types of the parameters.
pub fn parse(out: &mut Vec<u8>, name: &[u8], rest: &[u8]) {
    frame(out, client::PARSE, |out| {
        string(out, name);
        out.extend_from_slice(rest);
    });
}

/// Bind without parameters, with all results as text.
pub fn bind(out: &mut Vec<u8>, portal: &[u8], statement: &[u8]) {
    frame(out, client::BIND, |out| {
        string(out, portal);
        string(out, statement);
        out.extend_from_slice(&[0; 6]);
    });
}

/// Describe of a prepared statement.
pub fn describe_statement(out: &mut Vec<u8>, name: &[u8]) {
    frame(out, client::DESCRIBE, |out| {
        out.push(b'S');
        string(out, name);
    });
}

/// Execute of a portal, with all its rows.
pub fn execute(out: &mut Vec<u8>, portal: &[u8]) {
    frame(out, client::EXECUTE, |out| {
        string(out, portal);
        out.extend_from_slice(&[0; 4]);
    });
}

/// Close of a prepared statement.
pub fn close_statement(out: &mut Vec<u8>, name: &[u8]) {
    frame(out, client::CLOSE, |out| {
        out.push(b'S');
        string(out, name);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_counts_itself_and_the_body() {
        let mut out = b"before".to_vec();
        query(&mut out, b"SELECT 1");
        ready_for_query(&mut out, b'I');
        command_complete(&mut out, "SET");
        close_statement(&mut out, b"s");
        bind(&mut out, b"", b"s");
        let expected = b"beforeQ\0\0\0\x0dSELECT 1\0Z\0\0\0\x05IC\0\0\0\x08SET\0C\0\0\0\x07Ss\0B\0\0\0\x0d\0s\0\0\0\0\0\0\0";
        assert_eq!(out, expected);
    }

    #[test]
    fn a_zero_byte_cannot_end_a_string_early() {
        let mut out = Vec::new();
        query(&mut out, b"a\0b");
        assert_eq!(out, b"Q\0\0\0\x07ab\0");
    }
}
