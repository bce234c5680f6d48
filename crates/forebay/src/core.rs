//! The shell around the pure [`State`]: it holds the lock, and performs the effects after it has unlocked.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::Duration;

use tokio::sync::Notify;

use crate::config::Config;
use crate::connect::Connect;
use crate::error::{CheckoutError, OpenError};
use crate::event::{Event, Observer, Observers};
use crate::lease::{HeldLease, LeaseClient};
use crate::limit::Limit;
use crate::opens::Opens;
use crate::rt::{self, Runtime};
use crate::seed::Seed;
use crate::state::{
    Condition, Crossing, Discarded, Due, Effects, Key, Lendable, Life, Limits, Placement, Shortage, State,
    Waiters,
};
use crate::status::Status;
use crate::sync::{Mutex, MutexGuard, lock_spinning};
use crate::tasks::{maintenance, reclaim};
use crate::time::Instant;

/// A connection with its bookkeeping. It is boxed, so that a checkout moves one pointer. It has cache lines
/// of its own, so that users of other connections do not invalidate them.
#[repr(align(64))]
pub(crate) struct Entry<T> {
    pub(crate) connection: T,
    pub(crate) lease: Option<HeldLease>,
    pub(crate) life: Life,
    pub(crate) key: Key,
    /// The caller marked it as failed.
    pub(crate) bad: bool,
}

impl<T> Lendable for Box<Entry<T>> {
    #[inline]
    fn key(&self) -> Key {
        self.key
    }

    #[inline]
    fn stale_at(&self) -> Instant {
        self.life.stale_at
    }
}

pub(crate) type BoxedEntry<C> = Box<Entry<<C as Connect>::Connection>>;
pub(crate) type CoreState<C> = State<BoxedEntry<C>>;

/// A connection that is being returned, while the connector inspects it. If the connector panics, it is
/// returned as bad.
struct Returning<'a, C: Connect> {
    core: &'a Arc<Core<C>>,
    entry: Option<BoxedEntry<C>>,
}

impl<C: Connect> Drop for Returning<'_, C> {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            self.core.give_back_slowly(self.core.lock(), entry, Condition::Bad);
        }
    }
}

/// Wakes a caller. A waker is the code of that caller's executor. If it panics, it has printed why: the panic must not reach the
/// code of another caller or a task of the reservoir.
pub(crate) fn wake(waker: Waker) {
    drop(catch_unwind(AssertUnwindSafe(|| waker.wake())));
}

/// Starts on its own cache line.
#[repr(align(64))]
struct CacheAligned<T>(T);

/// What the handles, guards and tasks of a reservoir share.
pub(crate) struct Core<C: Connect> {
    state: CacheAligned<Mutex<CoreState<C>>>,
    /// The waiters of the state, which callers read without the lock.
    pub(crate) waiters: Arc<Waiters<BoxedEntry<C>>>,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) connector: C,
    pub(crate) limit: Arc<dyn Limit>,
    pub(crate) leases: Option<Arc<LeaseClient>>,
    pub(crate) observer: Arc<Observers>,
    /// Whether there are observers. Without them, waits need no precise clock.
    pub(crate) is_observed: bool,
    pub(crate) config: Mutex<Config>,
    /// How long a call without its own limits waits.
    pub(crate) limits: Limits,
    pub(crate) seed: Seed,
    pub(crate) opens: Mutex<Opens>,
    /// Notified when there may be something to open.
    pub(crate) refill: Notify,
    /// Notified when the next alarm may have moved forward.
    pub(crate) expiry: Notify,
    /// Notified when a wait may end sooner than the task expects.
    pub(crate) waits: Notify,
    /// Notified when a connection is added or removed.
    pub(crate) progress: Notify,
    is_closed: AtomicBool,
    /// Notified when the reservoir closes. Not a `watch`, which wakes in an order of its own.
    closing: Notify,
}

impl<C: Connect> Core<C> {
    pub(crate) fn new(
        connector: C,
        config: Config,
        seed: Seed,
        runtime: Arc<dyn Runtime>,
        limit: Arc<dyn Limit>,
        leases: Option<Arc<LeaseClient>>,
        observer: Arc<Observers>,
    ) -> Self {
        let is_observed = !observer.0.is_empty();
        let state = State::new(&config, seed, runtime.now(), runtime.wall());
        Self {
            waiters: state.waiters(),
            state: CacheAligned(Mutex::new(state)),
            runtime,
            connector,
            limit,
            leases,
            observer,
            is_observed,
            limits: Limits { wait: config.acquire_timeout, empty_wait: config.empty_wait },
            config: Mutex::new(config),
            seed,
            opens: Mutex::default(),
            refill: Notify::new(),
            expiry: Notify::new(),
            waits: Notify::new(),
            progress: Notify::new(),
            is_closed: AtomicBool::new(false),
            closing: Notify::new(),
        }
    }

    /// The fast path: takes the first ready connection, if it is fresh. `otherwise` continues under the same
    /// lock.
    #[inline(always)]
    pub(crate) fn take_fresh<'a, R>(
        &'a self,
        otherwise: impl FnOnce(MutexGuard<'a, CoreState<C>>, Instant) -> R,
    ) -> Result<BoxedEntry<C>, R> {
        let now = self.runtime.coarse_now();
        let mut state = self.state.0.lock();
        let Some(entry) = state.take_fresh(now) else { return Err(otherwise(state, now)) };
        self.unlock_fast(state);
        Ok(entry)
    }

    /// Changes the state under the lock, and then performs the effects.
    pub(crate) fn with_state<R>(&self, change: impl FnOnce(&mut CoreState<C>) -> R) -> R {
        let mut state = lock_spinning(&self.state.0);
        let output = change(&mut state);
        self.unlock(state);
        output
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, CoreState<C>> {
        self.state.0.lock()
    }

    /// Releases the lock, and then performs the effects.
    pub(crate) fn unlock(&self, mut state: MutexGuard<'_, CoreState<C>>) {
        let effects = state.take_effects();
        drop(state);
        if !effects.is_empty() {
            self.deliver(effects);
        }
    }

    /// Releases the lock after a change that leaves the [`FastPathHints`](crate::state) as they are.
    #[inline]
    pub(crate) fn unlock_fast(&self, state: MutexGuard<'_, CoreState<C>>) {
        if state.has_effects() {
            self.unlock(state);
        }
    }

    #[cold]
    fn deliver(&self, effects: Effects) {
        if effects.contains(Effects::REFILL) {
            self.refill.notify_one();
        }
        if effects.contains(Effects::EXPIRY) {
            self.expiry.notify_one();
        }
        if effects.contains(Effects::PROGRESS) {
            self.progress.notify_waiters();
        }
        if effects.contains(Effects::WAITS) {
            self.waits.notify_one();
        }
        if effects.contains(Effects::WATERMARK) {
            let mut next = self.lock().announce();
            while let Some(Crossing { size, low_watermark }) = next {
                self.observe(&if size < low_watermark {
                    Event::BelowWatermark { size, low_watermark }
                } else {
                    Event::AboveWatermark { size }
                });
                next = self.lock().announced();
            }
        }
    }

    pub(crate) fn observe(&self, event: &Event<'_>) {
        self.observer.on(event);
    }

    /// Sends a status report to the observers that want one.
    pub(crate) fn report(&self) {
        if self.observer.wants_reports() {
            self.observe(&Event::Report { status: &self.status() });
        }
    }

    pub(crate) fn status(&self) -> Status {
        self.state.0.lock().status()
    }

    /// Carries out the decision about a connection.
    pub(crate) fn carry_out(self: &Arc<Self>, placed: Placement<BoxedEntry<C>>) {
        match placed {
            Placement::Kept | Placement::Served(None) => {}
            Placement::Served(Some(waker)) => wake(waker),
            Placement::Reset(entry) => maintenance::start(self, entry, maintenance::Kind::Reset),
            Placement::Check(entry) => maintenance::start(self, entry, maintenance::Kind::Check),
            Placement::Discarded(discarded) => self.dispose(discarded),
        }
    }

    /// Carries out what is due for one connection or caller.
    pub(crate) fn act(self: &Arc<Self>, due: Due<BoxedEntry<C>>) {
        match due {
            Due::Wake(waker) => wake(waker),
            Due::Discard(discarded) => self.dispose(discarded),
            Due::Check(entry) => maintenance::start(self, entry, maintenance::Kind::Check),
        }
    }

    /// Closes a connection in the background, and then releases its lease.
    #[cold]
    pub(crate) fn dispose(self: &Arc<Self>, discarded: Discarded<BoxedEntry<C>>) {
        let Discarded { key, entry, reason } = discarded;
        let Entry { connection, lease, life, .. } = *entry;
        let now = self.runtime.now();
        reclaim::start(self, key, Some(connection), lease);
        self.observe(&Event::Discarded {
            reason,
            age: now.since(life.born_at),
            remaining: life.remaining(now),
        });
    }

    /// Determines the condition of a returned connection. This runs code of the connector. If it panics, the
    /// connection is returned as bad.
    #[inline(always)]
    fn inspect(self: &Arc<Self>, entry: BoxedEntry<C>) -> (BoxedEntry<C>, Condition) {
        if entry.bad {
            return (entry, Condition::Bad);
        }
        let mut returning = Returning { core: self, entry: Some(entry) };
        let connection = &returning.entry.as_ref().expect("put in just now").connection;
        let condition = if !self.connector.is_usable(connection) {
            Condition::Bad
        } else if self.connector.is_clean(connection) {
            Condition::Clean
        } else {
            Condition::Dirty
        };
        (returning.entry.take().expect("put in just now"), condition)
    }

    /// Returns a connection from a caller.
    #[inline]
    pub(crate) fn give_back(self: &Arc<Self>, entry: BoxedEntry<C>) {
        let (entry, condition) = self.inspect(entry);
        let mut state = self.state.0.lock();
        match if condition == Condition::Clean { state.keep(entry) } else { Err(entry) } {
            Ok(None) => {}
            Ok(Some(waker)) => {
                drop(state);
                wake(waker);
            }
            Err(entry) => self.give_back_slowly(state, entry, condition),
        }
    }

    /// Continues under the same lock where the fast path ends.
    #[cold]
    #[inline(never)]
    fn give_back_slowly(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, CoreState<C>>,
        entry: BoxedEntry<C>,
        condition: Condition,
    ) {
        let placed = state.place(entry, condition, self.runtime.coarse_now());
        self.unlock(state);
        self.carry_out(placed);
    }

    /// Whether a lent connection will not be lent again.
    pub(crate) fn is_due(&self, entry: &BoxedEntry<C>) -> bool {
        entry.life.stale_at <= self.runtime.now() || self.state.0.lock().is_marked(entry.key)
    }

    /// A monitor reports that a connection is dead.
    pub(crate) fn died(self: &Arc<Self>, key: Key) {
        let now = self.runtime.now();
        if let Some(discarded) = self.with_state(|state| state.died(key, now)) {
            self.dispose(discarded);
        }
    }

    /// The application retires a connection.
    pub(crate) fn retired(self: &Arc<Self>, key: Key) {
        let now = self.runtime.now();
        if let Some(discarded) = self.with_state(|state| state.retired(key, now)) {
            self.dispose(discarded);
        }
    }

    /// A monitor reports that a connection must be closed. Returns whether the reservoir closes it itself;
    /// otherwise somebody uses it.
    pub(crate) fn recalled(self: &Arc<Self>, key: Key) -> bool {
        let now = self.runtime.now();
        let discarded = self.with_state(|state| state.recalled(key, now));
        discarded.map(|discarded| self.dispose(discarded)).is_some()
    }

    /// The error for a caller that has waited since `since` and gets no connection.
    #[cold]
    pub(crate) fn shortage(&self, shortage: Shortage, since: Instant) -> CheckoutError {
        let waited = self.runtime.now().since(since);
        let denial = if shortage == Shortage::Denied { self.opens.lock().last_denial() } else { None };
        match (shortage, denial) {
            (Shortage::Exhausted, _) => {
                let Status { max_open, in_maintenance, .. } = self.status();
                CheckoutError::Exhausted { waited, max_open, in_maintenance }
            }
            (_, Some(last_open_error)) => CheckoutError::Denied { waited, last_open_error },
            (Shortage::Empty | Shortage::Denied, None) => {
                CheckoutError::Empty { waited, last_open_error: self.what_keeps_it_short(since) }
            }
        }
    }

    /// Why connections are missing, for a caller that has waited since `since`: the last failure that
    /// explains it, or what the opens in flight wait for.
    fn what_keeps_it_short(&self, since: Instant) -> Option<Arc<OpenError>> {
        self.last_failure(since).or_else(|| {
            let pace = self.limit.pace();
            self.opens.lock().pending(pace)
        })
    }

    /// The last failed open that explains why connections are missing, for a caller that has waited since
    /// `since`.
    pub(crate) fn last_failure(&self, since: Instant) -> Option<Arc<OpenError>> {
        let (short_since, is_slowed) = {
            let state = self.state.0.lock();
            (state.short_since()?, state.is_slowed())
        };
        self.opens.lock().failure_since(short_since, since, is_slowed)
    }

    /// Stops serving callers and discards the ready connections. Lent connections are discarded when they are
    /// returned.
    pub(crate) fn close(self: &Arc<Self>) {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            return;
        }
        self.closing.notify_waiters();
        self.with_state(State::close);
        self.observe(&Event::Closed);
        self.in_batches(|state, now, due| state.end_all(now, due));
        self.refill.notify_one();
        self.expiry.notify_one();
        self.waits.notify_one();
    }

    /// Repeats `batch` while it returns `true`, and releases the lock after each batch.
    pub(crate) fn in_batches(
        self: &Arc<Self>,
        mut batch: impl FnMut(&mut CoreState<C>, Instant, &mut Vec<Due<BoxedEntry<C>>>) -> bool,
    ) {
        let mut due = Vec::with_capacity(crate::state::BATCH);
        // All batches use one time. So an alarm that is set again by a batch is not due in the same run.
        let now = self.runtime.now();
        loop {
            let more = self.with_state(|state| batch(state, now, &mut due));
            for asked in due.drain(..) {
                self.act(asked);
            }
            if !more {
                return;
            }
        }
    }

    /// Completes once `condition` holds. Cancel safe.
    pub(crate) async fn reached(&self, condition: impl Fn(&CoreState<C>) -> bool) {
        loop {
            // Registered before the check, so that a change in between is not missed.
            let mut progress = pin!(self.progress.notified());
            progress.as_mut().enable();
            if condition(&self.state.0.lock()) {
                return;
            }
            progress.await;
        }
    }

    /// Completes once the reservoir is closed. Cancel safe.
    pub(crate) async fn closed(&self) {
        // Registered before the check, so that a close in between is not missed.
        let mut closing = pin!(self.closing.notified());
        closing.as_mut().enable();
        if !self.is_closed.load(Ordering::Acquire) {
            closing.await;
        }
    }

    /// Runs `future` for at most `limit`. Cancel safe if `future` is.
    pub(crate) async fn within<T>(&self, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
        rt::within(&*self.runtime, limit, future).await
    }
}
