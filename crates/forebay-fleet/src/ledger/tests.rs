//! Books at one table, a call at a time.

use std::time::Duration;

use forebay::rt::VirtualTime;
use forebay::{Instant, Seed};

use super::book::{Book, Rules};
use super::call::{Act, Ask, Call, Taken};
use super::next::BEAT_ORIGIN;
use super::shard::{Entry, SHARDS};
use crate::item::Item;
use crate::memory::MemoryTable;
use crate::name::Name;
use crate::settings::StoreOutagePolicy;
use crate::table::{Table, TableError};

const BEAT: Duration = Duration::from_secs(30);
const LEASE: Duration = Duration::from_secs(120);

/// One instance that keeps a book.
struct Desk {
    book: Book,
    table: MemoryTable,
    now: Instant,
}

impl Desk {
    /// An instance made for `max_open` connections, in a fleet that may hold `limit`.
    fn new(id: &str, table: &MemoryTable, limit: u64, max_open: u64) -> Self {
        let rules = Rules {
            endpoint: "host".to_owned(),
            limit,
            block: 5,
            beat: BEAT,
            lease: LEASE,
            max_open,
            policy: StoreOutagePolicy::Local,
        };
        let book =
            Book::new(rules, Name::new(id, Seed::new(7).fork(id).number()), Seed::new(7).fork(id).rng());
        Self { book, table: table.clone(), now: Instant::ZERO }
    }

    fn wall(&self) -> Duration {
        BEAT_ORIGIN + self.now.since(Instant::ZERO)
    }

    fn next(&mut self) -> Act {
        let wall = self.wall();
        self.book.next(self.now, wall)
    }

    fn done(&self, call: &Call) -> Result<Option<Item>, TableError> {
        let time = VirtualTime::new();
        match self.book.ask(call) {
            Ask::Get(key) => time.run(self.table.get(&key)),
            Ask::Update(update) => time.run(self.table.update(&update)),
        }
    }

    fn answer(&mut self, call: &Call, outcome: Result<Option<Item>, TableError>) {
        let wall = self.wall();
        self.book.answer(call, self.now, self.now, wall, outcome);
    }

    /// Does what there is to do, until `until`, and returns the first call that `stop` is for, which is not made.
    fn run(&mut self, until: Instant, stop: impl Fn(&Call) -> bool) -> Option<Call> {
        loop {
            match self.next() {
                Act::Call(call) if stop(&call) => return Some(call),
                Act::Call(call) => {
                    let outcome = self.done(&call);
                    self.answer(&call, outcome);
                }
                Act::Wait(at) if at > until => {
                    self.now = self.now.max(until);
                    return None;
                }
                Act::Wait(at) => self.now = at,
                Act::Left => return None,
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        self.run(self.now + time, |_| false);
    }

    /// How many leases there are to be had at once; they are taken.
    fn lend(&mut self) -> usize {
        std::iter::from_fn(|| matches!(self.book.take(self.now, None), Taken::Lease(_)).then_some(())).count()
    }

    /// Callers who take leases, as many as there are to be had, `most` at most. Returns their numbers.
    fn take(&mut self, most: usize) -> Vec<u64> {
        let mut numbers = Vec::new();
        while numbers.len() < most {
            match self.book.take(self.now, None) {
                Taken::Lease(number) => numbers.push(number),
                Taken::Full | Taken::Fair(_) | Taken::Away(_) => break,
                Taken::Wait => {
                    let round = self.book.wait(true);
                    self.pass(Duration::ZERO);
                    match self.book.take(self.now, Some(round)) {
                        Taken::Lease(number) => numbers.push(number),
                        _ => {
                            self.book.wait(false);
                            break;
                        }
                    }
                }
            }
        }
        numbers
    }
}

#[test]
fn what_is_on_its_way_back_is_not_lent() {
    let table = MemoryTable::new();
    let mut desk = Desk::new("a", &table, 800, 20);
    desk.pass(Duration::from_secs(1));
    assert_eq!(desk.book.slots(), 20);
    let gives = |call: &Call| matches!(call, Call::Renew(_, before, after) if after.slots < before.slots);
    let call = desk.run(desk.now + 3 * LEASE, gives).expect("nobody needs them");
    // It may be made at any moment, and its slots be someone else's.
    assert_eq!(desk.lend(), 5, "a block is kept, and no more is lent");
    let outcome = desk.done(&call);
    desk.answer(&call, outcome);
    assert_eq!((desk.book.slots(), desk.book.held()), (5, 5));
}

#[test]
fn what_may_have_been_given_back_is_not_lent_until_the_table_has_answered() {
    let table = MemoryTable::new();
    let mut desk = Desk::new("a", &table, 16, 6);
    desk.pass(Duration::from_secs(1));
    let leases = desk.take(6);
    assert_eq!((leases.len(), desk.book.slots()), (6, 6), "of three shards, which have two each");
    for lease in leases {
        desk.book.give(lease);
    }
    let leaves = |call: &Call| matches!(call, Call::Leave(..));
    let call = desk
        .run(desk.now + 4 * LEASE, leaves)
        .expect("an entry that nobody needs costs a write at each beat");
    // It is made, and nobody hears of it.
    desk.done(&call).expect("nothing keeps it from being made");
    desk.answer(&call, Err(TableError::Unknown("no answer".into())));
    assert_eq!(desk.lend(), 4, "the slots of that entry may be someone else's by now");
    let again = desk.run(desk.now + BEAT, |_| true);
    assert_eq!(again, Some(call.clone()), "it is left until there is an answer");
    let refused = desk.done(&call);
    assert!(matches!(refused, Err(TableError::ConditionFailed(_))), "{refused:?}");
    desk.answer(&call, refused);
    assert_eq!(desk.book.slots(), 4);
}

/// Lets all go on together.
fn pass(desks: &mut [Desk], time: Duration) {
    for _ in 0..time.as_secs() {
        desks.iter_mut().for_each(|desk| desk.pass(Duration::from_secs(1)));
    }
}

#[test]
fn who_comes_last_gets_its_share_of_what_nobody_uses_yet() {
    let table = MemoryTable::new();
    let mut desks: Vec<Desk> = ["a", "b", "c", "d"].map(|id| Desk::new(id, &table, 80, 80)).into();
    for desk in &mut desks {
        desk.pass(Duration::from_secs(1));
    }
    // All want all of it, and use little so far.
    for _ in 0..4 {
        for desk in &mut desks {
            desk.take(4);
        }
        pass(&mut desks, BEAT);
    }
    for _ in 0..20 {
        for desk in &mut desks {
            desk.take(80);
        }
        pass(&mut desks, Duration::from_secs(10));
    }
    let held: Vec<u64> = desks.iter().map(|desk| desk.book.held()).collect();
    assert!(held.iter().all(|held| *held >= 15), "{held:?}: nobody has much less than a fourth");
    assert!(held.iter().sum::<u64>() >= 78, "{held:?}: hardly any is left unused");
}

#[test]
fn who_comes_when_all_is_in_use_gets_what_others_close() {
    let table = MemoryTable::new();
    let mut first = Desk::new("first", &table, 40, 40);
    first.pass(Duration::from_secs(1));
    let mut leases = first.take(40);
    assert_eq!(leases.len(), 40);
    let mut desks = vec![first, Desk::new("second", &table, 40, 40)];
    desks[1].now = desks[0].now;
    pass(&mut desks, BEAT);
    // Connections come to their end one by one, and the first would open them anew.
    for _ in 0..60 {
        if desks[0].book.held() > 4 {
            desks[0].book.give(leases.remove(0));
        }
        leases.extend(desks[0].take(40));
        desks[1].take(40);
        pass(&mut desks, Duration::from_secs(10));
    }
    let held: Vec<u64> = desks.iter().map(|desk| desk.book.held()).collect();
    assert!(held[1] >= 15 && held.iter().sum::<u64>() >= 38, "{held:?}");
}

#[test]
fn of_two_with_one_name_the_later_takes_another() {
    let table = MemoryTable::new();
    // They draw the same, and so they choose the same shard.
    let (mut first, mut second) = (Desk::new("a", &table, 800, 20), Desk::new("a", &table, 800, 20));
    assert_eq!(first.book.name(), second.book.name());
    first.pass(Duration::from_secs(1));
    second.pass(Duration::from_secs(1));
    assert_eq!((first.book.slots(), second.book.slots()), (20, 20));
    assert_ne!(first.book.name(), second.book.name());
    // And if both have looked before either has joined.
    let (mut third, mut fourth) = (Desk::new("b", &table, 800, 20), Desk::new("b", &table, 800, 20));
    let joins = |call: &Call| matches!(call, Call::Join(..));
    let at_once = [&mut third, &mut fourth].map(|desk| desk.run(desk.now, joins).expect("it has to join"));
    assert_eq!(at_once[0], at_once[1]);
    for (desk, call) in [&mut third, &mut fourth].into_iter().zip(&at_once) {
        let outcome = desk.done(call);
        desk.answer(call, outcome);
        desk.pass(Duration::from_secs(1));
    }
    assert_eq!((third.book.slots(), fourth.book.slots()), (20, 20));
    assert_ne!(third.book.name(), fourth.book.name());
}

#[test]
fn where_another_has_our_name_no_slots_are_looked_for() {
    let table = MemoryTable::new();
    let mut desk = Desk::new("a", &table, 16, 6);
    desk.pass(Duration::from_secs(1));
    assert_eq!(desk.take(2).len(), 2, "each shard has two");
    let home = desk.book.home.expect("it has joined");
    // Only one shard besides has nobody of that name.
    let free = (home + 3) % SHARDS;
    for k in (0..SHARDS).filter(|k| ![home, free].contains(k)) {
        let entry = Entry { slots: 1, beat: 1, epoch: 1, node: None, want: 0, elsewhere: 0 };
        VirtualTime::new().run(table.update(&entry.join("host", k, desk.book.name()))).expect("it is empty");
    }
    let before = table.bill().writes;
    for _ in 0..60 {
        desk.take(2);
        desk.pass(Duration::from_secs(1));
    }
    assert_eq!(desk.book.held(), 4);
    assert!(table.bill().writes - before < 30, "{} writes", table.bill().writes - before);
}

#[test]
fn a_join_whose_answer_is_lost_has_no_index_rather_than_one_of_another() {
    let table = MemoryTable::new();
    let is_join = |call: &Call| matches!(call, Call::Join(..));
    let mut one = Desk::new("one", &table, 800, 20);
    let join = one.run(Instant::ZERO, is_join).unwrap();
    one.done(&join).unwrap();
    one.answer(&join, Err(TableError::Unknown("lost".into())));
    // Others join all over the place before it asks again.
    let mut others: Vec<Desk> =
        (0..30).map(|number| Desk::new(&format!("o{number}"), &table, 800, 20)).collect();
    others.iter_mut().for_each(|other| other.pass(Duration::ZERO));
    one.pass(BEAT);
    assert!(one.book.is_in());
    assert_eq!(one.book.index(), None);
    let indexes: std::collections::BTreeSet<u64> =
        others.iter().map(|other| other.book.index().unwrap()).collect();
    assert_eq!(indexes.len(), others.len());
    // A join that was never made is made again, and its answer tells.
    let mut late = Desk::new("late", &table, 800, 20);
    let join = late.run(Instant::ZERO, is_join).unwrap();
    late.answer(&join, Err(TableError::Unknown("lost on its way".into())));
    late.pass(BEAT);
    assert!(late.book.index().is_some_and(|index| !indexes.contains(&index)));
}

#[test]
fn nobody_takes_more_than_it_was_made_for_to_fill_a_block() {
    let table = MemoryTable::new();
    // Each shard has 40, and so nobody finds all of its 62 in one: but there is enough for all.
    let mut desks: Vec<Desk> = ["a", "b", "c", "d", "e"].map(|id| Desk::new(id, &table, 320, 62)).into();
    for desk in &mut desks {
        desk.pass(Duration::from_secs(1));
        assert_eq!(desk.take(61).len(), 61);
    }
    let slots = |desks: &[Desk]| desks.iter().map(|desk| desk.book.slots()).collect::<Vec<u64>>();
    assert!(slots(&desks).iter().all(|slots| *slots <= 62), "{:?}", slots(&desks));
    // Nobody reaches the table for longer than a lease: the first who does again takes all others for dead, and they join anew.
    desks.iter_mut().for_each(|desk| desk.now = desk.now + LEASE + BEAT);
    pass(&mut desks, Duration::from_secs(10));
    assert!(slots(&desks).iter().all(|slots| (61..=62).contains(slots)), "{:?}", slots(&desks));
    for desk in &mut desks {
        assert_eq!(desk.take(1).len(), 1, "each can replace a connection before it closes it");
    }
}

#[test]
fn who_has_lost_its_home_joins_with_what_is_missing() {
    let table = MemoryTable::new();
    let mut desk = Desk::new("a", &table, 160, 22);
    desk.pass(Duration::from_secs(1));
    assert_eq!(desk.take(22).len(), 22, "twenty at home and two elsewhere");
    let home = desk.book.home.expect("it has joined");
    let entry = desk.book.seats[&home].entry;
    VirtualTime::new().run(table.update(&entry.leave("host", home, desk.book.name()))).expect("it is there");
    // It hears of that first; then its other entry takes what is missing for what is out.
    desk.now = desk.now + BEAT;
    desk.book.seats.entry(home).and_modify(|seat| seat.due = Instant::ZERO);
    desk.pass(Duration::from_secs(1));
    assert_eq!((desk.book.home, desk.book.slots()), (Some(home), 22));
}

#[test]
fn who_finds_slots_elsewhere_does_not_say_that_it_lacks_them() {
    let table = MemoryTable::new();
    let mut desk = Desk::new("a", &table, 80, 40);
    desk.pass(Duration::from_secs(1));
    assert_eq!((desk.take(20).len(), desk.book.seats.len() > 1), (20, true), "each shard has ten");
    let home = desk.book.home.expect("it has joined");
    let beats = |call: &Call| matches!(call, Call::Renew(k, ..) if *k == home);
    let beat = desk.run(desk.now + BEAT, beats);
    assert!(matches!(beat, Some(Call::Renew(_, _, Entry { want: 0, .. }))), "{beat:?}: half of all is free");
}
