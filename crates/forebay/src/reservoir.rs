//! The handle callers hold.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::acquire::Acquire;
use crate::builder::Builder;
use crate::checkout::Checkout;
use crate::config::ConfigError;
use crate::connect::Connect;
use crate::core::{Core, CoreState};
use crate::error::{CheckoutError, OpenError};
use crate::event::Failure;
use crate::race::{self, First};
use crate::state::Taken;
use crate::status::Status;
use crate::sync::MutexGuard;
use crate::tasks::refill;
use crate::time::Instant;

/// Connections, ready before they are wanted.
///
/// A clone is another handle to the same reservoir. When the last one is dropped the reservoir closes: what is ready
/// is closed at once, what is lent when it comes back. [`drain`](Self::drain) does the same and waits for it.
pub struct Reservoir<C: Connect> {
    core: Arc<Core<C>>,
    alive: Arc<Alive<C>>,
}

/// Closes the reservoir with the last handle. Guards and tasks do not keep it open.
struct Alive<C: Connect>(Arc<Core<C>>);

impl<C: Connect> Drop for Alive<C> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl<C: Connect> Reservoir<C> {
    /// Starts to describe a reservoir of `connector`'s connections.
    pub fn builder(connector: C) -> Builder<C> {
        Builder::new(connector)
    }

    pub(crate) fn new(core: Arc<Core<C>>) -> Self {
        Self { alive: Arc::new(Alive(Arc::clone(&core))), core }
    }

    pub(crate) fn core(&self) -> &Arc<Core<C>> {
        &self.core
    }

    /// Takes a connection that is ready. It never waits and never allocates. A caller that waits is not overtaken.
    ///
    /// # Errors
    /// [`Empty`](CheckoutError::Empty), [`Exhausted`](CheckoutError::Exhausted) or [`Denied`](CheckoutError::Denied) if none is
    /// ready, [`Closed`](CheckoutError::Closed) if none will be.
    // Always: returned through memory instead, the guard costs as much again.
    #[inline(always)]
    pub fn try_checkout(&self) -> Result<Checkout<'_, C>, CheckoutError> {
        match self.core.take_fresh(|state, now| self.try_again(state, now)) {
            Ok(entry) => Ok(Checkout::new(&self.core, entry)),
            Err(outcome) => outcome,
        }
    }

    /// The first one was stale, or there was none.
    #[cold]
    #[inline(never)]
    fn try_again<'a>(
        &'a self,
        mut state: MutexGuard<'a, CoreState<C>>,
        mut now: Instant,
    ) -> Result<Checkout<'a, C>, CheckoutError> {
        loop {
            let taken = state.take(now);
            let shortage = matches!(taken, Taken::Nothing | Taken::Denied).then(|| state.refuse_at_once());
            self.core.leave(state);
            match (taken, shortage) {
                (_, Some(shortage)) => return Err(self.core.shortage(shortage, self.core.runtime.now())),
                (Taken::Got(entry), _) => return Ok(Checkout::new(&self.core, entry)),
                (Taken::Stale(discarded), _) => self.core.dispose(discarded),
                (Taken::Closed | Taken::Nothing | Taken::Denied, _) => return Err(CheckoutError::Closed),
            }
            now = self.core.runtime.coarse_now();
            state = self.core.lock();
        }
    }

    /// Takes a connection. It waits for one in a queue if none is ready: strictly first come, first served.
    ///
    /// It waits for `acquire_timeout`, whatever the reason. [`within`](Acquire::within) sets another limit for this call, and
    /// [`empty_wait`](Acquire::empty_wait) a shorter one for while the reservoir is short of connections.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: what it was about to get goes to the next in the queue.
    ///
    /// # Errors
    /// The future yields [`Empty`](CheckoutError::Empty) or [`Exhausted`](CheckoutError::Exhausted) when its time is up,
    /// [`Denied`](CheckoutError::Denied) at once if waiting is of no use, and [`Closed`](CheckoutError::Closed).
    #[inline]
    pub fn checkout(&self) -> Acquire<'_, C> {
        Acquire::new(&self.core)
    }

    /// Takes a connection. It waits in the same queue, but on this thread and for at most `wait`.
    ///
    /// # Errors
    /// As [`checkout`](Self::checkout); and [`WouldStarve`](CheckoutError::WouldStarve) if it would have to wait on
    /// the one thread that could open the connection.
    ///
    /// # Panics
    /// If it has to wait inside a `LocalSet` on a multi-threaded runtime, where tokio does not allow blocking.
    pub fn checkout_blocking(&self, wait: Duration) -> Result<Checkout<'_, C>, CheckoutError> {
        self.checkout().within(wait).block()
    }

    /// What the reservoir looks like now.
    #[must_use]
    pub fn status(&self) -> Status {
        self.core.status()
    }

    /// Opens one more connection, though nobody waits for one. `None` if `max_open` leaves no room, or the reservoir is closed.
    ///
    /// The open begins now, within the rate limit and the leases, whatever the configuration wants to be ready. It does not wait
    /// for the end of a pause after failures, and its own failure begins none: the caller decides when to try again. What it
    /// opens goes to the first in the queue, or is ready.
    ///
    /// # Cancel safety
    /// Dropping the future stops the waiting, not the open.
    ///
    /// # Errors
    /// The future yields why the open failed.
    pub fn open_one(
        &self,
    ) -> Option<impl Future<Output = Result<(), Arc<OpenError>>> + Send + Unpin + use<C>> {
        let now = self.core.runtime.now();
        let key = self.core.ask(|state| state.open_one(now))?;
        let (report, outcome) = oneshot::channel();
        refill::start(&self.core, key, Some(report));
        Some(Box::pin(async {
            let closed = || Err(Arc::new(OpenError::new(Failure::Open, "the reservoir is closed")));
            outcome.await.unwrap_or_else(|_| closed())
        }))
    }

    /// A handle that does not keep the reservoir open.
    #[must_use]
    pub fn downgrade(&self) -> WeakReservoir<C> {
        WeakReservoir(Arc::downgrade(&self.alive))
    }

    /// Waits until as many connections are usable as the low watermark asks for.
    ///
    /// Returns `false` if that did not happen within `wait`, or the reservoir was closed.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn filled(&self, wait: Duration) -> bool {
        let filled = self.core.reached(|state| state.is_filled());
        let reached = self.core.within(wait, race::first(filled, self.core.closed())).await;
        matches!(reached, Some(First::Left(())))
    }

    /// The same for a start, which ends also if waiting is of no use. Cancel safe.
    pub(crate) async fn filled_or_denied(&self, wait: Duration) -> bool {
        let settled = self.core.reached(|state| state.is_filled() || state.is_denied());
        self.core.within(wait, settled).await.is_some() && self.core.lock().is_filled()
    }

    /// Why the last open failed, if no connection is usable and waiting is of no use: what callers get as
    /// [`Denied`](CheckoutError::Denied) now. It goes once an open succeeds.
    #[must_use]
    pub fn denial(&self) -> Option<Arc<OpenError>> {
        let is_denied = self.core.lock().is_denied();
        if is_denied { self.core.opens().last_denial() } else { None }
    }

    /// Lets the reservoir own another number of connections from now on. What is ready beyond that is closed at once,
    /// what is lent when it comes back.
    ///
    /// # Errors
    /// If `max_open` makes no sense with the other settings; nothing is changed then.
    pub fn resize(&self, max_open: usize) -> Result<(), ConfigError> {
        let mut config = self.core.config.lock();
        let resized = config.clone().max_open(max_open);
        // The overlap is a part of what may be owned: it comes back when that does.
        let held_to = resized.clone().overlap(resized.overlap_or_default().min(max_open));
        held_to.validate()?;
        let now = self.core.runtime.now();
        let mut state = self.core.lock();
        state.resize(&held_to, now);
        *config = resized;
        // Before leaving, which may call an observer.
        drop(config);
        self.core.leave(state);
        self.core.in_batches(|state, now, due| state.trim(now, due));
        Ok(())
    }

    /// Closes the reservoir and waits, for at most `wait`, until every connection is closed and every lease released.
    ///
    /// No more callers are served from the first poll on. Those that wait get [`Closed`](CheckoutError::Closed), also those that
    /// were served and have not been polled since. Opens under way are given up. Connections in use are closed when they come back.
    ///
    /// # Cancel safety
    /// Dropping the future stops the waiting, not the closing. It can be called again.
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

/// What a drain could not finish in its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drained {
    /// Connections still in use.
    pub in_use: usize,
    /// Connections not closed yet, or whose lease is not released yet.
    pub closing: usize,
    /// Connections being reset, checked or opened still.
    pub other: usize,
}

impl Drained {
    /// Whether everything is closed and released.
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

/// A handle to a [`Reservoir`] that does not keep it open, for tasks that should end with it.
pub struct WeakReservoir<C: Connect>(Weak<Alive<C>>);

impl<C: Connect> WeakReservoir<C> {
    /// A handle that keeps it open, unless the last one is gone.
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
