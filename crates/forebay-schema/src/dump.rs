//! The live schema as SQL that can be applied again.
//!
//! Definitions come in an order in which each finds what it needs: schemas, domains, sequences, functions that these or tables use, tables by
//! their foreign keys, other functions, indexes, views, comments. Roles, owners, grants and rows are left out.

use std::collections::BTreeSet;
use std::fmt::Write;

use forebay_dsql::{Dsql, Error};
use tokio_postgres::{Client, Row};

use crate::bookkeeping::{PREFIX, run};
use crate::catalog::OWN_SCHEMAS;
use crate::sql::Statement;

/// The schema of a database as SQL: a file that [`Migrator::setup`](crate::Migrator::setup) accepts.
///
/// # Errors
/// If the database does not answer.
///
/// # Cancel safety
/// It only reads.
pub async fn dump(dsql: &Dsql) -> Result<String, Error> {
    run(dsql, "schema_dump", async |tx| {
        let mut sql = String::new();
        for statement in definitions(&tx).await? {
            let _ = write!(sql, "{};\n\n", statement.trim_end().trim_end_matches(';'));
        }
        sql.truncate(sql.trim_end().len());
        Ok(sql + "\n")
    })
    .await
}

async fn definitions(client: &Client) -> Result<Vec<String>, Error> {
    let mut statements = texts(client, SCHEMAS).await?;
    let (checked, plain) = halves(client, DOMAINS).await?;
    statements.extend(plain);
    statements.extend(texts(client, SEQUENCES).await?);
    let (early, late) = halves(client, FUNCTIONS).await?;
    statements.extend(early);
    statements.extend(checked);
    statements.extend(tables(client).await?);
    statements.extend(late);
    let indexes = texts(client, INDEXES).await?;
    statements.extend(indexes.iter().map(|definition| in_background(definition)));
    statements.extend(texts(client, VIEWS).await?);
    statements.extend(texts(client, COMMENTS).await?);
    Ok(statements)
}

async fn query(client: &Client, sql: &str) -> Result<Vec<Row>, Error> {
    Ok(client.query(&sql.replace("$OWN", OWN_SCHEMAS), &[&PREFIX]).await?)
}

/// The first column of a query.
async fn texts(client: &Client, sql: &str) -> Result<Vec<String>, Error> {
    query(client, sql).await?.iter().map(|row| row.try_get(0).map_err(Into::into)).collect()
}

const SCHEMAS: &str = "
SELECT format('CREATE SCHEMA %I', n.nspname) FROM pg_catalog.pg_namespace n WHERE $OWN AND n.nspname <> 'public' AND $1 <> '' ORDER BY 1";

/// Domains, and whether they use functions.
const DOMAINS: &str = "
SELECT format('CREATE DOMAIN %I.%I AS %s%s%s%s', n.nspname, t.typname, format_type(t.typbasetype, t.typtypmod),
  coalesce(' DEFAULT ' || t.typdefault, ''), CASE WHEN t.typnotnull THEN ' NOT NULL' ELSE '' END,
  coalesce((SELECT string_agg(format(' CONSTRAINT %I %s', k.conname, pg_get_constraintdef(k.oid)), '' ORDER BY k.conname)
    FROM pg_catalog.pg_constraint k WHERE k.contypid = t.oid AND k.contype = 'c'), '')),
  EXISTS (SELECT FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_constraint k ON k.oid = d.objid AND k.contypid = t.oid
    WHERE d.classid = 'pg_catalog.pg_constraint'::regclass AND d.refclassid = 'pg_catalog.pg_proc'::regclass)
FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
WHERE $OWN AND t.typtype = 'd' AND $1 <> '' ORDER BY t.oid";

/// Without those of identity columns, which belong to their tables.
const SEQUENCES: &str = "
SELECT format('CREATE SEQUENCE %I.%I INCREMENT BY %s MINVALUE %s MAXVALUE %s START WITH %s CACHE %s%s', n.nspname, c.relname,
  s.seqincrement, s.seqmin, s.seqmax, s.seqstart, s.seqcache, CASE WHEN s.seqcycle THEN ' CYCLE' ELSE '' END)
FROM pg_catalog.pg_sequence s JOIN pg_catalog.pg_class c ON c.oid = s.seqrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE $OWN AND NOT starts_with(c.relname, $1)
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d WHERE d.objid = c.oid AND d.deptype = 'i' AND d.refobjsubid > 0) ORDER BY 1";

/// Functions, and whether tables or domains use them.
const FUNCTIONS: &str = "
SELECT pg_get_functiondef(p.oid), EXISTS (SELECT FROM pg_catalog.pg_depend d WHERE d.refclassid = 'pg_catalog.pg_proc'::regclass
  AND d.refobjid = p.oid AND d.classid IN ('pg_catalog.pg_attrdef'::regclass, 'pg_catalog.pg_constraint'::regclass))
FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
WHERE $OWN AND p.prokind = 'f' AND $1 <> '' ORDER BY p.oid";

/// Tables and their columns.
const COLUMNS: &str = "
SELECT c.oid::bigint, format('%I.%I', n.nspname, c.relname),
  coalesce((SELECT string_agg(format('%I %s%s%s%s', a.attname, format_type(a.atttypid, a.atttypmod),
      CASE WHEN co.collname <> 'default' THEN ' COLLATE ' || quote_ident(co.collname) ELSE '' END,
      CASE WHEN a.attidentity <> '' THEN format(' GENERATED %s AS IDENTITY (INCREMENT BY %s MINVALUE %s MAXVALUE %s START WITH %s CACHE %s)',
          CASE a.attidentity WHEN 'a' THEN 'ALWAYS' ELSE 'BY DEFAULT' END, s.seqincrement, s.seqmin, s.seqmax, s.seqstart, s.seqcache)
        WHEN a.attgenerated <> '' THEN format(' GENERATED ALWAYS AS (%s) STORED', pg_get_expr(d.adbin, d.adrelid))
        ELSE coalesce(' DEFAULT ' || pg_get_expr(d.adbin, d.adrelid), '') END,
      CASE WHEN a.attnotnull AND a.attidentity = '' THEN ' NOT NULL' ELSE '' END), E',\\n    ' ORDER BY a.attnum)
    FROM pg_catalog.pg_attribute a LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    LEFT JOIN pg_catalog.pg_collation co ON co.oid = a.attcollation
    LEFT JOIN pg_catalog.pg_depend i ON i.refobjid = a.attrelid AND i.refobjsubid = a.attnum AND i.deptype = 'i'
      AND i.classid = 'pg_catalog.pg_class'::regclass AND i.refclassid = 'pg_catalog.pg_class'::regclass
    LEFT JOIN pg_catalog.pg_sequence s ON s.seqrelid = i.objid
    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped), '')
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE $OWN AND c.relkind = 'r' AND NOT starts_with(c.relname, $1) ORDER BY 2";

/// In the service, a primary key includes all other columns. That is not written down.
const CONSTRAINTS: &str = "
SELECT k.conrelid::bigint, k.confrelid::bigint, quote_ident(k.conname),
  CASE k.contype WHEN 'p' THEN regexp_replace(pg_get_constraintdef(k.oid), ' INCLUDE \\(.*\\)$', '')
    ELSE regexp_replace(pg_get_constraintdef(k.oid), ' NOT VALID$', '') END, k.convalidated
FROM pg_catalog.pg_constraint k JOIN pg_catalog.pg_class c ON c.oid = k.conrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE $OWN AND NOT starts_with(c.relname, $1) AND k.contype IN ('p', 'u', 'c', 'f')
ORDER BY CASE k.contype WHEN 'p' THEN 0 WHEN 'u' THEN 1 WHEN 'c' THEN 2 ELSE 3 END, k.conname";

/// Without those of constraints, which create them.
const INDEXES: &str = "
SELECT pg_get_indexdef(i.indexrelid)
FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE $OWN AND NOT starts_with(c.relname, $1)
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint k WHERE k.conindid = i.indexrelid AND k.contype IN ('p', 'u')) ORDER BY 1";

const VIEWS: &str = "
SELECT format('CREATE VIEW %I.%I%s AS%s', n.nspname, c.relname, coalesce(' WITH (' || array_to_string(c.reloptions, ', ') || ')', ''),
  E'\\n' || pg_get_viewdef(c.oid))
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE $OWN AND c.relkind = 'v' AND $1 <> '' ORDER BY c.oid";

const COMMENTS: &str = "
SELECT format('COMMENT ON %s %I.%I%s IS %L', CASE WHEN d.objsubid > 0 THEN 'COLUMN' ELSE CASE c.relkind WHEN 'r' THEN 'TABLE'
    WHEN 'v' THEN 'VIEW' WHEN 'S' THEN 'SEQUENCE' ELSE 'INDEX' END END, n.nspname, c.relname,
  CASE WHEN d.objsubid > 0 THEN '.' || quote_ident(a.attname) ELSE '' END, d.description)
FROM pg_catalog.pg_description d JOIN pg_catalog.pg_class c ON c.oid = d.objoid AND d.classoid = 'pg_catalog.pg_class'::regclass
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = d.objsubid
WHERE $OWN AND NOT starts_with(c.relname, $1)
UNION ALL
SELECT format('COMMENT ON SCHEMA %I IS %L', n.nspname, obj_description(n.oid, 'pg_namespace')) FROM pg_catalog.pg_namespace n
WHERE $OWN AND n.nspname <> 'public' AND obj_description(n.oid, 'pg_namespace') IS NOT NULL
UNION ALL
SELECT format('COMMENT ON FUNCTION %I.%I(%s) IS %L', n.nspname, p.proname, pg_get_function_identity_arguments(p.oid),
  obj_description(p.oid, 'pg_proc'))
FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
WHERE $OWN AND p.prokind = 'f' AND obj_description(p.oid, 'pg_proc') IS NOT NULL
UNION ALL
SELECT format('COMMENT ON DOMAIN %I.%I IS %L', n.nspname, t.typname, obj_description(t.oid, 'pg_type'))
FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
WHERE $OWN AND t.typtype = 'd' AND obj_description(t.oid, 'pg_type') IS NOT NULL
UNION ALL
SELECT format('COMMENT ON CONSTRAINT %I ON %I.%I IS %L', k.conname, n.nspname, c.relname, obj_description(k.oid, 'pg_constraint'))
FROM pg_catalog.pg_constraint k JOIN pg_catalog.pg_class c ON c.oid = k.conrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE $OWN AND NOT starts_with(c.relname, $1) AND obj_description(k.oid, 'pg_constraint') IS NOT NULL
ORDER BY 1";

/// The first column of the rows whose second one is true, and of the others.
async fn halves(client: &Client, sql: &str) -> Result<(Vec<String>, Vec<String>), Error> {
    let (mut such, mut others) = (Vec::new(), Vec::new());
    for row in query(client, sql).await? {
        let is_such: bool = row.try_get(1)?;
        if is_such { &mut such } else { &mut others }.push(row.try_get(0)?);
    }
    Ok((such, others))
}

struct Constraint {
    /// The table that it refers to, if it is a foreign key.
    refers_to: Option<i64>,
    /// Quoted.
    name: String,
    definition: String,
    is_valid: bool,
}

struct Table {
    id: i64,
    name: String,
    columns: String,
    constraints: Vec<Constraint>,
}

async fn tables(client: &Client) -> Result<Vec<String>, Error> {
    let mut tables = Vec::new();
    for row in query(client, COLUMNS).await? {
        let (id, name, columns) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        tables.push(Table { id, name, columns, constraints: Vec::new() });
    }
    for row in query(client, CONSTRAINTS).await? {
        let (on, refers_to): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
        let (name, definition): (String, String) = (row.try_get(2)?, row.try_get(3)?);
        let constraint = Constraint {
            refers_to: (refers_to != 0).then_some(refers_to),
            definition: format!("CONSTRAINT {name} {definition}"),
            name,
            is_valid: row.try_get(4)?,
        };
        if let Some(table) = tables.iter_mut().find(|table| table.id == on) {
            table.constraints.push(constraint);
        }
    }
    Ok(in_order(tables))
}

/// Tables after those that they refer to. What refers in a circle is added at the end, and so is what holds for new rows only.
fn in_order(mut tables: Vec<Table>) -> Vec<String> {
    let mut statements = Vec::new();
    let mut added = Vec::new();
    let mut created = BTreeSet::new();
    while !tables.is_empty() {
        let is_ready = |table: &Table| {
            table
                .constraints
                .iter()
                .filter_map(|one| one.refers_to)
                .all(|to| to == table.id || created.contains(&to))
        };
        let next = tables.iter().position(is_ready).unwrap_or(0);
        let Table { id, name, columns, constraints } = tables.remove(next);
        let mut parts: Vec<String> = if columns.is_empty() { Vec::new() } else { vec![columns] };
        for one in constraints {
            if one.is_valid && one.refers_to.is_none_or(|to| to == id || created.contains(&to)) {
                parts.push(one.definition);
                continue;
            }
            added.push(format!("ALTER TABLE {name} ADD {} NOT VALID", one.definition));
            if one.is_valid {
                added.push(format!("ALTER TABLE ASYNC {name} VALIDATE CONSTRAINT {}", one.name));
            }
        }
        statements.push(format!("CREATE TABLE {name} (\n    {}\n)", parts.join(",\n    ")));
        created.insert(id);
    }
    statements.extend(added);
    statements
}

/// The definition of an index as the catalog has it, as a statement that creates it.
fn in_background(definition: &str) -> String {
    let statement = Statement::parse(definition);
    let words = statement.words();
    let text = statement.text();
    let (mut result, mut from) = (String::new(), 0);
    for pair in words.windows(2) {
        if pair[0].is("INDEX") && pair[0].depth == 0 && from == 0 {
            result = format!("{} ASYNC", &text[..pair[0].range.end]);
            from = pair[0].range.end;
        } else if pair[0].is("USING") && pair[0].depth == 0 {
            result += text[from..pair[0].range.start].trim_end();
            from = pair[1].range.end;
        }
    }
    result + &text[from..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(id: i64, refers_to: &[i64]) -> Table {
        let constraint = |to: &i64| Constraint {
            refers_to: Some(*to),
            name: format!("c{to}"),
            definition: format!("CONSTRAINT c{to} FOREIGN KEY (a) REFERENCES t{to} (id)"),
            is_valid: true,
        };
        Table {
            id,
            name: format!("t{id}"),
            columns: "id integer".to_owned(),
            constraints: refers_to.iter().map(constraint).collect(),
        }
    }

    #[test]
    fn tables_come_after_those_that_they_refer_to() {
        let heads = |tables: Vec<Table>| {
            in_order(tables)
                .iter()
                .map(|sql| sql.lines().next().unwrap_or_default().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            heads(vec![table(1, &[2, 1]), table(2, &[3]), table(3, &[])]),
            ["CREATE TABLE t3 (", "CREATE TABLE t2 (", "CREATE TABLE t1 ("]
        );
        assert_eq!(
            heads(vec![table(1, &[2]), table(2, &[1])]),
            [
                "CREATE TABLE t1 (",
                "CREATE TABLE t2 (",
                "ALTER TABLE t1 ADD CONSTRAINT c2 FOREIGN KEY (a) REFERENCES t2 (id) NOT VALID",
                "ALTER TABLE ASYNC t1 VALIDATE CONSTRAINT c2"
            ]
        );
    }

    #[test]
    fn an_index_is_written_as_it_is_created() {
        for (definition, expected) in [
            ("CREATE INDEX i ON public.t USING btree_index (a)", "CREATE INDEX ASYNC i ON public.t (a)"),
            (
                "CREATE UNIQUE INDEX \"I USING x\" ON s.t USING btree_index (lower(a)) INCLUDE (b) WHERE (a > ''::text)",
                "CREATE UNIQUE INDEX ASYNC \"I USING x\" ON s.t (lower(a)) INCLUDE (b) WHERE (a > ''::text)",
            ),
        ] {
            assert_eq!(in_background(definition), expected);
        }
    }
}
