//! Telling a running server something, from another process.

use std::fmt;

use arrow_flight::Action;
use arrow_flight::flight_service_client::FlightServiceClient;
use tonic::Request;
use tonic::metadata::MetadataValue;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};

use crate::control::TELL;

/// What a server asks of those who tell it something.
#[derive(Clone, Default)]
pub struct Access {
    /// What to verify its certificate with, as PEM text.
    pub root_pem: Option<String>,
    /// A bearer token.
    pub token: Option<String>,
}

/// Without the token.
impl fmt::Debug for Access {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Access")
            .field("root_pem", &self.root_pem.is_some())
            .field("token", &self.token.is_some())
            .finish()
    }
}

/// Why a server could not be told.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TellError {
    /// The address is none.
    #[error("{0:?} is no address of a server; give one such as grpc://127.0.0.1:4214")]
    Address(String),
    /// There is nobody, or somebody else.
    #[error("cannot reach {url}: {reason}")]
    Unreachable {
        /// Where it was looked for.
        url: String,
        /// What was said there.
        reason: String,
    },
    /// It will not do it.
    #[error("{0}")]
    Refused(String),
}

/// Tells a server at `url` what to do; what it has to say. It must have been started with
/// [`Config::control`](crate::Config::control).
///
/// # Errors
///
/// If it cannot be reached, does not understand, or does not listen to such commands.
///
/// # Cancel safety
///
/// Dropped before it is done, the server may or may not have been told.
pub async fn tell(url: &str, access: &Access, command: &str) -> Result<String, TellError> {
    let address = || TellError::Address(url.to_owned());
    let (scheme, rest) = url.split_once("://").ok_or_else(address)?;
    let scheme = match scheme {
        "grpc" | "grpc+tcp" => "http",
        "grpc+tls" => "https",
        _ => return Err(address()),
    };
    let mut endpoint = Endpoint::from_shared(format!("{scheme}://{rest}")).map_err(|_| address())?;
    let unreachable = |error: &dyn std::error::Error| TellError::Unreachable {
        url: url.to_owned(),
        reason: error.source().map_or_else(|| error.to_string(), ToString::to_string),
    };
    if let Some(root) = &access.root_pem {
        let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(root));
        endpoint = endpoint.tls_config(tls).map_err(|error| unreachable(&error))?;
    }
    let channel = endpoint.connect().await.map_err(|error| unreachable(&error))?;
    let mut request = Request::new(Action::new(TELL, command.to_owned()));
    if let Some(token) = &access.token
        && let Ok(bearer) = MetadataValue::try_from(format!("Bearer {token}"))
    {
        request.metadata_mut().insert("authorization", bearer);
    }
    let refused = |status: tonic::Status| TellError::Refused(status.message().to_owned());
    let mut answers =
        FlightServiceClient::new(channel).do_action(request).await.map_err(refused)?.into_inner();
    let answer = answers.message().await.map_err(refused)?;
    Ok(answer.map(|answer| String::from_utf8_lossy(&answer.body).into_owned()).unwrap_or_default())
}
