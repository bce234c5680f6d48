//! What a reset keeps.

use std::time::Duration;

use forebay::rt::Runtime;

use super::{counter_leases, get};
use crate::counter::items;
use crate::table::{Table, TableError};

/// What a reset has kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reset {
    /// The value of the counter, if it is in use and was kept. [`reconcile`](super::reconcile()) corrects it.
    pub counter_kept: Option<i64>,
}

/// The longest life of a counted connection.
const LONGEST_SESSION: Duration = Duration::from_secs(60 * 60);

/// The value of the counter if it is in use: there are leases, or it was written within the life of a connection.
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
