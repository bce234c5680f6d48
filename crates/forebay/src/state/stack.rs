//! The ready connections: a stack that also allows removal from the middle.

use super::Lendable;
use super::slots::Slots;
use crate::time::Instant;

/// The last connection that was returned is lent first, so that surplus connections stay idle.
///
/// Each slot stores its index in the stack. The index is not cleared when a connection is popped, which saves
/// a write on the fast path. A slot is in the stack if the entry at its index belongs to it.
#[derive(Debug)]
pub(super) struct Stack<E>(Vec<E>);

impl<E: Lendable> Stack<E> {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self(Vec::with_capacity(capacity))
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether one more would make it grow.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.0.len() == self.0.capacity()
    }

    /// Pops the top connection, if it can be lent at `now`.
    #[inline]
    pub(super) fn pop_fresh(&mut self, now: Instant) -> Option<E> {
        if self.0.last()?.stale_at() <= now {
            return None;
        }
        self.0.pop()
    }

    /// Pops the top connection, whatever its age.
    pub(super) fn pop(&mut self) -> Option<E> {
        self.0.pop()
    }

    #[inline]
    pub(super) fn push(&mut self, slots: &mut Slots, entry: E) {
        #[allow(clippy::cast_possible_truncation, reason = "a reservoir owns at most a million connections")]
        let place = self.0.len() as u32;
        slots[entry.key().index].place = place;
        self.0.push(entry);
    }

    /// Moves all connections to the end of `list`.
    pub(super) fn move_to(&mut self, list: &mut Vec<E>) {
        list.append(&mut self.0);
    }

    /// Whether the connection of this slot is in the stack.
    pub(super) fn holds(&self, slots: &Slots, index: u32) -> bool {
        self.0.get(slots[index].place as usize).is_some_and(|entry| entry.key().index == index)
    }

    /// Removes the connection of this slot, which must be in the stack. The top one moves to its index.
    pub(super) fn remove(&mut self, slots: &mut Slots, index: u32) -> E {
        let place = slots[index].place;
        let removed = self.0.swap_remove(place as usize);
        if let Some(moved) = self.0.get(place as usize) {
            slots[moved.key().index].place = place;
        }
        removed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::state::Key;

    struct Plain(Key, Instant);

    impl Lendable for Plain {
        fn key(&self) -> Key {
            self.0
        }
        fn stale_at(&self) -> Instant {
            self.1
        }
    }

    #[test]
    fn only_a_fresh_one_is_popped_and_a_stale_one_stays() {
        let mut slots = Slots::with_capacity(1);
        let mut stack = Stack::with_capacity(1);
        let at = Instant::from_nanos(10);
        assert!(!stack.is_full());
        let key = slots.occupy(Instant::ZERO);
        stack.push(&mut slots, Plain(key, at));
        assert!(stack.is_full());
        assert!(stack.pop_fresh(at).is_none());
        assert_eq!(stack.len(), 1);
        assert!(stack.pop_fresh(Instant::from_nanos(9)).is_some());
        assert!(stack.pop_fresh(Instant::ZERO).is_none());
    }

    proptest! {
        /// Compared with a plain list: the same members, and the last one on top unless one was removed from
        /// the middle.
        #[test]
        fn holds_what_was_pushed_and_not_popped(steps in prop::collection::vec((0u8..3, 0usize..8), 0..200)) {
            let mut slots = Slots::with_capacity(8);
            let keys: Vec<Key> = (0..8).map(|_| slots.occupy(Instant::ZERO)).collect();
            let mut stack = Stack::with_capacity(8);
            let mut model: Vec<usize> = Vec::new();
            for (step, node) in steps {
                match step {
                    0 if !model.contains(&node) => {
                        stack.push(&mut slots, Plain(keys[node], Instant::NEVER));
                        model.push(node);
                    }
                    1 => prop_assert_eq!(stack.pop().map(|entry| entry.0), model.pop().map(|node| keys[node])),
                    2 => if let Some(at) = model.iter().position(|n| *n == node) {
                        prop_assert_eq!(stack.remove(&mut slots, keys[node].index).0, keys[node]);
                        model.swap_remove(at);
                    },
                    _ => {}
                }
                prop_assert_eq!(stack.len(), model.len());
                for (node, key) in keys.iter().enumerate() {
                    prop_assert_eq!(stack.holds(&slots, key.index), model.contains(&node));
                }
            }
        }
    }
}
