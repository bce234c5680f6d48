//! Checks the catalog after a change of the schema, in the same transaction.
//!
//! PostgreSQL has parsed the statement by then, so nothing needs to be parsed here. What is refused is never
//! committed.

use super::backend::{Backend, intern};
use crate::config::Rules;
use crate::engine::{Description, Oid};
use crate::error::SqlError;

/// Finds the first object that the service does not support: SQLSTATE and message. `$spec` is whether the
/// narrower rules apply.
const AUDIT: &str = "
WITH supported (oid) AS (
  SELECT unnest('{bool,int2,int4,int8,float4,float8,numeric,bpchar,varchar,text,char,name,date,time,timetz,timestamp,
    timestamptz,interval,bytea,uuid,json,jsonb,oid}'::regtype[])::oid
), columns AS (
  SELECT a.atttypid AS type, a.atttypmod - 4 AS size, a.attidentity AS identity, c.oid AS relation
  FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
  WHERE c.relnamespace IN (SELECT oid FROM dsql_local_schemas) AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
), keys AS (
  SELECT i.indexrelid AS index, k.at, a.atttypid AS type, a.atttypmod - 4 AS size, i.indclass[k.at - 1] AS class
  FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid AND c.relnamespace IN (SELECT oid FROM dsql_local_schemas)
  CROSS JOIN generate_series(1, i.indnkeyatts) k (at) JOIN pg_attribute a ON a.attrelid = i.indexrelid AND a.attnum = k.at
), types AS (
  SELECT type FROM columns WHERE type NOT IN (SELECT oid FROM pg_type WHERE typtype = 'd')
  UNION ALL SELECT typbasetype FROM pg_type WHERE typtype = 'd' AND typnamespace IN (SELECT oid FROM dsql_local_schemas)
)
SELECT '0A000', format('datatype %s not supported', format_type(type, NULL))
  FROM types WHERE type NOT IN (SELECT oid FROM supported) OR $spec AND type = 'jsonb'::regtype
UNION ALL SELECT '0A000', format('datatype %s not supported, identity column type must be bigint', format_type(type, NULL))
  FROM columns WHERE identity <> '' AND type <> 'int8'::regtype
UNION ALL SELECT '54000', 'Datatype limit greater than 65535 bytes not supported for varchar'
  FROM columns WHERE type = 'varchar'::regtype AND size > 65535
UNION ALL SELECT '54000', 'Datatype limit greater than 4096 bytes not supported for char'
  FROM columns WHERE type = 'bpchar'::regtype AND size > 4096
UNION ALL SELECT '54011', 'tables can have at most 255 columns'
  FROM columns GROUP BY relation HAVING count(*) > 255
UNION ALL SELECT '54011', 'more than 8 column keys in an index are not supported'
  FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
  WHERE c.relnamespace IN (SELECT oid FROM dsql_local_schemas) AND i.indnkeyatts > 8
UNION ALL SELECT '54000', 'more than 24 indexes per table are not allowed'
  FROM pg_index WHERE indrelid IN (SELECT relation FROM columns) GROUP BY indrelid HAVING count(*) > 24
UNION ALL SELECT '0A000', format('datatype %s is not supported in a key', format_type(type, NULL))
  FROM keys WHERE type IN ('json'::regtype, 'jsonb'::regtype) 
    OR $spec AND type = 'bytea'::regtype AND index IN (SELECT index FROM keys WHERE at = 2)
UNION ALL SELECT '0A000', 'opclass not supported for index keys'
  FROM keys JOIN pg_opclass o ON o.oid = class WHERE NOT o.opcdefault
UNION ALL SELECT '54000', 'key size greater than 2000 bytes not supported'
  FROM keys WHERE type IN ('varchar'::regtype, 'bpchar'::regtype) GROUP BY index HAVING sum(size) > 2000
UNION ALL SELECT '22023', 'sequence type must be bigint'
  FROM pg_sequence s JOIN pg_class c ON c.oid = s.seqrelid
  WHERE c.relnamespace IN (SELECT oid FROM dsql_local_schemas) AND s.seqtypid <> 'int8'::regtype
UNION ALL SELECT '22023', format('CACHE (%s) must be greater than or equal to 65536 or equal to 1', seqcache)
  FROM pg_sequence WHERE seqcache BETWEEN 2 AND 65535
UNION ALL SELECT '54000', 'more than 10 schemas not allowed'
  FROM dsql_local_schemas HAVING count(*) > 11
LIMIT 1";

/// Types that the service does not support even in queries.
const GEOMETRIC: &[(Oid, &str)] = &[
    (600, "point"),
    (601, "lseg"),
    (602, "path"),
    (603, "box"),
    (604, "polygon"),
    (628, "line"),
    (718, "circle"),
];

/// Sets the default precision of numeric columns, and attaches the trigger to new tables.
const FINISH_DDL: &str =
    "SELECT pg_catalog.dsql_local_bare_numerics(); SELECT pg_catalog.dsql_local_attach()";

/// Checks that the service could have this schema.
pub(super) async fn audit(backend: &mut Backend, rules: Rules) -> Result<(), SqlError> {
    backend.run(FINISH_DDL).await?;
    let spec = if rules == Rules::Spec { "true" } else { "false" };
    refuse(backend, &AUDIT.replace("$spec", spec)).await
}

/// Checks that the service could return these types.
pub(super) fn check_results(description: &Description) -> Result<(), SqlError> {
    let types = description.columns.iter().flatten().map(|column| column.oid);
    match types.into_iter().find_map(|oid| GEOMETRIC.iter().find(|(known, _)| *known == oid)) {
        Some((_, name)) => Err(SqlError::unsupported(format!("datatype {name} not supported"))),
        None => Ok(()),
    }
}

/// Fails with the row that a query returns, if there is one: SQLSTATE and message.
pub(super) async fn refuse(backend: &mut Backend, question: &str) -> Result<(), SqlError> {
    match backend.rows(question).await?.pop() {
        Some([code, message]) => Err(SqlError::new(intern(&code), message)),
        None => Ok(()),
    }
}
