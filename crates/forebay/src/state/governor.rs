//! Controls how many opens are in flight, and pauses them after failures.
//!
//! While opens succeed, the limiter alone sets the rate. The governor keeps just enough opens in flight to
//! use that rate, and slows down while they fail.

use std::time::Duration;

use crate::backoff;
use crate::event::Failure;
use crate::limit::Pace;
use crate::seed::Rng;
use crate::time::Instant;

/// The assumed duration of an open before one has completed.
const ASSUMED_OPEN_TIME: Duration = Duration::from_millis(100);
/// The smallest share of the rate that remains after reports of overload.
const LEAST_SHARE: f64 = 1.0 / 64.0;
/// The share of the rate that returns per second without reports of overload.
const RECOVERY_PER_SECOND: f64 = 0.05;

#[derive(Debug)]
pub(super) struct Governor {
    inflight_limit: usize,
    /// The longest pause, for any failure.
    max_backoff: Duration,
    /// The moving average of the duration of an open, without the wait for its permit.
    open_time: Option<Duration>,
    /// Failures in a row, for each reason.
    attempts: [u32; Failure::ALL.len()],
    /// No open starts before this time.
    resume_at: Instant,
    /// Opens that started before this time belong to the same outage as the failure that caused the pause.
    paused_at: Instant,
    /// After a failure, one open at a time is allowed until one succeeds.
    proving: bool,
    /// The share of the limiter's rate that is used. It is below one after the server reported overload.
    share: f64,
    share_changed: Instant,
    rng: Rng,
}

/// Whether another open may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MayStart {
    Now,
    /// Not before this time. `NEVER`: not before one of those in flight completes.
    At(Instant),
}

impl Governor {
    pub(super) fn new(inflight_limit: usize, max_backoff: Option<Duration>, rng: Rng) -> Self {
        Self {
            inflight_limit,
            max_backoff: max_backoff.unwrap_or(Duration::MAX),
            open_time: None,
            attempts: [0; Failure::ALL.len()],
            resume_at: Instant::ZERO,
            paused_at: Instant::ZERO,
            proving: false,
            share: 1.0,
            share_changed: Instant::ZERO,
            rng,
        }
    }

    /// Whether another open may start while `inflight` are in flight.
    pub(super) fn may_start(&self, now: Instant, pace: Pace, inflight: usize) -> MayStart {
        if now < self.resume_at {
            return MayStart::At(self.resume_at);
        }
        if inflight >= self.allowance(pace) {
            return MayStart::At(Instant::NEVER);
        }
        MayStart::Now
    }

    /// An open starts. After a report of overload, the next one must keep a distance.
    pub(super) fn started(&mut self, now: Instant, pace: Pace) {
        if self.share < 1.0 {
            let rate = pace.per_second * self.share;
            // A limiter whose rate is NaN counts as slow.
            let interval = 1.0 / if rate.is_nan() { 1.0 } else { rate.clamp(1e-3, 1e6) };
            self.resume_at = self.resume_at.max(now + Duration::from_secs_f64(interval));
        }
    }

    /// How many opens may be in flight: as many as the rate needs for the duration of an open, plus those
    /// that need no wait for a permit.
    fn allowance(&self, pace: Pace) -> usize {
        if self.proving {
            return 1;
        }
        let open_time = self.open_time.unwrap_or(ASSUMED_OPEN_TIME);
        // A quarter more than the average, since durations vary, and two that wait for the next permits.
        let steady = 1.25 * pace.per_second * self.share * open_time.as_secs_f64() + 2.0;
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "saturates, and is clamped"
        )]
        let steady = steady.ceil() as usize;
        steady.saturating_add(pace.at_once as usize).clamp(1, self.inflight_limit)
    }

    /// An open succeeded. `took` does not include the wait for its permit.
    pub(super) fn succeeded(&mut self, now: Instant, took: Duration) {
        self.open_time = Some(match self.open_time {
            None => took,
            // It grows fast and shrinks slowly: too few opens in flight reduce the rate, while too many only
            // wait.
            Some(average) if took > average => average + (took - average) / 4,
            Some(average) => average - (average - took) / 16,
        });
        self.attempts = [0; Failure::ALL.len()];
        self.proving = false;
        let calm = now.since(self.share_changed).min(Duration::from_secs(1)).as_secs_f64();
        self.share = (self.share + RECOVERY_PER_SECOND * calm).min(1.0);
        self.share_changed = now;
    }

    /// There was no free lease, and a connection was closed to free one. Its replacement follows soon.
    pub(super) fn made_room(&mut self, now: Instant) -> (u32, Duration) {
        self.attempts[Failure::LeaseLimit.index()] = 1;
        self.pause(now, 1, Failure::LeaseLimit);
        (1, self.resume_at.since(now))
    }

    /// An open that ignored the pause has succeeded. So the pause ends.
    pub(super) fn end_pause(&mut self, now: Instant) {
        self.resume_at = self.resume_at.min(now);
    }

    /// How long no open starts. `None` if one may start now.
    pub(super) fn paused_for(&self, now: Instant) -> Option<Duration> {
        (now < self.resume_at).then(|| self.resume_at.since(now))
    }

    /// The share of the limiter's rate that is used.
    pub(super) fn rate_share(&self) -> f64 {
        self.share
    }

    /// Whether opens are slower than the limiter allows, because the server reported overload.
    pub(super) fn is_slowed(&self) -> bool {
        self.share < 1.0
    }

    fn pause(&mut self, now: Instant, attempts: u32, failure: Failure) -> Duration {
        let longest = failure.max_backoff().min(self.max_backoff);
        let pause = backoff::pause(attempts, backoff::FIRST, longest, &mut self.rng);
        // A longer pause for another reason remains.
        self.resume_at = self.resume_at.max(now + pause);
        self.paused_at = now;
        self.proving = true;
        pause
    }

    /// An open that started at `began` failed. Returns the number of failures in a row, and the pause that
    /// follows.
    pub(super) fn failed(&mut self, now: Instant, began: Instant, failure: Failure) -> (u32, Duration) {
        let attempts = &mut self.attempts[failure.index()];
        if began <= self.paused_at {
            // Many opens that were in flight together fail in one outage. They count as one failure.
            return ((*attempts).max(1), self.resume_at.since(now));
        }
        *attempts = attempts.saturating_add(1);
        let attempts = *attempts;
        let pause = self.pause(now, attempts, failure);
        if failure.is_pushback() {
            self.share = (self.share / 2.0).max(LEAST_SHARE);
            self.share_changed = now;
        }
        (attempts, pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Seed;

    const START: Instant = Instant::from_nanos(1_000_000_000_000);
    const PACE: Pace = Pace { per_second: 100.0, at_once: 0 };

    fn governor() -> Governor {
        Governor::new(64, None, Seed::new(1).rng())
    }

    fn millis(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn enough_are_in_flight_to_use_the_rate() {
        let mut governor = governor();
        assert_eq!(governor.allowance(PACE), 15, "100 ms assumed");
        governor.succeeded(START, millis(330));
        assert_eq!(governor.allowance(PACE), 44);
        governor.succeeded(START, millis(730));
        assert_eq!(governor.allowance(PACE), 56, "up by a quarter of the difference");
        governor.succeeded(START, millis(30));
        assert_eq!(governor.allowance(PACE), 53, "down by a sixteenth");
        assert_eq!(
            governor.allowance(Pace { per_second: 100.0, at_once: 1000 }),
            64,
            "never above the limit"
        );
        assert_eq!(Governor::new(1, None, Seed::new(1).rng()).allowance(PACE), 1);
        for _ in 0..200 {
            governor.succeeded(START, millis(30));
        }
        assert_eq!(governor.allowance(PACE), 6, "down to what opens take now");
    }

    #[test]
    fn no_open_starts_while_the_allowance_is_in_flight() {
        let governor = governor();
        assert_eq!(governor.may_start(START, PACE, 14), MayStart::Now);
        assert_eq!(governor.may_start(START, PACE, 15), MayStart::At(Instant::NEVER));
    }

    #[test]
    fn pauses_double_to_a_ceiling_and_end_with_success() {
        let mut governor = governor();
        let mut now = START;
        let mut pauses = Vec::new();
        for attempt in 1..=12 {
            let (attempts, pause) = governor.failed(now, now, Failure::Open);
            assert_eq!(attempts, attempt);
            assert_eq!(governor.may_start(now, PACE, 0), MayStart::At(now + pause));
            pauses.push(pause);
            now = now + pause;
            assert_eq!(governor.may_start(now, PACE, 0), MayStart::Now);
            assert_eq!(
                governor.may_start(now, PACE, 1),
                MayStart::At(Instant::NEVER),
                "one at a time until one succeeds"
            );
        }
        assert!(
            pauses[0] <= millis(250) && pauses[11] >= millis(5_000) && pauses[11] <= millis(10_000),
            "{pauses:?}"
        );
        governor.succeeded(now, millis(100));
        assert_eq!(governor.may_start(now, PACE, 1), MayStart::Now);
        assert_eq!(governor.failed(now, now, Failure::Open).0, 1);
    }

    #[test]
    fn reasons_are_counted_apart() {
        let mut governor = governor();
        governor.failed(START, START, Failure::Open);
        governor.failed(START + millis(1), START + millis(1), Failure::Open);
        assert_eq!(governor.failed(START + millis(2), START + millis(2), Failure::Token).0, 1);
    }

    #[test]
    fn one_outage_is_one_step_however_many_were_in_flight() {
        let mut governor = governor();
        let later = START + millis(10);
        let (_, pause) = governor.failed(later, START, Failure::Open);
        for _ in 0..63 {
            assert_eq!(governor.failed(later, START, Failure::Open), (1, pause));
        }
        assert_eq!(governor.failed(later, START, Failure::Auth), (1, pause), "never a zeroth attempt");
        let since = later + millis(1);
        assert_eq!(governor.failed(since, since, Failure::Open).0, 2, "one that began since is news");
    }

    #[test]
    fn pushback_halves_the_rate_and_it_recovers_slowly() {
        let mut governor = governor();
        governor.failed(START, START, Failure::Throttled);
        let mut now = START + millis(30_000);
        governor.succeeded(now, millis(10));
        assert!(governor.share > 0.5 && governor.share < 0.6, "{}", governor.share);
        assert_eq!(governor.allowance(Pace { per_second: 1000.0, at_once: 0 }), 9, "fewer in flight, too");
        governor.started(now, PACE);
        let MayStart::At(next) = governor.may_start(now, PACE, 0) else { panic!("no distance kept") };
        assert!(next.since(now) > millis(15) && next.since(now) < millis(20), "{:?}", next.since(now));
        for _ in 0..100 {
            governor.succeeded(now, millis(10));
        }
        assert!(governor.share < 0.6, "by time, not by count");
        for _ in 0..10 {
            now = now + Duration::from_secs(1);
            governor.succeeded(now, millis(10));
        }
        assert!((governor.share - 1.0).abs() < 1e-9);
        governor.started(now, PACE);
        assert_eq!(governor.may_start(now, PACE, 0), MayStart::Now);
        for i in 0..20 {
            now = now + Duration::from_secs(i);
            governor.failed(now, now, Failure::TooManyConnections);
        }
        assert!((governor.share - LEAST_SHARE).abs() < 1e-9);
    }

    #[test]
    fn making_room_does_not_shorten_a_pause() {
        let mut governor = governor();
        let mut now = START;
        for _ in 0..8 {
            let (_, pause) = governor.failed(now, now, Failure::Throttled);
            now = now + pause;
        }
        let (_, pause) = governor.failed(now, now, Failure::Throttled);
        assert!(pause > millis(2_000), "{pause:?}");
        let later = now + millis(1);
        assert_eq!(governor.made_room(later).1, pause - millis(1));
        assert_eq!(governor.may_start(later, PACE, 0), MayStart::At(now + pause));
    }

    #[test]
    fn no_pause_is_longer_than_the_longest() {
        let mut governor = Governor::new(64, Some(millis(300)), Seed::new(1).rng());
        let mut now = START;
        for _ in 0..12 {
            now = now + millis(1000);
            let (_, pause) = governor.failed(now, now, Failure::Open);
            assert!(pause <= millis(300), "{pause:?}");
        }
    }

    #[test]
    fn other_failures_leave_the_rate_alone() {
        let mut governor = governor();
        governor.failed(START, START, Failure::Auth);
        assert!((governor.share - 1.0).abs() < 1e-9);
    }
}
