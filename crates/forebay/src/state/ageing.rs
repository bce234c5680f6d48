//! Alarms: what becomes due as connections get old or stay idle.

use std::time::Duration;

use super::slots::Mark;
use super::{BATCH, Discarded, Due, Effects, Lendable, State};
use crate::event::Discard;
use crate::time::Instant;

impl<E: Lendable> State<E> {
    /// When the next alarm is due.
    pub(crate) fn next_alarm(&self) -> Instant {
        if !self.checks.pending.is_empty() {
            return Instant::ZERO;
        }
        self.alarms.first().map_or(Instant::NEVER, |(at, _)| *at)
    }

    #[cfg(feature = "test-util")]
    /// When each alarm is due, in order.
    pub(crate) fn alarms(&self) -> impl Iterator<Item = Instant> {
        self.alarms.iter().map(|(at, _)| *at)
    }

    /// Handles up to [`BATCH`] alarms that are due, and adds the required actions to `due`. Returns whether
    /// there may be more. A connection that stays ready is not moved, so checkouts find it at any time.
    /// Suspects come first.
    pub(crate) fn fire_alarms(&mut self, now: Instant, due: &mut Vec<Due<E>>) -> bool {
        if !self.checks.pending.is_empty() {
            self.start_checks(now, due);
            return true;
        }
        for _ in 0..BATCH {
            match self.alarms.first() {
                Some(&(at, index)) if at <= now => {
                    self.alarms.pop_first();
                    if let Some(asked) = self.fire_alarm(index, now) {
                        due.push(asked);
                    }
                }
                _ => return false,
            }
        }
        true
    }

    pub(super) fn fire_alarm(&mut self, index: u32, now: Instant) -> Option<Due<E>> {
        let ready = self.ready.holds(&self.slots, index);
        if self.slots[index].stale_at <= now {
            let expired = self.slots[index].expires_at <= now;
            let reason = if expired { Discard::ExpiredOnScan } else { Discard::ExpiringOnScan };
            if ready {
                return Some(Due::Discard(self.evict(index, reason, now)));
            }
            if let Some(entry) = self.take_back(index) {
                return Some(Due::Discard(self.discard(entry, reason, now)));
            }
            self.slots[index].marks.set(Mark::STALE);
        }
        let slot = &mut self.slots[index];
        if slot.retire_at <= now && !slot.marks.has(Mark::RETIRING) {
            slot.marks.set(Mark::RETIRING);
            self.retiring.insert((slot.stale_at, index));
            if let (Some(lives), Some(period)) = (&mut self.lives, slot.period.take()) {
                lives.free(period);
            }
            if ready && self.may_retire(self.busy()) {
                return Some(Due::Discard(self.evict(index, Discard::Retired, now)));
            }
            self.notify_refill();
        }
        let slot = &mut self.slots[index];
        if ready && self.ready.len() > self.keep_ready && since(slot.idle_since, self.idle_timeout) <= now {
            return Some(Due::Discard(self.evict(index, Discard::Idle, now)));
        }
        if ready && self.checks.is_suspect(slot.heard_at, now) {
            let entry = self.ready.remove(&mut self.slots, index);
            let entry = self.start_maintenance(entry);
            self.arm(index, now);
            return Some(Due::Check(entry));
        }
        self.arm(index, now);
        None
    }

    /// Sets the alarm of a usable connection to the next time at which something can be due. Idle times move
    /// while a connection is used. They are checked at the earliest possible time, and the alarm is set
    /// again.
    pub(super) fn arm(&mut self, index: u32, now: Instant) {
        let ready = self.ready.holds(&self.slots, index);
        let slot = &mut self.slots[index];
        let idle_since = if ready { slot.idle_since } else { now };
        let retirement =
            if slot.marks.has(Mark::RETIRING) { slot.stale_at } else { slot.retire_at.min(slot.stale_at) };
        let idle = since(idle_since, self.idle_timeout);
        let check = since(slot.heard_at, self.checks.after);
        // What is not possible now (too few are ready, or it is lent) must not be due again at once.
        let later = |at: Instant, again: Option<Duration>| if at <= now { since(now, again) } else { at };
        let retirement = if retirement <= now { Instant::NEVER } else { retirement };
        slot.alarm = retirement.min(later(idle, self.idle_timeout)).min(later(check, self.checks.after));
        let alarm = slot.alarm;
        if alarm < self.next_alarm() {
            self.effects.add(Effects::EXPIRY);
        }
        self.alarms.insert((alarm, index));
    }

    /// Whether a retiring connection can be discarded: its replacement is ready, or none is needed. Without
    /// an overlap, it can be discarded if no other replacement is pending.
    pub(super) fn may_retire(&self, busy: usize) -> bool {
        let (usable, goal) = (self.usable(), self.goal(busy));
        usable > goal || (self.overlap == 0 && usable >= goal && self.opening == 0)
    }

    /// Discards the ready connection that becomes stale first among those that are retiring, if one may be
    /// retired.
    pub(super) fn retire_one(&mut self, now: Instant) -> Option<Discarded<E>> {
        if self.retiring.is_empty() || !self.may_retire(self.busy()) {
            return None;
        }
        self.discard_retiring(now)
    }

    pub(super) fn discard_retiring(&mut self, now: Instant) -> Option<Discarded<E>> {
        let (_, index) = *self.retiring.iter().find(|(_, index)| self.ready.holds(&self.slots, *index))?;
        Some(self.evict(index, Discard::Retired, now))
    }
}

/// The time `after` past `start`. Never, if `after` is `None`.
fn since(start: Instant, after: Option<Duration>) -> Instant {
    after.map_or(Instant::NEVER, |after| start + after)
}
