//! How a caller gets a connection from the reservoir: a wait is counted.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use forebay::{CheckoutError, Connect, Instant};

use crate::pool::DsqlPool;
use crate::pool::pooled_connection::PooledConnection;

impl<C: Connect> DsqlPool<C> {
    /// Takes a connection, waiting for as long as the configuration says, or for at most `wait`. Cancel safe.
    pub(super) async fn take(
        &self,
        wait: Option<Duration>,
    ) -> Result<PooledConnection<'_, C>, CheckoutError> {
        let mut checkout = self.reservoir.checkout();
        if let Some(wait) = wait {
            checkout = checkout.within(wait);
        }
        let mut checkout = pin!(checkout);
        let taken = match poll_fn(|context| Poll::Ready(checkout.as_mut().poll(context))).await {
            Poll::Ready(taken) => taken,
            Poll::Pending => {
                let _waiting = Waiting { pool: self, since: self.runtime.now() };
                checkout.await
            }
        };
        taken.map(PooledConnection)
    }

    /// The same error, with all the time that its caller has waited.
    pub(super) fn waited_since(&self, began: Instant, mut error: CheckoutError) -> CheckoutError {
        use CheckoutError::{Denied, Empty, Exhausted};
        if let Empty { waited, .. } | Exhausted { waited, .. } | Denied { waited, .. } = &mut error {
            *waited = self.runtime.now().since(began);
        }
        error
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
