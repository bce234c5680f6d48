//! What a change of the schema may not leave behind: looked up in the catalog, in the transaction that made the change.
//!
//! The database has understood the statement by then, whatever it was; and what is refused is never committed.

use super::backend::{Backend, Body};
use super::request::Request;
use crate::error::SqlError;

/// The first thing that the service does not have: its SQLSTATE and what is said about it.
const AUDIT: &str = "
WITH supported (oid) AS (
  SELECT unnest('{bool,int2,int4,int8,float4,float8,numeric,bpchar,varchar,text,char,name,date,time,timetz,timestamp,
    timestamptz,interval,bytea,uuid,json,jsonb,oid}'::regtype[])::oid
), schemas AS (
  SELECT oid FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'
), columns AS (
  SELECT a.atttypid AS type, a.atttypmod - 4 AS size, a.attidentity AS identity, c.oid AS relation
  FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
  WHERE c.relnamespace IN (SELECT oid FROM schemas) AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
), types AS (
  SELECT type FROM columns WHERE type NOT IN (SELECT oid FROM pg_type WHERE typtype = 'd')
  UNION ALL SELECT typbasetype FROM pg_type WHERE typtype = 'd' AND typnamespace IN (SELECT oid FROM schemas)
)
SELECT '0A000', format('datatype %s not supported', format_type(type, NULL))
  FROM types WHERE type NOT IN (SELECT oid FROM supported)
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
  WHERE c.relnamespace IN (SELECT oid FROM schemas) AND i.indnkeyatts > 8
UNION ALL SELECT '0A000', 'datatype of a sequence other than bigint not supported'
  FROM pg_sequence s JOIN pg_class c ON c.oid = s.seqrelid
  WHERE c.relnamespace IN (SELECT oid FROM schemas) AND s.seqtypid <> 'int8'::regtype
UNION ALL SELECT '0A000', format('CACHE %s is not supported. please define CACHE greater than or equal to 65536 or equal to 1', seqcache)
  FROM pg_sequence WHERE seqcache BETWEEN 2 AND 65535
UNION ALL SELECT '54000', 'more than 10 schemas not allowed'
  FROM schemas HAVING count(*) > 11
LIMIT 1";

/// Whether all that is there could be there.
pub(super) async fn audit(backend: &mut Backend) -> Result<(), SqlError> {
    let mut found = Ok(());
    let take = |tag: u8, row: Body| {
        if tag == b'D' {
            let [code, message] = row.texts()?;
            found =
                Err(SqlError { code: super::backend::for_ever(&code), ..SqlError::new("XX000", message) });
        }
        Ok(())
    };
    backend.ask(Request::query(AUDIT), take).await?;
    found?;
    backend.run(ATTACH).await
}

/// The function that tells of every row that changes; see [`super::journal`].
pub(super) const REPORTER: &str = "
CREATE FUNCTION pg_catalog.dsql_report() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    RAISE INFO USING ERRCODE = 'DSQL1', TABLE = TG_RELID::text, CONSTRAINT = NEW.ctid::text, MESSAGE = NEW::text;
  ELSIF TG_OP = 'UPDATE' THEN
    RAISE INFO USING ERRCODE = 'DSQL1', TABLE = TG_RELID::text, COLUMN = OLD.ctid::text, CONSTRAINT = NEW.ctid::text,
      MESSAGE = NEW::text;
  ELSE
    RAISE INFO USING ERRCODE = 'DSQL1', TABLE = TG_RELID::text, COLUMN = OLD.ctid::text, MESSAGE = ' ';
  END IF;
  RETURN NULL;
END $$";

/// Gives it to every table that has it not. Triggers go by their names: a row is told of before what its change brings about
/// in other tables, as that must come later when it is done again; but after what its end brings about, which must come
/// before. Nobody who lists triggers sees them.
const ATTACH: &str = "
DO $$
DECLARE it regclass;
BEGIN
  FOR it IN
    SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind = 'r' AND n.nspname !~ '^pg_' AND n.nspname NOT IN ('information_schema', 'sys')
    AND NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = c.oid AND tgname = 'dsql_report')
  LOOP
    EXECUTE format('CREATE TRIGGER \"AA_dsql_report\" AFTER INSERT OR UPDATE ON %s FOR EACH ROW EXECUTE FUNCTION pg_catalog.dsql_report()', it);
    EXECUTE format('CREATE TRIGGER dsql_report AFTER DELETE ON %s FOR EACH ROW EXECUTE FUNCTION pg_catalog.dsql_report()', it);
    UPDATE pg_trigger SET tgisinternal = true WHERE tgrelid = it AND tgname IN ('AA_dsql_report', 'dsql_report');
  END LOOP;
END $$";
