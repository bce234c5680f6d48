//! Follows a run: moves the progress bar, writes rows, and ends the run after Ctrl-C.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::time::Duration;

use forebay::duration;
use forebay_sim::{Row, RunObserver};

use super::atomic_file::AtomicFile;
use crate::progress_bar::ProgressBar;
use crate::signals::Requests;

pub(crate) struct Watcher<'a> {
    bar: &'a ProgressBar,
    requests: &'a Requests,
    length: Duration,
    rows: Option<&'a mut AtomicFile>,
    /// Why rows could not be written.
    error: Option<io::Error>,
}

impl<'a> Watcher<'a> {
    pub(crate) fn new(
        bar: &'a ProgressBar,
        requests: &'a Requests,
        length: Duration,
        rows: Option<&'a mut AtomicFile>,
    ) -> Self {
        Self { bar, requests, length, rows, error: None }
    }

    pub(crate) fn finish(self) -> io::Result<()> {
        self.error.map_or(Ok(()), Err)
    }
}

impl RunObserver for Watcher<'_> {
    fn row(&mut self, row: &Row<'_>) {
        if let (Some(rows), None) = (&mut self.rows, &self.error)
            && let Err(error) = writeln!(rows, "{row}")
        {
            self.error = Some(error);
        }
    }

    fn progress(&mut self, passed: Duration) -> ControlFlow<()> {
        if self.error.is_some() {
            return ControlFlow::Break(());
        }
        let whole = |duration: Duration| duration::show(Duration::from_secs(duration.as_secs()));
        self.bar.show(passed.as_secs(), self.length.as_secs(), || {
            format!("{} of {}", whole(passed), whole(self.length))
        });
        self.requests.go_on()
    }
}
