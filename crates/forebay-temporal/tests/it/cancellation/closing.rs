//! The pool closes while callers wait for it, or are at one of their awaits.

use std::future::poll_fn;
use std::task::Poll;

use forebay_temporal::Error;

use super::{Function, PATIENCE, in_time};
use crate::cluster::{Alone, alone, store_of};
use crate::shards::{new_shard, selected};

/// What happens to a caller that waits for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// The connection that it waits for comes back.
    Served,
    /// All sockets are cut.
    Dead,
    /// The pool closes.
    Closed,
}

const ORDERS: [[Event; 3]; 6] = {
    use Event::{Closed, Dead, Served};
    [
        [Served, Dead, Closed],
        [Served, Closed, Dead],
        [Dead, Served, Closed],
        [Dead, Closed, Served],
        [Closed, Served, Dead],
        [Closed, Dead, Served],
    ]
};

/// A caller waits for the only connection, and another one waits behind it. Then all happens at once.
async fn all_at_once(cluster: &Alone, function: Function, order: [Event; 3], goes_on: bool) {
    let told = &format!("{function:?}, {order:?}, {goes_on}");
    let store = store_of(cluster, 1).await;
    let row = &new_shard(&store).await;
    let pool = store.pool().unwrap();
    let mut held = Some(pool.acquire().await.unwrap());
    let mut first = function.call(&store, row);
    let mut second = Function::Fenced.call(&store, row);
    let mut drain = Box::pin(pool.drain(PATIENCE));
    let first_poll = poll_fn(|context| {
        Poll::Ready((first.as_mut().poll(context).is_ready(), second.as_mut().poll(context).is_ready()))
    });
    assert_eq!(first_poll.await, (false, false), "{told}");
    let mut drained = None;
    for event in order {
        match event {
            Event::Served => drop(held.take()),
            Event::Dead => drop(cluster.sever(1.0)),
            Event::Closed => {
                drained = poll_fn(|context| {
                    Poll::Ready(match drain.as_mut().poll(context) {
                        Poll::Ready(drained) => Some(drained),
                        Poll::Pending => None,
                    })
                })
                .await;
            }
        }
    }
    if goes_on {
        let outcome = in_time(told, first).await;
        assert!(
            matches!(
                outcome,
                Ok(()) | Err(Error::Database(_) | Error::Unavailable(_) | Error::CommitUnknown(_))
            ),
            "{told}: {outcome:?}"
        );
    } else {
        drop(first);
    }
    let outcome = in_time(told, second).await;
    assert!(
        matches!(outcome, Ok(()) | Err(Error::Database(_) | Error::Unavailable(_) | Error::CommitUnknown(_))),
        "{told}: {outcome:?}"
    );
    let drained = match drained {
        Some(drained) => drained,
        None => in_time(told, drain).await,
    };
    assert!(drained.is_complete(), "{told}: {drained:?}");
    // Nobody holds the turn of the shard, and nobody waits for a pool that is closed.
    let late = in_time(told, Function::Fenced.call(&store, row)).await.unwrap_err();
    assert!(late.to_string().contains("closed"), "{told}: {late}");
    let status = pool.status();
    assert_eq!((status.open, status.in_use, status.waiting, status.closed), (0, 0, 0, true), "{told}");
}

#[tokio::test]
async fn served_dead_and_closed_at_the_same_time() {
    let cluster = alone().await;
    for order in ORDERS {
        for goes_on in [false, true] {
            for function in
                [Function::Run, Function::Fenced, Function::UpdateShard, Function::Read, Function::Write]
            {
                all_at_once(&cluster, function, order, goes_on).await;
            }
        }
    }
}

/// The pool closes while a call is at one of its awaits. Then the call is dropped, or goes on.
#[tokio::test]
async fn closed_at_each_await() {
    let cluster = alone().await;
    let creator = store_of(&cluster, 1).await;
    for function in [Function::Run, Function::Fenced, Function::UpdateShardAnnounced, Function::Write] {
        let mut polls = 0;
        loop {
            polls += 1;
            let told = &format!("{function:?}, closed after {polls} polls");
            let store = store_of(&cluster, 1).await;
            let (row, pool) = (&new_shard(&creator).await, store.pool().unwrap());
            function.prepare(&cluster);
            let mut call = Some(function.call(&store, row));
            let mut left = polls;
            let done = poll_fn(|context| {
                left -= 1;
                match call.as_mut().unwrap().as_mut().poll(context) {
                    Poll::Pending if left > 0 => Poll::Pending,
                    polled => Poll::Ready(polled.is_ready()),
                }
            });
            let done = in_time(told, done).await;
            let mut drain = Box::pin(pool.drain(PATIENCE));
            let drained = poll_fn(|context| Poll::Ready(drain.as_mut().poll(context))).await;
            if polls % 2 == 0 && !done {
                in_time(told, call.take().unwrap()).await.ok();
            }
            drop(call.take());
            cluster.heal_all();
            let drained = match drained {
                Poll::Ready(drained) => drained,
                Poll::Pending => in_time(told, drain).await,
            };
            assert!(drained.is_complete(), "{told}: {drained:?}");
            assert!(in_time(told, Function::Fenced.call(&store, row)).await.is_err(), "{told}");
            let found = selected(&creator, row.shard_id).await;
            assert!((row.range_id..=row.range_id + 1).contains(&found.range_id), "{told}");
            if done {
                break;
            }
        }
        assert!(polls > 1, "{function:?} waits for the server");
    }
}
