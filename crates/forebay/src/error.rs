//! Errors, divided by what the caller does next.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::duration::show;
use crate::event::Failure;

/// Any error from a connector, a limiter or a lease store.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a caller gets no connection.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckoutError {
    /// Fewer connections than `max_open` are usable, and none became ready in time. Retry after a pause: the
    /// reservoir is refilling. `last_open_error` says what delays it.
    #[error("no connection {}{}", became_ready(*.waited), because(.last_open_error))]
    Empty {
        /// How long the caller waited.
        waited: Duration,
        /// Why connections are missing: the error of the last attempt to open one, or what the attempts in
        /// flight wait for. `None` if they are in flight and do not wait.
        last_open_error: Option<Arc<OpenError>>,
    },

    /// No connection is usable, and the last open failed for a reason that waiting does not fix. For example,
    /// the server denies access. Retry only after the reason is fixed. The reservoir keeps trying, and serves
    /// again once an open succeeds.
    #[error("no connection can be opened; {last_open_error}")]
    Denied {
        /// How long the caller waited.
        waited: Duration,
        /// The error of the last attempt that failed for such a reason.
        last_open_error: Arc<OpenError>,
    },

    /// All connections are in use. Use fewer at a time, hold them for a shorter time, or raise `max_open`.
    #[error("{}{}", none_free(*.waited), all_taken(*.max_open, *.in_maintenance))]
    Exhausted {
        /// How long the caller waited.
        waited: Duration,
        /// The configured `max_open`.
        max_open: usize,
        /// How many of them no caller has: they are being reset or checked. If there are many, the server is slow.
        in_maintenance: usize,
    },

    /// The reservoir was drained or dropped. Do not retry.
    #[error("the reservoir is closed")]
    Closed,

    /// A blocking checkout would wait on the only thread that can open the connection. Use
    /// `checkout().await`, or call it from `spawn_blocking`.
    #[error(
        "checkout_blocking would wait forever here: this thread runs the reservoir's own single-threaded \
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

fn all_taken(max_open: usize, in_maintenance: usize) -> String {
    match in_maintenance {
        0 => format!("all {max_open} connections are in use: hold them for a shorter time, or allow more"),
        unused => format!(
            "all {max_open} connections are taken, {unused} of them by no caller: the server has yet to answer a reset, a \
             check, or a statement that was given up"
        ),
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

fn because(error: &Option<Arc<OpenError>>) -> String {
    match error {
        Some(error) if error.pending => format!("; {error}"),
        Some(error) => format!("; the last open failed: {error}"),
        None => "; the pool is still filling".into(),
    }
}

/// Why a connection could not be opened.
///
/// Its text has all causes, so it has no `source`: a walk of the chain would print them twice. [`get_ref`](Self::get_ref)
/// gives the cause, as that of [`std::io::Error`] does.
#[derive(Debug)]
pub struct OpenError {
    failure: Failure,
    permanent: bool,
    /// The attempt has not failed; this describes what it waits for.
    pending: bool,
    source: BoxError,
}

impl OpenError {
    /// An attempt that failed for the reason `failure`, with the error `source`.
    pub fn new(failure: Failure, source: impl Into<BoxError>) -> Self {
        Self { failure, permanent: false, pending: false, source: source.into() }
    }

    /// Describes what attempts in flight wait for. If that fails, the reason will be `failure`.
    pub(crate) fn pending(failure: Failure, what: String) -> Self {
        Self { failure, permanent: false, pending: true, source: what.into() }
    }

    /// Marks a failure that waiting does not fix, such as a role to which the server denies access. While no
    /// connection is usable, callers get [`Denied`](CheckoutError::Denied) at once instead of waiting. The
    /// reservoir keeps trying.
    #[must_use]
    pub fn permanent(mut self) -> Self {
        self.permanent = true;
        self
    }

    /// Whether this describes attempts in flight, and not a failure.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.pending
    }

    /// Whether waiting does not fix the failure.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        self.permanent
    }

    /// The error that it was made of. Its text is part of this error's text, so it is not its `source`.
    #[must_use]
    pub fn get_ref(&self) -> &(dyn std::error::Error + Send + Sync + 'static) {
        &*self.source
    }

    /// The reason for the failure. It determines how long the reservoir pauses.
    #[must_use]
    pub fn failure(&self) -> Failure {
        self.failure
    }
}

/// An attempt that the network failed, so that `?` works on a socket.
impl From<std::io::Error> for OpenError {
    fn from(error: std::io::Error) -> Self {
        let timed_out = error.kind() == std::io::ErrorKind::TimedOut;
        Self::new(if timed_out { Failure::Timeout } else { Failure::Open }, error)
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = Chain(&*self.source).to_string();
        // Some sources begin with the reason themselves.
        if !text.starts_with(&format!("{}: ", self.failure)) {
            write!(f, "{}: ", self.failure)?;
        }
        f.write_str(&text)
    }
}

impl std::error::Error for OpenError {}

/// Displays an error and its sources in one line, each message once. Many drivers say "error connecting" on
/// top and give the reason two levels below. Others repeat the message of the source on top.
///
/// ```
/// let error = std::io::Error::other("connection refused");
/// assert_eq!(forebay::Chain(&error).to_string(), "connection refused");
/// ```
#[derive(Debug)]
pub struct Chain<'a>(pub &'a (dyn std::error::Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.0.to_string();
        let mut next = self.0.source();
        while let Some(cause) = next {
            let message = cause.to_string();
            if !text.contains(&message) {
                text = format!("{text}: {message}");
            }
            next = cause.source();
        }
        f.write_str(&text)
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
    fn a_failed_open_shows_all_its_causes() {
        #[derive(Debug, thiserror::Error)]
        #[error("error connecting to server")]
        struct Outer(#[source] std::io::Error);
        let error = OpenError::new(Failure::Open, Outer(std::io::Error::other("certificate expired")));
        assert_eq!(error.to_string(), "connection_open: error connecting to server: certificate expired");
    }

    #[test]
    fn an_error_of_a_socket_becomes_one_of_an_open() {
        for (kind, failure) in [
            (std::io::ErrorKind::ConnectionRefused, Failure::Open),
            (std::io::ErrorKind::TimedOut, Failure::Timeout),
        ] {
            assert_eq!(OpenError::from(std::io::Error::from(kind)).failure(), failure);
        }
    }

    #[test]
    fn a_message_that_is_shown_already_is_not_repeated() {
        #[derive(Debug, thiserror::Error)]
        #[error("auth: {0} (check the role)")]
        struct Complete(#[source] std::io::Error);
        let error = OpenError::new(Failure::Auth, Complete(std::io::Error::other("access denied")));
        assert_eq!(error.to_string(), "auth: access denied (check the role)");
        let error = CheckoutError::Empty { waited: Duration::ZERO, last_open_error: Some(Arc::new(error)) };
        assert_eq!(
            error.to_string(),
            "no connection is ready; the last open failed: auth: access denied (check the role)"
        );
        assert!(std::error::Error::source(&error).is_none(), "it would be printed twice");
        let CheckoutError::Empty { last_open_error: Some(open), .. } = &error else { panic!("{error}") };
        assert!(std::error::Error::source(&**open).is_none() && open.get_ref().is::<Complete>());
    }

    #[test]
    fn an_error_without_a_wait_does_not_mention_one() {
        let exhausted =
            |waited| CheckoutError::Exhausted { waited, max_open: 3, in_maintenance: 0 }.to_string();
        assert!(exhausted(Duration::ZERO).starts_with("all 3 connections are in use: "));
        assert!(
            exhausted(Duration::from_micros(101_536))
                .starts_with("no connection became free within 101ms; all 3 connections are in use: ")
        );
        let slow =
            CheckoutError::Exhausted { waited: Duration::ZERO, max_open: 3, in_maintenance: 2 }.to_string();
        assert!(slow.starts_with("all 3 connections are taken, 2 of them by no caller: "), "{slow}");
        let empty = CheckoutError::Empty { waited: Duration::from_micros(900), last_open_error: None };
        assert_eq!(empty.to_string(), "no connection is ready; the pool is still filling");
    }
}
