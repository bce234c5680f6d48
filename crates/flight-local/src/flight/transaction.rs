//! Transactions and savepoints.

use std::sync::Arc;

use arrow_flight::sql::{
    ActionBeginSavepointRequest, ActionBeginSavepointResult, ActionBeginTransactionResult,
    ActionEndSavepointRequest, ActionEndTransactionRequest, EndTransaction,
};
use tonic::Status;

use super::Front;
use crate::handle::Kind;
use crate::perform::aside;
use crate::session::Session;

/// How a savepoint may end, as Flight SQL numbers it.
const RELEASE: i32 = 1;
const ROLLBACK: i32 = 2;

impl Front {
    /// A statement that names a transaction must be of the one that is open.
    pub(super) fn check_transaction(&self, session: &Session, id: Option<&[u8]>) -> Result<(), Status> {
        match id {
            None | Some([]) => Ok(()),
            Some(id) => self.open_transaction(session, id).map(drop),
        }
    }

    fn open_transaction(&self, session: &Session, id: &[u8]) -> Result<u64, Status> {
        let number = self.own(session, id, Kind::Transaction)?.number;
        match session.transaction() == Some(number) {
            true => Ok(number),
            false => Err(Status::failed_precondition("the transaction has ended; begin another")),
        }
    }

    pub(super) async fn begin_transaction(
        &self,
        session: &Arc<Session>,
    ) -> Result<ActionBeginTransactionResult, Status> {
        self.control(session, "BEGIN".to_owned()).await?;
        let number = session.number();
        session.set_transaction(Some(number));
        Ok(ActionBeginTransactionResult { transaction_id: session.handle(Kind::Transaction, number).bytes() })
    }

    pub(super) async fn end_transaction(
        &self,
        session: &Arc<Session>,
        request: &ActionEndTransactionRequest,
    ) -> Result<(), Status> {
        self.open_transaction(session, &request.transaction_id)?;
        let sql = match request.action() {
            EndTransaction::Commit => "COMMIT",
            EndTransaction::Rollback => "ROLLBACK",
            EndTransaction::Unspecified => {
                return Err(Status::invalid_argument("say how to end it: commit or rollback"));
            }
        };
        let ended = self.control(session, sql.to_owned()).await;
        // A commit that another session's writing has held up can be tried again; anything else has ended it.
        if !matches!(&ended, Err(status) if status.code() == tonic::Code::Aborted) {
            session.set_transaction(None);
        }
        ended
    }

    pub(super) async fn begin_savepoint(
        &self,
        session: &Arc<Session>,
        request: &ActionBeginSavepointRequest,
    ) -> Result<ActionBeginSavepointResult, Status> {
        self.open_transaction(session, &request.transaction_id)?;
        let number = session.number();
        self.control(session, format!("SAVEPOINT flight_local_{number}")).await?;
        Ok(ActionBeginSavepointResult { savepoint_id: session.handle(Kind::Savepoint, number).bytes() })
    }

    pub(super) async fn end_savepoint(
        &self,
        session: &Arc<Session>,
        request: &ActionEndSavepointRequest,
    ) -> Result<(), Status> {
        let number = self.own(session, &request.savepoint_id, Kind::Savepoint)?.number;
        let sql = match request.action {
            RELEASE => format!("RELEASE flight_local_{number}"),
            ROLLBACK => {
                format!("ROLLBACK TO flight_local_{number}; RELEASE flight_local_{number}")
            }
            _ => {
                return Err(Status::invalid_argument("say how to end it: release or rollback"));
            }
        };
        self.control(session, sql).await
    }

    /// Runs what is no statement of the client's own.
    async fn control(&self, session: &Arc<Session>, sql: String) -> Result<(), Status> {
        self.shared.log(&sql);
        aside(&self.shared, session, move |connection| Ok(connection.execute_batch(&sql)?)).await
    }
}
