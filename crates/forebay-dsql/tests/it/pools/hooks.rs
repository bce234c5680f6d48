//! Hooks of a pool: what they may do, and that none that fails, panics, hangs or is dropped costs a connection or lends a wrong one.

use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use forebay::CheckoutError;
use forebay::memory::{Memory, MemoryConnection};
use forebay::rt::Runtime;
use forebay_dsql::{
    Builder, ConnectionState, Driver, Dsql, DsqlPool, ErrorKind, HookFuture, PooledConnection, Postgres,
    Sqlx, SqlxDsql,
};
use parking_lot::Mutex;

use super::cluster::{Keys, PATIENCE, eventually, options, start, start_over};
use super::modes::Speak;
use super::world::{World, config, poll, seconds};

/// What a hook does when it is called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Does {
    #[default]
    Well,
    /// It says no: `false`, or an error where there is no such answer.
    Reject,
    Fail,
    Panic,
    Hang,
    /// It makes the connection dirty, and then says yes.
    Soil,
}

/// What the three hooks do, and which connections they have seen.
#[derive(Clone, Default)]
struct Script {
    does: Arc<Mutex<[Does; 3]>>,
    seen: Arc<Mutex<Vec<(&'static str, u64)>>>,
}

const NAMES: [&str; 3] = ["connect", "acquire", "release"];

impl Script {
    fn set(&self, hook: &'static str, does: Does) {
        let at = NAMES.iter().position(|name| *name == hook).unwrap();
        self.does.lock()[at] = does;
    }

    /// What was seen since the last call.
    fn seen(&self) -> Vec<(&'static str, u64)> {
        std::mem::take(&mut *self.seen.lock())
    }

    fn run<'a>(&self, hook: usize, connection: &'a mut MemoryConnection) -> HookFuture<'a, bool> {
        let does = self.does.lock()[hook];
        self.seen.lock().push((NAMES[hook], connection.id()));
        Box::pin(async move {
            match does {
                Does::Well => {}
                Does::Reject => return Ok(false),
                Does::Fail => return Err("told to fail".into()),
                Does::Panic => panic!("told to panic"),
                Does::Hang => pending().await,
                Does::Soil => connection.make_dirty(),
            }
            Ok(true)
        })
    }

    fn builder(&self, builder: Builder<Memory>) -> Builder<Memory> {
        let [first, second, third] = [(); 3].map(|()| self.clone());
        builder
            .after_connect(move |connection, _| {
                let said = first.run(0, connection);
                Box::pin(async move { if said.await? { Ok(()) } else { Err("told to reject".into()) } })
            })
            .before_acquire(move |connection, _| second.run(1, connection))
            .after_release(move |connection, _| third.run(2, connection))
    }
}

/// A pool with all three hooks, full.
fn pool(reservoir: bool, connections: usize) -> (World, Script, DsqlPool<Memory>) {
    let (world, script) = (World::new(), Script::default());
    let config = config(connections).acquire_timeout(seconds(20));
    let pool = world.time.run(script.builder(world.builder(config, reservoir, None)).connect()).unwrap();
    world.time.advance(seconds(1));
    (world, script, pool)
}

/// The server's number of a connection.
trait Number {
    fn number(&self) -> u64;
}

impl Number for PooledConnection<'_, Memory> {
    fn number(&self) -> u64 {
        MemoryConnection::id(self)
    }
}

/// Lets tasks run, also past panics of some.
fn settle(world: &World) {
    for _ in 0..20 {
        if catch_unwind(AssertUnwindSafe(|| world.time.advance(seconds(6)))).is_ok() {
            return;
        }
    }
}

#[test]
fn hooks_run_when_they_should_and_see_each_connection_once() {
    for reservoir in [true, false] {
        let (world, script, pool) = pool(reservoir, 1);
        assert_eq!(script.seen(), [("connect", 0)], "once when it was opened");
        let mut lent = world.time.run(pool.acquire()).unwrap();
        assert_eq!(script.seen(), [("acquire", 0)]);
        lent.make_dirty();
        drop(lent);
        assert_eq!(pool.status().in_use, 1, "until the hook has seen it");
        world.time.settle();
        assert_eq!(script.seen(), [("release", 0), ("connect", 0)], "again after a reset");
        drop(world.time.run(pool.try_acquire()).unwrap());
        world.time.settle();
        assert_eq!(script.seen(), [("acquire", 0), ("release", 0)], "nothing was reset");
        script.set("release", Does::Soil);
        drop(world.time.run(pool.acquire_within(seconds(1))).unwrap());
        world.time.settle();
        assert_eq!(script.seen(), [("acquire", 0), ("release", 0), ("connect", 0)], "the hook was dirty");
        assert_eq!((pool.size(), pool.num_idle(), world.server.opened()), (1, 1, 1));
    }
}

#[test]
fn a_connection_that_after_connect_rejects_does_not_exist() {
    for reservoir in [true, false] {
        for does in [Does::Reject, Does::Fail, Does::Hang, Does::Soil, Does::Panic] {
            let (world, script) = (World::new(), Script::default());
            script.set("connect", does);
            let builder = script.builder(world.builder(config(2), reservoir, None));
            let mut connect = Box::pin(builder.connect());
            let mut connected = poll(&mut connect);
            while connected.is_pending() {
                settle(&world);
                connected = poll(&mut connect);
            }
            let std::task::Poll::Ready(Ok(pool)) = connected else { panic!("{connected:?}") };
            let mut acquire = Box::pin(pool.acquire_within(seconds(1)));
            assert!(poll(&mut acquire).is_pending(), "{does:?}");
            settle(&world);
            let std::task::Poll::Ready(Err(error)) = poll(&mut acquire) else { panic!("{does:?}: lent") };
            let told = error.to_string();
            let expected = match does {
                Does::Reject => "the hook after_connect failed: told to reject",
                Does::Fail => "the hook after_connect failed: told to fail",
                Does::Hang => "the open took longer than",
                Does::Soil => "the hook after_connect failed: it left the connection dirty",
                _ => "the connector panicked",
            };
            assert!(told.contains(expected), "{does:?}: {told}");
            let status = pool.status();
            assert_eq!((status.open, status.in_use), (0, 0), "{does:?}");
            // The hook of one may hang just now.
            assert_eq!(pool.registry().count(), world.server.live(), "{does:?}");
            assert!(world.server.live() <= status.opening, "{does:?}");
            assert!(
                world.server.opened() > 0 && (world.server.live() == 0 || does == Does::Hang),
                "{does:?}"
            );
            script.set("connect", Does::Well);
            settle(&world);
            assert!(world.time.run(pool.acquire()).is_ok(), "{does:?}: it recovers");
            drop(acquire);
            drop(pool);
            world.assert_nothing_left();
        }
    }
}

#[test]
fn a_connection_that_is_rejected_after_its_loan_is_closed() {
    for reservoir in [true, false] {
        for hook in ["connect", "release"] {
            for does in [Does::Reject, Does::Fail, Does::Hang, Does::Panic] {
                let (world, script, pool) = pool(reservoir, 1);
                let mut lent = world.time.run(pool.acquire()).unwrap();
                let id = lent.id();
                lent.make_dirty();
                script.set(hook, does);
                drop(lent);
                assert_eq!(pool.status().in_use, 1);
                assert!(
                    catch_unwind(AssertUnwindSafe(|| world.time.settle())).is_err() == (does == Does::Panic)
                );
                script.set(hook, Does::Well);
                settle(&world);
                let lent = world.time.run(pool.acquire()).unwrap();
                assert_ne!(lent.id(), id, "{hook} {does:?}");
                drop(lent);
                settle(&world);
                let status = pool.status();
                assert_eq!((status.open, status.idle, world.server.live()), (1, 1, 1), "{hook} {does:?}");
                drop(pool);
                world.assert_nothing_left();
            }
        }
    }
}

#[test]
fn a_caller_gets_another_connection_for_one_that_before_acquire_rejects() {
    for reservoir in [true, false] {
        for does in [Does::Reject, Does::Fail, Does::Hang] {
            for ready_only in [false, true] {
                let (world, script, pool) = pool(reservoir, 2);
                script.set("acquire", does);
                let mut acquire: std::pin::Pin<Box<dyn Future<Output = _>>> =
                    if ready_only { Box::pin(pool.try_acquire()) } else { Box::pin(pool.acquire()) };
                if does == Does::Hang {
                    assert!(poll(&mut acquire).is_pending());
                } else {
                    // It rejects every one that is ready, and the caller waits for others.
                    let first = poll(&mut acquire);
                    assert_eq!(first.is_ready(), ready_only, "{does:?}");
                    assert!(first.is_pending() || matches!(first, std::task::Poll::Ready(Err(_))));
                }
                let rejected: Vec<u64> = script.seen().iter().map(|(_, id)| *id).collect();
                script.set("acquire", Does::Well);
                if ready_only && does != Does::Hang {
                    drop(acquire);
                } else {
                    let lent = world.time.run(acquire).unwrap();
                    assert!(!rejected[2..].contains(&lent.number()), "{does:?}: of {rejected:?}");
                }
                settle(&world);
                let status = pool.status();
                assert_eq!((status.open, status.idle), (2, 2), "{does:?}");
                assert_eq!((world.server.live(), pool.registry().count()), (2, 2), "{does:?}");
                drop(pool);
                world.assert_nothing_left();
            }
        }
    }
}

/// Otherwise one caller would spend all opens of the cluster.
#[test]
fn a_hook_that_rejects_even_a_new_connection_fails_its_caller() {
    for does in [Does::Reject, Does::Fail, Does::Hang] {
        let (world, script, pool) = pool(true, 3);
        script.set("acquire", does);
        let error = world.time.run(pool.acquire()).unwrap_err();
        assert!(error.to_string().contains("before_acquire"), "{error}");
        let asked = script.seen().iter().filter(|(hook, _)| *hook == "acquire").count();
        // Those that were ready, and the first of those that came for them.
        assert!(asked == 4 || (does == Does::Hang && asked < 4), "{does:?}: {asked}");
    }
}

/// The wait of a caller includes the hook. What is not known to be wrong is not closed.
#[test]
fn a_hook_does_not_keep_a_caller_past_its_limit() {
    let (world, script, pool) = pool(true, 1);
    script.set("acquire", Does::Hang);
    let began = world.time.now();
    let error = world.time.run(pool.acquire_within(seconds(2))).unwrap_err();
    assert_eq!(world.time.now().since(began), seconds(2));
    assert!(
        error.to_string().contains("the hook before_acquire took longer than the caller waits"),
        "{error}"
    );
    assert!(matches!(error, CheckoutError::Empty { waited, .. } if waited == seconds(2)));
    script.set("acquire", Does::Fail);
    let error = world.time.run(pool.acquire_within(Duration::ZERO)).unwrap_err();
    assert!(error.to_string().contains("before_acquire"), "{error}");
    assert_eq!(world.server.opened(), 1, "only now it is closed");
}

#[test]
fn a_panic_of_before_acquire_is_the_callers_and_the_connection_is_closed() {
    let (world, script, pool) = pool(true, 1);
    script.set("acquire", Does::Panic);
    let acquire = AssertUnwindSafe(|| world.time.run(pool.acquire()).map(drop));
    assert!(catch_unwind(acquire).is_err());
    script.set("acquire", Does::Well);
    let lent = world.time.run(pool.acquire()).unwrap();
    assert_eq!((lent.number(), pool.status().in_use, world.server.live()), (1, 1, 1));
}

/// At each await: in the queue, in the hook, and with one that was rejected before.
#[test]
fn a_caller_that_gives_up_in_a_hook_loses_nothing() {
    for soil in [false, true] {
        for ready_only in [false, true] {
            let (world, script, pool) = pool(true, 1);
            script.set("acquire", if soil { Does::Soil } else { Does::Hang });
            let mut acquire: std::pin::Pin<Box<dyn Future<Output = _>>> =
                if ready_only { Box::pin(pool.try_acquire()) } else { Box::pin(pool.acquire()) };
            let held = poll(&mut acquire);
            assert_eq!(held.is_ready(), soil);
            let mut queued = Box::pin(pool.acquire());
            assert!(poll(&mut queued).is_pending());
            drop(queued);
            drop((held, acquire));
            world.time.settle();
            let status = pool.status();
            assert_eq!((status.idle, status.in_use, status.waiting), (1, 0, 0));
            let released = script.seen().contains(&("release", 0));
            assert_eq!(released, soil, "what nobody got is not released");
            script.set("acquire", Does::Well);
            assert_eq!(world.time.run(pool.acquire()).unwrap().number(), 0, "the same connection");
            assert_eq!(world.server.opened(), 1);
        }
    }
}

/// Served, dead and closed at one moment, in each order.
#[test]
fn the_end_of_a_pool_in_the_middle_of_a_hook_leaves_nothing() {
    for hook in NAMES {
        for first in ["answer", "death", "close"] {
            let (world, script, pool) = pool(true, 1);
            let mut acquire = Box::pin(pool.acquire());
            if hook == "acquire" {
                script.set(hook, Does::Hang);
                assert!(poll(&mut acquire).is_pending());
            } else {
                let mut lent = world.time.run(&mut acquire).unwrap();
                lent.make_dirty();
                script.set(hook, Does::Hang);
                drop(lent);
                world.time.settle();
            }
            assert_eq!(pool.status().in_use, 1, "{hook}");
            let events: [(&str, &dyn Fn()); 3] = [
                ("answer", &|| world.time.advance(seconds(6))),
                ("death", &|| world.server.kill_all()),
                ("close", &|| pool.close()),
            ];
            let turn = events.iter().position(|(name, _)| *name == first).unwrap();
            for (_, happens) in events.iter().cycle().skip(turn).take(3) {
                happens();
            }
            script.set(hook, Does::Well);
            drop(acquire);
            settle(&world);
            assert!(
                pool.is_closed() && matches!(world.time.run(pool.try_acquire()), Err(CheckoutError::Closed))
            );
            assert_eq!((pool.size(), pool.status().in_use, pool.registry().count()), (0, 0, 0));
            world.assert_nothing_left();
        }
    }
}

#[test]
fn try_acquire_does_not_wait_for_a_connection() {
    let world = World::new();
    for reservoir in [true, false] {
        let pool = world.time.run(world.builder(config(1), reservoir, None).connect()).unwrap();
        world.time.settle();
        let lent = Box::pin(pool.try_acquire());
        let std::task::Poll::Ready(Ok(lent)) = poll(&mut { lent }) else { panic!("it waits") };
        let mut second = Box::pin(pool.try_acquire());
        let std::task::Poll::Ready(Err(error)) = poll(&mut second) else { panic!("it waits") };
        assert!(matches!(error, CheckoutError::Exhausted { .. }), "{error}");
        drop(lent);
        assert!(poll(&mut Box::pin(pool.try_acquire())).is_ready());
    }
}

#[test]
fn a_pool_can_be_resized_counted_and_closed() {
    for reservoir in [true, false] {
        let world = World::new();
        let pool = world.time.run(world.builder(config(2), reservoir, None).connect()).unwrap();
        world.time.settle();
        assert_eq!((pool.size(), pool.num_idle(), pool.is_closed()), (2, 2, false));
        pool.resize(300).unwrap();
        world.time.advance(seconds(101));
        assert_eq!(
            (pool.size(), pool.status().max_open),
            (300, 300),
            "of three in a tick, also in standard mode"
        );
        let lent = world.time.run(pool.acquire()).unwrap();
        pool.resize(1).unwrap();
        world.time.settle();
        assert_eq!((pool.size(), pool.num_idle()), (1, 0));
        let error = pool.resize(0).unwrap_err().to_string();
        assert!(error.contains("max_connections is 0, but must be at least 1"), "{error}");
        assert_eq!(pool.status().max_open, 1, "nothing changed");
        let mut waiting = Box::pin(pool.acquire());
        assert!(poll(&mut waiting).is_pending());
        pool.close();
        assert!(pool.is_closed());
        assert!(matches!(world.time.run(waiting), Err(CheckoutError::Closed)));
        assert_eq!(pool.size(), 1, "the one in use");
        drop(lent);
        assert!(world.time.run(pool.drain(seconds(1))).is_complete());
        world.assert_nothing_left();
    }
}

/// What each client says in its own words.
trait Show: Speak {
    fn show(&mut self, setting: &'static str) -> impl Future<Output = String> + Send;
}

impl Show for forebay_dsql::PostgresConnection {
    async fn show(&mut self, setting: &'static str) -> String {
        let rows = self.simple_query(setting).await.unwrap();
        let of = |message: &tokio_postgres::SimpleQueryMessage| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        };
        rows.iter().find_map(of).unwrap()
    }
}

impl Show for forebay_dsql::SqlxConnection {
    async fn show(&mut self, setting: &'static str) -> String {
        use sqlx::Row;
        sqlx::raw_sql(setting).fetch_one(self.pg()).await.unwrap().get(0)
    }
}

const SETTINGS: [&str; 2] = ["SHOW application_name", "SHOW search_path"];

async fn settings_survive<C: Driver<Connection: Show>>(engine: dsql_local::EngineKind, reservoir: bool) {
    let cluster = start_over(engine, dsql_local::Limits::default());
    let options = options(&cluster, 1).reservoir(reservoir).build().unwrap();
    let runs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    let pool = DsqlPool::<C>::builder(options, Keys::of(&cluster))
        .after_connect(move |connection, info| {
            count.fetch_add(1, Ordering::SeqCst);
            Box::pin(async move {
                assert!(!info.retired);
                connection.execute("SET application_name TO 'reports'").await?;
                connection.execute("SET search_path TO shop, public").await?;
                Ok(())
            })
        })
        .connect()
        .await
        .unwrap();
    for change in ["SELECT 1", "SET search_path TO elsewhere", "BEGIN", "SET application_name TO 'mine'"] {
        let mut connection = pool.acquire_within(PATIENCE).await.unwrap();
        for (setting, expected) in SETTINGS.iter().zip(["reports", "shop, public"]) {
            assert_eq!(connection.show(setting).await, expected, "before {change}");
        }
        connection.execute(change).await.unwrap();
        drop(connection);
    }
    pool.run("body", async |mut tx| {
        tx.execute("SET search_path TO elsewhere").await.map_err(forebay_dsql_error)?;
        Ok::<_, forebay_dsql::Error>(())
    })
    .await
    .unwrap();
    let mut connection = pool.acquire_within(PATIENCE).await.unwrap();
    assert_eq!(connection.show(SETTINGS[1]).await, "shop, public");
    assert_eq!(cluster.counters().accepted, 1, "it was one connection all the time");
    assert!(runs.load(Ordering::SeqCst) >= 4, "once at the open, and after each reset");
}

fn forebay_dsql_error(error: String) -> forebay_dsql::Error {
    forebay_dsql::Error::new(ErrorKind::Permanent, error)
}

#[tokio::test]
async fn what_after_connect_sets_survives_every_reset_with_tokio_postgres() {
    settings_survive::<Postgres>(dsql_local::EngineKind::Builtin, true).await;
    settings_survive::<Postgres>(dsql_local::EngineKind::Postgres, false).await;
}

#[tokio::test]
async fn what_after_connect_sets_survives_every_reset_with_sqlx() {
    settings_survive::<Sqlx>(dsql_local::EngineKind::Builtin, true).await;
    settings_survive::<Sqlx>(dsql_local::EngineKind::Postgres, false).await;
}

/// What it sets must not look like what a caller left: a clean return resets nothing.
#[tokio::test]
async fn after_connect_leaves_a_clean_connection() {
    let cluster = start();
    let (runs, options) = (Arc::new(AtomicUsize::new(0)), options(&cluster, 1).build().unwrap());
    let count = Arc::clone(&runs);
    let pool = Dsql::builder(options, Keys::of(&cluster))
        .after_connect(move |connection, _| {
            count.fetch_add(1, Ordering::SeqCst);
            Box::pin(async move { Ok(connection.batch_execute("SET search_path TO shop").await?) })
        })
        .connect()
        .await
        .unwrap();
    for _ in 0..5 {
        let connection = pool.acquire_within(PATIENCE).await.unwrap();
        assert_eq!(connection.state(), ConnectionState::Clean);
        connection.batch_execute("SELECT 1").await.unwrap();
        assert_eq!(connection.tracker().answered().await, ConnectionState::Clean);
    }
    for _ in 0..20 {
        // Its statement is closed without a wait for the answer, so the connection comes back unanswered.
        let connection = pool.acquire_within(PATIENCE).await.unwrap();
        assert_eq!(connection.query("SELECT 1", &[]).await.unwrap().len(), 1);
    }
    // So does one with an open transaction.
    for statement in ["BEGIN", "SELECT 1"] {
        let connection = pool.acquire_within(PATIENCE).await.unwrap();
        connection.batch_execute(statement).await.unwrap();
    }
    assert_eq!(runs.load(Ordering::SeqCst), 1, "nothing was reset that it has set");
}

#[tokio::test]
async fn a_hook_that_the_server_refuses_for_good_fails_a_start_and_callers_at_once() {
    let cluster = start();
    let began = std::sync::Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&began);
    let error = Dsql::builder(options(&cluster, 1).build().unwrap(), Keys::of(&cluster))
        .after_connect(move |connection, _| {
            count.fetch_add(1, Ordering::SeqCst);
            Box::pin(async { Ok(connection.batch_execute("SET statement_timeout = 1000").await?) })
        })
        .connect()
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("the hook after_connect failed"), "{error}");
    assert_eq!(began.load(Ordering::SeqCst), 1, "it did not wait for another attempt");
}

#[tokio::test]
async fn a_transaction_that_a_hook_leaves_open_is_lent_to_nobody() {
    let cluster = start();
    let options =
        || options(&cluster, 1).variable("DSQL_RESERVOIR_INITIAL_FILL_TIMEOUT", "1ms").build().unwrap();
    let plain = Dsql::builder(options(), Keys::of(&cluster))
        .after_connect(|connection, _| Box::pin(async { Ok(connection.batch_execute("BEGIN").await?) }))
        .connect()
        .await
        .unwrap();
    let sqlx = SqlxDsql::builder(options(), Keys::of(&cluster))
        .after_connect(|connection, _| {
            Box::pin(async move {
                sqlx::raw_sql("BEGIN").execute(connection.pg()).await?;
                Ok(())
            })
        })
        .connect()
        .await
        .unwrap();
    eventually("both were opened", || cluster.counters().accepted >= 2).await;
    for error in [
        plain.acquire_within(Duration::from_millis(100)).await.unwrap_err(),
        sqlx.acquire_within(Duration::from_millis(100)).await.unwrap_err(),
    ] {
        assert!(error.to_string().contains("it left a transaction open"), "{error}");
    }
}

/// A change of the schema is told to each connection once, whatever it is asked next.
#[test]
fn a_conflict_calls_a_hook_again() {
    let (world, calls) = (World::new(), Arc::new(AtomicU64::new(0)));
    let count = Arc::clone(&calls);
    let builder = world.builder(config(1), true, None).before_acquire(move |_, _| {
        let number = count.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            if number < 1 {
                let schema = ErrorKind::Conflict(forebay_dsql::Conflict::Schema);
                return Err(forebay_dsql::Error::new(schema, "OC001").into());
            }
            Ok(true)
        })
    });
    let pool = world.time.run(builder.connect()).unwrap();
    drop(world.time.run(pool.acquire()).unwrap());
    assert_eq!((calls.load(Ordering::SeqCst), world.server.opened()), (2, 1));
}

#[test]
fn what_a_hook_is_told_is_what_the_registry_lists() {
    let (world, told) = (World::new(), Arc::new(Mutex::new(None)));
    let kept = Arc::clone(&told);
    let builder = world.builder(config(1), true, None).before_acquire(move |_, info| {
        *kept.lock() = Some(info);
        Box::pin(async { Ok(true) })
    });
    let pool = world.time.run(builder.connect()).unwrap();
    world.time.advance(seconds(60));
    let lent = world.time.run(pool.acquire()).unwrap();
    let info = told.lock().unwrap();
    assert_eq!((info.id, info.age, info.retired), (lent.id(), seconds(60), false));
}

/// In the middle of a statement of the hook.
async fn a_dropped_hook_leaves_a_usable_connection<C: Driver<Connection: Speak>>() {
    let cluster = start();
    let pool = DsqlPool::<C>::builder(options(&cluster, 1).build().unwrap(), Keys::of(&cluster))
        .before_acquire(|connection, _| {
            Box::pin(async { Ok(connection.number("SELECT count(*)").await? == 1) })
        })
        .connect()
        .await
        .unwrap();
    for _ in 0..3 {
        let mut acquire = Box::pin(pool.acquire_within(PATIENCE));
        assert!(poll(&mut acquire).is_pending(), "it has sent its statement");
        drop(acquire);
        let mut connection = pool.acquire_within(PATIENCE).await.unwrap();
        let answer = connection.number("SELECT 6 + count(*)").await;
        assert_eq!(answer, Ok(7), "not the answer to another statement");
    }
    assert_eq!(cluster.counters().accepted, 1);
}

#[tokio::test]
async fn a_dropped_hook_leaves_a_usable_connection_of_either_client() {
    a_dropped_hook_leaves_a_usable_connection::<Postgres>().await;
    a_dropped_hook_leaves_a_usable_connection::<Sqlx>().await;
}
