//! What the connectors of tokio-postgres and sqlx have in common.

use std::sync::Arc;
use std::time::Duration;

use forebay::rt::Runtime;
use forebay::{BoxError, ConfigError, Connect};

use crate::options::Options;
use crate::token::TokenCache;

#[cfg(feature = "tokio-postgres")]
pub(crate) mod addresses;
#[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
pub(crate) mod given_up;
#[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
mod opening;
#[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
pub(crate) mod timer;
#[cfg(feature = "tokio-postgres")]
pub(crate) mod tls;

#[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
pub(crate) use opening::{ended_by_body, rolled_back};

/// How long a connection is set aside that was returned with an unanswered request. If the server has answered by then, the connection
/// is used again. Longer than a slow spell of a cluster, and short enough that a few connections to a part of it that hangs do
/// not take up the places of others for long.
#[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
pub(crate) const SET_ASIDE: Duration = Duration::from_secs(60);

/// How much longer than usual the maintenance of any other connection may take if the server does not answer. A shorter stall of the
/// cluster closes nothing, and a connection that was cut without notice is replaced before callers stop waiting.
#[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
pub(crate) const SLOW_SPELL: Duration = Duration::from_secs(20);

/// A connector that a [`DsqlPool`](crate::DsqlPool) can be made of: `Postgres` or `Sqlx`.
pub trait Driver: Connect + Sized {
    /// After how long an idle connection is checked, unless the settings say so: for drivers that do not notice when an idle
    /// connection dies.
    const CHECK_AFTER: Option<Duration> = None;

    /// Accepts the settings of a connection: what was set until now is what a clean connection has, until the next
    /// [reset](Connect::reset). It runs after the hook [`after_connect`](crate::Builder::after_connect). Default: nothing is to be
    /// done.
    ///
    /// It fails, and the connection is closed, if more was left behind than settings, such as a transaction.
    fn settle(&self, connection: &mut Self::Connection) -> impl Future<Output = Result<(), BoxError>> + Send {
        let _ = connection;
        std::future::ready(Ok(()))
    }

    /// Whether a connection still has the settings that [`settle`](Self::settle) has accepted: its last reset did not undo
    /// them. If not, the hook runs again. Default: no.
    fn is_settled(connection: &Self::Connection) -> bool {
        let _ = connection;
        false
    }

    /// Makes a connector.
    ///
    /// # Errors
    /// If the driver cannot work with the options.
    fn new(parts: ConnectorParts) -> Result<Self, ConfigError>;
}

/// What a connector is made of.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConnectorParts {
    /// Where to connect, as whom.
    pub options: Options,
    /// Where tokens come from.
    pub tokens: TokenCache,
    /// Where tasks run.
    pub runtime: Arc<dyn Runtime>,
}

impl ConnectorParts {
    /// These parts.
    #[must_use]
    pub fn new(options: Options, tokens: TokenCache, runtime: Arc<dyn Runtime>) -> Self {
        Self { options, tokens, runtime }
    }
}
