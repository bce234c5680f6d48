//! What a reset must not forget.

use std::time::Duration;

use forebay::rt::Runtime;

use super::{counter_leases, get};
use crate::counter::items;
use crate::table::{Table, TableError};

/// What was not forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reset {
    /// How many connections the counter of mode `counter` counts, if it is in use and was kept. [`reconcile`](super::reconcile())
    /// mends it.
    pub counter_kept: Option<i64>,
}

/// A connection that a counter counts ends within this.
const LONGEST_SESSION: Duration = Duration::from_secs(60 * 60);

/// What a counter counts, if connections may live that it counts: there are leases, or it was written not longer ago than a
/// connection lives.
pub(super) async fn counter_in_use(
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
