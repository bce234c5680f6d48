//! The one side: deadpool, set up as well as it can be.
//!
//! All connections are open before the first caller comes, and were opened one after another. Each is given a life
//! of its own, well below the session's end. A refused open is tried again, with a pause. What no setting of it can
//! do is to open a connection before a caller needs it.

use std::sync::Arc;
use std::time::Duration;

use deadpool::Runtime as PoolRuntime;
use deadpool::managed::{
    BuildError, Manager, Metrics, Object, Pool, QueueMode, RecycleError, RecycleResult, Timeouts,
};
use forebay::rt::Runtime;
use forebay::{Instant, Rng, Seed};
use parking_lot::Mutex;

use super::backend::{Backend, Refused, Session};
use super::caller::Caller;
use super::scenario::{Scenario, Span};
use super::settings::Settings;
use super::side::Lender;
use super::wording::seconds;

/// What it is called where figures are shown.
pub(super) const NAME: &str = "deadpool 0.13";
/// Lives spread over a fifth of their length. Half and a fifteenth were tried, and last in first out: no better.
const LIFE: Span = Span::millis(6_000, 7_500);
/// The pause after the first refusal. The next are twice as long each, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(40);
const LONGEST_PAUSE: Duration = Duration::from_millis(320);

/// A pool of sessions.
#[derive(Debug)]
pub(super) struct Pooled {
    pool: Pool<Opener>,
}

impl Pooled {
    pub(super) fn new(
        scenario: &Scenario,
        backend: Backend,
        seed: Seed,
        runtime: Arc<dyn Runtime>,
    ) -> Result<Self, BuildError> {
        let opener = Opener { backend, runtime, rng: Mutex::new(seed.fork("pool").rng()) };
        let pool = Pool::builder(opener)
            .max_size(scenario.connections)
            .queue_mode(QueueMode::Fifo)
            .wait_timeout(Some(scenario.patience))
            .create_timeout(Some(scenario.patience))
            .runtime(PoolRuntime::Tokio1)
            .build()?;
        Ok(Self { pool })
    }

    /// The settings in words.
    pub(super) fn settings(scenario: &Scenario) -> Settings {
        let (patience, connections) = (seconds(scenario.patience), scenario.connections);
        Settings(vec![
            ("connections", format!("{connections}, opened up front")),
            ("life", format!("{} to {}, drawn for each", seconds(LIFE.shortest), seconds(LIFE.longest))),
            ("timeouts", format!("wait {patience}, create {patience}")),
            (
                "refused open",
                format!("again in {} to {} ms", FIRST_PAUSE.as_millis(), LONGEST_PAUSE.as_millis()),
            ),
            ("queue", "first in, first out".to_owned()),
        ])
    }
}

impl Lender for Pooled {
    async fn fill(&self) {
        // One after another: so the server refuses none, and their lives are spread a little more.
        let mut all: Vec<Object<Opener>> = Vec::new();
        while all.len() < self.pool.status().max_size {
            match self.pool.timeout_get(&Timeouts::new()).await {
                Ok(connection) => all.push(connection),
                Err(_) => return,
            }
        }
    }

    async fn serve(&self, caller: Caller) {
        match caller.wait_for(self.pool.get()).await {
            Some(Ok(mut lent)) => {
                if caller.runs_on(&mut lent.session).await.is_err() {
                    drop(Object::take(lent));
                }
            }
            Some(Err(_)) | None => caller.gives_up(),
        }
    }

    fn held(&self) -> usize {
        self.pool.status().size
    }
}

/// Opens sessions for the pool.
#[derive(Debug)]
struct Opener {
    backend: Backend,
    runtime: Arc<dyn Runtime>,
    rng: Mutex<Rng>,
}

/// A session that is to be used until a certain time.
#[derive(Debug)]
struct Dated {
    session: Session,
    use_until: Instant,
}

impl Opener {
    /// Waits before the next attempt. Half of the pause is drawn, so that callers refused together do not come
    /// back together.
    async fn pause(&self, longest: Duration) {
        let half = longest / 2;
        let pause = half + self.rng.lock().up_to(half);
        self.runtime.sleep_until(self.runtime.now() + pause).await;
    }
}

impl Manager for Opener {
    type Type = Dated;
    type Error = Refused;

    async fn create(&self) -> Result<Dated, Refused> {
        let mut longest = FIRST_PAUSE;
        // The create timeout ends this.
        loop {
            match self.backend.open().await {
                Ok(session) => {
                    let life = LIFE.draw(&mut self.rng.lock());
                    return Ok(Dated { session, use_until: self.runtime.now() + life });
                }
                Err(Refused) => self.pause(longest).await,
            }
            longest = (2 * longest).min(LONGEST_PAUSE);
        }
    }

    async fn recycle(&self, dated: &mut Dated, _: &Metrics) -> RecycleResult<Refused> {
        if self.runtime.now() < dated.use_until { Ok(()) } else { Err(RecycleError::message("too old")) }
    }
}
