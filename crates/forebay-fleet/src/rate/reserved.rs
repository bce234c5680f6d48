//! Permits that were reserved in the table, and that no caller has.

use std::collections::BTreeSet;
use std::time::Duration;

use forebay::Instant;
use forebay::rt::Runtime;

use crate::bucket::PERMIT_LIFE;
use crate::store::TIMEOUT;

/// When a permit is valid, by the time of day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Period {
    pub(crate) from: Duration,
    pub(crate) until: Duration,
}

/// A reserved permit: when it is valid, and a number that keeps equal ones apart.
///
/// The end is fixed when the permit is requested. The table counts the permit at that time and grants others
/// meanwhile, so it must not become valid longer because the answer was slow or the process was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ReservedPermit {
    pub(super) from: Instant,
    pub(super) until: Instant,
    number: u64,
}

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// The reading of the clock before that of the time of day, and the one after: the process may be stopped in between.
    before: Instant,
    after: Instant,
    pub(super) wall: Duration,
}

impl Moment {
    pub(super) fn read(runtime: &dyn Runtime) -> Self {
        let (before, wall) = (runtime.now(), runtime.wall());
        Self { before, after: runtime.now(), wall }
    }

    #[cfg(test)]
    pub(super) fn at(now: Instant, wall: Duration) -> Self {
        Self { before: now, after: now, wall }
    }

    /// So much later.
    pub(super) fn later(self, by: Duration) -> Self {
        Self { before: self.before + by, after: self.after + by, wall: self.wall + by }
    }

    /// The earliest and the latest moment at which a permit of `period` may be used. If the process was stopped between the
    /// readings, they are closer to each other: each is on the safe side.
    fn bounds(self, period: Period) -> (Instant, Instant) {
        let of = |at: Instant, time: Duration| at + time.saturating_sub(self.wall);
        (of(self.after, period.from), of(self.before, period.until))
    }
}

/// The reserved permits of a process.
#[derive(Debug, Default)]
pub(super) struct ReservedPermits {
    permits: BTreeSet<ReservedPermit>,
    numbers: u64,
}

impl ReservedPermits {
    /// Adds permits that were requested at `sent`. Returns when the last of them is due.
    pub(super) fn reserve(&mut self, sent: Moment, periods: Vec<Period>) -> Option<Instant> {
        let add = |period| {
            self.numbers += 1;
            let (from, until) = sent.bounds(period);
            self.permits.insert(ReservedPermit { from, until, number: self.numbers });
            from
        };
        periods.into_iter().map(add).max()
    }

    /// Gives a permit to the next caller.
    pub(super) fn give_back(&mut self, permit: ReservedPermit) {
        self.permits.insert(permit);
    }

    /// Takes the first permit that has not lapsed, if it is due by `deadline`.
    pub(super) fn take(&mut self, now: Instant, deadline: Instant) -> Option<ReservedPermit> {
        while let Some(permit) = self.permits.first().copied().filter(|permit| permit.from <= deadline) {
            self.permits.pop_first();
            if now <= permit.until {
                return Some(permit);
            }
        }
        None
    }

    pub(super) fn is_empty(&self) -> bool {
        self.permits.is_empty()
    }

    /// Permits that are due by `then`.
    pub(super) fn due_by(&self, then: Instant) -> u64 {
        self.permits.iter().take_while(|permit| permit.from <= then).count() as u64
    }
}

/// How long the last two requests took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RequestTimes([Duration; 2]);

impl RequestTimes {
    pub(super) fn took(&mut self, time: Duration) {
        self.0 = [self.0[1], time];
    }

    /// For how much later permits are requested: not at all, unless the table is so slow that permits would lapse before
    /// the answer. One slow answer may be a pause of this process, which says nothing about the next one.
    pub(super) fn lead(self) -> Duration {
        let [before, last] = self.0;
        let usual = before.min(last).min(TIMEOUT);
        if usual > PERMIT_LIFE / 2 { usual } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay::rt::{Starved, Task, VirtualTime};

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn period(from: u64, until: u64) -> Period {
        Period { from: Duration::from_millis(from), until: Duration::from_millis(until) }
    }

    #[test]
    fn permits_are_taken_in_order_until_they_lapse() {
        let mut reserved = ReservedPermits::default();
        let sent = Moment::at(at(10_000), Duration::from_millis(500));
        let last = reserved.reserve(sent, vec![period(900, 1900), period(100, 1500), period(100, 1500)]);
        assert_eq!(last, Some(at(10_400)));
        assert_eq!((reserved.due_by(at(10_000)), reserved.due_by(at(10_400))), (2, 3));
        let first = reserved.take(at(10_100), at(10_100)).unwrap();
        assert_eq!((first.from, first.until), (at(10_000), at(11_000)));
        assert_eq!(reserved.take(at(11_001), at(10_300)), None, "one has lapsed, one is too late");
        reserved.give_back(first);
        assert_eq!(reserved.take(at(11_000), at(11_000)), Some(first), "to the end of its time");
        assert_eq!(reserved.take(at(11_400), at(11_400)).map(|permit| permit.until), Some(at(11_400)));
        assert!(reserved.is_empty());
    }

    /// A machine that stops whenever the time of day is read.
    #[derive(Debug)]
    struct Stops(VirtualTime);

    impl Runtime for Stops {
        fn now(&self) -> Instant {
            self.0.now()
        }
        fn wall(&self) -> Duration {
            let before = self.0.wall();
            self.0.skip(Duration::from_secs(3));
            before
        }
        fn sleep_until(&self, at: Instant) -> Task {
            self.0.sleep_until(at)
        }
        fn spawn(&self, task: Task) {
            self.0.spawn(task);
        }
        fn entropy(&self) -> u64 {
            self.0.entropy()
        }
        fn block(&self, wait: &mut dyn FnMut()) -> Result<(), Starved> {
            self.0.block(wait)
        }
    }

    #[test]
    fn a_stop_between_two_readings_makes_no_permit_valid_too_early_or_too_late() {
        let time = VirtualTime::new();
        let (began, wall) = (time.now(), time.wall());
        let sent = Moment::read(&Stops(time));
        let second = Duration::from_secs(1);
        let (from, until) = sent.bounds(Period { from: wall + 5 * second, until: wall + 6 * second });
        assert!(from >= began + 5 * second && until <= began + 6 * second, "{from:?} to {until:?}");
    }

    #[test]
    fn permits_are_requested_ahead_once_two_answers_were_slow() {
        let (mut times, second) = (RequestTimes::default(), Duration::from_secs(1));
        times.took(60 * second);
        assert_eq!(times.lead(), Duration::ZERO, "one slow answer");
        times.took(2 * second);
        assert_eq!(times.lead(), 2 * second);
        times.took(60 * second);
        times.took(60 * second);
        assert_eq!(times.lead(), TIMEOUT, "no call takes longer");
        times.took(second / 4);
        assert_eq!(times.lead(), Duration::ZERO);
    }
}
