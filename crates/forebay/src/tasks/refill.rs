//! Opens connections, as many at a time as the limiter permits, and pauses while opens fail.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::connect::{Connect, ConnectionMonitor, Owner};
use crate::core::{Core, Entry};
use crate::error::OpenError;
use crate::event::{Event, Failure};
use crate::lease::{HeldLease, LeaseError};
use crate::opens::Step;
use crate::race::{self, First};
use crate::state::{Key, Refill};
use crate::tasks::reclaim;

/// Runs until the reservoir is closed. It waits for notifications and does not poll.
pub(crate) async fn run<C: Connect>(core: Arc<Core<C>>) {
    // If this task ends, for whatever reason, the reservoir closes: callers must not wait for connections
    // that nobody opens.
    let _close = CloseOnDrop(Arc::clone(&core));
    let startup_jitter = core.config.lock().startup_jitter;
    let delay = core.seed.fork("stagger").rng().up_to(startup_jitter);
    if !delay.is_zero() {
        core.observe(&Event::StartDelayed { delay });
        race::first(core.closed(), core.runtime.sleep_until(core.runtime.now() + delay)).await;
    }
    let (status, lifetime) = (core.status(), core.config.lock().lifetime);
    core.observe(&Event::Started {
        target_ready: status.target_ready,
        low_watermark: status.low_watermark,
        lifetime,
    });
    loop {
        let (now, pace) = (core.runtime.now(), core.limit.pace());
        match core.with_state(|state| state.next_open(now, pace)) {
            Refill::Open(key) => start(&core, key, None),
            Refill::Wait(until) => {
                race::first(core.refill.notified(), core.runtime.sleep_until(until)).await;
            }
            Refill::Closed => return,
        }
    }
}

/// Receives the outcome of an open.
pub(crate) type Report = oneshot::Sender<Result<(), Arc<OpenError>>>;

/// Opens a connection for the slot `key`, in the background.
pub(crate) fn start<C: Connect>(core: &Arc<Core<C>>, key: Key, report: Option<Report>) {
    let opening = Opening { core: Arc::clone(core), key, lease: None, settled: false, report };
    core.runtime.spawn(Box::pin(opening.run()));
}

/// Closes the reservoir when the refill task is dropped, because its runtime is gone.
struct CloseOnDrop<C: Connect>(Arc<Core<C>>);

impl<C: Connect> Drop for CloseOnDrop<C> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A connection that is being opened. If this is dropped early, its slot and its lease are given back.
struct Opening<C: Connect> {
    core: Arc<Core<C>>,
    key: Key,
    lease: Option<HeldLease>,
    settled: bool,
    report: Option<Report>,
}

impl<C: Connect> Opening<C> {
    fn report(&mut self, outcome: Result<(), Arc<OpenError>>) {
        if let Some(report) = self.report.take() {
            // The receiver may be gone.
            drop(report.send(outcome));
        }
    }

    async fn run(mut self) {
        let core = Arc::clone(&self.core);
        let monitor = ConnectionMonitor::new(SlotOwner { core: Arc::downgrade(&core), key: self.key });
        let attempt = race::first(monitor.recalled(), self.attempt(&monitor));
        match race::first(core.closed(), attempt).await {
            // Dropping `self` gives the slot and the lease back.
            First::Left(()) => {}
            First::Right(First::Left(())) => {
                self.fail(OpenError::new(Failure::Lease, "its lease was taken back"));
            }
            First::Right(First::Right(Ok((connection, took, busy)))) => self.succeed(connection, took, busy),
            First::Right(First::Right(Err(error))) => self.fail(error),
        }
    }

    /// Gets a token, a lease and a permit, and then opens, in this order: a step that fails early uses
    /// nothing scarce. Returns the connection, the duration of the open, and the duration of everything
    /// except the wait for the permit.
    async fn attempt(
        &mut self,
        monitor: &ConnectionMonitor,
    ) -> Result<(C::Connection, Duration, Duration), OpenError> {
        let core = Arc::clone(&self.core);
        let limit = core.config.lock().open_timeout;
        let late = |failure: Failure, what: &str| {
            OpenError::new(failure, format!("{what} took longer than {limit:?}"))
        };
        let began = core.runtime.now();

        let waiting = Waiting::for_step(&core, Step::Prepare);
        // Getting a token uses nothing scarce, so a provider that hangs is retried like one that fails.
        let prepared = core.within(limit, core.connector.prepare()).await;
        prepared.ok_or_else(|| late(Failure::Token, "preparing"))??;
        drop(waiting);
        if let Some(leases) = &core.leases {
            let _waiting = Waiting::for_step(&core, Step::Lease);
            let lease = core.within(limit, leases.acquire(monitor)).await;
            let lease = lease.unwrap_or_else(|| {
                Err(LeaseError::Unavailable(format!("no answer within {limit:?}").into()))
            });
            self.lease = Some(lease.map_err(|error| {
                let failure = match error {
                    LeaseError::Limit { .. } | LeaseError::Share { .. } => Failure::LeaseLimit,
                    LeaseError::Unavailable(_) => Failure::Lease,
                };
                OpenError::new(failure, error)
            })?);
        }
        let ready = core.runtime.now();
        let waiting = Waiting::for_step(&core, Step::Permit);
        let permit = core.limit.acquire().await.map_err(|error| OpenError::new(Failure::RateLimit, error))?;
        drop(waiting);
        let permitted = core.runtime.now();
        permit.spend();
        let connection = core.within(limit, core.connector.open(monitor.clone())).await;
        let connection = connection.ok_or_else(|| late(Failure::Timeout, "the open"))??;
        let took = core.runtime.now().since(permitted);
        Ok((connection, took, took + ready.since(began)))
    }

    fn succeed(mut self, connection: C::Connection, took: Duration, busy: Duration) {
        self.settled = true;
        let core = &self.core;
        core.opens.lock().succeeded(core.runtime.now());
        let (lease, key, now) = (self.lease.take(), self.key, core.runtime.now());
        // A lease was granted, so the store knows the number of this process, if it ever does.
        let number = core.leases.as_ref().and_then(|leases| leases.instance_index());
        let (placed, replaced) = core.with_state(|state| {
            if let Some(number) = number {
                state.set_instance_index(number);
            }
            let life = state.draw_life(now);
            state.opened(Box::new(Entry { connection, lease, life, key, bad: false }), life, busy, now)
        });
        let status = core.status();
        core.observe(&Event::Opened { took, size: status.size(), target: status.target_ready });
        core.carry_out(placed);
        if let Some(replaced) = replaced {
            core.dispose(replaced);
        }
        self.report(Ok(()));
    }

    fn fail(&mut self, error: OpenError) {
        self.settled = true;
        let core = &self.core;
        let (lease, key, now) = (self.lease.take(), self.key, core.runtime.now());
        let (failure, permanent, releasing) = (error.failure(), error.is_permanent(), lease.is_some());
        let error = Arc::new(error);
        core.opens.lock().failed(now, Arc::clone(&error));
        let (attempt, pause, closed_first) =
            core.with_state(|state| state.open_failed(key, failure, permanent, releasing, now));
        core.observe(&Event::OpenFailed { error: &error, attempt, pause });
        if releasing {
            reclaim::start(core, key, None, lease);
        }
        if let Some(discarded) = closed_first {
            core.dispose(discarded);
        }
        self.report(Err(error));
    }
}

/// An attempt that waits for a step. It is counted, so that errors can say why connections are missing.
struct Waiting<'a, C: Connect> {
    core: &'a Core<C>,
    step: Step,
}

impl<'a, C: Connect> Waiting<'a, C> {
    fn for_step(core: &'a Core<C>, step: Step) -> Self {
        core.opens.lock().begins(step);
        Self { core, step }
    }
}

impl<C: Connect> Drop for Waiting<'_, C> {
    fn drop(&mut self) {
        self.core.opens.lock().ends(self.step);
    }
}

/// The reservoir as the owner of a monitored connection.
struct SlotOwner<C: Connect> {
    core: Weak<Core<C>>,
    key: Key,
}

impl<C: Connect> Owner for SlotOwner<C> {
    fn died(&self) {
        if let Some(core) = self.core.upgrade() {
            core.died(self.key);
        }
    }

    fn retired(&self) {
        if let Some(core) = self.core.upgrade() {
            core.retired(self.key);
        }
    }

    fn recalled(&self) -> bool {
        self.core.upgrade().is_some_and(|core| core.recalled(self.key))
    }
}

impl<C: Connect> Drop for Opening<C> {
    fn drop(&mut self) {
        if self.settled {
            return;
        }
        if std::thread::panicking() {
            return self.fail(OpenError::new(Failure::Open, "the connector panicked"));
        }
        let (lease, key) = (self.lease.take(), self.key);
        let releasing = lease.is_some();
        self.core.with_state(|state| state.open_abandoned(key, releasing));
        if releasing {
            reclaim::start(&self.core, key, None, lease);
        }
    }
}
