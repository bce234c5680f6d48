//! The session of a shell.

use std::time::Duration;

use forebay::rt::{self, Runtime};
use forebay_flight::{AsyncSession, CancelHandle, Code, ConnectOptions, Error};

use super::progress::Spinner;
use crate::access;

/// How long the shell waits at its end for the server to stop a statement.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// One session. It opens at the first use, and again after it was lost.
pub(crate) struct Connection {
    options: ConnectOptions,
    session: Option<AsyncSession>,
}

impl Connection {
    pub(crate) fn new(options: ConnectOptions) -> Self {
        Self { options, session: None }
    }

    pub(crate) fn endpoint(&self) -> String {
        self.options.endpoint().to_string()
    }

    /// The session; opens one if there is none.
    ///
    /// # Cancel safety
    /// Dropping it closes a connection that is not complete.
    pub(crate) async fn session(
        &mut self,
        runtime: &dyn Runtime,
        spinner: &mut Spinner,
        cancel: &CancelHandle,
    ) -> Result<&mut AsyncSession, Error> {
        let session = match self.session.take() {
            Some(session) => session,
            None => {
                let connecting = AsyncSession::connect(self.options.clone());
                let unless =
                    || cancel.is_cancelled().then_some(Err(Error::Cancelled { may_have_run: false }));
                spinner.wait_for(runtime, connecting, unless).await?
            }
        };
        Ok(self.session.insert(session))
    }

    /// The session, if there is one.
    pub(crate) fn current(&mut self) -> Option<&mut AsyncSession> {
        self.session.as_mut()
    }

    /// Drops the session, which closes its connection.
    pub(crate) fn leave(&mut self) {
        self.session = None;
    }

    /// Drops a session that was lost. Returns whether there was one.
    pub(crate) fn drop_lost(&mut self, error: &Error) -> bool {
        let is_lost = matches!(error, Error::SessionLost { .. })
            || self.session.as_ref().is_some_and(|session| !session.is_connected());
        is_lost && self.session.take().is_some()
    }

    /// Ends the session. If a statement was interrupted, it first waits for its end, so that the server stops
    /// its work.
    pub(crate) async fn close(&mut self, runtime: &dyn Runtime, was_interrupted: bool) {
        let Some(mut session) = self.session.take() else { return };
        if was_interrupted {
            // Any answer comes after the statement.
            let _ = rt::within(runtime, CLOSE_TIMEOUT, session.ping()).await;
        }
        // The shell ends: an error of the server changes nothing.
        let _ = session.close().await;
    }
}

/// What to do about an error.
pub(crate) fn remedy(error: &Error) -> Option<&'static str> {
    match error {
        Error::Server { code: Code::Unauthenticated, .. } => Some(access::LOG_IN),
        Error::Server { code: Code::PermissionDenied, .. } => {
            Some("log in as a user who has the permission: --user, --token-file")
        }
        Error::Server { code: Code::ResourceExhausted, .. } => {
            Some("the server is out of a resource: try again later, or with less")
        }
        Error::Transport { may_have_run: false, .. } if error.to_string().contains("certificate") => {
            Some(access::TRUST)
        }
        Error::Transport { may_have_run: false, .. } => Some(access::REACH),
        Error::QueryTimeout { .. } => Some("--timeout sets how long a statement may take"),
        _ => None,
    }
}
