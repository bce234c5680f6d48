//! Ids: never the same twice, never smaller than before, whatever the clock does.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay::Instant;
use forebay::rt::{Runtime, Starved, Task, TokioRuntime, VirtualTime};
use forebay_dsql::{Error, IdError, Ids, Node, Sessions, Timestamp};

use crate::plain::{Postgres, Sqlx, cluster};

/// A time of day that is set from outside, in milliseconds since 1970.
#[derive(Clone, Debug)]
struct Dial(Arc<AtomicU64>);

impl Dial {
    fn at(millis: u64) -> Self {
        Self(Arc::new(AtomicU64::new(millis)))
    }
    fn set(&self, millis: u64) {
        self.0.store(millis, Ordering::Relaxed);
    }
}

impl Runtime for Dial {
    fn now(&self) -> Instant {
        Instant::ZERO
    }
    fn wall(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
    fn sleep_until(&self, _: Instant) -> Task {
        Box::pin(std::future::pending())
    }
    fn spawn(&self, _: Task) {}
    fn entropy(&self) -> u64 {
        7
    }
    fn block(&self, _: &mut dyn FnMut()) -> Result<(), Starved> {
        Err(Starved)
    }
}

const EPOCH: u64 = 1_704_067_200_000;

/// Tests share a process, and so a sequence with whoever has the same node: each takes its own.
fn node(number: u16) -> Node {
    Node::new(number).unwrap()
}

#[test]
fn an_id_is_time_node_and_sequence() {
    let dial = Dial::at(EPOCH + 5);
    let ids = Ids::new(node(1000), dial.clone());
    assert_eq!(ids.next().unwrap(), 5 << 22 | 1000 << 12);
    assert_eq!(ids.next().unwrap(), 5 << 22 | 1000 << 12 | 1);
    dial.set(EPOCH + 6);
    assert_eq!(ids.next().unwrap(), 6 << 22 | 1000 << 12);
    assert_eq!((Node::new(1023).map(Node::number), Node::new(1024)), (Some(1023), None));
}

#[test]
fn ids_grow_through_bursts_and_clocks_set_back() {
    let dial = Dial::at(EPOCH + 1_000);
    let ids = Ids::new(node(1001), dial.clone());
    let mut last = 0;
    for round in 0..20_000 {
        match round {
            9_000 => dial.set(EPOCH + 10),
            12_000 => dial.set(EPOCH + 1_002),
            15_000 => dial.set(EPOCH + 900_000),
            _ => {}
        }
        let id = ids.next().unwrap();
        assert!(id > last, "{id} after {last}, round {round}");
        assert_eq!(id >> 12 & 1023, 1001);
        last = id;
    }
    assert_eq!(
        last >> 22,
        900_000 + 1,
        "caught up with the clock; 5,000 in a millisecond take the next one too"
    );
}

#[test]
fn new_generators_and_many_threads_repeat_nothing() {
    let dial = Dial::at(EPOCH + 77);
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let dial = dial.clone();
            std::thread::spawn(move || {
                // The original made one for each transaction; its ids collided every second.
                (0..5_000).map(|_| Ids::new(node(1002), dial.clone()).next().unwrap()).collect::<Vec<_>>()
            })
        })
        .collect();
    let ids: Vec<i64> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), 20_000);
}

#[test]
fn a_clock_that_is_far_off_is_an_error_and_harms_no_later_id() {
    let dial = Dial::at(0);
    let ids = Ids::new(node(1003), dial.clone());
    assert_eq!(ids.next(), Err(IdError::ClockOutOfRange));
    for millis in [EPOCH + (1 << 41), u64::MAX] {
        dial.set(millis);
        assert_eq!(ids.next(), Err(IdError::ClockOutOfRange), "{millis}");
    }
    dial.set(EPOCH + (1 << 41) - 1);
    assert!(ids.next().unwrap() > 0);
    dial.set(EPOCH);
    assert!(ids.next().is_ok());
}

#[test]
fn a_node_is_drawn_once_for_each_process() {
    let time = VirtualTime::new();
    let drawn = Node::given_or_drawn(None, &time);
    assert!((0..100).all(|_| Node::given_or_drawn(None, &time) == drawn));
    assert_eq!(Node::given_or_drawn(Node::new(5), &time), node(5));
}

#[tokio::test]
async fn timestamps_go_through_both_clients_as_they_are() {
    let cluster = cluster();
    let mut sqlx = Sqlx(&cluster).session().await.unwrap().0;
    let client = Postgres(&cluster).session().await.unwrap().0;
    client
        .batch_execute("CREATE TABLE t (id bigint PRIMARY KEY, at timestamptz, utc timestamp)")
        .await
        .unwrap();
    let now =
        Timestamp::from_nanos(i128::try_from(TokioRuntime::current().unwrap().wall().as_nanos()).unwrap());
    let old = Timestamp::from_nanos(-1_234_567_890_123_456_789).unwrap();
    for (id, time) in [(1_i64, now.unwrap()), (2, old)] {
        client.execute("INSERT INTO t VALUES ($1, $2, $3)", &[&id, &time, &time]).await.unwrap();
        let row = client.query_one("SELECT at, utc FROM t WHERE id = $1", &[&id]).await.unwrap();
        assert_eq!((row.get::<_, Timestamp>(0), row.get::<_, Timestamp>(1)), (time, time));
        let read = sqlx::query_as::<_, (Timestamp, Timestamp)>("SELECT at, utc FROM t WHERE id = $1");
        assert_eq!(read.bind(id).fetch_one(&mut sqlx).await.unwrap(), (time, time));
        let found: i64 = sqlx::query_scalar("SELECT id FROM t WHERE at = $1")
            .bind(time)
            .fetch_one(&mut sqlx)
            .await
            .map_err(Error::of)
            .unwrap();
        assert_eq!(found, id);
    }
    // As text, eight letters would pass for a number.
    for text in ["infinity", "20240101"] {
        let asked = sqlx::AssertSqlSafe(format!("SELECT CAST('{text}' AS timestamptz)"));
        let row = sqlx::raw_sql(asked).fetch_one(&mut sqlx).await.unwrap();
        let error = sqlx::Row::try_get::<Timestamp, _>(&row, 0).unwrap_err();
        assert!(error.to_string().contains("ask with sqlx::query"), "{error}");
    }
}
