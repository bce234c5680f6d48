//! Timers in the order of their time, and of asking among those of one time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::task::Waker;

use crate::time::Instant;

/// Names a timer that was set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timer {
    place: u32,
    sequence: u64,
}

#[derive(Default)]
pub(super) struct Timers {
    /// A cancelled timer leaves its entry here until its time comes; its place has another sequence number by then.
    heap: BinaryHeap<Reverse<(Instant, u64, u32)>>,
    places: Vec<Place>,
    vacant: Vec<u32>,
    next: u64,
}

struct Place {
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
                self.places[place as usize] = Place { sequence, waker };
                place
            }
            None => {
                self.places.push(Place { sequence, waker });
                u32::try_from(self.places.len() - 1).expect("fewer than four billion timers")
            }
        };
        self.heap.push(Reverse((at, sequence, place)));
        Timer { place, sequence }
    }

    /// From now on wakes another waker, if it has not fired.
    pub(super) fn rewake(&mut self, timer: Timer, waker: &Waker) {
        let place = &mut self.places[timer.place as usize];
        if let (true, Some(present)) = (place.sequence == timer.sequence, &mut place.waker) {
            present.clone_from(waker);
        }
    }

    /// Cancels a timer, and hands out its waker if it had not fired.
    pub(super) fn cancel(&mut self, timer: Timer) -> Option<Waker> {
        let place = &mut self.places[timer.place as usize];
        if place.sequence != timer.sequence {
            return None;
        }
        let waker = place.waker.take()?;
        self.vacant.push(timer.place);
        Some(waker)
    }

    /// The next timer that is not after `limit`.
    pub(super) fn pop(&mut self, limit: Instant) -> Option<(Instant, Waker)> {
        while let Some(&Reverse((at, sequence, index))) = self.heap.peek() {
            let place = &mut self.places[index as usize];
            let is_live = place.sequence == sequence && place.waker.is_some();
            if is_live && at > limit {
                return None;
            }
            self.heap.pop();
            if let Some(waker) = place.waker.take_if(|_| is_live) {
                self.vacant.push(index);
                return Some((at, waker));
            }
        }
        None
    }
}
