//! A numbered slot for every connection of the reservoir.

use super::retirement::Period;
use super::waiter::WaiterId;
use crate::event::Discard;
use crate::time::Instant;

/// Identifies a connection as long as the reservoir owns it. A slot is reused under a new generation. So a
/// late report of a death does not affect the next connection in the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(super) index: u32,
    generation: u32,
}

/// The state of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotState {
    Vacant,
    /// Its connection is being opened.
    Opening,
    /// Its connection is ready, lent, or served to a waiter who has not picked it up. The ready stack knows
    /// which.
    ReadyOrLent,
    /// Its connection is being reset or checked.
    InMaintenance,
    /// Its connection was discarded: it is being closed, and its lease released.
    Closing,
}

/// A reason to handle a connection on the slow path when it is returned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark(u8);

impl Mark {
    /// It was reported dead while it was in use.
    pub(super) const DEAD: Self = Self(1);
    /// Its retirement is due. It is discarded once a replacement is ready.
    pub(super) const RETIRING: Self = Self(2);
    /// It became too old to be lent while it was in use.
    pub(super) const STALE: Self = Self(4);
    /// Its lease was recalled while it was in use.
    pub(super) const RECALLED: Self = Self(8);
    /// The application has retired it: it is discarded as soon as nobody uses it.
    pub(super) const RETIRED: Self = Self(16);
}

/// The marks of a connection in one byte, so that "none" is one comparison.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Marks(u8);

impl Marks {
    #[inline]
    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn has(self, mark: Mark) -> bool {
        self.0 & mark.0 != 0
    }

    pub(super) fn set(&mut self, mark: Mark) {
        self.0 |= mark.0;
    }

    /// Why a connection with these marks must be discarded, if so.
    pub(super) fn loss(self) -> Option<Discard> {
        if self.has(Mark::RECALLED) {
            Some(Discard::Recalled)
        } else if self.has(Mark::DEAD) {
            Some(Discard::Died)
        } else {
            self.has(Mark::RETIRED).then_some(Discard::Retired)
        }
    }
}

/// The bookkeeping of one connection. The fields that lending uses come first, in their own cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Slot {
    pub(super) marks: Marks,
    pub(super) state: SlotState,
    generation: u32,
    /// Its index in the ready stack, if it is there.
    pub(super) place: u32,
    /// The last waiter that was served this connection. It may have picked it up since.
    pub(super) served: Option<WaiterId>,
    /// From this time on, it is not lent.
    pub(super) stale_at: Instant,

    /// It was opened with `open_one`. The governor neither delays such an open nor pauses when it fails.
    pub(super) is_extra: bool,
    /// When its open began, and once it is open, when it was opened.
    pub(super) since: Instant,
    pub(super) expires_at: Instant,
    pub(super) retire_at: Instant,
    pub(super) period: Option<Period>,
    /// When it became ready. Kept only if idle times are needed.
    pub(super) idle_since: Instant,
    /// When the server was last known to answer on it: when it was opened, reset or checked.
    pub(super) heard_at: Instant,
    /// When the expiry task looks at it next. It is its key in `State::alarms`.
    pub(super) alarm: Instant,
}

#[derive(Debug)]
#[repr(C)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    vacant: Vec<u32>,
}

impl std::ops::Index<u32> for Slots {
    type Output = Slot;
    #[inline]
    fn index(&self, index: u32) -> &Slot {
        &self.slots[index as usize]
    }
}

impl std::ops::IndexMut<u32> for Slots {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut Slot {
        &mut self.slots[index as usize]
    }
}

impl Slots {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self { slots: Vec::with_capacity(capacity), vacant: Vec::with_capacity(capacity) }
    }

    /// The number of slots, occupied or not.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The number of occupied slots.
    pub(super) fn occupied(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    /// Takes a free slot for a connection that will be opened.
    pub(super) fn occupy(&mut self, now: Instant) -> Key {
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                stale_at: Instant::NEVER,
                place: 0,
                generation: 0,
                state: SlotState::Vacant,
                marks: Marks::default(),
                served: None,
                is_extra: false,
                since: now,
                expires_at: Instant::NEVER,
                retire_at: Instant::NEVER,
                period: None,
                idle_since: now,
                heard_at: now,
                alarm: Instant::NEVER,
            });
            u32::try_from(self.slots.len() - 1).expect("a reservoir owns at most a million connections")
        });
        let slot = &mut self[index];
        slot.state = SlotState::Opening;
        slot.is_extra = false;
        slot.since = now;
        self.key(index)
    }

    /// Frees a slot. Its key becomes invalid.
    pub(super) fn vacate(&mut self, index: u32) {
        let slot = &mut self[index];
        slot.state = SlotState::Vacant;
        slot.marks = Marks::default();
        slot.stale_at = Instant::NEVER;
        slot.generation = slot.generation.wrapping_add(1);
        self.vacant.push(index);
    }

    /// Forgets the booked periods, because a new schedule starts.
    pub(super) fn clear_periods(&mut self) {
        for slot in &mut self.slots {
            slot.period = None;
        }
    }

    /// The key of the connection in this slot.
    pub(super) fn key(&self, index: u32) -> Key {
        Key { index, generation: self[index].generation }
    }

    /// The slot of `key`, if the key is still valid.
    pub(super) fn resolve(&self, key: Key) -> Option<u32> {
        let slot = self.slots.get(key.index as usize)?;
        (slot.generation == key.generation && slot.state != SlotState::Vacant).then_some(key.index)
    }
}
