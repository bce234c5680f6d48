//! What all connections to one server share: how to connect, and which optional calls the server supports.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arrow_flight::sql::{CommandStatementQuery, ProstMessageExt};
use bytes::Bytes;
use forebay::rt::Runtime;
use prost::Message;

use super::Capability;
use super::options::ConnectOptions;
use super::tls::Tls;
use crate::error::Result;

/// One server.
pub(crate) struct Server {
    pub(crate) options: ConnectOptions,
    pub(crate) tls: Option<Tls>,
    pub(crate) runtime: Arc<dyn Runtime>,
    /// The command of the health check.
    pub(crate) healthcheck: Bytes,
    /// How long to wait for a session that does not answer.
    pub(crate) quarantine: Duration,
    pub(crate) cancel_flight_info: Capability,
    pub(crate) cancel_query: Capability,
    pub(crate) cancel_session: Capability,
    /// Shared with the other hosts that hold parts of its results.
    pub(crate) close_session: Arc<Capability>,
    pub(crate) poll_flight_info: Capability,
    pub(crate) begin_transaction: Capability,
    /// Updates that are not prepared.
    pub(crate) statement_update: Capability,
    /// How to restore a session.
    pub(crate) reset: SessionReset,
}

/// How a pool restores a session that a borrower has altered.
#[derive(Clone, Debug, Default)]
pub(crate) struct SessionReset {
    /// Statements, or queries that return statements. Without any, a session with objects of its own is closed.
    pub(crate) sql: Vec<String>,
    /// The statement that restores the current schema, if nothing else has changed. Without it, the statements above do.
    pub(crate) schema: Option<String>,
    /// The statement that restores the setting `{name}`. Without it, a session with changed settings is closed.
    pub(crate) setting: Option<String>,
    /// Whether DDL and updates with parameters alter the session.
    pub(crate) after_ddl: bool,
}

impl Server {
    pub(crate) fn new(
        options: ConnectOptions,
        runtime: Arc<dyn Runtime>,
        healthcheck_sql: &str,
        quarantine: Duration,
        reset: SessionReset,
    ) -> Result<Self> {
        options.validate()?;
        Ok(Self {
            tls: Tls::new(&options)?,
            options,
            runtime,
            healthcheck: query_command(healthcheck_sql, None),
            quarantine,
            cancel_flight_info: Capability::default(),
            cancel_query: Capability::default(),
            cancel_session: Capability::default(),
            close_session: Arc::default(),
            poll_flight_info: Capability::default(),
            begin_transaction: Capability::default(),
            statement_update: Capability::default(),
            reset,
        })
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Server").field(&self.options.endpoint).finish()
    }
}

/// The command that runs `sql` as a query.
pub(crate) fn query_command(sql: &str, transaction_id: Option<Bytes>) -> Bytes {
    CommandStatementQuery { query: sql.to_owned(), transaction_id }.as_any().encode_to_vec().into()
}
