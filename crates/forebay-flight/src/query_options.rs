//! What may be said about one statement.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::cancel::CancelHandle;

/// Options of one statement. What is not set is as the pool's configuration has it.
///
/// ```
/// use forebay_flight::QueryOptions;
///
/// let options = QueryOptions::new().with_timeout_ms(2_000).with_retry(false);
/// ```
#[derive(Clone, Debug, Default)]
pub struct QueryOptions {
    pub(crate) timeout: Option<Duration>,
    pub(crate) retry: Option<bool>,
    pub(crate) cancel: Option<CancelHandle>,
    pub(crate) progress: Option<Progress>,
}

/// Who hears how far a statement is.
#[derive(Clone)]
pub(crate) struct Progress(Arc<dyn Fn(f64) + Send + Sync>);

impl Progress {
    pub(crate) fn tell(&self, done: f64) {
        // What is no number says nothing.
        if !done.is_nan() {
            (self.0)(done.clamp(0.0, 1.0));
        }
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Progress")
    }
}

impl QueryOptions {
    /// As the configuration has it.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One deadline for all of it: waiting for a connection, running, and reading the result to its end. The server is told.
    #[must_use]
    pub fn with_timeout_ms(self, timeout_ms: u64) -> Self {
        self.with_timeout(Duration::from_millis(timeout_ms))
    }

    /// As [`with_timeout_ms`](Self::with_timeout_ms).
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Whether a statement that is known to read only may be run once more, on another connection, if the first fails before
    /// it has given anything.
    #[must_use]
    pub fn with_retry(mut self, retry: bool) -> Self {
        self.retry = Some(retry);
        self
    }

    /// Lets this handle stop it.
    #[must_use]
    pub fn with_cancel(mut self, cancel: CancelHandle) -> Self {
        self.cancel = Some(cancel);
        self
    }

    /// Asks a server that knows `PollFlightInfo` how far a query is, from 0 to 1, and tells it. Costs a call or more; it must not
    /// block.
    #[must_use]
    pub fn with_progress(mut self, progress: impl Fn(f64) + Send + Sync + 'static) -> Self {
        self.progress = Some(Progress(Arc::new(progress)));
        self
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn progress_is_from_0_to_1_or_none() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let told_to = Arc::clone(&told);
        let options = QueryOptions::new().with_progress(move |done| told_to.lock().push(done));
        for done in [0.5, f64::NAN, -1.0, f64::INFINITY] {
            options.progress.as_ref().unwrap().tell(done);
        }
        assert_eq!(*told.lock(), [0.5, 0.0, 1.0]);
    }
}
