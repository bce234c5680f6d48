//! Replacements: how often connections are opened because others have become old.
//!
//! A reservoir does not let its connections live as long as they may. It books each retirement in a period of its own, the
//! latest free one before the connection would be too old to lend; a tenth more periods than connections fit into the
//! shortest life. The model books the same way, with draws of its own, because no formula fits small pools: where few
//! periods are free, connections are retired well before their time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use forebay::Seed;
use forebay_fleet::LeaseMode;

use super::fleet::Fleet;
use super::number::ceil;

/// Replacements that the model counts at least: the more, the smaller the error of its draws.
const ENOUGH: u64 = 4_000;
/// In a larger pool, periods are so short that its size does not matter.
const LARGE: u64 = 2_000;
/// From a retirement to the open replacement.
const DELAY: f64 = 0.03;

/// The replacements of a fleet, without faults and deployments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Turnover {
    /// Opens per second, on average, from the second generation on.
    pub(super) steady: f64,
    /// The most opens in one second: from, and to.
    pub(super) peak: (u64, u64),
    /// The average time from open to retirement.
    pub(super) life: Duration,
}

/// The times of one reservoir's schedule, in seconds.
#[derive(Clone, Copy, Debug)]
struct Schedule {
    connections: u64,
    /// The shortest time from open to retirement, before it is moved to the beginning of a period.
    shortest: f64,
    jitter: f64,
    /// The length of a period.
    width: f64,
}

impl Turnover {
    /// None if the guard window leaves no time to lend.
    pub(super) fn of(fleet: &Fleet) -> Option<Self> {
        let schedule = Schedule::of(fleet)?;
        let sample = Fleet { connections: fleet.connections.min(LARGE), ..fleet.clone() };
        let life = Schedule::of(&sample)?.average_life(generations(fleet));
        let reservoirs = fleet.held() as f64 / fleet.connections.max(1) as f64;
        // While the first generation is replaced, every reservoir uses every period. Later, a tenth is free.
        let crowded = reservoirs / schedule.width;
        Some(Self {
            steady: fleet.held() as f64 / life,
            peak: peak(fleet, crowded, schedule.width),
            life: Duration::from_secs_f64(life),
        })
    }

    /// Opens per second by the specification's rule: all connections once per lifetime.
    pub(super) fn by_lifetime(fleet: &Fleet) -> f64 {
        fleet.held() as f64 / fleet.lifetime.as_secs_f64()
    }
}

/// Generations that are counted, after the first: more in a small fleet, whose draws are few.
pub(super) fn generations(fleet: &Fleet) -> u64 {
    400u64.div_ceil(fleet.total().max(1)).clamp(2, 40)
}

/// When the first generation has been replaced, after the cold start.
pub(super) fn first_generation(fleet: &Fleet) -> Option<Duration> {
    Schedule::of(fleet).map(|schedule| Duration::from_secs_f64(schedule.shortest + schedule.jitter))
}

/// The range of the worst second, for `average` retirements a second in periods of this `width`.
///
/// The processes of a ledger take turns, by multiples of the golden ratio: an interval holds its average, and one or two
/// more, the more processes there are. Clocks that are off and replacements that wait for a permit add to it, up to the
/// root of the average. Pools of one process have the same turn. Without a ledger turns are random.
fn peak(fleet: &Fleet, average: f64, width: f64) -> (u64, u64) {
    let together = fleet.pools as f64;
    let turns = average / together;
    let processes = fleet.processes() as f64;
    let extra = if fleet.leases == Some(LeaseMode::Ledger) {
        turns.min(1.0) * (1.0 + processes.log10()) + turns.sqrt()
    } else {
        4.0 * turns.sqrt() + 2.0
    };
    // A reservoir retires one connection in a period.
    let most = processes * ((1.0 / width).floor() + 1.0);
    let low = turns.ceil().clamp(1.0, most.max(1.0));
    let high = (turns.ceil() + extra).floor().max(low + 1.0).min(most.max(low));
    (ceil(low * together), ceil(high * together))
}

impl Schedule {
    fn of(fleet: &Fleet) -> Option<Self> {
        if !fleet.can_lend() {
            return None;
        }
        let usable = fleet.shortest_life() - fleet.guard_window;
        // A replacement has this long to open before the old connection is too old to lend.
        let lead = fleet.open_timeout.min(usable / 10);
        let periods = (fleet.connections + fleet.connections / 10 + 1).max(2) as f64;
        let shortest = (usable - lead).as_secs_f64();
        let width = (shortest / periods).max(fleet.longest_life().as_secs_f64() / (8.0 * periods));
        Some(Self { connections: fleet.connections, shortest, jitter: fleet.jitter.as_secs_f64(), width })
    }

    /// The average time from open to retirement, over some generations after the first.
    fn average_life(&self, generations: u64) -> f64 {
        let (mut replaced, mut seconds) = (0, 0.0);
        for repetition in 0.. {
            if replaced >= ENOUGH {
                break;
            }
            replaced += self.replaced(generations, repetition);
            seconds += self.window(generations);
        }
        self.connections as f64 * seconds / replaced.max(1) as f64
    }

    /// The time in which replacements are counted.
    fn window(&self, generations: u64) -> f64 {
        generations as f64 * (self.shortest + self.jitter / 2.0)
    }

    /// Replacements of one reservoir after its first generation.
    fn replaced(&self, generations: u64, repetition: u64) -> u64 {
        let mut rng = Seed::new(repetition).fork("turnover").rng();
        let mut unit = move || rng.below(1 << 32) as f64 / f64::from(u32::MAX);
        let start = unit() * self.width;
        let from = start + self.shortest + self.jitter;
        let until = from + self.window(generations);
        let mut periods = Periods::default();
        let mut retirements = BinaryHeap::new();
        for _ in 0..self.connections {
            retirements.push(Reverse(self.book(start, unit(), &mut periods)));
        }
        let mut replaced = 0;
        while let Some(Reverse(period)) = retirements.pop() {
            let now = period as f64 * self.width + DELAY;
            if now >= until {
                break;
            }
            replaced += u64::from(now >= from);
            retirements.push(Reverse(self.book(now, unit(), &mut periods)));
        }
        replaced
    }

    /// Books the retirement of a connection that is opened at `now`.
    fn book(&self, now: f64, draw: f64, periods: &mut Periods) -> u64 {
        let period = |at: f64| ceil((at / self.width).floor());
        periods.book(period(now) + 1, period(now + self.shortest + draw * self.jitter))
    }
}

/// The booked periods, one bit each.
#[derive(Default)]
struct Periods(Vec<u64>);

impl Periods {
    /// Books the latest free period from `first` to `last`. Without one it is `last`, as the schedule does.
    fn book(&mut self, first: u64, last: u64) -> u64 {
        let mut period = last;
        while period >= first {
            let (word, bit) = (usize::try_from(period / 64).unwrap_or(usize::MAX), period % 64);
            if word >= self.0.len() {
                self.0.resize(word + 1, 0);
            }
            // The free periods of this word up to this one, in the high bits.
            let skip = u64::from((!self.0[word] << (63 - bit)).leading_zeros());
            if skip > bit {
                let Some(below) = period.checked_sub(bit + 1) else { break };
                period = below;
                continue;
            }
            if period - skip < first {
                break;
            }
            self.0[word] |= 1 << (bit - skip);
            return period - skip;
        }
        last.max(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turnover(fleet: &Fleet) -> Turnover {
        Turnover::of(fleet).expect("the guard window is short")
    }

    /// The specification: 50 connections with a lifetime of 11 min.
    #[test]
    fn the_rule_of_the_specification() {
        let rule = Turnover::by_lifetime(&Fleet::of(1, 1, 1, 50));
        assert!((rule - 0.0758).abs() < 0.0001, "{rule}");
    }

    #[test]
    fn large_pools_use_their_lives_and_small_ones_less() {
        let per_pool = |connections| turnover(&Fleet::of(1, 1, 1, connections)).steady / connections as f64;
        // 11 min, without the guard window and 10 s to open the replacement; a draw is a minute longer on average.
        let bound = 1.0 / (11.0 * 60.0 - 45.0 - 10.0);
        for (connections, ratio) in [(500, 1.0), (100, 1.0), (50, 1.01), (25, 1.045), (10, 1.1)] {
            let found = per_pool(connections) / bound;
            assert!((found - ratio).abs() < 0.03, "{connections}: {found}");
        }
    }

    #[test]
    fn without_jitter_every_connection_lives_the_shortest_life() {
        let fleet = Fleet { jitter: Duration::ZERO, ..Fleet::of(1, 1, 1, 50) };
        let life = turnover(&fleet).life.as_secs_f64();
        assert!((life - (660.0 - 45.0 - 10.0)).abs() < 10.0, "{life}");
    }

    #[test]
    fn a_guard_window_as_long_as_a_life_has_no_turnover() {
        let fleet = Fleet { guard_window: Duration::from_secs(600), ..Fleet::of(1, 1, 1, 50) };
        assert_eq!(Turnover::of(&fleet), None);
    }

    #[test]
    fn the_worst_second_is_near_the_average() {
        let day = Duration::from_secs(55 * 60);
        let fleet = Fleet { lifetime: day, ..Fleet::of(1, 200, 1, 50) };
        assert_eq!(turnover(&fleet).peak, (4, 9), "the simulator has 5, after crashes 9");
        let alone = turnover(&Fleet { lifetime: day, ..Fleet::of(1, 1, 1, 50) });
        assert_eq!(alone.peak, (1, 1));
        let large = turnover(&Fleet { lifetime: day, ..Fleet::of(1, 3, 1, 2000) });
        assert_eq!(large.peak, (3, 3), "one each in periods of 1.5 s");
        let short = turnover(&Fleet::of(1, 3, 1, 2000));
        assert_eq!(short.peak, (13, 15), "at most five each in periods of 0.25 s");
        let pools = turnover(&Fleet { lifetime: day, ..Fleet::of(1, 8, 2, 50) });
        assert_eq!(pools.peak, (2, 4), "pools of one process retire together");
    }

    #[test]
    fn the_latest_free_period_is_booked() {
        let mut periods = Periods::default();
        let booked: Vec<u64> = (0..4).map(|_| periods.book(62, 65)).collect();
        assert_eq!(booked, [65, 64, 63, 62]);
        assert_eq!(periods.book(62, 65), 65, "none is free");
        assert_eq!(periods.book(0, 61), 61);
        let mut full = Periods::default();
        assert_eq!((0..3).map(|_| full.book(0, 1)).collect::<Vec<_>>(), [1, 0, 1]);
    }
}
