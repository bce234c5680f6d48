//! What a process knows of the fleet's rate, and how much of it to ask for.

use std::collections::BTreeSet;
use std::time::Duration;

use forebay::{Instant, Pace, Rng};

use super::Source;
use crate::away::Away;
use crate::bucket::PERMIT_LIFE;
use crate::share::Share;

/// Permits asked for at a time, at most.
pub(super) const BATCH: u32 = 64;
/// A line longer than this is a line: then one asks once for each time it has moved on.
pub(super) const LINE: Duration = Duration::from_millis(250);
/// So many a second are wanted while nobody knows how long the line is.
const FEW: f64 = 10.0;

#[derive(Debug)]
pub(super) struct State {
    pub(super) source: Source,
    pub(super) share: Share,
    /// A ledger tells how many are to be opened.
    leased: bool,
    /// Turns that are had and not taken, with a number to tell two of one time apart.
    pub(super) turns: BTreeSet<(Instant, u64)>,
    numbers: u64,
    /// Callers who have neither permit nor turn.
    pub(super) waiting: u32,
    pub(super) asking: bool,
    pub(super) ask_at: Instant,
    /// How long it was until the last of those permits that came last; while we ask, what we take it to be.
    pub(super) last_wait: Duration,
    /// When we last asked, and for how many.
    last_batch: Option<(Instant, u32)>,
    pub(super) away: Away,
    pub(super) rng: Rng,
}

impl State {
    pub(super) fn new(source: Source, share: Share, leased: bool, rng: Rng) -> Self {
        Self {
            source,
            share,
            leased,
            turns: BTreeSet::new(),
            numbers: 0,
            waiting: 0,
            asking: false,
            ask_at: Instant::ZERO,
            last_wait: Duration::ZERO,
            last_batch: None,
            away: Away::default(),
            rng,
        }
    }

    pub(super) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// The first turn that has not lapsed, if it comes by `deadline`.
    pub(super) fn next_turn(&mut self, now: Instant, deadline: Instant) -> Option<Instant> {
        while let Some((at, _)) = self.turns.first().copied().filter(|(at, _)| *at <= deadline) {
            self.turns.pop_first();
            if now <= at + PERMIT_LIFE {
                return Some(at);
            }
        }
        None
    }

    /// How long the line was when we last asked; none if that was too long ago to know.
    fn line(&self, now: Instant) -> Option<Duration> {
        let (asked, _) = self.last_batch?;
        (now.since(asked) <= self.last_wait + PERMIT_LIFE).then_some(self.last_wait)
    }

    /// Turns to take at a time in a line of this length: less, the longer it is. Where each of `n` instances stands in it again and
    /// again, it comes to not quite the root of `n` seconds, at any rate: 13 for 200, who ask 17 times a second then. And so long it is
    /// when all have come for the first time, so that it neither swells nor breaks off.
    fn bite(&self, line: Duration) -> f64 {
        (0.75 * self.source.per_second() / line.as_secs_f64()).max(1.0)
    }

    /// Whether a share of `slots` serves all who wait and will come (`spare`) sooner than the line does, as far as is known: turns
    /// would be lost on them. By now the line is between nothing and what it was.
    pub(super) fn share_will_do(&self, now: Instant, spare: Option<u32>, slots: u64, limit: u64) -> bool {
        let (Some(line), Some(spare)) = (self.line(now), spare) else { return false };
        let need = u64::from(self.waiting.saturating_add(spare));
        line > LINE && self.share.ready_by(now, now + line / 2, slots, limit) >= need
    }

    /// How many turns to ask for: for all who wait, and for those who will come, as far as there are slots for them (`spare`). So a
    /// burst is taken in few bites, and what is not used lapses. In a line, no more than a fair bite, and none for those whom a share of
    /// `slots` serves meanwhile.
    pub(super) fn batch(
        &mut self,
        now: Instant,
        wall: Duration,
        spare: Option<u32>,
        slots: u64,
        limit: u64,
    ) -> u32 {
        let (stood, waiting) = (self.line(now), self.waiting);
        let line = self.source.line(wall).max(stood.unwrap_or_default());
        // Without a ledger, as many as last time may come if that was just now.
        let last = self.last_batch.filter(|_| stood.is_some()).map_or(0, |(_, last)| last);
        let coming = spare.unwrap_or(last);
        let coming = if line > LINE {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
            let bite = self.bite(line).ceil() as u32;
            let own = self.share.ready_by(now, now + line, slots, limit);
            let coming = coming.saturating_sub(u32::try_from(own).unwrap_or(u32::MAX));
            coming.min(bite.saturating_sub(waiting))
        } else if waiting > 1 || stood.is_some() {
            coming
        } else {
            // One alone replaces one alone.
            0
        };
        let count = waiting.saturating_add(coming).clamp(1, BATCH.min(self.source.most()));
        (self.last_batch, self.last_wait) = (Some((now, count)), line);
        if spare.is_some() {
            // This was for all we know of; those who come one by one ask together.
            self.ask_at = self.ask_at.max(now + LINE);
        }
        count
    }

    /// How fast permits come, to whoever holds `slots` of `limit`.
    pub(super) fn pace(&mut self, now: Instant, slots: u64, limit: u64) -> Pace {
        let full = self.source.per_second();
        let per_second = match self.line(now) {
            // Who knows how many are to come asks for all of them at once if there is no line: a few callers find out.
            None if self.leased => FEW.min(full),
            None => full,
            // In a line one gets a bite at a time, and waits for it: more callers would only stand there.
            Some(line) if line > LINE => full.min(self.bite(line) / line.as_secs_f64()),
            Some(_) => full,
        };
        // With a caller each for the turns that are near, none lapses.
        let near = self.turns.iter().take_while(|(at, _)| *at <= now + PERMIT_LIFE).count() as u64;
        let ready = self.share.ready(now, slots, limit) + near;
        Pace { per_second, at_once: u32::try_from(ready).unwrap_or(u32::MAX) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bucket::Bucket;
    use crate::item::Item;
    use forebay::Seed;

    const WALL: Duration = Duration::from_secs(1_800_000_000);

    /// Knows of a line of so many seconds, or of none for a negative number.
    fn state(line: i64) -> State {
        let mut bucket = Bucket::new("host", 100, 1000, true, Duration::from_secs(30));
        let due = i64::try_from(WALL.as_nanos()).unwrap() + line * 1_000_000_000;
        bucket.saw(Some(&Item::new().with("due_ns", due)));
        State::new(Source::Bucket(bucket), Share::new(100, 1000), true, Seed::new(1).rng())
    }

    /// How many turns are asked for by one who has no share.
    fn batch(state: &mut State, millis: u64, spare: Option<u32>) -> u32 {
        state.batch(at(millis), WALL, spare, 0, 10_000)
    }

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn a_burst_is_taken_at_once_and_one_alone_takes_one() {
        let mut fresh = state(-5);
        fresh.waiting = 4;
        assert_eq!(batch(&mut fresh, 0, Some(46)), 50);
        assert_eq!(batch(&mut state(-5), 0, Some(3)), 1, "for whoever has given up");
        let mut steady = state(-5);
        steady.waiting = 1;
        assert_eq!(batch(&mut steady, 0, Some(3)), 1);
        assert_eq!(batch(&mut steady, 900, Some(3)), 4, "the second within a second");
        assert_eq!(batch(&mut steady, 9000, Some(3)), 1);
        assert_eq!(batch(&mut steady, 9100, None), 2, "nobody knows how many come: as many as before");
        steady.waiting = 1000;
        assert_eq!(batch(&mut steady, 9200, Some(3)), BATCH);
    }

    #[test]
    fn in_a_line_one_takes_a_bite() {
        for (line, bite) in [(1, 60), (4, 15), (10, 6), (20, 3)] {
            let mut state = state(line);
            state.waiting = 2;
            assert_eq!(batch(&mut state, 0, Some(70)), bite, "{line} s");
            assert_eq!(batch(&mut state, 0, Some(0)), 2, "{line} s, and no slots for more");
            state.waiting = 50;
            assert_eq!(
                batch(&mut state, 0, Some(50)),
                bite.max(50),
                "{line} s: nobody who waits is forgotten"
            );
        }
        let mut state = state(-5);
        state.waiting = 2;
        batch(&mut state, 0, Some(50));
        state.last_wait = Duration::from_secs(10);
        assert_eq!(batch(&mut state, 9000, Some(50)), 6, "it was ten seconds, and may be still");
        assert_eq!(batch(&mut state, 20_001, Some(50)), 52, "that was long ago");
    }

    #[test]
    fn as_many_callers_as_there_are_turns_for() {
        let mut state = state(-5);
        let few = Pace { per_second: 10.0, at_once: 0 };
        assert_eq!(state.pace(at(0), 50, 10_000), few, "a few find out");
        batch(&mut state, 0, Some(50));
        assert_eq!(state.pace(at(0), 50, 10_000), Pace { per_second: 80.0, at_once: 0 });
        state.last_wait = Duration::from_secs(10);
        assert_eq!(state.pace(at(0), 50, 10_000), Pace { per_second: 0.6, at_once: 0 });
        state.turns = [(at(2000), 1), (at(2500), 2), (at(9000), 3)].into();
        assert_eq!(state.pace(at(1500), 0, 10_000).at_once, 2, "the third is not near");
        assert_eq!(state.pace(at(11_001), 50, 10_000).per_second, few.per_second, "that was long ago");
        state.leased = false;
        let full = state.pace(at(11_001), 0, 10_000).per_second;
        assert_eq!(full, 80.0, "without a ledger, every caller asks for itself");
    }

    #[test]
    fn a_line_that_was_seen_is_reckoned_with_before_the_answer() {
        let mut state = state(10);
        state.waiting = 2;
        assert_eq!(batch(&mut state, 0, Some(50)), 6);
        assert_eq!(state.pace(at(0), 50, 10_000).per_second, 0.6);
    }

    /// A share of 500 in 10,000 slots has a permit a second.
    #[test]
    fn no_turns_are_taken_for_those_whom_the_share_serves() {
        let mut state = state(4);
        state.waiting = 1;
        assert!(!state.share_will_do(at(0), Some(0), 500, 10_000), "nobody knows how long the line is");
        assert_eq!(state.batch(at(0), WALL, Some(9), 500, 10_000), 6, "four of ten will be served meanwhile");
        assert_eq!(
            state.batch(at(0), WALL, Some(2), 500, 10_000),
            1,
            "whoever waits has a turn all the same"
        );
        assert!(state.share_will_do(at(0), Some(1), 500, 10_000), "two within two seconds");
        assert!(!state.share_will_do(at(0), Some(2), 500, 10_000), "not three");
        assert!(!state.share_will_do(at(0), None, 500, 10_000), "nobody knows how many come");
        assert!(!state.share_will_do(at(5_001), Some(1), 500, 10_000), "that was long ago");
        state.last_wait = LINE;
        assert!(!state.share_will_do(at(0), Some(0), 500_000, 10_000), "there is no line");
    }
}
