//! A caller's wait for a connection, as a future or on a thread.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use crate::checkout::Checkout;
use crate::connect::Connect;
use crate::core::{Core, CoreState};
use crate::error::CheckoutError;
use crate::event::Event;
use crate::rt::Task;
use crate::state::{Ending, Limits, PickUp, TakeOutcome, WaitPoll, WaiterId};
use crate::sync::MutexGuard;
use crate::time::Instant;

/// The future of [`Reservoir::checkout`](crate::Reservoir::checkout): it resolves to a connection.
///
/// # Cancel safety
/// Dropping the future loses nothing. A connection that was about to be delivered goes to the next caller in
/// the queue.
#[must_use = "a checkout does nothing until it is awaited"]
pub struct Acquire<'a, C: Connect> {
    core: &'a Arc<Core<C>>,
    within: Option<Duration>,
    empty_wait: Option<Duration>,
    /// Set while the caller waits.
    wait: Option<Wait>,
}

struct Wait {
    waiter: WaiterId,
    since: Instant,
    /// Set if this call has its own limits.
    own: Option<Limits>,
    /// When it must poll again. Never without its own limits: one task ends all those waits.
    poll_at: Instant,
    /// The timer for `poll_at`, and when it fires.
    timer: Option<(Instant, Task)>,
}

type Outcome<'a, C> = Result<Checkout<'a, C>, CheckoutError>;

impl<'a, C: Connect> Acquire<'a, C> {
    pub(crate) fn new(core: &'a Arc<Core<C>>) -> Self {
        Self { core, within: None, empty_wait: None, wait: None }
    }

    /// Waits at most this long, for any reason. It replaces
    /// [`acquire_timeout`](crate::Config::acquire_timeout) and [`empty_wait`](crate::Config::empty_wait) of
    /// the configuration for this call.
    pub fn within(mut self, wait: Duration) -> Self {
        self.within = Some(wait);
        self
    }

    /// Gives up sooner while connections are missing: once fewer than `max_open` have been usable for this
    /// long. It does not apply while all connections are in use. Default:
    /// [`empty_wait`](crate::Config::empty_wait) of the configuration.
    pub fn empty_wait(mut self, wait: Duration) -> Self {
        self.empty_wait = Some(wait);
        self
    }

    /// Runs if no connection was ready, or if the first one was stale. It discards stale connections until it
    /// finds a fresh one, or joins the queue. The check and the join happen under one lock, so that no
    /// connection can return unnoticed in between.
    #[cold]
    #[inline(never)]
    fn take_or_join(
        &mut self,
        mut state: MutexGuard<'a, CoreState<C>>,
        mut coarse: Instant,
        waker: &Waker,
    ) -> Poll<Outcome<'a, C>> {
        let core = self.core;
        loop {
            match state.take(coarse) {
                TakeOutcome::Got(entry) => {
                    core.unlock(state);
                    return Poll::Ready(Ok(Checkout::new(core, entry)));
                }
                TakeOutcome::Stale(discarded) => {
                    core.unlock(state);
                    core.dispose(discarded);
                    coarse = core.runtime.coarse_now();
                    state = core.lock();
                }
                TakeOutcome::Closed => return Poll::Ready(Err(CheckoutError::Closed)),
                TakeOutcome::Denied => {
                    let shortage = state.refuse_at_once();
                    core.unlock(state);
                    return Poll::Ready(Err(core.shortage(shortage, core.runtime.now())));
                }
                TakeOutcome::Nothing => return self.join(state, coarse, waker),
            }
        }
    }

    /// Joins the queue. `coarse` is the time, precise to a few milliseconds.
    #[inline]
    fn join(
        &mut self,
        mut state: MutexGuard<'a, CoreState<C>>,
        coarse: Instant,
        waker: &Waker,
    ) -> Poll<Outcome<'a, C>> {
        let core = self.core;
        let own = self.own_limits();
        // A precise time is needed by observers and by calls with limits of their own, or with a short one.
        let precise = core.is_observed || own.is_some() || core.limits.empty_wait.is_some();
        let since = if precise { core.runtime.now() } else { coarse };
        let (waiter, poll_at) = state.join(since, own, waker.clone());
        core.unlock_fast(state);
        self.wait = Some(Wait { waiter, since, own, poll_at, timer: None });
        Poll::Pending
    }

    /// The limits of this call, if it has any. `within` replaces both configured limits; `empty_wait` can be
    /// set as well.
    fn own_limits(&self) -> Option<Limits> {
        let configured = self.core.limits;
        match (self.within, self.empty_wait) {
            (None, None) => None,
            (None, empty_wait) => Some(Limits { empty_wait, ..configured }),
            (Some(wait), empty_wait) => Some(Limits { wait, empty_wait }),
        }
    }

    /// Picks up the connection or the ending, if there is one. A served caller does not take the lock of the
    /// state.
    fn poll_pick_up(&mut self, waker: &Waker) -> Poll<Outcome<'a, C>> {
        let (core, Some(Wait { waiter, since, own, poll_at, .. })) = (self.core, &mut self.wait) else {
            return Poll::Ready(Err(CheckoutError::Closed));
        };
        let runtime = &core.runtime;
        loop {
            match core.waiters.get(*waiter).pick_up() {
                PickUp::Connection(entry) => {
                    let now = runtime.coarse_now();
                    if entry.life.stale_at <= now {
                        let discarded = core.with_state(|state| state.picked_up_stale(entry, waker, now));
                        core.dispose(discarded);
                        continue;
                    }
                    if core.is_observed {
                        core.observe(&Event::Waited { waited: runtime.now().since(*since) });
                    }
                    // The caller has left the queue: there is nothing to cancel any more.
                    self.wait = None;
                    return Poll::Ready(Ok(Checkout::new(core, entry)));
                }
                PickUp::Ending(ending) => {
                    let (waiter, since) = (*waiter, *since);
                    // Before anything that can panic: the drop of this future must not release the waiter again.
                    self.wait = None;
                    core.lock().ending_seen(waiter);
                    return Poll::Ready(Err(match ending {
                        Ending::GaveUp(shortage) => core.shortage(shortage, since),
                        Ending::Closed => CheckoutError::Closed,
                    }));
                }
                PickUp::Nothing => {
                    let now = runtime.now();
                    // The old waker is dropped here, outside the lock: it may be the last reference to a
                    // task, and its drop may run any code.
                    match core.with_state(|state| state.poll_wait(*waiter, *own, waker, now)) {
                        WaitPoll::Wait(_before, again) => {
                            *poll_at = again;
                            return Poll::Pending;
                        }
                        WaitPoll::GaveUp(_before) => {}
                        WaitPoll::Retry => {}
                    }
                }
            }
        }
    }

    /// Waits on this thread. Such a wait always has its own limits, and keeps the time itself.
    pub(crate) fn block(mut self) -> Outcome<'a, C> {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let core = self.core;
        let mut outcome = match core.take_fresh(|state, now| self.take_or_join(state, now, &waker)) {
            Ok(entry) => return Ok(Checkout::new(core, entry)),
            Err(joined) => joined,
        };
        loop {
            if let Poll::Ready(outcome) = outcome {
                return outcome;
            }
            let until = self.wait.as_ref().map_or(Instant::NEVER, |wait| wait.poll_at);
            let mut park = || std::thread::park_timeout(until.since(core.runtime.now()));
            if core.runtime.block(&mut park).is_err() {
                return Err(CheckoutError::WouldStarve);
            }
            outcome = self.poll_pick_up(&waker);
        }
    }

    #[cold]
    #[inline(never)]
    fn poll_to_join(
        &mut self,
        state: MutexGuard<'a, CoreState<C>>,
        now: Instant,
        context: &mut Context<'_>,
    ) -> Poll<Outcome<'a, C>> {
        let joined = if state.must_wait() {
            self.join(state, now, context.waker())
        } else {
            self.take_or_join(state, now, context.waker())
        };
        match joined {
            Poll::Pending => self.poll_timer(context),
            joined => joined,
        }
    }

    #[cold]
    #[inline(never)]
    fn poll_waiting(&mut self, context: &mut Context<'_>) -> Poll<Outcome<'a, C>> {
        match self.poll_pick_up(context.waker()) {
            Poll::Pending => self.poll_timer(context),
            looked => looked,
        }
    }

    /// Polls the timer of a call with its own limits, and looks again each time it fires.
    fn poll_timer(&mut self, context: &mut Context<'_>) -> Poll<Outcome<'a, C>> {
        while let Some(Wait { own: Some(_), poll_at, timer, .. }) = &mut self.wait {
            let at = *poll_at;
            let (_, sleep) = match timer.take_if(|(set_for, _)| *set_for == at) {
                Some(running) => timer.insert(running),
                None => timer.insert((at, self.core.runtime.sleep_until(at))),
            };
            if sleep.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            if let Poll::Ready(outcome) = self.poll_pick_up(context.waker()) {
                return Poll::Ready(outcome);
            }
        }
        Poll::Pending
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl<'a, C: Connect> Future for Acquire<'a, C> {
    type Output = Outcome<'a, C>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // Written out, so that the compiler builds the guard in the caller's place.
        let core = self.core;
        if self.wait.is_some() {
            return self.poll_waiting(context);
        }
        match core.take_fresh(|state, now| self.poll_to_join(state, now, context)) {
            Ok(entry) => Poll::Ready(Ok(Checkout::new(core, entry))),
            Err(joined) => joined,
        }
    }
}

impl<C: Connect> Drop for Acquire<'_, C> {
    #[inline]
    fn drop(&mut self) {
        if let Some(wait) = self.wait.take() {
            let now = self.core.runtime.now();
            let (placed, waker) = self.core.with_state(|state| state.cancel(wait.waiter, now));
            drop(waker);
            if let Some(placed) = placed {
                self.core.carry_out(placed);
            }
        }
    }
}

/// Shows how far the call is: new, queued, served or ended.
impl<C: Connect> fmt::Debug for Acquire<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Made before anything is written: the formatter is the caller's code, and must not run under the lock.
        let state = match &self.wait {
            None => "New".to_owned(),
            Some(Wait { waiter, .. }) => self.core.lock().progress(*waiter),
        };
        f.debug_struct("Acquire").field("state", &format_args!("{state}")).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;
    use crate::rt::VirtualTime;
    use crate::{Config, Reservoir};

    /// Every waiter is reused, however its wait ends. So many waits in a row need no more waiters than two
    /// waits at a time.
    #[test]
    fn no_end_of_a_wait_loses_its_waiter() {
        let time = VirtualTime::new();
        let server = Memory::new(time.clone());
        let config = Config::default().max_open(1).startup_jitter(Duration::ZERO).rate(1e6, 1_000_000);
        let builder = Reservoir::builder(server.clone()).config(config).runtime(time.clone());
        let reservoir = time.run(builder.start()).unwrap();
        let mut context = Context::from_waker(Waker::noop());
        for round in 0..1_000_u64 {
            let lent = time.run(reservoir.checkout()).unwrap();
            let (mut first, mut second) = (Box::pin(reservoir.checkout()), Box::pin(reservoir.checkout()));
            assert!(first.as_mut().poll(&mut context).is_pending());
            assert!(second.as_mut().poll(&mut context).is_pending());
            match round % 5 {
                // Both are cancelled; the first one has been served.
                0 => drop((second, lent, first)),
                // Both are served.
                1 => {
                    drop(lent);
                    drop(time.run(first).unwrap());
                    drop(time.run(second).unwrap());
                }
                // Both give up.
                2 => {
                    time.advance(Duration::from_secs(31));
                    assert!(time.run(first).is_err() && time.run(second).is_err());
                    drop(lent);
                }
                // Both have timed out, and nobody looks at the result.
                3 => {
                    time.advance(Duration::from_secs(31));
                    drop((first, second, lent));
                }
                // The first one loses its connection before it picks it up, and gets another one.
                _ => {
                    let id = lent.id();
                    drop(lent);
                    server.kill(id);
                    drop(time.run(first).unwrap());
                    drop(second);
                }
            }
            assert_eq!(reservoir.status().waiting, 0);
        }
        assert!(reservoir.waiters_used() <= 4, "{} waiters", reservoir.waiters_used());
    }
}
