//! A progress bar on the terminal.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay::rt::{Runtime, TokioRuntime};

/// A bar on stderr, if that is a terminal.
pub(crate) struct ProgressBar {
    name: String,
    shown: bool,
    runtime: TokioRuntime,
    /// When it is drawn next: drawing must not slow the run.
    next: AtomicU64,
}

const REDRAW: Duration = Duration::from_millis(100);
const WIDTH: usize = 30;
const CLEAR_LINE: &str = "\r\x1b[K";

impl ProgressBar {
    pub(crate) fn new(name: &str, runtime: TokioRuntime) -> Self {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let shown = io::stderr().is_terminal() && !dumb;
        // A short run needs no bar.
        let next = AtomicU64::new((runtime.now() + REDRAW).as_nanos());
        Self { name: name.to_owned(), shown, runtime, next }
    }

    /// Draws the bar, if it is time to.
    pub(crate) fn show(&self, done: u64, of: u64, words: impl FnOnce() -> String) {
        if !self.shown {
            return;
        }
        let now = self.runtime.now();
        if now.as_nanos() < self.next.load(Ordering::Relaxed) {
            return;
        }
        self.next.store((now + REDRAW).as_nanos(), Ordering::Relaxed);
        let line = format!("{CLEAR_LINE}{}  {}  {}", self.name, bar(done, of), words());
        // If the bar cannot be drawn, the run goes on.
        let _ = io::stderr().write_all(line.as_bytes());
    }

    /// Removes the bar from the screen.
    pub(crate) fn clear(&self) {
        if self.shown {
            let _ = io::stderr().write_all(CLEAR_LINE.as_bytes());
        }
    }
}

fn bar(done: u64, of: u64) -> String {
    let filled =
        usize::try_from(u128::from(done.min(of)) * WIDTH as u128 / u128::from(of.max(1))).unwrap_or(WIDTH);
    format!("{}{}", "█".repeat(filled), "░".repeat(WIDTH - filled))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_fills_from_left_to_right() {
        assert_eq!(bar(0, 10), "░".repeat(WIDTH));
        assert_eq!(bar(5, 10), format!("{}{}", "█".repeat(15), "░".repeat(15)));
        assert_eq!(bar(11, 10), "█".repeat(WIDTH));
        assert_eq!(bar(0, 0), "░".repeat(WIDTH));
    }
}
