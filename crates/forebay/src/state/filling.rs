//! Opens: how many are needed, and what follows from each outcome.

use std::time::Duration;

use super::governor::MayStart;
use super::lives::{Life, Lives};
use super::slots::SlotState;
use super::{BATCH, Condition, Discarded, Effects, Key, Lendable, Placement, Refill, State};
use crate::event::Failure;
use crate::limit::Pace;
use crate::sabotage::{self, Sabotage};
use crate::time::Instant;

impl<E: Lendable> State<E> {
    /// Returns the next step of the refill task. `Open` reserves a slot.
    pub(crate) fn next_open(&mut self, now: Instant, pace: Pace) -> Refill {
        self.refill_notified = false;
        if self.closed {
            return Refill::Closed;
        }
        if self.wanted() == 0 {
            return Refill::Wait(Instant::NEVER);
        }
        match self.governor.may_start(now, pace, self.opening) {
            MayStart::At(at) => Refill::Wait(at),
            MayStart::Now => {
                self.governor.started(now, pace);
                self.opening += 1;
                Refill::Open(self.slots.occupy(now))
            }
        }
    }

    /// How many more opens are needed. Enough connections must be left when the retiring ones are gone, as
    /// far as the overlap has room for both.
    pub(super) fn wanted(&self) -> usize {
        let retiring = self.retiring.len();
        let left = self.usable() - retiring;
        let wanted = self.goal(self.busy() - self.retiring_in_use()).saturating_sub(left + self.opening);
        wanted.min(self.capacity_with_overlap().saturating_sub(self.usable() + self.opening))
    }

    /// How many retiring connections are in use. They need no replacement unless callers wait. It examines
    /// only the first few, since the number matters only if few connections are kept ready.
    fn retiring_in_use(&self) -> usize {
        if self.keep_ready >= self.max_open {
            return 0;
        }
        self.retiring.iter().take(BATCH).filter(|(_, index)| !self.ready.holds(&self.slots, *index)).count()
    }

    /// How many connections should be usable while `busy` are in use, without replacements for retiring ones.
    pub(super) fn goal(&self, busy: usize) -> usize {
        let asked = self.waiters.len().max(usize::from(self.refused_since_denial));
        (busy + self.keep_ready.max(asked)).min(self.capacity())
    }

    /// Notifies the refill task if it is needed and was not notified yet.
    pub(super) fn refill_if_wanted(&mut self) {
        let has_room = self.usable() + self.opening < self.capacity_with_overlap();
        if has_room && !self.refill_notified && !self.closed && self.wanted() > 0 {
            self.notify_refill();
        }
    }

    pub(super) fn notify_refill(&mut self) {
        self.refill_notified = true;
        self.effects.add(Effects::REFILL);
    }

    /// Draws the lifetime of a connection that was just opened.
    pub(crate) fn draw_life(&mut self, now: Instant) -> Life {
        let Some(Lives { lifetime, rng, .. }) = &mut self.lives else {
            return Life { born_at: now, stale_at: Instant::NEVER, expires_at: Instant::NEVER };
        };
        let expires_at = now + lifetime.shortest() + rng.up_to(lifetime.jitter);
        let guard = if sabotage::is_on(Sabotage::GuardWindow) { Duration::ZERO } else { lifetime.guard };
        Life { born_at: now, stale_at: expires_at - guard, expires_at }
    }

    /// Sets the number of this process in its fleet. Later retirements use its phase.
    pub(crate) fn set_instance_index(&mut self, number: u64) {
        let connections = self.max_open;
        if self.lives.as_mut().is_some_and(|lives| lives.set_instance_index(number, connections)) {
            // As after a resize: booked retirements stay, and their periods do not exist in the new schedule.
            self.slots.clear_periods();
        }
    }

    /// Reserves a slot for a connection that no caller waits for. `None` if there is no room, or if the
    /// reservoir is closed.
    pub(crate) fn open_one(&mut self, now: Instant) -> Option<Key> {
        let has_room = self.usable() + self.opening < self.capacity();
        (has_room && !self.closed).then(|| {
            self.opening += 1;
            let key = self.slots.occupy(now);
            self.slots[key.index].is_extra = true;
            key
        })
    }

    /// A connection was opened. Also returns a connection that it replaces, if there is one.
    pub(crate) fn opened(
        &mut self,
        entry: E,
        life: Life,
        took: Duration,
        now: Instant,
    ) -> (Placement<E>, Option<Discarded<E>>) {
        let index = entry.key().index;
        self.opening -= 1;
        self.ready_or_lent += 1;
        self.counts.refills += 1;
        self.denied = false;
        self.refused_since_denial = false;
        self.governor.succeeded(now, took);
        let slot = &mut self.slots[index];
        if slot.is_extra {
            self.governor.end_pause(now);
        }
        slot.state = SlotState::ReadyOrLent;
        slot.since = life.born_at;
        slot.stale_at = life.stale_at;
        slot.expires_at = life.expires_at;
        slot.idle_since = now;
        slot.heard_at = now;
        (slot.retire_at, slot.period) = match &mut self.lives {
            None => (Instant::NEVER, None),
            Some(lives) => lives.book(now, life.stale_at),
        };
        self.arm(index, now);
        let placed = self.place(entry, Condition::Clean, now);
        let replaced = self.retire_one(now);
        self.recount(now);
        // Fewer opens are in flight, so another one may start.
        self.notify_refill();
        (placed, replaced)
    }

    /// An open failed; `permanent` means that waiting does not fix it. If a lease must still be released
    /// (`releasing`), the slot remains occupied until then. Returns the number of failures in a row, the
    /// pause that follows, and a connection to close so that its lease becomes free.
    pub(crate) fn open_failed(
        &mut self,
        key: Key,
        failure: Failure,
        permanent: bool,
        releasing: bool,
        now: Instant,
    ) -> (u32, Duration, Option<Discarded<E>>) {
        self.opening -= 1;
        self.counts.failures[failure.index()] += 1;
        self.denied = permanent;
        // A start that waits must see a denial at once, not when the lease is released.
        self.effects.add(Effects::PROGRESS);
        self.refused_since_denial = false;
        self.end_waits_if_denied();
        let (began, is_extra) = (self.slots[key.index].since, self.slots[key.index].is_extra);
        self.set_aside(key.index, releasing);
        // The limit of the fleet leaves no room for an overlap: close one connection first, then open its
        // replacement.
        let first = failure == Failure::LeaseLimit && self.opening == 0;
        let closed_first = if first { self.discard_retiring(now) } else { None };
        let (attempt, pause) = match closed_first {
            Some(_) => self.governor.made_room(now),
            None if is_extra => (1, Duration::ZERO),
            None => self.governor.failed(now, began, failure),
        };
        self.notify_refill();
        (attempt, pause, closed_first)
    }

    /// An open was abandoned because the reservoir was closed.
    pub(crate) fn open_abandoned(&mut self, key: Key, releasing: bool) {
        self.opening -= 1;
        self.set_aside(key.index, releasing);
        self.notify_refill();
    }

    pub(super) fn set_aside(&mut self, index: u32, releasing: bool) {
        if releasing {
            self.slots[index].state = SlotState::Closing;
        } else {
            self.vacate(index);
        }
    }
}
