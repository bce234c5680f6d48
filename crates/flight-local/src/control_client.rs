//! Sends commands to a running server.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use arrow_flight::Action;
use arrow_flight::flight_service_client::FlightServiceClient;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request};

use crate::control::TELL;

/// How to connect to the server.
#[derive(Clone, Default)]
pub struct Access {
    /// The root certificate to verify the server with, in PEM.
    pub root_pem: Option<String>,
    /// The name in the server's certificate, if it is not the URL's host.
    pub server_name: Option<String>,
    /// The client's certificate chain and private key, in PEM.
    pub identity_pem: Option<(String, String)>,
    /// The credentials.
    pub login: Option<Login>,
}

/// The credentials of a client.
#[derive(Clone)]
pub enum Login {
    /// A bearer token.
    Bearer(String),
    /// A user and a password.
    Basic {
        /// The user name.
        user: String,
        /// The password.
        password: String,
    },
}

/// Without the token, the password and the key.
impl fmt::Debug for Access {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Access")
            .field("root_pem", &self.root_pem.is_some())
            .field("server_name", &self.server_name)
            .field("identity_pem", &self.identity_pem.is_some())
            .field("login", &self.login)
            .finish()
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bearer(_) => formatter.write_str("Bearer"),
            Self::Basic { user, .. } => {
                formatter.debug_struct("Basic").field("user", user).finish_non_exhaustive()
            }
        }
    }
}

impl Access {
    fn tls(&self) -> ClientTlsConfig {
        let mut tls = ClientTlsConfig::new();
        if let Some(root) = &self.root_pem {
            tls = tls.ca_certificate(Certificate::from_pem(root));
        }
        if let Some((certificate, key)) = &self.identity_pem {
            tls = tls.identity(Identity::from_pem(certificate, key));
        }
        if let Some(name) = &self.server_name {
            tls = tls.domain_name(name);
        }
        tls
    }
}

impl Login {
    /// The value of the `authorization` header; none if it is not valid in a header.
    fn header(&self) -> Option<MetadataValue<Ascii>> {
        let text = match self {
            Self::Bearer(token) => format!("Bearer {token}"),
            Self::Basic { user, password } => {
                format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")))
            }
        };
        text.parse().ok()
    }
}

/// The timeout of the connection attempt.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TellError {
    /// The URL is invalid.
    #[error("{0:?} is not the URL of a server; give one such as grpc://127.0.0.1:4214")]
    Address(String),
    /// The token is not valid in a header.
    #[error("the token has characters that a header cannot carry; a token is one line of plain text")]
    Login,
    /// No server answers, or it does not speak gRPC.
    #[error("cannot reach {url}: {reason}")]
    Unreachable {
        /// The URL.
        url: String,
        /// The cause.
        reason: String,
    },
    /// The server rejects the credentials.
    #[error("{0}")]
    Unknown(String),
    /// The server rejects the command.
    #[error("{0}")]
    Refused(String),
}

/// Sends a command to the server at `url` and returns its answer. The server must have been started with
/// [`Config::control`](crate::Config::control).
///
/// # Errors
/// If the server cannot be reached, rejects the command, or does not accept commands.
///
/// # Cancel safety
/// If dropped, the server may or may not run the command.
pub async fn tell(url: &str, access: &Access, command: &str) -> Result<String, TellError> {
    let address = || TellError::Address(url.to_owned());
    let (scheme, rest) = url.split_once("://").ok_or_else(address)?;
    let scheme = match scheme {
        "grpc" | "grpc+tcp" => "http",
        "grpc+tls" => "https",
        _ => return Err(address()),
    };
    let mut endpoint =
        Endpoint::from_shared(format!("{scheme}://{rest}")).map_err(|_| address())?.connect_timeout(PATIENCE);
    let unreachable = |error: &dyn Error| TellError::Unreachable { url: url.to_owned(), reason: root(error) };
    if scheme == "https" {
        crate::crypto_provider::choose();
        endpoint = endpoint.tls_config(access.tls()).map_err(|error| unreachable(&error))?;
    }
    let channel = endpoint.connect().await.map_err(|error| unreachable(&error))?;
    let mut request = Request::new(Action::new(TELL, command.to_owned()));
    if let Some(login) = &access.login {
        let header = login.header().ok_or(TellError::Login)?;
        request.metadata_mut().insert("authorization", header);
    }
    let refused = |status: tonic::Status| match status.code() {
        // An error of the transport, not of the server.
        _ if status.source().is_some() => unreachable(&status),
        Code::Unauthenticated => TellError::Unknown(status.message().to_owned()),
        _ => TellError::Refused(status.message().to_owned()),
    };
    let mut answers =
        FlightServiceClient::new(channel).do_action(request).await.map_err(refused)?.into_inner();
    let answer = answers.message().await.map_err(refused)?;
    Ok(answer.map(|answer| String::from_utf8_lossy(&answer.body).into_owned()).unwrap_or_default())
}

/// The root cause. The layers above only say that there was an error.
fn root(error: &dyn Error) -> String {
    std::iter::successors(Some(error), |&error| error.source()).last().unwrap_or(error).to_string()
}
