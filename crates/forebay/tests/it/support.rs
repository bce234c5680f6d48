//! A reservoir over a server in memory, under virtual time, with an observer.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use forebay::memory::Memory;
use forebay::rt::VirtualTime;
use forebay::{
    BoxError, Config, ConnectionMonitor, Event, LeaseError, LeaseId, Leases, Reservoir, Seed, StoreFuture,
};

pub(crate) fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(crate) fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Settings for tests: no startup jitter, practically no rate limit, a fixed seed.
pub(crate) fn config(max_open: usize) -> Config {
    Config::default()
        .max_open(max_open)
        .startup_jitter(Duration::ZERO)
        .rate(1e6, 1_000_000)
        .seed(Seed::new(7))
}

/// A server with its clock, leases and log.
pub(crate) struct World {
    pub(crate) time: VirtualTime,
    pub(crate) server: Memory,
    pub(crate) leases: Arc<LeaseLog>,
    pub(crate) log: Log,
}

/// The events, one line each.
pub(crate) type Log = Arc<Mutex<Vec<String>>>;

impl World {
    pub(crate) fn new() -> Self {
        let time = VirtualTime::new();
        let server = Memory::new(time.clone());
        let leases = Arc::new(LeaseLog::new(server.clone(), usize::MAX));
        Self { time, server, leases, log: Log::default() }
    }

    /// With a fleet limit of this many connections.
    pub(crate) fn with_lease_limit(limit: usize) -> Self {
        let world = Self::new();
        let leases = Arc::new(LeaseLog::new(world.server.clone(), limit));
        Self { leases, ..world }
    }

    /// A reservoir that has opened nothing yet.
    pub(crate) fn start(&self, config: Config) -> Reservoir<Memory> {
        let log = Arc::clone(&self.log);
        Reservoir::builder(self.server.clone())
            .config(config)
            .runtime(self.time.clone())
            .leases(Arc::clone(&self.leases) as Arc<dyn Leases>)
            .observer(move |event: &Event<'_>| log.lock().unwrap().push(format!("{event:?}")))
            .start_empty()
            .unwrap()
    }

    /// A full reservoir.
    pub(crate) fn filled(&self, config: Config) -> Reservoir<Memory> {
        let reservoir = self.start(config);
        assert!(self.time.run(reservoir.filled(seconds(60))), "not filled: {:?}", reservoir.status());
        self.time.settle();
        reservoir
    }

    pub(crate) fn heard(&self, what: &str) -> usize {
        self.log.lock().unwrap().iter().filter(|line| line.contains(what)).count()
    }

    /// Call it after the last handle and guard are dropped.
    pub(crate) fn assert_nothing_left(&self) {
        self.time.advance(seconds(60));
        assert_eq!(self.server.live(), 0, "connections left open");
        assert_eq!(self.leases.held(), 0, "leases left held");
        assert_eq!(self.leases.mistakes(), Vec::<String>::new());
    }
}

/// Polls once, for a future that is polled again without a wake-up.
pub(crate) fn poll<F: Future + ?Sized>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// A lease store that records mistakes: a lease that is released twice, or while its connection is open.
pub(crate) struct LeaseLog {
    server: Memory,
    inner: Mutex<Inner>,
}

struct Inner {
    limit: usize,
    held: BTreeSet<u64>,
    bound: BTreeMap<u64, ConnectionMonitor>,
    next: u64,
    mistakes: Vec<String>,
    answer: Store,
}

/// How the store answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Store {
    #[default]
    Well,
    Fail,
    Hang,
}

impl LeaseLog {
    pub(crate) fn new(server: Memory, limit: usize) -> Self {
        let inner = Inner {
            limit,
            held: BTreeSet::new(),
            bound: BTreeMap::new(),
            next: 0,
            mistakes: Vec::new(),
            answer: Store::Well,
        };
        Self { server, inner: Mutex::new(inner) }
    }

    pub(crate) fn held(&self) -> usize {
        self.inner.lock().unwrap().held.len()
    }

    pub(crate) fn taken(&self) -> u64 {
        self.inner.lock().unwrap().next
    }

    pub(crate) fn answer(&self, answer: Store) {
        self.inner.lock().unwrap().answer = answer;
    }

    /// Recalls all leases.
    pub(crate) fn recall_all(&self) {
        let bound = std::mem::take(&mut self.inner.lock().unwrap().bound);
        bound.values().for_each(ConnectionMonitor::recall);
    }

    pub(crate) fn mistakes(&self) -> Vec<String> {
        self.inner.lock().unwrap().mistakes.clone()
    }

    async fn gate(&self) -> Result<(), BoxError> {
        let answer = self.inner.lock().unwrap().answer;
        match answer {
            Store::Well => Ok(()),
            Store::Fail => Err("the store is away".into()),
            Store::Hang => std::future::pending().await,
        }
    }
}

impl Leases for LeaseLog {
    fn acquire(&self) -> StoreFuture<'_, Result<LeaseId, LeaseError>> {
        Box::pin(async {
            self.gate().await.map_err(LeaseError::Unavailable)?;
            let mut inner = self.inner.lock().unwrap();
            if inner.held.len() >= inner.limit {
                return Err(LeaseError::Limit { limit: inner.limit as u64 });
            }
            let id = inner.next;
            inner.next += 1;
            inner.held.insert(id);
            Ok(LeaseId::new(id.to_string()))
        })
    }

    fn release<'a>(&'a self, id: &'a LeaseId) -> StoreFuture<'a, Result<(), BoxError>> {
        Box::pin(async {
            self.gate().await?;
            let live = self.server.live();
            let mut inner = self.inner.lock().unwrap();
            let number = id.as_str().parse::<u64>()?;
            inner.bound.remove(&number);
            if !inner.held.remove(&number) {
                inner.mistakes.push(format!("lease {} was released twice", id.as_str()));
            }
            // Each open connection has its own lease, so there are never more connections than leases.
            if live > inner.held.len() {
                let held = inner.held.len();
                inner
                    .mistakes
                    .push(format!("lease {} released with {live} open and {held} held", id.as_str()));
            }
            Ok(())
        })
    }

    fn bind(&self, id: &LeaseId, monitor: ConnectionMonitor) {
        let mut inner = self.inner.lock().unwrap();
        match id.as_str().parse() {
            Ok(number) if inner.held.contains(&number) && !inner.bound.contains_key(&number) => {
                inner.bound.insert(number, monitor);
            }
            _ => inner.mistakes.push(format!("lease {} was bound twice or too late", id.as_str())),
        }
    }
}
