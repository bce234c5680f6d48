//! The hand-off between return, waiter and cancellation, under the schedules that shuttle explores.
//!
//! `RUSTFLAGS="--cfg forebay_shuttle" cargo test -p forebay --test handoff`

#![cfg(forebay_shuttle)]

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use forebay::memory::Memory;
use forebay::rt::{Runtime, Starved, Task};
use forebay::{
    BoxError, CheckoutError, Config, ConnectionMonitor, Instant, LeaseError, LeaseId, Leases, Reservoir,
    Seed, StoreFuture,
};
use shuttle::Runner;
use shuttle::future::{JoinHandle, block_on, spawn};
use shuttle::scheduler::{PctScheduler, RandomScheduler};

/// Time stands still: only the order of events matters.
#[derive(Clone, Debug)]
struct Still;

impl Runtime for Still {
    fn now(&self) -> Instant {
        Instant::from_nanos(3_600_000_000_000)
    }

    fn wall(&self) -> Duration {
        Duration::ZERO
    }

    fn sleep_until(&self, at: Instant) -> Task {
        if at <= self.now() { Box::pin(async {}) } else { Box::pin(std::future::pending()) }
    }

    fn spawn(&self, task: Task) {
        drop(spawn(task));
    }

    fn entropy(&self) -> u64 {
        42
    }

    fn block(&self, _: &mut dyn FnMut()) -> Result<(), Starved> {
        Err(Starved)
    }
}

/// Runs `scenario` under 2,000 random schedules, and 2,000 that favour rare orders with few preemptions.
/// `FOREBAY_SCHEDULES` sets another number.
fn explore(scenario: impl Fn() + Send + Sync + Copy + 'static) {
    let rounds =
        std::env::var("FOREBAY_SCHEDULES").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(2000);
    Runner::new(RandomScheduler::new(rounds), roomy()).run(scenario);
    Runner::new(PctScheduler::new(3, rounds), roomy()).run(scenario);
}

/// Unoptimised futures need more stack than the default of shuttle.
fn roomy() -> shuttle::Config {
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 20;
    config
}

async fn reservoir(connections: usize) -> (Memory, Reservoir<Memory>) {
    let memory = Memory::new(Still);
    let config = Config::default().max_open(connections).startup_jitter(Duration::ZERO).seed(Seed::new(1));
    let reservoir = Reservoir::builder(memory.clone()).config(config).runtime(Still).start().await.unwrap();
    (memory, reservoir)
}

/// Ends a scenario: everything is returned and closed.
async fn finish(memory: Memory, reservoir: Reservoir<Memory>, connections: usize) {
    let status = reservoir.status();
    assert_eq!((status.in_use, status.waiting), (0, 0), "{status:?}");
    assert_eq!(status.owned(), connections, "{status:?}");
    assert!(reservoir.drain(Duration::from_secs(1)).await.is_complete());
    assert_eq!(memory.live(), 0);
}

#[test]
fn every_caller_is_served_and_no_connection_is_lent_twice() {
    explore(|| {
        block_on(async {
            let (memory, reservoir) = reservoir(1).await;
            let hands = Arc::new(AtomicUsize::new(0));
            let callers: Vec<_> = (0..3)
                .map(|_| {
                    let (reservoir, hands) = (reservoir.clone(), Arc::clone(&hands));
                    spawn(async move {
                        for _ in 0..2 {
                            let guard = reservoir.checkout().await.unwrap();
                            assert_eq!(hands.fetch_add(1, Ordering::SeqCst), 0);
                            shuttle::future::yield_now().await;
                            assert_eq!(hands.fetch_sub(1, Ordering::SeqCst), 1);
                            drop(guard);
                        }
                    })
                })
                .collect();
            for caller in callers {
                caller.await.unwrap();
            }
            finish(memory, reservoir, 1).await;
        });
    });
}

#[test]
fn what_a_cancelled_waiter_was_given_reaches_the_next() {
    explore(|| {
        block_on(async {
            let (memory, reservoir) = reservoir(1).await;
            let guard = reservoir.try_checkout().unwrap().into_owned();
            let cancelled = {
                let reservoir = reservoir.clone();
                spawn(async move {
                    let mut acquire = pin!(reservoir.checkout());
                    // Polled once, and then cancelled in whichever state it is.
                    drop(acquire.as_mut().poll(&mut Context::from_waker(Waker::noop())));
                    shuttle::future::yield_now().await;
                })
            };
            let patient = {
                let reservoir = reservoir.clone();
                spawn(async move { drop(reservoir.checkout().await.unwrap()) })
            };
            let giver = spawn(async move { drop(guard) });
            cancelled.await.unwrap();
            giver.await.unwrap();
            patient.await.unwrap();
            finish(memory, reservoir, 1).await;
        });
    });
}

#[test]
fn those_who_try_and_those_who_wait_agree_on_who_has_it() {
    explore(|| {
        block_on(async {
            let (memory, reservoir) = reservoir(1).await;
            let hands = Arc::new(AtomicUsize::new(0));
            let hold = |hands: &AtomicUsize| {
                assert_eq!(hands.fetch_add(1, Ordering::SeqCst), 0);
                assert_eq!(hands.fetch_sub(1, Ordering::SeqCst), 1);
            };
            let tries = {
                let (reservoir, hands) = (reservoir.clone(), Arc::clone(&hands));
                spawn(async move {
                    for _ in 0..3 {
                        match reservoir.try_checkout() {
                            Ok(_guard) => hold(&hands),
                            Err(CheckoutError::Exhausted { .. }) => {}
                            Err(error) => panic!("{error}"),
                        }
                        shuttle::future::yield_now().await;
                    }
                })
            };
            let waits = {
                let (reservoir, hands) = (reservoir.clone(), Arc::clone(&hands));
                spawn(async move {
                    for _ in 0..2 {
                        let _guard = reservoir.checkout().await.unwrap();
                        hold(&hands);
                    }
                })
            };
            tries.await.unwrap();
            waits.await.unwrap();
            finish(memory, reservoir, 1).await;
        });
    });
}

#[test]
fn a_death_during_the_hand_off_costs_the_waiter_nothing_but_time() {
    explore(|| {
        block_on(async {
            let (memory, reservoir) = reservoir(1).await;
            let guard = reservoir.try_checkout().unwrap().into_owned();
            let id = guard.id();
            let waiter = {
                let reservoir = reservoir.clone();
                spawn(async move { drop(reservoir.checkout().await.unwrap()) })
            };
            let giver = spawn(async move { drop(guard) });
            let killer = {
                let memory = memory.clone();
                spawn(async move { memory.kill(id) })
            };
            giver.await.unwrap();
            killer.await.unwrap();
            waiter.await.unwrap();
            reservoir.filled(Duration::from_secs(1)).await;
            finish(memory, reservoir, 1).await;
        });
    });
}

#[test]
fn a_close_during_the_hand_off_leaves_no_one_waiting() {
    explore(|| {
        block_on(async {
            let (memory, reservoir) = reservoir(1).await;
            let guard = reservoir.try_checkout().unwrap().into_owned();
            let waiter = {
                let reservoir = reservoir.clone();
                spawn(async move {
                    match reservoir.checkout().await {
                        Ok(guard) => drop(guard),
                        Err(CheckoutError::Closed) => {}
                        Err(error) => panic!("{error}"),
                    }
                })
            };
            let giver = spawn(async move { drop(guard) });
            let drained = reservoir.drain(Duration::from_secs(1)).await;
            assert!(drained.is_complete(), "{drained:?}");
            giver.await.unwrap();
            waiter.await.unwrap();
            assert!(matches!(reservoir.try_checkout(), Err(CheckoutError::Closed)));
            assert_eq!(memory.live(), 0);
        });
    });
}

#[test]
fn a_closed_reservoir_lends_nothing() {
    explore(|| {
        block_on(async {
            let (memory, reservoir) = reservoir(2).await;
            let tries = {
                let reservoir = reservoir.clone();
                spawn(async move {
                    for _ in 0..3 {
                        let was_closed = reservoir.status().closed;
                        let tried = reservoir.try_checkout();
                        assert!(!was_closed || matches!(tried, Err(CheckoutError::Closed)), "{tried:?}");
                        drop(tried);
                        shuttle::future::yield_now().await;
                    }
                })
            };
            closer(&reservoir).await.unwrap();
            tries.await.unwrap();
            is_over(&memory, &reservoir);
        });
    });
}

/// A waiting caller. It gets a connection and returns it, or its wait ends.
fn waiter(reservoir: &Reservoir<Memory>) -> JoinHandle<bool> {
    let reservoir = reservoir.clone();
    spawn(async move {
        match reservoir.checkout().await {
            Ok(guard) => {
                shuttle::future::yield_now().await;
                drop(guard);
                true
            }
            Err(CheckoutError::Closed) => false,
            Err(error) => panic!("{error}"),
        }
    })
}

/// A caller that is polled once, and then cancelled in whichever state it is.
fn fickle(reservoir: &Reservoir<Memory>) -> JoinHandle<()> {
    let reservoir = reservoir.clone();
    spawn(async move {
        let mut acquire = pin!(reservoir.checkout());
        drop(acquire.as_mut().poll(&mut Context::from_waker(Waker::noop())));
        shuttle::future::yield_now().await;
    })
}

/// Kills a connection.
fn killer(memory: &Memory, id: u64) -> JoinHandle<()> {
    let memory = memory.clone();
    spawn(async move { memory.kill(id) })
}

/// Closes the reservoir, and waits until it owns nothing.
fn closer(reservoir: &Reservoir<Memory>) -> JoinHandle<()> {
    let reservoir = reservoir.clone();
    spawn(async move {
        let drained = reservoir.drain(Duration::from_secs(1)).await;
        assert!(drained.is_complete(), "{drained:?}");
        assert_eq!(reservoir.status().waiting, 0);
    })
}

/// After a close: nobody waits, and nothing is open.
fn is_over(memory: &Memory, reservoir: &Reservoir<Memory>) {
    let status = reservoir.status();
    assert_eq!((status.waiting, status.in_use, status.owned(), status.closing), (0, 0, 0, 0), "{status:?}");
    assert_eq!(memory.live(), 0);
}

#[test]
fn a_serve_a_death_and_a_close_at_once() {
    explore(|| {
        block_on(async {
            let (memory, reservoir) = reservoir(1).await;
            let guard = reservoir.try_checkout().unwrap().into_owned();
            let id = guard.id();
            let waiters = [waiter(&reservoir), waiter(&reservoir)];
            let others = [spawn(async move { drop(guard) }), killer(&memory, id), closer(&reservoir)];
            for other in others {
                other.await.unwrap();
            }
            for waiter in waiters {
                waiter.await.unwrap();
            }
            is_over(&memory, &reservoir);
        });
    });
}

#[test]
fn two_serves_and_two_deaths_at_once() {
    explore(|| {
        block_on(async {
            let (memory, reservoir) = reservoir(2).await;
            let guards = [0; 2].map(|_| reservoir.try_checkout().unwrap().into_owned());
            let ids = guards.each_ref().map(|guard| guard.id());
            let waiters = [0; 3].map(|_| waiter(&reservoir));
            let givers = guards.map(|guard| spawn(async move { drop(guard) }));
            let killers = ids.map(|id| killer(&memory, id));
            for other in givers.into_iter().chain(killers) {
                other.await.unwrap();
            }
            for waiter in waiters {
                assert!(waiter.await.unwrap());
            }
            reservoir.filled(Duration::from_secs(1)).await;
            finish(memory, reservoir, 2).await;
        });
    });
}

/// Leases that can be recalled.
#[derive(Clone, Default)]
struct Recallable(Arc<std::sync::Mutex<Vec<ConnectionMonitor>>>);

impl Leases for Recallable {
    fn acquire(&self) -> StoreFuture<'_, Result<LeaseId, LeaseError>> {
        Box::pin(async { Ok(LeaseId::new("lease")) })
    }

    fn release<'a>(&'a self, _: &'a LeaseId) -> StoreFuture<'a, Result<(), BoxError>> {
        Box::pin(async { Ok(()) })
    }

    fn bind(&self, _: &LeaseId, monitor: ConnectionMonitor) {
        self.0.lock().unwrap().push(monitor);
    }
}

#[test]
fn a_recall_a_close_and_a_cancellation_at_once() {
    explore(|| {
        block_on(async {
            let (memory, leases) = (Memory::new(Still), Recallable::default());
            let config = Config::default().max_open(1).startup_jitter(Duration::ZERO).seed(Seed::new(1));
            let builder = Reservoir::builder(memory.clone()).config(config).runtime(Still);
            let reservoir = builder.leases(Arc::new(leases.clone())).start().await.unwrap();
            let guard = reservoir.try_checkout().unwrap().into_owned();
            let (fickle, waiter) = (fickle(&reservoir), waiter(&reservoir));
            let giver = spawn(async move { drop(guard) });
            let recaller = spawn(async move {
                let bound = leases.0.lock().unwrap().clone();
                bound.iter().for_each(ConnectionMonitor::recall);
            });
            for other in [fickle, giver, recaller, closer(&reservoir)] {
                other.await.unwrap();
            }
            waiter.await.unwrap();
            is_over(&memory, &reservoir);
        });
    });
}

#[test]
fn a_serve_a_cancellation_and_a_resize_at_once() {
    explore(|| {
        block_on(async {
            let (memory, reservoir) = reservoir(2).await;
            let guards = [0; 2].map(|_| reservoir.try_checkout().unwrap().into_owned());
            let (fickle, waiter) = (fickle(&reservoir), waiter(&reservoir));
            let givers = guards.map(|guard| spawn(async move { drop(guard) }));
            let resizer = {
                let reservoir = reservoir.clone();
                spawn(async move { reservoir.resize(1).unwrap() })
            };
            for other in givers.into_iter().chain([fickle, resizer]) {
                other.await.unwrap();
            }
            assert!(waiter.await.unwrap());
            finish(memory, reservoir, 1).await;
        });
    });
}

#[test]
fn reports_of_the_watermark_alternate_and_the_last_one_is_true() {
    explore(|| {
        block_on(async {
            let memory = Memory::new(Still);
            let config = Config::default().max_open(1).low_watermark(1).rate(1e6, 1_000);
            let told = Arc::new(std::sync::Mutex::new(Vec::new()));
            let log = Arc::clone(&told);
            let reservoir = Reservoir::builder(memory.clone())
                .config(config.startup_jitter(Duration::ZERO).seed(Seed::new(1)))
                .runtime(Still)
                .observer(move |event: &forebay::Event<'_>| match event {
                    forebay::Event::BelowWatermark { .. } => log.lock().unwrap().push("below"),
                    forebay::Event::AboveWatermark { .. } => log.lock().unwrap().push("above"),
                    _ => {}
                })
                .start_empty()
                .unwrap();
            let ups_and_downs = |rounds: u32| {
                let (reservoir, memory) = (reservoir.clone(), memory.clone());
                spawn(async move {
                    for _ in 0..rounds {
                        let guard = reservoir.checkout().await.unwrap();
                        memory.kill(guard.id());
                    }
                })
            };
            for task in [ups_and_downs(2), ups_and_downs(2)] {
                task.await.unwrap();
            }
            for round in 0.. {
                let told = told.lock().unwrap().clone();
                let status = reservoir.status();
                assert!(round < 10_000, "{told:?}, {status:?}");
                assert!(told.windows(2).all(|two| two[0] != two[1]), "{told:?}");
                // Opens may still be under way, and another task may be about to report. A connection that
                // dies before it was reported is not.
                let truth = if status.size() < 1 { "below" } else { "above" };
                if status.opening == 0 && *told.last().unwrap_or(&"below") == truth {
                    break;
                }
                shuttle::future::yield_now().await;
            }
            drop(reservoir.drain(Duration::from_secs(1)).await);
        });
    });
}

/// Shows that these scenarios can fail: a waiter that nobody serves is a deadlock, which shuttle reports.
#[test]
#[should_panic(expected = "deadlock")]
fn a_lost_connection_would_be_noticed() {
    Runner::new(RandomScheduler::new(1), roomy()).run(|| {
        block_on(async {
            let (_memory, reservoir) = reservoir(1).await;
            let guard = reservoir.try_checkout().unwrap();
            std::mem::forget(guard);
            drop(reservoir.checkout().await);
        });
    });
}
