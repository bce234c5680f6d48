//! Access for benchmarks to internals. Not part of the API: it may change in any release.

use std::time::Duration;

use crate::config::{Config, Lifetime};
use crate::core::Entry;
use crate::limit::Pace;
use crate::seed::Seed;
use crate::state::{BATCH, Due, Placement, Refill, State};
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_finds_exactly_what_is_due() {
        let scan = expiry_scan(1000, 10, &|| 0);
        assert_eq!(scan.found, 10);
    }
}
