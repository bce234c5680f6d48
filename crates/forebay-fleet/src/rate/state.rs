//! The state of the rate limiter, and how many permits to reserve.

use std::time::Duration;

use forebay::{Instant, Pace, Rng};

use super::Source;
use super::allowance::Allowance;
use super::reserved::{RequestTimes, ReservedPermits};
use crate::bucket::PERMIT_LIFE;
use crate::store_outage::StoreOutage;

/// The most permits per request.
pub(super) const MAX_BATCH: u32 = 64;
/// A shorter wait for permits does not count as a queue. In a queue, an instance reserves again only when its last
/// permits are due.
pub(super) const QUEUE: Duration = Duration::from_millis(250);
/// The pace while the length of the queue is unknown.
const UNKNOWN_PACE: f64 = 10.0;

#[derive(Debug)]
pub(crate) struct State {
    pub(super) source: Box<dyn Source>,
    pub(super) allowance: Allowance,
    /// A ledger knows how many connections are to be opened.
    leased: bool,
    /// Reserved permits that no caller has.
    pub(super) reserved: ReservedPermits,
    /// Callers with neither a permit nor a reservation.
    pub(super) waiting: u32,
    pub(super) reserving: bool,
    pub(super) reserve_at: Instant,
    pub(super) request_times: RequestTimes,
    /// The wait for the last permit of the last reservation; while one is under way, the expected wait.
    pub(super) last_wait: Duration,
    /// When permits were last requested, and how many.
    last_batch: Option<(Instant, u32)>,
    pub(super) outage: StoreOutage,
    pub(super) rng: Rng,
}

impl State {
    pub(crate) fn new(source: Box<dyn Source>, allowance: Allowance, leased: bool, rng: Rng) -> Self {
        Self {
            source,
            allowance,
            leased,
            reserved: ReservedPermits::default(),
            waiting: 0,
            reserving: false,
            reserve_at: Instant::ZERO,
            request_times: RequestTimes::default(),
            last_wait: Duration::ZERO,
            last_batch: None,
            outage: StoreOutage::default(),
            rng,
        }
    }

    /// How long the queue was at the last request; none if that was too long ago.
    fn queue(&self, now: Instant) -> Option<Duration> {
        let (asked, _) = self.last_batch?;
        (now.since(asked) <= self.last_wait + PERMIT_LIFE).then_some(self.last_wait)
    }

    /// Permits to reserve at a time in a queue of this length: fewer in a longer queue. With n instances re-queuing,
    /// the queue settles just below sqrt(n) seconds at any rate: 13 s for 200 instances, with 17 requests a second. It
    /// has the same length after all have queued for the first time, so it neither grows nor breaks off.
    fn fair_batch(&self, queue: Duration) -> f64 {
        (0.75 * self.source.per_second() / queue.as_secs_f64()).max(1.0)
    }

    /// Whether a share of `slots` serves all callers, including the `spare` expected ones, sooner than the queue does.
    /// Then reserved permits would lapse. The queue may have become shorter, so half of it counts.
    pub(super) fn share_suffices(&self, now: Instant, spare: Option<u32>, slots: u64, limit: u64) -> bool {
        let (Some(queue), Some(spare)) = (self.queue(now), spare) else { return false };
        let need = u64::from(self.waiting.saturating_add(spare));
        queue > QUEUE && self.allowance.share.ready_by(now, now + queue / 2, slots, limit) >= need
    }

    /// How many permits to reserve: for all waiting callers, and for those expected because there are `spare` slots for
    /// them. So a burst takes few requests, and unused permits lapse. In a queue, at most a fair batch, and none for
    /// callers that a share of `slots` serves in the meantime.
    pub(super) fn batch(
        &mut self,
        now: Instant,
        wall: Duration,
        spare: Option<u32>,
        slots: u64,
        limit: u64,
    ) -> u32 {
        let (last_queue, waiting) = (self.queue(now), self.waiting);
        let queue = self.source.queue(wall).max(last_queue.unwrap_or_default());
        // Without a ledger, expect as many as at the last request, if that was recent.
        let last = self.last_batch.filter(|_| last_queue.is_some()).map_or(0, |(_, last)| last);
        let coming = spare.unwrap_or(last);
        let coming = if queue > QUEUE {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
            let batch = self.fair_batch(queue).ceil() as u32;
            let own = self.allowance.share.ready_by(now, now + queue, slots, limit);
            let coming = coming.saturating_sub(u32::try_from(own).unwrap_or(u32::MAX));
            coming.min(batch.saturating_sub(waiting))
        } else if waiting > 1 || last_queue.is_some() {
            coming
        } else {
            // A single caller replaces a single connection.
            0
        };
        let count = waiting.saturating_add(coming).clamp(1, MAX_BATCH.min(self.source.max_batch()));
        (self.last_batch, self.last_wait) = (Some((now, count)), queue);
        if spare.is_some() {
            // This request covers all known need. Later single callers share the next one.
            self.reserve_at = self.reserve_at.max(now + QUEUE);
        }
        count
    }

    /// How fast permits come, for an instance with `slots` of `limit`.
    pub(super) fn pace(&mut self, now: Instant, slots: u64, limit: u64) -> Pace {
        let full = self.source.per_second();
        let per_second = match self.queue(now) {
            // With a ledger, one request without a queue covers all: a few callers are enough to find out.
            None if self.leased => UNKNOWN_PACE.min(full),
            None => full,
            // In a queue, more callers than a batch would only wait.
            Some(queue) if queue > QUEUE => full.min(self.fair_batch(queue) / queue.as_secs_f64()),
            Some(_) => full,
        };
        // One caller for each permit that is due soon, so that none lapses.
        let near = self.reserved.due_by(now + PERMIT_LIFE);
        let ready = (self.allowance.share.ready(now, slots, limit) + near).min(self.allowance.ready(now));
        Pace { per_second, at_once: u32::try_from(ready).unwrap_or(u32::MAX) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bucket::Bucket;
    use crate::item::Item;
    use crate::rate::Period;
    use crate::rate::reserved::Moment;
    use crate::share::Share;
    use crate::token_bucket::Budget;
    use forebay::Seed;

    const WALL: Duration = Duration::from_secs(1_800_000_000);

    /// A state with a queue of this many seconds; a negative number is none.
    fn state(queue: i64) -> State {
        let mut bucket = Bucket::new("host", 100, 1000, true, Duration::from_secs(30));
        let due = i64::try_from(WALL.as_nanos()).unwrap() + queue * 1_000_000_000;
        bucket.saw(Some(&Item::new().with("due_ns", due)));
        let (total, local) = (Budget::new(100.0, 1000), Budget::new(10.0, 100));
        let allowance = Allowance::new(total, Share::new(100, 1000), local);
        State::new(Box::new(bucket), allowance, true, Seed::new(1).rng())
    }

    /// How many permits an instance without a share reserves.
    fn batch(state: &mut State, millis: u64, spare: Option<u32>) -> u32 {
        state.batch(at(millis), WALL, spare, 0, 10_000)
    }

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn a_burst_is_reserved_at_once_and_a_single_caller_reserves_one() {
        let mut fresh = state(-5);
        fresh.waiting = 4;
        assert_eq!(batch(&mut fresh, 0, Some(46)), 50);
        assert_eq!(batch(&mut state(-5), 0, Some(3)), 1, "the caller has given up");
        let mut steady = state(-5);
        steady.waiting = 1;
        assert_eq!(batch(&mut steady, 0, Some(3)), 1);
        assert_eq!(batch(&mut steady, 900, Some(3)), 4, "the second within a second");
        assert_eq!(batch(&mut steady, 9000, Some(3)), 1);
        assert_eq!(batch(&mut steady, 9100, None), 2, "unknown demand: as many as before");
        steady.waiting = 1000;
        assert_eq!(batch(&mut steady, 9200, Some(3)), MAX_BATCH);
    }

    #[test]
    fn in_a_queue_the_batch_is_fair() {
        for (queue, fair) in [(1, 60), (4, 15), (10, 6), (20, 3)] {
            let mut state = state(queue);
            state.waiting = 2;
            assert_eq!(batch(&mut state, 0, Some(70)), fair, "{queue} s");
            assert_eq!(batch(&mut state, 0, Some(0)), 2, "{queue} s, and no slots for more");
            state.waiting = 50;
            assert_eq!(
                batch(&mut state, 0, Some(50)),
                fair.max(50),
                "{queue} s: every waiting caller counts"
            );
        }
        let mut state = state(-5);
        state.waiting = 2;
        batch(&mut state, 0, Some(50));
        state.last_wait = Duration::from_secs(10);
        assert_eq!(batch(&mut state, 9000, Some(50)), 6, "it was ten seconds, and may be still");
        assert_eq!(batch(&mut state, 20_001, Some(50)), 52, "that was long ago");
    }

    #[test]
    fn the_pace_follows_the_permits() {
        let mut state = state(-5);
        let few = Pace { per_second: 10.0, at_once: 0 };
        assert_eq!(state.pace(at(0), 50, 10_000), few, "a few callers find out");
        batch(&mut state, 0, Some(50));
        assert_eq!(state.pace(at(0), 50, 10_000), Pace { per_second: 80.0, at_once: 0 });
        state.last_wait = Duration::from_secs(10);
        assert_eq!(state.pace(at(0), 50, 10_000), Pace { per_second: 0.6, at_once: 0 });
        let sent = Moment::at(at(0), WALL);
        let due = |millis: u64| WALL + Duration::from_millis(millis);
        let period = |millis| Period { from: due(millis), until: due(millis + 1000) };
        state.reserved.reserve(sent, [2000, 2500, 9000].map(period).into());
        assert_eq!(state.pace(at(1500), 0, 10_000).at_once, 2, "the third is not near");
        assert_eq!(state.pace(at(11_001), 50, 10_000).per_second, few.per_second, "that was long ago");
        state.leased = false;
        let full = state.pace(at(11_001), 0, 10_000).per_second;
        assert_eq!(full, 80.0, "without a ledger, the full pace");
    }

    #[test]
    fn a_known_queue_counts_before_the_answer() {
        let mut state = state(10);
        state.waiting = 2;
        assert_eq!(batch(&mut state, 0, Some(50)), 6);
        assert_eq!(state.pace(at(0), 50, 10_000).per_second, 0.6);
    }

    /// A share of 500 in 10,000 slots has a permit a second.
    #[test]
    fn no_permits_are_reserved_for_callers_that_the_share_serves() {
        let mut state = state(4);
        state.waiting = 1;
        assert!(!state.share_suffices(at(0), Some(0), 500, 10_000), "the queue is unknown");
        assert_eq!(state.batch(at(0), WALL, Some(9), 500, 10_000), 6, "four of ten will be served meanwhile");
        assert_eq!(
            state.batch(at(0), WALL, Some(2), 500, 10_000),
            1,
            "a waiting caller always gets a reservation"
        );
        assert!(state.share_suffices(at(0), Some(1), 500, 10_000), "two within two seconds");
        assert!(!state.share_suffices(at(0), Some(2), 500, 10_000), "not three");
        assert!(!state.share_suffices(at(0), None, 500, 10_000), "the demand is unknown");
        assert!(!state.share_suffices(at(5_001), Some(1), 500, 10_000), "that was long ago");
        state.last_wait = QUEUE;
        assert!(!state.share_suffices(at(0), Some(0), 500_000, 10_000), "there is no queue");
    }
}
