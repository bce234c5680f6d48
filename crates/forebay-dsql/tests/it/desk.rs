//! A signer that does as it is told, and a clock that can be set.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay::Instant;
use forebay::rt::{Runtime, Starved, Task, VirtualTime};
use forebay_dsql::{Options, SignFuture, Signed, Signer, Token, TokenCache, TokenError, TokenRequest};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Answer {
    Well,
    Fail,
    Hang,
    Panic,
    /// Well, after a while.
    Slow(Duration),
}

/// A signer whose tokens tell when they were signed, and whose credentials may expire.
#[derive(Clone)]
pub(crate) struct Desk(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) clock: Clock,
    pub(crate) book: Mutex<Book>,
}

pub(crate) struct Book {
    pub(crate) answer: Answer,
    pub(crate) asked: u64,
    /// When the credentials expire, by the time of day.
    pub(crate) expire: Option<Duration>,
    pub(crate) lives: Vec<Duration>,
    /// By number, when each token ends, by the time of day: with its own life or its credentials'.
    pub(crate) ends: BTreeMap<u64, Duration>,
    /// Signings under way, now and at most.
    pub(crate) flights: (u32, u32),
}

impl Desk {
    pub(crate) fn new(clock: &Clock) -> Self {
        let book = Book {
            answer: Answer::Well,
            asked: 0,
            expire: None,
            lives: Vec::new(),
            ends: BTreeMap::new(),
            flights: (0, 0),
        };
        Self(Arc::new(Inner { clock: clock.clone(), book: Mutex::new(book) }))
    }

    pub(crate) fn answer(&self, answer: Answer) {
        self.0.book.lock().unwrap().answer = answer;
    }

    pub(crate) fn expire(&self, at: Option<Duration>) {
        self.0.book.lock().unwrap().expire = at;
    }

    pub(crate) fn asked(&self) -> u64 {
        self.0.book.lock().unwrap().asked
    }
}

impl Signer for Desk {
    fn sign<'a>(&'a self, request: &'a TokenRequest) -> SignFuture<'a> {
        Box::pin(async {
            let (answer, asked, expire) = {
                let mut book = self.0.book.lock().unwrap();
                book.asked += 1;
                book.lives.push(request.life);
                book.flights.0 += 1;
                book.flights.1 = book.flights.1.max(book.flights.0);
                (book.answer, book.asked, book.expire)
            };
            let _flight = Flight(self);
            let clock = &self.0.clock;
            let end = clock.wall() + request.life;
            match answer {
                Answer::Well => {}
                Answer::Fail => return Err(TokenError::unavailable("the token service is away")),
                Answer::Hang => std::future::pending().await,
                Answer::Panic => panic!("the signer fell over, as told"),
                Answer::Slow(while_) => clock.sleep_until(clock.now() + while_).await,
            }
            let end = expire.map_or(end, |expire| expire.min(end));
            self.0.book.lock().unwrap().ends.insert(asked, end);
            let token = Token::new(format!("{asked} for {}", request.identity.user));
            Ok(Signed { token, credentials_expire: expire })
        })
    }
}

/// A signing under way.
struct Flight<'a>(&'a Desk);

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        self.0.0.book.lock().unwrap().flights.0 -= 1;
    }
}

/// Virtual time with a time of day that can be set.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    pub(crate) time: VirtualTime,
    /// Milliseconds by which the time of day is ahead.
    pub(crate) ahead: Arc<AtomicI64>,
}

impl Clock {
    pub(crate) fn step(&self, milliseconds: i64) {
        self.ahead.fetch_add(milliseconds, Ordering::Relaxed);
    }
}

impl Runtime for Clock {
    fn now(&self) -> Instant {
        self.time.now()
    }
    fn wall(&self) -> Duration {
        let ahead = self.ahead.load(Ordering::Relaxed);
        let by = Duration::from_millis(ahead.unsigned_abs());
        if ahead < 0 { self.time.wall() - by } else { self.time.wall() + by }
    }
    fn sleep_until(&self, at: Instant) -> Task {
        self.time.sleep_until(at)
    }
    fn spawn(&self, task: Task) {
        self.time.spawn(task);
    }
    fn entropy(&self) -> u64 {
        self.time.entropy()
    }
    fn block(&self, wait: &mut dyn FnMut()) -> Result<(), Starved> {
        self.time.block(wait)
    }
}

pub(crate) struct World {
    pub(crate) clock: Clock,
    pub(crate) desk: Desk,
    pub(crate) cache: TokenCache,
    pub(crate) request: TokenRequest,
}

impl World {
    pub(crate) fn new() -> Self {
        let clock = Clock { time: VirtualTime::new(), ahead: Arc::default() };
        let desk = Desk::new(&clock);
        let cache = TokenCache::new(desk.clone(), clock.clone(), "orders");
        let options = Options::builder("abc.dsql.us-east-1.on.aws").build().unwrap();
        Self { clock, desk, cache, request: options.token_request() }
    }

    pub(crate) fn ask(&self) -> Result<Token, TokenError> {
        self.clock.time.run(self.cache.token(&self.request))
    }

    /// The number of the signing that made the token.
    pub(crate) fn number(&self) -> u64 {
        number_of(&self.ask().unwrap())
    }

    pub(crate) fn pass(&self, time: Duration) {
        self.clock.time.advance(time);
    }
}

pub(crate) fn number_of(token: &Token) -> u64 {
    token.expose_secret().split(' ').next().unwrap().parse().unwrap()
}
