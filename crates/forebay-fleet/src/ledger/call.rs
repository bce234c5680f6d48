//! What a ledger asks of the table, what it answers its callers, and what it tells.

use std::time::Duration;

use forebay::Instant;

use super::book::Rules;
use super::shard::{self, Entry, Shard};
use crate::counter;
use crate::table::Update;

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Ask the table this, and tell what it answers.
    Call(Call),
    /// Nothing until then, or until something is asked.
    Wait(Instant),
    /// It is over: every entry has been given back.
    Left,
}

/// One call to the table.
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

    /// What the instance called `name` asks of the table.
    pub(crate) fn ask(&self, rules: &Rules, name: &str) -> Ask {
        let endpoint = rules.endpoint.as_str();
        Ask::Update(match self {
            Self::Look(k) => return Ask::Get(shard::key(endpoint, *k)),
            Self::LookForCounter => return Ask::Get(counter::key(endpoint)),
            Self::Create(k) => Shard::unwritten(rules.limit, *k, rules.lease).create(endpoint, *k),
            Self::Join(k, entry) => entry.join(endpoint, *k, name),
            Self::Renew(k, before, after) => before.renew(after, endpoint, *k, name),
            Self::Leave(k, entry) => entry.leave(endpoint, *k, name),
            Self::Reap(k, dead, entry) => entry.reap(endpoint, *k, dead),
        })
    }
}

/// What a call is to the table.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Get(String),
    Update(Update),
}

/// What a caller who wants a lease is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// This one.
    Lease(u64),
    /// Ask again when something has changed.
    Wait,
    /// The fleet's limit is reached.
    Full,
    /// More than this would not be fair: others lack some.
    Fair(u64),
    /// The store is away, or we are leaving.
    Away(&'static str),
}

/// Something worth telling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tale {
    Joined {
        shard: u8,
        node: Option<u16>,
        slots: u64,
    },
    /// All numbers are taken: we are in the fleet without one.
    NoNumber,
    /// Our number was lost, and someone else has it: ours is another one now.
    Renumbered {
        before: u16,
        node: Option<u16>,
    },
    /// Someone else had our name before us.
    Renamed {
        before: String,
        name: String,
    },
    Beaten,
    Conflict,
    Reaped {
        id: String,
        slots: u64,
    },
    /// An entry of ours is gone: we were taken for dead, or an operator has evicted us.
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
    NotAShard {
        shard: u8,
    },
    CounterInUse,
}
