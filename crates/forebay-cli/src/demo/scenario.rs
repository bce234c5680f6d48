//! The demo's scenario: what the server allows, when callers come, and how figures read.
//!
//! The clock runs fast: a session ends after eight seconds, where Aurora DSQL ends it after an hour. The rate
//! is a small share of a fleet's limit; it is not to the same scale.

use std::ops::Range;
use std::time::Duration;

use forebay::{Rng, Seed};
use forebay_sim::grouped;

// The server.
pub(super) const OPENS_PER_SECOND: u32 = 25;
/// Opens at once after a quiet time.
pub(super) const BURST: u32 = 10;
pub(super) const OPEN_TIME: Range<Duration> = Duration::from_millis(20)..Duration::from_millis(60);
pub(super) const REFUSAL_TIME: Duration = Duration::from_millis(5);
pub(super) const SESSION_LIFE: Duration = Duration::from_secs(8);

// Both sides. Of sixty connections, eight are in use in quiet times and forty in a rush. To replace each of
// the sixty once in its life takes ten opens a second, of twenty-five.
pub(super) const CONNECTIONS: usize = 60;
pub(super) const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(1);
/// An acquire that took longer was slow.
pub(super) const SLOW: Duration = Duration::from_millis(5);

// The callers. The first rush comes while all connections are new: both sides take it well. From then on
// there is one in each session life. Every 4 s to every 12 s were tried: the pool fails callers in each.
// Without a rush it fails none, and is only slow for callers whose session has ended and who have to open
// another.
pub(super) const CALLERS_PER_SECOND: u32 = 500;
pub(super) const RUSH_CALLERS_PER_SECOND: u32 = 2_500;
pub(super) const FIRST_RUSH: Duration = Duration::from_millis(500);
/// From the beginning of one rush to the beginning of the next.
pub(super) const RUSH_EVERY: Duration = Duration::from_secs(8);
pub(super) const RUSH_LASTS: Duration = Duration::from_secs(1);
pub(super) const QUERY_TIME: Range<Duration> = Duration::from_millis(12)..Duration::from_millis(20);

pub(super) fn draw(rng: &mut Rng, range: &Range<Duration>) -> Duration {
    range.start + rng.up_to(range.end - range.start)
}

fn is_rush(at: Duration) -> bool {
    at.checked_sub(FIRST_RUSH)
        .is_some_and(|since| since.as_nanos() % RUSH_EVERY.as_nanos() < RUSH_LASTS.as_nanos())
}

/// Each caller: when it comes, from the start, and how long its query takes. The same seed gives the same
/// callers.
pub(super) fn callers(seed: Seed, length: Duration) -> impl Iterator<Item = (Duration, Duration)> {
    let mut rng = seed.fork("load").rng();
    let mut at = Duration::ZERO;
    std::iter::from_fn(move || {
        let per_second = if is_rush(at) { RUSH_CALLERS_PER_SECOND } else { CALLERS_PER_SECOND };
        // From none to twice the mean.
        at += rng.up_to(Duration::from_secs(2) / per_second);
        let query_time = draw(&mut rng, &QUERY_TIME);
        (at < length).then_some((at, query_time))
    })
}

/// The scenario in words, on one line.
pub(super) fn line() -> String {
    format!(
        "server: {OPENS_PER_SECOND} opens a second, burst {BURST}, sessions end after {}; callers: {} a second, and \
         every {} a rush of {}",
        seconds(SESSION_LIFE),
        grouped(CALLERS_PER_SECOND.into()),
        seconds(RUSH_EVERY),
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
    fn callers_come_at_the_planned_rate() {
        let callers: Vec<_> = callers(Seed::new(1), Duration::from_secs(10)).collect();
        let in_second = |from: u64| {
            let from = Duration::from_millis(from);
            callers.iter().filter(|(at, _)| from <= *at && *at < from + Duration::from_secs(1)).count()
        };
        let near = |count: usize, expected: usize| count.abs_diff(expected) < expected / 10;
        assert!(near(in_second(500), 2_500), "{}", in_second(500));
        assert!(near(in_second(3_000), 500), "{}", in_second(3_000));
        assert!(callers.iter().all(|(at, query_time)| {
            *at < Duration::from_secs(10)
                && (QUERY_TIME.contains(query_time) || *query_time == QUERY_TIME.end)
        }));
    }

    #[test]
    fn rushes_come_and_go() {
        let on = |millis| is_rush(Duration::from_millis(millis));
        assert!(!on(0) && !on(499) && on(500) && on(1_499) && !on(1_500) && !on(8_499) && on(8_500));
    }

    #[test]
    fn the_reservoir_has_room_to_spare() {
        let busy = f64::from(RUSH_CALLERS_PER_SECOND) * QUERY_TIME.end.as_secs_f64();
        assert!(busy * 1.2 <= CONNECTIONS as f64, "{busy} are busy in a rush, at most");
        // A connection is retired well before its session ends.
        let opens_per_second = CONNECTIONS as f64 / (SESSION_LIFE.as_secs_f64() - 2.5);
        assert!(opens_per_second * 2.0 < f64::from(OPENS_PER_SECOND), "{opens_per_second}");
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
