//! Checks before joining: whether the tables are usable, and whether other instances use another mode.

use std::time::Duration;

use tracing::warn;

use super::StartError;
use crate::item::Item;
use crate::ledger::HEARTBEAT_ORIGIN;
use crate::ledger::shard::{self, SHARDS, Shard};
use crate::settings::{LeaseMode, LeaseSettings, RateMode, RateSettings};
use crate::store::Store;
use crate::{bucket, counter, window};

/// Fails if other instances of the endpoint use the other lease mode. Returns whether the table answers: if not, the
/// outage policy applies, and the ledger looks for a counter later.
pub(super) async fn check_leases(
    endpoint: &str,
    lease: &LeaseSettings,
    store: &Store,
) -> Result<bool, StartError> {
    let other_mode = |ours, theirs, wait| Err(StartError::OtherMode { ours, theirs, wait });
    match lease.mode {
        LeaseMode::Ledger => {
            let Some(item) = look(store, &lease.table, &counter::key(endpoint)).await? else {
                return Ok(false);
            };
            if item.is_some_and(|item| counter::is_in_use(&item, store.runtime.wall(), lease.length)) {
                return other_mode("ledger", "counter", lease.length);
            }
        }
        LeaseMode::Counter => {
            for k in 0..SHARDS {
                let key = shard::key(endpoint, k);
                let Some(item) = look(store, &lease.table, &key).await? else { return Ok(false) };
                let Some(shard) = item.as_ref().and_then(Shard::read) else { continue };
                let now = store.runtime.wall().saturating_sub(HEARTBEAT_ORIGIN).as_secs();
                let age = |heartbeat: i64| now.saturating_sub(u64::try_from(heartbeat).unwrap_or(0));
                if shard.entries.values().any(|entry| age(entry.heartbeat) < shard.lease.as_secs()) {
                    return other_mode("counter", "ledger", shard.lease);
                }
            }
        }
    }
    Ok(true)
}

/// A bucket with a later permit than this is in use.
const RECENTLY: Duration = Duration::from_secs(120);

/// Logs if other instances of the endpoint use the other rate mode: together they open more than either mode allows. It
/// is not an error, because a fleet changes its mode instance by instance.
pub(super) async fn check_rate(endpoint: &str, rate: &RateSettings, store: &Store) -> Result<(), StartError> {
    let wall = store.runtime.wall();
    let theirs = match rate.mode {
        RateMode::Bucket => {
            let (now, mut used) = (wall.as_secs(), false);
            for second in [now, now.saturating_sub(1)] {
                let Some(item) = look(store, &rate.table, &window::key(endpoint, second)).await? else {
                    break;
                };
                used |= item.is_some();
            }
            used.then_some("window")
        }
        RateMode::Window => {
            let item = look(store, &rate.table, &bucket::key(endpoint)).await?.flatten();
            item.is_some_and(|item| bucket::is_in_use(&item, wall, RECENTLY)).then_some("bucket")
        }
    };
    if let Some(theirs) = theirs {
        let ours = rate.mode;
        warn!(target: "forebay", ?ours, theirs, "Distributed rate limiter: other instances of this endpoint use another mode, \
            so there are two budgets; set the same DSQL_DISTRIBUTED_RATE_LIMITER_MODE everywhere");
    }
    Ok(())
}

/// The item at `key`; `None` if there is no answer. A table that needs an operator's help is an error.
async fn look(store: &Store, table: &str, key: &str) -> Result<Option<Option<Item>>, StartError> {
    match store.get("look", key).await {
        Ok(item) => Ok(Some(item)),
        Err(error) if error.remedy().is_some() => Err(StartError::Table { table: table.to_owned(), error }),
        Err(_) => Ok(None),
    }
}
