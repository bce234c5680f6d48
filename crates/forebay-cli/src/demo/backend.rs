//! A database in memory that rations connections: so many opens a second, and each session ends after a while.

use std::sync::Arc;
use std::time::Duration;

use forebay::rt::Runtime;
use forebay::{Connect, ConnectionMonitor, Failure, Instant, OpenError, Rng, Seed};
use parking_lot::Mutex;

use super::bucket::Bucket;
use super::scenario::Terms;
use super::second::SlidingSecond;

/// The server. Clones are the same server.
#[derive(Clone, Debug)]
pub(super) struct Backend {
    server: Arc<Server>,
}

#[derive(Debug)]
struct Server {
    terms: Terms,
    runtime: Arc<dyn Runtime>,
    door: Mutex<Door>,
}

/// Where opens are let in or turned away.
#[derive(Debug)]
struct Door {
    bucket: Bucket,
    rng: Rng,
    attempts: SlidingSecond,
    opened: u64,
    refused: u64,
    opening: usize,
    live: usize,
}

/// What has come to the door since counting began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Traffic {
    /// Attempts to open in the second up to now, refused ones included.
    pub(super) attempts: usize,
    /// Attempts in the fullest second.
    pub(super) peak_attempts: usize,
    /// Sessions opened.
    pub(super) opened: u64,
    /// Attempts refused.
    pub(super) refused: u64,
    /// Attempts under way.
    pub(super) opening: usize,
    /// Sessions open.
    pub(super) live: usize,
}

/// The server does not open a session now. The words are Aurora DSQL's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unable to accept connection, rate exceeded")]
pub(super) struct Refused;

/// The server has ended the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server has closed the session")]
pub(super) struct Ended;

impl Backend {
    /// A server that nobody is connected to, with a full bucket.
    pub(super) fn new(terms: Terms, seed: Seed, runtime: Arc<dyn Runtime>) -> Self {
        let door = Door {
            bucket: Bucket::full(terms.opens_per_second, terms.burst, runtime.now()),
            rng: seed.fork("open time").rng(),
            attempts: SlidingSecond::default(),
            opened: 0,
            refused: 0,
            opening: 0,
            live: 0,
        };
        Self { server: Arc::new(Server { terms, runtime, door: Mutex::new(door) }) }
    }

    /// Opens a session, which takes a while; to be refused takes less.
    pub(super) async fn open(&self) -> Result<Session, Refused> {
        let Server { terms, runtime, door } = &*self.server;
        let now = runtime.now();
        let (let_in, takes) = {
            let mut door = door.lock();
            door.attempts.note(now);
            let let_in = door.bucket.take(now);
            if !let_in {
                door.refused += 1;
            }
            (let_in, if let_in { terms.open_time.draw(&mut door.rng) } else { terms.refusal_time })
        };
        let _attempt = Attempt::new(self);
        runtime.sleep_until(now + takes).await;
        if !let_in {
            return Err(Refused);
        }
        {
            let mut door = door.lock();
            door.opened += 1;
            door.live += 1;
        }
        Ok(Session { ends_at: runtime.now() + terms.session_life, backend: self.clone() })
    }

    /// Forgets what has come to the door so far.
    pub(super) fn start_counting(&self) {
        let mut door = self.server.door.lock();
        (door.opened, door.refused) = (0, 0);
        door.attempts = SlidingSecond::default();
    }

    /// What has come to the door.
    pub(super) fn traffic(&self) -> Traffic {
        let now = self.server.runtime.now();
        let mut door = self.server.door.lock();
        Traffic {
            attempts: door.attempts.count(now),
            peak_attempts: door.attempts.peak(),
            opened: door.opened,
            refused: door.refused,
            opening: door.opening,
            live: door.live,
        }
    }
}

/// An attempt to open, counted as under way until it is over or given up.
struct Attempt<'a>(&'a Backend);

impl<'a> Attempt<'a> {
    fn new(backend: &'a Backend) -> Self {
        backend.server.door.lock().opening += 1;
        Self(backend)
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.0.server.door.lock().opening -= 1;
    }
}

/// A session. Dropping it closes it.
#[derive(Debug)]
pub(super) struct Session {
    ends_at: Instant,
    backend: Backend,
}

impl Session {
    /// Runs a query that takes so long. It fails when the session ends, and not before.
    pub(super) async fn query(&mut self, takes: Duration) -> Result<(), Ended> {
        let runtime = &self.backend.server.runtime;
        runtime.sleep_until(self.ends_at.min(runtime.now() + takes)).await;
        if runtime.now() < self.ends_at { Ok(()) } else { Err(Ended) }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.backend.server.door.lock().live -= 1;
    }
}

impl Connect for Backend {
    type Connection = Session;

    async fn open(&self, _monitor: ConnectionMonitor) -> Result<Session, OpenError> {
        Backend::open(self).await.map_err(|refused| OpenError::new(Failure::Throttled, refused))
    }
}

#[cfg(test)]
mod tests {
    use forebay::rt::VirtualTime;

    use super::*;
    use crate::demo::scenario::Span;

    /// A server on terms of its own, in virtual time.
    fn run<T>(test: impl AsyncFnOnce(Backend) -> T) -> T {
        let terms = Terms {
            opens_per_second: 1,
            burst: 2,
            open_time: Span::millis(20, 60),
            refusal_time: Duration::from_millis(5),
            session_life: Duration::from_secs(8),
        };
        let time = VirtualTime::new();
        let backend = Backend::new(terms, Seed::new(1), Arc::new(time.clone()));
        time.run(test(backend))
    }

    #[test]
    fn beyond_the_burst_opens_are_refused() {
        run(async |backend| {
            let _open = [backend.open().await.unwrap(), backend.open().await.unwrap()];
            assert_eq!(backend.open().await.unwrap_err(), Refused);
            let traffic = backend.traffic();
            assert_eq!((traffic.opened, traffic.refused, traffic.peak_attempts), (2, 1, 3));
            assert_eq!((traffic.opening, traffic.live), (0, 2));
            backend.start_counting();
            let traffic = backend.traffic();
            assert_eq!((traffic.opened, traffic.refused, traffic.peak_attempts, traffic.live), (0, 0, 0, 2));
        });
    }

    #[test]
    fn an_ended_session_runs_no_query() {
        run(async |backend| {
            let mut session = backend.open().await.unwrap();
            session.query(Duration::from_millis(7_999)).await.unwrap();
            assert_eq!(session.query(Duration::from_millis(1)).await.unwrap_err(), Ended);
            assert_eq!(session.query(Duration::ZERO).await.unwrap_err(), Ended);
            drop(session);
            assert_eq!(backend.traffic().live, 0);
        });
    }

    #[test]
    fn an_attempt_given_up_is_no_longer_under_way() {
        run(async |backend| {
            let mut open = Box::pin(backend.open());
            std::future::poll_fn(|context| {
                assert!(open.as_mut().poll(context).is_pending());
                std::task::Poll::Ready(())
            })
            .await;
            assert_eq!(backend.traffic().opening, 1);
            drop(open);
            assert_eq!((backend.traffic().opening, backend.traffic().live), (0, 0));
        });
    }
}
