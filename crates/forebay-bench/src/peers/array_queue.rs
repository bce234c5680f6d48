//! crossbeam's ArrayQueue: no pool, but as little as lending between threads can cost. It has no waiting, no
//! deadlines, no counters and no bound on what is lent.

use std::future::ready;
use std::ops::Deref;
use std::sync::Arc;

use crossbeam_queue::ArrayQueue;

use crate::pool::{Lend, Payload, Pool, TryLend};

/// A queue of connections.
#[derive(Clone, Debug)]
pub struct Queue(Arc<ArrayQueue<Payload>>);

/// A connection to be pushed back.
#[derive(Debug)]
pub struct Popped<'a> {
    queue: &'a ArrayQueue<Payload>,
    connection: Payload,
}

impl Deref for Popped<'_> {
    type Target = Payload;

    #[inline]
    fn deref(&self) -> &Payload {
        &self.connection
    }
}

impl Drop for Popped<'_> {
    #[inline]
    fn drop(&mut self) {
        let pushed = self.queue.push(self.connection);
        debug_assert!(pushed.is_ok(), "there is room for what was popped");
    }
}

/// Nothing was there.
#[derive(Clone, Copy, Debug)]
pub struct Nothing;

impl Pool for Queue {
    const NAME: &'static str = "crossbeam ArrayQueue";
    type Refusal = Nothing;

    async fn filled(connections: usize) -> anyhow::Result<Self> {
        let queue = ArrayQueue::new(connections);
        for connection in 0..connections {
            queue.push(connection as Payload).map_err(|_| anyhow::anyhow!("the queue is full"))?;
        }
        Ok(Self(Arc::new(queue)))
    }
}

impl TryLend for Queue {
    type Lent<'a> = Popped<'a>;

    #[inline]
    fn try_lend(&self) -> Result<Popped<'_>, Nothing> {
        let connection = self.0.pop().ok_or(Nothing)?;
        Ok(Popped { queue: &self.0, connection })
    }
}

impl Lend for Queue {
    type Lent<'a> = Popped<'a>;

    #[inline]
    fn lend(&self) -> impl Future<Output = Result<Popped<'_>, Nothing>> + Send {
        ready(self.try_lend())
    }
}
