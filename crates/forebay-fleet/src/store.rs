//! Calls to the table, each with a timeout and with metrics.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use forebay::rt::{self, Runtime};

use crate::item::Item;
use crate::metrics::Telemetry;
use crate::table::{Delete, Table, TableError, Update, Write};

/// The timeout of one call.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);

/// The table, as one process calls it.
#[derive(Clone)]
pub(crate) struct Store {
    table: Arc<dyn Table>,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) telemetry: Arc<Telemetry>,
}

impl Store {
    pub(crate) fn new(table: Arc<dyn Table>, runtime: Arc<dyn Runtime>, telemetry: Arc<Telemetry>) -> Self {
        Self { table, runtime, telemetry }
    }

    /// Cancel safe as the table is.
    pub(crate) async fn update(
        &self,
        operation: &'static str,
        update: &Update,
    ) -> Result<Option<Item>, TableError> {
        let outcome = self.call(operation, self.table.update(update)).await;
        let item = match &outcome {
            Ok(item) => item.as_ref(),
            Err(TableError::ConditionFailed(item)) => item.as_deref(),
            Err(_) => None,
        };
        self.count_write(&update.key, item, 1);
        outcome
    }

    /// Cancel safe.
    pub(crate) async fn get(&self, operation: &'static str, key: &str) -> Result<Option<Item>, TableError> {
        let outcome = self.call(operation, self.table.get(key)).await;
        let bytes = outcome.as_ref().ok().and_then(Option::as_ref).map_or(0, |item| item.size(key));
        self.telemetry.read_units.increment(read_units(bytes));
        outcome
    }

    /// Cancel safe as the table is.
    pub(crate) async fn delete(
        &self,
        operation: &'static str,
        delete: &Delete,
    ) -> Result<Option<Item>, TableError> {
        let outcome = self.call(operation, self.table.delete(delete)).await;
        self.count_write(&delete.key, outcome.as_ref().ok().and_then(Option::as_ref), 1);
        outcome
    }

    /// Cancel safe as the table is.
    pub(crate) async fn transact(
        &self,
        operation: &'static str,
        writes: &[Write],
        token: &str,
    ) -> Result<(), TableError> {
        let outcome = self.call(operation, self.table.transact(writes, token)).await;
        for write in writes {
            self.count_write(write.key(), None, 2);
        }
        outcome
    }

    async fn call<T>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T, TableError>>,
    ) -> Result<T, TableError> {
        let began = self.runtime.now();
        let outcome = bounded(&*self.runtime, call).await;
        let answered = outcome.as_ref().err().is_none_or(TableError::is_an_answer);
        self.telemetry.called(operation, self.runtime.now().since(began), answered);
        outcome
    }

    /// Counts write units by the size of the returned item, or one unit without an item: our items are small.
    fn count_write(&self, key: &str, item: Option<&Item>, times: u64) {
        let bytes = item.map_or(0, |item| item.size(key));
        self.telemetry.write_units.increment(times * write_units(bytes));
    }
}

/// A call with the timeout.
pub(crate) async fn bounded<T>(
    runtime: &dyn Runtime,
    call: impl Future<Output = Result<T, TableError>>,
) -> Result<T, TableError> {
    let late = || Err(TableError::Unknown(format!("no answer within {TIMEOUT:?}").into()));
    rt::within(runtime, TIMEOUT, call).await.unwrap_or_else(late)
}

/// Write units of an item with this many bytes.
pub(crate) fn write_units(bytes: usize) -> u64 {
    bytes.div_ceil(1024).max(1) as u64
}

/// Read units of a consistent read.
pub(crate) fn read_units(bytes: usize) -> u64 {
    bytes.div_ceil(4096).max(1) as u64
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Store")
    }
}
