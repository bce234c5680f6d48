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
pub(crate) struct ShardTurns(Mutex<BTreeMap<i32, Arc<tokio::sync::Mutex<Courtesy>>>>);

/// The turn of one transaction. It ends when this is dropped.
#[must_use = "the turn ends when this is dropped"]
pub(crate) struct Turn(OwnedMutexGuard<Courtesy>);

/// How often an announced change of owner makes the present owner pause. A second time in case the first was too short; then no more,
/// since who has announced it may be dead.
const PAUSES: u32 = 2;

/// The change of owner that was announced last, and how often this process has paused for it.
#[derive(Debug, Default)]
pub(crate) struct Courtesy(Mutex<(i64, u32)>);

impl ShardTurns {
    /// Waits for a turn. Cancel safe: a dropped future leaves the queue.
    pub(crate) async fn wait(&self, shard_id: i32) -> Turn {
        let queue = Arc::clone(self.0.lock().entry(shard_id).or_default());
        Turn(queue.lock_owned().await)
    }
}

impl Turn {
    /// Whether to pause for the change to this range id.
    pub(crate) fn gives_way_to(&self, range_id: i64) -> bool {
        let Courtesy(state) = &*self.0;
        let (announced, pauses) = &mut *state.lock();
        if *announced != range_id {
            (*announced, *pauses) = (range_id, 0);
        }
        *pauses = pauses.saturating_add(1);
        *pauses <= PAUSES
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
    fn an_owner_gives_way_twice_to_each_announcement() {
        let turns = ShardTurns::default();
        let turn = poll(pin!(turns.wait(1))).expect("nobody is before it");
        assert_eq!(
            [2, 2, 2, 3, 3, 3].map(|range_id| turn.gives_way_to(range_id)),
            [true, true, false, true, true, false]
        );
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
