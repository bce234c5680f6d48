//! Reads variables one by one, and collects problems and notes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use forebay::duration::{self, show};
use forebay::{Config, Lifetime, Problem};
use forebay_fleet::{LeaseMode, LeaseSettings, RateMode, RateSettings, StoreOutagePolicy, cluster_host};

use super::{Note, Settings, StandardSettings, StatusPageSettings, closest};
use crate::token::Token;
use crate::variables::{self as var, Variable};

/// A shorter token can be guessed. The page has the same rule.
const SHORTEST_TOKEN: usize = 16;

/// Variables on their way to becoming settings.
pub(super) struct Reading<'a> {
    pub(super) prefix: &'a str,
    pub(super) variables: BTreeMap<String, String>,
    pub(super) problems: Vec<Problem>,
    pub(super) notes: Vec<Note>,
}

impl Reading<'_> {
    pub(super) fn settings(&mut self, server_limit: Option<Duration>) -> Settings {
        let config = self.config(server_limit);
        let region = self.text(var::REGION).or_else(|| self.text(var::AWS_REGION));
        let settings = Settings {
            reservoir_enabled: self.boolean(var::RESERVOIR_ENABLED, false),
            service: self.text(var::SERVICE_NAME).unwrap_or_else(program_name),
            endpoint: self.text(var::CLUSTER_ENDPOINT).map(|host| cluster_host(&host)),
            region,
            token_duration: self.token_duration(),
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
                keeper_tick: self.positive(var::KEEPER_TICK, Duration::from_secs(1)),
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

    fn config(&mut self, server_limit: Option<Duration>) -> Config {
        let mut config = Config::default();
        config.server_limit = server_limit;
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
            let max_open = config.max_open;
            if let Some(mark) = mark.filter(|mark| *mark > target) {
                self.note(var::RESERVOIR_TARGET_READY, format!("raised to {mark}, the low watermark"));
            } else if target > max_open {
                let most = var::MAX_CONNS.full_name(self.prefix);
                self.note(var::RESERVOIR_TARGET_READY, format!("lowered to {max_open}, which is {most}"));
            }
        }
        let defaults = Lifetime::default();
        config.lifetime = Some(Lifetime {
            base: self.repaired(var::RESERVOIR_BASE_LIFETIME, defaults.base, defaults.base, true),
            jitter: self.repaired(var::RESERVOIR_LIFETIME_JITTER, defaults.jitter, Duration::ZERO, false),
            guard: self.repaired(var::RESERVOIR_GUARD_WINDOW, defaults.guard, Duration::ZERO, false),
        });
        let staggered = self.boolean(var::STAGGERED_STARTUP, true);
        let longest = self.duration(var::STAGGERED_STARTUP_MAX_DELAY).unwrap_or(config.startup_jitter);
        config.startup_jitter = if staggered { longest } else { Duration::ZERO };
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
            let setting = var::DESK_TOKEN.full_name(self.prefix).into();
            let allowed = format!("at least {SHORTEST_TOKEN} characters, all of them visible ASCII");
            self.problems.push(Problem { setting, value: "a token that cannot be used".to_owned(), allowed });
        }
        let listen = self.raw(var::DESK_LISTEN)?.parse::<SocketAddr>();
        match &listen {
            Err(_) => self.problem(var::DESK_LISTEN, "an IP address with a port, such as 127.0.0.1:9464"),
            Ok(listen) if !listen.ip().is_loopback() && token.is_none() => {
                let token = var::DESK_TOKEN.full_name(self.prefix);
                let allowed = format!("a loopback address such as 127.0.0.1:9464, unless {token} is set");
                self.problem(var::DESK_LISTEN, &allowed);
            }
            Ok(_) => {}
        }
        Some(StatusPageSettings { listen: listen.ok()?, token })
    }

    /// Notes variables with the prefix that nothing reads: most likely typos.
    fn note_unknown(&mut self) {
        let prefix = format!("{}_", self.prefix);
        let known: Vec<String> = var::all().map(|variable| variable.full_name(self.prefix)).collect();
        let unknown: Vec<String> = self
            .variables
            .keys()
            .filter(|name| name.starts_with(&prefix) && !known.contains(name))
            .cloned()
            .collect();
        for name in unknown {
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
        self.number(variable, least, Config::MAX_OPEN_LIMIT as u64)
            .and_then(|number| usize::try_from(number).ok())
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
