//! What the contestants have in common: each lends a connection, and takes it back when the loan is dropped.

use std::fmt;
use std::ops::Deref;

/// The connection everyone lends. It does nothing, so that only the lending is measured.
pub type Payload = u64;

/// A pool in the race.
///
/// A task holds a clone of its own, as each of these crates recommends.
pub trait Pool: Clone + Send + Sync + Sized + 'static {
    /// What it is called in the tables.
    const NAME: &'static str;

    /// Why it did not lend.
    type Refusal: fmt::Debug + Send;

    /// A pool with so many connections, all open and idle. Called inside a tokio runtime.
    fn filled(connections: usize) -> impl Future<Output = anyhow::Result<Self>> + Send;
}

/// A pool that lends at once or not at all.
pub trait TryLend: Pool {
    /// A connection on loan.
    type Lent<'a>: Deref<Target = Payload>;

    /// Borrows a connection.
    fn try_lend(&self) -> Result<Self::Lent<'_>, Self::Refusal>;
}

/// A pool that lends, after a wait if need be.
pub trait Lend: Pool {
    /// A connection on loan.
    type Lent<'a>: Deref<Target = Payload> + Send;

    /// Borrows a connection.
    fn lend(&self) -> impl Future<Output = Result<Self::Lent<'_>, Self::Refusal>> + Send;
}

/// Turns a refusal, which no contestant has a reason for here, into the end of the run.
pub fn refused<P: Pool>(refusal: P::Refusal) -> anyhow::Error {
    anyhow::anyhow!("{} did not lend a connection: {refusal:?}", P::NAME)
}
