//! The stream between driver and TLS.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use forebay::rt::Runtime;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::StateTracker;
use super::deadline::Deadline;
use super::frames::{Frames, Garbage};
use super::protocol_state::ProtocolState;
use super::stand_in::StandIn;
use crate::driver::given_up::GivenUp;

/// How long the rest of a frame may take, once a request is overdue.
const REST_OF_A_FRAME: Duration = Duration::from_secs(1);

/// A stream whose frames are tracked.
pub(crate) struct TrackedStream<S> {
    stream: S,
    sent: Frames,
    received: Frames,
    pub(super) protocol: ProtocolState,
    pub(super) tracker: Arc<StateTracker>,
    /// The reader may hold back what it has read, as a driver does with the rows of a stream.
    withholds: bool,
    /// None for a program that reads for itself, and gives up by itself.
    deadline: Option<Deadline>,
    /// Since requests were given up, until the connection is reset.
    given_up: Option<Box<StandIn>>,
}

impl<S> TrackedStream<S> {
    /// Tracks `stream`, and ends requests as the limits of the tracker say. Its first frame must be a start-up message.
    pub(crate) fn new(stream: S, tracker: Arc<StateTracker>, runtime: Arc<dyn Runtime>) -> Self {
        Self { withholds: true, deadline: Some(Deadline::new(runtime)), ..Self::tracked(stream, tracker) }
    }

    /// The same, for a program that reads for itself.
    #[cfg(feature = "raw")]
    pub(crate) fn without_driver(stream: S, tracker: Arc<StateTracker>) -> Self {
        Self::tracked(stream, tracker)
    }

    fn tracked(stream: S, tracker: Arc<StateTracker>) -> Self {
        tracker.start();
        let (sent, received) = (Frames::of_client(), Frames::of_server());
        let protocol = ProtocolState::default();
        Self { stream, sent, received, protocol, tracker, withholds: false, deadline: None, given_up: None }
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

    #[cfg(test)]
    pub(super) fn stream(&self) -> &S {
        &self.stream
    }

    #[cfg(test)]
    pub(super) fn is_overdue(&self) -> bool {
        self.deadline.as_ref().is_some_and(|deadline| deadline.overdue_since.is_some())
    }

    #[cfg(test)]
    pub(super) fn stream_mut(&mut self) -> &mut S {
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
        self.note_times();
        self.tracker.publish(&mut self.protocol);
        if fed.is_err() {
            self.tracker.set_broken();
        }
    }

    fn note_times(&mut self) {
        if let Some(deadline) = &mut self.deadline {
            deadline.note(&self.protocol, self.protocol.is_being_sent() || self.sent.is_inside());
        }
    }

    /// Whether the oldest request is overdue. If not, the task is woken when it is.
    fn is_due(&mut self, context: &mut Context<'_>) -> bool {
        let limits = &self.tracker.limits;
        self.deadline.as_mut().is_some_and(|deadline| deadline.is_due(limits, context))
    }

    /// The task is woken when the oldest request is overdue.
    fn watch(&mut self, context: &mut Context<'_>) {
        if let Some(deadline) = &mut self.deadline {
            deadline.watch(&self.tracker.limits, context);
        }
    }

    /// Whether what is sent from now on is not waited for.
    fn is_over(&self) -> bool {
        let until = self.tracker.limits.until();
        self.deadline.as_ref().is_some_and(|deadline| deadline.is_over(until))
    }

    /// Ends all requests that are unanswered.
    ///
    /// Not in the middle of a request, or of the data of a COPY: there the server waits for bytes that never come.
    fn give_up(&mut self) -> io::Result<()> {
        if self.protocol.is_inside_a_request() || self.sent.is_inside() {
            return Err(self.broken());
        }
        let mut given_up = StandIn::new(self.protocol.is_in_transaction());
        for (refused, may_commit) in self.protocol.unanswered() {
            let outcome = if may_commit { GivenUp::Unknown } else { GivenUp::Failed };
            given_up.answer((!refused).then_some(outcome));
        }
        self.given_up = Some(Box::new(given_up));
        if let Some(deadline) = &mut self.deadline {
            deadline.forget();
        }
        self.tracker.give_up();
        Ok(())
    }

    fn broken(&self) -> io::Error {
        self.tracker.set_broken();
        let what = "no answer before the deadline, in the middle of a message: the connection is closed";
        io::Error::new(io::ErrorKind::TimedOut, what)
    }

    /// Whether what the driver sends goes to the server.
    fn is_sending(&mut self) -> bool {
        match &self.given_up {
            None => {}
            Some(given_up)
                if given_up.is_done()
                    && (given_up.settled || self.protocol.is_settled())
                    && self.tracker.is_resumed() =>
            {
                self.given_up = None;
            }
            Some(_) => return false,
        }
        // Nothing that is sent after the end of the last deadline would be waited for.
        !(self.is_over() && self.protocol.is_settled() && !self.sent.is_inside() && self.give_up().is_ok())
    }
}

impl<S: AsyncRead + Unpin> TrackedStream<S> {
    /// Reads what the server sends. Nothing is left to deliver if there is nothing.
    fn read(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let Poll::Ready(read) = Pin::new(&mut self.stream).poll_read(context, buffer) else {
            // A driver reads again only after it has delivered all that it had.
            if std::mem::take(&mut self.protocol.undelivered) {
                self.tracker.publish(&mut self.protocol);
            }
            return Poll::Pending;
        };
        self.protocol.undelivered = self.withholds;
        let received = &buffer.filled()[before..];
        if read.is_err() || (received.is_empty() && buffer.remaining() > 0) {
            self.tracker.set_broken();
        } else {
            self.note_received(received);
        }
        Poll::Ready(read)
    }

    /// Reads the rest of the frame that has begun, and no more.
    fn read_rest(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let most = self.received.rest().min(buffer.remaining());
        let mut rest = ReadBuf::new(buffer.initialize_unfilled_to(most));
        ready!(self.read(context, &mut rest))?;
        let read = rest.filled().len();
        buffer.advance(read);
        Poll::Ready(Ok(()))
    }

    /// Nothing can be read now, and the oldest request may be overdue.
    fn read_overdue(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.is_due(context) {
            return Poll::Pending;
        }
        if self.received.is_inside() {
            let may_end = |deadline: &mut Deadline| deadline.may_end(REST_OF_A_FRAME, context);
            if self.deadline.as_mut().is_some_and(may_end) {
                return Poll::Pending;
            }
            return Poll::Ready(Err(self.broken()));
        }
        self.give_up()?;
        self.read_given_up(context, buffer)
    }

    /// Gives the driver answers in place of the server's, and drops those.
    fn read_given_up(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Some(given_up) = self.given_up.as_mut().filter(|given_up| given_up.has_answers()) {
            given_up.read(buffer);
            self.protocol.undelivered = self.withholds;
            return Poll::Ready(Ok(()));
        }
        let mut dropped = [0; 4096];
        let has_settled =
            |given_up: &Option<Box<StandIn>>| given_up.as_ref().is_some_and(|given_up| given_up.settled);
        while !has_settled(&self.given_up) && !self.protocol.is_settled() {
            let mut dropped = ReadBuf::new(&mut dropped);
            ready!(self.read(context, &mut dropped))?;
            if dropped.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            if self.protocol.is_copying() {
                return Poll::Ready(Err(self.broken()));
            }
        }
        if let Some(given_up) = &mut self.given_up {
            given_up.settled = true;
        }
        // What comes now is no answer, such as the good-bye of the server.
        self.read(context, buffer)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TrackedStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.given_up.is_some() {
            return this.read_given_up(context, buffer);
        }
        let is_overdue = this.deadline.as_ref().is_some_and(|deadline| deadline.overdue_since.is_some());
        let read = match (is_overdue, this.received.is_inside()) {
            (true, true) => this.read_rest(context, buffer),
            // The answer has got so far that its frame is complete. It may have been given more time meanwhile.
            (true, false) if this.is_due(context) => Poll::Pending,
            _ => this.read(context, buffer),
        };
        if read.is_pending() { this.read_overdue(context, buffer) } else { read }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TrackedStream<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if !this.is_sending()
            && let Some(given_up) = &mut this.given_up
        {
            this.protocol.blocked = false;
            this.tracker.publish(&mut this.protocol);
            if given_up.swallow(bytes).is_err() {
                this.tracker.set_broken();
            }
            // The answers are to be read.
            context.waker().wake_by_ref();
            return Poll::Ready(Ok(bytes.len()));
        }
        let Poll::Ready(written) = Pin::new(&mut this.stream).poll_write(context, bytes) else {
            this.protocol.blocked = true;
            this.finish(Ok(()));
            this.watch(context);
            return Poll::Pending;
        };
        this.protocol.blocked = false;
        match written {
            Ok(written) => {
                this.note_sent(&bytes[..written]);
                this.watch(context);
            }
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
