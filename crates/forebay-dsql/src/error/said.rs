//! Classifies errors of tokio-postgres and sqlx.

use std::borrow::Cow;
use std::error::Error as StdError;

use super::chain::{causes, seen};
use super::kind::ErrorKind;

/// What a server said.
struct Words<'a> {
    code: Cow<'a, str>,
    message: &'a str,
    hint: Option<&'a str>,
    /// The session ends with it.
    is_last: bool,
}

impl<'a> Words<'a> {
    /// Those that `error` itself is made of.
    fn of(error: &'a (dyn StdError + 'static)) -> Option<Self> {
        #[cfg(feature = "tokio-postgres")]
        if let Some(said) = seen::<tokio_postgres::error::DbError>(error) {
            return Some(Self::of_tokio_postgres(said));
        }
        #[cfg(feature = "raw")]
        if let Some(said) = seen::<crate::raw::ServerMessage>(error) {
            let (code, hint) = (said.code.as_str().into(), said.hint.as_deref());
            return Some(Self { code, message: &said.message, hint, is_last: said.is_last() });
        }
        #[cfg(feature = "sqlx")]
        if let Some(sqlx::Error::Database(said)) = seen::<sqlx::Error>(error) {
            return Some(Self::of_sqlx(&**said));
        }
        None
    }

    #[cfg(feature = "tokio-postgres")]
    fn of_tokio_postgres(said: &'a tokio_postgres::error::DbError) -> Self {
        use tokio_postgres::error::Severity;
        // A server that does not send the untranslated word sends the other one in English.
        let is_last = match said.parsed_severity() {
            Some(severity) => matches!(severity, Severity::Fatal | Severity::Panic),
            None => matches!(said.severity(), "FATAL" | "PANIC"),
        };
        Self { code: said.code().code().into(), message: said.message(), hint: said.hint(), is_last }
    }

    #[cfg(feature = "sqlx")]
    fn of_sqlx(said: &'a (dyn sqlx::error::DatabaseError + 'static)) -> Self {
        use sqlx::postgres::{PgDatabaseError, PgSeverity};
        let ours = said.try_downcast_ref::<PgDatabaseError>();
        let is_last =
            ours.is_some_and(|said| matches!(said.severity(), PgSeverity::Fatal | PgSeverity::Panic));
        let hint = ours.and_then(PgDatabaseError::hint);
        Self { code: said.code().unwrap_or_default(), message: said.message(), hint, is_last }
    }

    fn kind(&self) -> ErrorKind {
        let of = if self.is_last { ErrorKind::of_last_words } else { ErrorKind::of_server };
        of(&self.code, self.message, self.hint)
    }
}

/// The kind of what a server said.
pub(super) fn kind(error: &(dyn StdError + 'static)) -> Option<ErrorKind> {
    Words::of(error).map(|words| words.kind())
}

/// The kind of what a server said to somebody who connects, if it is a refusal. No function of an application runs there,
/// which could say the same: it is told by its words, whatever its code.
pub(super) fn refusal(error: &(dyn StdError + 'static)) -> Option<ErrorKind> {
    let words = causes(error).find_map(Words::of)?;
    ErrorKind::of_refusal(&words.code, &words.message.to_ascii_lowercase(), words.hint)
}

/// Whether the error comes from a server, and not from the network.
pub(crate) fn is_said(error: &(dyn StdError + 'static)) -> bool {
    causes(error).any(|cause| Words::of(cause).is_some())
}

/// Whether it says that an earlier statement of the transaction had failed.
pub(crate) fn is_failed_transaction(error: &(dyn StdError + 'static)) -> bool {
    causes(error).find_map(Words::of).is_some_and(|words| words.code == "25P02")
}

/// Whether it says that a prepared statement is not there.
#[cfg(feature = "sqlx")]
pub(crate) fn is_unprepared(error: &(dyn StdError + 'static)) -> bool {
    causes(error).find_map(Words::of).is_some_and(|words| words.code == "26000")
}

#[cfg(feature = "tokio-postgres")]
const NOT_UNDERSTOOD: &str = "error parsing response from server";
#[cfg(feature = "tokio-postgres")]
const NOT_EXPECTED: &str = "unexpected message from server";

#[cfg(feature = "tokio-postgres")]
pub(super) fn of_tokio_postgres(error: &(dyn StdError + 'static)) -> Option<ErrorKind> {
    let error = seen::<tokio_postgres::Error>(error)?;
    // Only their texts tell these apart. The stream is out of sync after them.
    let unread = || matches!(&*error.to_string(), NOT_UNDERSTOOD | NOT_EXPECTED);
    (error.is_closed() || unread()).then_some(ErrorKind::Disconnected)
}

#[cfg(feature = "sqlx")]
pub(super) fn of_sqlx(error: &(dyn StdError + 'static)) -> Option<ErrorKind> {
    match seen::<sqlx::Error>(error)? {
        // The one that is found before anything is sent.
        sqlx::Error::Protocol(what) if what.contains("too many arguments") => Some(ErrorKind::Permanent),
        // The stream is out of sync.
        sqlx::Error::Protocol(_) | sqlx::Error::BeginFailed | sqlx::Error::WorkerCrashed => {
            Some(ErrorKind::Disconnected)
        }
        sqlx::Error::PoolTimedOut => Some(ErrorKind::NoConnection),
        _ => None,
    }
}

#[cfg(all(test, feature = "tokio-postgres"))]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio_postgres::NoTls;

    use crate::error::{Auth, Error, ErrorKind, Throttle};

    /// The error of one who connects to a server that says this.
    async fn refused(severity: &str, code: &str, message: &str, hint: &str) -> Error {
        let fields = format!("S{severity}\0V{severity}\0C{code}\0M{message}\0H{hint}\0\0");
        let length = u32::try_from(fields.len() + 4).unwrap().to_be_bytes();
        let (ours, mut theirs) = tokio::io::duplex(1_024);
        theirs.write_all(&[b"E", &length[..], fields.as_bytes()].concat()).await.unwrap();
        match tokio_postgres::Config::new().user("admin").connect_raw(ours, NoTls).await {
            Ok(_) => panic!("it was let in"),
            Err(error) => Error::from(error),
        }
    }

    #[tokio::test]
    async fn a_refusal_is_known_by_its_words_whatever_its_code() {
        let expired = "Signature expired: 20261116T000000Z is now earlier than 20261116T001500Z";
        for code in ["42501", "0A000", "58000", "3D000", "P0001", "28000", "08006", "XX000"] {
            for severity in ["FATAL", "ERROR"] {
                for (words, hint, kind) in [
                    ("access denied", expired, ErrorKind::Auth(Auth::SignatureExpired)),
                    ("access denied", "", ErrorKind::Auth(Auth::Denied)),
                    ("waking up cluster, please retry later", "", ErrorKind::Throttled(Throttle::Waking)),
                    ("rate exceeded.", "", ErrorKind::Throttled(Throttle::RateExceeded)),
                ] {
                    let message = format!("unable to accept connection, {words}");
                    let error = refused(severity, code, &message, hint).await.at_connect();
                    assert_eq!(error.kind(), kind, "{code}: {error}");
                }
            }
        }
        // Anything but a refusal keeps its kind.
        let error = refused("FATAL", "3D000", "database \"nix\" does not exist", "").await;
        assert_eq!(error.at_connect().kind(), ErrorKind::Permanent);
        let error = refused("FATAL", "57P01", "terminating connection", "").await;
        assert_eq!(error.at_connect().kind(), ErrorKind::Disconnected);
    }
}
