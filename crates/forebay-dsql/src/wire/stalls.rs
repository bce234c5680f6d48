//! A driver and a server that stalls, with a tracked stream in between: whatever is split, delayed and given up, each answer goes to
//! its request, and what the driver is told is what the server does.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use forebay::rt::{Runtime, VirtualTime};
use forebay::{Instant, Rng, Seed};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::tests::{error, frame, query, ready, startup, tag};
use super::*;

const LIMIT: Duration = Duration::from_secs(10);

/// What a driver asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Begin,
    /// A statement that writes this number.
    Write(u64),
    /// The same with Parse, Bind, Execute and Sync, and rows in the answer.
    Bound(u64),
    /// Prepares a statement, and changes nothing.
    Prepare,
    /// Closes one. Nobody waits for the answer.
    Close,
    Fail,
    Commit,
    Rollback,
}

impl Request {
    fn bytes(self) -> Vec<u8> {
        let bound = |text: String| {
            let parse = frame(b'P', format!("\0{text}\0\0\0").as_bytes());
            [parse, frame(b'B', b"\0\0\0\0\0\0\0\0"), frame(b'E', b"\0\0\0\0\0"), frame(b'S', b"")].concat()
        };
        match self {
            Self::Begin => query("BEGIN"),
            Self::Write(number) => query(&format!("INSERT {number}")),
            Self::Bound(number) => bound(format!("INSERT {number}")),
            Self::Prepare => [frame(b'P', b"s1\0SELECT 1\0\0\0"), frame(b'S', b"")].concat(),
            Self::Close => [frame(b'C', b"Ss1\0"), frame(b'S', b"")].concat(),
            Self::Fail => query("FAIL"),
            Self::Commit => query("COMMIT"),
            Self::Rollback => query("ROLLBACK"),
        }
    }
}

/// The server, and the socket to it.
#[derive(Default)]
struct Server {
    /// Requests that it has not read yet.
    received: Vec<u8>,
    /// The requests that it has read and not answered.
    asked: VecDeque<Request>,
    /// Bytes on their way to the driver, and how many of them have arrived.
    answers: VecDeque<u8>,
    arrived: usize,
    /// How much more it takes.
    room: usize,
    in_transaction: bool,
    failed: bool,
    pending: BTreeSet<u64>,
    committed: BTreeSet<u64>,
    /// What ever reached it.
    seen: BTreeSet<u64>,
}

impl Server {
    /// Takes one request apart from its frames.
    fn read(&mut self) {
        let (mut rest, mut number, mut parsed) = (&self.received[..], None, None);
        let mut used = 0;
        while let Some(header) = rest.get(..5) {
            let length = u32::from_be_bytes(header[1..].try_into().unwrap()) as usize + 1;
            let Some(body) = rest.get(5..length) else { break };
            let text = String::from_utf8_lossy(body).into_owned();
            let written = |text: &str| {
                let digits: String = text
                    .chars()
                    .skip_while(|c| !c.is_ascii_digit())
                    .take_while(char::is_ascii_digit)
                    .collect();
                digits.parse::<u64>().unwrap()
            };
            match rest[0] {
                b'Q' if text.starts_with("BEGIN") => parsed = Some(Request::Begin),
                b'Q' if text.starts_with("COMMIT") => parsed = Some(Request::Commit),
                b'Q' if text.starts_with("ROLLBACK") => parsed = Some(Request::Rollback),
                b'Q' if text.starts_with("FAIL") => parsed = Some(Request::Fail),
                b'Q' => parsed = Some(Request::Write(written(&text))),
                b'P' if text.contains("INSERT") => number = Some(written(&text)),
                b'P' => {}
                b'C' => parsed = Some(Request::Close),
                _ => {}
            }
            let is_end = matches!(rest[0], b'Q' | b'S');
            rest = &rest[length..];
            if is_end {
                let request = parsed.take().unwrap_or(number.take().map_or(Request::Prepare, Request::Bound));
                self.asked.push_back(request);
                used = self.received.len() - rest.len();
            }
        }
        self.received.drain(..used);
    }

    /// Carries out one request.
    fn work(&mut self) {
        let Some(request) = self.asked.pop_front() else { return };
        let mut answer = Vec::new();
        let refused = self.failed && !matches!(request, Request::Commit | Request::Rollback | Request::Close);
        match request {
            Request::Write(number) | Request::Bound(number) => {
                self.seen.insert(number);
                if refused {
                    answer.extend(error("ERROR", "25P02"));
                } else {
                    if matches!(request, Request::Bound(_)) {
                        answer.extend([frame(b'1', b""), frame(b'2', b"")].concat());
                        answer.extend(frame(b'D', format!("row of {number} {}", "x".repeat(40)).as_bytes()));
                    }
                    if self.in_transaction {
                        self.pending.insert(number)
                    } else {
                        self.committed.insert(number)
                    };
                    answer.extend(tag(&format!("INSERT 0 {number}")));
                }
            }
            Request::Prepare if !refused => answer.extend(frame(b'1', b"")),
            Request::Close => answer.extend(frame(b'3', b"")),
            Request::Begin if !refused => {
                self.in_transaction = true;
                answer.extend(tag("BEGIN"));
            }
            Request::Commit if self.failed => {
                self.pending.clear();
                (self.in_transaction, self.failed) = (false, false);
                answer.extend(tag("ROLLBACK"));
            }
            Request::Commit => {
                self.committed.append(&mut self.pending);
                self.in_transaction = false;
                answer.extend(tag("COMMIT"));
            }
            Request::Rollback => {
                self.pending.clear();
                (self.in_transaction, self.failed) = (false, false);
                answer.extend(tag("ROLLBACK"));
            }
            _ => {
                self.failed = self.in_transaction;
                answer.extend(error("ERROR", "22012"));
            }
        }
        answer.extend(ready(match (self.in_transaction, self.failed) {
            (false, _) => b'I',
            (true, false) => b'T',
            (true, true) => b'E',
        }));
        self.answers.extend(answer);
    }
}

impl AsyncRead for Server {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let most = self.arrived.min(buffer.remaining());
        if most == 0 {
            return Poll::Pending;
        }
        self.arrived -= most;
        let bytes: Vec<u8> = self.answers.drain(..most).collect();
        buffer.put_slice(&bytes);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Server {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let most = self.room.min(bytes.len());
        if most == 0 {
            return Poll::Pending;
        }
        self.room -= most;
        self.received.extend(&bytes[..most]);
        Poll::Ready(Ok(most))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// What the driver was told of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Done,
    /// It was refused, or was rolled back instead of committed.
    Refused,
    /// Given up; nothing of it is committed.
    Failed,
    /// Given up; it may be.
    Unknown,
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Trial {
    time: VirtualTime,
    rng: Rng,
    stream: TrackedStream<Server>,
    tracker: Arc<StateTracker>,
    woken: Arc<Woken>,
    /// What the driver is about to write.
    writing: VecDeque<u8>,
    /// Requests without an answer, and when the stream had taken all of them.
    asked: VecDeque<(Request, Option<Instant>)>,
    /// What it has read of a frame.
    read: Vec<u8>,
    told: Option<Told>,
    /// Of each number, what its own answer said.
    outcomes: BTreeMap<u64, Told>,
    /// The transaction as the driver sees it: the numbers that it was told of, until its COMMIT is answered.
    transaction: Option<Vec<u64>>,
    /// The numbers of transactions that were given up.
    never: BTreeSet<u64>,
    next: u64,
    broken: bool,
    given_up: u64,
}

impl Trial {
    fn new(seed: u64) -> Self {
        let time = VirtualTime::new();
        let tracker = Arc::new(StateTracker::default());
        let server = Server { room: usize::MAX, ..Server::default() };
        let mut stream = TrackedStream::new(server, Arc::clone(&tracker), Arc::new(time.clone()));
        stream.note_sent(&startup());
        stream.note_received(&ready(b'I'));
        tracker.limits.set_each(Some(LIMIT));
        Self {
            time,
            rng: Seed::new(seed).rng(),
            stream,
            tracker,
            woken: Arc::default(),
            writing: VecDeque::new(),
            asked: VecDeque::new(),
            read: Vec::new(),
            told: None,
            outcomes: BTreeMap::new(),
            transaction: None,
            never: BTreeSet::new(),
            next: 1,
            broken: false,
            given_up: 0,
        }
    }

    fn ask(&mut self, request: Request) {
        self.asked.push_back((request, None));
        self.writing.extend(request.bytes());
    }

    /// The driver does what it can, as when it is polled.
    fn poll(&mut self) {
        let waker = Waker::from(Arc::clone(&self.woken));
        let context = &mut Context::from_waker(&waker);
        loop {
            let mut progress = false;
            let size = usize::try_from(1 + self.rng.below(64)).unwrap();
            let mut bytes = vec![0; size];
            let mut buffer = ReadBuf::new(&mut bytes);
            match Pin::new(&mut self.stream).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) => {
                    assert!(!buffer.filled().is_empty(), "it looks like the end");
                    let read = buffer.filled().to_vec();
                    self.hear(&read);
                    progress = true;
                }
                Poll::Ready(Err(_)) => self.broken = true,
                Poll::Pending => {}
            }
            if !self.writing.is_empty() && !self.broken {
                let most = usize::try_from(1 + self.rng.below(80)).unwrap().min(self.writing.len());
                let bytes: Vec<u8> = self.writing.iter().take(most).copied().collect();
                if let Poll::Ready(written) = Pin::new(&mut self.stream).poll_write(context, &bytes) {
                    self.writing.drain(..written.unwrap());
                    let mut left = self.writing.len();
                    for (request, sent) in self.asked.iter_mut().rev() {
                        let is_sent = left == 0;
                        left = left.saturating_sub(request.bytes().len());
                        if is_sent && sent.is_none() {
                            *sent = Some(self.time.now());
                        }
                    }
                    progress = true;
                }
            }
            if self.broken || !progress {
                return;
            }
        }
    }

    /// The driver takes frames apart, and gives them to the requests in their order.
    fn hear(&mut self, bytes: &[u8]) {
        self.read.extend(bytes);
        while let Some(header) = self.read.get(..5) {
            let length = u32::from_be_bytes(header[1..].try_into().unwrap()) as usize + 1;
            let Some(body) = self.read.get(5..length) else { return };
            let (kind, text) = (self.read[0], String::from_utf8_lossy(body).into_owned());
            self.read.drain(..length);
            let (request, _) = *self.asked.front().expect("an answer without a request");
            match kind {
                b'D' | b'C' => {
                    if let Request::Write(number) | Request::Bound(number) = request {
                        assert!(text.contains(&number.to_string()), "{text} for {request:?}");
                    }
                    if kind == b'C' && self.told.is_none() {
                        let is_undone = request == Request::Commit && text.starts_with("ROLLBACK");
                        self.told = Some(if is_undone { Told::Refused } else { Told::Done });
                    }
                }
                b'E' => {
                    self.told = Some(match () {
                        () if text.contains("C57014") => Told::Failed,
                        () if text.contains("C08007") => Told::Unknown,
                        () => Told::Refused,
                    });
                }
                b'Z' => {
                    let told = self.told.take().unwrap_or(Told::Done);
                    self.asked.pop_front();
                    self.conclude(request, told);
                }
                _ => {}
            }
        }
    }

    fn conclude(&mut self, request: Request, told: Told) {
        self.given_up += u64::from(matches!(told, Told::Failed | Told::Unknown));
        match request {
            Request::Write(number) | Request::Bound(number) => {
                self.outcomes.insert(number, told);
                if let Some(transaction) = &mut self.transaction {
                    transaction.push(number);
                }
            }
            Request::Begin if told == Told::Done => self.transaction = Some(Vec::new()),
            Request::Commit | Request::Rollback => {
                let transaction = self.transaction.take().unwrap_or_default();
                let is_certain = |number: &u64| self.outcomes.get(number) == Some(&Told::Done);
                match told {
                    // All of it or nothing.
                    Told::Done if request == Request::Commit => {
                        let server = &self.stream.stream().committed;
                        for number in transaction.iter().filter(|number| is_certain(number)) {
                            assert!(server.contains(number), "{number} is lost");
                        }
                    }
                    Told::Unknown => {}
                    _ => self.never.extend(transaction),
                }
            }
            _ => {}
        }
    }

    fn step(&mut self) {
        let server = self.stream.stream_mut();
        match self.rng.below(12) {
            0 => server.room = usize::try_from(self.rng.below(60)).unwrap(),
            1 => server.room = usize::MAX,
            2 | 3 => server.read(),
            4 | 5 => server.work(),
            6 => {
                let some = usize::try_from(self.rng.below(50)).unwrap();
                server.arrived = (server.arrived + some).min(server.answers.len());
            }
            7 => server.arrived = server.answers.len(),
            8 => {
                let time = Duration::from_millis(self.rng.below(8_000));
                let now = self.time.now();
                let serious = self.asked.iter().filter(|(request, _)| *request != Request::Close);
                // The first only, unless the stream waits for the rest of a frame already. One that was blocked is overdue earlier.
                let due = serious.filter_map(|(_, sent)| *sent).map(|sent| sent + LIMIT).min();
                let in_time = !self.tracker.is_given_up() && !self.stream.is_overdue();
                let is_late = in_time && due.is_some_and(|due| due > now && due <= now + time);
                self.woken.0.store(false, Ordering::Relaxed);
                self.time.advance(time);
                assert!(
                    !is_late || self.broken || self.woken.0.load(Ordering::Relaxed),
                    "nobody woke the driver"
                );
            }
            _ => {
                let number = self.next;
                let request = match (self.rng.below(8), self.transaction.is_some()) {
                    (0, false) => Request::Begin,
                    (0 | 1, true) => Request::Commit,
                    (2, true) => Request::Rollback,
                    (3, _) => Request::Fail,
                    (4, _) => Request::Prepare,
                    (5, _) => Request::Close,
                    (6, _) => Request::Bound(number),
                    _ => Request::Write(number),
                };
                self.next += u64::from(matches!(request, Request::Write(_) | Request::Bound(_)));
                // What ends or begins a transaction is not pipelined, so that the driver knows what is in it.
                let waits = matches!(request, Request::Begin | Request::Commit | Request::Rollback);
                if self.asked.len() < 4 && (!waits || self.asked.is_empty()) && !self.has_asked_for_an_end() {
                    self.ask(request);
                }
            }
        }
        self.poll();
    }

    fn has_asked_for_an_end(&self) -> bool {
        let ends = |(request, _): &(Request, Option<Instant>)| {
            matches!(request, Request::Begin | Request::Commit | Request::Rollback)
        };
        self.asked.iter().any(ends)
    }

    /// The server answers everything.
    fn recover(&mut self) {
        for _ in 0..200 {
            let server = self.stream.stream_mut();
            server.room = usize::MAX;
            server.read();
            server.work();
            server.arrived = server.answers.len();
            self.poll();
        }
    }

    /// The caller gives the connection back, and the pool resets it.
    fn reset(&mut self) {
        self.recover();
        if self.broken {
            return;
        }
        assert!(
            self.asked.is_empty() && self.read.is_empty(),
            "no answer for {:?}, at {:?}, given up: {}, to write: {}, {:?}",
            self.asked,
            self.time.now(),
            self.tracker.is_given_up(),
            self.writing.len(),
            self.stream.protocol,
        );
        assert_ne!(self.tracker.state(), ConnectionState::Unanswered);
        self.tracker.resume();
        if self.tracker.state() == ConnectionState::InTransaction {
            self.ask(Request::Rollback);
            self.recover();
        }
        if let Some(left) = self.transaction.take() {
            self.never.extend(left);
        }
        assert_eq!(self.tracker.state(), ConnectionState::Clean);
        let server = self.stream.stream();
        assert!(!server.in_transaction && server.pending.is_empty());
    }

    fn check(&self) {
        let server = self.stream.stream();
        for number in &self.never {
            assert!(!server.committed.contains(number), "{number} of a transaction that was not committed");
        }
        for (number, told) in &self.outcomes {
            if matches!(told, Told::Failed | Told::Refused) {
                assert!(
                    !server.committed.contains(number),
                    "{number} is committed, and was told to have {told:?}"
                );
            }
        }
    }
}

/// Whether requests were given up, and whether it broke.
fn trial(seed: u64) -> (bool, bool) {
    let mut trial = Trial::new(seed);
    for _ in 0..3 {
        for _ in 0..60 {
            trial.step();
            if trial.broken {
                break;
            }
        }
        trial.reset();
        trial.check();
        if trial.broken {
            break;
        }
    }
    // Nobody waits for ever.
    if !trial.broken {
        trial.ask(Request::Write(trial.next));
        trial.poll();
        trial.time.advance(LIMIT + Duration::from_secs(2));
        trial.poll();
        assert!(trial.asked.is_empty(), "it still waits");
        trial.reset();
        trial.check();
    }
    let counted = (trial.given_up > 0, trial.broken);
    trial.time.shut_down();
    counted
}

#[test]
fn every_answer_goes_to_its_request_and_nobody_is_told_wrong() {
    let seeds = std::env::var("FOREBAY_STALLS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(2_000);
    let (mut given_up, mut broken) = (0, 0);
    for seed in 0..seeds {
        let outcome = std::panic::catch_unwind(|| trial(seed));
        let (gave_up, broke) = outcome.unwrap_or_else(|_| panic!("seed {seed}"));
        given_up += u64::from(gave_up);
        broken += u64::from(broke);
    }
    assert!(given_up > seeds / 2, "only {given_up} of {seeds} gave anything up");
    assert!(broken > 0 && broken < seeds / 2, "{broken} of {seeds} broke");
}
