//! The results of statements.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

/// All rows of a query, in memory. Use `query_stream` for large results.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryResult {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

impl QueryResult {
    pub(crate) fn new(schema: SchemaRef, batches: Vec<RecordBatch>) -> Self {
        Self { schema, batches }
    }

    /// The columns. A result without rows has them too.
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The rows, in the batches that the server sent.
    #[must_use]
    pub fn batches(&self) -> &[RecordBatch] {
        &self.batches
    }

    /// The rows, in the batches that the server sent.
    #[must_use]
    pub fn into_batches(self) -> Vec<RecordBatch> {
        self.batches
    }

    /// The number of rows.
    #[must_use]
    pub fn row_count(&self) -> usize {
        // A batch without columns may claim any number of rows.
        self.batches.iter().fold(0, |rows, batch| rows.saturating_add(batch.num_rows()))
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.row_count() == 0
    }
}

impl IntoIterator for QueryResult {
    type Item = RecordBatch;
    type IntoIter = std::vec::IntoIter<RecordBatch>;

    fn into_iter(self) -> Self::IntoIter {
        self.batches.into_iter()
    }
}

/// The result of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpdateResult {
    record_count: i64,
}

impl UpdateResult {
    pub(crate) fn new(record_count: i64) -> Self {
        Self { record_count }
    }

    /// The number of changed rows. None if the server does not know it. Some servers always say zero.
    #[must_use]
    pub fn rows_affected(&self) -> Option<u64> {
        u64::try_from(self.record_count).ok()
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::RecordBatchOptions;
    use arrow_schema::Schema;

    use super::*;

    #[test]
    fn the_number_of_rows_does_not_overflow() {
        let schema = SchemaRef::new(Schema::empty());
        let endless = RecordBatchOptions::new().with_row_count(Some(usize::MAX));
        let batch = RecordBatch::try_new_with_options(schema.clone(), vec![], &endless).unwrap();
        assert_eq!(QueryResult::new(schema, vec![batch.clone(), batch]).row_count(), usize::MAX);
    }
}
