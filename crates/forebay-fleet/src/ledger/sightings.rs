//! What an instance has seen of all shards, and whose beat has stood still for a whole lease.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay::Instant;

use super::level::Demand;
use super::shard::{Entry, SHARDS, Shard};

/// Everything seen so far.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    views: [View; SHARDS as usize],
}

#[derive(Debug, Default)]
struct View {
    /// The shard as it was last seen, and when.
    seen: Option<(Shard, Instant)>,
    /// Since when each entry looks as it does, on our own clock.
    sightings: BTreeMap<String, (Entry, Instant)>,
    /// When an entry was last seen to have changed.
    stirred: Option<Instant>,
}

impl View {
    fn seen_since(&self, at: Instant) -> bool {
        self.seen.as_ref().is_some_and(|(_, seen)| *seen >= at)
    }
}

/// Instances that together look at every shard at each beat, whoever dies: with fewer of them, each looks at more.
const LOOKS: usize = 64;

impl Watch {
    /// A shard was seen: the answer came `now`. Returns whoever has not changed for a whole lease.
    ///
    /// Counting begins with the answer, which is after the entry's own beat was sent; and an entry that looks the same has
    /// not been written in between, however long nobody looked. So nobody is called dead whose own count says it lives.
    pub(crate) fn saw(&mut self, k: u8, shard: Shard, now: Instant) -> Vec<(String, Entry)> {
        let view = &mut self.views[usize::from(k)];
        let first_look = view.seen.is_none();
        view.sightings.retain(|id, _| shard.entries.contains_key(id));
        let mut dead = Vec::new();
        for (id, entry) in &shard.entries {
            match view.sightings.get_mut(id) {
                Some((before, since)) if before == entry => {
                    if now.since(*since) >= shard.lease {
                        dead.push((id.clone(), *entry));
                    }
                    continue;
                }
                Some(sighting) => *sighting = (*entry, now),
                None => drop(view.sightings.insert(id.clone(), (*entry, now))),
            }
            // At the first look there is nothing to compare with: it may be long dead.
            if !first_look {
                view.stirred = Some(now);
            }
        }
        view.seen = Some((shard, now));
        dead
    }

    /// The shard as it was last seen.
    pub(crate) fn shard(&self, k: u8) -> Option<&Shard> {
        self.views[usize::from(k)].seen.as_ref().map(|(shard, _)| shard)
    }

    /// A shard that was looked at, and was not there.
    pub(crate) fn unwritten(&self) -> Option<u8> {
        (0..SHARDS).find(|k| self.shard(*k).is_some_and(|shard| !shard.written))
    }

    /// Whether all have been seen.
    pub(crate) fn is_complete(&self) -> bool {
        (0..SHARDS).all(|k| self.shard(k).is_some_and(|shard| shard.written))
    }

    /// Whether it was seen at `at` or later.
    pub(crate) fn seen_since(&self, k: u8, at: Instant) -> bool {
        self.views[usize::from(k)].seen_since(at)
    }

    /// Whether someone is known to live there, and so to look at it.
    fn is_alive(&self, k: u8, now: Instant, beat: Duration) -> bool {
        self.views[usize::from(k)].stirred.is_some_and(|at| now.since(at) <= beat * 2)
    }

    /// How many entries have changed within the last few beats.
    fn population(&self, now: Instant, beat: Duration) -> usize {
        let sightings = self.views.iter().flat_map(|view| view.sightings.values());
        sightings.filter(|(_, since)| now.since(*since) <= beat * 3).count()
    }

    /// Which shard to read next, after `read` others, for someone at home in `home`: onward round the ring until there is
    /// one where someone lives. So whoever died alone in a shard is seen by those who live before it. Of instances with `seats`
    /// entries each there are fewer than of entries, and so each looks at more; or at `all`.
    pub(crate) fn next_look(
        &self,
        home: u8,
        read: u8,
        now: Instant,
        beat: Duration,
        seats: usize,
        all: bool,
    ) -> Option<u8> {
        let k = (home + read + 1) % SHARDS;
        if k == home || read + 1 >= SHARDS {
            return None;
        }
        let least = LOOKS * seats.max(1) / self.population(now, beat).max(1);
        let far_enough = usize::from(read) >= least.max(1);
        (all || !far_enough || !self.met_life(home, read, now, beat)).then_some(k)
    }

    /// Whether one of the `read` shards after `home` has someone living there.
    fn met_life(&self, home: u8, read: u8, now: Instant, beat: Duration) -> bool {
        (1..=read).any(|step| self.is_alive((home + step) % SHARDS, now, beat))
    }

    /// Every entry, as far as is known.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&String, &Entry)> {
        self.views.iter().flat_map(|view| &view.sightings).map(|(id, (entry, _))| (id, entry))
    }

    /// Whether someone wants more than it has, in a shard seen since `at`.
    pub(crate) fn wants(&self, at: Instant) -> bool {
        let seen = self.views.iter().filter(|view| view.seen_since(at));
        seen.flat_map(|view| view.sightings.values()).any(|(entry, _)| entry.want > 0)
    }

    /// What each instance has and wants in the shards seen since `at`, and how many slots those shards have; none if nobody
    /// there wants more. Who misses its beats does not count: what it has will soon be free.
    pub(crate) fn demands(&self, at: Instant, beat: Duration) -> Option<(Vec<Demand>, u64)> {
        let views = || self.views.iter().filter(|view| view.seen_since(at));
        if !views().flat_map(|view| view.sightings.values()).any(|(entry, _)| entry.want > 0) {
            return None;
        }
        let (mut demands, mut capacity) = (BTreeMap::<&str, Demand>::new(), 0);
        for (view, (shard, seen)) in views().filter_map(|view| Some((view, view.seen.as_ref()?))) {
            capacity += shard.capacity;
            for (id, (entry, since)) in &view.sightings {
                if seen.since(*since) >= beat * 3 / 2 {
                    continue;
                }
                let demand = demands.entry(id).or_default();
                demand.slots += entry.slots;
                if entry.want > 0 {
                    demand.want = entry.want;
                    demand.elsewhere = entry.slots + entry.elsewhere;
                }
            }
        }
        // Of its other entries, we may have seen some; and what it has got since it last said so, it wants no more.
        let others = |Demand { slots, elsewhere, want }: Demand| Demand {
            slots,
            elsewhere: elsewhere.saturating_sub(slots),
            want: want.saturating_sub(slots.saturating_sub(elsewhere)),
        };
        Some((demands.into_values().map(others).collect(), capacity))
    }

    /// Slots in use, and all there are, as far as is known: a shard that nobody has written is free.
    pub(crate) fn totals(&self, limit: u64) -> (u64, u64) {
        (0..SHARDS).fold((0, 0), |(used, all), k| match self.shard(k) {
            Some(shard) => {
                let used_here = shard.capacity.saturating_sub(shard.free);
                (used.saturating_add(used_here), all.saturating_add(shard.capacity))
            }
            None => (used, all.saturating_add(super::shard::capacity(limit, k))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(120);
    const BEAT: Duration = Duration::from_secs(30);

    fn shard(beats: &[(&str, i64)]) -> Shard {
        let entry = |beat| Entry { slots: 1, beat, epoch: 1, node: Some(0), want: 0, elsewhere: 0 };
        let entries = beats.iter().map(|(id, beat)| ((*id).to_owned(), entry(*beat))).collect();
        Shard { entries, ..Shard::unwritten(80, 0, LEASE) }
    }

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn only_who_has_not_changed_for_a_whole_lease_is_dead() {
        let mut watch = Watch::default();
        assert!(watch.saw(0, shard(&[("a", 1), ("b", 1)]), at(0)).is_empty());
        assert!(watch.saw(0, shard(&[("a", 1), ("b", 2)]), at(119)).is_empty());
        let dead = watch.saw(0, shard(&[("a", 1), ("b", 2)]), at(120));
        assert_eq!(dead.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["a"]);
        assert_eq!(watch.saw(0, shard(&[("b", 2)]), at(240)).len(), 1);
    }

    #[test]
    fn one_looks_on_until_someone_lives_there() {
        let mut watch = Watch::default();
        let looks = |watch: &Watch, now| {
            let mut read = 0;
            while watch.next_look(6, read, now, BEAT, 1, false).is_some() {
                read += 1;
            }
            read
        };
        assert_eq!(looks(&watch, at(0)), 7, "nothing is known of anyone");
        let many: Vec<String> = (0..100).map(|number| number.to_string()).collect();
        let all = |beat| shard(&many.iter().map(|id| (id.as_str(), beat)).collect::<Vec<_>>());
        watch.saw(6, all(1), at(0));
        watch.saw(6, all(2), at(30));
        assert_eq!(looks(&watch, at(30)), 7, "the others may all be dead");
        watch.saw(1, shard(&[("x", 1)]), at(0));
        watch.saw(1, shard(&[("x", 2)]), at(30));
        assert_eq!(looks(&watch, at(30)), 3, "7, 0, and 1, where someone lives");
        assert_eq!(looks(&watch, at(91)), 7, "it has not stirred for two beats");
    }

    #[test]
    fn what_one_has_got_since_it_said_what_it_wants_counts_once() {
        let mut watch = Watch::default();
        let entry = |slots, want, elsewhere| Entry { slots, beat: 1, epoch: 1, node: None, want, elsewhere };
        let shard =
            |entry| Shard { entries: [("a".to_owned(), entry)].into(), ..Shard::unwritten(80, 0, LEASE) };
        // It had 4 here and 3 elsewhere when it wanted 9; those elsewhere have become 10.
        watch.saw(0, shard(entry(4, 9, 3)), at(0));
        watch.saw(1, shard(entry(10, 0, 0)), at(0));
        assert_eq!(watch.demands(at(0), BEAT), Some((vec![Demand { slots: 14, elsewhere: 0, want: 2 }], 20)));
        watch.saw(1, shard(entry(13, 0, 0)), at(1));
        assert_eq!(watch.demands(at(0), BEAT), Some((vec![Demand { slots: 17, elsewhere: 0, want: 0 }], 20)));
    }
}
