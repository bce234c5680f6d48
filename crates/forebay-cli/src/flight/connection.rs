//! The session of a shell.

use std::time::Duration;

use forebay::rt::{self, Runtime};
use forebay_flight::{AsyncSession, CancelHandle, Code, ConnectOptions, Error};

use super::progress::Spinner;
use crate::access;

/// How long the shell waits at its end for the server to stop a statement. The requests to stop are sent
/// before that; a server that supports them answers in a fraction of this time.
const STOP_TIMEOUT: Duration = Duration::from_millis(500);
/// How long it waits for a rollback, and for the end of the session.
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

    /// Drops a session that was lost. Returns whether there was one.
    pub(crate) fn drop_lost(&mut self, error: &Error) -> bool {
        let is_lost = matches!(error, Error::SessionLost { .. })
            || self.session.as_ref().is_some_and(|session| !session.is_connected());
        is_lost && self.session.take().is_some()
    }

    /// Ends the session. An open transaction is rolled back first: a server that does not support
    /// `CloseSession` keeps the session, and the transaction in it. What else it holds is removed with its end.
    ///
    /// If a statement was interrupted, it waits a moment for its end. Returns whether the server may still run
    /// it.
    pub(crate) async fn close(&mut self, runtime: &dyn Runtime, state: Closing) -> bool {
        let Some(mut session) = self.session.take() else { return false };
        // Any answer comes after the statement.
        let may_still_run = state.may_still_run
            && !matches!(
                rt::within(runtime, STOP_TIMEOUT, session.ping()).await,
                Some(Ok(()) | Err(Error::Server { .. }))
            );
        if state.has_transaction && !may_still_run {
            // The shell ends: an error of the server changes nothing.
            let _ = rt::within(runtime, CLOSE_TIMEOUT, session.rollback()).await;
        }
        // A server that is busy with the statement may answer late.
        let limit = if may_still_run { STOP_TIMEOUT } else { CLOSE_TIMEOUT };
        let _ = rt::within(runtime, limit, session.close()).await;
        may_still_run
    }
}

/// What a session ends with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closing {
    /// Its last statement was interrupted.
    pub(crate) may_still_run: bool,
    /// A transaction may be open.
    pub(crate) has_transaction: bool,
}

/// What to do about an error.
pub(crate) fn remedy(error: &Error) -> Option<&'static str> {
    match error {
        Error::Server { code: Code::Unauthenticated, .. } => Some(access::LOG_IN),
        Error::Server { code: Code::PermissionDenied, .. } => {
            Some("log in as a user who has the permission: --user, --token-file")
        }
        Error::Server { code: Code::ResourceExhausted, message, .. }
            if message.to_ascii_lowercase().contains("session") =>
        {
            Some(
                "the server has as many sessions as it allows. Each run of this shell takes one, and a server without \
                 CloseSession keeps it for a while after the end (SwanLake: 15 to 20 minutes). Run more statements in one \
                 shell (several -c, --file, stdin), wait, or raise the server's limit",
            )
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

/// The library's words for its options, and the shell's for the same. The first that fits is used.
const TERMS: &[(&str, &str)] = &[
    (
        "set ConnectOptions::basic, bearer or token_provider",
        "give --user and --password-file, or --token-file",
    ),
    (" of ConnectOptions::basic", ": --user, --password-file"),
    (" of ConnectOptions::bearer or token_provider", ": --token-file"),
    ("unless ConnectOptions::credentials_to_other_hosts allows it", "and the shell cannot send them"),
    ("raise ConnectOptions::max_message_size, or ", ""),
    ("to ConnectOptions::roots", "with --tls-roots"),
    ("to ConnectOptions::server_name", "with --tls-server-name"),
    (", ConnectOptions::identity", ": --tls-certificate and --tls-key"),
    ("to ConnectOptions::basic", "with --user and --password-file"),
    ("roots must be certificates", "--tls-roots must be certificates"),
    ("identity must be", "--tls-certificate and --tls-key must be"),
    // What has no words of its own above.
    ("ConnectOptions::connect_timeout", "--connect-timeout"),
    ("ConnectOptions::header", "--header"),
    ("session_idle_limit", "--session-idle-limit"),
    ("ConnectOptions::", ""),
];

/// The library's message for a user who has flags and no Rust.
pub(crate) fn in_terms_of_the_shell(text: &str) -> String {
    TERMS.iter().fold(text.to_owned(), |text, (library, shell)| text.replace(library, shell))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_flags_and_not_the_library() {
        for (library, shell) in [
            (
                "the server answered UNAUTHENTICATED: who?; no credentials were sent: set ConnectOptions::basic, bearer \
                 or token_provider",
                "the server answered UNAUTHENTICATED: who?; no credentials were sent: give --user and --password-file, \
                 or --token-file",
            ),
            (
                "check the user and the password of ConnectOptions::basic",
                "check the user and the password: --user, --password-file",
            ),
            ("check the token of ConnectOptions::bearer or token_provider", "check the token: --token-file"),
            (
                "pass the authority that signed its certificate to ConnectOptions::roots",
                "pass the authority that signed its certificate with --tls-roots",
            ),
            (
                "it may require a client certificate, ConnectOptions::identity",
                "it may require a client certificate: --tls-certificate and --tls-key",
            ),
            (
                "message length too large; raise ConnectOptions::max_message_size, or ask for fewer rows at once",
                "message length too large; ask for fewer rows at once",
            ),
            (
                "the server may have replaced it after 840 s (session_idle_limit)",
                "the server may have replaced it after 840 s (--session-idle-limit)",
            ),
            ("set ConnectOptions::something_new", "set something_new"),
        ] {
            assert_eq!(in_terms_of_the_shell(library), shell);
        }
    }
}
