//! Every public future is dropped at each of its awaits: nothing is lost, and nothing is left.
//!
//! Each await is a gate that can be shut. For each function and each gate, a test polls the future until it
//! waits at the gate, drops it there, and opens the gate. Then everything must be as if the call had never
//! happened.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use forebay::memory::Answer;
use forebay::{Limit, LimitError, Pace, Permit, Reservoir, StoreFuture};

use crate::support::{Store, World, config, poll, seconds};

/// Polls `future` and runs tasks, until it makes no progress. It must still be pending.
fn hold_at_gate<F: Future + ?Sized>(world: &World, future: &mut Pin<Box<F>>) {
    for _ in 0..10 {
        assert!(poll(future).is_pending(), "it passed the gate");
        world.time.settle();
    }
}

/// The gates of an open, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    Stagger,
    Prepare,
    Lease,
    Permit,
    Open,
}

const GATES: [Gate; 5] = [Gate::Stagger, Gate::Prepare, Gate::Lease, Gate::Permit, Gate::Open];

/// A limiter that grants no permit while it is shut. It counts the permits that were not given back.
#[derive(Default)]
struct Turnstile {
    shut: bool,
    out: Arc<std::sync::atomic::AtomicUsize>,
}

impl Limit for Turnstile {
    fn acquire(&self) -> StoreFuture<'_, Result<Permit, LimitError>> {
        use std::sync::atomic::Ordering::Relaxed;
        Box::pin(async {
            let out = Arc::clone(&self.out);
            out.fetch_add(1, Relaxed);
            let permit = Permit::new(move || {
                out.fetch_sub(1, Relaxed);
            });
            if self.shut {
                std::future::pending::<()>().await;
            }
            Ok(permit)
        })
    }

    fn pace(&self) -> Pace {
        Pace { per_second: 10.0, at_once: 1 }
    }
}

/// A reservoir of three whose opens wait at `gate`.
fn held_at(gate: Gate) -> (World, forebay::Builder<forebay::memory::Memory>, Arc<Turnstile>) {
    let world = World::new();
    let turnstile = Arc::new(Turnstile { shut: gate == Gate::Permit, ..Turnstile::default() });
    let config = config(3).startup_jitter(if gate == Gate::Stagger { seconds(5) } else { seconds(0) });
    match gate {
        Gate::Prepare => world.server.on_prepare(Answer::Hang),
        Gate::Lease => world.leases.answer(Store::Hang),
        Gate::Open => world.server.on_open(Answer::Hang),
        Gate::Stagger | Gate::Permit => {}
    }
    let builder = Reservoir::builder(world.server.clone())
        .config(config)
        .runtime(world.time.clone())
        .leases(Arc::clone(&world.leases) as _)
        .limit(Arc::clone(&turnstile) as _);
    (world, builder, turnstile)
}

fn open_the_gate(world: &World) {
    world.server.on_prepare(Answer::Well);
    world.server.on_open(Answer::Well);
    world.leases.answer(Store::Well);
}

#[test]
fn start_dropped_at_each_gate_leaves_nothing_behind() {
    for gate in GATES {
        let (world, builder, turnstile) = held_at(gate);
        let mut start = Box::pin(builder.start());
        hold_at_gate(&world, &mut start);
        drop(start);
        open_the_gate(&world);
        world.assert_nothing_left();
        let spent = usize::try_from(world.server.asked()).unwrap();
        assert_eq!(
            turnstile.out.load(std::sync::atomic::Ordering::Relaxed),
            spent,
            "{gate:?}: permits not spent"
        );
    }
}

#[test]
fn drain_at_each_gate_of_an_open_gives_everything_back() {
    for gate in GATES {
        let (world, builder, turnstile) = held_at(gate);
        let reservoir = builder.start_empty().unwrap();
        world.time.settle();
        let mut drain = Box::pin(reservoir.drain(seconds(1)));
        if gate == Gate::Lease {
            assert!(poll(&mut drain).is_pending(), "the opens under way have not heard yet");
        }
        let drained = world.time.run(drain);
        assert!(drained.is_complete(), "{gate:?}: {drained:?}");
        let spent = usize::try_from(world.server.asked()).unwrap();
        assert_eq!(
            turnstile.out.load(std::sync::atomic::Ordering::Relaxed),
            spent,
            "{gate:?}: permits not spent"
        );
        open_the_gate(&world);
        world.assert_nothing_left();
    }
}

#[test]
fn filled_dropped_while_it_waits_changes_nothing() {
    for gate in GATES {
        let (world, builder, _) = held_at(gate);
        let reservoir = builder.start_empty().unwrap();
        let mut filled = Box::pin(reservoir.filled(seconds(60)));
        hold_at_gate(&world, &mut filled);
        let before = reservoir.status();
        drop(filled);
        assert_eq!(reservoir.status(), before);
        drop(reservoir);
        open_the_gate(&world);
        world.assert_nothing_left();
    }
}

#[test]
fn a_first_fill_dropped_while_it_waits_reports_nothing() {
    for gate in GATES {
        let (world, builder, _) = held_at(gate);
        let reservoir = builder.start_empty().unwrap();
        let mut filled = Box::pin(reservoir.first_fill());
        hold_at_gate(&world, &mut filled);
        let before = reservoir.status();
        drop(filled);
        assert_eq!((world.heard("Filled"), world.heard("FillTimedOut")), (0, 0));
        assert_eq!(reservoir.status(), before);
        drop(reservoir);
        open_the_gate(&world);
        world.assert_nothing_left();
    }
}

#[test]
fn checkout_dropped_unpolled_queued_served_and_after_a_stale_one_loses_nothing() {
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum At {
        Unpolled,
        InLine,
        Served,
        BackInLine,
        TimedOut,
    }
    for at in [At::Unpolled, At::InLine, At::Served, At::BackInLine, At::TimedOut] {
        let world = World::new();
        let reservoir = world.filled(config(1));
        let guard = reservoir.try_checkout().unwrap();
        let id = guard.id();
        let mut acquire = Box::pin(reservoir.checkout().within(seconds(5)));
        if at != At::Unpolled {
            hold_at_gate(&world, &mut acquire);
        }
        match at {
            At::Unpolled | At::InLine => {}
            At::TimedOut => world.time.advance(seconds(5)),
            At::Served | At::BackInLine => {
                drop(guard);
                if at == At::BackInLine {
                    world.server.on_open(Answer::Hang);
                    world.server.kill(id);
                    hold_at_gate(&world, &mut acquire);
                }
                drop(acquire);
                world.server.on_open(Answer::Well);
                world.time.advance(seconds(60));
                let status = reservoir.status();
                assert_eq!((status.ready, status.in_use, status.waiting), (1, 0, 0), "{at:?}");
                continue;
            }
        }
        drop(acquire);
        assert_eq!(reservoir.status().waiting, 0, "{at:?}");
        drop(guard);
        let status = reservoir.status();
        assert_eq!((status.ready, status.in_use, status.waiting), (1, 0, 0), "{at:?}");
        assert_eq!(world.time.run(reservoir.checkout()).unwrap().id(), id, "{at:?}");
    }
}

#[test]
fn drain_dropped_while_it_waits_goes_on_closing() {
    for polls in 0..3 {
        let world = World::new();
        let reservoir = world.filled(config(3));
        let guard = reservoir.try_checkout().unwrap();
        let mut drain = Box::pin(reservoir.drain(seconds(60)));
        for _ in 0..polls {
            assert!(poll(&mut drain).is_pending());
            world.time.settle();
        }
        drop(drain);
        world.time.advance(seconds(10));
        let status = reservoir.status();
        assert_eq!(status.closed, polls > 0, "an unpolled drain has not begun");
        assert_eq!(status.size(), if polls > 0 { 1 } else { 3 });
        drop(guard);
        drop(reservoir);
        world.assert_nothing_left();
    }
}

#[test]
fn a_lease_release_dropped_while_it_waits_goes_on_in_the_background() {
    for (polls, answer) in [(0, Store::Well), (3, Store::Hang), (3, Store::Fail)] {
        let world = World::new();
        let reservoir = world.filled(config(1));
        let detached = reservoir.try_checkout().unwrap().detach();
        drop(detached.connection);
        world.time.settle();
        world.leases.answer(answer);
        let mut release = Box::pin(detached.lease.unwrap().release());
        for _ in 0..polls {
            assert_eq!(poll(&mut release), Poll::Pending);
        }
        drop(release);
        world.leases.answer(Store::Well);
        world.time.advance(seconds(60));
        assert_eq!(world.leases.held(), 1, "the new connection's alone");
        drop(reservoir);
        world.assert_nothing_left();
    }
}

#[test]
fn within_dropped_while_it_waits_drops_what_it_ran() {
    let world = World::new();
    let held = Arc::new(());
    let kept = Arc::clone(&held);
    let mut within = Box::pin(forebay::rt::within(&world.time, seconds(5), async move {
        std::future::pending::<()>().await;
        drop(kept);
    }));
    hold_at_gate(&world, &mut within);
    drop(within);
    assert_eq!(Arc::strong_count(&held), 1);
    assert_eq!(
        world.time.run(forebay::rt::within(&world.time, seconds(5), std::future::pending::<()>())),
        None
    );
    assert_eq!(world.time.run(forebay::rt::within(&world.time, seconds(0), async { 7 })), Some(7), "a tie");
}

#[test]
fn a_yield_wakes_at_once_and_can_be_dropped() {
    use std::future::Future;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake, Waker};

    struct Woken(AtomicUsize);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let woken = Arc::new(Woken(AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&woken));
    let context = &mut Context::from_waker(&waker);
    for turns in 1..=2 {
        let mut yielding = Box::pin(forebay::rt::yield_now());
        assert!(yielding.as_mut().poll(context).is_pending());
        assert_eq!(woken.0.load(Ordering::Relaxed), turns);
        if turns == 2 {
            assert!(yielding.as_mut().poll(context).is_ready());
        }
    }
}
