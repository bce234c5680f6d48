//! The variables of this process, read as a service reads them.

use std::collections::BTreeMap;

use forebay::duration::show;
use forebay::{ConfigError, Problem};
use forebay_dsql::{Options, Settings, variables};

use super::check::Check;
use super::context::Request;
use super::fault;
use super::finding::Finding;

/// New connections a second that a cluster admits, and at once after a quiet time. They are fixed.
const CLUSTER_RATE: u64 = 100;
const CLUSTER_BURST: u64 = 1_000;

/// Variables beside the `DSQL_` ones that options are read from.
const PLAIN: [&str; 8] = [
    "CLUSTER_USER",
    "PGUSER",
    "PGPORT",
    "PGDATABASE",
    "PGHOSTADDR",
    "PGSSLROOTCERT",
    "PGSSLNEGOTIATION",
    "PGAPPNAME",
];

/// Variables of the SDK that say where credentials and services are.
const OF_SDK: [&str; 8] = [
    "AWS_PROFILE",
    "AWS_ROLE_ARN",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_DYNAMODB",
    "AWS_ENDPOINT_URL_STS",
];

/// Variables whose values are nobody's business.
const SECRET: [&str; 5] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "DSQL_DESK_TOKEN",
];

/// Variables that belong to a switch: their beginning, and the switch.
const SWITCHED: [(&str, &str); 3] = [
    ("DSQL_RESERVOIR_", "DSQL_RESERVOIR_ENABLED"),
    ("DSQL_DISTRIBUTED_CONN_", "DSQL_DISTRIBUTED_CONN_LEASE_ENABLED"),
    ("DSQL_DISTRIBUTED_RATE_LIMITER_", "DSQL_DISTRIBUTED_RATE_LIMITER_ENABLED"),
];

/// Variables `DSQL_RESERVOIR_*` that have an effect in standard mode, too.
const IN_BOTH_MODES: [&str; 3] =
    ["DSQL_RESERVOIR_ENABLED", "DSQL_RESERVOIR_ACQUIRE_TIMEOUT", "DSQL_RESERVOIR_INFLIGHT_LIMIT"];

/// The variables, as far as they can be read.
#[derive(Clone, Debug, Default)]
pub(super) struct Configuration {
    /// What the checks use: as a service has it, but without the variables that are wrong. None without an endpoint.
    pub(super) options: Option<Options>,
    /// The variables with which a service does not start, each with what is found.
    wrong: Vec<(String, Finding)>,
    findings: Vec<Finding>,
}

impl Configuration {
    pub(super) fn read(variables: &BTreeMap<String, String>, request: &Request) -> Self {
        let mut findings = vec![listed(variables)];
        let mut wrong = Vec::new();
        let options = match Options::from_variables(variables.clone()) {
            Ok(options) => {
                findings.push(cluster(variables, &options));
                Some(options)
            }
            Err(error) => {
                wrong = problems(variables, &error);
                findings.extend(wrong.iter().map(|(_, finding)| finding.clone()));
                without_problems(variables, &error)
            }
        };
        findings.extend(options.iter().flat_map(|options| of_settings(variables, options, request)));
        Self { options, wrong, findings }
    }

    /// The first wrong variable among those that `is_needed`.
    pub(super) fn wrong(&self, is_needed: impl Fn(&str) -> bool) -> Option<&Finding> {
        self.wrong.iter().find(|(name, _)| is_needed(name)).map(|(_, finding)| finding)
    }

    pub(super) fn findings(&self) -> Vec<Finding> {
        self.findings.clone()
    }
}

/// The options without the variables that are wrong. Checks that do not need a wrong variable still run.
/// None if there is no endpoint.
fn without_problems(variables: &BTreeMap<String, String>, error: &ConfigError) -> Option<Options> {
    let is_wrong =
        |name: &str| error.problems.iter().any(|problem| variable_of(&problem.setting).contains(&name));
    let mut variables = variables.clone();
    variables.retain(|name, _| name.starts_with("DSQL_") || !is_wrong(name));
    // These have no default if the endpoint has a wrong port, or tells no region. No check that needs them runs.
    for (name, value) in [("PGPORT", "5432"), ("REGION", "us-east-1")] {
        if is_wrong(name) {
            variables.insert(name.to_owned(), value.to_owned());
        }
    }
    // Leases without a table make no sense, so they are off together with it.
    let is_of_wrong = |name: &str| {
        let is_group = |(prefix, _): &&(&str, &str)| name.starts_with(prefix);
        let group = SWITCHED.iter().find(is_group).map(|(prefix, _)| *prefix);
        group.is_some_and(|prefix| error.problems.iter().any(|problem| problem.setting.starts_with(prefix)))
    };
    let kept = |drop: &dyn Fn(&str) -> bool| {
        let kept = variables.iter().filter(|(name, _)| !(name.starts_with("DSQL_") && drop(name)));
        Options::from_variables(kept.map(|(name, value)| (name.clone(), value.clone()))).ok()
    };
    kept(&is_wrong).or_else(|| kept(&|name| is_wrong(name) || is_of_wrong(name))).or_else(|| kept(&|_| true))
}

/// The variables that a problem is about. Some options are read from one of two, and their problem names either.
fn variable_of(setting: &str) -> Vec<&str> {
    match setting {
        "roots" => vec!["PGSSLROOTCERT"],
        // A port of its own takes the place of that one.
        "the port of CLUSTER_ENDPOINT" => vec!["PGPORT"],
        "PGUSER" => vec!["PGUSER", "CLUSTER_USER"],
        "REGION" | "AWS_REGION" => vec!["REGION", "AWS_REGION"],
        setting => vec![setting],
    }
}

/// Whether a switch is on, as a service reads it.
pub(super) fn is_on(variables: &BTreeMap<String, String>, switch: &str) -> bool {
    let value = variables.get(switch).map(|value| value.trim());
    value.is_some_and(|value| ["1", "t", "T", "true", "TRUE", "True"].contains(&value))
}

/// What is wrong, with the name of its variable.
fn problems(variables: &BTreeMap<String, String>, error: &ConfigError) -> Vec<(String, Finding)> {
    let is_missing = |problem: &Problem| problem.setting == "CLUSTER_ENDPOINT" && problem.value == "not set";
    let has_endpoint = !error.problems.iter().any(is_missing);
    // Without an endpoint, its name cannot tell the region.
    let told = error.problems.iter().filter(move |problem| has_endpoint || problem.setting != "REGION");
    told.map(move |problem| {
        let fault = match problem {
            problem if is_missing(problem) => fault::NO_ENDPOINT,
            Problem { allowed, .. } if allowed.contains("below the server's limit") => {
                fault::LIFETIME_ABOVE_LIMIT
            }
            _ => fault::INVALID_SETTING,
        };
        // The port of an endpoint has the name of the variable that would have priority.
        let is_of_endpoint = problem.setting == "PGPORT"
            && variables.get("PGPORT").is_none_or(|value| value.trim().is_empty());
        let shown = match &*problem.setting {
            "PGPORT" if is_of_endpoint => "the port of CLUSTER_ENDPOINT",
            "roots" => "PGSSLROOTCERT",
            setting => setting,
        };
        let what = problem.to_string().replacen(&*problem.setting, shown, 1);
        (variable_of(&problem.setting)[0].to_owned(), Finding::failure(fault, what))
    })
    .collect()
}

/// Every variable that is set, with its value unless that may be a secret.
fn listed(variables: &BTreeMap<String, String>) -> Finding {
    let ours: Vec<String> = variables::all().map(|variable| variable.full_name("DSQL")).collect();
    let known = |name: &str| {
        let is_ours = ours.iter().any(|known| known == name);
        is_ours || PLAIN.contains(&name) || OF_SDK.contains(&name) || SECRET.contains(&name)
    };
    let details: Vec<String> = variables
        .iter()
        .filter(|(name, _)| known(name))
        .map(|(name, value)| format!("{name} = {}{}", shown(name, value), remark(variables, name, value)))
        .collect();
    let mut finding = Finding::ok(Check::Configuration, set(details.len())).details(details);
    if variables.get("PGPASSWORD").is_some_and(|value| !value.is_empty()) {
        finding = finding.detail("PGPASSWORD is set, and not used: a token takes its place");
    }
    finding
}

fn set(number: usize) -> String {
    match number {
        0 => "no variable that a service reads is set in the environment".to_owned(),
        1 => "1 variable is set in the environment".to_owned(),
        number => format!("{number} variables are set in the environment"),
    }
}

/// A value, unless it may have a password: in a URL with a user, or behind a host that was cut off from one.
fn shown(name: &str, value: &str) -> String {
    let is_host = |text: &str| {
        let (host, port) = text.split_once(':').unwrap_or((text, ""));
        let in_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        host.bytes().all(in_host) && port.bytes().all(|byte| byte.is_ascii_digit())
    };
    match value.trim() {
        "" => "(empty)".to_owned(),
        _ if SECRET.contains(&name) => "(not shown)".to_owned(),
        value if value.contains('@') || (name == "CLUSTER_ENDPOINT" && !is_host(value)) => {
            "(not shown: it may have a password)".to_owned()
        }
        value => value.chars().map(|one| if one.is_control() { '?' } else { one }).collect(),
    }
}

/// Why a variable is not used, if another one has priority.
fn remark(variables: &BTreeMap<String, String>, name: &str, value: &str) -> &'static str {
    let is_set = |name: &str| variables.get(name).is_some_and(|value| !value.trim().is_empty());
    match name {
        _ if value.trim().is_empty() => ", which is the same as not set",
        "PGUSER" if is_set("CLUSTER_USER") => ", not used: CLUSTER_USER has priority",
        "AWS_REGION" if is_set("REGION") => ", not used for the cluster: REGION has priority",
        _ => "",
    }
}

/// The cluster, and where each part of it comes from.
fn cluster(variables: &BTreeMap<String, String>, options: &Options) -> Finding {
    let from = |names: &[&'static str], default: &'static str| {
        let is_set = |name: &&&str| variables.get(**name).is_some_and(|value| !value.trim().is_empty());
        names.iter().find(is_set).copied().unwrap_or(default)
    };
    let config = options.config();
    let life = config.lifetime.map_or("no limit".to_owned(), |life| show(life.base));
    let mode = if options.reservoir_enabled() {
        format!("reservoir mode, at most {} connections, lifetime {life}", config.max_open)
    } else {
        format!("standard mode, at most {} connections", config.max_open)
    };
    Finding::ok(Check::Configuration, format!("{} as {}, {mode}", options.host(), options.user())).details([
        format!(
            "region {} (from {})",
            options.region(),
            from(&["REGION", "AWS_REGION"], "the name of the host")
        ),
        format!("role {} (from {})", options.user(), from(&["CLUSTER_USER", "PGUSER"], "the default")),
        format!(
            "address {}, port {} (from {}, {})",
            options.address(),
            options.port(),
            from(&["PGHOSTADDR"], "the host"),
            from(&["PGPORT"], "the host or the default")
        ),
        match options.roots() {
            forebay_dsql::RootCertificates::Public => "public certificate authorities".to_owned(),
            _ => "certificate authorities of PGSSLROOTCERT".to_owned(),
        },
        match &options.settings().status_page {
            Some(page) if page.token.is_some() => format!("status page on {}, with a token", page.listen),
            Some(page) => format!("status page on {}, for this machine only", page.listen),
            None => "no status page (DSQL_DESK_LISTEN is not set)".to_owned(),
        },
    ])
}

/// What is odd in valid options.
fn of_settings(variables: &BTreeMap<String, String>, options: &Options, request: &Request) -> Vec<Finding> {
    let settings = options.settings();
    let mut findings = limits(settings, request.quota);
    if let Some(named) = region_of(options.host()).filter(|named| named != options.region()) {
        let what = format!("the region is {}, and the host is in {named}", options.region());
        findings.push(Finding::warning(fault::REGION_MISMATCH, what));
    }
    // With --status, the token is for the page of another service.
    let is_of_other = |name: &str| name == "DSQL_DESK_TOKEN" && request.status.is_some();
    for note in settings.notes.iter().filter(|note| !is_of_other(&note.variable)) {
        // Of what was repaired, the value is known.
        let fault = if note.value.is_some() { fault::REPAIRED } else { fault::IGNORED };
        findings.push(Finding::warning(fault, note.to_string()));
    }
    let is_set = |name: &str| variables.get(name).is_some_and(|value| !value.trim().is_empty());
    // Settings do not tell whether a program uses a reservoir without this switch. A service with `forebay-dsql` does not.
    let [(prefix, switch), ..] = SWITCHED;
    // A problem of the settings has turned off what the operator has turned on: that is said once.
    if !is_on(variables, switch) {
        let idle: Vec<&str> = variables
            .keys()
            .map(String::as_str)
            .filter(|name| name.starts_with(prefix) && is_set(name))
            .filter(|name| *name != switch && !IN_BOTH_MODES.contains(name))
            .collect();
        if !idle.is_empty() {
            let verb = if idle.len() == 1 { "has" } else { "have" };
            let what = format!("{} {verb} no effect: {switch} is not true", idle.join(", "));
            findings.push(Finding::warning(fault::IGNORED, what));
        }
    }
    findings
}

fn limits(settings: &Settings, quota: u64) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut above = |fault, variable: &str, value: String, limit: String| {
        let what = format!("{variable} is {value}, above {limit}");
        findings.push(if fault == fault::LIMIT_ABOVE_QUOTA {
            Finding::failure(fault, what)
        } else {
            Finding::warning(fault, what)
        });
    };
    let most = settings.config.max_open as u64;
    let of_cluster = format!("the cluster's {quota} connections");
    if most > quota {
        above(fault::LIMIT_ABOVE_QUOTA, "DSQL_MAX_CONNS", most.to_string(), of_cluster.clone());
    }
    if let Some(leases) = &settings.leases {
        if leases.limit > quota {
            let limit = leases.limit.to_string();
            above(fault::LIMIT_ABOVE_QUOTA, "DSQL_DISTRIBUTED_CONN_LIMIT", limit, of_cluster);
        }
        if most > leases.limit {
            let limit = format!("DSQL_DISTRIBUTED_CONN_LIMIT, which is {}", leases.limit);
            above(fault::SHARE_ABOVE_LIMIT, "DSQL_MAX_CONNS", most.to_string(), limit);
        }
    }
    let a_second = || format!("the cluster's {CLUSTER_RATE} new connections a second");
    let at_once = || format!("the cluster's {CLUSTER_BURST} new connections at once");
    if settings.config.rate > CLUSTER_RATE as f64 {
        let rate = settings.config.rate.to_string();
        above(fault::RATE_ABOVE_LIMIT, "DSQL_CONNECTION_RATE_LIMIT", rate, a_second());
    }
    if u64::from(settings.config.burst) > CLUSTER_BURST {
        let burst = settings.config.burst.to_string();
        above(fault::RATE_ABOVE_LIMIT, "DSQL_CONNECTION_BURST_LIMIT", burst, at_once());
    }
    if let Some(rate) = &settings.rate {
        if rate.per_second > CLUSTER_RATE {
            let per_second = rate.per_second.to_string();
            above(fault::RATE_ABOVE_LIMIT, "DSQL_DISTRIBUTED_RATE_LIMITER_LIMIT", per_second, a_second());
        }
        if rate.burst > CLUSTER_BURST {
            let burst = rate.burst.to_string();
            above(fault::RATE_ABOVE_LIMIT, "DSQL_DISTRIBUTED_RATE_LIMITER_BURST", burst, at_once());
        }
    }
    findings
}

/// The region that the name of a host tells.
fn region_of(host: &str) -> Option<String> {
    Options::builder(host).build().ok().map(|options| options.region().to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::finding::Status;
    use super::*;

    const HOST: &str = "abc.dsql.us-east-1.on.aws";

    fn found(more: &[(&str, &str)]) -> Vec<Finding> {
        let variables = [("CLUSTER_ENDPOINT", HOST)].iter().chain(more);
        let variables = variables.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Configuration::read(&variables, &request(None)).findings
    }

    fn request(status: Option<&str>) -> Request {
        let status = status.map(str::to_owned);
        Request { quota: 10_000, dynamodb_endpoint: None, status, page_token: Ok(None) }
    }

    #[test]
    fn each_oddity_is_named() {
        for (name, value, known, words) in [
            ("DSQL_RESERVOIR_BASE_LIFETIME", "61m", fault::LIFETIME_ABOVE_LIMIT, "server's limit of 1h"),
            ("DSQL_MAX_CONNS", "many", fault::INVALID_SETTING, "DSQL_MAX_CONNS is \"many\""),
            ("DSQL_MAX_CONNS", "10001", fault::LIMIT_ABOVE_QUOTA, "10001, above the cluster's 10000"),
            ("DSQL_CONNECTION_RATE_LIMIT", "101", fault::RATE_ABOVE_LIMIT, "100 new connections a second"),
            ("DSQL_CONNECTION_BURST_LIMIT", "1001", fault::RATE_ABOVE_LIMIT, "1000 new connections at once"),
            ("DSQL_RESERVOIR_GUARD_WINDOW", "-1s", fault::REPAIRED, "0s is used instead"),
            ("DSQL_RESERVOIR_ENABLED", "yes", fault::REPAIRED, "not a boolean"),
            ("DSQL_RESERVIOR_ENABLED", "true", fault::IGNORED, "did you mean DSQL_RESERVOIR_ENABLED?"),
            ("DSQL_RESERVOIR_TARGET_READY", "5", fault::IGNORED, "DSQL_RESERVOIR_ENABLED is not true"),
            ("DSQL_DISTRIBUTED_CONN_LIMIT", "5", fault::IGNORED, "CONN_LEASE_ENABLED is not true"),
            ("DSQL_DESK_LISTEN", "0.0.0.0:9464", fault::INVALID_SETTING, "unless DSQL_DESK_TOKEN is set"),
            ("DSQL_DESK_LISTEN", "9464", fault::INVALID_SETTING, "such as 127.0.0.1:9464"),
            ("DSQL_DESK_TOKEN", "hunter2", fault::INVALID_SETTING, "at least 16 characters"),
            ("DSQL_DESK_TOKEN", "0123456789abcdef", fault::IGNORED, "DSQL_DESK_LISTEN is not set"),
            ("DSQL_DESK_LISTENN", "9464", fault::IGNORED, "did you mean DSQL_DESK_LISTEN?"),
            ("REGION", "eu-west-1", fault::REGION_MISMATCH, "the host is in us-east-1"),
            (
                "CLUSTER_ENDPOINT",
                "abc.dsql.us-east-1.on.aws:0",
                fault::INVALID_SETTING,
                "the port of CLUSTER_ENDPOINT is",
            ),
            ("PGPORT", "70000", fault::INVALID_SETTING, "PGPORT is \"70000\""),
            ("CLUSTER_ENDPOINT", "", fault::NO_ENDPOINT, "CLUSTER_ENDPOINT is not set"),
        ] {
            let findings = found(&[(name, value)]);
            let finding = findings.iter().find(|finding| finding.fault == Some(known));
            let finding = finding.unwrap_or_else(|| panic!("{name}: {findings:#?}"));
            assert!(finding.what.contains(words), "{}", finding.what);
        }
    }

    #[test]
    fn a_fleet_has_limits_of_its_own() {
        let leases = [
            ("DSQL_DISTRIBUTED_CONN_LEASE_ENABLED", "true"),
            ("DSQL_DISTRIBUTED_CONN_LEASE_TABLE", "t"),
            ("DSQL_DISTRIBUTED_CONN_LIMIT", "20"),
        ];
        let findings = found(&leases);
        assert!(findings.iter().any(|finding| finding.fault == Some(fault::SHARE_ABOVE_LIMIT)));
        let rate = [
            ("DSQL_DISTRIBUTED_RATE_LIMITER_ENABLED", "true"),
            ("DSQL_DISTRIBUTED_RATE_LIMITER_TABLE", "t"),
            ("DSQL_DISTRIBUTED_RATE_LIMITER_LIMIT", "200"),
            ("DSQL_DISTRIBUTED_RATE_LIMITER_BURST", "2000"),
        ];
        let count = found(&rate).iter().filter(|found| found.fault == Some(fault::RATE_ABOVE_LIMIT)).count();
        assert_eq!(count, 2);
    }

    #[test]
    fn a_healthy_configuration_has_no_warnings_and_lists_its_variables() {
        let findings = found(&[("DSQL_MAX_CONNS", "50"), ("PGUSER", "app"), ("CLUSTER_USER", "admin")]);
        assert!(findings.iter().all(|finding| finding.status == Status::Ok), "{findings:#?}");
        let details = findings[0].details.join("\n");
        assert!(details.contains("DSQL_MAX_CONNS = 50"), "{details}");
        assert!(details.contains("PGUSER = app, not used: CLUSTER_USER has priority"), "{details}");
    }

    #[test]
    fn secrets_are_not_shown() {
        let endpoint = "postgres://admin:hunter2@abc.dsql.us-east-1.on.aws/postgres";
        for more in [
            ("CLUSTER_ENDPOINT", endpoint),
            ("CLUSTER_ENDPOINT", "abc.dsql.us-east-1.on.aws:hunter2"),
            ("PGPASSWORD", "hunter2"),
            ("DSQL_PASSWORD", "hunter2"),
            ("DSQL_DESK_TOKEN", "hunter2"),
            ("DSQL_DESK_TOKEN", "hunter2hunter2hunter2"),
        ] {
            let findings = format!("{:?}", found(&[more]));
            assert!(!findings.contains("hunter2"), "{findings}");
        }
    }

    #[test]
    fn a_wrong_number_does_not_hide_the_rest() {
        let read = |more: [(&str, &str); 3]| {
            let variables = [("CLUSTER_ENDPOINT", HOST)].into_iter().chain(more);
            let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            Configuration::read(&variables, &request(None)).options
        };
        let leases = ("DSQL_DISTRIBUTED_CONN_LEASE_ENABLED", "true");
        let table = ("DSQL_DISTRIBUTED_CONN_LEASE_TABLE", "t");
        let options = read([leases, table, ("DSQL_MAX_CONNS", "many")]).unwrap();
        assert!(options.host() == HOST && options.settings().leases.is_some());
        // Leases without a table make no sense, whatever else is wrong.
        let options = read([leases, ("DSQL_MAX_CONNS", "many"), ("PGUSER", "app")]).unwrap();
        assert!(options.user() == "app" && options.settings().leases.is_none());
        assert!(read([leases, table, ("CLUSTER_ENDPOINT", "")]).is_none());
    }

    /// What a variable is for can be replaced by nothing true, so the checks that need it do not run. The others do.
    #[test]
    fn every_wrong_variable_but_the_endpoint_leaves_options() {
        for (name, value) in [
            ("PGPORT", "many"),
            ("CLUSTER_ENDPOINT", "abc.dsql.us-east-1.on.aws:0"),
            ("PGHOSTADDR", "10.0.0.1:5432"),
            ("PGSSLROOTCERT", "/nowhere/ca.pem"),
            ("PGSSLROOTCERT", "/dev/null"),
            ("PGSSLNEGOTIATION", "never"),
            ("REGION", "nowhere at all"),
            ("AWS_REGION", "nowhere at all"),
            ("CLUSTER_ENDPOINT", "db.example.com"),
            ("CLUSTER_USER", "\0"),
            ("PGDATABASE", "\0"),
        ] {
            let mut variables = BTreeMap::from([("CLUSTER_ENDPOINT".to_owned(), HOST.to_owned())]);
            variables.insert(name.to_owned(), value.to_owned());
            let read = Configuration::read(&variables, &request(None));
            assert!(read.options.is_some(), "{name} {value}");
            let named = match (name, value) {
                ("CLUSTER_ENDPOINT", "db.example.com") => "REGION",
                ("CLUSTER_ENDPOINT", _) => "PGPORT",
                (name, _) => name,
            };
            let is_needed = |name: &str| variable_of(name).contains(&named);
            let wrong = read.wrong(is_needed).unwrap_or_else(|| panic!("{name} {value}: {:?}", read.wrong));
            assert!(!wrong.what.starts_with("roots"), "{wrong:?}");
        }
    }
    #[test]
    fn the_status_page_is_listed_without_its_token() {
        let page = [("DSQL_DESK_LISTEN", "0.0.0.0:9464"), ("DSQL_DESK_TOKEN", "0123456789abcdef")];
        let findings = found(&page);
        assert!(findings.iter().all(|finding| finding.status == Status::Ok), "{findings:#?}");
        let details = findings[0].details.join("\n");
        assert!(details.contains("DSQL_DESK_LISTEN = 0.0.0.0:9464"), "{details}");
        assert!(details.contains("DSQL_DESK_TOKEN = (not shown)"), "{details}");
        assert!(findings[1].details.contains(&"status page on 0.0.0.0:9464, with a token".to_owned()));
        // The token of another service's page.
        let token = [("CLUSTER_ENDPOINT", HOST), ("DSQL_DESK_TOKEN", "0123456789abcdef")];
        let token = token.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let findings = Configuration::read(&token, &request(Some("http://localhost:9464"))).findings;
        assert!(findings.iter().all(|finding| finding.status == Status::Ok), "{findings:#?}");
    }

    /// What is on, and cannot be because of another problem, is not called off.
    #[test]
    fn a_missing_table_is_said_once() {
        let on = [
            ("DSQL_RESERVOIR_ENABLED", "true"),
            ("DSQL_RESERVOIR_TARGET_READY", "5"),
            ("DSQL_DISTRIBUTED_CONN_LEASE_ENABLED", "true"),
            ("DSQL_DISTRIBUTED_CONN_LIMIT", "9000"),
        ];
        let findings = found(&on);
        let bad: Vec<&Finding> = findings.iter().filter(|finding| finding.status != Status::Ok).collect();
        assert_eq!(bad.len(), 1, "{bad:#?}");
        assert!(bad[0].what.starts_with("DSQL_DISTRIBUTED_CONN_LEASE_TABLE is not set"), "{bad:#?}");
        // The limiter is off because of its limit, not because of its switch.
        let off = [
            ("DSQL_DISTRIBUTED_RATE_LIMITER_ENABLED", "true"),
            ("DSQL_DISTRIBUTED_RATE_LIMITER_LIMIT", "0"),
            ("DSQL_DISTRIBUTED_RATE_LIMITER_TABLE", "t"),
        ];
        let said: Vec<String> = found(&off).into_iter().map(|finding| finding.what).collect();
        assert!(said.iter().any(|what| what.contains("the fleet's limiter is off")), "{said:#?}");
        assert!(!said.iter().any(|what| what.contains("is not true")), "{said:#?}");
    }
}
