//! A user's own tests under tokio's paused clock.
#![allow(clippy::disallowed_methods, reason = "the clock that this pauses is tokio's")]

use std::time::Duration;

use forebay::memory::{Answer, Memory};
use forebay::rt;
use forebay::{CheckoutError, Failure, Lifetime, Reservoir};

use crate::support::{config, millis, seconds};

#[tokio::test(start_paused = true)]
async fn timeouts_and_lifetimes_go_by_the_paused_clock() {
    let server = Memory::new(rt::current().unwrap());
    let life = Lifetime::new(seconds(600)).guard_window(seconds(60));
    let config = config(2).lifetime(life).overlap(0).acquire_timeout(seconds(5));
    let reservoir = Reservoir::builder(server.clone()).config(config).start().await.unwrap();
    let began = tokio::time::Instant::now();

    let held = [reservoir.checkout().await.unwrap(), reservoir.checkout().await.unwrap()];
    let error = reservoir.checkout().await.unwrap_err();
    assert!(matches!(error, CheckoutError::Exhausted { .. }), "{error}");
    let slack = millis(1);
    assert!(began.elapsed() >= seconds(5) && began.elapsed() < seconds(5) + slack, "{:?}", began.elapsed());
    let ids = held.each_ref().map(|guard| guard.id());
    drop(held);

    // Twenty minutes pass at once. Such an old connection is not lent.
    tokio::time::sleep(Duration::from_secs(1200)).await;
    let guard = reservoir.checkout().await.unwrap();
    assert!(!ids.contains(&guard.id()) && guard.remaining().unwrap() > seconds(60));
    drop(guard);

    server.on_open(Answer::Fail(Failure::Open));
    server.kill_all();
    let began = tokio::time::Instant::now();
    let error = reservoir.checkout().empty_wait(millis(100)).await.unwrap_err();
    assert!(matches!(error, CheckoutError::Empty { .. }), "{error}");
    assert!(began.elapsed() < millis(102), "{:?}", began.elapsed());
    assert!(reservoir.drain(seconds(1)).await.is_complete());
}
