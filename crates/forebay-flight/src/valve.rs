//! What can break off the body of a call.
//!
//! A call that is dropped ends only while its answer has not begun; after that hyper goes on to send the body for as long as
//! there is some. And a server made with tonic takes a call that was cancelled for one whose data has ended, and the part that it
//! got for the whole. A body that fails resets the call with an error, at any time, and nobody can mistake that.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use hyper::body::Frame;
use parking_lot::Mutex;
use tonic::Status;
use tonic::body::Body;

/// Travels with a request, to the [`Wire`](crate::wire::Wire); its clones stay behind.
#[derive(Clone, Default)]
pub(crate) struct Valve(Arc<Inner>);

#[derive(Default)]
struct Inner {
    is_closed: AtomicBool,
    /// None when it has come to its end.
    body: Mutex<Option<Body>>,
    waiting: AtomicWaker,
}

impl Valve {
    /// The same body, until it is closed.
    pub(crate) fn through(&self, body: Body) -> Body {
        *self.0.body.lock() = Some(body);
        Body::new(Flow(self.clone()))
    }

    /// Breaks it off, unless all of it has passed: whether there was anything to break off. What it was made of is let go, also if the
    /// server takes no more of it for now.
    pub(crate) fn close(&self) -> bool {
        self.0.is_closed.store(true, Ordering::SeqCst);
        // If it is being polled, that one finds out.
        let body = self.0.body.try_lock().map(|mut body| body.take());
        let has_passed = matches!(body, Some(None));
        drop(body);
        self.0.waiting.wake();
        !has_passed
    }

    fn is_closed(&self) -> bool {
        self.0.is_closed.load(Ordering::SeqCst)
    }
}

impl fmt::Debug for Valve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Valve").field("is_closed", &self.is_closed()).finish_non_exhaustive()
    }
}

struct Flow(Valve);

impl hyper::body::Body for Flow {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let valve = &self.0;
        valve.0.waiting.register(context.waker());
        let mut body = valve.0.body.lock();
        let polled = match body.as_mut().filter(|_| !valve.is_closed()) {
            Some(body) => Pin::new(body).poll_frame(context),
            None => Poll::Ready(None),
        };
        if matches!(polled, Poll::Ready(None)) || valve.is_closed() {
            let ended = body.take();
            drop(body);
            drop(ended);
        }
        match valve.is_closed() {
            true => Poll::Ready(Some(Err(Status::aborted("the call was given up")))),
            false => polled,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use hyper::body::Body as _;

    use super::*;

    /// A body in pieces, and what it holds.
    struct Pieces(std::vec::IntoIter<&'static str>, #[expect(dead_code)] Arc<()>);

    impl hyper::body::Body for Pieces {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            Poll::Ready(self.0.next().map(|piece| Ok(Frame::data(Bytes::from(piece)))))
        }
    }

    fn flow(valve: &Valve, held: &Arc<()>) -> Body {
        valve.through(Body::new(Pieces(vec!["a", "b"].into_iter(), Arc::clone(held))))
    }

    fn poll(flow: &mut Body) -> Option<Result<Bytes, Status>> {
        let polled = Pin::new(flow).poll_frame(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(frame) = polled else { panic!("it waits") };
        frame.map(|frame| frame.map(|frame| frame.into_data().unwrap()))
    }

    #[test]
    fn an_open_one_changes_nothing() {
        let (valve, held) = (Valve::default(), Arc::new(()));
        let mut flow = flow(&valve, &held);
        for piece in ["a", "b"] {
            assert_eq!(poll(&mut flow).unwrap().unwrap(), piece);
        }
        assert!(poll(&mut flow).is_none());
        assert_eq!(Arc::strong_count(&held), 1, "what has ended is let go");
        assert!(!valve.close(), "there is nothing left");
    }

    #[test]
    fn a_closed_one_fails_and_lets_go_of_what_it_had() {
        let (valve, held) = (Valve::default(), Arc::new(()));
        let mut flow = flow(&valve, &held);
        assert_eq!(poll(&mut flow).unwrap().unwrap(), "a");
        assert!(valve.close());
        assert_eq!(Arc::strong_count(&held), 1, "without another poll");
        assert!(poll(&mut flow).unwrap().is_err());
    }
}
