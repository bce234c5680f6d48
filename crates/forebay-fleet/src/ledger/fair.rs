//! What one instance takes and keeps where others lack slots.

use std::time::Duration;

use forebay::Instant;

use super::book::Book;
use super::level::level;

/// A reservoir that was told that there are no slots left asks again within ten seconds; one that does not needs no more.
const HUNGER: Duration = Duration::from_secs(20);
/// Of what we have beyond what is fair, this part goes at each beat: so that those who are to have it can keep up.
const STEPS: u64 = 3;

impl Book {
    /// How many more slots we would take, if there were any, when we have got `more`. Who has most of what it wants does not say
    /// so: nobody would give it any, and it would be in every write.
    pub(super) fn want(&self, now: Instant, more: u64) -> u64 {
        let slots = self.slots() + more;
        let want = self.rules.max_open.saturating_sub(slots);
        if self.is_hungry(now) && want.saturating_mul(3) > slots { want } else { 0 }
    }

    /// Whether slots were missing of late.
    pub(super) fn is_hungry(&self, now: Instant) -> bool {
        self.lacked.is_some_and(|lacked| now.since(lacked) < HUNGER)
    }

    /// When to compare anew ahead of the next beat: if a caller was refused for the sake of others, who may have enough by now.
    pub(super) fn next_doubt(&self) -> Instant {
        let refused = self.cap.is_some() && self.lacked.is_some_and(|lacked| lacked > self.compared);
        if refused { self.compared + self.rules.beat / 2 } else { Instant::NEVER }
    }

    /// Whether someone lacks slots: then each looks at all shards at every beat, so that all know alike what is fair.
    pub(super) fn is_scarce(&self, now: Instant) -> bool {
        self.level.is_some() || self.watch.wants(now - self.rules.beat * 2)
    }

    /// Compares with what others have and want, in the shards that were just seen.
    pub(super) fn compare(&mut self, now: Instant) {
        self.compared = now;
        let just_seen = now - (self.rules.beat / 6).max(Duration::from_secs(1));
        let seen = self.watch.demands(just_seen, self.rules.beat);
        let level = seen.and_then(|(demands, capacity)| level(&demands, capacity));
        // While all begin, nobody knows all yet: a little more or less will settle by itself.
        let is_new = now.since(self.joined_at) < self.rules.lease;
        self.level = level.map(|level| if is_new { level + level / 8 } else { level });
        // What nobody uses is not ours to keep; what is in use is.
        self.cap = self.level.map(|level| self.cap.unwrap_or_else(|| self.held()).max(level));
    }

    /// Comes a step nearer to what is fair.
    pub(super) fn lower_cap(&mut self) {
        if let Some(level) = self.level {
            let beyond = self.held().saturating_sub(level);
            self.cap = Some(level + beyond - beyond.div_ceil(STEPS));
        }
    }

    /// Slots that others should have, and that nobody here uses any more.
    pub(super) fn unfair(&self) -> u64 {
        self.slots().saturating_sub(self.cap.unwrap_or(u64::MAX).max(self.held()))
    }

    /// How long until the next beat of an entry, in whose shard there are so many slots: sooner, while we have just begun, and have
    /// many of them that we do not use yet. Others may lack them.
    pub(super) fn beat_within(&self, lease: Duration, capacity: u64, now: Instant) -> Duration {
        let beat = self.rules.beat.min(lease / 3);
        let idle = self.slots().saturating_sub(self.held());
        let age = if self.home.is_none() { Duration::ZERO } else { now.since(self.joined_at) };
        if idle.saturating_mul(8) > capacity { beat.min(age.max(beat / 6)) } else { beat }
    }
}
