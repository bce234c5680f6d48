//! The manager as a bb8 `ManageConnection`.

use std::time::Duration;

use bb8::ManageConnection;

use super::ReservoirManager;
use crate::checkout::OwnedCheckout;
use crate::connect::Connect;
use crate::error::CheckoutError;

/// How long one attempt waits while connections are missing, unless the configuration sets it.
const EMPTY_WAIT: Duration = Duration::from_millis(100);

impl<C: Connect> ManageConnection for ReservoirManager<C> {
    type Connection = OwnedCheckout<C>;
    type Error = CheckoutError;

    async fn connect(&self) -> Result<OwnedCheckout<C>, CheckoutError> {
        // bb8 retries until its own timeout, so a short wait is enough.
        let empty_wait = self.0.core().limits.empty_wait.unwrap_or(EMPTY_WAIT);
        Ok(self.0.checkout().empty_wait(empty_wait).await?.into_owned())
    }

    async fn is_valid(&self, connection: &mut OwnedCheckout<C>) -> Result<(), CheckoutError> {
        // bb8 drops the connection after any error, and shows the error to nobody.
        if self.is_reusable(connection) { Ok(()) } else { Err(CheckoutError::Closed) }
    }

    fn has_broken(&self, connection: &mut OwnedCheckout<C>) -> bool {
        !self.is_reusable(connection)
    }
}
