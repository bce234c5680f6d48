//! Rate limits: how fast connections may be opened.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::error::BoxError;
use crate::lease::StoreFuture;
use crate::race::{self, First};
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
/// A permit counts from the moment when its caller gets it. So the limit also holds after a pause of the
/// process, when many waits end at once: any period of time has at most the burst and the rate, but for two
/// milliseconds by which timers may be late. Callers are served in the order in which they asked, except that one
/// whose future is not polled is passed over.
///
/// Clones share one budget. Use a clone for each pool of a process that connects to the same server.
#[derive(Clone)]
pub struct LocalLimit {
    gcra: Arc<Mutex<Gcra>>,
    /// Held by the caller who gets the next permit. The others wait for it in a queue.
    turn: Arc<tokio::sync::Mutex<()>>,
    runtime: Arc<dyn Runtime>,
}

impl LocalLimit {
    /// `per_second` opens per second (at least one per hour), of which `burst` (at least one) can start at
    /// once.
    #[must_use]
    pub fn new(per_second: f64, burst: u32, runtime: Arc<dyn Runtime>) -> Self {
        Self { gcra: Arc::new(Mutex::new(Gcra::new(per_second, burst))), turn: Arc::default(), runtime }
    }

    /// Takes a permit now, or returns when there will be one. The caller may have slept until `promised`.
    fn take(&self, promised: Option<Instant>) -> Result<Permit, Instant> {
        let now = self.runtime.now();
        let in_time = promised.filter(|promised| now.since(*promised) <= LATENESS);
        let grant = self.gcra.lock().grant(in_time.unwrap_or(now))?;
        let gcra = Arc::clone(&self.gcra);
        Ok(Permit::new(move || gcra.lock().give_back(grant)))
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
            let mut turn = pin!(self.turn.lock());
            // Until it is its turn, a caller takes only what others have left.
            let _turn = loop {
                let left_at = self.gcra.lock().left_at();
                if let First::Left(turn) = race::first(turn.as_mut(), self.runtime.sleep_until(left_at)).await
                {
                    break turn;
                }
                let is_left = self.gcra.lock().left_at() <= left_at;
                if is_left && let Ok(permit) = self.take(None) {
                    return Ok(permit);
                }
            };
            let mut promised = None;
            loop {
                match self.take(promised) {
                    Ok(permit) => return Ok(permit),
                    Err(at) => {
                        self.runtime.sleep_until(at).await;
                        promised = Some(at);
                    }
                }
            }
        })
    }

    fn pace(&self) -> Pace {
        self.gcra.lock().pace(self.runtime.now())
    }

    fn name(&self) -> &'static str {
        "the local rate limit"
    }
}

/// The generic cell rate algorithm. It grants permits for the present only: a permit that is promised for
/// later could be used even later, together with others.
#[derive(Debug)]
struct Gcra {
    /// Time between two permits.
    interval: Duration,
    /// How far a burst may run ahead of the rate.
    tolerance: Duration,
    /// When the next permit would be due without a burst.
    due: Instant,
}

/// How late a timer may be. A permit that is late by no more counts as granted in time, or each would delay all
/// later ones.
const LATENESS: Duration = Duration::from_millis(2);

/// What a permit has changed.
struct Grant {
    due_before: Instant,
    due_after: Instant,
}

impl Gcra {
    fn new(per_second: f64, burst: u32) -> Self {
        // A rate of zero or NaN would never grant a permit. One per hour is practically the same.
        let per_second = if per_second > 0.0 { per_second.max(1.0 / 3600.0) } else { 1.0 / 3600.0 };
        let interval = Duration::from_secs_f64(1.0 / per_second).max(Duration::from_nanos(1));
        let tolerance = interval.saturating_mul(burst.max(1) - 1);
        Self { interval, tolerance, due: Instant::ZERO }
    }

    /// Grants a permit, or returns when the next one is due.
    fn grant(&mut self, now: Instant) -> Result<Grant, Instant> {
        let next = self.due - self.tolerance;
        if now < next {
            return Err(next);
        }
        let due_before = self.due;
        self.due = due_before.max(now) + self.interval;
        Ok(Grant { due_before, due_after: self.due })
    }

    /// When the next permit will have been due for so long that the caller whose turn it is does not come.
    fn left_at(&self) -> Instant {
        self.due - self.tolerance + (10 * self.interval).min(Duration::from_secs(1))
    }

    /// Undoes a grant, unless there was another one since. Then the permit is lost, since a permit that is
    /// used later than it was granted could add to a burst.
    fn give_back(&mut self, grant: Grant) {
        if self.due == grant.due_after {
            self.due = grant.due_before;
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

    /// Takes permits until there are none. Returns how many there were.
    fn drain(gcra: &mut Gcra, now: Instant) -> usize {
        std::iter::from_fn(|| gcra.grant(now).ok()).count()
    }

    #[test]
    fn a_burst_then_the_rate() {
        let mut gcra = Gcra::new(10.0, 3);
        assert_eq!(drain(&mut gcra, START), 3);
        let next = START + Duration::from_millis(100);
        assert_eq!(gcra.grant(START).err(), Some(next));
        assert_eq!(drain(&mut gcra, next), 1);
    }

    #[test]
    fn a_burst_comes_back_with_quiet_and_no_further() {
        let mut gcra = Gcra::new(10.0, 3);
        drain(&mut gcra, START);
        assert_eq!(gcra.pace(START).at_once, 0);
        assert_eq!(gcra.pace(START + Duration::from_millis(250)).at_once, 2);
        assert_eq!(gcra.pace(START + Duration::from_secs(3600)).at_once, 3);
    }

    #[test]
    fn invalid_rates_still_give_one_permit_per_hour() {
        for rate in [0.0, -1.0, f64::NAN, f64::NEG_INFINITY] {
            let mut gcra = Gcra::new(rate, 0);
            assert_eq!(drain(&mut gcra, START), 1);
            assert_eq!(gcra.grant(START).err(), Some(START + Duration::from_secs(3600)));
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
    fn a_permit_that_is_given_back_after_another_was_granted_is_lost() {
        let mut gcra = Gcra::new(1.0, 2);
        let held = gcra.grant(START).unwrap();
        assert!(gcra.grant(START).is_ok());
        gcra.give_back(held);
        assert_eq!(gcra.grant(START).err(), Some(START + Duration::from_secs(1)));
    }

    /// Panics unless every window of time has at most `burst` grants and one more for each interval, but for
    /// the lateness of timers.
    fn assert_within_budget(grants: &[Instant], interval: Duration, burst: u32) {
        for (i, from) in grants.iter().enumerate() {
            for (j, to) in grants.iter().enumerate().skip(i) {
                let window = to.since(*from) + LATENESS;
                let allowed = u128::from(burst) + window.as_nanos() / interval.as_nanos();
                let granted = (j - i + 1) as u128;
                assert!(
                    granted <= allowed,
                    "{granted} permits from {from:?} to {to:?}, and {allowed} are allowed"
                );
            }
        }
    }

    /// Callers of a limit of ten permits per second, and the times at which they got them.
    struct Callers {
        time: VirtualTime,
        limit: LocalLimit,
        grants: Arc<Mutex<Vec<Instant>>>,
    }

    impl Callers {
        fn new(burst: u32) -> Self {
            let time = VirtualTime::new();
            let limit = LocalLimit::new(10.0, burst, Arc::new(time.clone()));
            Self { time, limit, grants: Arc::default() }
        }

        /// A caller asks for a permit. It gives up after `patience`, and gives back every permit that it does
        /// not spend.
        fn call(&self, patience: Duration, spends: bool) {
            let (limit, time, grants) = (self.limit.clone(), self.time.clone(), Arc::clone(&self.grants));
            self.time.spawn(Box::pin(async move {
                let granted = crate::rt::within(&time, patience, limit.acquire()).await;
                if let Some(permit) = granted.filter(|_| spends) {
                    grants.lock().push(time.now());
                    permit.unwrap().spend();
                }
            }));
        }
    }

    #[test]
    fn a_caller_that_is_not_polled_holds_up_nobody() {
        let callers = Callers::new(1);
        callers.call(Duration::MAX, true);
        callers.time.settle();
        let mut idle = callers.limit.acquire();
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(idle.as_mut().poll(&mut context).is_pending());
        callers.call(Duration::MAX, true);
        callers.call(Duration::MAX, true);
        callers.time.advance(Duration::from_secs(1));
        assert_eq!(callers.grants.lock().len(), 1, "it may be late");
        callers.time.advance(Duration::from_millis(1_200));
        assert_eq!(callers.grants.lock().len(), 3, "slower, but not held up");
        drop(idle);
    }

    #[test]
    fn a_pause_of_the_process_grants_no_more_than_the_burst() {
        let callers = Callers::new(5);
        for _ in 0..20 {
            callers.call(Duration::MAX, true);
        }
        callers.time.settle();
        assert_eq!(callers.grants.lock().len(), 5);
        callers.time.skip(Duration::from_secs(10));
        callers.time.advance(Duration::ZERO);
        assert_eq!(callers.grants.lock().len(), 10, "the burst, once more");
        callers.time.advance(Duration::from_secs(1));
        assert_eq!(callers.grants.lock().len(), 20, "and then the rate");
        assert_within_budget(&callers.grants.lock(), Duration::from_millis(100), 5);
    }

    proptest! {
        /// Also when the process pauses, and when callers give up or give back: in every window of time,
        /// at most the burst plus one permit for each interval are granted, and no permit is lost for long.
        #[test]
        fn never_more_than_the_budget(
            burst in 1u32..6,
            steps in prop::collection::vec((0u8..8, 0u64..700), 1..120),
        ) {
            let callers = Callers::new(burst);
            for (step, millis) in steps {
                let some_time = Duration::from_millis(millis);
                match step {
                    0 => callers.time.skip(some_time * 10),
                    1 | 2 => callers.time.advance(some_time),
                    3 => callers.call(some_time, true),
                    4 => callers.call(some_time, false),
                    _ => callers.call(Duration::MAX, true),
                }
            }
            callers.time.advance(Duration::from_secs(60));
            let before = callers.grants.lock().len();
            for _ in 0..burst {
                callers.call(Duration::MAX, true);
            }
            callers.time.settle();
            prop_assert_eq!(callers.grants.lock().len(), before + burst as usize, "everybody was served before");
            assert_within_budget(&callers.grants.lock(), Duration::from_millis(100), burst);
            callers.time.shut_down();
        }
    }
}
