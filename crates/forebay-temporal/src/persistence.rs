//! The handle to the database: transactions, fenced transactions, reads and single writes.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use forebay_dsql::{Conflict, Dsql, ErrorKind, Ids, RetryPolicy, Sessions as _, Stage, Transactions};

use crate::connection::{Connection, Tx};
use crate::error::{Error, Result};
use crate::shard::{self, ShardOwner, ShardRow};
use crate::shard_turns::ShardTurns;
use crate::source::{ConnectionSource, Lent, Source};
use crate::takeover;

/// A handle to the persistence of a Temporal cluster. A clone is another handle to the same.
///
/// It runs whole transactions, again while they conflict, by the retry policy of its pool. `operation` is their name in the metrics
/// `dsql_tx_*`.
///
/// One is enough for each process: fenced transactions of a shard take turns within one `Persistence`, and defeat each other
/// across two.
#[derive(Clone)]
pub struct Persistence(Arc<Shared>);

struct Shared {
    source: Source,
    transactions: Transactions,
    ids: Ids,
    turns: ShardTurns,
    /// Runs changes of owner.
    owner_changes: Transactions,
}

impl Persistence {
    /// Over the connections of `pool`. `ids` are those of this process, with its node number in the fleet: from
    /// [`Member::ids`](forebay_dsql::Member::ids).
    #[must_use]
    pub fn new(pool: Dsql, ids: Ids) -> Self {
        let transactions = pool.transactions().clone();
        Self::from(Source::Pool(pool), transactions, ids)
    }

    /// Over connections of another pool, or of none. `transactions` have the retry policy and the labels of the metrics.
    #[must_use]
    pub fn over(source: impl ConnectionSource, transactions: Transactions, ids: Ids) -> Self {
        Self::from(Source::Other(Box::new(source)), transactions, ids)
    }

    fn from(source: Source, transactions: Transactions, ids: Ids) -> Self {
        let owner_changes = transactions.with_policy(owner_change_policy());
        Self(Arc::new(Shared { source, transactions, ids, turns: ShardTurns::default(), owner_changes }))
    }

    /// The pool of its connections. None if they come from [elsewhere](Self::over).
    #[must_use]
    pub fn pool(&self) -> Option<&Dsql> {
        match &self.0.source {
            Source::Pool(pool) => Some(pool),
            Source::Other(_) => None,
        }
    }

    /// The ids of this process.
    #[must_use]
    pub fn ids(&self) -> &Ids {
        &self.0.ids
    }

    /// Runs `body` in a transaction and commits it; all of it again after a conflict. See [`Dsql::run`](forebay_dsql::DsqlPool::run).
    ///
    /// # Errors
    /// That of the last attempt. A failed condition is not tried again.
    ///
    /// # Cancel safety
    /// If the future is dropped, the transaction is rolled back in the background. If it was waiting for a COMMIT, the transaction may
    /// have been committed or not.
    pub async fn run<T, F>(&self, operation: &'static str, body: impl Fn(Tx) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let Shared { source, transactions, ids, .. } = &*self.0;
        transactions.run(source, operation, |transaction| body(Tx::new(transaction, ids.clone()))).await
    }

    /// Runs `body` in a transaction that commits only if `owner` owns its shard. Such transactions of one shard take turns.
    ///
    /// It locks the row of the shard first, as [`shard::fence`] says. If another process has announced that it wants the shard, it pauses,
    /// at most twice, as after a conflict; each of these counts as a retry. It waits for its turn before it takes a connection, and keeps
    /// it during pauses between attempts. So `body` must not wait for another fenced transaction of the same shard, nor for its
    /// [`update_shard`](Self::update_shard): that would never begin.
    ///
    /// The wait for a turn has no limit of its own, neither the acquire timeout of the pool nor a deadline of the policy: those begin with
    /// the turn. While no connection can be had, those who wait fail one after the other. Whoever cannot wait that long drops the future.
    ///
    /// # Errors
    /// [`Error::ConditionFailed`] if the shard has another owner; otherwise as [`run`](Self::run).
    ///
    /// # Cancel safety
    /// As [`run`](Self::run). While it waits for its turn, nothing has happened.
    pub async fn fenced<T, F>(
        &self,
        owner: ShardOwner,
        operation: &'static str,
        body: impl Fn(Tx) -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let turn = &self.0.turns.wait(owner.shard_id).await;
        let body = &body;
        self.run(operation, |tx| async move {
            match shard::fence_and_look(&tx, owner).await? {
                Some(range_id) if turn.gives_way_to(range_id) => Err(giving_way(owner.shard_id)),
                _ => body(tx).await,
            }
        })
        .await
    }

    /// Changes the owner of a shard, or what the owner keeps in its row: updates the row if its range id is `expected_range_id`.
    ///
    /// It is one statement and thus the shortest transaction there is. Only a transaction of the old owner that commits in the same
    /// moment defeats it. After three such defeats a change of owner is announced, as [`shard`] says, and seven more attempts follow
    /// while the old owner pauses. The retry policy of the pool has no influence on that.
    ///
    /// # Errors
    /// [`Error::ConditionFailed`] if the row has another range id; [`Error::CommitUnknown`] if the connection was lost, or the server
    /// failed: read the row. [`Error::InvalidInput`] if the new range id is smaller.
    ///
    /// # Cancel safety
    /// While it waits for its turn, nothing has happened. After that, the update may have happened, and an announcement may stay, which
    /// does no harm.
    pub async fn update_shard(&self, row: &ShardRow, expected_range_id: i64) -> Result<()> {
        let ShardRow { shard_id, range_id, .. } = *row;
        let _turn = self.0.turns.wait(shard_id).await;
        let update = |connection| async move { shard::update(&connection, row, expected_range_id).await };
        let mut operation = self.0.owner_changes.operation("update_shard");
        let (mut held, mut defeats, mut announced) = (None, 0, None);
        let outcome = loop {
            let error = match self.attempt(&mut held, &update, &judge_write).await {
                Ok(()) => {
                    operation.committed();
                    break Ok(());
                }
                Err(error) => error,
            };
            defeats += u32::from(matches!(error, Error::Conflict(_)));
            if defeats == DEFEATS && range_id > expected_range_id && announced.is_none() {
                // It may be the only connection, and the announcement needs one.
                held = None;
                let announce =
                    |connection| async move { takeover::announce(&connection, shard_id, range_id).await };
                announced = Some(self.write("announce_owner_change", announce).await);
            }
            if let Err(error) = operation.retry(Stage::Statement, error).await {
                break Err(error);
            }
        };
        if let Some(told) = announced {
            let withdraw =
                |connection| async move { takeover::withdraw(&connection, shard_id, range_id).await };
            let untold = self.write("withdraw_owner_change", withdraw).await;
            // Without an announcement it takes longer, and one that stays is outdated as soon as the owner has changed.
            if let Err(error) = told.and(untold) {
                tracing::debug!(shard_id, %error, "a change of owner could not be announced, or its announcement not be withdrawn");
            }
        }
        outcome
    }

    /// Runs `body`, which only reads, on a connection without a transaction. It is run again on a conflict, as a change of the
    /// schema causes one, and if the connection is lost. Several statements see several snapshots.
    ///
    /// # Errors
    /// That of the last attempt.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn read<T, F>(&self, operation: &'static str, body: impl Fn(Connection) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        self.alone(&self.0.transactions, operation, body, judge_read).await
    }

    /// Runs `body`, which is one statement that writes, without BEGIN and COMMIT around it. It saves two round trips. If `body` writes
    /// with several statements, each is a transaction by itself, and after a conflict, or if the connection was lost between two of them,
    /// all of them are run again.
    ///
    /// # Errors
    /// [`Error::CommitUnknown`] if the connection was lost before the answer, or the server failed at the statement; otherwise that of
    /// the last attempt.
    ///
    /// # Cancel safety
    /// If the future is dropped, the write may have happened.
    pub async fn write<T, F>(&self, operation: &'static str, body: impl Fn(Connection) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        self.alone(&self.0.transactions, operation, body, judge_write).await
    }

    async fn alone<T, F>(
        &self,
        transactions: &Transactions,
        operation: &'static str,
        body: impl Fn(Connection) -> F,
        judge: impl Fn(&Lent, Error) -> Error,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let mut operation = transactions.operation(operation);
        let mut held = None;
        loop {
            match self.attempt(&mut held, &body, &judge).await {
                Ok(value) => {
                    operation.committed();
                    return Ok(value);
                }
                Err(error) => operation.retry(Stage::Statement, error).await?,
            }
        }
    }

    /// Runs `body` once, on the connection of the last attempt if that has left it: after a change of the schema, every other one would
    /// fail once, too.
    async fn attempt<T, F>(
        &self,
        held: &mut Option<Arc<Lent>>,
        body: &impl Fn(Connection) -> F,
        judge: &impl Fn(&Lent, Error) -> Error,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let Shared { source, ids, .. } = &*self.0;
        let lent = match held.take() {
            Some(lent) => lent,
            None => Arc::new(source.session().await?),
        };
        body(Connection::alone(Arc::clone(&lent), ids.clone())).await.map_err(|error| {
            let error = judge(&lent, error);
            let is_kept = matches!(ErrorKind::of(&error), ErrorKind::Conflict(_) | ErrorKind::Unavailable);
            *held = is_kept.then_some(lent);
            error
        })
    }
}

/// What an error of a single statement means for its write. The connection knows whether the statement was sent and not answered.
fn judge_write(lent: &Lent, error: Error) -> Error {
    let tracker = lent.tracker();
    let unknown = may_have_happened(ErrorKind::of(&error), tracker.is_committing(), tracker.is_broken());
    match error {
        Error::Unavailable(error)
        | Error::Conflict(error)
        | Error::TooLarge(error)
        | Error::Database(error)
            if unknown =>
        {
            Error::CommitUnknown(forebay_dsql::Error::new(ErrorKind::CommitUnknown, error))
        }
        error => error,
    }
}

/// Of a statement that was given up outside of a transaction, the connection knows only that it may have been committed. A read changes
/// nothing.
fn judge_read(_: &Lent, error: Error) -> Error {
    match error {
        Error::CommitUnknown(error) => forebay_dsql::Error::new(ErrorKind::TimedOut, error).into(),
        error => error,
    }
}

/// As for a COMMIT: a statement was not carried out if the server refused it and goes on, or never got it.
fn may_have_happened(kind: ErrorKind, is_committing: bool, is_broken: bool) -> bool {
    match kind {
        ErrorKind::Disconnected => is_committing,
        kind => kind.at_commit() == ErrorKind::CommitUnknown || is_committing && is_broken,
    }
}

/// After how many defeats a change of owner is announced.
const DEFEATS: u32 = 3;

/// Ten attempts: three that follow each other closely, and seven once the old owner pauses.
fn owner_change_policy() -> RetryPolicy {
    let (base, cap) = (Duration::from_millis(1), Duration::from_millis(100));
    RetryPolicy::default().retries(9).base(base).cap(cap).full_jitter()
}

/// Rolls the transaction back and runs it again after a pause, as a conflict does, which this forestalls.
fn giving_way(shard_id: i32) -> Error {
    let told = format!("another process wants to take over shard {shard_id}");
    Error::Conflict(forebay_dsql::Error::new(ErrorKind::Conflict(Conflict::Change), told))
}

impl fmt::Debug for Persistence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Persistence").field(&self.0.source).finish()
    }
}

#[cfg(test)]
mod tests {
    use forebay_dsql::Limit;

    use super::*;

    #[test]
    fn what_was_sent_and_not_answered_may_have_happened() {
        let (conflict, limit) = (ErrorKind::Conflict(Conflict::Change), ErrorKind::Limit(Limit::Rows));
        for (kind, is_committing, is_broken, unknown) in [
            (ErrorKind::Disconnected, true, true, true),
            (ErrorKind::Disconnected, false, true, false),
            (ErrorKind::Unavailable, false, false, true),
            (ErrorKind::CommitUnknown, false, false, true),
            // Refused, by a server that goes on.
            (conflict, false, false, false),
            (limit, false, false, false),
            (ErrorKind::Permanent, false, false, false),
            // Last words of a session, of which nobody knows what they refer to.
            (conflict, true, true, true),
            (limit, true, true, true),
            (ErrorKind::Permanent, true, true, true),
            // Another statement of the same body.
            (ErrorKind::Permanent, true, false, false),
        ] {
            assert_eq!(
                may_have_happened(kind, is_committing, is_broken),
                unknown,
                "{kind:?} {is_committing} {is_broken}"
            );
        }
    }
}
