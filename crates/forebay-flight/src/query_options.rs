//! What may be said about one statement.

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
}
