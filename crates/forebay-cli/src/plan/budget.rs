//! How fast the fleet may open connections, as the limiter that ships admits them.

use forebay_fleet::{LeaseMode, RateMode};

use super::fleet::Fleet;

/// The part of a shared rate and burst that belongs to the slots of a ledger.
const BY_SLOTS: f64 = 0.2;
/// The reserve of a bucket, in seconds of its rate: a second for clocks, a second for permits that are used late, half a
/// second for opens that take different times.
const RESERVE: f64 = 2.5;

/// A token bucket, and what comes besides it. Rates are per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Budget {
    /// The bucket belongs to the fleet; otherwise each process has one.
    pub(super) is_shared: bool,
    pub(super) rate: f64,
    pub(super) burst: f64,
    /// What each process has of the rate because of its slots, without a call to the table.
    pub(super) share: f64,
    /// The permits that a process can save of its share. It starts with none.
    pub(super) saved: f64,
}

impl Budget {
    pub(super) fn of(fleet: &Fleet) -> Self {
        let (rate, burst) = (fleet.rate.per_second as f64, fleet.rate.burst as f64);
        match (fleet.sharing, fleet.leases) {
            (None, _) => {
                let local = fleet.local_rate;
                let (rate, burst) = (local.per_second, local.burst as f64);
                Self { is_shared: false, rate, burst, share: 0.0, saved: 0.0 }
            }
            // The specification's window has no burst: one second of the rate at once.
            (Some(RateMode::Window), _) => {
                Self { is_shared: true, rate, burst: rate, share: 0.0, saved: 0.0 }
            }
            (Some(RateMode::Bucket), Some(LeaseMode::Ledger)) => {
                let part = fleet.process_slots() as f64 / fleet.limit.max(1) as f64;
                let saved = (BY_SLOTS * burst * part).max(1.0);
                let burst = (1.0 - BY_SLOTS) * burst - RESERVE * rate;
                Self {
                    is_shared: true,
                    rate: (1.0 - BY_SLOTS) * rate,
                    burst: burst.max(1.0),
                    share: BY_SLOTS * rate * part,
                    saved,
                }
            }
            (Some(RateMode::Bucket), _) => Self {
                is_shared: true,
                rate,
                burst: (burst - RESERVE * rate).max(1.0),
                share: 0.0,
                saved: 0.0,
            },
        }
    }

    /// Opens per second in the long run, of so many processes together.
    pub(super) fn sustained(&self, processes: u64) -> f64 {
        let processes = processes as f64;
        let bucket = if self.is_shared { self.rate } else { self.rate * processes };
        bucket + self.share * processes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_of_the_rate_belongs_to_the_slots() {
        let budget = Budget::of(&Fleet::of(4, 20, 2, 50));
        assert_eq!((budget.rate, budget.burst), (80.0, 550.0));
        assert!((budget.share - 20.0 * 106.0 / 10_000.0).abs() < 1e-9);
        assert!((budget.sustained(80) - 96.96).abs() < 1e-6);
    }

    #[test]
    fn a_share_saves_at_least_one_permit() {
        let saved = |connections| Budget::of(&Fleet::of(1, 10, 1, connections)).saved;
        assert_eq!([10, 100].map(saved), [1.0, 2.1]);
    }

    #[test]
    fn without_a_ledger_there_are_no_shares() {
        let fleet = Fleet { leases: None, ..Fleet::of(1, 10, 1, 10) };
        assert_eq!(
            Budget::of(&fleet),
            Budget { is_shared: true, rate: 100.0, burst: 750.0, share: 0.0, saved: 0.0 }
        );
        let window = Fleet { sharing: Some(RateMode::Window), ..Fleet::default() };
        assert_eq!(
            Budget::of(&window),
            Budget { is_shared: true, rate: 100.0, burst: 100.0, share: 0.0, saved: 0.0 }
        );
        let local = Fleet { sharing: None, ..Fleet::default() };
        assert_eq!(Budget::of(&local).sustained(3), 30.0);
    }
}
