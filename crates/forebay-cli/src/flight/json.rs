//! Results as JSON: one object on one line for each row.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::io::Write;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type, Float64Type};
use arrow_array::{Array, MapArray, RecordBatch, RecordBatchOptions, UnionArray};
use arrow_json::writer::{
    Encoder, EncoderFactory, EncoderOptions, LineDelimited, NullableEncoder, Writer, WriterBuilder,
    make_encoder,
};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, SchemaRef, UnionFields};
use parking_lot::Mutex;

use super::format::{ResultWriter, text_error};
use super::values::Values;

pub(crate) struct Json<W: Write> {
    writer: Writer<W, LineDelimited>,
    schema: SchemaRef,
    failure: Failure,
}

/// Why a value could not be written. An encoder cannot return an error, and must not write it as data.
type Failure = Arc<Mutex<Option<ArrowError>>>;

impl<W: Write> Json<W> {
    pub(crate) fn new(out: W, schema: &SchemaRef) -> Self {
        // Every row has every key.
        let failure = Failure::default();
        let encoders = Arc::new(Encoders { failure: Arc::clone(&failure) });
        let builder = WriterBuilder::new().with_explicit_nulls(true).with_encoder_factory(encoders);
        Self { writer: builder.build(out), schema: distinct(schema), failure }
    }
}

impl<W: Write> ResultWriter for Json<W> {
    fn batch(&mut self, batch: &RecordBatch) -> anyhow::Result<()> {
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let columns = batch.columns().to_vec();
        let batch =
            RecordBatch::try_new_with_options(self.schema.clone(), columns, &options).map_err(text_error)?;
        self.writer.write(&batch).map_err(text_error)?;
        match self.failure.lock().take() {
            Some(error) => Err(text_error(error)),
            None => Ok(()),
        }
    }

    fn end(&mut self) -> anyhow::Result<()> {
        self.writer.finish().map_err(text_error)
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

/// Encoders for what Arrow's own cannot write, or would write with a loss.
#[derive(Debug)]
struct Encoders {
    failure: Failure,
}

impl EncoderFactory for Encoders {
    fn make_default_encoder<'a>(
        &self,
        field: &'a FieldRef,
        array: &'a dyn Array,
        options: &'a EncoderOptions,
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
            kind if kind.is_temporal() => {
                Box::new(Text { values: Values::new(array)?, failure: Arc::clone(&self.failure) })
            }
            DataType::Map(..) => Box::new(Map::new(field, array.as_map(), options)?),
            DataType::Union(fields, _) => {
                let union = Union::new(field, fields, array.as_union(), options)?;
                return Ok(Some(NullableEncoder::new(Box::new(union), array.logical_nulls())));
            }
            _ => return Ok(None),
        };
        Ok(Some(NullableEncoder::new(encoder, array.nulls().cloned())))
    }
}

/// A value as a string.
struct Text<'a> {
    values: Values<'a>,
    failure: Failure,
}

impl Encoder for Text<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        match self.values.text(row) {
            Ok(text) => string(&text.unwrap_or_default(), out),
            Err(error) => *self.failure.lock() = Some(error),
        }
    }
}

fn string(text: &str, out: &mut Vec<u8>) {
    // Writing a string to a vector cannot fail.
    let (Ok(()) | Err(_)) = serde_json::to_writer(out, text);
}

/// An object with the map's keys. JSON has no keys but strings.
struct Map<'a> {
    map: &'a MapArray,
    /// The keys from the first that belongs to a row, in JSON.
    keys: Vec<Vec<u8>>,
    values: NullableEncoder<'a>,
}

impl<'a> Map<'a> {
    fn new(field: &'a FieldRef, map: &'a MapArray, options: &'a EncoderOptions) -> Result<Self, ArrowError> {
        let range = entries(map, 0).start..entries(map, map.len().saturating_sub(1)).end;
        let texts = Values::new(map.keys().as_ref())?;
        let keys = range.map(|entry| {
            let mut key = Vec::new();
            string(&texts.text(entry)?.unwrap_or_else(|| "NULL".to_owned()), &mut key);
            Ok(key)
        });
        let keys = keys.collect::<Result<_, ArrowError>>()?;
        Ok(Self { map, keys, values: make_encoder(field, map.values().as_ref(), options)? })
    }
}

/// The entries of a row.
fn entries(map: &MapArray, row: usize) -> std::ops::Range<usize> {
    let at =
        |row: usize| map.value_offsets().get(row).map_or(0, |offset| usize::try_from(*offset).unwrap_or(0));
    at(row)..at(row + 1)
}

impl Encoder for Map<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        let first = entries(self.map, 0).start;
        out.push(b'{');
        for (place, entry) in entries(self.map, row).enumerate() {
            if place > 0 {
                out.push(b',');
            }
            out.extend_from_slice(&self.keys[entry - first]);
            out.push(b':');
            value(&mut self.values, entry, out);
        }
        out.push(b'}');
    }
}

/// An object with one key, the name of the member that the value has.
struct Union<'a> {
    union: &'a UnionArray,
    /// By the member's number: its name in JSON, and its values.
    members: Vec<(i8, Vec<u8>, NullableEncoder<'a>)>,
}

impl<'a> Union<'a> {
    fn new(
        field: &'a FieldRef,
        fields: &UnionFields,
        union: &'a UnionArray,
        options: &'a EncoderOptions,
    ) -> Result<Self, ArrowError> {
        let members = fields.iter().map(|(number, member)| {
            let mut name = Vec::new();
            string(member.name(), &mut name);
            Ok((number, name, make_encoder(field, union.child(number).as_ref(), options)?))
        });
        Ok(Self { union, members: members.collect::<Result<_, ArrowError>>()? })
    }
}

impl Encoder for Union<'_> {
    fn encode(&mut self, row: usize, out: &mut Vec<u8>) {
        let number = self.union.type_id(row);
        out.push(b'{');
        if let Some((_, name, values)) = self.members.iter_mut().find(|(member, ..)| *member == number) {
            out.extend_from_slice(name);
            out.push(b':');
            value(values, self.union.value_offset(row), out);
        }
        out.push(b'}');
    }
}

fn value(values: &mut NullableEncoder<'_>, row: usize, out: &mut Vec<u8>) {
    if values.is_null(row) {
        out.extend_from_slice(b"null");
    } else {
        values.encode(row, out);
    }
}

/// The number in a row. JSON has no infinities, and null means NULL: they are strings.
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
    use arrow_array::builder::{Int32Builder, MapBuilder, StringBuilder};
    use arrow_array::{
        ArrayRef, Date32Array, Float32Array, Float64Array, Int32Array, Int64Array, ListArray, StringArray,
        StructArray, Time64MicrosecondArray, TimestampMicrosecondArray,
    };
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
    fn times_are_exact_strings_also_where_they_are_nested() {
        let far = || Arc::new(Date32Array::from(vec![Some(i32::MAX - 1), None])) as ArrayRef;
        let at = TimestampMicrosecondArray::from(vec![i64::MAX, 0]).with_timezone("Europe/Berlin");
        let end: ArrayRef = Arc::new(Time64MicrosecondArray::from(vec![86_400_000_000, 1]));
        let member = Arc::new(Field::new("d", DataType::Date32, true));
        let nested: ArrayRef = Arc::new(StructArray::from(vec![(member, far())]));
        let expected = concat!(
            r#"{"d":"+5881580-07-10","at":"infinity","t":"24:00:00","s":{"d":"+5881580-07-10"}}"#,
            "\n",
            r#"{"d":null,"at":"1970-01-01T01:00:00+01:00","t":"00:00:00.000001","s":{"d":null}}"#,
            "\n",
        );
        assert_eq!(written(vec![("d", far()), ("at", Arc::new(at)), ("t", end), ("s", nested)]), expected);
    }

    #[test]
    fn maps_have_keys_of_any_type() {
        let mut maps = MapBuilder::new(None, Int32Builder::new(), StringBuilder::new());
        for (key, value) in [(1, Some("a")), (-2, None)] {
            maps.keys().append_value(key);
            maps.values().append_option(value);
        }
        maps.append(true).unwrap();
        maps.append(false).unwrap();
        maps.keys().append_value(3);
        maps.values().append_value("c \"d\"");
        maps.append(true).unwrap();
        let maps = maps.finish();
        let lines =
            ["{\"m\":{\"1\":\"a\",\"-2\":null}}\n", "{\"m\":null}\n", "{\"m\":{\"3\":\"c \\\"d\\\"\"}}\n"];
        assert_eq!(written(vec![("m", Arc::new(maps.clone()))]), lines.concat());
        assert_eq!(written(vec![("m", Arc::new(maps.slice(2, 1)))]), lines[2], "a part of a batch");
        assert_eq!(written(vec![("m", Arc::new(maps.slice(0, 0)))]), "");
    }

    #[test]
    fn a_union_names_the_member_of_each_value() {
        let fields: UnionFields = [
            (0, Arc::new(Field::new("num", DataType::Int32, true))),
            (1, Arc::new(Field::new("str", DataType::Utf8, true))),
        ]
        .into_iter()
        .collect();
        let numbers: ArrayRef = Arc::new(Int32Array::from(vec![Some(7), None, None]));
        let strings: ArrayRef = Arc::new(StringArray::from(vec![None, Some("x"), None]));
        let union = UnionArray::try_new(fields, vec![0, 1, 0].into(), None, vec![numbers, strings]).unwrap();
        let lines = ["{\"u\":{\"num\":7}}\n", "{\"u\":{\"str\":\"x\"}}\n", "{\"u\":null}\n"];
        assert_eq!(written(vec![("u", Arc::new(union.clone()))]), lines.concat());
        assert_eq!(written(vec![("u", Arc::new(union.slice(1, 1)))]), lines[1], "a part of a batch");
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
