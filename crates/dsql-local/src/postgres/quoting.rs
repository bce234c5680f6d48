//! How names and texts are written in statements of the emulator's own.

/// A text, whatever is in it; also where a backslash is one in any text.
pub(super) fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// A name, whatever is in it.
pub(super) fn name(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_gets_out_of_its_quotes() {
        assert_eq!(literal(r"a'b\'c"), r"E'a''b\\''c'");
        assert_eq!(name("a\"b"), "\"a\"\"b\"");
    }
}
