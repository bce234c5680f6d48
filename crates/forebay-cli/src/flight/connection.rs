//! The one session of a shell.

use std::time::Duration;

use forebay::rt::{self, Runtime};
use forebay_flight::{AsyncSession, CancelHandle, Code, ConnectOptions, Error};

use super::progress::Spinner;
use crate::access;

/// How long a server may take to stop a statement before the shell leaves without having seen it.
const FAREWELL: Duration = Duration::from_secs(3);

/// One session, opened when it is needed, and anew when it is lost.
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
    /// Dropping it closes what was half made.
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
                spinner.attend(runtime, connecting, unless).await?
            }
        };
        if spinner.is_seen() {
            spinner.ask();
        }
        Ok(self.session.insert(session))
    }

    /// The session, if there is one.
    pub(crate) fn current(&mut self) -> Option<&mut AsyncSession> {
        self.session.as_mut()
    }

    /// Gives the session up. Dropping it closes its connection.
    pub(crate) fn leave(&mut self) {
        self.session = None;
    }

    /// Forgets a session that is of no more use. Whether there was one.
    pub(crate) fn forget_lost(&mut self, error: &Error) -> bool {
        let is_lost = matches!(error, Error::SessionLost { .. })
            || self.session.as_ref().is_some_and(|session| !session.is_connected());
        is_lost && self.session.take().is_some()
    }

    /// Ends the session. If a statement may have been broken off, it is seen to end first, so that the server is not left at
    /// work.
    pub(crate) async fn close(&mut self, runtime: &dyn Runtime, is_broken_off: bool) {
        let Some(mut session) = self.session.take() else { return };
        if is_broken_off {
            // Whatever it answers, it has answered.
            let _ = rt::within(runtime, FAREWELL, session.ping()).await;
        }
        // Whoever leaves has no use for the reason why the server did not hear of it.
        let _ = session.close().await;
    }
}

/// What to do about an error beyond what it says itself.
pub(crate) fn remedy(error: &Error) -> Option<&'static str> {
    match error {
        Error::Server { code: Code::Unauthenticated, .. } => Some(access::LOG_IN),
        Error::Server { code: Code::PermissionDenied, .. } => {
            Some("ask for the right, or log in as somebody who has it: --user, --token-file")
        }
        Error::Server { code: Code::ResourceExhausted, .. } => {
            Some("the server has no more room: try again later, or ask for less")
        }
        Error::Transport { may_have_run: false, .. } if error.to_string().contains("certificate") => {
            Some(access::TRUST)
        }
        Error::Transport { may_have_run: false, .. } => Some(access::REACH),
        Error::QueryTimeout { .. } => Some("--timeout says how long a statement may take"),
        _ => None,
    }
}
