//! Leases by the specification's scheme: one counter, and an item for each connection.
//!
//! For fleets that run it already, also beside peers of another make. What it cannot mend is that a crash leaves the
//! counter too high: [`reconcile`](crate::operator::reconcile) does that. Everything else is as safe as it can be: an item
//! is renewed while its connection lives, a retry counts once, and a conflict is not taken for the limit.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use forebay::rt;
use forebay::{AwayPolicy, BoxError, Draws, Instant, LeaseError, LeaseId, Leases, StoreFuture};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tracing::warn;

use crate::away::{self, Away};
use crate::item::Item;
use crate::metrics::number;
use crate::store::Store;
use crate::table::{Cancelled, TableError, Write};

mod claim;
pub(crate) mod items;

use claim::{Claim, Refusal, refusal};
pub(crate) use items::{is_in_use, key};

/// What an instance was told.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) endpoint: String,
    pub(crate) service: String,
    pub(crate) limit: u64,
    pub(crate) beat: Duration,
    /// Others take a counter that was not written for so long for one that is not used.
    pub(crate) lease: Duration,
    pub(crate) max_open: u64,
    pub(crate) policy: AwayPolicy,
}

/// Renewed twice within the life of an item.
const RENEW: Duration = Duration::from_secs(80);
/// The first pause after a conflict, and the longest.
const CONFLICT: (Duration, Duration) = (Duration::from_millis(25), Duration::from_secs(1));
/// Tries of one acquire.
const TRIES: u32 = 8;
/// How long a token keeps a retry from counting twice; DynamoDB promises ten minutes.
const TOKEN_LIFE: Duration = Duration::from_secs(9 * 60);
/// After this, a request that was lost has surely not been made late.
const LATE: Duration = Duration::from_secs(30);

/// One process's leases, and the task that keeps them.
#[derive(Debug)]
pub(crate) struct Counter {
    rules: Rules,
    store: Store,
    state: Mutex<State>,
    nudged: Notify,
    left: watch::Sender<bool>,
}

#[derive(Debug)]
struct State {
    held: BTreeMap<String, Held>,
    /// Acquires whose outcome nobody waits for, and when to give them back.
    doubtful: BTreeMap<String, Instant>,
    away: Away,
    paused_until: Instant,
    active: u64,
    draws: Draws,
    leaving: bool,
}

/// One lease.
#[derive(Debug)]
struct Held {
    /// How it is to be counted in the table: it was taken while that was away.
    uncounted: Option<Arc<[Write]>>,
    renew_at: Instant,
    /// The release that was begun, the same at each try, and when.
    release: Option<(Arc<[Write]>, Instant)>,
}

impl Counter {
    /// Starts the task that keeps it; it ends when [`leave`](Self::leave) is done.
    pub(crate) fn start(rules: Rules, store: Store, draws: Draws) -> Arc<Self> {
        let state = State {
            held: BTreeMap::new(),
            doubtful: BTreeMap::new(),
            away: Away::default(),
            paused_until: Instant::ZERO,
            active: 0,
            draws,
            leaving: false,
        };
        let left = watch::Sender::new(false);
        let counter = Arc::new(Self { rules, store, state: Mutex::new(state), nudged: Notify::new(), left });
        counter.store.telemetry.limit.set(number(counter.rules.limit));
        counter.store.runtime.spawn(Box::pin(Arc::clone(&counter).keep()));
        counter
    }

    fn now(&self) -> Instant {
        self.store.runtime.now()
    }

    /// Leases held, the fleet's count as last seen, and since when the table is away.
    pub(crate) fn holding(&self) -> (u64, u64, Option<Instant>) {
        let state = self.state.lock();
        (state.held.len() as u64, state.active, state.away.since())
    }

    /// Gives no more leases.
    pub(crate) fn begin_to_leave(&self) {
        self.state.lock().leaving = true;
        self.nudged.notify_one();
    }

    /// Leaves, and waits for it as long as `patience`: until every lease is back. Whether all are.
    ///
    /// Cancel safe: it goes on in the background.
    pub(crate) async fn leave(&self, patience: Duration) -> bool {
        self.begin_to_leave();
        let mut left = self.left.subscribe();
        rt::within(&*self.store.runtime, patience, left.wait_for(|left| *left)).await.is_some()
    }

    fn heard<T>(&self, outcome: &Result<T, TableError>) {
        let now = self.now();
        let mut state = self.state.lock();
        match outcome.as_ref().err().filter(|error| !error.is_an_answer()) {
            None => {
                state.away.answered(now);
            }
            Some(error) => {
                state.away.failed(now);
                let State { away, draws, .. } = &mut *state;
                state.paused_until = now + away.pause(draws);
                let remedy = error.remedy();
                warn!(target: "forebay", %error, remedy, "Distributed connection lease: table call failed");
            }
        }
        self.store.telemetry.degraded.set(if state.away.is_away() { 1.0 } else { 0.0 });
        self.store.telemetry.held.set(number(state.held.len() as u64));
    }

    async fn transact(
        &self,
        operation: &'static str,
        writes: &[Write],
        token: &str,
    ) -> Result<(), TableError> {
        let outcome = self.store.transact(operation, writes, token).await;
        if matches!(&outcome, Err(TableError::Cancelled(reasons)) if reasons.contains(&Cancelled::Conflict)) {
            self.store.telemetry.conflicts.increment(1);
        }
        self.heard(&outcome);
        outcome
    }

    async fn acquire(&self) -> Result<LeaseId, LeaseError> {
        let (id, token) = {
            let mut state = self.state.lock();
            if state.leaving {
                return Err(LeaseError::Unavailable("this process is leaving the fleet".into()));
            }
            if state.away.is_away() && self.now() < state.paused_until {
                return self.while_away(&mut state, "the table is away".into());
            }
            let draws = &mut state.draws;
            (format!("{:016x}{:016x}", draws.bits(), draws.bits()), format!("{:016x}", draws.bits()))
        };
        let wall = self.store.runtime.wall();
        let writes =
            items::acquire(&self.rules.endpoint, &id, &self.rules.service, Some(self.rules.limit), wall);
        let mut claim = Claim { counter: self, id: Some(id) };
        let (mut tries, mut unknown) = (0, false);
        loop {
            tries += 1;
            let error = match self.transact("acquire", &writes, &token).await {
                Ok(()) => return Ok(claim.keep()),
                Err(error) => error,
            };
            match refusal(&error) {
                Some(Refusal::Made) => return Ok(claim.keep()),
                Some(Refusal::Limit) => {
                    let mut state = self.state.lock();
                    state.active = self.rules.limit;
                    // A request that was lost may still arrive when there is room.
                    claim.doubt(&mut state, unknown);
                    return Err(LeaseError::Limit { limit: self.rules.limit });
                }
                None => {}
            }
            unknown |= error.may_have_been_applied();
            let pause = {
                let mut state = self.state.lock();
                if state.away.is_away() || tries >= TRIES {
                    claim.doubt(&mut state, unknown);
                    return self.while_away(&mut state, error.into());
                }
                away::pause(tries, CONFLICT.0, CONFLICT.1, &mut state.draws)
            };
            self.store.runtime.sleep_until(self.now() + pause).await;
        }
    }

    /// What the policy says to one more connection while the table is away.
    fn while_away(&self, state: &mut State, error: BoxError) -> Result<LeaseId, LeaseError> {
        let on_our_own = state.away.is_away() && self.rules.policy == AwayPolicy::Local;
        if !on_our_own || state.held.len() as u64 >= self.rules.max_open {
            return Err(LeaseError::Unavailable(error));
        }
        let id = format!("{:016x}{:016x}", state.draws.bits(), state.draws.bits());
        let (endpoint, service) = (&self.rules.endpoint, &self.rules.service);
        let writes = items::acquire(endpoint, &id, service, None, self.store.runtime.wall()).into();
        state.held.insert(id.clone(), Held { uncounted: Some(writes), renew_at: self.now(), release: None });
        self.nudged.notify_one();
        Ok(LeaseId::new(id))
    }

    async fn release(&self, id: &str) -> Result<(), BoxError> {
        let (writes, began) = {
            let mut state = self.state.lock();
            match state.held.get_mut(id) {
                None => return Ok(()),
                // If it is just being counted, that is undone afterwards.
                Some(held) if held.uncounted.is_some() => {
                    state.held.remove(id);
                    return Ok(());
                }
                Some(held) => {
                    let now = self.now();
                    let fresh =
                        || (items::release(&self.rules.endpoint, id, self.store.runtime.wall()).into(), now);
                    let (writes, began) = held.release.get_or_insert_with(fresh);
                    (Arc::clone(writes), *began)
                }
            }
        };
        // A token of its own: the one of the acquire has made other changes.
        let token = format!("r{}", &id[..id.len().min(30)]);
        match self.transact("release", &writes, &token).await {
            Ok(()) => {}
            Err(TableError::Cancelled(reasons)) if !reasons.contains(&Cancelled::Conflict) => {
                self.release_the_rest(id, &writes[1..], &reasons, began).await?;
            }
            Err(error) => return Err(error.into()),
        }
        self.state.lock().held.remove(id);
        self.nudged.notify_one();
        Ok(())
    }

    /// One of the two items was not as it should be: the other is brought in step.
    async fn release_the_rest(
        &self,
        id: &str,
        uncount: &[Write],
        reasons: &[Cancelled],
        began: Instant,
    ) -> Result<(), BoxError> {
        let failed = |place: usize| matches!(reasons.get(place), Some(Cancelled::ConditionFailed(_)));
        match (failed(0), failed(1)) {
            // The counter was reset; the item alone goes.
            (false, true) => {
                let key = items::lease_key(&self.rules.endpoint, id);
                let outcome =
                    self.store.delete("release", &crate::table::Delete { key, when: Vec::new() }).await;
                self.heard(&outcome);
                outcome?;
            }
            // The item has expired while the table was away. An old release may have been made, too: then it is better to
            // count one too many than one too few.
            (true, false) if self.now().since(began) < TOKEN_LIFE => {
                self.transact("release", uncount, &format!("u{}", &id[..id.len().min(30)])).await?;
            }
            _ => warn!(target: "forebay", lease = id, "Distributed connection lease: already released"),
        }
        Ok(())
    }

    /// Renews, counts what was taken while the table was away, gives back what nobody waited for, and looks at the count.
    async fn keep(self: Arc<Self>) {
        let mut look_at = self.now();
        loop {
            let now = self.now();
            let (due, paused_until, done) = {
                let state = self.state.lock();
                let due = state.held.iter().min_by_key(|(_, held)| held.renew_at);
                let done = state.leaving && state.held.is_empty() && state.doubtful.is_empty();
                (
                    due.map(|(id, held)| (id.clone(), held.renew_at, held.uncounted.clone())),
                    state.paused_until,
                    done,
                )
            };
            if done {
                self.left.send_replace(true);
                return;
            }
            let doubtful = self.state.lock().doubtful.iter().map(|(id, at)| (*at, id.clone())).min();
            if now < paused_until {
                self.rest(paused_until).await;
            } else if let Some((id, _, uncounted)) = due.clone().filter(|(_, at, _)| *at <= now) {
                self.renew(&id, uncounted).await;
            } else if let Some((_, id)) = doubtful.clone().filter(|(at, _)| *at <= now) {
                self.settle(&id).await;
            } else if look_at <= now {
                look_at = now + self.rules.beat;
                self.look().await;
            } else {
                let due = due.map_or(Instant::NEVER, |(_, at, _)| at);
                let doubtful = doubtful.map_or(Instant::NEVER, |(at, _)| at);
                self.rest(due.min(doubtful).min(look_at)).await;
            }
        }
    }

    async fn rest(&self, until: Instant) {
        let nudged = pin!(self.nudged.notified());
        rt::within(&*self.store.runtime, until.since(self.now()), nudged).await;
    }

    async fn renew(&self, id: &str, uncounted: Option<Arc<[Write]>>) {
        let (endpoint, service, wall) =
            (&*self.rules.endpoint, &*self.rules.service, self.store.runtime.wall());
        let counting = uncounted.is_some();
        let made = if let Some(writes) = uncounted {
            let outcome = self.transact("acquire", &writes, &format!("l{}", &id[..30])).await;
            outcome.as_ref().is_ok()
                || outcome.is_err_and(|error| matches!(refusal(&error), Some(Refusal::Made)))
        } else {
            let mut outcome = self.store.update("renew", &items::renew(endpoint, id, wall)).await;
            if matches!(outcome, Err(TableError::ConditionFailed(None))) && self.is_held(id) {
                outcome = self.store.update("renew", &items::restore(endpoint, id, service, wall)).await;
            }
            self.heard(&outcome);
            outcome.is_ok()
        };
        let now = self.now();
        let mut state = self.state.lock();
        match state.held.get_mut(id) {
            Some(held) => {
                held.renew_at = now + if made { RENEW } else { CONFLICT.1 };
                if made && held.uncounted.take().is_some() {
                    // Its item shows when it was taken, and seems to have ended if that was long ago.
                    held.renew_at = now;
                }
            }
            // Released while it was being counted.
            None if counting => {
                state.doubtful.insert(id.to_owned(), now + LATE);
            }
            None => {}
        }
        self.store.telemetry.beats.increment(u64::from(made));
    }

    fn is_held(&self, id: &str) -> bool {
        self.state.lock().held.get(id).is_some_and(|held| held.release.is_none())
    }

    /// Gives back a lease that may never have been taken.
    async fn settle(&self, id: &str) {
        let writes = items::release(&self.rules.endpoint, id, self.store.runtime.wall());
        // A token for each try: that there is an item is what keeps this from being done twice.
        let token = format!("d{:016x}", self.state.lock().draws.bits());
        let outcome = self.transact("release", &writes, &token).await;
        let mut state = self.state.lock();
        match outcome {
            Err(TableError::Cancelled(reasons)) if !reasons.contains(&Cancelled::Conflict) => {
                state.doubtful.remove(id);
            }
            Ok(()) => {
                state.doubtful.remove(id);
            }
            Err(_) => {
                let again = self.now() + CONFLICT.1;
                state.doubtful.insert(id.to_owned(), again);
            }
        }
    }

    async fn look(&self) {
        let outcome = self.store.get("look", &key(&self.rules.endpoint)).await;
        self.heard(&outcome);
        let Ok(item) = outcome else { return };
        let active = item.as_ref().and_then(|item| item.number("active")).unwrap_or(0);
        let active = u64::try_from(active).unwrap_or(0);
        self.state.lock().active = active;
        self.store.telemetry.active.set(number(active));
        if let Some(item) = item {
            self.touch(&item).await;
        }
    }

    /// A counter of leases that are held and neither taken nor given back must not look like one that nobody uses. One of those who
    /// look says so, at least each half lease.
    async fn touch(&self, counter: &Item) {
        let wall = self.store.runtime.wall();
        let quiet = (self.rules.lease / 2).saturating_sub(self.rules.beat);
        let holds = self.state.lock().held.values().any(|held| held.uncounted.is_none());
        if holds && !items::is_in_use(counter, wall, quiet) {
            let outcome =
                self.store.update("touch", &items::touch(&self.rules.endpoint, counter, wall)).await;
            self.heard(&outcome);
        }
    }
}

/// The face of a [`Counter`] for reservoirs. When the last is dropped, no more leases are given.
#[derive(Debug)]
pub(crate) struct CounterLeases(pub(crate) Arc<Counter>);

impl Drop for CounterLeases {
    fn drop(&mut self) {
        self.0.begin_to_leave();
    }
}

impl Leases for CounterLeases {
    fn acquire(&self) -> StoreFuture<'_, Result<LeaseId, LeaseError>> {
        Box::pin(self.0.acquire())
    }

    fn release<'a>(&'a self, id: &'a LeaseId) -> StoreFuture<'a, Result<(), BoxError>> {
        Box::pin(self.0.release(id.as_str()))
    }
}
