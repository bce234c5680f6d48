//! Settings from the environment: all problems at once, and every repair told.

mod reading;

use std::fmt;
use std::time::Duration;

use super::settings::{AwayPolicy, LeaseSettings, RateSettings, StandardSettings};
use super::variables as var;
use super::{Config, ConfigError, Problem};
use reading::Reading;

/// What an environment says. The reservoir's own settings are a [`Config`]; the rest is for the crates around it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Environment {
    /// Whether reservoir mode is asked for.
    pub reservoir_enabled: bool,
    /// The reservoir's settings.
    pub config: Config,
    /// The name of this service.
    pub service: String,
    /// Host of the cluster, in lower case and without a port.
    pub endpoint: Option<String>,
    /// Region of the cluster, if it is named.
    pub region: Option<String>,
    /// How long a token is good for.
    pub token_duration: Duration,
    /// Leases across the fleet, if they are enabled.
    pub leases: Option<LeaseSettings>,
    /// A connect rate across the fleet, if it is enabled.
    pub rate: Option<RateSettings>,
    /// What holds while the shared store is away.
    pub away: AwayPolicy,
    /// Number of this process in generated ids.
    pub node_id: Option<u16>,
    /// Standard mode's warm-up and keeper.
    pub standard: StandardSettings,
    /// What was repaired or is odd. Worth a warning each.
    pub notes: Vec<Note>,
}

/// Something odd about a variable that is no reason not to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The variable.
    pub variable: String,
    /// What it was set to; not kept of a variable that is not ours, since it may be a secret.
    pub value: Option<String>,
    /// What was made of it.
    pub remark: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{} is {value:?}: {}", self.variable, self.remark),
            None => write!(f, "{}: {}", self.variable, self.remark),
        }
    }
}

/// Reads an [`Environment`]. The prefix of the variables and the server's limit are the caller's to know.
///
/// ```
/// use forebay::EnvReader;
///
/// let variables = [("DSQL_MAX_CONNS", "50"), ("DSQL_RESERVOIR_BASE_LIFETIME", "55m")];
/// let environment = EnvReader::new("DSQL").read(variables)?;
/// assert!(environment.notes.is_empty());
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
    pub fn read_process(&self) -> Result<Environment, ConfigError> {
        let text = |part: std::ffi::OsString| part.to_string_lossy().into_owned();
        self.read(std::env::vars_os().map(|(name, value)| (text(name), text(value))))
    }

    /// Reads these variables.
    ///
    /// # Errors
    /// Every problem in them, each with its variable, the value and what is allowed.
    pub fn read<N, V>(&self, variables: impl IntoIterator<Item = (N, V)>) -> Result<Environment, ConfigError>
    where
        N: Into<String>,
        V: Into<String>,
    {
        let variables = variables.into_iter().map(|(name, value)| (name.into(), value.into()));
        let mut reading = Reading {
            prefix: &self.prefix,
            variables: variables.collect(),
            problems: Vec::new(),
            notes: Vec::new(),
        };
        let environment = reading.environment(self.server_limit);
        let mut problems = reading.problems;
        if let Err(error) = environment.config.validate() {
            problems.extend(error.problems.into_iter().map(|problem| reading_name(&self.prefix, problem)));
        }
        if problems.is_empty() { Ok(environment) } else { Err(ConfigError { problems }) }
    }
}

/// A problem of the settings, under the name of the variable that sets it.
fn reading_name(prefix: &str, problem: Problem) -> Problem {
    let variable = var::variables().find(|variable| variable.setting == problem.setting);
    let setting = variable.map_or(problem.setting, |variable| variable.full_name(prefix).into());
    Problem { setting, ..problem }
}
