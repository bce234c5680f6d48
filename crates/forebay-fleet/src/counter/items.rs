//! The two items of the specification, with its keys and attributes, and the writes that change both together.
//!
//! Two attributes are additions, which other implementations ignore. `renewed_ms` is the time of our last write to a
//! lease or to the counter. If it is missing, or differs from `updated_ms`, another implementation has written the item.
//! `peer_ms` on the counter keeps the time of that write when ours replaces it.

use std::time::Duration;

use crate::expression::{Change, Condition};
use crate::item::{Item, Value};
use crate::table::{Delete, Update, Write};

/// How long a lease item lives without renewal.
pub(crate) const TTL: Duration = Duration::from_secs(180);

/// The key of the counter.
pub(crate) fn key(endpoint: &str) -> String {
    format!("dsqllease_counter#{endpoint}")
}

/// The prefix of all lease keys.
pub(crate) fn lease_prefix(endpoint: &str) -> String {
    format!("dsqllease#{endpoint}#")
}

/// The key of a lease.
pub(crate) fn lease_key(endpoint: &str, id: &str) -> String {
    lease_prefix(endpoint) + id
}

pub(crate) fn millis(wall: Duration) -> i64 {
    i64::try_from(wall.as_millis()).unwrap_or(i64::MAX)
}

/// When an item that is renewed at `wall` may be deleted.
pub(crate) fn expiry(wall: Duration) -> i64 {
    i64::try_from((wall + TTL).as_secs()).unwrap_or(i64::MAX)
}

/// Whether the counter was written within the last `recently`, by the time of day.
pub(crate) fn is_in_use(counter: &Item, wall: Duration, recently: Duration) -> bool {
    counter.number("updated_ms").is_some_and(|at| millis(wall).saturating_sub(at) < millis(recently))
}

/// Acquires a lease: adds one to the counter if it is below `limit`, and creates the item. Without a limit, the lease
/// always counts, because its connection is already open.
pub(crate) fn acquire(
    endpoint: &str,
    id: &str,
    service: &str,
    limit: Option<u64>,
    wall: Duration,
) -> Vec<Write> {
    let now = millis(wall);
    let mut count = Update::of(key(endpoint))
        .change(Change::Add("active".into(), 1))
        .change(Change::set("updated_ms", now))
        .change(Change::set("renewed_ms", now));
    if let Some(limit) = limit {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let room = [Condition::Missing("active".into()), Condition::Below("active".into(), limit)];
        count = count.when(Condition::Any(room.into()));
    }
    let item = Item::new()
        .with("ttl_epoch", expiry(wall))
        .with("service_name", service)
        .with("created_ms", now)
        .with("renewed_ms", now);
    // Ids are unique, so an existing item comes from an earlier attempt of this acquire.
    let put = Write::Put { key: lease_key(endpoint, id), item, when: vec![Condition::no_item()] };
    vec![Write::Update(count), put]
}

/// Releases a lease: deletes the item and subtracts one from the counter.
pub(crate) fn release(endpoint: &str, id: &str, wall: Duration) -> Vec<Write> {
    let delete = Delete { key: lease_key(endpoint, id), when: vec![Condition::an_item()] };
    let mut writes = uncount(endpoint, wall);
    writes.insert(0, Write::Delete(delete));
    writes
}

/// Subtracts one from the counter, for a lease whose item is gone.
pub(crate) fn uncount(endpoint: &str, wall: Duration) -> Vec<Write> {
    let count = Update::of(key(endpoint))
        .when(Condition::AtLeast("active".into(), 1))
        .change(Change::plus("active", -1))
        .change(Change::set("updated_ms", millis(wall)))
        .change(Change::set("renewed_ms", millis(wall)));
    vec![Write::Update(count)]
}

/// Renews the item of a lease.
pub(crate) fn renew(endpoint: &str, id: &str, wall: Duration) -> Update {
    Update::of(lease_key(endpoint, id))
        .when(Condition::an_item())
        .change(Change::set("ttl_epoch", expiry(wall)))
        .change(Change::set("renewed_ms", millis(wall)))
}

/// Writes the time of the counter, if it is unchanged.
pub(crate) fn touch(endpoint: &str, seen: &Item, wall: Duration) -> Update {
    let now = millis(wall);
    let touch = Update::of(key(endpoint))
        .when(Condition::an_item())
        .when(unchanged(seen, "updated_ms"))
        .change(Change::set("updated_ms", now))
        .change(Change::set("renewed_ms", now));
    match peers_last_write(seen) {
        Some(at) => touch.change(Change::set("peer_ms", at)),
        None => touch,
    }
}

/// When an implementation that does not renew last wrote the counter, if known.
pub(crate) fn peers_last_write(counter: &Item) -> Option<i64> {
    let last = counter.number("updated_ms").filter(|at| counter.number("renewed_ms") != Some(*at));
    last.max(counter.number("peer_ms"))
}

/// The number is as seen.
pub(crate) fn unchanged(seen: &Item, name: &str) -> Condition {
    match seen.number(name) {
        Some(number) => Condition::Equals(name.into(), Value::Number(number)),
        None => Condition::Missing(name.into()),
    }
}

/// Creates the item of a lease again. It expired while the table was unavailable, but the counter still counts it.
pub(crate) fn restore(endpoint: &str, id: &str, service: &str, wall: Duration) -> Update {
    Update::of(lease_key(endpoint, id))
        .when(Condition::no_item())
        .change(Change::set("ttl_epoch", expiry(wall)))
        .change(Change::set("service_name", service))
        .change(Change::set("created_ms", millis(wall)))
        .change(Change::set("renewed_ms", millis(wall)))
}
