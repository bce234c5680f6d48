//! What is too large to be sent.

use std::time::Duration;

use prost::Message;
use tonic::{Request, Status};

use super::{Link, timed};

/// A message that this side does not send. Looked for before anything is sent: once it is on its way, all that can be seen is a call
/// that broke off.
#[derive(Debug, thiserror::Error)]
#[error(
    "a message of {size} bytes, where {limit} may be sent: raise ConnectOptions::max_message_size, or send less at once"
)]
pub(crate) struct TooLarge {
    size: usize,
    limit: usize,
}

impl TooLarge {
    /// Whether a message is small enough.
    pub(crate) fn check(message: &impl Message, limit: usize) -> Result<(), Self> {
        let size = message.encoded_len();
        if size > limit { Err(Self { size, limit }) } else { Ok(()) }
    }
}

impl Link {
    /// The largest message that may be sent.
    pub(crate) fn largest(&self) -> usize {
        self.server.options.max_encoding
    }

    /// A call with one message, that has so much time.
    pub(super) fn request<T: Message>(
        &self,
        message: T,
        limit: Option<Duration>,
    ) -> Result<Request<T>, Status> {
        TooLarge::check(&message, self.largest()).map_err(|error| Status::from_error(Box::new(error)))?;
        Ok(timed(message, limit))
    }
}
