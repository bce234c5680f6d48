//! Brings the counter of mode `counter` back in step with the leases that are held.

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
/// Clocks may differ, and a time-to-live may run a little late.
const GRACE: Duration = Duration::from_secs(10);

/// Sets the counter of `endpoint` to the number of leases whose holders renew them, and deletes the items of those who do
/// not any more. Refuses while there are signs of peers who do not renew, up to `longest_session` old: the longest time a
/// connection of theirs can live.
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
    let key = items::key(endpoint);
    for _ in 0..TRIES {
        let wall = runtime.wall();
        let counter =
            get(table, runtime, &key).await?.ok_or_else(|| ReconcileError::NoCounter(endpoint.to_owned()))?;
        let leases = counter_leases(table, runtime, endpoint).await?;
        if let Some(ago) = sign_of_others(&counter, &leases, wall).filter(|ago| *ago < longest_session) {
            return Err(ReconcileError::PeersActive { ago, wait: longest_session });
        }
        let lives = |item: &Item| item.number("ttl_epoch").is_some_and(|end| end + grace() > seconds(wall));
        let (held, dead): (Vec<_>, Vec<_>) = leases.iter().partition(|(_, item)| lives(item));
        let counted = counter.number("active").unwrap_or(0);
        let held = i64::try_from(held.len()).unwrap_or(i64::MAX);
        // An acquire or a release since we looked has written both.
        let unchanged = |name: &str| match counter.number(name) {
            Some(number) => Condition::Equals(name.into(), Value::Number(number)),
            None => Condition::Missing(name.into()),
        };
        let set = Update::of(&key)
            .when(unchanged("active"))
            .when(unchanged("updated_ms"))
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
            let end = item.number("ttl_epoch").unwrap_or(0);
            let when = vec![Condition::Equals("ttl_epoch".into(), Value::Number(end))];
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

/// How long ago a peer that does not renew was last at work: it wrote the counter last, or an item of its is there.
fn sign_of_others(counter: &Item, leases: &[(String, Item)], wall: Duration) -> Option<Duration> {
    let written = counter.number("updated_ms").filter(|at| counter.number("renewed_ms") != Some(*at));
    let created = leases
        .iter()
        .filter(|(_, item)| item.number("renewed_ms").is_none())
        .map(|(_, item)| item.number("created_ms").unwrap_or(0));
    let last = written.into_iter().chain(created).max()?;
    Some(Duration::from_millis(u64::try_from(items::millis(wall).saturating_sub(last)).unwrap_or(0)))
}

fn seconds(wall: Duration) -> i64 {
    i64::try_from(wall.as_secs()).unwrap_or(i64::MAX)
}

fn grace() -> i64 {
    i64::try_from(GRACE.as_secs()).unwrap_or(0)
}
