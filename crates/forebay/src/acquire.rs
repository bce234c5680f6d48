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
use crate::core::Core;
use crate::error::CheckoutError;
use crate::event::Event;
use crate::rt::Task;
use crate::state::{Taken, Ticket, Waited};
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
    deadline: Option<Instant>,
    /// When to look again even if nobody wakes us, and the timer for it.
    timer: Option<(Instant, Task)>,
}

/// What a look brought: an outcome, or when to look again.
type Look<'a, C> = Result<Result<Checkout<'a, C>, CheckoutError>, Instant>;

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
    fn look(&mut self, waker: &Waker) -> Look<'a, C> {
        if self.wait.is_some() { self.look_in_line(waker) } else { self.look_or_join(waker) }
    }

    /// Goes through what is ready until there is a good one, or joins the line.
    fn look_or_join(&mut self, waker: &Waker) -> Look<'a, C> {
        let now = self.core.runtime.now();
        loop {
            // Looking and joining are one step, so that nothing can come back in between unseen.
            let coarse = self.core.runtime.coarse_now();
            let looked = self.core.ask(|state| match state.take(coarse) {
                Taken::Nothing => Err(state.join(now, waker.clone())),
                taken => Ok(taken),
            });
            match looked {
                Ok(Taken::Got(entry)) => return Ok(Ok(Checkout::new(self.core, entry))),
                Ok(Taken::Stale(discarded)) => self.core.dispose(discarded),
                Ok(Taken::Closed | Taken::Nothing) => return Ok(Err(CheckoutError::Closed)),
                Err(ticket) => {
                    let deadline = self.within.map(|within| now + within);
                    self.wait = Some(Wait { ticket, since: now, deadline, timer: None });
                    return self.look_in_line(waker);
                }
            }
        }
    }

    fn look_in_line(&mut self, waker: &Waker) -> Look<'a, C> {
        let Some(Wait { ticket, since, deadline, .. }) = self.wait else {
            return Ok(Err(CheckoutError::Closed));
        };
        loop {
            let now = self.core.runtime.now();
            let outcome = match self.core.ask(|state| state.look(ticket, deadline, now, waker)) {
                Waited::Stale(discarded) => {
                    self.core.dispose(discarded);
                    continue;
                }
                Waited::Until(until) => return Err(until),
                Waited::Got(entry) => {
                    self.core.observe(&Event::Waited { waited: now.since(since) });
                    Ok(Checkout::new(self.core, entry))
                }
                Waited::GaveUp(shortage) => Err(self.core.shortage(shortage, now.since(since))),
                Waited::Closed => Err(CheckoutError::Closed),
            };
            // The machine has struck us off the line: there is nothing left to cancel.
            self.wait = None;
            return Ok(outcome);
        }
    }

    /// Waits on this thread.
    pub(crate) fn block(mut self) -> Result<Checkout<'a, C>, CheckoutError> {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        loop {
            let until = match self.look(&waker) {
                Ok(outcome) => return outcome,
                Err(until) => until,
            };
            let runtime = &self.core.runtime;
            let mut park = || std::thread::park_timeout(until.since(runtime.now()));
            if runtime.block(&mut park).is_err() {
                return Err(CheckoutError::WouldStarve);
            }
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl<'a, C: Connect> Future for Acquire<'a, C> {
    type Output = Result<Checkout<'a, C>, CheckoutError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.wait.is_none()
            && let Some(entry) = self.core.take_fresh()
        {
            return Poll::Ready(Ok(Checkout::new(self.core, entry)));
        }
        self.poll_slowly(context)
    }
}

impl<'a, C: Connect> Acquire<'a, C> {
    #[cold]
    fn poll_slowly(&mut self, context: &mut Context<'_>) -> Poll<<Self as Future>::Output> {
        match self.look(context.waker()) {
            Ok(outcome) => Poll::Ready(outcome),
            Err(until) => self.sleep_until(until, context),
        }
    }

    /// Sets a timer for the next look. Only a caller who must wait pays for one.
    #[cold]
    fn sleep_until(
        &mut self,
        mut until: Instant,
        context: &mut Context<'_>,
    ) -> Poll<<Self as Future>::Output> {
        loop {
            let Some(wait) = &mut self.wait else { return Poll::Ready(Err(CheckoutError::Closed)) };
            if wait.timer.as_ref().is_none_or(|(at, _)| *at != until) {
                wait.timer = Some((until, self.core.runtime.sleep_until(until)));
            }
            if let Some((_, sleep)) = &mut wait.timer
                && sleep.as_mut().poll(context).is_pending()
            {
                return Poll::Pending;
            }
            wait.timer = None;
            match self.look(context.waker()) {
                Ok(outcome) => return Poll::Ready(outcome),
                Err(next) => until = next,
            }
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
