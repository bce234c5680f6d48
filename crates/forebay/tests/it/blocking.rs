//! Blocking checkouts wait in the same queue. These tests need real threads and a real clock.
#![allow(clippy::disallowed_methods, reason = "threads and a real runtime are what is tested")]

use std::time::Duration;

use forebay::memory::Memory;
use forebay::rt::TokioRuntime;
use forebay::{CheckoutError, Reservoir};

use crate::support::{World, config, millis, seconds};

async fn reservoir(max_open: usize) -> Reservoir<Memory> {
    let memory = Memory::new(TokioRuntime::current().unwrap());
    Reservoir::builder(memory).config(config(max_open)).start().await.unwrap()
}

#[test]
fn on_its_own_single_threaded_runtime_it_refuses_to_wait() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let reservoir = reservoir(1).await;
        let guard = reservoir.checkout_blocking(seconds(60)).expect("what is ready needs no waiting");
        let error = reservoir.checkout_blocking(seconds(60)).unwrap_err();
        assert!(matches!(error, CheckoutError::WouldStarve), "{error}");
        assert!(error.to_string().contains("spawn_blocking"), "{error}");
        drop(guard);
        assert_eq!(reservoir.status().waiting, 0, "and leaves the line");
    });
}

#[test]
fn before_the_runtime_has_run_a_task_it_refuses_as_well() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let memory = Memory::new(TokioRuntime::current().unwrap());
        let reservoir = Reservoir::builder(memory).config(config(1)).start_empty().unwrap();
        assert!(matches!(reservoir.checkout_blocking(seconds(60)), Err(CheckoutError::WouldStarve)));
    });
}

#[test]
fn a_blocking_thread_of_a_single_threaded_runtime_may_wait() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let reservoir = reservoir(1).await;
        let guard = reservoir.try_checkout().unwrap();
        let waiting = reservoir.clone();
        let waiter = tokio::task::spawn_blocking(move || waiting.checkout_blocking(seconds(60)).map(|_| ()));
        while reservoir.status().waiting == 0 {
            tokio::task::yield_now().await;
        }
        drop(guard);
        waiter.await.unwrap().unwrap();
    });
}

#[test]
fn a_worker_of_a_multi_threaded_runtime_may_wait_even_if_it_is_the_only_one() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
    runtime.block_on(async {
        let waiter = tokio::spawn(async {
            let memory = Memory::new(TokioRuntime::current().unwrap());
            let reservoir = Reservoir::builder(memory).config(config(1)).start_empty().unwrap();
            // No connection is open yet, and the task that opens it needs a worker, too.
            reservoir.checkout_blocking(seconds(60)).map(|_| ())
        });
        waiter.await.unwrap().unwrap();
    });
}

#[test]
fn threads_outside_the_runtime_wait_in_the_queue_and_time_out() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
    let reservoir = runtime.block_on(reservoir(1));
    let guard = reservoir.checkout_blocking(Duration::ZERO).unwrap();
    let error = reservoir.checkout_blocking(millis(20)).unwrap_err();
    let CheckoutError::Exhausted { waited, .. } = error else { panic!("{error}") };
    assert!(waited >= millis(20));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| reservoir.checkout_blocking(seconds(60)).map(|guard| guard.id()));
        while reservoir.status().waiting == 0 {
            std::thread::yield_now();
        }
        let id = guard.id();
        drop(guard);
        assert_eq!(waiter.join().unwrap().unwrap(), id);
    });
    assert!(runtime.block_on(reservoir.drain(seconds(10))).is_complete());
    assert!(matches!(reservoir.checkout_blocking(seconds(1)), Err(CheckoutError::Closed)));
}

#[test]
fn under_virtual_time_there_is_no_thread_to_wait_on() {
    let world = World::new();
    let reservoir = world.start(config(1));
    assert!(matches!(reservoir.checkout_blocking(seconds(1)), Err(CheckoutError::WouldStarve)));
}

#[test]
fn when_its_runtime_is_gone_the_reservoir_is_closed_and_nothing_hangs() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let reservoir = runtime.block_on(reservoir(2));
    let guard = reservoir.try_checkout().unwrap();
    drop(runtime);
    assert!(matches!(reservoir.try_checkout(), Err(CheckoutError::Closed)));
    assert!(matches!(reservoir.checkout_blocking(seconds(60)), Err(CheckoutError::Closed)));
    drop(guard);
    assert_eq!(reservoir.status().owned(), 0);
}
