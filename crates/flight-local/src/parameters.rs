//! Converts Arrow batches to SQLite's values: parameters and ingested rows.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef, RecordBatch, make_array};
use arrow_cast::CastOptions;
use arrow_cast::display::FormatOptions;
use arrow_schema::DataType;
use rusqlite::Statement;
use rusqlite::types::{ToSqlOutput, ValueRef};

use crate::error::Failure;

/// The SQLite declaration for an Arrow type.
pub(crate) fn declaration(kind: &DataType) -> &'static str {
    match kind {
        DataType::Boolean => "BOOLEAN",
        kind if kind.is_integer() => "BIGINT",
        kind if kind.is_floating() => "DOUBLE",
        DataType::Decimal32(..)
        | DataType::Decimal64(..)
        | DataType::Decimal128(..)
        | DataType::Decimal256(..) => "DOUBLE",
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            "BLOB"
        }
        DataType::Date32 | DataType::Date64 => "DATE",
        DataType::Timestamp(..) => "TIMESTAMP",
        DataType::Dictionary(_, values) => declaration(values),
        _ => "TEXT",
    }
}

/// The columns of a batch, cast to the types that SQLite has.
#[derive(Debug)]
pub(crate) struct Rows {
    columns: Vec<ArrayRef>,
    pub(crate) len: usize,
}

/// Casts a column to the type that SQLite has for it.
fn cast(array: &ArrayRef) -> Result<ArrayRef, Failure> {
    let target = match declaration(array.data_type()) {
        "BOOLEAN" => DataType::Boolean,
        "BIGINT" => DataType::Int64,
        "DOUBLE" => DataType::Float64,
        "BLOB" => DataType::Binary,
        _ => DataType::Utf8,
    };
    // Strict: a number that is too large for SQLite is an error, not NULL. NULLs inside of a list are printed.
    let strict = CastOptions { safe: false, format_options: FormatOptions::new().with_null("null") };
    Ok(arrow_cast::cast_with_options(&by_offset(array)?, &target, &strict)?)
}

fn value(array: &ArrayRef, row: usize) -> ValueRef<'_> {
    match array.data_type() {
        _ if array.is_null(row) => ValueRef::Null,
        DataType::Boolean => ValueRef::Integer(array.as_boolean().value(row).into()),
        DataType::Int64 => ValueRef::Integer(array.as_primitive::<Int64Type>().value(row)),
        DataType::Float64 => ValueRef::Real(array.as_primitive::<Float64Type>().value(row)),
        DataType::Binary => ValueRef::Blob(array.as_binary::<i32>().value(row)),
        _ => ValueRef::Text(array.as_string::<i32>().value(row).as_bytes()),
    }
}

/// Replaces a named time zone by an offset: the instants are the same, and no time zone database is needed.
fn by_offset(array: &ArrayRef) -> Result<ArrayRef, Failure> {
    match array.data_type() {
        DataType::Timestamp(unit, Some(zone)) if !zone.starts_with(['+', '-']) => {
            let kind = DataType::Timestamp(*unit, Some("+00:00".into()));
            Ok(make_array(array.to_data().into_builder().data_type(kind).build()?))
        }
        _ => Ok(array.clone()),
    }
}

impl Rows {
    pub(crate) fn new(batch: &RecordBatch) -> Result<Self, Failure> {
        let columns = batch.columns().iter().map(cast).collect::<Result<_, _>>()?;
        Ok(Self { columns, len: batch.num_rows() })
    }

    /// Binds a row to a statement's parameters, in the order of `columns`.
    pub(crate) fn bind(
        &self,
        row: usize,
        columns: &[usize],
        statement: &mut Statement<'_>,
    ) -> Result<(), Failure> {
        for (place, column) in columns.iter().enumerate() {
            statement
                .raw_bind_parameter(place + 1, ToSqlOutput::Borrowed(value(&self.columns[*column], row)))?;
        }
        Ok(())
    }
}

/// Maps parameters to columns: by name if every parameter has one that the batch knows, otherwise by
/// position.
pub(crate) fn parameter_columns(
    statement: &Statement<'_>,
    batch: &RecordBatch,
) -> Result<Vec<usize>, Failure> {
    let wanted = statement.parameter_count();
    let schema = batch.schema();
    let named: Option<Vec<usize>> = (1..=wanted)
        .map(|index| {
            let name = statement.parameter_name(index)?.trim_start_matches([':', '@', '$']);
            schema.index_of(name).ok()
        })
        .collect();
    match named {
        Some(places) => Ok(places),
        None if batch.num_columns() == wanted => Ok((0..wanted).collect()),
        None => Err(Failure::Request(format!(
            "the statement has {wanted} parameters, and {} values were bound; give one column for each",
            batch.num_columns()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::Int32Type;
    use arrow_array::{
        Date32Array, DictionaryArray, Int8Array, ListArray, TimestampMicrosecondArray, UInt64Array,
    };
    use arrow_schema::{Field, Schema};
    use rusqlite::Connection;

    use super::*;

    fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
        RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true)))
            .unwrap()
    }

    #[test]
    fn parameters_go_by_name_or_else_by_position() {
        let connection = Connection::open_in_memory().unwrap();
        let values = batch(vec![
            ("a", Arc::new(Int8Array::from(vec![Some(1), None]))),
            ("b", Arc::new(DictionaryArray::<arrow_array::types::Int8Type>::from_iter(["x", "y"]))),
        ]);
        let ask = |sql: &str, row: usize| {
            let mut statement = connection.prepare(sql)?;
            let columns = parameter_columns(&statement, &values)?;
            Rows::new(&values)?.bind(row, &columns, &mut statement)?;
            let mut rows = statement.raw_query();
            let text = rows.next()?.map(|row| row.get::<_, String>(0)).transpose()?;
            Ok::<_, Failure>(text.unwrap_or_default())
        };
        assert_eq!(ask("SELECT quote(?1) || quote(?2)", 0).unwrap(), "1'x'");
        assert_eq!(ask("SELECT quote(:b) || quote(:a)", 1).unwrap(), "'y'NULL");
        let error = ask("SELECT quote(?)", 0).unwrap_err().to_string();
        assert!(error.contains("has 1 parameters, and 2 values"), "{error}");
    }

    #[test]
    fn dates_and_lists_become_text_and_numbers_too_large_an_error() {
        let dates = batch(vec![("d", Arc::new(Date32Array::from(vec![20_772])))]);
        let rows = Rows::new(&dates).unwrap();
        assert!(matches!(value(&rows.columns[0], 0), ValueRef::Text(b"2026-11-15")));
        let at = TimestampMicrosecondArray::from(vec![1_700_000_000_000_000]);
        for zone in ["UTC", "Europe/Berlin"] {
            let times = batch(vec![("at", Arc::new(at.clone().with_timezone(zone)))]);
            let rows = Rows::new(&times).unwrap();
            assert!(
                matches!(value(&rows.columns[0], 0), ValueRef::Text(text) if text.starts_with(b"2023-11-14T22:13:20"))
            );
        }
        let list = ListArray::from_iter_primitive::<Int32Type, _, _>([Some([Some(1), None]), None]);
        let rows = Rows::new(&batch(vec![("l", Arc::new(list))])).unwrap();
        assert!(matches!(value(&rows.columns[0], 0), ValueRef::Text(b"[1, null]")));
        assert!(matches!(value(&rows.columns[0], 1), ValueRef::Null));
        let large = batch(vec![("n", Arc::new(UInt64Array::from(vec![u64::MAX])))]);
        assert!(Rows::new(&large).is_err());
        let empty =
            RecordBatch::new_empty(Arc::new(Schema::new(vec![Field::new("n", DataType::Null, true)])));
        assert_eq!(Rows::new(&empty).unwrap().len, 0);
    }
}
