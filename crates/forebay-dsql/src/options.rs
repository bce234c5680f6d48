//! Which cluster, as whom, and how.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use forebay::{Config, ConfigError, EnvReader, Environment, Problem};

use crate::token::{Action, Identity, TokenRequest};

mod endpoint;
mod sources;

/// After so long Aurora DSQL ends a session.
const SESSION_LIMIT: Duration = Duration::from_secs(60 * 60);
const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

/// What a program must know to use a cluster, checked as a whole.
///
/// ```
/// use forebay_dsql::Options;
///
/// let options = Options::builder("abc.dsql.us-east-1.on.aws").user("app").build()?;
/// assert_eq!(options.region(), "us-east-1");
///
/// let same = Options::from_url("dsql://app@abc.dsql.us-east-1.on.aws?max_conns=50")?;
/// assert_eq!(same.region(), options.region());
/// # Ok::<(), forebay::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    host: String,
    port: u16,
    address: Option<String>,
    region: String,
    user: String,
    database: String,
    application_name: String,
    pool: String,
    roots: Roots,
    direct_tls: bool,
    settings: Environment,
}

/// Whom to believe that a server is the cluster.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Roots {
    /// The certificate authorities that browsers believe. Aurora DSQL's is among them.
    #[default]
    Public,
    /// Only these certificates, in PEM: a private authority, or `dsql-local`'s.
    Pem(Arc<[u8]>),
}

impl fmt::Debug for Roots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Public => f.write_str("Public"),
            Self::Pem(pem) => write!(f, "Pem({} bytes)", pem.len()),
        }
    }
}

impl Options {
    /// Options for the cluster at `host`, which may carry a port; everything else has a default.
    pub fn builder(host: impl Into<String>) -> OptionsBuilder {
        OptionsBuilder { host: Some(host.into()), ..OptionsBuilder::default() }
    }

    /// The name of the cluster: what its certificate and the token are for.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port. Default 5432.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where the TCP connection goes: a name or an IP address. Default: the host.
    #[must_use]
    pub fn address(&self) -> &str {
        self.address.as_deref().unwrap_or(&self.host)
    }

    /// The region, given or read from the host's name.
    #[must_use]
    pub fn region(&self) -> &str {
        &self.region
    }

    /// The database role. Default `admin`.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The database. Default `postgres`, the only one a cluster has.
    #[must_use]
    pub fn database(&self) -> &str {
        &self.database
    }

    /// What the server is told about who connects. Default: the service's name.
    #[must_use]
    pub fn application_name(&self) -> &str {
        &self.application_name
    }

    /// The label `pool` of metrics. Default `default`.
    #[must_use]
    pub fn pool(&self) -> &str {
        &self.pool
    }

    /// Whom to believe. Default: public authorities.
    #[must_use]
    pub fn roots(&self) -> &Roots {
        &self.roots
    }

    /// Whether TLS begins without asking the server first, which saves a round trip. Default: yes. Clients that
    /// cannot, ask.
    #[must_use]
    pub fn direct_tls(&self) -> bool {
        self.direct_tls
    }

    /// How long a token is good for. Default 15 min; at most a week.
    #[must_use]
    pub fn token_life(&self) -> Duration {
        self.settings.token_duration
    }

    /// The name of this service: label `service` of metrics.
    #[must_use]
    pub fn service(&self) -> &str {
        &self.settings.service
    }

    /// Whether connections come from a reservoir; otherwise from a pool in standard mode. Default: no.
    #[must_use]
    pub fn reservoir_enabled(&self) -> bool {
        self.settings.reservoir_enabled
    }

    /// The settings of the reservoir; standard mode takes size, rate, stagger and timeouts from them.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.settings.config
    }

    /// Everything that forebay's own reader knows: leases, shared rate, node number, standard mode, notes.
    #[must_use]
    pub fn settings(&self) -> &Environment {
        &self.settings
    }

    /// What to sign for a connection with these options.
    #[must_use]
    pub fn token_request(&self) -> TokenRequest {
        TokenRequest {
            identity: Identity {
                host: self.host.clone(),
                region: self.region.clone(),
                user: self.user.clone(),
                action: Action::of(&self.user),
            },
            life: self.token_life(),
        }
    }
}

/// Collects [`Options`]. Nothing is judged before [`build`](Self::build), which reports all problems at once.
#[derive(Clone, Debug, Default)]
#[must_use = "call `build`"]
pub struct OptionsBuilder {
    host: Option<String>,
    port: Option<String>,
    address: Option<String>,
    user: Option<String>,
    database: Option<String>,
    application_name: Option<String>,
    pool: Option<String>,
    roots: Option<Roots>,
    root_file: Option<PathBuf>,
    direct_tls: Option<String>,
    config: Option<Config>,
    /// For forebay's reader: region, token life, service, modes, limits.
    variables: BTreeMap<String, String>,
    /// Found before `build`: a URL that is none, a key nobody knows.
    problems: Vec<Problem>,
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

    /// What the server is told about who connects. Default: the service's name.
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

    /// Whom to believe that a server is the cluster. Default: public authorities.
    pub fn roots(mut self, roots: Roots) -> Self {
        self.roots = Some(roots);
        self
    }

    /// Believes only the certificates of a PEM file. `build` reads it.
    pub fn root_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.root_file = Some(path.into());
        self
    }

    /// Whether TLS begins without asking the server first. Default: yes.
    pub fn direct_tls(mut self, direct: bool) -> Self {
        self.direct_tls = Some(direct.to_string());
        self
    }

    /// Whether connections come from a reservoir. Default: no; from a pool in standard mode.
    pub fn reservoir(self, enabled: bool) -> Self {
        self.variable("DSQL_RESERVOIR_ENABLED", enabled.to_string())
    }

    /// The reservoir's settings, instead of those from variables.
    pub fn config(mut self, config: Config) -> Self {
        self.config = Some(config);
        self
    }

    /// Sets one of forebay's variables, such as `DSQL_MAX_CONNS`, as an environment would.
    pub fn variable(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.variables.insert(name.into(), value.into());
        self
    }

    /// Judges everything together.
    ///
    /// # Errors
    /// Every problem, each with what is allowed.
    pub fn build(self) -> Result<Options, ConfigError> {
        let mut problems = self.problems;
        let mut problem = |setting: &'static str, value: &str, allowed: &str| {
            problems.push(Problem {
                setting: setting.into(),
                value: format!("{value:?}"),
                allowed: allowed.to_owned(),
            });
        };

        let given = self.host.unwrap_or_default();
        let (host, port_of_host) = endpoint::split(&given);
        if !endpoint::is_name(&host) {
            let allowed = "the name of a cluster, such as abc.dsql.us-east-1.on.aws";
            problem("CLUSTER_ENDPOINT", &given, allowed);
        }
        let port = self.port.or(port_of_host);
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
        let direct_tls = match self.direct_tls.as_deref() {
            None | Some("true" | "1" | "direct") => true,
            Some("false" | "0" | "postgres") => false,
            Some(other) => {
                problem("direct_tls", other, "true or false");
                true
            }
        };
        let mut roots = self.roots.unwrap_or_default();
        if let Some(path) = &self.root_file {
            match std::fs::read(path) {
                Ok(pem) => roots = Roots::Pem(pem.into()),
                Err(error) => {
                    let allowed = format!("a PEM file that can be read ({error})");
                    problem("root_file", &path.display().to_string(), &allowed);
                }
            }
        }
        if let Roots::Pem(pem) = &roots
            && !endpoint::holds_certificates(pem)
        {
            problem("roots", "no certificate", "PEM with one certificate at least");
        }

        let settings = EnvReader::new("DSQL").server_limit(SESSION_LIMIT).read(self.variables);
        let settings = match settings {
            Ok(mut settings) => {
                if let Some(config) = self.config {
                    settings.config = config.server_limit(SESSION_LIMIT);
                }
                if settings.token_duration < Duration::from_secs(1) || settings.token_duration > WEEK {
                    let life = forebay::duration::show(settings.token_duration);
                    problem("DSQL_TOKEN_DURATION", &life, "from 1s to 168h, which is a week");
                }
                Some(settings)
            }
            Err(error) => {
                problems.extend(error.problems);
                None
            }
        };
        if let Some(Err(error)) = settings.as_ref().map(|settings| settings.config.validate()) {
            problems.extend(error.problems);
        }
        let region = match settings.as_ref().and_then(|settings| settings.region.clone()) {
            Some(region) => Some(region),
            None => endpoint::region(&host).map(str::to_owned),
        };
        match (settings, region, parsed) {
            (Some(settings), Some(region), Some(port)) if problems.is_empty() => Ok(Options {
                application_name: self.application_name.unwrap_or_else(|| settings.service.clone()),
                pool: self.pool.unwrap_or_else(|| "default".to_owned()),
                host,
                port,
                address,
                region,
                user,
                database,
                roots,
                direct_tls,
                settings,
            }),
            (settings, None, _) if settings.is_some() => {
                problems.push(Problem {
                    setting: "REGION".into(),
                    value: "not set".to_owned(),
                    allowed: format!(
                        "given, since {host:?} does not name it as {{id}}.dsql.{{region}}.on.aws does"
                    ),
                });
                Err(ConfigError { problems })
            }
            _ => Err(ConfigError { problems }),
        }
    }
}
