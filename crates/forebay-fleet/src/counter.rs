//! Mode `counter`: the specification's scheme, with one counter and one item per connection.
//!
//! It is for fleets that already use it, also next to other implementations. A crash leaves the counter too high;
//! [`reconcile`](crate::operator::reconcile) corrects it. Items are renewed while their connections live, a retry
//! counts once, and a conflict is not mistaken for the limit.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forebay::{BoxError, Instant, LeaseError, LeaseId, Leases, Rng, StoreFuture, backoff, rt};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tracing::warn;

use crate::fleet::FleetStatus;
use crate::metrics::number;
use crate::params::LeaseParams;
use crate::settings::StoreOutagePolicy;
use crate::store::Store;
use crate::store_outage::StoreOutage;
use crate::table::{Cancelled, Delete, TableError, Write};

mod claim;
pub(crate) mod items;
mod keeper;

use claim::{Claim, Refusal, refusal};
pub(crate) use items::{is_in_use, key};

/// Twice within the life of an item.
const RENEW: Duration = Duration::from_secs(80);
/// The first and the longest pause after a conflict.
const CONFLICT: (Duration, Duration) = (Duration::from_millis(25), Duration::from_secs(1));
/// Attempts of one acquire.
const ATTEMPTS: u32 = 8;
/// How long a token keeps a retry from counting twice. DynamoDB guarantees ten minutes.
const TOKEN_LIFE: Duration = Duration::from_secs(9 * 60);
/// A lost request cannot arrive later than this.
const LATE: Duration = Duration::from_secs(30);

/// The leases of one process, and the task that renews them.
#[derive(Debug)]
pub(crate) struct Counter {
    params: LeaseParams,
    store: Store,
    state: Mutex<State>,
    /// Wakes the task.
    wake: Notify,
    left: watch::Sender<bool>,
}

#[derive(Debug)]
struct State {
    leases: BTreeMap<String, LeaseRecord>,
    /// Acquires without a caller and with unknown outcome, and when to release them.
    doubtful: BTreeMap<String, Instant>,
    outage: StoreOutage,
    paused_until: Instant,
    active: u64,
    rng: Rng,
    leaving: bool,
}

/// One lease.
#[derive(Debug)]
struct LeaseRecord {
    counted: Counted,
    renew_at: Instant,
    /// The release, the same in every attempt, and when it began.
    release: Option<(Arc<[Write]>, Instant)>,
}

impl LeaseRecord {
    fn new(counted: Counted, renew_at: Instant) -> Self {
        Self { counted, renew_at, release: None }
    }
}

/// Whether the table counts a lease.
#[derive(Debug)]
enum Counted {
    /// It was granted while the table was unavailable.
    No,
    /// These writes were sent, the same in every attempt, without an answer. Only the lease item shows the result.
    Unknown(Arc<[Write]>),
    Yes,
}

impl Counter {
    /// Starts the task. It ends when [`leave`](Self::leave) is done.
    pub(crate) fn start(params: LeaseParams, store: Store, rng: Rng) -> Arc<Self> {
        let state = State {
            leases: BTreeMap::new(),
            doubtful: BTreeMap::new(),
            outage: StoreOutage::default(),
            paused_until: Instant::ZERO,
            active: 0,
            rng,
            leaving: false,
        };
        let left = watch::Sender::new(false);
        let counter = Arc::new(Self { params, store, state: Mutex::new(state), wake: Notify::new(), left });
        counter.store.telemetry.limit.set(number(counter.params.limit));
        counter.store.runtime.spawn(Box::pin(Arc::clone(&counter).keep()));
        counter
    }

    fn now(&self) -> Instant {
        self.store.runtime.now()
    }

    /// The status of the fleet, as this process knows it. `rate_outage` is left for the caller.
    pub(crate) fn status(&self, instance: String) -> FleetStatus {
        let (state, now) = (self.state.lock(), self.now());
        let leases = state.leases.len() as u64;
        FleetStatus {
            instance,
            slots: leases,
            leases,
            active: state.active,
            limit: self.params.limit,
            lease_outage: state.outage.since().map(|since| now.since(since)),
            ..FleetStatus::default()
        }
    }

    /// Grants no more leases.
    pub(crate) fn begin_to_leave(&self) {
        self.state.lock().leaving = true;
        self.wake.notify_one();
    }

    /// Leaves, and waits up to `timeout`. Returns whether every lease is returned.
    ///
    /// Cancel safe: leaving continues in the background.
    pub(crate) async fn leave(&self, timeout: Duration) -> bool {
        self.begin_to_leave();
        let mut left = self.left.subscribe();
        rt::within(&*self.store.runtime, timeout, left.wait_for(|left| *left)).await.is_some()
    }

    /// Notes whether a call was answered.
    fn note<T>(&self, outcome: &Result<T, TableError>) {
        let now = self.now();
        let mut state = self.state.lock();
        match outcome.as_ref().err().filter(|error| !error.is_an_answer()) {
            None => {
                state.outage.answered(now);
            }
            Some(error) => {
                state.outage.failed(now);
                let State { outage, rng, .. } = &mut *state;
                state.paused_until = now + outage.pause(rng);
                let remedy = error.remedy();
                warn!(target: "forebay", %error, remedy, "Distributed connection lease: table call failed");
            }
        }
        self.store.telemetry.degraded.set(state.outage.is_active());
        self.store.telemetry.held.set(number(state.leases.len() as u64));
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
        self.note(&outcome);
        outcome
    }

    async fn acquire(&self) -> Result<LeaseId, LeaseError> {
        let (id, token) = {
            let mut state = self.state.lock();
            if state.leaving {
                return Err(LeaseError::Unavailable("this process is leaving the fleet".into()));
            }
            if state.outage.is_active() && self.now() < state.paused_until {
                return self.acquire_in_outage(&mut state, "the table is unavailable".into());
            }
            let rng = &mut state.rng;
            (format!("{:016x}{:016x}", rng.bits(), rng.bits()), format!("{:016x}", rng.bits()))
        };
        let LeaseParams { endpoint, service, limit, .. } = &self.params;
        let writes = items::acquire(endpoint, &id, service, Some(*limit), self.store.runtime.wall());
        let mut claim = Claim { counter: self, id: Some(id) };
        let (mut attempts, mut unknown) = (0, false);
        loop {
            attempts += 1;
            let error = match self.transact("acquire", &writes, &token).await {
                Ok(()) => return Ok(claim.keep()),
                Err(error) => error,
            };
            match refusal(&error) {
                Some(Refusal::AlreadyMade) => return Ok(claim.keep()),
                Some(Refusal::Limit) => {
                    let mut state = self.state.lock();
                    state.active = *limit;
                    // A lost request may still arrive when there is room.
                    claim.doubt(&mut state, unknown);
                    return Err(LeaseError::Limit { limit: *limit });
                }
                None => {}
            }
            unknown |= error.may_have_been_applied();
            let pause = {
                let mut state = self.state.lock();
                if state.outage.is_active() || attempts >= ATTEMPTS {
                    claim.doubt(&mut state, unknown);
                    return self.acquire_in_outage(&mut state, error.into());
                }
                backoff::pause(attempts, CONFLICT.0, CONFLICT.1, &mut state.rng)
            };
            self.store.runtime.sleep_until(self.now() + pause).await;
        }
    }

    /// One more lease while the table is unavailable, if the policy allows it.
    fn acquire_in_outage(&self, state: &mut State, error: BoxError) -> Result<LeaseId, LeaseError> {
        let allowed = state.outage.is_active() && self.params.policy == StoreOutagePolicy::Local;
        if !allowed || state.leases.len() as u64 >= self.params.max_open {
            return Err(LeaseError::Unavailable(error));
        }
        let id = format!("{:016x}{:016x}", state.rng.bits(), state.rng.bits());
        state.leases.insert(id.clone(), LeaseRecord::new(Counted::No, self.now()));
        self.wake.notify_one();
        Ok(LeaseId::new(id))
    }

    async fn release(&self, id: &str) -> Result<(), BoxError> {
        let (writes, began) = {
            let mut state = self.state.lock();
            let now = self.now();
            let Some(lease) = state.leases.get_mut(id) else { return Ok(()) };
            if let Counted::Yes = lease.counted {
                let wall = self.store.runtime.wall();
                let release = || (items::release(&self.params.endpoint, id, wall).into(), now);
                let (writes, began) = lease.release.get_or_insert_with(release);
                (Arc::clone(writes), *began)
            } else {
                // Whether it was counted is known when no request can arrive late any more.
                if let Some(LeaseRecord { counted: Counted::Unknown(_), .. }) = state.leases.remove(id) {
                    state.doubtful.insert(id.to_owned(), now + LATE);
                }
                self.wake.notify_one();
                return Ok(());
            }
        };
        // Not the token of the acquire, which was used for other changes.
        let token = format!("r{}", &id[..id.len().min(30)]);
        match self.transact("release", &writes, &token).await {
            Ok(()) => {}
            Err(TableError::Cancelled(reasons)) if !reasons.contains(&Cancelled::Conflict) => {
                self.release_rest(id, &writes[1..], &reasons, began).await?;
            }
            Err(error) => return Err(error.into()),
        }
        self.state.lock().leases.remove(id);
        self.wake.notify_one();
        Ok(())
    }

    /// One of the two items did not match: change the other one.
    async fn release_rest(
        &self,
        id: &str,
        uncount: &[Write],
        reasons: &[Cancelled],
        began: Instant,
    ) -> Result<(), BoxError> {
        let failed = |place: usize| matches!(reasons.get(place), Some(Cancelled::ConditionFailed(_)));
        match (failed(0), failed(1)) {
            // The counter was reset: only the item remains.
            (false, true) => {
                let key = items::lease_key(&self.params.endpoint, id);
                let outcome = self.store.delete("release", &Delete { key, when: Vec::new() }).await;
                self.note(&outcome);
                outcome?;
            }
            // The item expired while the table was unavailable. After the life of the token, an earlier release may
            // have been made, and one too many on the counter is safer than one too few.
            (true, false) if self.now().since(began) < TOKEN_LIFE => {
                self.transact("release", uncount, &format!("u{}", &id[..id.len().min(30)])).await?;
            }
            _ => warn!(target: "forebay", lease = id, "Distributed connection lease: already released"),
        }
        Ok(())
    }
}

/// The leases of a [`Counter`]. No more are granted when this is dropped.
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
