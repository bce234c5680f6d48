//! The statements that were prepared on a connection.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio_postgres::{Client, Statement};

use crate::error::Error;

/// Prepared statements of one connection, by their text.
#[derive(Default)]
pub(super) struct StatementCache(Mutex<BTreeMap<String, Statement>>);

impl StatementCache {
    pub(super) async fn get_or_prepare(&self, client: &Client, sql: &str) -> Result<Statement, Error> {
        if let Some(statement) = self.0.lock().get(sql) {
            return Ok(statement.clone());
        }
        let statement = client.prepare(sql).await?;
        self.0.lock().insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    pub(super) fn clear(&self) {
        // Dropped outside of the lock: each sends a message.
        let forgotten = std::mem::take(&mut *self.0.lock());
        drop(forgotten);
    }
}
