//! A bb8 pool over a reservoir.

use bb8::ManageConnection;

use super::Tap;
use crate::checkout::OwnedCheckout;
use crate::connect::Connect;
use crate::error::CheckoutError;

impl<C: Connect> ManageConnection for Tap<C> {
    type Connection = OwnedCheckout<C>;
    type Error = CheckoutError;

    async fn connect(&self) -> Result<OwnedCheckout<C>, CheckoutError> {
        self.draw().await
    }

    async fn is_valid(&self, connection: &mut OwnedCheckout<C>) -> Result<(), CheckoutError> {
        // Any error makes bb8 drop the connection and take another; nobody sees which.
        if self.is_fit(connection) { Ok(()) } else { Err(CheckoutError::Closed) }
    }

    fn has_broken(&self, connection: &mut OwnedCheckout<C>) -> bool {
        !self.is_fit(connection)
    }
}
