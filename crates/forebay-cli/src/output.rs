//! What goes to stdout.

use std::io::{self, ErrorKind, Write};

use anyhow::Context;

/// Prints to stdout. A reader who has gone away, such as `head`, is no error.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("could not print the figures")
        }
        _ => Ok(()),
    }
}
