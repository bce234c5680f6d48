//! What coordination costs in DynamoDB.
//!
//! In mode `ledger` the cost follows from the number of processes: each renews its entry at every heartbeat and reads other
//! shards. In mode `counter` it follows from the number of connections. docs/fleet.md has the measurements.

use std::time::Duration;

use forebay_fleet::LeaseMode;

use super::budget::Budget;
use super::fleet::Fleet;
use super::number::ceil;

/// DynamoDB's prices for on-demand tables in us-east-1, and when they were taken.
pub(super) const WRITE_PRICE: f64 = 0.625;
pub(super) const READ_PRICE: f64 = 0.125;
pub(super) const PRICES_OF: &str = "November 2026, us-east-1";

/// Seconds of an average month.
const MONTH: f64 = 730.0 * 3600.0;
/// Items of a ledger.
const SHARDS: u64 = 8;
/// Entries of a shard per kilobyte, the size of a write unit. A read unit is four.
const ENTRIES_PER_UNIT: u64 = 27;
/// In a smaller fleet each process reads more shards, so that every shard is seen at every heartbeat.
const READERS: u64 = 64;
/// How often mode `counter` renews the item of a connection.
const RENEWAL: Duration = Duration::from_secs(80);
/// Write units of a transaction with two items.
const TRANSACTION: f64 = 4.0;

/// Prices of a million units, in dollars.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Prices {
    pub(super) write: f64,
    pub(super) read: f64,
}

/// Units per second, without faults and deployments.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Cost {
    pub(super) writes: f64,
    pub(super) reads: f64,
}

impl Cost {
    /// The cost of this fleet while connections are replaced at the rate `steady`.
    pub(super) fn of(fleet: &Fleet, steady: f64) -> Self {
        let processes = fleet.processes() as f64;
        let beats = processes / fleet.heartbeat.as_secs_f64().max(1.0);
        let leases = match fleet.leases {
            None => Self::default(),
            Some(LeaseMode::Ledger) => {
                let entries = fleet.processes().div_ceil(SHARDS);
                let looks = reads_per_beat(fleet.processes())
                    * ceil(entries as f64 / (4 * ENTRIES_PER_UNIT) as f64) as f64;
                Self { writes: beats * entries.div_ceil(ENTRIES_PER_UNIT) as f64, reads: beats * looks }
            }
            // Each connection is acquired, renewed and released; each process reads the counter.
            Some(LeaseMode::Counter) => Self {
                writes: fleet.held() as f64 / RENEWAL.as_secs_f64() + steady * 2.0 * TRANSACTION,
                reads: beats,
            },
        };
        let reserved = if fleet.sharing.is_some() {
            steady * reserved_part(fleet, steady / processes.max(1.0))
        } else {
            0.0
        };
        Self { writes: leases.writes + reserved, reads: leases.reads + reserved }
    }

    /// Dollars in a month.
    pub(super) fn monthly(&self, prices: Prices) -> f64 {
        (self.writes * prices.write + self.reads * prices.read) * MONTH / 1e6
    }
}

/// The part of the replacements that find no permit in the share of their process and reserve one: a read and a write.
/// `each` is their rate in one process.
///
/// By the loss of a server for one caller, if they came at random: they find it busy in u/(1 + u) of the cases at a load of
/// u. Each permit that can be saved is one more server.
fn reserved_part(fleet: &Fleet, each: f64) -> f64 {
    let Budget { share, saved, .. } = Budget::of(fleet);
    if share <= 0.0 {
        return 1.0;
    }
    let load = each / share;
    (load / (1.0 + load)).powf(saved + 1.0).max(1.0 - 1.0 / load)
}

/// Reads of a process at each heartbeat: some shards after its own, and one more in turn.
///
/// A process reads so many that 64 would see every shard. It knows of the processes in the shards that it has read in the
/// last three heartbeats: its own, those after it, and three in turn.
fn reads_per_beat(processes: u64) -> f64 {
    let mut next = 1;
    for _ in 0..SHARDS {
        let known = (processes * (next + 4).min(SHARDS) / SHARDS).max(1);
        next = (READERS / known).clamp(1, SHARDS - 1);
    }
    (next + 1) as f64
}

#[cfg(test)]
mod tests {
    use super::super::fleet::Rate;
    use super::*;

    const PRICES: Prices = Prices { write: WRITE_PRICE, read: READ_PRICE };

    fn hour_long(services: u64, instances: u64, connections: u64) -> Fleet {
        Fleet { lifetime: Duration::from_secs(55 * 60), ..Fleet::of(services, instances, 1, connections) }
    }

    /// docs/fleet.md: 200 instances, 10,000 connections: 6.7 write units and 13.3 read units a second.
    #[test]
    fn the_ledger_costs_what_was_measured() {
        let cost = Cost::of(&hour_long(1, 200, 50), 3.1);
        assert!((cost.writes - 6.7).abs() < 0.05 && (cost.reads - 13.3).abs() < 0.1, "{cost:?}");
        let month = cost.monthly(PRICES);
        assert!((month - 15.4).abs() < 0.2, "{month}");
    }

    #[test]
    fn a_counter_costs_by_connections() {
        let counter = Fleet { leases: Some(LeaseMode::Counter), ..hour_long(1, 200, 50) };
        let cost = Cost::of(&counter, 3.1);
        // 10,000 renewals in 80 s, 3.1 acquires and releases a second, and as many permits.
        assert!((cost.writes - (125.0 + 24.8 + 3.1)).abs() < 0.01, "{cost:?}");
        assert!((cost.reads - (6.67 + 3.1)).abs() < 0.01, "{cost:?}");
    }

    #[test]
    fn large_shards_and_small_fleets_cost_more_for_each_process() {
        let each = |processes: u64| {
            let cost = Cost::of(&hour_long(1, processes, 1), 0.0);
            (cost.writes * 30.0 / processes as f64, cost.reads * 30.0 / processes as f64)
        };
        let units = |processes| {
            let (writes, reads) = each(processes);
            (ceil(writes - 0.01), ceil(reads - 0.01))
        };
        assert_eq!(
            [4, 12, 40, 88, 216, 217, 1024].map(units),
            [(1, 8), (1, 6), (1, 3), (1, 2), (1, 2), (2, 2), (5, 4)]
        );
    }

    #[test]
    fn what_is_not_shared_costs_nothing() {
        let local = Fleet { leases: None, sharing: None, ..hour_long(1, 5, 10) };
        assert_eq!(Cost::of(&local, 1.0), Cost::default());
        let rate_only = Fleet { leases: None, ..hour_long(1, 5, 10) };
        assert_eq!(Cost::of(&rate_only, 1.5), Cost { writes: 1.5, reads: 1.5 });
        let slow = Fleet { rate: Rate { per_second: 10, burst: 100 }, ..hour_long(1, 8, 100) };
        let cost = Cost::of(&slow, 5.0);
        assert!(cost.writes > 4.0, "the shares are too small: {cost:?}");
    }
}
