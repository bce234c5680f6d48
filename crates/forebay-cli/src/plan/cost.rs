//! What coordination costs in DynamoDB.
//!
//! In mode `ledger` the cost follows from the number of processes: each renews its entry at every heartbeat and reads other
//! shards. In mode `counter` it follows from the number of connections. docs/fleet.md has the measurements.

use std::time::Duration;

use forebay_fleet::LeaseMode;

use super::budget::Budget;
use super::fleet::Fleet;
use super::prediction::Fit;

/// DynamoDB's prices for on-demand tables, where and since when they apply.
pub(super) const WRITE_PRICE: f64 = 0.625;
pub(super) const READ_PRICE: f64 = 0.125;
pub(super) const PRICES_OF: &str = "since Nov 2024, us-east-1";

/// Seconds of an average month.
const MONTH: f64 = 730.0 * 3600.0;
/// Items of a ledger.
const SHARDS: u64 = 8;
/// The bytes of a write unit and of a read unit.
const WRITE_UNIT: u64 = 1024;
const READ_UNIT: u64 = 4096;
/// The bytes of a shard without entries: its key, with a cluster's name of 48 letters, and five numbers. And of two numbers in
/// an entry: the time of the heartbeat, and the number of the node.
const ITEM_BYTES: u64 = 107;
const HEARTBEAT_BYTES: u64 = 6;
const NODE_BYTES: u64 = 3;
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
        let leases = match fleet.leases {
            None => Self::default(),
            Some(LeaseMode::Ledger) => Ledger::of(fleet).cost(),
            // Each connection is acquired, renewed and released; each process reads the counter.
            Some(LeaseMode::Counter) => Self {
                writes: fleet.held() as f64 / RENEWAL.as_secs_f64() + steady * 2.0 * TRANSACTION,
                reads: beats(fleet),
            },
        };
        let reserved = if fleet.sharing.is_some() {
            steady * reserved_part(fleet, steady / processes.max(1.0))
        } else {
            0.0
        };
        Self { writes: leases.writes + reserved, reads: leases.reads + reserved }
    }

    /// The least and the most that it may cost with a ledger.
    pub(super) fn range(fleet: &Fleet, steady: f64) -> (Self, Self) {
        let (cost, ledger) = (Self::of(fleet, steady), Ledger::of(fleet));
        let instead = |other: Ledger| {
            let (expected, other) = (ledger.cost(), other.cost());
            Self {
                writes: cost.writes - expected.writes + other.writes,
                reads: cost.reads - expected.reads + other.reads,
            }
        };
        (instead(ledger.least()), instead(ledger.most(fleet)))
    }

    /// Dollars in a month.
    pub(super) fn monthly(&self, prices: Prices) -> f64 {
        (self.writes * prices.write + self.reads * prices.read) * MONTH / 1e6
    }
}

/// Heartbeats of the fleet per second.
fn beats(fleet: &Fleet) -> f64 {
    fleet.processes() as f64 / fleet.heartbeat.as_secs_f64().max(1.0)
}

/// What the cost of a ledger depends on.
#[derive(Clone, Copy, Debug)]
struct Ledger {
    beats: f64,
    slots: u64,
    /// Entries of a process: one in each shard that it has slots in.
    parts: u64,
    /// Entries of a shard.
    entries: u64,
    /// Shards that a process reads at each heartbeat.
    reads: u64,
}

impl Ledger {
    fn of(fleet: &Fleet) -> Self {
        let (processes, slots) = (fleet.processes(), fleet.process_slots());
        // A process that does not fit into a shard has entries in several.
        let parts = slots.div_ceil((fleet.limit / SHARDS).max(1)).clamp(1, SHARDS);
        let entries = (processes * parts).div_ceil(SHARDS);
        Self { beats: beats(fleet), slots, parts, entries, reads: reads_per_beat(processes) }
    }

    fn cost(&self) -> Cost {
        let bytes = item_bytes(self.entries, self.slots);
        Cost {
            writes: self.beats * (self.parts * bytes.div_ceil(WRITE_UNIT)) as f64,
            reads: self.beats * (self.reads * bytes.div_ceil(READ_UNIT)) as f64,
        }
    }

    /// Shards differ by an entry or two, which may make one smaller than a unit.
    fn least(self) -> Self {
        Self { entries: self.entries.saturating_sub(2), ..self }
    }

    /// Or larger. Where slots are short, some processes collect theirs from all shards. And in a fleet of this size, processes
    /// disagree about how many they are: some read one shard more.
    fn most(self, fleet: &Fleet) -> Self {
        let parts = if Fit::of(fleet) == Fit::Split { SHARDS } else { self.parts };
        let entries = self.entries * parts / self.parts + 1;
        let is_unsure = (SHARDS..=READERS + READERS / 2).contains(&fleet.processes());
        Self { parts, entries, reads: (self.reads + u64::from(is_unsure)).min(SHARDS), ..self }
    }
}

/// The size of a shard with so many entries, as DynamoDB counts it.
fn item_bytes(entries: u64, slots: u64) -> u64 {
    // A number has a byte for every two digits, and one more.
    let number = |number: u64| u64::from(number.max(1).ilog10() + 1).div_ceil(2) + 1;
    // The name of the instance, four numbers with names of one letter, and a byte for each value.
    let entry =
        8 + 1 + 3 + (2 + number(slots)) + (2 + HEARTBEAT_BYTES) + (2 + number(entries)) + (2 + NODE_BYTES);
    ITEM_BYTES + entries * entry
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
fn reads_per_beat(processes: u64) -> u64 {
    let mut next = 1;
    for _ in 0..SHARDS {
        let known = (processes * (next + 4).min(SHARDS) / SHARDS).max(1);
        next = (READERS / known).clamp(1, SHARDS - 1);
    }
    next + 1
}

#[cfg(test)]
mod tests {
    use super::super::fleet::Rate;
    use super::super::number::round;
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
            (round(writes), round(reads))
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
    /// As the simulator bills them: instances, and units of a heartbeat.
    #[test]
    fn what_depends_on_chance_is_a_range() {
        for (processes, writes, reads) in [
            (2, 1.0, 8.0),
            (14, 1.0, 5.39),
            (20, 1.0, 4.34),
            (30, 1.0, 3.4),
            (60, 1.0, 2.29),
            (100, 1.0, 2.0),
            (230, 1.0, 2.0),
        ] {
            let (least, most) = Cost::range(&hour_long(1, processes, 4), 0.0);
            let each = |units: f64| units * 30.0 / processes as f64;
            let holds =
                |least: f64, most: f64, found: f64| each(least) <= found + 0.01 && found <= each(most) + 0.01;
            assert!(holds(least.writes, most.writes, writes), "{processes}: {least:?} to {most:?}");
            assert!(holds(least.reads, most.reads, reads), "{processes}: {least:?} to {most:?}");
        }
        let (least, most) = Cost::range(&hour_long(1, 4, 2_000), 0.0);
        assert!(most.writes > 2.0 * least.writes, "processes with slots in several shards");
    }
}
