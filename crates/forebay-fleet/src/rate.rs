//! The fleet's connect rate, as one process uses it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use forebay::rt;
use forebay::{Instant, Limit, LimitError, LocalLimit, Pace, Permit, StoreFuture};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tracing::{info, warn};

use crate::bucket::PERMIT_LIFE;
use crate::ledger::Ledger;
use crate::settings::StoreOutagePolicy;
use crate::store::Store;
use crate::table::TableError;

mod guards;
mod source;
mod state;

use guards::{Reservation, Reserving, Waiting};
pub(crate) use source::{ReserveOutcome, Source};
pub(crate) use state::State;
use state::{MAX_BATCH, QUEUE};

/// The settings of one instance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Params {
    pub(crate) burst: u64,
    pub(crate) max_wait: Duration,
    pub(crate) policy: StoreOutagePolicy,
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
    /// Applies while the table is unavailable.
    local: LocalLimit,
    state: Mutex<State>,
    changed: Notify,
}

/// The reply to a caller that wants a permit.
enum AcquireStep {
    /// A permit of the share.
    Share,
    /// A reserved permit, valid from then on.
    Reserved(Instant),
    /// Use the local limiter.
    Local,
    Refused,
    /// No permit before then, unless something changes.
    Wait(Instant),
}

impl Rate {
    pub(crate) fn new(
        params: Params,
        store: Store,
        ledger: Option<Arc<Ledger>>,
        local: LocalLimit,
        state: State,
    ) -> Self {
        Self(Arc::new(Inner {
            params,
            store,
            ledger,
            local,
            state: Mutex::new(state),
            changed: Notify::new(),
        }))
    }

    pub(crate) fn outage_since(&self) -> Option<Instant> {
        self.0.state.lock().outage.since()
    }

    async fn acquire(&self) -> Result<Permit, LimitError> {
        let (inner, began) = (&*self.0, self.0.store.runtime.now());
        let deadline = began + inner.params.max_wait;
        let waiting = Waiting::begin(inner);
        let mut denied = false;
        loop {
            let mut changed = pin!(inner.changed.notified());
            changed.as_mut().enable();
            let now = inner.store.runtime.now();
            let until = match self.step(now, deadline) {
                AcquireStep::Share => {
                    inner.store.telemetry.waited(now.since(began));
                    return Ok(self.share_permit());
                }
                AcquireStep::Reserved(at) => {
                    let reservation = Reservation { rate: self.clone(), at: Some(at) };
                    waiting.set_counted(false);
                    if self.share_comes_before(at).await {
                        // The reservation is dropped here, and the next caller gets it.
                        inner.store.telemetry.waited(inner.store.runtime.now().since(began));
                        return Ok(self.share_permit());
                    }
                    let now = inner.store.runtime.now();
                    // The permit may have lapsed during the sleep.
                    if now <= at + PERMIT_LIFE {
                        inner.store.telemetry.waited(now.since(began));
                        return Ok(reservation.permit());
                    }
                    waiting.set_counted(true);
                    now
                }
                AcquireStep::Local => {
                    drop(waiting);
                    return inner.local.acquire().await;
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

    /// Waits until `at`, or until the share has a permit. Returns whether the share had one first.
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
                if !state.outage.is_active() && state.share.take(now, slots, limit) {
                    return true;
                }
                state.share.next(now, slots, limit)
            };
            inner.store.runtime.sleep_until(at.min(next)).await;
        }
    }

    fn step(&self, now: Instant, deadline: Instant) -> AcquireStep {
        let (slots, limit) = self.0.slots();
        let spare = self.0.spare();
        let mut state = self.0.state.lock();
        let outage = state.outage.is_active();
        if !outage && state.share.take(now, slots, limit) {
            return AcquireStep::Share;
        }
        if let Some(at) = state.take_reserved(now, deadline) {
            return AcquireStep::Reserved(at);
        }
        // The remaining reservations are too late for this caller, and more would be, too.
        let too_late = !state.reserved.is_empty();
        let share_suffices = !outage && state.share_suffices(now, spare, slots, limit);
        if !state.reserving && now >= state.reserve_at && !share_suffices && !too_late {
            state.reserving = true;
            self.0.store.runtime.spawn(Box::pin(Arc::clone(&self.0).reserve()));
        }
        match (outage, self.0.params.policy) {
            (true, StoreOutagePolicy::Local) => AcquireStep::Local,
            (true, _) => AcquireStep::Refused,
            (false, _) => {
                let reserve_at = if state.reserving || share_suffices || too_late {
                    Instant::NEVER
                } else {
                    state.reserve_at
                };
                AcquireStep::Wait(reserve_at.min(state.share.next(now, slots, limit)))
            }
        }
    }

    fn give_back(&self, at: Instant) {
        let mut state = self.0.state.lock();
        state.add_reserved(at);
        drop(state);
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
            let (now, wall) = (self.store.runtime.now(), self.store.runtime.wall());
            let update = self.state.lock().source.reserve(count, wall);
            let outcome = self.store.update("reserve", &update).await;
            let answered = self.store.runtime.now();
            let mut state = self.state.lock();
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
                ReserveOutcome::Reserved(times) => {
                    // Times in the past come from the burst: those permits are valid now.
                    let instant = |time: Duration| answered.max(now + time.saturating_sub(wall));
                    let last = times.iter().map(|time| instant(*time)).max().unwrap_or(answered);
                    let wait = last.since(now);
                    state.last_wait = wait;
                    if wait > QUEUE {
                        // The next request is due a little before the last of these permits. The random part lets
                        // instances that started together drift apart.
                        let ahead = wait / 16 + state.rng.up_to(wait / 8);
                        state.reserve_at = state.reserve_at.max(last - ahead);
                    }
                    times.into_iter().for_each(|time| state.add_reserved(instant(time)));
                    return;
                }
                ReserveOutcome::Retry(fewer) => count = fewer.clamp(1, MAX_BATCH),
                ReserveOutcome::RetryAfter(pause) => {
                    state.last_wait = state.source.queue(wall);
                    state.reserve_at = answered + pause / 2 + state.rng.up_to(pause / 2);
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
                StoreOutagePolicy::Local => self.0.local.pace(),
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
