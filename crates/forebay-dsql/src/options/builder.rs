//! Collects options.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use forebay::{Config, Problem};

use super::RootCertificates;
use crate::settings::{Origin, Typed};

/// Collects [`Options`](crate::Options). Nothing is checked before [`build`](Self::build), which reports all problems at once.
///
/// Options that are built here, or read from a URL, have other defaults than those of an environment: connections come from a
/// reservoir, each lives for 55 minutes, and there are at most 10.
#[derive(Clone, Debug, Default)]
#[must_use = "call `build`"]
pub struct OptionsBuilder {
    pub(super) host: Option<Given<String>>,
    pub(super) port: Option<Given<Parsed<u16>>>,
    pub(super) address: Option<Given<String>>,
    pub(super) user: Option<Given<String>>,
    pub(super) database: Option<Given<String>>,
    pub(super) application_name: Option<Given<String>>,
    pub(super) pool: Option<Given<String>>,
    pub(super) roots: Option<Roots>,
    pub(super) direct_tls: Option<Given<Parsed<bool>>>,
    /// All other settings.
    pub(super) typed: Typed,
    pub(super) variables: Variables,
    pub(super) origin: Origin,
    /// Found before `build`: a malformed URL, an unknown key.
    pub(super) problems: Vec<Problem>,
    /// The URL is malformed, so nothing was read from it.
    pub(super) unread: bool,
}

/// A value, and the name under which it was given: a method, a variable or a key of a URL.
#[derive(Clone, Debug)]
pub(super) struct Given<T> {
    pub(super) name: &'static str,
    pub(super) value: T,
}

impl<T> Given<T> {
    pub(super) fn new(name: &'static str, value: T) -> Self {
        Self { name, value }
    }

    pub(super) fn map<U>(self, parse: impl FnOnce(T) -> U) -> Given<U> {
        Given { name: self.name, value: parse(self.value) }
    }
}

/// A value, or the text that could not be parsed.
pub(super) type Parsed<T> = Result<T, String>;

/// The certificates that a server must be signed by, or where they are.
#[derive(Clone, Debug)]
pub(super) enum Roots {
    Given(RootCertificates),
    File(Given<PathBuf>),
}

/// Variables by name. They may be a whole environment, so `Debug` shows no values: some are secrets.
#[derive(Clone, Default)]
pub(super) struct Variables(pub(super) BTreeMap<String, String>);

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys().filter(|name| !self.0[*name].is_empty())).finish()
    }
}

impl OptionsBuilder {
    /// The port. Default: the one in the host, else 5432.
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(Given::new("port", Ok(port)));
        self
    }

    /// Where the TCP connection goes instead of to the host: a private link, a proxy, `dsql-local`. Certificate and
    /// token are still for the host.
    pub fn address(mut self, address: impl Into<String>) -> Self {
        self.address = Some(Given::new("address", address.into()));
        self
    }

    /// The region. Default: the one in the host's name.
    pub fn region(mut self, region: impl Into<String>) -> Self {
        self.typed.region = Some(region.into());
        self
    }

    /// The database role. Default `admin`.
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(Given::new("user", user.into()));
        self
    }

    /// The database. Default `postgres`.
    pub fn database(mut self, database: impl Into<String>) -> Self {
        self.database = Some(Given::new("database", database.into()));
        self
    }

    /// The name that the server shows for its sessions. Default: the service's name.
    pub fn application_name(mut self, name: impl Into<String>) -> Self {
        self.application_name = Some(Given::new("application_name", name.into()));
        self
    }

    /// The label `pool` of metrics. Default `default`; each pool of a process needs its own.
    pub fn pool(mut self, pool: impl Into<String>) -> Self {
        self.pool = Some(Given::new("pool", pool.into()));
        self
    }

    /// The name of this service. Default: the program's.
    pub fn service(mut self, service: impl Into<String>) -> Self {
        self.typed.service = Some(service.into());
        self
    }

    /// How long a token is good for. Default 15 min; from a second to a week.
    pub fn token_life(mut self, life: Duration) -> Self {
        self.typed.token_life = Some(life);
        self
    }

    /// The certificates that a server must be signed by. Default: public authorities.
    pub fn roots(mut self, roots: RootCertificates) -> Self {
        self.roots = Some(Roots::Given(roots));
        self
    }

    /// Trusts only the certificates of a PEM file. `build` reads it.
    pub fn root_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.roots = Some(Roots::File(Given::new("root_file", path.into())));
        self
    }

    /// Whether TLS begins without a request to the server first, which saves a round trip. Default: no, as with
    /// PostgreSQL's own clients.
    pub fn direct_tls(mut self, direct: bool) -> Self {
        self.direct_tls = Some(Given::new("direct_tls", Ok(direct)));
        self
    }

    /// Whether connections come from a reservoir, or from a plain pool (standard mode). Default: a reservoir; from an
    /// [environment](Self::from_env), a plain pool.
    pub fn reservoir(mut self, enabled: bool) -> Self {
        self.typed.reservoir = Some(enabled);
        self
    }

    /// How many connections callers can have. Default 10; from an [environment](Self::from_env), 100. A reservoir has up to 5 %
    /// more while it replaces some: [`Config::max_with_overlap`] of [`Options::config`](super::Options::config) is the sum. The same as the variable
    /// `DSQL_MAX_CONNS`.
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.typed.max_connections = Some(connections);
        self
    }

    /// How long a caller waits for a connection. Default 30 s. The same as the variable
    /// `DSQL_RESERVOIR_ACQUIRE_TIMEOUT`, in both modes.
    pub fn acquire_timeout(mut self, timeout: Duration) -> Self {
        self.typed.acquire_timeout = Some(timeout);
        self
    }

    /// How long a transaction of [`run`](crate::DsqlPool::run) or [`begin`](crate::DsqlPool::begin) may take as a whole, and a single
    /// statement on a connection of [`acquire`](crate::DsqlPool::acquire). Default 60 s; zero for no limit. The same as the variable
    /// `DSQL_DEADLINE`.
    pub fn deadline(mut self, limit: Duration) -> Self {
        self.typed.deadline = Some(limit);
        self
    }

    /// How fast this process opens connections: so many a second, and so many at once after a quiet time. Default 10 and
    /// 100. The same as the variables `DSQL_CONNECTION_RATE_LIMIT` and `DSQL_CONNECTION_BURST_LIMIT`.
    pub fn connect_rate(mut self, per_second: f64, burst: u32) -> Self {
        self.typed.connect_rate = Some((per_second, burst));
        self
    }

    /// The longest random wait before the pool opens its first connections, in both modes. It keeps instances that start
    /// together from opening together. Default 5 s; zero turns it off. The same as the variables `DSQL_STAGGERED_STARTUP` and
    /// `DSQL_STAGGERED_STARTUP_MAX_DELAY`.
    pub fn startup_jitter(mut self, longest: Duration) -> Self {
        self.typed.startup_jitter = Some(longest);
        self
    }

    /// Serves a status page about the pools of this process at `address`: a live view for operators, `/metrics`, `/healthz`,
    /// `/readyz` and `/status.json`. It needs the feature `status-page`. Any address but a loopback one needs the
    /// variable `DSQL_DESK_TOKEN`, too. The same as the variable `DSQL_DESK_LISTEN`. Default: no page.
    pub fn status_page(mut self, address: SocketAddr) -> Self {
        self.typed.status_page = Some(address);
        self
    }

    /// All settings of the reservoir. Variables that set one of them are an error then, and so are
    /// [`max_connections`](Self::max_connections), [`acquire_timeout`](Self::acquire_timeout),
    /// [`connect_rate`](Self::connect_rate) and [`startup_jitter`](Self::startup_jitter): they would have no effect.
    pub fn config(mut self, config: Config) -> Self {
        self.typed.config = Some(config);
        self
    }

    /// Sets one of the [variables](crate::variables), such as `DSQL_NODE_ID`, as an environment would. A method that sets the
    /// same takes its place.
    pub fn variable(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.variables.0.insert(name.into(), value.into());
        self
    }
}
