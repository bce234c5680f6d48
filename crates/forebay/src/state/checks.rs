//! Which connections must be checked before they are lent.
//!
//! Some connectors notice only at the next use that a connection is dead. They set
//! [`check_after`](crate::Config::check_after). Then a connection that has not been heard from for that long
//! is checked. When one is found dead, all others that have not been heard from since are suspects: they are
//! checked before anybody gets them. So after a mass disconnect, few callers get a dead connection.

use std::time::Duration;

use super::slots::SlotState;
use super::{BATCH, Due, Effects, Key, Lendable, State};
use crate::event::Discard;
use crate::time::Instant;

#[derive(Debug)]
pub(super) struct Checks<E> {
    pub(super) after: Option<Duration>,
    /// When a connection was last found dead that was not a suspect.
    found_dead_at: Instant,
    /// Suspects that were ready. Their checks start soon. After a close: all that were ready.
    pub(super) pending: Vec<E>,
}

impl<E> Checks<E> {
    pub(super) fn new(after: Option<Duration>) -> Self {
        Self { after, found_dead_at: Instant::ZERO, pending: Vec::new() }
    }

    /// Whether a connection must be checked that was heard from at `heard_at`.
    pub(super) fn is_suspect(&self, heard_at: Instant, now: Instant) -> bool {
        self.after.is_some_and(|after| heard_at < self.found_dead_at || heard_at + after <= now)
    }

    /// Whether the death of such a connection is news. That of a suspect is not: everything else from that
    /// time is being checked already.
    fn is_news(&self, heard_at: Instant, now: Instant) -> bool {
        self.after.is_some_and(|after| heard_at >= self.found_dead_at || self.found_dead_at + after <= now)
    }
}

impl<E: Lendable> State<E> {
    /// A connection was found dead by its caller, by the connector or by a check. Others may be dead, too.
    pub(crate) fn found_dead(&mut self, key: Key, now: Instant) {
        if self.checks.is_news(self.slots[key.index].heard_at, now) {
            self.checks.found_dead_at = now;
            self.ready.move_to(&mut self.checks.pending);
            self.effects.add(Effects::EXPIRY);
        }
    }

    /// Starts up to [`BATCH`] checks of suspects. Returns whether there may be more.
    pub(super) fn start_checks(&mut self, now: Instant, due: &mut Vec<Due<E>>) -> bool {
        for _ in 0..BATCH {
            let Some(entry) = self.checks.pending.pop() else { return false };
            let index = entry.key().index;
            let loss = if self.closed { Some(Discard::Draining) } else { self.slots[index].marks.loss() };
            due.push(match loss {
                Some(loss) => Due::Discard(self.discard(entry, loss, now)),
                None => Due::Check(self.start_maintenance(entry)),
            });
        }
        true
    }

    /// A connection leaves those that are ready or lent, until [`maintained`](Self::maintained).
    pub(super) fn start_maintenance(&mut self, entry: E) -> E {
        self.slots[entry.key().index].state = SlotState::InMaintenance;
        self.ready_or_lent -= 1;
        self.in_maintenance += 1;
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(second)
    }

    #[test]
    fn the_death_of_a_suspect_is_no_news() {
        let mut checks = Checks::<u32>::new(Some(Duration::from_secs(30)));
        assert!(!checks.is_suspect(at(100), at(129)));
        assert!(checks.is_suspect(at(100), at(130)), "not heard from for long");
        assert!(checks.is_news(at(100), at(110)));
        checks.found_dead_at = at(110);
        assert!(checks.is_suspect(at(109), at(111)));
        assert!(!checks.is_suspect(at(110), at(111)));
        assert!(!checks.is_news(at(109), at(111)));
        assert!(checks.is_news(at(109), at(140)), "too late to be the same incident");
        let never = Checks::<u32>::new(None);
        assert!(!never.is_suspect(at(0), at(1_000_000)) && !never.is_news(at(0), at(1_000_000)));
    }
}
