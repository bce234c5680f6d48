//! The search for more slots, through this instance's entries first and then the other shards.

use std::time::Duration;

use forebay::{Instant, Rng, backoff};

use super::call::Call;
use super::membership::FRESH;
use super::shard::SHARDS;
use super::state::LedgerState;

/// How long a search without result holds. It doubles with each, up to one heartbeat.
const FULL: Duration = Duration::from_secs(1);

/// Searches, the present and the past ones.
#[derive(Debug, Default)]
pub(super) struct SlotSearch {
    /// When the present search started. It ends after it has read every shard not seen since.
    since: Option<Instant>,
    /// No new search before this.
    full_until: Instant,
    /// Searches in a row without result.
    failures: u32,
    /// All searches without result.
    rounds: u64,
}

impl SlotSearch {
    pub(super) fn rounds(&self) -> u64 {
        self.rounds
    }

    /// Whether a search has ended without result for a caller that has waited since `round`.
    pub(super) fn is_over(&self, round: Option<u64>, now: Instant) -> bool {
        round.is_some_and(|round| round < self.rounds) || !self.is_due(now)
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.full_until
    }

    pub(super) fn next_at(&self) -> Instant {
        self.full_until
    }

    /// No slots are missing. `starved` says whether they were missing recently.
    fn stop(&mut self, starved: bool) {
        if !starved {
            self.failures = 0;
        }
        self.since = None;
    }

    /// The table is unavailable: callers that wait are refused at once.
    pub(super) fn abandon(&mut self) {
        self.since = None;
        self.rounds += 1;
    }

    fn fail(&mut self, now: Instant, longest: Duration, rng: &mut Rng) {
        self.abandon();
        self.failures = self.failures.saturating_add(1);
        self.full_until = now + backoff::pause(self.failures, FULL, longest, rng);
    }
}

impl LedgerState {
    /// Whether slots are missing.
    pub(super) fn searches(&self) -> bool {
        self.shortfall() > 0 && !self.members.is_leaving()
    }

    /// The next call of the search, if one is due and there are slots to find.
    pub(super) fn next_search(&mut self, now: Instant, wall: Duration) -> Option<Call> {
        if !self.searches() {
            self.search.stop(self.fair.is_starved(now));
            return None;
        }
        if !self.search.is_due(now) {
            return None;
        }
        let since = *self.search.since.get_or_insert(now);
        let want = self.shortfall();
        for (k, own) in self.members.entries() {
            let more = self.portion(k, want);
            if more > 0 {
                let mut after = self.renewed_entry(k, &own.entry, own.entry.slots + more, now, wall);
                if own.entry.want == 0 {
                    // The search is not over: there may be slots elsewhere.
                    (after.want, after.elsewhere) = (0, 0);
                }
                return Some(Call::Renew(k, own.entry, after));
            }
        }
        // Instances start at different shards.
        let start = self.members.home().unwrap_or(0);
        let ring = (0..SHARDS).map(|step| (start + step) % SHARDS);
        // Each further entry costs a write per heartbeat, so optional slots are taken only where many are free.
        for k in ring.clone().filter(|k| !self.members.has_entry(*k)) {
            let more = self.portion(k, want);
            if more > 0 {
                let fresh = self.watch.seen_since(k, now - FRESH);
                return Some(if fresh { self.join(k, more, wall) } else { Call::Look(k) });
            }
        }
        let needed = self.needed_shortfall() > 0;
        if let Some(k) = ring.clone().find(|k| needed && !self.watch.seen_since(*k, since)) {
            return Some(Call::Look(k));
        }
        // Only now: during the search nothing is lacking, and other instances would give slots up in vain.
        self.fair.starved(now);
        self.search.fail(now, self.params.heartbeat, &mut self.rng);
        if self.want(now, 0) > 0 {
            self.members.announce_want(now);
        }
        None
    }
}
