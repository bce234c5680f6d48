//! How fast connections may be opened.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::BoxError;
use crate::lease::StoreFuture;
use crate::rt::Runtime;
use crate::sync::Mutex;
use crate::time::Instant;

/// Rations opens. A refill takes a [`Permit`] for each, right before it opens.
pub trait Limit: Send + Sync + 'static {
    /// Waits for a permit, for as long as there is a line: the reservoir sets no limit of its own. An implementation that
    /// asks a store must therefore give up on one that does not answer, or no connection is ever opened again.
    ///
    /// # Cancel safety
    /// If the future is dropped, an implementation must not have spent a permit.
    fn acquire(&self) -> StoreFuture<'_, Result<Permit, LimitError>>;

    /// How fast permits come at present, so that enough opens are kept in flight to use them all.
    fn pace(&self) -> Pace;
}

/// How fast permits come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Permits a second in the long run.
    pub per_second: f64,
    /// Permits to be had without waiting.
    pub at_once: u32,
}

/// Why there is no permit.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// None came in the longest time the limiter waits.
    #[error("no permit within {waited:?}")]
    Timeout {
        /// How long it waited.
        waited: Duration,
    },
    /// A shared limiter's store did not answer.
    #[error("the rate limiter's store is unavailable: {0}")]
    Unavailable(#[source] BoxError),
}

/// The right to open one connection. One that is dropped without being [spent](Self::spend) goes back.
pub struct Permit(Option<Box<dyn FnOnce() + Send>>);

impl Permit {
    /// A permit that needs no giving back.
    #[must_use]
    pub fn unlimited() -> Self {
        Self(None)
    }

    /// A permit that calls `give_back` if it is not spent.
    #[must_use]
    pub fn new(give_back: impl FnOnce() + Send + 'static) -> Self {
        Self(Some(Box::new(give_back)))
    }

    /// The open starts: the permit is used up whatever comes of it.
    pub fn spend(mut self) {
        self.0 = None;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(give_back) = self.0.take() {
            give_back();
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Permit")
    }
}

/// A limit for this process alone: so many opens a second, and so many at once after a quiet time.
///
/// Clones share one budget, so that several pools of a process to one endpoint can.
#[derive(Clone)]
pub struct LocalLimit {
    gcra: Arc<Mutex<Gcra>>,
    runtime: Arc<dyn Runtime>,
}

impl LocalLimit {
    /// `per_second` opens a second (at least one in an hour), of which `burst` (at least one) may come at once.
    #[must_use]
    pub fn new(per_second: f64, burst: u32, runtime: Arc<dyn Runtime>) -> Self {
        Self { gcra: Arc::new(Mutex::new(Gcra::new(per_second, burst))), runtime }
    }
}

impl fmt::Debug for LocalLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.gcra.lock().fmt(f)
    }
}

impl Limit for LocalLimit {
    fn acquire(&self) -> StoreFuture<'_, Result<Permit, LimitError>> {
        Box::pin(async {
            let at = self.gcra.lock().reserve(self.runtime.now());
            // Made before the wait: dropping this future drops the permit, which gives the place back.
            let this = self.clone();
            let permit = Permit::new(move || this.gcra.lock().give_back(at, this.runtime.now()));
            if at > self.runtime.now() {
                self.runtime.sleep_until(at).await;
            }
            Ok(permit)
        })
    }

    fn pace(&self) -> Pace {
        self.gcra.lock().pace(self.runtime.now())
    }
}

/// The generic cell rate algorithm, by reservation: each caller is told when its turn is, and none polls.
#[derive(Debug)]
struct Gcra {
    /// Time between two permits.
    interval: Duration,
    /// How far ahead of its schedule a burst may run.
    tolerance: Duration,
    /// When the next permit would be due if there were no burst.
    due: Instant,
    /// Turns in the future that were given back: the next callers take them.
    returned: BTreeSet<Instant>,
}

impl Gcra {
    fn new(per_second: f64, burst: u32) -> Self {
        // A rate that is no number or not above zero would never give a permit; one in an hour is as good as none.
        let per_second = if per_second > 0.0 { per_second.max(1.0 / 3600.0) } else { 1.0 / 3600.0 };
        let interval = Duration::from_secs_f64(1.0 / per_second).max(Duration::from_nanos(1));
        let tolerance = interval.saturating_mul(burst.max(1) - 1);
        Self { interval, tolerance, due: Instant::ZERO, returned: BTreeSet::new() }
    }

    /// Books the next turn and tells when it is.
    fn reserve(&mut self, now: Instant) -> Instant {
        while let Some(at) = self.returned.pop_first() {
            // A turn whose time has passed is lost: taken late it could double up with a burst.
            if at >= now {
                return at;
            }
        }
        let at = now.max(self.due - self.tolerance);
        self.due = self.due.max(at) + self.interval;
        at
    }

    /// Gives back the turn at `at`, unused.
    fn give_back(&mut self, at: Instant, now: Instant) {
        if at + self.tolerance + self.interval <= now {
            // Too late: by now it would have been refilled anyway.
        } else if self.due - self.tolerance - self.interval <= now {
            // Nobody queues: the permit goes back to the burst.
            self.due = self.due - self.interval;
        } else if at > now {
            // Two turns are never at one instant: while callers queue, turns are an interval apart.
            self.returned.insert(at);
        }
    }

    fn pace(&self, now: Instant) -> Pace {
        let saved = (now + self.tolerance + self.interval).since(self.due.max(now));
        let at_once = saved.as_nanos() / self.interval.as_nanos();
        Pace {
            per_second: 1.0 / self.interval.as_secs_f64(),
            at_once: u32::try_from(at_once).unwrap_or(u32::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rt::VirtualTime;

    const START: Instant = Instant::from_nanos(1_000_000_000_000);

    #[test]
    fn a_burst_then_the_rate() {
        let mut gcra = Gcra::new(10.0, 3);
        let turns: Vec<_> = (0..5).map(|_| gcra.reserve(START).since(START).as_millis()).collect();
        assert_eq!(turns, [0, 0, 0, 100, 200]);
    }

    #[test]
    fn a_burst_comes_back_with_quiet_and_no_further() {
        let mut gcra = Gcra::new(10.0, 3);
        for _ in 0..3 {
            gcra.reserve(START);
        }
        assert_eq!(gcra.pace(START).at_once, 0);
        assert_eq!(gcra.pace(START + Duration::from_millis(250)).at_once, 2);
        assert_eq!(gcra.pace(START + Duration::from_secs(3600)).at_once, 3);
    }

    #[test]
    fn senseless_rates_still_give_a_permit_an_hour() {
        for rate in [0.0, -1.0, f64::NAN, f64::NEG_INFINITY] {
            let mut gcra = Gcra::new(rate, 0);
            gcra.reserve(START);
            assert_eq!(gcra.reserve(START).since(START), Duration::from_secs(3600));
        }
        assert!(Gcra::new(f64::INFINITY, 1).interval > Duration::ZERO);
    }

    #[test]
    fn a_cancelled_wait_gives_its_turn_to_the_next() {
        let time = VirtualTime::new();
        let limit = LocalLimit::new(1.0, 1, Arc::new(time.clone()));
        let start = time.now();
        time.run(async {
            limit.acquire().await.unwrap().spend();
            let mut abandoned = limit.acquire();
            std::future::poll_fn(|context| {
                assert!(abandoned.as_mut().poll(context).is_pending());
                std::task::Poll::Ready(())
            })
            .await;
            drop(abandoned);
            limit.acquire().await.unwrap().spend();
        });
        assert_eq!(time.now().since(start), Duration::from_secs(1));
    }

    #[test]
    fn an_unspent_permit_goes_back() {
        let time = VirtualTime::new();
        let limit = LocalLimit::new(1.0, 5, Arc::new(time.clone()));
        drop(time.run(limit.acquire()).unwrap());
        assert_eq!(limit.pace().at_once, 5);
    }

    #[test]
    fn a_permit_given_back_late_is_lost() {
        let mut gcra = Gcra::new(1.0, 1);
        let held = gcra.reserve(START);
        let later = START + Duration::from_secs(10);
        assert_eq!(gcra.reserve(later), later);
        gcra.give_back(held, later);
        assert_eq!(gcra.reserve(later), later + Duration::from_secs(1));
    }

    proptest! {
        /// In any window: at most the burst, and one for each interval that passed.
        #[test]
        fn never_more_than_the_budget(
            burst in 1u32..5,
            steps in prop::collection::vec((0u64..500, any::<bool>()), 1..80),
        ) {
            let mut gcra = Gcra::new(10.0, burst);
            let mut now = START;
            let mut spent = Vec::new();
            for (pause, give_back) in steps {
                now = now + Duration::from_millis(pause);
                let at = gcra.reserve(now);
                prop_assert!(at >= now);
                if give_back {
                    gcra.give_back(at, now);
                } else {
                    spent.push(at);
                }
            }
            spent.sort();
            for (i, from) in spent.iter().enumerate() {
                for (j, to) in spent.iter().enumerate().skip(i) {
                    let allowed = u128::from(burst) + to.since(*from).as_millis() / 100;
                    prop_assert!((j - i + 1) as u128 <= allowed, "{} opens from {from:?} to {to:?}", j - i + 1);
                }
            }
        }
    }
}
