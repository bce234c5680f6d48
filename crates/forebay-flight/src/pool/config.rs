//! The settings of a pool.

use std::time::Duration;

use crate::connection::{ConnectOptions, SWANLAKE_IDLE_LIMIT, SessionReset};
use crate::error::{Error, Result};

/// The settings of a pool: how many connections it has, and how long it waits.
///
/// ```
/// use forebay_flight::PoolConfig;
///
/// let config = PoolConfig { max_size: 8, default_query_timeout_ms: Some(30_000), ..PoolConfig::default() };
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// The connections opened at the start, and kept ready. Default 1.
    pub min_idle: usize,
    /// The most connections: in use, ready and opening. Default: twice the processors, at least 4 and at most
    /// 16.
    pub max_size: usize,
    /// How long a caller waits for a connection, in milliseconds. Default 30,000.
    pub acquire_timeout_ms: u64,
    /// How long a connection may be idle before it is closed, down to `min_idle`, in milliseconds. Default
    /// 300,000; 0 keeps them.
    pub idle_ttl_ms: u64,
    /// The query that checks whether a session answers. It runs once for each new connection, and after a
    /// failure. Default `SELECT 1`.
    pub healthcheck_sql: String,
    /// How long a statement may take, from the call to its last row, in milliseconds. Default: no limit.
    pub default_query_timeout_ms: Option<u64>,
    /// Whether a read-only statement runs a second time, on another connection, if the first fails before it
    /// has returned anything. Default: yes.
    pub retry_on_failure: bool,
    /// The most sessions of this pool on the server, including those that still run a cancelled statement and
    /// those that the server keeps after their end. Default: twice `max_size`.
    pub session_budget: Option<usize>,
    /// How long a session whose cancelled statement does not stop stays in quarantine, until it answers
    /// again, in milliseconds. Default 30,000.
    pub quarantine_ms: u64,
    /// How long the server keeps a session after its connection is closed, in milliseconds. It counts in the
    /// budget until then. Default 0.
    pub session_linger_ms: u64,
    /// Statements that restore a session which a borrower has altered: its temporary tables, its current schema. A query
    /// among them returns further statements, one in each row. Without any, such a session is closed. Default: none.
    pub reset_sql: Vec<String>,
    /// The statement that restores the current schema after an update with parameters, if `ddl_alters_session` is set. Without
    /// it, `reset_sql` runs. Default: none.
    pub reset_schema_sql: Option<String>,
    /// The statement that restores a setting, with `{name}` for its name: `RESET {name}`. It runs for each setting that a
    /// borrower has changed by `SET name = ...` or `PRAGMA name = ...`. The name may have `SESSION`, `GLOBAL` or `VARIABLE` in
    /// front. Without it, and after anything else that changes a session, such as `ATTACH`, the session is closed. Default:
    /// none.
    pub reset_setting_sql: Option<String>,
    /// Whether DDL, and updates with parameters, change what later statements of the session see. So it is on servers whose
    /// sessions have a catalog of their own, such as SwanLake. Default: no.
    pub ddl_alters_session: bool,
    /// How long a session may run no statement before the server may replace it, in milliseconds. See
    /// [`ConnectOptions::session_idle_limit`], which is used if this is not set. Default: no limit.
    pub session_idle_limit_ms: Option<u64>,
    /// Whether the server runs a statement to find its columns. See [`ConnectOptions::plans_by_running`], which is used if this
    /// is not set. Default: no.
    pub plans_by_running: bool,
}

impl Default for PoolConfig {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            min_idle: 1,
            max_size: default_max_size(processors),
            acquire_timeout_ms: 30_000,
            idle_ttl_ms: 300_000,
            healthcheck_sql: "SELECT 1".to_owned(),
            default_query_timeout_ms: None,
            retry_on_failure: true,
            session_budget: None,
            quarantine_ms: 30_000,
            session_linger_ms: 0,
            reset_sql: Vec::new(),
            reset_schema_sql: None,
            reset_setting_sql: None,
            ddl_alters_session: false,
            session_idle_limit_ms: None,
            plans_by_running: false,
        }
    }
}

/// The longest pause after a failed attempt to connect. Short, so that a server that comes back is used soon.
const MAX_BACKOFF: Duration = Duration::from_millis(250);
/// Attempts to connect per second, after the first burst.
const CONNECT_RATE: f64 = 100.0;
/// How long the first and the last steps of closing a connection may take: cancelling its statement, closing its session.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Removes the tables and views that a session has created in DuckDB, and all else that is in its own catalog, and returns to
/// that. A session with other temporary objects, attached databases or secrets is closed.
const RESET_DUCKDB: [&str; 2] = [
    "SELECT 'DROP VIEW IF EXISTS temp.\"' || replace(view_name, '\"', '\"\"') || '\"' FROM duckdb_views() \
     WHERE temporary AND NOT internal UNION ALL \
     SELECT 'DROP TABLE IF EXISTS temp.\"' || replace(table_name, '\"', '\"\"') || '\"' FROM duckdb_tables() WHERE temporary",
    "ATTACH ':memory:' AS forebay_reset; USE forebay_reset; DETACH memory; ATTACH ':memory:' AS memory; USE memory; \
     DETACH forebay_reset; RESET search_path",
];

impl PoolConfig {
    /// The settings for SwanLake, a Flight SQL server on DuckDB. It cannot stop a statement or close a session, and keeps a
    /// session for up to 20 minutes after its connection is gone. Each session has a catalog of its own beside `swanlake`, so
    /// it is restored after DDL. An idle session is replaced by the server after 15 minutes.
    #[must_use]
    pub fn for_swanlake() -> Self {
        Self {
            session_linger_ms: 1_200_000,
            reset_sql: RESET_DUCKDB.map(str::to_owned).to_vec(),
            reset_schema_sql: Some("RESET search_path".to_owned()),
            reset_setting_sql: Some("RESET {name}".to_owned()),
            ddl_alters_session: true,
            session_idle_limit_ms: Some(1_000 * SWANLAKE_IDLE_LIMIT.as_secs()),
            plans_by_running: true,
            // Closing an idle session frees nothing, and would count until the server forgets it. The server forgets one that
            // stays open just as soon.
            idle_ttl_ms: 0,
            ..Self::default()
        }
    }

    pub(crate) fn reset(&self) -> SessionReset {
        SessionReset {
            sql: self.reset_sql.clone(),
            schema: self.reset_schema_sql.clone(),
            setting: self.reset_setting_sql.clone(),
            after_ddl: self.ddl_alters_session,
        }
    }

    /// The options of its connections.
    pub(crate) fn apply_to(&self, options: ConnectOptions) -> ConnectOptions {
        let plans_by_running = options.plans_by_running || self.plans_by_running;
        let options = options.plans_by_running(plans_by_running);
        match self.session_idle_limit_ms {
            Some(limit) => options.session_idle_limit(Duration::from_millis(limit)),
            None => options,
        }
    }

    pub(crate) fn default_timeout(&self) -> Option<Duration> {
        self.default_query_timeout_ms.map(Duration::from_millis)
    }

    pub(crate) fn acquire_timeout(&self) -> Duration {
        Duration::from_millis(self.acquire_timeout_ms)
    }

    pub(crate) fn quarantine(&self) -> Duration {
        Duration::from_millis(self.quarantine_ms)
    }

    pub(crate) fn linger(&self) -> Duration {
        Duration::from_millis(self.session_linger_ms)
    }

    pub(crate) fn idle_timeout(&self) -> Option<Duration> {
        (self.idle_ttl_ms > 0).then(|| Duration::from_millis(self.idle_ttl_ms))
    }

    pub(crate) fn session_budget(&self) -> usize {
        self.session_budget.unwrap_or(self.max_size.saturating_mul(2))
    }

    /// The same as a configuration of the core.
    pub(crate) fn reservoir(&self, options: &ConnectOptions) -> Result<forebay::Config> {
        if self.session_budget() < self.max_size {
            return Err(Error::config(format!(
                "session_budget is {}, but must be at least max_size, which is {}",
                self.session_budget(),
                self.max_size
            )));
        }
        if let Some(sql) = &self.reset_setting_sql
            && !sql.contains("{name}")
        {
            return Err(Error::config(format!(
                "reset_setting_sql is {sql:?}, but must have {{name}} in place of the setting's name"
            )));
        }
        let burst = u32::try_from(self.max_size.saturating_mul(2)).unwrap_or(u32::MAX).max(1);
        let mut config = forebay::Config::default()
            .max_open(self.max_size)
            .on_demand(self.min_idle)
            .unlimited_lifetime()
            .acquire_timeout(self.acquire_timeout())
            .open_timeout(options.open_timeout())
            .close_timeout(self.quarantine() + self.linger() + CLOSE_TIMEOUT)
            .max_backoff(MAX_BACKOFF)
            .rate(CONNECT_RATE, burst)
            .startup_jitter(Duration::ZERO);
        if let Some(timeout) = self.idle_timeout() {
            config = config.idle_timeout(timeout);
        }
        // The core's error with this crate's names.
        config
            .validate()
            .map_err(|error| Error::config(error.to_string().replace("max_open", "max_size")))?;
        Ok(config)
    }
}

fn default_max_size(processors: usize) -> usize {
    processors.saturating_mul(2).clamp(4, 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_is_twice_as_large_as_there_are_processors_from_4_to_16() {
        for (processors, max_size) in
            [(0, 4), (1, 4), (2, 4), (3, 6), (4, 8), (7, 14), (8, 16), (9, 16), (192, 16), (usize::MAX, 16)]
        {
            assert_eq!(default_max_size(processors), max_size, "of {processors}");
        }
        let processors = std::thread::available_parallelism().map_or(2, usize::from);
        assert_eq!(PoolConfig::default().max_size, default_max_size(processors));
    }

    #[test]
    fn the_defaults_are_those_of_the_specification() {
        let config = PoolConfig::default();
        assert_eq!((config.min_idle, config.acquire_timeout_ms, config.idle_ttl_ms), (1, 30_000, 300_000));
        assert_eq!(config.healthcheck_sql, "SELECT 1");
        assert_eq!((config.default_query_timeout_ms, config.retry_on_failure), (None, true));
    }

    #[test]
    fn invalid_settings_are_rejected_with_this_crates_names() {
        let options = ConnectOptions::new("grpc://localhost:1").unwrap();
        let refused = |config: PoolConfig| config.reservoir(&options).unwrap_err().to_string();
        assert!(PoolConfig::default().reservoir(&options).is_ok());
        let error = refused(PoolConfig { max_size: 0, min_idle: 0, ..PoolConfig::default() });
        assert!(error.contains("max_size is 0, but must be at least 1"), "{error}");
        let error = refused(PoolConfig { max_size: 2, min_idle: 3, ..PoolConfig::default() });
        assert!(error.contains("min_idle is 3"), "{error}");
        let error = refused(PoolConfig { max_size: 2, session_budget: Some(1), ..PoolConfig::default() });
        assert!(error.contains("session_budget is 1"), "{error}");
        let error =
            refused(PoolConfig { reset_setting_sql: Some("RESET ALL".to_owned()), ..PoolConfig::default() });
        assert!(error.contains("must have {name}"), "{error}");
    }
}
