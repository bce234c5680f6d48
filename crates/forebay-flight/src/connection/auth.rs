//! Credentials, and how a new connection logs in with them.

use std::error::Error as _;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use arrow_flight::HandshakeRequest;
use arrow_flight::flight_service_client::FlightServiceClient;
use bytes::Bytes;
use forebay::{BoxError, Chain};
use futures_util::{TryStreamExt, stream};
use tonic::{Code, Status};

use super::transport::Transport;
use crate::error::{Error, Result};

/// The credentials of a connection.
#[derive(Clone)]
pub(crate) enum Auth {
    Anonymous,
    /// There are credentials, but this host does not get them.
    Withheld,
    Basic {
        user: String,
        password: String,
    },
    Bearer(Arc<dyn TokenProvider>),
}

impl Auth {
    /// What to do when the server refuses the credentials.
    pub(crate) fn remedy(&self) -> &'static str {
        match self {
            Self::Anonymous => {
                "no credentials were sent: set ConnectOptions::basic, bearer or token_provider"
            }
            Self::Withheld => {
                "no credentials are sent to other hosts that hold a part of a result, \
                 unless ConnectOptions::credentials_to_other_hosts allows it"
            }
            Self::Basic { .. } => "check the user and the password of ConnectOptions::basic",
            Self::Bearer(_) => "check the token of ConnectOptions::bearer or token_provider",
        }
    }
}

/// A token, or why there is none.
pub type TokenFuture<'a> = Pin<Box<dyn Future<Output = Result<String, BoxError>> + Send + 'a>>;

/// Provides a bearer token for each new connection, so that tokens may change while a pool lives.
pub trait TokenProvider: Send + Sync + 'static {
    /// A token that is valid now.
    fn token(&self) -> TokenFuture<'_>;
}

/// A token that never changes.
pub(crate) struct StaticToken(pub(crate) String);

impl TokenProvider for StaticToken {
    fn token(&self) -> TokenFuture<'_> {
        Box::pin(async { Ok(self.0.clone()) })
    }
}

/// Adds the credentials to a new connection.
///
/// # Cancel safety
/// Dropping it closes the connection.
pub(crate) async fn login(transport: Transport, auth: &Auth) -> Result<Transport> {
    match auth {
        Auth::Anonymous | Auth::Withheld => Ok(transport),
        Auth::Bearer(provider) => {
            let token = provider.token().await.map_err(|error: BoxError| {
                Error::transport(format!("no token: {}", Chain(&*error)), false)
            })?;
            let headers = transport.headers().bearer(&token)?;
            Ok(transport.with_headers(headers))
        }
        Auth::Basic { user, password } => {
            let headers = transport.headers().basic(user, password)?;
            let transport = transport.with_headers(headers);
            match handshake(transport.clone()).await {
                Ok(Some(credential)) => {
                    let headers = transport.headers().authorized(&credential)?;
                    Ok(transport.with_headers(headers))
                }
                Ok(None) => Ok(transport),
                // A server without a handshake may still read the password that is sent with each call.
                Err(status) if status.code() == Code::Unimplemented => Ok(transport),
                Err(status) if status.source().is_none() => {
                    let message = match status.code() {
                        Code::Unauthenticated | Code::PermissionDenied => {
                            format!("{}; {}", status.message(), auth.remedy())
                        }
                        _ => status.message().to_owned(),
                    };
                    Err(Error::server(status.code(), message).with_status(&status))
                }
                Err(status) => {
                    let message = format!("cannot log in: {}", Chain(&status));
                    Err(Error::transport(message, false).with_status(&status))
                }
            }
        }
    }
}

/// The `authorization` header to send from now on, if the server gives one.
async fn handshake(transport: Transport) -> Result<Option<String>, Status> {
    let hello = stream::iter([HandshakeRequest { protocol_version: 0, payload: Bytes::new() }]);
    let answer = FlightServiceClient::new(transport).handshake(hello).await?;
    let header =
        answer.metadata().get("authorization").and_then(|value| value.to_str().ok()).map(str::to_owned);
    let last = answer.into_inner().try_fold(Bytes::new(), async |_, response| Ok(response.payload)).await?;
    let payload = || std::str::from_utf8(&last).ok().filter(|token| !token.is_empty());
    Ok(header.or_else(|| payload().map(|token| format!("Bearer {token}"))))
}
