//! Two futures, and whichever is done first.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

/// Who won.
pub(crate) enum First<A, B> {
    Left(A),
    Right(B),
}

/// Runs both until one is done, and drops the other. `left` is polled first each time, and so wins a tie: the
/// order is fixed, where a `select!` would draw it at random.
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
