//! A connection on which operations run, and a transaction on it.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use forebay_dsql::{Conflict, ErrorKind, Ids, Transaction};
use futures_util::{TryFutureExt as _, TryStreamExt};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Row, Statement};

use crate::bounded_value::BoundedValue;
use crate::error::{Condition, Error, Result};
use crate::source::Lent;

/// A value for a statement.
pub(crate) type Value<'a> = &'a (dyn ToSql + Sync);

/// A connection on which the operations of this crate run: of a transaction, which is a [`Tx`], or alone, and then each
/// statement is a transaction by itself.
pub struct Connection {
    lent: Held,
    ids: Ids,
}

enum Held {
    Alone(Arc<Lent>),
    InTransaction(Transaction<Lent>),
}

impl Connection {
    pub(crate) fn alone(lent: Arc<Lent>, ids: Ids) -> Self {
        Self { lent: Held::Alone(lent), ids }
    }

    fn client(&self) -> &Lent {
        match &self.lent {
            Held::Alone(lent) => lent,
            Held::InTransaction(transaction) => transaction,
        }
    }

    /// The ids of new rows.
    pub(crate) fn ids(&self) -> &Ids {
        &self.ids
    }

    /// The statement, prepared on this connection once and kept with it.
    pub(crate) async fn prepare(&self, sql: &str) -> Result<Statement> {
        self.judge(self.client().prepare_cached(sql).await.map_err(Error::from))
    }

    pub(crate) async fn query(&self, sql: &str, values: &[Value<'_>]) -> Result<Vec<Row>> {
        let statement = self.prepare(sql).await?;
        self.query_prepared(&statement, values).await
    }

    /// As [`query`](Self::query). The statement is sent at the first poll, so several such futures make a pipeline.
    pub(crate) async fn query_prepared(
        &self,
        statement: &Statement,
        values: &[Value<'_>],
    ) -> Result<Vec<Row>> {
        let rows = self.client().query_raw(statement, bounded(values)).and_then(TryStreamExt::try_collect);
        self.judge(rows.await.map_err(Error::from))
    }

    /// The only row, if there is one. For statements that name a whole key.
    pub(crate) async fn query_opt(&self, sql: &str, values: &[Value<'_>]) -> Result<Option<Row>> {
        Ok(self.query(sql, values).await?.into_iter().next())
    }

    pub(crate) async fn execute(&self, sql: &str, values: &[Value<'_>]) -> Result<u64> {
        let statement = self.prepare(sql).await?;
        self.judge(self.client().execute_raw(&statement, bounded(values)).await.map_err(Error::from))
    }

    /// Sends statements that need no values and no preparation, such as BEGIN.
    pub(crate) async fn batch(&self, sql: &str) -> Result<()> {
        self.judge(self.client().batch_execute(sql).await.map_err(Error::from))
    }

    /// Runs a conditional write: a statement that changes a row only if it is as expected. It is the generic compare-and-swap; the
    /// stores have typed ones. The statement is prepared once and kept as long as the connection, so its text must not vary.
    ///
    /// # Errors
    /// [`Error::ConditionFailed`] with `condition` if it changed no row.
    ///
    /// # Cancel safety
    /// None outside of a transaction: the write may have happened. In one, nothing is written before its COMMIT.
    pub async fn swap(
        &self,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
        condition: impl FnOnce() -> Condition + Send,
    ) -> Result<()> {
        match self.execute(sql, values).await? {
            0 => Err(condition().into()),
            _ => Ok(()),
        }
    }

    /// Statements that were prepared before a change of the schema may no longer fit: they are prepared again.
    fn judge<T>(&self, outcome: Result<T>) -> Result<T> {
        if let Err(error) = &outcome
            && ErrorKind::of(error) == ErrorKind::Conflict(Conflict::Schema)
        {
            self.client().clear_cached_statements();
        }
        outcome
    }
}

fn bounded<'a>(values: &[Value<'a>]) -> impl ExactSizeIterator<Item = BoundedValue<'a>> {
    values.iter().map(|value| BoundedValue(*value))
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connection").field(&**self.client()).finish()
    }
}

/// A connection with an open transaction. Locks need one; every other operation can run in one.
///
/// [`Persistence::run`](crate::Persistence::run) begins, commits and repeats it.
#[derive(Debug)]
pub struct Tx(Connection);

impl Tx {
    pub(crate) fn new(transaction: Transaction<Lent>, ids: Ids) -> Self {
        Self(Connection { lent: Held::InTransaction(transaction), ids })
    }
}

impl Deref for Tx {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.0
    }
}
