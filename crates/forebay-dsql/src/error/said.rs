//! What the errors of the two clients tell.

use std::error::Error as StdError;

use super::chain::{causes, seen};
use super::class::Class;

/// Whether it says that an earlier statement of the transaction had failed.
pub(crate) fn is_failed_transaction(error: &(dyn StdError + 'static)) -> bool {
    let code = causes(error).find_map(|cause| {
        #[cfg(feature = "tokio-postgres")]
        if let Some(said) = seen::<tokio_postgres::error::DbError>(cause) {
            return Some(said.code().code() == "25P02");
        }
        #[cfg(feature = "sqlx")]
        if let Some(sqlx::Error::Database(said)) = seen::<sqlx::Error>(cause) {
            return Some(said.code().as_deref() == Some("25P02"));
        }
        None
    });
    code == Some(true)
}

/// Whether a server said it, and not what lies between.
#[cfg(feature = "tokio-postgres")]
pub(crate) fn is_said(error: &(dyn StdError + 'static)) -> bool {
    causes(error).any(|cause| seen::<tokio_postgres::error::DbError>(cause).is_some())
}

#[cfg(feature = "tokio-postgres")]
const NOT_UNDERSTOOD: &str = "error parsing response from server";
#[cfg(feature = "tokio-postgres")]
const NOT_EXPECTED: &str = "unexpected message from server";

#[cfg(feature = "tokio-postgres")]
pub(super) fn of_tokio_postgres(error: &(dyn StdError + 'static)) -> Option<Class> {
    use tokio_postgres::error::{DbError, Severity};
    if let Some(said) = seen::<DbError>(error) {
        // A server that does not send the untranslated word sends the other one in English.
        let is_last = match said.parsed_severity() {
            Some(severity) => matches!(severity, Severity::Fatal | Severity::Panic),
            None => matches!(said.severity(), "FATAL" | "PANIC"),
        };
        let of = if is_last { Class::of_last_words } else { Class::of_server };
        return Some(of(said.code().code(), said.message(), said.hint()));
    }
    let error = seen::<tokio_postgres::Error>(error)?;
    // It does not tell these apart but by their texts. Nobody knows what will be read after them.
    let unread = || matches!(&*error.to_string(), NOT_UNDERSTOOD | NOT_EXPECTED);
    (error.is_closed() || unread()).then_some(Class::Disconnected)
}

#[cfg(feature = "sqlx")]
pub(super) fn of_sqlx(error: &(dyn StdError + 'static)) -> Option<Class> {
    use sqlx::postgres::{PgDatabaseError, PgSeverity};
    match seen::<sqlx::Error>(error)? {
        sqlx::Error::Database(said) => {
            let ours = said.try_downcast_ref::<PgDatabaseError>();
            let is_last =
                ours.is_some_and(|said| matches!(said.severity(), PgSeverity::Fatal | PgSeverity::Panic));
            let of = if is_last { Class::of_last_words } else { Class::of_server };
            let hint = ours.and_then(PgDatabaseError::hint);
            Some(of(&said.code().unwrap_or_default(), said.message(), hint))
        }
        // The one that is found before anything is sent.
        sqlx::Error::Protocol(what) if what.contains("too many arguments") => Some(Class::Permanent),
        // Nobody knows what will be read next.
        sqlx::Error::Protocol(_) | sqlx::Error::BeginFailed | sqlx::Error::WorkerCrashed => {
            Some(Class::Disconnected)
        }
        sqlx::Error::PoolTimedOut => Some(Class::NoConnection),
        _ => None,
    }
}
