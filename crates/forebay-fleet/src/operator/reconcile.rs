//! Corrects the counter of mode `counter`.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay::rt::Runtime;

use super::{bounded, counter_leases, get, update};
use crate::counter::items;
use crate::expression::{Change, Condition};
use crate::item::{Item, Value};
use crate::table::{Delete, Table, TableError, Update};

/// The result of a reconciliation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reconciled {
    /// The counter before.
    pub counted: i64,
    /// Live leases: the counter now.
    pub held: i64,
    /// Expired lease items that were deleted.
    pub expired: u64,
}

/// Why the counter was not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReconcileError {
    /// Implementations that do not renew their lease items were active. Their connections outlive their items, so they
    /// cannot be counted.
    #[error(
        "peers that do not renew their leases were active {ago:?} ago, and their connections cannot be counted; stop them, \
         and try again {wait:?} after their last activity, when their last connection has ended"
    )]
    PeersActive {
        /// How long ago.
        ago: Duration,
        /// How long they count as active.
        wait: Duration,
    },
    /// Other writes changed the counter during every attempt. Try again when it is quieter.
    #[error("the counter changed during each of {tries} attempts; try again when it is quieter")]
    Busy {
        /// The number of attempts.
        tries: u32,
    },
    /// There is no counter.
    #[error("there is no counter for {0}")]
    NoCounter(String),
    /// The error of the table.
    #[error(transparent)]
    Table(#[from] TableError),
}

const TRIES: u32 = 5;
/// How long expired leases are watched. A live instance renews its leases within this time.
const WATCH: Duration = Duration::from_secs(100);
/// A lease that expired longer ago is not held: no clock is that wrong.
const LONG: Duration = Duration::from_secs(24 * 60 * 60);

/// Sets the counter of `endpoint` to the number of live leases, and deletes expired lease items. Refuses if
/// implementations that do not renew their leases were active within `longest_session`, the longest life of their
/// connections.
///
/// If there are expired leases, it watches them for 100 s first, because the clocks may only differ.
///
/// # Errors
/// Why the counter was not changed.
///
/// # Cancel safety
/// The counter is set in one write. Run it again.
pub async fn reconcile(
    table: &dyn Table,
    runtime: &dyn Runtime,
    endpoint: &str,
    longest_session: Duration,
) -> Result<Reconciled, ReconcileError> {
    let seen = look(table, runtime, endpoint, longest_session).await?;
    let ended = Ended::of(&seen.leases, runtime.wall());
    if ended.may_be_held(runtime.wall()) {
        runtime.sleep_until(runtime.now() + WATCH).await;
    }
    for _ in 0..TRIES {
        let Seen { counter, leases } = look(table, runtime, endpoint, longest_session).await?;
        let wall = runtime.wall();
        let (dead, held): (Vec<_>, Vec<_>) = leases.iter().partition(|(key, item)| ended.still(key, item));
        let counted = counter.number("active").unwrap_or(0);
        let held = i64::try_from(held.len()).unwrap_or(i64::MAX);
        // An acquire or a release in between changes both.
        let set = Update::of(items::key(endpoint))
            .when(items::unchanged(&counter, "active"))
            .when(items::unchanged(&counter, "updated_ms"))
            .change(Change::set("active", held))
            .change(Change::set("updated_ms", items::millis(wall)))
            .change(Change::set("renewed_ms", items::millis(wall)));
        match update(table, runtime, &set).await {
            Err(TableError::ConditionFailed(_)) => continue,
            Err(error) => return Err(error.into()),
            Ok(_) => {}
        }
        let mut expired = 0;
        for (key, item) in dead {
            let when = vec![Condition::Equals("ttl_epoch".into(), Value::Number(end(item)))];
            let delete = Delete { key: key.clone(), when };
            match bounded(runtime, table.delete(&delete)).await {
                Ok(_) => expired += 1,
                // Deleted or renewed in between.
                Err(TableError::ConditionFailed(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        return Ok(Reconciled { counted, held, expired });
    }
    Err(ReconcileError::Busy { tries: TRIES })
}

/// The counter, and every lease.
struct Seen {
    counter: Item,
    leases: Vec<(String, Item)>,
}

/// Reads the counter and all leases. Fails if they cannot be counted.
async fn look(
    table: &dyn Table,
    runtime: &dyn Runtime,
    endpoint: &str,
    longest_session: Duration,
) -> Result<Seen, ReconcileError> {
    let counter = get(table, runtime, &items::key(endpoint)).await?;
    let counter = counter.ok_or_else(|| ReconcileError::NoCounter(endpoint.to_owned()))?;
    let leases = counter_leases(table, runtime, endpoint).await?;
    match peer_activity(&counter, &leases, runtime.wall()) {
        Some(ago) if ago < longest_session => Err(ReconcileError::PeersActive { ago, wait: longest_session }),
        _ => Ok(Seen { counter, leases }),
    }
}

/// Leases that have expired by our clock, with their expiry. Our clock may be ahead.
struct Ended(BTreeMap<String, i64>);

impl Ended {
    fn of(leases: &[(String, Item)], wall: Duration) -> Self {
        let ends = leases.iter().map(|(key, item)| (key.clone(), end(item)));
        Self(ends.filter(|(_, end)| *end <= seconds(wall)).collect())
    }

    /// Whether one of them may still be held.
    fn may_be_held(&self, wall: Duration) -> bool {
        let long_ago = seconds(wall.saturating_sub(LONG));
        self.0.values().any(|end| *end > long_ago)
    }

    /// Whether this lease is among them and was not renewed since.
    fn still(&self, key: &str, item: &Item) -> bool {
        self.0.get(key) == Some(&end(item))
    }
}

fn end(lease: &Item) -> i64 {
    lease.number("ttl_epoch").unwrap_or(0)
}

/// How long ago an implementation that does not renew was active, by its writes to the counter and its lease items.
fn peer_activity(counter: &Item, leases: &[(String, Item)], wall: Duration) -> Option<Duration> {
    let created = leases
        .iter()
        .filter(|(_, item)| item.number("renewed_ms").is_none())
        .map(|(_, item)| item.number("created_ms").unwrap_or(0));
    let last = items::peers_last_write(counter).into_iter().chain(created).max()?;
    Some(Duration::from_millis(u64::try_from(items::millis(wall).saturating_sub(last)).unwrap_or(0)))
}

fn seconds(wall: Duration) -> i64 {
    i64::try_from(wall.as_secs()).unwrap_or(i64::MAX)
}
