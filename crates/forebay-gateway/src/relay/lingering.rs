//! A backend whose client is gone while something was unanswered.
//!
//! The cluster rations new connections, so this one is not thrown away: what was asked is answered, the answers go nowhere, and then
//! another session gets the backend. The client has given up its place already, and all of this takes a moment at most.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use forebay::rt::{self, Runtime};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::backlog::Backlog;
use super::{SCRATCH, Scratch};
use crate::backends::{Backend, Backends};
use crate::metrics;
use crate::session::{HungUp, LeftBehind, VirtualSession};

/// What comes of a backend: its connection has ended, or nobody can use it.
const LOST: &str = "lost";
const USELESS: &str = "useless";

/// A backend that is to be used again once it has answered what its last client asked. Dropped before that, it is closed.
pub(super) struct Lingering {
    backend: Option<Box<Backend>>,
    answers: Answers,
    /// Keeps the pool open.
    _backends: Arc<Backends>,
}

impl Lingering {
    /// Its client has hung up, and `session` is to be drained. `to_server` is what the backend has not got yet.
    pub(super) fn new(
        backend: Box<Backend>,
        session: VirtualSession,
        to_server: Backlog,
        backends: Arc<Backends>,
    ) -> Self {
        Self { backend: Some(backend), answers: Answers { session, to_server }, _backends: backends }
    }

    /// Gives the backend back by itself, or closes it after `limit`.
    pub(super) fn spawn(self, runtime: &Arc<dyn Runtime>, limit: Duration) {
        let clock = Arc::clone(runtime);
        runtime.spawn(Box::pin(async move {
            metrics::abandoned(rt::within(&*clock, limit, self).await.unwrap_or("late"));
        }));
    }
}

impl Future for Lingering {
    /// What came of it.
    type Output = &'static str;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<&'static str> {
        let this = self.get_mut();
        let Some(backend) = &mut this.backend else { return Poll::Ready(LOST) };
        let settled = SCRATCH.with_borrow_mut(|scratch| {
            scratch.out.clear();
            let settled = this.answers.settle(&mut ***backend, context, scratch);
            scratch.out.shrink();
            settled
        });
        Poll::Ready(match ready!(settled) {
            Ok(left) => {
                if let Some(mut backend) = this.backend.take() {
                    leave_behind(&mut backend, left);
                }
                "reused"
            }
            Err(why) => why,
        })
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        if let Some(backend) = &mut self.backend {
            backend.mark_bad();
        }
    }
}

/// Notes with a backend what its last client has left there.
pub(super) fn leave_behind(backend: &mut Backend, left: LeftBehind) {
    backend.memory = left.memory;
    if left.unknown_settings {
        backend.settings_are_unknown();
    } else {
        backend.settings_are_known();
    }
}

/// What is still to be said and heard on a connection.
struct Answers {
    session: VirtualSession,
    to_server: Backlog,
}

impl Answers {
    /// Reads on until everything is answered. An error is why the connection is of no use.
    fn settle(
        &mut self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
        context: &mut Context<'_>,
        scratch: &mut Scratch,
    ) -> Poll<Result<LeftBehind, &'static str>> {
        let Scratch { bytes, out } = scratch;
        loop {
            if self.to_server.write(Pin::new(stream), context, &out.to_server).is_err() {
                return Poll::Ready(Err(LOST));
            }
            out.clear();
            let mut buffer = ReadBuf::new(bytes);
            match Pin::new(&mut *stream).poll_read(context, &mut buffer) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {}
                Poll::Ready(_) => return Poll::Ready(Err(LOST)),
            }
            if self.session.from_server(buffer.filled(), out).is_err() {
                return Poll::Ready(Err(LOST));
            }
            match self.session.hang_up(out) {
                HungUp::Drain => {}
                HungUp::Left(left) => {
                    return Poll::Ready(if self.to_server.is_empty() { Ok(left) } else { Err(USELESS) });
                }
                HungUp::Useless => return Poll::Ready(Err(USELESS)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use forebay::rt::VirtualTime;
    use tokio::io::{AsyncWriteExt, DuplexStream};

    use super::*;
    use crate::protocol::write;
    use crate::session::{Memory, Outbox, Reported, SessionLimits, StartSettings};

    const LIMIT: Duration = Duration::from_secs(1);

    /// A session that waits for the answer to a statement.
    fn asked() -> Answers {
        let settings = StartSettings::default();
        let mut session = VirtualSession::new(settings, SessionLimits::default());
        let (mut out, mut statement) = (Outbox::default(), Vec::new());
        session.attach(Memory::default(), &Reported::default(), &mut out);
        write::query(&mut statement, b"SELECT 1");
        session.from_client(&statement, &mut out).unwrap();
        let mut to_server = Backlog::default();
        to_server.push(&out.to_server);
        assert!(matches!(session.hang_up(&mut Outbox::default()), HungUp::Drain));
        Answers { session, to_server }
    }

    /// What becomes of a connection whose server does this.
    fn settle(
        server: impl AsyncFnOnce(&VirtualTime, DuplexStream),
    ) -> Option<Result<LeftBehind, &'static str>> {
        let time = VirtualTime::new();
        let (mut near, far) = tokio::io::duplex(16);
        let mut answers = asked();
        let settled = poll_fn(|context| {
            SCRATCH.with_borrow_mut(|scratch| {
                scratch.out.clear();
                answers.settle(&mut near, context, scratch)
            })
        });
        time.run(async {
            let (settled, ()) =
                futures_util::future::join(rt::within(&time, LIMIT, settled), server(&time, far)).await;
            settled
        })
    }

    async fn answer(far: &mut DuplexStream) {
        let mut bytes = Vec::new();
        write::command_complete(&mut bytes, "SELECT 1");
        write::ready_for_query(&mut bytes, b'I');
        far.write_all(&bytes).await.unwrap();
    }

    #[test]
    fn an_answer_in_time_makes_the_backend_free() {
        let settled = settle(async |time, mut far| {
            time.sleep_until(time.now() + LIMIT / 2).await;
            answer(&mut far).await;
        });
        assert!(matches!(settled, Some(Ok(_))), "{settled:?}");
    }

    #[test]
    fn an_answer_that_is_late_is_not_waited_for() {
        let settled = settle(async |time, far| {
            time.sleep_until(time.now() + 2 * LIMIT).await;
            drop(far);
        });
        assert!(settled.is_none(), "{settled:?}");
    }

    #[test]
    fn a_connection_that_ends_or_tells_nonsense_is_of_no_use() {
        let ended = settle(async |_, far| drop(far));
        assert!(matches!(ended, Some(Err(LOST))), "{ended:?}");
        let nonsense = settle(async |_, mut far| far.write_all(b"HTTP/1.1 400 Bad").await.unwrap());
        assert!(matches!(nonsense, Some(Err(LOST))), "{nonsense:?}");
    }

    /// It has answered, but does not read what it was sent.
    #[test]
    fn what_was_not_written_makes_the_backend_useless() {
        let mut more = asked();
        more.to_server.push(&[b'd'; 1]);
        more.to_server.push(&[0; 400]);
        let (mut near, mut far) = tokio::io::duplex(16);
        let time = VirtualTime::new();
        let settled = poll_fn(|context| {
            SCRATCH.with_borrow_mut(|scratch| {
                scratch.out.clear();
                more.settle(&mut near, context, scratch)
            })
        });
        let settled = time.run(async {
            let (settled, ()) =
                futures_util::future::join(rt::within(&time, LIMIT, settled), answer(&mut far)).await;
            settled
        });
        assert!(matches!(settled, Some(Err(USELESS))), "{settled:?}");
    }
}
