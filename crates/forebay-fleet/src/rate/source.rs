//! The two ways to reserve permits in the table.

use std::time::Duration;

use super::reserved::Period;
use crate::item::Item;
use crate::table::Update;

/// The result of a request for permits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReserveOutcome {
    /// Permits, and when each is valid.
    Reserved(Vec<Period>),
    /// Try again at once, with this many.
    Retry(u32),
    /// Try again after this time, and a random part of `spread`.
    RetryAfter { pause: Duration, spread: Duration },
}

/// The mode of the shared rate: how permits are reserved in the table. `wall` is the time of day of the request.
pub(crate) trait Source: std::fmt::Debug + Send {
    /// Keeps back permits that the shares may save above their part of the burst.
    fn hold_back(&mut self, _permits: u64) {}

    /// The key of the item to read before a reservation, if it is not known well enough.
    fn unknown(&self, _wall: Duration) -> Option<&str> {
        None
    }

    /// The item was read.
    fn saw(&mut self, _item: Option<&Item>) {}

    /// The time until the next free permit, as far as known.
    fn queue(&self, _wall: Duration) -> Duration {
        Duration::ZERO
    }

    /// The write that reserves `count` permits.
    fn reserve(&self, count: u32, wall: Duration) -> Update;

    /// The write was made; `item` is the result.
    fn granted(&mut self, count: u32, wall: Duration, item: Option<&Item>) -> ReserveOutcome;

    /// The write was refused, because of `item`.
    fn refused(&mut self, count: u32, wall: Duration, item: Option<&Item>) -> ReserveOutcome;

    /// What operators call it.
    fn name(&self) -> &'static str;

    /// The most permits per request.
    fn max_batch(&self) -> u32;

    /// Permits per second.
    fn per_second(&self) -> f64;
}
