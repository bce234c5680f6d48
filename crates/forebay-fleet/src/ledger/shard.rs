//! A shard: an item with the entries of several instances, and the five writes that change it. Each write keeps
//! `free + sum of slots = capacity`.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::expression::{Change, Condition};
use crate::item::{Item, Path, Value};
use crate::table::Update;

/// Items that hold the entries of a fleet: enough that none exceeds one write unit or the throughput of one item.
pub(crate) const SHARDS: u8 = 8;
/// Node numbers per shard. Eight shards have the 1,024 numbers that fit into an id.
const NODES: u16 = 128;

/// One shard, as last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shard {
    pub(crate) capacity: u64,
    pub(crate) free: u64,
    /// The number of joins so far.
    pub(crate) joins: i64,
    /// How long an entry lives without a heartbeat. The instance that created the item has set it for all.
    pub(crate) lease: Duration,
    pub(crate) entries: BTreeMap<String, Entry>,
    /// Whether the item exists.
    pub(crate) written: bool,
}

/// The entry of one instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) slots: u64,
    /// Changes with every write. It is the time of day in seconds, so that operators see its age. Decisions depend only
    /// on whether it changes.
    pub(crate) heartbeat: i64,
    /// The number of its join. Two entries of one instance never have the same, so a late write to a former entry fails.
    pub(crate) epoch: i64,
    /// Unique in the fleet. Only the home entry has one, and none if all are taken.
    pub(crate) node: Option<u16>,
    /// How many more slots its instance wants. Only in the home entry.
    pub(crate) want: u64,
    /// If it wants more: the slots in its other entries.
    pub(crate) elsewhere: u64,
}

/// The key of shard `k`.
pub(crate) fn key(endpoint: &str, k: u8) -> String {
    format!("forebay_ledger#{endpoint}#{k}")
}

/// The part of the fleet's limit in shard `k`.
pub(crate) fn capacity(limit: u64, k: u8) -> u64 {
    let shards = u64::from(SHARDS);
    limit / shards + u64::from(u64::from(k) < limit % shards)
}

/// The index of the instance that made the `join`th join of shard `k`; see
/// [`Leases::instance_index`](forebay::Leases::instance_index).
///
/// Node numbers are random, and multiples of the golden ratio spread evenly only for consecutive numbers. Joins are
/// consecutive, because each is one counted write, and the instances of a deployment are the latest ones.
///
/// Each shard has an eighth of the indexes, and its joins are consecutive there. Shards have about equally many
/// instances, but over the years their numbers of joins drift apart, so an index must not compare them.
pub(crate) fn index(k: u8, join: i64) -> u64 {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    // More than any shard has at once. Counting to eight times that takes less than a millisecond.
    let join = usize::try_from(join.rem_euclid(1 << 16)).unwrap_or(0);
    let ours = |index: &u64| index.wrapping_mul(GOLDEN) >> 61 == u64::from(k);
    (0..).filter(ours).nth(join).unwrap_or(0)
}

fn instances() -> Path {
    Path::of("inst")
}

/// Slots as a number of the table.
fn signed(slots: u64) -> i64 {
    i64::try_from(slots).unwrap_or(i64::MAX)
}

impl Shard {
    /// A shard that does not exist yet.
    pub(crate) fn unwritten(limit: u64, k: u8, lease: Duration) -> Self {
        let capacity = capacity(limit, k);
        Self { capacity, free: capacity, joins: 0, lease, entries: BTreeMap::new(), written: false }
    }

    /// Reads `item`; none if it is not a valid shard.
    pub(crate) fn read(item: &Item) -> Option<Self> {
        let count = |name| item.number(name).and_then(|number| u64::try_from(number).ok());
        let entries = item.map("inst")?.iter().map(|(id, entry)| Some((id.clone(), Entry::read(entry)?)));
        Some(Self {
            capacity: count("capacity")?,
            free: count("free")?,
            joins: item.number("joins")?,
            lease: Duration::from_secs(count("lease")?),
            entries: entries.collect::<Option<_>>()?,
            written: true,
        })
    }

    /// A free node number of shard `k`, chosen by a random number, so that instances that join together rarely choose
    /// the same. None if all are taken.
    pub(crate) fn free_node(&self, k: u8, random: u64) -> Option<u16> {
        let first = u16::from(k) * NODES;
        let taken = |node: &u16| self.entries.values().any(|entry| entry.node == Some(*node));
        let free: Vec<u16> = (first..first + NODES).filter(|node| !taken(node)).collect();
        let place = usize::try_from(random % free.len().max(1) as u64).unwrap_or(0);
        free.get(place).copied()
    }

    /// Whether the entry of another instance than `id` has this node number.
    pub(crate) fn is_taken(&self, node: u16, id: &str) -> bool {
        self.entries.iter().any(|(other, entry)| other != id && entry.node == Some(node))
    }

    /// Whether few slots are left. Then instances give spare slots back.
    pub(crate) fn is_tight(&self) -> bool {
        self.free.saturating_mul(20) < self.capacity
    }

    /// Creates the item, if it does not exist.
    pub(crate) fn create(&self, endpoint: &str, k: u8) -> Update {
        Update::of(key(endpoint, k))
            .when(Condition::no_item())
            .change(Change::set("capacity", signed(self.capacity)))
            .change(Change::set("free", signed(self.capacity)))
            .change(Change::set("joins", 0))
            .change(Change::set("lease", signed(self.lease.as_secs())))
            .change(Change::Set(instances(), Value::Map(BTreeMap::new())))
    }
}

impl Entry {
    fn read(value: &Value) -> Option<Self> {
        let map = value.as_map()?;
        let number = |name: &str| map.get(name).and_then(Value::as_number);
        Some(Self {
            slots: u64::try_from(number("s")?).ok()?,
            heartbeat: number("b")?,
            epoch: number("e")?,
            node: number("n").map(u16::try_from).transpose().ok()?,
            want: number("w").and_then(|want| u64::try_from(want).ok()).unwrap_or(0),
            elsewhere: number("o").and_then(|others| u64::try_from(others).ok()).unwrap_or(0),
        })
    }

    /// With names of one letter, a shard of 27 entries fits into a kilobyte and costs one write unit. The want is
    /// rare, and zero is not written.
    fn write(&self) -> Value {
        let values = [("s", signed(self.slots)), ("b", self.heartbeat), ("e", self.epoch)];
        let node = self.node.map(|node| ("n", i64::from(node)));
        let rare = [("w", signed(self.want)), ("o", signed(self.elsewhere))];
        let rare = rare.into_iter().filter(|(_, number)| *number > 0);
        let values = values.into_iter().chain(node).chain(rare);
        Value::Map(values.map(|(name, number)| (name.to_owned(), Value::Number(number))).collect())
    }

    /// Adds the entry of `id`, if there is none.
    pub(crate) fn join(&self, endpoint: &str, k: u8, id: &str) -> Update {
        let at = instances().then(id);
        Update::of(key(endpoint, k))
            .when(Condition::Missing(at.clone()))
            .when(Condition::AtLeast("free".into(), signed(self.slots)))
            .change(Change::Set(at, self.write()))
            .change(Change::plus("joins", 1))
            .change(Change::plus("free", -signed(self.slots)))
    }

    /// Changes this entry of `id` to `after`: a heartbeat, and new slots if they differ.
    pub(crate) fn renew(&self, after: &Self, endpoint: &str, k: u8, id: &str) -> Update {
        let at = instances().then(id);
        let more = signed(after.slots) - signed(self.slots);
        let mut update =
            self.mine(endpoint, k, id).change(Change::set(at.clone().then("b"), after.heartbeat));
        if more > 0 {
            update = update.when(Condition::AtLeast("free".into(), more));
        }
        if more != 0 {
            update = update
                .change(Change::set(at.clone().then("s"), signed(after.slots)))
                .change(Change::plus("free", -more));
        }
        for (name, before, after) in [("w", self.want, after.want), ("o", self.elsewhere, after.elsewhere)] {
            let at = at.clone().then(name);
            update = match after {
                after if after == before => update,
                0 => update.change(Change::Remove(at)),
                after => update.change(Change::set(at, signed(after))),
            };
        }
        update
    }

    /// Removes this entry of `id` and frees its slots. For `id` itself: nothing else changes its slots.
    pub(crate) fn leave(&self, endpoint: &str, k: u8, id: &str) -> Update {
        self.mine(endpoint, k, id)
            .change(Change::Remove(instances().then(id)))
            .change(Change::plus("free", signed(self.slots)))
    }

    /// Removes this entry of `id` and frees its slots. For other instances: only if it is exactly as seen.
    pub(crate) fn reap(&self, endpoint: &str, k: u8, id: &str) -> Update {
        let slots = instances().then(id).then("s");
        self.leave(endpoint, k, id).when(Condition::Equals(slots, Value::Number(signed(self.slots))))
    }

    /// Only while the entry has this epoch and this heartbeat.
    fn mine(&self, endpoint: &str, k: u8, id: &str) -> Update {
        let at = instances().then(id);
        Update::of(key(endpoint, k))
            .when(Condition::Equals(at.clone().then("e"), Value::Number(self.epoch)))
            .when(Condition::Equals(at.then("b"), Value::Number(self.heartbeat)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression;

    const LEASE: Duration = Duration::from_secs(120);

    fn made(limit: u64, k: u8) -> Item {
        let update = Shard::unwritten(limit, k, LEASE).create("host", k);
        expression::apply(&Item::new(), &update.changes).unwrap()
    }

    fn apply(item: &Item, update: &Update) -> Option<Item> {
        let holds = update.when.iter().all(|condition| condition.holds(Some(item)));
        holds.then(|| expression::apply(item, &update.changes).unwrap())
    }

    #[test]
    fn shards_add_up_to_the_limit() {
        for limit in [0, 1, 7, 8, 9, 200, 10_000, 10_001] {
            assert_eq!((0..SHARDS).map(|k| capacity(limit, k)).sum::<u64>(), limit);
        }
    }

    #[test]
    fn every_write_keeps_the_sum_and_applies_once() {
        let item = made(100, 0);
        assert_eq!(Shard::read(&item), Some(Shard { written: true, ..Shard::unwritten(100, 0, LEASE) }));
        let entry = Entry { slots: 5, heartbeat: 1, epoch: 1, node: Some(0), want: 0, elsewhere: 0 };
        let check = |item: &Item| {
            let shard = Shard::read(item).unwrap();
            assert_eq!(
                shard.free + shard.entries.values().map(|entry| entry.slots).sum::<u64>(),
                shard.capacity
            );
        };
        let mut item = apply(&item, &entry.join("host", 0, "a")).unwrap();
        check(&item);
        assert_eq!(apply(&item, &entry.join("host", 0, "a")), None, "joined twice");
        let grown = Entry { slots: 13, heartbeat: 2, want: 7, elsewhere: 9, ..entry };
        let needier = Entry { heartbeat: 3, want: 8, ..grown };
        let shrunk = Entry { slots: 2, heartbeat: 4, ..entry };
        for (before, after) in [(entry, grown), (grown, needier), (needier, shrunk)] {
            let renew = before.renew(&after, "host", 0, "a");
            item = apply(&item, &renew).unwrap();
            check(&item);
            assert_eq!(Shard::read(&item).unwrap().entries["a"], after);
            assert_eq!(apply(&item, &renew), None, "renewed twice");
        }
        let too_much = Entry { slots: 14, heartbeat: 5, ..entry };
        assert_eq!(apply(&item, &shrunk.renew(&too_much, "host", 0, "a")), None);
        assert_eq!(apply(&item, &grown.reap("host", 0, "a")), None, "it has sent a heartbeat since");
        item = apply(&item, &shrunk.reap("host", 0, "a")).unwrap();
        check(&item);
        assert_eq!(apply(&item, &shrunk.leave("host", 0, "a")), None, "freed twice");
        assert_eq!(Shard::read(&item).unwrap().free, 13);
    }

    #[test]
    fn twenty_seven_entries_cost_one_write_unit() {
        let host = "abcdefghijklmnopqrstuvwxyz.dsql.us-east-1.on.aws";
        let mut item = made(10_000, 7);
        for number in 0..27 {
            let node = Shard::read(&item).unwrap().free_node(7, 13);
            let entry =
                Entry { slots: 46, heartbeat: 123_456_789, epoch: number + 1, node, want: 0, elsewhere: 0 };
            item = apply(&item, &entry.join(host, 7, &format!("his{number:05}"))).unwrap();
        }
        assert!(item.size(&key(host, 7)) <= 1024, "{} bytes", item.size(&key(host, 7)));
        let shard = Shard::read(&item).unwrap();
        let nodes: std::collections::BTreeSet<u16> =
            shard.entries.values().filter_map(|entry| entry.node).collect();
        assert!(nodes.len() == 27 && nodes.iter().all(|node| (896..1024).contains(node)), "{nodes:?}");
        let (id, entry) = shard.entries.first_key_value().unwrap();
        let node = entry.node.unwrap();
        assert!(!shard.is_taken(node, id) && shard.is_taken(node, "other"));
    }

    /// The most turns of a fleet within a part of a page.
    fn most_within(part: f64, indexes: &[u64]) -> usize {
        let turn = |index: &u64| index.wrapping_mul(0x9e37_79b9_7f4a_7c15) as f64 / 2f64.powi(64);
        let turns: Vec<f64> = indexes.iter().map(turn).collect();
        let near = |from: f64| turns.iter().filter(|turn| (**turn - from).rem_euclid(1.0) < part).count();
        turns.iter().map(|turn| near(*turn)).max().unwrap_or(0)
    }

    #[test]
    fn offsets_are_even_for_any_drift_of_joins() {
        // 200 instances, of which 3.5 are due in a second if a page is 57 s.
        for drift in [0, 1, 2, 5, 17, 100, 999] {
            let joins = |k: u8| (1..=25).map(move |join| index(k, join + i64::from(k) * drift));
            let indexes: Vec<u64> = (0..SHARDS).flat_map(joins).collect();
            let most = most_within(1.0 / 57.0, &indexes);
            assert!(most <= 6, "{most} with a drift of {drift}");
            let apart: std::collections::BTreeSet<&u64> = indexes.iter().collect();
            assert_eq!(apart.len(), 200);
        }
    }

    #[test]
    fn indexes_are_dense_and_unique() {
        let all: std::collections::BTreeSet<u64> =
            (0..SHARDS).flat_map(|k| (1..=128).map(move |join| index(k, join))).collect();
        assert_eq!(all.len(), 1024);
        assert!(all.last().is_some_and(|last| *last < 1100), "{:?}", all.last());
        assert_eq!(
            index(3, i64::MAX),
            index(3, i64::from(u16::MAX)),
            "and however many have joined, it is found"
        );
    }

    #[test]
    fn a_shard_has_128_node_numbers() {
        let mut shard = Shard::unwritten(10_000, 3, LEASE);
        for number in 0..128 {
            let node = shard.free_node(3, number * 77);
            assert!(node.is_some_and(|node| (384..512).contains(&node)), "{node:?}");
            let entry = Entry { slots: 0, heartbeat: 1, epoch: 1, node, want: 0, elsewhere: 0 };
            shard.entries.insert(number.to_string(), entry);
        }
        assert_eq!(shard.free_node(3, 5), None);
        let entry = Entry { slots: 2, heartbeat: 1, epoch: 1, node: None, want: 0, elsewhere: 0 };
        let item = apply(&made(100, 3), &entry.join("host", 3, "a")).unwrap();
        assert_eq!(Shard::read(&item).unwrap().entries["a"], entry, "an entry without a number is one, too");
    }
}
