//! What the catalog says about the schema.
//!
//! Each object is a line of text or several: its *facts*. Two states of a schema differ if their facts do. Whether an index is
//! valid is no fact: it changes by itself.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};
use tokio_postgres::{Client, Row};

/// The facts of a schema: the lines of each table, view, sequence, function, domain, schema and role. An index or a
/// constraint belongs to its table.
pub(crate) type Facts = BTreeMap<String, Vec<String>>;

/// Every statement of this crate leaves these out: what the server itself has.
pub(crate) const OWN_SCHEMAS: &str = "n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'sys')";

/// The facts. Parameter 1 are names: an object is read if it has one of them, or its table has. Without names all are read.
/// Parameter 2 is the prefix of the tables that this crate keeps.
///
/// The service has a primary key include all other columns; that says nothing about the key.
const FACTS: &str = r"
WITH relations AS (
  SELECT c.oid, c.relname, c.relkind, format('%I.%I', n.nspname, c.relname) AS full_name, c.relowner, c.relacl, c.reloptions, n.nspname
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  WHERE $OWN AND c.relkind IN ('r', 'v', 'S') AND NOT starts_with(c.relname, $2)
), named AS (
  SELECT r.* FROM relations r WHERE $1::text[] IS NULL OR r.relname = ANY ($1)
    OR r.oid IN (SELECT i.indrelid FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid WHERE x.relname = ANY ($1))
), facts AS (
  SELECT full_name AS object, 0 AS rank, 0 AS place,
    format('%s owned by %s%s%s%s', CASE relkind WHEN 'r' THEN 'table' WHEN 'v' THEN 'view' ELSE 'sequence' END, pg_get_userbyid(relowner),
      coalesce(' with ' || array_to_string(reloptions, ' '), ''),
      coalesce(' granted ' || (SELECT string_agg(a::text, ' ' ORDER BY a::text) FROM unnest(relacl) a), ''),
      coalesce(' comment ' || quote_literal(obj_description(oid, 'pg_class')), '')) AS fact
  FROM named
  UNION ALL
  SELECT full_name, 1, (row_number() OVER (PARTITION BY r.oid ORDER BY a.attnum))::int,
    format('column %I %s%s%s%s%s%s%s', a.attname, format_type(a.atttypid, a.atttypmod), CASE WHEN a.attnotnull THEN ' not null' ELSE '' END,
      CASE a.attgenerated WHEN '' THEN coalesce(' default ' || pg_get_expr(d.adbin, d.adrelid), '')
        ELSE ' generated ' || pg_get_expr(d.adbin, d.adrelid) END,
      CASE a.attidentity WHEN 'a' THEN ' identity always' WHEN 'd' THEN ' identity by default' ELSE '' END,
      CASE WHEN co.collname IS NOT NULL AND co.collname <> 'default' THEN ' collate ' || quote_ident(co.collname) ELSE '' END,
      coalesce(' granted ' || a.attacl::text, ''), coalesce(' comment ' || quote_literal(col_description(r.oid, a.attnum)), ''))
  FROM named r JOIN pg_catalog.pg_attribute a ON a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped
  LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = r.oid AND d.adnum = a.attnum
  LEFT JOIN pg_catalog.pg_collation co ON co.oid = a.attcollation
  WHERE r.relkind = 'r'
  UNION ALL
  SELECT full_name, 2, 0, format('constraint %I %s', k.conname,
    CASE k.contype WHEN 'p' THEN regexp_replace(pg_get_constraintdef(k.oid), ' INCLUDE \(.*\)$', '') ELSE pg_get_constraintdef(k.oid) END)
  FROM named r JOIN pg_catalog.pg_constraint k ON k.conrelid = r.oid
  UNION ALL
  SELECT full_name, 3, 0, 'index ' || pg_get_indexdef(i.indexrelid)
  FROM named r JOIN pg_catalog.pg_index i ON i.indrelid = r.oid AND NOT i.indisprimary
  UNION ALL
  SELECT full_name, 4, 0, 'defined as ' || pg_get_viewdef(oid) FROM named WHERE relkind = 'v'
  UNION ALL
  SELECT full_name, 4, 0, format('from %s to %s start %s by %s cache %s%s', s.seqmin, s.seqmax, s.seqstart, s.seqincrement, s.seqcache,
    CASE WHEN s.seqcycle THEN ' cycle' ELSE '' END)
  FROM named r JOIN pg_catalog.pg_sequence s ON s.seqrelid = r.oid
  UNION ALL
  SELECT format('%I.%I(%s)', n.nspname, p.proname, pg_get_function_identity_arguments(p.oid)), 0, 0,
    format('function owned by %s%s%s %s', pg_get_userbyid(p.proowner), coalesce(' granted ' || p.proacl::text, ''),
      coalesce(' comment ' || quote_literal(obj_description(p.oid, 'pg_proc')), ''), pg_get_functiondef(p.oid))
  FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
  WHERE $OWN AND p.prokind = 'f' AND ($1::text[] IS NULL OR p.proname = ANY ($1))
  UNION ALL
  SELECT format('%I.%I', n.nspname, t.typname), 0, 0, format('domain owned by %s over %s%s%s%s', pg_get_userbyid(t.typowner),
      format_type(t.typbasetype, t.typtypmod), CASE WHEN t.typnotnull THEN ' not null' ELSE '' END, coalesce(' default ' || t.typdefault, ''),
      coalesce((SELECT string_agg(format(' %I %s', k.conname, pg_get_constraintdef(k.oid)), '' ORDER BY k.conname) FROM pg_catalog.pg_constraint k
        WHERE k.contypid = t.oid), ''))
  FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
  WHERE $OWN AND t.typtype = 'd' AND ($1::text[] IS NULL OR t.typname = ANY ($1))
  UNION ALL
  SELECT format('schema %I', n.nspname), 0, 0, format('schema owned by %s%s%s', pg_get_userbyid(n.nspowner),
    coalesce(' granted ' || n.nspacl::text, ''), coalesce(' comment ' || quote_literal(obj_description(n.oid, 'pg_namespace')), ''))
  FROM pg_catalog.pg_namespace n WHERE $OWN AND ($1::text[] IS NULL OR n.nspname = ANY ($1))
  UNION ALL
  SELECT format('role %I', r.rolname), 0, 0, format('role %s%s%s', CASE WHEN r.rolcanlogin THEN 'login' ELSE 'nologin' END,
    CASE WHEN r.rolcreaterole THEN ' createrole' ELSE '' END, coalesce(' member of ' || (SELECT string_agg(g.rolname, ' ' ORDER BY g.rolname)
      FROM pg_catalog.pg_auth_members m JOIN pg_catalog.pg_roles g ON g.oid = m.roleid WHERE m.member = r.oid), ''))
  FROM pg_catalog.pg_roles r WHERE r.rolname = ANY ($1)
  UNION ALL
  SELECT 'default privileges', 0, 0, format('%s %s %s %s', pg_get_userbyid(d.defaclrole), d.defaclnamespace, d.defaclobjtype, d.defaclacl::text)
  FROM pg_catalog.pg_default_acl d WHERE $1::text[] IS NOT NULL
  UNION ALL
  SELECT format('statistics %I.%I', n.nspname, s.stxname), 0, 0, format('statistics on %s %s %s', s.stxrelid::regclass, s.stxkeys, s.stxstattarget)
  FROM pg_catalog.pg_statistic_ext s JOIN pg_catalog.pg_namespace n ON n.oid = s.stxnamespace
  WHERE $OWN AND ($1::text[] IS NULL OR s.stxname = ANY ($1) OR s.stxrelid IN (SELECT oid FROM named))
)
SELECT object, fact FROM facts ORDER BY object, rank, place, fact";

/// The facts of what these names name, or of everything.
pub(crate) async fn facts(
    client: &Client,
    names: Option<&[String]>,
    own: &str,
) -> Result<Facts, forebay_dsql::Error> {
    let sql = FACTS.replace("$OWN", OWN_SCHEMAS);
    let mut facts = Facts::new();
    for row in client.query(&sql, &[&names, &own]).await? {
        facts.entry(row.try_get(0)?).or_default().push(row.try_get(1)?);
    }
    Ok(facts)
}

/// One text for all of them, which differs if they do.
pub(crate) fn digest(facts: &Facts) -> String {
    let mut hash = Sha256::new();
    for (object, lines) in facts {
        for line in lines {
            // Lengths keep apart what is next to each other.
            hash.update(format!("{}:{object}{}:{line}", object.len(), line.len()));
        }
    }
    hex::encode(hash.finalize())
}

/// The names of the columns of a table, in their order; none if there is no such table.
pub(crate) async fn columns(client: &Client, table: &str) -> Result<Vec<String>, forebay_dsql::Error> {
    let sql = "SELECT attname::text FROM pg_catalog.pg_attribute
               WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped ORDER BY attnum";
    let rows = client.query(sql, &[&table]).await?;
    rows.iter().map(|row| row.try_get(0).map_err(Into::into)).collect()
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    /// Quoted, with its schema.
    pub(crate) full_name: String,
    pub(crate) schema: String,
    pub(crate) name: String,
}

/// All tables but those of this crate.
pub(crate) async fn tables(client: &Client, own: &str) -> Result<Vec<Table>, forebay_dsql::Error> {
    let sql = format!(
        "SELECT format('%I.%I', n.nspname, c.relname), n.nspname::text, c.relname::text FROM pg_catalog.pg_class c
         JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
         WHERE {OWN_SCHEMAS} AND c.relkind = 'r' AND NOT starts_with(c.relname, $1) ORDER BY 1"
    );
    let rows = client.query(&sql, &[&own]).await?;
    let table =
        |row: &Row| Ok(Table { full_name: row.try_get(0)?, schema: row.try_get(1)?, name: row.try_get(2)? });
    rows.iter().map(table).collect()
}

/// The domains, whose names columns may have as their types.
pub(crate) async fn domains(client: &Client) -> Result<Vec<String>, forebay_dsql::Error> {
    let sql = "SELECT typname::text FROM pg_catalog.pg_type WHERE typtype = 'd'";
    let rows = client.query(sql, &[]).await?;
    rows.iter().map(|row| row.try_get(0).map_err(Into::into)).collect()
}

/// A constraint that is not known to hold for all rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unvalidated {
    /// Quoted, with its table and schema.
    pub(crate) full_name: String,
    /// The full name of its table.
    pub(crate) table: String,
    pub(crate) name: String,
    /// What is said about it in the facts of its table.
    pub(crate) fact: String,
}

/// Constraints that are not known to hold for all rows.
pub(crate) async fn unvalidated_constraints(
    client: &Client,
) -> Result<Vec<Unvalidated>, forebay_dsql::Error> {
    let sql = format!(
        "SELECT format('%I.%I.%I', n.nspname, c.relname, k.conname), format('%I.%I', n.nspname, c.relname), k.conname::text,
           format('constraint %I %s', k.conname, pg_get_constraintdef(k.oid)) FROM pg_catalog.pg_constraint k
         JOIN pg_catalog.pg_class c ON c.oid = k.conrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
         WHERE {OWN_SCHEMAS} AND NOT k.convalidated ORDER BY 1"
    );
    let rows = client.query(&sql, &[]).await?;
    let constraint = |row: &Row| {
        Ok(Unvalidated {
            full_name: row.try_get(0)?,
            table: row.try_get(1)?,
            name: row.try_get(2)?,
            fact: row.try_get(3)?,
        })
    };
    rows.iter().map(constraint).collect()
}
