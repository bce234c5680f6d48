//! How a transaction ends for good.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::{Hold, Transaction, is_dislodged, is_in_the_way};
use crate::engine::Oid;
use crate::error::SqlError;
use crate::postgres::backend::Body;
use crate::postgres::commits::Unseen;
use crate::postgres::journal::Change;
use crate::postgres::record::{Key, key};
use crate::postgres::request::Request;

/// How many bytes it may write. It is told so at its commit.
pub(super) const SIZE_LIMIT: usize = 10 << 20;

impl Transaction {
    /// Makes all of it durable.
    pub(in crate::postgres) async fn commit(&mut self) -> Result<(), SqlError> {
        if !self.begun {
            return Ok(());
        }
        loop {
            self.check_epoch()?;
            if self.journal.size() > SIZE_LIMIT {
                return Err(SqlError::too_large(self.journal.size()));
            }
            match self.hold {
                Hold::All => {}
                Hold::Nothing => self.restore().await?,
                Hold::Doomed(_) => return Err(SqlError::change_conflict()),
            }
            self.check_unseen().await?;
            match self.seal().await {
                Err(error) if is_dislodged(&error) => self.detach().await?,
                sealed => return sealed,
            }
        }
    }

    fn check_epoch(&self) -> Result<(), SqlError> {
        if self.inner.epoch() == self.epoch { Ok(()) } else { Err(SqlError::schema_conflict()) }
    }

    /// Does all of it again, so that it can be committed.
    async fn restore(&mut self) -> Result<(), SqlError> {
        if self.journal.is_empty() && self.schema_change.is_none() {
            return Ok(());
        }
        let inner = self.inner.clone();
        let _turn = inner.turns.turn().await;
        let pid = self.pid();
        let restored = inner.turns.insist(&inner, pid, self.redo()).await;
        // The schema may have changed while it waited.
        self.check_epoch()?;
        restored.map_err(|error| {
            let conflict = error.code == "40001" || is_in_the_way(&error);
            if conflict { SqlError::change_conflict() } else { error }
        })
    }

    /// The keys of rows to which that was done.
    async fn keys(
        &mut self,
        done: impl Fn(&Change) -> Option<&Bytes>,
    ) -> Result<BTreeSet<(Oid, Key)>, SqlError> {
        let mut keys = BTreeSet::new();
        for entry in self.journal.entries() {
            if let Some(values) = done(&entry.change) {
                let shape = self.inner.shapes.of(entry.table, &mut self.backend).await?;
                if !shape.key.is_empty() {
                    keys.insert((entry.table, key(values, &shape.key)));
                }
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
        let made = self.keys(Change::inserted).await?;
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
        if self.schema_change.is_some() {
            self.epoch = inner.schema_changes();
        }
        let mut unseen = Unseen::of(&self.journal);
        unseen.gone = self.keys(Change::deleted).await?;
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
        if asked.is_ok() && committed {
            return Ok(());
        }
        under_way.failed();
        asked.and(Err(SqlError::unavailable()))
    }
}
