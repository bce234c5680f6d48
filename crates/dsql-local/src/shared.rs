//! The state that all connections of a cluster share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use parking_lot::RwLock;

use crate::clock::{self, Clock};
use crate::config::{Config, TokenClock};
use crate::counters::{Counters, Tally};
use crate::denials::Denials;
use crate::error::Error;
use crate::faults::{Delay, Fault, Faults};
use crate::race::{self, First};
use crate::rules::RuleChecker;
use crate::runtime::Spawner;
use crate::sessions::Sessions;
use crate::tls::Identity;
use crate::token::{self, Action, TokenVerifier};

/// As the tokens of AWS's own tools.
const TOKEN_LIFE: Duration = Duration::from_secs(900);

pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) clock: Arc<Clock>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) faults: Faults,
    pub(crate) rules: RuleChecker,
    pub(crate) tally: Tally,
    pub(crate) denials: Denials,
    pub(crate) identity: Identity,
    pub(crate) verifier: RwLock<TokenVerifier>,
    pub(crate) tasks: Spawner,
    /// How many transactions have changed the schema.
    pub(crate) schema_changes: AtomicU64,
}

impl Shared {
    pub(crate) fn new(config: Config, clock: Arc<Clock>, tasks: Spawner) -> Result<Self, Error> {
        let verifier = TokenVerifier {
            host: config.endpoint.clone(),
            region: config.region.clone(),
            keys: config.credentials.clone(),
        };
        Ok(Self {
            identity: Identity::make(&config.endpoint)?,
            sessions: Arc::new(Sessions::new(config.limits, clock.now())),
            faults: Faults::new(config.seed),
            rules: RuleChecker::new(config.rules, config.allow_lateral),
            tally: Tally::default(),
            denials: Denials::new(config.notice),
            verifier: RwLock::new(verifier),
            schema_changes: AtomicU64::new(0),
            clock,
            tasks,
            config,
        })
    }

    pub(crate) fn token_date(&self) -> Duration {
        let date = match self.config.token_clock {
            TokenClock::Machine => clock::real_date(),
            TokenClock::Emulator => self.clock.date(),
        };
        let skew = Duration::from_secs(self.config.token_skew.unsigned_abs());
        if self.config.token_skew < 0 { date.saturating_sub(skew) } else { date.saturating_add(skew) }
    }

    /// A token for a role, signed with the first key.
    pub(crate) fn token(&self, role: &str) -> Option<String> {
        let TokenVerifier { host, region, keys } = &*self.verifier.read();
        let action = Action::for_role(role);
        Some(token::sign(keys.first()?, host, region, action, self.token_date(), TOKEN_LIFE))
    }

    /// Adds a fault to the list. A `sever` without a delay is not listed: it is over at once.
    pub(crate) fn inject(self: &Arc<Self>, fault: Fault) -> u64 {
        let now = self.clock.now();
        let Some((fraction, after)) = fault.sever() else {
            return self.faults.add(fault, now);
        };
        if after.is_zero() {
            self.sever(fraction);
            return 0;
        }
        let id = self.faults.add(fault, now);
        let (shared, due) = (self.clone(), now.saturating_add(after));
        self.tasks.spawn(async move {
            if shared.until_healed(shared.clock.sleep_until(due), || !shared.faults.has(id)).await
                && shared.faults.strike_delayed(id)
            {
                shared.sever(fraction);
            }
        });
        id
    }

    /// Waits for the delay of faults, or until these faults are removed.
    pub(crate) async fn delay(&self, delay: Delay) {
        if !delay.time.is_zero() {
            let healed = || delay.by.iter().all(|id| !self.faults.has(*id));
            self.until_healed(self.clock.sleep(delay.time), healed).await;
        }
    }

    /// Waits for `end`, or until `healed`. Returns whether it was `end`.
    async fn until_healed(&self, end: impl Future<Output = ()>, healed: impl Fn() -> bool) -> bool {
        let healed = async {
            loop {
                let changed = self.faults.changed();
                if healed() {
                    return;
                }
                changed.await;
            }
        };
        matches!(race::first(healed, end).await, First::Right(()))
    }

    pub(crate) fn sever(&self, fraction: f64) -> u64 {
        self.sessions.sever(|count| self.faults.choose(fraction, count))
    }

    pub(crate) fn counters(&self) -> Counters {
        let counters = Counters { denied: self.denials.read(), ..self.tally.read() };
        self.sessions.read(self.clock.now(), counters)
    }
}
