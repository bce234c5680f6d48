//! Where connections come from: a pool of `forebay-dsql`, or a source of the caller's own.

use std::fmt;
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::time::Duration;

use forebay_dsql::{
    Dsql, Error, ErrorKind, Instant, PooledConnection, Postgres, PostgresConnection, Session, Sessions,
};

/// A connection of a [`ConnectionSource`]. It goes back when this is dropped. One that is not
/// [`Clean`](forebay_dsql::ConnectionState::Clean) by then must not be used again before it is.
pub type SourceConnection = Box<dyn DerefMut<Target = PostgresConnection> + Send + Sync>;

/// A source of connections that is not a pool of `forebay-dsql`: another pool, or a fixed set.
pub trait ConnectionSource: Send + Sync + 'static {
    /// Takes a connection, or waits for one. An error ends the operation that needs it, unless its kind is one that is tried again, by the
    /// retry policy: a [`Conflict`](ErrorKind::Conflict), [`Unavailable`](ErrorKind::Unavailable) or
    /// [`Disconnected`](ErrorKind::Disconnected), and after a first retry also [`NoConnection`](ErrorKind::NoConnection).
    ///
    /// # Cancel safety
    /// If the future is dropped, the connection it was about to get goes back.
    fn acquire(&self) -> Pin<Box<dyn Future<Output = Result<SourceConnection, Error>> + Send + '_>>;
}

#[allow(clippy::large_enum_variant, reason = "there is one for each process")]
pub(crate) enum Source {
    Pool(Dsql),
    Other(Box<dyn ConnectionSource>),
}

/// A connection lent by either.
pub(crate) enum Lent {
    Pooled(PooledConnection<'static, Postgres>),
    Other(SourceConnection),
}

impl Sessions for Source {
    type Session = Lent;

    async fn session(&self) -> Result<Lent, Error> {
        match self {
            Self::Pool(pool) => pool.session().await.map(Lent::Pooled),
            Self::Other(source) => source.acquire().await.map(Lent::Other),
        }
    }

    fn patience(&self) -> Option<Duration> {
        match self {
            Self::Pool(pool) => pool.patience(),
            Self::Other(_) => None,
        }
    }

    fn deadline(&self) -> Option<Duration> {
        match self {
            Self::Pool(pool) => pool.deadline(),
            Self::Other(_) => None,
        }
    }

    async fn session_within(&self, wait: Duration) -> Result<Lent, Error> {
        match self {
            Self::Pool(pool) => pool.session_within(wait).await.map(Lent::Pooled),
            Self::Other(source) => source.acquire().await.map(Lent::Other),
        }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pool(pool) => pool.fmt(f),
            Self::Other(_) => f.write_str("a source of its own"),
        }
    }
}

impl Deref for Lent {
    type Target = PostgresConnection;

    fn deref(&self) -> &PostgresConnection {
        match self {
            Self::Pooled(lent) => lent,
            Self::Other(lent) => lent,
        }
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut PostgresConnection {
        match self {
            Self::Pooled(lent) => lent,
            Self::Other(lent) => lent,
        }
    }
}

/// It holds a transaction as its connection does.
impl Session for Lent {
    async fn begin(&mut self) -> Result<(), Error> {
        PostgresConnection::begin(self).await
    }

    async fn commit(&mut self) -> Result<(), Error> {
        PostgresConnection::commit(self).await
    }

    fn commit_was_sent(&self) -> bool {
        PostgresConnection::commit_was_sent(self)
    }

    fn classify(&mut self, error: &(dyn std::error::Error + 'static)) -> ErrorKind {
        PostgresConnection::classify(self, error)
    }

    fn set_deadline(&mut self, at: Option<Instant>) {
        PostgresConnection::set_deadline(self, at);
    }

    async fn rollback(&mut self) -> Result<(), Error> {
        PostgresConnection::rollback(self).await
    }
}
