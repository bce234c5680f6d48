//! Builds Arrow batches from SQLite's rows.

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, BooleanBuilder, Float64Builder, Int64Builder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_cast::CastOptions;
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use rusqlite::types::ValueRef;
use rusqlite::{Row, Statement};

use crate::error::Failure;

/// A batch is finished at this size. It fits into the 4 MiB that clients accept by default.
const BYTES: usize = 1 << 20;

/// The Arrow type for a column declaration. `None` leaves it to the first value.
pub(crate) fn declared(declaration: &str) -> Option<DataType> {
    let name = declaration.to_ascii_uppercase();
    let has = |part: &str| name.contains(part);
    // The order is SQLite's: the first match decides. Dates are an extension; SQLite would treat them as
    // numbers.
    if has("BOOL") {
        Some(DataType::Boolean)
    } else if has("TIMESTAMP") || has("DATETIME") {
        Some(DataType::Timestamp(TimeUnit::Microsecond, None))
    } else if has("DATE") {
        Some(DataType::Date32)
    } else if has("INT") {
        Some(DataType::Int64)
    } else if has("CHAR") || has("CLOB") || has("TEXT") {
        Some(DataType::Utf8)
    } else if has("BLOB") || has("BINARY") {
        Some(DataType::Binary)
    } else if has("REAL") || has("FLOA") || has("DOUB") || has("NUM") || has("DEC") {
        Some(DataType::Float64)
    } else {
        None
    }
}

/// The schema of a result, if all column types are declared.
pub(crate) fn known_schema(statement: &Statement<'_>) -> Option<Schema> {
    let columns = statement.columns();
    let fields: Option<Vec<Field>> = columns
        .iter()
        .map(|column| column.decl_type().and_then(declared).map(|kind| Field::new(column.name(), kind, true)))
        .collect();
    fields.filter(|fields| !fields.is_empty()).map(Schema::new)
}

/// A batch that grows row by row.
#[derive(Debug)]
pub(crate) struct BatchBuilder {
    columns: Vec<Column>,
    pub(crate) rows: usize,
    bytes: usize,
    schema: Option<SchemaRef>,
}

#[derive(Debug)]
struct Column {
    name: String,
    /// Its Arrow type, once known.
    kind: Option<DataType>,
    values: Values,
}

#[derive(Debug)]
enum Values {
    /// This many NULLs, and no value that determines the type.
    Undecided(usize),
    Boolean(BooleanBuilder),
    Integer(Int64Builder),
    Real(Float64Builder),
    Text(StringBuilder),
    Blob(BinaryBuilder),
}

impl Values {
    /// The builder for a type. Dates and times are text until the batch is finished.
    fn of(kind: &DataType) -> Self {
        match kind {
            DataType::Boolean => Self::Boolean(BooleanBuilder::new()),
            DataType::Int64 => Self::Integer(Int64Builder::new()),
            DataType::Float64 => Self::Real(Float64Builder::new()),
            DataType::Binary => Self::Blob(BinaryBuilder::new()),
            _ => Self::Text(StringBuilder::new()),
        }
    }

    fn append_null(&mut self) {
        match self {
            Self::Undecided(nulls) => *nulls += 1,
            Self::Boolean(values) => values.append_null(),
            Self::Integer(values) => values.append_null(),
            Self::Real(values) => values.append_null(),
            Self::Text(values) => values.append_null(),
            Self::Blob(values) => values.append_null(),
        }
    }

    /// Returns false if the column cannot hold the value.
    fn append(&mut self, value: ValueRef<'_>) -> bool {
        match (self, value) {
            (values, ValueRef::Null) => values.append_null(),
            (Self::Boolean(values), ValueRef::Integer(value)) => values.append_value(value != 0),
            (Self::Integer(values), ValueRef::Integer(value)) => values.append_value(value),
            #[allow(clippy::cast_precision_loss, reason = "a number in a column of reals is a real")]
            (Self::Real(values), ValueRef::Integer(value)) => values.append_value(value as f64),
            (Self::Real(values), ValueRef::Real(value)) => values.append_value(value),
            (Self::Text(values), ValueRef::Integer(value)) => values.append_value(value.to_string()),
            (Self::Text(values), ValueRef::Real(value)) => values.append_value(value.to_string()),
            (Self::Text(values), ValueRef::Text(value)) => match str::from_utf8(value) {
                Ok(value) => values.append_value(value),
                Err(_) => return false,
            },
            (Self::Blob(values), ValueRef::Text(value) | ValueRef::Blob(value)) => values.append_value(value),
            _ => return false,
        }
        true
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Undecided(nulls) => {
                let mut values = StringBuilder::new();
                values.append_nulls(*nulls);
                Arc::new(values.finish())
            }
            Self::Boolean(values) => Arc::new(values.finish()),
            Self::Integer(values) => Arc::new(values.finish()),
            Self::Real(values) => Arc::new(values.finish()),
            Self::Text(values) => Arc::new(values.finish()),
            Self::Blob(values) => Arc::new(values.finish()),
        }
    }
}

impl Column {
    fn append(&mut self, value: ValueRef<'_>) -> Result<(), Failure> {
        if let (Values::Undecided(nulls), Some(kind)) = (&self.values, kind_of(value)) {
            let nulls = *nulls;
            self.values = Values::of(&kind);
            self.kind = Some(kind);
            (0..nulls).for_each(|_| self.values.append_null());
        }
        if self.values.append(value) {
            return Ok(());
        }
        let kind = self.kind.as_ref().map_or("text".to_owned(), ToString::to_string);
        Err(Failure::Value(format!(
            "column {:?} is {kind} by its declaration or its first value, and then holds {}; \
             cast it in the statement: CAST({} AS TEXT)",
            self.name,
            value.data_type(),
            self.name,
        )))
    }

    fn finish(&mut self) -> Result<ArrayRef, Failure> {
        let array = self.values.finish();
        match &self.kind {
            Some(kind) if kind != array.data_type() => {
                let strict = CastOptions { safe: false, ..CastOptions::default() };
                arrow_cast::cast_with_options(&array, kind, &strict).map_err(|error| {
                    Failure::Value(format!(
                        "column {:?}: {error}; SQLite keeps dates and times as text like \
                         2026-11-15 20:15:00",
                        self.name
                    ))
                })
            }
            _ => Ok(array),
        }
    }
}

/// The column type that a value determines.
fn kind_of(value: ValueRef<'_>) -> Option<DataType> {
    match value {
        ValueRef::Null => None,
        ValueRef::Integer(_) => Some(DataType::Int64),
        ValueRef::Real(_) => Some(DataType::Float64),
        ValueRef::Text(_) => Some(DataType::Utf8),
        ValueRef::Blob(_) => Some(DataType::Binary),
    }
}

impl BatchBuilder {
    pub(crate) fn new(statement: &Statement<'_>) -> Self {
        let column = |column: &rusqlite::Column<'_>| {
            let kind = column.decl_type().and_then(declared);
            let values = kind.as_ref().map_or(Values::Undecided(0), Values::of);
            Column { name: column.name().to_owned(), kind, values }
        };
        Self { columns: statement.columns().iter().map(column).collect(), rows: 0, bytes: 0, schema: None }
    }

    pub(crate) fn append(&mut self, row: &Row<'_>) -> Result<(), Failure> {
        for (index, column) in self.columns.iter_mut().enumerate() {
            let value = row.get_ref(index)?;
            self.bytes += match value {
                ValueRef::Text(value) | ValueRef::Blob(value) => value.len() + 4,
                _ => 8,
            };
            column.append(value)?;
        }
        self.rows += 1;
        Ok(())
    }

    pub(crate) fn is_full(&self, rows: usize) -> bool {
        self.rows >= rows || self.bytes >= BYTES
    }

    pub(crate) fn is_decided(&self) -> bool {
        self.columns.iter().all(|column| column.kind.is_some())
    }

    /// The schema. It is final: columns without a type become text.
    pub(crate) fn schema(&mut self) -> SchemaRef {
        let columns = &mut self.columns;
        let make = || {
            let field = |column: &mut Column| {
                if let Values::Undecided(nulls) = &column.values {
                    let nulls = *nulls;
                    column.values = Values::of(&DataType::Utf8);
                    (0..nulls).for_each(|_| column.values.append_null());
                }
                let kind = column.kind.get_or_insert(DataType::Utf8).clone();
                Field::new(&column.name, kind, true)
            };
            Arc::new(Schema::new(columns.iter_mut().map(field).collect::<Vec<_>>()))
        };
        self.schema.get_or_insert_with(make).clone()
    }

    /// Finishes the batch; the next row begins another.
    pub(crate) fn finish(&mut self) -> Result<RecordBatch, Failure> {
        let schema = self.schema();
        let arrays = self.columns.iter_mut().map(Column::finish).collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        (self.rows, self.bytes) = (0, 0);
        Ok(RecordBatch::try_new_with_options(schema, arrays, &options)?)
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Date32Type, Float64Type, Int64Type};
    use rusqlite::Connection;

    use super::*;

    fn read(sql: &str) -> Result<RecordBatch, Failure> {
        let connection = Connection::open_in_memory().unwrap();
        connection
            .execute_batch(
                "CREATE TABLE t (i BIGINT, b BOOLEAN, d DATE, at TIMESTAMP, x DOUBLE, s VARCHAR(9), raw BLOB, any);
                 INSERT INTO t VALUES (1, 1, '2026-11-15', '2026-11-15 20:15:00', 1, 'a', x'00ff', 2.5), (NULL, 0, \
                 NULL, NULL, 2.5, NULL, NULL, NULL)",
            )
            .unwrap();
        let mut statement = connection.prepare(sql).unwrap();
        let mut builder = BatchBuilder::new(&statement);
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            builder.append(row)?;
        }
        builder.finish()
    }

    #[test]
    fn a_declared_column_has_the_type_of_its_declaration() {
        let batch = read("SELECT * FROM t").unwrap();
        let kinds: Vec<DataType> =
            batch.schema().fields().iter().map(|field| field.data_type().clone()).collect();
        let at = DataType::Timestamp(TimeUnit::Microsecond, None);
        assert_eq!(
            kinds,
            [
                DataType::Int64,
                DataType::Boolean,
                DataType::Date32,
                at,
                DataType::Float64,
                DataType::Utf8,
                DataType::Binary,
                DataType::Float64
            ]
        );
        assert_eq!(batch.num_rows(), 2);
        assert_eq!(batch.column(2).as_primitive::<Date32Type>().value(0), 20_772);
        assert!((batch.column(4).as_primitive::<Float64Type>().value(0) - 1.0).abs() < f64::EPSILON);
    }

    #[test]
    fn any_other_column_has_the_type_of_its_first_value() {
        let batch =
            read("SELECT NULL AS n, 1 + 1 AS i, x'00' AS b UNION ALL SELECT 2.5, NULL, NULL").unwrap();
        let schema = batch.schema();
        assert_eq!(schema.field(0).data_type(), &DataType::Float64);
        assert!(batch.column(0).is_null(0));
        assert_eq!(batch.column(1).as_primitive::<Int64Type>().value(0), 2);
        let nothing = read("SELECT NULL AS n").unwrap();
        assert_eq!(nothing.schema().field(0).data_type(), &DataType::Utf8);
        assert_eq!(nothing.num_rows(), 1);
    }

    #[test]
    fn a_value_of_another_type_is_an_error_with_a_remedy() {
        let error = read("SELECT 1 AS n UNION ALL SELECT 'one'").unwrap_err().to_string();
        assert!(error.contains("\"n\" is Int64") && error.contains("CAST"), "{error}");
    }

    #[test]
    fn an_empty_result_has_a_schema() {
        let batch = read("SELECT i, i + 1 AS j FROM t WHERE false").unwrap();
        assert_eq!(batch.num_rows(), 0);
        assert_eq!(batch.schema().field(0).data_type(), &DataType::Int64);
        assert_eq!(batch.schema().field(1).data_type(), &DataType::Utf8);
    }
}
