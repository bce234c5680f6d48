//! Lists catalogs, schemas, tables and columns.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch, StringArray};
use arrow_ipc::convert::try_schema_from_ipc_buffer;
use arrow_schema::{Field, Schema};
use forebay::rt::{self, Runtime};
use forebay_flight::{AsyncSession, Error, TableFilter};

use super::completion::quote_name;

/// The limits of the names for completion.
const NAMES_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_NAMES: usize = 40_000;

/// What to list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Listing {
    Catalogs,
    Schemas,
    Tables,
    Columns(String),
}

/// A list, or why there is none although the server has answered.
pub(crate) type Answer = Result<Vec<RecordBatch>, String>;

/// Reads a list from the server.
///
/// # Cancel safety
/// Dropping it cancels the call.
pub(crate) async fn list(session: &mut AsyncSession, listing: &Listing) -> Result<Answer, Error> {
    let listed = match listing {
        Listing::Catalogs => session.catalogs().await?,
        Listing::Schemas => session.schemas(None, None).await?,
        Listing::Tables => session.tables(TableFilter::default()).await?,
        Listing::Columns(name) => return describe(session, name).await,
    };
    let empty = RecordBatch::new_empty(listed.schema().clone());
    // Without rows there are still columns to show.
    let batches = std::iter::once(empty).chain(listed).map(short_names);
    Ok(batches.collect::<anyhow::Result<_>>().map_err(|error| format!("{error:#}")))
}

/// Shortens the names of the standard's columns.
fn short_names(batch: RecordBatch) -> anyhow::Result<RecordBatch> {
    let long = batch.schema();
    let fields = long.fields().iter().map(|field| {
        let name = match field.name().as_str() {
            "catalog_name" => "catalog",
            "db_schema_name" => "schema",
            "table_name" => "table",
            "table_type" => "type",
            other => other,
        };
        Field::new(name, field.data_type().clone(), true)
    });
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    RecordBatch::try_new(schema, batch.columns().to_vec()).context("this is not a list of Flight SQL")
}

/// The columns of a table.
async fn describe(session: &mut AsyncSession, name: &str) -> Result<Answer, Error> {
    let Some(parts) = parts(name) else {
        return Ok(Err(format!("\\d {name}: write TABLE, SCHEMA.TABLE or CATALOG.SCHEMA.TABLE")));
    };
    // By their full name: a server may return the same table for several patterns.
    let mut found = BTreeMap::new();
    for pattern in patterns(&parts) {
        let filter = TableFilter { table: Some(pattern), with_columns: true, ..TableFilter::default() };
        for batch in session.tables(filter).await? {
            for row in 0..batch.num_rows() {
                // Some servers match more than the pattern.
                if let Some(rank) = rank(&batch, row, &parts) {
                    found.insert(full_name(&batch, row), (rank, batch.clone(), row));
                }
            }
        }
    }
    Ok(choose(name, found))
}

/// The columns of the table that fits best.
fn choose(name: &str, found: BTreeMap<String, (Rank, RecordBatch, usize)>) -> Answer {
    let Some(best) = found.values().map(|(rank, ..)| *rank).min() else {
        return Err(format!("there is no table {name}; \\dt lists the tables"));
    };
    let mut fitting = found.iter().filter(|(_, (rank, ..))| *rank == best);
    let (Some((_, (_, batch, row))), None) = (fitting.next(), fitting.next()) else {
        let names: Vec<&str> = found.keys().map(String::as_str).collect();
        return Err(format!("there are several tables {name}; write one of {}", names.join(", ")));
    };
    columns(batch, *row).map(|columns| vec![columns]).map_err(|error| format!("{error:#}"))
}

/// The patterns to look for. Some servers fold the case of names, and some do not.
fn patterns(parts: &[Part]) -> BTreeSet<String> {
    let Some(Part { text, is_quoted }) = parts.last() else { return BTreeSet::new() };
    match is_quoted {
        true => [text.clone()].into(),
        false => [text.clone(), text.to_lowercase(), text.to_uppercase()].into(),
    }
}

/// A part of a name. Without quotes its case does not matter.
#[derive(Debug, PartialEq, Eq)]
struct Part {
    text: String,
    is_quoted: bool,
}

impl Part {
    fn is(&self, name: &str) -> bool {
        if self.is_quoted { self.text == name } else { self.text.to_lowercase() == name.to_lowercase() }
    }
}

/// The parts of a name, one to three.
fn parts(name: &str) -> Option<Vec<Part>> {
    let mut parts = Vec::new();
    let mut rest = name.trim();
    loop {
        let (part, after) = match rest.strip_prefix('"') {
            Some(quoted) => {
                let end = closing(quoted)?;
                let part = Part { text: quoted[..end].replace("\"\"", "\""), is_quoted: true };
                (part, &quoted[end + 1..])
            }
            None => {
                let end = rest.find('.').unwrap_or(rest.len());
                (Part { text: rest[..end].to_owned(), is_quoted: false }, &rest[end..])
            }
        };
        if part.text.is_empty() {
            return None;
        }
        parts.push(part);
        match after.strip_prefix('.') {
            Some(more) if parts.len() < 3 => rest = more,
            None if after.is_empty() => return Some(parts),
            _ => return None,
        }
    }
}

/// The position of the closing quote.
fn closing(text: &str) -> Option<usize> {
    let mut at = 0;
    loop {
        at += text[at..].find('"')?;
        match text[at + 1..].starts_with('"') {
            true => at += 2,
            false => return Some(at),
        }
    }
}

/// How well a table fits a name. The smallest fits best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// The qualifier is the catalog, and the schema is left out.
    is_of_catalog: bool,
    /// The case of the name differs.
    differs: bool,
}

/// How well a table fits. A name of two parts may begin with a schema or, as in DuckDB, with a catalog.
fn rank(batch: &RecordBatch, row: usize, parts: &[Part]) -> Option<Rank> {
    let is = |part: &Part, column| text(batch, column, row).is_some_and(|name| part.is(name));
    let (table, is_of_catalog) = match parts {
        [table] => (table, false),
        [qualifier, table] if is(qualifier, "db_schema_name") => (table, false),
        [qualifier, table] if is(qualifier, "catalog_name") => (table, true),
        [catalog, schema, table] if is(schema, "db_schema_name") && is(catalog, "catalog_name") => {
            (table, false)
        }
        _ => return None,
    };
    let differs = text(batch, "table_name", row) != Some(table.text.as_str());
    is(table, "table_name").then_some(Rank { is_of_catalog, differs })
}

/// The catalog, the schema and the table, as far as there are any, as a statement writes them.
fn full_name(batch: &RecordBatch, row: usize) -> String {
    let parts = ["catalog_name", "db_schema_name", "table_name"];
    let parts = parts.iter().filter_map(|column| text(batch, column, row).filter(|name| !name.is_empty()));
    parts.map(quote_name).collect::<Vec<_>>().join(".")
}

/// Every name under which a statement may find a table, depending on what its session uses.
fn known_as(batch: &RecordBatch, row: usize) -> Vec<String> {
    let part = |column| text(batch, column, row).filter(|name| !name.is_empty());
    let Some(table) = part("table_name").map(quote_name) else { return Vec::new() };
    let qualifiers = ["db_schema_name", "catalog_name"].into_iter().filter_map(part);
    let qualified = qualifiers.map(|qualifier| format!("{}.{table}", quote_name(qualifier)));
    qualified.chain([full_name(batch, row), table.clone()]).collect()
}

fn text<'a>(batch: &'a RecordBatch, column: &str, row: usize) -> Option<&'a str> {
    let column = batch.column_by_name(column)?.as_string_opt::<i32>()?;
    arrow_array::Array::is_valid(column, row).then(|| column.value(row))
}

fn columns(batch: &RecordBatch, row: usize) -> anyhow::Result<RecordBatch> {
    let schemas = batch.column_by_name("table_schema").and_then(|column| column.as_binary_opt::<i32>());
    let bytes = schemas.context("the server does not send the columns of its tables")?.value(row);
    let schema = try_schema_from_ipc_buffer(bytes).context("the server sent columns that cannot be read")?;
    let fields = schema.fields();
    let strings = |of: &dyn Fn(&Field) -> String| -> ArrayRef {
        Arc::new(fields.iter().map(|field| Some(of(field))).collect::<StringArray>())
    };
    Ok(RecordBatch::try_from_iter([
        ("column", strings(&|field| field.name().clone())),
        ("type", strings(&|field| declared(field))),
        ("null", strings(&|field| if field.is_nullable() { "yes" } else { "no" }.to_owned())),
    ])?)
}

/// The server's name for the type, or else Arrow's.
fn declared(field: &Field) -> String {
    let named = field.metadata().get("ARROW:FLIGHT:SQL:TYPE_NAME").filter(|name| !name.is_empty());
    named.cloned().unwrap_or_else(|| field.data_type().to_string())
}

/// The names of the tables, for completion. After the timeout there are none: the prompt must not wait.
pub(crate) async fn names(session: &mut AsyncSession, runtime: &dyn Runtime) -> Vec<String> {
    let mut names = BTreeSet::new();
    let listing = rt::within(runtime, NAMES_TIMEOUT, session.tables(TableFilter::default()));
    let Some(Ok(listed)) = listing.await else { return Vec::new() };
    for batch in listed {
        for row in 0..batch.num_rows() {
            let known_as = known_as(&batch, row);
            if names.len() < MAX_NAMES && !known_as.iter().any(|name| name.contains(char::is_control)) {
                names.extend(known_as);
            }
        }
    }
    names.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_up_to_three_parts_quoted_or_not() {
        let shown = |name: &str| {
            parts(name)
                .map(|parts| parts.into_iter().map(|part| (part.text, part.is_quoted)).collect::<Vec<_>>())
        };
        let part = |text: &str, is_quoted| (text.to_owned(), is_quoted);
        assert_eq!(shown("t"), Some(vec![part("t", false)]));
        assert_eq!(shown("main.T"), Some(vec![part("main", false), part("T", false)]));
        assert_eq!(shown("\"a.b\".\"c\"\"d\""), Some(vec![part("a.b", true), part("c\"d", true)]));
        for wrong in ["", "a.", ".a", "a.b.c.d", "\"a", "\"a\"b", "\"\""] {
            assert_eq!(shown(wrong), None, "{wrong}");
        }
        assert!(parts("T").unwrap()[0].is("t") && !parts("\"T\"").unwrap()[0].is("t"));
    }

    /// A server's list of tables.
    fn listed(tables: &[(&str, &str, &str)]) -> RecordBatch {
        let strings = |part: fn(&(&str, &str, &str)) -> String| -> ArrayRef {
            Arc::new(tables.iter().map(|table| Some(part(table))).collect::<StringArray>())
        };
        RecordBatch::try_from_iter([
            ("catalog_name", strings(|table| table.0.to_owned())),
            ("db_schema_name", strings(|table| table.1.to_owned())),
            ("table_name", strings(|table| table.2.to_owned())),
        ])
        .unwrap()
    }

    /// The tables that fit a name best.
    fn best(name: &str, tables: &[(&str, &str, &str)]) -> Vec<String> {
        let (batch, parts) = (listed(tables), parts(name).unwrap());
        let ranks: Vec<_> = (0..tables.len()).map(|row| rank(&batch, row, &parts)).collect();
        let least = ranks.iter().flatten().min();
        let fitting = (0..tables.len()).filter(|row| least.is_some() && ranks[*row].as_ref() == least);
        fitting.map(|row| full_name(&batch, row)).collect()
    }

    #[test]
    fn a_qualifier_is_a_schema_or_a_catalog() {
        let tables = [("memory", "main", "tc"), ("swanlake", "main", "tc"), ("swanlake", "main", "other")];
        assert_eq!(best("swanlake.tc", &tables), ["swanlake.main.tc"]);
        assert_eq!(best("SwanLake.TC", &tables), ["swanlake.main.tc"]);
        assert_eq!(best("memory.main.tc", &tables), ["memory.main.tc"]);
        assert_eq!(best("main.other", &tables), ["swanlake.main.other"]);
        assert_eq!(best("other", &tables), ["swanlake.main.other"]);
        // Only the user knows which.
        assert_eq!(best("main.tc", &tables), ["memory.main.tc", "swanlake.main.tc"]);
        assert_eq!(best("elsewhere.tc", &tables), [""; 0]);
        assert_eq!(best("\"SWANLAKE\".tc", &tables), [""; 0]);
        // A schema comes before a catalog of the same name, and the same case before another.
        assert_eq!(best("a.t", &[("a", "b", "t"), ("c", "a", "t")]), ["c.a.t"]);
        assert_eq!(best("T", &[("a", "", "t"), ("a", "", "T")]), ["a.T"]);
    }

    #[test]
    fn an_ambiguous_name_is_an_error_that_lists_the_tables() {
        let batch = listed(&[("a", "main", "t"), ("b", "main", "t")]);
        let rank = Rank { is_of_catalog: false, differs: false };
        let found = (0..2).map(|row| (full_name(&batch, row), (rank, batch.clone(), row))).collect();
        let error = choose("t", found).unwrap_err();
        assert_eq!(error, "there are several tables t; write one of a.main.t, b.main.t");
    }

    #[test]
    fn completion_knows_each_form_of_a_name() {
        let batch = listed(&[("swanlake", "main", "my table"), ("main", "", "t")]);
        assert_eq!(
            known_as(&batch, 0),
            ["main.\"my table\"", "swanlake.\"my table\"", "swanlake.main.\"my table\"", "\"my table\""]
        );
        assert_eq!(known_as(&batch, 1), ["main.t", "main.t", "t"]);
    }
}
