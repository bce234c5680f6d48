//! Rolling back abandoned transactions.

use std::sync::Arc;
use std::time::Duration;

use arrow_flight::sql::EndTransaction;

use super::state::Open;
use super::{decode_id, end_request};
use crate::connection::{Connection, StatementPermit};
use crate::error::Result;
use crate::statement::QueryOptions;
use crate::statement::limits::Limits;
use crate::statement::undoable_action::{Answer, UndoFuture};
use crate::statement::update::{run_update, update_command};

/// How long a rollback in the background may take.
pub(in crate::session) const ROLLBACK_TIMEOUT: Duration = Duration::from_secs(5);

impl Connection {
    /// Gives up the transaction, if one is open: it is rolled back in the background, and the next call waits
    /// for that.
    pub(crate) fn abandon_transaction(self: &Arc<Self>) {
        if !self.transaction.abandon() {
            return;
        }
        let connection = Arc::clone(self);
        // A stuck session gets no further calls until it answers.
        self.spawn_background(
            async move { !connection.is_stuck() && connection.roll_back_abandoned().await },
        );
    }

    /// Rolls back an open transaction before its session is closed: a server that cannot close sessions keeps it for as long
    /// as the session.
    ///
    /// # Cancel safety
    /// Dropping it leaves the transaction abandoned.
    pub(crate) async fn roll_back_before_close(self: &Arc<Self>) {
        let is_needed =
            !self.server.close_session.has_worked() && !self.liveness().is_closed() && !self.is_stuck();
        if is_needed && self.transaction.abandon() {
            self.roll_back_abandoned().await;
        }
    }

    /// Rolls back an abandoned transaction, if there is one. Returns whether the session can be used; if not,
    /// it is still abandoned.
    ///
    /// # Cancel safety
    /// Dropping it leaves the transaction abandoned.
    pub(crate) async fn roll_back_abandoned(self: &Arc<Self>) -> bool {
        let Some(open) = self.transaction.abandoned() else { return true };
        match roll_back(self, open).await {
            Ok(()) => {}
            // The server says that it has ended, as after a failed commit. Its holder may rely on that, but
            // no other borrower.
            Err(error) if error.is_transaction_ended() => self.mark_suspect(),
            Err(error) => {
                if error.is_refusal() {
                    close_in_background(self);
                }
                return false;
            }
        }
        self.transaction.set(Open::No);
        true
    }
}

/// Rolls back a transaction that was begun after its caller had given up. Without its id that is impossible.
/// Then the session is closed, since everything written in it would be lost.
pub(super) fn undo_begin(connection: Arc<Connection>, answer: Option<Answer>) -> UndoFuture {
    Box::pin(async move {
        match answer {
            Some(Ok(body)) => {
                if let Some(id) = decode_id(body) {
                    connection.transaction.set(Open::ByAction(id));
                    connection.transaction.abandon();
                    return connection.roll_back_abandoned().await;
                }
            }
            Some(Err(status)) if !connection.classify(&status).is_outcome_unknown() => return true,
            Some(Err(_)) | None => {}
        }
        close_in_background(&connection);
        false
    })
}

/// Closes a session whose transaction cannot be rolled back.
pub(super) fn close_in_background(connection: &Arc<Connection>) {
    let closing = Arc::clone(connection);
    connection.spawn_background(async move {
        if closing.is_usable() && closing.server.close_session.may_work() {
            closing.close_session().await;
        }
        closing.mark_unusable();
        false
    });
}

/// Fails unless no transaction is open afterwards.
async fn roll_back(connection: &Arc<Connection>, open: Open) -> Result<()> {
    let limits = Limits::new(&connection.server.runtime, Some(ROLLBACK_TIMEOUT), None);
    let options = QueryOptions::new();
    let run =
        |sql| run_update(StatementPermit::take(connection), update_command(sql, None), &options, &limits);
    let rolled_back = match open {
        Open::ByAction(id) => {
            let request = end_request(id, EndTransaction::Rollback);
            StatementPermit::take(connection).action("EndTransaction", request, &limits).await.map(drop)
        }
        Open::No | Open::BySql | Open::Uncertain => run("ROLLBACK").await.map(drop),
    };
    match rolled_back {
        Err(refusal) if refusal.is_refusal() => {
            // There may be none. If one can be begun and rolled back, none is open afterwards. If the answer
            // gets lost, it is ours.
            connection.transaction.set(Open::BySql);
            connection.transaction.abandon();
            run("BEGIN").await.map_err(|error| if error.is_refusal() { refusal } else { error })?;
            run("ROLLBACK").await.map(drop)
        }
        rolled_back => rolled_back,
    }
}
