//! The permit that every call in a session needs.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::Connection;
use crate::error::{Error, Phase, Result};
use crate::statement::limits::Limits;

/// Permission to send something in a session. Granted by [`Connection::permit`], once no background task is
/// left. The session is not idle until the permit is dropped.
#[derive(Debug)]
pub(crate) struct StatementPermit {
    connection: Arc<Connection>,
}

impl StatementPermit {
    /// Takes a permit without waiting: for background tasks, which the others wait for.
    pub(crate) fn take(connection: &Arc<Connection>) -> Self {
        connection.permits.fetch_add(1, Ordering::SeqCst);
        Self { connection: Arc::clone(connection) }
    }

    pub(crate) fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    /// Runs an action, and returns its first result.
    ///
    /// # Cancel safety
    /// Dropping it leaves open whether the action ran.
    pub(crate) async fn action(
        &self,
        kind: &str,
        request: impl Into<Bytes>,
        limits: &Limits,
    ) -> Result<Option<Bytes>> {
        let action = async {
            let answer = self.connection.action(kind, request, limits.remaining()).await;
            answer.map_err(|status| self.connection.classify_within(&status, limits, Phase::Execute))
        };
        limits.run(Phase::Execute, action).await
    }
}

impl Drop for StatementPermit {
    fn drop(&mut self) {
        self.connection.permits.fetch_sub(1, Ordering::SeqCst);
        self.connection.changed.notify_waiters();
    }
}

impl Connection {
    /// Waits until no background task is left. Fails if the session was given back since `checkout_generation`, if it was
    /// idle for too long, or if a statement of its transaction has failed.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    pub(crate) async fn permit(
        self: &Arc<Self>,
        checkout_generation: Option<u64>,
        limits: &Limits,
    ) -> Result<StatementPermit> {
        let permit = self.permit_to_end(checkout_generation, limits).await?;
        self.transaction.check()?;
        Ok(permit)
    }

    /// The same for what ends a transaction, which may have failed.
    ///
    /// # Cancel safety
    /// Dropping it changes nothing.
    pub(crate) async fn permit_to_end(
        self: &Arc<Self>,
        checkout_generation: Option<u64>,
        limits: &Limits,
    ) -> Result<StatementPermit> {
        loop {
            // Counted before the checks: if the session is given back meanwhile, either this sees it or the
            // pool sees the count.
            let permit = StatementPermit::take(self);
            if !self.is_usable() {
                return Err(lost("its connection is closed, or given up"));
            }
            let is_ready = self.is_ready();
            if is_ready {
                self.check_idle()?;
            }
            if checkout_generation.is_some_and(|prepared_in| prepared_in != self.checkout_generation()) {
                return Err(lost(
                    "since the statement was prepared, its caller has given the session back, or did not use it for too long",
                ));
            }
            if is_ready {
                return Ok(permit);
            }
            drop(permit);
            // Boxed because it is rare and large, and part of the future of every call.
            let ready = Box::pin(async { Ok(self.background_done().await || self.recover().await) });
            if !limits.run(Phase::Wait, ready).await? && self.is_usable() {
                return Err(lost("the server still runs what was cancelled in it"));
            }
        }
    }
}

fn lost(message: &str) -> Error {
    Error::session_lost(message, false)
}
