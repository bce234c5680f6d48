//! The manager as a deadpool `Manager`.

use deadpool::managed::{Manager, Metrics, RecycleError, RecycleResult};

use super::ReservoirManager;
use crate::checkout::OwnedCheckout;
use crate::connect::Connect;
use crate::error::CheckoutError;

impl<C: Connect> Manager for ReservoirManager<C> {
    type Type = OwnedCheckout<C>;
    type Error = CheckoutError;

    async fn create(&self) -> Result<OwnedCheckout<C>, CheckoutError> {
        // deadpool returns the first error to its caller. So this waits as long as a checkout does.
        Ok(self.0.checkout().await?.into_owned())
    }

    async fn recycle(&self, connection: &mut OwnedCheckout<C>, _: &Metrics) -> RecycleResult<CheckoutError> {
        // A dirty connection is not reset here: the reservoir resets it in the background, while the caller
        // gets another one.
        if self.is_reusable(connection) {
            Ok(())
        } else {
            Err(RecycleError::message("the connection is due, dead or dirty: the reservoir has a fresh one"))
        }
    }
}
