//! Results as JSON: one object on one line for each row.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::io::Write;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type, Float64Type};
use arrow_array::{Array, RecordBatch, RecordBatchOptions};
use arrow_json::writer::{
    Encoder, EncoderFactory, EncoderOptions, LineDelimited, NullableEncoder, Writer, WriterBuilder,
};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, SchemaRef};

use super::format::{ResultWriter, io_error};

pub(crate) struct Json<W: Write> {
    writer: Writer<W, LineDelimited>,
    schema: SchemaRef,
}

impl<W: Write> Json<W> {
    pub(crate) fn new(out: W, schema: &SchemaRef) -> Self {
        // Every row has every key.
        let builder = WriterBuilder::new().with_explicit_nulls(true).with_encoder_factory(Arc::new(Floats));
        Self { writer: builder.build(out), schema: distinct(schema) }
    }
}

impl<W: Write> ResultWriter for Json<W> {
    fn batch(&mut self, batch: &RecordBatch) -> anyhow::Result<()> {
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let columns = batch.columns().to_vec();
        let batch =
            RecordBatch::try_new_with_options(self.schema.clone(), columns, &options).map_err(io_error)?;
        self.writer.write(&batch).map_err(io_error)
    }

    fn end(&mut self) -> anyhow::Result<()> {
        self.writer.finish().map_err(io_error)
    }
}

/// The same columns with distinct names: of two equal keys, most readers see only the last.
fn distinct(schema: &SchemaRef) -> SchemaRef {
    let mut taken: BTreeSet<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
    let mut seen = BTreeSet::new();
    let mut rename = |field: &FieldRef| {
        let name = field.name();
        if seen.insert(name.clone()) {
            return Arc::clone(field);
        }
        let free = (2..).map(|n: u64| format!("{name}_{n}")).find(|name| taken.insert(name.clone()));
        Arc::new(Field::clone(field).with_name(free.unwrap_or_default()))
    };
    Arc::new(Schema::new(schema.fields().iter().map(&mut rename).collect::<Vec<_>>()))
}

/// JSON has no infinities, and null means NULL: they are strings.
#[derive(Debug)]
struct Floats;

impl EncoderFactory for Floats {
    fn make_default_encoder<'a>(
        &self,
        _: &'a FieldRef,
        array: &'a dyn Array,
        _: &'a EncoderOptions,
    ) -> Result<Option<NullableEncoder<'a>>, ArrowError> {
        let encoder: Box<dyn Encoder + 'a> = match array.data_type() {
            DataType::Float16 => {
                let values = array.as_primitive::<Float16Type>();
                Box::new(Number(move |row| values.value(row).to_f32()))
            }
            DataType::Float32 => {
                let values = array.as_primitive::<Float32Type>();
                Box::new(Number(move |row| values.value(row)))
            }
            DataType::Float64 => {
                let values = array.as_primitive::<Float64Type>();
                Box::new(Number(move |row| values.value(row)))
            }
            _ => return Ok(None),
        };
        Ok(Some(NullableEncoder::new(encoder, array.nulls().cloned())))
    }
}

/// The number in a row.
struct Number<F>(F);

impl<T, F> Encoder for Number<F>
where
    T: Copy + Into<f64> + Debug,
    F: Fn(usize) -> T,
{
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        let value = (self.0)(row);
        // Writing to a vector cannot fail.
        let (Ok(()) | Err(_)) = match value.into() {
            wide if wide.is_nan() => out.write_all(b"\"NaN\""),
            f64::INFINITY => out.write_all(b"\"Infinity\""),
            f64::NEG_INFINITY => out.write_all(b"\"-Infinity\""),
            // In its own type: a wider one would show digits that it does not have.
            _ => write!(out, "{value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{ArrayRef, Float32Array, Float64Array, Int64Array, ListArray};

    use proptest::prelude::*;

    use super::*;

    fn written(columns: Vec<(&str, ArrayRef)>) -> String {
        let fields: Vec<Field> = columns
            .iter()
            .map(|(name, column)| Field::new(*name, column.data_type().clone(), true))
            .collect();
        let columns = columns.into_iter().map(|(_, column)| column).collect();
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
        let mut out = Vec::new();
        let mut json = Json::new(&mut out, &batch.schema());
        json.batch(&batch).unwrap();
        json.end().unwrap();
        drop(json);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn infinities_and_nan_differ_from_null() {
        let doubles = vec![Some(f64::INFINITY), Some(f64::NEG_INFINITY), Some(f64::NAN), None, Some(1e300)];
        let doubles: ArrayRef = Arc::new(Float64Array::from(doubles));
        let expected =
            "{\"x\":\"Infinity\"}\n{\"x\":\"-Infinity\"}\n{\"x\":\"NaN\"}\n{\"x\":null}\n{\"x\":1e300}\n";
        assert_eq!(written(vec![("x", doubles)]), expected);
        let lists = vec![Some(vec![Some(f64::INFINITY), None, Some(-0.0)])];
        let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Float64Type, _, _>(lists));
        let singles: ArrayRef = Arc::new(Float32Array::from(vec![0.1]));
        let expected = "{\"list\":[\"Infinity\",null,-0.0],\"f\":0.1}\n";
        assert_eq!(written(vec![("list", lists), ("f", singles)]), expected);
    }

    #[test]
    fn equal_names_become_distinct() {
        let one = |n| Arc::new(Int64Array::from(vec![n])) as ArrayRef;
        let line = written(vec![("a", one(1)), ("a", one(2)), ("a_2", one(3)), ("a", one(4))]);
        assert_eq!(line, "{\"a\":1,\"a_3\":2,\"a_2\":3,\"a_4\":4}\n");
    }

    proptest! {
        /// Whatever the number, it is read back as it was.
        #[test]
        fn numbers_are_json(bits: u64) {
            let number = f64::from_bits(bits);
            prop_assume!(number.is_finite());
            let line = written(vec![("x", Arc::new(Float64Array::from(vec![number])))]);
            prop_assert!(serde_json::from_str::<serde_json::Value>(&line).is_ok(), "{line}");
            let text = line.trim_start_matches("{\"x\":").trim_end_matches("}\n");
            prop_assert_eq!(text.parse::<f64>().unwrap().to_bits(), bits, "{}", line);
        }
    }
}
