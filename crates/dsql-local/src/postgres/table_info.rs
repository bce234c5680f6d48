//! What a table is called and which of its columns can be written.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::backend::Backend;
use crate::engine::Oid;
use crate::error::SqlError;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct TableInfo {
    /// Its name, with its schema.
    pub(super) name: String,
    /// The columns that a new row is given.
    pub(super) written: Vec<String>,
    /// Those that can be changed later.
    pub(super) changed: Vec<String>,
    /// Which of all columns are its primary key.
    pub(super) key: Vec<usize>,
}

/// The tables of all tables that were looked up since the schema last changed.
#[derive(Debug, Default)]
pub(super) struct TableCache(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    tables: BTreeMap<Oid, Arc<TableInfo>>,
    /// How often the schema has changed, or has begun to.
    changes: u64,
    /// How many changes are under way: what is seen then may be over before it is kept.
    in_progress: u32,
}

/// A change of the schema, from before it can be seen until after. Ends when it is dropped.
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
    /// The schema changes.
    pub(super) fn change(&self) -> Change<'_> {
        let mut known = self.0.lock();
        known.in_progress += 1;
        known.changes += 1;
        known.tables.clear();
        Change(self)
    }

    /// Which schema a snapshot shows that is taken from now on; none if that is not sure.
    pub(super) fn version(&self) -> Option<u64> {
        let known = self.0.lock();
        (known.in_progress == 0).then_some(known.changes)
    }

    /// Whether a snapshot of that version shows the schema as it is.
    pub(super) fn is_current(&self, version: Option<u64>) -> bool {
        version == Some(self.0.lock().changes)
    }

    /// As `backend` sees it, whose snapshot is of that version.
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
