//! Transactions of a session.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use arrow_flight::sql::{
    ActionBeginTransactionRequest, ActionBeginTransactionResult, ActionEndTransactionRequest, Any,
    EndTransaction, ProstMessageExt,
};
use bytes::Bytes;
use prost::Message;

use super::AsyncSession;
use crate::connection::Connection;
use crate::error::{Error, Phase, Result};
use crate::sql::StatementTraits;
use crate::statement::QueryOptions;
use crate::statement::limits::Limits;
use crate::statement::undoable_action::UndoableAction;

mod rollback;
mod state;

pub(super) use rollback::ROLLBACK_TIMEOUT;
use state::Open;
pub(crate) use state::TransactionState;

impl AsyncSession {
    /// Begins a transaction, which is rolled back when it is dropped.
    ///
    /// # Errors
    /// See [`Error`]. [`Error::Config`] if one is open already.
    ///
    /// # Cancel safety
    /// If it is dropped or fails, a transaction that was begun is rolled back in the background, and the next
    /// call waits for that. If the server never answers whether it has begun one, the session is lost.
    pub async fn begin(&mut self) -> Result<AsyncTransaction<'_>> {
        self.begin_transaction().await?;
        Ok(AsyncTransaction { session: self, is_open: true })
    }

    /// Begins a transaction. Prefer [`begin`](Self::begin), whose guard rolls back a transaction that is not
    /// committed.
    ///
    /// # Errors
    /// See [`Error`]. [`Error::Config`] if one is open already.
    ///
    /// # Cancel safety
    /// As [`begin`](Self::begin).
    pub async fn begin_transaction(&mut self) -> Result<()> {
        if self.connection.transaction.is_certain() {
            return Err(Error::config("a transaction is open already: commit it or roll it back first"));
        }
        let limits = self.limits(&QueryOptions::new());
        let by_action = self.connection.server.begin_transaction.may_work();
        if by_action && self.begin_by_action(&limits).await? {
            return Ok(());
        }
        self.begin_by_sql(&limits).await
    }

    /// Returns false if the server does not support the action. It may support `BEGIN`.
    async fn begin_by_action(&mut self, limits: &Limits) -> Result<bool> {
        let permit = self.permit(limits).await?;
        let (connection, capability) = (&self.connection, &self.connection.server.begin_transaction);
        let request = ActionBeginTransactionRequest {}.as_any().encode_to_vec();
        // Without a deadline, which could cut off the answer. Its id is needed to roll back a transaction
        // that was begun too late.
        let mut action = UndoableAction::new(permit, rollback::undo_begin);
        let sent = connection.moment();
        match action.run("BeginTransaction", request, None, limits).await? {
            Ok(body) => {
                let Some(id) = decode_id(body) else {
                    rollback::close_in_background(connection);
                    return Err(Error::protocol("a transaction without an id"));
                };
                connection.record_activity(sent);
                connection.transaction.set(Open::ByAction(id));
                capability.record_success();
                Ok(true)
            }
            Err(status) => {
                let error = connection.classify_within(&status, limits, Phase::Execute);
                if capability.use_fallback("BeginTransaction", &status) {
                    return Ok(false);
                }
                if error.is_outcome_unknown() {
                    rollback::close_in_background(connection);
                }
                Err(error)
            }
        }
    }

    async fn begin_by_sql(&mut self, limits: &Limits) -> Result<()> {
        let permit = self.permit(limits).await?;
        let before = self.connection.transaction.open();
        let guard = AbandonOnDrop::new(&self.connection);
        let begun = self.run_update_with(permit, "BEGIN", StatementTraits::of("BEGIN"), limits).await;
        if let Err(error) = &begun
            && !error.is_outcome_unknown()
        {
            self.connection.transaction.set(before);
        }
        guard.end(&begun);
        begun.map(drop)
    }

    /// Commits the transaction.
    ///
    /// # Errors
    /// See [`Error`]. After [`SessionLost`](Error::SessionLost), a timeout or a cancellation it is unknown
    /// whether it was committed: check before you do it again. The session has no transaction then.
    ///
    /// # Cancel safety
    /// Dropping it leaves open whether it was committed. If it was not, it is rolled back in the background,
    /// and the next call waits for that.
    pub async fn commit(&mut self) -> Result<()> {
        self.end(EndTransaction::Commit).await
    }

    /// Rolls back the transaction.
    ///
    /// # Errors
    /// See [`Error`]. After a timeout or a cancellation it is rolled back in the background, and the next
    /// call waits for that.
    ///
    /// # Cancel safety
    /// If it is dropped, the rollback goes on in the background, and the next call waits for that.
    pub async fn rollback(&mut self) -> Result<()> {
        self.end(EndTransaction::Rollback).await
    }

    async fn end(&mut self, how: EndTransaction) -> Result<()> {
        let limits = self.limits(&QueryOptions::new());
        // Before the wait for a permit: a caller that gives up there has given up the transaction, too.
        let guard = AbandonOnDrop::new(&self.connection);
        let permit = self.connection.permit_to_end(None, &limits).await?;
        let open = self.connection.transaction.open();
        // What is left of a transaction that has failed must not be committed.
        let failure = self.connection.transaction.check().err().filter(|_| how == EndTransaction::Commit);
        let how = if failure.is_some() { EndTransaction::Rollback } else { how };
        let ended = match open {
            Open::No => {
                guard.keep();
                return Err(Error::config("no transaction is open"));
            }
            Open::BySql | Open::Uncertain => {
                let sql = if how == EndTransaction::Commit { "COMMIT" } else { "ROLLBACK" };
                self.run_update_with(permit, sql, StatementTraits::of(sql), &limits).await.map(drop)
            }
            Open::ByAction(id) => {
                match permit.action("EndTransaction", end_request(id, how), &limits).await {
                    Ok(_) => {
                        self.connection.transaction.set(Open::No);
                        Ok(())
                    }
                    // An interrupted write may have ended it. The pool makes sure that none is open when the
                    // session goes back.
                    Err(error) if error.is_transaction_ended() => {
                        self.connection.transaction.set(Open::Uncertain);
                        if how == EndTransaction::Rollback { Ok(()) } else { Err(error) }
                    }
                    Err(error) => Err(error),
                }
            }
        };
        // After a failure, whatever its code, it is rolled back in the background, and made sure that none is open.
        if ended.is_ok() {
            guard.keep();
        }
        failure.map_or(ended, Err)
    }

    /// Rolls back in the background: its caller cannot wait.
    pub(crate) fn abandon_transaction(&mut self) {
        self.connection.abandon_transaction();
    }
}

/// Abandons a transaction whose begin or end has an unknown outcome, so that no later statement runs in it
/// unnoticed.
struct AbandonOnDrop(Option<Arc<Connection>>);

impl AbandonOnDrop {
    fn new(connection: &Arc<Connection>) -> Self {
        Self(Some(Arc::clone(connection)))
    }

    /// Keeps the transaction if the outcome is known.
    fn end<T>(self, outcome: &Result<T>) {
        if !matches!(outcome, Err(error) if error.is_outcome_unknown()) {
            self.keep();
        }
    }

    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            connection.abandon_transaction();
        }
    }
}

/// The id of a transaction that the server has begun.
fn decode_id(body: Option<Bytes>) -> Option<Bytes> {
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
    /// # Cancel safety
    /// As [`AsyncSession::commit`].
    pub async fn commit(mut self) -> Result<()> {
        self.session.commit().await?;
        self.is_open = false;
        Ok(())
    }

    /// Rolls it back.
    ///
    /// # Cancel safety
    /// If it is dropped, the rollback goes on in the background.
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
