//! `SELECT * FROM prebuilt(rows => N)`: one batch that is sent repeatedly, to measure transports and clients.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch};

use crate::error::Failure;
use crate::execution::Execution;
use crate::result_stream::{BatchSink, ResultSender, encode};

/// Two columns of eight bytes: one megabyte.
const BATCH: u64 = 65_536;
/// Clients accept 4 MiB in a message by default.
const LARGEST_BATCH: u64 = 200_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prebuilt {
    pub(crate) rows: u64,
    pub(crate) batch: u64,
}

impl Prebuilt {
    /// Parses `SELECT * FROM prebuilt(rows => N)` and `SELECT * FROM prebuilt(rows => N, batch => M)`.
    /// Everything else goes to SQLite.
    pub(crate) fn parse(sql: &str) -> Option<Self> {
        let text: String = sql.to_ascii_lowercase().split_whitespace().collect::<Vec<_>>().join(" ");
        let text = text.trim_end_matches([';', ' ']);
        let arguments =
            text.strip_prefix("select * from prebuilt")?.trim().strip_prefix('(')?.strip_suffix(')')?;
        let mut prebuilt = Self { rows: 0, batch: BATCH };
        for argument in arguments.split(',') {
            let (name, value) = argument.split_once("=>")?;
            let value = value.trim().replace('_', "").parse().ok()?;
            match name.trim() {
                "rows" => prebuilt.rows = value,
                "batch" => prebuilt.batch = value,
                _ => return None,
            }
        }
        ((1..=LARGEST_BATCH).contains(&prebuilt.batch)).then_some(prebuilt)
    }

    /// The rows of one of several endpoints.
    pub(crate) fn part(self, part: usize, parts: usize) -> Self {
        let (part, parts) = (part as u64, parts.max(1) as u64);
        let until = |part: u64| u64::try_from(u128::from(self.rows) * u128::from(part) / u128::from(parts));
        let rows = match (until(part), until(part + 1)) {
            (Ok(from), Ok(to)) => to - from,
            _ => 0,
        };
        Self { rows, ..self }
    }

    pub(crate) fn schema(self) -> arrow_schema::SchemaRef {
        build(0).schema()
    }

    pub(crate) fn stream(self, sender: &mut ResultSender, run: &Execution) -> Result<(), Failure> {
        let whole = build(self.batch.min(self.rows));
        sender.schema(&whole.schema())?;
        let message = encode(&whole)?;
        let mut left = self.rows;
        while left >= self.batch {
            left -= self.batch;
            run.steps(1);
            #[allow(clippy::cast_precision_loss, reason = "a fraction is enough")]
            run.report_progress(1.0 - left as f64 / self.rows as f64);
            sender.message(message.clone())?;
        }
        if left > 0 {
            sender.batch(build(left))?;
        }
        Ok(())
    }
}

fn build(rows: u64) -> RecordBatch {
    let rows = i64::try_from(rows).unwrap_or(0);
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
    #[allow(clippy::cast_precision_loss, reason = "a batch has few rows")]
    let values: ArrayRef = Arc::new(Float64Array::from_iter_values((0..rows).map(|id| id as f64 / 2.0)));
    // Two columns of equal length always make a batch.
    RecordBatch::try_from_iter([("id", ids), ("value", values)])
        .unwrap_or_else(|_| RecordBatch::new_empty(Arc::new(arrow_schema::Schema::empty())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_form_is_parsed() {
        let rows = |sql| Prebuilt::parse(sql).map(|prebuilt| (prebuilt.rows, prebuilt.batch));
        assert_eq!(rows("SELECT * FROM prebuilt(rows => 100000000)"), Some((100_000_000, BATCH)));
        assert_eq!(rows("select *\n from prebuilt (rows=>1_000, batch => 10);"), Some((1_000, 10)));
        for other in [
            "SELECT * FROM prebuilt",
            "SELECT * FROM prebuilt(rows => many)",
            "SELECT * FROM prebuilt(rows => 1, batch => 0)",
            "SELECT * FROM prebuilt(rows => 1, batch => 1000000)",
            "SELECT * FROM prebuilt(rows => 1) LIMIT 1",
            "SELECT 1",
        ] {
            assert_eq!(rows(other), None, "{other}");
        }
    }

    #[test]
    fn its_parts_make_the_whole() {
        let whole = Prebuilt { rows: 10, batch: 4 };
        let parts: Vec<u64> = (0..3).map(|part| whole.part(part, 3).rows).collect();
        assert_eq!(parts, [3, 3, 4]);
        assert_eq!(whole.part(0, 1), whole);
    }
}
