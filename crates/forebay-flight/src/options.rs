//! How to reach a server and who to be there.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};

use crate::auth::{Auth, Fixed, TokenProvider};
use crate::endpoint::Endpoint;
use crate::error::{Error, Result};

const MEBIBYTE: usize = 1024 * 1024;

/// How to connect: the endpoint, TLS, credentials, headers and sizes. A plain endpoint converts into it.
///
/// ```
/// use std::time::Duration;
/// use forebay_flight::ConnectOptions;
///
/// let options = ConnectOptions::new("grpc+tls://lake.example.com:4214")?
///     .basic("me", "my password")
///     .header("x-tenant", "blue")?
///     .connect_timeout(Duration::from_secs(3));
/// assert!(!format!("{options:?}").contains("my password"));
/// # Ok::<_, forebay_flight::Error>(())
/// ```
#[derive(Clone)]
pub struct ConnectOptions {
    pub(crate) endpoint: Endpoint,
    pub(crate) roots: Option<Vec<u8>>,
    pub(crate) identity: Option<Identity>,
    pub(crate) server_name: Option<String>,
    pub(crate) auth: Auth,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) cookies: BTreeMap<String, String>,
    pub(crate) connect_timeout: Duration,
    pub(crate) keep_alive: Option<Duration>,
    pub(crate) keep_alive_timeout: Duration,
    pub(crate) max_decoding: usize,
    pub(crate) max_encoding: usize,
    pub(crate) window: u32,
    pub(crate) credentials_elsewhere: bool,
}

/// A client's certificate and key, in PEM.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(crate) certificates: Vec<u8>,
    pub(crate) key: Vec<u8>,
}

impl ConnectOptions {
    /// Connections to this endpoint: `grpc://host:port`, `grpc+tcp://host:port` or `grpc+tls://host:port`.
    ///
    /// # Errors
    /// [`Error::Config`] if it is none of these.
    pub fn new(endpoint: &str) -> Result<Self> {
        Ok(Self::to(endpoint.parse()?))
    }

    pub(crate) fn to(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            roots: None,
            identity: None,
            server_name: None,
            auth: Auth::Nobody,
            headers: Vec::new(),
            cookies: BTreeMap::new(),
            connect_timeout: Duration::from_secs(10),
            keep_alive: None,
            keep_alive_timeout: Duration::from_secs(10),
            max_decoding: 256 * MEBIBYTE,
            max_encoding: 256 * MEBIBYTE,
            window: 4 * 1024 * 1024,
            credentials_elsewhere: false,
        }
    }

    /// The authorities to trust, in PEM. Default: the public ones.
    #[must_use]
    pub fn roots(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.roots = Some(pem.into());
        self
    }

    /// The client's own certificates and key, in PEM, for servers that ask for them (mTLS).
    #[must_use]
    pub fn identity(mut self, certificates: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.identity = Some(Identity { certificates: certificates.into(), key: key.into() });
        self
    }

    /// The name that the server's certificate must have. Default: the endpoint's host.
    #[must_use]
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// Logs in with a user's name and password: a handshake that gives a token, or else with every call.
    #[must_use]
    pub fn basic(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.auth = Auth::Basic { user: user.into(), password: password.into() };
        self
    }

    /// Sends this bearer token.
    #[must_use]
    pub fn bearer(self, token: impl Into<String>) -> Self {
        self.token_provider(Fixed(token.into()))
    }

    /// Asks for a bearer token for each new connection.
    #[must_use]
    pub fn token_provider(mut self, provider: impl TokenProvider) -> Self {
        self.auth = Auth::Bearer(Arc::new(provider));
        self
    }

    /// Sends this header with every call.
    ///
    /// # Errors
    /// [`Error::Config`] if name or value cannot be a header.
    pub fn header(mut self, name: &str, value: &str) -> Result<Self> {
        let wrong = |what: &str| Error::config(format!("header {name:?}: its {what} cannot be sent as one"));
        let key = HeaderName::try_from(name.to_ascii_lowercase()).map_err(|_| wrong("name"))?;
        let mut value = HeaderValue::try_from(value).map_err(|_| wrong("value"))?;
        value.set_sensitive(true);
        self.headers.push((key, value));
        Ok(self)
    }

    /// Sends this cookie from the first call on. Those that the server sets are kept for each connection by itself.
    #[must_use]
    pub fn cookie(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.cookies.insert(name.into(), value.into());
        self
    }

    /// How long connecting may take, with TLS and login. Default 10 s.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Asks a silent server for a sign of life this often, by HTTP/2, and gives up on it after `timeout` without one. Default: not at
    /// all, since many servers of gRPC close connections that ask more often than every five minutes. A host that is gone is
    /// noticed without it, by TCP.
    #[must_use]
    pub fn keep_alive(mut self, interval: Option<Duration>, timeout: Duration) -> Self {
        self.keep_alive = interval;
        self.keep_alive_timeout = timeout;
        self
    }

    /// The largest messages to accept and to send, in bytes. Default 256 MiB both; a message holds one batch.
    #[must_use]
    pub fn max_message_size(mut self, received: usize, sent: usize) -> Self {
        self.max_decoding = received;
        self.max_encoding = sent;
        self
    }

    /// How many bytes of a result a server may send ahead of its reader. Default 4 MiB. More serves distant servers,
    /// less keeps a server closer to a slow reader.
    #[must_use]
    pub fn read_ahead(mut self, bytes: u32) -> Self {
        self.window = bytes;
        self
    }

    /// Whether other hosts that a server names as the places of a result are told the credentials, headers, cookies and the client's
    /// certificate, as its own host is. Default: no; such a place is asked with the result's ticket alone. Say yes for a cluster
    /// whose nodes want to know who asks. A place without TLS is never gone to from a server with TLS, whatever is said here.
    #[must_use]
    pub fn credentials_elsewhere(mut self, allow: bool) -> Self {
        self.credentials_elsewhere = allow;
        self
    }

    /// The endpoint.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The way to another place, which a result's locations name. The server chooses it, so it is not trusted with more than it
    /// has to know.
    pub(crate) fn elsewhere(&self, endpoint: Endpoint) -> Result<Self> {
        if self.endpoint.is_tls() && !endpoint.is_tls() {
            return Err(Error::protocol(format!("the location {endpoint} of a result is without TLS")));
        }
        let same_host = endpoint.host().eq_ignore_ascii_case(self.endpoint.host());
        let server_name = self.server_name.clone().filter(|_| same_host);
        let there = Self { endpoint, server_name, ..self.clone() };
        if same_host || self.credentials_elsewhere {
            return Ok(there);
        }
        let (headers, cookies) = (Vec::new(), BTreeMap::new());
        let auth = if matches!(self.auth, Auth::Nobody) { Auth::Nobody } else { Auth::Withheld };
        Ok(Self { auth, identity: None, headers, cookies, ..there })
    }

    /// How long all of an open may take: connecting, logging in and asking for a session have the timeout each, and then there is
    /// some to spare.
    pub(crate) fn opening(&self) -> Duration {
        self.connect_timeout.saturating_mul(4)
    }

    pub(crate) fn validate(&self) -> Result<()> {
        if self.connect_timeout.is_zero() {
            return Err(Error::config("connect_timeout is zero, but must be above it"));
        }
        if self.keep_alive.is_some_and(|interval| interval.is_zero()) {
            return Err(Error::config("the interval of keep_alive is zero; None turns it off"));
        }
        if !(65_535..=i32::MAX.unsigned_abs()).contains(&self.window) {
            return Err(Error::config(format!(
                "read_ahead is {} bytes, but must be from 65535 to {}, as HTTP/2 has it",
                self.window,
                i32::MAX
            )));
        }
        for (name, value) in &self.cookies {
            // As a header has it; the value is a secret.
            if HeaderValue::try_from(format!("{name}={value}")).is_err()
                || name.contains(['=', ';'])
                || value.contains(';')
            {
                return Err(Error::config(format!(
                    "the cookie {name:?} holds characters that no cookie may have: control characters, or ';'"
                )));
            }
        }
        Ok(())
    }
}

impl TryFrom<&str> for ConnectOptions {
    type Error = Error;

    fn try_from(endpoint: &str) -> Result<Self> {
        Self::new(endpoint)
    }
}

impl fmt::Debug for ConnectOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let auth = match &self.auth {
            Auth::Nobody | Auth::Withheld => "none",
            Auth::Basic { .. } => "basic",
            Auth::Bearer(_) => "bearer",
        };
        let names: Vec<_> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("ConnectOptions")
            .field("endpoint", &self.endpoint)
            .field("auth", &auth)
            .field("headers", &names)
            .field("cookies", &self.cookies.len())
            .field("connect_timeout", &self.connect_timeout)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_is_shown() {
        let options = ConnectOptions::new("grpc://localhost:1")
            .unwrap()
            .header("x-api-key", "hush")
            .unwrap()
            .cookie("session", "hush")
            .basic("me", "hush");
        assert!(!format!("{options:?} {:?}", options.clone().bearer("hush")).contains("hush"));
    }

    #[test]
    fn senseless_options_are_refused() {
        let options = || ConnectOptions::new("grpc://localhost:1").unwrap();
        assert!(options().validate().is_ok());
        for wrong in [
            options().connect_timeout(Duration::ZERO),
            options().keep_alive(Some(Duration::ZERO), Duration::from_secs(1)),
            options().read_ahead(10),
            options().cookie("sid", "a\nb"),
            options().cookie("s;id", "a"),
        ] {
            assert!(matches!(wrong.validate(), Err(Error::Config { .. })), "{wrong:?}");
        }
        let error = options().header("bad name", "x").unwrap_err().to_string();
        assert!(error.contains("bad name"), "{error}");
        assert!(!options().header("x-key", "secret\n").unwrap_err().to_string().contains("secret"));
    }

    #[test]
    fn another_place_hears_only_what_it_must() {
        let home = |url: &str| {
            let options = ConnectOptions::new(url).unwrap().basic("me", "hush").cookie("sid", "hush");
            options.header("x-key", "hush").unwrap().identity("certificate", "key").server_name("lake")
        };
        let is_told = |options: &ConnectOptions| {
            let told = [
                !matches!(options.auth, Auth::Nobody | Auth::Withheld),
                !options.headers.is_empty(),
                !options.cookies.is_empty(),
                options.identity.is_some(),
            ];
            assert!(told.iter().all(|each| *each == told[0]), "all or nothing: {told:?}");
            told[0]
        };
        let secure = home("grpc+tls://lake:1");
        let to = |place: &str| secure.elsewhere(place.parse().unwrap());
        assert!(is_told(&to("grpc+tls://LAKE:2").unwrap()), "its own host");
        let stranger = to("grpc+tls://other:1").unwrap();
        assert!(!is_told(&stranger) && stranger.server_name.is_none());
        assert!(stranger.auth.remedy().contains("credentials_elsewhere"));
        let open = secure.clone().credentials_elsewhere(true);
        assert!(is_told(&open.elsewhere("grpc+tls://other:1".parse().unwrap()).unwrap()));
        for place in ["grpc://lake:1", "grpc://other:1"] {
            assert!(to(place).is_err() && open.elsewhere(place.parse().unwrap()).is_err(), "{place}");
        }
        let plain = home("grpc://lake:1");
        assert!(is_told(&plain.elsewhere("grpc://lake:2".parse().unwrap()).unwrap()));
        assert!(!is_told(&plain.elsewhere("grpc://other:1".parse().unwrap()).unwrap()));
    }
}
