//! Requests that are given up, or are not, at unusual moments.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use forebay::rt::VirtualTime;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::tests::{error, frame, query, ready, startup, tag};
use super::*;

#[derive(Default)]
struct Socket {
    to_read: Vec<u8>,
    sent: Vec<u8>,
    blocked: bool,
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let most = self.to_read.len().min(buffer.remaining());
        if most == 0 {
            return Poll::Pending;
        }
        let bytes: Vec<u8> = self.to_read.drain(..most).collect();
        buffer.put_slice(&bytes);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.blocked {
            return Poll::Pending;
        }
        self.sent.extend(bytes);
        Poll::Ready(Ok(bytes.len()))
    }
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

const LIMIT: Duration = Duration::from_secs(10);

struct Rig {
    time: VirtualTime,
    stream: TrackedStream<Socket>,
    tracker: Arc<StateTracker>,
}

impl Rig {
    fn new() -> Self {
        let time = VirtualTime::new();
        let tracker = Arc::new(StateTracker::default());
        let mut stream = TrackedStream::new(Socket::default(), Arc::clone(&tracker), Arc::new(time.clone()));
        stream.note_sent(&startup());
        stream.note_received(&ready(b'I'));
        tracker.limits.set_each(Some(LIMIT));
        Self { time, stream, tracker }
    }
    fn write(&mut self, bytes: &[u8]) {
        let context = &mut Context::from_waker(Waker::noop());
        assert!(
            matches!(Pin::new(&mut self.stream).poll_write(context, bytes), Poll::Ready(Ok(n)) if n == bytes.len())
        );
    }
    fn arrive(&mut self, bytes: Vec<u8>) {
        self.stream.stream_mut().to_read.extend(bytes);
    }
    /// None: pending.
    fn read(&mut self) -> Option<io::Result<Vec<u8>>> {
        let context = &mut Context::from_waker(Waker::noop());
        let mut bytes = vec![0; 8192];
        let mut buffer = ReadBuf::new(&mut bytes);
        match Pin::new(&mut self.stream).poll_read(context, &mut buffer) {
            Poll::Pending => None,
            Poll::Ready(done) => Some(done.map(|()| buffer.filled().to_vec())),
        }
    }
}

/// BEGIN fails, as with OC001 on a connection that was idle; the INSERT behind it is carried out and committed by itself.
#[test]
fn a_statement_pipelined_behind_a_begin_that_fails_may_be_committed() {
    let mut rig = Rig::new();
    rig.write(&query("BEGIN"));
    rig.write(&query("INSERT 1"));
    rig.arrive([error("ERROR", "40001"), ready(b'I')].concat());
    assert!(rig.read().unwrap().is_ok());
    assert!(rig.read().is_none());
    rig.time.advance(LIMIT * 2);
    let told = String::from_utf8_lossy(&rig.read().unwrap().unwrap()).into_owned();
    println!("{told:?}");
    assert!(!told.contains("57014"), "told that nothing is committed: {told}");
}

/// The server has read all of a COPY and does not answer.
#[test]
fn the_end_of_a_copy_has_a_deadline() {
    let mut rig = Rig::new();
    rig.write(&[frame(b'B', b"\0\0\0\0\0\0\0\0"), frame(b'E', b"\0\0\0\0\0"), frame(b'S', b"")].concat());
    rig.arrive(frame(b'G', b"\0\0\0"));
    assert!(rig.read().unwrap().is_ok());
    assert!(rig.read().is_none());
    rig.write(&frame(b'd', b"1\n"));
    rig.write(&[frame(b'c', b""), frame(b'S', b"")].concat());
    assert!(rig.read().is_none());
    rig.time.advance(LIMIT * 100);
    assert!(rig.read().is_some(), "it still waits after {:?}, state {:?}", LIMIT * 100, rig.tracker.state());
}

/// A second request that is overdue in the middle of an answer has a second for the rest of it, too.
#[test]
fn each_overdue_frame_may_end() {
    let mut rig = Rig::new();
    rig.write(&query("SELECT 1"));
    rig.time.advance(Duration::from_secs(9));
    rig.write(&query("SELECT 2"));
    let first = [tag("SELECT 1"), ready(b'I')].concat();
    rig.arrive(first[..3].to_vec());
    assert!(rig.read().unwrap().is_ok());
    assert!(rig.read().is_none());
    rig.time.advance(Duration::from_millis(1100));
    assert!(rig.read().is_none(), "overdue in the middle of a frame");
    rig.arrive(first[3..].to_vec());
    while rig.read().is_some_and(|read| {
        read.unwrap();
        !rig.stream.stream().to_read.is_empty()
    }) {}
    println!("overdue still noted: {}, given up: {}", rig.stream.is_overdue(), rig.tracker.is_given_up());
    // The second is due at 19 s; now it is 10.1 s.
    rig.time.advance(Duration::from_millis(8850));
    let second = tag("SELECT 2");
    rig.arrive(second[..3].to_vec());
    while let Some(read) = rig.read() {
        read.unwrap();
        if rig.stream.stream().to_read.is_empty() {
            break;
        }
    }
    rig.time.advance(Duration::from_millis(100));
    let outcome = rig.read();
    assert!(outcome.is_none(), "{outcome:?}, given up {}", rig.tracker.is_given_up());
}

/// COPY answered 'G' after being given up is broken; notices are dropped; a notification in parts.
#[test]
fn a_new_caller_is_not_refused_because_of_half_a_notice() {
    let mut rig = Rig::new();
    rig.write(&query("SELECT 1"));
    rig.time.advance(LIMIT * 2);
    assert!(rig.read().unwrap().is_ok());
    // The reset: all is answered, and nothing is to be done.
    rig.arrive([tag("SELECT 1"), ready(b'I')].concat());
    assert!(rig.read().is_none());
    rig.tracker.resume();
    assert_eq!(rig.tracker.state(), ConnectionState::Clean);
    let notice = frame(b'N', b"SNOTICE\0\0");
    rig.arrive(notice[..6].to_vec());
    while rig.read().is_some() {}
    println!("state with half a notice: {:?}", rig.tracker.state());
    let before = rig.stream.stream().sent.len();
    rig.write(&query("INSERT 7"));
    assert!(rig.stream.stream().sent.len() > before, "the next caller's request was swallowed");
}

/// A Close behind the statement that was given up.
#[test]
fn a_reset_waits_for_all_answers() {
    let mut rig = Rig::new();
    rig.write(&query("SELECT 1"));
    rig.write(&[frame(b'C', b"Ss1\0"), frame(b'S', b"")].concat());
    rig.time.advance(LIMIT * 2);
    assert!(rig.read().unwrap().is_ok());
    rig.arrive([tag("SELECT 1"), ready(b'I')].concat());
    assert!(rig.read().is_none());
    println!("{:?}", rig.tracker.state());
    if rig.tracker.state() == ConnectionState::Unanswered {
        return;
    }
    rig.tracker.resume();
    let before = rig.stream.stream().sent.len();
    rig.write(&query("INSERT 7"));
    assert!(rig.stream.stream().sent.len() > before, "swallowed, state {:?}", rig.tracker.state());
}

/// Requests that follow each other without a gap, each answered within a second.
#[test]
fn a_connection_that_is_always_sending_and_always_answered_is_not_overdue() {
    let mut rig = Rig::new();
    let request = query(&format!("INSERT {}", "x".repeat(1000)));
    let half = request.len() / 2;
    rig.write(&request[..half]);
    for second in 0..30 {
        // The rest of one request and the first half of the next.
        let bytes = [&request[half..], &request[..half]].concat();
        rig.write(&bytes);
        rig.time.advance(Duration::from_secs(1));
        rig.arrive([tag("INSERT 0 1"), ready(b'I')].concat());
        while let Some(read) = rig.read() {
            read.unwrap_or_else(|error| panic!("after {second} s: {error}"));
        }
        assert!(!rig.tracker.is_given_up() && !rig.tracker.is_broken(), "after {second} s");
    }
}

/// The same, where the reader finds nothing before each answer.
#[test]
fn a_connection_that_is_always_sending_and_soon_answered_is_not_overdue() {
    let mut rig = Rig::new();
    let request = query(&format!("INSERT {}", "x".repeat(1000)));
    let half = request.len() / 2;
    rig.write(&request[..half]);
    for second in 0..30 {
        let bytes = [&request[half..], &request[..half]].concat();
        rig.write(&bytes);
        if let Some(read) = rig.read() {
            panic!("after {second} s: {read:?}, {:?}", rig.tracker.state());
        }
        rig.time.advance(Duration::from_secs(1));
        rig.arrive([tag("INSERT 0 1"), ready(b'I')].concat());
        assert!(rig.read().unwrap().is_ok());
    }
}
