//! The seam between the front, which knows the protocol and the rules of the service, and what runs statements.
//!
//! The front splits queries into statements, refuses what the service refuses, keeps the state of a transaction, decides
//! whether a commit succeeds, and counts. An engine only runs what is left.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;

use crate::clock::Moment;
use crate::error::SqlError;
use crate::statement::Statement;
use crate::wire::Format;
pub use crate::wire::backend::Rows;

/// The number of a type, as in PostgreSQL's catalog.
pub type Oid = u32;

/// One database.
pub trait Engine: Send + Sync + 'static {
    /// What serves one connection.
    type Session: Session;

    /// Begins to serve a connection of a role, if there is one that may connect. The session must cost next to nothing
    /// until it is used: thousands may be idle.
    fn session(&self, role: &str) -> impl Future<Output = Result<Self::Session, SqlError>> + Send;
}

/// One connection's view of the database. Dropped in a transaction, it rolls back.
pub trait Session: Send + 'static {
    /// Which parameters a statement takes and which columns it gives; `types` are those the client knows (0: not known).
    fn describe(
        &mut self,
        statement: &Statement,
        types: &[Oid],
    ) -> impl Future<Output = Result<Arc<Description>, SqlError>> + Send;

    /// Runs a statement, inside the transaction if one is open. The rows it gives go to `rows`. After an error, the front
    /// rolls back.
    fn execute(
        &mut self,
        call: Call<'_>,
        rows: &mut Rows,
    ) -> impl Future<Output = Result<Done, SqlError>> + Send;

    /// Goes by these settings from now on, and by the defaults of all others. Only those are told on which depends what
    /// statements mean or how values are written; an engine without such differences has nothing to do.
    fn configure(
        &mut self,
        settings: Vec<(&'static str, String)>,
    ) -> impl Future<Output = Result<(), SqlError>> + Send {
        drop(settings);
        async { Ok(()) }
    }

    /// Opens a transaction.
    fn begin(&mut self) -> impl Future<Output = Result<(), SqlError>> + Send;

    /// Makes it durable.
    fn commit(&mut self) -> impl Future<Output = Result<(), SqlError>> + Send;

    /// Undoes it.
    fn rollback(&mut self) -> impl Future<Output = Result<(), SqlError>> + Send;
}

/// What goes into a statement and what comes out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// The types of its parameters.
    pub parameters: Vec<Oid>,
    /// The columns of its rows; none if it gives no rows.
    pub columns: Option<Vec<Column>>,
    /// Whether it changes anything or locks rows: a commit after it can conflict.
    pub writes: bool,
}

/// A column of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type.
    pub oid: Oid,
    /// Its size in bytes; -1 if that varies.
    pub size: i16,
}

/// What came of a statement.
#[derive(Clone, Debug)]
pub struct Done {
    /// How many rows it changed.
    pub changed: u64,
    /// What went into it and came out.
    pub description: Arc<Description>,
}

/// What else belongs to the transaction of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Whatever the client will say until it ends it.
    Open,
    /// What is in the same query, or before the same Sync. Then it is committed.
    Query,
    /// Nothing.
    Alone,
}

/// A statement with all that is needed to run it.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The statement.
    pub statement: &'a Statement,
    /// As it was described; if it was not, it takes no parameters.
    pub description: Option<&'a Arc<Description>>,
    /// The values of its parameters.
    pub values: &'a [Option<Bytes>],
    /// Their formats, by the protocol's rule (see [`Format::of`]).
    pub formats: &'a [Format],
    /// The formats that the columns shall have, by the same rule.
    pub results: &'a [Format],
    /// What else its transaction may hold.
    pub extent: Extent,
    /// When it must have ended, by the emulator's clock; if it has not, it fails with [`SqlError::deadline_exceeded`].
    pub deadline: Moment,
}
