//! The name and columns of a table.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::backend::Backend;
use crate::engine::Oid;
use crate::error::SqlError;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct TableInfo {
    pub(super) name: String,
    /// The columns that an INSERT can set.
    pub(super) written: Vec<String>,
    /// The columns that an UPDATE can set.
    pub(super) changed: Vec<String>,
    /// The positions of the primary key.
    pub(super) key: Vec<usize>,
}

/// The tables that were looked up since the last change of the schema.
#[derive(Debug, Default)]
pub(super) struct TableCache(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    tables: BTreeMap<Oid, Arc<TableInfo>>,
    /// How often a change of the schema has begun or ended.
    changes: u64,
    /// How many changes are in progress. What is read meanwhile may be outdated.
    in_progress: u32,
}

/// A change of the schema, from before it is visible until after. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Change<'a>(&'a TableCache);

impl Drop for Change<'_> {
    fn drop(&mut self) {
        let mut known = self.0.0.lock();
        known.in_progress -= 1;
        known.changes += 1;
        known.tables.clear();
    }
}

impl TableCache {
    /// Begins a change of the schema.
    pub(super) fn change(&self) -> Change<'_> {
        let mut known = self.0.lock();
        known.in_progress += 1;
        known.changes += 1;
        known.tables.clear();
        Change(self)
    }

    /// The schema version of a snapshot that is taken now; none during a change.
    pub(super) fn version(&self) -> Option<u64> {
        let known = self.0.lock();
        (known.in_progress == 0).then_some(known.changes)
    }

    /// Looks up a table in the snapshot of `backend`, which has this version.
    pub(super) async fn of(
        &self,
        table: Oid,
        version: Option<u64>,
        backend: &mut Backend,
    ) -> Result<Arc<TableInfo>, SqlError> {
        if version.is_some() && self.version() == version {
            let known = self.0.lock().tables.get(&table).cloned();
            if let Some(info) = known {
                return Ok(info);
            }
        }
        let info = Arc::new(look_up(table, backend).await?);
        let mut known = self.0.lock();
        if known.in_progress == 0 && version == Some(known.changes) {
            known.tables.insert(table, info.clone());
        }
        Ok(info)
    }
}

async fn look_up(table: Oid, backend: &mut Backend) -> Result<TableInfo, SqlError> {
    let sql = format!(
        "SELECT format('%I.%I', n.nspname, c.relname), quote_ident(a.attname), a.attidentity, a.attgenerated,
           EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary AND a.attnum = ANY (i.indkey))
         FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
         WHERE c.oid = {table} ORDER BY a.attnum"
    );
    let mut info =
        TableInfo { name: String::new(), written: Vec::new(), changed: Vec::new(), key: Vec::new() };
    for (position, row) in backend.rows(&sql).await?.into_iter().enumerate() {
        let [name, column, identity, generated, key] = row;
        info.name = name;
        if key == "t" {
            info.key.push(position);
        }
        if generated.is_empty() {
            if identity != "a" {
                info.changed.push(column.clone());
            }
            info.written.push(column);
        }
    }
    if info.written.is_empty() { Err(SqlError::schema_conflict()) } else { Ok(info) }
}
