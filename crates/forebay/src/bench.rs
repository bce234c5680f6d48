//! Access for benchmarks to internals. Not part of the API: it may change in any release.

use std::task::Waker;
use std::time::Duration;

use crate::config::{Config, Lifetime};
use crate::core::Entry;
use crate::event::Failure;
use crate::limit::Pace;
use crate::seed::Seed;
use crate::state::{BATCH, Due, Placement, Refill, State, WaitScan, WaiterId};
use crate::sync::Mutex;
use crate::time::Instant;

/// The result of one scan.
#[derive(Clone, Copy, Debug)]
pub struct Scan {
    /// Time from the first lock to the last unlock.
    pub total_ns: u64,
    /// The longest time for which the lock was held without a break.
    pub longest_hold_ns: u64,
    /// How many connections were due, and were taken out.
    pub found: usize,
}

/// Fills a state with `connections` idle connections, advances the time until `due` of them are due, and
/// times the scan that takes them out. The scan is the one of the expiry task. `timer` returns nanoseconds.
#[must_use]
pub fn expiry_scan(connections: usize, due: usize, timer: &dyn Fn() -> u64) -> Scan {
    let life = Lifetime::new(Duration::from_secs(3300)).guard_window(Duration::from_secs(45));
    let config = Config::default().max_open(connections).lifetime(life).inflight_limit(connections);
    let mut now = Instant::from_nanos(1_000_000_000_000);
    let mut state: State<Box<Entry<u64>>> = State::new(&config, Seed::new(42), now, Duration::ZERO);
    let pace = Pace { per_second: 1.0, at_once: u32::MAX };
    while let Refill::Open(key) = state.next_open(now, pace) {
        let life = state.draw_life(now);
        let entry = Entry { connection: 0, lease: None, life, key, bad: false };
        let (Placement::Kept, None) = state.opened(Box::new(entry), life, Duration::ZERO, now) else {
            break;
        };
    }
    // With a target of zero, a due connection does not wait for its replacement.
    state.resize(&config.on_demand(0), now);
    state.take_effects();
    let mut alarms: Vec<Instant> = state.alarms().collect();
    alarms.truncate(due);
    now = alarms.last().copied().unwrap_or(now);

    let state = Mutex::new(state);
    let mut gone: Vec<Due<Box<Entry<u64>>>> = Vec::with_capacity(due + BATCH);
    let (start, mut longest) = (timer(), 0);
    let mut end = start;
    loop {
        let mut locked = state.lock();
        let more = locked.fire_alarms(now, &mut gone);
        locked.take_effects();
        drop(locked);
        let released = timer();
        longest = longest.max(released - end);
        end = released;
        if !more {
            break;
        }
    }
    Scan { total_ns: end - start, longest_hold_ns: longest, found: gone.len() }
}

/// The longest time for which the lock is held without a break while many callers wait, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct QueueHolds {
    /// One caller joins the queue.
    pub join: u64,
    /// The reservoir has become short, and the task looks for waits that end sooner.
    pub shortage: u64,
    /// One caller gives up.
    pub cancel: u64,
    /// The server denies access: all waits end.
    pub denial: u64,
    /// The reservoir closes: all waits end.
    pub close: u64,
}

/// Measures them with this many waiting callers. `timer` returns nanoseconds.
#[must_use]
pub fn queue_holds(callers: usize, timer: &dyn Fn() -> u64) -> QueueHolds {
    let now = Instant::from_nanos(1_000_000_000_000);
    let filled = || {
        let config = Config::default().max_open(1).empty_wait(Duration::from_secs(60));
        let mut state: State<Box<Entry<u64>>> = State::new(&config, Seed::new(42), now, Duration::ZERO);
        let (mut longest, mut waiters): (u64, Vec<WaiterId>) = (0, Vec::with_capacity(callers));
        for _ in 0..callers {
            let (took, (waiter, _)) = timed(timer, || state.join(now, None, Waker::noop().clone()));
            longest = longest.max(took);
            waiters.push(waiter);
        }
        (state, waiters, longest)
    };
    // All have waited for longer than callers wait in a shortage.
    let (mut state, waiters, join) = filled();
    let (mut scan, later) = (WaitScan::default(), now + Duration::from_secs(61));
    let shortage = longest_part(timer, |due| state.end_waits(&mut scan, later, due));
    // In an order that leaves the most gaps.
    let odd_first = waiters.iter().skip(1).step_by(2).chain(waiters.iter().step_by(2));
    let cancel = odd_first.map(|waiter| timed(timer, || drop(state.cancel(*waiter, now))).0).max();

    let (mut state, _, _) = filled();
    let pace = Pace { per_second: 1.0, at_once: u32::MAX };
    if let Refill::Open(key) = state.next_open(now, pace) {
        drop(state.open_failed(key, Failure::Auth, true, false, now));
    }
    let mut scan = WaitScan::default();
    let denial = longest_part(timer, |due| state.end_waits(&mut scan, now, due));

    let (mut state, _, _) = filled();
    state.close();
    let close = longest_part(timer, |due| state.end_all(now, due));
    QueueHolds { join, shortage, cancel: cancel.unwrap_or(0), denial, close }
}

fn timed<R>(timer: &dyn Fn() -> u64, work: impl FnOnce() -> R) -> (u64, R) {
    let start = timer();
    let output = work();
    (timer() - start, output)
}

/// The time that the longest part of a piece of work takes.
fn longest_part(
    timer: &dyn Fn() -> u64,
    mut part: impl FnMut(&mut Vec<Due<Box<Entry<u64>>>>) -> bool,
) -> u64 {
    let (mut longest, mut due) = (0, Vec::with_capacity(BATCH));
    loop {
        let (took, more) = timed(timer, || part(&mut due));
        longest = longest.max(took);
        due.clear();
        if !more {
            return longest;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_under_the_lock_does_not_grow_with_the_queue() {
        let now = Instant::from_nanos(1_000_000_000_000);
        let config = Config::default().max_open(1).empty_wait(Duration::from_secs(60));
        let later = now + Duration::from_secs(61);
        for is_close in [false, true] {
            let mut state: State<Box<Entry<u64>>> = State::new(&config, Seed::new(42), now, Duration::ZERO);
            for _ in 0..50_000 {
                state.join(now, None, Waker::noop().clone());
            }
            if is_close {
                state.close();
            }
            let (mut scan, mut parts, mut woken) = (WaitScan::default(), 0, 0);
            loop {
                let mut due = Vec::new();
                let more = if is_close {
                    state.end_all(now, &mut due)
                } else {
                    state.end_waits(&mut scan, later, &mut due)
                };
                assert!(due.len() <= BATCH, "{} at once", due.len());
                (parts, woken) = (parts + 1, woken + due.len());
                if !more {
                    break;
                }
            }
            assert_eq!(woken, 50_000);
            assert!(parts >= 50_000 / BATCH, "{parts} parts");
        }
    }

    #[test]
    fn every_hold_is_measured() {
        let calls = std::cell::Cell::new(0);
        let holds = queue_holds(100, &|| {
            calls.set(calls.get() + 1);
            calls.get()
        });
        let QueueHolds { join, shortage, cancel, denial, close } = holds;
        assert_eq!([join, shortage, cancel, denial, close], [1; 5]);
        assert!(calls.get() > 2 * (3 * 100 + 100 + 3 * 100 / BATCH as u64), "{}", calls.get());
    }

    #[test]
    fn a_scan_finds_exactly_what_is_due() {
        let scan = expiry_scan(1000, 10, &|| 0);
        assert_eq!(scan.found, 10);
    }
}
