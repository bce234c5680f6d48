//! A race of two futures, with a fixed order.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// The future that completed first.
pub(crate) enum First<A, B> {
    Left(A),
    Right(B),
}

/// Runs both futures until one completes, and drops the other. `left` is polled first and wins a tie.
/// `select!` would choose the order at random.
///
/// Cancel safe if both futures are.
pub(crate) async fn first<A, B>(
    left: impl Future<Output = A>,
    right: impl Future<Output = B>,
) -> First<A, B> {
    let (mut left, mut right) = (pin!(left), pin!(right));
    poll_fn(move |context| {
        if let Poll::Ready(output) = left.as_mut().poll(context) {
            return Poll::Ready(First::Left(output));
        }
        right.as_mut().poll(context).map(First::Right)
    })
    .await
}
