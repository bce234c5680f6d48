//! The interface between the protocol and what runs statements.
//!
//! The caller of an engine splits queries into statements, applies the rules of the service, tracks the state
//! of transactions, decides whether a commit succeeds, and counts. An engine only runs statements.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;

use crate::clock::Moment;
use crate::error::SqlError;
use crate::statement::Statement;
use crate::wire::Format;
pub use crate::wire::backend::Rows;

/// The OID of a type in PostgreSQL's catalog.
pub type Oid = u32;

/// A database.
pub trait Engine: Send + Sync + 'static {
    /// What serves one connection.
    type Session: Session;

    /// Opens a session for a role, if the role may connect. A session must cost next to nothing until it is
    /// used: thousands may be idle.
    fn session(&self, role: &str) -> impl Future<Output = Result<Self::Session, SqlError>> + Send;
}

/// One connection's view of the database. If dropped inside a transaction, it rolls back.
pub trait Session: Send + 'static {
    /// Describes the parameters and columns of a statement. `types` are the parameter types that the client
    /// declared; 0 is unknown.
    fn describe(
        &mut self,
        statement: &Statement,
        types: &[Oid],
    ) -> impl Future<Output = Result<Arc<Description>, SqlError>> + Send;

    /// Runs a statement, in the transaction if one is open, and writes its rows to `rows`. After an error,
    /// the caller rolls back.
    fn execute(
        &mut self,
        call: Call<'_>,
        rows: &mut Rows,
    ) -> impl Future<Output = Result<Done, SqlError>> + Send;

    /// The format of the data that a COPY FROM STDIN needs. The data comes with the call of
    /// [`execute`](Self::execute).
    fn copy_format(
        &mut self,
        statement: &Statement,
    ) -> impl Future<Output = Result<CopyFormat, SqlError>> + Send;

    /// Applies these settings and the defaults of all others. They are the settings that change the meaning
    /// of statements or the format of values. An engine without such differences has nothing to do.
    fn configure(
        &mut self,
        settings: Vec<(&'static str, String)>,
    ) -> impl Future<Output = Result<(), SqlError>> + Send {
        drop(settings);
        async { Ok(()) }
    }

    /// Begins a transaction. The caller refuses writes in a read-only one.
    fn begin(&mut self, read_only: bool) -> impl Future<Output = Result<(), SqlError>> + Send;

    /// Commits the transaction.
    fn commit(&mut self) -> impl Future<Output = Result<(), SqlError>> + Send;

    /// Rolls the transaction back.
    fn rollback(&mut self) -> impl Future<Output = Result<(), SqlError>> + Send;
}

/// The parameters and columns of a statement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// The types of the parameters.
    pub parameters: Vec<Oid>,
    /// The columns of the rows; none if the statement returns no rows.
    pub columns: Option<Vec<Column>>,
    /// Whether it writes or locks rows. Only then can the commit conflict.
    pub writes: bool,
}

/// A column of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type.
    pub oid: Oid,
    /// Its size in bytes; -1 if it varies.
    pub size: i16,
}

/// The format of the data of a COPY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyFormat {
    /// Text and CSV are text.
    pub format: Format,
    /// The number of columns.
    pub columns: u16,
}

/// The outcome of a statement.
#[derive(Clone, Debug)]
pub struct Done {
    /// The number of changed rows.
    pub changed: u64,
    /// Its parameters and columns.
    pub description: Arc<Description>,
}

/// What else is in the transaction of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Everything until the client ends the transaction.
    Open,
    /// The rest of the query, or everything up to the next Sync. Then the transaction commits.
    Query,
    /// Nothing else.
    Alone,
}

/// A statement and everything that is needed to run it.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The statement.
    pub statement: &'a Statement,
    /// Its description. Without one, it has no parameters.
    pub description: Option<&'a Arc<Description>>,
    /// The values of its parameters.
    pub values: &'a [Option<Bytes>],
    /// The formats of the values (see [`Format::of`]).
    pub formats: &'a [Format],
    /// The formats of the result columns (see [`Format::of`]).
    pub results: &'a [Format],
    /// The data of a COPY FROM STDIN.
    pub input: Option<&'a Bytes>,
    /// What else is in its transaction.
    pub extent: Extent,
    /// When it must end, by the emulator's clock. After that it fails with [`SqlError::deadline_exceeded`].
    pub deadline: Moment,
}
