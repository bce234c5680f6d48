//! Shared by the tests.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use forebay_fleet::{Fleet, FleetSettings, Item, LeaseMode, LeaseSettings, RateMode, RateSettings, Value};
use parking_lot::Mutex;

pub(crate) const ENDPOINT: &str = "abcdefghijklmnopqrstuvwxyz.dsql.us-east-1.on.aws";

pub(crate) fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

pub(crate) fn settings() -> FleetSettings {
    FleetSettings::new(ENDPOINT, "history")
}

/// Leases with the defaults: heartbeat 30 s, lease 120 s, blocks of 10.
pub(crate) fn leases(mode: LeaseMode, limit: u64) -> LeaseSettings {
    LeaseSettings::new("table").mode(mode).limit(limit)
}

/// A rate with the defaults: waits of 30 s.
pub(crate) fn bucket(mode: RateMode, per_second: u64, burst: u64) -> RateSettings {
    RateSettings::new("table").mode(mode).rate(per_second, burst)
}

/// Polls a future once.
pub(crate) fn poll<F: Future + ?Sized>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// Sees every write to a table, and checks that no number is free, or another's, while an instance still has it.
#[derive(Clone, Default)]
pub(crate) struct NumberWatch(Arc<Mutex<Watched>>);

#[derive(Default)]
struct Watched {
    fleets: Vec<Weak<Fleet>>,
    /// The number of each entry, by shard and instance.
    entries: BTreeMap<(String, String), i64>,
}

impl NumberWatch {
    pub(crate) fn add(&self, fleet: &Arc<Fleet>) {
        self.0.lock().fleets.push(Arc::downgrade(fleet));
    }

    /// What to call with each written item.
    pub(crate) fn saw(&self, key: &str, item: Option<&Item>) {
        if !key.starts_with("forebay_ledger#") {
            return;
        }
        let Watched { fleets, entries } = &mut *self.0.lock();
        entries.retain(|(shard, _), _| shard != key);
        let now = item.and_then(|item| item.map("inst")).into_iter().flatten();
        let number = |entry: &Value| entry.as_map()?.get("n")?.as_number();
        let numbered = now.filter_map(|(id, entry)| Some(((key.to_owned(), id.clone()), number(entry)?)));
        entries.extend(numbered);
        let mut seen = BTreeSet::new();
        for status in fleets.iter().filter_map(Weak::upgrade).map(|fleet| fleet.status()) {
            let Some(node) = status.node else { continue };
            assert!(seen.insert(node), "two instances have the number {node}");
            let has_entry =
                entries.iter().any(|((_, id), number)| *id == status.instance && *number == i64::from(node));
            assert!(has_entry, "{} has the number {node}, and the table does not say so", status.instance);
        }
    }
}
