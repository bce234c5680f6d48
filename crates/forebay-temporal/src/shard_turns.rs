//! Turns: one fenced transaction of a shard at a time, within a process.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

/// The queues in which the fenced transactions of each shard wait. Whoever came first is first.
///
/// All of them lock the same row. On Aurora DSQL no lock waits for another: of two transactions that overlap, one fails at its
/// COMMIT. So they take turns here, where waiting costs nothing. The map keeps an entry for each shard that was ever used.
#[derive(Debug, Default)]
pub(crate) struct ShardTurns(Mutex<BTreeMap<i32, Arc<tokio::sync::Mutex<()>>>>);

/// The turn of one transaction. It ends when this is dropped.
#[must_use = "the turn ends when this is dropped"]
pub(crate) struct Turn(#[expect(dead_code, reason = "held until it is dropped")] OwnedMutexGuard<()>);

impl ShardTurns {
    /// Waits for a turn. Cancel safe: a dropped future leaves the queue.
    pub(crate) async fn wait(&self, shard_id: i32) -> Turn {
        let queue = Arc::clone(self.0.lock().entry(shard_id).or_default());
        Turn(queue.lock_owned().await)
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    #[test]
    fn first_come_first_served_and_whoever_leaves_holds_nobody_up() {
        let turns = ShardTurns::default();
        let first = poll(pin!(turns.wait(1))).expect("nobody is before it");
        let (mut second, mut third) = (Box::pin(turns.wait(1)), Box::pin(turns.wait(1)));
        let mut fourth = Box::pin(turns.wait(1));
        assert!(poll(second.as_mut()).is_none() && poll(third.as_mut()).is_none());
        assert!(poll(fourth.as_mut()).is_none());
        assert!(poll(pin!(turns.wait(2))).is_some(), "another shard");
        drop(second);
        drop(first);
        assert!(poll(fourth.as_mut()).is_none(), "not before the third");
        let third = poll(third.as_mut()).expect("its turn");
        drop(third);
        assert!(poll(fourth.as_mut()).is_some());
    }
}
