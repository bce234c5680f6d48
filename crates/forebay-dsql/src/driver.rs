//! What the connectors of tokio-postgres and sqlx have in common.

use std::sync::Arc;
use std::time::Duration;

use forebay::rt::Runtime;
use forebay::{ConfigError, Connect};

use crate::options::Options;
use crate::token::TokenCache;

#[cfg(feature = "tokio-postgres")]
pub(crate) mod addresses;
#[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
mod opening;
#[cfg(feature = "tokio-postgres")]
pub(crate) mod tls;

#[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
pub(crate) use opening::{ended_by_body, rolled_back};

/// A connector that a [`DsqlPool`](crate::DsqlPool) can be made of: `Postgres` or `Sqlx`.
pub trait Driver: Connect + Sized {
    /// After how long an idle connection is checked, unless the settings say so: for drivers that do not notice when an idle
    /// connection dies.
    const CHECK_AFTER: Option<Duration> = None;

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
