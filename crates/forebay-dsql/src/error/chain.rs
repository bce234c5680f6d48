//! An error and what is behind it, however it is wrapped.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;

use forebay::{CheckoutError, OpenError};

use crate::error::Error;

/// The error as a `T`, also if it is shared or boxed: these pass for the error itself and hide its type.
pub(crate) fn seen<'a, T: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a T> {
    error
        .downcast_ref::<T>()
        .or_else(|| error.downcast_ref::<Arc<T>>().map(|shared| &**shared))
        .or_else(|| error.downcast_ref::<Box<T>>().map(|boxed| &**boxed))
        .or_else(|| error.downcast_ref::<Arc<Box<T>>>().map(|shared| &***shared))
        .or_else(|| error.downcast_ref::<Box<Arc<T>>>().map(|boxed| &***boxed))
}

/// An error and its causes, outermost first.
pub(crate) fn causes<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&error| inside(error).or_else(|| error.source()))
}

/// Whether the operating system reported it. Errors of TLS have no number.
#[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
pub(crate) fn is_of_system(error: &(dyn StdError + 'static)) -> bool {
    let of_io = |cause| seen::<io::Error>(cause).is_some_and(|error| error.raw_os_error().is_some());
    causes(error).any(of_io)
}

/// The content of an error that has printed it, and so does not name it as its source.
fn inside<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a (dyn StdError + 'static)> {
    if let Some(shared) = seen::<Arc<dyn StdError + Send + Sync>>(error) {
        return Some(&**shared);
    }
    if let Some(shared) = seen::<Arc<dyn StdError + Send>>(error) {
        return Some(&**shared);
    }
    if let Some(shared) = seen::<Arc<dyn StdError>>(error) {
        return Some(&**shared);
    }
    if let Some(ours) = seen::<Error>(error) {
        return Some(ours.get_ref());
    }
    if let Some(open) = seen::<OpenError>(error) {
        return Some(open.get_ref());
    }
    if let Some(
        CheckoutError::Empty { last_open_error: Some(open), .. }
        | CheckoutError::Denied { last_open_error: open, .. },
    ) = seen(error)
    {
        return Some(&**open);
    }
    let inner = seen::<io::Error>(error)?.get_ref()?;
    Some(inner)
}
