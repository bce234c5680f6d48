//! What can go wrong, split by what the caller does next.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::duration::show;
use crate::event::Failure;

/// Any error of a connector, a limiter or a lease store.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why there is no connection for a caller.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckoutError {
    /// The reservoir owns fewer connections than it may, and none became ready in time. Try again, with a pause: it is
    /// refilling. `last_open_error` says what keeps it short.
    #[error("no connection {}{}", became_ready(*.waited), because(.last_open_error))]
    Empty {
        /// How long the caller waited.
        waited: Duration,
        /// What keeps the reservoir short: why the last attempt to open a connection failed, or what those under way wait for.
        /// None if they are simply under way.
        last_open_error: Option<Arc<OpenError>>,
    },

    /// No connection is usable, and the last open failed for a cause that waiting does not cure: the server denies access, say.
    /// Do not try again before it is removed. The reservoir goes on trying, and serves again once an open succeeds.
    #[error("no connection can be opened; {last_open_error}")]
    Denied {
        /// How long the caller waited.
        waited: Duration,
        /// Why the last attempt to open a connection failed.
        last_open_error: Arc<OpenError>,
    },

    /// Every connection the reservoir may own was in use. Use fewer at a time, hold them for less long, or raise
    /// `max_open`.
    #[error("{}all {max_open} connections are in use: hold them for less long, or raise max_open", none_free(*.waited))]
    Exhausted {
        /// How long the caller waited.
        waited: Duration,
        /// How many connections the reservoir may own.
        max_open: usize,
    },

    /// The reservoir was drained or dropped. Do not try again.
    #[error("the pool is closed")]
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

fn became_ready(waited: Duration) -> String {
    match milliseconds(waited) {
        Duration::ZERO => "is ready".into(),
        waited => format!("became ready within {}", show(waited)),
    }
}

fn none_free(waited: Duration) -> String {
    match milliseconds(waited) {
        Duration::ZERO => String::new(),
        waited => format!("no connection became free within {}; ", show(waited)),
    }
}

fn milliseconds(duration: Duration) -> Duration {
    Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

fn because(error: &Option<Arc<OpenError>>) -> impl fmt::Display {
    struct Because(Option<Arc<OpenError>>);
    impl fmt::Display for Because {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match &self.0 {
                Some(error) if error.pending => write!(f, "; {error}"),
                Some(error) => write!(f, "; the last open failed: {error}"),
                None => f.write_str("; the pool is still filling"),
            }
        }
    }
    Because(error.clone())
}

/// Why a connection could not be opened.
///
/// Its text has all causes, so it has no `source`: a walk of the chain would print them twice. [`get_ref`](Self::get_ref)
/// gives the cause, as that of [`std::io::Error`] does.
#[derive(Debug)]
pub struct OpenError {
    failure: Failure,
    permanent: bool,
    /// It has not failed: this is what it waits for.
    pending: bool,
    source: BoxError,
}

impl OpenError {
    /// An attempt that failed for the reason `failure`, because of `source`.
    pub fn new(failure: Failure, source: impl Into<BoxError>) -> Self {
        Self { failure, permanent: false, pending: false, source: source.into() }
    }

    /// What attempts under way wait for, which would fail for the reason `failure`.
    pub(crate) fn pending(failure: Failure, what: String) -> Self {
        Self { failure, permanent: false, pending: true, source: what.into() }
    }

    /// Waiting does not cure the cause: the server denies access to this role, say. While no connection is usable, callers then
    /// get [`Denied`](CheckoutError::Denied) at once instead of waiting. The reservoir goes on trying.
    #[must_use]
    pub fn permanent(mut self) -> Self {
        self.permanent = true;
        self
    }

    /// Whether no attempt has failed, and this is what those under way wait for.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.pending
    }

    /// Whether waiting does not cure the cause.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        self.permanent
    }

    /// The error that it was made of.
    #[must_use]
    pub fn get_ref(&self) -> &(dyn std::error::Error + Send + Sync + 'static) {
        &*self.source
    }

    /// What kept it from opening: it decides how the refill goes on.
    #[must_use]
    pub fn failure(&self) -> Failure {
        self.failure
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = Chain(&*self.source).to_string();
        // Some sources name the failure themselves.
        if !told.starts_with(&format!("{}: ", self.failure)) {
            write!(f, "{}: ", self.failure)?;
        }
        f.write_str(&told)
    }
}

impl std::error::Error for OpenError {}

/// Prints an error and its causes in one line, each said once: many drivers say "error connecting" on top and the reason
/// two levels down, and others repeat on top what is below.
///
/// ```
/// let error = std::io::Error::other("connection refused");
/// assert_eq!(forebay::Chain(&error).to_string(), "connection refused");
/// ```
#[derive(Debug)]
pub struct Chain<'a>(pub &'a (dyn std::error::Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut told = self.0.to_string();
        let mut below = self.0.source();
        while let Some(cause) = below {
            let text = cause.to_string();
            if !told.contains(&text) {
                told = format!("{told}: {text}");
            }
            below = cause.source();
        }
        f.write_str(&told)
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

    #[test]
    fn a_failed_open_tells_all_its_causes() {
        #[derive(Debug, thiserror::Error)]
        #[error("error connecting to server")]
        struct Outer(#[source] std::io::Error);
        let error = OpenError::new(Failure::Open, Outer(std::io::Error::other("certificate expired")));
        assert_eq!(error.to_string(), "connection_open: error connecting to server: certificate expired");
    }

    #[test]
    fn what_a_source_has_told_is_not_told_again() {
        #[derive(Debug, thiserror::Error)]
        #[error("auth: {0} (check the role)")]
        struct Told(#[source] std::io::Error);
        let error = OpenError::new(Failure::Auth, Told(std::io::Error::other("access denied")));
        assert_eq!(error.to_string(), "auth: access denied (check the role)");
        let error = CheckoutError::Empty { waited: Duration::ZERO, last_open_error: Some(Arc::new(error)) };
        assert_eq!(
            error.to_string(),
            "no connection is ready; the last open failed: auth: access denied (check the role)"
        );
        assert!(std::error::Error::source(&error).is_none(), "it would be printed twice");
        let CheckoutError::Empty { last_open_error: Some(open), .. } = &error else { panic!("{error}") };
        assert!(std::error::Error::source(&**open).is_none() && open.get_ref().is::<Told>());
    }

    #[test]
    fn one_who_did_not_wait_is_not_told_of_waiting() {
        let exhausted = |waited| CheckoutError::Exhausted { waited, max_open: 3 }.to_string();
        assert!(exhausted(Duration::ZERO).starts_with("all 3 connections are in use: "));
        assert!(
            exhausted(Duration::from_micros(101_536))
                .starts_with("no connection became free within 101ms; all 3 connections are in use: ")
        );
        let empty = CheckoutError::Empty { waited: Duration::from_micros(900), last_open_error: None };
        assert_eq!(empty.to_string(), "no connection is ready; the pool is still filling");
    }
}
