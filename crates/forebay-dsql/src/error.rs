//! Errors, by what the caller does next.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use forebay::BoxError;

use crate::cas::ConditionFailed;

#[cfg(feature = "tokio-postgres")]
mod at_address;
mod chain;
mod kind;
#[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
mod said;

pub use kind::{Auth, Conflict, ErrorKind, Limit, Throttle};
#[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
pub(crate) use said::is_said;
#[cfg(feature = "sqlx")]
pub(crate) use said::is_unprepared;
#[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
pub(crate) use {
    chain::{causes, is_of_system, seen},
    said::is_failed_transaction,
};

/// Whether a server refuses something that waiting does not change, such as a setting that it does not have.
#[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
pub(crate) fn is_refused_for_good(error: &(dyn StdError + 'static)) -> bool {
    is_said(error) && matches!(ErrorKind::of(error), ErrorKind::Permanent | ErrorKind::Unsupported)
}

/// Without a client, nothing is known of servers.
#[cfg(not(any(feature = "tokio-postgres", feature = "sqlx")))]
pub(crate) fn is_refused_for_good(_: &(dyn StdError + 'static)) -> bool {
    false
}

/// An error of the database, the network or a condition, with its [`ErrorKind`].
///
/// Its text has all causes, so it has no `source`: `{:#}` of `anyhow`, or any other walk of the chain, would print them twice.
/// [`get_ref`](Self::get_ref) gives the error that it was made of, as that of [`std::io::Error`] does.
///
/// Errors of tokio-postgres and sqlx, of options and of starting become one with `?`:
///
/// ```
/// use forebay_dsql::{Error, ErrorKind};
///
/// fn next(error: &Error) -> &'static str {
///     match error.kind() {
///         ErrorKind::Conflict(_) => "run the transaction again",
///         ErrorKind::ConditionFailed => "read again, decide again",
///         ErrorKind::CommitUnknown => "find out whether it was committed",
///         _ => "give up",
///     }
/// }
///
/// let lost = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
/// assert_eq!(next(&Error::of(lost).at_commit()), "find out whether it was committed");
/// ```
pub struct Error {
    kind: ErrorKind,
    source: BoxError,
}

/// The text, as a `main` that returns the error prints it. `{:#?}` shows the fields.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !f.alternate() {
            return fmt::Display::fmt(self, f);
        }
        f.debug_struct("Error").field("kind", &self.kind).field("source", &self.source).finish()
    }
}

impl Error {
    /// Classifies `source` by walking its chain of causes.
    pub fn of(source: impl Into<BoxError>) -> Self {
        let source = source.into();
        let kind = ErrorKind::of(&*source);
        Self { kind, source }
    }

    /// An error whose kind is known.
    pub fn new(kind: ErrorKind, source: impl Into<BoxError>) -> Self {
        Self { kind, source: source.into() }
    }

    /// Its kind, which says what to do next.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The error that it was made of, such as that of the driver.
    ///
    /// ```
    /// # fn example(error: forebay_dsql::Error) -> Option<String> {
    /// let driver = error.get_ref().downcast_ref::<tokio_postgres::Error>()?;
    /// let constraint = driver.as_db_error()?.constraint()?;
    /// # Some(constraint.to_owned()) }
    /// ```
    #[must_use]
    pub fn get_ref(&self) -> &(dyn StdError + Send + Sync + 'static) {
        &*self.source
    }

    /// The same, had it happened in a COMMIT: what may have been committed is [`ErrorKind::CommitUnknown`].
    #[must_use]
    pub fn at_commit(self) -> Self {
        Self { kind: self.kind.at_commit(), ..self }
    }

    /// The same error, with the address at which nobody answered.
    #[cfg(feature = "tokio-postgres")]
    pub(crate) fn at_address(self, address: std::net::SocketAddr) -> Self {
        Self { source: Box::new(at_address::AtAddress { address, error: self.source }), ..self }
    }

    /// The same error at a connect: the server's refusals are recognized by their text, whatever the code.
    #[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
    pub(crate) fn at_connect(self) -> Self {
        Self { kind: said::refusal(&*self.source).unwrap_or(self.kind), ..self }
    }

    /// Whether a wait for a connection ended without one, for a reason that may pass, whatever its kind.
    pub(crate) fn is_of_waiting(&self) -> bool {
        let checkout = chain::causes(&*self.source).find_map(chain::seen::<forebay::CheckoutError>);
        checkout.map_or(self.kind == ErrorKind::NoConnection, forebay::CheckoutError::is_transient)
    }

    /// The same error with the time that was waited in all, if it has such a field.
    pub(crate) fn after(mut self, so_long: Duration) -> Self {
        use forebay::CheckoutError::{Empty, Exhausted};
        if let Some(Empty { waited, .. } | Exhausted { waited, .. }) = self.source.downcast_mut() {
            *waited = so_long.max(*waited);
        }
        self
    }

    /// What was expected and found, if a condition failed.
    #[must_use]
    pub fn condition(&self) -> Option<&ConditionFailed> {
        chain::causes(&*self.source).find_map(chain::seen)
    }
}

/// What a server says about a prepared statement that no longer fits its table.
const CACHED_PLAN: &str = "cached plan must not change result type";
const CACHED_PLAN_REMEDY: &str = "the statement was prepared before the table changed: prepare it again; with sqlx, `run` does that, and on a \
     connection of `acquire`, call `clear_cached_statements()` first";

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = forebay::Chain(&*self.source).to_string();
        let kind = self.kind.to_string();
        // A cause below may have said so already, and the remedy, too.
        if !told.starts_with(&kind) && !told.contains(&format!("{kind}: ")) {
            write!(f, "{kind}: ")?;
        }
        f.write_str(&told)?;
        let remedy = if told.contains(CACHED_PLAN) { Some(CACHED_PLAN_REMEDY) } else { self.kind.remedy() };
        match remedy {
            Some(remedy) if !told.contains(remedy) => write!(f, " ({remedy})"),
            _ => Ok(()),
        }
    }
}

impl StdError for Error {}

macro_rules! classified {
    ($($source:ty),*) => {
        $(impl From<$source> for Error {
            fn from(error: $source) -> Self {
                Self::of(error)
            }
        })*
    };
}

classified!(
    std::io::Error,
    forebay::ConfigError,
    forebay::StartError,
    forebay::CheckoutError,
    forebay::OpenError,
    crate::member::JoinError,
    crate::token::TokenError,
    ConditionFailed
);
#[cfg(feature = "tokio-postgres")]
classified!(tokio_postgres::Error);
#[cfg(feature = "sqlx")]
classified!(sqlx::Error);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outdated_statement_says_how_to_get_rid_of_it() {
        let error =
            Error::new(ErrorKind::Conflict(Conflict::Schema), "cached plan must not change result type");
        assert!(error.to_string().contains("`acquire`, call `clear_cached_statements()` first"), "{error}");
    }
}
