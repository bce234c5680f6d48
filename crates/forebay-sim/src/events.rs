//! Receives every event of a run, in order, and passes it to the trace, the judge, the sampler and the
//! totals.

use std::sync::Arc;
use std::time::Duration;

use forebay::{CheckoutError, Discard, Failure, Instant};
use hdrhistogram::Histogram;

use crate::judge::{DisturbanceId, Judge};
use crate::outcome::Totals;
use crate::samples::Sampler;
use crate::scenario::Scenario;
use crate::trace::{Trace, TraceEvent};
use crate::world::Refused;

pub(crate) struct EventSink {
    pub(crate) trace: Trace,
    pub(crate) judge: Judge,
    pub(crate) sampler: Sampler,
    pub(crate) totals: Totals,
    /// The totals without the shutdown.
    pub(crate) final_totals: Totals,
    /// By instance.
    pub(crate) work: Vec<WorkCounts>,
    /// Waits above zero of all callers, served or not, in microseconds.
    waits: Histogram<u64>,
    /// How many callers did not wait.
    no_waits: u64,
}

/// The counts of one instance that its reservoir does not have.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WorkCounts {
    pub(crate) started: u64,
    pub(crate) completed: u64,
    pub(crate) limiter_denies: u64,
}

/// A caller that got a connection.
pub(crate) struct ServedCheckout {
    /// Callers of an instance are numbered in the order of their arrival.
    pub(crate) number: u64,
    pub(crate) session: u64,
    /// The instance lacked connections when the caller came.
    pub(crate) came_short: bool,
    pub(crate) waited: Duration,
    /// The connection's age in true time.
    pub(crate) age: Duration,
    /// The rest of its life by the reservoir's clock.
    pub(crate) remaining: Option<Duration>,
    pub(crate) alive: bool,
}

/// A caller that got an error.
pub(crate) struct FailedCheckout<'a> {
    pub(crate) number: u64,
    /// The instance lacked connections when the caller came.
    pub(crate) came_short: bool,
    pub(crate) waited: Duration,
    pub(crate) error: &'a CheckoutError,
}

/// Longer waits count as this, in microseconds: more than any caller waits.
const LONGEST_WAIT: u64 = 3_600_000_000;

impl EventSink {
    pub(crate) fn new(scenario: &Arc<Scenario>, start: Instant) -> Self {
        Self {
            trace: Trace::default(),
            judge: Judge::new(scenario, start),
            sampler: Sampler::new(start),
            totals: Totals::default(),
            final_totals: Totals::default(),
            work: vec![WorkCounts::default(); scenario.services.len()],
            waits: Histogram::new_with_max(LONGEST_WAIT, 3).expect("valid bounds"),
            no_waits: 0,
        }
    }

    pub(crate) fn connected(&mut self, instance: usize, now: Instant, refused: Option<&Refused>) {
        self.totals.connects += 1;
        self.sampler.connected(now);
        self.judge.connected(instance, now, refused);
        match refused {
            None => self.trace.add(TraceEvent::Connect, now, instance, 0),
            Some(refused) => {
                self.trace.add(TraceEvent::Refused, now, instance, refused.with as u64);
                self.totals.refused += u64::from(refused.by_limits);
                self.totals.refused_on_purpose += u64::from(!refused.by_limits);
            }
        }
    }

    pub(crate) fn opened(&mut self, instance: usize, now: Instant) {
        self.totals.opened += 1;
        self.trace.add(TraceEvent::Opened, now, instance, 0);
    }

    pub(crate) fn open_failed(&mut self, instance: usize, now: Instant, failure: Failure) {
        self.totals.open_failures[failure.index()] += 1;
        self.trace.add(TraceEvent::OpenFailed, now, instance, failure.index() as u64);
    }

    pub(crate) fn discarded(&mut self, instance: usize, now: Instant, reason: Discard) {
        self.totals.discards[reason.index()] += 1;
        self.sampler.discarded(reason);
        self.judge.discarded(now, reason);
        self.trace.add(TraceEvent::Discarded, now, instance, reason.index() as u64);
    }

    pub(crate) fn session_aged(&mut self, instance: usize, now: Instant) {
        self.trace.add(TraceEvent::SessionEnded, now, instance, 0);
        self.judge.outlived(instance, now);
    }

    /// A caller comes. Returns whether the instance lacks connections at that moment.
    pub(crate) fn work_started(&mut self, instance: usize) -> bool {
        self.work[instance].started += 1;
        self.judge.is_short(instance)
    }

    pub(crate) fn served(&mut self, instance: usize, now: Instant, served: &ServedCheckout) {
        self.totals.checkouts += 1;
        self.totals.waits += u64::from(!served.waited.is_zero());
        self.sampler.checkout(true, served.waited);
        self.waited(served.waited);
        if served.came_short && !served.waited.is_zero() {
            self.found_empty(instance, now, served.waited);
        }
        self.trace.add(TraceEvent::Served, now, instance, served.session);
        self.judge.served(instance, now, served);
    }

    pub(crate) fn returned(&mut self, instance: usize, now: Instant, session: u64, broken: bool) {
        self.work[instance].completed += 1;
        self.totals.broken_work += u64::from(broken);
        self.trace.add(TraceEvent::Returned, now, instance, session);
    }

    pub(crate) fn checkout_failed(&mut self, instance: usize, now: Instant, failed: &FailedCheckout<'_>) {
        match failed.error {
            CheckoutError::Empty { .. } => self.totals.failed_short += 1,
            _ => self.totals.exhausted += 1,
        }
        self.waited(failed.waited);
        if failed.came_short {
            self.found_empty(instance, now, failed.waited);
        }
        self.sampler.checkout(false, failed.waited);
        self.trace.add(TraceEvent::CheckoutFailed, now, instance, failed.number);
        self.judge.checkout_failed(instance, now, failed);
    }

    fn found_empty(&mut self, instance: usize, now: Instant, waited: Duration) {
        self.totals.empties += 1;
        self.judge.found_empty(instance, now, waited);
    }

    fn waited(&mut self, waited: Duration) {
        if waited.is_zero() {
            self.no_waits += 1;
        } else {
            let micros = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
            self.waits.saturating_record(micros.clamp(1, LONGEST_WAIT));
        }
    }

    pub(crate) fn instance_gone(&mut self, instance: usize, now: Instant) {
        self.trace.add(TraceEvent::Stopped, now, instance, 0);
        self.judge.instance_gone(instance);
    }

    pub(crate) fn fault_began(
        &mut self,
        name: String,
        instances: Option<Vec<usize>>,
        now: Instant,
    ) -> DisturbanceId {
        self.trace.add(TraceEvent::Fault, now, 0, name.len() as u64);
        self.judge.begin(name, instances, now)
    }

    /// The run is over; the shutdown follows.
    pub(crate) fn finish(&mut self, now: Instant) {
        self.judge.finish(now);
        self.final_totals = self.totals;
    }

    /// The waits of all callers, those of zero included, in microseconds.
    pub(crate) fn waits(&self) -> Histogram<u64> {
        let mut all = self.waits.clone();
        all.saturating_record_n(0, self.no_waits);
        all
    }
}
