//! The fleet's connect rate, as one process uses it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use forebay::rt;
use forebay::{Instant, Limit, LimitError, Pace, Permit, StoreFuture};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tracing::{info, warn};

use crate::ledger::Ledger;
use crate::settings::StoreOutagePolicy;
use crate::store::Store;
use crate::table::TableError;

mod allowance;
mod guards;
mod reserved;
mod source;
mod state;

pub(crate) use allowance::Allowance;
use allowance::Origin;
use guards::{Reserving, Waiting};
pub(crate) use reserved::Period;
use reserved::{Moment, ReservedPermit};
pub(crate) use source::{ReserveOutcome, Source};
pub(crate) use state::State;
use state::{MAX_BATCH, QUEUE};

/// The settings of one instance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Params {
    pub(crate) burst: u64,
    pub(crate) max_wait: Duration,
    pub(crate) policy: StoreOutagePolicy,
    /// Permits per second while the table is unavailable.
    pub(crate) local_rate: f64,
}

/// The fleet's rate. Clones share one budget.
#[derive(Clone, Debug)]
pub(crate) struct Rate(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    params: Params,
    store: Store,
    /// The slots of a ledger give a share of the rate.
    ledger: Option<Arc<Ledger>>,
    state: Mutex<State>,
    changed: Notify,
}

/// The reply to a caller that wants a permit.
enum AcquireStep {
    Granted(Origin),
    Refused,
    /// No permit before then, unless something changes.
    Wait(Instant),
}

impl Rate {
    pub(crate) fn new(params: Params, store: Store, ledger: Option<Arc<Ledger>>, state: State) -> Self {
        Self(Arc::new(Inner { params, store, ledger, state: Mutex::new(state), changed: Notify::new() }))
    }

    pub(crate) fn outage_since(&self) -> Option<Instant> {
        self.0.state.lock().outage.since()
    }

    async fn acquire(&self) -> Result<Permit, LimitError> {
        let (inner, began) = (&*self.0, self.0.store.runtime.now());
        let deadline = began + inner.params.max_wait;
        let mut waiting = Waiting::begin(self);
        let mut denied = false;
        loop {
            let mut changed = pin!(inner.changed.notified());
            changed.as_mut().enable();
            let now = inner.store.runtime.now();
            let until = match self.step(now, deadline, &mut waiting) {
                AcquireStep::Granted(origin) => {
                    inner.store.telemetry.waited(now.since(began));
                    let this = self.clone();
                    return Ok(Permit::new(move || this.give_back(origin, now)));
                }
                AcquireStep::Refused => {
                    let policy =
                        format!("the table is unavailable, and the policy is {:?}", inner.params.policy);
                    return Err(LimitError::Unavailable(policy.to_lowercase().into()));
                }
                AcquireStep::Wait(until) => until,
            };
            if !std::mem::replace(&mut denied, true) {
                inner.store.telemetry.rate_denied.increment(1);
            }
            if now >= deadline {
                return Err(LimitError::Timeout { waited: now.since(began) });
            }
            rt::within(&*inner.store.runtime, until.min(deadline).since(now), changed).await;
        }
    }

    /// Grants a permit, or finds out when to try again. Whether there is one is decided here, at `now`, after any wait: a
    /// caller that comes late gets no more than one that comes in time.
    fn step(&self, now: Instant, deadline: Instant, waiting: &mut Waiting<'_>) -> AcquireStep {
        let (slots, limit) = self.0.slots();
        let spare = self.0.spare();
        let state = &mut *self.0.state.lock();
        let outage = state.outage.is_active();
        if !outage && state.allowance.take_share(now, slots, limit) {
            return AcquireStep::Granted(Origin::Share);
        }
        let mut next = if outage { Instant::NEVER } else { state.allowance.next_of_share(now, slots, limit) };
        let reserved = waiting.reserve(state, now, deadline);
        if let Some(permit) = reserved {
            if permit.from <= now && state.allowance.take(now) {
                waiting.take(state);
                return AcquireStep::Granted(Origin::Reserved(permit));
            }
            next = next.min(permit.from.max(state.allowance.next(now)));
        }
        if outage && self.0.params.policy == StoreOutagePolicy::Local {
            if state.allowance.take_local(now) {
                return AcquireStep::Granted(Origin::Local);
            }
            next = next.min(state.allowance.next_local(now));
        }
        if reserved.is_none() {
            // The remaining reservations are too late for this caller, and more would be, too.
            let too_late = !state.reserved.is_empty();
            let share_suffices = !outage && state.share_suffices(now, spare, slots, limit);
            if !state.reserving && now >= state.reserve_at && !share_suffices && !too_late {
                state.reserving = true;
                self.0.store.runtime.spawn(Box::pin(Arc::clone(&self.0).reserve()));
            }
            if outage && self.0.params.policy != StoreOutagePolicy::Local {
                return AcquireStep::Refused;
            }
            if !state.reserving && !share_suffices && !too_late {
                next = next.min(state.reserve_at);
            }
        }
        AcquireStep::Wait(next)
    }

    /// Gives back a permit that was granted at `taken`.
    fn give_back(&self, origin: Origin, taken: Instant) {
        let (now, slots) = (self.0.store.runtime.now(), self.0.slots());
        self.0.state.lock().allowance.give_back(origin, taken, now, slots);
        match origin {
            Origin::Reserved(permit) => self.give_back_reserved(permit),
            Origin::Share | Origin::Local => {}
        }
    }

    fn give_back_reserved(&self, permit: ReservedPermit) {
        self.0.state.lock().reserved.give_back(permit);
        self.0.changed.notify_waiters();
    }
}

impl Inner {
    /// The slots that the share is computed from, and all slots.
    fn slots(&self) -> (u64, u64) {
        self.ledger.as_ref().map_or((0, 1), |ledger| ledger.safe_slots())
    }

    /// Slots that will be used soon, if there is a ledger.
    fn spare(&self) -> Option<u32> {
        self.ledger.as_ref().map(|ledger| ledger.spare())
    }

    /// Reserves permits for all waiting callers. The task belongs to the limiter, not to a caller: if a caller gives up,
    /// the next one gets its permit.
    async fn reserve(self: Arc<Self>) {
        let _done = Reserving(&self);
        // Callers that arrive together share one request.
        rt::yield_now().await;
        if let Some(ledger) = &self.ledger {
            let overdraft = ledger.overdraft(self.params.burst);
            self.state.lock().source.hold_back(overdraft);
        }
        let wall = self.store.runtime.wall();
        // A read costs half as much as a refused write.
        let unknown = self.state.lock().source.unknown(wall).map(str::to_owned);
        if let Some(key) = unknown {
            match self.store.get("look", &key).await {
                Ok(item) => {
                    let mut state = self.state.lock();
                    state.source.saw(item.as_ref());
                    let queue = state.source.queue(wall);
                    if queue > QUEUE {
                        // There is time. A random delay keeps instances that start together from writing together.
                        state.reserve_at = self.store.runtime.now() + state.rng.up_to(queue / 4);
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
            let now = self.store.runtime.now();
            let lead = self.state.lock().request_times.lead();
            let sent = Moment::read(&*self.store.runtime).later(lead);
            let wall = sent.wall;
            let update = self.state.lock().source.reserve(count, wall);
            let outcome = self.store.update("reserve", &update).await;
            let answered = self.store.runtime.now();
            let mut state = self.state.lock();
            state.request_times.took(answered.since(now));
            let outcome = match outcome {
                Ok(item) => state.source.granted(count, wall, item.as_ref()),
                Err(TableError::ConditionFailed(item)) => state.source.refused(count, wall, item.as_deref()),
                Err(error) => return self.failed(&mut state, &error),
            };
            if let Some(outage) = state.outage.answered(answered) {
                info!(target: "forebay", ?outage, "Distributed rate limiter: the table is available again");
                self.store.telemetry.degraded.set(false);
            }
            match outcome {
                ReserveOutcome::Reserved(periods) => {
                    let last =
                        state.reserved.reserve(sent, periods).map_or(answered, |last| last.max(answered));
                    let wait = last.since(now);
                    state.last_wait = wait;
                    if wait > QUEUE {
                        // The next request is due a little before the last of these permits. The random part lets
                        // instances that started together drift apart.
                        let ahead = wait / 16 + state.rng.up_to(wait / 8);
                        state.reserve_at = state.reserve_at.max(last - ahead);
                    }
                    return;
                }
                ReserveOutcome::Retry(fewer) => count = fewer.clamp(1, MAX_BATCH),
                ReserveOutcome::RetryAfter { pause, spread } => {
                    state.last_wait = state.source.queue(wall);
                    state.reserve_at = answered + pause + state.rng.up_to(spread);
                    return;
                }
            }
        }
    }

    fn failed(&self, state: &mut State, error: &TableError) {
        let now = self.store.runtime.now();
        let was_out = state.outage.is_active();
        if !error.is_an_answer() {
            state.outage.failed(now);
        }
        let State { outage, rng, .. } = state;
        state.reserve_at = now + outage.pause(rng);
        let remedy = error.remedy();
        warn!(target: "forebay", %error, remedy, "Distributed rate limiter: table call failed");
        if state.outage.is_active() && !was_out {
            let policy = self.params.policy;
            warn!(target: "forebay", ?policy, "Distributed rate limiter: the table is unavailable");
            self.store.telemetry.degraded.set(true);
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
        if state.outage.is_active() {
            return match self.0.params.policy {
                StoreOutagePolicy::Local => {
                    let ready = state.allowance.ready_local(now);
                    let at_once = u32::try_from(ready).unwrap_or(u32::MAX);
                    Pace { per_second: self.0.params.local_rate, at_once }
                }
                _ => Pace { per_second: 1.0, at_once: 0 },
            };
        }
        state.pace(now, slots, limit)
    }

    fn name(&self) -> &'static str {
        let state = self.0.state.lock();
        match (state.outage.is_active(), self.0.params.policy) {
            (false, _) => state.source.name(),
            (true, StoreOutagePolicy::Local) => {
                "the local rate limit, while the fleet's table is unavailable"
            }
            (true, _) => "the outage policy, while the fleet's table is unavailable",
        }
    }
}
