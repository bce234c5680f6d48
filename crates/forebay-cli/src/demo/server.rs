//! A database in memory that limits how fast connections open, and ends each session after a while.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use forebay::rt::Runtime;
use forebay::{Connect, ConnectionMonitor, Failure, Instant, OpenError, Rng, Seed};
use parking_lot::Mutex;

use super::scenario::{BURST, OPEN_TIME, OPENS_PER_SECOND, REFUSAL_TIME, SESSION_LIFE, draw};

/// The server. Clones are the same server.
#[derive(Clone, Debug)]
pub(super) struct Server {
    runtime: Arc<dyn Runtime>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    bucket: TokenBucket,
    rng: Rng,
    /// The attempts of the last second. It is not a second of the clock: that would split a rush in two.
    recent: VecDeque<Instant>,
    traffic: Traffic,
}

/// Attempts to open since counting began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Traffic {
    /// Attempts in the second up to now, refused ones included.
    pub(super) attempts: usize,
    /// Attempts in the busiest second.
    pub(super) peak_attempts: usize,
    pub(super) opened: u64,
    pub(super) refused: u64,
    /// Attempts under way.
    pub(super) opening: usize,
}

/// The server does not open a session now. The words are Aurora DSQL's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unable to accept connection, rate exceeded")]
pub(super) struct Refused;

/// The server has ended the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server has closed the session")]
pub(super) struct Ended;

impl Server {
    pub(super) fn new(seed: Seed, runtime: Arc<dyn Runtime>) -> Self {
        let state = State {
            bucket: TokenBucket::new(OPENS_PER_SECOND, BURST),
            rng: seed.fork("open time").rng(),
            recent: VecDeque::new(),
            traffic: Traffic::default(),
        };
        Self { runtime, state: Arc::new(Mutex::new(state)) }
    }

    /// Opens a session, which takes a while. A refusal takes less.
    pub(super) async fn open(&self) -> Result<Session, Refused> {
        let now = self.runtime.now();
        let (is_admitted, takes) = {
            let mut state = self.state.lock();
            state.recent.push_back(now);
            state.traffic.peak_attempts = state.attempts(now).max(state.traffic.peak_attempts);
            state.traffic.opening += 1;
            let is_admitted = state.bucket.take(now);
            state.traffic.refused += u64::from(!is_admitted);
            (is_admitted, if is_admitted { draw(&mut state.rng, &OPEN_TIME) } else { REFUSAL_TIME })
        };
        let _attempt = Attempt(self);
        self.runtime.sleep_until(now + takes).await;
        if !is_admitted {
            return Err(Refused);
        }
        self.state.lock().traffic.opened += 1;
        Ok(Session { ends_at: self.runtime.now() + SESSION_LIFE, runtime: Arc::clone(&self.runtime) })
    }

    /// Sets all counts but that of the attempts under way to zero.
    pub(super) fn start_counting(&self) {
        let mut state = self.state.lock();
        state.recent.clear();
        state.traffic = Traffic { opening: state.traffic.opening, ..Traffic::default() };
    }

    pub(super) fn traffic(&self) -> Traffic {
        let mut state = self.state.lock();
        Traffic { attempts: state.attempts(self.runtime.now()), ..state.traffic }
    }
}

impl State {
    fn attempts(&mut self, now: Instant) -> usize {
        while self.recent.front().is_some_and(|at| now.since(*at) >= Duration::from_secs(1)) {
            self.recent.pop_front();
        }
        self.recent.len()
    }
}

/// Ends the attempt under way, also when its future is dropped.
struct Attempt<'a>(&'a Server);

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.0.state.lock().traffic.opening -= 1;
    }
}

impl Connect for Server {
    type Connection = Session;

    async fn open(&self, _monitor: ConnectionMonitor) -> Result<Session, OpenError> {
        Server::open(self).await.map_err(|refused| OpenError::new(Failure::Throttled, refused))
    }
}

#[derive(Debug)]
pub(super) struct Session {
    ends_at: Instant,
    runtime: Arc<dyn Runtime>,
}

impl Session {
    /// Runs a query. It fails when the session ends, and not before.
    pub(super) async fn query(&mut self, takes: Duration) -> Result<(), Ended> {
        self.runtime.sleep_until(self.ends_at.min(self.runtime.now() + takes)).await;
        if self.runtime.now() < self.ends_at { Ok(()) } else { Err(Ended) }
    }
}

/// So many tokens a second, of which at most `burst` are saved up.
#[derive(Debug)]
struct TokenBucket {
    interval: Duration,
    burst: u32,
    /// When the bucket is full again.
    full_at: Instant,
}

impl TokenBucket {
    fn new(per_second: u32, burst: u32) -> Self {
        Self { interval: Duration::from_secs(1) / per_second, burst, full_at: Instant::ZERO }
    }

    /// Takes a token, if there is one. A refusal costs none.
    fn take(&mut self, now: Instant) -> bool {
        let full_at = self.full_at.max(now) + self.interval;
        let is_admitted = full_at.since(now) <= self.interval * self.burst;
        if is_admitted {
            self.full_at = full_at;
        }
        is_admitted
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::Pin;
    use std::task::Poll;

    use forebay::rt::VirtualTime;

    use super::*;

    const START: Instant = Instant::from_nanos(1_000_000_000_000);

    fn taken(bucket: &mut TokenBucket, asked: usize, now: Instant) -> usize {
        (0..asked).filter(|_| bucket.take(now)).count()
    }

    #[test]
    fn a_full_bucket_gives_its_burst_and_then_its_rate() {
        let mut bucket = TokenBucket::new(20, 5);
        assert_eq!(taken(&mut bucket, 100, START), 5);
        assert_eq!(taken(&mut bucket, 100, START + Duration::from_millis(49)), 0);
        assert_eq!(taken(&mut bucket, 100, START + Duration::from_millis(50)), 1);
        assert_eq!(taken(&mut bucket, 100, START + Duration::from_millis(200)), 3);
    }

    #[test]
    fn no_more_than_the_burst_is_saved_up() {
        let mut bucket = TokenBucket::new(20, 5);
        assert_eq!(taken(&mut bucket, 100, START), 5);
        assert_eq!(taken(&mut bucket, 100, START + Duration::from_secs(3600)), 5);
    }

    #[test]
    fn a_refusal_costs_nothing() {
        let mut bucket = TokenBucket::new(1, 1);
        assert_eq!(taken(&mut bucket, 1000, START), 1);
        assert_eq!(taken(&mut bucket, 1000, START + Duration::from_secs(1)), 1);
    }

    /// A server in virtual time.
    fn run<T>(test: impl AsyncFnOnce(Server, VirtualTime) -> T) -> T {
        let time = VirtualTime::new();
        let server = Server::new(Seed::new(1), Arc::new(time.clone()));
        time.run(test(server, time.clone()))
    }

    /// Polls a future for the first time.
    async fn start(future: &mut Pin<Box<impl Future>>) {
        poll_fn(|context| {
            assert!(future.as_mut().poll(context).is_pending());
            Poll::Ready(())
        })
        .await;
    }

    #[test]
    fn beyond_the_burst_opens_are_refused() {
        run(async |server, _| {
            let mut opens: Vec<_> = (0..BURST + 2).map(|_| Box::pin(server.open())).collect();
            for open in &mut opens {
                start(open).await;
            }
            assert_eq!(server.traffic().opening, 12);
            for (number, open) in (0..).zip(opens) {
                assert_eq!(open.await.is_ok(), number < BURST, "{number}");
            }
            let expected = Traffic { attempts: 12, peak_attempts: 12, opened: 10, refused: 2, opening: 0 };
            assert_eq!(server.traffic(), expected);
            server.start_counting();
            assert_eq!(server.traffic(), Traffic::default());
        });
    }

    #[test]
    fn an_ended_session_runs_no_query() {
        run(async |server, _| {
            let mut session = server.open().await.unwrap();
            session.query(Duration::from_millis(7_999)).await.unwrap();
            assert_eq!(session.query(Duration::from_millis(1)).await.unwrap_err(), Ended);
            assert_eq!(session.query(Duration::ZERO).await.unwrap_err(), Ended);
        });
    }

    #[test]
    fn a_dropped_attempt_is_no_longer_under_way() {
        run(async |server, _| {
            let mut open = Box::pin(server.open());
            start(&mut open).await;
            assert_eq!(server.traffic().opening, 1);
            drop(open);
            assert_eq!((server.traffic().opening, server.traffic().opened), (0, 0));
        });
    }

    #[test]
    fn the_busiest_second_may_begin_at_any_time() {
        run(async |server, time| {
            let begin = time.now();
            let seen = |traffic: Traffic| (traffic.attempts, traffic.peak_attempts);
            for millis in [1_900, 1_950, 2_050, 2_100, 2_899] {
                time.sleep_until(begin + Duration::from_millis(millis)).await;
                start(&mut Box::pin(server.open())).await;
            }
            assert_eq!(seen(server.traffic()), (5, 5));
            time.sleep_until(begin + Duration::from_millis(2_900)).await;
            assert_eq!(seen(server.traffic()), (4, 5));
            time.sleep_until(begin + Duration::from_secs(10)).await;
            assert_eq!(seen(server.traffic()), (0, 5));
        });
    }
}
