//! A socket that carries the protocol. It keeps no buffers while it is idle.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::ready;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

use super::backend::Replies;
use super::frontend::{self, Malformed};
use crate::clock;

/// The size of a read. The buffer is on the stack, so an idle connection has none.
const CHUNK: usize = 8 * 1024;
/// Replies beyond this size are sent before more are produced.
const FULL: usize = 64 * 1024;

#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamLimits {
    pub(crate) message_limit: usize,
    pub(crate) write_timeout: Duration,
}

/// Why a connection is broken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
    #[error("the client closed the connection")]
    Closed,
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("the client does not read its answers")]
    WriteTimeout,
    #[error(transparent)]
    Io(#[from] io::Error),
}

#[derive(Debug)]
pub(crate) struct Wire<S> {
    stream: S,
    input: BytesMut,
    pub(crate) replies: Replies,
    limits: StreamLimits,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    pub(crate) fn new(stream: S, limits: StreamLimits) -> Self {
        Self { stream, input: BytesMut::new(), replies: Replies::default(), limits }
    }

    /// Accepts messages of this size, and returns the size before.
    pub(crate) fn set_message_limit(&mut self, message_limit: usize) -> usize {
        std::mem::replace(&mut self.limits.message_limit, message_limit)
    }

    pub(crate) fn stream(&self) -> &S {
        &self.stream
    }

    /// A message that was already received.
    pub(crate) fn buffered(&mut self) -> Result<Option<(u8, Bytes)>, WireError> {
        let message = frontend::frame(&mut self.input, self.limits.message_limit)?;
        if self.input.is_empty() {
            self.input = BytesMut::new();
        }
        Ok(message)
    }

    /// Whether the next message was already received and has this tag.
    pub(crate) fn awaits(&self, tag: u8) -> bool {
        self.input.first() == Some(&tag)
    }

    /// Waits for more input.
    ///
    /// # Cancel safety
    /// Nothing is lost if it is dropped.
    pub(crate) async fn more(&mut self) -> Result<(), WireError> {
        let Self { stream, input, .. } = self;
        let count = poll_fn(|context| {
            let mut chunk = [MaybeUninit::uninit(); CHUNK];
            let mut chunk = ReadBuf::uninit(&mut chunk);
            ready!(Pin::new(&mut *stream).poll_read(context, &mut chunk))?;
            input.extend_from_slice(chunk.filled());
            std::task::Poll::Ready(io::Result::Ok(chunk.filled().len()))
        });
        if count.await? == 0 { Err(WireError::Closed) } else { Ok(()) }
    }

    /// Waits for the next message.
    ///
    /// # Cancel safety
    /// Nothing is lost if it is dropped.
    pub(crate) async fn message(&mut self) -> Result<(u8, Bytes), WireError> {
        loop {
            if let Some(message) = self.buffered()? {
                return Ok(message);
            }
            self.more().await?;
        }
    }

    /// Reads this many bytes: the first packet has no tag.
    pub(crate) async fn exactly(&mut self, count: usize) -> Result<BytesMut, WireError> {
        while self.input.len() < count {
            self.more().await?;
        }
        Ok(self.input.split_to(count))
    }

    pub(crate) async fn flush_if_full(&mut self) -> Result<(), WireError> {
        if self.replies.0.len() > FULL { self.flush().await } else { Ok(()) }
    }

    /// Sends all replies.
    pub(crate) async fn flush(&mut self) -> Result<(), WireError> {
        let Self { stream, replies: Replies(buffer), limits, .. } = self;
        if buffer.is_empty() {
            return Ok(());
        }
        let send = async {
            while !buffer.is_empty() {
                // The timeout is for each step: a slow client is not stuck.
                match clock::within(limits.write_timeout, stream.write_buf(buffer)).await {
                    None => return Err(WireError::WriteTimeout),
                    Some(written) => drop(written?),
                }
            }
            let flushed = clock::within(limits.write_timeout, stream.flush()).await;
            Ok(flushed.ok_or(WireError::WriteTimeout)??)
        };
        send.await?;
        *buffer = BytesMut::new();
        Ok(())
    }
}
