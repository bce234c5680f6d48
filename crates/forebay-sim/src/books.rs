//! One place that hears of every event, in order: it traces, judges and records.

use std::sync::Arc;
use std::time::Duration;

use forebay::{CheckoutError, Discard, Failure, Instant, Status};
use hdrhistogram::Histogram;

use crate::judge::{Judge, WindowId};
use crate::record::Record;
use crate::scenario::Scenario;
use crate::trace::{Mark, Trace};
use crate::world::Refused;

pub(crate) struct Books {
    pub(crate) trace: Trace,
    pub(crate) judge: Judge,
    pub(crate) record: Record,
    totals: Totals,
    counted: Option<Totals>,
    /// What each instance's callers did.
    pub(crate) work: Vec<Work>,
    /// Waits of all callers, served or not, in microseconds; those without a wait are only counted, and added at the end.
    waits: Histogram<u64>,
    at_once: u64,
}

/// What happened in all.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) connects: u64,
    pub(crate) refused_by_limits: u64,
    pub(crate) refused_on_purpose: u64,
    pub(crate) opened: u64,
    pub(crate) open_failures: [u64; Failure::ALL.len()],
    pub(crate) checkouts: u64,
    pub(crate) waits: u64,
    /// Callers who found nothing ready in an instance that lacked connections.
    pub(crate) empty: u64,
    /// Callers who got nothing, while it lacked connections,
    pub(crate) failed_short: u64,
    /// and while it did not.
    pub(crate) exhausted: u64,
    pub(crate) discards: [u64; Discard::ALL.len()],
    pub(crate) broken_work: u64,
    /// Connections that went down with their instance.
    pub(crate) crashed: u64,
}

/// What the callers of one instance did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    pub(crate) started: u64,
    pub(crate) completed: u64,
    pub(crate) limiter_denies: u64,
}

/// The longest wait that is told apart: more than any caller's patience.
const LONGEST_WAIT: u64 = 3_600_000_000;

impl Books {
    pub(crate) fn new(scenario: &Arc<Scenario>, start: Instant) -> Self {
        Self {
            trace: Trace::default(),
            judge: Judge::new(scenario, start),
            record: Record::new(start),
            totals: Totals::default(),
            counted: None,
            work: vec![Work::default(); scenario.services.len()],
            waits: Histogram::new_with_max(LONGEST_WAIT, 3).expect("bounds that make sense"),
            at_once: 0,
        }
    }

    pub(crate) fn connected(&mut self, place: usize, now: Instant, refused: Option<&Refused>) {
        self.totals.connects += 1;
        self.record.connected(now);
        self.judge.connected(place, now, refused);
        match refused {
            None => self.trace.add(Mark::Connect, now, place, 0),
            Some(refused) => {
                self.trace.add(Mark::Refused, now, place, refused.with as u64);
                let count = if refused.by_limits {
                    &mut self.totals.refused_by_limits
                } else {
                    &mut self.totals.refused_on_purpose
                };
                *count += 1;
            }
        }
    }

    pub(crate) fn denied(&mut self, place: usize) {
        self.work[place].limiter_denies += 1;
    }

    pub(crate) fn opened(&mut self, place: usize, now: Instant) {
        self.totals.opened += 1;
        self.trace.add(Mark::Opened, now, place, 0);
    }

    pub(crate) fn open_failed(&mut self, place: usize, now: Instant, failure: Failure) {
        self.totals.open_failures[failure.index()] += 1;
        self.trace.add(Mark::OpenFailed, now, place, failure.index() as u64);
    }

    pub(crate) fn discarded(&mut self, place: usize, now: Instant, reason: Discard) {
        self.totals.discards[reason.index()] += 1;
        self.record.discarded(reason);
        self.judge.discarded(now, reason);
        self.trace.add(Mark::Discarded, now, place, reason.index() as u64);
    }

    pub(crate) fn looked(&mut self, place: usize, now: Instant, status: &Status, sessions: usize) {
        self.judge.look(place, now, status, sessions);
    }

    pub(crate) fn session_aged(&mut self, place: usize, now: Instant) {
        self.trace.add(Mark::SessionEnded, now, place, 0);
        self.judge.outlived(place, now);
    }

    /// A caller comes. Whether the instance lacks connections then.
    pub(crate) fn work_started(&mut self, place: usize) -> bool {
        self.work[place].started += 1;
        self.judge.is_short(place)
    }

    fn found_empty(&mut self, place: usize, now: Instant, waited: Duration) {
        self.totals.empty += 1;
        self.judge.found_empty(place, now, waited);
    }

    pub(crate) fn lent(&mut self, place: usize, now: Instant, loan: &Loan) {
        self.totals.checkouts += 1;
        self.totals.waits += u64::from(!loan.waited.is_zero());
        self.record.lent(loan.waited);
        self.waited(loan.waited);
        if loan.came_short && !loan.waited.is_zero() {
            self.found_empty(place, now, loan.waited);
        }
        self.trace.add(Mark::Lent, now, place, loan.session);
        self.judge.lent(place, now, loan);
    }

    pub(crate) fn returned(&mut self, place: usize, now: Instant, session: u64, broken: bool) {
        self.work[place].completed += 1;
        self.totals.broken_work += u64::from(broken);
        self.trace.add(Mark::Returned, now, place, session);
    }

    fn waited(&mut self, waited: Duration) {
        if waited.is_zero() {
            self.at_once += 1;
        } else {
            let micros = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
            self.waits.saturating_record(micros.clamp(1, LONGEST_WAIT));
        }
    }

    pub(crate) fn checkout_failed(&mut self, place: usize, now: Instant, plight: &Plight<'_>) {
        match plight.error {
            CheckoutError::Empty { .. } => self.totals.failed_short += 1,
            _ => self.totals.exhausted += 1,
        }
        self.waited(plight.waited);
        if plight.came_short {
            self.found_empty(place, now, plight.waited);
        }
        self.record.failed(plight.waited);
        self.trace.add(Mark::CheckoutFailed, now, place, plight.number);
        self.judge.checkout_failed(place, now, plight);
    }

    pub(crate) fn instance_started(&mut self, place: usize, now: Instant) {
        self.trace.add(Mark::Started, now, place, 0);
    }

    pub(crate) fn instance_gone(&mut self, place: usize, now: Instant) {
        self.trace.add(Mark::Stopped, now, place, 0);
        self.judge.vanished(place);
    }

    pub(crate) fn crashed(&mut self, connections: usize) {
        self.totals.crashed += connections as u64;
    }

    /// The run is over; what follows is the shutting down, and not counted.
    pub(crate) fn finish(&mut self, now: Instant) {
        self.judge.finish(now);
        self.counted = Some(self.totals);
    }

    /// What happened until the run was over.
    pub(crate) fn counted(&self) -> Totals {
        self.counted.unwrap_or(self.totals)
    }

    pub(crate) fn struck(&mut self, name: String, whom: Option<Vec<usize>>, now: Instant) -> WindowId {
        self.trace.add(Mark::Strike, now, 0, name.len() as u64);
        self.judge.begin(name, whom, now)
    }

    /// The waits of all callers, those of zero included, in microseconds.
    pub(crate) fn waits(&self) -> Histogram<u64> {
        let mut all = self.waits.clone();
        all.saturating_record_n(0, self.at_once);
        all
    }
}

/// A connection in a caller's hands.
pub(crate) struct Loan {
    /// Which caller of its instance this is.
    pub(crate) number: u64,
    pub(crate) session: u64,
    /// The instance lacked connections when it came.
    pub(crate) came_short: bool,
    pub(crate) waited: Duration,
    /// How old it is, by true time,
    pub(crate) age: Duration,
    /// and how much is left of it, by its reservoir's.
    pub(crate) remaining: Option<Duration>,
    pub(crate) alive: bool,
}

/// A caller who got nothing.
pub(crate) struct Plight<'a> {
    /// Which caller of its instance this is.
    pub(crate) number: u64,
    /// The instance lacked connections when it came.
    pub(crate) came_short: bool,
    pub(crate) waited: Duration,
    pub(crate) error: &'a CheckoutError,
}
