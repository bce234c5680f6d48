//! Settings from the environment: the documented values, the repairs, and every problem at once.

use std::time::Duration;

use forebay::memory::Memory;
use forebay::rt::VirtualTime;
use forebay::{Config, Fill, Lifetime};
use forebay_dsql::{Builder, EnvReader, Note, Options, OptionsBuilder, PoolMode, Settings, variables};
use forebay_fleet::{LeaseMode, RateMode, StoreOutagePolicy};

use crate::pools::logs::Lines;

fn reader() -> EnvReader {
    EnvReader::new("DSQL").server_limit(seconds(3600))
}

fn read(variables: &[(&str, &str)]) -> Settings {
    reader().read(variables.iter().copied()).unwrap()
}

fn problems(variables: &[(&str, &str)]) -> Vec<String> {
    let error = reader().read(variables.iter().copied()).unwrap_err();
    error.problems.iter().map(ToString::to_string).collect()
}

fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn minutes(n: u64) -> Duration {
    seconds(60 * n)
}

fn documented(target: usize, guard: u64) -> Config {
    let life = Lifetime::new(minutes(11)).jitter(minutes(2)).guard_window(seconds(guard));
    Config::default().lifetime(life).target_ready(target).low_watermark(target).server_limit(minutes(60))
}

const PRODUCTION: [(&str, &str); 6] = [
    ("DSQL_RESERVOIR_ENABLED", "true"),
    ("DSQL_RESERVOIR_TARGET_READY", "50"),
    ("DSQL_RESERVOIR_LOW_WATERMARK", "50"),
    ("DSQL_RESERVOIR_BASE_LIFETIME", "11m"),
    ("DSQL_RESERVOIR_LIFETIME_JITTER", "2m"),
    ("DSQL_RESERVOIR_GUARD_WINDOW", "45s"),
];

#[test]
fn an_empty_environment_gives_the_documented_numbers() {
    let settings = read(&[]);
    let config = &settings.config;
    assert_eq!((config.max_open, config.rate, config.burst, config.inflight_limit), (100, 10.0, 100, 64));
    let target_and_watermark = Fill::ToTarget { target_ready: None, low_watermark: None };
    assert_eq!(config.fill, target_and_watermark, "as many as max_open");
    let life = config.lifetime.unwrap();
    assert_eq!((life.base, life.jitter, life.guard), (minutes(11), minutes(2), seconds(45)));
    assert_eq!((config.open_timeout, config.acquire_timeout), (seconds(10), seconds(30)));
    assert_eq!((config.fill_timeout, config.startup_jitter), (seconds(30), seconds(5)));
    assert_eq!((config.empty_wait, config.server_limit), (None, Some(minutes(60))));
    assert!(!settings.reservoir_enabled && settings.notes.is_empty());
    assert_eq!((&settings.leases, &settings.rate), (&None, &None));
    assert_eq!((settings.outage_policy, settings.fleet()), (StoreOutagePolicy::Local, None));
    assert_eq!((settings.token_duration, settings.node_id), (minutes(15), None));
    let standard = settings.standard;
    assert_eq!(
        (standard.warmup_stagger, standard.keeper_tick, standard.keeper_max),
        (None, seconds(1), None)
    );
    assert!(!settings.service.is_empty(), "the program's name");
}

/// The numbers of leases and of a shared rate that are enabled, and nothing more is said.
#[test]
fn a_fleet_has_the_documented_numbers() {
    let settings = read(&[
        ("CLUSTER_ENDPOINT", "db.example:5432"),
        ("DSQL_SERVICE_NAME", "history"),
        ("DSQL_DISTRIBUTED_CONN_LEASE_ENABLED", "true"),
        ("DSQL_DISTRIBUTED_CONN_LEASE_TABLE", "leases"),
        ("DSQL_DISTRIBUTED_RATE_LIMITER_ENABLED", "true"),
        ("DSQL_DISTRIBUTED_RATE_LIMITER_TABLE", "rates"),
    ]);
    let fleet = settings.fleet().unwrap();
    assert_eq!((fleet.endpoint.as_str(), fleet.service.as_str()), ("db.example", "history"));
    let leases = fleet.leases.unwrap();
    assert_eq!((leases.table.as_str(), leases.limit, leases.mode), ("leases", 10_000, LeaseMode::Ledger));
    assert_eq!((leases.heartbeat, leases.length, leases.block), (seconds(30), seconds(120), 10));
    let rate = fleet.rate.unwrap();
    assert_eq!((rate.table.as_str(), rate.per_second, rate.burst), ("rates", 100, 1000));
    assert_eq!((rate.max_wait, rate.mode), (seconds(30), RateMode::Bucket));
}

#[test]
fn the_specifications_own_examples_give_the_documented_values() {
    let development = [
        ("DSQL_RESERVOIR_ENABLED", "true"),
        ("DSQL_RESERVOIR_TARGET_READY", "10"),
        ("DSQL_RESERVOIR_LOW_WATERMARK", "10"),
        ("DSQL_RESERVOIR_BASE_LIFETIME", "11m"),
        ("DSQL_RESERVOIR_LIFETIME_JITTER", "2m"),
        ("DSQL_RESERVOIR_GUARD_WINDOW", "45s"),
    ];
    let settings = read(&development);
    assert!(settings.reservoir_enabled);
    assert_eq!(settings.config, documented(10, 45));
    assert_eq!(read(&PRODUCTION).config, documented(50, 45));

    let mut shared = PRODUCTION.to_vec();
    shared.extend([
        ("DSQL_DISTRIBUTED_CONN_LEASE_ENABLED", "true"),
        ("DSQL_DISTRIBUTED_CONN_LEASE_TABLE", "temporal-dsql-conn-lease"),
        ("DSQL_DISTRIBUTED_CONN_LIMIT", "10000"),
    ]);
    let settings = read(&shared);
    assert_eq!(settings.config, documented(50, 45));
    let leases = settings.leases.unwrap();
    assert_eq!(
        (leases.table.as_str(), leases.limit, leases.mode),
        ("temporal-dsql-conn-lease", 10_000, LeaseMode::Ledger)
    );
    assert_eq!((leases.heartbeat, leases.length, leases.block), (seconds(30), seconds(120), 10));

    // The tuning guide's low-traffic example.
    let tuned = read(&[
        ("DSQL_RESERVOIR_TARGET_READY", "10"),
        ("DSQL_RESERVOIR_LOW_WATERMARK", "10"),
        ("DSQL_RESERVOIR_BASE_LIFETIME", "11m"),
        ("DSQL_RESERVOIR_GUARD_WINDOW", "30s"),
    ]);
    assert_eq!(tuned.config, documented(10, 30));
    assert!(!tuned.reservoir_enabled);
}

#[test]
fn every_variable_has_its_effect() {
    let settings = read(&[
        ("CLUSTER_ENDPOINT", "Abc.dsql.us-east-1.on.aws:5432"),
        ("AWS_REGION", "eu-west-1"),
        ("DSQL_MAX_CONNS", "80"),
        ("DSQL_SERVICE_NAME", "history"),
        ("DSQL_TOKEN_DURATION", "168h"),
        ("DSQL_CONNECT_TIMEOUT", "3s"),
        ("DSQL_CONNECTION_RATE_LIMIT", "2.5"),
        ("DSQL_CONNECTION_BURST_LIMIT", "7"),
        ("DSQL_STAGGERED_STARTUP_MAX_DELAY", "9s"),
        ("DSQL_RESERVOIR_TARGET_READY", "60"),
        ("DSQL_RESERVOIR_BASE_LIFETIME", "55m"),
        ("DSQL_RESERVOIR_LIFETIME_JITTER", "1m30s"),
        ("DSQL_RESERVOIR_GUARD_WINDOW", "1.5s"),
        ("DSQL_RESERVOIR_INITIAL_FILL_TIMEOUT", "1m"),
        ("DSQL_RESERVOIR_EMPTY_WAIT", "250ms"),
        ("DSQL_RESERVOIR_ACQUIRE_TIMEOUT", "10s"),
        ("DSQL_RESERVOIR_INFLIGHT_LIMIT", "16"),
        ("DSQL_DISTRIBUTED_CONN_LEASE_ENABLED", "T"),
        ("DSQL_DISTRIBUTED_CONN_LEASE_TABLE", "leases"),
        ("DSQL_DISTRIBUTED_CONN_LIMIT", "500"),
        ("DSQL_DISTRIBUTED_CONN_LEASE_MODE", "counter"),
        ("DSQL_DISTRIBUTED_CONN_LEASE_BEAT", "5s"),
        ("DSQL_DISTRIBUTED_CONN_LEASE_LENGTH", "20s"),
        ("DSQL_DISTRIBUTED_CONN_LEASE_BLOCK", "3"),
        ("DSQL_DISTRIBUTED_RATE_LIMITER_ENABLED", "1"),
        ("DSQL_DISTRIBUTED_RATE_LIMITER_TABLE", "rates"),
        ("DSQL_DISTRIBUTED_RATE_LIMITER_LIMIT", "90"),
        ("DSQL_DISTRIBUTED_RATE_LIMITER_MAX_WAIT", "4s"),
        ("DSQL_DISTRIBUTED_RATE_LIMITER_MODE", "window"),
        ("DSQL_DISTRIBUTED_RATE_LIMITER_BURST", "11"),
        ("DSQL_DISTRIBUTED_AWAY_POLICY", "strict"),
        ("DSQL_NODE_ID", "1023"),
        ("DSQL_POOL_WARMUP_STAGGER_DURATION", "2m"),
        ("DSQL_POOL_KEEPER_TICK_INTERVAL", "2s"),
        ("DSQL_POOL_KEEPER_MAX_CONNS_PER_TICK", "4"),
        ("PATH", "anything"),
    ]);
    let life = Lifetime::new(minutes(55)).jitter(seconds(90)).guard_window(millis(1500));
    let expected = Config::default()
        .max_open(80)
        .open_timeout(seconds(3))
        .rate(2.5, 7)
        .startup_jitter(seconds(9))
        .target_ready(60)
        .lifetime(life)
        .fill_timeout(minutes(1))
        .empty_wait(millis(250))
        .acquire_timeout(seconds(10))
        .inflight_limit(16)
        .server_limit(minutes(60));
    assert_eq!(settings.config, expected);
    assert_eq!(settings.endpoint.as_deref(), Some("abc.dsql.us-east-1.on.aws"));
    for (written, host) in
        [("[2001:DB8::1]:5432", "[2001:db8::1]"), ("::1", "::1"), ("https://A.b/", "a.b"), ("a.b.", "a.b")]
    {
        assert_eq!(read(&[("CLUSTER_ENDPOINT", written)]).endpoint.as_deref(), Some(host));
    }
    assert_eq!((settings.region.as_deref(), settings.service.as_str()), (Some("eu-west-1"), "history"));
    assert_eq!(settings.token_duration, seconds(604_800));
    let leases = settings.leases.unwrap();
    assert_eq!((leases.limit, leases.mode, leases.heartbeat), (500, LeaseMode::Counter, seconds(5)));
    assert_eq!((leases.length, leases.block), (seconds(20), 3));
    let rate = settings.rate.unwrap();
    assert_eq!((rate.table.as_str(), rate.per_second, rate.burst), ("rates", 90, 11));
    assert_eq!((rate.max_wait, rate.mode), (seconds(4), RateMode::Window));
    assert_eq!((settings.outage_policy, settings.node_id), (StoreOutagePolicy::Strict, Some(1023)));
    assert_eq!(settings.standard.warmup_stagger, Some(minutes(2)));
    assert_eq!((settings.standard.keeper_tick, settings.standard.keeper_max), (seconds(2), Some(4)));
    let noted: Vec<_> = settings.notes.iter().map(|note| note.variable.as_str()).collect();
    let without_effect = [
        "DSQL_DISTRIBUTED_CONN_LEASE_BLOCK",
        "DSQL_DISTRIBUTED_RATE_LIMITER_BURST",
        "DSQL_CONNECTION_RATE_LIMIT",
        "DSQL_CONNECTION_BURST_LIMIT",
    ];
    assert_eq!(noted, without_effect, "in modes counter and window");
    assert_eq!(
        read(&[("DSQL_STAGGERED_STARTUP", "0")]).config,
        read(&[]).config.startup_jitter(Duration::ZERO)
    );
    assert_eq!(read(&[("REGION", "a"), ("AWS_REGION", "b")]).region.as_deref(), Some("a"));
    assert_eq!(read(&[("DSQL_MAX_CONNS", "  ")]).config, read(&[]).config, "set to nothing is not set");
}

#[test]
fn repairs_are_made_and_told() {
    let repaired = read(&[
        ("DSQL_RESERVOIR_TARGET_READY", "20"),
        ("DSQL_RESERVOIR_LOW_WATERMARK", "30"),
        ("DSQL_RESERVOIR_BASE_LIFETIME", "-5m"),
        ("DSQL_RESERVOIR_LIFETIME_JITTER", "-1s"),
        ("DSQL_RESERVOIR_GUARD_WINDOW", "-1s"),
        ("DSQL_RESERVOIR_ENABLED", "yes"),
        ("DSQL_DISTRIBUTED_RATE_LIMITER_ENABLED", "true"),
        ("DSQL_DISTRIBUTED_RATE_LIMITER_LIMIT", "0"),
        ("DSQL_TOKEN_BUCKET_ENABLED", "true"),
        ("DSQL_RESERVOIR_TARGT_READY", "5"),
        ("DSQL_RESERVOIR_SOMETHING_ELSE", "5"),
        ("DSQL_DB_PASSWORD", "an application's own, and a secret"),
    ]);
    assert!(!repaired.reservoir_enabled);
    assert_eq!(repaired.rate, None);
    let life = Lifetime::new(minutes(11));
    let expected = read(&[("DSQL_RESERVOIR_TARGET_READY", "20"), ("DSQL_RESERVOIR_LOW_WATERMARK", "30")]);
    assert_eq!(repaired.config, expected.config.lifetime(life));
    let mut notes: Vec<String> = repaired.notes.iter().map(ToString::to_string).collect();
    notes.sort();
    assert_eq!(
        notes,
        [
            "DSQL_DISTRIBUTED_RATE_LIMITER_LIMIT is \"0\": the fleet's limiter is off",
            "DSQL_RESERVOIR_BASE_LIFETIME is \"-5m\": 11m0s is used instead",
            "DSQL_RESERVOIR_ENABLED is \"yes\": not a boolean, and so false; use true or false",
            "DSQL_RESERVOIR_GUARD_WINDOW is \"-1s\": 0s is used instead",
            "DSQL_RESERVOIR_LIFETIME_JITTER is \"-1s\": 0s is used instead",
            "DSQL_RESERVOIR_SOMETHING_ELSE: no such variable",
            "DSQL_RESERVOIR_TARGET_READY is \"20\": raised to 30, the low watermark",
            "DSQL_RESERVOIR_TARGT_READY: no such variable; did you mean DSQL_RESERVOIR_TARGET_READY?",
            "DSQL_TOKEN_BUCKET_ENABLED: not used here",
        ]
    );
    assert_eq!(read(&[("DSQL_RESERVOIR_BASE_LIFETIME", "0")]).config, read(&[]).config);
}

/// As the manual says: the reservoir keeps as many ready as there may be.
#[test]
fn a_target_above_what_may_be_open_is_lowered_with_a_note() {
    let settings = read(&[("DSQL_MAX_CONNS", "20"), ("DSQL_RESERVOIR_TARGET_READY", "50")]);
    let notes: Vec<String> = settings.notes.iter().map(ToString::to_string).collect();
    assert_eq!(notes, ["DSQL_RESERVOIR_TARGET_READY is \"50\": lowered to 20, which is DSQL_MAX_CONNS"]);
    assert!(read(&[("DSQL_MAX_CONNS", "20"), ("DSQL_RESERVOIR_TARGET_READY", "20")]).notes.is_empty());
}

/// Without a table, a token service and a server: what is not enabled needs none of them.
#[test]
fn reservoir_mode_is_switched_on_by_its_variable_alone() {
    for (variable, mode) in
        [(None, PoolMode::Standard), (Some("false"), PoolMode::Standard), (Some("true"), PoolMode::Reservoir)]
    {
        let variables = variable.map(|value| ("DSQL_RESERVOIR_ENABLED", value)).into_iter();
        let host = [("CLUSTER_ENDPOINT", "abc.dsql.us-east-1.on.aws"), ("DSQL_MAX_CONNS", "3")];
        let options = Options::from_variables(variables.chain(host)).unwrap();
        let time = VirtualTime::new();
        let builder = Builder::over(Memory::new(time.clone()), options).runtime(time.clone());
        let pool = time.run(builder.connect()).unwrap();
        assert_eq!((pool.status().mode, pool.status().open), (mode, 3), "{variable:?}");
    }
}

#[test]
fn eight_mistakes_are_one_error_that_names_all_eight() {
    let error = reader()
        .read([
            ("DSQL_MAX_CONNS", "many"),
            ("DSQL_RESERVOIR_LOW_WATERMARK", "101"),
            ("DSQL_RESERVOIR_BASE_LIFETIME", "11"),
            ("DSQL_RESERVOIR_GUARD_WINDOW", "20m"),
            ("DSQL_CONNECTION_RATE_LIMIT", "-1"),
            ("DSQL_TOKEN_DURATION", "169h"),
            ("DSQL_DISTRIBUTED_CONN_LEASE_ENABLED", "true"),
            ("DSQL_DISTRIBUTED_AWAY_POLICY", "whatever"),
        ])
        .unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("8 problems in the configuration:"), "{text}");
    for line in [
        "DSQL_MAX_CONNS is \"many\", but must be a whole number of at least 1 and at most 1000000",
        "DSQL_RESERVOIR_LOW_WATERMARK is 101, but must be at most max_open, which is 100",
        "DSQL_RESERVOIR_BASE_LIFETIME is \"11\", but must be a duration such as 45s, 11m or 1h30m",
        "DSQL_RESERVOIR_GUARD_WINDOW is 20m0s, but must be below the shortest life (base - jitter/2), which is 10m0s",
        "DSQL_CONNECTION_RATE_LIMIT is \"-1\", but must be a number above zero",
        "DSQL_TOKEN_DURATION is \"169h\", but must be at most 168h, which is a week",
        "DSQL_DISTRIBUTED_CONN_LEASE_TABLE is not set, but must be the name of a table, since \
         DSQL_DISTRIBUTED_CONN_LEASE_ENABLED is set",
        "DSQL_DISTRIBUTED_AWAY_POLICY is \"whatever\", but must be one of local, closed, strict",
    ] {
        assert!(text.contains(line), "{line}\nis not in\n{text}");
    }
}

#[test]
fn other_mistakes_are_told_as_clearly() {
    for (variables, expected) in [
        (
            &[("DSQL_RESERVOIR_BASE_LIFETIME", "60m")][..],
            "DSQL_RESERVOIR_BASE_LIFETIME is 1h0m0s, but must be so short that base + jitter/2, now 1h1m0s, is below the server's limit of 1h0m0s",
        ),
        (
            &[("DSQL_CONNECT_TIMEOUT", "0s")],
            "DSQL_CONNECT_TIMEOUT is \"0s\", but must be a duration above zero",
        ),
        (&[("DSQL_RESERVOIR_EMPTY_WAIT", "-1s")], "but must be a duration that is not negative"),
        (
            &[("DSQL_NODE_ID", "1024")],
            "DSQL_NODE_ID is \"1024\", but must be a whole number of at least 0 and at most 1023",
        ),
        (&[("DSQL_DISTRIBUTED_RATE_LIMITER_LIMIT", "x")], "but must be a whole number"),
        (
            &[("DSQL_DISTRIBUTED_RATE_LIMITER_ENABLED", "true")],
            "DSQL_DISTRIBUTED_RATE_LIMITER_TABLE is not set",
        ),
        (
            &[
                ("DSQL_DISTRIBUTED_CONN_LEASE_ENABLED", "1"),
                ("DSQL_DISTRIBUTED_CONN_LEASE_TABLE", "t"),
                ("DSQL_DISTRIBUTED_CONN_LEASE_LENGTH", "30s"),
            ],
            "DSQL_DISTRIBUTED_CONN_LEASE_LENGTH is 30s, but must be above the heartbeat, which is 30s",
        ),
        (
            &[
                ("DSQL_DISTRIBUTED_CONN_LEASE_ENABLED", "1"),
                ("DSQL_DISTRIBUTED_CONN_LEASE_TABLE", "t"),
                ("DSQL_DISTRIBUTED_CONN_LEASE_BEAT", "300s"),
            ],
            "DSQL_DISTRIBUTED_CONN_LEASE_BEAT is 5m0s, but must be below the length of a lease, which is 2m",
        ),
        (
            &[
                ("DSQL_DISTRIBUTED_CONN_LEASE_ENABLED", "1"),
                ("DSQL_DISTRIBUTED_CONN_LEASE_TABLE", "t"),
                ("DSQL_DISTRIBUTED_CONN_LEASE_BEAT", "1s"),
                ("DSQL_DISTRIBUTED_CONN_LEASE_LENGTH", "4s"),
            ],
            "DSQL_DISTRIBUTED_CONN_LEASE_LENGTH is 4s, but must be at least 5s",
        ),
        (
            &[
                ("DSQL_DISTRIBUTED_CONN_LEASE_ENABLED", "1"),
                ("DSQL_DISTRIBUTED_CONN_LEASE_TABLE", "t"),
                ("DSQL_DISTRIBUTED_CONN_LEASE_BEAT", "30ms"),
            ],
            "DSQL_DISTRIBUTED_CONN_LEASE_BEAT is 30ms, but must be at least 1s: each is a write",
        ),
        (
            &[("DSQL_DISTRIBUTED_CONN_LEASE_BLOCK", "18446744073709551615")],
            "but must be a whole number of at least 1 and at most 1000000",
        ),
        (
            &[
                ("DSQL_DISTRIBUTED_CONN_LEASE_ENABLED", "1"),
                ("DSQL_DISTRIBUTED_CONN_LEASE_TABLE", "t"),
                ("DSQL_DISTRIBUTED_CONN_LEASE_LENGTH", "119.5s"),
            ],
            "but must be whole seconds, at least 5s",
        ),
        (&[("DSQL_MAX_CONNS", "0")], "DSQL_MAX_CONNS is \"0\""),
    ] {
        let found = problems(variables);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(expected), "{} does not say {expected}", found[0]);
    }
}

#[test]
fn the_prefix_is_the_callers() {
    let settings =
        EnvReader::new("FLIGHT").read([("FLIGHT_MAX_CONNS", "3"), ("DSQL_MAX_CONNS", "x")]).unwrap();
    assert_eq!(settings.config, Config::default().max_open(3));
}

#[test]
fn the_manual_lists_what_the_code_reads() {
    let manual = include_str!("../../../../docs/configuration.md");
    assert!(
        manual.contains(&variables::manual("DSQL")),
        "docs/configuration.md is out of date; its table should be:\n{}",
        variables::manual("DSQL")
    );
    assert!(
        manual.contains(&variables::manual_needs("DSQL")),
        "docs/configuration.md is out of date; its table of needs should be:\n{}",
        variables::manual_needs("DSQL")
    );
    let names: std::collections::BTreeSet<_> =
        variables::all().map(|variable| variable.full_name("DSQL")).collect();
    assert_eq!(names.len(), variables::all().count(), "a name is listed twice");
}

#[test]
fn a_variable_without_effect_is_noted() {
    let shared = [
        ("DSQL_DISTRIBUTED_RATE_LIMITER_ENABLED", "true"),
        ("DSQL_DISTRIBUTED_RATE_LIMITER_TABLE", "t"),
        ("DSQL_DISTRIBUTED_CONN_LEASE_ENABLED", "true"),
        ("DSQL_DISTRIBUTED_CONN_LEASE_TABLE", "t"),
    ];
    let noted = |more: &[(&str, &str)]| {
        let notes = read(&[&shared, more].concat()).notes;
        notes.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let burst = ("DSQL_DISTRIBUTED_RATE_LIMITER_BURST", "100");
    let window = ("DSQL_DISTRIBUTED_RATE_LIMITER_MODE", "window");
    let block = ("DSQL_DISTRIBUTED_CONN_LEASE_BLOCK", "5");
    let counter = ("DSQL_DISTRIBUTED_CONN_LEASE_MODE", "counter");
    let (rate, closed) = (("DSQL_CONNECTION_RATE_LIMIT", "5"), ("DSQL_DISTRIBUTED_AWAY_POLICY", "closed"));
    let (tick, reservoir) = (("DSQL_POOL_KEEPER_TICK_INTERVAL", "2s"), ("DSQL_RESERVOIR_ENABLED", "true"));
    assert_eq!(noted(&[burst, block, rate, tick]), [""; 0]);
    for (alone, with, why) in [
        (burst, window, "DSQL_DISTRIBUTED_RATE_LIMITER_MODE is window"),
        (block, counter, "DSQL_DISTRIBUTED_CONN_LEASE_MODE is counter"),
        (
            rate,
            closed,
            "DSQL_DISTRIBUTED_RATE_LIMITER_ENABLED is true, and DSQL_DISTRIBUTED_AWAY_POLICY is not local",
        ),
        (tick, reservoir, "DSQL_RESERVOIR_ENABLED is true"),
    ] {
        assert_eq!(noted(&[alone, with]), [format!("{}: no effect: {why}", alone.0)]);
        assert_eq!(noted(&[with]), [""; 0], "nothing is set in vain");
    }
}

#[test]
fn what_belongs_to_something_that_is_off_is_noted_unless_it_was_turned_off() {
    for (variable, value, switch) in [
        ("DSQL_DISTRIBUTED_CONN_LIMIT", "5", "DSQL_DISTRIBUTED_CONN_LEASE_ENABLED"),
        ("DSQL_DISTRIBUTED_RATE_LIMITER_TABLE", "t", "DSQL_DISTRIBUTED_RATE_LIMITER_ENABLED"),
        ("DSQL_DISTRIBUTED_AWAY_POLICY", "closed", "DSQL_DISTRIBUTED_CONN_LEASE_ENABLED"),
        ("DSQL_DESK_TOKEN", "0123456789abcdef", "DSQL_DESK_LISTEN"),
    ] {
        let notes = read(&[(variable, value)]).notes;
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].variable == variable && notes[0].remark.contains(switch), "{notes:?}");
        assert_eq!(notes[0].value, None, "it may be a secret");
        let value_of_switch = if switch.ends_with("LISTEN") { "127.0.0.1:9464" } else { "false" };
        assert_eq!(read(&[(variable, value), (switch, value_of_switch)]).notes, []);
    }
    // A limit of zero turns the limiter off, which is said once.
    let off = read(&[
        ("DSQL_DISTRIBUTED_RATE_LIMITER_ENABLED", "true"),
        ("DSQL_DISTRIBUTED_RATE_LIMITER_TABLE", "t"),
        ("DSQL_DISTRIBUTED_RATE_LIMITER_LIMIT", "0"),
    ]);
    assert_eq!(off.notes.len(), 1, "{:?}", off.notes);
}

#[test]
fn notes_are_logged_as_warnings() {
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || {
        read(&[("DSQL_RESERVOIR_LIFETIME_JITTER", "-1s")]).notes.iter().for_each(Note::log);
    });
    assert_eq!(
        lines.all(),
        [
            "WARN Reservoir configuration variable=\"DSQL_RESERVOIR_LIFETIME_JITTER\" value=\"-1s\" remark=\"0s is used instead\""
        ]
    );
}

#[test]
fn the_status_page_is_on_loopback_or_has_a_token() {
    assert_eq!(read(&[]).status_page, None);
    let page = read(&[("DSQL_DESK_LISTEN", "127.0.0.1:9464")]).status_page.unwrap();
    assert_eq!((page.listen.to_string().as_str(), page.token), ("127.0.0.1:9464", None));
    let page = read(&[("DSQL_DESK_LISTEN", "[::]:9464"), ("DSQL_DESK_TOKEN", "0123456789abcdef")]);
    assert_eq!(page.status_page.unwrap().token.unwrap().expose_secret(), "0123456789abcdef");
    for (variables, expected) in [
        (
            &[("DSQL_DESK_LISTEN", "0.0.0.0:9464")][..],
            "DSQL_DESK_LISTEN is \"0.0.0.0:9464\", but must be a loopback address such as 127.0.0.1:9464, unless DSQL_DESK_TOKEN is set",
        ),
        (
            &[("DSQL_DESK_LISTEN", "9464")],
            "DSQL_DESK_LISTEN is \"9464\", but must be an IP address with a port, such as 127.0.0.1:9464",
        ),
        (
            &[("DSQL_DESK_LISTEN", "0.0.0.0:9464"), ("DSQL_DESK_TOKEN", "hunter2")],
            "DSQL_DESK_TOKEN is a token that cannot be used, but must be at least 16 characters, all of them visible ASCII",
        ),
    ] {
        assert_eq!(problems(variables), [expected]);
    }
}

#[test]
fn no_debug_output_shows_a_token_or_the_rest_of_the_environment() {
    let variables = [
        ("CLUSTER_ENDPOINT", "abc.dsql.us-east-1.on.aws"),
        ("DSQL_DESK_LISTEN", "0.0.0.0:9464"),
        ("DSQL_DESK_TOKEN", "a-secret-of-the-page"),
        ("AWS_SECRET_ACCESS_KEY", "a-secret-of-aws"),
    ];
    let builder = OptionsBuilder::from_variables(variables);
    let shown = format!("{builder:?} {:?}", builder.clone().build().unwrap());
    assert!(shown.contains("DSQL_DESK_TOKEN") && !shown.contains("a-secret"), "{shown}");
}
