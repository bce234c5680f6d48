//! Rolling back what nobody holds any more.

use std::sync::Arc;
use std::time::Duration;

use arrow_flight::sql::EndTransaction;

use super::current::Open;
use super::{end_request, name};
use crate::actions;
use crate::error::Result;
use crate::limits::Limits;
use crate::link::{Link, Turn};
use crate::making::{Answer, Undoing};
use crate::put;

/// How long a rollback in the background may take.
const ROLLBACK: Duration = Duration::from_secs(5);

impl Link {
    /// Lets go of the transaction, if one is open: it is rolled back in the background, and the next call waits for that.
    pub(crate) fn abandon_transaction(self: &Arc<Self>) {
        if !self.transaction.abandon() {
            return;
        }
        let link = Arc::clone(self);
        self.errand(async move {
            // A session that does not answer is not asked for more, until it does.
            !link.is_stuck() && link.undone().await
        });
    }

    /// Rolls back what its owner has let go of, unless that is done already. Whether the session is in order then; if not, it is
    /// still to be done.
    ///
    /// # Cancel safety
    /// Dropping it leaves it to be done.
    pub(crate) async fn undone(self: &Arc<Self>) -> bool {
        let Some(open) = self.transaction.abandoned() else { return true };
        match cleared(self, open).await {
            Ok(()) => {}
            // The server says that it is over, as when a commit failed. Its holder may believe that; nobody else has to.
            Err(error) if error.is_of_ended_transaction() => self.doubt(),
            Err(error) => {
                if error.is_refusal() {
                    give_up(self);
                }
                return false;
            }
        }
        self.transaction.set(Open::No);
        true
    }
}

/// Undoes a transaction that was begun when nobody waited for it any more. One whose name is not known cannot be: its session is
/// given up, since whatever is written there would be lost with it.
pub(super) fn unbegun(link: Arc<Link>, answer: Option<Answer>) -> Undoing {
    Box::pin(async move {
        match answer {
            Some(Ok(body)) => {
                if let Some(name) = name(body) {
                    link.transaction.set(Open::Named(name));
                    link.transaction.abandon();
                    return link.undone().await;
                }
            }
            Some(Err(status)) if !link.judge(&status).leaves_open() => return true,
            Some(Err(_)) | None => {}
        }
        give_up(&link);
        false
    })
}

/// Ends a session with a transaction that cannot be undone, in the background.
pub(super) fn give_up(link: &Arc<Link>) {
    let ending = Arc::clone(link);
    link.errand(async move {
        if ending.is_usable() && ending.server.closes_sessions.may_be() {
            actions::close_session(&ending).await;
        }
        ending.refuse();
        false
    });
}

/// Leaves no transaction open, or fails.
async fn cleared(link: &Arc<Link>, open: Open) -> Result<()> {
    let limits = Limits::new(&link.server.runtime, Some(ROLLBACK), None);
    let by_words = |sql| put::update(Turn::take(link), put::statement(sql), None, &limits);
    let rolled_back = match open {
        Open::Named(id) => {
            let request = end_request(id, EndTransaction::Rollback);
            Turn::take(link).act("EndTransaction", request, &limits).await.map(drop)
        }
        Open::No | Open::BySql | Open::Perhaps => by_words("ROLLBACK").await.map(drop),
    };
    match rolled_back {
        Err(refusal) if refusal.is_refusal() => {
            // There may be none. Where one can be begun and undone, none is open afterwards; if this is not heard of, it is ours.
            link.transaction.set(Open::BySql);
            link.transaction.abandon();
            by_words("BEGIN").await.map_err(|error| if error.is_refusal() { refusal } else { error })?;
            by_words("ROLLBACK").await.map(drop)
        }
        rolled_back => rolled_back,
    }
}
