//! Who a new connection says it is.

use std::error::Error as _;

use arrow_flight::HandshakeRequest;
use arrow_flight::flight_service_client::FlightServiceClient;
use bytes::Bytes;
use forebay::{BoxError, Chain};
use futures_util::{TryStreamExt, stream};
use tonic::{Code, Status};

use crate::auth::Auth;
use crate::error::{Error, Result};
use crate::wire::Wire;

/// Dresses a new connection in its credentials.
///
/// # Cancel safety
/// Dropping it closes the connection.
pub(crate) async fn login(wire: Wire, auth: &Auth) -> Result<Wire> {
    match auth {
        Auth::Nobody | Auth::Withheld => Ok(wire),
        Auth::Bearer(provider) => {
            let token = provider.token().await.map_err(|error: BoxError| Error::Transport {
                message: format!("no token: {}", Chain(&*error)),
                may_have_run: false,
            })?;
            let dress = wire.dress().bearer(&token)?;
            Ok(wire.dressed(dress))
        }
        Auth::Basic { user, password } => {
            let dress = wire.dress().basic(user, password)?;
            let wire = wire.dressed(dress);
            match handshake(wire.clone()).await {
                Ok(Some(credential)) => {
                    let dress = wire.dress().authorized(&credential)?;
                    Ok(wire.dressed(dress))
                }
                Ok(None) => Ok(wire),
                // A server without a handshake may still read the password that comes with each call.
                Err(status) if status.code() == Code::Unimplemented => Ok(wire),
                Err(status) if status.source().is_none() => {
                    let message = match status.code() {
                        Code::Unauthenticated | Code::PermissionDenied => {
                            format!("{}; {}", status.message(), auth.remedy())
                        }
                        _ => status.message().to_owned(),
                    };
                    Err(Error::Server { code: status.code(), message })
                }
                Err(status) => Err(Error::Transport {
                    message: format!("cannot log in: {}", Chain(&status)),
                    may_have_run: false,
                }),
            }
        }
    }
}

/// What to send from now on, if the server says so.
async fn handshake(wire: Wire) -> Result<Option<String>, Status> {
    let hello = stream::iter([HandshakeRequest { protocol_version: 0, payload: Bytes::new() }]);
    let answer = FlightServiceClient::new(wire).handshake(hello).await?;
    let header =
        answer.metadata().get("authorization").and_then(|value| value.to_str().ok()).map(str::to_owned);
    let last = answer.into_inner().try_fold(Bytes::new(), async |_, response| Ok(response.payload)).await?;
    let payload = || std::str::from_utf8(&last).ok().filter(|token| !token.is_empty());
    Ok(header.or_else(|| payload().map(|token| format!("Bearer {token}"))))
}
