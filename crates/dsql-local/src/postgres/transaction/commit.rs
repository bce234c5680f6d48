//! How a transaction ends for good.

use std::collections::BTreeSet;

use super::{Hold, Transaction, is_dislodged, is_in_the_way};
use crate::engine::Oid;
use crate::error::SqlError;
use crate::postgres::backend::Body;
use crate::postgres::commits::Unseen;
use crate::postgres::record::{self, Key, key};
use crate::postgres::request::Request;

/// How many bytes it may write. It is told so at its commit.
pub(super) const SIZE_LIMIT: usize = 10 << 20;

/// What it means at a commit that another was in the way; `others` is whether anybody may have been.
fn as_conflict(error: SqlError, others: bool) -> SqlError {
    let conflict = error.code == "40001" || is_dislodged(&error) || (others && is_in_the_way(&error));
    if conflict && error != SqlError::schema_conflict() { SqlError::change_conflict() } else { error }
}

/// Which keys are asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Made,
    Gone,
}

impl Transaction {
    /// Makes all of it durable.
    pub(in crate::postgres) async fn commit(&mut self) -> Result<(), SqlError> {
        if !self.begun {
            return Ok(());
        }
        self.check_epoch()?;
        if self.journal.size() > SIZE_LIMIT {
            return Err(SqlError::too_large(self.journal.size()));
        }
        let did_something = !self.journal.is_empty() || self.schema_change.is_some();
        match self.hold {
            Hold::Nothing if did_something => {
                self.restore().await.map_err(|error| as_conflict(error, true))?;
            }
            Hold::All | Hold::Nothing => {}
            Hold::Doomed(_) => return Err(SqlError::change_conflict()),
        }
        self.check_unseen().await?;
        // What is only checked at the end may be in another's way, too; and by then there is nothing left to undo.
        let others = self.inner.commits.any_since(self.mark);
        self.seal().await.map_err(|error| as_conflict(error, others))
    }

    /// The keys that were not there before, or are there no more.
    async fn keys(&mut self, of: Side) -> Result<BTreeSet<(Oid, Key)>, SqlError> {
        let mut keys = BTreeSet::new();
        for entry in self.journal.entries() {
            let (old, new) = (entry.change.before(), entry.change.after());
            let (Some(values), other) = (if of == Side::Made { (new, old) } else { (old, new) }) else {
                continue;
            };
            let shape = self.inner.shapes.of(entry.table, self.version, &mut self.backend).await?;
            let key = key(values, &shape.key);
            let kept = other.is_some_and(|other| record::key(other, &shape.key) == key);
            if !shape.key.is_empty() && !kept {
                keys.insert((entry.table, key));
            }
        }
        Ok(keys)
    }

    /// Whether one that its snapshot does not show did something to the same rows of which no trace is left.
    async fn check_unseen(&mut self) -> Result<(), SqlError> {
        let inner = self.inner.clone();
        if !inner.commits.left_traces(self.mark) {
            return Ok(());
        }
        let made = self.keys(Side::Made).await?;
        let rivals = inner.commits.rivals(&self.journal, &made, self.mark);
        if rivals.is_empty() {
            return Ok(());
        }
        let sql = format!(
            "SELECT bool_and(pg_visible_in_snapshot(xid::xid8, pg_current_snapshot())) FROM unnest('{{{}}}'::text[]) xid",
            rivals.join(",")
        );
        if self.backend.value(&sql).await? == "t" { Ok(()) } else { Err(SqlError::change_conflict()) }
    }

    async fn seal(&mut self) -> Result<(), SqlError> {
        let inner = self.inner.clone();
        let change = self.schema_change.as_ref().map(|_| inner.shapes.change());
        if change.is_some() {
            self.epoch = inner.schema_changes();
        }
        let mut unseen = Unseen::of(&self.journal);
        unseen.gone = self.keys(Side::Gone).await?;
        let xid = match unseen.is_empty() {
            true => String::new(),
            false => self.backend.value("SELECT pg_current_xact_id()").await?,
        };
        let under_way = inner.commits.begin(unseen, xid, inner.turns.oldest());
        let mut committed = false;
        let take = |tag: u8, Body(body): Body| {
            committed |= tag == b'C' && body.starts_with(b"COMMIT");
            Ok(())
        };
        let asked = self.backend.ask(Request::query("COMMIT"), take).await;
        drop(change);
        if asked.is_ok() && committed {
            return Ok(());
        }
        under_way.failed();
        asked.and(Err(SqlError::unavailable()))
    }
}
