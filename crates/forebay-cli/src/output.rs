//! Output to stdout and stderr.

use std::io::{self, ErrorKind, Write};

use anyhow::Context;

/// The width of text whose terminal is not known, in columns.
pub(crate) const WIDTH: usize = 80;

/// Prints to stdout. It is not an error if the reader has gone away, as `head` does.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("cannot write to stdout"),
        _ => Ok(()),
    }
}

/// Prints a message to stderr. If that fails, the exit status still says what happened.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stderr(), "forebay: {text}");
}

/// Breaks lines that are wider than `width` between words.
pub(crate) fn wrap(text: &str, width: usize) -> String {
    let mut wrapped = String::new();
    let mut column = 0;
    for word in text.split_inclusive([' ', '\n']) {
        if column > 0 && column + word.trim_end().chars().count() > width {
            wrapped.truncate(wrapped.trim_end().len());
            wrapped.push('\n');
            column = 0;
        }
        wrapped += word;
        column = if word.ends_with('\n') { 0 } else { column + word.chars().count() };
    }
    wrapped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_between_words_only() {
        let wrap = |text: &str| wrap(text, 80);
        let word = "seven77 ".repeat(10);
        assert_eq!(
            wrap(&format!("{word}x\n  indented\n\n")),
            format!("{}\nx\n  indented\n\n", word.trim_end())
        );
        let long = "x".repeat(100);
        assert_eq!(wrap(&format!("a {long} b")), format!("a\n{long}\nb"));
        assert_eq!(wrap(""), "");
    }
}
