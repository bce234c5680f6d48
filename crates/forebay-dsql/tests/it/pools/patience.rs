//! How long a caller waits for a connection, in virtual time: one timeout, whatever the reason and the mode.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use forebay::rt::{Runtime, VirtualTime};
use forebay::{CheckoutError, Config, Connect, ConnectionMonitor, Failure, Instant, OpenError};
use forebay_dsql::{Auth, Builder, DsqlPool, Error, ErrorKind, Options, RetryPolicy, Session};
use parking_lot::Mutex;

use super::world::{config, poll, seconds};

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// How opens go.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mood {
    Well,
    Throttles,
    /// Does not let this role in.
    Denies,
    /// Finds every token too old.
    Expires,
    /// Has no token for anybody.
    Tokenless,
}

#[derive(Clone)]
struct Door {
    time: VirtualTime,
    mood: Arc<Mutex<Mood>>,
    /// How long an open takes.
    takes: Arc<Mutex<Duration>>,
    /// So many connections will be lost at BEGIN.
    loses: Arc<AtomicU32>,
}

struct Link {
    door: Door,
    lost: bool,
}

impl Connect for Door {
    type Connection = Link;

    async fn open(&self, _: ConnectionMonitor) -> Result<Link, OpenError> {
        let takes = *self.takes.lock();
        self.time.sleep_until(self.time.now() + takes).await;
        let refused = |failure, kind| Err(OpenError::new(failure, Error::new(kind, "no")));
        match *self.mood.lock() {
            Mood::Well => Ok(Link { door: self.clone(), lost: false }),
            Mood::Throttles => Err(OpenError::new(Failure::Throttled, "rate exceeded")),
            Mood::Denies => {
                refused(Failure::Auth, ErrorKind::Auth(Auth::Denied)).map_err(OpenError::permanent)
            }
            Mood::Expires => refused(Failure::Auth, ErrorKind::Auth(Auth::SignatureExpired)),
            Mood::Tokenless => refused(Failure::Token, ErrorKind::Auth(Auth::NoToken)),
        }
    }

    fn is_usable(&self, link: &Link) -> bool {
        !link.lost
    }
}

impl Session for Link {
    async fn begin(&mut self) -> Result<(), Error> {
        let lose = |left: u32| left.checked_sub(1);
        self.lost = self.door.loses.fetch_update(Ordering::SeqCst, Ordering::SeqCst, lose).is_ok();
        if self.lost { Err(Error::new(ErrorKind::Disconnected, "gone")) } else { Ok(()) }
    }

    async fn commit(&mut self) -> Result<(), Error> {
        Ok(())
    }

    async fn rollback(&mut self) -> Result<(), Error> {
        if self.lost { Err(Error::new(ErrorKind::Disconnected, "gone")) } else { Ok(()) }
    }
}

/// A pool without a connection, whose callers wait for two seconds.
struct Bare {
    time: VirtualTime,
    door: Door,
    pool: DsqlPool<Door>,
    reservoir: bool,
}

impl Bare {
    fn new(reservoir: bool) -> Self {
        Self::with(reservoir, config(2), RetryPolicy::default())
    }

    fn with(reservoir: bool, config: Config, policy: RetryPolicy) -> Self {
        let time = VirtualTime::new();
        let mood = Arc::new(Mutex::new(Mood::Throttles));
        let door = Door { time: time.clone(), mood, takes: Arc::default(), loses: Arc::default() };
        let config = config.acquire_timeout(seconds(2)).max_backoff(millis(100));
        let options = Options::builder("abc.dsql.us-east-1.on.aws").config(config).reservoir(reservoir);
        let builder = Builder::over(door.clone(), options.build().unwrap()).runtime(time.clone());
        let pool = time.run(builder.retry(policy).connect()).unwrap();
        assert_eq!(pool.status().open, 0);
        Self { time, door, pool, reservoir }
    }

    /// In both modes.
    fn both() -> [Self; 2] {
        [true, false].map(Self::new)
    }

    fn set(&self, mood: Mood) {
        *self.door.mood.lock() = mood;
    }

    /// Whatever was being done in the old mood is over, and it was tried in the new one.
    fn settle(&self) {
        self.time.advance(seconds(10));
    }

    /// At this time from now, the mood changes.
    fn later(&self, after: Duration, mood: Mood) {
        let (door, time) = (self.door.clone(), self.time.clone());
        let at = time.now() + after;
        self.time.spawn(Box::pin(async move {
            time.sleep_until(at).await;
            *door.mood.lock() = mood;
        }));
    }

    /// What a transaction comes to, and how long it takes.
    fn run(&self) -> (Result<(), Error>, Duration) {
        let began = self.time.now();
        let outcome = self.time.run(self.pool.run("look", async |_| Ok::<_, Error>(())));
        (outcome, self.time.now().since(began))
    }

    fn acquire(&self) -> (Result<(), CheckoutError>, Duration) {
        let began = self.time.now();
        let outcome = self.time.run(self.pool.acquire()).map(drop);
        (outcome, self.time.now().since(began))
    }
}

#[test]
fn callers_wait_for_the_acquire_timeout_and_hear_the_last_cause() {
    for bare in Bare::both() {
        for mood in [Mood::Throttles, Mood::Expires, Mood::Tokenless] {
            bare.set(mood);
            bare.settle();
            let expected = match mood {
                Mood::Throttles => "throttled: rate exceeded",
                Mood::Expires => "auth: no",
                _ => "token_provider: ",
            };
            let (outcome, took) = bare.acquire();
            let told = outcome.unwrap_err().to_string();
            assert_eq!(took, seconds(2), "{mood:?}, reservoir: {}", bare.reservoir);
            assert!(told.contains("became ready within 2s; the last open failed: "), "{told}");
            assert!(told.contains(expected), "{told}");
            let (outcome, took) = bare.run();
            let told = outcome.unwrap_err().to_string();
            assert_eq!(took, seconds(2), "{mood:?}, reservoir: {}", bare.reservoir);
            assert!(told.contains("became ready within 2s; the last open failed: "), "{told}");
            assert!(told.contains(expected), "{told}");
        }
    }
}

#[test]
fn a_connection_that_comes_in_time_is_in_time() {
    for bare in Bare::both() {
        bare.later(millis(1_500), Mood::Well);
        let (outcome, took) = bare.run();
        outcome.unwrap();
        assert!(took >= millis(1_500) && took < seconds(2), "{took:?}");
    }
}

#[test]
fn a_cluster_that_denies_access_is_not_waited_for() {
    for bare in Bare::both() {
        // One who waits already is told as soon as it is known.
        bare.later(seconds(1), Mood::Denies);
        let (outcome, took) = bare.acquire();
        let error = outcome.unwrap_err();
        assert!(matches!(error, CheckoutError::Denied { .. }), "{error:?}");
        assert!(took >= seconds(1) && took < seconds(2), "{took:?}");
        // All others are told at once.
        let (outcome, took) = bare.acquire();
        let error = outcome.unwrap_err();
        assert_eq!((ErrorKind::of(&error), took), (ErrorKind::Auth(Auth::Denied), Duration::ZERO), "{error}");
        let (outcome, took) = bare.run();
        let error = outcome.unwrap_err();
        assert_eq!((error.kind(), took), (ErrorKind::Auth(Auth::Denied), Duration::ZERO), "{error}");
        assert_eq!(error.to_string().matches("check the role").count(), 1, "{error}");
        // It goes on trying, and serves again.
        bare.set(Mood::Well);
        bare.settle();
        bare.acquire().0.unwrap();
    }
}

#[test]
fn access_denied_does_not_matter_while_there_is_a_connection() {
    for bare in Bare::both() {
        bare.set(Mood::Well);
        bare.settle();
        bare.door.loses.store(1, Ordering::SeqCst);
        let lent = bare.time.run(bare.pool.acquire()).unwrap();
        bare.set(Mood::Denies);
        // This one loses the other connection, and waits for the first.
        let mut run = Box::pin(bare.pool.run("look", async |_| Ok::<_, Error>(())));
        for _ in 0..15 {
            assert!(poll(&mut run).is_pending(), "reservoir: {}", bare.reservoir);
            bare.time.advance(millis(100));
        }
        drop(lent);
        bare.time.run(run).unwrap();
    }
}

/// One connection is ready and lost at BEGIN, and so is the next; each open takes its time.
#[test]
fn all_waits_of_a_run_together_last_for_the_acquire_timeout() {
    for reservoir in [true, false] {
        for (takes, outcome) in [(millis(900), Ok(())), (millis(1_500), Err(ErrorKind::NoConnection))] {
            let bare = Bare::with(reservoir, config(1), RetryPolicy::default());
            bare.set(Mood::Well);
            bare.settle();
            *bare.door.takes.lock() = takes;
            bare.door.loses.store(2, Ordering::SeqCst);
            let began = bare.time.now();
            let run = bare.time.run(bare.pool.run("look", async |_| Ok::<_, Error>(())));
            let took = bare.time.now().since(began);
            assert_eq!(run.map_err(|error| error.kind()), outcome, "reservoir: {reservoir}, {takes:?}");
            // The pauses before its retries are not waits: 100 ms and 200 ms, a quarter more at most.
            assert!(took <= seconds(2) + millis(375), "{took:?}");
        }
    }
}

#[test]
fn a_deadline_of_its_own_rules() {
    for reservoir in [true, false] {
        for (deadline, outcome) in [(1, Err(ErrorKind::NoConnection)), (6, Ok(()))] {
            let policy = RetryPolicy::default().deadline(seconds(deadline));
            let bare = Bare::with(reservoir, config(2), policy);
            bare.later(seconds(5), Mood::Well);
            let (run, took) = bare.run();
            let told = run.as_ref().err().map(ToString::to_string);
            assert_eq!(run.map_err(|error| error.kind()), outcome, "reservoir: {reservoir}");
            match told {
                Some(told) => {
                    assert_eq!(took, seconds(deadline));
                    assert!(told.contains("rate exceeded"), "{told}");
                }
                None => assert!(took >= seconds(5) && took < seconds(6), "{took:?}"),
            }
        }
    }
}

#[test]
fn a_run_outlasts_callers_that_fail_fast() {
    let bare = Bare::with(true, config(2).empty_wait(millis(100)), RetryPolicy::default());
    for mood in [Mood::Throttles, Mood::Expires] {
        bare.set(mood);
        bare.settle();
        let (outcome, took) = bare.acquire();
        assert!(matches!(outcome, Err(CheckoutError::Empty { .. })), "{outcome:?}");
        assert_eq!(took, millis(100));
        let within = bare.time.run(bare.pool.acquire_within(millis(300))).map(drop);
        assert!(
            matches!(within, Err(CheckoutError::Empty { waited, .. }) if waited == millis(300)),
            "{within:?}"
        );
        let (outcome, took) = bare.run();
        assert_eq!(took, seconds(2), "{mood:?}");
        let told = outcome.unwrap_err().to_string();
        assert!(told.contains("within 2s"), "{told}");
    }
    bare.later(millis(1_500), Mood::Well);
    bare.run().0.unwrap();
}

#[test]
fn a_caller_waits_as_long_for_a_busy_connection() {
    for reservoir in [true, false] {
        let bare = Bare::with(reservoir, config(1).empty_wait(millis(100)), RetryPolicy::default());
        bare.set(Mood::Well);
        bare.settle();
        let lent = bare.time.run(bare.pool.acquire()).unwrap();
        let (outcome, took) = bare.acquire();
        assert!(matches!(outcome, Err(CheckoutError::Exhausted { max_open: 1, .. })), "{outcome:?}");
        assert_eq!(took, seconds(2));
        let (outcome, took) = bare.run();
        assert_eq!((outcome.unwrap_err().kind(), took), (ErrorKind::NoConnection, seconds(2)));
        drop(lent);
    }
}

/// Not a retry: whoever wants none waits all the same.
#[test]
fn waits_are_no_retries() {
    for reservoir in [true, false] {
        let policy = RetryPolicy::default().retries(0);
        let bare = Bare::with(reservoir, config(2).empty_wait(millis(100)), policy);
        let end: Instant = bare.time.now() + millis(1_900);
        bare.later(millis(1_500), Mood::Well);
        bare.run().0.unwrap();
        assert!(bare.time.now() <= end, "reservoir: {reservoir}");
    }
}
