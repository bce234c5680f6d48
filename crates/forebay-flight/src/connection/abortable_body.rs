//! A request body that can be aborted.
//!
//! Dropping a call ends it only until its answer has begun. After that, hyper goes on sending the body. A
//! server made with tonic also takes a cancelled call for one whose data has ended, and stores the part that
//! it has received. A body that fails resets the call with an error at any time, and no server mistakes that
//! for the end of the data.

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

/// Aborts a body. One clone travels in the request's extensions to
/// [`Transport`](super::transport::Transport), which wraps the body.
#[derive(Clone, Default)]
pub(crate) struct AbortHandle(Arc<Inner>);

#[derive(Default)]
struct Inner {
    is_aborted: AtomicBool,
    /// None once it has ended.
    body: Mutex<Option<Body>>,
    waker: AtomicWaker,
}

impl AbortHandle {
    /// The same body, until it is aborted.
    pub(crate) fn wrap(&self, body: Body) -> Body {
        *self.0.body.lock() = Some(body);
        Body::new(AbortableBody(self.clone()))
    }

    /// Aborts the body, and drops it even if the server reads no more of it. Returns false if all of it was
    /// sent before.
    pub(crate) fn abort(&self) -> bool {
        self.0.is_aborted.store(true, Ordering::SeqCst);
        // If it is being polled, that poll sees the flag.
        let body = self.0.body.try_lock().map(|mut body| body.take());
        let has_ended = matches!(body, Some(None));
        drop(body);
        self.0.waker.wake();
        !has_ended
    }

    fn is_aborted(&self) -> bool {
        self.0.is_aborted.load(Ordering::SeqCst)
    }
}

impl fmt::Debug for AbortHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AbortHandle").field("is_aborted", &self.is_aborted()).finish_non_exhaustive()
    }
}

struct AbortableBody(AbortHandle);

impl hyper::body::Body for AbortableBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let handle = &self.0;
        handle.0.waker.register(context.waker());
        let mut body = handle.0.body.lock();
        let polled = match body.as_mut().filter(|_| !handle.is_aborted()) {
            Some(body) => Pin::new(body).poll_frame(context),
            None => Poll::Ready(None),
        };
        if matches!(polled, Poll::Ready(None)) || handle.is_aborted() {
            let ended = body.take();
            drop(body);
            drop(ended);
        }
        match handle.is_aborted() {
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

    /// A body in pieces, and something that it owns.
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

    fn body(handle: &AbortHandle, owned: &Arc<()>) -> Body {
        handle.wrap(Body::new(Pieces(vec!["a", "b"].into_iter(), Arc::clone(owned))))
    }

    fn poll(body: &mut Body) -> Option<Result<Bytes, Status>> {
        let polled = Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(frame) = polled else { panic!("it waits") };
        frame.map(|frame| frame.map(|frame| frame.into_data().unwrap()))
    }

    #[test]
    fn a_body_that_is_not_aborted_is_unchanged() {
        let (handle, owned) = (AbortHandle::default(), Arc::new(()));
        let mut body = body(&handle, &owned);
        for piece in ["a", "b"] {
            assert_eq!(poll(&mut body).unwrap().unwrap(), piece);
        }
        assert!(poll(&mut body).is_none());
        assert_eq!(Arc::strong_count(&owned), 1, "dropped at its end");
        assert!(!handle.abort(), "there is nothing left");
    }

    #[test]
    fn an_aborted_body_fails_and_is_dropped() {
        let (handle, owned) = (AbortHandle::default(), Arc::new(()));
        let mut body = body(&handle, &owned);
        assert_eq!(poll(&mut body).unwrap().unwrap(), "a");
        assert!(handle.abort());
        assert_eq!(Arc::strong_count(&owned), 1, "without another poll");
        assert!(poll(&mut body).unwrap().is_err());
    }
}
