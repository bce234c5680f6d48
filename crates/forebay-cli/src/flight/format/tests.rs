use std::sync::Arc;

use arrow_array::builder::{Int32Builder, MapBuilder, StringBuilder};
use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, DictionaryArray, Float64Array,
    Int32Array, Int64Array, ListArray, NullArray, StringArray, TimestampMicrosecondArray, UnionArray,
};
use arrow_ipc::reader::StreamReader;
use arrow_schema::{DataType, Field, Schema, UnionFields};

use super::*;

fn sample() -> RecordBatch {
    let decimals = Decimal128Array::from(vec![Some(12_345), None]).with_precision_and_scale(10, 2).unwrap();
    let lists = vec![Some(vec![Some(1), None]), None];
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", Arc::new(Int64Array::from(vec![Some(1), None]))),
        ("a \"name\"", Arc::new(StringArray::from(vec![Some("it's, \"x\"\nyes"), Some("")]))),
        ("ok", Arc::new(BooleanArray::from(vec![Some(true), None]))),
        ("real", Arc::new(Float64Array::from(vec![Some(0.5), None]))),
        ("price", Arc::new(decimals)),
        ("at", Arc::new(TimestampMicrosecondArray::from(vec![Some(1_000_000), None]))),
        ("raw", Arc::new(BinaryArray::from(vec![Some(&b"\x00\xff"[..]), None]))),
        ("list", Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true)))
        .unwrap()
}

fn written(format: Format, batches: &[RecordBatch]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = format.begin(&mut out, &batches[0].schema(), Layout::default()).unwrap();
    for batch in batches {
        writer.batch(batch).unwrap();
    }
    writer.end().unwrap();
    drop(writer);
    out
}

fn text(format: Format, batches: &[RecordBatch]) -> String {
    String::from_utf8(written(format, batches)).unwrap()
}

#[test]
fn csv_tells_null_from_nothing_and_quotes_what_must_be() {
    let expected = concat!(
        "id,\"a \"\"name\"\"\",ok,real,price,at,raw,list\n",
        "1,\"it's, \"\"x\"\"\nyes\",true,0.5,123.45,1970-01-01T00:00:01,00ff,\"[1, NULL]\"\n",
        ",\"\",,,,,,\n",
    );
    assert_eq!(text(Format::Csv, &[sample()]), expected);
}

#[test]
fn json_is_an_object_a_line_with_every_key() {
    let expected = concat!(
        r#"{"id":1,"a \"name\"":"it's, \"x\"\nyes","ok":true,"real":0.5,"price":123.45,"#,
        r#""at":"1970-01-01T00:00:01","raw":"00ff","list":[1,null]}"#,
        "\n",
        r#"{"id":null,"a \"name\"":"","ok":null,"real":null,"price":null,"at":null,"raw":null,"list":null}"#,
        "\n",
    );
    assert_eq!(text(Format::Json, &[sample()]), expected);
}

/// A map with numbers as keys, a union, a time with a zone, and a list with NULL.
fn nested() -> RecordBatch {
    let mut maps = MapBuilder::new(None, Int32Builder::new(), StringBuilder::new());
    for _ in 0..2 {
        maps.keys().append_value(1);
        maps.values().append_null();
        maps.append(true).unwrap();
    }
    let fields: UnionFields = [
        (0, Arc::new(Field::new("num", DataType::Int32, true))),
        (1, Arc::new(Field::new("str", DataType::Utf8, true))),
    ]
    .into_iter()
    .collect();
    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![Some(7), None]));
    let texts: ArrayRef = Arc::new(StringArray::from(vec![None, None::<&str>]));
    let union = UnionArray::try_new(fields, vec![0, 1].into(), None, vec![numbers, texts]).unwrap();
    let at = TimestampMicrosecondArray::from(vec![Some(0), None]).with_timezone("Europe/Berlin");
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("map", Arc::new(maps.finish())),
        ("union", Arc::new(union)),
        ("at", Arc::new(at)),
        ("nothing", Arc::new(NullArray::new(2))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true)))
        .unwrap()
}

#[test]
fn maps_unions_and_zones_are_written_in_each_format() {
    assert_eq!(
        text(Format::Csv, &[nested()]),
        "map,union,at,nothing\n{1: NULL},{num=7},1970-01-01T01:00:00+01:00,\n{1: NULL},,,\n"
    );
    let json = concat!(
        r#"{"map":{"1":null},"union":{"num":7},"at":"1970-01-01T01:00:00+01:00","nothing":null}"#,
        "\n",
        r#"{"map":{"1":null},"union":null,"at":null,"nothing":null}"#,
        "\n",
    );
    assert_eq!(text(Format::Json, &[nested()]), json);
    let table = "\
┌───────────┬─────────┬───────────────────────────┬─────────┐
│ map       │ union   │ at                        │ nothing │
├───────────┼─────────┼───────────────────────────┼─────────┤
│ {1: NULL} │ {num=7} │ 1970-01-01T01:00:00+01:00 │ NULL    │
│ {1: NULL} │ NULL    │ NULL                      │ NULL    │
└───────────┴─────────┴───────────────────────────┴─────────┘
(2 rows)
";
    assert_eq!(text(Format::Table, &[nested()]), table);
}

#[test]
fn a_value_that_cannot_be_written_is_an_error_and_never_data() {
    // Arrow's formatter of dictionaries does not know how to write this date.
    let far: ArrayRef = Arc::new(Date32Array::from(vec![i32::MAX - 1]));
    let coded: ArrayRef = Arc::new(DictionaryArray::new(Int32Array::from(vec![0]), far));
    let batch = RecordBatch::try_from_iter([("d", coded)]).unwrap();
    assert_eq!(text(Format::Json, std::slice::from_ref(&batch)), "{\"d\":\"+5881580-07-10\"}\n");
    for format in [Format::Table, Format::Csv] {
        let mut out = Vec::new();
        let mut writer = format.begin(&mut out, &batch.schema(), Layout::default()).unwrap();
        let error = writer.batch(&batch).unwrap_err().to_string();
        assert!(error.contains("--format arrow"), "{error}");
        drop(writer);
        assert!(!String::from_utf8(out).unwrap().contains("ERROR"));
    }
}

#[test]
fn a_result_without_columns_writes_nothing() {
    let nothing = [RecordBatch::new_empty(Arc::new(Schema::empty()))];
    for format in [Format::Table, Format::Csv, Format::Json] {
        assert_eq!(text(format, &nothing), "", "{format:?}");
    }
}

#[test]
fn arrow_reads_back_as_it_was() {
    let batches = [sample(), sample().slice(1, 1)];
    let bytes = written(Format::Arrow, &batches);
    let read: Vec<RecordBatch> =
        StreamReader::try_new(bytes.as_slice(), None).unwrap().map(Result::unwrap).collect();
    assert_eq!(read, batches);
}

#[test]
fn a_table_shows_all_of_it_where_there_is_room() {
    let table = text(Format::Table, &[sample().project(&[0, 1, 4]).unwrap()]);
    let expected = "\
┌──────┬───────────────┬────────┐
│   id │ a \"name\"      │  price │
├──────┼───────────────┼────────┤
│    1 │ it's, \"x\"␊yes │ 123.45 │
│ NULL │               │   NULL │
└──────┴───────────────┴────────┘
(2 rows)
";
    assert_eq!(table, expected, "\n{table}");
}

#[test]
fn a_result_without_rows_keeps_its_columns() {
    let empty = [sample().slice(0, 0).project(&[0]).unwrap()];
    assert_eq!(text(Format::Csv, &empty), "id\n");
    assert_eq!(text(Format::Json, &empty), "");
    assert!(
        text(Format::Table, &empty).contains("│ id │") && text(Format::Table, &empty).ends_with("(0 rows)\n")
    );
}

#[test]
fn a_reader_who_has_gone_is_told_from_other_trouble() {
    struct Gone;
    impl Write for Gone {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    for format in [Format::Table, Format::Csv, Format::Json, Format::Arrow] {
        let outcome = (|| {
            let mut gone = Gone;
            let batch = sample();
            let mut writer = format.begin(&mut gone, &batch.schema(), Layout::default())?;
            writer.batch(&batch)?;
            writer.end()
        })();
        let error = outcome.expect_err("nothing can be written");
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        assert_eq!(kind, Some(io::ErrorKind::BrokenPipe), "{format:?}: {error:#}");
    }
}
