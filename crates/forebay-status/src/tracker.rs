//! Follows a pool from sample to sample, and notices what changed.

use forebay::{CheckoutFailure, Discard, Failure, Instant};

use crate::change::Change;
use crate::sample::{Sample, Totals};

type MakeChange = fn(u64) -> Change;

/// Why connections are discarded, and the change that tells it. Retirements and a drain are routine.
const DISCARDS: [(&[Discard], MakeChange); 7] = [
    (&[Discard::Died], |count| Change::Died { count }),
    (&[Discard::Bad], |count| Change::Bad { count }),
    (&[Discard::ResetFailed], |count| Change::ResetFailed { count }),
    (
        &[
            Discard::GuardWindow,
            Discard::ExpiredOnCheckout,
            Discard::ExpiredOnReturn,
            Discard::ExpiredOnScan,
            Discard::ExpiringOnScan,
        ],
        |count| Change::Expired { count },
    ),
    (&[Discard::Idle], |count| Change::Idle { count }),
    (&[Discard::Full], |count| Change::Surplus { count }),
    (&[Discard::Recalled], |count| Change::Recalled { count }),
];

/// What the page knows about a pool beyond its last sample.
#[derive(Debug, Default)]
pub(crate) struct Tracker {
    last: Option<Sample>,
    has_filled: bool,
    is_gone: bool,
    /// Since when fewer connections than the low watermark are usable.
    below_since: Option<Instant>,
    /// Since when connections are missing, if it fell below the low watermark meanwhile.
    refilling_since: Option<Instant>,
    /// Since when the table of the fleet does not answer.
    outage_since: Option<Instant>,
}

impl Tracker {
    /// Whether it has reached its low watermark.
    pub(crate) fn has_filled(&self) -> bool {
        self.has_filled
    }

    /// The last sample. `None` if the pool was gone before the first.
    pub(crate) fn last(&self) -> Option<&Sample> {
        self.last.as_ref()
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// The pool is gone.
    pub(crate) fn gone(&mut self) -> Vec<Change> {
        let was_known = !std::mem::replace(&mut self.is_gone, true);
        let was_closed = self.last.as_ref().is_some_and(|last| last.levels.closed && last.levels.left() == 0);
        if was_known && !was_closed { vec![Change::Closed] } else { Vec::new() }
    }

    /// Takes the next sample, and returns what changed, in the order in which it is told.
    pub(crate) fn next(&mut self, sample: Sample) -> Vec<Change> {
        let mut changes = Vec::new();
        let last = self.last.take();
        if let Some(last) = &last {
            counted(last, &sample, &mut changes);
            limits(last, &sample, &mut changes);
        }
        self.watermark(last.as_ref(), &sample, &mut changes);
        self.fleet(&sample, &mut changes);
        if let Some(last) = &last {
            closing(last, &sample, &mut changes);
        }
        self.last = Some(sample);
        changes
    }

    fn watermark(&mut self, last: Option<&Sample>, sample: &Sample, changes: &mut Vec<Change>) {
        let (levels, now) = (&sample.levels, sample.at);
        let usable = levels.usable();
        if levels.closed {
            (self.below_since, self.refilling_since) = (None, None);
            return;
        }
        if !self.has_filled {
            if !levels.is_below_watermark() {
                self.has_filled = true;
                // A pool that was full when it was added has nothing to tell.
                if last.is_some() {
                    changes.push(Change::Filled { usable, goal: levels.goal() });
                }
            }
            return;
        }
        match (levels.is_below_watermark(), self.below_since) {
            (true, None) => {
                self.below_since = Some(now);
                self.refilling_since.get_or_insert(now);
                let (max_open, watermark) = (levels.max_open, levels.low_watermark);
                changes.push(Change::BelowWatermark { usable, max_open, watermark });
            }
            (false, Some(since)) => {
                self.below_since = None;
                if levels.lacking() > 0 {
                    changes.push(Change::AboveWatermark { usable, after: now.since(since) });
                }
            }
            _ => {}
        }
        if levels.lacking() == 0
            && let Some(since) = self.refilling_since.take()
        {
            changes.push(Change::Refilled { after: now.since(since) });
        }
    }

    fn fleet(&mut self, sample: &Sample, changes: &mut Vec<Change>) {
        let out = sample.fleet.as_ref().is_some_and(|fleet| fleet.outage.is_some());
        match (out, self.outage_since) {
            (true, None) => {
                self.outage_since = Some(sample.at);
                changes.push(Change::StoreOutage);
            }
            (false, Some(since)) => {
                self.outage_since = None;
                changes.push(Change::StoreBack { after: sample.at.since(since) });
            }
            _ => {}
        }
    }
}

/// What the counters tell.
fn counted(last: &Sample, sample: &Sample, changes: &mut Vec<Change>) {
    let (before, after) = (&last.totals, &sample.totals);
    let mut add = |growth: u64, change: &dyn Fn(u64) -> Change| {
        if growth > 0 {
            changes.push(change(growth));
        }
    };
    let growth = |read: &dyn Fn(&Totals) -> u64| read(after).saturating_sub(read(before));
    for (reasons, change) in DISCARDS {
        add(growth(&|totals| totals.discards(reasons)), &change);
    }
    add(growth(&|totals| totals.detached), &|count| Change::Detached { count });
    for reason in Failure::ALL {
        let said = sample.refill.last_failure.as_ref().filter(|failure| failure.reason == reason);
        let text = said.map(|failure| failure.text.clone());
        add(growth(&|totals| totals.open_failures[reason.index()]), &|count| Change::OpensFailed {
            count,
            reason,
            text: text.clone(),
        });
    }
    let missing = last.levels.lacking() > 0 || sample.levels.lacking() > 0;
    if missing {
        add(growth(&|totals| totals.opened), &|count| Change::Opened { count });
    }
    add(growth(&|totals| totals.waits), &|count| Change::Waited { count, all_in_use: !missing });
    for reason in CheckoutFailure::ALL {
        add(growth(&|totals| totals.checkout_failures[reason.index()]), &|count| Change::GaveUp {
            count,
            reason,
        });
    }
}

/// What the settings, the limiter and the token tell.
fn limits(last: &Sample, sample: &Sample, changes: &mut Vec<Change>) {
    let (from, to) = (last.levels.max_open, sample.levels.max_open);
    if from != to {
        changes.push(Change::Resized { from, to });
    }
    let is_slow = |sample: &Sample| sample.refill.rate_share < 0.995;
    match (is_slow(last), is_slow(sample)) {
        (false, true) => {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of 100")]
            let percent = (sample.refill.rate_share.clamp(0.0, 1.0) * 100.0).round() as u8;
            changes.push(Change::Slowed { percent });
        }
        (true, false) => changes.push(Change::FullRate),
        _ => {}
    }
    let has_failed = |sample: &Sample| sample.token.is_some_and(|token| token.failures > 0);
    match (has_failed(last), has_failed(sample)) {
        (false, true) => changes.push(Change::TokenFailed),
        (true, false) => changes.push(Change::TokenBack),
        _ => {}
    }
}

/// The end of a pool.
fn closing(last: &Sample, sample: &Sample, changes: &mut Vec<Change>) {
    if !sample.levels.closed {
        return;
    }
    let left = sample.levels.left();
    if !last.levels.closed && left > 0 {
        changes.push(Change::Draining { in_use: sample.levels.in_use });
    } else if left == 0 && (!last.levels.closed || last.levels.left() > 0) {
        changes.push(Change::Closed);
    }
}

#[cfg(test)]
mod tests;
