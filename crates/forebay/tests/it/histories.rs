//! Random histories against a model that knows only the rules, nothing of how they are kept.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use forebay::memory::{Answer, Memory, MemoryConnection};
use forebay::{Acquire, Checkout, CheckoutError, Config, Detached, Discard, Failure, Lifetime, Reservoir};
use proptest::prelude::*;

use crate::support::{World, config, millis, poll, seconds};

#[derive(Clone, Copy, Debug)]
enum Step {
    Try,
    Wait,
    Cancel(usize),
    GiveBack(usize),
    GiveBackDirty(usize),
    GiveBackBad(usize),
    Detach(usize),
    Kill(usize),
    KillAll,
    RecallAll,
    FailOpens(bool),
    FailResets(bool),
    Pass(u64),
    Drain,
}

fn step() -> impl Strategy<Value = Step> {
    let which = 0usize..64;
    prop_oneof![
        8 => Just(Step::Try),
        8 => Just(Step::Wait),
        3 => which.clone().prop_map(Step::Cancel),
        8 => which.clone().prop_map(Step::GiveBack),
        2 => which.clone().prop_map(Step::GiveBackDirty),
        2 => which.clone().prop_map(Step::GiveBackBad),
        1 => which.clone().prop_map(Step::Detach),
        3 => which.prop_map(Step::Kill),
        1 => Just(Step::KillAll),
        1 => Just(Step::RecallAll),
        1 => any::<bool>().prop_map(Step::FailOpens),
        1 => any::<bool>().prop_map(Step::FailResets),
        5 => (0u64..200).prop_map(Step::Pass),
        2 => (0u64..60_000).prop_map(Step::Pass),
        1 => Just(Step::Drain),
    ]
}

/// Lives of 60 s, give or take 5, of which the last 10 are not handed out.
const GUARD: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(65);

/// Settings, and the two numbers of them that the model needs: `max_open` and `overlap`.
fn settings() -> impl Strategy<Value = (Config, usize, usize)> {
    let life = Lifetime::new(seconds(60)).jitter(seconds(10)).guard_window(GUARD);
    (1usize..6, 0usize..3, prop::option::of(0usize..3), any::<bool>()).prop_map(
        move |(max_open, overlap, on_demand, idle)| {
            let overlap = overlap.min(max_open);
            let config = config(max_open).lifetime(life).overlap(overlap).acquire_timeout(seconds(2));
            let config = match on_demand {
                Some(min_idle) => config.on_demand(min_idle.min(max_open)),
                None => config,
            };
            let config = if idle { config.idle_ttl(seconds(5)).check_after(seconds(3)) } else { config };
            (config, max_open, overlap)
        },
    )
}

/// What must be true of any reservoir, counted from outside.
#[derive(Default)]
struct Model {
    /// Numbers of connections in callers' hands; true once marked bad.
    lent: BTreeMap<u64, bool>,
    killed: BTreeSet<u64>,
    /// Numbers of connections whose lease was taken back.
    recalled: BTreeSet<u64>,
    closed: bool,
    checkouts: u64,
    waits: u64,
    empty: u64,
    exhausted: u64,
    detached: u64,
    /// Discards whose reason follows from what was done.
    discards: BTreeMap<Discard, u64>,
}

impl Model {
    fn got(&mut self, guard: &Checkout<'_, Memory>, world: &World) {
        let id = guard.id();
        assert!(self.lent.insert(id, false).is_none(), "connection {id} is in two hands");
        assert!(!self.killed.contains(&id), "connection {id} was dead when handed out");
        assert!(!self.recalled.contains(&id), "connection {id} was handed out after it was recalled");
        assert!(guard.remaining().unwrap() > GUARD, "connection {id} was handed out in its guard window");
        let age = forebay::rt::Runtime::now(&world.time).since(world.server.born_at(id).unwrap());
        assert!(age < LONGEST - GUARD, "connection {id} was handed out at the age of {age:?}");
        assert!(!self.closed, "connection {id} was handed out after the end");
        self.checkouts += 1;
    }

    fn refused(&mut self, error: &CheckoutError) {
        match error {
            CheckoutError::Empty { .. } => self.empty += 1,
            CheckoutError::Exhausted { .. } => self.exhausted += 1,
            CheckoutError::Closed => assert!(self.closed, "closed before the end"),
            other => panic!("unexpected: {other}"),
        }
    }

    /// A connection goes back with this much of its life left. Rules apply in this order.
    fn gave_back(&mut self, id: u64, remaining: Duration) {
        let bad = self.lent.remove(&id).unwrap();
        let reason = if self.closed {
            Discard::Draining
        } else if self.recalled.contains(&id) {
            Discard::Recalled
        } else if self.killed.contains(&id) {
            Discard::Died
        } else if bad {
            Discard::Bad
        } else if remaining.is_zero() {
            Discard::ExpiredOnReturn
        } else {
            return;
        };
        *self.discards.entry(reason).or_default() += 1;
    }

    fn check(&self, reservoir: &Reservoir<Memory>, world: &World, waiting: usize, bound: usize, max: usize) {
        let (status, counts) = (reservoir.status(), reservoir.status().counts);
        assert!(status.owned() <= bound, "owns {} of {bound}: {status:?}", status.owned());
        if status.retiring == 0 && status.counts.discards(Discard::Retired) == 0 {
            assert!(status.owned() <= max, "an overlap without a retirement: {status:?}");
        }
        assert!(status.ready == 0 || status.waiting == 0, "ready while callers wait: {status:?}");
        assert_eq!(status.waiting, waiting, "{status:?}");
        assert_eq!(status.in_use, self.lent.len(), "{status:?}");
        assert_eq!(
            (counts.checkouts, counts.waits, counts.empty, counts.exhausted, counts.detached),
            (self.checkouts, self.waits, self.empty, self.exhausted, self.detached),
        );
        assert_eq!(counts.refills, world.server.opened());
        assert_eq!(counts.all_discards() + counts.detached + status.size() as u64, counts.refills);
        for reason in [Discard::Bad, Discard::ExpiredOnReturn] {
            assert_eq!(counts.discards(reason), self.discards.get(&reason).copied().unwrap_or(0), "{reason}");
        }
        assert!(world.server.live() <= world.leases.held(), "a connection without a lease");
        assert_eq!(world.leases.mistakes(), Vec::<String>::new());
    }
}

type Waiter<'a> = Pin<Box<Acquire<'a, Memory>>>;

fn pick<T>(from: &mut Vec<T>, which: usize) -> Option<T> {
    if from.is_empty() { None } else { Some(from.swap_remove(which % from.len())) }
}

fn run(config: Config, max_open: usize, overlap: usize, steps: &[Step]) {
    let world = World::new();
    world.server.open_time(millis(20));
    let reservoir = world.start(config);
    let mut model = Model::default();
    let mut guards: Vec<Checkout<'_, Memory>> = Vec::new();
    let mut waiters: VecDeque<Waiter<'_>> = VecDeque::new();
    let mut detached: Vec<Detached<MemoryConnection>> = Vec::new();
    for step in steps {
        match *step {
            Step::Try => match reservoir.try_checkout() {
                Ok(guard) => {
                    assert!(waiters.is_empty(), "a newcomer overtook");
                    model.got(&guard, &world);
                    guards.push(guard);
                }
                Err(error) => model.refused(&error),
            },
            Step::Wait => {
                let mut waiter = Box::pin(reservoir.checkout());
                match poll(&mut waiter) {
                    Poll::Ready(Ok(guard)) => {
                        assert!(waiters.is_empty(), "a newcomer overtook");
                        model.got(&guard, &world);
                        guards.push(guard);
                    }
                    Poll::Ready(Err(error)) => model.refused(&error),
                    Poll::Pending => {
                        model.waits += 1;
                        waiters.push_back(waiter);
                    }
                }
            }
            Step::Cancel(which) => {
                if !waiters.is_empty() {
                    drop(waiters.remove(which % waiters.len()));
                }
            }
            Step::GiveBack(which) | Step::GiveBackDirty(which) | Step::GiveBackBad(which) => {
                if let Some(mut guard) = pick(&mut guards, which) {
                    match step {
                        Step::GiveBackDirty(_) => guard.make_dirty(),
                        Step::GiveBackBad(_) => {
                            guard.mark_bad();
                            model.lent.insert(guard.id(), true);
                        }
                        _ => {}
                    }
                    model.gave_back(guard.id(), guard.remaining().unwrap());
                }
            }
            Step::Detach(which) => {
                if let Some(guard) = pick(&mut guards, which) {
                    model.lent.remove(&guard.id());
                    model.detached += 1;
                    detached.push(guard.detach());
                }
            }
            Step::Kill(id) => {
                // Only what is there can be killed: numbers to come belong to the living.
                if let Some(id) = (id as u64).checked_rem(world.server.opened()) {
                    model.killed.insert(id);
                    world.server.kill(id);
                }
            }
            Step::KillAll => {
                model.killed.extend(0..world.server.opened());
                world.server.kill_all();
            }
            Step::RecallAll => {
                model.recalled.extend(0..world.server.opened());
                world.leases.recall_all();
                let closing = reservoir.status().closing;
                assert!(world.server.live() <= closing, "a connection that nobody closes");
            }
            Step::FailOpens(fail) => {
                world.server.on_open(if fail { Answer::Fail(Failure::Open) } else { Answer::Well });
            }
            Step::FailResets(fail) => {
                world.server.on_reset(if fail { Answer::Fail(Failure::Open) } else { Answer::Well });
            }
            Step::Pass(time) => world.time.advance(millis(time)),
            Step::Drain => {
                // Polled once: it closes at once, and dropping it does not open again.
                model.closed = true;
                let (Poll::Ready(_) | Poll::Pending) = poll(&mut Box::pin(reservoir.drain(seconds(1))));
            }
        }
        world.time.settle();
        // The youngest first: were it served ahead of an elder, the elder would still be in line.
        let mut served = None;
        for place in (0..waiters.len()).rev() {
            match poll(&mut waiters[place]) {
                Poll::Pending => assert_eq!(served, None, "place {served:?} was served before place {place}"),
                Poll::Ready(outcome) => {
                    drop(waiters.remove(place));
                    match outcome {
                        Ok(guard) => {
                            served = Some(place);
                            model.got(&guard, &world);
                            guards.push(guard);
                        }
                        Err(error) => model.refused(&error),
                    }
                }
            }
        }
        world.time.settle();
        model.check(&reservoir, &world, waiters.len(), max_open + overlap, max_open);
    }
    drop((waiters, guards, detached));
    drop(reservoir);
    world.server.on_reset(Answer::Well);
    world.assert_nothing_left();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn every_history_keeps_the_rules(
        (config, max_open, overlap) in settings(),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        run(config, max_open, overlap, &steps);
    }
}
