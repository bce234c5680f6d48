//! The public handle.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::acquire::Acquire;
use crate::builder::Builder;
use crate::checkout::Checkout;
use crate::config::{Config, ConfigError};
use crate::connect::Connect;
use crate::core::{Core, CoreState};
use crate::error::{CheckoutError, OpenError};
use crate::event::{Event, Failure};
use crate::inspection::{ConnectionStatus, RefillStatus};
use crate::race::{self, First};
use crate::state::{Refilling, TakeOutcome};
use crate::status::Status;
use crate::sync::MutexGuard;
use crate::tasks::refill;
use crate::time::Instant;

/// A pool that keeps connections ready ahead of demand.
///
/// Clones are handles to the same reservoir. The reservoir closes when the last handle is dropped: ready
/// connections are closed at once, lent ones when they are returned. [`drain`](Self::drain) does the same,
/// and waits until it is done.
pub struct Reservoir<C: Connect> {
    core: Arc<Core<C>>,
    alive: Arc<Alive<C>>,
}

/// Closes the reservoir when the last handle is dropped. Guards and tasks do not keep it open.
struct Alive<C: Connect>(Arc<Core<C>>);

impl<C: Connect> Drop for Alive<C> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl<C: Connect> Reservoir<C> {
    /// Returns a builder for a reservoir of connections from `connector`.
    pub fn builder(connector: C) -> Builder<C> {
        Builder::new(connector)
    }

    pub(crate) fn new(core: Arc<Core<C>>) -> Self {
        Self { alive: Arc::new(Alive(Arc::clone(&core))), core }
    }

    #[cfg(any(feature = "bb8", feature = "deadpool"))]
    pub(crate) fn core(&self) -> &Arc<Core<C>> {
        &self.core
    }

    /// Takes a ready connection. It never waits and never allocates, and never overtakes a waiting caller.
    ///
    /// # Errors
    /// Returns [`Empty`](CheckoutError::Empty), [`Exhausted`](CheckoutError::Exhausted) or
    /// [`Denied`](CheckoutError::Denied) if no connection is ready, and [`Closed`](CheckoutError::Closed)
    /// after a drain.
    // Always inlined: returning the guard through memory would double the cost.
    #[inline(always)]
    pub fn try_checkout(&self) -> Result<Checkout<'_, C>, CheckoutError> {
        match self.core.take_fresh(|state, now| self.try_again(state, now)) {
            Ok(entry) => Ok(Checkout::new(&self.core, entry)),
            Err(outcome) => outcome,
        }
    }

    /// The first ready connection was stale, or there was none.
    #[cold]
    #[inline(never)]
    fn try_again<'a>(
        &'a self,
        mut state: MutexGuard<'a, CoreState<C>>,
        mut now: Instant,
    ) -> Result<Checkout<'a, C>, CheckoutError> {
        loop {
            let taken = state.take(now);
            let shortage =
                matches!(taken, TakeOutcome::Nothing | TakeOutcome::Denied).then(|| state.refuse_at_once());
            self.core.unlock(state);
            match (taken, shortage) {
                (_, Some(shortage)) => return Err(self.core.shortage(shortage, self.core.runtime.now())),
                (TakeOutcome::Got(entry), _) => return Ok(Checkout::new(&self.core, entry)),
                (TakeOutcome::Stale(discarded), _) => self.core.dispose(discarded),
                (TakeOutcome::Closed | TakeOutcome::Nothing | TakeOutcome::Denied, _) => {
                    return Err(CheckoutError::Closed);
                }
            }
            now = self.core.runtime.coarse_now();
            state = self.core.lock();
        }
    }

    /// Takes a connection. If none is ready, it waits in a queue, strictly first come, first served.
    ///
    /// It waits for [`acquire_timeout`](crate::Config::acquire_timeout), for any reason.
    /// [`within`](Acquire::within) sets another limit for this call. [`empty_wait`](Acquire::empty_wait) sets
    /// a shorter one for the time while connections are missing.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing. A connection that was about to be delivered goes to the next caller
    /// in the queue.
    ///
    /// # Errors
    /// The future returns [`Empty`](CheckoutError::Empty) or [`Exhausted`](CheckoutError::Exhausted) after
    /// its timeout, [`Denied`](CheckoutError::Denied) at once if waiting does not help, and
    /// [`Closed`](CheckoutError::Closed) after a drain.
    #[inline]
    pub fn checkout(&self) -> Acquire<'_, C> {
        Acquire::new(&self.core)
    }

    /// Takes a connection. It waits in the same queue, but blocks this thread, for at most `wait`.
    ///
    /// # Errors
    /// Returns the errors of [`checkout`](Self::checkout), and [`WouldStarve`](CheckoutError::WouldStarve) if
    /// this is the only thread that can open a connection.
    ///
    /// # Panics
    /// Panics if it has to wait inside a `LocalSet` on a multi-threaded runtime, where tokio does not allow
    /// blocking.
    pub fn checkout_blocking(&self, wait: Duration) -> Result<Checkout<'_, C>, CheckoutError> {
        self.checkout().within(wait).block()
    }

    /// The present status.
    #[must_use]
    pub fn status(&self) -> Status {
        self.core.status()
    }

    /// Every usable connection, in no particular order. It reads a few hundred connections at a time, so the list
    /// does not belong to one moment.
    #[must_use]
    pub fn connections(&self) -> Vec<ConnectionStatus> {
        let mut list = Vec::with_capacity(self.status().size());
        let mut next = Some(0);
        while let Some(first) = next {
            let now = self.core.runtime.now();
            next = self.core.lock().list_connections(first, now, &mut list);
        }
        list
    }

    /// What the refill does now, and what it waits for.
    #[must_use]
    pub fn refill_status(&self) -> RefillStatus {
        let core = &self.core;
        let Refilling { missing, paused_for, rate_share } = core.lock().refilling(core.runtime.now());
        let pace = core.limit.pace();
        let opens = core.opens.lock();
        let [waiting_for_token, waiting_for_lease, waiting_for_permit] = opens.waiting();
        RefillStatus {
            missing,
            waiting_for_token,
            waiting_for_lease,
            waiting_for_permit,
            paused_for,
            rate_share,
            pace,
            limiter: core.limit.name(),
            last_failure: opens.unresolved_failure(),
        }
    }

    /// The settings, with `max_open` as it was [resized](Self::resize) last.
    #[must_use]
    pub fn config(&self) -> Config {
        self.core.config.lock().clone()
    }

    /// Opens one more connection, though no caller waits for one. Returns `None` if `max_open` connections
    /// exist, or if the reservoir is closed.
    ///
    /// The open starts now, within the rate limit and the leases, whatever the target is. It does not wait
    /// for the end of a backoff, and its failure does not start one: the caller decides when to retry. The
    /// new connection goes to the first caller in the queue, or becomes ready.
    ///
    /// # Cancel safety
    /// Dropping the future does not stop the open.
    ///
    /// # Errors
    /// The future returns the error of the open.
    pub fn open_one(
        &self,
    ) -> Option<impl Future<Output = Result<(), Arc<OpenError>>> + Send + Unpin + use<C>> {
        let now = self.core.runtime.now();
        let key = self.core.with_state(|state| state.open_one(now))?;
        let (report, outcome) = oneshot::channel();
        refill::start(&self.core, key, Some(report));
        Some(Box::pin(async {
            let closed = || Err(Arc::new(OpenError::new(Failure::Open, "the reservoir is closed")));
            outcome.await.unwrap_or_else(|_| closed())
        }))
    }

    /// Returns a handle that does not keep the reservoir open.
    #[must_use]
    pub fn downgrade(&self) -> WeakReservoir<C> {
        WeakReservoir(Arc::downgrade(&self.alive))
    }

    /// Waits until [`low_watermark`](crate::Config::low_watermark) connections are usable.
    ///
    /// Returns `false` if that takes longer than `wait`, or if the reservoir is closed.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn filled(&self, wait: Duration) -> bool {
        let filled = self.core.reached(|state| state.is_filled());
        let reached = self.core.within(wait, race::first(filled, self.core.closed())).await;
        matches!(reached, Some(First::Left(())))
    }

    /// Waits for the first fill, as [`start`](Builder::start) does: until the low watermark is reached, the
    /// [`fill_timeout`](crate::Config::fill_timeout) is over, or the server [denies](Self::denial) access. Then it reports
    /// [`Event::Filled`] or [`Event::FillTimedOut`] to the observers. Call it once, after
    /// [`start_empty`](Builder::start_empty). Returns whether the low watermark was reached.
    ///
    /// # Cancel safety
    /// Dropping the future stops the wait and reports nothing. The reservoir fills on.
    pub async fn first_fill(&self) -> bool {
        let core = &self.core;
        let timeout = core.config.lock().fill_timeout;
        let began = core.runtime.now();
        let settled = core.reached(|state| state.is_filled() || state.is_denied());
        let reached = core.within(timeout, race::first(settled, core.closed())).await;
        let filled = matches!(reached, Some(First::Left(()))) && core.lock().is_filled();
        let (status, took) = (self.status(), core.runtime.now().since(began));
        let last_open_error = core.last_failure(began);
        core.observe(&if filled {
            Event::Filled { size: status.size(), target: status.target_ready, took }
        } else {
            Event::FillTimedOut {
                size: status.size(),
                low_watermark: status.low_watermark,
                waited: took.min(timeout),
                last_open_error: last_open_error.as_deref(),
            }
        });
        filled
    }

    /// Why the server denies access, if no connection is usable and waiting does not help. Callers get this as
    /// [`Denied`](CheckoutError::Denied). It is `None` again once an open succeeds, or fails
    /// for a reason that may pass.
    #[must_use]
    pub fn denial(&self) -> Option<Arc<OpenError>> {
        let is_denied = self.core.lock().is_denied();
        if is_denied { self.core.opens.lock().last_denial() } else { None }
    }

    /// Changes `max_open`. Surplus connections are closed at once if they are ready, and when they are
    /// returned if they are lent.
    ///
    /// # Errors
    /// Returns an error, and changes nothing, if `max_open` does not fit the other settings.
    pub fn resize(&self, max_open: usize) -> Result<(), ConfigError> {
        let mut config = self.core.config.lock();
        let resized = config.clone().max_open(max_open);
        // The configured overlap may be larger than the new `max_open`. It is limited for now, and applies
        // again after the next resize.
        let held_to = resized.clone().overlap(resized.overlap_or_default().min(max_open));
        held_to.validate()?;
        let now = self.core.runtime.now();
        let mut state = self.core.lock();
        state.resize(&held_to, now);
        *config = resized;
        // Before the unlock, which may call an observer.
        drop(config);
        self.core.unlock(state);
        self.core.in_batches(|state, now, due| state.trim(now, due));
        Ok(())
    }

    /// Closes the reservoir, as [`drain`](Self::drain) does, and waits for nothing.
    pub fn close(&self) {
        self.core.close();
        self.core.report();
    }

    /// Closes the reservoir, and waits for at most `wait` until all connections are closed and all leases
    /// released.
    ///
    /// From the first poll on, no caller is served. All waiting callers get
    /// [`Closed`](CheckoutError::Closed), even those with a connection that they have not picked up. Opens in
    /// flight are abandoned. Lent connections are closed when they are returned.
    ///
    /// # Cancel safety
    /// Dropping the future stops the wait, not the close. It can be called again.
    pub async fn drain(&self, wait: Duration) -> Drained {
        self.core.close();
        let drained = self.core.reached(|state| state.is_drained());
        self.core.within(wait, drained).await;
        self.core.report();
        let status = self.status();
        Drained {
            in_use: status.in_use,
            closing: status.closing,
            other: status.in_maintenance + status.opening,
        }
    }
}

#[cfg(test)]
impl<C: Connect> Reservoir<C> {
    pub(crate) fn waiters_used(&self) -> usize {
        self.core.lock().waiters_used()
    }
}

/// What a drain could not finish in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drained {
    /// Connections that are still lent.
    pub in_use: usize,
    /// Connections that are not closed yet, or whose lease is not released yet.
    pub closing: usize,
    /// Connections that are still being reset, checked or opened.
    pub other: usize,
}

impl Drained {
    /// Whether all connections are closed and all leases released.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.in_use + self.closing + self.other == 0
    }
}

impl<C: Connect> Clone for Reservoir<C> {
    fn clone(&self) -> Self {
        Self { core: Arc::clone(&self.core), alive: Arc::clone(&self.alive) }
    }
}

/// A handle to a [`Reservoir`] that does not keep it open, for tasks that must end with it.
pub struct WeakReservoir<C: Connect>(Weak<Alive<C>>);

impl<C: Connect> WeakReservoir<C> {
    /// Returns a handle that keeps the reservoir open. `None` if the last such handle is gone.
    #[must_use]
    pub fn upgrade(&self) -> Option<Reservoir<C>> {
        let alive = self.0.upgrade()?;
        Some(Reservoir { core: Arc::clone(&alive.0), alive })
    }
}

impl<C: Connect> Clone for WeakReservoir<C> {
    fn clone(&self) -> Self {
        Self(Weak::clone(&self.0))
    }
}

impl<C: Connect> fmt::Debug for WeakReservoir<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WeakReservoir").field(&self.upgrade()).finish()
    }
}

impl<C: Connect> fmt::Debug for Reservoir<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reservoir").field(&self.status()).finish()
    }
}
