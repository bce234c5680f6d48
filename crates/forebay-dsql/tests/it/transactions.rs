//! Transactions over a connection that does as it is told, in virtual time.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use forebay::rt::{Runtime, VirtualTime};
use forebay_dsql::{
    ConditionFailed, Conflict, Error, ErrorKind, RetryPolicy, Session, Sessions, Stage, Transactions,
};
use metrics_exporter_prometheus::PrometheusBuilder;

use crate::bank::{Bank, Fate};

const CHANGE: ErrorKind = ErrorKind::Conflict(Conflict::Change);
const SCHEMA: ErrorKind = ErrorKind::Conflict(Conflict::Schema);

struct World {
    time: VirtualTime,
    bank: Bank,
    transactions: Transactions,
}

impl World {
    fn new() -> Self {
        Self::with(RetryPolicy::default())
    }

    fn with(policy: RetryPolicy) -> Self {
        let time = VirtualTime::new();
        let transactions = Transactions::new(policy, time.clone(), "orders", "default");
        Self { transactions, bank: Bank::default(), time }
    }

    fn add(&self, fates: &[(&'static str, Fate)]) -> Result<&'static str, Error> {
        self.bank.plan(fates);
        self.time.run(self.transactions.run(&self.bank, "add", async |mut link| {
            link.add(1).await?;
            Ok("done")
        }))
    }
}

#[test]
fn a_transaction_without_trouble_is_run_once() {
    let world = World::new();
    assert_eq!(world.add(&[]).unwrap(), "done");
    assert_eq!(world.bank.log(), ["take 1", "begin 1", "add 1", "commit 1"]);
    assert_eq!(world.bank.committed(), 1);
}

#[test]
fn conflicts_at_a_statement_and_at_commit_run_all_of_it_again_on_the_same_connection() {
    for (step, kind, rolled_back) in
        [("add", CHANGE, true), ("commit", CHANGE, false), ("begin", SCHEMA, true), ("add", SCHEMA, true)]
    {
        let world = World::new();
        assert_eq!(world.add(&[(step, Fate::Fails(kind))]).unwrap(), "done");
        let log = world.bank.log();
        assert_eq!(log.iter().filter(|line| line.starts_with("begin")).count(), 2, "{log:?}");
        assert_eq!(log.contains(&"rollback 1".to_owned()), rolled_back, "{log:?}");
        assert!(log.iter().all(|line| line.ends_with(" 1")), "{log:?}");
        assert_eq!(world.bank.committed(), 1, "counted once");
    }
}

#[test]
fn server_unavailable_is_run_again_at_a_statement_and_unknown_at_commit() {
    let world = World::new();
    world.add(&[("add", Fate::Fails(ErrorKind::Unavailable))]).unwrap();
    assert_eq!(world.bank.log().last().unwrap(), "commit 1", "on the same connection");
    let error = world.add(&[("commit", Fate::Fails(ErrorKind::Unavailable))]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CommitUnknown);
    assert_eq!(world.bank.log().len(), 4, "never run again");
}

#[test]
fn a_connection_lost_before_commit_is_replaced_and_one_lost_in_it_is_unknown() {
    let world = World::new();
    let lost = Fate::Fails(ErrorKind::Disconnected);
    world.add(&[("add", lost), ("rollback", lost)]).unwrap();
    assert_eq!(
        world.bank.log(),
        ["take 1", "begin 1", "add 1", "rollback 1", "take 2", "begin 2", "add 2", "commit 2"]
    );
    assert_eq!(world.bank.committed(), 1);
    let error = world.add(&[("commit", lost)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::CommitUnknown, "{error}");
    assert_eq!(world.bank.log(), ["take 3", "begin 3", "add 3", "commit 3"]);
}

#[test]
fn a_connection_lost_elsewhere_is_the_bodys_own_error() {
    let world = World::new();
    let mut runs = 0;
    let outcome: Result<(), Error> = world.time.run(world.transactions.run(&world.bank, "call", |_| {
        runs += 1;
        async { Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into()) }
    }));
    assert_eq!((outcome.unwrap_err().kind(), runs), (ErrorKind::Disconnected, 1), "the database is fine");
}

#[test]
fn a_failed_condition_is_rolled_back_and_never_run_again() {
    let world = World::new();
    let failed = ConditionFailed { entity: "shard 1".into(), expected: "1".into(), found: None };
    let outcome: Result<(), Error> =
        world.time.run(world.transactions.run(&world.bank, "cas", async |_| Err(failed.clone().into())));
    assert_eq!(outcome.unwrap_err().condition(), Some(&failed));
    assert_eq!(world.bank.log(), ["take 1", "begin 1", "rollback 1"]);
}

#[test]
fn errors_of_the_application_come_out_as_they_are() {
    #[derive(Debug, thiserror::Error)]
    enum Ours {
        #[error("no such order")]
        NoSuchOrder,
        #[error("the database failed")]
        Database(#[source] Arc<Error>),
    }
    impl From<Error> for Ours {
        fn from(error: Error) -> Self {
            Self::Database(Arc::new(error))
        }
    }
    let world = World::new();
    let run = |fates: &[_], found: bool| -> Result<(), Ours> {
        world.bank.plan(fates);
        world.time.run(world.transactions.run(&world.bank, "find", async |mut link| {
            link.add(1).await?;
            if found { Ok(()) } else { Err(Ours::NoSuchOrder) }
        }))
    };
    assert!(matches!(run(&[], false), Err(Ours::NoSuchOrder)));
    // Classified through the application's own wrapping.
    run(&[("add", Fate::Fails(CHANGE))], true).unwrap();
    let unknown = run(&[("commit", Fate::Fails(ErrorKind::Disconnected))], true).unwrap_err();
    assert_eq!(ErrorKind::of(&unknown), ErrorKind::CommitUnknown);
}

/// What a library below the application returns.
#[derive(Debug, thiserror::Error)]
#[error("no such order")]
struct NoSuchOrder;

/// Runs a body that fails with `NoSuchOrder` or commits, as `E`. What the connection says is wrapped by `wrap`.
fn find<E, By>(
    world: &World,
    fates: &[(&'static str, Fate)],
    found: bool,
    wrap: fn(Error) -> E,
) -> Result<(), E>
where
    E: forebay_dsql::BodyError<By> + From<NoSuchOrder>,
{
    drop(world.bank.log());
    world.bank.plan(fates);
    world.time.run(world.transactions.run(&world.bank, "find", async |mut link| {
        link.add(1).await.map_err(wrap)?;
        if found { Ok(()) } else { Err(NoSuchOrder.into()) }
    }))
}

#[test]
fn anyhow_is_run_again_after_a_conflict_under_its_contexts_and_comes_out_as_it_is() {
    let world = World::new();
    let wrap = |error| anyhow::Error::from(error).context("adding").context("paying");
    let error = find(&world, &[], false, wrap).unwrap_err();
    assert!(error.downcast_ref::<NoSuchOrder>().is_some(), "{error:?}");
    for kind in [CHANGE, SCHEMA, ErrorKind::Unavailable] {
        find(&world, &[("add", Fate::Fails(kind))], true, wrap).unwrap();
        assert_eq!(world.bank.log().iter().filter(|line| line.starts_with("begin")).count(), 2, "{kind:?}");
    }
    let error = find(&world, &[("add", Fate::Fails(ErrorKind::Unsupported))], true, wrap).unwrap_err();
    assert_eq!(error.to_string(), "paying", "its contexts are still there");
    assert_eq!(ErrorKind::of(&*error), ErrorKind::Unsupported);
    let unknown = find(&world, &[("commit", Fate::Fails(ErrorKind::Disconnected))], true, wrap).unwrap_err();
    assert_eq!(unknown.downcast_ref::<Error>().map(Error::kind), Some(ErrorKind::CommitUnknown));
}

#[test]
fn boxed_errors_are_run_again_after_a_conflict_and_come_out_as_they_are() {
    fn check<E, By>(wrap: fn(Error) -> E, kind: fn(&E) -> (ErrorKind, bool))
    where
        E: forebay_dsql::BodyError<By> + From<NoSuchOrder> + std::fmt::Debug,
    {
        let world = World::new();
        assert_eq!(kind(&find(&world, &[], false, wrap).unwrap_err()), (ErrorKind::Permanent, true));
        find(&world, &[("add", Fate::Fails(CHANGE)), ("commit", Fate::Fails(CHANGE))], true, wrap).unwrap();
        assert_eq!(world.bank.log().iter().filter(|line| line.starts_with("begin")).count(), 3);
        let unknown = [("commit", Fate::Fails(ErrorKind::Disconnected))];
        let unknown = find(&world, &unknown, true, wrap).unwrap_err();
        assert_eq!(kind(&unknown), (ErrorKind::CommitUnknown, false));
    }
    check::<Box<dyn std::error::Error + Send + Sync>, _>(Into::into, |error| {
        (ErrorKind::of(&**error), error.is::<NoSuchOrder>())
    });
    check::<Box<dyn std::error::Error>, _>(Into::into, |error| {
        (ErrorKind::of(&**error), error.is::<NoSuchOrder>())
    });
}

#[test]
fn a_body_may_count_its_attempts_or_own_what_it_uses() {
    let world = World::new();
    let mut attempts = 0;
    world.bank.plan(&[("commit", Fate::Fails(CHANGE)), ("add", Fate::Fails(CHANGE))]);
    let counting = world.transactions.run_mut(&world.bank, "count", async |mut link| {
        attempts += 1;
        link.add(1).await
    });
    world.time.run(counting).unwrap();
    assert_eq!(attempts, 3);
    let (names, transactions, bank) =
        (vec![String::from("1"); 2], world.transactions.clone(), world.bank.clone());
    bank.plan(&[("commit", Fate::Fails(CHANGE))]);
    // Also in a task of its own.
    let owning = Box::pin(async move {
        transactions
            .run_mut(&bank, "own", async move |mut link| {
                for name in &names {
                    link.add(name.parse()?).await?;
                }
                anyhow::Ok(())
            })
            .await
    });
    let owning: Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>> = owning;
    world.time.run(owning).unwrap();
    assert_eq!(world.bank.committed(), 3);
}

#[test]
fn the_last_conflict_comes_out_after_five_retries_and_their_pauses() {
    let world = World::with(RetryPolicy::specified());
    let start = world.time.now();
    let error = world.add(&[("commit", Fate::Fails(CHANGE)); 9]).unwrap_err();
    assert_eq!(error.kind(), CHANGE);
    assert_eq!(world.bank.log().iter().filter(|line| line.starts_with("commit")).count(), 6);
    let took = world.time.now().since(start);
    let pauses = Duration::from_millis(100 + 200 + 400 + 800 + 1600);
    assert!(took >= pauses * 3 / 4 && took <= pauses * 5 / 4, "{took:?}");
}

#[test]
fn no_connection_is_not_the_transactions_to_try_again() {
    let world = World::new();
    let error = world.add(&[("take", Fate::Fails(ErrorKind::NoConnection))]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoConnection);
    assert_eq!(world.bank.log(), ["take 1"]);
}

#[test]
fn a_retry_that_finds_no_connection_is_one_that_failed() {
    let world = World::with(RetryPolicy::specified());
    let (lost, none) = (Fate::Fails(ErrorKind::Disconnected), Fate::Fails(ErrorKind::NoConnection));
    world.add(&[("add", lost), ("rollback", lost), ("take", none), ("take", none)]).unwrap();
    let log = world.bank.log();
    assert_eq!(log[3..], ["rollback 1", "take 2", "take 3", "take 4", "begin 4", "add 4", "commit 4"]);
    assert_eq!(world.bank.committed(), 1);
    // There are five.
    let error = world.add(&[&[("add", lost), ("rollback", lost)][..], &[("take", none); 9]].concat());
    assert_eq!(error.unwrap_err().kind(), ErrorKind::NoConnection);
    assert_eq!(world.bank.log().iter().filter(|line| line.starts_with("take")).count(), 6);
}

#[test]
fn a_store_with_boundaries_of_its_own_gets_the_same_policy() {
    let world = World::new();
    let fail = |kind| Error::new(kind, "as planned");
    let outcome = world.time.run(async {
        let mut operation = world.transactions.operation("store");
        operation.retry(Stage::Commit, fail(CHANGE)).await?;
        operation.retry(Stage::Statement, fail(ErrorKind::Disconnected)).await?;
        operation.retry(Stage::Commit, fail(ErrorKind::Disconnected)).await?;
        Ok::<_, Error>("never reached")
    });
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Disconnected, "as it was given: the store's own");
}

#[test]
fn a_dropped_run_leaves_a_connection_that_is_known_to_be_dirty_or_is_clean() {
    for (at, dirty, committed) in
        [("take", 0, 0), ("begin", 1, 0), ("add", 1, 0), ("commit", 1, 0), ("rollback", 1, 0)]
    {
        let world = World::new();
        let conflict = ("commit", Fate::Fails(CHANGE));
        let fates: &[_] = match at {
            "rollback" => &[("add", Fate::Fails(CHANGE)), ("rollback", Fate::Hangs)],
            // Once through a retry, to hold at the second attempt.
            "add" => &[conflict, ("add", Fate::Hangs)],
            _ => &[(at, Fate::Hangs)],
        };
        world.bank.plan(fates);
        let mut run: Pin<Box<dyn Future<Output = Result<(), Error>>>> =
            Box::pin(world.transactions.run(&world.bank, "add", async |mut link| link.add(1).await));
        for _ in 0..10 {
            assert!(run.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending(), "{at}");
            world.time.advance(Duration::from_secs(1));
        }
        drop(run);
        let books = world.bank.0.lock().unwrap();
        assert_eq!((books.dropped_dirty, books.committed), (dirty, committed), "dropped at {at}");
    }
}

#[test]
fn dropped_in_a_pause_it_leaves_a_clean_connection() {
    let world = World::new();
    world.bank.plan(&[("add", Fate::Fails(CHANGE))]);
    let mut run: Pin<Box<dyn Future<Output = Result<(), Error>>>> =
        Box::pin(world.transactions.run(&world.bank, "add", async |mut link| link.add(1).await));
    assert!(matches!(run.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Pending));
    drop(run);
    assert_eq!(world.bank.log(), ["take 1", "begin 1", "add 1", "rollback 1"]);
    assert_eq!(world.bank.0.lock().unwrap().dropped_dirty, 0);
}

#[test]
fn a_run_can_be_spawned() {
    fn sendable<F: Future + Send + 'static>(future: F) -> F {
        future
    }
    let World { time, bank, transactions } = World::new();
    let (ours, amount) = (bank.clone(), String::from("3"));
    let run = sendable(async move {
        let text = &amount;
        transactions
            .run(&ours, "add", async |mut link| {
                let amount = text
                    .parse()
                    .map_err(|error| Error::of(Box::<dyn std::error::Error + Send + Sync>::from(error)))?;
                link.add(amount).await
            })
            .await
    });
    time.run(run).unwrap();
    assert_eq!(bank.committed(), 3);
}

#[test]
fn a_body_that_keeps_its_connection_is_told_so() {
    let world = World::new();
    let mut kept = Vec::new();
    let outcome: Result<(), Error> = world.time.run(world.transactions.run(&world.bank, "keep", |link| {
        kept.push(link);
        async { Ok(()) }
    }));
    let error = outcome.unwrap_err();
    assert!(error.to_string().contains("kept the connection"), "{error}");
    assert_eq!((kept.len(), world.bank.committed()), (1, 0));
}

#[test]
fn everything_is_counted() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    metrics::with_local_recorder(&recorder, || {
        let world = World::with(RetryPolicy::default().retries(2));
        world.add(&[("commit", Fate::Fails(CHANGE))]).unwrap();
        world.add(&[("commit", Fate::Fails(CHANGE)); 3]).unwrap_err();
        world.add(&[("commit", Fate::Fails(ErrorKind::Disconnected))]).unwrap_err();
        world.add(&[("add", Fate::Fails(ErrorKind::Unsupported))]).unwrap_err();
    });
    let text = handle.render();
    let value = |name: &str, more: &str| -> u64 {
        let line = format!("{name}{{service=\"orders\",pool=\"default\",operation=\"add\"{more}}} ");
        let found = text.lines().find_map(|text| text.strip_prefix(&line));
        found.unwrap_or_else(|| panic!("no {line}in {text}")).parse().unwrap()
    };
    for (name, more, expected) in [
        ("dsql_tx_error_class_total", ",error_class=\"conflict\"", 4),
        ("dsql_tx_error_class_total", ",error_class=\"commit_unknown\"", 1),
        ("dsql_tx_error_class_total", ",error_class=\"unsupported\"", 1),
        ("dsql_tx_conflict_total", "", 4),
        ("dsql_tx_retry_total", ",attempt=\"1\"", 2),
        ("dsql_tx_retry_total", ",attempt=\"2\"", 1),
        ("dsql_tx_exhausted_total", "", 1),
        ("dsql_tx_commit_unknown_total", "", 1),
        ("dsql_tx_backoff_count", "", 3),
        ("dsql_tx_latency_count", ",outcome=\"committed\"", 1),
        ("dsql_tx_latency_count", ",outcome=\"exhausted\"", 1),
        ("dsql_tx_latency_count", ",outcome=\"commit_unknown\"", 1),
        ("dsql_tx_latency_count", ",outcome=\"failed\"", 1),
    ] {
        assert_eq!(value(name, more), expected, "{name}{more}");
    }
}

/// Has one connection at once, which is lost, and the next after 25 s.
struct Slow(VirtualTime, AtomicU32);

struct Lost(bool);

impl Session for Lost {
    async fn begin(&mut self) -> Result<(), Error> {
        if self.0 { Err(Error::new(ErrorKind::Disconnected, "gone")) } else { Ok(()) }
    }

    async fn commit(&mut self) -> Result<(), Error> {
        Ok(())
    }

    async fn rollback(&mut self) -> Result<(), Error> {
        Err(Error::new(ErrorKind::Disconnected, "gone"))
    }
}

impl Sessions for Slow {
    type Session = Lost;

    async fn session(&self) -> Result<Lost, Error> {
        let first = self.1.fetch_add(1, Ordering::Relaxed) == 0;
        if !first {
            self.0.sleep_until(self.0.now() + Duration::from_secs(25)).await;
        }
        Ok(Lost(first))
    }
}

#[test]
fn the_wait_for_a_connection_counts_against_the_deadline() {
    for (deadline, outcome, seconds) in [(2, Err(ErrorKind::NoConnection), 2), (30, Ok(()), 25)] {
        let World { time, transactions, .. } =
            World::with(RetryPolicy::default().deadline(Duration::from_secs(deadline)));
        let slow = Slow(time.clone(), AtomicU32::new(0));
        let began = time.now();
        let run = transactions.run(&slow, "look", async |_| Ok::<_, Error>(()));
        assert_eq!(time.run(run).map_err(|error| error.kind()), outcome);
        assert_eq!(time.now().since(began).as_secs(), seconds);
    }
}

const DEADLINE: Duration = Duration::from_secs(3);

/// Whatever the body waits for, and whatever it would do then.
#[test]
fn a_run_ends_at_its_deadline_whatever_its_body_waits_for() {
    let world = World::with(RetryPolicy::default().deadline(DEADLINE));
    let began = world.time.now();
    let outcome: Result<(), Error> =
        world.time.run(world.transactions.run(&world.bank, "wait", async |mut link| {
            link.add(1).await?;
            world.time.sleep_until(began + DEADLINE * 10).await;
            Ok(())
        }));
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(world.time.now().since(began), DEADLINE);
    assert_eq!(world.bank.log(), ["take 1", "begin 1", "add 1"], "its pool rolls back");
    assert_eq!(world.bank.committed(), 0);
}

/// A retry that could not begin in time is not waited for.
#[test]
fn a_run_does_not_pause_beyond_its_deadline() {
    let policy = RetryPolicy::default().base(DEADLINE * 2).cap(DEADLINE * 2).deadline(DEADLINE);
    let world = World::with(policy);
    let began = world.time.now();
    let error = world.add(&[("commit", Fate::Fails(CHANGE))]).unwrap_err();
    assert_eq!(error.kind(), CHANGE, "that of the last attempt");
    assert_eq!(world.time.now(), began);
}

/// The retries, their pauses and their bodies share one deadline.
#[test]
fn attempts_share_the_deadline_of_their_run() {
    let policy = RetryPolicy::default().base(Duration::from_millis(10)).retries(100).deadline(DEADLINE);
    let world = World::with(policy);
    let began = world.time.now();
    let mut attempts = 0;
    let outcome: Result<(), Error> =
        world.time.run(world.transactions.run_mut(&world.bank, "work", async |_link| {
            attempts += 1;
            world.time.sleep_until(world.time.now() + DEADLINE * 2 / 5).await;
            Err(Error::new(CHANGE, "another was first"))
        }));
    assert_eq!((outcome.unwrap_err().kind(), attempts), (ErrorKind::TimedOut, 3));
    assert_eq!(world.time.now().since(began), DEADLINE);
}

/// Any connection, also one that knows nothing of deadlines.
#[test]
fn a_step_that_hangs_ends_at_the_deadline() {
    for (step, kind) in
        [("begin", ErrorKind::TimedOut), ("add", ErrorKind::TimedOut), ("commit", ErrorKind::CommitUnknown)]
    {
        let world = World::with(RetryPolicy::default().deadline(DEADLINE));
        let began = world.time.now();
        let error = world.add(&[(step, Fate::Hangs)]).unwrap_err();
        assert_eq!(error.kind(), kind, "{step}: {error}");
        assert_eq!(world.time.now().since(began), DEADLINE, "{step}");
    }
}
