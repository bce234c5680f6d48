//! The other side: a reservoir of the same connections.

use std::time::Duration;

use forebay::rt::TokioRuntime;
use forebay::{Config, Lifetime, Reservoir, Seed, StartError};

use super::backend::Backend;
use super::caller::Caller;
use super::scenario::Scenario;
use super::settings::Settings;
use super::side::Lender;
use super::wording::seconds;

/// What it is called where figures are shown.
pub(super) const NAME: &str = "forebay";
const LIFE: Duration = Duration::from_millis(7_000);
const JITTER: Duration = Duration::from_millis(500);
const GUARD: Duration = Duration::from_millis(250);
/// Left of the server's burst: an open that this machine delays may meet the next one at the server's door.
const BURST_KEPT_BACK: u32 = 3;

/// A reservoir of sessions.
#[derive(Debug)]
pub(super) struct Reserved {
    reservoir: Reservoir<Backend>,
}

impl Reserved {
    pub(super) fn new(
        scenario: &Scenario,
        backend: Backend,
        seed: Seed,
        runtime: TokioRuntime,
    ) -> Result<Self, StartError> {
        let terms = &scenario.terms;
        let config = Config::default()
            .max_open(scenario.connections)
            .lifetime(Lifetime::new(LIFE).jitter(JITTER).guard_window(GUARD))
            .server_limit(terms.session_life)
            .rate(terms.opens_per_second.into(), terms.burst - BURST_KEPT_BACK)
            .startup_jitter(Duration::ZERO)
            .seed(seed.fork("reservoir"));
        let reservoir = Reservoir::builder(backend).config(config).runtime(runtime).start_empty()?;
        Ok(Self { reservoir })
    }

    /// The settings in words.
    pub(super) fn settings(scenario: &Scenario) -> Settings {
        let Scenario { terms, connections, patience, .. } = scenario;
        let (shortest, longest) = (seconds(LIFE - JITTER / 2), seconds(LIFE + JITTER / 2));
        Settings(vec![
            ("connections", format!("{connections}, opened up front")),
            ("life", format!("at most {shortest} to {longest}")),
            ("guard window", format!("{} ms", GUARD.as_millis())),
            (
                "opens",
                format!("{} a second, burst {}", terms.opens_per_second, terms.burst - BURST_KEPT_BACK),
            ),
            ("timeout", seconds(*patience)),
        ])
    }
}

impl Lender for Reserved {
    async fn fill(&self) {
        // Without an answer in a minute the demo goes on with what there is, and shows it.
        self.reservoir.filled(Duration::from_secs(60)).await;
    }

    async fn serve(&self, caller: Caller) {
        match self.reservoir.checkout().within(caller.patience()).await {
            Ok(mut lent) => {
                if caller.runs_on(&mut lent).await.is_err() {
                    lent.mark_bad();
                }
            }
            Err(_) => caller.gives_up(),
        }
    }

    fn held(&self) -> usize {
        self.reservoir.status().size()
    }
}
