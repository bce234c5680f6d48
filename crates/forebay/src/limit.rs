//! Rate limits: how fast connections may be opened.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::BoxError;
use crate::lease::StoreFuture;
use crate::rt::Runtime;
use crate::sync::Mutex;
use crate::time::Instant;

/// Limits the rate of opens. The reservoir acquires a [`Permit`] right before each open.
pub trait Limit: Send + Sync + 'static {
    /// Waits for a permit, for as long as necessary: the reservoir sets no timeout. An implementation that
    /// uses a store must therefore have a timeout of its own for a store that does not answer. Otherwise no
    /// connection is ever opened again.
    ///
    /// # Cancel safety
    /// If the future is dropped, the implementation must not have spent a permit.
    fn acquire(&self) -> StoreFuture<'_, Result<Permit, LimitError>>;

    /// The present rate of permits. The reservoir uses it to keep enough opens in flight.
    fn pace(&self) -> Pace;

    /// What to call this limiter in texts for operators, such as "the fleet's bucket". Default: "the rate limiter".
    fn name(&self) -> &'static str {
        "the rate limiter"
    }
}

/// The rate of permits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// Permits per second in the long run.
    pub per_second: f64,
    /// Permits that are available without a wait.
    pub at_once: u32,
}

/// Why no permit was granted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// No permit was granted within the limiter's own timeout.
    #[error("no permit within {waited:?}")]
    Timeout {
        /// How long it waited.
        waited: Duration,
    },
    /// The store of a shared limiter did not answer.
    #[error("the rate limiter's store is unavailable: {0}")]
    Unavailable(#[source] BoxError),
}

/// The permission to open one connection. A permit that is dropped before it is [spent](Self::spend) is given
/// back.
pub struct Permit(Option<Box<dyn FnOnce() + Send>>);

impl Permit {
    /// A permit that is not given back.
    #[must_use]
    pub fn unlimited() -> Self {
        Self(None)
    }

    /// A permit that calls `give_back` if it is dropped unspent.
    #[must_use]
    pub fn new(give_back: impl FnOnce() + Send + 'static) -> Self {
        Self(Some(Box::new(give_back)))
    }

    /// Uses the permit up. It is called when the open starts, whatever its outcome.
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

/// A rate limit within this process: a number of opens per second, and a number of opens at once after a
/// quiet time.
///
/// Clones share one budget. Use a clone for each pool of a process that connects to the same server.
#[derive(Clone)]
pub struct LocalLimit {
    gcra: Arc<Mutex<Gcra>>,
    runtime: Arc<dyn Runtime>,
}

impl LocalLimit {
    /// `per_second` opens per second (at least one per hour), of which `burst` (at least one) can start at
    /// once.
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
            // Created before the wait: if this future is dropped, the permit is dropped too, which gives the
            // reservation back.
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

    fn name(&self) -> &'static str {
        "the local rate limit"
    }
}

/// The generic cell rate algorithm, with reservations: each caller gets the time of its permit, and does not
/// poll.
#[derive(Debug)]
struct Gcra {
    /// Time between two permits.
    interval: Duration,
    /// How far a burst may run ahead of the rate.
    tolerance: Duration,
    /// When the next permit would be due without a burst.
    due: Instant,
    /// Future reservations that were given back. The next callers take them.
    returned: BTreeSet<Instant>,
}

impl Gcra {
    fn new(per_second: f64, burst: u32) -> Self {
        // A rate of zero or NaN would never grant a permit. One per hour is practically the same.
        let per_second = if per_second > 0.0 { per_second.max(1.0 / 3600.0) } else { 1.0 / 3600.0 };
        let interval = Duration::from_secs_f64(1.0 / per_second).max(Duration::from_nanos(1));
        let tolerance = interval.saturating_mul(burst.max(1) - 1);
        Self { interval, tolerance, due: Instant::ZERO, returned: BTreeSet::new() }
    }

    /// Reserves the next permit, and returns its time.
    fn reserve(&mut self, now: Instant) -> Instant {
        while let Some(at) = self.returned.pop_first() {
            // A reservation whose time has passed is lost: if it were used late, it could add to a burst.
            if at >= now {
                return at;
            }
        }
        let at = now.max(self.due - self.tolerance);
        self.due = self.due.max(at) + self.interval;
        at
    }

    /// Gives back the reservation at `at`.
    fn give_back(&mut self, at: Instant, now: Instant) {
        if at + self.tolerance + self.interval <= now {
            // Too late: the budget would have refilled by now.
        } else if self.due - self.tolerance - self.interval <= now {
            // Nobody waits: the permit goes back to the burst.
            self.due = self.due - self.interval;
        } else if at > now {
            // Reservations never share an instant: while callers wait, they are one interval apart.
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
        let times: Vec<_> = (0..5).map(|_| gcra.reserve(START).since(START).as_millis()).collect();
        assert_eq!(times, [0, 0, 0, 100, 200]);
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
    fn invalid_rates_still_give_one_permit_per_hour() {
        for rate in [0.0, -1.0, f64::NAN, f64::NEG_INFINITY] {
            let mut gcra = Gcra::new(rate, 0);
            gcra.reserve(START);
            assert_eq!(gcra.reserve(START).since(START), Duration::from_secs(3600));
        }
        assert!(Gcra::new(f64::INFINITY, 1).interval > Duration::ZERO);
    }

    #[test]
    fn a_cancelled_wait_gives_its_reservation_to_the_next() {
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
        /// In every time window, at most the burst plus one permit per interval are granted.
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
