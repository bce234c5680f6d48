//! Where permits come from, and what the table's answers mean for them.

use std::time::Duration;

use crate::bucket::Bucket;
use crate::item::Item;
use crate::table::Update;
use crate::window::Window;

/// What came of asking for permits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// So many, each good from then on, by the time of day.
    Turns(Vec<Duration>),
    /// Ask at once for so many.
    Again(u32),
    /// None for now: ask again after between half of this and all of it.
    Later(Duration),
}

/// Where permits come from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Bucket(Bucket),
    Window(Window),
}

impl Source {
    /// Shares may save so many permits more than their part of the burst.
    pub(super) fn hold_back(&mut self, permits: u64) {
        if let Self::Bucket(bucket) = self {
            bucket.hold_back(permits);
        }
    }

    /// The key to look at before asking, if there is one.
    pub(super) fn unknown(&self, wall: Duration) -> Option<&str> {
        match self {
            Self::Bucket(bucket) => bucket.unknown(wall),
            Self::Window(_) => None,
        }
    }

    /// This is there.
    pub(super) fn saw(&mut self, item: Option<&Item>) {
        if let Self::Bucket(bucket) = self {
            bucket.saw(item);
        }
    }

    /// How long it is until the next free turn, as far as is known.
    pub(super) fn line(&self, wall: Duration) -> Duration {
        match self {
            Self::Bucket(bucket) => bucket.line(wall),
            Self::Window(_) => Duration::ZERO,
        }
    }

    pub(super) fn ask(&self, count: u32, wall: Duration) -> Update {
        match self {
            Self::Bucket(bucket) => bucket.ask(count, wall),
            Self::Window(window) => window.ask(count, wall),
        }
    }

    pub(super) fn granted(&mut self, count: u32, wall: Duration, item: Option<&Item>) -> Verdict {
        match self {
            Self::Bucket(bucket) => bucket.granted(count, wall, item),
            Self::Window(window) => window.granted(count, wall),
        }
    }

    pub(super) fn refused(&mut self, count: u32, wall: Duration, item: Option<&Item>) -> Verdict {
        match self {
            Self::Bucket(bucket) => bucket.refused(count, wall, item),
            Self::Window(window) => window.refused(wall, item),
        }
    }

    /// Permits to ask for at a time, at most.
    pub(super) fn most(&self) -> u32 {
        match self {
            Self::Bucket(bucket) => bucket.most(),
            Self::Window(window) => window.most(),
        }
    }

    pub(super) fn per_second(&self) -> f64 {
        match self {
            Self::Bucket(bucket) => bucket.per_second(),
            Self::Window(window) => window.per_second(),
        }
    }
}
