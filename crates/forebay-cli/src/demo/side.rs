//! One side of the demo: a pool of connections, its server, and how its callers fared.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use deadpool::managed::{Manager, Metrics, Object, Pool, QueueMode, RecycleError, RecycleResult, Timeouts};
use forebay::rt::{self, Runtime};
use forebay::{Config, Instant, Lifetime, Reservoir, Rng, Seed};
use hdrhistogram::Histogram;
use parking_lot::Mutex;

use super::scenario::{
    ACQUIRE_TIMEOUT, BURST, CONNECTIONS, OPENS_PER_SECOND, SESSION_LIFE, SLOW, draw, seconds,
};
use super::server::{Ended, Refused, Server, Session, Traffic};

/// The two sides, in the order in which everything shows them.
pub(super) const NAMES: [&str; 2] = ["deadpool 0.13", "forebay"];

/// deadpool: a fifth of the lives' length is random. A half, a fifteenth and last in first out were tried: no
/// better.
const POOL_LIFE: Range<Duration> = Duration::from_millis(6_000)..Duration::from_millis(7_500);
/// The pause after the first refusal. Each further pause is twice as long, up to the maximum.
const FIRST_BACKOFF: Duration = Duration::from_millis(40);
const MAX_BACKOFF: Duration = Duration::from_millis(320);

const LIFE: Duration = Duration::from_millis(7_000);
const JITTER: Duration = Duration::from_millis(500);
const GUARD: Duration = Duration::from_millis(250);
/// The reservoir leaves 3 of the server's burst: this machine may delay an open so that it comes with the
/// next one.
const RESERVOIR_BURST: u32 = BURST - 3;

/// How the side at this place in [`NAMES`] is set up, in words.
pub(super) fn settings(side: usize) -> Vec<(&'static str, String)> {
    let connections = ("connections", format!("{CONNECTIONS}, opened up front"));
    let timeout = seconds(ACQUIRE_TIMEOUT);
    if side == 0 {
        let (first, max) = (FIRST_BACKOFF.as_millis(), MAX_BACKOFF.as_millis());
        let (shortest, longest) = (seconds(POOL_LIFE.start), seconds(POOL_LIFE.end));
        vec![
            connections,
            ("life", format!("{shortest} to {longest}, drawn for each")),
            ("timeouts", format!("wait {timeout}, create {timeout}")),
            ("refused open", format!("again in {first} to {max} ms")),
            ("queue", "first in, first out".to_owned()),
        ]
    } else {
        vec![
            connections,
            ("life", format!("at most {} to {}", seconds(LIFE - JITTER / 2), seconds(LIFE + JITTER / 2))),
            ("guard window", format!("{} ms", GUARD.as_millis())),
            ("opens", format!("{OPENS_PER_SECOND} a second, burst {RESERVOIR_BURST}")),
            ("timeout", timeout),
        ]
    }
}

/// A side and its callers.
#[derive(Debug)]
pub(super) struct Side {
    lender: Lender,
    server: Server,
    runtime: Arc<dyn Runtime>,
    tally: Mutex<Tally>,
}

#[derive(Debug)]
enum Lender {
    Deadpool(Pool<Opener>),
    Reservoir(Reservoir<Server>),
}

impl Side {
    fn new(lender: Lender, server: Server, runtime: Arc<dyn Runtime>) -> Arc<Self> {
        Arc::new(Self { lender, server, runtime, tally: Mutex::default() })
    }

    /// deadpool, set up as well as it can be: every connection is open before the first caller comes, each
    /// has a life of its own, well below the session's, and a refused open is tried again, with a pause. No
    /// setting makes it open a connection before a caller needs one.
    pub(super) fn deadpool(seed: Seed, runtime: Arc<dyn Runtime>) -> anyhow::Result<Arc<Self>> {
        let server = Server::new(seed, Arc::clone(&runtime));
        let rng = Mutex::new(seed.fork("pool").rng());
        let opener = Opener { server: server.clone(), runtime: Arc::clone(&runtime), rng };
        let pool = Pool::builder(opener)
            .max_size(CONNECTIONS)
            .queue_mode(QueueMode::Fifo)
            .wait_timeout(Some(ACQUIRE_TIMEOUT))
            .create_timeout(Some(ACQUIRE_TIMEOUT))
            .runtime(deadpool::Runtime::Tokio1)
            .build()?;
        Ok(Self::new(Lender::Deadpool(pool), server, runtime))
    }

    pub(super) fn reservoir(seed: Seed, runtime: Arc<dyn Runtime>) -> anyhow::Result<Arc<Self>> {
        let server = Server::new(seed, Arc::clone(&runtime));
        let config = Config::default()
            .max_open(CONNECTIONS)
            .lifetime(Lifetime::new(LIFE).jitter(JITTER).guard_window(GUARD))
            .server_limit(SESSION_LIFE)
            .rate(OPENS_PER_SECOND.into(), RESERVOIR_BURST)
            .startup_jitter(Duration::ZERO)
            .seed(seed.fork("reservoir"));
        let reservoir =
            Reservoir::builder(server.clone()).config(config).runtime(Arc::clone(&runtime)).start_empty()?;
        Ok(Self::new(Lender::Reservoir(reservoir), server, runtime))
    }

    /// Opens the connections it starts with.
    pub(super) async fn fill(&self) {
        match &self.lender {
            Lender::Deadpool(pool) => {
                // One after another: so the server refuses none, and their lives are spread a little more.
                let mut all: Vec<Object<Opener>> = Vec::new();
                while all.len() < CONNECTIONS {
                    let Ok(connection) = pool.timeout_get(&Timeouts::new()).await else { return };
                    all.push(connection);
                }
            }
            // After a minute the demo goes on with the connections there are, and shows it.
            Lender::Reservoir(reservoir) => _ = reservoir.filled(Duration::from_secs(60)).await,
        }
    }

    /// Forgets what filling took.
    pub(super) fn start_counting(&self) {
        self.server.start_counting();
    }

    /// Serves a caller in the background. Its wait counts from `due_at`, when it was to come: a load that
    /// runs late must not make a slow side look fast.
    pub(super) fn admit(self: &Arc<Self>, due_at: Instant, query_time: Duration) {
        self.tally.lock().figures.waiting += 1;
        let this = Arc::clone(self);
        self.runtime.spawn(Box::pin(async move { this.serve(due_at, query_time).await }));
    }

    async fn serve(&self, due_at: Instant, query_time: Duration) {
        self.tally.lock().started(self.runtime.now().since(due_at));
        match &self.lender {
            Lender::Deadpool(pool) => {
                // deadpool limits the wait and the open separately. The caller waits for no longer than one
                // timeout.
                match rt::within(&*self.runtime, ACQUIRE_TIMEOUT, pool.get()).await {
                    Some(Ok(mut lent)) => {
                        if self.query(&mut lent.session, due_at, query_time).await.is_err() {
                            drop(Object::take(lent));
                        }
                    }
                    _ => self.tally.lock().failed(self.runtime.now().since(due_at)),
                }
            }
            Lender::Reservoir(reservoir) => match reservoir.checkout().within(ACQUIRE_TIMEOUT).await {
                Ok(mut lent) => {
                    if self.query(&mut lent, due_at, query_time).await.is_err() {
                        lent.mark_bad();
                    }
                }
                Err(_) => self.tally.lock().failed(self.runtime.now().since(due_at)),
            },
        }
    }

    async fn query(&self, session: &mut Session, due_at: Instant, takes: Duration) -> Result<(), Ended> {
        self.tally.lock().acquired(self.runtime.now().since(due_at));
        let outcome = session.query(takes).await;
        self.tally.lock().left(outcome.is_err());
        outcome
    }

    /// Whether every caller has left.
    pub(super) fn is_quiet(&self) -> bool {
        let Figures { waiting, lent, .. } = self.tally.lock().figures;
        waiting + lent == 0
    }

    pub(super) fn figures(&self) -> Figures {
        let size = match &self.lender {
            Lender::Deadpool(pool) => pool.status().size,
            Lender::Reservoir(reservoir) => reservoir.status().size(),
        };
        let figures = self.tally.lock().figures();
        // The two were not counted at one moment: a caller may have come in between.
        Figures { ready: size.saturating_sub(figures.lent), traffic: self.server.traffic(), ..figures }
    }
}

/// What a side looks like at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Figures {
    /// Connections that no caller has.
    pub(super) ready: usize,
    /// Connections that callers have.
    pub(super) lent: usize,
    /// Callers without a connection.
    pub(super) waiting: usize,
    /// Callers who got a connection or gave up.
    pub(super) acquires: u64,
    /// Callers who gave up or were refused.
    pub(super) failed: u64,
    /// Callers who got a connection, after more than [`SLOW`].
    pub(super) slow: u64,
    /// Callers who got a connection on which the query failed.
    pub(super) failed_queries: u64,
    pub(super) p50: Duration,
    pub(super) p99: Duration,
    pub(super) max: Duration,
    /// How late this machine started a caller's task, at most: the part of a wait that is not the pool's.
    pub(super) latest_start: Duration,
    pub(super) traffic: Traffic,
}

/// Counts callers, and how long each waited for a connection.
#[derive(Debug)]
struct Tally {
    /// In microseconds. Callers who got no connection count too, with the time they waited.
    waits: Histogram<u32>,
    figures: Figures,
}

impl Default for Tally {
    fn default() -> Self {
        // A minute at three digits: more than anyone waits here, in some 20 KB.
        let waits = Histogram::new_with_bounds(1, 60_000_000, 3).expect("the bounds make sense");
        Self { waits, figures: Figures::default() }
    }
}

impl Tally {
    fn started(&mut self, late: Duration) {
        self.figures.latest_start = self.figures.latest_start.max(late);
    }

    fn acquired(&mut self, waited: Duration) {
        self.figures.lent += 1;
        self.figures.slow += u64::from(waited > SLOW);
        self.waited(waited);
    }

    fn failed(&mut self, waited: Duration) {
        self.figures.failed += 1;
        self.waited(waited);
    }

    fn left(&mut self, query_failed: bool) {
        self.figures.lent -= 1;
        self.figures.failed_queries += u64::from(query_failed);
    }

    fn waited(&mut self, waited: Duration) {
        self.figures.waiting -= 1;
        self.figures.acquires += 1;
        self.waits.saturating_record(u64::try_from(waited.as_micros()).unwrap_or(u64::MAX));
    }

    fn figures(&self) -> Figures {
        let quantile = |q| Duration::from_micros(self.waits.value_at_quantile(q));
        let max = Duration::from_micros(self.waits.max());
        Figures { p50: quantile(0.50), p99: quantile(0.99), max, ..self.figures }
    }
}

/// Opens sessions for deadpool.
#[derive(Debug)]
struct Opener {
    server: Server,
    runtime: Arc<dyn Runtime>,
    rng: Mutex<Rng>,
}

#[derive(Debug)]
struct Expiring {
    session: Session,
    use_until: Instant,
}

impl Manager for Opener {
    type Type = Expiring;
    type Error = Refused;

    async fn create(&self) -> Result<Expiring, Refused> {
        let mut backoff = FIRST_BACKOFF;
        // The create timeout ends this.
        loop {
            if let Ok(session) = self.server.open().await {
                let life = draw(&mut self.rng.lock(), &POOL_LIFE);
                return Ok(Expiring { session, use_until: self.runtime.now() + life });
            }
            // Half of the pause is random: callers refused together must not come back together.
            let pause = draw(&mut self.rng.lock(), &(backoff / 2..backoff));
            self.runtime.sleep_until(self.runtime.now() + pause).await;
            backoff = (2 * backoff).min(MAX_BACKOFF);
        }
    }

    async fn recycle(&self, connection: &mut Expiring, _: &Metrics) -> RecycleResult<Refused> {
        if self.runtime.now() < connection.use_until { Ok(()) } else { Err(RecycleError::message("too old")) }
    }
}

#[cfg(test)]
mod tests {
    use forebay::rt::VirtualTime;

    use super::*;

    fn millis(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn tally(waiting: usize) -> Tally {
        Tally { figures: Figures { waiting, ..Figures::default() }, ..Tally::default() }
    }

    #[test]
    fn every_caller_is_counted_once() {
        let mut tally = tally(4);
        tally.acquired(millis(5));
        tally.acquired(millis(6));
        tally.failed(millis(1000));
        tally.left(false);
        tally.left(true);
        let expected =
            Figures { waiting: 1, acquires: 3, failed: 1, slow: 1, failed_queries: 1, ..Figures::default() };
        assert_eq!(tally.figures, expected);
    }

    #[test]
    fn callers_who_got_no_connection_count_in_the_percentiles() {
        let mut tally = tally(100);
        (0..98).for_each(|_| tally.acquired(millis(1)));
        (0..2).for_each(|_| tally.failed(millis(1000)));
        let Figures { p50, p99, max, .. } = tally.figures();
        let near = |waited: Duration, expected: u64| waited.as_millis().abs_diff(expected.into()) <= 1;
        assert!(near(p50, 1) && near(p99, 1000) && near(max, 1000), "{p50:?} {p99:?} {max:?}");
    }

    #[test]
    fn the_latest_start_is_kept() {
        let mut tally = tally(0);
        [3, 7, 2].into_iter().for_each(|late| tally.started(millis(late)));
        assert_eq!(tally.figures().latest_start, millis(7));
    }

    #[test]
    fn before_the_first_caller_every_figure_is_zero() {
        assert_eq!(Tally::default().figures(), Figures::default());
    }

    #[test]
    fn a_caller_waits_for_no_longer_than_the_timeout() {
        let time = VirtualTime::new();
        let side = Side::reservoir(Seed::new(1), Arc::new(time.clone())).unwrap();
        time.run(async {
            side.fill().await;
            let came = time.now();
            (0..=CONNECTIONS).for_each(|_| side.admit(came, 2 * ACQUIRE_TIMEOUT));
            time.sleep_until(came + ACQUIRE_TIMEOUT - millis(1)).await;
            let Figures { lent, waiting, failed, .. } = side.figures();
            assert_eq!((lent, waiting, failed), (CONNECTIONS, 1, 0));
            time.sleep_until(came + ACQUIRE_TIMEOUT).await;
            time.sleep_until(came + ACQUIRE_TIMEOUT + millis(1)).await;
            let Figures { lent, waiting, failed, .. } = side.figures();
            assert_eq!((lent, waiting, failed), (CONNECTIONS, 0, 1));
        });
    }

    #[test]
    fn each_setting_fits_into_half_of_80_columns() {
        for (name, value) in [settings(0), settings(1)].concat() {
            assert!(name.len() + 2 + value.len() <= 38, "{name}: {value}");
        }
    }
}
