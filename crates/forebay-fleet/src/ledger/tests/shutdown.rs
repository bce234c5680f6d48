//! The end of a ledger's tasks, polled by hand.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use forebay::rt::{Runtime, Starved, Task, VirtualTime};
use forebay::{Instant, Seed};
use parking_lot::Mutex;

use super::super::Ledger;
use super::LeaseParams;
use crate::memory::MemoryTable;
use crate::metrics::Telemetry;
use crate::name::Name;
use crate::settings::StoreOutagePolicy;
use crate::store::Store;

/// A runtime that runs nothing by itself. It can run one task while another reads the clock.
#[derive(Clone, Debug)]
struct ByHand(Arc<Hands>);

struct Hands {
    time: VirtualTime,
    spawned: Mutex<Vec<Task>>,
    /// Runs at the next read of the clock.
    in_between: Mutex<Option<Task>>,
}

impl std::fmt::Debug for Hands {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hands")
    }
}

fn poll(task: &mut Task) -> Poll<()> {
    Pin::new(task).poll(&mut Context::from_waker(Waker::noop()))
}

impl Runtime for ByHand {
    fn now(&self) -> Instant {
        let in_between = self.0.in_between.lock().take();
        if let Some(mut task) = in_between {
            assert!(poll(&mut task).is_ready(), "it has nothing to wait for");
        }
        self.0.time.now()
    }

    fn wall(&self) -> Duration {
        self.0.time.wall()
    }

    fn sleep_until(&self, at: Instant) -> Task {
        Runtime::sleep_until(&self.0.time, at)
    }

    fn spawn(&self, task: Task) {
        self.0.spawned.lock().push(task);
    }

    fn entropy(&self) -> u64 {
        7
    }

    fn block(&self, _: &mut dyn FnMut()) -> Result<(), Starved> {
        Err(Starved)
    }
}

#[test]
fn the_ceiling_task_ends_with_the_ledger_at_any_moment() {
    let hands = Hands { time: VirtualTime::new(), spawned: Mutex::default(), in_between: Mutex::default() };
    let runtime = ByHand(Arc::new(hands));
    let params = LeaseParams {
        service: String::new(),
        endpoint: "host".to_owned(),
        limit: 100,
        block: 10,
        heartbeat: Duration::from_secs(30),
        lease: Duration::from_secs(120),
        max_open: 10,
        policy: StoreOutagePolicy::Strict,
    };
    let telemetry = Arc::new(Telemetry::new("test", "history"));
    let store = Store::new(Arc::new(MemoryTable::new()), Arc::new(runtime.clone()), telemetry);
    let ledger = Ledger::start(params, Name::new("history", 7), store, Seed::new(1).rng());
    let gone = Arc::downgrade(&ledger);
    ledger.begin_to_leave();
    drop(ledger);
    let mut spawned = std::mem::take(&mut *runtime.0.spawned.lock());
    let (mut lower, run) = (spawned.pop().unwrap(), spawned.pop().unwrap());
    // The ledger has no entries, so it leaves in its first run, while the other task is between two checks.
    *runtime.0.in_between.lock() = Some(run);
    assert!(poll(&mut lower).is_ready(), "nothing would ever wake it");
    drop(lower);
    assert!(gone.upgrade().is_none());
}
