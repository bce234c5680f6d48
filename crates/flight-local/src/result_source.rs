use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use crate::execute::BoundStatement;
use crate::prebuilt::Prebuilt;

/// What a ticket returns when it is redeemed.
#[derive(Clone, Debug)]
pub(crate) enum ResultSource {
    /// A statement that has not run yet, and the number of its prepared statement, if any.
    Statement(BoundStatement, Option<u64>),
    /// A prebuilt batch.
    Prebuilt(Prebuilt),
    /// A part of a result that exists already.
    Batches(SchemaRef, Vec<RecordBatch>),
}

impl ResultSource {
    pub(crate) fn of(text: &str) -> Self {
        match Prebuilt::parse(text) {
            Some(prebuilt) => Self::Prebuilt(prebuilt),
            None => Self::Statement(BoundStatement::plain(text), None),
        }
    }
}

pub(crate) fn spread(schema: &SchemaRef, batches: &[RecordBatch], parts: usize) -> Vec<ResultSource> {
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    (0..parts)
        .map(|part| {
            let (from, to) = (rows * part / parts, rows * (part + 1) / parts);
            let mut kept = Vec::new();
            let mut start = 0;
            for batch in batches {
                let end = start + batch.num_rows();
                let (first, last) = (from.max(start), to.min(end));
                if first < last {
                    kept.push(batch.slice(first - start, last - first));
                }
                start = end;
            }
            ResultSource::Batches(schema.clone(), kept)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::Int64Array;
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;

    use super::*;

    #[test]
    fn the_parts_of_a_result_are_its_rows_in_order() {
        let batch = |values: Vec<i64>| {
            RecordBatch::try_from_iter([("n", Arc::new(Int64Array::from(values)) as _)]).unwrap()
        };
        let batches = [batch(vec![0, 1, 2]), batch(vec![3]), batch(vec![4, 5, 6])];
        let values = |source: &ResultSource| match source {
            ResultSource::Batches(_, batches) => batches
                .iter()
                .flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec())
                .collect(),
            _ => Vec::new(),
        };
        let parts: Vec<Vec<i64>> = spread(&batches[0].schema(), &batches, 3).iter().map(values).collect();
        assert_eq!(parts, [vec![0, 1], vec![2, 3], vec![4, 5, 6]]);
        assert_eq!(spread(&batches[0].schema(), &[], 2).len(), 2);
    }
}
