//! Transactions of a session.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use arrow_flight::sql::{
    ActionBeginTransactionRequest, ActionBeginTransactionResult, ActionEndTransactionRequest, Any,
    EndTransaction, ProstMessageExt,
};
use bytes::Bytes;
use prost::Message;

use crate::error::{Error, Phase, Result};
use crate::limits::Limits;
use crate::link::Link;
use crate::making::Making;
use crate::query_options::QueryOptions;
use crate::session::AsyncSession;

mod current;
mod undoing;

pub(crate) use current::Current;
use current::Open;

impl AsyncSession {
    /// Begins a transaction, which rolls back when it is dropped.
    ///
    /// # Errors
    /// See [`Error`]; [`Error::Config`] if one is open already.
    ///
    /// # Cancel safety
    /// Dropped before it is done, what it began is rolled back in the background; the next call waits for that. The same goes for one
    /// that fails. Where that cannot be done, the session is lost.
    pub async fn begin(&mut self) -> Result<AsyncTransaction<'_>> {
        self.begin_transaction().await?;
        Ok(AsyncTransaction { session: self, is_open: true })
    }

    /// Begins a transaction. [`begin`](Self::begin) does the same, and cannot forget to end it.
    ///
    /// # Errors
    /// See [`Error`]; [`Error::Config`] if one is open already.
    ///
    /// # Cancel safety
    /// As [`begin`](Self::begin).
    pub async fn begin_transaction(&mut self) -> Result<()> {
        if self.link.transaction.is_certain() {
            return Err(Error::config("a transaction is open already: commit it or roll it back first"));
        }
        let limits = self.limits(QueryOptions::new());
        let by_action = self.link.server.begins_transactions.may_be();
        if by_action && self.begin_by_action(&limits).await? {
            return Ok(());
        }
        self.begin_by_words(&limits).await
    }

    /// Whether the server has begun one. If not, it may know `BEGIN`.
    async fn begin_by_action(&mut self, limits: &Limits) -> Result<bool> {
        let turn = self.ready(limits).await?;
        let (link, ability) = (&self.link, &self.link.server.begins_transactions);
        let request = ActionBeginTransactionRequest {}.as_any().encode_to_vec();
        // Without a deadline, for which the server might break off its answer: with the name in it, what came too late is undone.
        let mut making = Making::new(turn, undoing::unbegun);
        match making.answer("BeginTransaction", request, None, limits).await? {
            Ok(body) => {
                let Some(name) = name(body) else {
                    undoing::give_up(link);
                    return Err(Error::protocol("a transaction without a name"));
                };
                link.transaction.set(Open::Named(name));
                ability.works();
                Ok(true)
            }
            Err(status) => {
                let error = link.judge_within(&status, limits, Phase::Execute);
                if ability.refused_for_now("BeginTransaction", &status) {
                    return Ok(false);
                }
                if error.leaves_open() {
                    undoing::give_up(link);
                }
                Err(error)
            }
        }
    }

    async fn begin_by_words(&mut self, limits: &Limits) -> Result<()> {
        let turn = self.ready(limits).await?;
        let before = self.link.transaction.open();
        let unfinished = Unfinished::new(&self.link);
        let begun = self.run_update_in(turn, "BEGIN", limits).await;
        if let Err(error) = &begun
            && !error.leaves_open()
        {
            self.link.transaction.set(before);
        }
        unfinished.known(&begun);
        begun.map(drop)
    }

    /// Commits the transaction.
    ///
    /// # Errors
    /// See [`Error`]. After [`SessionLost`](Error::SessionLost), a timeout or a cancellation nobody knows whether it was committed: look
    /// before you do it again. The session has no transaction then.
    ///
    /// # Cancel safety
    /// Dropping it leaves open whether it was committed. If it was not, it is rolled back in the background; the next call waits for that.
    pub async fn commit(&mut self) -> Result<()> {
        self.end(EndTransaction::Commit).await
    }

    /// Undoes the transaction.
    ///
    /// # Errors
    /// See [`Error`]. After a timeout or a cancellation it is undone in the background; the next call waits for that.
    ///
    /// # Cancel safety
    /// Dropped before it is done, it is done in the background; the next call waits for that.
    pub async fn rollback(&mut self) -> Result<()> {
        self.end(EndTransaction::Rollback).await
    }

    async fn end(&mut self, how: EndTransaction) -> Result<()> {
        let limits = self.limits(QueryOptions::new());
        // From the start: whoever gives up waiting for its turn wants no more of it either.
        let unfinished = Unfinished::new(&self.link);
        let turn = self.ready(&limits).await?;
        let open = self.link.transaction.open();
        let ended = match open {
            Open::No => Err(Error::config("no transaction is open")),
            Open::BySql | Open::Perhaps => {
                let sql = if how == EndTransaction::Commit { "COMMIT" } else { "ROLLBACK" };
                self.run_update_in(turn, sql, &limits).await.map(drop)
            }
            Open::Named(id) => match turn.act("EndTransaction", end_request(id, how), &limits).await {
                Ok(_) => {
                    self.link.transaction.set(Open::No);
                    Ok(())
                }
                // An interrupted write may have undone all of it. Whether anything is open is seen to on return.
                Err(error) if error.is_of_ended_transaction() => {
                    self.link.transaction.set(Open::Perhaps);
                    if how == EndTransaction::Rollback { Ok(()) } else { Err(error) }
                }
                Err(error) => Err(error),
            },
        };
        unfinished.known(&ended);
        ended
    }

    /// Rolls back in the background: its caller cannot wait.
    pub(crate) fn abandon_transaction(&mut self) {
        self.link.abandon_transaction();
    }
}

/// A transaction that is being begun or ended. If nobody hears how that came out, it is let go of, so that nobody works in it
/// without knowing.
struct Unfinished(Option<Arc<Link>>);

impl Unfinished {
    fn new(link: &Arc<Link>) -> Self {
        Self(Some(Arc::clone(link)))
    }

    /// This is how it came out, unless that leaves it open.
    fn known<T>(mut self, outcome: &Result<T>) {
        if !matches!(outcome, Err(error) if error.leaves_open()) {
            self.0 = None;
        }
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(link) = self.0.take() {
            link.abandon_transaction();
        }
    }
}

/// The name of a transaction that the server has begun.
fn name(body: Option<Bytes>) -> Option<Bytes> {
    let begun: ActionBeginTransactionResult = Any::decode(body?).ok()?.unpack().ok()??;
    Some(begun.transaction_id)
}

fn end_request(transaction_id: Bytes, how: EndTransaction) -> Vec<u8> {
    ActionEndTransactionRequest { transaction_id, action: how as i32 }.as_any().encode_to_vec()
}

/// A transaction. It derefs to its session, and is rolled back, in the background, if it is dropped without
/// [`commit`](Self::commit).
#[derive(Debug)]
pub struct AsyncTransaction<'a> {
    session: &'a mut AsyncSession,
    is_open: bool,
}

impl AsyncTransaction<'_> {
    /// Commits it.
    ///
    /// # Errors
    /// As [`AsyncSession::commit`].
    ///
    /// # Cancel safety
    /// As [`AsyncSession::commit`].
    pub async fn commit(mut self) -> Result<()> {
        self.session.commit().await?;
        self.is_open = false;
        Ok(())
    }

    /// Undoes it.
    ///
    /// # Errors
    /// As [`AsyncSession::rollback`].
    ///
    /// # Cancel safety
    /// Dropped before it is done, it is done in the background.
    pub async fn rollback(mut self) -> Result<()> {
        self.session.rollback().await?;
        self.is_open = false;
        Ok(())
    }
}

impl Drop for AsyncTransaction<'_> {
    fn drop(&mut self) {
        if self.is_open {
            self.session.abandon_transaction();
        }
    }
}

impl Deref for AsyncTransaction<'_> {
    type Target = AsyncSession;

    fn deref(&self) -> &AsyncSession {
        self.session
    }
}

impl DerefMut for AsyncTransaction<'_> {
    fn deref_mut(&mut self) -> &mut AsyncSession {
        self.session
    }
}
