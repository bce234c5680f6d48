//! Tokens: what lets a connection in, who signs them, and a cache that has one ready.

use std::error::Error as StdError;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use forebay::BoxError;
use forebay::duration::show;

mod cache;
mod slot;

pub use cache::TokenCache;

/// A password that is good for a while. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Arc<str>);

impl Token {
    /// Wraps a signed token.
    pub fn new(secret: impl Into<Arc<str>>) -> Self {
        Self(secret.into())
    }

    /// The secret itself, to be sent to the server and to nobody else.
    #[must_use]
    pub fn expose_secret(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(redacted)")
    }
}

/// What a token permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// To connect as any role but `admin`.
    DbConnect,
    /// To connect as `admin`.
    DbConnectAdmin,
}

impl Action {
    /// What `user` needs.
    #[must_use]
    pub fn of(user: &str) -> Self {
        if user == "admin" { Self::DbConnectAdmin } else { Self::DbConnect }
    }
}

/// Whom a token lets in, and where: what tokens are kept by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// The cluster's host.
    pub host: String,
    /// Its region.
    pub region: String,
    /// The database role.
    pub user: String,
    /// What it is permitted.
    pub action: Action,
}

/// What to sign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRequest {
    /// For whom.
    pub identity: Identity,
    /// For how long. At most a week.
    pub life: Duration,
}

/// A token fresh from a [`Signer`].
#[derive(Clone, Debug)]
pub struct Signed {
    /// The token.
    pub token: Token,
    /// When the credentials that signed it expire, as the time since 1970-01-01 00:00 UTC, if that is known. The
    /// token is worth nothing afterwards, however long its own life.
    pub credentials_expire: Option<Duration>,
}

/// The future of [`Signer::sign`].
pub type SignFuture<'a> = Pin<Box<dyn Future<Output = Result<Signed, TokenError>> + Send + 'a>>;

/// Signs tokens. `forebay-aws` has one that uses the SDK.
///
/// A [`TokenCache`] calls it for one token of an identity at a time, and drops the future after 5 s. What may take longer, such
/// as loading credentials, must outlive the future, and be there for the next.
pub trait Signer: Send + Sync + 'static {
    /// Signs one token. A life of more than a week is signed as one of a week.
    fn sign<'a>(&'a self, request: &'a TokenRequest) -> SignFuture<'a>;

    /// The server let nobody in with a token that this has signed: if credentials are kept, have new ones loaded. Called every
    /// 10 s at most. Does nothing unless it is implemented.
    fn denied(&self, _identity: &Identity) {}
}

/// A shared signer is a signer.
impl<S: Signer + ?Sized> Signer for Arc<S> {
    fn sign<'a>(&'a self, request: &'a TokenRequest) -> SignFuture<'a> {
        (**self).sign(request)
    }

    fn denied(&self, identity: &Identity) {
        (**self).denied(identity);
    }
}

/// What is known of a token, without the token. See [`TokenCache::status`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TokenStatus {
    /// The time since it was signed. `None` if there is no good one.
    pub age: Option<Duration>,
    /// How long it can still be used.
    pub good_for: Duration,
    /// How many signings have failed since the last one that succeeded.
    pub failures: u32,
}

/// Why there is no token.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// There are no credentials to sign with, or they may not be used. Give the process some.
    #[error("no credentials to sign a token with: {0}; give this process a role or keys")]
    Credentials(Cause),
    /// The credentials have expired, and no newer ones came. Renew them; check the clock.
    #[error("the credentials expired {} ago, and no newer ones came: renew them, and check the clock", show(*.ago))]
    CredentialsExpired {
        /// How long ago.
        ago: Duration,
    },
    /// Whoever gives out credentials does not answer well just now. Try again.
    #[error("no token just now: {0}; it is tried again")]
    Unavailable(Cause),
    /// Whoever gives out credentials does not answer at all. Try again.
    #[error("no token within {}; it is tried again", show(*.waited))]
    TimedOut {
        /// How long it was waited for.
        waited: Duration,
    },
}

impl TokenError {
    /// No credentials, because of `cause`.
    pub fn credentials(cause: impl Into<BoxError>) -> Self {
        Self::Credentials(Cause(cause.into().into()))
    }

    /// Not now, because of `cause`.
    pub fn unavailable(cause: impl Into<BoxError>) -> Self {
        Self::Unavailable(Cause(cause.into().into()))
    }
}

/// An error that several callers hear of.
#[derive(Clone)]
pub struct Cause(Arc<dyn StdError + Send + Sync>);

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The whole chain: SDKs say "an error occurred" on top and the reason three levels down.
impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        forebay::Chain(&*self.0).fmt(f)
    }
}

impl StdError for Cause {}

impl Cause {
    /// The error itself.
    #[must_use]
    pub fn get_ref(&self) -> &(dyn StdError + Send + Sync + 'static) {
        &*self.0
    }
}
