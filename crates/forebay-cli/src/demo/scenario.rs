//! The demo's scenario: what the cluster allows, when callers come, and how figures read.
//!
//! The clock runs about forty times as fast as in production: a cluster of Aurora DSQL takes 100 s to accept the
//! 10,000 connections that a fleet may hold, and ends a session after an hour. This one takes 2.4 s for its sixty, and ends a
//! session after 90 s.

use std::ops::Range;
use std::time::Duration;

use forebay::{Rng, Seed};
use forebay_sim::grouped;

use super::incident::Script;

// The cluster.
pub(super) const OPENS_PER_SECOND: u32 = 25;
/// Opens at once after a quiet time.
pub(super) const BURST: u32 = 10;
/// The most connections at a time: those of both other instances, of one that was killed, and of its successor.
pub(super) const CAP: u32 = 80;
/// How much longer an open takes than on this machine alone: a cluster is some round trips away.
pub(super) const OPEN_DELAY: Duration = Duration::from_millis(30);
pub(super) const SESSION_LIFE: Duration = Duration::from_secs(90);

// Both sides.
pub(super) const INSTANCES: usize = 3;
pub(super) const CONNECTIONS_EACH: usize = 20;
pub(super) const CONNECTIONS: usize = INSTANCES * CONNECTIONS_EACH;
/// The one that is killed.
pub(super) const VICTIM: usize = 1;
pub(super) const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(3);
/// An acquire that took longer was slow.
pub(super) const SLOW: Duration = Duration::from_millis(5);

// The callers: three connections are in use in quiet times, and forty in a rush. Without rushes a plain pool would not
// need sixty, and would do well.
pub(super) const CALLERS_PER_SECOND: u32 = 60;
pub(super) const RUSH_CALLERS_PER_SECOND: u32 = 800;
/// How long a caller keeps its connection: a query, and this time.
pub(super) const HOLD: Range<Duration> = Duration::from_millis(40)..Duration::from_millis(60);

/// One caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Caller {
    /// When it comes, from the start.
    pub(super) at: Duration,
    pub(super) hold: Duration,
    /// The instance that it goes to.
    pub(super) instance: usize,
}

pub(super) fn draw(rng: &mut Rng, range: &Range<Duration>) -> Duration {
    range.start + rng.up_to(range.end - range.start)
}

/// The callers of a run. The same seed gives the same callers.
pub(super) fn callers(seed: Seed, length: Duration) -> impl Iterator<Item = Caller> {
    let script = Script::new(length);
    let mut rng = seed.fork("load").rng();
    let mut at = Duration::ZERO;
    std::iter::from_fn(move || {
        let per_second = if script.is_rush(at) { RUSH_CALLERS_PER_SECOND } else { CALLERS_PER_SECOND };
        // From none to twice the mean.
        at += rng.up_to(Duration::from_secs(2) / per_second);
        let hold = draw(&mut rng, &HOLD);
        let instance = usize::try_from(rng.below(INSTANCES as u64)).unwrap_or(0);
        (at < length).then_some(Caller { at, hold, instance })
    })
}

/// The scenario in words, on one line.
pub(super) fn line() -> String {
    format!(
        "cluster: {OPENS_PER_SECOND} opens a second, burst {BURST}, sessions end after {}; {INSTANCES} instances of \
         {CONNECTIONS_EACH} connections; {} callers a second, and a rush of {} after each incident",
        seconds(SESSION_LIFE),
        grouped(CALLERS_PER_SECOND.into()),
        grouped(RUSH_CALLERS_PER_SECOND.into()),
    )
}

/// A wait, in milliseconds: three digits are enough.
pub(super) fn millis(wait: Duration) -> String {
    let millis = wait.as_secs_f64() * 1e3;
    match millis {
        ..10.0 => format!("{millis:.2} ms"),
        10.0..100.0 => format!("{millis:.1} ms"),
        _ => format!("{} ms", grouped(wait.as_millis().try_into().unwrap_or(u64::MAX))),
    }
}

/// A length of time, in seconds, without zeros at the end.
pub(super) fn seconds(length: Duration) -> String {
    format!("{} s", length.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_callers() {
        let callers = |seed| callers(Seed::new(seed), Duration::from_secs(10));
        assert!(callers(1).eq(callers(1)));
        assert!(!callers(1).eq(callers(2)));
    }

    #[test]
    fn callers_come_at_the_planned_rate_to_every_instance() {
        let length = Duration::from_secs(40);
        let callers: Vec<_> = callers(Seed::new(1), length).collect();
        let near = |count: usize, expected: usize| count.abs_diff(expected) < expected / 10;
        let in_second = |from: u64| {
            let second = Duration::from_secs(from)..Duration::from_secs(from + 1);
            callers.iter().filter(|caller| second.contains(&caller.at)).count()
        };
        assert!(near(in_second(11), 800), "{}", in_second(11));
        assert!(near(in_second(3), 60) && near(in_second(5), 60), "{} {}", in_second(3), in_second(5));
        for instance in 0..INSTANCES {
            let count = callers.iter().filter(|caller| caller.instance == instance).count();
            assert!(near(count, callers.len() / INSTANCES), "{count} of {}", callers.len());
        }
        assert!(callers.iter().all(|caller| {
            caller.at < length && (HOLD.contains(&caller.hold) || caller.hold == HOLD.end)
        }));
    }

    #[test]
    fn there_are_enough_connections_for_all_callers() {
        let busy = |per_second: u32| f64::from(per_second) * HOLD.end.as_secs_f64();
        let rush = busy(RUSH_CALLERS_PER_SECOND);
        assert!(rush * 1.2 <= CONNECTIONS as f64, "{rush} are in use in a rush, at most");
        // While one instance is down.
        let quiet = busy(CALLERS_PER_SECOND);
        assert!(quiet * 4.0 <= (CONNECTIONS - CONNECTIONS_EACH) as f64, "{quiet} are in use, at most");
        // To replace each connection once in its life takes a part of the rate.
        let opens_per_second = CONNECTIONS as f64 / (SESSION_LIFE.as_secs_f64() - 20.0);
        assert!(opens_per_second * 20.0 < f64::from(OPENS_PER_SECOND), "{opens_per_second}");
    }

    #[test]
    fn waits_have_three_digits() {
        let read = [96, 9_994, 10_060, 99_940, 1_002_495].map(|micros| millis(Duration::from_micros(micros)));
        assert_eq!(read, ["0.10 ms", "9.99 ms", "10.1 ms", "99.9 ms", "1,002 ms"]);
    }

    #[test]
    fn seconds_have_no_zeros_at_the_end() {
        assert_eq!([1_000, 7_250].map(|ms| seconds(Duration::from_millis(ms))), ["1 s", "7.25 s"]);
    }
}
