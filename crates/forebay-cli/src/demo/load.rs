//! Callers, coming by a plan that does not care how they are served.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use forebay::rt::Runtime;
use forebay::{Instant, Rng, Seed};

use super::scenario::Scenario;

/// When callers come, and what each asks for. The same seed gives the same plan.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    scenario: Scenario,
    rng: Rng,
    now: Duration,
    end: Duration,
}

/// One caller of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    /// When it comes, from the start of the plan.
    pub(super) at: Duration,
    pub(super) query_time: Duration,
}

impl Plan {
    pub(super) fn new(scenario: Scenario, seed: Seed, length: Duration) -> Self {
        Self { scenario, rng: seed.fork("load").rng(), now: Duration::ZERO, end: length }
    }

    /// Calls `arrive` with each caller when it is due, until the plan is done or the other end of `stop` is dropped.
    ///
    /// It blocks, so it wants a thread of its own: tokio's timers are good to a millisecond, and that would be most
    /// of what is measured here.
    pub(super) fn play(
        self,
        runtime: &dyn Runtime,
        start: Instant,
        stop: &Receiver<()>,
        mut arrive: impl FnMut(Instant, Arrival),
    ) {
        for arrival in self {
            let due_at = start + arrival.at;
            let early = due_at.since(runtime.now());
            if stop.recv_timeout(early) == Err(RecvTimeoutError::Disconnected) {
                return;
            }
            arrive(due_at, arrival);
        }
    }
}

impl Iterator for Plan {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        let Scenario { callers_per_second, rush, query_time, .. } = self.scenario;
        let per_second = if rush.is_on(self.now) { rush.callers_per_second } else { callers_per_second };
        // From none to twice the mean.
        self.now += self.rng.up_to(Duration::from_secs(2) / per_second);
        let query_time = query_time.draw(&mut self.rng);
        (self.now < self.end).then_some(Arrival { at: self.now, query_time })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use forebay::rt::VirtualTime;

    use super::*;

    fn plan(seed: u64) -> Plan {
        Plan::new(Scenario::DEMO, Seed::new(seed), Duration::from_secs(10))
    }

    #[test]
    fn the_same_seed_gives_the_same_plan() {
        assert!(plan(1).eq(plan(1)));
        assert!(!plan(1).eq(plan(2)));
    }

    #[test]
    fn callers_come_at_the_rate_of_the_hour() {
        let in_second = |from: u64| {
            let (from, to) = (Duration::from_millis(from), Duration::from_millis(from + 1000));
            plan(1).filter(|arrival| from <= arrival.at && arrival.at < to).count()
        };
        let near = |count: usize, expected: usize| count.abs_diff(expected) < expected / 10;
        assert!(near(in_second(500), 2_500), "{}", in_second(500));
        assert!(near(in_second(3_000), 500), "{}", in_second(3_000));
        assert!(plan(1).last().is_some_and(|last| last.at < Duration::from_secs(10)));
    }

    #[test]
    fn a_plan_is_played_to_its_end_or_until_it_is_stopped() {
        // In virtual time the start lies so far back that every caller is due.
        let time = VirtualTime::new();
        let (stop, stopped) = mpsc::channel();
        let mut came = 0;
        plan(1).play(&time, Instant::ZERO, &stopped, |due_at, arrival| {
            assert_eq!(due_at, Instant::ZERO + arrival.at);
            came += 1;
        });
        assert_eq!(came, plan(1).count());
        drop(stop);
        plan(1).play(&time, Instant::ZERO, &stopped, |_, _| panic!("it was stopped"));
    }
}
