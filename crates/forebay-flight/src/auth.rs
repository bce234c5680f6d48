//! Who to be, and where tokens come from.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use forebay::BoxError;

/// Who to be.
#[derive(Clone)]
pub(crate) enum Auth {
    Nobody,
    /// Nobody, to a place that is not told who asks.
    Withheld,
    Basic {
        user: String,
        password: String,
    },
    Bearer(Arc<dyn TokenProvider>),
}

impl Auth {
    /// What to do when the server does not let it in.
    pub(crate) fn remedy(&self) -> &'static str {
        match self {
            Self::Nobody => "no credentials were sent: set ConnectOptions::basic, bearer or token_provider",
            Self::Withheld => {
                "no credentials are sent to other places of a result, unless ConnectOptions::credentials_elsewhere allows it"
            }
            Self::Basic { .. } => "check the user and the password of ConnectOptions::basic",
            Self::Bearer(_) => "check the token of ConnectOptions::bearer or token_provider",
        }
    }
}

/// A token, or why there is none.
pub type TokenFuture<'a> = Pin<Box<dyn Future<Output = Result<String, BoxError>> + Send + 'a>>;

/// Gives a bearer token for each new connection, so that tokens may change while a pool lives.
pub trait TokenProvider: Send + Sync + 'static {
    /// A token that is good now.
    fn token(&self) -> TokenFuture<'_>;
}

/// A token that never changes.
pub(crate) struct Fixed(pub(crate) String);

impl TokenProvider for Fixed {
    fn token(&self) -> TokenFuture<'_> {
        Box::pin(async { Ok(self.0.clone()) })
    }
}
