//! Brings the counter of mode `counter` back in step with the leases that are held.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay::rt::Runtime;

use super::{bounded, counter_leases, get, update};
use crate::counter::items;
use crate::expression::{Change, Condition};
use crate::item::{Item, Value};
use crate::table::{Delete, Table, TableError, Update};

/// What was found, and what was made of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reconciled {
    /// What the counter said.
    pub counted: i64,
    /// Leases whose holders live: what it says now.
    pub held: i64,
    /// Items of the dead that were deleted.
    pub expired: u64,
}

/// Why a counter was left as it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReconcileError {
    /// Peers that do not renew their items have been at work: their connections outlive their items, so that nobody can
    /// count them.
    #[error(
        "peers that do not renew their leases were active {ago:?} ago, and their connections cannot be counted; stop them, \
         and try again when their last connection must have ended ({wait:?} after their last sign of life)"
    )]
    PeersActive {
        /// How long ago.
        ago: Duration,
        /// How long they count as active.
        wait: Duration,
    },
    /// The counter was written each time it was about to be set. Try again in a quieter moment.
    #[error("the counter changed under each of {tries} tries; try again in a quieter moment")]
    Busy {
        /// How often it was tried.
        tries: u32,
    },
    /// There is no counter.
    #[error("there is no counter for {0}")]
    NoCounter(String),
    /// What the table said instead.
    #[error(transparent)]
    Table(#[from] TableError),
}

const TRIES: u32 = 5;
/// Leases that seem to have ended are watched for so long: whoever lives renews them within.
const WATCH: Duration = Duration::from_secs(100);
/// No clock is so far off that what has ended for so long may be held.
const LONG: Duration = Duration::from_secs(24 * 60 * 60);

/// Sets the counter of `endpoint` to the number of leases whose holders renew them, and deletes the items of those who do
/// not any more. Refuses while there are signs of peers who do not renew, up to `longest_session` old: the longest time a
/// connection of theirs can live.
///
/// Where leases seem to have ended, it takes 100 s: they are watched, since it may only be that clocks differ.
///
/// # Errors
/// Why it was left as it is.
///
/// # Cancel safety
/// The counter is set in one write; it can be run again.
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
        // An acquire or a release since we looked has written both.
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
                // Gone, or renewed after all.
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

/// What there is, if it can be counted.
async fn look(
    table: &dyn Table,
    runtime: &dyn Runtime,
    endpoint: &str,
    longest_session: Duration,
) -> Result<Seen, ReconcileError> {
    let counter = get(table, runtime, &items::key(endpoint)).await?;
    let counter = counter.ok_or_else(|| ReconcileError::NoCounter(endpoint.to_owned()))?;
    let leases = counter_leases(table, runtime, endpoint).await?;
    match sign_of_others(&counter, &leases, runtime.wall()) {
        Some(ago) if ago < longest_session => Err(ReconcileError::PeersActive { ago, wait: longest_session }),
        _ => Ok(Seen { counter, leases }),
    }
}

/// Leases that have ended by our clock, each with its end. A clock alone proves nothing: ours may be ahead.
struct Ended(BTreeMap<String, i64>);

impl Ended {
    fn of(leases: &[(String, Item)], wall: Duration) -> Self {
        let ends = leases.iter().map(|(key, item)| (key.clone(), end(item)));
        Self(ends.filter(|(_, end)| *end <= seconds(wall)).collect())
    }

    /// Whether one of them may be held all the same.
    fn may_be_held(&self, wall: Duration) -> bool {
        let long_ago = seconds(wall.saturating_sub(LONG));
        self.0.values().any(|end| *end > long_ago)
    }

    /// Whether it is among them, and was not renewed since.
    fn still(&self, key: &str, item: &Item) -> bool {
        self.0.get(key) == Some(&end(item))
    }
}

fn end(lease: &Item) -> i64 {
    lease.number("ttl_epoch").unwrap_or(0)
}

/// How long ago a peer that does not renew was last at work: it wrote the counter last, or an item of its is there.
fn sign_of_others(counter: &Item, leases: &[(String, Item)], wall: Duration) -> Option<Duration> {
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
