//! Random histories, compared with a model that knows only the rules.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use forebay::memory::{Answer, Memory, MemoryConnection};
use forebay::rt::Runtime;
use forebay::{
    Acquire, Checkout, CheckoutError, CheckoutFailure, Config, Detached, Discard, Failure, Instant, Lifetime,
    Reservoir,
};
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
    DenyOpens,
    FailResets(bool),
    Pass(u64),
    /// One waiting caller is polled.
    Poll(usize),
    /// All waiting callers are polled.
    PollAll,
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
        1 => Just(Step::DenyOpens),
        1 => any::<bool>().prop_map(Step::FailResets),
        5 => (0u64..200).prop_map(Step::Pass),
        2 => (0u64..60_000).prop_map(Step::Pass),
        3 => (0usize..64).prop_map(Step::Poll),
        2 => Just(Step::PollAll),
        1 => Just(Step::Drain),
    ]
}

/// Lifetimes are 60 s, plus or minus 5 s. The last 10 s are the guard window.
const GUARD: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(65);

/// Settings, with the two numbers that the model needs: `max_open` and `overlap`.
fn settings() -> impl Strategy<Value = (Config, usize, usize)> {
    let life = Lifetime::new(seconds(60)).jitter(seconds(10)).guard_window(GUARD);
    (1usize..6, 0usize..3, prop::option::of(0usize..3), any::<bool>()).prop_map(
        move |(max_open, overlap, on_demand, idle)| {
            let overlap = overlap.min(max_open);
            let config = config(max_open).lifetime(life).overlap(overlap).acquire_timeout(PATIENCE);
            let config = match on_demand {
                Some(min_idle) => config.on_demand(min_idle.min(max_open)),
                None => config,
            };
            let config = if idle { config.idle_timeout(seconds(5)).check_after(seconds(3)) } else { config };
            (config, max_open, overlap)
        },
    )
}

/// What must hold for every reservoir, counted from outside.
#[derive(Default)]
struct Model {
    /// The lent connections; `true` once marked bad.
    lent: BTreeMap<u64, bool>,
    killed: BTreeSet<u64>,
    /// The connections whose lease was recalled.
    recalled: BTreeSet<u64>,
    closed: bool,
    checkouts: u64,
    waits: u64,
    /// Callers that found no connection ready while the reservoir was short.
    found_empty: u64,
    refused: BTreeMap<CheckoutFailure, u64>,
    detached: u64,
    /// Discards whose reason follows from the steps.
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
        let failure = match error {
            CheckoutError::Empty { .. } => CheckoutFailure::Empty,
            CheckoutError::Exhausted { .. } => CheckoutFailure::Exhausted,
            CheckoutError::Denied { .. } => CheckoutFailure::Denied,
            CheckoutError::Closed => return assert!(self.closed, "closed before the end"),
            other => panic!("unexpected: {other}"),
        };
        *self.refused.entry(failure).or_default() += 1;
    }

    /// A caller found no connection ready.
    fn found_nothing(&mut self, reservoir: &Reservoir<Memory>, max: usize) {
        self.found_empty += u64::from(reservoir.status().size() < max);
    }

    /// A connection is returned with this much of its life left. The rules apply in this order.
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

    fn check(
        &self,
        reservoir: &Reservoir<Memory>,
        world: &World,
        waiters: &[Waiter<'_>],
        bound: usize,
        max: usize,
    ) {
        let (status, counts) = (reservoir.status(), reservoir.status().counts);
        assert!(status.owned() <= bound, "owns {} of {bound}: {status:?}", status.owned());
        if status.retiring == 0 && status.counts.discards(Discard::Retired) == 0 {
            assert!(status.owned() <= max, "an overlap without a retirement: {status:?}");
        }
        let count = |state: &str| waiters.iter().filter(|waiter| waiter.state() == state).count();
        let (queued, served) = (count("Queued"), count("Served"));
        assert!(status.ready == 0 || queued == 0, "ready while callers wait: {status:?}");
        assert_eq!(status.waiting, queued, "{status:?}");
        assert_eq!(status.in_use, self.lent.len() + served, "{status:?}");
        assert_eq!(
            (counts.checkouts, counts.waits, counts.empty, counts.detached),
            (self.checkouts + served as u64, self.waits, self.found_empty, self.detached),
        );
        for failure in CheckoutFailure::ALL {
            let refused = self.refused.get(&failure).copied().unwrap_or(0);
            let ended = count(&format!("Ended(GaveUp({failure:?}))")) as u64;
            assert_eq!(counts.checkout_failures(failure), refused + ended, "{failure:?}");
        }
        for waiter in waiters {
            waiter.check(world, self.closed);
        }
        assert_eq!(counts.refills, world.server.opened());
        assert_eq!(counts.all_discards() + counts.detached + status.size() as u64, counts.refills);
        for reason in [Discard::Bad, Discard::ExpiredOnReturn] {
            assert_eq!(counts.discards(reason), self.discards.get(&reason).copied().unwrap_or(0), "{reason}");
        }
        assert!(world.server.live() <= world.leases.held(), "a connection without a lease");
        assert_eq!(world.leases.mistakes(), Vec::<String>::new());
    }
}

/// How long callers wait, and those that fail fast while the reservoir is short.
const PATIENCE: Duration = Duration::from_secs(2);
const EMPTY_WAIT: Duration = Duration::from_millis(150);

/// A waiting caller. It is polled when a step says so, and not when it is woken.
struct Waiter<'a> {
    acquire: Pin<Box<Acquire<'a, Memory>>>,
    woken: Arc<Woken>,
    deadline: Instant,
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

type Outcome<'a> = Result<Checkout<'a, Memory>, CheckoutError>;

impl<'a> Waiter<'a> {
    fn new(acquire: Acquire<'a, Memory>, world: &World) -> Self {
        Self {
            acquire: Box::pin(acquire),
            woken: Arc::default(),
            deadline: Runtime::now(&world.time) + PATIENCE,
        }
    }

    fn poll(&mut self) -> Poll<Outcome<'a>> {
        self.woken.0.store(false, Ordering::Relaxed);
        let waker = Waker::from(Arc::clone(&self.woken));
        self.acquire.as_mut().poll(&mut Context::from_waker(&waker))
    }

    fn state(&self) -> String {
        let state = format!("{:?}", self.acquire);
        state.trim_start_matches("Acquire { state: ").trim_end_matches(", .. }").to_owned()
    }

    /// It must have been woken if it can make progress, and at its deadline at the latest.
    fn check(&self, world: &World, closed: bool) {
        let (state, woken) = (self.state(), self.woken.0.load(Ordering::Relaxed));
        let is_overdue = Runtime::now(&world.time) >= self.deadline;
        if state != "Queued" || is_overdue {
            assert!(woken, "a caller that is {state} has not been woken, overdue: {is_overdue}");
        }
        if closed {
            assert!(state.starts_with("Ended"), "a caller is {state} after the close");
        }
    }
}

fn pick<T>(from: &mut Vec<T>, which: usize) -> Option<T> {
    if from.is_empty() { None } else { Some(from.swap_remove(which % from.len())) }
}

/// Polls the waiter at `place`, and removes it if it is done.
fn look<'a>(
    waiters: &mut Vec<Waiter<'a>>,
    place: usize,
    model: &mut Model,
    world: &World,
    guards: &mut Vec<Checkout<'a, Memory>>,
) {
    let Poll::Ready(outcome) = waiters[place].poll() else { return };
    drop(waiters.remove(place));
    match outcome {
        Ok(guard) => {
            model.got(&guard, world);
            guards.push(guard);
        }
        Err(error) => model.refused(&error),
    }
}

/// No caller that was queued before and after a step was overtaken in it.
fn check_order(before: &[(Arc<Woken>, String)], waiters: &[Waiter<'_>], step: Step) {
    let mut elder_is_queued = false;
    for waiter in waiters {
        let was = before.iter().find(|(woken, _)| Arc::ptr_eq(woken, &waiter.woken));
        let Some((_, was)) = was else { continue };
        match (was.as_str(), waiter.state().as_str()) {
            ("Queued", "Served") => assert!(!elder_is_queued, "a caller was overtaken at {step:?}"),
            ("Queued", "Queued") => elder_is_queued = true,
            _ => {}
        }
    }
}

/// With `eager`, callers are polled after each step. Otherwise they are polled only when a step says so. Then
/// a served caller can remain unpolled while its connection dies, others come and go, and the reservoir
/// closes.
fn run(config: Config, max_open: usize, overlap: usize, eager: bool, steps: &[Step]) {
    let world = World::new();
    world.server.open_time(millis(20));
    let reservoir = world.start(config);
    let mut model = Model::default();
    let mut guards: Vec<Checkout<'_, Memory>> = Vec::new();
    let mut waiters: Vec<Waiter<'_>> = Vec::new();
    let mut detached: Vec<Detached<MemoryConnection>> = Vec::new();
    for step in steps {
        let before: Vec<_> =
            waiters.iter().map(|waiter| (Arc::clone(&waiter.woken), waiter.state())).collect();
        let is_queued = before.iter().any(|(_, state)| state == "Queued");
        let aged = |reservoir: &Reservoir<Memory>| {
            let counts = reservoir.status().counts;
            [Discard::ExpiringOnScan, Discard::ExpiredOnScan].map(|reason| counts.discards(reason))
        };
        let aged_before = aged(&reservoir);
        match *step {
            Step::Try => match reservoir.try_checkout() {
                Ok(guard) => {
                    assert!(!is_queued, "a newcomer overtook");
                    model.got(&guard, &world);
                    guards.push(guard);
                }
                Err(error) => {
                    if !matches!(error, CheckoutError::Closed) {
                        model.found_nothing(&reservoir, max_open);
                    }
                    model.refused(&error);
                }
            },
            Step::Wait => {
                // Every third one fails fast.
                let acquire = reservoir.checkout();
                let fails_fast = model.waits % 3 == 0;
                let acquire = if fails_fast { acquire.empty_wait(EMPTY_WAIT) } else { acquire };
                let mut waiter = Waiter::new(acquire, &world);
                match waiter.poll() {
                    Poll::Ready(Ok(guard)) => {
                        assert!(!is_queued, "a newcomer overtook");
                        model.got(&guard, &world);
                        guards.push(guard);
                    }
                    Poll::Ready(Err(error)) => {
                        if !matches!(error, CheckoutError::Closed) {
                            model.found_nothing(&reservoir, max_open);
                        }
                        model.refused(&error);
                    }
                    Poll::Pending => {
                        model.waits += 1;
                        model.found_nothing(&reservoir, max_open);
                        waiters.push(waiter);
                    }
                }
            }
            Step::Cancel(which) => {
                if !waiters.is_empty() {
                    let waiter = waiters.remove(which % waiters.len());
                    // A caller that was refused, and was not polled since.
                    let told =
                        |failure: &CheckoutFailure| waiter.state() == format!("Ended(GaveUp({failure:?}))");
                    if let Some(failure) = CheckoutFailure::ALL.into_iter().find(told) {
                        *model.refused.entry(failure).or_default() += 1;
                    }
                }
            }
            Step::Poll(which) => {
                if !waiters.is_empty() {
                    let place = which % waiters.len();
                    look(&mut waiters, place, &mut model, &world, &mut guards);
                }
            }
            Step::PollAll => {
                for place in (0..waiters.len()).rev() {
                    look(&mut waiters, place, &mut model, &world, &mut guards);
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
                // Only existing connections can be killed.
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
            Step::DenyOpens => world.server.on_open(Answer::Deny),
            Step::FailResets(fail) => {
                world.server.on_reset(if fail { Answer::Fail(Failure::Open) } else { Answer::Well });
            }
            Step::Pass(time) => world.time.advance(millis(time)),
            Step::Drain => {
                // Polled once: it closes the reservoir at once, and dropping the future does not reopen it.
                model.closed = true;
                let (Poll::Ready(_) | Poll::Pending) = poll(&mut Box::pin(reservoir.drain(seconds(1))));
            }
        }
        world.time.settle();
        // A served caller whose connection became stale is queued again. That is not overtaking.
        if aged(&reservoir) == aged_before {
            check_order(&before, &waiters, *step);
        }
        if eager {
            for place in (0..waiters.len()).rev() {
                look(&mut waiters, place, &mut model, &world, &mut guards);
            }
            world.time.settle();
        }
        model.check(&reservoir, &world, &waiters, max_open + overlap, max_open);
    }
    if model.closed {
        for waiter in &mut waiters {
            assert!(matches!(waiter.poll(), Poll::Ready(Err(_))), "a caller waits forever");
        }
    }
    drop((waiters, guards, detached));
    drop(reservoir);
    world.server.on_reset(Answer::Well);
    world.assert_nothing_left();
}

/// 512 histories each, or `FOREBAY_HISTORIES`.
fn cases() -> ProptestConfig {
    let cases = std::env::var("FOREBAY_HISTORIES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(512);
    ProptestConfig { cases, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn every_history_keeps_the_rules(
        (config, max_open, overlap) in settings(),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        run(config, max_open, overlap, true, &steps);
    }

    #[test]
    fn every_history_keeps_the_rules_also_if_callers_are_polled_late(
        (config, max_open, overlap) in settings(),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        run(config, max_open, overlap, false, &steps);
    }
}
