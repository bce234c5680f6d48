//! How to connect to a server, and with which credentials.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};

use super::auth::{Auth, StaticToken, TokenProvider};
use super::endpoint::Endpoint;
use super::server::SessionReset;
use crate::error::{Error, Result};
use crate::pool::PoolConfig;

const MEBIBYTE: usize = 1024 * 1024;

/// SwanLake forgets a session that was idle for 15 minutes. One minute is for what is on its way.
pub(crate) const SWANLAKE_IDLE_LIMIT: Duration = Duration::from_secs(14 * 60);

/// How to connect: endpoint, TLS, credentials, headers and sizes. An endpoint's text converts into it.
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
    pub(crate) credentials_to_other_hosts: bool,
    pub(crate) continues_after_errors: bool,
    pub(crate) session_idle_limit: Option<Duration>,
    pub(crate) plans_by_running: bool,
    pub(crate) session_keep_alive: Option<Duration>,
    /// For sessions without a pool.
    pub(crate) reset: SessionReset,
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
    /// [`Error::Config`] for any other text.
    pub fn new(endpoint: &str) -> Result<Self> {
        Ok(Self::to(endpoint.parse()?))
    }

    pub(crate) fn to(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            roots: None,
            identity: None,
            server_name: None,
            auth: Auth::Anonymous,
            headers: Vec::new(),
            cookies: BTreeMap::new(),
            connect_timeout: Duration::from_secs(10),
            keep_alive: None,
            keep_alive_timeout: Duration::from_secs(10),
            max_decoding: 256 * MEBIBYTE,
            max_encoding: 256 * MEBIBYTE,
            window: 4 * 1024 * 1024,
            credentials_to_other_hosts: false,
            continues_after_errors: false,
            session_idle_limit: None,
            plans_by_running: false,
            session_keep_alive: None,
            reset: SessionReset::default(),
        }
    }

    /// The certificate authorities to trust, in PEM. Default: the public ones.
    #[must_use]
    pub fn roots(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.roots = Some(pem.into());
        self
    }

    /// The client's own certificates and key, in PEM, for servers that require them (mTLS).
    #[must_use]
    pub fn identity(mut self, certificates: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.identity = Some(Identity { certificates: certificates.into(), key: key.into() });
        self
    }

    /// The host name that the server's certificate must have. Default: the endpoint's host.
    #[must_use]
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// Logs in with a user name and a password. A handshake exchanges them for a token; if the server has no
    /// handshake, they are sent with every call.
    #[must_use]
    pub fn basic(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.auth = Auth::Basic { user: user.into(), password: password.into() };
        self
    }

    /// Sends this bearer token.
    #[must_use]
    pub fn bearer(self, token: impl Into<String>) -> Self {
        self.token_provider(StaticToken(token.into()))
    }

    /// Gets a bearer token from `provider` for each new connection.
    #[must_use]
    pub fn token_provider(mut self, provider: impl TokenProvider) -> Self {
        self.auth = Auth::Bearer(Arc::new(provider));
        self
    }

    /// Whether a transaction goes on after a failed statement. By default the session refuses further statements until the
    /// transaction is rolled back, as PostgreSQL does: a server that rolls back by itself would run them outside of it. Set
    /// this only for a server that is known to continue, such as SQLite.
    #[must_use]
    pub fn continue_after_errors(mut self, continues: bool) -> Self {
        self.continues_after_errors = continues;
        self
    }

    /// How long a session may run no statement before the server may replace it by a new one without a word, as SwanLake does
    /// after 15 minutes. A session with an open transaction, temporary tables or changed settings that was idle for longer
    /// fails with [`SessionLost`](Error::SessionLost); nothing is sent, and the transaction is rolled back. A session that
    /// holds nothing goes on, except that its prepared statements fail so. The time counts from when the last statement that
    /// was answered was sent, since a server may count so, too. Default: no limit. A limit of zero is none.
    #[must_use]
    pub fn session_idle_limit(mut self, limit: Duration) -> Self {
        self.session_idle_limit = Some(limit).filter(|limit| !limit.is_zero());
        self
    }

    /// Runs the health check (`SELECT 1`) at this interval in a session that holds something, an open transaction, temporary
    /// tables or changed settings, and is idle. So a server does not end it, however long its owner does not use it. The price
    /// is that a forgotten transaction stays open for as long as its session is held. Default: none. An interval of zero is
    /// none.
    #[must_use]
    pub fn session_keep_alive(mut self, interval: Duration) -> Self {
        self.session_keep_alive = Some(interval).filter(|interval| !interval.is_zero());
        self
    }

    /// Whether the server runs a statement to find its columns, as SwanLake does with a WITH that writes. Then preparing one
    /// is refused with [`Error::Config`]: the server would run it with NULLs as its parameters. Default: no.
    #[must_use]
    pub fn plans_by_running(mut self, runs: bool) -> Self {
        self.plans_by_running = runs;
        self
    }

    /// The options for SwanLake, for a session without a pool: a
    /// [`session_idle_limit`](Self::session_idle_limit) of 14 minutes, and [`plans_by_running`](Self::plans_by_running). When it
    /// is closed, its temporary tables are dropped and its settings are restored: the server keeps it for up to 20 minutes, and
    /// gives it to the next client with the same address and port. A pool takes its settings from
    /// [`PoolConfig::for_swanlake`](crate::PoolConfig::for_swanlake).
    #[must_use]
    pub fn for_swanlake(mut self) -> Self {
        self.reset = PoolConfig::for_swanlake().reset();
        self.session_idle_limit(SWANLAKE_IDLE_LIMIT).plans_by_running(true)
    }

    /// Sends this header with every call.
    ///
    /// # Errors
    /// [`Error::Config`] if the name or the value is not valid in a header.
    pub fn header(mut self, name: &str, value: &str) -> Result<Self> {
        let wrong =
            |what: &str| Error::config(format!("header {name:?}: its {what} is not valid in a header"));
        let key = HeaderName::try_from(name.to_ascii_lowercase()).map_err(|_| wrong("name"))?;
        let mut value = HeaderValue::try_from(value).map_err(|_| wrong("value"))?;
        value.set_sensitive(true);
        self.headers.push((key, value));
        Ok(self)
    }

    /// Sends this cookie from the first call on. Each connection stores the cookies that the server sets for
    /// itself.
    #[must_use]
    pub fn cookie(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.cookies.insert(name.into(), value.into());
        self
    }

    /// How long connecting may take, including TLS, and how long logging in may take. Default 10 s each.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sends an HTTP/2 ping over a silent connection at this interval, and closes it after `timeout` without
    /// an answer. Default: no pings, since many gRPC servers close connections that ping more often than
    /// every five minutes. TCP notices a dead host without them.
    #[must_use]
    pub fn keep_alive(mut self, interval: Option<Duration>, timeout: Duration) -> Self {
        self.keep_alive = interval;
        self.keep_alive_timeout = timeout;
        self
    }

    /// The largest messages to receive and to send, in bytes. Default 256 MiB each. A message holds one
    /// batch.
    #[must_use]
    pub fn max_message_size(mut self, received: usize, sent: usize) -> Self {
        self.max_decoding = received;
        self.max_encoding = sent;
        self
    }

    /// How many bytes of a result a server may send ahead of its reader. Default 4 MiB. Raise it for distant
    /// servers; lower it to hold a server closer to a slow reader.
    #[must_use]
    pub fn read_ahead(mut self, bytes: u32) -> Self {
        self.window = bytes;
        self
    }

    /// Whether to send the credentials, headers, cookies and the client's certificate also to other hosts
    /// that a server names as the locations of a result. Default: no, they get only the result's ticket. Set
    /// it for a cluster whose nodes check credentials. A client of a server with TLS never connects to a
    /// location without TLS, with either setting.
    #[must_use]
    pub fn credentials_to_other_hosts(mut self, allow: bool) -> Self {
        self.credentials_to_other_hosts = allow;
        self
    }

    /// The endpoint.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The options for a location of a result. The server chooses the location, so another host gets no
    /// credentials by default.
    pub(crate) fn for_location(&self, endpoint: Endpoint) -> Result<Self> {
        if self.endpoint.is_tls() && !endpoint.is_tls() {
            return Err(Error::protocol(format!("the location {endpoint} of a result has no TLS")));
        }
        let same_host = endpoint.host().eq_ignore_ascii_case(self.endpoint.host());
        let server_name = self.server_name.clone().filter(|_| same_host);
        let there = Self { endpoint, server_name, ..self.clone() };
        if same_host || self.credentials_to_other_hosts {
            return Ok(there);
        }
        let (headers, cookies) = (Vec::new(), BTreeMap::new());
        let auth = if matches!(self.auth, Auth::Anonymous) { Auth::Anonymous } else { Auth::Withheld };
        Ok(Self { auth, identity: None, headers, cookies, ..there })
    }

    /// How long all of an open may take: connecting, logging in and the first ping have the timeout each,
    /// plus one to spare.
    pub(crate) fn open_timeout(&self) -> Duration {
        self.connect_timeout.saturating_mul(4)
    }

    pub(crate) fn validate(&self) -> Result<()> {
        if self.connect_timeout.is_zero() {
            return Err(Error::config("connect_timeout is zero, but must be above zero"));
        }
        if self.keep_alive.is_some_and(|interval| interval.is_zero()) {
            return Err(Error::config("the interval of keep_alive is zero; None turns it off"));
        }
        if !(65_535..=i32::MAX.unsigned_abs()).contains(&self.window) {
            return Err(Error::config(format!(
                "read_ahead is {} bytes, but HTTP/2 allows 65535 to {}",
                self.window,
                i32::MAX
            )));
        }
        for (name, value) in &self.cookies {
            // The message does not show the value, which is a secret.
            if HeaderValue::try_from(format!("{name}={value}")).is_err()
                || name.contains(['=', ';'])
                || value.contains(';')
            {
                return Err(Error::config(format!(
                    "the cookie {name:?} contains characters that a cookie cannot have: control characters, or ';'"
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
            Auth::Anonymous | Auth::Withheld => "none",
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
    fn invalid_options_are_rejected() {
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
    fn other_hosts_get_no_credentials_by_default() {
        let home = |url: &str| {
            let options = ConnectOptions::new(url).unwrap().basic("me", "hush").cookie("sid", "hush");
            options.header("x-key", "hush").unwrap().identity("certificate", "key").server_name("lake")
        };
        let has_credentials = |options: &ConnectOptions| {
            let sent = [
                !matches!(options.auth, Auth::Anonymous | Auth::Withheld),
                !options.headers.is_empty(),
                !options.cookies.is_empty(),
                options.identity.is_some(),
            ];
            assert!(sent.iter().all(|each| *each == sent[0]), "all or nothing: {sent:?}");
            sent[0]
        };
        let secure = home("grpc+tls://lake:1");
        let to = |location: &str| secure.for_location(location.parse().unwrap());
        assert!(has_credentials(&to("grpc+tls://LAKE:2").unwrap()), "its own host");
        let stranger = to("grpc+tls://other:1").unwrap();
        assert!(!has_credentials(&stranger) && stranger.server_name.is_none());
        assert!(stranger.auth.remedy().contains("credentials_to_other_hosts"));
        let open = secure.clone().credentials_to_other_hosts(true);
        assert!(has_credentials(&open.for_location("grpc+tls://other:1".parse().unwrap()).unwrap()));
        for location in ["grpc://lake:1", "grpc://other:1"] {
            assert!(
                to(location).is_err() && open.for_location(location.parse().unwrap()).is_err(),
                "{location}"
            );
        }
        let plain = home("grpc://lake:1");
        assert!(has_credentials(&plain.for_location("grpc://lake:2".parse().unwrap()).unwrap()));
        assert!(!has_credentials(&plain.for_location("grpc://other:1".parse().unwrap()).unwrap()));
    }
}
