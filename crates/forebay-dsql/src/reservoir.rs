//! Reservoir mode: forebay's reservoir, and a doubt about connections that do not tell of their death.
//!
//! A client such as sqlx finds out that a connection is dead when it uses it. After a mass disconnect each of many callers would
//! find one, and one caller several in a row. So once one was found dead, all that were not heard of since are in doubt, and
//! each of them is asked before it is lent.

use std::sync::Arc;
use std::time::Duration;

use forebay::rt::{self, Runtime};
use forebay::{CheckoutError, Connect, Failure, Instant, OpenError, OwnedCheckout, Reservoir};
use tokio::sync::oneshot;

use crate::lent::Lent;
use crate::registry::Tracking;

/// A pool in reservoir mode.
pub(crate) struct Stocked<C: Connect> {
    pub(crate) reservoir: Reservoir<Tracking<C>>,
    pub(crate) connector: Tracking<C>,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) acquire_timeout: Duration,
    /// How long it may take a connection to answer.
    pub(crate) maintenance_timeout: Duration,
}

impl<C: Connect> Stocked<C> {
    /// Takes a connection, waiting for as long as the configuration says. Cancel safe.
    pub(crate) async fn acquire(&self) -> Result<Lent<'_, C>, CheckoutError> {
        // Only where a doubt can arise: two looks at the clock would cost more than taking a connection.
        let began = if self.connector.can_doubt() { self.runtime.now() } else { Instant::ZERO };
        let checkout = self.reservoir.checkout().await?;
        if !self.connector.is_in_doubt(&checkout) {
            return Ok(Lent::of_reservoir(checkout));
        }
        self.sure(checkout.into_owned(), began, self.acquire_timeout).await
    }

    /// Takes a connection, waiting for at most `wait`. Cancel safe.
    pub(crate) async fn acquire_within(&self, wait: Duration) -> Result<Lent<'_, C>, CheckoutError> {
        let began = if self.connector.can_doubt() { self.runtime.now() } else { Instant::ZERO };
        let checkout = self.reservoir.checkout().within(wait).await?;
        if !self.connector.is_in_doubt(&checkout) {
            return Ok(Lent::of_reservoir(checkout));
        }
        self.sure(checkout.into_owned(), began, wait).await
    }

    /// One that answers: this one, or another, within `wait` of when the caller `began`.
    async fn sure(
        &self,
        mut checkout: OwnedCheckout<Tracking<C>>,
        began: Instant,
        wait: Duration,
    ) -> Result<Lent<'_, C>, CheckoutError> {
        let until = began + wait;
        let left = || until.since(self.runtime.now());
        loop {
            // If its time is up, the question goes on without the caller, and the connection goes back or is closed.
            match rt::within(&*self.runtime, left(), self.asked(checkout)).await {
                Some(Some(checkout)) => return Ok(Lent::of_owned(checkout)),
                Some(None) if !left().is_zero() => {}
                Some(None) | None => return Err(self.no_answer(began)),
            }
            let next = self.reservoir.checkout().within(left()).await;
            let next = next.map_err(|error| self.waited_since(began, error))?;
            if !self.connector.is_in_doubt(&next) {
                return Ok(Lent::of_reservoir(next));
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

    /// The same error, after all that its caller has waited.
    fn waited_since(&self, began: Instant, mut error: CheckoutError) -> CheckoutError {
        use CheckoutError::{Denied, Empty, Exhausted};
        if let Empty { waited, .. } | Exhausted { waited, .. } | Denied { waited, .. } = &mut error {
            *waited = self.runtime.now().since(began);
        }
        error
    }

    /// Asks a connection whether it lives, in a task, so that an answer is never left behind by a caller who gives up. None if it
    /// had to go.
    async fn asked(&self, mut checkout: OwnedCheckout<Tracking<C>>) -> Option<OwnedCheckout<Tracking<C>>> {
        let (hand, handed) = oneshot::channel();
        let (connector, runtime, limit) =
            (self.connector.clone(), Arc::clone(&self.runtime), self.maintenance_timeout);
        self.runtime.spawn(Box::pin(async move {
            let check = connector.check(&mut checkout);
            if matches!(rt::within(&*runtime, limit, check).await, Some(Ok(()))) {
                // If nobody waits for it any more, it goes back.
                drop(hand.send(checkout));
            } else {
                checkout.mark_bad();
            }
        }));
        handed.await.ok()
    }
}

impl<C: Connect> Clone for Stocked<C> {
    fn clone(&self) -> Self {
        Self {
            reservoir: self.reservoir.clone(),
            connector: self.connector.clone(),
            runtime: Arc::clone(&self.runtime),
            acquire_timeout: self.acquire_timeout,
            maintenance_timeout: self.maintenance_timeout,
        }
    }
}
