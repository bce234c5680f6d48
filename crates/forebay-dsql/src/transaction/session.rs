//! What a transaction needs of a connection.

use std::error::Error as StdError;
use std::future::Future;
use std::time::Duration;

use crate::error::{Error, ErrorKind};

/// A connection that can hold one transaction at a time.
///
/// From the first poll of [`begin`](Self::begin) until the server has answered a commit or a rollback, a connection is
/// *dirty*. If it is dropped so, because a future was, whoever gets it next must be protected: by whoever owns it
/// rolling back first, or by closing it.
pub trait Session: Send {
    /// Begins a transaction.
    ///
    /// # Cancel safety
    /// Dropped before it is done, it leaves the connection dirty.
    fn begin(&mut self) -> impl Future<Output = Result<(), Error>> + Send;

    /// Commits it. Must fail if the server answers that it rolled back, as it does for a transaction in which a
    /// statement had failed. The error is classified as one of a statement; what that means for a commit is the
    /// caller's to say.
    ///
    /// # Cancel safety
    /// Dropped before it is done, it leaves the connection dirty, and the outcome unknown.
    fn commit(&mut self) -> impl Future<Output = Result<(), Error>> + Send;

    /// Whether the last commit, which failed, may have reached the server. Only `false` if that is impossible: then
    /// nothing was committed, whatever else is wrong. Those who cannot tell say nothing, and it counts as sent.
    fn commit_was_sent(&self) -> bool {
        true
    }

    /// The kind of an error that a transaction's body came back with, for a connection that knows more than the error
    /// tells: a conflict that the body overlooked has failed the transaction; what the body committed by itself makes it
    /// [`CommitUnknown`](ErrorKind::CommitUnknown) what would otherwise be run again. Asked after the rollback that follows,
    /// whether that went well or not, and of a commit that was not sent.
    fn classify(&mut self, error: &(dyn StdError + 'static)) -> ErrorKind {
        ErrorKind::of(error)
    }

    /// Rolls it back.
    ///
    /// # Cancel safety
    /// Dropped before it is done, it leaves the connection dirty.
    fn rollback(&mut self) -> impl Future<Output = Result<(), Error>> + Send;
}

/// Where connections come from: a reservoir, a pool.
pub trait Sessions: Send + Sync {
    /// One of them, given back when it is dropped.
    type Session: Session;

    /// Takes one.
    ///
    /// # Cancel safety
    /// Dropping it gives back whatever it was about to get.
    fn session(&self) -> impl Future<Output = Result<Self::Session, Error>> + Send;

    /// How long [`session`](Self::session) waits for one at most. All waits of one `run` then last that long together, if it has
    /// no deadline. Those who do not know say nothing; a run then leaves each wait to them, and the first that fails is its last.
    fn patience(&self) -> Option<Duration> {
        None
    }

    /// Takes one, waiting for at most `wait`. Asked only of those who tell their [`patience`](Self::patience): others cannot
    /// keep to it, and are cut off.
    ///
    /// # Cancel safety
    /// As [`session`](Self::session).
    fn session_within(&self, _wait: Duration) -> impl Future<Output = Result<Self::Session, Error>> + Send {
        self.session()
    }
}
