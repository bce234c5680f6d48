//! A connection that waits for an answer longer than a reset or a check may take.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay::rt::{Runtime, VirtualTime};
use forebay::{BoxError, Config, Connect, ConnectionMonitor, Discard, OpenError, Reservoir, Seed};
use tokio::sync::Notify;

const SECOND: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(60);

/// Its server answers when it is told to.
#[derive(Clone, Default)]
struct Slow {
    answers: Arc<AtomicBool>,
    told: Arc<Notify>,
}

impl Slow {
    fn answer(&self) {
        self.answers.store(true, Ordering::Release);
        self.told.notify_waiters();
    }
}

impl Connect for Slow {
    type Connection = ();

    async fn open(&self, _monitor: ConnectionMonitor) -> Result<(), OpenError> {
        Ok(())
    }

    fn is_clean(&self, (): &()) -> bool {
        false
    }

    fn unanswered_timeout(&self, (): &()) -> Duration {
        PATIENCE
    }

    async fn reset(&self, (): &mut ()) -> Result<(), BoxError> {
        while !self.answers.load(Ordering::Acquire) {
            self.told.notified().await;
        }
        Ok(())
    }

    async fn check(&self, connection: &mut ()) -> Result<(), BoxError> {
        self.reset(connection).await
    }
}

/// A reservoir of one connection that was returned with an unanswered request.
fn returned() -> (VirtualTime, Slow, Reservoir<Slow>) {
    let (time, slow) = (VirtualTime::new(), Slow::default());
    let config = Config::default().max_open(1).startup_jitter(Duration::ZERO).seed(Seed::new(7));
    let started = Reservoir::builder(slow.clone()).config(config).runtime(time.clone()).start();
    let reservoir = time.run(started).unwrap();
    drop(time.run(reservoir.checkout()).unwrap());
    time.settle();
    assert_eq!(reservoir.status().in_maintenance, 1);
    (time, slow, reservoir)
}

#[test]
fn it_is_lent_again_once_it_has_answered() {
    let (time, slow, reservoir) = returned();
    time.advance(PATIENCE - SECOND);
    assert_eq!(reservoir.status().in_maintenance, 1, "longer than a reset may take");
    slow.answer();
    time.settle();
    assert_eq!((reservoir.status().ready, reservoir.status().counts.discards(Discard::ResetFailed)), (1, 0));
    drop(reservoir);
    time.shut_down();
}

#[test]
fn it_is_closed_if_it_does_not_answer() {
    let (time, _slow, reservoir) = returned();
    time.advance(PATIENCE + 4 * SECOND);
    assert_eq!(reservoir.status().counts.discards(Discard::ResetFailed), 0);
    time.advance(2 * SECOND);
    assert_eq!(reservoir.status().counts.discards(Discard::ResetFailed), 1);
    drop(reservoir);
    time.shut_down();
}

#[test]
fn a_drain_does_not_wait_for_its_answer() {
    let (time, _slow, reservoir) = returned();
    let began = time.now();
    let drained = time.run(reservoir.drain(PATIENCE));
    assert!(drained.is_complete(), "{drained:?}");
    assert!(time.now().since(began) <= 5 * SECOND, "a reset may still take its usual time");
    time.shut_down();
}

#[test]
fn a_slow_spell_closes_no_connection_that_is_checked() {
    let (time, slow) = (VirtualTime::new(), Slow::default());
    let config = Config::default().max_open(5).check_after(30 * SECOND).unlimited_lifetime();
    let config = config.startup_jitter(Duration::ZERO).seed(Seed::new(7));
    let started = Reservoir::builder(slow.clone()).config(config).runtime(time.clone()).start();
    let reservoir = time.run(started).unwrap();
    // All are checked, and the server is slow.
    time.advance(30 * SECOND + PATIENCE - SECOND);
    assert_eq!(reservoir.status().in_maintenance, 5);
    slow.answer();
    time.settle();
    assert_eq!((reservoir.status().ready, reservoir.status().counts.refills), (5, 5), "nothing was replaced");
    // It does not answer any more.
    slow.answers.store(false, Ordering::Release);
    time.advance(30 * SECOND + PATIENCE + 6 * SECOND);
    assert_eq!(reservoir.status().counts.discards(Discard::Died), 5);
    drop(reservoir);
    time.shut_down();
}
