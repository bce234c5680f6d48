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
use crate::state::{Taken, Ticket, Waited};
use crate::sync::MutexGuard;
use crate::time::Instant;

/// A future for the next connection, from [`Reservoir::checkout`](crate::Reservoir::checkout).
///
/// # Cancel safety
/// Dropping it loses nothing: a connection it was about to get goes to the next in line.
#[must_use = "a checkout does nothing until it is awaited"]
pub struct Acquire<'a, C: Connect> {
    core: &'a Arc<Core<C>>,
    within: Option<Duration>,
    /// Set while in line.
    wait: Option<Wait>,
}

struct Wait {
    ticket: Ticket,
    since: Instant,
    /// The caller's own limit.
    deadline: Option<Instant>,
    /// The timer for it. The configured limits need none: one task watches the whole line.
    timer: Option<Task>,
}

type Outcome<'a, C> = Result<Checkout<'a, C>, CheckoutError>;

impl<'a, C: Connect> Acquire<'a, C> {
    pub(crate) fn new(core: &'a Arc<Core<C>>) -> Self {
        Self { core, within: None, wait: None }
    }

    /// Waits at most this long, whatever the reason, instead of as long as the configuration says.
    pub fn within(mut self, wait: Duration) -> Self {
        self.within = Some(wait);
        self
    }

    /// Takes a connection, or joins the line, or sees how far it has come.
    fn look(&mut self, waker: &Waker) -> Poll<Outcome<'a, C>> {
        let core = self.core;
        if self.wait.is_some() {
            return self.look_in_line(waker);
        }
        match core.take_fresh(|state, now| self.take_or_join(state, now, waker)) {
            Ok(entry) => Poll::Ready(Ok(Checkout::new(core, entry))),
            Err(joined) => joined,
        }
    }

    /// The first one was stale, or there was none: goes on until there is a good one, or joins the line. Looking and
    /// joining are one step, so that nothing can come back in between unseen.
    fn take_or_join(
        &mut self,
        mut state: MutexGuard<'a, CoreState<C>>,
        mut coarse: Instant,
        waker: &Waker,
    ) -> Poll<Outcome<'a, C>> {
        loop {
            match state.take(coarse) {
                Taken::Got(entry) => {
                    self.core.leave(state);
                    return Poll::Ready(Ok(Checkout::new(self.core, entry)));
                }
                Taken::Stale(discarded) => {
                    self.core.leave(state);
                    self.core.dispose(discarded);
                    coarse = self.core.runtime.coarse_now();
                    state = self.core.lock();
                }
                Taken::Closed => return Poll::Ready(Err(CheckoutError::Closed)),
                Taken::Nothing => {
                    // Precise where it matters: to an observer, and to a caller with a limit of its own.
                    let precise = self.core.is_observed || self.within.is_some();
                    let since = if precise { self.core.runtime.now() } else { coarse };
                    let deadline = self.within.map(|within| since + within);
                    let ticket = state.join(since, deadline, waker.clone());
                    self.core.leave(state);
                    self.wait = Some(Wait { ticket, since, deadline, timer: None });
                    return Poll::Pending;
                }
            }
        }
    }

    fn look_in_line(&mut self, waker: &Waker) -> Poll<Outcome<'a, C>> {
        let (core, Some(Wait { ticket, since, .. })) = (self.core, &self.wait) else {
            return Poll::Ready(Err(CheckoutError::Closed));
        };
        let runtime = &core.runtime;
        let outcome = loop {
            let coarse = runtime.coarse_now();
            match core.ask(|state| state.look(*ticket, coarse, || runtime.now(), waker)) {
                Waited::NotYet => return Poll::Pending,
                Waited::Stale(discarded) => core.dispose(discarded),
                Waited::Got(entry) => {
                    if core.is_observed {
                        core.observe(&Event::Waited { waited: runtime.now().since(*since) });
                    }
                    break Ok(Checkout::new(core, entry));
                }
                Waited::GaveUp(shortage) => break Err(core.shortage(shortage, runtime.now().since(*since))),
                Waited::Closed => break Err(CheckoutError::Closed),
            }
        };
        // The machine has struck us off the line: there is nothing left to cancel.
        self.wait = None;
        Poll::Ready(outcome)
    }

    /// Waits on this thread. Such a wait has a limit of its own, and keeps the time itself.
    pub(crate) fn block(mut self) -> Outcome<'a, C> {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        loop {
            if let Poll::Ready(outcome) = self.look(&waker) {
                return outcome;
            }
            let until = self.wait.as_ref().and_then(|wait| wait.deadline).unwrap_or(Instant::NEVER);
            let runtime = &self.core.runtime;
            let mut park = || std::thread::park_timeout(until.since(runtime.now()));
            if runtime.block(&mut park).is_err() {
                return Err(CheckoutError::WouldStarve);
            }
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
        match self.take_or_join(state, now, context.waker()) {
            Poll::Pending => self.poll_timer(context),
            joined => joined,
        }
    }

    #[cold]
    #[inline(never)]
    fn poll_in_line(&mut self, context: &mut Context<'_>) -> Poll<Outcome<'a, C>> {
        match self.look_in_line(context.waker()) {
            Poll::Pending => self.poll_timer(context),
            looked => looked,
        }
    }

    /// Polls the timer of a caller with a limit of its own, if it has one, and looks once more when it is up.
    fn poll_timer(&mut self, context: &mut Context<'_>) -> Poll<Outcome<'a, C>> {
        let Some(Wait { deadline: Some(deadline), timer, .. }) = &mut self.wait else { return Poll::Pending };
        let timer = timer.get_or_insert_with(|| self.core.runtime.sleep_until(*deadline));
        if timer.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        self.look_in_line(context.waker())
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
        // Spelled out, and not through `look`: this way the guard is made where the caller wants it.
        let core = self.core;
        if self.wait.is_some() {
            return self.poll_in_line(context);
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
            if let Some(placed) = self.core.ask(|state| state.cancel(wait.ticket, now)) {
                self.core.settle(placed);
            }
        }
    }
}

impl<C: Connect> fmt::Debug for Acquire<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire").field("waiting", &self.wait.is_some()).finish_non_exhaustive()
    }
}
