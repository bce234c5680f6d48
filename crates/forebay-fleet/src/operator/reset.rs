//! Forgets what a table knows of an endpoint.

use std::time::Duration;

use forebay::rt::Runtime;

use super::{bounded, counter_leases, get};
use crate::bucket;
use crate::counter::items;
use crate::ledger::shard::{self, SHARDS};
use crate::table::{Delete, Table, TableError};

/// What was not forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reset {
    /// The counter of mode `counter`, which is used: so many connections it counts. Its instances do not count theirs anew, and would
    /// open as many again. [`reconcile`](super::reconcile()) mends it.
    pub counter_kept: Option<i64>,
}

/// A connection that a counter counts ends within this.
const LONGEST_SESSION: Duration = Duration::from_secs(60 * 60);

/// Forgets the ledger and the shared rate of `endpoint`, and its counter if nobody uses that. Instances of a ledger that live join
/// anew with what they hold, under the limit they are set to. Until all have, within a beat or two, more can be opened than the limit.
///
/// # Errors
/// What the table said instead.
///
/// # Cancel safety
/// Items deleted by then are gone; it can be run again.
pub async fn reset(table: &dyn Table, runtime: &dyn Runtime, endpoint: &str) -> Result<Reset, TableError> {
    let counter_kept = counter_in_use(table, runtime, endpoint).await?;
    let counter = counter_kept.is_none().then(|| items::key(endpoint));
    let keys = (0..SHARDS).map(|k| shard::key(endpoint, k));
    for key in keys.chain([bucket::key(endpoint)]).chain(counter) {
        let delete = Delete { key, when: Vec::new() };
        bounded(runtime, table.delete(&delete)).await?;
    }
    Ok(Reset { counter_kept })
}

/// What a counter counts, if connections may live that it counts: there are leases, or it was written as long ago as a connection
/// lives at most.
async fn counter_in_use(
    table: &dyn Table,
    runtime: &dyn Runtime,
    endpoint: &str,
) -> Result<Option<i64>, TableError> {
    let Some(counter) = get(table, runtime, &items::key(endpoint)).await? else { return Ok(None) };
    let active = counter.number("active").unwrap_or(0);
    let recent = active > 0 && items::is_in_use(&counter, runtime.wall(), LONGEST_SESSION);
    let used = recent || !counter_leases(table, runtime, endpoint).await?.is_empty();
    Ok(used.then_some(active))
}
