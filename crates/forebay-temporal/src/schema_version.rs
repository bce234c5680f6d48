//! The version of the schema, its log, and the tables of the database: what tools for operators need.
//!
//! The database has a name of its own here, which the caller chooses: the tool of the original writes `postgres`, its server looks for
//! the configured name.

use crate::connection::Connection;
use crate::error::{Error, Result};
use crate::persistence::Persistence;

/// The version of the schema in a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaVersion {
    /// The version, such as `1.1`.
    pub current: String,
    /// The oldest version of the program that works with it.
    pub min_compatible: String,
}

/// An entry of the log of updates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaUpdate {
    /// The version before.
    pub old_version: String,
    /// The version after.
    pub new_version: String,
    /// The checksum of what was applied.
    pub manifest_md5: String,
    /// What was done.
    pub description: String,
}

const CREATE: [&str; 2] = [
    "CREATE TABLE IF NOT EXISTS schema_version (version_partition INTEGER NOT NULL, db_name VARCHAR(255) NOT NULL, \
     creation_time TIMESTAMP, curr_version VARCHAR(64), min_compatible_version VARCHAR(64), \
     PRIMARY KEY (version_partition, db_name))",
    "CREATE TABLE IF NOT EXISTS schema_update_history (version_partition INTEGER NOT NULL, year INTEGER NOT NULL, \
     month INTEGER NOT NULL, update_time TIMESTAMP NOT NULL, description VARCHAR(255), manifest_md5 VARCHAR(64), \
     new_version VARCHAR(64), old_version VARCHAR(64), PRIMARY KEY (version_partition, year, month, update_time))",
];
const READ: &str = "SELECT curr_version, min_compatible_version FROM schema_version \
     WHERE version_partition = 0 AND db_name = $1";
pub(crate) const UPDATE: &str = "INSERT INTO schema_version \
     (version_partition, db_name, creation_time, curr_version, min_compatible_version) \
     VALUES (0, $1, now() AT TIME ZONE 'UTC', $2, $3) \
     ON CONFLICT (version_partition, db_name) DO UPDATE SET creation_time = excluded.creation_time, \
     curr_version = excluded.curr_version, min_compatible_version = excluded.min_compatible_version";
pub(crate) const LOG: &str = "INSERT INTO schema_update_history \
     (version_partition, year, month, update_time, old_version, new_version, manifest_md5, description) \
     SELECT 0, extract(year FROM at)::integer, extract(month FROM at)::integer, at, $1::varchar, $2::varchar, $3::varchar, $4::varchar \
     FROM (SELECT now() AT TIME ZONE 'UTC') AS clock (at)";
const READ_LOG: &str = "SELECT old_version, new_version, manifest_md5, description FROM schema_update_history \
     WHERE version_partition = 0 ORDER BY year, month, update_time";
const LIST: &str = "SELECT table_name::varchar FROM information_schema.tables \
     WHERE table_schema = 'public' AND table_type = 'BASE TABLE' ORDER BY table_name";

/// Creates the tables of this module, unless they are there. Each is a transaction of its own.
///
/// # Errors
/// Those of the database.
///
/// # Cancel safety
/// One of them may be there. Call it again.
pub async fn create_tables(persistence: &Persistence) -> Result<()> {
    for sql in CREATE {
        execute(persistence, sql).await?;
    }
    Ok(())
}

/// Runs one statement of an operator's, such as DDL, as a transaction of its own. It is run again on a conflict.
///
/// # Errors
/// Those of the database.
///
/// # Cancel safety
/// It may have happened.
pub async fn execute(persistence: &Persistence, sql: &str) -> Result<()> {
    persistence.write("schema", |connection| async move { connection.batch(sql).await }).await
}

/// Reads the version of the database `db_name`.
///
/// # Errors
/// [`Error::NotFound`] if the database has none. If it cannot be read, that is an error of its own, and says nothing about the version.
///
/// # Cancel safety
/// Dropping the future changes nothing.
pub async fn read(connection: &Connection, db_name: &str) -> Result<SchemaVersion> {
    let row = connection.query_opt(READ, &[&db_name]).await?;
    let row = row.ok_or_else(|| Error::not_found("schema version of database", db_name))?;
    Ok(SchemaVersion { current: row.try_get(0)?, min_compatible: row.try_get(1)? })
}

/// Sets the version of the database `db_name`, as of now by the clock of the database.
///
/// # Errors
/// Those of the database.
///
/// # Cancel safety
/// Outside of a transaction, it may have been set.
pub async fn update(connection: &Connection, db_name: &str, version: &SchemaVersion) -> Result<()> {
    let SchemaVersion { current, min_compatible } = version;
    connection.execute(UPDATE, &[&db_name, current, min_compatible]).await?;
    Ok(())
}

/// Adds an entry to the log of updates, as of now by the clock of the database.
///
/// # Errors
/// [`Error::AlreadyExists`] for a second entry in one transaction: its time is the key. Those of the database.
///
/// # Cancel safety
/// Outside of a transaction, it may have been added.
pub async fn write_update_log(connection: &Connection, update: &SchemaUpdate) -> Result<()> {
    let SchemaUpdate { old_version, new_version, manifest_md5, description } = update;
    connection.execute(LOG, &[old_version, new_version, manifest_md5, description]).await?;
    Ok(())
}

/// Reads the log of updates, from the first to the last.
///
/// # Errors
/// Those of the database.
///
/// # Cancel safety
/// Dropping the future changes nothing.
pub async fn read_update_log(connection: &Connection) -> Result<Vec<SchemaUpdate>> {
    let rows = connection.query(READ_LOG, &[]).await?;
    let entry = |row: &tokio_postgres::Row| {
        Ok(SchemaUpdate {
            old_version: row.try_get(0)?,
            new_version: row.try_get(1)?,
            manifest_md5: row.try_get(2)?,
            description: row.try_get(3)?,
        })
    };
    rows.iter().map(entry).collect()
}

/// Lists the tables of the schema `public`.
///
/// # Errors
/// Those of the database.
///
/// # Cancel safety
/// Dropping the future changes nothing.
pub async fn list_tables(connection: &Connection) -> Result<Vec<String>> {
    let rows = connection.query(LIST, &[]).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// Drops a table of the schema `public`.
///
/// # Errors
/// Those of the database, also if there is no such table.
///
/// # Cancel safety
/// It may have been dropped.
pub async fn drop_table(persistence: &Persistence, table: &str) -> Result<()> {
    let sql = format!("DROP TABLE public.\"{}\"", table.replace('"', "\"\""));
    execute(persistence, &sql).await
}

/// Drops all tables of the schema `public`, each in a transaction of its own. Returns how many.
///
/// # Errors
/// Those of the database; some tables may be dropped then. Call it again.
///
/// # Cancel safety
/// Some tables are dropped, the others are not. Call it again.
pub async fn drop_all_tables(persistence: &Persistence) -> Result<usize> {
    let tables = persistence.read("list_tables", async |connection| list_tables(&connection).await).await?;
    for table in &tables {
        drop_table(persistence, table).await?;
    }
    Ok(tables.len())
}

/// Creates a database, which Aurora DSQL does not do.
///
/// # Errors
/// Always [`Error::Unsupported`].
pub fn create_database(_name: &str) -> Result<()> {
    let instead = "a cluster has one database, postgres; create a cluster with the AWS console or CLI";
    Err(Error::Unsupported { operation: "CreateDatabase", instead })
}

/// Drops a database, which Aurora DSQL does not do.
///
/// # Errors
/// Always [`Error::Unsupported`].
pub fn drop_database(_name: &str) -> Result<()> {
    let instead = "a cluster has one database, postgres; drop its tables, or delete the cluster with the AWS console or CLI";
    Err(Error::Unsupported { operation: "DropDatabase", instead })
}
