//! Reads what a page for operators shows. It changes nothing.

use std::time::Duration;

use super::slots::SlotState;
use super::{Lendable, SCAN, State};
use crate::inspection::{ConnectionPhase, ConnectionStatus};
use crate::time::Instant;

/// What the state knows about the refill.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Refilling {
    pub(crate) missing: usize,
    pub(crate) paused_for: Option<Duration>,
    pub(crate) rate_share: f64,
}

impl<E: Lendable> State<E> {
    /// Adds the usable connections in the slots from `first` on to `list`. Returns the slot to continue with.
    pub(crate) fn list_connections(
        &self,
        first: usize,
        now: Instant,
        list: &mut Vec<ConnectionStatus>,
    ) -> Option<usize> {
        let end = self.slots.len().min(first.saturating_add(SCAN));
        for index in first..end {
            let Ok(index) = u32::try_from(index) else { return None };
            let slot = &self.slots[index];
            let phase = match slot.state {
                SlotState::ReadyOrLent if self.ready.holds(&self.slots, index) => ConnectionPhase::Ready,
                SlotState::ReadyOrLent => ConnectionPhase::InUse,
                SlotState::InMaintenance => ConnectionPhase::InMaintenance,
                SlotState::Vacant | SlotState::Opening | SlotState::Closing => continue,
            };
            let until = |at: Instant| (at != Instant::NEVER).then(|| at.since(now));
            list.push(ConnectionStatus {
                phase,
                age: now.since(slot.since),
                retires_in: until(slot.retire_at),
                stale_in: until(slot.stale_at),
                expires_in: until(slot.expires_at),
            });
        }
        (end < self.slots.len()).then_some(end)
    }

    pub(crate) fn refilling(&self, now: Instant) -> Refilling {
        Refilling {
            missing: if self.closed { 0 } else { self.wanted() },
            paused_for: self.governor.paused_for(now),
            rate_share: self.governor.rate_share(),
        }
    }
}
