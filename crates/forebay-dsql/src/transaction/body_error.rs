//! The errors that the body of a transaction may return.

use std::error::Error as StdError;
use std::ops::Deref;

use crate::error::Error;

/// An error that the body of a transaction may return: any [`std::error::Error`] that an [`Error`] can be converted into, and
/// any type that dereferences to one, such as `anyhow::Error`, `eyre::Report`, `Box<dyn Error + Send + Sync>` and
/// `Box<dyn Error>`.
///
/// `By` only separates the implementations. The compiler infers it.
#[diagnostic::on_unimplemented(
    message = "a transaction cannot return the error `{Self}`",
    note = "it must implement `From<forebay_dsql::Error>`, be `'static`, and either implement `std::error::Error` or be \
            `anyhow::Error`, `Box<dyn Error>` or `Box<dyn Error + Send + Sync>`"
)]
pub trait BodyError<By>: From<Error> {
    /// The error, for a walk of its chain of causes.
    fn as_error(&self) -> &(dyn StdError + 'static);
}

/// It is an error itself.
#[derive(Debug)]
pub enum Itself {}

/// It dereferences to an error that is `Send` and `Sync`.
#[derive(Debug)]
pub enum Boxed {}

/// It dereferences to an error that need not be `Send`.
#[derive(Debug)]
pub enum BoxedLocal {}

impl<E: StdError + From<Error> + 'static> BodyError<Itself> for E {
    fn as_error(&self) -> &(dyn StdError + 'static) {
        self
    }
}

impl<E: Deref<Target = dyn StdError + Send + Sync> + From<Error>> BodyError<Boxed> for E {
    fn as_error(&self) -> &(dyn StdError + 'static) {
        &**self
    }
}

impl<E: Deref<Target = dyn StdError> + From<Error>> BodyError<BoxedLocal> for E {
    fn as_error(&self) -> &(dyn StdError + 'static) {
        &**self
    }
}
