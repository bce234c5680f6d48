//! What is known of the terminal.

use std::io::{self, IsTerminal};

/// How wide the terminal is that stdout goes to; none if it goes elsewhere.
pub(crate) fn width() -> Option<usize> {
    let stdout = io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(&stdout).ok()?;
    // A terminal that does not know its size is not to be believed.
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}
