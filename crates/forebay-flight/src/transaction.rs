//! Transactions of a session.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arrow_flight::sql::{
    ActionBeginTransactionRequest, ActionBeginTransactionResult, ActionEndTransactionRequest, Any,
    EndTransaction, ProstMessageExt,
};
use bytes::Bytes;
use prost::Message;

use crate::error::{Error, Phase, Result};
use crate::limits::Limits;
use crate::link::Link;
use crate::put;
use crate::query_options::QueryOptions;
use crate::session::AsyncSession;
use crate::sql::Traits;

/// How long a rollback in the background may take.
const ROLLBACK: Duration = Duration::from_secs(5);

/// Whether a session has a transaction open, and whose words began it.
#[derive(Clone, Default)]
enum Open {
    /// None.
    #[default]
    No,
    /// One that the server has a name for.
    Named(Bytes),
    /// One that a statement began.
    BySql,
    /// The same, and a script should have ended it: but a server may have carried out a part of it only.
    Perhaps,
}

/// The transaction of a session. What was prepared in the session may begin and end it too.
#[derive(Clone, Debug, Default)]
pub(crate) struct Current(Arc<Mutex<Open>>);

impl Current {
    fn open(&self) -> MutexGuard<'_, Open> {
        // Nothing panics while it is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether one may be open.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(*self.open(), Open::No)
    }

    fn is_certain(&self) -> bool {
        matches!(*self.open(), Open::Named(_) | Open::BySql)
    }

    pub(crate) fn id(&self) -> Option<Bytes> {
        match &*self.open() {
            Open::Named(id) => Some(id.clone()),
            Open::No | Open::BySql | Open::Perhaps => None,
        }
    }

    /// A statement is about to be sent.
    pub(crate) fn note(&self, traits: Traits) {
        let mut open = self.open();
        if traits.begins && matches!(*open, Open::No | Open::Perhaps) {
            *open = Open::BySql;
        }
    }

    /// The statement has succeeded, to its end.
    pub(crate) fn conclude(&self, traits: Traits) {
        let mut open = self.open();
        match *open {
            Open::BySql | Open::Perhaps if traits.ends => *open = Open::No,
            Open::BySql if traits.ends_last => *open = Open::Perhaps,
            _ => {}
        }
    }

    fn replace(&self, with: Open) -> Open {
        std::mem::replace(&mut *self.open(), with)
    }
}

impl fmt::Debug for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::No => "No",
            Self::Named(_) => "Named",
            Self::BySql => "BySql",
            Self::Perhaps => "Perhaps",
        })
    }
}

impl AsyncSession {
    /// Begins a transaction, which rolls back when it is dropped.
    ///
    /// # Errors
    /// See [`Error`]; [`Error::Config`] if one is open already.
    ///
    /// # Cancel safety
    /// Dropping it may leave a transaction open, which is rolled back with the session's return, or its end.
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
        if self.transaction.is_certain() {
            return Err(Error::config("a transaction is open already: commit it or roll it back first"));
        }
        let limits = self.limits(QueryOptions::new());
        self.ready(&limits).await?;
        let server = Arc::clone(&self.link.server);
        if server.begins_transactions.may_be() {
            // If this is dropped, nobody knows its name: the session cannot be made clean.
            let doubt = std::mem::replace(&mut self.is_altered, true);
            let link = Arc::clone(&self.link);
            let request = ActionBeginTransactionRequest {}.as_any().encode_to_vec();
            let begun = limits.run(Phase::Execute, async {
                Ok(link.act("BeginTransaction", request, limits.remaining()).await)
            });
            match begun.await? {
                Ok(body) => {
                    let id = body
                        .and_then(|body| Any::decode(body).ok())
                        .and_then(|any| any.unpack::<ActionBeginTransactionResult>().ok().flatten());
                    let id =
                        id.ok_or_else(|| Error::protocol("a transaction without a name"))?.transaction_id;
                    self.is_altered = doubt;
                    self.transaction.replace(Open::Named(id));
                    server.begins_transactions.works();
                    return Ok(());
                }
                Err(status) => {
                    let error = self.link.judge_within(&status, &limits, Phase::Execute);
                    self.is_altered = doubt;
                    if !server.begins_transactions.refused_for_now("BeginTransaction", &status) {
                        return Err(error);
                    }
                }
            }
        }
        self.run_update("BEGIN", &limits).await.map(drop)
    }

    /// Commits the transaction.
    ///
    /// # Errors
    /// See [`Error`]. After [`SessionLost`](Error::SessionLost), a timeout or a cancellation nobody knows whether it was committed: look
    /// before you do it again.
    ///
    /// # Cancel safety
    /// Dropping it leaves open whether it was committed.
    pub async fn commit(&mut self) -> Result<()> {
        self.end(EndTransaction::Commit).await
    }

    /// Undoes the transaction.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// # Cancel safety
    /// Dropped before it is done, it is done with the session's return.
    pub async fn rollback(&mut self) -> Result<()> {
        self.end(EndTransaction::Rollback).await
    }

    async fn end(&mut self, how: EndTransaction) -> Result<()> {
        let limits = self.limits(QueryOptions::new());
        self.ready(&limits).await?;
        let open = self.transaction.open().clone();
        match open {
            Open::No => Err(Error::config("no transaction is open")),
            Open::BySql | Open::Perhaps => {
                let sql = if how == EndTransaction::Commit { "COMMIT" } else { "ROLLBACK" };
                self.run_update(sql, &limits).await.map(drop)
            }
            Open::Named(id) => {
                let link = Arc::clone(&self.link);
                let ended = limits.run(Phase::Execute, async {
                    let ended = link.act("EndTransaction", end_request(id, how), limits.remaining()).await;
                    ended.map_err(|status| link.judge_within(&status, &limits, Phase::Execute))
                });
                match ended.await {
                    Ok(_) => {
                        self.transaction.replace(Open::No);
                        Ok(())
                    }
                    // An interrupted write may have undone all of it. Whether anything is open is seen to on return.
                    Err(error) if error.is_of_ended_transaction() => {
                        self.transaction.replace(Open::Perhaps);
                        if how == EndTransaction::Rollback { Ok(()) } else { Err(error) }
                    }
                    Err(error) => Err(error),
                }
            }
        }
    }

    /// Leaves no transaction open, or fails.
    pub(crate) async fn clear_transaction(&mut self) -> Result<()> {
        let by_sql = self.transaction.id().is_none();
        match self.rollback().await {
            Err(error) if by_sql && error.is_refusal() => {
                // There may be none. Where one can be begun and undone, none is open afterwards.
                let limits = self.limits(QueryOptions::new());
                self.run_update("BEGIN", &limits).await?;
                self.rollback().await
            }
            rolled_back => rolled_back,
        }
    }

    /// Rolls back in the background: its caller cannot wait.
    pub(crate) fn abandon_transaction(&mut self) {
        let (open, link) = (self.transaction.replace(Open::No), Arc::clone(&self.link));
        if matches!(open, Open::No) {
            return;
        }
        self.link.errand(async move {
            // A session that does not answer is not asked for more.
            if link.is_stuck() {
                return false;
            }
            match rolled_back(&link, open).await {
                Ok(()) => true,
                // It may have ended by itself, when a commit failed.
                Err(Error::Server { .. }) => {
                    link.doubt();
                    true
                }
                Err(_) => false,
            }
        });
    }
}

async fn rolled_back(link: &Arc<Link>, open: Open) -> Result<()> {
    let limits = Limits::new(&link.server.runtime, Some(ROLLBACK), None);
    let Open::Named(id) = open else {
        return put::update(link, put::statement("ROLLBACK"), None, &limits).await.map(drop);
    };
    let request = end_request(id, EndTransaction::Rollback);
    limits
        .run(Phase::Execute, async {
            let ended = link.act("EndTransaction", request, limits.remaining()).await;
            ended.map(drop).map_err(|status| link.judge(&status))
        })
        .await
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
