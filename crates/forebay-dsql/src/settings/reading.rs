//! Makes settings of variables and of what was set in code, and collects problems and notes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use forebay::{Config, ConfigError, Lifetime, Problem};
use forebay_fleet::{LeaseMode, LeaseSettings, RateMode, RateSettings, StoreOutagePolicy, cluster_host};

use super::typed::{Origin, Typed};
use super::{Note, Settings, StandardSettings, StatusPageSettings, closest};
use crate::token::Token;
use crate::variables::{self as var, Variable};

mod values;

/// Twice the acquire timeout: a caller that has waited that long for a connection has as much time left to use it.
const DEADLINE: Duration = Duration::from_secs(60);
/// A shorter token can be guessed. The page has the same rule.
const SHORTEST_TOKEN: usize = 16;
const SECOND: Duration = Duration::from_secs(1);
const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);
/// A shorter tick would keep the keeper busy for nothing.
const SHORTEST_TICK: Duration = Duration::from_millis(10);

/// Settings in the making. What was set in code is taken as it is, and variables are parsed.
pub(crate) struct Reading<'a> {
    pub(crate) prefix: &'a str,
    pub(crate) origin: Origin,
    pub(crate) variables: BTreeMap<String, String>,
    pub(crate) typed: Typed,
    pub(crate) problems: Vec<Problem>,
    pub(crate) notes: Vec<Note>,
}

impl<'a> Reading<'a> {
    pub(crate) fn new(prefix: &'a str, origin: Origin) -> Self {
        Self {
            prefix,
            origin,
            variables: BTreeMap::new(),
            typed: Typed::default(),
            problems: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// The settings. They are valid if there are no problems.
    pub(crate) fn settings(&mut self, server_limit: Option<Duration>) -> Settings {
        let settings = self.read(server_limit);
        let checks = [
            Some(settings.config.validate()),
            settings.leases.as_ref().map(LeaseSettings::validate),
            settings.rate.as_ref().map(RateSettings::validate),
        ];
        for ConfigError { problems } in checks.into_iter().flatten().filter_map(Result::err) {
            for problem in problems {
                let setting = self.name_of(&problem.setting).into();
                self.problems.push(Problem { setting, ..problem });
            }
        }
        settings
    }

    fn read(&mut self, server_limit: Option<Duration>) -> Settings {
        let mut config = match self.typed.config.clone() {
            Some(config) => {
                self.refuse_parts_of_config();
                config
            }
            None => self.config(),
        };
        config.server_limit = server_limit.or(config.server_limit);
        // Set to nothing is not set, as with variables.
        let given = |text: &Option<String>| text.clone().filter(|text| !text.trim().is_empty());
        let region = given(&self.typed.region).or_else(|| self.text(var::REGION));
        let region = region.or_else(|| self.text(var::AWS_REGION));
        let service = given(&self.typed.service).or_else(|| self.text(var::SERVICE_NAME));
        let reservoir = self.typed.reservoir;
        let settings = Settings {
            reservoir_enabled: reservoir
                .unwrap_or_else(|| self.boolean(var::RESERVOIR_ENABLED, self.origin.reservoir())),
            service: service.unwrap_or_else(program_name),
            endpoint: self.text(var::CLUSTER_ENDPOINT).map(|host| cluster_host(&host)),
            region,
            token_duration: self.token_duration(),
            deadline: self.deadline(),
            leases: self.leases(),
            rate: self.rate(),
            outage_policy: self
                .choice(
                    var::OUTAGE_POLICY,
                    &[
                        ("local", StoreOutagePolicy::Local),
                        ("closed", StoreOutagePolicy::Closed),
                        ("strict", StoreOutagePolicy::Strict),
                    ],
                )
                .unwrap_or_default(),
            node_id: self.number(var::NODE_ID, 0, 1023).and_then(|node| u16::try_from(node).ok()),
            standard: StandardSettings {
                warmup_stagger: self.duration(var::WARMUP_STAGGER),
                keeper_tick: self.keeper_tick(),
                keeper_max: self.count(var::KEEPER_MAX, 1),
            },
            status_page: self.status_page(),
            config,
            notes: Vec::new(),
        };
        self.note_unknown();
        self.note_without_effect(&settings);
        Settings { notes: std::mem::take(&mut self.notes), ..settings }
    }

    fn deadline(&mut self) -> Option<Duration> {
        let deadline = self.typed.deadline.or_else(|| self.duration(var::DEADLINE));
        Some(deadline.unwrap_or(DEADLINE)).filter(|limit| !limit.is_zero())
    }

    fn config(&mut self) -> Config {
        let mut config = self.origin.config();
        if let Some(max_open) = self.typed.max_connections.or_else(|| self.count(var::MAX_CONNS, 1)) {
            config = config.max_open(max_open);
        }
        let target = self.count(var::RESERVOIR_TARGET_READY, 0);
        let mark = self.count(var::RESERVOIR_LOW_WATERMARK, 0);
        if let Some(mark) = mark {
            config = config.low_watermark(mark);
        }
        if let Some(target) = target {
            config = config.target_ready(target);
            let max_open = config.max_open;
            if let Some(mark) = mark.filter(|mark| *mark > target) {
                self.note(var::RESERVOIR_TARGET_READY, format!("raised to {mark}, the low watermark"));
            } else if target > max_open {
                let most = self.name_of("max_open");
                self.note(var::RESERVOIR_TARGET_READY, format!("lowered to {max_open}, which is {most}"));
            }
        }
        let defaults = config.lifetime.unwrap_or_default();
        config.lifetime = Some(Lifetime {
            base: self.repaired(var::RESERVOIR_BASE_LIFETIME, defaults.base, defaults.base, true),
            jitter: self.repaired(var::RESERVOIR_LIFETIME_JITTER, defaults.jitter, Duration::ZERO, false),
            guard: self.repaired(var::RESERVOIR_GUARD_WINDOW, defaults.guard, Duration::ZERO, false),
        });
        config.startup_jitter = match self.typed.startup_jitter {
            Some(longest) => longest,
            None => self.startup_jitter(config.startup_jitter),
        };
        match self.typed.connect_rate {
            Some((rate, burst)) => config = config.rate(rate, burst),
            None => {
                config.rate = self.decimal(var::CONNECTION_RATE_LIMIT).unwrap_or(config.rate);
                let burst = self.number(var::CONNECTION_BURST_LIMIT, 1, u64::from(u32::MAX));
                config.burst = burst.map_or(config.burst, |burst| u32::try_from(burst).unwrap_or(u32::MAX));
            }
        }
        config.open_timeout = self.positive(var::CONNECT_TIMEOUT, config.open_timeout);
        config.fill_timeout =
            self.duration(var::RESERVOIR_INITIAL_FILL_TIMEOUT).unwrap_or(config.fill_timeout);
        config.empty_wait = self.duration(var::RESERVOIR_EMPTY_WAIT).or(config.empty_wait);
        let timeout = self.typed.acquire_timeout;
        let timeout = timeout.or_else(|| self.duration(var::RESERVOIR_ACQUIRE_TIMEOUT));
        config.acquire_timeout = timeout.unwrap_or(config.acquire_timeout);
        if let Some(opens) = self.count(var::RESERVOIR_INFLIGHT_LIMIT, 1) {
            config.inflight_limit = opens;
        }
        config
    }

    /// `config` gives all settings of the reservoir. What gives one of them as well would have no effect.
    fn refuse_parts_of_config(&mut self) {
        const ALLOWED: &str = "not set: `config` sets all of the reservoir's settings";
        for (method, value) in self.typed.of_config() {
            self.problems.push(Problem { setting: method.into(), value, allowed: ALLOWED.to_owned() });
        }
        let dropped = var::all().filter(|known| known.is_of_config() && self.raw(**known).is_some());
        for variable in dropped.collect::<Vec<_>>() {
            self.problem(*variable, ALLOWED);
        }
    }

    fn startup_jitter(&mut self, default: Duration) -> Duration {
        let staggered = self.boolean(var::STAGGERED_STARTUP, true);
        let longest = self.duration(var::STAGGERED_STARTUP_MAX_DELAY).unwrap_or(default);
        if staggered { longest } else { Duration::ZERO }
    }

    fn token_duration(&mut self) -> Duration {
        let life = match self.typed.token_life {
            Some(life) => life,
            None => self.positive(var::TOKEN_DURATION, Duration::from_secs(15 * 60)),
        };
        if life > WEEK {
            self.problem_of("token_duration", var::TOKEN_DURATION, life, "at most 168h, which is a week");
        } else if life < SECOND {
            self.problem_of("token_duration", var::TOKEN_DURATION, life, "at least 1s");
        }
        life
    }

    fn keeper_tick(&mut self) -> Duration {
        let tick = self.positive(var::KEEPER_TICK, SECOND);
        if tick < SHORTEST_TICK {
            self.problem(var::KEEPER_TICK, "at least 10ms");
        }
        tick
    }

    fn leases(&mut self) -> Option<LeaseSettings> {
        let enabled = self.boolean(var::LEASE_ENABLED, false);
        let mut leases = LeaseSettings::new(self.text(var::LEASE_TABLE).unwrap_or_default());
        leases.limit = self.number(var::LEASE_LIMIT, 1, u64::MAX).unwrap_or(leases.limit);
        let modes = [("ledger", LeaseMode::Ledger), ("counter", LeaseMode::Counter)];
        leases.mode = self.choice(var::LEASE_MODE, &modes).unwrap_or_default();
        leases.heartbeat = self.positive(var::LEASE_HEARTBEAT, leases.heartbeat);
        leases.length = self.positive(var::LEASE_LENGTH, leases.length);
        leases.block = self.number(var::LEASE_BLOCK, 1, LeaseSettings::MAX_BLOCK).unwrap_or(leases.block);
        // Tables count whole seconds, and so do the operators who compare instances.
        if enabled && leases.length.subsec_nanos() > 0 {
            self.problem(var::LEASE_LENGTH, "whole seconds, at least 5s");
        }
        if enabled && leases.table.is_empty() {
            self.missing(var::LEASE_TABLE, var::LEASE_ENABLED);
        }
        enabled.then_some(leases)
    }

    fn rate(&mut self) -> Option<RateSettings> {
        let mut enabled = self.boolean(var::RATE_ENABLED, false);
        let mut rate = RateSettings::new(self.text(var::RATE_TABLE).unwrap_or_default());
        if let Some(limit) = self.integer(var::RATE_LIMIT) {
            if enabled && limit <= 0 {
                self.note(var::RATE_LIMIT, "the fleet's limiter is off".to_owned());
                enabled = false;
            }
            rate.per_second = u64::try_from(limit).unwrap_or(0);
        }
        rate.burst = self.number(var::RATE_BURST, 1, u64::MAX).unwrap_or(rate.burst);
        rate.max_wait = self.positive(var::RATE_MAX_WAIT, rate.max_wait);
        let modes = [("bucket", RateMode::Bucket), ("window", RateMode::Window)];
        rate.mode = self.choice(var::RATE_MODE, &modes).unwrap_or_default();
        if enabled && rate.table.is_empty() {
            self.missing(var::RATE_TABLE, var::RATE_ENABLED);
        }
        enabled.then_some(rate)
    }

    fn status_page(&mut self) -> Option<StatusPageSettings> {
        let token = self.text(var::DESK_TOKEN).map(Token::new);
        let fits = |token: &Token| {
            let token = token.expose_secret();
            token.len() >= SHORTEST_TOKEN && token.bytes().all(|byte| byte.is_ascii_graphic())
        };
        if token.as_ref().is_some_and(|token| !fits(token)) {
            // A secret is not repeated.
            let setting = self.called(var::DESK_TOKEN).into();
            let allowed = format!("at least {SHORTEST_TOKEN} characters, all of them visible ASCII");
            self.problems.push(Problem { setting, value: "a token that cannot be used".to_owned(), allowed });
        }
        let listen = match self.typed.status_page {
            Some(listen) => listen,
            None => match self.raw(var::DESK_LISTEN)?.parse::<SocketAddr>() {
                Ok(listen) => listen,
                Err(_) => {
                    self.problem(var::DESK_LISTEN, "an IP address with a port, such as 127.0.0.1:9464");
                    return None;
                }
            },
        };
        if !listen.ip().is_loopback() && token.is_none() {
            let token = self.called(var::DESK_TOKEN);
            let allowed = format!("a loopback address such as 127.0.0.1:9464, unless {token} is set");
            let setting = self.name_of(var::DESK_LISTEN.setting).into();
            self.problems.push(Problem { setting, value: format!("{:?}", listen.to_string()), allowed });
        }
        Some(StatusPageSettings { listen, token })
    }

    /// Notes variables with the prefix that nothing reads: most likely typos. In code, each is a problem.
    fn note_unknown(&mut self) {
        let prefix = format!("{}_", self.prefix);
        let known: Vec<String> = var::all().map(|variable| variable.full_name(self.prefix)).collect();
        let is_later = |name: &str| {
            let rest = name.strip_prefix(&prefix);
            rest.is_some_and(|rest| var::NOT_USED.iter().any(|beginning| rest.starts_with(beginning)))
        };
        let in_code = self.origin == Origin::Code;
        let unknown = self.variables.keys().filter(|name| !known.contains(name));
        for name in unknown.filter(|name| in_code || name.starts_with(&prefix)) {
            let closest = closest(name, &known);
            if in_code && !is_later(name) {
                let allowed = match closest {
                    Some(known) => format!("a known one; did you mean {known}?"),
                    None => format!("one of forebay's, such as {}", var::MAX_CONNS.full_name(self.prefix)),
                };
                let setting = "the name of a variable".into();
                self.problems.push(Problem { setting, value: format!("{name:?}"), allowed });
                continue;
            }
            let remark = if is_later(name) {
                "not used here".to_owned()
            } else if let Some(known) = closest {
                format!("no such variable; did you mean {known}?")
            } else if var::OURS.iter().any(|beginning| name[prefix.len()..].starts_with(beginning)) {
                "no such variable".to_owned()
            } else {
                // The application's own: it may share our prefix.
                continue;
            };
            self.notes.push(Note { variable: name.clone(), value: None, remark });
        }
    }

    /// What a variable is called where it comes from.
    pub(crate) fn called(&self, variable: Variable) -> String {
        match self.origin {
            Origin::Url if variable.prefixed => variable.name.to_ascii_lowercase(),
            Origin::Code | Origin::Url | Origin::Environment => variable.full_name(self.prefix),
        }
    }

    /// What has given the region.
    pub(crate) fn name_of_region(&self) -> &'static str {
        match (self.typed.method("region"), self.raw(var::REGION)) {
            (Some(method), _) => method,
            (None, Some(_)) => var::REGION.name,
            (None, None) => var::AWS_REGION.name,
        }
    }

    /// What has given this setting: a method, a variable or a key of a URL.
    pub(crate) fn name_of(&self, setting: &str) -> String {
        if let Some(method) = self.typed.method(setting) {
            return method.to_owned();
        }
        let is_of_config = |variable: &Variable| self.typed.config.is_some() && variable.is_of_config();
        match var::all().find(|variable| variable.setting == setting) {
            Some(variable) if !is_of_config(variable) => self.called(*variable),
            _ => setting.to_owned(),
        }
    }
}

/// The file name of this program.
fn program_name() -> String {
    let program = std::env::args_os().next().map(std::path::PathBuf::from);
    let name = program.as_deref().and_then(std::path::Path::file_stem);
    name.map_or_else(|| "unknown".to_owned(), |name| name.to_string_lossy().into_owned())
}
