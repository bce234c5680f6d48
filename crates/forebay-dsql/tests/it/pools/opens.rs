//! The opens of standard mode belong to the pool, not to the caller that caused them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use forebay::memory::Answer;
use forebay::rt::{Runtime, VirtualTime};
use forebay::{CheckoutError, Connect, ConnectionMonitor, Failure, OpenError};
use forebay_dsql::{Builder, Error, Options, Postgres, SqlxDsql};

use super::cluster::{self, PATIENCE, eventually, start};
use super::world::{World, config, poll, seconds};

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn callers_less_patient_than_an_open_are_served_all_the_same() {
    let world = World::new();
    let pool = world.standard(config(10).rate(100.0, 100));
    world.server.open_time(millis(150));
    world.server.kill_all();
    let (asked, served) = (world.server.asked(), Arc::new(AtomicUsize::new(0)));
    for _ in 0..12 {
        let (pool, time, served) = (pool.clone(), world.time.clone(), Arc::clone(&served));
        world.time.spawn(Box::pin(async move {
            let end = time.now() + seconds(60);
            while time.now() < end {
                if let Ok(lent) = pool.acquire_within(millis(100)).await {
                    served.fetch_add(1, Ordering::Relaxed);
                    time.sleep_until(time.now() + millis(5)).await;
                    drop(lent);
                }
            }
        }));
    }
    world.time.advance(seconds(61));
    // Ten connections, 5 ms each, a minute: 120,000 at most, less the first 150 ms.
    let served = served.load(Ordering::Relaxed);
    assert!(served > 100_000, "served {served}");
    assert_eq!((world.server.asked() - asked, pool.status().open), (10, 10), "opens begun, and open");
}

#[test]
fn an_acquire_given_up_while_it_opens_leaves_the_open_to_the_next() {
    let world = World::new();
    let pool = world.standard(config(1));
    world.server.kill_all();
    world.server.open_time(seconds(1));
    let mut caller = Box::pin(pool.acquire());
    assert!(poll(&mut caller).is_pending());
    world.time.advance(millis(900));
    let asked = world.server.asked();
    drop(caller);
    let began = world.time.now();
    let lent = world.time.run(pool.acquire()).unwrap();
    assert_eq!((world.time.now().since(began), world.server.asked() - asked), (millis(100), 0));
    drop(lent);
    // Given up the moment it would have been served: nothing is lost then, either.
    world.server.kill_all();
    let mut caller = Box::pin(pool.acquire());
    assert!(poll(&mut caller).is_pending());
    world.time.advance(seconds(1));
    let opened = world.server.opened();
    drop(caller);
    assert_eq!(pool.status().open, 1);
    assert!(world.time.run(pool.acquire()).is_ok());
    assert_eq!(world.server.opened(), opened);
    drop(pool);
    world.assert_nothing_left();
}

#[test]
fn a_returned_connection_goes_to_a_caller_that_waits_for_an_open() {
    let world = World::new();
    let pool = world.standard(config(2));
    let lent = world.time.run(pool.acquire()).unwrap();
    let other = pool.registry().list().into_iter().find(|listed| listed.id != lent.id()).unwrap();
    assert!(pool.registry().retire(other.id));
    world.server.on_open(Answer::Hang);
    let mut caller = Box::pin(pool.acquire());
    assert!(poll(&mut caller).is_pending());
    let id = lent.id();
    drop(lent);
    let got = world.time.run(caller).unwrap();
    assert_eq!(got.id(), id);
}

#[test]
fn never_more_than_the_pool_may_own() {
    for most in ["1", "10"] {
        let world = World::new();
        let options = Options::builder("abc.dsql.us-east-1.on.aws")
            .config(config(10))
            .reservoir(false)
            .variable("DSQL_POOL_KEEPER_MAX_CONNS_PER_TICK", most)
            .build()
            .unwrap();
        let builder = Builder::over(world.server.clone(), options).runtime(world.time.clone());
        let pool = world.time.run(builder.connect()).unwrap();
        world.time.settle();
        world.server.kill_all();
        world.server.open_time(millis(20));
        // The keeper is opening one, and callers come and find nothing idle.
        world.time.advance(millis(1_001));
        world.server.open_time(millis(500));
        let mut callers: Vec<_> = (0..10).map(|_| Box::pin(pool.acquire())).collect();
        for caller in &mut callers {
            assert!(poll(caller).is_pending());
        }
        world.server.open_time(millis(20));
        world.time.advance(millis(900));
        let held: Vec<_> = callers.into_iter().map(|caller| world.time.run(caller).unwrap()).collect();
        drop(held);
        world.time.advance(seconds(60));
        assert_eq!((world.server.peak(), world.server.live(), pool.status().open), (10, 10, 10));
    }
}

#[test]
fn a_drain_ends_with_the_opens_under_way() {
    let world = World::new();
    let pool = world.standard(config(1));
    world.server.kill_all();
    world.server.on_open(Answer::Hang);
    world.time.advance(millis(1_500));
    assert_eq!(pool.status().opening, 1, "the keeper's");
    let began = world.time.now();
    let drained = world.time.run(pool.drain(seconds(3_600)));
    assert!(drained.is_complete(), "{drained:?}");
    assert_eq!(world.time.now(), began);
    world.assert_nothing_left();
}

#[test]
fn the_keeper_outlives_an_open_that_panics() {
    let world = World::new();
    let pool = world.standard(config(5));
    world.server.kill_all();
    world.server.on_open(Answer::Panic);
    assert!(catch_unwind(AssertUnwindSafe(|| world.time.advance(seconds(1)))).is_err());
    // A caller whose open panics hears of it when its time is up; before that, others are tried.
    let began = world.time.now();
    let mut caller = Box::pin(pool.acquire_within(millis(500)));
    assert!(poll(&mut caller).is_pending());
    let end = began + millis(600);
    while world.time.now() < end {
        drop(catch_unwind(AssertUnwindSafe(|| world.time.advance(end.since(world.time.now())))));
    }
    match poll(&mut caller) {
        std::task::Poll::Ready(Err(CheckoutError::Empty { last_open_error: Some(error), .. })) => {
            assert!(error.to_string().contains("panicked"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    world.server.on_open(Answer::Well);
    world.time.advance(seconds(10));
    assert_eq!((pool.status().open, pool.status().opening), (5, 0));
}

#[test]
fn one_that_the_keeper_opened_is_checked_as_any_other() {
    let world = World::new();
    let pool = world.standard(config(2).check_after(seconds(30)));
    world.server.kill(0);
    world.time.advance(seconds(3));
    assert_eq!((pool.status().open, world.server.opened()), (2, 3), "one is the keeper's");
    world.time.advance(seconds(40));
    for id in 0..3 {
        world.server.kill_silently(id);
    }
    world.time.advance(seconds(30));
    assert_eq!(world.server.opened(), 5, "both were checked");
    for _ in 0..2 {
        assert!(world.time.run(pool.acquire()).unwrap().is_alive());
    }
}

#[test]
fn after_one_is_found_dead_the_others_are_asked() {
    let world = World::new();
    let pool = world.standard(config(5).check_after(seconds(30)));
    world.server.on_check(Answer::Fail(forebay::Failure::Open));
    world.time.advance(millis(10));
    let mut found = world.time.run(pool.acquire()).unwrap();
    let opened = world.server.opened();
    found.mark_bad();
    drop(found);
    let lent = world.time.run(pool.acquire()).unwrap();
    assert_eq!(world.server.opened(), opened + 1, "none of the idle ones answered");
    drop(lent);
    world.time.advance(seconds(1));
    let opened = world.server.opened();
    assert!(world.time.run(pool.acquire()).is_ok());
    assert_eq!(world.server.opened(), opened, "those opened since are not in doubt");
}

/// In a reservoir as in standard mode.
#[test]
fn a_reservoir_asks_what_is_in_doubt_before_it_is_lent() {
    let world = World::new();
    let builder = world.builder(config(5).check_after(seconds(30)), true, None);
    let pool = world.time.run(builder.connect()).unwrap();
    world.time.advance(millis(10));
    let lend = || world.time.run(pool.acquire()).unwrap();
    world.server.on_check(Answer::Fail(Failure::Open));
    let (mut found, opened) = (lend(), world.server.opened());
    let first: Vec<_> = pool.registry().list().iter().map(|listed| listed.id).collect();
    assert!(first.contains(&lend().id()), "none is in doubt yet");
    found.mark_bad();
    drop(found);
    let lent = lend();
    assert!(!first.contains(&lent.id()), "{} was in doubt, and did not answer", lent.id());
    drop(lent);
    world.time.advance(seconds(1));
    assert_eq!(pool.status().open, 5);
    assert!(world.server.opened() > opened);
    // One who gives up while it is asked loses nothing.
    let mut found = lend();
    found.mark_bad();
    drop(found);
    world.server.on_check(Answer::Hang);
    let mut caller = Box::pin(pool.acquire());
    assert!(poll(&mut caller).is_pending());
    drop(caller);
    world.server.on_check(Answer::Well);
    world.time.advance(seconds(10));
    let held: Vec<_> = (0..5).map(|_| lend()).collect();
    assert_eq!((held.len(), pool.status().open), (5, 5));
}

#[tokio::test]
async fn a_run_with_sqlx_survives_the_death_of_all() {
    use sqlx::Executor;
    for reservoir in [true, false] {
        let cluster = start();
        let dsql: SqlxDsql = cluster::pool(&cluster, 20, reservoir).await;
        cluster.sever(1.0);
        eventually("all are cut", || cluster.counters().live == 0).await;
        dsql.run("look", async |mut tx| {
            tx.pg().execute("SELECT 1").await?;
            Ok::<_, Error>(())
        })
        .await
        .unwrap();
    }
}

#[test]
fn without_its_runtime_a_pool_is_closed() {
    let cluster = start();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let (dsql, lent) = first.block_on(async {
        let dsql = cluster::pool::<Postgres>(&cluster, 2, false).await;
        let lent = dsql.acquire().await.unwrap().into_owned();
        lent.batch_execute("BEGIN").await.unwrap();
        (dsql, lent)
    });
    drop(first);
    drop(lent);
    runtime().block_on(async {
        assert!(matches!(dsql.acquire().await, Err(CheckoutError::Closed)));
        assert!(dsql.drain(PATIENCE).await.is_complete());
    });
}

/// Refuses until it is told otherwise; then the first open takes 200 ms and fails, and others take 100 ms.
#[derive(Clone)]
struct Uneven {
    time: VirtualTime,
    asked: Arc<AtomicUsize>,
    refuses: Arc<AtomicBool>,
}

impl Connect for Uneven {
    type Connection = ();

    async fn open(&self, _: ConnectionMonitor) -> Result<(), OpenError> {
        if self.refuses.load(Ordering::SeqCst) {
            return Err(OpenError::new(Failure::Open, "not yet"));
        }
        let first = self.asked.fetch_add(1, Ordering::SeqCst) == 0;
        self.time.sleep_until(self.time.now() + millis(if first { 200 } else { 100 })).await;
        if first { Err(OpenError::new(Failure::Open, "refused")) } else { Ok(()) }
    }
}

#[test]
fn a_caller_whose_open_fails_waits_for_another() {
    let time = VirtualTime::new();
    let uneven =
        Uneven { time: time.clone(), asked: Arc::default(), refuses: Arc::new(AtomicBool::new(true)) };
    let options = Options::builder("abc.dsql.us-east-1.on.aws")
        .config(config(10))
        .reservoir(false)
        .variable("DSQL_POOL_KEEPER_TICK_INTERVAL", "10m");
    let builder = Builder::over(uneven.clone(), options.build().unwrap()).runtime(time.clone());
    let pool = time.run(builder.connect()).unwrap();
    uneven.refuses.store(false, Ordering::SeqCst);
    let (mut first, mut second) = (Box::pin(pool.acquire()), Box::pin(pool.acquire()));
    assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
    time.advance(millis(150));
    let lent = poll(&mut first);
    assert!(matches!(lent, std::task::Poll::Ready(Ok(_))), "the second open was the first to come");
    // In exchange the second waits for the other's, which comes to nothing; so another is begun for it, after a pause.
    time.advance(millis(100));
    assert!(poll(&mut second).is_pending());
    assert_eq!((uneven.asked.load(Ordering::SeqCst), pool.status().opening), (2, 0));
    time.advance(millis(500));
    assert!(matches!(poll(&mut second), std::task::Poll::Ready(Ok(_))));
    assert_eq!(uneven.asked.load(Ordering::SeqCst), 3);
    drop(lent);
}

#[test]
fn callers_in_line_are_served_in_order_after_opens_have_failed() {
    let world = World::new();
    let pool = world.standard(config(3));
    world.server.on_open(Answer::Fail(Failure::Throttled));
    world.server.kill_all();
    let mut callers: Vec<_> = (0..3).map(|_| Box::pin(pool.acquire())).collect();
    let asked = world.server.asked();
    assert!(callers.iter_mut().all(|caller| poll(caller).is_pending()));
    world.time.advance(seconds(10));
    // All three at once, then one at a time after pauses that grow to 5 s, and the keeper's each second.
    let tried = world.server.asked() - asked;
    assert!((10..=20).contains(&tried), "{tried}");
    assert!(callers.iter_mut().all(|caller| poll(caller).is_pending()));
    world.server.on_open(Answer::Well);
    world.server.open_time(millis(100));
    let mut served = Vec::new();
    for _ in 0..300 {
        world.time.advance(millis(50));
        callers.retain_mut(|caller| match poll(caller) {
            std::task::Poll::Ready(lent) => {
                served.push(lent.unwrap().id());
                false
            }
            std::task::Poll::Pending => true,
        });
    }
    assert_eq!(served.len(), 3);
    assert!(served.is_sorted(), "{served:?}");
}

#[test]
fn the_error_of_a_pool_that_is_short_names_what_failed_last() {
    let world = World::new();
    let pool = world.standard(config(2).acquire_timeout(seconds(3)));
    world.server.on_open(Answer::Fail(Failure::Throttled));
    world.server.kill_all();
    let began = world.time.now();
    let error = world.time.run(pool.acquire()).unwrap_err();
    assert_eq!(world.time.now().since(began), seconds(3), "for the acquire timeout, and no less");
    assert!(
        error
            .to_string()
            .starts_with("no connection became ready within 3s; the last open failed: throttled")
    );
}

/// Whoever gives one back unused has not heard whether it lives.
#[test]
fn one_that_is_only_passed_around_is_asked_as_an_idle_one() {
    let world = World::new();
    let pool = world.standard(config(1).check_after(seconds(30)));
    world.server.on_check(Answer::Fail(Failure::Open));
    let opened = world.server.opened();
    for _ in 0..3 {
        world.time.advance(seconds(9));
        drop(world.time.run(pool.acquire()).unwrap());
    }
    assert_eq!(world.server.opened(), opened);
    world.time.advance(seconds(9));
    drop(world.time.run(pool.acquire()).unwrap());
    assert_eq!(world.server.opened(), opened + 1, "it was asked, and did not answer");
}
