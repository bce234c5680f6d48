//! Errors: for the clients of the emulator, and for the program that runs it.

use std::path::PathBuf;

/// Why the emulator did not start, or did not do something.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting, a fault or a limit is invalid.
    #[error("{0}")]
    Setting(String),
    /// A file could not be read or written.
    #[error("cannot use {path}", path = path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The emulator cannot listen on an address.
    #[error("cannot listen on {address} (port 0 takes a free one)")]
    Listen {
        /// The address.
        address: std::net::SocketAddr,
        /// The cause.
        source: std::io::Error,
    },
    /// Threads could not be started.
    #[error("cannot start threads: {0}")]
    Threads(std::io::Error),
    /// Certificates could not be created.
    #[error("cannot make certificates for '{name}': {reason}; the endpoint must be a host name")]
    Certificate {
        /// The host name.
        name: String,
        /// The cause.
        reason: String,
    },
    /// The engine could not start.
    #[error("cannot start the engine: {0}")]
    Engine(String),
}

/// An error in the format of the protocol. The caller chooses the severity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
#[must_use]
pub struct SqlError {
    /// The SQLSTATE.
    pub code: &'static str,
    /// The message.
    pub message: String,
    /// The detail.
    pub detail: Option<String>,
    /// The hint.
    pub hint: Option<String>,
}

impl SqlError {
    /// An error without detail and hint.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), detail: None, hint: None }
    }

    /// Adds a hint.
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// Adds a detail.
    pub fn detail(self, detail: impl Into<String>) -> Self {
        Self { detail: Some(detail.into()), ..self }
    }

    pub(crate) const DEADLINE: &'static str = "57014";

    pub(crate) const DENIED: &'static str = "28000";

    /// A statement did not end before its deadline. The client gets the limit instead.
    pub fn deadline_exceeded() -> Self {
        Self::new(Self::DEADLINE, "the statement did not end in time")
    }

    /// A feature that this database does not have.
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new("0A000", message)
    }

    /// The client violated the protocol.
    pub fn protocol(message: impl Into<String>) -> Self {
        Self::new("08P01", message)
    }
}

/// The errors of the real service, with its texts.
impl SqlError {
    /// The cluster has reached its limit of connections.
    pub fn too_many_connections() -> Self {
        Self::new("53300", "Unable to accept connection, too many open connections.")
    }

    /// The cluster has reached its rate of new connections.
    pub fn rate_exceeded() -> Self {
        Self::new("53400", "Unable to accept connection, rate exceeded.")
    }

    /// The token was refused. The SQLSTATE of the real service is not known; clients match the text.
    pub fn access_denied() -> Self {
        Self::new(Self::DENIED, "unable to accept connection, access denied")
    }

    /// The cluster is idle and must wake up. The SQLSTATE of the real service is not known; clients match the
    /// text.
    pub fn waking_up() -> Self {
        Self::new("57P03", "unable to accept connection, waking up cluster, please retry later")
    }

    /// The client sent no server name in TLS.
    pub fn no_sni() -> Self {
        Self::new("08P01", "unable to accept connection, sni was not received")
    }

    /// Another transaction changed the same rows.
    pub fn change_conflict() -> Self {
        Self::new("40001", "change conflicts with another transaction (OC000)")
    }

    /// Another transaction changed the schema.
    pub fn schema_conflict() -> Self {
        Self::new("40001", "schema has been updated by another transaction (OC001)")
    }

    /// A part of the server is lost. After a commit, the outcome is unknown.
    pub fn unavailable() -> Self {
        Self::new("XX000", "server unavailable")
    }

    /// A statement in a transaction that has failed.
    pub fn aborted() -> Self {
        Self::new("25P02", "current transaction is aborted, commands ignored until end of transaction block")
    }

    /// A transaction wrote too many bytes.
    pub fn too_large(size: usize) -> Self {
        #[allow(clippy::cast_precision_loss, reason = "only to one digit")]
        let megabytes = size as f64 / f64::from(1 << 20);
        Self::new("54000", "transaction size limit 10mb exceeded")
            .detail(format!("Current transaction size {megabytes:.1}mb > 10mb"))
    }

    /// A transaction is too old.
    pub fn too_old(limit: std::time::Duration, age: std::time::Duration) -> Self {
        let limit = limit.as_secs();
        Self::new("54000", format!("transaction age limit of {limit}s exceeded"))
            .detail(format!("Current transaction age {:.1}s exceeds {limit}s", age.as_secs_f64()))
    }
}
