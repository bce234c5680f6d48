//! Temporary copies of tables, for a transaction that has conflicted.
//!
//! Until its COMMIT fails, its statements must return what they would have returned: row counts, values and
//! genuine errors. Its rows are locked or changed by others, but its snapshot is still readable. So the
//! tables that a statement names are copied to temporary tables with the same names, with the transaction's
//! own changes, and the statement runs on the copies.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::backend::Backend;
use super::change_log::{ChangeLog, Row};
use super::quoting::{literal, name};
use super::writes;
use crate::engine::{Call, Oid};
use crate::error::SqlError;
use crate::statement::{names, requalify};

/// Tables, views and functions, with the foreign keys between tables.
const CATALOG: &str = "
SELECT * FROM (SELECT c.relkind::text, c.oid::text, n.nspname, c.relname, pg_table_is_visible(c.oid)::text, coalesce(
  (SELECT string_agg(oid::text, ' ') FROM (
    SELECT confrelid AS oid FROM pg_constraint WHERE contype = 'f' AND conrelid = c.oid
    UNION SELECT conrelid FROM pg_constraint WHERE contype = 'f' AND confrelid = c.oid) related), '')
  FROM pg_class c JOIN dsql_local_schemas n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'v')
UNION ALL SELECT 'f', p.oid::text, n.nspname, p.proname, '', '' FROM pg_proc p JOIN dsql_local_schemas n ON n.oid = p.pronamespace
) objects ORDER BY oid::oid";

#[derive(Debug, Default)]
pub(super) struct TableCopies {
    copied: BTreeSet<Oid>,
    /// The names of the copies, by schema and name.
    names: BTreeMap<(String, String), String>,
    views: bool,
}

struct CatalogObject {
    kind: char,
    oid: Oid,
    schema: String,
    name: String,
    /// Whether the unqualified name means this object.
    visible: bool,
    /// Whether the unqualified name means another object.
    hidden_by_search_path: bool,
    related: Vec<Oid>,
}

impl CatalogObject {
    /// The name of a copied table, or of something that belongs to it. It is the same, unless that is
    /// ambiguous.
    fn renamed(&self, name: &str) -> String {
        if self.hidden_by_search_path { format!("{name} in {}", self.schema) } else { name.to_owned() }
    }

    fn copy(&self) -> String {
        self.renamed(&self.name)
    }
}

impl TableCopies {
    pub(super) fn is_empty(&self) -> bool {
        self.copied.is_empty()
    }

    /// Copies the tables that a statement needs. Returns the statement for the copies.
    pub(super) async fn prepare(
        &mut self,
        backend: &mut Backend,
        call: &Call<'_>,
        log: &ChangeLog,
        wait: &str,
    ) -> Result<String, SqlError> {
        let text = call.statement.text();
        let words: BTreeSet<String> = names(text).into_iter().collect();
        let objects = catalog(backend).await?;
        let tables: BTreeMap<Oid, &CatalogObject> =
            objects.iter().filter(|object| object.kind == 'r').map(|object| (object.oid, object)).collect();
        let mut needed: BTreeSet<Oid> = BTreeSet::new();
        let hidden = objects.iter().any(|object| object.kind != 'r' && words.contains(&object.name));
        if hidden {
            // A view or function may read any table.
            needed.extend(tables.keys());
        }
        let mut next: Vec<Oid> =
            tables.values().filter(|table| words.contains(&table.name)).map(|table| table.oid).collect();
        let touched = log.tables();
        if !writes(call.statement) && !hidden && next.iter().all(|table| !touched.contains(table)) {
            // The snapshot alone has all rows.
            next.clear();
        }
        while let Some(table) = next.pop() {
            if needed.insert(table) {
                next.extend(tables.get(&table).into_iter().flat_map(|table| &table.related));
            }
        }
        let new: Vec<&CatalogObject> = needed
            .iter()
            .filter(|table| !self.copied.contains(table))
            .filter_map(|table| tables.get(table).copied())
            .collect();
        self.copy(backend, &new, log, wait).await?;
        if hidden && !std::mem::replace(&mut self.views, true) {
            let views: Vec<&CatalogObject> = objects.iter().filter(|object| object.kind == 'v').collect();
            self.copy_views(backend, &views).await?;
        }
        Ok(self.redirect(text))
    }

    /// Replaces the names of tables by those of their copies.
    fn redirect(&self, sql: &str) -> String {
        requalify(sql, |schema, table| {
            let copy = self.names.get(&(schema.to_owned(), table.to_owned()))?;
            Some(format!("pg_temp.{}", name(copy)))
        })
    }

    async fn copy(
        &mut self,
        backend: &mut Backend,
        tables: &[&CatalogObject],
        log: &ChangeLog,
        wait: &str,
    ) -> Result<(), SqlError> {
        if tables.is_empty() {
            return Ok(());
        }
        for table in tables {
            self.copied.insert(table.oid);
            self.names.insert((table.schema.clone(), table.name.clone()), table.copy());
        }
        let mut statements = String::new();
        for table in tables {
            statements += &definitions(backend, table).await?;
        }
        for table in tables {
            statements += &content(backend, table, log).await?;
        }
        for table in tables {
            let constraints = constraints(backend, table, &self.copied).await?;
            statements += &self.redirect(&constraints);
        }
        // The log has values in the default formats.
        backend.apply_settings(&[]).await?;
        backend.run(&format!("{wait}; {statements}")).await
    }

    async fn copy_views(&mut self, backend: &mut Backend, views: &[&CatalogObject]) -> Result<(), SqlError> {
        for view in views {
            let sql = format!("SELECT pg_get_viewdef({}, true)", view.oid);
            for definition in qualified(backend, &sql).await? {
                let definition = self.redirect(&definition);
                backend.run(&format!("CREATE TEMP VIEW {} AS {definition}", name(&view.copy()))).await?;
            }
            self.names.insert((view.schema.clone(), view.name.clone()), view.copy());
        }
        Ok(())
    }
}

async fn catalog(backend: &mut Backend) -> Result<Vec<CatalogObject>, SqlError> {
    let object = |[kind, oid, schema, name, visible, related]: [String; 6]| CatalogObject {
        kind: kind.chars().next().unwrap_or('r'),
        oid: oid.parse().unwrap_or(0),
        schema,
        name,
        visible: visible == "true",
        hidden_by_search_path: false,
        related: related.split(' ').filter_map(|oid| oid.parse().ok()).collect(),
    };
    let mut objects: Vec<CatalogObject> = backend.rows(CATALOG).await?.into_iter().map(object).collect();
    let first = |object: &CatalogObject| (!object.visible, object.oid);
    let mut meant: BTreeMap<String, (bool, Oid)> = BTreeMap::new();
    for object in objects.iter().filter(|object| object.kind != 'f') {
        let meant = meant.entry(object.name.clone()).or_insert_with(|| first(object));
        *meant = (*meant).min(first(object));
    }
    for object in &mut objects {
        object.hidden_by_search_path = meant.get(&object.name).is_some_and(|meant| *meant != first(object));
    }
    Ok(objects)
}

/// The statements that create a copy without rows.
async fn definitions(backend: &mut Backend, table: &CatalogObject) -> Result<String, SqlError> {
    let (copy, original) = (temporary(table), original(table));
    let mut sql = format!(
        "CREATE TEMP TABLE {} (LIKE {original} INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING GENERATED);",
        name(&table.copy())
    );
    // Numbers come from the real sequence, so that no number is used twice.
    let identities = format!(
        "SELECT {} || format(' ALTER %I SET DEFAULT nextval(%L);', a.attname, pg_get_serial_sequence({}, a.attname))
         FROM pg_attribute a WHERE a.attrelid = {} AND a.attidentity <> '' AND NOT a.attisdropped",
        literal(&format!("ALTER TABLE {copy}")),
        literal(&original),
        table.oid
    );
    for statement in qualified(backend, &identities).await? {
        sql += &statement;
    }
    Ok(sql)
}

/// The statements that fill a copy with the rows of the snapshot and the transaction's own changes.
async fn content(backend: &mut Backend, table: &CatalogObject, log: &ChangeLog) -> Result<String, SqlError> {
    let (copy, original) = (temporary(table), original(table));
    let columns = format!(
        "SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
         WHERE attrelid = {} AND attnum > 0 AND NOT attisdropped AND attgenerated = ''",
        table.oid
    );
    let columns = qualified(backend, &columns).await?.concat();
    let outcome = log.outcome(table.oid);
    let mut touched = String::new();
    for row in outcome.keys() {
        if let Row::Existing(place) = row {
            write!(touched, "{}\"{place}\"", if touched.is_empty() { "" } else { "," }).unwrap_or_default();
        }
    }
    let mut sql = format!(
        "INSERT INTO {copy} ({columns}) SELECT {columns} FROM {original} WHERE ctid <> ALL ('{{{touched}}}'::tid[]);"
    );
    for values in outcome.values().flatten() {
        let values = literal(&String::from_utf8_lossy(values));
        write!(
            sql,
            "INSERT INTO {copy} ({columns}) SELECT {columns} FROM (SELECT ({values}::{original}).*) x;"
        )
        .unwrap_or_default();
    }
    Ok(sql)
}

/// The statements that create the keys and foreign keys of a copy.
async fn constraints(
    backend: &mut Backend,
    table: &CatalogObject,
    copied: &BTreeSet<Oid>,
) -> Result<String, SqlError> {
    let (copy, oid) = (temporary(table), table.oid);
    let alter = literal(&format!("ALTER TABLE {copy} ADD CONSTRAINT "));
    // Index names are unique in a schema, and all copies are in one schema.
    let mark = literal(table.renamed("").as_str());
    let copied = copied.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let sql = format!(
        "SELECT sql FROM (
           SELECT 1 AS step, {alter} || format('%I %s;', conname || {mark}, dsql_local_constraintdef(oid)) AS sql
             FROM pg_constraint WHERE conrelid = {oid} AND contype IN ('p', 'u')
           UNION ALL SELECT 2, replace(dsql_local_indexdef(i.indexrelid), format(' INDEX %I ON ', c.relname),
               format(' INDEX %I ON ', c.relname || {mark})) || ';'
             FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = {oid} AND i.indisunique AND i.indisvalid
             AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = i.indexrelid AND conrelid = {oid})
           UNION ALL SELECT 3, {alter} || format('%I %s;', conname, dsql_local_constraintdef(oid))
             FROM pg_constraint WHERE conrelid = {oid} AND contype = 'f' AND confrelid IN ({copied})
         ) statements ORDER BY step",
    );
    Ok(qualified(backend, &sql).await?.concat())
}

/// Runs a query while names are printed with their schemas.
async fn qualified(backend: &mut Backend, sql: &str) -> Result<Vec<String>, SqlError> {
    backend.run("SAVEPOINT qualified; SET LOCAL search_path = pg_catalog").await?;
    let texts = backend.values(sql).await?;
    backend.run("ROLLBACK TO SAVEPOINT qualified; RELEASE SAVEPOINT qualified").await?;
    Ok(texts)
}

fn original(table: &CatalogObject) -> String {
    format!("{}.{}", name(&table.schema), name(&table.name))
}

fn temporary(table: &CatalogObject) -> String {
    format!("pg_temp.{}", name(&table.copy()))
}
