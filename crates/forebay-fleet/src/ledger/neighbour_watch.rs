//! What this instance has seen of all shards, and whose heartbeat has stopped.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use forebay::{Instant, Rng};

use super::call::Call;
use super::fair_share::Demand;
use super::shard::{self, Entry, SHARDS, Shard};

/// So many instances together read every shard at each heartbeat, even if some die. In a smaller fleet, each reads more.
const READERS: usize = 64;

/// The view of all shards.
#[derive(Debug)]
pub(super) struct NeighbourWatch {
    views: [View; SHARDS as usize],
    /// Entries to remove: their instances are dead.
    expired: VecDeque<(u8, String, Entry)>,
    /// Shards after home that were read in this round; none when all are.
    read: Option<u8>,
    /// A round of reads is under way. The fair share is computed when it ends.
    in_round: bool,
    /// The shard read last beyond the round: one per heartbeat, and after all shards the counter.
    rotation: u8,
    rotate: bool,
}

#[derive(Debug, Default)]
struct View {
    /// The shard as last seen, and when.
    seen: Option<(Shard, Instant)>,
    /// Since when each entry is unchanged, on our own clock.
    sightings: BTreeMap<String, (Entry, Instant)>,
    /// When an entry was last seen to change.
    changed: Option<Instant>,
}

impl View {
    fn seen_since(&self, at: Instant) -> bool {
        self.seen.as_ref().is_some_and(|(_, seen)| *seen >= at)
    }

    fn has_want(&self) -> bool {
        self.sightings.values().any(|(entry, _)| entry.want > 0)
    }
}

impl NeighbourWatch {
    pub(super) fn new(rng: &mut Rng) -> Self {
        Self {
            views: Default::default(),
            expired: VecDeque::new(),
            read: None,
            in_round: false,
            rotation: u8::try_from(rng.below(u64::from(SHARDS) + 1)).unwrap_or(0),
            rotate: false,
        }
    }

    /// Shard `k` was read; the answer came at `now`. Entries unchanged for a whole lease are put on the list to
    /// remove, except `own_name`.
    ///
    /// The count starts with the answer, which comes after the entry's own heartbeat was sent. An entry that looks the
    /// same has not been written in between, however long ago the last read was. So no instance is taken for dead
    /// before its lease has ended on its own clock.
    pub(super) fn saw(&mut self, k: u8, shard: Shard, now: Instant, own_name: Option<&str>) {
        let view = &mut self.views[usize::from(k)];
        let first_look = view.seen.is_none();
        view.sightings.retain(|id, _| shard.entries.contains_key(id));
        for (id, entry) in &shard.entries {
            match view.sightings.get_mut(id) {
                Some((before, since)) if before == entry => {
                    let listed = || self.expired.iter().any(|(shard, dead, _)| *shard == k && dead == id);
                    let is_dead = now.since(*since) >= shard.lease && own_name != Some(id.as_str());
                    if is_dead && !listed() {
                        self.expired.push_back((k, id.clone(), *entry));
                    }
                    continue;
                }
                Some(sighting) => *sighting = (*entry, now),
                None => drop(view.sightings.insert(id.clone(), (*entry, now))),
            }
            // The first read has nothing to compare with: the entry may be long dead.
            if !first_look {
                view.changed = Some(now);
            }
        }
        view.seen = Some((shard, now));
    }

    /// The shard as last seen.
    pub(super) fn shard(&self, k: u8) -> Option<&Shard> {
        self.views[usize::from(k)].seen.as_ref().map(|(shard, _)| shard)
    }

    /// Whether every shard was seen and exists.
    pub(super) fn is_complete(&self) -> bool {
        (0..SHARDS).all(|k| self.shard(k).is_some_and(|shard| shard.written))
    }

    pub(super) fn seen_since(&self, k: u8, at: Instant) -> bool {
        self.views[usize::from(k)].seen_since(at)
    }

    /// A write for the whole fleet: a missing shard to create, so that all shards have the same limit, or a dead
    /// instance to remove.
    pub(super) fn next_write(&mut self, leaving: bool) -> Option<Call> {
        let missing = (0..SHARDS).find(|k| self.shard(*k).is_some_and(|shard| !shard.written));
        let create = missing.filter(|_| !leaving).map(Call::Create);
        create.or_else(|| self.expired.pop_front().map(|(k, id, entry)| Call::Reap(k, id, entry)))
    }

    /// A removal was not answered.
    pub(super) fn reap_again(&mut self, k: u8, id: &str, entry: Entry) {
        self.expired.push_front((k, id.to_owned(), entry));
    }

    /// Starts a round of reads, with one shard more if `rotate`.
    pub(super) fn begin_round(&mut self, rotate: bool) {
        (self.read, self.in_round) = (Some(0), true);
        self.rotate |= rotate;
    }

    /// Ends the round of reads, if one is under way.
    pub(super) fn end_round(&mut self) -> bool {
        std::mem::take(&mut self.in_round)
    }

    /// Starts an extra round at `home`, if it is due and none is under way.
    pub(super) fn recheck(&mut self, home: u8, is_due: bool) -> Option<Call> {
        (is_due && !self.in_round).then(|| {
            self.begin_round(false);
            Call::Look(home)
        })
    }

    /// The next read of the round: the shards that no other instance may be reading, and one more, so that each
    /// instance sees all shards in time.
    pub(super) fn next_look(
        &mut self,
        home: u8,
        now: Instant,
        heartbeat: Duration,
        entries: usize,
        all: bool,
    ) -> Option<Call> {
        if let Some(read) = self.read {
            let next = self.next_in_ring(home, read, now, heartbeat, entries, all);
            self.read = next.map(|_| read + 1);
            if let Some(k) = next {
                return Some(Call::Look(k));
            }
        }
        if !std::mem::take(&mut self.rotate) {
            return None;
        }
        for _ in 0..=SHARDS {
            self.rotation = (self.rotation + 1) % (SHARDS + 1);
            if self.rotation == SHARDS {
                return Some(Call::LookForCounter);
            }
            // A shard seen at this heartbeat has nothing new.
            if !self.seen_since(self.rotation, now - heartbeat / 2) {
                return Some(Call::Look(self.rotation));
            }
        }
        None
    }

    /// A read was not answered. It is repeated in this round, because no other instance may be reading that shard.
    pub(super) fn look_again(&mut self, home: Option<u8>, k: u8) {
        let last = home.zip(self.read).filter(|(home, read)| (home + read) % SHARDS == k);
        self.read = last.map(|(_, read)| read.saturating_sub(1)).or(self.read);
    }

    /// The shard to read after `read` others: onward from `home` until one where an instance lives. So an instance that
    /// dies alone in its shard is seen by those before it. Instances with several `entries` are fewer than the entries,
    /// so each reads more shards; with `all`, it reads every shard.
    fn next_in_ring(
        &self,
        home: u8,
        read: u8,
        now: Instant,
        heartbeat: Duration,
        entries: usize,
        all: bool,
    ) -> Option<u8> {
        let k = (home + read + 1) % SHARDS;
        if k == home || read + 1 >= SHARDS {
            return None;
        }
        let sightings = self.views.iter().flat_map(|view| view.sightings.values());
        let population = sightings.filter(|(_, since)| now.since(*since) <= heartbeat * 3).count();
        let least = READERS * entries.max(1) / population.max(1);
        let far_enough = usize::from(read) >= least.max(1);
        let changed = |k: u8| self.views[usize::from(k)].changed;
        let is_alive = |k| changed(k).is_some_and(|at| now.since(at) <= heartbeat * 2);
        let met_life = || (1..=read).any(|step| is_alive((home + step) % SHARDS));
        (all || !far_enough || !met_life()).then_some(k)
    }

    /// Every entry, as last seen.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&String, &Entry)> {
        self.views.iter().flat_map(|view| &view.sightings).map(|(id, (entry, _))| (id, entry))
    }

    /// The slots of every entry, as last seen.
    pub(super) fn holdings(&self) -> impl Iterator<Item = u64> {
        self.entries().map(|(_, entry)| entry.slots)
    }

    /// Whether an instance wants more slots, in a shard seen since `at`.
    pub(super) fn has_want_since(&self, at: Instant) -> bool {
        self.views.iter().any(|view| view.seen_since(at) && view.has_want())
    }

    /// The demand of each instance in the shards seen since `at`, and the capacity of those shards. None if no instance
    /// wants more. Instances that miss heartbeats do not count: their slots will soon be free.
    pub(super) fn demands(&self, at: Instant, heartbeat: Duration) -> Option<(Vec<Demand>, u64)> {
        if !self.has_want_since(at) {
            return None;
        }
        let (mut demands, mut capacity) = (BTreeMap::<&str, Demand>::new(), 0);
        for view in self.views.iter().filter(|view| view.seen_since(at)) {
            let Some((shard, seen)) = &view.seen else { continue };
            capacity += shard.capacity;
            let live = |since: Instant| seen.since(since) < heartbeat * 3 / 2;
            for (id, (entry, _)) in view.sightings.iter().filter(|(_, (_, since))| live(*since)) {
                let demand = demands.entry(id).or_default();
                demand.slots += entry.slots;
                if entry.want > 0 {
                    demand.want = entry.want;
                    demand.elsewhere = entry.slots + entry.elsewhere;
                }
            }
        }
        // Some of the other entries may be in these shards, and slots taken since the last write are no longer wanted.
        let others = |Demand { slots, elsewhere, want }: Demand| Demand {
            slots,
            elsewhere: elsewhere.saturating_sub(slots),
            want: want.saturating_sub(slots.saturating_sub(elsewhere)),
        };
        Some((demands.into_values().map(others).collect(), capacity))
    }

    /// Slots in use and all slots, as last seen. A shard that was never seen counts as free.
    pub(super) fn totals(&self, limit: u64) -> (u64, u64) {
        (0..SHARDS).fold((0, 0), |(used, all), k| match self.shard(k) {
            Some(shard) => {
                let used_here = shard.capacity.saturating_sub(shard.free);
                (used.saturating_add(used_here), all.saturating_add(shard.capacity))
            }
            None => (used, all.saturating_add(shard::capacity(limit, k))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay::Seed;

    const LEASE: Duration = Duration::from_secs(120);
    const HEARTBEAT: Duration = Duration::from_secs(30);

    fn watch() -> NeighbourWatch {
        NeighbourWatch::new(&mut Seed::new(1).rng())
    }

    fn shard(heartbeats: &[(&str, i64)]) -> Shard {
        let entry = |heartbeat| Entry { slots: 1, heartbeat, epoch: 1, node: Some(0), want: 0, elsewhere: 0 };
        let entries =
            heartbeats.iter().map(|(id, heartbeat)| ((*id).to_owned(), entry(*heartbeat))).collect();
        Shard { entries, ..Shard::unwritten(80, 0, LEASE) }
    }

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn an_instance_is_dead_once_its_entry_is_unchanged_for_a_whole_lease() {
        let mut watch = watch();
        let mut saw = |heartbeats: &[(&str, i64)], seconds| {
            watch.saw(0, shard(heartbeats), at(seconds), None);
            watch.expired.drain(..).map(|(_, id, _)| id).collect::<Vec<_>>()
        };
        assert!(saw(&[("a", 1), ("b", 1)], 0).is_empty());
        assert!(saw(&[("a", 1), ("b", 2)], 119).is_empty());
        assert_eq!(saw(&[("a", 1), ("b", 2)], 120), ["a"]);
        assert_eq!(saw(&[("b", 2)], 240).len(), 1);
    }

    #[test]
    fn reads_go_on_until_a_shard_where_an_instance_lives() {
        let mut watch = watch();
        let looks = |watch: &NeighbourWatch, now| {
            let mut read = 0;
            while watch.next_in_ring(6, read, now, HEARTBEAT, 1, false).is_some() {
                read += 1;
            }
            read
        };
        assert_eq!(looks(&watch, at(0)), 7, "nothing is known of anyone");
        let many: Vec<String> = (0..100).map(|number| number.to_string()).collect();
        let all = |heartbeat| shard(&many.iter().map(|id| (id.as_str(), heartbeat)).collect::<Vec<_>>());
        watch.saw(6, all(1), at(0), None);
        watch.saw(6, all(2), at(30), None);
        assert_eq!(looks(&watch, at(30)), 7, "the others may all be dead");
        watch.saw(1, shard(&[("x", 1)]), at(0), None);
        watch.saw(1, shard(&[("x", 2)]), at(30), None);
        assert_eq!(looks(&watch, at(30)), 3, "7, 0, and 1, where an instance lives");
        assert_eq!(looks(&watch, at(91)), 7, "it has not changed for two heartbeats");
    }
    #[test]
    fn slots_taken_since_the_want_was_written_count_once() {
        let mut watch = watch();
        let entry =
            |slots, want, elsewhere| Entry { slots, heartbeat: 1, epoch: 1, node: None, want, elsewhere };
        let shard =
            |entry| Shard { entries: [("a".to_owned(), entry)].into(), ..Shard::unwritten(80, 0, LEASE) };
        // It had 4 here and 3 elsewhere when it wanted 9; those elsewhere have become 10.
        watch.saw(0, shard(entry(4, 9, 3)), at(0), None);
        watch.saw(1, shard(entry(10, 0, 0)), at(0), None);
        let demand = |slots, want| Some((vec![Demand { slots, elsewhere: 0, want }], 20));
        assert_eq!(watch.demands(at(0), HEARTBEAT), demand(14, 2));
        watch.saw(1, shard(entry(13, 0, 0)), at(1), None);
        assert_eq!(watch.demands(at(0), HEARTBEAT), demand(17, 0));
    }
}
