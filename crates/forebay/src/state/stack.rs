//! Connections that are ready: a stack, from whose middle one can be taken too.

use super::slots::Slots;
use crate::time::Instant;

/// What came back last goes out first, so that surplus connections stay idle.
///
/// Each slot knows its place in the stack. The place is not cleared when a connection is popped, which saves the fast
/// path a write: a slot is in the stack if the place it names holds it.
#[derive(Debug)]
pub(super) struct Stack<E>(Vec<Ready<E>>);

#[derive(Debug)]
struct Ready<E> {
    entry: E,
    stale_at: Instant,
    index: u32,
}

impl<E> Stack<E> {
    /// Room for `capacity` before it must grow.
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self(Vec::with_capacity(capacity))
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes the top one, if it can be handed out at `now`.
    #[inline]
    pub(super) fn pop_fresh(&mut self, now: Instant) -> Option<E> {
        if self.0.last()?.stale_at <= now {
            return None;
        }
        self.0.pop().map(|top| top.entry)
    }

    /// Takes the top one, whatever its age.
    pub(super) fn pop(&mut self) -> Option<(u32, E)> {
        self.0.pop().map(|top| (top.index, top.entry))
    }

    #[inline]
    pub(super) fn push(&mut self, slots: &mut Slots, index: u32, entry: E) {
        let slot = &mut slots[index];
        #[allow(clippy::cast_possible_truncation, reason = "a reservoir owns at most a million connections")]
        let place = self.0.len() as u32;
        slot.place = place;
        self.0.push(Ready { entry, stale_at: slot.stale_at, index });
    }

    /// Whether the connection of this slot is in here.
    pub(super) fn holds(&self, slots: &Slots, index: u32) -> bool {
        self.0.get(slots[index].place as usize).is_some_and(|ready| ready.index == index)
    }

    /// Takes the connection of this slot, which must be in here. The top one takes its place.
    pub(super) fn remove(&mut self, slots: &mut Slots, index: u32) -> E {
        let place = slots[index].place;
        let removed = self.0.swap_remove(place as usize);
        if let Some(moved) = self.0.get(place as usize) {
            slots[moved.index].place = place;
        }
        removed.entry
    }
}
