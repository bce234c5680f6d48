//! Opens a connection with a token, whichever driver it is, and sorts the failures.

use std::io;

use forebay::{Failure, OpenError};

use super::ConnectorParts;
use crate::error::{Auth, Error, ErrorKind, Throttle, causes, is_of_system, seen};
use crate::token::Token;

impl ConnectorParts {
    /// Makes sure that there is a token. Cancel safe.
    pub(crate) async fn prepare(&self) -> Result<(), OpenError> {
        self.token().await.map(drop)
    }

    async fn token(&self) -> Result<Token, OpenError> {
        let token = self.tokens.token(&self.options.token_request()).await;
        token.map_err(|error| OpenError::new(Failure::Token, error))
    }

    /// Connects with a token. A token that is refused is not used again. The next open signs another: it has a permit of its
    /// own, so the connect rate holds even if many opens in flight have the same token. Cancel safe if `dial` is.
    pub(crate) async fn open<T, F>(&self, dial: impl FnOnce(Token) -> F) -> Result<T, OpenError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let identity = || self.options.token_request().identity;
        let token = self.token().await?;
        let error = match dial(token.clone()).await.map_err(Error::at_connect) {
            Ok(connection) => return Ok(connection),
            Err(error) => error,
        };
        let may_pass = match error.kind() {
            ErrorKind::Auth(Auth::SignatureExpired) => {
                self.tokens.expired(&identity(), &token);
                false
            }
            // Its keys may have been replaced. Only if the next token is denied as well, waiting does not help. If there is
            // none now, that is not known.
            ErrorKind::Auth(Auth::Denied) => {
                self.tokens.denied(&identity(), &token);
                self.token().await.map_or(true, |other| other != token)
            }
            _ => false,
        };
        Err(open_error(error, may_pass))
    }
}

/// Sorts a failed connect by how the refill should go on; `may_pass` is whether another token may be let in.
fn open_error(error: Error, may_pass: bool) -> OpenError {
    let failure = match error.kind() {
        ErrorKind::Throttled(Throttle::TooManyConnections) => Failure::TooManyConnections,
        ErrorKind::Throttled(_) => Failure::Throttled,
        ErrorKind::Auth(Auth::NoToken) => Failure::Token,
        ErrorKind::Auth(_) => Failure::Auth,
        _ if is_silence(&error) => Failure::Timeout,
        _ => Failure::Open,
    };
    let permanent = match error.kind() {
        // A denied role stays denied. An expired signature or a missing token may pass.
        ErrorKind::Auth(Auth::Denied) => !may_pass,
        // A certificate that is not trusted or for another name, TLS that the server does not speak, a database that is not
        // there: somebody must act. What the operating system reports may pass, such as a full table of files.
        ErrorKind::Permanent | ErrorKind::Unsupported => !is_of_system(&error),
        _ => false,
    };
    let error = OpenError::new(failure, error);
    if permanent { error.permanent() } else { error }
}

/// Whether nothing answered in time.
fn is_silence(error: &Error) -> bool {
    let of_io = |cause| seen::<io::Error>(cause).is_some_and(|error| error.kind() == io::ErrorKind::TimedOut);
    causes(error).any(of_io)
}

/// The error of a COMMIT that the server answered by rolling back. `failed` is what failed the transaction, if that is known.
pub(crate) fn rolled_back(failed: Option<ErrorKind>) -> Error {
    Error::new(
        failed.unwrap_or(ErrorKind::Permanent),
        "the transaction was rolled back at COMMIT, since one of its statements had failed",
    )
}

/// The error of a COMMIT that found no transaction, or another one than was begun.
pub(crate) fn ended_by_body() -> Error {
    Error::new(
        ErrorKind::Permanent,
        "the body ended its transaction by itself: what it did before is committed or rolled back as it said, and what came after was not part of one; leave BEGIN, COMMIT and ROLLBACK to `run`",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_told_from_refusal() {
        for (kind, failure) in
            [(io::ErrorKind::TimedOut, Failure::Timeout), (io::ErrorKind::ConnectionRefused, Failure::Open)]
        {
            assert_eq!(open_error(io::Error::from(kind).into(), false).failure(), failure);
        }
    }

    #[test]
    fn a_denial_and_what_somebody_must_change_are_permanent() {
        for (kind, permanent) in [
            (ErrorKind::Auth(Auth::Denied), true),
            (ErrorKind::Auth(Auth::SignatureExpired), false),
            (ErrorKind::Auth(Auth::NoToken), false),
            (ErrorKind::Throttled(Throttle::RateExceeded), false),
            (ErrorKind::Permanent, true),
            (ErrorKind::Unsupported, true),
            (ErrorKind::Disconnected, false),
            (ErrorKind::Unavailable, false),
        ] {
            assert_eq!(open_error(Error::new(kind, "no"), false).is_permanent(), permanent, "{kind:?}");
        }
        let denied = Error::new(ErrorKind::Auth(Auth::Denied), "no");
        assert!(!open_error(denied, true).is_permanent(), "another token may be let in");
    }

    #[test]
    fn only_what_the_server_is_lasts() {
        for (error, permanent) in [
            (io::Error::new(io::ErrorKind::InvalidData, rustls::Error::UnsupportedNameType), true),
            (io::Error::new(io::ErrorKind::InvalidData, rustls::Error::DecryptError), false),
            // EACCES, such as of a firewall, and EMFILE.
            (io::Error::from_raw_os_error(13), false),
            (io::Error::from_raw_os_error(24), false),
            (io::ErrorKind::ConnectionRefused.into(), false),
            (io::ErrorKind::ConnectionReset.into(), false),
            (io::ErrorKind::TimedOut.into(), false),
            (io::ErrorKind::UnexpectedEof.into(), false),
        ] {
            let told = format!("{error:?}");
            assert_eq!(open_error(error.into(), false).is_permanent(), permanent, "{told}");
        }
    }
}
