//! Audits who holds which slots. It reads the items as they are written, and does not trust the writers.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay::Instant;
use forebay_fleet::{Item, Value};

/// A lease may belong to a connection that is still being opened: this long, the wait for a permit included.
const OPENING: Duration = Duration::from_secs(40);

/// The holders of slots, according to the table.
pub(crate) struct LeaseAudit {
    ledger_prefix: String,
    lease_prefix: String,
    /// By name in the table.
    members: BTreeMap<String, Member>,
    /// The contents of each item: slots by name.
    entries: BTreeMap<String, BTreeMap<String, u64>>,
    /// The name in the table of each running instance.
    running: Vec<Option<String>>,
    held: u64,
}

#[derive(Default)]
struct Member {
    /// None: not an instance of this simulation.
    instance: Option<usize>,
    slots: u64,
    died: Option<Instant>,
    /// It started without access to the table, and lent on its own account until it joined.
    alone: bool,
    /// When it first learned that it is in the table.
    joined: Option<Instant>,
    /// By item: when it sent the last renewal that it knows to be successful.
    confirmed: BTreeMap<String, Instant>,
    /// It was cut off for so long that others may have taken its slots, and it has had more connections than
    /// slots since.
    displaced: bool,
    /// It is dead, and its slots were already reported as late.
    overdue: bool,
}

/// The effects of a write.
#[derive(Default)]
pub(crate) struct Written {
    /// Running instances whose slots changed.
    pub(crate) instances: Vec<usize>,
    /// Freed slots of the dead: name, time of death, number of slots.
    pub(crate) reaped: Vec<(String, Instant, u64)>,
    /// Why the item is inconsistent.
    pub(crate) wrong: Option<String>,
}

impl LeaseAudit {
    pub(crate) fn new(endpoint: &str, instances: usize) -> Self {
        Self {
            ledger_prefix: format!("forebay_ledger#{endpoint}#"),
            lease_prefix: format!("dsqllease#{endpoint}#"),
            members: BTreeMap::new(),
            entries: BTreeMap::new(),
            running: vec![None; instances],
            held: 0,
        }
    }

    /// An instance started under this name; `alone`, if it did not reach the table. Returns whether no other
    /// runs.
    pub(crate) fn started(&mut self, instance: usize, name: String, alone: bool) -> bool {
        let first = self.running.iter().all(Option::is_none);
        let member = self.members.entry(name.clone()).or_default();
        (member.instance, member.died, member.alone) = (Some(instance), None, alone);
        self.running[instance] = Some(name);
        first
    }

    /// The process ended, and may have left slots behind.
    pub(crate) fn died(&mut self, instance: usize, now: Instant) {
        let Some(name) = self.running[instance].take() else { return };
        if let Some(member) = self.members.get_mut(&name) {
            member.died = Some(now);
        }
    }

    /// The instance got the answer to a write of the item at `key`. `renewed` is when it sent the write, if
    /// that renewed its own entry.
    pub(crate) fn confirmed(&mut self, instance: usize, key: String, renewed: Option<Instant>) {
        if !key.starts_with(&self.ledger_prefix) {
            return;
        }
        let Some(name) = &self.running[instance] else { return };
        let is_in = self.entries.get(&key).is_some_and(|entries| entries.contains_key(name));
        let Some(member) = self.members.get_mut(name) else { return };
        match renewed {
            _ if !is_in => drop(member.confirmed.remove(&key)),
            Some(sent) => {
                member.joined.get_or_insert(sent);
                member.confirmed.insert(key, sent);
            }
            None => {}
        }
    }

    pub(crate) fn wrote(&mut self, key: &str, item: Option<&Item>) -> Written {
        if key.starts_with(&self.ledger_prefix) {
            match item.map(entries) {
                Some(Ok(entries)) => self.update(key, &entries),
                Some(Err(wrong)) => Written { wrong: Some(format!("{key} {wrong}")), ..Written::default() },
                None => self.update(key, &[]),
            }
        } else if key.starts_with(&self.lease_prefix) {
            let holder = item.and_then(|item| item.text("service_name")).map(|service| (service, 1));
            self.update(key, holder.as_slice())
        } else {
            Written::default()
        }
    }

    /// Replaces the contents of an item. `now` is sorted by name.
    fn update(&mut self, key: &str, now: &[(&str, u64)]) -> Written {
        let mut before = self.entries.remove(key).unwrap_or_default();
        let mut changes = Vec::new();
        before.retain(|name, had| {
            let stays = now.binary_search_by_key(&name.as_str(), |(name, _)| name).is_ok();
            if !stays {
                changes.push((name.clone(), *had, 0));
            }
            stays
        });
        for (name, has) in now {
            match before.get_mut(*name) {
                Some(had) if had == has => {}
                Some(had) => changes.push(((*name).to_owned(), std::mem::replace(had, *has), *has)),
                None => {
                    changes.push(((*name).to_owned(), 0, *has));
                    before.insert((*name).to_owned(), *has);
                }
            }
        }
        if !before.is_empty() {
            self.entries.insert(key.to_owned(), before);
        }
        let mut written = Written::default();
        for (name, had, has) in changes {
            let member = self.members.entry(name.clone()).or_default();
            member.slots = member.slots + has - had;
            self.held = self.held + has - had;
            written.instances.extend(member.instance.filter(|_| member.died.is_none()));
            if let Some(died) = member.died.filter(|_| has < had && !member.overdue) {
                written.reaped.push((name.clone(), died, had - has));
            }
            if member.slots == 0 && member.died.is_some() {
                self.members.remove(&name);
            }
        }
        written
    }

    /// Slots of the running process of an instance.
    pub(crate) fn held_by(&self, instance: usize) -> u64 {
        self.member_at(instance).map_or(0, |member| member.slots)
    }

    fn member_at(&self, instance: usize) -> Option<&Member> {
        self.members.get(self.running[instance].as_ref()?)
    }

    /// All slots that are held.
    pub(crate) fn held(&self) -> u64 {
        self.held
    }

    pub(crate) fn held_by_dead(&self) -> u64 {
        self.members.values().filter(|member| member.died.is_some()).map(|member| member.slots).sum()
    }

    /// Calls `is_late` for each dead member that still holds slots, until it returns true.
    pub(crate) fn check_dead(&mut self, mut is_late: impl FnMut(&str, Instant, u64) -> bool) {
        for (name, member) in &mut self.members {
            if let Some(died) = member.died.filter(|_| member.slots > 0 && !member.overdue) {
                member.overdue = is_late(name, died, member.slots);
            }
        }
    }

    /// Whether the instance may have more sessions than slots. It may if it could not renew its slots for a
    /// whole lease, so that others may have taken them; if it could not join at all; or if connections that
    /// it began to open before it joined are still being opened.
    pub(crate) fn excuse(&mut self, instance: usize, sessions: usize, now: Instant, lease: Duration) -> bool {
        let Some(name) = &self.running[instance] else { return false };
        let Some(member) = self.members.get_mut(name) else { return false };
        if sessions as u64 <= member.slots {
            member.displaced = false;
            return true;
        }
        let late = |sent: &Instant| now.since(*sent) >= lease;
        let lent_alone = member.alone && member.joined.is_none_or(|joined| now.since(joined) < OPENING);
        member.displaced |= lent_alone || member.confirmed.is_empty() || member.confirmed.values().any(late);
        member.displaced
    }

    /// By how much the fleet may exceed its limit: the sessions of displaced instances beyond their slots,
    /// and sessions that instances abandoned during a partition. `sessions` returns the sessions that an
    /// instance knows, and those that the cluster counts for it.
    pub(crate) fn displaced(&self, sessions: impl Fn(usize) -> (usize, usize)) -> u64 {
        let beyond = |instance: usize| {
            let (known, counted) = sessions(instance);
            let is_displaced = self.member_at(instance).is_some_and(|member| member.displaced);
            if !is_displaced && counted == known {
                return 0;
            }
            let of_instance = self.members.values().filter(|member| member.instance == Some(instance));
            (counted as u64).saturating_sub(of_instance.map(|member| member.slots).sum())
        };
        (0..self.running.len()).map(beyond).sum()
    }
}

/// The entries of a ledger item, or why it is inconsistent.
fn entries(item: &Item) -> Result<Vec<(&str, u64)>, String> {
    let number = |name: &str| item.number(name).ok_or_else(|| format!("has no {name}"));
    let (capacity, free) = (number("capacity")?, number("free")?);
    let inst = item.map("inst").ok_or("has no inst")?;
    let mut slots = Vec::with_capacity(inst.len());
    for (name, entry) in inst {
        let held = entry.as_map().and_then(|entry| entry.get("s")).and_then(Value::as_number);
        let held = held.and_then(|held| u64::try_from(held).ok());
        slots.push((name.as_str(), held.ok_or_else(|| format!("has no slots for {name}"))?));
    }
    let sum = slots.iter().map(|(_, held)| held).sum::<u64>();
    if free < 0 || u64::try_from(free).unwrap_or(0) + sum != u64::try_from(capacity).unwrap_or(0) {
        return Err(format!("has {free} free and {sum} held, which is not its capacity of {capacity}"));
    }
    Ok(slots)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(40);

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    fn shard(free: i64, slots: &[(&str, i64)]) -> Item {
        let entry = |slots: i64| Value::Map([("s".to_owned(), Value::Number(slots))].into());
        let entries = slots.iter().map(|(name, slots)| ((*name).to_owned(), entry(*slots))).collect();
        Item::new().with("capacity", 10).with("free", free).with("inst", Value::Map(entries))
    }

    #[test]
    fn an_item_that_does_not_add_up_is_wrong() {
        let mut audit = LeaseAudit::new("host", 1);
        assert!(audit.wrote("forebay_ledger#host#0", Some(&shard(7, &[("a", 3)]))).wrong.is_none());
        for (free, slots) in [(7, 4), (8, 3), (-1, 11)] {
            let written = audit.wrote("forebay_ledger#host#0", Some(&shard(free, &[("a", slots)])));
            assert!(written.wrong.is_some(), "{free} and {slots}");
        }
        assert!(audit.wrote("forebay_bucket#host", Some(&Item::new())).wrong.is_none());
    }

    #[test]
    fn holders_come_from_the_items() {
        let mut audit = LeaseAudit::new("host", 2);
        assert!(audit.started(0, "a".to_owned(), false), "no other was running");
        let written = audit.wrote("forebay_ledger#host#0", Some(&shard(3, &[("a", 5), ("b", 2)])));
        assert_eq!((written.instances, audit.held_by(0), audit.held()), (vec![0], 5, 7));
        audit.died(0, at(9));
        assert_eq!((audit.held_by(0), audit.held_by_dead(), audit.held()), (0, 5, 7));
        let written = audit.wrote("forebay_ledger#host#0", Some(&shard(8, &[("b", 2)])));
        assert_eq!(written.reaped, [("a".to_owned(), at(9), 5)]);
        assert_eq!((audit.held_by_dead(), audit.held()), (0, 2));
    }

    #[test]
    fn only_an_instance_that_could_not_renew_is_excused() {
        let mut audit = LeaseAudit::new("host", 1);
        audit.started(0, "a".to_owned(), false);
        audit.wrote("forebay_ledger#host#0", Some(&shard(5, &[("a", 5)])));
        audit.confirmed(0, "forebay_ledger#host#0".to_owned(), Some(at(0)));
        audit.confirmed(0, "forebay_ledger#host#0".to_owned(), None);
        assert!(audit.excuse(0, 5, at(1), LEASE));
        assert!(!audit.excuse(0, 6, at(39), LEASE) && audit.displaced(|_| (6, 6)) == 0);
        assert!(audit.excuse(0, 6, at(40), LEASE));
        assert_eq!(audit.displaced(|_| (6, 6)), 1);
        assert!(audit.excuse(0, 5, at(41), LEASE) && audit.displaced(|_| (6, 6)) == 0, "it has closed one");
    }

    #[test]
    fn what_was_lent_before_joining_is_excused_until_it_is_open() {
        for (alone, seconds, excused) in [(true, 39, true), (true, 40, false), (false, 1, false)] {
            let mut audit = LeaseAudit::new("host", 1);
            audit.started(0, "a".to_owned(), alone);
            audit.wrote("forebay_ledger#host#0", Some(&shard(10, &[("a", 0)])));
            for sent in [0, 30] {
                audit.confirmed(0, "forebay_ledger#host#0".to_owned(), Some(at(sent)));
            }
            assert_eq!(audit.excuse(0, 1, at(seconds), LEASE), excused, "{alone}, after {seconds} s");
        }
    }
}
