//! What a client is told, and what the emulator's owner is told, when something goes wrong.

use std::path::PathBuf;

/// The emulator could not start, or could not do what it was asked to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting, a fault or a figure that makes no sense.
    #[error("{0}")]
    Setting(String),
    /// A file could not be read or written.
    #[error("cannot use {path}", path = path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// An address could not be listened on.
    #[error("cannot listen on {address} (port 0 takes a free one)")]
    Listen {
        /// Which.
        address: std::net::SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// No runtime of its own.
    #[error("cannot start threads: {0}")]
    Threads(std::io::Error),
    /// Certificates could not be made.
    #[error("cannot make certificates for '{name}': {reason}; the endpoint must be a host name")]
    Certificate {
        /// For which name.
        name: String,
        /// Why.
        reason: String,
    },
    /// The engine could not start.
    #[error("cannot start the engine: {0}")]
    Engine(String),
}

/// An error as the protocol carries it. The severity is decided by where it happens.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
#[must_use]
pub struct SqlError {
    /// The SQLSTATE.
    pub code: &'static str,
    /// The message.
    pub message: String,
    /// More about it.
    pub detail: Option<String>,
    /// What to do.
    pub hint: Option<String>,
}

impl SqlError {
    /// An error without detail and hint.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), detail: None, hint: None }
    }

    /// With a hint.
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// With a detail.
    pub fn detail(self, detail: impl Into<String>) -> Self {
        Self { detail: Some(detail.into()), ..self }
    }

    /// The code of [`SqlError::deadline_exceeded`].
    pub(crate) const DEADLINE: &'static str = "57014";

    /// The code of [`SqlError::access_denied`].
    pub(crate) const DENIED: &'static str = "28000";

    /// A statement did not end before its deadline. The front tells the client which limit that was.
    pub fn deadline_exceeded() -> Self {
        Self::new(Self::DEADLINE, "the statement did not end in time")
    }

    /// Something this database does not do.
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new("0A000", message)
    }

    /// The client broke the protocol.
    pub fn protocol(message: impl Into<String>) -> Self {
        Self::new("08P01", message)
    }
}

/// The refusals and failures of the real service, in its words.
impl SqlError {
    /// The cluster holds as many connections as it may.
    pub fn too_many_connections() -> Self {
        Self::new("53300", "Unable to accept connection, too many open connections.")
    }

    /// New connections come faster than they may.
    pub fn rate_exceeded() -> Self {
        Self::new("53400", "Unable to accept connection, rate exceeded.")
    }

    /// The token was refused. The SQLSTATE is not known of the real one; clients match the text.
    pub fn access_denied() -> Self {
        Self::new(Self::DENIED, "unable to accept connection, access denied")
    }

    /// The cluster slept. The SQLSTATE is not known of the real one; clients match the text.
    pub fn waking_up() -> Self {
        Self::new("57P03", "unable to accept connection, waking up cluster, please retry later")
    }

    /// The client named no host when it began TLS.
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

    /// The server lost a part of itself; the outcome of a commit is uncertain.
    pub fn unavailable() -> Self {
        Self::new("XX000", "server unavailable")
    }

    /// A statement in a transaction that has failed.
    pub fn aborted() -> Self {
        Self::new("25P02", "current transaction is aborted, commands ignored until end of transaction block")
    }

    /// A transaction wrote too much: so many bytes.
    pub fn too_large(size: usize) -> Self {
        #[allow(clippy::cast_precision_loss, reason = "only to one digit")]
        let megabytes = size as f64 / f64::from(1 << 20);
        Self::new("54000", "transaction size limit 10mb exceeded")
            .detail(format!("Current transaction size {megabytes:.1}mb > 10mb"))
    }

    /// A transaction grew too old: so old.
    pub fn too_old(limit: std::time::Duration, age: std::time::Duration) -> Self {
        let limit = limit.as_secs();
        Self::new("54000", format!("transaction age limit of {limit}s exceeded"))
            .detail(format!("Current transaction age {:.1}s exceeds {limit}s", age.as_secs_f64()))
    }
}
