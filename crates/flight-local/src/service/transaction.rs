//! Transactions and savepoints.

use std::sync::Arc;

use arrow_flight::sql::{
    ActionBeginSavepointRequest, ActionBeginSavepointResult, ActionBeginTransactionResult,
    ActionEndSavepointRequest, ActionEndTransactionRequest, EndTransaction,
};
use tonic::Status;

use super::Service;
use crate::error::Failure;
use crate::handle::Kind;
use crate::session::Session;
use crate::statement_task::run_internal;

/// How a savepoint ends, as Flight SQL numbers it.
const RELEASE: i32 = 1;
const ROLLBACK: i32 = 2;

impl Service {
    /// A statement that names a transaction must name the open one.
    pub(super) fn check_transaction(&self, session: &Session, id: Option<&[u8]>) -> Result<(), Status> {
        match id {
            None | Some([]) => Ok(()),
            Some(id) if self.ignores(session, id) => Ok(()),
            Some(id) => self.open_transaction(session, id).map(drop),
        }
    }

    /// Whether the transaction is of another session, and the server does not mind.
    fn ignores(&self, session: &Session, id: &[u8]) -> bool {
        self.shared.config.quirks.ignores_unknown_transactions
            && self.own_handle(session, id, Kind::Transaction).is_err()
    }

    fn open_transaction(&self, session: &Session, id: &[u8]) -> Result<u64, Status> {
        let number = self.own_handle(session, id, Kind::Transaction)?.number;
        match session.transaction() == Some(number) {
            true => Ok(number),
            false => Err(Status::failed_precondition("the transaction has ended; begin another")),
        }
    }

    pub(super) async fn begin_transaction(
        &self,
        session: &Arc<Session>,
    ) -> Result<ActionBeginTransactionResult, Status> {
        let number = session.number();
        self.control(session, "BEGIN".to_owned(), Some(number)).await?;
        Ok(ActionBeginTransactionResult { transaction_id: session.handle(Kind::Transaction, number).bytes() })
    }

    pub(super) async fn end_transaction(
        &self,
        session: &Arc<Session>,
        request: &ActionEndTransactionRequest,
    ) -> Result<(), Status> {
        if self.ignores(session, &request.transaction_id) {
            return Ok(());
        }
        self.open_transaction(session, &request.transaction_id)?;
        let sql = match request.action() {
            EndTransaction::Commit => "COMMIT",
            EndTransaction::Rollback => "ROLLBACK",
            EndTransaction::Unspecified => {
                return Err(Status::invalid_argument("give the way to end it: commit or rollback"));
            }
        };
        self.control(session, sql.to_owned(), None).await
    }

    pub(super) async fn begin_savepoint(
        &self,
        session: &Arc<Session>,
        request: &ActionBeginSavepointRequest,
    ) -> Result<ActionBeginSavepointResult, Status> {
        self.open_transaction(session, &request.transaction_id)?;
        let number = session.number();
        self.control(session, format!("SAVEPOINT flight_local_{number}"), None).await?;
        Ok(ActionBeginSavepointResult { savepoint_id: session.handle(Kind::Savepoint, number).bytes() })
    }

    pub(super) async fn end_savepoint(
        &self,
        session: &Arc<Session>,
        request: &ActionEndSavepointRequest,
    ) -> Result<(), Status> {
        let number = self.own_handle(session, &request.savepoint_id, Kind::Savepoint)?.number;
        let sql = match request.action {
            RELEASE => format!("RELEASE flight_local_{number}"),
            ROLLBACK => {
                format!("ROLLBACK TO flight_local_{number}; RELEASE flight_local_{number}")
            }
            _ => {
                return Err(Status::invalid_argument("give the way to end it: release or rollback"));
            }
        };
        self.control(session, sql, None).await
    }

    /// Runs a command of the protocol and updates the session's transaction. Both happen on the statement's
    /// thread, so a dropped call cannot separate them.
    async fn control(&self, session: &Arc<Session>, sql: String, begins: Option<u64>) -> Result<(), Status> {
        self.shared.log(&sql);
        let transaction = session.clone();
        run_internal(&self.shared, session, move |connection| {
            // FAILED_PRECONDITION differs from the code of an unknown action, which clients remember.
            if begins.is_some() && !connection.is_autocommit() {
                return Err(Failure::Precondition("a transaction or savepoint is open; end it first"));
            }
            connection.execute_batch(&sql)?;
            if begins.is_some() {
                transaction.set_transaction(begins);
            }
            Ok(())
        })
        .await
    }
}
