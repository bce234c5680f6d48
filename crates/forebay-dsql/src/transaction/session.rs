//! What a transaction needs of a connection.

use std::error::Error as StdError;
use std::future::Future;
use std::time::Duration;

use forebay::Instant;

use crate::error::{Error, ErrorKind};

/// A connection that can hold one transaction at a time.
///
/// From the first poll of [`begin`](Self::begin) until the server has answered a commit or a rollback, a connection is
/// *dirty*. A pool that gets a dirty connection back must roll back or close it before anybody else uses it.
pub trait Session: Send {
    /// Begins a transaction.
    ///
    /// # Cancel safety
    /// If the future is dropped, the connection is dirty.
    fn begin(&mut self) -> impl Future<Output = Result<(), Error>> + Send;

    /// Commits it. Must fail if the server answers that it rolled back, as it does for a transaction in which a
    /// statement had failed. The error is classified like one of a statement; the caller applies
    /// [`at_commit`](ErrorKind::at_commit).
    ///
    /// # Cancel safety
    /// If the future is dropped, the connection is dirty and the outcome unknown.
    fn commit(&mut self) -> impl Future<Output = Result<(), Error>> + Send;

    /// Whether the last commit, which failed, may have reached the server. Only `false` if that is impossible: then
    /// nothing was committed, whatever else is wrong. By default every commit counts as sent.
    fn commit_was_sent(&self) -> bool {
        true
    }

    /// The kind of an error that a transaction's body returned. A connection may know more than the error says: that an
    /// earlier conflict, which the body ignored, has failed the transaction; or that the body has committed something, so that
    /// the transaction is [`CommitUnknown`](ErrorKind::CommitUnknown) and must not be run again. Called after the rollback,
    /// whether it succeeded or not, and for a commit that was not sent.
    fn classify(&mut self, error: &(dyn StdError + 'static)) -> ErrorKind {
        ErrorKind::of(error)
    }

    /// From now on requests of this connection are given up at this time; without one, when its pool says so. A transaction that ends
    /// with its caller's deadline needs it only for a connection that outlives that, as one of a pool does. By default nothing is
    /// done.
    fn set_deadline(&mut self, at: Option<Instant>) {
        let _ = at;
    }

    /// Rolls it back.
    ///
    /// # Cancel safety
    /// If the future is dropped, the connection is dirty.
    fn rollback(&mut self) -> impl Future<Output = Result<(), Error>> + Send;
}

/// Where connections come from, such as a pool.
pub trait Sessions: Send + Sync {
    /// One of them, given back when it is dropped.
    type Session: Session;

    /// Takes a connection.
    ///
    /// # Cancel safety
    /// If the future is dropped, the connection it was about to get goes back.
    fn session(&self) -> impl Future<Output = Result<Self::Session, Error>> + Send;

    /// How long [`session`](Self::session) waits at most, if that is known. All waits of one `run` without a deadline then last
    /// that long together. If it is not known, the first wait that fails ends the run.
    fn patience(&self) -> Option<Duration> {
        None
    }

    /// How long a whole transaction may take, if its [`RetryPolicy`](crate::RetryPolicy) does not say. Without it, there is no limit.
    fn deadline(&self) -> Option<Duration> {
        None
    }

    /// Takes a connection, waiting for at most `wait`. Called only where [`patience`](Self::patience) is known.
    ///
    /// # Cancel safety
    /// As [`session`](Self::session).
    fn session_within(&self, _wait: Duration) -> impl Future<Output = Result<Self::Session, Error>> + Send {
        self.session()
    }
}
