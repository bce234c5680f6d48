//! How a caller gets a connection: the wait is counted, and a connection that may be dead is checked first.
//!
//! A driver such as sqlx notices that a connection is dead only when it is used. After a mass disconnect each of many callers
//! would get a dead one, and one caller several in a row. So once a connection was found dead, all others that have not answered
//! since are in doubt, and each is checked before it is lent. So is a connection that was lent and returned unused for as long
//! as an idle one may stay unchecked.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use forebay::rt;
use forebay::{Checkout, CheckoutError, Connect, Failure, Instant, OpenError};
use tokio::sync::oneshot;

use crate::pool::DsqlPool;
use crate::pool::pooled_connection::PooledConnection;
use crate::pool::registry::Registering;

impl<C: Connect> DsqlPool<C> {
    /// Takes a connection, waiting for as long as the configuration says, or for at most `wait`. Cancel safe.
    pub(crate) async fn lend(
        &self,
        wait: Option<Duration>,
    ) -> Result<PooledConnection<'_, C>, CheckoutError> {
        // Only where a doubt can arise: reading the clock would cost more than taking a connection.
        let began = if self.connector.can_doubt() { self.runtime.now() } else { Instant::ZERO };
        let checkout = self.take(wait).await?;
        if !self.connector.is_in_doubt(&checkout, began) {
            return Ok(PooledConnection(checkout));
        }
        self.sure(checkout.into_owned(), began, wait.unwrap_or(self.acquire_timeout)).await
    }

    /// Takes a connection from the reservoir, and counts the wait if there is one.
    async fn take(&self, wait: Option<Duration>) -> Result<Checkout<'_, Registering<C>>, CheckoutError> {
        let mut checkout = self.reservoir.checkout();
        if let Some(wait) = wait {
            checkout = checkout.within(wait);
        }
        let mut checkout = pin!(checkout);
        match poll_fn(|context| Poll::Ready(checkout.as_mut().poll(context))).await {
            Poll::Ready(taken) => taken,
            Poll::Pending => {
                let _waiting = Waiting { pool: self, since: self.runtime.now() };
                checkout.await
            }
        }
    }

    /// A connection that answers: this one, or another, within `wait` of when the caller `began`.
    async fn sure(
        &self,
        mut checkout: Checkout<'static, Registering<C>>,
        began: Instant,
        wait: Duration,
    ) -> Result<PooledConnection<'_, C>, CheckoutError> {
        let until = began + wait;
        let left = || until.since(self.runtime.now());
        loop {
            // If the caller's time is up, the check goes on without it, and the connection goes back or is closed.
            match rt::within(&*self.runtime, left(), self.asked(checkout)).await {
                Some(Some(checkout)) => return Ok(PooledConnection(checkout)),
                Some(None) if !left().is_zero() => {}
                Some(None) | None => return Err(self.no_answer(began)),
            }
            let next = self.take(Some(left())).await.map_err(|error| self.waited_since(began, error))?;
            if !self.connector.is_in_doubt(&next, self.runtime.now()) {
                return Ok(PooledConnection(next));
            }
            checkout = next.into_owned();
        }
    }

    fn no_answer(&self, began: Instant) -> CheckoutError {
        let cause =
            OpenError::new(Failure::Open, "connections that were ready did not answer, and may be dead");
        let waited = self.runtime.now().since(began);
        CheckoutError::Empty { waited, last_open_error: Some(Arc::new(cause)) }
    }

    /// The same error, with all the time that its caller has waited.
    fn waited_since(&self, began: Instant, mut error: CheckoutError) -> CheckoutError {
        use CheckoutError::{Denied, Empty, Exhausted};
        if let Empty { waited, .. } | Exhausted { waited, .. } | Denied { waited, .. } = &mut error {
            *waited = self.runtime.now().since(began);
        }
        error
    }

    /// Checks a connection in a task of its own, so that a caller that gives up leaves no answer unread. None if the check failed.
    async fn asked(
        &self,
        mut checkout: Checkout<'static, Registering<C>>,
    ) -> Option<Checkout<'static, Registering<C>>> {
        let (hand, handed) = oneshot::channel();
        let (connector, runtime, limit) =
            (self.connector.clone(), Arc::clone(&self.runtime), self.maintenance_timeout);
        self.runtime.spawn(Box::pin(async move {
            let check = connector.check(&mut checkout);
            if matches!(rt::within(&*runtime, limit, check).await, Some(Ok(()))) {
                // If nobody waits for it any more, it goes back to the pool.
                drop(hand.send(checkout));
            } else {
                checkout.mark_bad();
            }
        }));
        handed.await.ok()
    }
}

/// A caller that waits. Its wait is counted when it ends, also if the caller gives up.
struct Waiting<'a, C: Connect> {
    pool: &'a DsqlPool<C>,
    since: Instant,
}

impl<C: Connect> Drop for Waiting<'_, C> {
    fn drop(&mut self) {
        self.pool.metrics.waited(self.pool.runtime.now().since(self.since));
    }
}
