//! Settings from the environment: all problems at once, and a note for every repair.

mod reading;
mod typed;
mod without_effect;

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use forebay::{Config, ConfigError};
use forebay_fleet::{FleetSettings, LeaseSettings, RateSettings, StoreOutagePolicy};

use crate::token::Token;
pub(crate) use reading::Reading;
pub(crate) use typed::{Origin, Typed};

/// What the [variables](crate::variables) say. The reservoir's own settings are a [`Config`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Settings {
    /// Whether connections come from a reservoir. Default: no, but yes where options are built in code or read from a URL.
    pub reservoir_enabled: bool,
    /// The reservoir's settings.
    pub config: Config,
    /// The name of this service. Default: the program's name.
    pub service: String,
    /// Host of the cluster, in lower case and without a port.
    pub endpoint: Option<String>,
    /// Region of the cluster, if it is named.
    pub region: Option<String>,
    /// How long a token is good for. Default: 15 min.
    pub token_duration: Duration,
    /// How long a transaction may take as a whole, and a single statement. `None` for no limit. Default: 60 s.
    pub deadline: Option<Duration>,
    /// Leases across the fleet, if they are enabled.
    pub leases: Option<LeaseSettings>,
    /// A connect rate across the fleet, if it is enabled.
    pub rate: Option<RateSettings>,
    /// What an instance may do while the shared store does not answer.
    pub outage_policy: StoreOutagePolicy,
    /// Number of this process in generated ids, from 0 to 1023.
    pub node_id: Option<u16>,
    /// Standard mode's warm-up and keeper.
    pub standard: StandardSettings,
    /// Where the status page is served, if anywhere. It needs the feature `status-page`.
    pub status_page: Option<StatusPageSettings>,
    /// Repairs and typos. Each is worth a warning: see [`Note::log`].
    pub notes: Vec<Note>,
}

/// Standard mode's warm-up and keeper. What is not set follows from the pool's size.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StandardSettings {
    /// Time over which the warm-up is spread.
    pub warmup_stagger: Option<Duration>,
    /// How often the keeper looks. Default: 1 s.
    pub keeper_tick: Duration,
    /// Connections the keeper opens at a look.
    pub keeper_max: Option<usize>,
}

/// Where the status page of this process is served.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StatusPageSettings {
    /// The address and the port. Port 0: any free one.
    pub listen: SocketAddr,
    /// What clients must present. Required unless the address is a loopback one.
    pub token: Option<Token>,
}

impl Settings {
    /// The settings of the fleet; none without an endpoint, or if neither leases nor a shared rate are enabled. Add the
    /// pools of this process with [`FleetSettings::for_pools`].
    ///
    /// ```
    /// let settings = forebay_dsql::EnvReader::new("DSQL").read([
    ///     ("CLUSTER_ENDPOINT", "db.example"),
    ///     ("DSQL_DISTRIBUTED_CONN_LEASE_ENABLED", "true"),
    ///     ("DSQL_DISTRIBUTED_CONN_LEASE_TABLE", "leases"),
    /// ]);
    /// assert!(settings?.fleet().is_some_and(|fleet| fleet.leases.is_some() && fleet.rate.is_none()));
    /// # Ok::<(), forebay::ConfigError>(())
    /// ```
    #[must_use]
    pub fn fleet(&self) -> Option<FleetSettings> {
        if self.leases.is_none() && self.rate.is_none() {
            return None;
        }
        let mut fleet = FleetSettings::new(self.endpoint.as_ref()?, &self.service);
        (fleet.leases, fleet.rate) = (self.leases.clone(), self.rate.clone());
        fleet.outage_policy = self.outage_policy;
        Some(fleet)
    }
}

/// Something odd about a variable that is no reason not to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The variable.
    pub variable: String,
    /// Its value; not kept of a variable that is not ours, since it may be a secret.
    pub value: Option<String>,
    /// What was made of it.
    pub remark: String,
}

impl Note {
    /// Writes it to the log, as a warning.
    pub fn log(&self) {
        let Self { variable, value, remark } = self;
        tracing::warn!(target: "forebay", variable, value = value.as_deref(), remark, "Reservoir configuration");
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{} is {value:?}: {}", self.variable, self.remark),
            None => write!(f, "{}: {}", self.variable, self.remark),
        }
    }
}

/// Reads [`Settings`]. [`Options::from_env`](crate::Options::from_env) does so with the prefix `DSQL`; this is for programs
/// with another prefix, or another server.
///
/// ```
/// use forebay_dsql::EnvReader;
///
/// let variables = [("DSQL_MAX_CONNS", "50"), ("DSQL_RESERVOIR_BASE_LIFETIME", "55m")];
/// let settings = EnvReader::new("DSQL").read(variables)?;
/// assert!(settings.notes.is_empty());
///
/// let error = EnvReader::new("DSQL").read([("DSQL_RESERVOIR_GUARD_WINDOW", "45")]).unwrap_err();
/// assert!(error.to_string().contains("DSQL_RESERVOIR_GUARD_WINDOW is \"45\""));
/// # Ok::<(), forebay::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct EnvReader {
    prefix: String,
    server_limit: Option<Duration>,
}

impl EnvReader {
    /// Reads variables whose names begin with `prefix` and an underscore.
    pub fn new(prefix: impl Into<String>) -> Self {
        let prefix = prefix.into().trim_end_matches('_').to_owned();
        Self { prefix, server_limit: None }
    }

    /// The server ends sessions after `limit`: a longer life is a problem.
    #[must_use]
    pub fn server_limit(mut self, limit: Duration) -> Self {
        self.server_limit = Some(limit);
        self
    }

    /// Reads the environment of this process.
    ///
    /// # Errors
    /// Every problem in it, each with its variable, the value and what is allowed.
    pub fn read_process(&self) -> Result<Settings, ConfigError> {
        self.read(process_variables())
    }

    /// Reads these variables.
    ///
    /// # Errors
    /// Every problem in them, each with its variable, the value and what is allowed.
    pub fn read<N, V>(&self, variables: impl IntoIterator<Item = (N, V)>) -> Result<Settings, ConfigError>
    where
        N: Into<String>,
        V: Into<String>,
    {
        let variables = variables.into_iter().map(|(name, value)| (name.into(), value.into()));
        let mut reading = Reading::new(&self.prefix, Origin::Environment);
        reading.variables = variables.collect();
        let settings = reading.settings(self.server_limit);
        let problems = reading.problems;
        if problems.is_empty() { Ok(settings) } else { Err(ConfigError { problems }) }
    }
}

/// The variables of this process.
pub(crate) fn process_variables() -> impl Iterator<Item = (String, String)> {
    let text = |part: std::ffi::OsString| part.to_string_lossy().into_owned();
    std::env::vars_os().map(move |(name, value)| (text(name), text(value)))
}

/// The name nearest to `name` of those that are `known`, if it is at most two letters away.
pub(crate) fn closest<'a>(name: &str, known: &'a [String]) -> Option<&'a String> {
    let distances = known.iter().map(|known| (strsim::levenshtein(name, known), known));
    distances.min().filter(|(letters, _)| *letters <= 2).map(|(_, known)| known)
}
