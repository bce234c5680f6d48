//! The reservoirs: members of one fleet, which share a budget through a table in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use forebay::rt::TokioRuntime;
use forebay::{Config, Lifetime, Seed};
use forebay_dsql::{Dsql, Member, Options, OptionsBuilder, PooledConnection, Postgres};
use forebay_fleet::{Delivery, FaultyTable, MemoryTable, Network, TableError, Tables};

use super::database::Database;
use super::scenario::{ACQUIRE_TIMEOUT, CAP, CONNECTIONS_EACH, OPENS_PER_SECOND, seconds};

pub(super) const LIFE: Duration = Duration::from_secs(80);
pub(super) const JITTER: Duration = Duration::from_secs(6);
pub(super) const GUARD: Duration = Duration::from_secs(3);
/// How often each instance writes to the table, and how long it is believed: the shortest that are allowed.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(1);
pub(super) const LEASE: Duration = Duration::from_secs(5);
/// How long the table takes to answer: half of it there, half of it back.
pub(super) const TABLE_LATENCY: Duration = Duration::from_millis(4);
/// Opens a second and at once of each instance while the table does not answer: a third of what the cluster allows.
const LOCAL_RATE: f64 = 8.0;
const LOCAL_BURST: u32 = 3;
/// The burst that the fleet is told. It keeps back 2.5 s of the rate, as its clocks may disagree by a second and permits are used
/// late. In production that is a quarter of the burst; here, where everything but that is faster, it is more than all of it. So with
/// the cluster's own burst, the fleet would have one permit at a time, and less than the cluster admits. With this one, each
/// instance has two at once from its share.
pub(super) const FLEET_BURST: u32 = 2 * OPENS_PER_SECOND;

/// How each is set up, in words.
pub(super) fn settings() -> Vec<(&'static str, String)> {
    vec![
        ("connections", format!("{CONNECTIONS_EACH}, opened up front")),
        ("life", format!("at most {} to {}", seconds(LIFE - JITTER / 2), seconds(LIFE + JITTER / 2))),
        ("guard window", seconds(GUARD)),
        ("opens", format!("the fleet's bucket, {OPENS_PER_SECOND} a second")),
        ("timeout", seconds(ACQUIRE_TIMEOUT)),
    ]
}

/// The table that the instances share.
#[derive(Clone, Debug)]
pub(super) struct SharedTable {
    tables: Tables,
    is_down: Arc<AtomicBool>,
}

impl SharedTable {
    pub(super) fn new(runtime: TokioRuntime) -> Self {
        let is_down = Arc::new(AtomicBool::new(false));
        let network = Connection { is_down: Arc::clone(&is_down) };
        let table = FaultyTable::with_network(MemoryTable::new(), runtime, network);
        Self { tables: Tables::one(table), is_down }
    }

    /// Whether it refuses every call.
    pub(super) fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::Relaxed);
    }
}

/// The way to the table.
struct Connection {
    is_down: Arc<AtomicBool>,
}

impl Network for Connection {
    fn deliver(&self, _is_transaction: bool) -> Delivery {
        let half = TABLE_LATENCY / 2;
        if self.is_connected() {
            return Delivery::Arrives { request: half, answer: Some(half) };
        }
        Delivery::Refused(half, TableError::Unknown("the connection was refused".into()))
    }

    fn is_connected(&self) -> bool {
        !self.is_down.load(Ordering::Relaxed)
    }
}

/// The pool of one instance, in reservoir mode.
#[derive(Clone, Debug)]
pub(super) struct FleetPool {
    dsql: Dsql,
    /// The page shows what it knows of the fleet.
    _member: Member,
}

impl FleetPool {
    /// Most connections are open before the first caller comes.
    pub(super) async fn start(
        database: &Database,
        table: &SharedTable,
        runtime: TokioRuntime,
        seed: Seed,
        name: &str,
    ) -> anyhow::Result<Self> {
        let options = options(database.options(), seed, name)?;
        let member = Member::builder(&options, database.signer())
            .tables(table.tables.clone())
            .runtime(runtime.clone())
            .join()
            .await
            .context("cannot join the fleet")?;
        let dsql: Dsql =
            member.pool(options).connect().await.context("cannot connect to the local cluster")?;
        Ok(Self { dsql, _member: member })
    }

    /// A connection, within the acquire timeout.
    pub(super) async fn acquire(&self) -> Option<PooledConnection<'_, Postgres>> {
        self.dsql.acquire().await.ok()
    }

    pub(super) fn dsql(&self) -> &Dsql {
        &self.dsql
    }
}

fn options(builder: OptionsBuilder, seed: Seed, name: &str) -> anyhow::Result<Options> {
    let config = Config::default()
        .max_open(CONNECTIONS_EACH)
        // Callers can come once so many are open: an instance that is started again may have to wait for slots of its
        // predecessor, until that counts as dead.
        .low_watermark(CONNECTIONS_EACH * 3 / 4)
        .lifetime(Lifetime::new(LIFE).jitter(JITTER).guard_window(GUARD))
        .acquire_timeout(ACQUIRE_TIMEOUT)
        // They apply while the table does not answer.
        .rate(LOCAL_RATE, LOCAL_BURST)
        .startup_jitter(Duration::ZERO)
        .seed(seed);
    let show = forebay::duration::show;
    let options = builder
        .reservoir(true)
        .service("demo")
        .pool(name)
        .config(config)
        .variable("DSQL_DISTRIBUTED_CONN_LEASE_ENABLED", "true")
        .variable("DSQL_DISTRIBUTED_CONN_LEASE_TABLE", "demo")
        .variable("DSQL_DISTRIBUTED_CONN_LIMIT", CAP.to_string())
        .variable("DSQL_DISTRIBUTED_CONN_LEASE_BEAT", show(HEARTBEAT))
        .variable("DSQL_DISTRIBUTED_CONN_LEASE_LENGTH", show(LEASE))
        .variable("DSQL_DISTRIBUTED_RATE_LIMITER_ENABLED", "true")
        .variable("DSQL_DISTRIBUTED_RATE_LIMITER_TABLE", "demo")
        .variable("DSQL_DISTRIBUTED_RATE_LIMITER_LIMIT", OPENS_PER_SECOND.to_string())
        .variable("DSQL_DISTRIBUTED_RATE_LIMITER_BURST", FLEET_BURST.to_string())
        .build()?;
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::scenario::{BURST, INSTANCES, SESSION_LIFE};

    #[test]
    fn all_instances_together_stay_within_the_limits_while_the_table_is_away() {
        let instances = u32::try_from(INSTANCES).unwrap();
        assert!(f64::from(instances) * LOCAL_RATE <= f64::from(OPENS_PER_SECOND));
        assert!(instances * LOCAL_BURST <= BURST);
    }

    #[test]
    fn connections_end_before_their_sessions() {
        assert!(LIFE + JITTER / 2 < SESSION_LIFE);
    }
}
