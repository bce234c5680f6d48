//! Every public future, dropped at each of its awaits: nothing is lost, nothing stays behind.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use forebay::memory::Answer;
use forebay::{Limit, LimitError, Pace, Permit, StoreFuture};
use forebay_dsql::{ConnectionState, Driver, DsqlPool, Postgres, Session, Sqlx};

use super::cluster::{PATIENCE, eventually, fault, pool, start};
use super::modes::Speak;
use super::world::{World, config, poll, seconds};

/// Gives no permit while it is shut.
struct Turnstile(bool);

impl Limit for Turnstile {
    fn acquire(&self) -> StoreFuture<'_, Result<Permit, LimitError>> {
        Box::pin(async {
            if self.0 {
                std::future::pending::<()>().await;
            }
            Ok(Permit::unlimited())
        })
    }

    fn pace(&self) -> Pace {
        Pace { per_second: 10.0, at_once: 1 }
    }
}

/// Where a start can be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    Stagger,
    Prepare,
    Permit,
    Open,
    Ping,
    Pause,
}

const GATES: [Gate; 6] = [Gate::Stagger, Gate::Prepare, Gate::Permit, Gate::Open, Gate::Ping, Gate::Pause];

/// Polls `future`, letting tasks run in between. It must still be pending.
fn hold<F: Future + ?Sized>(world: &World, future: &mut Pin<Box<F>>) {
    for _ in 0..10 {
        assert!(poll(future).is_pending(), "it passed the gate");
        world.time.settle();
    }
}

#[test]
fn a_start_that_is_given_up_closes_what_it_opened() {
    for reservoir in [false, true] {
        for gate in GATES {
            let world = World::new();
            let config =
                config(3).startup_jitter(if gate == Gate::Stagger { seconds(5) } else { Duration::ZERO });
            match gate {
                Gate::Prepare => world.server.on_prepare(Answer::Hang),
                Gate::Open => world.server.on_open(Answer::Hang),
                // A reservoir does not ping; it is held while it fills.
                Gate::Ping if reservoir => world.server.open_time(seconds(1)),
                Gate::Ping => world.server.on_check(Answer::Hang),
                Gate::Pause => world.server.on_open(Answer::Fail(forebay::Failure::Open)),
                Gate::Stagger | Gate::Permit => {}
            }
            let builder =
                world.builder(config, reservoir, None).limit(Arc::new(Turnstile(gate == Gate::Permit)));
            let mut connect: Pin<Box<dyn Future<Output = _>>> = Box::pin(builder.connect());
            hold(&world, &mut connect);
            drop(connect);
            world.server.on_prepare(Answer::Well);
            world.server.on_open(Answer::Well);
            world.assert_nothing_left();
        }
    }
}

#[test]
fn an_acquire_that_is_given_up_takes_nothing() {
    for reservoir in [false, true] {
        let world = World::new();
        let pool = world.time.run(world.builder(config(1), reservoir, None).connect()).unwrap();
        world.time.settle();
        let lent = world.time.run(pool.acquire()).unwrap();
        for within in [false, true] {
            // While all are in use.
            let mut acquire: Pin<Box<dyn Future<Output = _>>> =
                if within { Box::pin(pool.acquire_within(seconds(30))) } else { Box::pin(pool.acquire()) };
            hold(&world, &mut acquire);
            assert_eq!(pool.status().waiting, 1);
            drop(acquire);
            assert_eq!(pool.status().waiting, 0);
        }
        // One that was about to get what comes back.
        let mut acquire = Box::pin(pool.acquire());
        assert!(poll(&mut acquire).is_pending());
        drop(lent);
        drop(acquire);
        assert!(world.time.run(pool.acquire_within(seconds(1))).is_ok());
    }
}

#[test]
fn an_acquire_given_up_while_it_opens_leaves_room() {
    let world = World::new();
    let pool = world.standard(config(1));
    world.server.kill_all();
    world.server.on_open(Answer::Hang);
    let mut acquire = Box::pin(pool.acquire());
    hold(&world, &mut acquire);
    assert_eq!(pool.status().opening, 1);
    drop(acquire);
    assert_eq!((pool.status().opening, pool.status().waiting), (1, 0), "it is the pool's own, and goes on");
    world.server.on_open(Answer::Well);
    // It ends after its 10 s, and the next is begun then, for whoever waits.
    assert!(world.time.run(pool.acquire()).is_ok());
    drop(pool);
    world.assert_nothing_left();
}

#[test]
fn an_acquire_given_up_while_it_cleans_leaves_room() {
    let world = World::new();
    let pool = world.standard(config(1));
    let mut lent = world.time.run(pool.acquire()).unwrap();
    lent.make_dirty();
    world.server.on_reset(Answer::Hang);
    drop(lent);
    let mut acquire = Box::pin(pool.acquire());
    hold(&world, &mut acquire);
    drop(acquire);
    world.server.on_reset(Answer::Well);
    assert!(world.time.run(pool.acquire_within(seconds(20))).is_ok());
}

#[test]
fn a_drain_that_is_given_up_goes_on() {
    for reservoir in [false, true] {
        let world = World::new();
        let pool = world.time.run(world.builder(config(2), reservoir, None).connect()).unwrap();
        world.time.settle();
        let lent = world.time.run(pool.acquire()).unwrap();
        let mut drain = Box::pin(pool.drain(seconds(60)));
        hold(&world, &mut drain);
        drop(drain);
        assert!(pool.status().closed);
        drop(lent);
        assert!(world.time.run(pool.drain(seconds(10))).is_complete());
        world.assert_nothing_left();
    }
}

/// Runs `step` and drops it after `polls` polls, letting others run in between. Whether it was done by then.
pub(super) async fn dropped_after<T>(polls: usize, step: impl Future<Output = T>) -> bool {
    let mut step = pin!(step);
    for _ in 0..polls {
        let polled = std::future::poll_fn(|context| Poll::Ready(step.as_mut().poll(context).is_ready()));
        if polled.await {
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}

/// Begin, commit and rollback, each dropped after so many polls: whoever gets the connection next finds it clean, and
/// a row that was committed is there once or not at all.
async fn transactions_dropped_anywhere<C: Driver<Connection: Speak>>(reservoir: bool) {
    let cluster = start();
    let pool: DsqlPool<C> = pool(&cluster, 1, reservoir).await;
    pool.acquire().await.unwrap().execute("CREATE TABLE t (a bigint)").await.unwrap();
    let mut committed = 0;
    for ending in ["begin", "commit", "rollback"] {
        for polls in 0..8 {
            let mut lent = pool.acquire_within(PATIENCE).await.unwrap();
            assert_eq!(
                lent.number("SELECT count(*) FROM t").await.unwrap(),
                committed,
                "before {ending} {polls}"
            );
            if ending != "begin" {
                lent.begin().await.unwrap();
                lent.execute("INSERT INTO t VALUES (1)").await.unwrap();
            }
            match ending {
                "begin" => dropped_after(polls, lent.begin()).await,
                "commit" => dropped_after(polls, lent.commit()).await,
                _ => dropped_after(polls, lent.rollback()).await,
            };
            drop(lent);
            let mut lent = pool.acquire_within(PATIENCE).await.unwrap();
            let found = lent.number("SELECT count(*) FROM t").await.unwrap();
            assert!(found == committed || (ending == "commit" && found == committed + 1), "{ending} {polls}");
            committed = found;
        }
    }
    assert_eq!(cluster.counters().accepted, 1, "it was cleaned each time, not replaced");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_dropped_anywhere_with_tokio_postgres() {
    for reservoir in [true, false] {
        transactions_dropped_anywhere::<Postgres>(reservoir).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_dropped_anywhere_with_sqlx() {
    for reservoir in [true, false] {
        transactions_dropped_anywhere::<Sqlx>(reservoir).await;
    }
}

#[tokio::test]
async fn waiting_for_answers_can_be_given_up() {
    let cluster = start();
    let pool: DsqlPool<Postgres> = pool(&cluster, 1, true).await;
    let lent = pool.acquire().await.unwrap();
    lent.batch_execute("BEGIN").await.unwrap();
    // The emulator's clock stands still: nothing is answered before the fault is ended.
    let stuck = cluster.inject(fault("delay:at=statement,for=1h"));
    assert!(!dropped_after(1, lent.batch_execute("SELECT 1")).await);
    assert!(!dropped_after(3, lent.tracker().answered()).await);
    cluster.heal(stuck);
    assert_eq!(lent.tracker().answered().await, ConnectionState::InTransaction);
    drop(lent);
    eventually("it is clean again", || pool.status().idle == 1).await;
}
