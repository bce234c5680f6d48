//! What a fleet will do: cold start, replacements, rolling restart.

use std::time::Duration;

use super::budget::Budget;
use super::fill::Fill;
use super::fleet::Fleet;
use super::number::seconds;
use super::turnover::Turnover;

/// The prediction for a fleet. Nothing but the fleet goes in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Prediction {
    /// The cold start of all processes.
    pub(super) fill: Fill,
    /// The start of one process while the others run, without its startup delay.
    pub(super) one: Fill,
    /// Replacements; none if the guard window leaves no time to lend.
    pub(super) turnover: Option<Turnover>,
    /// All processes, one after the other.
    pub(super) rolling_restart: Duration,
    pub(super) fit: Fit,
}

/// How slots fit into the shards of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// Each process has all its slots in one shard.
    Whole,
    /// Some processes collect their slots from several shards, in small portions: a fill takes longer than predicted.
    Split,
}

/// The items of a ledger.
const SHARDS: u64 = 8;

impl Prediction {
    pub(super) fn of(fleet: &Fleet) -> Self {
        let budget = Budget::of(fleet);
        let processes = fleet.processes().max(1);
        let connections = fleet.held() as f64 / processes as f64;
        let one = Fill::of(&budget, 1, connections, Duration::ZERO);
        Self {
            fill: Self::cold_start(fleet),
            one,
            turnover: Turnover::of(fleet),
            rolling_restart: rolling_restart(fleet, &budget, connections, one.time),
            fit: Fit::of(fleet),
        }
    }

    /// The cold start of all processes, alone.
    pub(super) fn cold_start(fleet: &Fleet) -> Fill {
        let processes = fleet.processes().max(1);
        let connections = fleet.held() as f64 / processes as f64;
        Fill::of(&Budget::of(fleet), processes, connections, fleet.startup_jitter)
    }
}

/// Each process is stopped, waits for its startup delay, fills, and the pause follows. The rate must supply as many
/// connections in that time.
fn rolling_restart(fleet: &Fleet, budget: &Budget, connections: f64, fill: Duration) -> Duration {
    let each = fleet.startup_jitter / 2 + fill + fleet.restart_pause;
    let least = if budget.is_shared {
        seconds(connections / budget.sustained(fleet.processes()))
    } else {
        Duration::ZERO
    };
    each.max(least).saturating_mul(u32::try_from(fleet.processes()).unwrap_or(u32::MAX))
}

impl Fit {
    pub(super) fn of(fleet: &Fleet) -> Self {
        if fleet.leases != Some(forebay_fleet::LeaseMode::Ledger) {
            return Self::Whole;
        }
        let capacity = fleet.limit / SHARDS;
        let fitting = SHARDS * (capacity / fleet.process_slots().max(1));
        if fleet.processes() <= fitting { Self::Whole } else { Self::Split }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rolling_restart_takes_one_process_after_the_other() {
        let fleet = Fleet::of(4, 10, 2, 50);
        let prediction = Prediction::of(&fleet);
        let each = Duration::from_millis(32_500) + prediction.one.time;
        assert_eq!(prediction.rolling_restart, each * 40);
        let hasty = Fleet { restart_pause: Duration::ZERO, startup_jitter: Duration::ZERO, ..fleet };
        let least = 0.99 * 100.0 / Budget::of(&hasty).sustained(40);
        assert!(
            Prediction::of(&hasty).rolling_restart.as_secs_f64() >= 40.0 * least,
            "the rate is the limit"
        );
    }

    #[test]
    fn the_start_of_one_process_takes_about_a_second() {
        let one = Prediction::of(&Fleet::of(4, 10, 2, 50)).one;
        assert!((0.2..1.0).contains(&one.time.as_secs_f64()) && !one.is_queued, "{one:?}");
    }

    #[test]
    fn large_processes_do_not_fit_into_a_shard() {
        assert_eq!(Prediction::of(&Fleet::of(1, 10, 1, 800)).fit, Fit::Split);
        assert_eq!(Prediction::of(&Fleet::of(1, 8, 1, 800)).fit, Fit::Whole);
        assert_eq!(Prediction::of(&Fleet::of(1, 1, 1, 2000)).fit, Fit::Split);
    }
}
