//! Who holds what: read off the table's items as they are written, and not asked of those who wrote them.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay::Instant;
use forebay_fleet::{Item, Value};

/// How long after it was lent a lease may be for a connection still on its way: as long as one waits for a permit, and a little.
const ON_THE_WAY: Duration = Duration::from_secs(40);

/// Everybody who is in the table, and what for.
pub(crate) struct Roll {
    ledger: String,
    lease: String,
    /// By the name each has in the table.
    members: BTreeMap<String, Member>,
    /// What each item says, by its key: slots by name.
    entries: BTreeMap<String, BTreeMap<String, u64>>,
    /// Who runs where, by its name in the table.
    present: Vec<Option<String>>,
    held: u64,
}

#[derive(Default)]
struct Member {
    /// None: nobody we started.
    place: Option<usize>,
    slots: u64,
    died: Option<Instant>,
    /// It began out of the table's reach, and lent on its own account until it could join.
    alone: bool,
    /// When it first knew that it is in the table.
    joined: Option<Instant>,
    /// When its last renewal in each item was sent that it knows to be done.
    confirmed: BTreeMap<String, Instant>,
    /// It was cut off for so long that its slots may have been taken, and has had more than them since.
    displaced: bool,
    /// It is dead, and was found to be there for too long.
    overdue: bool,
}

/// What a write has changed.
#[derive(Default)]
pub(crate) struct Written {
    /// Where those are whose slots it changed.
    pub(crate) places: Vec<usize>,
    /// What it freed of the dead: who, when they died, and how many slots.
    pub(crate) reaped: Vec<(String, Instant, u64)>,
    /// What is wrong with the item.
    pub(crate) wrong: Option<String>,
}

impl Roll {
    pub(crate) fn new(endpoint: &str, instances: usize) -> Self {
        Self {
            ledger: format!("forebay_ledger#{endpoint}#"),
            lease: format!("dsqllease#{endpoint}#"),
            members: BTreeMap::new(),
            entries: BTreeMap::new(),
            present: vec![None; instances],
            held: 0,
        }
    }

    /// An instance has begun, under this name; `alone`, if it did not reach the table then. Returns whether there was nobody before.
    pub(crate) fn begun(&mut self, place: usize, name: String, alone: bool) -> bool {
        let first = self.present.iter().all(Option::is_none);
        let member = self.members.entry(name.clone()).or_default();
        (member.place, member.died, member.alone) = (Some(place), None, alone);
        self.present[place] = Some(name);
        first
    }

    /// It is gone, without giving back what it has.
    pub(crate) fn died(&mut self, place: usize, now: Instant) {
        let Some(name) = self.present[place].take() else { return };
        if let Some(member) = self.members.get_mut(&name) {
            member.died = Some(now);
        }
    }

    /// The instance at `place` knows that its write of the item at `key` was done; sent then, if it renewed its own entry.
    pub(crate) fn confirmed(&mut self, place: usize, key: String, renewed: Option<Instant>) {
        if !key.starts_with(&self.ledger) {
            return;
        }
        let Some(name) = &self.present[place] else { return };
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

    /// An item was written.
    pub(crate) fn wrote(&mut self, key: &str, item: Option<&Item>) -> Written {
        if key.starts_with(&self.ledger) {
            match item.map(entries) {
                Some(Ok(entries)) => self.enter(key, &entries),
                Some(Err(wrong)) => Written { wrong: Some(format!("{key} {wrong}")), ..Written::default() },
                None => self.enter(key, &[]),
            }
        } else if key.starts_with(&self.lease) {
            let holder = item.and_then(|item| item.text("service_name")).map(|service| (service, 1));
            self.enter(key, holder.as_slice())
        } else {
            Written::default()
        }
    }

    /// An item says `now` who has how many slots, in the order of their names.
    fn enter(&mut self, key: &str, now: &[(&str, u64)]) -> Written {
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
            written.places.extend(member.place.filter(|_| member.died.is_none()));
            if let Some(died) = member.died.filter(|_| has < had && !member.overdue) {
                written.reaped.push((name.clone(), died, had - has));
            }
            if member.slots == 0 && member.died.is_some() {
                self.members.remove(&name);
            }
        }
        written
    }

    /// Slots of the instance that runs at `place`.
    pub(crate) fn held_by(&self, place: usize) -> u64 {
        self.member_at(place).map_or(0, |member| member.slots)
    }

    fn member_at(&self, place: usize) -> Option<&Member> {
        self.members.get(self.present[place].as_ref()?)
    }

    /// Slots of everybody.
    pub(crate) fn held(&self) -> u64 {
        self.held
    }

    /// Slots of the dead.
    pub(crate) fn of_the_dead(&self) -> u64 {
        self.members.values().filter(|member| member.died.is_some()).map(|member| member.slots).sum()
    }

    /// Asks `is_late` of each of the dead whose slots are still in the table, until it says so.
    pub(crate) fn dead(&mut self, mut is_late: impl FnMut(&str, Instant, u64) -> bool) {
        for (name, member) in &mut self.members {
            if let Some(died) = member.died.filter(|_| member.slots > 0 && !member.overdue) {
                member.overdue = is_late(name, died, member.slots);
            }
        }
    }

    /// Whether the instance at `place`, which has so many sessions, is excused for having more than its slots: it has not
    /// been able to renew one of them for as long as the others may have to wait before they take it, or not to join at all; or
    /// what it lent before it could is still on its way.
    pub(crate) fn excuse(&mut self, place: usize, sessions: usize, now: Instant, lease: Duration) -> bool {
        let Some(name) = &self.present[place] else { return false };
        let Some(member) = self.members.get_mut(name) else { return false };
        if sessions as u64 <= member.slots {
            member.displaced = false;
            return true;
        }
        let late = |sent: &Instant| now.since(*sent) >= lease;
        let lent_alone = member.alone && member.joined.is_none_or(|joined| now.since(joined) < ON_THE_WAY);
        member.displaced |= lent_alone || member.confirmed.is_empty() || member.confirmed.values().any(late);
        member.displaced
    }

    /// How many more than `limit` there may be: what each of the displaced has beyond its slots; and sessions of those cut off from
    /// the cluster that they, or processes before them, have given up and the cluster has not. `sessions` says of a place how many
    /// are known there, and how many the cluster counts.
    pub(crate) fn displaced(&self, sessions: impl Fn(usize) -> (usize, usize)) -> u64 {
        let beyond = |place: usize| {
            let (known, counted) = sessions(place);
            let is_displaced = self.member_at(place).is_some_and(|member| member.displaced);
            if !is_displaced && counted == known {
                return 0;
            }
            let of_place = self.members.values().filter(|member| member.place == Some(place));
            (counted as u64).saturating_sub(of_place.map(|member| member.slots).sum())
        };
        (0..self.present.len()).map(beyond).sum()
    }
}

/// The entries of a shard; or what is wrong with it.
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
        let mut roll = Roll::new("host", 1);
        assert!(roll.wrote("forebay_ledger#host#0", Some(&shard(7, &[("a", 3)]))).wrong.is_none());
        for (free, slots) in [(7, 4), (8, 3), (-1, 11)] {
            let written = roll.wrote("forebay_ledger#host#0", Some(&shard(free, &[("a", slots)])));
            assert!(written.wrong.is_some(), "{free} and {slots}");
        }
        assert!(roll.wrote("forebay_bucket#host", Some(&Item::new())).wrong.is_none());
    }

    #[test]
    fn who_holds_what_is_what_the_items_say() {
        let mut roll = Roll::new("host", 2);
        assert!(roll.begun(0, "a".to_owned(), false), "nobody was there");
        let written = roll.wrote("forebay_ledger#host#0", Some(&shard(3, &[("a", 5), ("b", 2)])));
        assert_eq!((written.places, roll.held_by(0), roll.held()), (vec![0], 5, 7));
        roll.died(0, at(9));
        assert_eq!((roll.held_by(0), roll.of_the_dead(), roll.held()), (0, 5, 7));
        let written = roll.wrote("forebay_ledger#host#0", Some(&shard(8, &[("b", 2)])));
        assert_eq!(written.reaped, [("a".to_owned(), at(9), 5)]);
        assert_eq!((roll.of_the_dead(), roll.held()), (0, 2));
    }

    #[test]
    fn only_who_could_not_renew_is_excused() {
        let mut roll = Roll::new("host", 1);
        roll.begun(0, "a".to_owned(), false);
        roll.wrote("forebay_ledger#host#0", Some(&shard(5, &[("a", 5)])));
        roll.confirmed(0, "forebay_ledger#host#0".to_owned(), Some(at(0)));
        roll.confirmed(0, "forebay_ledger#host#0".to_owned(), None);
        assert!(roll.excuse(0, 5, at(1), LEASE));
        assert!(!roll.excuse(0, 6, at(39), LEASE) && roll.displaced(|_| (6, 6)) == 0);
        assert!(roll.excuse(0, 6, at(40), LEASE));
        assert_eq!(roll.displaced(|_| (6, 6)), 1);
        assert!(roll.excuse(0, 5, at(41), LEASE) && roll.displaced(|_| (6, 6)) == 0, "it has closed one");
    }

    #[test]
    fn what_was_lent_before_joining_is_excused_until_it_is_open() {
        for (alone, seconds, excused) in [(true, 39, true), (true, 40, false), (false, 1, false)] {
            let mut roll = Roll::new("host", 1);
            roll.begun(0, "a".to_owned(), alone);
            roll.wrote("forebay_ledger#host#0", Some(&shard(10, &[("a", 0)])));
            for sent in [0, 30] {
                roll.confirmed(0, "forebay_ledger#host#0".to_owned(), Some(at(sent)));
            }
            assert_eq!(roll.excuse(0, 1, at(seconds), LEASE), excused, "{alone}, after {seconds} s");
        }
    }
}
