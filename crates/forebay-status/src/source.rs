//! Where the page reads a pool.

use std::time::Duration;

use forebay::{Config, Connect, ConnectionStatus, RefillStatus, Reservoir, Status, WeakReservoir};

/// A pool that a page can show. The page asks it twice a second, so it must answer at once.
///
/// A source should hold its pool weakly: a page must not keep a pool open.
pub trait PoolSource: Send + Sync + 'static {
    /// What the pool does now. `None` if the pool is gone: closed and dropped.
    fn snapshot(&self) -> Option<PoolSnapshot>;

    /// Every usable connection. This costs more than a snapshot, so the page asks for it only while somebody
    /// looks. Default: none.
    fn connections(&self) -> Vec<ConnectionStatus> {
        Vec::new()
    }
}

/// What a pool does at one moment.
#[derive(Clone, Debug)]
pub struct PoolSnapshot {
    /// How many connections are in each state, and the counters.
    pub status: Status,
    /// What the refill does, and what it waits for.
    pub refill: RefillStatus,
    /// The settings.
    pub config: Config,
    /// What the pool calls the way it works, such as `reservoir` or `standard`.
    pub mode: Option<String>,
    /// The budget of the fleet, if the pool shares one.
    pub fleet: Option<FleetSnapshot>,
    /// The token that opens use, if the pool has one.
    pub token: Option<TokenSnapshot>,
}

impl PoolSnapshot {
    /// What a reservoir knows about itself. The mode, the fleet and the token are `None`.
    #[must_use]
    pub fn of<C: Connect>(reservoir: &Reservoir<C>) -> Self {
        Self {
            status: reservoir.status(),
            refill: reservoir.refill_status(),
            config: reservoir.config(),
            mode: None,
            fleet: None,
            token: None,
        }
    }
}

/// The part of a shared budget that this process has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetSnapshot {
    /// The name of this instance.
    pub instance: String,
    /// The slots that this instance holds in the shared table.
    pub slots: u64,
    /// The leases that this instance has lent to connections.
    pub leases: u64,
    /// The leases of all instances together.
    pub active: u64,
    /// How many leases all instances may have together.
    pub limit: u64,
    /// How long the shared table has not answered. `None` if it answers.
    pub outage: Option<Duration>,
}

/// The token that opens use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenSnapshot {
    /// The time since it was signed.
    pub age: Duration,
    /// How much longer it can be used.
    pub good_for: Duration,
    /// How many attempts in a row to sign the next one have failed.
    pub failures: u32,
}

/// A reservoir, held weakly.
impl<C: Connect> PoolSource for WeakReservoir<C> {
    fn snapshot(&self) -> Option<PoolSnapshot> {
        self.upgrade().map(|reservoir| PoolSnapshot::of(&reservoir))
    }

    fn connections(&self) -> Vec<ConnectionStatus> {
        self.upgrade().map(|reservoir| reservoir.connections()).unwrap_or_default()
    }
}
