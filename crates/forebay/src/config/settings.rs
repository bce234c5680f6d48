//! What the environment says beyond the configuration of a reservoir.

use std::time::Duration;

/// Leases across the fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseSettings {
    /// The table they are in.
    pub table: String,
    /// Connections the fleet may hold.
    pub limit: u64,
    /// How the fleet counts.
    pub mode: LeaseMode,
    /// How often an instance says that it lives: not more often than [`SHORTEST_BEAT`](Self::SHORTEST_BEAT).
    pub beat: Duration,
    /// How long it is believed.
    pub length: Duration,
    /// Slots taken and given back at a time: up to [`LARGEST_BLOCK`](Self::LARGEST_BLOCK).
    pub block: u64,
}

impl LeaseSettings {
    /// Each beat of each instance is a write and some reads: what is below this is a slip of the pen.
    pub const SHORTEST_BEAT: Duration = Duration::from_secs(1);
    /// As many as the largest reservoir can use.
    pub const LARGEST_BLOCK: u64 = super::validation::MOST as u64;
}

/// How a fleet counts its connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeaseMode {
    /// A few items that hold each instance's share.
    #[default]
    Ledger,
    /// One counter and an item for each connection.
    Counter,
}

/// A connect rate across the fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RateSettings {
    /// The table it is in.
    pub table: String,
    /// Opens a second.
    pub per_second: u64,
    /// Opens at once after a quiet time.
    pub burst: u64,
    /// How long an open waits for a permit.
    pub max_wait: Duration,
    /// How the fleet shares the rate.
    pub mode: RateMode,
}

/// How a fleet shares its connect rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RateMode {
    /// One item, reserved ahead.
    #[default]
    Bucket,
    /// One item for each second.
    Window,
}

/// What holds while the shared store is away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AwayPolicy {
    /// Go on opening within what is held already, at the local rate.
    #[default]
    Local,
    /// Open nothing new, go on serving.
    Closed,
    /// Also close what is held before its lease could be taken away.
    Strict,
}

/// Standard mode's warm-up and keeper. What is not set follows from the pool's size.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StandardSettings {
    /// Time over which the warm-up is spread.
    pub warmup_stagger: Option<Duration>,
    /// How often the keeper looks.
    pub keeper_tick: Duration,
    /// Connections the keeper opens at a look.
    pub keeper_max: Option<usize>,
}
