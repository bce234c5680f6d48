//! When the requests of a connection have waited too long for their answers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Context;
use std::time::Duration;

use forebay::Instant;
use forebay::rt::Runtime;

use super::protocol_state::ProtocolState;
use crate::driver::timer::Timer;

/// How long a caller waits for the answers of one connection. Any thread may set it.
#[derive(Debug)]
pub(crate) struct Limits {
    /// The longest time for one statement, in nanoseconds; `u64::MAX` for no limit.
    each: AtomicU64,
    /// When all statements end, in nanoseconds of the runtime's clock.
    until: AtomicU64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { each: AtomicU64::new(u64::MAX), until: AtomicU64::new(Instant::NEVER.as_nanos()) }
    }
}

impl Limits {
    /// Each statement may take so long; without a time, for ever. Ends what [`set_until`](Self::set_until) has set.
    pub(crate) fn set_each(&self, limit: Option<Duration>) {
        let nanos = limit.map_or(u64::MAX, |limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        self.each.store(nanos, Ordering::Relaxed);
        self.until.store(Instant::NEVER.as_nanos(), Ordering::Relaxed);
    }

    /// All statements end at this time, however long each takes.
    pub(crate) fn set_until(&self, at: Instant) {
        self.each.store(u64::MAX, Ordering::Relaxed);
        self.until.store(at.as_nanos(), Ordering::Relaxed);
    }

    /// Whether they are those of [`set_each`](Self::set_each) with this time.
    pub(crate) fn is_each(&self, limit: Option<Duration>) -> bool {
        let nanos = limit.map_or(u64::MAX, |limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        self.each.load(Ordering::Relaxed) == nanos && self.until() == Instant::NEVER
    }

    pub(super) fn until(&self) -> Instant {
        Instant::from_nanos(self.until.load(Ordering::Relaxed))
    }

    fn due_at(&self, since: Instant) -> Instant {
        (since + Duration::from_nanos(self.each.load(Ordering::Relaxed))).min(self.until())
    }
}

/// Watches how long the oldest request of a connection has been unanswered.
pub(super) struct Deadline {
    timer: Timer,
    /// When requests were sent that are unanswered, oldest first; of several sent at once, the last.
    sent: VecDeque<(u64, Instant)>,
    /// Since when a part of a request is still to be sent.
    partial_since: Option<Instant>,
    /// When the last of them was noted.
    noted_at: Instant,
    /// When the oldest request was found overdue in the middle of an answer.
    pub(super) overdue_since: Option<Instant>,
}

impl Deadline {
    pub(super) fn new(runtime: Arc<dyn Runtime>) -> Self {
        let (timer, sent, noted_at) = (Timer::new(runtime), VecDeque::new(), Instant::ZERO);
        Self { timer, sent, partial_since: None, noted_at, overdue_since: None }
    }

    fn now(&self) -> Instant {
        self.timer.now()
    }

    /// Whether this time has come. It costs nothing if there is none.
    pub(super) fn is_over(&self, until: Instant) -> bool {
        until != Instant::NEVER && self.now() >= until
    }

    /// Bytes have passed, or did not pass; `partial` is whether a part of a request is still to be sent.
    pub(super) fn note(&mut self, protocol: &ProtocolState, partial: bool) {
        let (newest, answered) = (protocol.newest_request(), protocol.answers_received());
        while self.sent.front().is_some_and(|(request, _)| *request <= answered) {
            self.sent.pop_front();
        }
        if newest > answered && self.sent.back().is_none_or(|(request, _)| *request < newest) {
            self.noted_at = self.now();
            // It began to wait when it could not be sent. A part that follows belongs to another request.
            self.sent.push_back((newest, self.partial_since.take().unwrap_or(self.noted_at)));
        }
        match (partial, self.partial_since) {
            (true, None) => {
                self.noted_at = self.now();
                self.partial_since = Some(self.noted_at);
            }
            (false, Some(_)) => self.partial_since = None,
            _ => {}
        }
        if self.sent.is_empty() && self.partial_since.is_none() {
            self.overdue_since = None;
        }
    }

    fn due_at(&self, limits: &Limits) -> Option<Instant> {
        let since = self.sent.front().map(|(_, since)| *since).or(self.partial_since)?;
        Some(limits.due_at(since)).filter(|due| *due != Instant::NEVER)
    }

    /// A request was just noted: the task is woken when it is overdue. It reads no clock.
    pub(super) fn watch(&mut self, limits: &Limits, context: &mut Context<'_>) {
        if let Some(due) = self.due_at(limits) {
            self.timer.wake_at(due, self.noted_at, context);
        }
    }

    /// Whether the oldest request should have been answered by now. If not, the task is woken when that is so.
    pub(super) fn is_due(&mut self, limits: &Limits, context: &mut Context<'_>) -> bool {
        let Some(due) = self.due_at(limits) else { return false };
        let now = self.now();
        let is_due = now >= due;
        if !is_due {
            self.timer.wake_at(due, now, context);
        }
        is_due
    }

    /// The oldest request is overdue, in the middle of an answer. Whether the rest of that may still come; if so, the task is woken
    /// when it may not any more.
    pub(super) fn may_end(&mut self, within: Duration, context: &mut Context<'_>) -> bool {
        let now = self.now();
        let end = *self.overdue_since.get_or_insert(now) + within;
        if now < end {
            self.timer.wake_at(end, now, context);
        }
        now < end
    }

    /// The requests so far are given up.
    pub(super) fn forget(&mut self) {
        self.sent.clear();
        (self.partial_since, self.overdue_since) = (None, None);
    }
}
