//! Settings from the environment: all problems at once, and every repair told.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::variables::{self as var, Variable};
use super::{Config, ConfigError, Lifetime, Problem};
use crate::duration::{self, show};

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

/// Leases across the fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseSettings {
    /// The table they are in.
    pub table: String,
    /// Connections the fleet may hold.
    pub limit: u64,
    /// How the fleet counts.
    pub mode: LeaseMode,
    /// How often an instance says that it lives.
    pub beat: Duration,
    /// How long it is believed.
    pub length: Duration,
    /// Slots taken and given back at a time.
    pub block: u64,
}

/// How a fleet counts its connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeaseMode {
    /// A few items that hold each instance's share.
    #[default]
    Ledger,
    /// One counter and an item for each connection.
    Counter,
}

/// A connect rate across the fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RateSettings {
    /// The table it is in.
    pub table: String,
    /// Opens a second.
    pub per_second: u64,
    /// Opens at once after a quiet time.
    pub burst: u64,
    /// How long an open waits for a permit.
    pub max_wait: Duration,
    /// How the fleet shares the rate.
    pub mode: RateMode,
}

/// How a fleet shares its connect rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RateMode {
    /// One item, reserved ahead.
    #[default]
    Bucket,
    /// One item for each second.
    Window,
}

/// What holds while the shared store is away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AwayPolicy {
    /// Go on opening within what is held already, at the local rate.
    #[default]
    Local,
    /// Open nothing new, go on serving.
    Closed,
    /// Also close what is held before its lease could be taken away.
    Strict,
}

/// Standard mode's warm-up and keeper. What is not set follows from the pool's size.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StandardSettings {
    /// Time over which the warm-up is spread.
    pub warmup_stagger: Option<Duration>,
    /// How often the keeper looks.
    pub keeper_tick: Duration,
    /// Connections the keeper opens at a look.
    pub keeper_max: Option<usize>,
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

/// Variables on their way to becoming settings.
struct Reading<'a> {
    prefix: &'a str,
    variables: BTreeMap<String, String>,
    problems: Vec<Problem>,
    notes: Vec<Note>,
}

impl Reading<'_> {
    fn environment(&mut self, server_limit: Option<Duration>) -> Environment {
        let config = self.config(server_limit);
        let region = self.text(var::REGION).or_else(|| self.text(var::AWS_REGION));
        let environment = Environment {
            reservoir_enabled: self.boolean(var::RESERVOIR_ENABLED, false),
            service: self.text(var::SERVICE_NAME).unwrap_or_else(program_name),
            endpoint: self.text(var::CLUSTER_ENDPOINT).map(|host| host_of(&host)),
            region,
            token_duration: self.token_duration(),
            leases: self.leases(),
            rate: self.rate(),
            away: self
                .choice(
                    var::AWAY_POLICY,
                    &[
                        ("local", AwayPolicy::Local),
                        ("closed", AwayPolicy::Closed),
                        ("strict", AwayPolicy::Strict),
                    ],
                )
                .unwrap_or_default(),
            node_id: self.number(var::NODE_ID, 0, 1023).and_then(|node| u16::try_from(node).ok()),
            standard: StandardSettings {
                warmup_stagger: self.duration(var::WARMUP_STAGGER),
                keeper_tick: self.positive(var::KEEPER_TICK, Duration::from_secs(1)),
                keeper_max: self.count(var::KEEPER_MAX, 1),
            },
            config,
            notes: Vec::new(),
        };
        self.note_strangers();
        Environment { notes: std::mem::take(&mut self.notes), ..environment }
    }

    fn config(&mut self, server_limit: Option<Duration>) -> Config {
        let mut config = Config { server_limit, ..Config::default() };
        if let Some(max_open) = self.count(var::MAX_CONNS, 1) {
            config = config.max_open(max_open);
        }
        let target = self.count(var::RESERVOIR_TARGET_READY, 0);
        let mark = self.count(var::RESERVOIR_LOW_WATERMARK, 0);
        if let Some(mark) = mark {
            config = config.low_watermark(mark);
        }
        if let Some(target) = target {
            config = config.target_ready(target);
            if let Some(mark) = mark.filter(|mark| *mark > target) {
                self.note(var::RESERVOIR_TARGET_READY, format!("raised to {mark}, the low watermark"));
            }
        }
        let defaults = Lifetime::default();
        config.lifetime = Some(Lifetime {
            base: self.repaired(var::RESERVOIR_BASE_LIFETIME, defaults.base, defaults.base, true),
            jitter: self.repaired(var::RESERVOIR_LIFETIME_JITTER, defaults.jitter, Duration::ZERO, false),
            guard: self.repaired(var::RESERVOIR_GUARD_WINDOW, defaults.guard, Duration::ZERO, false),
        });
        let staggered = self.boolean(var::STAGGERED_STARTUP, true);
        let longest = self.duration(var::STAGGERED_STARTUP_MAX_DELAY).unwrap_or(config.stagger);
        config.stagger = if staggered { longest } else { Duration::ZERO };
        if let Some(rate) = self.decimal(var::CONNECTION_RATE_LIMIT) {
            config.rate = rate;
        }
        if let Some(burst) = self.number(var::CONNECTION_BURST_LIMIT, 1, u64::from(u32::MAX)) {
            config.burst = u32::try_from(burst).unwrap_or(u32::MAX);
        }
        config.open_timeout = self.positive(var::CONNECT_TIMEOUT, config.open_timeout);
        config.fill_timeout =
            self.duration(var::RESERVOIR_INITIAL_FILL_TIMEOUT).unwrap_or(config.fill_timeout);
        config.empty_wait = self.duration(var::RESERVOIR_EMPTY_WAIT).or(config.empty_wait);
        config.acquire_timeout =
            self.duration(var::RESERVOIR_ACQUIRE_TIMEOUT).unwrap_or(config.acquire_timeout);
        if let Some(opens) = self.count(var::RESERVOIR_INFLIGHT_LIMIT, 1) {
            config.inflight_limit = opens;
        }
        config
    }

    fn token_duration(&mut self) -> Duration {
        const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);
        let duration = self.positive(var::TOKEN_DURATION, Duration::from_secs(15 * 60));
        if duration > WEEK {
            self.problem(var::TOKEN_DURATION, "at most 168h, which is a week");
        }
        duration
    }

    fn leases(&mut self) -> Option<LeaseSettings> {
        let enabled = self.boolean(var::LEASE_ENABLED, false);
        let beat = self.positive(var::LEASE_BEAT, Duration::from_secs(30));
        let length = self.positive(var::LEASE_LENGTH, Duration::from_secs(120));
        if enabled && length <= beat {
            self.problem(var::LEASE_LENGTH, &format!("above the beat, which is {}", show(beat)));
        }
        let modes = [("ledger", LeaseMode::Ledger), ("counter", LeaseMode::Counter)];
        let settings = LeaseSettings {
            table: self.text(var::LEASE_TABLE).unwrap_or_default(),
            limit: self.number(var::LEASE_LIMIT, 1, u64::MAX).unwrap_or(10_000),
            mode: self.choice(var::LEASE_MODE, &modes).unwrap_or_default(),
            beat,
            length,
            block: self.number(var::LEASE_BLOCK, 1, u64::MAX).unwrap_or(10),
        };
        if enabled && settings.table.is_empty() {
            self.missing(var::LEASE_TABLE, var::LEASE_ENABLED);
        }
        enabled.then_some(settings)
    }

    fn rate(&mut self) -> Option<RateSettings> {
        let mut enabled = self.boolean(var::RATE_ENABLED, false);
        let limit = self.integer(var::RATE_LIMIT).unwrap_or(100);
        if enabled && limit <= 0 {
            self.note(var::RATE_LIMIT, "the fleet's limiter is off".to_owned());
            enabled = false;
        }
        let modes = [("bucket", RateMode::Bucket), ("window", RateMode::Window)];
        let settings = RateSettings {
            table: self.text(var::RATE_TABLE).unwrap_or_default(),
            per_second: u64::try_from(limit).unwrap_or(0),
            burst: self.number(var::RATE_BURST, 1, u64::MAX).unwrap_or(1000),
            max_wait: self.positive(var::RATE_MAX_WAIT, Duration::from_secs(30)),
            mode: self.choice(var::RATE_MODE, &modes).unwrap_or_default(),
        };
        if enabled && settings.table.is_empty() {
            self.missing(var::RATE_TABLE, var::RATE_ENABLED);
        }
        enabled.then_some(settings)
    }

    /// Variables with the prefix that mean nothing: most likely a slip of the pen.
    fn note_strangers(&mut self) {
        let prefix = format!("{}_", self.prefix);
        let known: Vec<String> = var::variables().map(|variable| variable.full_name(self.prefix)).collect();
        let strangers: Vec<String> = self
            .variables
            .keys()
            .filter(|name| name.starts_with(&prefix) && !known.contains(name))
            .cloned()
            .collect();
        for name in strangers {
            let rest = &name[prefix.len()..];
            let remark = if var::NOT_USED.iter().any(|beginning| rest.starts_with(beginning)) {
                "not used here".to_owned()
            } else if let Some(known) = closest(&name, &known) {
                format!("no such variable; did you mean {known}?")
            } else if var::OURS.iter().any(|beginning| rest.starts_with(beginning)) {
                "no such variable".to_owned()
            } else {
                // The application's own: it may share our prefix.
                continue;
            };
            self.notes.push(Note { variable: name, value: None, remark });
        }
    }

    // Kinds of values.

    fn raw(&self, variable: Variable) -> Option<&str> {
        let value = self.variables.get(&variable.full_name(self.prefix))?;
        // Set to nothing is not set: that is how an unset variable arrives through most deployment tools.
        Some(value.trim()).filter(|value| !value.is_empty())
    }

    fn text(&self, variable: Variable) -> Option<String> {
        self.raw(variable).map(str::to_owned)
    }

    fn boolean(&mut self, variable: Variable, default: bool) -> bool {
        match self.raw(variable) {
            None => default,
            Some("1" | "t" | "T" | "true" | "TRUE" | "True") => true,
            Some("0" | "f" | "F" | "false" | "FALSE" | "False") => false,
            Some(_) => {
                self.note(variable, "not a boolean, and so false; use true or false".to_owned());
                false
            }
        }
    }

    fn integer(&mut self, variable: Variable) -> Option<i64> {
        let parsed = self.raw(variable)?.parse();
        if parsed.is_err() {
            self.problem(variable, "a whole number");
        }
        parsed.ok()
    }

    fn number(&mut self, variable: Variable, least: u64, most: u64) -> Option<u64> {
        let parsed = self.raw(variable)?.parse().ok().filter(|number| (least..=most).contains(number));
        if parsed.is_none() {
            let most = if most > 1 << 53 { String::new() } else { format!(" and at most {most}") };
            self.problem(variable, &format!("a whole number of at least {least}{most}"));
        }
        parsed
    }

    fn count(&mut self, variable: Variable, least: u64) -> Option<usize> {
        self.number(variable, least, super::MOST as u64).and_then(|number| usize::try_from(number).ok())
    }

    fn decimal(&mut self, variable: Variable) -> Option<f64> {
        let parsed =
            self.raw(variable)?.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
        if parsed.is_none() {
            self.problem(variable, "a number above zero");
        }
        parsed
    }

    fn signed(&mut self, variable: Variable) -> Option<duration::Signed> {
        let parsed = duration::parse_signed(self.raw(variable)?);
        if parsed.is_none() {
            self.problem(variable, "a duration such as 45s, 11m or 1h30m");
        }
        parsed
    }

    fn duration(&mut self, variable: Variable) -> Option<Duration> {
        let signed = self.signed(variable)?;
        if signed.negative {
            self.problem(variable, "a duration that is not negative");
            return None;
        }
        Some(signed.magnitude)
    }

    fn positive(&mut self, variable: Variable, default: Duration) -> Duration {
        match self.signed(variable) {
            None => default,
            Some(signed) if signed.is_positive() => signed.magnitude,
            Some(_) => {
                self.problem(variable, "a duration above zero");
                default
            }
        }
    }

    /// A duration with a repair: negative, or zero too if it must be `positive`, becomes `repair`.
    fn repaired(
        &mut self,
        variable: Variable,
        default: Duration,
        repair: Duration,
        positive: bool,
    ) -> Duration {
        match self.signed(variable) {
            None => default,
            Some(signed) if signed.is_positive() || !(signed.negative || positive) => signed.magnitude,
            Some(_) => {
                self.note(variable, format!("{} is used instead", show(repair)));
                repair
            }
        }
    }

    fn choice<T: Copy>(&mut self, variable: Variable, choices: &[(&str, T)]) -> Option<T> {
        let value = self.raw(variable)?.to_ascii_lowercase();
        let chosen = choices.iter().find(|(name, _)| *name == value).map(|(_, choice)| *choice);
        if chosen.is_none() {
            let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
            self.problem(variable, &format!("one of {}", names.join(", ")));
        }
        chosen
    }

    fn problem(&mut self, variable: Variable, allowed: &str) {
        let value = format!("{:?}", self.raw(variable).unwrap_or_default());
        let setting = variable.full_name(self.prefix).into();
        self.problems.push(Problem { setting, value, allowed: allowed.to_owned() });
    }

    fn missing(&mut self, variable: Variable, because: Variable) {
        let allowed = format!("the name of a table, since {} is set", because.full_name(self.prefix));
        let setting = variable.full_name(self.prefix).into();
        self.problems.push(Problem { setting, value: "not set".to_owned(), allowed });
    }

    fn note(&mut self, variable: Variable, remark: String) {
        let value = self.text(variable);
        self.notes.push(Note { variable: variable.full_name(self.prefix), value, remark });
    }
}

/// The file name of this program, for want of a better name.
fn program_name() -> String {
    let program = std::env::args_os().next().map(std::path::PathBuf::from);
    let name = program.as_deref().and_then(std::path::Path::file_stem);
    name.map_or_else(|| "unknown".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// A host in lower case, without a port.
fn host_of(endpoint: &str) -> String {
    let host = endpoint.split_once("://").map_or(endpoint, |(_, rest)| rest);
    let host = host.split('/').next().unwrap_or(host);
    // One colon is a port; several are an address that has no port, or has it behind a bracket.
    let host = match host.rsplit_once(':') {
        Some((name, _)) if !name.contains(':') || name.ends_with(']') => name,
        _ => host,
    };
    host.trim_end_matches('.').to_ascii_lowercase()
}

/// The name nearest to `name` of those that are `known`, if it is at most two slips away.
#[must_use]
pub fn closest<'a>(name: &str, known: &'a [String]) -> Option<&'a String> {
    known
        .iter()
        .map(|known| (distance(name, known), known))
        .min()
        .filter(|(slips, _)| *slips <= 2)
        .map(|(_, known)| known)
}

/// How many letters must be put in, left out or changed to make one word of the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, right) in b.iter().enumerate() {
            let change = diagonal + usize::from(left != *right);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
