//! Quoting for the emulator's own statements.

/// A string literal, safe with and without `standard_conforming_strings`.
pub(super) fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// A quoted identifier.
pub(super) fn name(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoting_is_safe() {
        assert_eq!(literal(r"a'b\'c"), r"E'a''b\\''c'");
        assert_eq!(name("a\"b"), "\"a\"\"b\"");
    }
}
