//! Mode `ledger`: a few items hold the slots of all instances, and an instance lends its own slots without a call.
//!
//! [`LedgerState`] makes the decisions and does no I/O. [`Ledger`] is the task that calls the table. Callers see
//! [`LedgerLeases`].

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use forebay::rt;
use forebay::{Instant, Rng};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tracing::{error, info, warn};

use crate::fleet::FleetStatus;
use crate::item::Item;
use crate::metrics::number;
use crate::name::Name;
use crate::node_number::NodeNumber;
use crate::params::LeaseParams;
use crate::settings::StoreOutagePolicy;
use crate::share;
use crate::store::Store;
use crate::table::TableError;

mod answers;
mod call;
mod fair_share;
mod heartbeat;
mod leases;
mod membership;
mod neighbour_watch;
mod outstanding;
mod search;
pub(crate) mod shard;
mod state;
#[cfg(test)]
mod tests;
mod usage;

use call::{Action, Call, LedgerEvent, Request};
pub(crate) use leases::LedgerLeases;
use state::LedgerState;

/// Heartbeats count seconds from 2026-01-01 00:00 UTC: two digits fewer than from 1970, in every entry of every write.
pub(crate) const HEARTBEAT_ORIGIN: Duration = Duration::from_secs(1_767_225_600);

/// The ledger of one process, and the task that runs it.
#[derive(Debug)]
pub(crate) struct Ledger {
    state: Mutex<LedgerState>,
    store: Store,
    policy: StoreOutagePolicy,
    /// Wakes callers that wait for a lease.
    changed: Notify,
    /// Wakes the task.
    wake: Notify,
    ceiling: watch::Sender<u64>,
    node: watch::Sender<Option<NodeNumber>>,
    left: watch::Sender<bool>,
}

impl Ledger {
    /// Starts the tasks of the ledger. They end when [`leave`](Self::leave) is done.
    pub(crate) fn start(mut params: LeaseParams, name: Name, store: Store, rng: Rng) -> Arc<Self> {
        // The table stores whole seconds. Rounded down, other instances would take this one for dead too early.
        let seconds = params.lease.as_secs() + u64::from(params.lease.subsec_nanos() > 0);
        params.lease = Duration::from_secs(seconds.max(1));
        let policy = params.policy;
        let state = LedgerState::new(params, name, rng);
        let ceiling = state.ceiling(store.runtime.now());
        let ledger = Arc::new(Self {
            state: Mutex::new(state),
            policy,
            changed: Notify::new(),
            wake: Notify::new(),
            ceiling: watch::Sender::new(ceiling),
            node: watch::Sender::new(None),
            left: watch::Sender::new(false),
            store,
        });
        let runtime = Arc::clone(&ledger.store.runtime);
        runtime.spawn(Box::pin(Arc::clone(&ledger).run()));
        runtime.spawn(Box::pin(Arc::clone(&ledger).lower_ceiling()));
        ledger
    }

    /// Runs the actions of the state, one call at a time.
    async fn run(self: Arc<Self>) {
        loop {
            let (now, wall) = (self.now(), self.store.runtime.wall());
            let action = self.state.lock().next(now, wall);
            // Before the call: what it gives back may be another instance's when it is answered.
            self.publish();
            match action {
                Action::Call(call) => {
                    let outcome = self.perform(&call).await;
                    let failure = outcome.as_ref().err();
                    if let Some(error) =
                        failure.filter(|error| !matches!(error, TableError::ConditionFailed(_)))
                    {
                        warn!(target: "forebay", operation = call.operation(), %error, remedy = error.remedy(),
                            "Distributed connection lease: table call failed");
                    }
                    let outage = self.state.lock().calls.outage().since();
                    let (then, wall) = (self.now(), self.store.runtime.wall());
                    self.state.lock().answer(&call, now, then, wall, outcome);
                    self.report(outage);
                    self.changed.notify_waiters();
                }
                Action::Wait(until) => {
                    self.changed.notify_waiters();
                    rt::within(&*self.store.runtime, until.since(now), self.wake.notified()).await;
                }
                Action::Left => {
                    self.left.send_replace(true);
                    self.changed.notify_waiters();
                    return;
                }
            }
        }
    }

    /// Lowers the ceiling in time, even while a call hangs.
    async fn lower_ceiling(self: Arc<Self>) {
        loop {
            // Enabled before each check: a later change wakes this task. The last one, leaving, is signalled only once.
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if *self.left.borrow() {
                return;
            }
            let now = self.now();
            let fall = self.state.lock().next_fall(now);
            rt::within(&*self.store.runtime, fall.since(now), changed).await;
            self.publish();
        }
    }

    async fn perform(&self, call: &Call) -> Result<Option<Item>, TableError> {
        let request = self.state.lock().request(call);
        match request {
            Request::Get(key) => self.store.get(call.operation(), &key).await,
            Request::Update(update) => self.store.update(call.operation(), &update).await,
        }
    }

    fn now(&self) -> Instant {
        self.store.runtime.now()
    }

    /// Updates the gauges, the ceiling and the node number.
    fn publish(&self) {
        let state = self.state.lock();
        let (ceiling, node, (active, limit)) =
            (state.ceiling(self.now()), state.members.node(), state.totals());
        let (slots, outage) = (state.slots(), state.calls.outage().is_active());
        drop(state);
        self.ceiling.send_if_modified(|current| std::mem::replace(current, ceiling) != ceiling);
        self.node.send_if_modified(|current| std::mem::replace(current, node) != node);
        let telemetry = &self.store.telemetry;
        telemetry.held.set(number(slots));
        telemetry.active.set(number(active));
        telemetry.limit.set(number(limit));
        telemetry.degraded.set(outage);
    }

    /// Logs and counts what has happened. `outage` is when the table became unavailable, before the last answer.
    fn report(&self, outage: Option<Instant>) {
        let (events, outage_now, slots) = {
            let mut state = self.state.lock();
            (state.events.take(), state.calls.outage().since(), state.slots())
        };
        match (outage, outage_now) {
            (None, Some(_)) => {
                warn!(target: "forebay", policy = ?self.policy, slots, "Distributed connection lease: the table is unavailable");
            }
            (Some(since), None) => {
                info!(target: "forebay", outage = ?self.now().since(since), slots, "Distributed connection lease: the table is available again");
            }
            _ => {}
        }
        for event in events {
            self.report_event(event);
        }
    }

    fn report_event(&self, event: LedgerEvent) {
        let telemetry = &self.store.telemetry;
        match event {
            LedgerEvent::Heartbeat => telemetry.heartbeats.increment(1),
            LedgerEvent::Conflict => telemetry.conflicts.increment(1),
            LedgerEvent::Joined { shard, node, slots } => {
                let instance = self.name();
                info!(target: "forebay", instance, shard, node, slots, "Distributed connection lease: joined");
            }
            LedgerEvent::Renamed { before, name } => {
                warn!(target: "forebay", before, name, "Distributed connection lease: another instance has this name; this instance takes a new one");
            }
            LedgerEvent::NoNodeNumber => {
                warn!(target: "forebay", remedy = "run fewer instances, or set a different DSQL_NODE_ID for each",
                    "Distributed connection lease: all 1,024 node numbers are taken, and this instance has none");
            }
            LedgerEvent::Renumbered { before, node } => {
                warn!(target: "forebay", before, node, "Distributed connection lease: another instance has our former node number");
            }
            LedgerEvent::Reaped { id: instance, slots } => {
                telemetry.reaps.increment(1);
                warn!(target: "forebay", instance, slots, "Distributed connection lease: removed a dead instance; its slots are free");
            }
            LedgerEvent::Lost { shard, slots } => {
                telemetry.losses.increment(1);
                warn!(target: "forebay", shard, slots, "Distributed connection lease: our entry was removed; joining again");
            }
            LedgerEvent::LimitDiffers { ours, theirs } => {
                warn!(target: "forebay", ours, theirs, remedy = "set the same DSQL_DISTRIBUTED_CONN_LIMIT everywhere, then `forebay lease reset`",
                    "Distributed connection lease: the table has a different limit, which applies");
            }
            LedgerEvent::LeaseDiffers { ours, theirs } => {
                warn!(target: "forebay", ?ours, ?theirs, remedy = "set the same DSQL_DISTRIBUTED_CONN_LEASE_LENGTH everywhere, then `forebay lease reset`",
                    "Distributed connection lease: the table has a different lease length, which applies");
            }
            LedgerEvent::InvalidShard { shard } => {
                error!(target: "forebay", shard, remedy = "`forebay lease reset`", "Distributed connection lease: an item of the table is not a valid shard");
            }
            LedgerEvent::CounterInUse => {
                error!(target: "forebay", remedy = "use one DSQL_DISTRIBUTED_CONN_LEASE_MODE for all instances of an endpoint",
                    "Distributed connection lease: another instance uses mode counter, so there are two budgets");
            }
        }
    }

    // For the fleet.

    /// The name of this process in the fleet.
    pub(crate) fn name(&self) -> String {
        self.state.lock().members.name().to_owned()
    }

    /// The status of the fleet, as this process knows it. `rate_outage` is left for the caller.
    pub(crate) fn status(&self) -> FleetStatus {
        let (state, now) = (self.state.lock(), self.now());
        let (active, limit) = state.totals();
        FleetStatus {
            instance: state.members.name().to_owned(),
            slots: state.slots(),
            leases: state.usage.leases(),
            node: state.members.node().and_then(|node| node.at(now)),
            index: state.members.index(),
            active,
            limit,
            lease_outage: state.calls.outage().since().map(|since| now.since(since)),
            rate_outage: None,
        }
    }

    /// Slots whose lease has not ended, and all slots of the fleet.
    pub(crate) fn safe_slots(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.members.safe_slots(self.now()), state.totals().1)
    }

    /// Slots that will be used soon. One in twenty is kept for replacing connections before they end.
    pub(crate) fn spare(&self) -> u32 {
        let state = self.state.lock();
        let most = state.max_leases(self.now());
        let spare = (most - most.div_ceil(20)).saturating_sub(state.usage.leases());
        u32::try_from(spare).unwrap_or(u32::MAX)
    }

    /// Permits that all shares of a rate with this burst may save above their part.
    pub(crate) fn overdraft(&self, burst: u64) -> u64 {
        let state = self.state.lock();
        let limit = state.totals().1;
        share::overdraft(burst, state.watch.holdings(), limit)
    }

    pub(crate) fn ceiling(&self) -> watch::Receiver<u64> {
        self.ceiling.subscribe()
    }

    pub(crate) fn node(&self) -> watch::Receiver<Option<NodeNumber>> {
        self.node.subscribe()
    }

    /// Waits until this process has joined, and its lease has not ended. Returns its node number; none if all are taken, or if it
    /// has left.
    ///
    /// Cancel safe.
    pub(crate) async fn joined(&self) -> Option<NodeNumber> {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            let (is_settled, node) = {
                let state = self.state.lock();
                (state.members.is_settled(self.now()), state.members.node())
            };
            if is_settled || *self.left.borrow() {
                return node;
            }
            changed.await;
        }
    }

    /// Grants no more leases, and gives every slot back after the last lease is returned.
    pub(crate) fn begin_to_leave(&self) {
        self.state.lock().leave();
        self.wake.notify_one();
        self.changed.notify_waiters();
    }

    /// Leaves, and waits up to `timeout`. Returns whether everything is given back.
    ///
    /// Cancel safe: leaving continues in the background.
    pub(crate) async fn leave(&self, timeout: Duration) -> bool {
        self.begin_to_leave();
        let mut left = self.left.subscribe();
        let done = left.wait_for(|left| *left);
        rt::within(&*self.store.runtime, timeout, done).await.is_some()
    }
}
