//! A disturbance, and how long the fleet may take to be whole again.

use std::time::Duration;

use forebay::Instant;

/// Names a window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowId(pub(super) usize);

/// From the moment something goes wrong until the fleet is whole again.
#[derive(Clone, Debug)]
pub(super) struct Window {
    pub(super) name: String,
    pub(super) began: Instant,
    /// When that was over.
    pub(super) over: Option<Instant>,
    /// How long reservoirs may take to notice that.
    pub(super) patience: Duration,
    /// Set once nothing at all is wrong any more.
    pub(super) healing: Option<Healing>,
    pub(super) whole: Option<Instant>,
    /// It took longer than it may,
    pub(super) late: bool,
    /// and that has been said.
    pub(super) reported: bool,
}

/// What was to be done when everything that was wrong was over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Healing {
    pub(super) since: Instant,
    /// How many connections the fleet lacked.
    pub(super) deficit: usize,
    /// How long the limiter takes to admit so many.
    pub(super) bucket: Duration,
    /// How long reservoirs may take to notice.
    pub(super) patience: Duration,
    /// How long it may take.
    pub(super) allowed: Duration,
}

impl Window {
    pub(super) fn new(name: String, began: Instant) -> Self {
        Self {
            name,
            began,
            over: None,
            patience: Duration::ZERO,
            healing: None,
            whole: None,
            late: false,
            reported: false,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.whole.is_none()
    }

    /// Whether the fleet has had more time to heal than it may.
    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        self.healing.is_some_and(|healing| now.since(healing.since) > healing.allowed)
    }
}

/// How a disturbance went, for the reader.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Recovery {
    /// What went wrong.
    pub disturbance: String,
    /// When it began, counted from the start.
    pub began: Duration,
    /// When it was over; none if the run ended first.
    pub over: Option<Duration>,
    /// How many connections the fleet lacked when nothing else was wrong either.
    pub deficit: usize,
    /// How long the limiter takes to admit so many.
    pub bucket: Duration,
    /// How long it was allowed to take.
    pub allowed: Duration,
    /// How long it took from then on; none if it never did.
    pub took: Option<Duration>,
}

impl Recovery {
    pub(super) fn of(window: &Window, start: Instant) -> Self {
        let healing = window.healing;
        Self {
            disturbance: window.name.clone(),
            began: window.began.since(start),
            over: window.over.map(|over| over.since(start)),
            deficit: healing.map_or(0, |healing| healing.deficit),
            bucket: healing.map_or(Duration::ZERO, |healing| healing.bucket),
            allowed: healing.map_or(Duration::ZERO, |healing| healing.allowed),
            took: healing.and_then(|healing| Some(window.whole?.since(healing.since))),
        }
    }
}
