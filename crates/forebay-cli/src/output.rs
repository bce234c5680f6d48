//! What goes to stdout and stderr.

use std::io::{self, ErrorKind, Write};

use anyhow::Context;

/// Prints to stdout. A reader who has gone away, such as `head`, is no error.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("cannot write to stdout"),
        _ => Ok(()),
    }
}

/// Tells whoever runs the command. If nobody listens, nobody is told; the exit status still tells.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stderr(), "forebay: {text}");
}
