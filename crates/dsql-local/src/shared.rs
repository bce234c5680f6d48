//! What every connection of a cluster shares.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;

use crate::clock::{self, Clock};
use crate::config::{Config, TokenClock};
use crate::counters::{Counters, Tally};
use crate::error::Error;
use crate::faults::{Fault, Faults};
use crate::sessions::Sessions;
use crate::tasks::Tasks;
use crate::tls::Identity;
use crate::token::Gatekeeper;

pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) clock: Arc<Clock>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) faults: Faults,
    pub(crate) tally: Tally,
    pub(crate) identity: Identity,
    pub(crate) gate: RwLock<Gatekeeper>,
    pub(crate) tasks: Tasks,
}

impl Shared {
    pub(crate) fn new(config: Config, clock: Arc<Clock>, tasks: Tasks) -> Result<Self, Error> {
        let gate = Gatekeeper {
            host: config.endpoint.clone(),
            region: config.region.clone(),
            keys: config.credentials.clone(),
        };
        Ok(Self {
            identity: Identity::make(&config.endpoint)?,
            sessions: Arc::new(Sessions::new(config.limits, clock.now())),
            faults: Faults::new(config.seed),
            tally: Tally::default(),
            gate: RwLock::new(gate),
            clock,
            tasks,
            config,
        })
    }

    /// The date by which tokens are judged.
    pub(crate) fn token_date(&self) -> Duration {
        let date = match self.config.token_clock {
            TokenClock::Machine => clock::real_date(),
            TokenClock::Emulator => self.clock.date(),
        };
        let skew = Duration::from_secs(self.config.token_skew.unsigned_abs());
        if self.config.token_skew < 0 { date.saturating_sub(skew) } else { date.saturating_add(skew) }
    }

    /// Adds a fault to the list; one that severs sockets is not listed but happens, now or later.
    pub(crate) fn inject(self: &Arc<Self>, fault: Fault) -> u64 {
        let Some((fraction, after)) = fault.sever() else {
            return self.faults.add(fault, self.clock.now());
        };
        if after.is_zero() {
            self.sever(fraction);
        } else {
            let shared = self.clone();
            let due = self.clock.now().saturating_add(after);
            self.tasks.spawn(async move {
                shared.clock.sleep_until(due).await;
                shared.sever(fraction);
            });
        }
        0
    }

    pub(crate) fn sever(&self, fraction: f64) -> u64 {
        self.sessions.sever(|count| self.faults.choose(fraction, count))
    }

    pub(crate) fn counters(&self) -> Counters {
        self.sessions.read(self.clock.now(), self.tally.read())
    }
}
