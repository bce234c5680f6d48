//! Every future of a `Persistence` is dropped at each of its awaits: no turn, no connection and no count is lost, and nothing is half done.

mod closing;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use dsql_local::Cluster;
use forebay_dsql::{ConnectionState, Dsql, Uuid};
use forebay_temporal::execution::RunKey;
use forebay_temporal::execution_map::{self, SignalsRequested};
use forebay_temporal::shard::{self, ShardRow};
use forebay_temporal::{Persistence, Result, ShardOwner, workflow};

use crate::cluster::{Alone, alone, blob, store_of};
use crate::executions::{execution, insert as insert_execution};
use crate::shards::{new_shard, selected};

/// Long enough for a slow machine. What takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// When a future is dropped that is not done after its last poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dropped {
    /// While it waits.
    Waiting,
    /// When what it waits for has come, and it has not looked yet.
    Served,
}

type Call<'a> = Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

/// Polls a call as often as told, whenever it asks for it, and drops it then. None if it is not done by then.
async fn polled(call: Call<'_>, polls: u32, dropped: Dropped) -> Option<Result<()>> {
    let (mut call, mut left) = (call, polls);
    poll_fn(move |context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match call.as_mut().poll(context) {
            Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
            Poll::Pending if left == 0 && dropped == Dropped::Waiting => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{what} hangs"))
}

/// The functions of a [`Persistence`].
#[derive(Clone, Copy, Debug)]
enum Function {
    Run,
    Fenced,
    UpdateShard,
    /// As a change of owner that is defeated, and announced.
    UpdateShardAnnounced,
    Read,
    Write,
    LoadWorkflow,
    DeleteInBatches,
}

const ALL: [Function; 8] = [
    Function::Run,
    Function::Fenced,
    Function::UpdateShard,
    Function::UpdateShardAnnounced,
    Function::Read,
    Function::Write,
    Function::LoadWorkflow,
    Function::DeleteInBatches,
];

/// The run of a shard that is loaded.
fn run_of(shard_id: i32) -> RunKey {
    RunKey {
        shard_id,
        namespace_id: Uuid::from_u128(1),
        workflow_id: "dropped".into(),
        run_id: Uuid::from_u128(2),
    }
}

impl Function {
    fn call<'a>(self, store: &'a Persistence, row: &'a ShardRow) -> Call<'a> {
        let ShardRow { shard_id, range_id, .. } = *row;
        match self {
            Self::Run => Box::pin(store.run("run", move |tx| async move {
                shard::update(&tx, &ShardRow { info: blob("run"), ..row.clone() }, range_id).await
            })),
            Self::Fenced => {
                Box::pin(store.fenced(ShardOwner { shard_id, range_id }, "fenced", move |tx| async move {
                    shard::update(&tx, &ShardRow { info: blob("fenced"), ..row.clone() }, range_id).await
                }))
            }
            Self::UpdateShard | Self::UpdateShardAnnounced => Box::pin(async move {
                store.update_shard(&ShardRow { range_id: range_id + 1, ..row.clone() }, range_id).await
            }),
            Self::Read => Box::pin(
                store.read("read", move |c| async move { shard::select(&c, shard_id).await.map(drop) }),
            ),
            Self::Write => Box::pin(store.write("write", move |c| async move {
                shard::update(&c, &ShardRow { info: blob("write"), ..row.clone() }, range_id).await
            })),
            Self::LoadWorkflow => {
                Box::pin(async move { workflow::load(store, &run_of(shard_id)).await.map(drop) })
            }
            Self::DeleteInBatches => Box::pin(async move {
                let run = run_of(shard_id);
                execution_map::delete_all_in_batches::<SignalsRequested>(store, &run).await.map(drop)
            }),
        }
    }

    /// Its name in the metrics.
    fn operation(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Fenced => "fenced",
            Self::UpdateShard | Self::UpdateShardAnnounced => "update_shard",
            Self::Read => "read",
            Self::Write => "write",
            Self::LoadWorkflow => "load_workflow",
            Self::DeleteInBatches => "delete_execution_map",
        }
    }

    fn prepare(self, cluster: &Cluster) {
        if matches!(self, Self::UpdateShardAnnounced) {
            cluster.inject("conflict:n=3".parse().unwrap());
        }
    }
}

/// Waits until all connections are back, and makes sure that they are clean.
async fn all_are_back(pool: &Dsql, told: &str) {
    let back = async {
        let status = pool.status();
        while pool.status().idle < status.max_open || pool.status().in_use > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    in_time(told, back).await;
    let mut held = Vec::new();
    for _ in 0..pool.status().max_open {
        let connection = pool.acquire().await.unwrap();
        assert_eq!(connection.state(), ConnectionState::Clean, "{told}");
        held.push(connection);
    }
}

/// After a drop, the next caller has its turn and its connection, and finds the row as it was or as it should be.
async fn nothing_is_left_behind(store: &Persistence, before: &ShardRow, told: &str) -> ShardRow {
    all_are_back(store.pool().unwrap(), told).await;
    let found = in_time(told, selected(store, before.shard_id)).await;
    assert!((before.range_id..=before.range_id + 1).contains(&found.range_id), "{told}");
    let owner = ShardOwner { shard_id: found.shard_id, range_id: found.range_id };
    in_time(told, store.fenced(owner, "next", async |_| Ok(()))).await.unwrap();
    found
}

/// How many calls of an operation ended in this way.
fn ended(counted: &str, operation: &str, outcome: &str) -> u32 {
    let is_it = |line: &&str| {
        line.starts_with("dsql_tx_latency")
            && line.contains("_count{")
            && line.contains(&format!("operation=\"{operation}\""))
            && line.contains(&format!("outcome=\"{outcome}\""))
    };
    let number = |line: &str| line.rsplit(' ').next().unwrap().parse::<u32>().unwrap();
    counted.lines().filter(is_it).map(number).sum()
}

async fn drop_at_each_await(cluster: &Alone, function: Function, dropped: Dropped) {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    // All tasks of this test run on this thread.
    let _recording = metrics::set_default_local_recorder(&recorder);
    let store = store_of(cluster, 2).await;
    let mut row = new_shard(&store).await;
    insert_execution(&store, &execution(&run_of(row.shard_id), 1)).await;
    let sockets = cluster.counters().sockets;
    let mut polls = 0;
    loop {
        polls += 1;
        let told = format!("{function:?}, dropped {dropped:?} after {polls} polls");
        function.prepare(cluster);
        let outcome = in_time(&told, polled(function.call(&store, &row), polls, dropped)).await;
        cluster.heal_all();
        row = nothing_is_left_behind(&store, &row, &told).await;
        if let Some(outcome) = outcome {
            outcome.unwrap();
            break;
        }
    }
    assert!(polls > 1, "{function:?} waits for the server");
    let counted = handle.render();
    let count = |outcome| ended(&counted, function.operation(), outcome);
    // A change of owner that is dropped before its announcement is withdrawn has been committed.
    assert_eq!(count("dropped") + count("committed"), polls, "{function:?}");
    assert!(count("committed") >= 1, "{function:?}");
    let announced = ended(&counted, "withdraw_owner_change", "committed") > 0;
    assert_eq!(announced, matches!(function, Function::UpdateShardAnnounced), "{function:?}");
    assert_eq!(cluster.counters().sockets, sockets, "{function:?}: a connection is used again");
}

#[tokio::test]
async fn dropped_while_it_waits() {
    let cluster = alone().await;
    for function in ALL {
        drop_at_each_await(&cluster, function, Dropped::Waiting).await;
    }
}

#[tokio::test]
async fn dropped_when_it_is_served() {
    let cluster = alone().await;
    for function in ALL {
        drop_at_each_await(&cluster, function, Dropped::Served).await;
    }
}

/// A call that waits for its turn and is dropped there has done nothing, and the next in the queue goes on.
#[tokio::test]
async fn dropped_while_it_waits_for_its_turn() {
    let cluster = alone().await;
    let store = store_of(&cluster, 2).await;
    let row = &new_shard(&store).await;
    let statements = cluster.counters().statements;
    let owner = ShardOwner { shard_id: row.shard_id, range_id: row.range_id };
    let (release, released) = tokio::sync::oneshot::channel::<()>();
    let released = &tokio::sync::Mutex::new(Some(released));
    let mut first: Call<'_> = Box::pin(store.fenced(owner, "first", move |_| async move {
        let released = released.lock().await.take();
        released.unwrap().await.unwrap();
        Ok(())
    }));
    // It is in its body when BEGIN and the fence are answered.
    let in_body = poll_fn(|context| {
        assert!(first.as_mut().poll(context).is_pending());
        if cluster.counters().statements >= statements + 3 { Poll::Ready(()) } else { Poll::Pending }
    });
    in_time("the first", in_body).await;
    for function in [Function::Fenced, Function::UpdateShard] {
        assert!(
            polled(function.call(&store, row), 1, Dropped::Waiting).await.is_none(),
            "not before its turn"
        );
    }
    let last = Function::Fenced.call(&store, row);
    release.send(()).unwrap();
    let (first, last) = in_time("the queue", futures_util::future::join(first, last)).await;
    first.unwrap();
    last.unwrap();
    assert_eq!(selected(&store, row.shard_id).await, ShardRow { info: blob("fenced"), ..row.clone() });
}
