//! Timers, ordered by time, and by creation among those of the same time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::task::Waker;

use crate::time::Instant;

/// The id of a timer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timer {
    place: u32,
    sequence: u64,
}

#[derive(Default)]
pub(super) struct Timers {
    /// The entry of a cancelled timer stays here until its time. Its slot then has another sequence number.
    heap: BinaryHeap<Reverse<(Instant, u64, u32)>>,
    places: Vec<Slot>,
    vacant: Vec<u32>,
    next: u64,
}

struct Slot {
    sequence: u64,
    waker: Option<Waker>,
}

impl Timers {
    pub(super) fn set(&mut self, at: Instant, waker: Waker) -> Timer {
        let sequence = self.next;
        self.next += 1;
        let waker = Some(waker);
        let place = match self.vacant.pop() {
            Some(place) => {
                self.places[place as usize] = Slot { sequence, waker };
                place
            }
            None => {
                self.places.push(Slot { sequence, waker });
                u32::try_from(self.places.len() - 1).expect("fewer than four billion timers")
            }
        };
        self.heap.push(Reverse((at, sequence, place)));
        Timer { place, sequence }
    }

    /// Replaces the waker of a timer, unless it has fired.
    pub(super) fn set_waker(&mut self, timer: Timer, waker: &Waker) {
        let place = &mut self.places[timer.place as usize];
        if place.sequence == timer.sequence
            && let Some(present) = &mut place.waker
        {
            present.clone_from(waker);
        }
    }

    /// Cancels a timer. Returns its waker, unless it has fired.
    pub(super) fn cancel(&mut self, timer: Timer) -> Option<Waker> {
        let place = &mut self.places[timer.place as usize];
        if place.sequence != timer.sequence {
            return None;
        }
        let waker = place.waker.take()?;
        self.vacant.push(timer.place);
        Some(waker)
    }

    /// Removes the next timer, if it is not after `limit`.
    pub(super) fn pop(&mut self, limit: Instant) -> Option<(Instant, Waker)> {
        while let Some(&Reverse((at, sequence, index))) = self.heap.peek() {
            let place = &mut self.places[index as usize];
            let live = place.sequence == sequence && place.waker.is_some();
            if live && at > limit {
                return None;
            }
            self.heap.pop();
            if live && let Some(waker) = place.waker.take() {
                self.vacant.push(index);
                return Some((at, waker));
            }
        }
        None
    }
}
