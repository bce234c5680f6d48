use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use forebay::rt::{Runtime, VirtualTime};
use parking_lot::Mutex;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::state_tracker::AT_WORK;
use super::*;

fn runtime() -> Arc<dyn Runtime> {
    Arc::new(VirtualTime::new())
}

pub(super) fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = vec![kind];
    frame.extend(u32::try_from(body.len() + 4).unwrap().to_be_bytes());
    frame.extend(body);
    frame
}

pub(super) fn startup() -> Vec<u8> {
    frame(0, b"\0\x03\0\0user\0admin\0\0").split_off(1)
}

pub(super) fn query(text: &str) -> Vec<u8> {
    frame(b'Q', format!("{text}\0").as_bytes())
}

pub(super) fn ready(status: u8) -> Vec<u8> {
    frame(b'Z', &[status])
}

pub(super) fn tag(text: &str) -> Vec<u8> {
    frame(b'C', format!("{text}\0").as_bytes())
}

pub(super) fn error(severity: &str, code: &str) -> Vec<u8> {
    frame(b'E', format!("SFEHLER\0V{severity}\0C{code}\0Mno such luck\0\0").as_bytes())
}

/// A connection whose bytes are given one by one.
struct Recorded(TrackedStream<()>);

impl Recorded {
    fn new() -> Self {
        Self(TrackedStream::new((), Arc::default(), runtime()))
    }

    fn begun() -> Self {
        let mut recorded = Self::new();
        recorded.send(startup()).send(frame(b'p', b"secret\0"));
        recorded.receive(frame(b'R', &[0; 4])).receive(frame(b'S', b"TimeZone\0UTC\0")).receive(ready(b'I'));
        recorded
    }

    fn send(&mut self, bytes: Vec<u8>) -> &mut Self {
        self.0.note_sent(&bytes);
        self
    }

    fn receive(&mut self, bytes: Vec<u8>) -> &mut Self {
        self.0.note_received(&bytes);
        self
    }

    fn state(&self) -> ConnectionState {
        self.0.tracker.state()
    }
}

#[test]
fn a_session_is_clean_once_it_has_begun() {
    let mut recorded = Recorded::new();
    assert_eq!(recorded.state(), ConnectionState::Unanswered);
    recorded.send(startup());
    assert_eq!(recorded.state(), ConnectionState::Unanswered);
    recorded.receive(frame(b'S', b"TimeZone\0UTC\0")).receive(ready(b'I'));
    assert_eq!(recorded.state(), ConnectionState::Clean);
}

#[test]
fn transactions_are_followed_from_begin_to_end() {
    let mut recorded = Recorded::begun();
    assert_eq!(recorded.send(query("BEGIN")).state(), ConnectionState::Unanswered);
    assert_eq!(recorded.receive(tag("BEGIN")).receive(ready(b'T')).state(), ConnectionState::InTransaction);
    recorded.send(query("SELECT 1/0")).receive(error("ERROR", "22012")).receive(ready(b'E'));
    assert_eq!(recorded.state(), ConnectionState::InTransaction);
    recorded.send(query("ROLLBACK")).receive(tag("ROLLBACK")).receive(ready(b'I'));
    assert_eq!(recorded.state(), ConnectionState::Clean);
}

#[test]
fn closing_a_statement_is_nothing_to_wait_for() {
    let mut recorded = Recorded::begun();
    recorded.send(frame(b'C', b"Ss0\0")).send(frame(b'S', b""));
    assert_eq!(recorded.state(), ConnectionState::Clean);
    // The request behind it is, until it is answered itself.
    recorded.send(frame(b'B', b"\0s1\0")).send(frame(b'E', b"\0\0\0\0\0")).send(frame(b'S', b""));
    recorded.receive(ready(b'I'));
    assert_eq!(recorded.state(), ConnectionState::Unanswered);
    assert_eq!(recorded.receive(ready(b'I')).state(), ConnectionState::Clean);
}

#[test]
fn half_a_request_is_unanswered() {
    let mut recorded = Recorded::begun();
    let request = query("SELECT 1");
    let (head, tail) = request.split_at(3);
    assert_eq!(recorded.send(head.to_vec()).state(), ConnectionState::Clean, "not even a header");
    recorded.send(tail[..4].to_vec());
    assert_eq!(recorded.state(), ConnectionState::Unanswered);
    // Without a Sync, too.
    let mut recorded = Recorded::begun();
    recorded.send(frame(b'P', b"s0\0SELECT 1\0\0\0"));
    assert_eq!(recorded.state(), ConnectionState::Unanswered);
}

#[test]
fn changed_settings_show_by_tag_and_by_report() {
    for change in [tag("SET"), tag("RESET"), frame(b'S', b"TimeZone\0Europe/Rome\0")] {
        let mut recorded = Recorded::begun();
        recorded.send(query("whatever")).receive(change).receive(ready(b'I'));
        assert_eq!(recorded.state(), ConnectionState::Altered);
        recorded.0.tracker.settings_restored();
        assert_eq!(recorded.state(), ConnectionState::Clean);
    }
    let mut recorded = Recorded::begun();
    recorded.send(query("SELECT 1")).receive(tag("SELECT 1")).receive(tag("SETTLE 1")).receive(ready(b'I'));
    assert_eq!(recorded.state(), ConnectionState::Clean);
}

#[test]
fn only_fatal_errors_break_it() {
    let mut recorded = Recorded::begun();
    recorded.send(query("x")).receive(error("ERROR", "42601")).receive(ready(b'I'));
    assert_eq!(recorded.state(), ConnectionState::Clean);
    assert_eq!(recorded.0.tracker.fatal_code(), None);
    for severity in ["FATAL", "PANIC"] {
        let mut recorded = Recorded::begun();
        recorded.receive(error(severity, "57P01"));
        assert_eq!(recorded.state(), ConnectionState::Broken);
        assert_eq!(recorded.0.tracker.fatal_code().as_deref(), Some("57P01"));
    }
}

#[test]
fn garbage_and_goodbyes_break_it() {
    let mut recorded = Recorded::begun();
    assert_eq!(recorded.receive(vec![b'Z', 0, 0, 0, 3]).state(), ConnectionState::Broken);
    let mut recorded = Recorded::begun();
    assert_eq!(recorded.send(frame(b'X', b"")).state(), ConnectionState::Broken);
}

#[test]
fn a_commit_is_known_until_it_is_answered() {
    for text in ["COMMIT", "commit;", "End", "COMMIT AND NO CHAIN"] {
        let mut recorded = Recorded::begun();
        recorded.send(query("BEGIN")).receive(ready(b'T'));
        assert!(!recorded.0.tracker.is_committing());
        recorded.send(query(text));
        assert!(recorded.0.tracker.is_committing(), "{text}");
        recorded.receive(ready(b'I'));
        assert!(!recorded.0.tracker.is_committing());
    }
    for text in ["COMMITTED", "ENDLESS", "END_", "SELECT 1", "", "COMM"] {
        let mut recorded = Recorded::begun();
        recorded.send(query("BEGIN")).receive(ready(b'T'));
        assert!(!recorded.send(query(text)).0.tracker.is_committing(), "{text}");
    }
}

#[test]
fn what_is_sent_outside_of_a_transaction_commits() {
    let insert = || query("INSERT INTO t VALUES (1)");
    let executed = || [frame(b'B', b"\0s1\0"), frame(b'E', b"\0\0\0\0\0"), frame(b'S', b"")].concat();
    for sent in [insert(), executed()] {
        let mut recorded = Recorded::begun();
        recorded.0.tracker.begins();
        recorded.send(query("BEGIN")).receive(tag("BEGIN")).receive(ready(b'T'));
        recorded.send(sent.clone()).receive(tag("INSERT 0 1"));
        assert!(!recorded.0.tracker.is_committing() && !recorded.0.tracker.has_committed());
        recorded.receive(ready(b'T'));
        // Behind a ROLLBACK that is not answered yet it is known as well.
        recorded.send(query("ROLLBACK"));
        assert!(!recorded.0.tracker.is_committing());
        recorded.send(sent);
        assert!(recorded.0.tracker.is_committing());
        recorded.receive(tag("ROLLBACK")).receive(ready(b'I'));
        assert!(recorded.0.tracker.is_committing() && !recorded.0.tracker.has_committed());
        recorded.receive(tag("INSERT 0 1")).receive(ready(b'I'));
        assert!(!recorded.0.tracker.is_committing() && recorded.0.tracker.has_committed());
    }
    // In one text, too.
    let mut recorded = Recorded::begun();
    recorded.send(query("BEGIN")).receive(tag("BEGIN")).receive(ready(b'T'));
    recorded.0.tracker.begins();
    assert!(recorded.send(query("ROLLBACK; INSERT INTO t VALUES (1); BEGIN")).0.tracker.is_committing());
    recorded.receive(tag("ROLLBACK")).receive(tag("INSERT 0 1")).receive(tag("BEGIN")).receive(ready(b'T'));
    assert!(recorded.0.tracker.has_committed());
}

#[test]
fn what_was_refused_has_not_been_committed_whatever_comes_then() {
    for (severity, unknown) in [("ERROR", false), ("FATAL", true)] {
        let mut recorded = Recorded::begun();
        recorded.send(query("BEGIN")).receive(ready(b'T'));
        recorded.send(query("COMMIT")).receive(error(severity, "40001"));
        assert_eq!(recorded.0.tracker.is_committing(), unknown, "{severity}");
    }
}

#[test]
fn another_transaction_is_not_the_first() {
    for texts in [&["ROLLBACK", "BEGIN"][..], &["ROLLBACK; BEGIN"], &["ROLLBACK AND CHAIN"]] {
        let mut recorded = Recorded::begun();
        recorded.0.tracker.begins();
        recorded.send(query("BEGIN")).receive(tag("BEGIN")).receive(ready(b'T'));
        // One inside another is the same, and only warned about.
        recorded.send(query("BEGIN")).receive(tag("BEGIN")).receive(ready(b'T'));
        assert!(!recorded.0.tracker.has_begun_another());
        for text in texts {
            recorded.send(query(text));
            for (word, status) in [("ROLLBACK", b'I'), ("BEGIN", b'T')] {
                if text.contains(word) {
                    recorded.receive(tag(word));
                }
                if text.ends_with(word) {
                    recorded.receive(ready(status));
                }
            }
            if text.ends_with("CHAIN") {
                recorded.receive(ready(b'T'));
            }
        }
        assert!(recorded.0.tracker.has_begun_another(), "{texts:?}");
    }
}

#[test]
fn a_commit_that_rolled_back_shows() {
    let mut recorded = Recorded::begun();
    recorded.send(query("ROLLBACK")).receive(tag("ROLLBACK")).receive(ready(b'I'));
    assert!(!recorded.0.tracker.is_rolled_back(), "nobody asked for a commit");
    recorded.send(query("COMMIT")).receive(tag("ROLLBACK")).receive(ready(b'I'));
    assert!(recorded.0.tracker.is_rolled_back());
    recorded.send(query("COMMIT")).receive(tag("COMMIT")).receive(ready(b'I'));
    assert!(!recorded.0.tracker.is_rolled_back());
}

#[test]
fn a_rollback_ahead_of_a_commit_is_not_its_answer() {
    let mut recorded = Recorded::begun();
    recorded.send(query("BEGIN")).receive(tag("BEGIN")).receive(ready(b'T'));
    recorded.send(query("ROLLBACK")).send(query("COMMIT"));
    recorded.receive(tag("ROLLBACK")).receive(ready(b'I'));
    assert!(!recorded.0.tracker.is_rolled_back());
    recorded.receive(tag("COMMIT")).receive(ready(b'I'));
    assert!(!recorded.0.tracker.is_rolled_back() && recorded.0.tracker.committed_nothing());
}

#[test]
fn a_copy_takes_one_of_its_two_syncs() {
    let mut recorded = Recorded::begun();
    recorded.send(frame(b'B', b"\0s1\0")).send(frame(b'E', b"\0\0\0\0\0")).send(frame(b'S', b""));
    recorded.receive(frame(b'2', b"")).receive(frame(b'G', b"\0\0\0"));
    recorded.send(frame(b'd', b"1\t2\n")).send(frame(b'c', b"")).send(frame(b'S', b""));
    assert_eq!(recorded.state(), ConnectionState::Unanswered);
    recorded.receive(tag("COPY 1")).receive(ready(b'I'));
    assert_eq!(recorded.state(), ConnectionState::Clean);
    // In the simple protocol there is no Sync at all.
    recorded.send(query("COPY t FROM STDIN")).receive(frame(b'G', b"\0\0\0"));
    recorded.send(frame(b'd', b"1\n")).send(frame(b'c', b""));
    assert_eq!(recorded.state(), ConnectionState::Unanswered);
    assert_eq!(recorded.receive(ready(b'I')).state(), ConnectionState::Clean);
}

/// Then the server does not overlook the Sync, as it reads it behind the data.
#[test]
fn a_copy_whose_data_came_with_it_has_one_sync() {
    for end in [b'c', b'f'] {
        let mut recorded = Recorded::begun();
        recorded.send(frame(b'B', b"\0s1\0")).send(frame(b'E', b"\0\0\0\0\0"));
        recorded.send(frame(end, b"\0")).send(frame(b'S', b""));
        recorded.receive(frame(b'2', b"")).receive(frame(b'G', b"\0\0\0"));
        assert_eq!(recorded.receive(ready(b'I')).state(), ConnectionState::Clean);
        // The next answer is not taken for one that has come already.
        assert_eq!(recorded.send(query("SELECT 1")).state(), ConnectionState::Unanswered);
        assert_eq!(recorded.receive(ready(b'I')).state(), ConnectionState::Clean);
    }
}

/// Of two Syncs, the server overlooks the one in front of the data.
#[test]
fn a_copy_with_a_sync_on_either_side_of_its_data_is_answered_once() {
    let mut recorded = Recorded::begun();
    recorded.send(frame(b'B', b"\0s1\0")).send(frame(b'E', b"\0\0\0\0\0")).send(frame(b'S', b""));
    recorded.send(frame(b'd', b"1\n")).send(frame(b'c', b"")).send(frame(b'S', b""));
    recorded.receive(frame(b'2', b"")).receive(frame(b'G', b"\0\0\0")).receive(tag("COPY 1"));
    assert_eq!(recorded.receive(ready(b'I')).state(), ConnectionState::Clean);
    assert_eq!(recorded.send(query("SELECT 1")).state(), ConnectionState::Unanswered);
    assert_eq!(recorded.receive(ready(b'I')).state(), ConnectionState::Clean);
}

#[test]
fn frames_cost_no_allocation() {
    let mut recorded = Recorded::begun();
    let row = frame(b'D', &[7; 100]);
    let (question, answer) = (query("SELECT 1"), ready(b'T'));
    let counted = allocation_counter::measure(|| {
        for _ in 0..1_000 {
            recorded.0.note_sent(&question);
            recorded.0.note_received(&row);
            recorded.0.note_received(&answer);
        }
    });
    assert_eq!(counted.count_total, 0);
    assert_eq!(recorded.state(), ConnectionState::InTransaction);
}

#[tokio::test]
async fn the_end_of_a_stream_breaks_it() {
    let (near, far) = tokio::io::duplex(64);
    let tracker = Arc::new(StateTracker::default());
    let mut stream = TrackedStream::new(near, Arc::clone(&tracker), runtime());
    stream.write_all(&startup()).await.unwrap();
    assert!(!tracker.is_broken());
    drop(far);
    assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 0);
    assert!(tracker.is_broken());
    let (near, far) = tokio::io::duplex(64);
    let tracker = Arc::new(StateTracker::default());
    let mut stream = TrackedStream::new(near, Arc::clone(&tracker), runtime());
    drop(far);
    stream.write_all(&startup()).await.unwrap_err();
    assert!(tracker.is_broken());
}

#[tokio::test]
async fn what_a_full_socket_holds_back_is_unanswered() {
    let (near, mut far) = tokio::io::duplex(16);
    let tracker = Arc::new(StateTracker::default());
    let mut stream = TrackedStream::new(near, Arc::clone(&tracker), runtime());
    stream.note_sent(&startup());
    stream.note_received(&ready(b'I'));
    assert_eq!(tracker.state(), ConnectionState::Clean);
    let close: Vec<u8> = [frame(b'C', b"Ss0123456789\0"), frame(b'S', b"")].concat();
    let mut write = Box::pin(stream.write_all(&close));
    poll_fn(|context| {
        assert!(write.as_mut().poll(context).is_pending());
        std::task::Poll::Ready(())
    })
    .await;
    assert_eq!(tracker.state(), ConnectionState::Unanswered);
    far.read_exact(&mut [0; 16]).await.unwrap();
    write.await.unwrap();
    assert_eq!(tracker.state(), ConnectionState::Clean);
}

/// A driver that is told what to do through a queue, as a client's is.
#[derive(Default)]
struct Queue(Mutex<(VecDeque<Vec<u8>>, Option<std::task::Waker>)>);

impl Queue {
    fn push(&self, request: Vec<u8>) {
        let mut inner = self.0.lock();
        inner.0.push_back(request);
        let waker = inner.1.take();
        drop(inner);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

#[test]
fn a_request_that_the_driver_has_not_seen_yet_counts() {
    let queue = Arc::new(Queue::default());
    let mut recorded = Recorded::begun();
    let tracker = Arc::clone(&recorded.0.tracker);
    let (driver, _abort_on_drop) = DriverTask::new(
        {
            let queue = Arc::clone(&queue);
            poll_fn(move |context| {
                let mut inner = queue.0.lock();
                while let Some(request) = inner.0.pop_front() {
                    recorded.0.note_sent(&request);
                    recorded.0.note_received(&ready(b'T'));
                }
                inner.1 = Some(context.waker().clone());
                Poll::<()>::Pending
            })
        },
        Arc::clone(&tracker),
    );
    let mut driver = std::pin::pin!(driver);
    let mut context = Context::from_waker(std::task::Waker::noop());
    assert_eq!(tracker.state(), ConnectionState::Unanswered, "it has never looked");
    assert!(driver.as_mut().poll(&mut context).is_pending());
    assert_eq!(tracker.state(), ConnectionState::Clean);
    queue.push(query("BEGIN"));
    assert_eq!(tracker.state(), ConnectionState::Unanswered, "in the queue, and not on the wire");
    let mut answered = std::pin::pin!(tracker.answered());
    assert!(answered.as_mut().poll(&mut context).is_pending());
    assert!(driver.as_mut().poll(&mut context).is_pending());
    assert_eq!(answered.as_mut().poll(&mut context), Poll::Ready(ConnectionState::InTransaction));
}

#[test]
fn a_driver_that_is_gone_leaves_it_broken() {
    let tracker = Arc::new(StateTracker::default());
    drop(DriverTask::new(std::future::pending::<()>(), Arc::clone(&tracker)));
    assert_eq!(tracker.state(), ConnectionState::Broken);
}

#[test]
fn a_driver_nobody_holds_ends_whatever_it_waits_for() {
    let tracker = Arc::new(StateTracker::default());
    let (driver, abort_on_drop) = DriverTask::new(std::future::pending::<()>(), Arc::clone(&tracker));
    let mut driver = Box::pin(driver);
    let woken = Arc::new(Woken::default());
    let waker = std::task::Waker::from(Arc::clone(&woken));
    let mut context = Context::from_waker(&waker);
    assert!(driver.as_mut().poll(&mut context).is_pending());
    assert!(!woken.0.load(Ordering::SeqCst));
    drop(abort_on_drop);
    assert!(woken.0.load(Ordering::SeqCst), "it was not told");
    assert!(driver.as_mut().poll(&mut context).is_ready());
    drop(driver);
    assert!(tracker.is_broken());
}

#[derive(Default)]
struct Woken(AtomicBool);

impl std::task::Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn exchanges() -> impl Strategy<Value = Vec<(bool, Vec<u8>)>> {
    let sent = prop_oneof![
        Just(query("BEGIN")),
        Just(query("COMMIT")),
        Just(query("ROLLBACK; INSERT INTO t VALUES ('1')")),
        Just(query("SELECT 'a rather long text, longer than any header'")),
        Just(frame(b'C', b"Ss0\0")),
        Just(frame(b'P', b"s0\0SELECT 1\0\0\0")),
        Just(frame(b'S', b"")),
    ];
    let received = prop_oneof![
        Just(ready(b'I')),
        Just(ready(b'T')),
        Just(ready(b'E')),
        Just(tag("SET")),
        Just(tag("SELECT 12")),
        Just(tag("ROLLBACK")),
        Just(tag("START TRANSACTION")),
        Just(error("ERROR", "40001")),
        Just(error("FATAL", "57P01")),
        Just(frame(b'D', &[0; 40])),
        Just(frame(b'G', b"\0\0\0")),
        Just(frame(b'2', b"")),
    ];
    let one = prop_oneof![sent.prop_map(|frame| (true, frame)), received.prop_map(|frame| (false, frame))];
    prop::collection::vec(one, 0..30)
}

proptest! {
    /// However the bytes are split, the recorded are the same after each frame.
    #[test]
    fn any_split_gives_the_same_shape(
        exchanges in exchanges(),
        cuts in prop::collection::vec(1_usize..9, 1..40),
    ) {
        let (mut whole, mut split) = (Recorded::begun(), Recorded::begun());
        let mut cuts = cuts.iter().cycle();
        for (sent, bytes) in exchanges {
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (part, behind) = rest.split_at(rest.len().min(*cuts.next().unwrap()));
                if sent { split.send(part.to_vec()) } else { split.receive(part.to_vec()) };
                rest = behind;
            }
            if sent { whole.send(bytes) } else { whole.receive(bytes) };
            prop_assert_eq!(split.state(), whole.state());
            prop_assert_eq!(&split.0.protocol, &whole.0.protocol);
            prop_assert_eq!(split.0.tracker.is_committing(), whole.0.tracker.is_committing());
            prop_assert_eq!(split.0.tracker.fatal_code(), whole.0.tracker.fatal_code());
        }
    }

    /// Frames that arrive together give the same as frames that arrive alone; and nothing makes it panic.
    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0_usize..200) {
        let (mut whole, mut split) = (Recorded::begun(), Recorded::begun());
        whole.receive(bytes.clone());
        let (head, tail) = bytes.split_at(at.min(bytes.len()));
        split.receive(head.to_vec());
        if !split.0.tracker.is_broken() {
            split.receive(tail.to_vec());
            prop_assert_eq!(split.state(), whole.state());
        }
    }
}

#[test]
fn waiters_hear_when_the_driver_comes_to_rest_and_are_counted() {
    struct Woken(AtomicBool);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Release);
        }
    }
    let woken = Arc::new(Woken(AtomicBool::new(false)));
    let waker = Waker::from(Arc::clone(&woken));
    let context = &mut Context::from_waker(&waker);
    let tracker = StateTracker::default();
    tracker.activity.store(AT_WORK, Ordering::Release);
    {
        let mut given_up = pin!(tracker.answered());
        assert!(given_up.as_mut().poll(context).is_pending());
        assert_eq!(tracker.awaited.load(Ordering::Relaxed), 1);
    }
    assert_eq!(tracker.awaited.load(Ordering::Relaxed), 0);
    let mut waiting = pin!(tracker.answered());
    assert!(waiting.as_mut().poll(context).is_pending());
    tracker.come_to_rest();
    assert!(woken.0.load(Ordering::Acquire));
    assert_eq!(waiting.as_mut().poll(context), Poll::Ready(ConnectionState::Clean));
    assert_eq!(tracker.awaited.load(Ordering::Relaxed), 0);
}
