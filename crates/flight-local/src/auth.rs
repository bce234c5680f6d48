//! Authentication.

use std::fmt;

use base64::Engine;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use tonic::Status;
use tonic::metadata::MetadataMap;

use crate::error::StartError;
use crate::runtime;

/// Who may use the server: one user with a password, and clients with one of the tokens.
#[derive(Clone, Default)]
pub struct Auth {
    /// The user name for the handshake, which returns a bearer token.
    pub user: String,
    /// The password. If it is empty, the user cannot log in.
    pub password: String,
    /// Bearer tokens that are accepted without a handshake.
    pub tokens: Vec<String>,
}

impl Auth {
    /// One user with a password.
    #[must_use]
    pub fn basic(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: user.into(), password: password.into(), tokens: Vec::new() }
    }

    /// One bearer token.
    #[must_use]
    pub fn bearer(token: impl Into<String>) -> Self {
        Self { tokens: vec![token.into()], ..Self::default() }
    }
}

/// Without its secrets.
impl fmt::Debug for Auth {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Auth")
            .field("user", &self.user)
            .field("password", &"***")
            .field("tokens", &self.tokens.len())
            .finish()
    }
}

/// Checks the credentials of calls.
pub(crate) struct Authenticator {
    auth: Option<Auth>,
    /// The bearer token that a handshake returns.
    issued: String,
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Authenticator").field("auth", &self.auth).finish_non_exhaustive()
    }
}

impl Authenticator {
    pub(crate) fn new(auth: Option<Auth>) -> Result<Self, StartError> {
        Ok(Self { auth, issued: runtime::secret()? })
    }

    /// Admits a call, or returns what it lacks.
    pub(crate) fn admit(&self, headers: &MetadataMap) -> Result<(), Status> {
        let Some(auth) = &self.auth else { return Ok(()) };
        let Some(header) = headers.get("authorization").and_then(|value| value.to_str().ok()) else {
            return Err(Status::unauthenticated(
                "no authorization header; send a bearer token, or do a handshake",
            ));
        };
        let known = match header.split_once(' ') {
            Some(("Bearer" | "bearer", token)) => {
                token == self.issued || auth.tokens.iter().any(|known| known == token)
            }
            Some(("Basic" | "basic", login)) => is_login(auth, login),
            _ => false,
        };
        match known {
            true => Ok(()),
            false => Err(Status::unauthenticated("the token or the password is wrong")),
        }
    }

    /// The bearer token for a client that logs in. Without `auth`, for every client.
    pub(crate) fn log_in(&self, headers: &MetadataMap) -> Result<&str, Status> {
        self.admit(headers).map(|()| self.issued.as_str())
    }
}

fn is_login(auth: &Auth, login: &str) -> bool {
    // Clients in Go omit the padding.
    let Ok(login) = BASE64_STANDARD_NO_PAD.decode(login.trim_end_matches('=')) else { return false };
    let expected = format!("{}:{}", auth.user, auth.password);
    !auth.password.is_empty() && login == expected.as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(authorization: &str) -> MetadataMap {
        let mut headers = MetadataMap::new();
        headers.insert("authorization", authorization.parse().unwrap());
        headers
    }

    fn basic(login: &str) -> MetadataMap {
        headers(&format!("Basic {}", BASE64_STANDARD_NO_PAD.encode(login)))
    }

    #[test]
    fn only_what_is_known_is_let_in() {
        let auth = Auth { tokens: vec!["fixed".to_owned()], ..Auth::basic("ann", "secret") };
        let authenticator = Authenticator::new(Some(auth)).unwrap();
        assert!(authenticator.admit(&headers("Bearer fixed")).is_ok());
        assert!(authenticator.admit(&basic("ann:secret")).is_ok());
        assert!(authenticator.admit(&headers("Basic YW5uOnNlY3JldA==")).is_ok());
        let issued = authenticator.log_in(&basic("ann:secret")).unwrap();
        assert!(authenticator.admit(&headers(&format!("Bearer {issued}"))).is_ok());
        for wrong in [headers("Bearer other"), basic("ann:wrong"), basic("bob:secret"), headers("fixed")] {
            assert!(authenticator.admit(&wrong).is_err(), "{wrong:?}");
        }
        assert!(authenticator.admit(&MetadataMap::new()).is_err());
    }

    #[test]
    fn without_a_password_no_user_can_log_in() {
        let authenticator = Authenticator::new(Some(Auth::bearer("fixed"))).unwrap();
        assert!(authenticator.admit(&basic(":")).is_err());
        assert!(authenticator.admit(&headers("Bearer fixed")).is_ok());
    }

    #[test]
    fn secrets_are_not_printed() {
        let auth = Auth { tokens: vec!["fixed".to_owned()], ..Auth::basic("ann", "hidden") };
        let text = format!("{auth:?} {:?}", Authenticator::new(Some(auth.clone())).unwrap());
        assert!(text.contains("ann") && !text.contains("hidden") && !text.contains("fixed"), "{text}");
    }
}
