//! The fleet's connect rate, as one process draws on it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use forebay::rt;
use forebay::{Instant, Limit, LimitError, LocalLimit, Pace, Permit, Rng, StoreFuture};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tracing::{info, warn};

use crate::bucket::PERMIT_LIFE;
use crate::ledger::Ledger;
use crate::settings::StoreOutagePolicy;
use crate::share::Share;
use crate::store::Store;
use crate::table::TableError;

mod guards;
mod source;
mod state;

use guards::{Asking, Turn, Waiting};
pub(crate) use source::{Source, Verdict};
use state::{BATCH, LINE, State};

/// What an instance was told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) per_second: u64,
    pub(crate) burst: u64,
    pub(crate) max_wait: Duration,
    pub(crate) policy: StoreOutagePolicy,
}

/// The fleet's rate. Clones share one budget.
#[derive(Clone, Debug)]
pub(crate) struct Rate(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    rules: Rules,
    store: Store,
    /// Slots bring a share of the rate.
    ledger: Option<Arc<Ledger>>,
    /// Governs while the table is away.
    local: LocalLimit,
    state: Mutex<State>,
    changed: Notify,
}

/// What a caller is told.
enum Told {
    /// A permit of the share.
    Share,
    /// A permit from then on.
    Turn(Instant),
    /// The local limiter decides.
    Local,
    Refused,
    /// Nothing before then, unless something changes.
    Wait(Instant),
}

impl Rate {
    pub(crate) fn new(
        rules: Rules,
        source: Source,
        store: Store,
        ledger: Option<Arc<Ledger>>,
        local: LocalLimit,
        rng: Rng,
    ) -> Self {
        let share = Share::new(rules.per_second, rules.burst);
        let state = Mutex::new(State::new(source, share, ledger.is_some(), rng));
        Self(Arc::new(Inner { rules, store, ledger, local, state, changed: Notify::new() }))
    }

    pub(crate) fn away_since(&self) -> Option<Instant> {
        self.0.state.lock().away.since()
    }

    async fn acquire(&self) -> Result<Permit, LimitError> {
        let (inner, began) = (&*self.0, self.0.store.runtime.now());
        let deadline = began + inner.rules.max_wait;
        let waiting = Waiting::begin(inner);
        let mut denied = false;
        loop {
            let mut changed = pin!(inner.changed.notified());
            changed.as_mut().enable();
            let now = inner.store.runtime.now();
            let until = match self.look(now, deadline) {
                Told::Share => {
                    inner.store.telemetry.waited(now.since(began));
                    return Ok(self.share_permit());
                }
                Told::Turn(at) => {
                    let turn = Turn { rate: self.clone(), at: Some(at) };
                    waiting.has_turn(true);
                    if self.share_comes_before(at).await {
                        // Dropped, the turn goes to whoever is next.
                        inner.store.telemetry.waited(inner.store.runtime.now().since(began));
                        return Ok(self.share_permit());
                    }
                    let now = inner.store.runtime.now();
                    // A turn that we slept through is lost.
                    if now <= at + PERMIT_LIFE {
                        inner.store.telemetry.waited(now.since(began));
                        return Ok(turn.permit());
                    }
                    waiting.has_turn(false);
                    now
                }
                Told::Local => {
                    drop(waiting);
                    return inner.local.acquire().await;
                }
                Told::Refused => {
                    let policy = format!("the table is away, and the policy is {:?}", inner.rules.policy);
                    return Err(LimitError::Unavailable(policy.to_lowercase().into()));
                }
                Told::Wait(until) => until,
            };
            if !std::mem::replace(&mut denied, true) {
                inner.store.telemetry.rate_denied.increment(1);
            }
            let now = inner.store.runtime.now();
            if now >= deadline {
                return Err(LimitError::Timeout { waited: now.since(began) });
            }
            rt::within(&*inner.store.runtime, until.min(deadline).since(now), changed).await;
        }
    }

    fn share_permit(&self) -> Permit {
        let this = self.clone();
        Permit::new(move || this.0.state.lock().share.give_back())
    }

    /// Waits for a turn, or for the share to have a permit if that is sooner. Whether it was.
    ///
    /// Cancel safe.
    async fn share_comes_before(&self, at: Instant) -> bool {
        let inner = &*self.0;
        loop {
            let now = inner.store.runtime.now();
            if now >= at {
                return false;
            }
            let (slots, limit) = inner.slots();
            let next = {
                let mut state = inner.state.lock();
                if !state.away.is_away() && state.share.take(now, slots, limit) {
                    return true;
                }
                state.share.next(now, slots, limit)
            };
            inner.store.runtime.sleep_until(at.min(next)).await;
        }
    }

    fn look(&self, now: Instant, deadline: Instant) -> Told {
        let (slots, limit) = self.0.slots();
        let spare = self.0.spare();
        let mut state = self.0.state.lock();
        let away = state.away.is_away();
        if !away && state.share.take(now, slots, limit) {
            return Told::Share;
        }
        if let Some(at) = state.next_turn(now, deadline) {
            return Told::Turn(at);
        }
        // Turns that are left come too late for this caller, and so would more of them.
        let too_late = !state.turns.is_empty();
        let share_will_do = !away && state.share_will_do(now, spare, slots, limit);
        if !state.asking && now >= state.ask_at && !share_will_do && !too_late {
            state.asking = true;
            self.0.store.runtime.spawn(Box::pin(Arc::clone(&self.0).reserve()));
        }
        match (away, self.0.rules.policy) {
            (true, StoreOutagePolicy::Local) => Told::Local,
            (true, _) => Told::Refused,
            (false, _) => {
                let ask_at =
                    if state.asking || share_will_do || too_late { Instant::NEVER } else { state.ask_at };
                Told::Wait(ask_at.min(state.share.next(now, slots, limit)))
            }
        }
    }

    fn give_back(&self, at: Instant) {
        let mut state = self.0.state.lock();
        let number = state.number();
        state.turns.insert((at, number));
        drop(state);
        self.0.changed.notify_waiters();
    }
}

impl Inner {
    /// Slots that a share goes by, and all there are.
    fn slots(&self) -> (u64, u64) {
        self.ledger.as_ref().map_or((0, 1), |ledger| ledger.safe_slots())
    }

    /// Slots that will be used soon, if a ledger tells.
    fn spare(&self) -> Option<u32> {
        self.ledger.as_ref().map(|ledger| ledger.spare())
    }

    /// Asks the table for permits for everyone who waits. It belongs to the limiter, not to a caller: what a caller who
    /// gave up was waiting for is there for the next.
    async fn reserve(self: Arc<Self>) {
        let _done = Asking(&self);
        // Callers who come together ask together.
        rt::yield_now().await;
        if let Some(ledger) = &self.ledger {
            let overdraft = ledger.overdraft(self.rules.burst);
            self.state.lock().source.hold_back(overdraft);
        }
        let wall = self.store.runtime.wall();
        // A look costs half of what a write does that meets what it did not expect.
        let unknown = self.state.lock().source.unknown(wall).map(str::to_owned);
        if let Some(key) = unknown {
            match self.store.get("look", &key).await {
                Ok(item) => {
                    let mut state = self.state.lock();
                    state.source.saw(item.as_ref());
                    let line = state.source.line(wall);
                    if line > LINE {
                        // A place in it can be asked for in a while: those who come together do not write together.
                        state.ask_at = self.store.runtime.now() + state.rng.up_to(line / 4);
                        return;
                    }
                }
                Err(error) => return self.failed(&mut self.state.lock(), &error),
            }
        }
        let (slots, limit) = self.slots();
        let spare = self.spare();
        let mut count = self.state.lock().batch(self.store.runtime.now(), wall, spare, slots, limit);
        loop {
            let (now, wall) = (self.store.runtime.now(), self.store.runtime.wall());
            let update = self.state.lock().source.ask(count, wall);
            let outcome = self.store.update("reserve", &update).await;
            let answered = self.store.runtime.now();
            let mut state = self.state.lock();
            let verdict = match outcome {
                Ok(item) => state.source.granted(count, wall, item.as_ref()),
                Err(TableError::ConditionFailed(item)) => state.source.refused(count, wall, item.as_deref()),
                Err(error) => return self.failed(&mut state, &error),
            };
            if let Some(away_for) = state.away.answered(answered) {
                info!(target: "forebay", ?away_for, "Distributed rate limiter: the table is back");
                self.store.telemetry.degraded.set(0.0);
            }
            match verdict {
                Verdict::Turns(turns) => {
                    // What lies in the past was saved up, and is good from now on.
                    let instant = |turn: Duration| answered.max(now + turn.saturating_sub(wall));
                    let last = turns.iter().map(|turn| instant(*turn)).max().unwrap_or(answered);
                    let wait = last.since(now);
                    state.last_wait = wait;
                    if wait > LINE {
                        // Whoever comes until then asks together with the others, when these have had their turns: a
                        // little ahead, and instances that began together drift apart.
                        let ahead = wait / 16 + state.rng.up_to(wait / 8);
                        state.ask_at = state.ask_at.max(last - ahead);
                    }
                    for turn in turns {
                        let number = state.number();
                        state.turns.insert((instant(turn), number));
                    }
                    return;
                }
                Verdict::Again(fewer) => count = fewer.clamp(1, BATCH),
                Verdict::Later(pause) => {
                    state.last_wait = state.source.line(wall);
                    state.ask_at = answered + pause / 2 + state.rng.up_to(pause / 2);
                    return;
                }
            }
        }
    }

    fn failed(&self, state: &mut State, error: &TableError) {
        let now = self.store.runtime.now();
        let was_away = state.away.is_away();
        if !error.is_an_answer() {
            state.away.failed(now);
        }
        let State { away, rng, .. } = state;
        state.ask_at = now + away.pause(rng);
        let remedy = error.remedy();
        warn!(target: "forebay", %error, remedy, "Distributed rate limiter: table call failed");
        if state.away.is_away() && !was_away {
            let policy = self.rules.policy;
            warn!(target: "forebay", ?policy, "Distributed rate limiter: the table is away");
            self.store.telemetry.degraded.set(1.0);
        }
    }
}

impl Limit for Rate {
    fn acquire(&self) -> StoreFuture<'_, Result<Permit, LimitError>> {
        Box::pin(self.acquire())
    }

    fn pace(&self) -> Pace {
        let (now, (slots, limit)) = (self.0.store.runtime.now(), self.0.slots());
        let mut state = self.0.state.lock();
        if state.away.is_away() {
            return match self.0.rules.policy {
                StoreOutagePolicy::Local => self.0.local.pace(),
                _ => Pace { per_second: 1.0, at_once: 0 },
            };
        }
        state.pace(now, slots, limit)
    }
}
