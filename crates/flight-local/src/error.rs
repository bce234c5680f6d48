//! Errors: at the start, and of statements.

use std::net::SocketAddr;
use std::path::PathBuf;

use rusqlite::ErrorCode;
use rusqlite::ffi;
use tonic::Status;

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The address is in use, or does not belong to this machine.
    #[error("cannot listen on {address}: {reason}; {}", elsewhere(reason))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        reason: std::io::Error,
    },
    /// The certificate or key is invalid.
    #[error("cannot use the certificate: {0}; give PEM text of a certificate chain and of its private key")]
    Certificate(String),
    /// SQLite cannot open the database.
    #[error("cannot open the database {}: {reason}; give a SQLite database, or a new file where this user may write", path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
    /// The operating system refuses threads.
    #[error("cannot start threads: {0}")]
    Threads(std::io::Error),
    /// The operating system returns no random numbers.
    #[error("cannot get random numbers: {0}")]
    Random(String),
    /// A setting is invalid.
    #[error("{0}")]
    Setting(&'static str),
}

/// A hint for the address.
fn elsewhere(reason: &std::io::Error) -> &'static str {
    match reason.kind() {
        std::io::ErrorKind::AddrNotAvailable => "choose an address of this machine, such as 127.0.0.1",
        _ => "choose another port, or 0 for a free one",
    }
}

/// Why a statement failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// It was cancelled, or its client is gone.
    #[error("the statement was interrupted")]
    Interrupted,
    #[error("{0}")]
    Sql(rusqlite::Error),
    /// A value that its column's Arrow type cannot hold.
    #[error("{0}")]
    Value(String),
    /// The request is invalid.
    #[error("{0}")]
    Request(String),
    /// The request is valid, but not in the current state of the session.
    #[error("{0}")]
    Precondition(&'static str),
    #[error("{0}")]
    Arrow(#[from] arrow_schema::ArrowError),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::OperationInterrupted) => Self::Interrupted,
            _ => Self::Sql(error),
        }
    }
}

impl Failure {
    /// The gRPC status. The code tells what the caller can do about it.
    pub(crate) fn status(&self, all_internal: bool) -> Status {
        let text = self.to_string();
        match self {
            Self::Interrupted => Status::cancelled(text),
            _ if all_internal => Status::internal(text),
            Self::Value(_) | Self::Request(_) | Self::Arrow(_) => Status::invalid_argument(text),
            Self::Precondition(_) => Status::failed_precondition(text),
            Self::Sql(error) => sql_status(error, text),
        }
    }
}

fn sql_status(error: &rusqlite::Error, text: String) -> Status {
    use rusqlite::Error;
    match error {
        Error::SqliteFailure(failure, _) => match failure.code {
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
                Status::aborted(format!("{text}; another session is writing: run the transaction again"))
            }
            ErrorCode::ConstraintViolation => match failure.extended_code {
                ffi::SQLITE_CONSTRAINT_UNIQUE
                | ffi::SQLITE_CONSTRAINT_PRIMARYKEY
                | ffi::SQLITE_CONSTRAINT_ROWID => Status::already_exists(text),
                _ => Status::failed_precondition(text),
            },
            ErrorCode::ReadOnly | ErrorCode::AuthorizationForStatementDenied => {
                Status::permission_denied(text)
            }
            ErrorCode::Unknown | ErrorCode::TypeMismatch | ErrorCode::TooBig => {
                Status::invalid_argument(text)
            }
            ErrorCode::DiskFull | ErrorCode::OutOfMemory => Status::resource_exhausted(text),
            _ => Status::internal(text),
        },
        _ => Status::invalid_argument(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(sql: &str) -> Failure {
        let connection = rusqlite::Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE t (id INTEGER PRIMARY KEY, n INT CHECK (n > 0))").unwrap();
        connection.execute_batch("INSERT INTO t VALUES (1, 1)").unwrap();
        connection.execute_batch(sql).unwrap_err().into()
    }

    #[test]
    fn the_code_tells_what_the_caller_can_do() {
        use tonic::Code;
        for (sql, code) in [
            ("SELEC 1", Code::InvalidArgument),
            ("SELECT * FROM nowhere", Code::InvalidArgument),
            ("INSERT INTO t VALUES (1, 2)", Code::AlreadyExists),
            ("INSERT INTO t VALUES (2, 0)", Code::FailedPrecondition),
            ("PRAGMA query_only = 1; INSERT INTO t VALUES (2, 2)", Code::PermissionDenied),
        ] {
            let failure = failed(sql);
            assert_eq!(failure.status(false).code(), code, "{sql}: {failure}");
            assert_eq!(failure.status(true).code(), Code::Internal, "{sql}");
        }
        assert_eq!(Failure::Interrupted.status(true).code(), Code::Cancelled);
    }
}
