//! The commit of a transaction.

use std::collections::BTreeSet;

use super::{OccTransaction, Work, is_key_violation, is_lock_timeout_or_cancel};
use crate::engine::Oid;
use crate::error::SqlError;
use crate::postgres::backend::Body;
use crate::postgres::commits::LocksAndDeletes;
use crate::postgres::record::{self, Key, key};
use crate::postgres::request::Request;
use crate::postgres::schema_versions::ChangedRelations;

/// The largest size of a transaction in bytes. It is checked at the commit.
pub(super) const SIZE_LIMIT: usize = 10 << 20;

/// The relations that a transaction has changed. A change of the definition takes a lock; a GRANT takes none, but
/// writes the relation's entry. The entries of the transaction are younger than the transaction.
const CHANGED: &str = "
SELECT relation FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'relation' AND mode <> 'AccessShareLock'
UNION SELECT oid FROM pg_class WHERE xmin::text::bigint >= pg_current_xact_id()::text::bigint";

/// Translates an error at the commit; `others` is whether another transaction may have committed.
fn as_conflict(error: SqlError, others: bool) -> SqlError {
    let conflict =
        error.code == "40001" || is_lock_timeout_or_cancel(&error) || (others && is_key_violation(&error));
    if conflict && error != SqlError::schema_conflict() { SqlError::change_conflict() } else { error }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Made,
    Gone,
}

impl OccTransaction {
    /// Commits the transaction.
    pub(in crate::postgres) async fn commit(&mut self) -> Result<(), SqlError> {
        if !self.begun {
            return Ok(());
        }
        self.check_schema_version()?;
        if self.log.size > SIZE_LIMIT {
            return Err(SqlError::too_large(self.log.size));
        }
        let did_something = !self.log.entries.is_empty() || self.schema_change.is_some();
        match self.work {
            Work::Undone if did_something => {
                self.reapply().await.map_err(|error| as_conflict(error, true))?;
            }
            Work::Applied | Work::Undone => {}
            Work::Conflicted(_) => return Err(SqlError::change_conflict()),
        }
        self.check_locks_and_deletes().await?;
        // A deferred constraint may fail because of another transaction, and then it is too late to undo
        // anything.
        let others = self.inner.commits.any_since(self.mark);
        self.commit_on_server().await.map_err(|error| as_conflict(error, others))
    }

    /// The primary keys that the transaction has inserted or deleted.
    async fn keys(&mut self, of: Side) -> Result<BTreeSet<(Oid, Key)>, SqlError> {
        let mut keys = BTreeSet::new();
        for entry in &self.log.entries {
            let (old, new) = (entry.change.before(), entry.change.after());
            let (Some(values), other) = (if of == Side::Made { (new, old) } else { (old, new) }) else {
                continue;
            };
            let table = self.inner.tables.of(entry.table, self.version, &mut self.backend).await?;
            let key = key(values, &table.key);
            let kept = other.is_some_and(|other| record::key(other, &table.key) == key);
            if !table.key.is_empty() && !kept {
                keys.insert((entry.table, key));
            }
        }
        Ok(keys)
    }

    /// Fails if a commit outside of the snapshot has locked or deleted the same rows.
    async fn check_locks_and_deletes(&mut self) -> Result<(), SqlError> {
        let inner = self.inner.clone();
        if !inner.commits.has_recent(self.mark) {
            return Ok(());
        }
        let made = self.keys(Side::Made).await?;
        let conflicting = inner.commits.conflicting(&self.log, &made, self.mark);
        if conflicting.is_empty() {
            return Ok(());
        }
        let sql = format!(
            "SELECT bool_and(pg_visible_in_snapshot(xid::xid8, pg_current_snapshot())) FROM unnest('{{{}}}'::text[]) xid",
            conflicting.join(",")
        );
        if self.backend.values(&sql).await? == ["t"] { Ok(()) } else { Err(SqlError::change_conflict()) }
    }

    /// The relations that its DDL has changed. The names before the change are those that others still see.
    async fn changed_relations(&mut self) -> Result<ChangedRelations, SqlError> {
        let oids = self.backend.values(CHANGED).await?.join(",");
        let named = format!(
            "SELECT n.nspname, c.relname FROM pg_class c JOIN dsql_local_schemas n ON n.oid = c.relnamespace
             WHERE c.oid = ANY ('{{{oids}}}'::oid[]) AND c.relkind IN ('r', 'v')"
        );
        let names = |rows: Vec<[String; 2]>| rows.into_iter().map(<(String, String)>::from).collect();
        let after = names(self.backend.rows(&named).await?);
        let mut other = self.inner.backend(&self.backend.role, &[]).await?;
        let before = other.rows(&named).await;
        self.inner.release(other);
        Ok(ChangedRelations { before: names(before?), after })
    }

    async fn commit_on_server(&mut self) -> Result<(), SqlError> {
        let inner = self.inner.clone();
        let changed = match self.schema_change {
            Some(_) => Some(self.changed_relations().await?),
            None => None,
        };
        let change = changed.as_ref().map(|changed| {
            inner.schema.record(changed);
            inner.tables.change()
        });
        let mut effects = LocksAndDeletes::of(&self.log);
        effects.gone = self.keys(Side::Gone).await?;
        let xid = match effects.is_empty() {
            true => String::new(),
            false => self.backend.values("SELECT pg_current_xact_id()").await?.concat(),
        };
        let in_progress = inner.commits.begin(effects, xid, inner.locks.oldest());
        let mut committed = false;
        let take = |tag: u8, Body(body): Body| {
            committed |= tag == b'C' && body.starts_with(b"COMMIT");
            Ok(())
        };
        let asked = self.backend.request(Request::query("COMMIT"), take).await;
        drop(change);
        if let Some(changed) = &changed {
            self.schema = inner.schema.record(changed);
        }
        if asked.is_ok() && committed {
            return Ok(());
        }
        in_progress.failed();
        asked.and(Err(SqlError::unavailable()))
    }
}
