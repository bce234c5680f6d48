//! The plain pool: deadpool, set up as well as it can be.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context;
use deadpool::managed::{
    Manager, Metrics, Object, Pool, PoolError, QueueMode, RecycleError, RecycleResult, Timeouts,
};
use forebay::rt::{self, Runtime, TokioRuntime};
use forebay::{Connect, ConnectionMonitor, Instant, OpenError, Rng, Seed};
use forebay_dsql::{ConnectorParts, Driver, Postgres, PostgresConnection, TokenCache};
use parking_lot::Mutex;

use super::backoff::{self, Backoff};
use super::database::Database;
use super::scenario::{ACQUIRE_TIMEOUT, CONNECTIONS_EACH, draw, seconds};

/// A fifth of the lives' length is random: connections that were opened together do not end together.
const LIFE: Range<Duration> = Duration::from_secs(68)..Duration::from_secs(85);

/// How it is set up, in words.
pub(super) fn settings() -> Vec<(&'static str, String)> {
    let timeout = seconds(ACQUIRE_TIMEOUT);
    let (shortest, longest) = (seconds(LIFE.start), seconds(LIFE.end));
    vec![
        ("connections", format!("{CONNECTIONS_EACH}, opened up front")),
        ("life", format!("{shortest} to {longest}, drawn for each")),
        ("timeouts", format!("wait {timeout}, create {timeout}")),
        backoff::setting(),
        ("queue", "first in, first out".to_owned()),
    ]
}

/// The pool of one instance. No setting makes deadpool open a connection before a caller needs one.
#[derive(Debug)]
pub(super) struct PlainPool {
    pool: Pool<Opener>,
    runtime: TokioRuntime,
    backoff: Backoff,
}

impl PlainPool {
    /// Every connection is open before the first caller comes.
    pub(super) async fn start(
        database: &Database,
        runtime: TokioRuntime,
        seed: Seed,
    ) -> anyhow::Result<Self> {
        let options = database.options().build()?;
        let tokens = TokenCache::new(database.signer(), runtime.clone(), options.service());
        let postgres = Postgres::new(ConnectorParts::new(options, tokens, Arc::new(runtime.clone())))?;
        let opener = Opener {
            postgres,
            runtime: runtime.clone(),
            rng: Mutex::new(seed.rng()),
            opening: Arc::default(),
        };
        let pool = Pool::builder(opener)
            .max_size(CONNECTIONS_EACH)
            .queue_mode(QueueMode::Fifo)
            .wait_timeout(Some(ACQUIRE_TIMEOUT))
            .create_timeout(Some(ACQUIRE_TIMEOUT))
            .runtime(deadpool::Runtime::Tokio1)
            .build()?;
        let this = Self { pool, runtime: runtime.clone(), backoff: Backoff::new(runtime, seed) };
        // One after another, so that their lives are spread a little more.
        let mut all = Vec::new();
        while all.len() < CONNECTIONS_EACH {
            all.push(this.get(&Timeouts::new()).await.context("cannot connect to the local cluster")?);
        }
        drop(all);
        Ok(this)
    }

    /// A connection, within the acquire timeout. deadpool limits the wait and the open separately, and each attempt
    /// on its own. The caller waits for no longer than one timeout.
    pub(super) async fn acquire(&self) -> Option<Object<Opener>> {
        rt::within(&self.runtime, ACQUIRE_TIMEOUT, self.get(&self.pool.timeouts())).await?.ok()
    }

    /// A connection. To try again within `Manager::create` was tried: callers stay with the open that they have begun, and the
    /// longest waits are half as long again.
    async fn get(&self, timeouts: &Timeouts) -> Result<Object<Opener>, PoolError<OpenError>> {
        let is_refused = |error: &PoolError<OpenError>| matches!(error, PoolError::Backend(_));
        self.backoff.get(|| self.pool.timeout_get(timeouts), is_refused).await
    }

    /// Connections that no caller has and that are not dead: deadpool notices a dead one only when it is asked for.
    pub(super) fn ready(&self) -> usize {
        let mut ready = 0;
        let opener = self.pool.manager();
        self.pool.retain(|connection, _| {
            ready += usize::from(opener.postgres.is_usable(&connection.connection));
            true
        });
        ready
    }

    pub(super) fn opening(&self) -> usize {
        self.pool.manager().opening.load(Ordering::Relaxed)
    }
}

/// Opens connections for deadpool, with the connector that the reservoirs use: the same TLS, tokens and driver.
pub(super) struct Opener {
    postgres: Postgres,
    runtime: TokioRuntime,
    rng: Mutex<Rng>,
    opening: Arc<AtomicUsize>,
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Opener")
    }
}

/// A connection, and when it is too old.
#[derive(Debug)]
pub(super) struct Expiring {
    pub(super) connection: PostgresConnection,
    use_until: Instant,
}

/// Counts an open while it is under way.
struct Opening(Arc<AtomicUsize>);

impl Opening {
    fn begin(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Manager for Opener {
    type Type = Expiring;
    type Error = OpenError;

    async fn create(&self) -> Result<Expiring, OpenError> {
        let _opening = Opening::begin(&self.opening);
        let connection = self.postgres.open(ConnectionMonitor::unattached()).await?;
        let life = draw(&mut self.rng.lock(), &LIFE);
        Ok(Expiring { connection, use_until: self.runtime.now() + life })
    }

    async fn recycle(&self, lent: &mut Expiring, _: &Metrics) -> RecycleResult<OpenError> {
        if self.runtime.now() >= lent.use_until {
            return Err(RecycleError::message("too old"));
        }
        if self.postgres.is_usable(&lent.connection) { Ok(()) } else { Err(RecycleError::message("dead")) }
    }
}
