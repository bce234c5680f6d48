//! The two ways to reserve permits in the table.

use std::time::Duration;

use crate::bucket::Bucket;
use crate::item::Item;
use crate::table::Update;
use crate::window::Window;

/// The result of a request for permits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReserveOutcome {
    /// Permits, each valid from then on, by the time of day.
    Reserved(Vec<Duration>),
    /// Try again at once, with this many.
    Retry(u32),
    /// Try again after half to all of this time.
    RetryAfter(Duration),
}

/// The mode of the shared rate.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Bucket(Bucket),
    Window(Window),
}

impl Source {
    /// Keeps back permits that the shares may save above their part of the burst.
    pub(super) fn hold_back(&mut self, permits: u64) {
        if let Self::Bucket(bucket) = self {
            bucket.hold_back(permits);
        }
    }

    /// The item to read before a reservation, if it is not known well enough.
    pub(super) fn unknown(&self, wall: Duration) -> Option<&str> {
        match self {
            Self::Bucket(bucket) => bucket.unknown(wall),
            Self::Window(_) => None,
        }
    }

    /// The item was read.
    pub(super) fn saw(&mut self, item: Option<&Item>) {
        if let Self::Bucket(bucket) = self {
            bucket.saw(item);
        }
    }

    /// The time until the next free permit, as far as known.
    pub(super) fn queue(&self, wall: Duration) -> Duration {
        match self {
            Self::Bucket(bucket) => bucket.queue(wall),
            Self::Window(_) => Duration::ZERO,
        }
    }

    pub(super) fn reserve(&self, count: u32, wall: Duration) -> Update {
        match self {
            Self::Bucket(bucket) => bucket.reserve(count, wall),
            Self::Window(window) => window.reserve(count, wall),
        }
    }

    pub(super) fn granted(&mut self, count: u32, wall: Duration, item: Option<&Item>) -> ReserveOutcome {
        match self {
            Self::Bucket(bucket) => bucket.granted(count, wall, item),
            Self::Window(window) => window.granted(count, wall),
        }
    }

    pub(super) fn refused(&mut self, count: u32, wall: Duration, item: Option<&Item>) -> ReserveOutcome {
        match self {
            Self::Bucket(bucket) => bucket.refused(count, wall, item),
            Self::Window(window) => window.refused(wall, item),
        }
    }

    /// The most permits per request.
    pub(super) fn max_batch(&self) -> u32 {
        match self {
            Self::Bucket(bucket) => bucket.max_batch(),
            Self::Window(window) => window.max_batch(),
        }
    }

    pub(super) fn per_second(&self) -> f64 {
        match self {
            Self::Bucket(bucket) => bucket.per_second(),
            Self::Window(window) => window.per_second(),
        }
    }
}
