//! The stream between driver and TLS.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::StateTracker;
use super::frames::{Frames, Garbage};
use super::protocol_state::ProtocolState;

/// A stream whose frames are tracked.
pub(crate) struct TrackedStream<S> {
    stream: S,
    sent: Frames,
    received: Frames,
    pub(super) protocol: ProtocolState,
    pub(super) tracker: Arc<StateTracker>,
    /// Whoever reads may keep what it has read from those whom it is for, as a driver does with the rows of a stream.
    withholds: bool,
}

impl<S> TrackedStream<S> {
    /// Tracks `stream`. Its first frame must be a start-up message.
    pub(crate) fn new(stream: S, tracker: Arc<StateTracker>) -> Self {
        tracker.start();
        let (sent, received) = (Frames::of_client(), Frames::of_server());
        Self { stream, sent, received, protocol: ProtocolState::default(), tracker, withholds: true }
    }

    /// The same, for a program that reads for itself.
    #[cfg(feature = "raw")]
    pub(crate) fn without_driver(stream: S, tracker: Arc<StateTracker>) -> Self {
        Self { withholds: false, ..Self::new(stream, tracker) }
    }

    /// Whether the server has refused the last request.
    #[cfg(feature = "raw")]
    pub(crate) fn was_refused(&self) -> bool {
        self.protocol.was_refused()
    }

    /// The stream that is tracked.
    #[cfg(feature = "raw")]
    pub(crate) fn get_ref(&self) -> &S {
        &self.stream
    }

    /// The same, to do what is not tracked.
    #[cfg(feature = "raw")]
    pub(crate) fn get_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    pub(super) fn note_sent(&mut self, bytes: &[u8]) {
        let fed = self.sent.feed(bytes, &mut self.protocol.requests());
        self.finish(fed);
    }

    pub(super) fn note_received(&mut self, bytes: &[u8]) {
        let fed = self.received.feed(bytes, &mut self.protocol.answers());
        self.protocol.half_heard = self.received.is_inside();
        self.finish(fed);
    }

    fn finish(&mut self, fed: Result<(), Garbage>) {
        self.tracker.publish(&mut self.protocol);
        if fed.is_err() {
            self.tracker.set_broken();
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TrackedStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let Poll::Ready(read) = Pin::new(&mut this.stream).poll_read(context, buffer) else {
            // A driver reads again only after it has delivered all that it had.
            if std::mem::take(&mut this.protocol.undelivered) {
                this.tracker.publish(&mut this.protocol);
            }
            return Poll::Pending;
        };
        this.protocol.undelivered = this.withholds;
        let received = &buffer.filled()[before..];
        if read.is_err() || (received.is_empty() && buffer.remaining() > 0) {
            this.tracker.set_broken();
        } else {
            this.note_received(received);
        }
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TrackedStream<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let Poll::Ready(written) = Pin::new(&mut this.stream).poll_write(context, bytes) else {
            this.protocol.blocked = true;
            this.tracker.publish(&mut this.protocol);
            return Poll::Pending;
        };
        this.protocol.blocked = false;
        match written {
            Ok(written) => this.note_sent(&bytes[..written]),
            Err(_) => this.tracker.set_broken(),
        }
        Poll::Ready(written)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = ready!(Pin::new(&mut this.stream).poll_flush(context));
        if flushed.is_err() {
            this.tracker.set_broken();
        }
        Poll::Ready(flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.tracker.set_broken();
        Pin::new(&mut this.stream).poll_shutdown(context)
    }
}
