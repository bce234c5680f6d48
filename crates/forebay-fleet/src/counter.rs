//! Leases by the specification's scheme: one counter, and an item for each connection.
//!
//! For fleets that run it already, also beside peers of another make. What it cannot mend is that a crash leaves the
//! counter too high: [`reconcile`](crate::operator::reconcile) does that. Everything else is as safe as it can be: an item
//! is renewed while its connection lives, a retry counts once, and a conflict is not taken for the limit.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forebay::rt;
use forebay::{BoxError, Instant, LeaseError, LeaseId, Leases, Rng, StoreFuture};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tracing::warn;

use crate::away::{self, Away};
use crate::metrics::number;
use crate::settings::StoreOutagePolicy;
use crate::store::Store;
use crate::table::{Cancelled, TableError, Write};

mod claim;
pub(crate) mod items;
mod keeper;

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
    pub(crate) policy: StoreOutagePolicy,
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
    rng: Rng,
    leaving: bool,
}

/// One lease.
#[derive(Debug)]
struct Held {
    count: Count,
    renew_at: Instant,
    /// The release that was begun, the same at each try, and when.
    release: Option<(Arc<[Write]>, Instant)>,
}

/// Whether the table counts a lease: not yet, if it was taken while that was away.
#[derive(Debug)]
enum Count {
    Not,
    /// This was sent, the same at each try, and no answer has said that it was made. Nor that it was not: only its item can tell.
    Perhaps(Arc<[Write]>),
    Surely,
}

impl Counter {
    /// Starts the task that keeps it; it ends when [`leave`](Self::leave) is done.
    pub(crate) fn start(rules: Rules, store: Store, rng: Rng) -> Arc<Self> {
        let state = State {
            held: BTreeMap::new(),
            doubtful: BTreeMap::new(),
            away: Away::default(),
            paused_until: Instant::ZERO,
            active: 0,
            rng,
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
                let State { away, rng, .. } = &mut *state;
                state.paused_until = now + away.pause(rng);
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
            let rng = &mut state.rng;
            (format!("{:016x}{:016x}", rng.bits(), rng.bits()), format!("{:016x}", rng.bits()))
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
                away::pause(tries, CONFLICT.0, CONFLICT.1, &mut state.rng)
            };
            self.store.runtime.sleep_until(self.now() + pause).await;
        }
    }

    /// What the policy says to one more connection while the table is away.
    fn while_away(&self, state: &mut State, error: BoxError) -> Result<LeaseId, LeaseError> {
        let on_our_own = state.away.is_away() && self.rules.policy == StoreOutagePolicy::Local;
        if !on_our_own || state.held.len() as u64 >= self.rules.max_open {
            return Err(LeaseError::Unavailable(error));
        }
        let id = format!("{:016x}{:016x}", state.rng.bits(), state.rng.bits());
        state.held.insert(id.clone(), Held { count: Count::Not, renew_at: self.now(), release: None });
        self.nudged.notify_one();
        Ok(LeaseId::new(id))
    }

    async fn release(&self, id: &str) -> Result<(), BoxError> {
        let (writes, began) = {
            let mut state = self.state.lock();
            let now = self.now();
            match state.held.get_mut(id) {
                None => return Ok(()),
                Some(Held { count: Count::Not, .. }) => {
                    state.held.remove(id);
                    self.nudged.notify_one();
                    return Ok(());
                }
                // Whether it was counted, or will be by a request on its way, shows when none can be made late any more.
                Some(Held { count: Count::Perhaps(_), .. }) => {
                    state.held.remove(id);
                    state.doubtful.insert(id.to_owned(), now + LATE);
                    self.nudged.notify_one();
                    return Ok(());
                }
                Some(held) => {
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
