//! What can go wrong, split by what the caller does next.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::event::Failure;

/// Any error of a connector, a limiter or a lease store.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why there is no connection for a caller.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckoutError {
    /// The reservoir owns fewer connections than it may and none became ready in time. Try again, with a pause:
    /// it is refilling. The last failed open, if any, says what keeps it from doing so.
    #[error("no connection became ready within {waited:?}{}", because(.last_open_error))]
    Empty {
        /// How long the caller waited.
        waited: Duration,
        /// Why the last attempt to open a connection failed, if none has succeeded since.
        last_open_error: Option<Arc<OpenError>>,
    },

    /// Every connection the reservoir may own was in use. Use fewer at a time, hold them for less long, or raise
    /// `max_open`.
    #[error(
        "all {max_open} connections stayed in use for {waited:?}: hold them for less long, or raise max_open"
    )]
    Exhausted {
        /// How long the caller waited.
        waited: Duration,
        /// How many connections the reservoir may own.
        max_open: usize,
    },

    /// The reservoir was drained or dropped. Do not try again.
    #[error("the reservoir is closed")]
    Closed,

    /// A blocking checkout had to wait on the thread that would have to open the connection. Use `checkout().await`,
    /// or call it from `spawn_blocking`.
    #[error(
        "checkout_blocking would wait for ever here: this thread runs the reservoir's own single-threaded \
         runtime; use checkout().await, or call it from spawn_blocking"
    )]
    WouldStarve,
}

impl CheckoutError {
    /// Whether the same call may succeed later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Empty { .. } | Self::Exhausted { .. })
    }
}

fn because(error: &Option<Arc<OpenError>>) -> impl fmt::Display {
    struct Because(Option<Arc<OpenError>>);
    impl fmt::Display for Because {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match &self.0 {
                Some(error) => write!(f, "; the last open failed: {error}"),
                None => f.write_str("; the reservoir is still filling"),
            }
        }
    }
    Because(error.clone())
}

/// Why a connection could not be opened.
#[derive(Debug)]
pub struct OpenError {
    failure: Failure,
    source: BoxError,
}

impl OpenError {
    /// An attempt that failed for the reason `failure`, because of `source`.
    pub fn new(failure: Failure, source: impl Into<BoxError>) -> Self {
        Self { failure, source: source.into() }
    }

    /// What kept it from opening: it decides how the refill goes on.
    #[must_use]
    pub fn failure(&self) -> Failure {
        self.failure
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.failure, self.source)
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_reservoir_says_what_keeps_it_empty() {
        let error = CheckoutError::Empty {
            waited: Duration::from_millis(100),
            last_open_error: Some(Arc::new(OpenError::new(Failure::Auth, "access denied"))),
        };
        assert_eq!(
            error.to_string(),
            "no connection became ready within 100ms; the last open failed: auth: access denied"
        );
        assert!(error.is_transient());
        assert!(!CheckoutError::Closed.is_transient());
    }
}
