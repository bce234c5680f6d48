//! Telling a running server something, from another process.

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

/// What a server asks of those who tell it something.
#[derive(Clone, Default)]
pub struct Access {
    /// What to verify its certificate with, as PEM text.
    pub root_pem: Option<String>,
    /// The name that its certificate must have, if not the URL's host.
    pub server_name: Option<String>,
    /// A certificate chain to show it, and its private key, as PEM text.
    pub identity_pem: Option<(String, String)>,
    /// Who to be.
    pub login: Option<Login>,
}

/// Who to be.
#[derive(Clone)]
pub enum Login {
    /// Whoever has this token.
    Bearer(String),
    /// A user.
    Basic {
        /// Their name.
        user: String,
        /// Their password.
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
    /// The header that says it; none if it cannot be said in one.
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

/// How long connecting may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why a server could not be told.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TellError {
    /// The address is none.
    #[error("{0:?} is no address of a server; give one such as grpc://127.0.0.1:4214")]
    Address(String),
    /// The token is none.
    #[error("the token has letters that no header can carry; a token is one line of plain text")]
    Login,
    /// There is nobody, or somebody else.
    #[error("cannot reach {url}: {reason}")]
    Unreachable {
        /// Where it was looked for.
        url: String,
        /// What was said there.
        reason: String,
    },
    /// It does not know the caller.
    #[error("{0}")]
    Unknown(String),
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
    let mut endpoint =
        Endpoint::from_shared(format!("{scheme}://{rest}")).map_err(|_| address())?.connect_timeout(PATIENCE);
    let unreachable = |error: &dyn Error| TellError::Unreachable { url: url.to_owned(), reason: root(error) };
    if scheme == "https" {
        endpoint = endpoint.tls_config(access.tls()).map_err(|error| unreachable(&error))?;
    }
    let channel = endpoint.connect().await.map_err(|error| unreachable(&error))?;
    let mut request = Request::new(Action::new(TELL, command.to_owned()));
    if let Some(login) = &access.login {
        let header = login.header().ok_or(TellError::Login)?;
        request.metadata_mut().insert("authorization", header);
    }
    let refused = |status: tonic::Status| match status.code() {
        // Of the transport's own making: no server said it.
        _ if status.source().is_some() => unreachable(&status),
        Code::Unauthenticated => TellError::Unknown(status.message().to_owned()),
        _ => TellError::Refused(status.message().to_owned()),
    };
    let mut answers =
        FlightServiceClient::new(channel).do_action(request).await.map_err(refused)?.into_inner();
    let answer = answers.message().await.map_err(refused)?;
    Ok(answer.map(|answer| String::from_utf8_lossy(&answer.body).into_owned()).unwrap_or_default())
}

/// What is at the bottom of an error: the layers above say only that there was one.
fn root(error: &dyn Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
