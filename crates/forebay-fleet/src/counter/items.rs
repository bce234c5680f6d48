//! The two items of the specification, with its keys and attributes, and the writes that keep them in step.
//!
//! Two attributes are ours, and peers that do not know them ignore them. `renewed_ms` is on a lease that is renewed while it is
//! held, and on the counter with the time of our own last write: what lacks it, or shows another time, was written by such a peer.
//! `peer_ms` on the counter keeps the time of a peer's last write where our own sign of life takes its place.

use std::time::Duration;

use crate::expression::{Change, Condition};
use crate::item::{Item, Value};
use crate::table::{Delete, Update, Write};

/// How long a lease item lives without being renewed.
pub(crate) const TTL: Duration = Duration::from_secs(180);

/// The key of the counter.
pub(crate) fn key(endpoint: &str) -> String {
    format!("dsqllease_counter#{endpoint}")
}

/// What the keys of all leases begin with.
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

/// Whether a counter was written within the last `recently`, by the time of day.
pub(crate) fn is_in_use(counter: &Item, wall: Duration, recently: Duration) -> bool {
    counter.number("updated_ms").is_some_and(|at| millis(wall).saturating_sub(at) < millis(recently))
}

/// Takes a lease: one more on the counter if that is below `limit`, and an item for it. Without a limit, it is counted
/// whatever the counter says: its connection is open already.
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
    // An item that is there already is this very acquire, made before: ids are drawn anew each time.
    let put = Write::Put { key: lease_key(endpoint, id), item, when: vec![Condition::no_item()] };
    vec![Write::Update(count), put]
}

/// Gives a lease back: its item, if it is there, and one less on the counter.
pub(crate) fn release(endpoint: &str, id: &str, wall: Duration) -> Vec<Write> {
    let delete = Delete { key: lease_key(endpoint, id), when: vec![Condition::an_item()] };
    let mut writes = uncount(endpoint, wall);
    writes.insert(0, Write::Delete(delete));
    writes
}

/// One less on the counter, for a lease whose item is gone.
pub(crate) fn uncount(endpoint: &str, wall: Duration) -> Vec<Write> {
    let count = Update::of(key(endpoint))
        .when(Condition::AtLeast("active".into(), 1))
        .change(Change::plus("active", -1))
        .change(Change::set("updated_ms", millis(wall)))
        .change(Change::set("renewed_ms", millis(wall)));
    vec![Write::Update(count)]
}

/// Says that the holder of a lease lives.
pub(crate) fn renew(endpoint: &str, id: &str, wall: Duration) -> Update {
    Update::of(lease_key(endpoint, id))
        .when(Condition::an_item())
        .change(Change::set("ttl_epoch", expiry(wall)))
        .change(Change::set("renewed_ms", millis(wall)))
}

/// Says on the counter that leases are held, if it is as it was seen.
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

/// When a peer that does not renew last wrote the counter, as far as it shows.
pub(crate) fn peers_last_write(counter: &Item) -> Option<i64> {
    let last = counter.number("updated_ms").filter(|at| counter.number("renewed_ms") != Some(*at));
    last.max(counter.number("peer_ms"))
}

/// A number is as it was seen.
pub(crate) fn unchanged(seen: &Item, name: &str) -> Condition {
    match seen.number(name) {
        Some(number) => Condition::Equals(name.into(), Value::Number(number)),
        None => Condition::Missing(name.into()),
    }
}

/// Makes the item of a lease anew: it has expired while the table was away, but the counter still counts it.
pub(crate) fn restore(endpoint: &str, id: &str, service: &str, wall: Duration) -> Update {
    Update::of(lease_key(endpoint, id))
        .when(Condition::no_item())
        .change(Change::set("ttl_epoch", expiry(wall)))
        .change(Change::set("service_name", service))
        .change(Change::set("created_ms", millis(wall)))
        .change(Change::set("renewed_ms", millis(wall)))
}
