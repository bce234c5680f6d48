//! The contestants: fixed connections without a pool, this project in both modes, and a plain pool.
//!
//! All of them open the same connections, with the same cache of statements. Only where a caller gets one from differs.

use std::fs;
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use deadpool::managed::{self, Hook, HookError, RecycleError, Timeouts};
use forebay::rt::TokioRuntime;
use forebay::{Config, Connect, ConnectionMonitor, Lifetime, OpenError, Rng, Seed};
use forebay_dsql::{
    ConnectionState, ConnectorParts, Driver, Dsql, Error, ErrorKind, Options, Postgres, PostgresConnection,
    RootCertificates, TokenCache,
};
use forebay_temporal::{ConnectionSource, SourceConnection};
use hdrhistogram::Histogram;
use parking_lot::Mutex;

use crate::clock::{self, Stopwatch};
use crate::cluster::Cluster;
use crate::race::histogram;

/// How long a caller waits for a connection, of any contestant.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(30);

tokio::task_local! {
    /// The number of the worker that runs: each has a fixed connection of its own.
    pub(super) static WORKER: usize;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contestant {
    Fixed,
    Reservoir,
    Standard,
    Plain,
}

impl Contestant {
    pub(super) const ALL: [Self; 4] = [Self::Fixed, Self::Reservoir, Self::Standard, Self::Plain];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed connections",
            Self::Reservoir => "reservoir",
            Self::Standard => "standard mode",
            Self::Plain => "deadpool",
        }
    }
}

/// How many connections a contestant has, and how long each lives. Fixed ones and those of standard mode outlive every turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Supply {
    pub(super) connections: usize,
    pub(super) lifetime: Lifetime,
}

/// A contestant with all its connections open.
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
pub(super) enum Pool {
    Fixed(Vec<Arc<Mutex<Option<PostgresConnection>>>>),
    Ours(Dsql),
    Plain { pool: managed::Pool<Opener>, opened: Arc<AtomicU64> },
}

impl Pool {
    pub(super) async fn open(
        contestant: Contestant,
        cluster: &Cluster,
        supply: Supply,
    ) -> anyhow::Result<Self> {
        Ok(match contestant {
            Contestant::Fixed => {
                let (connector, mut fixed) = (connector(cluster)?, Vec::new());
                for _ in 0..supply.connections {
                    fixed.push(Arc::new(Mutex::new(Some(open(&connector).await?))));
                }
                Self::Fixed(fixed)
            }
            Contestant::Reservoir | Contestant::Standard => {
                let config = Config::default()
                    .max_open(supply.connections)
                    .low_watermark(supply.connections)
                    .lifetime(supply.lifetime)
                    .rate(100.0, 100);
                Self::Ours(dsql(cluster, contestant == Contestant::Reservoir, config).await?)
            }
            Contestant::Plain => plain(connector(cluster)?, supply).await?,
        })
    }

    async fn lend(&self) -> Result<SourceConnection, Error> {
        match self {
            Self::Fixed(fixed) => {
                let slot = &fixed[WORKER.get()];
                let connection = slot.lock().take();
                let told = "this worker uses its connection already";
                let connection = connection.ok_or_else(|| Error::new(ErrorKind::Permanent, told))?;
                Ok(Box::new(FixedConnection { connection: Some(connection), slot: Arc::clone(slot) }))
            }
            Self::Ours(dsql) => Ok(Box::new(dsql.acquire().await?.into_owned())),
            Self::Plain { pool, .. } => {
                let lent = pool.get().await;
                let lent = lent.map_err(|error| Error::new(ErrorKind::NoConnection, error))?;
                Ok(Box::new(PlainConnection(lent)))
            }
        }
    }

    /// Callers that found no connection ready so far, where the pool counts them.
    pub(super) fn empties(&self) -> Option<u64> {
        match self {
            Self::Fixed(_) => None,
            Self::Ours(dsql) => dsql.reservoir_status().map(|status| status.counts.empty),
            Self::Plain { opened, .. } => Some(opened.load(Ordering::Relaxed)),
        }
    }

    /// Closes all connections.
    pub(super) async fn close(&self) {
        match self {
            Self::Fixed(fixed) => fixed.iter().for_each(|slot| drop(slot.lock().take())),
            Self::Ours(dsql) => drop(dsql.drain(Duration::from_secs(5)).await),
            Self::Plain { pool, .. } => pool.close(),
        }
    }
}

/// What a store takes its connections from: a pool, with the time that callers wait.
#[derive(Clone)]
pub(super) struct Source {
    pub(super) pool: Arc<Pool>,
    pub(super) waits: Arc<Waits>,
}

/// How long callers waited for a connection, in nanoseconds.
pub(super) struct Waits {
    pub(super) times: Mutex<Histogram<u64>>,
    pub(super) failed: AtomicU64,
}

impl Source {
    pub(super) fn new(pool: Pool) -> anyhow::Result<Self> {
        let waits = Waits { times: Mutex::new(histogram()?), failed: AtomicU64::new(0) };
        Ok(Self { pool: Arc::new(pool), waits: Arc::new(waits) })
    }
}

impl ConnectionSource for Source {
    fn acquire(&self) -> Pin<Box<dyn Future<Output = Result<SourceConnection, Error>> + Send + '_>> {
        Box::pin(async {
            let watch = Stopwatch::start();
            let lent = self.pool.lend().await;
            let waited = clock::whole_nanos(watch.elapsed());
            self.waits.times.lock().saturating_record(waited);
            self.waits.failed.fetch_add(u64::from(lent.is_err()), Ordering::Relaxed);
            lent
        })
    }
}

fn options(cluster: &Cluster, reservoir: bool, config: Config) -> anyhow::Result<Options> {
    let pem = fs::read(&cluster.server.ca_file)?;
    Ok(Options::builder("localhost")
        .port(cluster.server.address.port())
        .region("us-east-1")
        .roots(RootCertificates::Pem(pem.into()))
        .direct_tls(true)
        .reservoir(reservoir)
        // The others do not spread their first opens over minutes, either.
        .variable("DSQL_POOL_WARMUP_STAGGER_DURATION", "0s")
        .config(config.startup_jitter(Duration::ZERO).acquire_timeout(ACQUIRE_TIMEOUT))
        .build()?)
}

/// A pool of this project, in either mode.
pub(super) async fn dsql(cluster: &Cluster, reservoir: bool, config: Config) -> anyhow::Result<Dsql> {
    Ok(Dsql::connect(options(cluster, reservoir, config)?, cluster.clone()).await?)
}

/// Opens connections outside of our pools.
fn connector(cluster: &Cluster) -> anyhow::Result<Postgres> {
    let options = options(cluster, false, Config::default())?;
    let runtime = Arc::new(TokioRuntime::current()?);
    let tokens = TokenCache::new(cluster.clone(), TokioRuntime::current()?, "bench");
    Ok(Postgres::new(ConnectorParts::new(options, tokens, runtime))?)
}

async fn open(connector: &Postgres) -> Result<PostgresConnection, OpenError> {
    connector.open(ConnectionMonitor::unattached()).await
}

/// A connection of no contestant.
pub(super) async fn connect(cluster: &Cluster) -> anyhow::Result<PostgresConnection> {
    Ok(open(&connector(cluster)?).await?)
}

/// deadpool with as many connections and the same lifetimes, all of them open.
async fn plain(connector: Postgres, supply: Supply) -> anyhow::Result<Pool> {
    let opened = Arc::new(AtomicU64::new(0));
    let rng = Mutex::new(Seed::new(1).fork("lifetimes").rng());
    let opener = Opener { connector, lifetime: supply.lifetime, rng, opened: Arc::clone(&opened) };
    let wait = Some(ACQUIRE_TIMEOUT);
    let pool = managed::Pool::builder(opener)
        .max_size(supply.connections)
        .runtime(deadpool::Runtime::Tokio1)
        .timeouts(Timeouts { wait, create: wait, recycle: wait })
        .pre_recycle(Hook::sync_fn(|aged: &mut Aged, metrics| {
            if metrics.age() < aged.life { Ok(()) } else { Err(HookError::message("too old")) }
        }))
        .build()
        .context("building the plain pool")?;
    let mut held = Vec::with_capacity(supply.connections);
    while held.len() < supply.connections {
        held.push(pool.get().await.map_err(|error| anyhow::anyhow!("filling the plain pool: {error}"))?);
    }
    drop(held);
    opened.store(0, Ordering::Relaxed);
    Ok(Pool::Plain { pool, opened })
}

/// Opens connections for deadpool.
pub(super) struct Opener {
    connector: Postgres,
    lifetime: Lifetime,
    rng: Mutex<Rng>,
    /// How many, since the pool was full.
    opened: Arc<AtomicU64>,
}

/// A connection, and how long it is lent. It is drawn from the same range as a reservoir's.
pub(super) struct Aged {
    connection: PostgresConnection,
    life: Duration,
}

impl managed::Manager for Opener {
    type Type = Aged;
    type Error = OpenError;

    async fn create(&self) -> Result<Aged, OpenError> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        let Lifetime { base, jitter, guard } = self.lifetime;
        let life = base - jitter / 2 + self.rng.lock().up_to(jitter) - guard;
        Ok(Aged { connection: open(&self.connector).await?, life })
    }

    async fn recycle(
        &self,
        aged: &mut Aged,
        _metrics: &managed::Metrics,
    ) -> managed::RecycleResult<OpenError> {
        match aged.connection.tracker().answered().await {
            ConnectionState::Clean => Ok(()),
            _ => Err(RecycleError::message("closed, or in a transaction")),
        }
    }
}

struct PlainConnection(managed::Object<Opener>);

impl Deref for PlainConnection {
    type Target = PostgresConnection;

    fn deref(&self) -> &PostgresConnection {
        &self.0.connection
    }
}

impl DerefMut for PlainConnection {
    fn deref_mut(&mut self) -> &mut PostgresConnection {
        &mut self.0.connection
    }
}

/// The connection of one worker, which goes back to its slot.
struct FixedConnection {
    /// There until it is dropped.
    connection: Option<PostgresConnection>,
    slot: Arc<Mutex<Option<PostgresConnection>>>,
}

impl Deref for FixedConnection {
    type Target = PostgresConnection;

    fn deref(&self) -> &PostgresConnection {
        self.connection.as_ref().expect("there until it is dropped")
    }
}

impl DerefMut for FixedConnection {
    fn deref_mut(&mut self) -> &mut PostgresConnection {
        self.connection.as_mut().expect("there until it is dropped")
    }
}

impl Drop for FixedConnection {
    fn drop(&mut self) {
        *self.slot.lock() = self.connection.take();
    }
}
