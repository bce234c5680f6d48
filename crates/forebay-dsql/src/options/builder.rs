//! Collects options, and checks them as a whole.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use forebay::{Config, ConfigError, Problem};

use super::{Options, RootCertificates, endpoint, sources};
use crate::settings::{EnvReader, closest};
use crate::variables;

/// Aurora DSQL ends a session after this time.
const SESSION_LIMIT: Duration = Duration::from_secs(60 * 60);
const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);
/// What is said of a value that is missing.
const NOT_SET: &str = "not set";
/// What is said of one that is not repeated.
const A_URL: &str = "a URL";
/// A shorter tick would keep the keeper busy for nothing.
const SHORTEST_TICK: Duration = Duration::from_millis(10);

/// Collects [`Options`]. Nothing is checked before [`build`](Self::build), which reports all problems at once.
#[derive(Clone, Debug, Default)]
#[must_use = "call `build`"]
pub struct OptionsBuilder {
    pub(super) host: Option<String>,
    pub(super) port: Option<String>,
    pub(super) address: Option<String>,
    pub(super) user: Option<String>,
    pub(super) database: Option<String>,
    pub(super) application_name: Option<String>,
    pub(super) pool: Option<String>,
    pub(super) roots: Option<RootCertificates>,
    pub(super) root_file: Option<PathBuf>,
    pub(super) direct_tls: Option<String>,
    pub(super) config: Option<Config>,
    pub(super) origin: Origin,
    /// For the reader of variables: region, token life, service, modes, limits.
    pub(super) variables: Variables,
    /// Found before `build`: a malformed URL, an unknown key.
    pub(super) problems: Vec<Problem>,
    /// The URL is malformed, so nothing was read from it.
    pub(super) unread: bool,
}

/// Variables by name. They may be a whole environment, so `Debug` shows no values: some are secrets.
#[derive(Clone, Default)]
pub(super) struct Variables(pub(super) BTreeMap<String, String>);

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys().filter(|name| !self.0[*name].is_empty())).finish()
    }
}

/// Where options come from: problems are named as the settings are there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Origin {
    #[default]
    Code,
    Url,
    Environment,
}

impl Origin {
    fn name_of(self, setting: &str) -> String {
        let variable = || sources::VARIABLES.iter().find(|(name, _)| *name == setting);
        match self {
            Self::Code => setting.to_owned(),
            Self::Url => setting.strip_prefix("DSQL_").map_or(setting.to_owned(), str::to_ascii_lowercase),
            Self::Environment => variable().map_or(setting, |(_, variable)| variable).to_owned(),
        }
    }
}

impl OptionsBuilder {
    /// The port. Default: the one in the host, else 5432.
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port.to_string());
        self
    }

    /// Where the TCP connection goes instead of to the host: a private link, a proxy, `dsql-local`. Certificate and
    /// token are still for the host.
    pub fn address(mut self, address: impl Into<String>) -> Self {
        self.address = Some(address.into());
        self
    }

    /// The region. Default: the one in the host's name.
    pub fn region(self, region: impl Into<String>) -> Self {
        self.variable("REGION", region)
    }

    /// The database role. Default `admin`.
    pub fn user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// The database. Default `postgres`.
    pub fn database(mut self, database: impl Into<String>) -> Self {
        self.database = Some(database.into());
        self
    }

    /// The name that the server shows for its sessions. Default: the service's name.
    pub fn application_name(mut self, name: impl Into<String>) -> Self {
        self.application_name = Some(name.into());
        self
    }

    /// The label `pool` of metrics. Default `default`; each pool of a process needs its own.
    pub fn pool(mut self, pool: impl Into<String>) -> Self {
        self.pool = Some(pool.into());
        self
    }

    /// The name of this service. Default: the program's.
    pub fn service(self, service: impl Into<String>) -> Self {
        self.variable("DSQL_SERVICE_NAME", service)
    }

    /// How long a token is good for. Default 15 min; from a second to a week.
    pub fn token_life(self, life: Duration) -> Self {
        self.variable("DSQL_TOKEN_DURATION", forebay::duration::show(life))
    }

    /// The certificates that a server must be signed by. Default: public authorities.
    pub fn roots(mut self, roots: RootCertificates) -> Self {
        self.roots = Some(roots);
        self
    }

    /// Trusts only the certificates of a PEM file. `build` reads it.
    pub fn root_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.root_file = Some(path.into());
        self
    }

    /// Whether TLS begins without a request to the server first, which saves a round trip. Default: no, as with
    /// PostgreSQL's own clients.
    pub fn direct_tls(mut self, direct: bool) -> Self {
        self.direct_tls = Some(direct.to_string());
        self
    }

    /// Whether connections come from a reservoir. Default: no; from a pool in standard mode.
    pub fn reservoir(self, enabled: bool) -> Self {
        self.variable("DSQL_RESERVOIR_ENABLED", enabled.to_string())
    }

    /// How many connections callers can have. Default 100. A reservoir has up to 5 % more while it replaces some.
    /// The same as the variable `DSQL_MAX_CONNS`.
    pub fn max_connections(self, connections: usize) -> Self {
        self.variable("DSQL_MAX_CONNS", connections.to_string())
    }

    /// How long a caller waits for a connection. Default 30 s. The same as the variable
    /// `DSQL_RESERVOIR_ACQUIRE_TIMEOUT`, in both modes.
    pub fn acquire_timeout(self, timeout: Duration) -> Self {
        self.variable("DSQL_RESERVOIR_ACQUIRE_TIMEOUT", forebay::duration::show(timeout))
    }

    /// How fast this process opens connections: so many a second, and so many at once after a quiet time. Default 10 and
    /// 100. The same as the variables `DSQL_CONNECTION_RATE_LIMIT` and `DSQL_CONNECTION_BURST_LIMIT`.
    pub fn connect_rate(self, per_second: f64, burst: u32) -> Self {
        self.variable("DSQL_CONNECTION_RATE_LIMIT", per_second.to_string())
            .variable("DSQL_CONNECTION_BURST_LIMIT", burst.to_string())
    }

    /// The longest random wait before the pool opens its first connections, in both modes. It keeps instances that start
    /// together from opening together. Default 5 s; zero turns it off. The same as the variables `DSQL_STAGGERED_STARTUP` and
    /// `DSQL_STAGGERED_STARTUP_MAX_DELAY`.
    pub fn startup_jitter(self, longest: Duration) -> Self {
        self.variable("DSQL_STAGGERED_STARTUP", (!longest.is_zero()).to_string())
            .variable("DSQL_STAGGERED_STARTUP_MAX_DELAY", forebay::duration::show(longest))
    }

    /// Serves a status page about the pools of this process at `address`: a live view for operators, `/metrics`, `/healthz`,
    /// `/readyz` and `/status.json`. It needs the feature `status-page`. Any address but a loopback one needs the
    /// variable `DSQL_DESK_TOKEN`, too. The same as the variable `DSQL_DESK_LISTEN`. Default: no page.
    pub fn status_page(self, address: SocketAddr) -> Self {
        self.variable("DSQL_DESK_LISTEN", address.to_string())
    }

    /// All settings of the reservoir. Variables that set one of them are an error then, and so are
    /// [`max_connections`](Self::max_connections), [`acquire_timeout`](Self::acquire_timeout),
    /// [`connect_rate`](Self::connect_rate) and [`startup_jitter`](Self::startup_jitter): they would have no effect.
    pub fn config(mut self, config: Config) -> Self {
        self.config = Some(config);
        self
    }

    /// Sets one of the [variables](crate::variables), such as `DSQL_NODE_ID`, as an environment would.
    pub fn variable(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.variables.0.insert(name.into(), value.into());
        self
    }

    /// Checks everything together.
    ///
    /// # Errors
    /// Every problem, each with what is allowed.
    pub fn build(self) -> Result<Options, ConfigError> {
        let mut problems = self.problems;
        if self.unread {
            return Err(ConfigError { problems });
        }
        let origin = self.origin;
        let Variables(variables) = self.variables;
        let mut problem = |setting: &str, value: &str, allowed: &str| {
            problems.push(Problem {
                setting: origin.name_of(setting).into(),
                value: if [NOT_SET, A_URL].contains(&value) {
                    value.to_owned()
                } else {
                    format!("{value:?}")
                },
                allowed: allowed.to_owned(),
            });
        };

        let given = self.host.unwrap_or_default();
        let (host, port_of_host) = endpoint::split(&given);
        // A URL with a user may have a password, too: it is not repeated.
        let is_url = given.contains('@');
        if is_url || !endpoint::is_name(&host) {
            let allowed = "the name of a cluster, such as abc.dsql.us-east-1.on.aws";
            let value = match given.as_str() {
                _ if is_url => "one with a user",
                "" => NOT_SET,
                given => given,
            };
            problem("host", value, allowed);
        }
        // Behind a host may be anything, such as the password of a URL that was cut off.
        let digits = |port: &String| port.bytes().all(|byte| byte.is_ascii_digit());
        let port_of_host = port_of_host.filter(|_| !is_url);
        let port =
            self.port.or(port_of_host.map(|port| Some(port).filter(digits).unwrap_or("no number".into())));
        let parsed = port.as_deref().map_or(Some(5432), |port| port.parse().ok().filter(|port| *port != 0));
        if parsed.is_none() {
            problem("port", port.as_deref().unwrap_or_default(), "a number from 1 to 65535");
        }
        let address = self.address.map(|address| address.trim_matches(['[', ']']).to_owned());
        if let Some(address) = address.as_deref()
            && !endpoint::is_name(address)
            && address.parse::<std::net::IpAddr>().is_err()
        {
            problem("address", address, "a host name or an IP address, without a port");
        }
        let user = self.user.unwrap_or_else(|| "admin".to_owned());
        let database = self.database.unwrap_or_else(|| "postgres".to_owned());
        for (setting, value) in [("user", &user), ("database", &database)] {
            if value.is_empty() || value.contains('\0') {
                problem(setting, value, "a name, and not empty");
            }
        }
        for (setting, value) in [
            ("application_name", self.application_name.as_ref()),
            ("pool", self.pool.as_ref()),
            ("DSQL_SERVICE_NAME", variables.get("DSQL_SERVICE_NAME")),
        ] {
            if let Some(value) = value.filter(|value| value.contains('\0')) {
                problem(setting, value, "a text without a zero byte");
            }
        }
        let direct_tls = match self.direct_tls.as_deref() {
            Some("true" | "1" | "direct") => true,
            None | Some("false" | "0" | "postgres") => false,
            Some(other) => {
                let negotiation = origin == Origin::Environment;
                problem(
                    "direct_tls",
                    other,
                    if negotiation { "direct or postgres" } else { "true or false" },
                );
                false
            }
        };
        let mut roots = self.roots.unwrap_or_default();
        if let Some(path) = &self.root_file {
            match std::fs::read(path) {
                Ok(pem) => roots = RootCertificates::Pem(pem.into()),
                Err(error) => {
                    let allowed = format!("a PEM file that can be read ({error})");
                    problem("root_file", &path.display().to_string(), &allowed);
                }
            }
        }
        if let RootCertificates::Pem(pem) = &roots
            && !endpoint::holds_certificates(pem)
        {
            problem("roots", "no certificate", "PEM with one certificate at least");
        }

        let set =
            |name: &str| variables.get(name).map(|value| value.trim()).filter(|value| !value.is_empty());
        let region = set("REGION").or_else(|| set("AWS_REGION")).or_else(|| endpoint::region(&host));
        let region = region.map(str::to_owned);
        // A name that is not given tells nothing, and may tell it when it is.
        if region.is_none() && !is_url && endpoint::is_name(&host) && given.contains("://") {
            let allowed = "the name of a cluster alone, such as abc.dsql.us-east-1.on.aws";
            problem("host", A_URL, allowed);
        } else if region.is_none() && !host.is_empty() {
            let allowed =
                "given: the name of this cluster does not tell it, as {id}.dsql.{region}.on.aws does";
            problem("region", NOT_SET, allowed);
        }
        // It becomes part of what is signed.
        let of_region = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if let Some(region) = region.as_deref().filter(|region| !region.bytes().all(of_region)) {
            let is_aws = set("REGION").is_none() && set("AWS_REGION").is_some();
            let setting = if is_aws { "AWS_REGION" } else { "region" };
            problem(setting, region, "a name such as us-east-1");
        }
        // Operators write environments: a wrong boolean there is false, with a warning. In code or a URL it is a mistake of
        // the caller.
        if origin != Origin::Environment {
            for (name, value) in not_booleans(&variables) {
                problem(name, value, "true or false");
            }
        }
        if origin == Origin::Code {
            for name in variables.keys() {
                if let Some(allowed) = not_a_variable(name) {
                    problem("the name of a variable", name, &allowed);
                }
            }
        }
        if self.config.is_some() {
            let dropped = variables::all().filter(|known| known.is_of_config());
            for name in dropped.map(|known| known.full_name("DSQL")) {
                if let Some(value) = set(&name) {
                    problem(&name, value, "not set: `config` sets all of the reservoir's settings");
                }
            }
        }
        let settings = EnvReader::new("DSQL").server_limit(SESSION_LIMIT).read(variables);
        let settings =
            match settings {
                Ok(mut settings) => {
                    if let Some(config) = self.config {
                        settings.config = config.server_limit(SESSION_LIMIT);
                    }
                    if settings.token_duration < Duration::from_secs(1) || settings.token_duration > WEEK {
                        let life = forebay::duration::show(settings.token_duration);
                        problem("DSQL_TOKEN_DURATION", &life, "from 1s to 168h, which is a week");
                    }
                    if settings.standard.keeper_tick < SHORTEST_TICK {
                        let tick = forebay::duration::show(settings.standard.keeper_tick);
                        problem("DSQL_POOL_KEEPER_TICK_INTERVAL", &tick, "at least 10ms");
                    }
                    Some(settings)
                }
                Err(error) => {
                    problems.extend(error.problems.into_iter().map(|problem| Problem {
                        setting: origin.name_of(&problem.setting).into(),
                        ..problem
                    }));
                    None
                }
            };
        if let Some(Err(error)) = settings.as_ref().map(|settings| settings.config.validate()) {
            problems.extend(error.problems);
        }
        match (settings, region, parsed) {
            (Some(mut settings), Some(region), Some(port)) if problems.is_empty() => {
                settings.endpoint = Some(host.clone());
                let application_name = self.application_name.unwrap_or_else(|| settings.service.clone());
                let pool = self.pool.unwrap_or_else(|| "default".to_owned());
                Ok(Options {
                    host,
                    port,
                    address,
                    region,
                    user,
                    database,
                    application_name,
                    pool,
                    roots,
                    direct_tls,
                    settings,
                })
            }
            _ => Err(ConfigError { problems }),
        }
    }
}

/// Boolean variables with another value.
fn not_booleans(variables: &BTreeMap<String, String>) -> impl Iterator<Item = (&str, &str)> {
    let is_boolean =
        |name: &str| variables::all().any(|known| known.kind == "boolean" && known.full_name("DSQL") == name);
    let known = ["", "1", "t", "T", "true", "TRUE", "True", "0", "f", "F", "false", "FALSE", "False"];
    variables
        .iter()
        .map(|(name, value)| (name.as_str(), value.trim()))
        .filter(move |(name, value)| is_boolean(name) && !known.contains(value))
}

/// What is allowed instead of an unknown variable; none if it is known.
fn not_a_variable(name: &str) -> Option<String> {
    let known: Vec<String> = variables::all().map(|known| known.full_name("DSQL")).collect();
    // Of a later version in Go: recognised, and noted.
    let later = ["DSQL_TOKEN_BUCKET_", "DSQL_SLOT_BLOCK_"].iter().any(|prefix| name.starts_with(prefix));
    if later || known.iter().any(|known| known == name) {
        return None;
    }
    Some(match closest(name, &known) {
        Some(known) => format!("a known one; did you mean {known}?"),
        None => "one of forebay's, such as DSQL_MAX_CONNS".to_owned(),
    })
}
