//! What a statement gives.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

/// All rows of a query, in memory. For results that may be large there is `query_stream`.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryResult {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

impl QueryResult {
    pub(crate) fn new(schema: SchemaRef, batches: Vec<RecordBatch>) -> Self {
        Self { schema, batches }
    }

    /// The columns, also of a result without rows.
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The rows, in batches as the server sent them.
    #[must_use]
    pub fn batches(&self) -> &[RecordBatch] {
        &self.batches
    }

    /// The rows, in batches as the server sent them.
    #[must_use]
    pub fn into_batches(self) -> Vec<RecordBatch> {
        self.batches
    }

    /// How many rows there are.
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

/// What a statement has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpdateResult {
    record_count: i64,
}

impl UpdateResult {
    pub(crate) fn new(record_count: i64) -> Self {
        Self { record_count }
    }

    /// How many rows; none if the server does not know. Some servers always say zero.
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
    fn rows_without_columns_are_counted_as_far_as_that_goes() {
        let schema = SchemaRef::new(Schema::empty());
        let endless = RecordBatchOptions::new().with_row_count(Some(usize::MAX));
        let batch = RecordBatch::try_new_with_options(schema.clone(), vec![], &endless).unwrap();
        assert_eq!(QueryResult::new(schema, vec![batch.clone(), batch]).row_count(), usize::MAX);
    }
}
