//! One side of the demo: three instances of a service, their cluster, and their callers.

use std::sync::Arc;
use std::time::Duration;

use deadpool::managed::Object;
use forebay::rt::{Runtime, TokioRuntime};
use forebay::{Instant, Seed};
use forebay_dsql::{PooledConnection, Postgres};
use parking_lot::{Mutex, RwLock};
#[cfg(feature = "sqlx")]
use sqlx::Executor as _;

use super::contender::Contender;
use super::database::{Database, Traffic};
use super::fleet::{FleetPool, SharedTable};
use super::incident::Step;
use super::page::Page;
use super::plain::{Opener, PlainPool};
use super::process::Process;
use super::scenario::{CONNECTIONS, Caller, INSTANCES, VICTIM};
#[cfg(feature = "sqlx")]
use super::sqlx_pool::SqlxPool;
use super::tally::{Figures, Tally, Visit};

/// A side and its callers.
#[derive(Debug)]
pub(super) struct Side {
    contender: Contender,
    seed: Seed,
    database: Database,
    /// What only reservoirs have.
    fleet: Option<Fleet>,
    instances: RwLock<[Instance; INSTANCES]>,
    tally: Arc<Mutex<Tally>>,
    runtime: TokioRuntime,
    /// Why an instance did not start.
    failure: Mutex<Option<anyhow::Error>>,
}

/// What the reservoirs share, and where they are seen.
#[derive(Debug)]
struct Fleet {
    table: SharedTable,
    page: Arc<Page>,
}

/// One instance of the service.
#[derive(Debug, Default)]
struct Instance {
    /// None while it is down.
    process: Option<Process>,
    /// None until its connections are open.
    pool: Option<Arc<Pool>>,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there are three")]
enum Pool {
    Plain(PlainPool),
    #[cfg(feature = "sqlx")]
    Sqlx(SqlxPool),
    Fleet(FleetPool),
}

/// A side at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Snapshot {
    /// Connections that no caller has.
    pub(super) ready: usize,
    /// Connections being opened.
    pub(super) opening: usize,
    /// Sessions of the cluster, also those of an instance that is still starting.
    pub(super) sessions: u64,
    pub(super) figures: Figures,
    pub(super) traffic: Traffic,
}

impl Side {
    /// The side of this contender. Only the reservoirs have a table, and only they are on the page.
    pub(super) fn new(
        contender: Contender,
        seed: Seed,
        page: &Arc<Page>,
        runtime: TokioRuntime,
    ) -> anyhow::Result<Arc<Self>> {
        let seed = seed.fork(contender.word());
        let database = Database::start(seed)?;
        let fleet = (contender == Contender::Reservoir)
            .then(|| Fleet { table: SharedTable::new(runtime.clone()), page: Arc::clone(page) });
        Ok(Arc::new(Self {
            contender,
            seed,
            database,
            fleet,
            instances: RwLock::default(),
            tally: Arc::default(),
            runtime,
            failure: Mutex::default(),
        }))
    }

    /// Starts every instance.
    pub(super) fn start_all(self: &Arc<Self>) {
        (0..INSTANCES).for_each(|index| self.start(index, self.seed));
    }

    /// Starts an instance in the background. Callers come to it once its connections are open.
    fn start(self: &Arc<Self>, index: usize, seed: Seed) {
        let name = format!("instance {}", index + 1);
        let process = match Process::start(name.clone()) {
            Ok(process) => process,
            Err(error) => return self.fail(error.into()),
        };
        let (this, runtime) = (Arc::clone(self), process.runtime().clone());
        let spawner = runtime.clone();
        self.instances.write()[index].process = Some(process);
        spawner.spawn(Box::pin(async move {
            let pool = this.open_pool(&name, runtime, seed.fork(&name)).await;
            match pool {
                Ok(pool) => this.instances.write()[index].pool = Some(Arc::new(pool)),
                Err(error) => this.fail(error),
            }
        }));
    }

    /// The pool of the instance of this name, once its connections are open.
    async fn open_pool(&self, name: &str, runtime: TokioRuntime, seed: Seed) -> anyhow::Result<Pool> {
        match (self.contender, &self.fleet) {
            (_, Some(Fleet { table, page })) => {
                let pool = FleetPool::start(&self.database, table, runtime, seed, name).await?;
                page.show(name, pool.dsql());
                Ok(Pool::Fleet(pool))
            }
            #[cfg(feature = "sqlx")]
            (Contender::Sqlx, None) => SqlxPool::start(&self.database, runtime, seed).await.map(Pool::Sqlx),
            (_, None) => PlainPool::start(&self.database, runtime, seed).await.map(Pool::Plain),
        }
    }

    fn fail(&self, error: anyhow::Error) {
        self.failure.lock().get_or_insert(error);
    }

    /// Why an instance did not start, if one did not.
    pub(super) fn failure(&self) -> Option<anyhow::Error> {
        self.failure.lock().take()
    }

    /// Whether callers can go to every instance, and all connections are open.
    pub(super) fn is_full(&self) -> bool {
        let is_up = self.instances.read().iter().all(|instance| instance.pool.is_some());
        is_up && self.database.live() >= CONNECTIONS as u64
    }

    /// Forgets what filling took.
    pub(super) fn start_counting(&self) {
        self.database.start_counting(self.runtime.now());
    }

    /// Looks at what the cluster counts.
    pub(super) fn sample(&self) {
        self.database.sample(self.runtime.now());
    }

    /// Does what an incident does to this side.
    pub(super) fn take(self: &Arc<Self>, step: Step) {
        if let Some(Fleet { page, .. }) = &self.fleet {
            page.note(step.sentence());
        }
        match step {
            Step::Expire => self.database.expire_sessions(),
            Step::Cut(fraction) => self.database.cut(fraction),
            Step::Kill => self.kill(VICTIM),
            Step::Restart => self.start(VICTIM, self.seed.fork("restart")),
            Step::TableDown | Step::TableUp => {
                if let Some(Fleet { table, .. }) = &self.fleet {
                    table.set_down(step == Step::TableDown);
                }
            }
        }
    }

    fn kill(&self, index: usize) {
        let Instance { process, pool } = std::mem::take(&mut self.instances.write()[index]);
        // In this order: a pool that is dropped while its process lives would leave its fleet.
        drop(process);
        drop(pool);
    }

    /// Serves a caller in the background. Its wait counts from `due_at`, when it was to come: a load that runs late must
    /// not make a slow side look fast.
    pub(super) fn admit(&self, caller: Caller, due_at: Instant, period: usize) {
        let mut visit = Visit::begin(&self.tally, period);
        // A load balancer sends the callers of an instance that is down to the others.
        let Some((runtime, pool)) = self.route(caller) else { return visit.failed(Duration::ZERO) };
        let spawner = runtime.clone();
        spawner.spawn(Box::pin(async move {
            visit.started(runtime.now().since(due_at));
            let lent = pool.acquire().await;
            let waited = runtime.now().since(due_at);
            let Some(mut lent) = lent else { return visit.failed(waited) };
            visit.acquired(waited);
            let failed = lent.work(&runtime, caller.hold).await.is_none();
            drop(lent);
            visit.left(failed);
        }));
    }

    /// As a load balancer does: the callers of an instance that is down go to the others, in turns.
    fn route(&self, caller: Caller) -> Option<(TokioRuntime, Arc<Pool>)> {
        let steps = if caller.hold.as_nanos().is_multiple_of(2) { [0, 1, 2] } else { [0, 2, 1] };
        let instances = self.instances.read();
        steps.into_iter().find_map(|step| {
            let Instance { process, pool } = &instances[(caller.instance + step) % INSTANCES];
            Some((process.as_ref()?.runtime().clone(), Arc::clone(pool.as_ref()?)))
        })
    }

    /// Whether every caller has left.
    pub(super) fn is_quiet(&self) -> bool {
        let Figures { waiting, lent, .. } = self.tally.lock().figures();
        waiting + lent == 0
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let (figures, sessions) = (self.tally.lock().figures(), self.database.live());
        let (mut ready, mut opening) = (0, 0);
        for pool in self.instances.read().iter().filter_map(|instance| instance.pool.as_ref()) {
            let (more_ready, more_opening) = match &**pool {
                Pool::Plain(pool) => (pool.ready(), pool.opening()),
                #[cfg(feature = "sqlx")]
                Pool::Sqlx(pool) => (pool.idle(), pool.size() - pool.idle().min(pool.size())),
                Pool::Fleet(pool) => {
                    let status = pool.dsql().status();
                    (status.idle, status.opening)
                }
            };
            (ready, opening) = (ready + more_ready, opening + more_opening);
        }
        #[cfg(feature = "sqlx")]
        if self.contender == Contender::Sqlx {
            // sqlx does not know which of its idle connections are dead; the cluster does. What is neither idle nor lent is
            // being opened or pinged.
            let alive = usize::try_from(sessions).unwrap_or(usize::MAX);
            ready = ready.min(alive.saturating_sub(figures.lent));
            opening = opening.saturating_sub(figures.lent);
        }
        Snapshot { ready, opening, sessions, figures, traffic: self.database.traffic() }
    }

    /// Ends every instance, then the cluster.
    pub(super) fn stop(&self) {
        (0..INSTANCES).for_each(|index| self.kill(index));
        self.database.stop();
    }
}

/// A connection that a caller has.
#[allow(clippy::large_enum_variant, reason = "it is in the caller's task, and does not move")]
enum Lent<'a> {
    Plain(Object<Opener>),
    #[cfg(feature = "sqlx")]
    Sqlx(sqlx::pool::PoolConnection<sqlx::Postgres>),
    Fleet(PooledConnection<'a, Postgres>),
}

impl Lent<'_> {
    /// What a caller does with its connection. None if a query failed.
    async fn work(&mut self, runtime: &TokioRuntime, hold: Duration) -> Option<()> {
        const QUERY: &str = "SELECT 1";
        match self {
            Self::Plain(lent) => lent.connection.batch_execute(QUERY).await.ok()?,
            #[cfg(feature = "sqlx")]
            Self::Sqlx(lent) => _ = lent.execute(sqlx::raw_sql(QUERY)).await.ok()?,
            Self::Fleet(lent) => lent.batch_execute(QUERY).await.ok()?,
        }
        runtime.sleep_until(runtime.now() + hold).await;
        Some(())
    }
}

impl Pool {
    async fn acquire(&self) -> Option<Lent<'_>> {
        Some(match self {
            Self::Plain(pool) => Lent::Plain(pool.acquire().await?),
            #[cfg(feature = "sqlx")]
            Self::Sqlx(pool) => Lent::Sqlx(pool.acquire().await?),
            Self::Fleet(pool) => Lent::Fleet(pool.acquire().await?),
        })
    }
}
