//! Parses PostgreSQL's text format of a row: `(1,"a ""b""",)`.

use bytes::Bytes;

/// The values of some columns; none for NULL.
pub(super) type Key = Vec<Option<Bytes>>;

pub(super) fn key(row: &[u8], positions: &[usize]) -> Key {
    let fields = fields(row);
    positions.iter().map(|at| fields.get(*at).cloned().flatten()).collect()
}

fn fields(row: &[u8]) -> Vec<Option<Bytes>> {
    let inside = row.strip_prefix(b"(").and_then(|row| row.strip_suffix(b")")).unwrap_or(row);
    let (mut fields, mut field, mut present, mut quoted) = (Vec::new(), Vec::new(), false, false);
    let mut bytes = inside.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' if quoted && bytes.peek() == Some(&b'"') => field.extend(bytes.next()),
            b'"' => (quoted, present) = (!quoted, true),
            b'\\' => field.extend(bytes.next()),
            b',' if !quoted => {
                let value = std::mem::take(&mut field).into();
                fields.push(std::mem::take(&mut present).then_some(value));
            }
            byte => {
                field.push(byte);
                present = true;
            }
        }
    }
    fields.push(present.then_some(field.into()));
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_are_written() {
        let text = |value: &str| Some(Bytes::from(value.to_owned()));
        let row = br#"(1,"a ""b"", c",,"","x\\y",d)"#;
        assert_eq!(fields(row), [text("1"), text("a \"b\", c"), None, text(""), text("x\\y"), text("d")]);
        assert_eq!(key(row, &[5, 0, 2, 9]), [text("d"), text("1"), None, None]);
        assert_eq!(fields(b"()"), [None]);
    }
}
