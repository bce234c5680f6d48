//! The schedule of retirements, which retires the connections of a reservoir one by one.
//!
//! Random lifetimes spread retirements only as widely as their jitter: connections that were opened together
//! expire together. So a random lifetime is only the upper bound. The schedule divides time into periods,
//! slightly more of them per lifetime than there are connections. It books the latest free period before the
//! upper bound. If many connections are opened together, they fill the periods backwards from the last one,
//! and so spread over a whole lifetime.
//!
//! Two connections can still be retired together: if no period was free when one of them was opened (after
//! many deaths), if they were booked before and after a resize, or if both were lent when they were due and
//! are returned together.

use std::time::Duration;

use crate::sabotage::{self, Sabotage};
use crate::time::{Instant, nanos};

/// The booked period of a connection. [`RetirementSchedule::free`] frees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Period(u32);

#[derive(Debug)]
pub(super) struct RetirementSchedule {
    /// The length of a period, in nanoseconds.
    width: u64,
    /// The offset of this reservoir's periods, so that the reservoirs of a fleet alternate.
    phase: u64,
    /// A ring of periods, one bit each: set if it is booked.
    taken: Vec<u64>,
}

impl RetirementSchedule {
    /// A schedule for `connections`. Each is retired at most `longest` after its open, and normally at least
    /// `shortest` after it. `fraction` sets the phase, as a fraction of a period in units of 2^-64, by a
    /// clock that is `ahead` nanoseconds ahead of ours.
    pub(super) fn new(
        connections: usize,
        shortest: Duration,
        longest: Duration,
        fraction: u64,
        ahead: u64,
    ) -> Self {
        // A tenth more periods than connections: one is free within the lifetime even if all connections are
        // booked.
        let periods = (connections as u64 + connections as u64 / 10 + 1).max(2);
        // If the guard window takes almost the whole lifetime, periods are wider, which limits the size of
        // the ring.
        let width = (nanos(shortest) / periods).max(nanos(longest) / (8 * periods)).max(1);
        // Two words of slack, so that a past period is never mistaken for the last one ahead.
        let words = (nanos(longest) / width) / 64 + 3;
        let taken = vec![0; usize::try_from(words).unwrap_or(usize::MAX)];
        let within = u64::try_from((u128::from(fraction) * u128::from(width)) >> 64).unwrap_or(0);
        let phase = (within + width - ahead % width) % width;
        Self { width, phase, taken }
    }

    /// Books the latest free period that begins after `now` and not after `latest`, and returns its start. If
    /// none is free, the connection is retired at `latest`, without a period.
    pub(super) fn book(&mut self, now: Instant, latest: Instant) -> (Instant, Option<Period>) {
        if sabotage::is_on(Sabotage::RetirementSchedule) {
            return (latest, None);
        }
        let (first, last) = (self.period_at(now) + 1, self.period_at(latest));
        let mut period = last;
        while period >= first {
            let (word, bit) = self.place(period);
            // The free periods of this word up to this one, in the high bits.
            let free = !self.taken[word] << (63 - bit);
            let skip = u64::from(free.leading_zeros());
            if skip > u64::from(bit) {
                // There is none: continue at the top of the word below.
                period = period.saturating_sub(u64::from(bit) + 1);
                continue;
            }
            period -= skip;
            if period < first {
                break;
            }
            let (word, bit) = self.place(period);
            self.taken[word] |= 1 << bit;
            let begins = Instant::from_nanos(period * self.width + self.phase);
            #[allow(
                clippy::cast_possible_truncation,
                reason = "a ring of a million periods has 32-bit places"
            )]
            return (begins, Some(Period((word as u32) * 64 + bit)));
        }
        (latest, None)
    }

    pub(super) fn free(&mut self, period: Period) {
        self.taken[period.0 as usize / 64] &= !(1 << (period.0 % 64));
    }

    /// The number of the period at `at`, counted from the origin of time.
    fn period_at(&self, at: Instant) -> u64 {
        at.as_nanos().saturating_sub(self.phase) / self.width
    }

    /// The position of a period in the ring.
    fn place(&self, period: u64) -> (usize, u32) {
        let word = (period / 64) % self.taken.len() as u64;
        (usize::try_from(word).unwrap_or(0), (period % 64) as u32)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::seed::Seed;

    const START: Instant = Instant::from_nanos(3_600_000_000_000);

    fn minutes(n: u64) -> Duration {
        Duration::from_secs(60 * n)
    }

    #[test]
    fn a_rush_is_spread_over_a_whole_life() {
        let mut schedule = RetirementSchedule::new(1000, minutes(54), minutes(56), 7, 0);
        let mut rng = Seed::new(1).rng();
        let mut booked: Vec<Instant> = (0..1000u64)
            .map(|i| {
                let now = START + Duration::from_millis(10 * i);
                let latest = now + minutes(54) + rng.up_to(minutes(2));
                let (at, period) = schedule.book(now, latest);
                assert!(period.is_some() && at > now && at <= latest);
                at
            })
            .collect();
        booked.sort();
        let gaps: Vec<u128> = booked.windows(2).map(|pair| pair[1].since(pair[0]).as_millis()).collect();
        let width = minutes(54).as_millis() / 1101;
        assert!(gaps.iter().all(|gap| *gap >= width), "no two share a period");
        let span = booked[999].since(booked[0]);
        assert!(span > minutes(48), "spread over {span:?}");
    }

    #[test]
    fn the_later_generations_keep_their_distance() {
        let mut schedule = RetirementSchedule::new(100, minutes(10), minutes(12), 3, 0);
        let mut rng = Seed::new(2).rng();
        let mut booked: BTreeSet<(Instant, u32)> = BTreeSet::new();
        for _ in 0..100 {
            let (at, period) = schedule.book(START, START + minutes(10) + rng.up_to(minutes(2)));
            booked.insert((at, period.unwrap().0));
        }
        let mut last = START;
        for _ in 0..2000 {
            let (at, period) = booked.pop_first().unwrap();
            assert!(at.since(last) >= Duration::from_millis(5400) || last == START, "{at:?} after {last:?}");
            last = at;
            schedule.free(Period(period));
            let (next, period) = schedule.book(at, at + minutes(10) + rng.up_to(minutes(2)));
            booked.insert((next, period.expect("a tenth of the periods is spare").0));
        }
    }

    #[test]
    fn without_a_free_period_the_drawn_life_holds() {
        let mut schedule = RetirementSchedule::new(1, minutes(1), minutes(1), 0, 0);
        let latest = START + minutes(1);
        let periods = std::iter::from_fn(|| schedule.book(START, latest).1).count();
        assert_eq!(periods, 2, "one connection gets two periods");
        assert_eq!(schedule.book(START, latest), (latest, None));
        assert_eq!(schedule.book(latest, START), (START, None), "a draw in the past is due at once");
    }

    #[test]
    fn the_phase_follows_the_shared_clock() {
        let day = minutes(24 * 60);
        for ahead in [Duration::ZERO, Duration::from_millis(1234), day] {
            let half = RetirementSchedule::new(10, minutes(1), minutes(2), 1 << 63, nanos(ahead));
            let shared = (half.phase + nanos(ahead)) % half.width;
            assert_eq!(shared, half.width / 2, "{ahead:?}");
        }
    }

    proptest! {
        /// Compared with a plain set of period numbers: it always books the latest free one.
        #[test]
        fn books_the_latest_free_period(
            connections in 1usize..200,
            steps in prop::collection::vec((0u64..5_000, 0u64..60_000, any::<bool>()), 1..300),
        ) {
            let (shortest, longest) = (minutes(1), minutes(2));
            let mut schedule = RetirementSchedule::new(connections, shortest, longest, u64::MAX / 3, 0);
            let (width, phase) = (schedule.width, schedule.phase);
            let mut held: BTreeSet<u64> = BTreeSet::new();
            let mut periods: Vec<(u64, Period)> = Vec::new();
            let mut now = START;
            for (pause, extra, give_back) in steps {
                now = now + Duration::from_millis(pause);
                let number = |at: Instant| (at.as_nanos() - phase) / width;
                // Past periods have been retired by the expiry task.
                periods.retain(|(held_period, period)| {
                    let keep = *held_period > number(now);
                    if !keep { schedule.free(*period); held.remove(held_period); }
                    keep
                });
                if give_back && !periods.is_empty() {
                    let (held_period, period) = periods.swap_remove(periods.len() / 2);
                    schedule.free(period);
                    held.remove(&held_period);
                    continue;
                }
                let latest = now + shortest + Duration::from_millis(extra);
                let expected = (number(now) + 1..=number(latest)).rev().find(|period| !held.contains(period));
                let (at, period) = schedule.book(now, latest);
                prop_assert_eq!(period.map(|_| number(at)), expected);
                prop_assert!(at <= latest);
                if let (Some(number), Some(period)) = (expected, period) {
                    held.insert(number);
                    periods.push((number, period));
                }
            }
        }
    }
}
