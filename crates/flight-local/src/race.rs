//! Waits for the first of two futures.

use std::pin::pin;

use futures_util::future::{Either, select};

/// Returns the output of `work`, or `None` if `end` is ready first.
pub(crate) async fn unless<A: Future>(work: A, end: impl Future<Output = ()>) -> Option<A::Output> {
    match select(pin!(work), pin!(end)).await {
        Either::Left((output, _)) => Some(output),
        Either::Right(_) => None,
    }
}
