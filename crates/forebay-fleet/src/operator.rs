//! For operators: inspect and repair the table of a fleet.

use std::time::Duration;

use forebay::rt::Runtime;

use crate::bucket;
use crate::counter::items;
use crate::expression::{Change, Condition};
use crate::item::{Item, Value};
use crate::ledger::HEARTBEAT_ORIGIN;
use crate::ledger::shard::{self, SHARDS, Shard};
use crate::store::bounded;
use crate::table::{Delete, Table, TableError, Update};

mod reconcile;
mod reset;

pub use reconcile::{ReconcileError, Reconciled, reconcile};
pub use reset::Reset;

/// The state of the table for one endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Survey {
    /// The shards of the ledger that exist, with their numbers.
    pub shards: Vec<(u8, ShardReport)>,
    /// Shards whose item is invalid. No instance can join there, and their slots are unknown.
    pub broken: Vec<u8>,
    /// Every entry of the ledger.
    pub instances: Vec<InstanceReport>,
    /// The counter of mode `counter`, if there is one.
    pub counter: Option<CounterReport>,
    /// How far ahead the shared rate is reserved: how long a new caller waits for a permit. Zero if burst is left.
    pub rate_reserved: Option<Duration>,
}

/// One shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardReport {
    /// Its part of the limit.
    pub capacity: u64,
    /// Slots that no instance holds.
    pub free: u64,
    /// Free and held slots minus the capacity: zero, unless the item was changed from outside.
    pub drift: i64,
}

/// One entry of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceReport {
    /// The name of the instance.
    pub instance: String,
    /// The shard of the entry. An instance may have entries in several.
    pub shard: u8,
    /// Its slots in that shard.
    pub slots: u64,
    /// Its node number, in its home entry. None in other entries, and if all numbers were taken.
    pub node: Option<u16>,
    /// The age of its last heartbeat, by the clock of the instance: accurate to a second or two.
    pub heartbeat_age: Duration,
    /// How long the entry lives without a heartbeat.
    pub lease: Duration,
}

/// The counter of mode `counter`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterReport {
    /// Connections it counts.
    pub active: i64,
    /// Lease items.
    pub leases: u64,
    /// The time since the last write.
    pub age: Duration,
}

impl CounterReport {
    /// How much the counter exceeds the leases: above zero after a crash, until it is [reconciled](reconcile).
    #[must_use]
    pub fn drift(&self) -> i64 {
        self.active - signed(self.leases)
    }
}

impl Survey {
    /// Slots held, and all slots, in the shards that exist.
    #[must_use]
    pub fn totals(&self) -> (u64, u64) {
        let sum = |counts: &mut dyn Iterator<Item = u64>| counts.fold(0, u64::saturating_add);
        let held = sum(&mut self.instances.iter().map(|instance| instance.slots));
        (held, sum(&mut self.shards.iter().map(|(_, shard)| shard.capacity)))
    }

    /// Whether every shard is valid and adds up, and the counter equals the number of leases.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        let counter = self.counter.is_none_or(|counter| counter.drift() == 0);
        counter && self.broken.is_empty() && self.shards.iter().all(|(_, shard)| shard.drift == 0)
    }
}

/// Reads the state of `endpoint`: ten reads, and a scan of the whole table if there is a counter, to count its leases.
///
/// # Errors
/// The error of the table.
///
/// # Cancel safety
/// Cancel safe: reading changes nothing.
pub async fn survey(table: &dyn Table, runtime: &dyn Runtime, endpoint: &str) -> Result<Survey, TableError> {
    let (mut survey, wall) = (Survey::default(), runtime.wall());
    let clock = wall.saturating_sub(HEARTBEAT_ORIGIN);
    for k in 0..SHARDS {
        let item = bounded(runtime, table.get(&shard::key(endpoint, k))).await?;
        let Some(item) = item else { continue };
        let Some(shard) = Shard::read(&item) else {
            survey.broken.push(k);
            continue;
        };
        let held = shard.entries.values().fold(0, |held: u64, entry| held.saturating_add(entry.slots));
        let drift = signed(shard.free.saturating_add(held)) - signed(shard.capacity);
        survey.shards.push((k, ShardReport { capacity: shard.capacity, free: shard.free, drift }));
        survey.instances.extend(shard.entries.iter().map(|(instance, entry)| InstanceReport {
            instance: instance.clone(),
            shard: k,
            slots: entry.slots,
            node: entry.node,
            heartbeat_age:
                clock.saturating_sub(Duration::from_secs(u64::try_from(entry.heartbeat).unwrap_or(0))),
            lease: shard.lease,
        }));
    }
    let counter = bounded(runtime, table.get(&items::key(endpoint))).await?;
    if let Some((active, item)) = counter.and_then(|item| Some((item.number("active")?, item))) {
        let age = items::millis(wall).saturating_sub(item.number("updated_ms").unwrap_or(0));
        let age = Duration::from_millis(u64::try_from(age).unwrap_or(0));
        let leases = counter_leases(table, runtime, endpoint).await?.len() as u64;
        survey.counter = Some(CounterReport { active, leases, age });
    }
    survey.rate_reserved = rate_reserved(table, runtime, endpoint).await?;
    Ok(survey)
}

/// How far ahead the shared rate of `endpoint` is reserved: how long a new caller waits for a permit. None if the rate
/// was never used.
///
/// # Errors
/// The error of the table.
///
/// # Cancel safety
/// Cancel safe: reading changes nothing.
pub async fn rate_reserved(
    table: &dyn Table,
    runtime: &dyn Runtime,
    endpoint: &str,
) -> Result<Option<Duration>, TableError> {
    let due =
        bounded(runtime, table.get(&bucket::key(endpoint))).await?.and_then(|item| item.number("due_ns"));
    let ahead = |due| Duration::from_nanos(u64::try_from(due).unwrap_or(0)).saturating_sub(runtime.wall());
    Ok(due.map(ahead))
}

/// Every lease item of mode `counter`.
async fn counter_leases(
    table: &dyn Table,
    runtime: &dyn Runtime,
    endpoint: &str,
) -> Result<Vec<(String, Item)>, TableError> {
    let (prefix, mut leases, mut after) = (items::lease_prefix(endpoint), Vec::new(), None);
    loop {
        let page = bounded(runtime, table.scan(&prefix, after.as_ref())).await?;
        leases.extend(page.items);
        after = page.next;
        if after.is_none() {
            return Ok(leases);
        }
    }
}

/// Removes every entry of `instance`, as if it were dead, and returns how many slots that frees. If it lives, it joins
/// again with the slots it uses, and with the same node number unless another instance has it by then. It notices at its
/// next heartbeat: until then, both have the number. Evict only instances that are dead.
///
/// # Errors
/// The error of the table; [`TableError::ConditionFailed`] if the instance wrote at the same time: it lives.
///
/// # Cancel safety
/// Some entries may be removed. Run it again.
pub async fn evict(
    table: &dyn Table,
    runtime: &dyn Runtime,
    endpoint: &str,
    instance: &str,
) -> Result<u64, TableError> {
    let mut freed = 0;
    for k in 0..SHARDS {
        let item = bounded(runtime, table.get(&shard::key(endpoint, k))).await?;
        let shard = item.as_ref().and_then(Shard::read);
        if let Some(entry) = shard.and_then(|shard| shard.entries.get(instance).copied()) {
            bounded(runtime, table.update(&entry.reap(endpoint, k, instance))).await?;
            freed += entry.slots;
        }
    }
    Ok(freed)
}

/// Changes the ledger's limit. If a shard holds more than its part of a smaller limit, it keeps that for now: run it
/// again later. Returns the limit that applies now.
///
/// # Errors
/// The error of the table.
///
/// # Cancel safety
/// Some shards may be changed. Run it again.
pub async fn resize(
    table: &dyn Table,
    runtime: &dyn Runtime,
    endpoint: &str,
    limit: u64,
) -> Result<u64, TableError> {
    let mut total = 0;
    for k in 0..SHARDS {
        loop {
            let item = bounded(runtime, table.get(&shard::key(endpoint, k))).await?;
            let Some(shard) = item.as_ref().and_then(Shard::read) else {
                total += shard::capacity(limit, k);
                break;
            };
            let held = shard.capacity.saturating_sub(shard.free);
            let capacity = shard::capacity(limit, k).max(held);
            let more = signed(capacity) - signed(shard.capacity);
            let change = Update::of(shard::key(endpoint, k))
                .when(Condition::Equals("capacity".into(), Value::Number(signed(shard.capacity))))
                .when(Condition::AtLeast("free".into(), more.min(0).abs()))
                .change(Change::set("capacity", signed(capacity)))
                .change(Change::plus("free", more));
            match bounded(runtime, table.update(&change)).await {
                // Slots were taken in between: read again.
                Err(TableError::ConditionFailed(_)) => {}
                Err(error) => return Err(error),
                Ok(_) => {
                    total += capacity;
                    break;
                }
            }
        }
    }
    Ok(total)
}

/// Deletes the ledger, the counter and the shared rate of `endpoint`. Live instances join again within two heartbeats,
/// with the slots they use, their node numbers and their configured limit. Until then, the fleet may exceed the limit,
/// and a new instance may get the node number of a live one.
///
/// A counter in use is kept: instances in mode `counter` do not count their leases again, and would open as many again.
///
/// # Errors
/// The error of the table.
///
/// # Cancel safety
/// Some items may be deleted. Run it again.
pub async fn reset(table: &dyn Table, runtime: &dyn Runtime, endpoint: &str) -> Result<Reset, TableError> {
    let counter_kept = reset::counter_in_use(table, runtime, endpoint).await?;
    let counter = counter_kept.is_none().then(|| items::key(endpoint));
    let keys = (0..SHARDS).map(|k| shard::key(endpoint, k));
    for key in keys.chain(counter).chain([bucket::key(endpoint)]) {
        let delete = Delete { key, when: Vec::new() };
        bounded(runtime, table.delete(&delete)).await?;
    }
    Ok(Reset { counter_kept })
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
