//! The limit on the size of a message that is sent.

use std::time::Duration;

use prost::Message;
use tonic::{Request, Status};

use super::{Connection, timed};

/// A message above the limit. Checked before anything is sent: afterwards one sees only a call that broke
/// off.
#[derive(Debug, thiserror::Error)]
#[error(
    "a message of {size} bytes, where {limit} may be sent: raise ConnectOptions::max_message_size, or send less at once"
)]
pub(crate) struct TooLarge {
    size: usize,
    limit: usize,
}

impl TooLarge {
    pub(crate) fn check(message: &impl Message, limit: usize) -> Result<(), Self> {
        let size = message.encoded_len();
        if size > limit { Err(Self { size, limit }) } else { Ok(()) }
    }
}

impl Connection {
    /// The largest message that may be sent.
    pub(crate) fn max_message_size(&self) -> usize {
        self.server.options.max_encoding
    }

    /// A call with one message and a deadline.
    pub(super) fn request<T: Message>(
        &self,
        message: T,
        limit: Option<Duration>,
    ) -> Result<Request<T>, Status> {
        TooLarge::check(&message, self.max_message_size())
            .map_err(|error| Status::from_error(Box::new(error)))?;
        Ok(timed(message, limit))
    }
}
