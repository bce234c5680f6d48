//! A set_instance_index place for every connection the reservoir owns.

use super::retirement::Period;
use super::waiter::WaiterId;
use crate::event::Discard;
use crate::time::Instant;

/// Names one connection for as long as it is owned. A slot is used again under another generation, so that late
/// word of a connection's death does not kill its successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(super) index: u32,
    generation: u32,
}

/// Where a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotState {
    /// Nowhere: the slot is free.
    Vacant,
    /// On its way.
    Opening,
    /// Ready, with a caller, or with a waiter who has not picked it up yet. Which of them, the ready stack tells.
    ReadyOrLent,
    /// Being reset or checked.
    InMaintenance,
    /// Discarded; closing, then releasing its lease.
    Closing,
}

/// Something that must be seen to when a connection comes back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark(u8);

impl Mark {
    /// Reported dead while it could not be discarded.
    pub(super) const DEAD: Self = Self(1);
    /// Past its booked retirement: it goes as soon as a replacement is there.
    pub(super) const RETIRING: Self = Self(2);
    /// Too old to be handed out, found while it was in somebody's hands.
    pub(super) const STALE: Self = Self(4);
    /// Its lease was taken back while it could not be discarded.
    pub(super) const RECALLED: Self = Self(8);
}

/// All marks of a connection, as one byte: whether there is any is one comparison.
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

    /// Why a connection with these marks is of no use, if it is.
    pub(super) fn loss(self) -> Option<Discard> {
        if self.has(Mark::RECALLED) {
            Some(Discard::Recalled)
        } else {
            self.has(Mark::DEAD).then_some(Discard::Died)
        }
    }
}

/// What is known of one connection. What lending it touches comes first, in a cache line of its own.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Slot {
    pub(super) marks: Marks,
    pub(super) state: SlotState,
    generation: u32,
    /// Its place in the ready stack, if it is there.
    pub(super) place: u32,
    /// The caller that was served this connection last. It may have picked it up since.
    pub(super) served: Option<WaiterId>,
    /// From here on it is not handed out.
    pub(super) stale_at: Instant,

    /// Its open was asked for with `open_one`. The governor neither holds such an open back nor pauses when it fails.
    pub(super) is_extra: bool,
    /// When its open began.
    pub(super) began_at: Instant,
    pub(super) expires_at: Instant,
    pub(super) retire_at: Instant,
    pub(super) period: Option<Period>,
    /// When it last became ready. Kept only if idle time matters.
    pub(super) idle_since: Instant,
    pub(super) checked_at: Instant,
    /// When the expiry task looks at it next; its entry among the alarms.
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
    /// Room for `capacity` before it must grow.
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self { slots: Vec::with_capacity(capacity), vacant: Vec::with_capacity(capacity) }
    }

    /// How many there are, in use or not.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// How many are in use.
    pub(super) fn occupied(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    /// Takes a free slot for a connection that is about to be opened.
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
                began_at: now,
                expires_at: Instant::NEVER,
                retire_at: Instant::NEVER,
                period: None,
                idle_since: now,
                checked_at: now,
                alarm: Instant::NEVER,
            });
            u32::try_from(self.slots.len() - 1).expect("a reservoir owns at most a million connections")
        });
        let slot = &mut self[index];
        slot.state = SlotState::Opening;
        slot.is_extra = false;
        slot.began_at = now;
        self.key(index)
    }

    /// Frees a slot. Its key is no longer good for anything.
    pub(super) fn vacate(&mut self, index: u32) {
        let slot = &mut self[index];
        slot.state = SlotState::Vacant;
        slot.marks = Marks::default();
        slot.stale_at = Instant::NEVER;
        slot.generation = slot.generation.wrapping_add(1);
        self.vacant.push(index);
    }

    /// A new schedule begins: the old one's periods mean nothing in it.
    pub(super) fn clear_periods(&mut self) {
        for slot in &mut self.slots {
            slot.period = None;
        }
    }

    /// The name of the connection in this slot.
    pub(super) fn key(&self, index: u32) -> Key {
        Key { index, generation: self[index].generation }
    }

    /// The slot that `key` names, if it still does.
    pub(super) fn resolve(&self, key: Key) -> Option<u32> {
        let slot = self.slots.get(key.index as usize)?;
        (slot.generation == key.generation && slot.state != SlotState::Vacant).then_some(key.index)
    }
}
