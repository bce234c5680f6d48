//! The progress of a statement that runs.

use std::future::Future;
use std::io::{self, IsTerminal, Write};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use forebay::Instant;
use forebay::rt::{self, Runtime};
use forebay_flight::QueryOptions;
use parking_lot::Mutex;

/// How often the line changes.
pub(crate) const TICK: Duration = Duration::from_millis(100);
/// A shorter statement shows no progress.
const SHOW_AFTER: Duration = Duration::from_millis(500);
const FRAMES: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
/// Moves to the beginning of the line and clears it.
const CLEAR: &str = "\r\u{1b}[K";

/// A line on stderr with the time and the progress of a statement, if stderr is a terminal.
pub(crate) struct Spinner {
    since: Instant,
    is_shown: bool,
    is_drawn: bool,
    frame: usize,
    pub(crate) rows: u64,
    /// The progress that the server reports, from 0 to 1.
    fraction: Arc<Mutex<Option<f64>>>,
}

impl Spinner {
    pub(crate) fn start(now: Instant) -> Self {
        let is_shown = io::stderr().is_terminal();
        Self { since: now, is_shown, is_drawn: false, frame: 0, rows: 0, fraction: Arc::default() }
    }

    pub(crate) fn elapsed(&self, now: Instant) -> Duration {
        now.since(self.since)
    }

    /// Makes a statement report its progress, if the line is shown.
    pub(crate) fn with_progress(&self, options: QueryOptions) -> QueryOptions {
        if !self.is_shown {
            return options;
        }
        let fraction = Arc::clone(&self.fraction);
        options.with_progress(move |done| *fraction.lock() = Some(done))
    }

    /// Waits for `future` and shows the progress. It calls `each` at every tick, which may end the wait.
    ///
    /// # Cancel safety
    /// As that of `future`.
    pub(crate) async fn wait_for<T>(
        &mut self,
        runtime: &dyn Runtime,
        future: impl Future<Output = T>,
        each: impl Fn() -> Option<T>,
    ) -> T {
        let mut future = pin!(future);
        loop {
            if let Some(output) = rt::within(runtime, TICK, future.as_mut()).await {
                return output;
            }
            if let Some(output) = each() {
                return output;
            }
            self.tick(runtime.now());
        }
    }

    /// Draws the next frame.
    pub(crate) fn tick(&mut self, now: Instant) {
        if !self.is_shown || self.elapsed(now) < SHOW_AFTER {
            return;
        }
        self.frame = (self.frame + 1) % FRAMES.len();
        let line = line(FRAMES[self.frame], self.elapsed(now), *self.fraction.lock(), self.rows);
        self.is_drawn = true;
        draw(&format!("{CLEAR}{line}"));
    }

    /// Removes the line from the terminal.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.is_drawn) {
            draw(CLEAR);
        }
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The statement goes on if this fails.
fn draw(text: &str) {
    let mut stderr = io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

fn line(frame: char, elapsed: Duration, fraction: Option<f64>, rows: u64) -> String {
    let mut line = format!("{frame} {}", clock(elapsed));
    if let Some(fraction) = fraction {
        line += &format!("  {:.0} %", fraction.clamp(0.0, 1.0) * 100.0);
    }
    if rows > 0 {
        line += &format!("  {rows} rows");
    }
    line + "  (Ctrl-C cancels)"
}

/// `3.4 s`, `2 min 05 s`.
fn clock(time: Duration) -> String {
    match time.as_secs() {
        0..60 => format!("{:.1} s", time.as_secs_f64()),
        seconds => format!("{} min {:02} s", seconds / 60, seconds % 60),
    }
}

/// How long a statement took.
pub(crate) fn timing(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("Time: {:.1} ms", time.as_secs_f64() * 1_000.0),
        _ => format!("Time: {}", clock(time)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_time_progress_and_rows() {
        let time = Duration::from_millis(3_420);
        assert_eq!(line('⠋', time, None, 0), "⠋ 3.4 s  (Ctrl-C cancels)");
        assert_eq!(line('⠋', time, Some(0.423), 0), "⠋ 3.4 s  42 %  (Ctrl-C cancels)");
        assert_eq!(
            line('⠋', Duration::from_secs(125), Some(7.0), 9),
            "⠋ 2 min 05 s  100 %  9 rows  (Ctrl-C cancels)"
        );
        assert_eq!(timing(Duration::from_micros(12_340)), "Time: 12.3 ms");
        assert_eq!(timing(time), "Time: 3.4 s");
    }
}
