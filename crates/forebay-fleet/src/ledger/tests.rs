//! Instances that share a table, one call at a time.

use std::time::Duration;

use forebay::rt::VirtualTime;
use forebay::{Instant, Seed};

use super::HEARTBEAT_ORIGIN;
use super::call::{AcquireOutcome, Action, Call, Request};
use super::shard::{Entry, SHARDS};
use super::state::LedgerState;
use crate::item::Item;
use crate::memory::MemoryTable;
use crate::name::Name;
use crate::params::LeaseParams;
use crate::settings::StoreOutagePolicy;
use crate::table::{Table, TableError};

mod shutdown;

const HEARTBEAT: Duration = Duration::from_secs(30);
const LEASE: Duration = Duration::from_secs(120);

/// One instance.
struct Instance {
    state: LedgerState,
    table: MemoryTable,
    now: Instant,
}

impl Instance {
    /// An instance with `max_open` connections, in a fleet with this `limit`.
    fn new(id: &str, table: &MemoryTable, limit: u64, max_open: u64) -> Self {
        let params = LeaseParams {
            service: String::new(),
            endpoint: "host".to_owned(),
            limit,
            block: 5,
            heartbeat: HEARTBEAT,
            lease: LEASE,
            max_open,
            policy: StoreOutagePolicy::Local,
        };
        let state = LedgerState::new(
            params,
            Name::new(id, Seed::new(7).fork(id).number()),
            Seed::new(7).fork(id).rng(),
        );
        Self { state, table: table.clone(), now: Instant::ZERO }
    }

    fn wall(&self) -> Duration {
        HEARTBEAT_ORIGIN + self.now.since(Instant::ZERO)
    }

    fn next(&mut self) -> Action {
        let wall = self.wall();
        self.state.next(self.now, wall)
    }

    fn done(&self, call: &Call) -> Result<Option<Item>, TableError> {
        let time = VirtualTime::new();
        match self.state.request(call) {
            Request::Get(key) => time.run(self.table.get(&key)),
            Request::Update(update) => time.run(self.table.update(&update)),
        }
    }

    fn answer(&mut self, call: &Call, outcome: Result<Option<Item>, TableError>) {
        let wall = self.wall();
        self.state.answer(call, self.now, self.now, wall, outcome);
    }

    /// Runs all actions until `until`. Returns the first call that `stop` accepts, without making it.
    fn run(&mut self, until: Instant, stop: impl Fn(&Call) -> bool) -> Option<Call> {
        loop {
            match self.next() {
                Action::Call(call) if stop(&call) => return Some(call),
                Action::Call(call) => {
                    let outcome = self.done(&call);
                    self.answer(&call, outcome);
                }
                Action::Wait(at) if at > until => {
                    self.now = self.now.max(until);
                    return None;
                }
                Action::Wait(at) => self.now = at,
                Action::Left => return None,
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        self.run(self.now + time, |_| false);
    }

    /// Takes all leases that are available at once, and returns how many.
    fn lend(&mut self) -> usize {
        std::iter::from_fn(|| {
            matches!(self.state.acquire(self.now, None), AcquireOutcome::Lease(_)).then_some(())
        })
        .count()
    }

    /// Takes up to `most` leases, and waits for slots if necessary. Returns their numbers.
    fn take(&mut self, most: usize) -> Vec<u64> {
        let mut numbers = Vec::new();
        while numbers.len() < most {
            match self.state.acquire(self.now, None) {
                AcquireOutcome::Lease(number) => numbers.push(number),
                AcquireOutcome::LimitReached
                | AcquireOutcome::ShareReached(_)
                | AcquireOutcome::Unavailable(_) => break,
                AcquireOutcome::Wait => {
                    let round = self.state.wait(true);
                    self.pass(Duration::ZERO);
                    match self.state.acquire(self.now, Some(round)) {
                        AcquireOutcome::Lease(number) => numbers.push(number),
                        _ => {
                            self.state.wait(false);
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
fn slots_in_a_write_that_gives_them_back_are_not_lent() {
    let table = MemoryTable::new();
    let mut instance = Instance::new("a", &table, 800, 20);
    instance.pass(Duration::from_secs(1));
    assert_eq!(instance.state.slots(), 20);
    let gives = |call: &Call| matches!(call, Call::Renew(_, before, after) if after.slots < before.slots);
    let call = instance.run(instance.now + 3 * LEASE, gives).expect("no lease needs them");
    // The write may be made at any moment, and its slots belong to another instance.
    assert_eq!(instance.lend(), 5, "a block is kept, and no more is lent");
    let outcome = instance.done(&call);
    instance.answer(&call, outcome);
    assert_eq!((instance.state.slots(), instance.state.usage.leases()), (5, 5));
}

#[test]
fn slots_of_an_unanswered_leave_are_not_lent() {
    let table = MemoryTable::new();
    let mut instance = Instance::new("a", &table, 16, 6);
    instance.pass(Duration::from_secs(1));
    let leases = instance.take(6);
    assert_eq!((leases.len(), instance.state.slots()), (6, 6), "from three shards with two each");
    for lease in leases {
        instance.state.usage.release(lease);
    }
    let leaves = |call: &Call| matches!(call, Call::Leave(..));
    let call =
        instance.run(instance.now + 4 * LEASE, leaves).expect("an unused entry costs a write per heartbeat");
    // It is made, but the answer is lost.
    instance.done(&call).expect("the write succeeds");
    instance.answer(&call, Err(TableError::Unknown("no answer".into())));
    assert_eq!(instance.lend(), 4, "the slots of that entry may belong to another instance");
    let again = instance.run(instance.now + HEARTBEAT, |_| true);
    assert_eq!(again, Some(call.clone()), "the leave is repeated until it is answered");
    let refused = instance.done(&call);
    assert!(matches!(refused, Err(TableError::ConditionFailed(_))), "{refused:?}");
    instance.answer(&call, refused);
    assert_eq!(instance.state.slots(), 4);
}

/// Lets all instances run together.
fn pass(instances: &mut [Instance], time: Duration) {
    for _ in 0..time.as_secs() {
        instances.iter_mut().for_each(|instance| instance.pass(Duration::from_secs(1)));
    }
}

#[test]
fn the_last_instance_gets_its_share_of_unused_slots() {
    let table = MemoryTable::new();
    let mut instances: Vec<Instance> =
        ["a", "b", "c", "d"].map(|id| Instance::new(id, &table, 80, 80)).into();
    for instance in &mut instances {
        instance.pass(Duration::from_secs(1));
    }
    // All want all slots, and use few so far.
    for _ in 0..4 {
        for instance in &mut instances {
            instance.take(4);
        }
        pass(&mut instances, HEARTBEAT);
    }
    for _ in 0..20 {
        for instance in &mut instances {
            instance.take(80);
        }
        pass(&mut instances, Duration::from_secs(10));
    }
    let held: Vec<u64> = instances.iter().map(|instance| instance.state.usage.leases()).collect();
    assert!(held.iter().all(|held| *held >= 15), "{held:?}: none has much less than a fourth");
    assert!(held.iter().sum::<u64>() >= 78, "{held:?}: hardly any slot is unused");
}

#[test]
fn an_instance_that_joins_a_full_fleet_gets_slots_as_connections_close() {
    let table = MemoryTable::new();
    let mut first = Instance::new("first", &table, 40, 40);
    first.pass(Duration::from_secs(1));
    let mut leases = first.take(40);
    assert_eq!(leases.len(), 40);
    let mut instances = vec![first, Instance::new("second", &table, 40, 40)];
    instances[1].now = instances[0].now;
    pass(&mut instances, HEARTBEAT);
    // Connections end one by one, and the first instance would open them again.
    for _ in 0..60 {
        if instances[0].state.usage.leases() > 4 {
            instances[0].state.usage.release(leases.remove(0));
        }
        leases.extend(instances[0].take(40));
        instances[1].take(40);
        pass(&mut instances, Duration::from_secs(10));
    }
    let held: Vec<u64> = instances.iter().map(|instance| instance.state.usage.leases()).collect();
    assert!(held[1] >= 15 && held.iter().sum::<u64>() >= 38, "{held:?}");
}

#[test]
fn the_later_of_two_instances_with_one_name_changes_it() {
    let table = MemoryTable::new();
    // Equal random numbers: both choose the same shard.
    let (mut first, mut second) = (Instance::new("a", &table, 800, 20), Instance::new("a", &table, 800, 20));
    assert_eq!(first.state.members.name(), second.state.members.name());
    first.pass(Duration::from_secs(1));
    second.pass(Duration::from_secs(1));
    assert_eq!((first.state.slots(), second.state.slots()), (20, 20));
    assert_ne!(first.state.members.name(), second.state.members.name());
    // Both look before either joins.
    let (mut third, mut fourth) = (Instance::new("b", &table, 800, 20), Instance::new("b", &table, 800, 20));
    let joins = |call: &Call| matches!(call, Call::Join(..));
    let at_once =
        [&mut third, &mut fourth].map(|instance| instance.run(instance.now, joins).expect("a join is due"));
    assert_eq!(at_once[0], at_once[1]);
    for (instance, call) in [&mut third, &mut fourth].into_iter().zip(&at_once) {
        let outcome = instance.done(call);
        instance.answer(call, outcome);
        instance.pass(Duration::from_secs(1));
    }
    assert_eq!((third.state.slots(), fourth.state.slots()), (20, 20));
    assert_ne!(third.state.members.name(), fourth.state.members.name());
}

#[test]
fn shards_where_another_instance_has_our_name_are_not_searched() {
    let table = MemoryTable::new();
    let mut instance = Instance::new("a", &table, 16, 6);
    instance.pass(Duration::from_secs(1));
    assert_eq!(instance.take(2).len(), 2, "each shard has two");
    let home = instance.state.members.home().expect("it has joined");
    // Only one other shard has no entry with that name.
    let free = (home + 3) % SHARDS;
    for k in (0..SHARDS).filter(|k| ![home, free].contains(k)) {
        let entry = Entry { slots: 1, heartbeat: 1, epoch: 1, node: None, want: 0, elsewhere: 0 };
        VirtualTime::new()
            .run(table.update(&entry.join("host", k, instance.state.members.name())))
            .expect("it is empty");
    }
    let before = table.bill().writes;
    for _ in 0..60 {
        instance.take(2);
        instance.pass(Duration::from_secs(1));
    }
    assert_eq!(instance.state.usage.leases(), 4);
    assert!(table.bill().writes - before < 30, "{} writes", table.bill().writes - before);
}

#[test]
fn a_join_with_a_lost_answer_has_no_index() {
    let table = MemoryTable::new();
    let is_join = |call: &Call| matches!(call, Call::Join(..));
    let mut one = Instance::new("one", &table, 800, 20);
    let join = one.run(Instant::ZERO, is_join).unwrap();
    one.done(&join).unwrap();
    one.answer(&join, Err(TableError::Unknown("lost".into())));
    // Other instances join all shards before it asks again.
    let mut others: Vec<Instance> =
        (0..30).map(|number| Instance::new(&format!("o{number}"), &table, 800, 20)).collect();
    others.iter_mut().for_each(|other| other.pass(Duration::ZERO));
    one.pass(HEARTBEAT);
    assert!(one.state.members.home().is_some());
    assert_eq!(one.state.members.index(), None);
    let indexes: std::collections::BTreeSet<u64> =
        others.iter().map(|other| other.state.members.index().unwrap()).collect();
    assert_eq!(indexes.len(), others.len());
    // A join that was never made is repeated, and its answer has the index.
    let mut late = Instance::new("late", &table, 800, 20);
    let join = late.run(Instant::ZERO, is_join).unwrap();
    late.answer(&join, Err(TableError::Unknown("lost on its way".into())));
    late.pass(HEARTBEAT);
    assert!(late.state.members.index().is_some_and(|index| !indexes.contains(&index)));
}

#[test]
fn no_instance_fills_a_block_beyond_its_connections() {
    let table = MemoryTable::new();
    // Each shard has 40, so none has all 62 slots of an instance; but there is enough for all.
    let mut instances: Vec<Instance> =
        ["a", "b", "c", "d", "e"].map(|id| Instance::new(id, &table, 320, 62)).into();
    for instance in &mut instances {
        instance.pass(Duration::from_secs(1));
        assert_eq!(instance.take(61).len(), 61);
    }
    let slots = |all: &[Instance]| all.iter().map(|instance| instance.state.slots()).collect::<Vec<u64>>();
    assert!(slots(&instances).iter().all(|slots| *slots <= 62), "{:?}", slots(&instances));
    // No instance reaches the table for longer than a lease. The first that does removes all others, which join again.
    instances.iter_mut().for_each(|instance| instance.now = instance.now + LEASE + HEARTBEAT);
    pass(&mut instances, Duration::from_secs(10));
    assert!(slots(&instances).iter().all(|slots| (61..=62).contains(slots)), "{:?}", slots(&instances));
    for instance in &mut instances {
        assert_eq!(instance.take(1).len(), 1, "each can replace a connection before it closes it");
    }
}

#[test]
fn an_instance_that_lost_its_home_joins_with_what_is_missing() {
    let table = MemoryTable::new();
    let mut instance = Instance::new("a", &table, 160, 22);
    instance.pass(Duration::from_secs(1));
    assert_eq!(instance.take(22).len(), 22, "twenty at home and two elsewhere");
    let members = &mut instance.state.members;
    let home = members.home().expect("it has joined");
    let (entry, name) = (members.entry_mut(home).expect("it is home").entry, members.name().to_owned());
    VirtualTime::new().run(table.update(&entry.leave("host", home, &name))).expect("the entry exists");
    // It notices this first. Then its other entry takes the slots that are missing for its leases.
    instance.now = instance.now + HEARTBEAT;
    let own = instance.state.members.entry_mut(home);
    own.into_iter().for_each(|own| own.due = Instant::ZERO);
    instance.pass(Duration::from_secs(1));
    assert_eq!((instance.state.members.home(), instance.state.slots()), (Some(home), 22));
}

#[test]
fn an_instance_that_finds_slots_elsewhere_announces_no_want() {
    let table = MemoryTable::new();
    let mut instance = Instance::new("a", &table, 80, 40);
    instance.pass(Duration::from_secs(1));
    assert_eq!(instance.take(20).len(), 20);
    assert!(instance.state.members.count() > 1, "each shard has ten");
    let home = instance.state.members.home().expect("it has joined");
    let renews = |call: &Call| matches!(call, Call::Renew(k, ..) if *k == home);
    let heartbeat = instance.run(instance.now + HEARTBEAT, renews);
    assert!(
        matches!(heartbeat, Some(Call::Renew(_, _, Entry { want: 0, .. }))),
        "{heartbeat:?}: half of all is free"
    );
}
