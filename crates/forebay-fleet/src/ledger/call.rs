//! The calls of a ledger to the table, its replies to callers, and its events.

use std::mem::Discriminant;
use std::time::Duration;

use forebay::Instant;

use super::shard::{self, Entry, Shard};
use crate::counter;
use crate::params::LeaseParams;
use crate::table::Update;

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Make this call, and pass its result to `answer`.
    Call(Call),
    /// Wait until then, or until a caller changes something.
    Wait(Instant),
    /// Every entry has been given back.
    Left,
}

/// One call to the table. The number is that of the shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Look(u8),
    LookForCounter,
    Create(u8),
    Join(u8, Entry),
    Renew(u8, Entry, Entry),
    Leave(u8, Entry),
    Reap(u8, String, Entry),
}

impl Call {
    /// Its name in metrics.
    pub(crate) fn operation(&self) -> &'static str {
        match self {
            Self::Look(_) | Self::LookForCounter => "look",
            Self::Create(_) => "create",
            Self::Join(..) => "join",
            Self::Renew(_, before, after) if before.slots == after.slots => "beat",
            Self::Renew(..) => "resize",
            Self::Leave(..) => "leave",
            Self::Reap(..) => "reap",
        }
    }

    /// The request of the instance called `name`.
    pub(crate) fn request(&self, params: &LeaseParams, name: &str) -> Request {
        let endpoint = params.endpoint.as_str();
        Request::Update(match self {
            Self::Look(k) => return Request::Get(shard::key(endpoint, *k)),
            Self::LookForCounter => return Request::Get(counter::key(endpoint)),
            Self::Create(k) => Shard::unwritten(params.limit, *k, params.lease).create(endpoint, *k),
            Self::Join(k, entry) => entry.join(endpoint, *k, name),
            Self::Renew(k, before, after) => before.renew(after, endpoint, *k, name),
            Self::Leave(k, entry) => entry.leave(endpoint, *k, name),
            Self::Reap(k, dead, entry) => entry.reap(endpoint, *k, dead),
        })
    }
}

/// A call as the table sees it.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    Get(String),
    Update(Update),
}

/// The reply to a caller that wants a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AcquireOutcome {
    Lease(u64),
    /// Try again when something has changed.
    Wait,
    /// The fleet has no free slots.
    LimitReached,
    /// This instance has its fair share, and other instances lack slots.
    ShareReached(u64),
    /// The table is unavailable, or this instance is leaving.
    Unavailable(&'static str),
}

/// Something to log or to count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LedgerEvent {
    Joined {
        shard: u8,
        node: Option<u16>,
        slots: u64,
    },
    /// All node numbers are taken: this instance is in the fleet without one.
    NoNodeNumber,
    /// The node number was lost, and another instance has it.
    Renumbered {
        before: u16,
        node: Option<u16>,
    },
    /// Another instance had the name first.
    Renamed {
        before: String,
        name: String,
    },
    Heartbeat,
    Conflict,
    Reaped {
        id: String,
        slots: u64,
    },
    /// An entry is gone: other instances took this one for dead, or an operator has evicted it.
    Lost {
        shard: u8,
        slots: u64,
    },
    LimitDiffers {
        ours: u64,
        theirs: u64,
    },
    LeaseDiffers {
        ours: Duration,
        theirs: Duration,
    },
    InvalidShard {
        shard: u8,
    },
    CounterInUse,
}

/// Events that were not taken yet.
#[derive(Debug, Default)]
pub(super) struct Events {
    events: Vec<LedgerEvent>,
    /// Kinds that are reported only once, or once per shard.
    reported: Vec<(u8, Discriminant<LedgerEvent>)>,
}

impl Events {
    pub(super) fn push(&mut self, event: LedgerEvent) {
        self.events.push(event);
    }

    /// Adds the first event of this kind for shard `k`. Kinds that do not depend on the shard use shard 0.
    pub(super) fn push_once(&mut self, k: u8, event: LedgerEvent) {
        let kind = (k, std::mem::discriminant(&event));
        if !self.reported.contains(&kind) {
            self.reported.push(kind);
            self.push(event);
        }
    }

    pub(super) fn take(&mut self) -> Vec<LedgerEvent> {
        std::mem::take(&mut self.events)
    }
}
