//! Leases that are taken back: the socket is closed, whoever has the connection.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use forebay::rt::VirtualTime;
use forebay::{
    BoxError, CheckoutError, Connect, ConnectionMonitor, LeaseError, LeaseId, Leases, LocalLeases, OpenError,
    StoreFuture,
};
use forebay_dsql::{Builder, ConnectionState, Driver, DsqlPool, ErrorKind, Options, Postgres, Sqlx};
use parking_lot::Mutex;

use super::cluster::{Keys, eventually, options, start};
use super::world::{World, config, poll, seconds};

/// Leases that can be taken back, and a store that can be away.
struct Recalling {
    leases: LocalLeases,
    bound: Mutex<BTreeMap<LeaseId, ConnectionMonitor>>,
    away: AtomicBool,
}

impl Recalling {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            leases: LocalLeases::new(100),
            bound: Mutex::default(),
            away: AtomicBool::new(false),
        })
    }

    /// Goes away, and takes every lease back.
    fn recall_all(&self) {
        self.away.store(true, Ordering::SeqCst);
        let bound = std::mem::take(&mut *self.bound.lock());
        bound.values().for_each(ConnectionMonitor::recall);
    }
}

impl Leases for Recalling {
    fn acquire(&self) -> StoreFuture<'_, Result<LeaseId, LeaseError>> {
        if self.away.load(Ordering::SeqCst) {
            return Box::pin(async { Err(LeaseError::Unavailable("the table is away".into())) });
        }
        self.leases.acquire()
    }

    fn release<'a>(&'a self, id: &'a LeaseId) -> StoreFuture<'a, Result<(), BoxError>> {
        self.bound.lock().remove(id);
        self.leases.release(id)
    }

    fn bind(&self, id: &LeaseId, monitor: ConnectionMonitor) {
        self.bound.lock().insert(id.clone(), monitor);
    }
}

async fn pool<C: Driver>(
    cluster: &Arc<dsql_local::Cluster>,
    leases: &Arc<Recalling>,
    reservoir: bool,
) -> DsqlPool<C> {
    let options = options(cluster, 3).reservoir(reservoir).variable("DSQL_POOL_KEEPER_TICK_INTERVAL", "20ms");
    DsqlPool::builder(options.build().unwrap(), Keys::of(cluster))
        .leases(Arc::clone(leases) as Arc<dyn Leases>)
        .connect()
        .await
        .unwrap()
}

async fn a_lent_connection_is_closed(reservoir: bool) {
    let (cluster, leases) = (start(), Recalling::new());
    let pool: DsqlPool<Postgres> = pool(&cluster, &leases, reservoir).await;
    assert_eq!(cluster.counters().live, 3);
    let lent = pool.acquire().await.unwrap();
    lent.batch_execute("BEGIN").await.unwrap();
    leases.recall_all();
    eventually("every socket is closed", || cluster.counters().live == 0).await;
    eventually("it is noticed", || lent.state() == ConnectionState::Broken).await;
    let error = lent.batch_execute("SELECT 1").await.unwrap_err();
    assert_eq!(ErrorKind::of(&error), ErrorKind::Disconnected, "{error}");
    // The others' are back; this one is held until its connection is.
    eventually("one lease is held", || leases.leases.held() == 1).await;
    drop(lent);
    eventually("every lease is back", || leases.leases.held() == 0).await;
    assert!(pool.acquire_within(std::time::Duration::from_millis(50)).await.is_err());

    leases.away.store(false, Ordering::SeqCst);
    eventually("it is full again", || cluster.counters().live == 3 && leases.leases.held() == 3).await;
    pool.acquire().await.unwrap().batch_execute("SELECT 1").await.unwrap();
}

#[tokio::test]
async fn a_reservoirs_lent_connection_is_closed() {
    a_lent_connection_is_closed(true).await;
}

#[tokio::test]
async fn a_standard_pools_lent_connection_is_closed() {
    a_lent_connection_is_closed(false).await;
}

/// A lease is taken back while its open waits for a permit: nothing is dialled then, and nobody gets it.
#[test]
fn what_is_being_opened_is_given_up() {
    for reservoir in [true, false] {
        let (world, leases) = (World::new(), Recalling::new());
        let builder =
            world.builder(config(1).rate(0.05, 1), reservoir, None).leases(Arc::clone(&leases) as _);
        let pool = world.time.run(builder.connect()).unwrap();
        let opened = world.server.opened();
        world.server.kill_all();
        let mut caller = Box::pin(pool.acquire_within(seconds(60)));
        assert!(poll(&mut caller).is_pending());
        world.time.advance(seconds(5));
        assert_eq!((pool.status().opening, leases.leases.held()), (1, 1), "it has its lease");
        leases.recall_all();
        world.time.advance(seconds(30));
        assert!(!matches!(poll(&mut caller), Poll::Ready(Ok(_))), "reservoir: {reservoir}");
        assert_eq!((world.server.opened() - opened, leases.leases.held()), (0, 0), "reservoir: {reservoir}");
    }
}

/// Opens, and lets the lease be taken back before anybody hears of it.
struct TooLate(Arc<Recalling>);

impl Connect for TooLate {
    type Connection = ();

    async fn open(&self, _: ConnectionMonitor) -> Result<(), OpenError> {
        self.0.recall_all();
        Ok(())
    }
}

#[test]
fn what_was_taken_back_as_it_was_opened_is_not_lent() {
    let (time, leases) = (VirtualTime::new(), Recalling::new());
    let options = Options::builder("abc.dsql.us-east-1.on.aws").config(config(1)).reservoir(false);
    let options = options.build().unwrap();
    leases.away.store(true, Ordering::SeqCst);
    let builder = Builder::over(TooLate(Arc::clone(&leases)), options).runtime(time.clone());
    let pool = time.run(builder.leases(Arc::clone(&leases) as _).connect()).unwrap();
    leases.away.store(false, Ordering::SeqCst);
    let outcome = time.run(pool.acquire_within(seconds(5)));
    assert!(matches!(outcome, Err(CheckoutError::Empty { last_open_error: Some(_), .. })));
    time.advance(seconds(1));
    assert_eq!((pool.status().open, leases.leases.held()), (0, 0));
}

/// sqlx gives nobody else its socket.
#[tokio::test]
async fn sqlx_closes_what_is_idle_and_the_rest_when_it_comes_back() {
    for reservoir in [true, false] {
        let (cluster, leases) = (start(), Recalling::new());
        let pool: DsqlPool<Sqlx> = pool(&cluster, &leases, reservoir).await;
        let lent = pool.acquire().await.unwrap();
        leases.recall_all();
        eventually("what is idle is closed", || cluster.counters().live == 1).await;
        drop(lent);
        eventually("the last is closed", || cluster.counters().live == 0).await;
        eventually("every lease is back", || leases.leases.held() == 0).await;
    }
}
