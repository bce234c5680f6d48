//! Leases by a ledger: a few items hold each instance's slots, and an instance lends its slots without asking anyone.
//!
//! What is decided is in [`Book`], which is pure; here is the task that asks the table; callers see [`LedgerLeases`].

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use forebay::rt;
use forebay::{Instant, Rng};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tracing::{error, info, warn};

use crate::item::Item;
use crate::metrics::number;
use crate::name::Name;
use crate::share;
use crate::store::Store;
use crate::table::TableError;

mod answer;
mod book;
mod call;
#[cfg(test)]
mod ending;
mod fair;
mod leases;
mod level;
mod next;
pub(crate) mod shard;
mod sightings;
#[cfg(test)]
mod tests;

use book::Book;
pub(crate) use book::Rules;
use call::{Act, Ask, Call, Tale};
pub(crate) use leases::LedgerLeases;
pub(crate) use next::BEAT_ORIGIN;

/// One process's ledger, and the task that keeps it.
#[derive(Debug)]
pub(crate) struct Ledger {
    book: Mutex<Book>,
    store: Store,
    rules: Rules,
    /// Something has changed for those who wait for a lease.
    changed: Notify,
    /// Something has changed for the task.
    nudged: Notify,
    ceiling: watch::Sender<u64>,
    number: watch::Sender<Option<u16>>,
    left: watch::Sender<bool>,
}

/// What a ledger says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holding {
    pub(crate) slots: u64,
    pub(crate) leases: u64,
    pub(crate) node: Option<u16>,
    pub(crate) index: Option<u64>,
    pub(crate) active: u64,
    pub(crate) limit: u64,
    pub(crate) away_since: Option<Instant>,
}

impl Ledger {
    /// Starts the tasks that keep it. They end when [`leave`](Self::leave) is done.
    pub(crate) fn start(mut rules: Rules, name: Name, store: Store, rng: Rng) -> Arc<Self> {
        // The table has whole seconds: with less, others would take us for dead before we do.
        let seconds = rules.lease.as_secs() + u64::from(rules.lease.subsec_nanos() > 0);
        rules.lease = Duration::from_secs(seconds.max(1));
        let book = Book::new(rules.clone(), name, rng);
        let ceiling = book.ceiling(store.runtime.now());
        let ledger = Arc::new(Self {
            book: Mutex::new(book),
            rules,
            changed: Notify::new(),
            nudged: Notify::new(),
            ceiling: watch::Sender::new(ceiling),
            number: watch::Sender::new(None),
            left: watch::Sender::new(false),
            store,
        });
        let runtime = Arc::clone(&ledger.store.runtime);
        runtime.spawn(Box::pin(Arc::clone(&ledger).run()));
        runtime.spawn(Box::pin(Arc::clone(&ledger).lower()));
        ledger
    }

    /// Does what the book says, one call at a time.
    async fn run(self: Arc<Self>) {
        loop {
            let (now, wall) = (self.now(), self.store.runtime.wall());
            let act = self.book.lock().next(now, wall);
            match act {
                Act::Call(call) => {
                    let outcome = self.perform(&call).await;
                    if let Err(error) = &outcome
                        && !matches!(error, TableError::ConditionFailed(_))
                    {
                        self.complain(&call, error);
                    }
                    let was_away = self.book.lock().away().since();
                    let (then, wall) = (self.now(), self.store.runtime.wall());
                    self.book.lock().answer(&call, now, then, wall, outcome);
                    self.tell(was_away);
                    self.publish();
                    self.changed.notify_waiters();
                }
                Act::Wait(until) => {
                    self.publish();
                    self.changed.notify_waiters();
                    rt::within(&*self.store.runtime, until.since(now), self.nudged.notified()).await;
                }
                Act::Left => {
                    self.publish();
                    self.left.send_replace(true);
                    self.changed.notify_waiters();
                    return;
                }
            }
        }
    }

    /// Lowers the ceiling in time, also while a call hangs.
    async fn lower(self: Arc<Self>) {
        loop {
            // Ahead of every look: what changes after it wakes us, the end included, which is told only once.
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if *self.left.borrow() {
                return;
            }
            let now = self.now();
            let fall = self.book.lock().next_fall(now);
            rt::within(&*self.store.runtime, fall.since(now), changed).await;
            self.publish();
        }
    }

    async fn perform(&self, call: &Call) -> Result<Option<Item>, TableError> {
        let ask = self.book.lock().ask(call);
        match ask {
            Ask::Get(key) => self.store.get(call.operation(), &key).await,
            Ask::Update(update) => self.store.update(call.operation(), &update).await,
        }
    }

    fn now(&self) -> Instant {
        self.store.runtime.now()
    }

    /// Brings gauges, the ceiling and the number up to date.
    fn publish(&self) {
        let (ceiling, node, slots, (active, limit), away) = {
            let book = self.book.lock();
            (book.ceiling(self.now()), book.node(), book.slots(), book.totals(), book.away().is_away())
        };
        self.ceiling.send_if_modified(|current| std::mem::replace(current, ceiling) != ceiling);
        self.number.send_if_modified(|current| std::mem::replace(current, node) != node);
        let telemetry = &self.store.telemetry;
        telemetry.held.set(number(slots));
        telemetry.active.set(number(active));
        telemetry.limit.set(number(limit));
        telemetry.degraded.set(if away { 1.0 } else { 0.0 });
    }

    fn complain(&self, call: &Call, problem: &TableError) {
        let (operation, remedy) = (call.operation(), problem.remedy());
        warn!(target: "forebay", operation, error = %problem, remedy, "Distributed connection lease: table call failed");
    }

    fn tell(&self, was_away: Option<Instant>) {
        let (tales, away, slots) = {
            let mut book = self.book.lock();
            (book.tales(), book.away().since(), book.slots())
        };
        let telemetry = &self.store.telemetry;
        match (was_away, away) {
            (None, Some(_)) => {
                warn!(target: "forebay", policy = ?self.rules.policy, slots, "Distributed connection lease: the table is away");
            }
            (Some(since), None) => {
                info!(target: "forebay", away_for = ?self.now().since(since), slots, "Distributed connection lease: the table is back");
            }
            _ => {}
        }
        for tale in tales {
            match tale {
                Tale::Beaten => telemetry.beats.increment(1),
                Tale::Conflict => telemetry.conflicts.increment(1),
                Tale::Joined { shard, node, slots } => {
                    let instance = self.name();
                    info!(target: "forebay", instance, shard, node, slots, "Distributed connection lease: joined");
                }
                Tale::Renamed { before, name } => {
                    warn!(target: "forebay", before, name, "Distributed connection lease: another instance has our name; ours is a new one now");
                }
                Tale::NoNumber => {
                    warn!(target: "forebay", remedy = "run fewer instances, or give each a DSQL_NODE_ID of its own",
                        "Distributed connection lease: all 1,024 numbers are taken, and this instance has none");
                }
                Tale::Renumbered { before, node } => {
                    warn!(target: "forebay", before, node, "Distributed connection lease: our number was given to another instance");
                }
                Tale::Reaped { id: instance, slots } => {
                    telemetry.reaps.increment(1);
                    warn!(target: "forebay", instance, slots, "Distributed connection lease: an instance is gone, its slots are free again");
                }
                Tale::Lost { shard, slots } => {
                    warn!(target: "forebay", shard, slots, "Distributed connection lease: our slots were taken back; joining anew");
                }
                Tale::LimitDiffers { ours, theirs } => {
                    warn!(target: "forebay", ours, theirs, remedy = "set the same DSQL_DISTRIBUTED_CONN_LIMIT everywhere, then `forebay lease reset`",
                        "Distributed connection lease: the table was made for another limit, which holds");
                }
                Tale::LeaseDiffers { ours, theirs } => {
                    warn!(target: "forebay", ?ours, ?theirs, remedy = "set the same DSQL_DISTRIBUTED_CONN_LEASE_LENGTH everywhere, then `forebay lease reset`",
                        "Distributed connection lease: the table was made for another length, which holds");
                }
                Tale::NotAShard { shard } => {
                    error!(target: "forebay", shard, remedy = "`forebay lease reset`", "Distributed connection lease: an item is not what it should be");
                }
                Tale::CounterInUse => {
                    error!(target: "forebay", remedy = "use one DSQL_DISTRIBUTED_CONN_LEASE_MODE for all instances of an endpoint",
                        "Distributed connection lease: someone counts in mode counter, and so there are two budgets");
                }
            }
        }
    }

    // What the fleet asks.

    /// The name of this process in the fleet.
    pub(crate) fn name(&self) -> String {
        self.book.lock().name().to_owned()
    }

    pub(crate) fn holding(&self) -> Holding {
        let book = self.book.lock();
        let (active, limit) = book.totals();
        Holding {
            slots: book.slots(),
            leases: book.held(),
            node: book.node(),
            index: book.index(),
            active,
            limit,
            away_since: book.away().since(),
        }
    }

    /// Slots that nobody can have taken away yet, and all there are in the fleet.
    pub(crate) fn safe_slots(&self) -> (u64, u64) {
        let book = self.book.lock();
        (book.safe_slots(self.now()), book.totals().1)
    }

    /// Slots of ours that will be used soon, as far as we can tell: a twentieth is for replacing connections before they go.
    pub(crate) fn spare(&self) -> u32 {
        let book = self.book.lock();
        let most = book.may_hold(self.now());
        let spare = (most - most.div_ceil(20)).saturating_sub(book.held());
        u32::try_from(spare).unwrap_or(u32::MAX)
    }

    /// Permits that the shares of all may save beyond what their slots bring them, of a rate with this burst.
    pub(crate) fn overdraft(&self, burst: u64) -> u64 {
        let book = self.book.lock();
        let limit = book.totals().1;
        share::overdraft(burst, book.holdings(), limit)
    }

    pub(crate) fn ceiling(&self) -> watch::Receiver<u64> {
        self.ceiling.subscribe()
    }

    pub(crate) fn number(&self) -> watch::Receiver<Option<u16>> {
        self.number.subscribe()
    }

    /// Waits until it has joined. Its node number; none if all are taken, or it has left.
    ///
    /// Cancel safe.
    pub(crate) async fn joined(&self) -> Option<u16> {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            let (is_in, node) = {
                let book = self.book.lock();
                (book.is_in(), book.node())
            };
            if is_in || *self.left.borrow() {
                return node;
            }
            changed.await;
        }
    }

    /// Gives no more leases, and every slot back once all leases are.
    pub(crate) fn begin_to_leave(&self) {
        self.book.lock().leave();
        self.nudged.notify_one();
        self.changed.notify_waiters();
    }

    /// Leaves, and waits for it as long as `patience`. Whether all is given back.
    ///
    /// Cancel safe: it goes on in the background.
    pub(crate) async fn leave(&self, patience: Duration) -> bool {
        self.begin_to_leave();
        let mut left = self.left.subscribe();
        let done = left.wait_for(|left| *left);
        rt::within(&*self.store.runtime, patience, done).await.is_some()
    }
}
