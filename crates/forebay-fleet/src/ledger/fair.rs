//! What one instance takes and keeps where others lack slots.

use std::time::Duration;

use forebay::Instant;

use super::book::Book;
use super::level::level;

/// A reservoir that was told that there are no slots left asks again within ten seconds; one that does not needs no more.
const HUNGER: Duration = Duration::from_secs(20);
/// Of what we have beyond what is fair, this part goes at each beat: so that those who are to have it can keep up.
const STEPS: u64 = 8;

impl Book {
    /// How many more slots we would take, if there were any, when we have got `more`. Who has most of what it wants does not say
    /// so: nobody would give it any, and it would be in every write.
    pub(super) fn want(&self, now: Instant, more: u64) -> u64 {
        let is_short = self.lacked.is_some_and(|lacked| now.since(lacked) < HUNGER);
        let slots = self.slots() + more;
        let want = self.rules.max_open.saturating_sub(slots);
        if is_short && want * 3 > slots { want } else { 0 }
    }

    /// Compares with what others have and want, in the shards that were just seen.
    pub(super) fn compare(&mut self, now: Instant) {
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
        if idle * 8 > capacity { beat.min(age.max(beat / 6)) } else { beat }
    }
}
