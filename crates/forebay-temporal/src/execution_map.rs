//! The maps of an execution: seven tables with one row for each entry.
//!
//! All of them work alike, so each operation is written once, for a [`MapTable`]. A call writes or deletes all its entries with one
//! statement, which gets them as arrays: Aurora DSQL has arrays in statements, though not in tables.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::LazyLock;

use tokio_postgres::Row;
use tokio_postgres::types::{FromSqlOwned, ToSql};

use crate::batch;
use crate::blob::Blob;
use crate::connection::{Connection, Value};
use crate::error::Result;
use crate::execution::{RUN, RunKey};
use crate::persistence::Persistence;

/// One of the seven tables.
pub trait MapTable: table::Sealed {
    /// What names an entry within its run.
    type Key: MapKey;
    /// What an entry holds.
    type Value: MapValue;
}

/// The key of an entry: a number or a text.
pub trait MapKey: FromSqlOwned + ToSql + Ord + Clone + Sync + Send + fmt::Debug + 'static {}

impl MapKey for i64 {}
impl MapKey for String {}

/// What an entry holds beside its key: some columns.
pub trait MapValue: value::Sealed + Sync + Send {}

impl MapValue for Blob {}
impl MapValue for ChasmNode {}
impl MapValue for () {}

/// A node of a chasm tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChasmNode {
    /// What is known of the node.
    pub metadata: Blob,
    /// The node itself, if it has data.
    pub data: Option<Blob>,
}

mod table {
    pub trait Sealed: 'static {
        fn sql() -> &'static super::Sql;
    }
}

mod value {
    use tokio_postgres::Row;
    use tokio_postgres::types::ToSql;

    use super::{Blob, ChasmNode};
    use crate::error::Result;

    /// The values of one column, for all entries.
    pub(super) type Column<'a> = Box<dyn ToSql + Sync + Send + 'a>;

    pub trait Sealed: Sized {
        /// Names and types of its columns.
        const COLUMNS: &'static [(&'static str, &'static str)];

        fn columns<'a>(values: impl Iterator<Item = &'a Self> + Clone) -> Vec<Column<'a>>
        where
            Self: 'a;

        /// From the columns of a row, which begin with number `at`.
        fn read(row: &Row, at: usize) -> Result<Self>;
    }

    impl Sealed for Blob {
        const COLUMNS: &'static [(&'static str, &'static str)] =
            &[("data", "bytea"), ("data_encoding", "varchar")];

        fn columns<'a>(values: impl Iterator<Item = &'a Self> + Clone) -> Vec<Column<'a>> {
            let data: Vec<&[u8]> = values.clone().map(|blob| &*blob.data).collect();
            let encodings: Vec<&str> = values.map(|blob| &*blob.encoding).collect();
            vec![Box::new(data), Box::new(encodings)]
        }

        fn read(row: &Row, at: usize) -> Result<Self> {
            Self::read(row, at)
        }
    }

    impl Sealed for ChasmNode {
        const COLUMNS: &'static [(&'static str, &'static str)] = &[
            ("metadata", "bytea"),
            ("metadata_encoding", "varchar"),
            ("data", "bytea"),
            ("data_encoding", "varchar"),
        ];

        fn columns<'a>(values: impl Iterator<Item = &'a Self> + Clone) -> Vec<Column<'a>> {
            let mut columns = Blob::columns(values.clone().map(|node| &node.metadata));
            let data: Vec<Option<&[u8]>> =
                values.clone().map(|node| node.data.as_ref().map(|blob| &*blob.data)).collect();
            // Empty, not NULL: the plugin in Go cannot read a NULL here.
            let encodings: Vec<&str> =
                values.map(|node| node.data.as_ref().map_or("", |blob| &*blob.encoding)).collect();
            columns.extend([Box::new(data) as Column<'a>, Box::new(encodings)]);
            columns
        }

        fn read(row: &Row, at: usize) -> Result<Self> {
            let data: Option<Vec<u8>> = row.try_get(at + 2)?;
            let data = data.map(|_| Blob::read(row, at + 2)).transpose()?;
            Ok(Self { metadata: Blob::read(row, at)?, data })
        }
    }

    impl Sealed for () {
        const COLUMNS: &'static [(&'static str, &'static str)] = &[];

        fn columns<'a>(_: impl Iterator<Item = &'a Self> + Clone) -> Vec<Column<'a>> {
            Vec::new()
        }

        fn read(_: &Row, _: usize) -> Result<()> {
            Ok(())
        }
    }
}

/// Private, so that nobody can name what the sealed traits return.
mod sql {
    /// The statements for one table.
    #[derive(Debug)]
    pub struct Sql {
        pub(super) replace: String,
        pub(super) select_all: String,
        pub(super) delete: String,
        pub(super) delete_all: String,
        pub(super) delete_some: String,
    }
}

use sql::Sql;

impl Sql {
    fn new<V: MapValue>(table: &str, key: &str, key_type: &str) -> Self {
        let columns: Vec<&str> = V::COLUMNS.iter().map(|(column, _)| *column).collect();
        let listed: String =
            std::iter::once(key).chain(columns.iter().copied()).collect::<Vec<_>>().join(", ");
        let types = std::iter::once(key_type).chain(V::COLUMNS.iter().map(|(_, of)| *of));
        let arrays: Vec<String> = types.enumerate().map(|(at, of)| format!("${}::{of}[]", at + 5)).collect();
        let set: Vec<String> = columns.iter().map(|column| format!("{column} = excluded.{column}")).collect();
        let otherwise =
            if set.is_empty() { "NOTHING".to_owned() } else { format!("UPDATE SET {}", set.join(", ")) };
        Self {
            replace: format!(
                "INSERT INTO {table} (shard_id, namespace_id, workflow_id, run_id, {listed}) \
                 SELECT $1::integer, $2::uuid, $3::varchar, $4::uuid, {listed} FROM unnest({}) AS entry ({listed}) \
                 ON CONFLICT (shard_id, namespace_id, workflow_id, run_id, {key}) DO {otherwise}",
                arrays.join(", ")
            ),
            select_all: format!("SELECT {listed} FROM {table} WHERE {RUN} ORDER BY {key}"),
            delete: format!("DELETE FROM {table} WHERE {RUN} AND {key} = ANY($5)"),
            delete_all: format!("DELETE FROM {table} WHERE {RUN}"),
            delete_some: format!(
                "DELETE FROM {table} WHERE {RUN} AND {key} IN (SELECT {key} FROM {table} WHERE {RUN} LIMIT $5)"
            ),
        }
    }
}

macro_rules! tables {
    ($($(#[$doc:meta])* $name:ident: $table:literal, $key:literal, $of:ty as $sql:literal => $value:ty;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug)]
            pub enum $name {}

            impl MapTable for $name {
                type Key = $of;
                type Value = $value;
            }

            impl table::Sealed for $name {
                fn sql() -> &'static Sql {
                    static SQL: LazyLock<Sql> = LazyLock::new(|| Sql::new::<$value>($table, $key, $sql));
                    &SQL
                }
            }
        )*
    };
}

tables! {
    /// Activities, by the event that scheduled them.
    ActivityInfos: "activity_info_maps", "schedule_id", i64 as "bigint" => Blob;
    /// Timers, by their id.
    TimerInfos: "timer_info_maps", "timer_id", String as "varchar" => Blob;
    /// Child workflows, by the event that initiated them.
    ChildExecutionInfos: "child_execution_info_maps", "initiated_id", i64 as "bigint" => Blob;
    /// Requests to cancel other workflows, by the event that initiated them.
    RequestCancelInfos: "request_cancel_info_maps", "initiated_id", i64 as "bigint" => Blob;
    /// Signals to other workflows, by the event that initiated them.
    SignalInfos: "signal_info_maps", "initiated_id", i64 as "bigint" => Blob;
    /// The ids of signals that were received: a set.
    SignalsRequested: "signals_requested_sets", "signal_id", String as "varchar" => ();
    /// Nodes of the chasm tree, by their path.
    ChasmNodes: "chasm_node_maps", "chasm_path", String as "varchar" => ChasmNode;
}

/// The entries of one map of one run.
pub type Entries<T> = BTreeMap<<T as MapTable>::Key, <T as MapTable>::Value>;

/// Inserts entries, or replaces those that are there, with one statement.
///
/// # Errors
/// Those of the database; [`Error::TooLarge`](crate::Error::TooLarge) beyond what fits into one transaction.
///
/// # Cancel safety
/// Outside of a transaction, they may have been written.
pub async fn replace<T: MapTable>(connection: &Connection, run: &RunKey, entries: &Entries<T>) -> Result<()> {
    if entries.is_empty() {
        return Ok(());
    }
    let keys: Vec<&T::Key> = entries.keys().collect();
    let columns = <T::Value as value::Sealed>::columns(entries.values());
    let mut values = run.values().to_vec();
    values.push(&keys);
    values.extend(columns.iter().map(|column| &**column as Value<'_>));
    connection.execute(&T::sql().replace, &values).await?;
    Ok(())
}

/// Reads all entries.
///
/// # Errors
/// Those of the database.
///
/// # Cancel safety
/// Dropping the future changes nothing.
pub async fn select_all<T: MapTable>(connection: &Connection, run: &RunKey) -> Result<Entries<T>> {
    read::<T>(&connection.query(select_all_sql::<T>(), &run.values()).await?)
}

/// Deletes entries, with one statement. Returns how many there were.
///
/// # Errors
/// Those of the database.
///
/// # Cancel safety
/// Outside of a transaction, they may have been deleted.
pub async fn delete<T: MapTable>(
    connection: &Connection,
    run: &RunKey,
    keys: &BTreeSet<T::Key>,
) -> Result<u64> {
    if keys.is_empty() {
        return Ok(0);
    }
    let keys: Vec<&T::Key> = keys.iter().collect();
    let mut values = run.values().to_vec();
    values.push(&keys);
    connection.execute(&T::sql().delete, &values).await
}

/// Deletes all entries, with one statement. Returns how many there were. For more than fit into one transaction there is
/// [`delete_all_in_batches`].
///
/// # Errors
/// [`Error::TooLarge`](crate::Error::TooLarge) if there are too many.
///
/// # Cancel safety
/// Outside of a transaction, they may have been deleted.
pub async fn delete_all<T: MapTable>(connection: &Connection, run: &RunKey) -> Result<u64> {
    connection.execute(&T::sql().delete_all, &run.values()).await
}

/// Deletes all entries, however many, in several transactions. Whoever is interrupted calls it again.
///
/// # Errors
/// Those of the database; some entries may be deleted then.
///
/// # Cancel safety
/// Some entries are deleted, the others are not. Call it again.
pub async fn delete_all_in_batches<T: MapTable>(persistence: &Persistence, run: &RunKey) -> Result<u64> {
    let delete = |connection: Connection, limit: usize| async move {
        let limit = batch::limit(limit);
        let mut values = run.values().to_vec();
        values.push(&limit);
        connection.execute(&T::sql().delete_some, &values).await
    };
    persistence.delete_in_batches("delete_execution_map", delete).await
}

pub(crate) fn select_all_sql<T: MapTable>() -> &'static str {
    &T::sql().select_all
}

/// The entries that [`select_all_sql`] returns.
pub(crate) fn read<T: MapTable>(rows: &[Row]) -> Result<Entries<T>> {
    let entry = |row: &Row| Ok((row.try_get(0)?, <T::Value as value::Sealed>::read(row, 1)?));
    rows.iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_name_the_columns_of_their_table() {
        let sql = <ChasmNodes as table::Sealed>::sql();
        assert_eq!(
            sql.replace,
            "INSERT INTO chasm_node_maps (shard_id, namespace_id, workflow_id, run_id, \
             chasm_path, metadata, metadata_encoding, data, data_encoding) \
             SELECT $1::integer, $2::uuid, $3::varchar, $4::uuid, \
             chasm_path, metadata, metadata_encoding, data, data_encoding \
             FROM unnest($5::varchar[], $6::bytea[], $7::varchar[], $8::bytea[], $9::varchar[]) \
             AS entry (chasm_path, metadata, metadata_encoding, data, data_encoding) \
             ON CONFLICT (shard_id, namespace_id, workflow_id, run_id, chasm_path) DO UPDATE SET \
             metadata = excluded.metadata, metadata_encoding = excluded.metadata_encoding, \
             data = excluded.data, data_encoding = excluded.data_encoding"
        );
        let set = <SignalsRequested as table::Sealed>::sql();
        assert!(set.replace.ends_with("run_id, signal_id) DO NOTHING"), "{}", set.replace);
    }
}
