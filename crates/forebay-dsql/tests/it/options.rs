//! Options from code, a URL and an environment: the same, and all problems at once.

use std::time::Duration;

use forebay_dsql::{
    Action, Config, ConfigError, Error, ErrorKind, JoinError, Lifetime, Node, Options, OptionsBuilder,
    RootCertificates, StartError, variables,
};
use proptest::prelude::*;

const HOST: &str = "abc.dsql.us-east-1.on.aws";

fn settings(error: &ConfigError) -> Vec<&str> {
    error.problems.iter().map(|problem| &*problem.setting).collect()
}

#[test]
fn the_defaults_are_those_of_the_manual() {
    let options = Options::builder(HOST).service("orders").build().unwrap();
    assert_eq!((options.host(), options.address(), options.port()), (HOST, HOST, 5432));
    assert_eq!((options.region(), options.user(), options.database()), ("us-east-1", "admin", "postgres"));
    assert_eq!((options.application_name(), options.pool()), ("orders", "default"));
    assert_eq!(options.token_life(), Duration::from_secs(900));
    assert_eq!(options.roots(), &RootCertificates::Public);
    assert!(!options.direct_tls());
    let request = options.token_request();
    assert_eq!(request.identity.action, Action::DbConnectAdmin);
    let app = Options::builder(HOST).user("app").build().unwrap();
    assert_eq!(app.token_request().identity.action, Action::DbConnect);
}

/// A service that is told nothing gets the specification's defaults; a script must not open 100 connections.
#[test]
fn what_is_built_in_code_has_few_connections_and_a_reservoir() {
    let url = format!("dsql://{HOST}");
    for options in [Options::builder(HOST).build().unwrap(), Options::from_url(&url).unwrap()] {
        assert!(options.reservoir_enabled());
        let life = Lifetime::new(Duration::from_secs(55 * 60)).jitter(Duration::from_secs(120));
        let expected = Config::default().max_open(10).lifetime(life.guard_window(Duration::from_secs(45)));
        assert_eq!(options.config(), &expected.server_limit(Duration::from_secs(3600)));
    }
    let read = OptionsBuilder::from_variables([("CLUSTER_ENDPOINT", HOST)]);
    let expected = Config::default().server_limit(Duration::from_secs(3600));
    let specified = read.clone().build().unwrap();
    assert_eq!((specified.reservoir_enabled(), specified.config()), (false, &expected));
    let both = read.reservoir(true).max_connections(7).build().unwrap();
    assert_eq!((both.reservoir_enabled(), both.config()), (true, &expected.max_open(7)));
}

#[test]
fn code_url_and_environment_say_the_same() {
    let pem = std::fs::canonicalize("tests/it/root.pem").unwrap().display().to_string();
    let built = Options::builder(HOST)
        .port(5433)
        .address("127.0.0.1")
        .user("app")
        .database("postgres")
        .region("eu-west-1")
        .service("orders")
        .application_name("orders-7")
        .root_file(&pem)
        .direct_tls(true)
        .token_life(Duration::from_secs(7 * 24 * 3600))
        .reservoir(true)
        .variable("DSQL_MAX_CONNS", "50")
        .build()
        .unwrap();
    let url = format!(
        "dsql://app@{HOST}:5433/postgres?region=eu-west-1&address=127.0.0.1&service_name=orders&root_file={}\
         &application_name=orders%2D7&direct_tls=true&token_duration=168h&reservoir_enabled=true&max_conns=50",
        pem.replace('/', "%2F")
    );
    assert_eq!(Options::from_url(&url).unwrap(), built);
    let environment = [
        ("CLUSTER_ENDPOINT", HOST),
        ("CLUSTER_USER", "app"),
        ("PGUSER", "not this one"),
        ("PGPORT", "5433"),
        ("PGHOSTADDR", "127.0.0.1"),
        ("PGSSLROOTCERT", &pem),
        ("PGSSLNEGOTIATION", "direct"),
        ("PGAPPNAME", "orders-7"),
        ("PGDATABASE", ""),
        ("REGION", "eu-west-1"),
        ("AWS_REGION", "us-west-2"),
        ("DSQL_SERVICE_NAME", "orders"),
        ("DSQL_TOKEN_DURATION", "168h"),
        ("DSQL_RESERVOIR_ENABLED", "true"),
        ("DSQL_RESERVOIR_BASE_LIFETIME", "55m"),
        ("DSQL_MAX_CONNS", "50"),
    ];
    assert_eq!(Options::from_variables(environment).unwrap(), built);
    assert_eq!(built.address(), "127.0.0.1");
    assert_eq!(built.node(), None);
    let node = Options::from_url(&format!("dsql://{HOST}?node_id=1023")).unwrap().node();
    assert_eq!(node.map(Node::number), Some(1023));
    assert!(!format!("{built:?}").contains("BEGIN CERTIFICATE"));
}

#[test]
fn urls_of_postgresql_mean_the_same() {
    let ours = format!("dsql://app@{HOST}:5433/postgres?direct_tls=true&address=127.0.0.1&max_conns=5");
    let ours = Options::from_url(&ours).unwrap();
    for scheme in ["postgres", "postgresql"] {
        let theirs = format!(
            "{scheme}://app@{HOST}:5433/postgres?sslmode=require&sslrootcert=system&sslnegotiation=direct\
             &hostaddr=127.0.0.1&max_conns=5"
        );
        assert_eq!(Options::from_url(&theirs).unwrap(), ours);
    }
    let pem = Options::from_url(&format!("postgres://{HOST}?sslrootcert=tests%2Fit%2Froot.pem")).unwrap();
    assert!(matches!(pem.roots(), RootCertificates::Pem(_)));
    let error = Options::from_url(&format!("postgres://{HOST}?sslmode=disable")).unwrap_err();
    assert_eq!(settings(&error), ["sslmode"]);
    assert!(error.to_string().contains("TLS is always used"), "{error}");
}

#[test]
fn what_is_set_often_has_a_typed_method() {
    let options = Options::builder(HOST)
        .max_connections(5)
        .acquire_timeout(Duration::from_millis(1500))
        .connect_rate(2.5, 7)
        .startup_jitter(Duration::ZERO)
        .build()
        .unwrap();
    let expected = Config::default()
        .startup_jitter(Duration::ZERO)
        .max_open(5)
        .lifetime(Lifetime { base: Duration::from_secs(55 * 60), ..Lifetime::default() })
        .acquire_timeout(Duration::from_millis(1500))
        .rate(2.5, 7)
        .server_limit(Duration::from_secs(3600));
    assert_eq!(options.config(), &expected);
}

#[test]
fn values_in_code_do_not_become_text() {
    let options = Options::builder(HOST)
        .acquire_timeout(Duration::MAX)
        .startup_jitter(Duration::from_nanos(1))
        .connect_rate(1.0 / 3.0, u32::MAX)
        .build()
        .unwrap();
    let config = options.config();
    assert_eq!((config.acquire_timeout, config.startup_jitter), (Duration::MAX, Duration::from_nanos(1)));
    assert_eq!((config.rate, config.burst), (1.0 / 3.0, u32::MAX));
}

#[test]
fn a_problem_is_named_as_the_caller_has_written_it() {
    let build = |builder: OptionsBuilder| builder.build().unwrap_err().to_string();
    let week = Duration::from_secs(7 * 24 * 3600);
    for (told, expected) in [
        (build(Options::builder(HOST).max_connections(0)), "max_connections is 0, but must be at least 1"),
        (
            build(Options::builder(HOST).connect_rate(f64::NAN, 1)),
            "connect_rate is NaN, but must be a number",
        ),
        (build(Options::builder(HOST).connect_rate(1.0, 0)), "connect_rate is 0, but must be at least 1"),
        (build(Options::builder(HOST).token_life(Duration::MAX)), "token_life is "),
        (
            build(Options::builder(HOST).token_life(2 * week)),
            "token_life is 336h0m0s, but must be at most 168h",
        ),
        (build(Options::builder(HOST).port(0)), "port is \"0\", but must be a number from 1 to 65535"),
        (build(Options::builder(HOST).region("us east")), "region is \"us east\", but must be a name"),
        (
            build(Options::builder(HOST).variable("DSQL_MAX_CONNS", "0")),
            "DSQL_MAX_CONNS is \"0\", but must be",
        ),
        (
            build(Options::builder(HOST).variable("AWS_REGION", "us east")),
            "AWS_REGION is \"us east\", but must",
        ),
        (
            build(Options::builder(HOST).status_page("0.0.0.0:9464".parse().unwrap())),
            "status_page is \"0.0.0.0:9464\", but must be a loopback address",
        ),
        (
            build(Options::builder(HOST).config(Config::default()).max_connections(5)),
            "max_connections is 5, but must be not set: `config`",
        ),
        (
            build(OptionsBuilder::from_url(&format!("dsql://{HOST}?reservoir_base_lifetime=2h"))),
            "reservoir_base_lifetime is 2h0m0s, but must be so short",
        ),
        (
            build(OptionsBuilder::from_url(&format!("dsql://{HOST}?sslnegotiation=maybe"))),
            "sslnegotiation is \"maybe\", but must be direct or postgres",
        ),
        (
            build(OptionsBuilder::from_url(&format!("dsql://{HOST}?distributed_conn_lease_enabled=true"))),
            "distributed_conn_lease_table is not set, but must be the name of a table, since distributed_conn_lease_enabled",
        ),
        (
            build(OptionsBuilder::from_variables([("CLUSTER_ENDPOINT", format!("{HOST}:70000"))])),
            "the port of CLUSTER_ENDPOINT is \"70000\"",
        ),
        (
            build(OptionsBuilder::from_variables([("CLUSTER_ENDPOINT", HOST)]).max_connections(0)),
            "max_connections is 0, but must be at least 1",
        ),
        (
            build(OptionsBuilder::from_variables([("CLUSTER_ENDPOINT", HOST)]).user("")),
            "user is \"\", but must be a name",
        ),
    ] {
        assert!(told.starts_with("1 problem in") && told.contains(expected), "{told}\nis not: {expected}");
    }
    let both = Options::builder(HOST).connect_rate(f64::NAN, 0).build().unwrap_err();
    assert_eq!(settings(&both), ["connect_rate"; 2]);
}

/// Whichever comes first. What the variable says is not even read.
#[test]
fn a_method_takes_the_place_of_the_variable_of_the_same_setting() {
    let wrong = [
        ("CLUSTER_ENDPOINT", HOST),
        ("REGION", "us east"),
        ("PGPORT", "none"),
        ("PGSSLNEGOTIATION", "maybe"),
        ("PGSSLROOTCERT", "no/such/file.pem"),
        ("DSQL_MAX_CONNS", "many"),
        ("DSQL_RESERVOIR_ACQUIRE_TIMEOUT", "long"),
        ("DSQL_CONNECTION_RATE_LIMIT", "fast"),
        ("DSQL_CONNECTION_BURST_LIMIT", "-1"),
        ("DSQL_STAGGERED_STARTUP_MAX_DELAY", "short"),
        ("DSQL_TOKEN_DURATION", "for ever"),
        ("DSQL_DESK_LISTEN", "here"),
    ];
    assert_eq!(OptionsBuilder::from_variables(wrong).build().unwrap_err().problems.len(), wrong.len() - 1);
    let options = OptionsBuilder::from_variables(wrong)
        .region("us-east-1")
        .port(5433)
        .direct_tls(true)
        .roots(RootCertificates::Public)
        .max_connections(5)
        .acquire_timeout(Duration::from_secs(1))
        .connect_rate(1.0, 1)
        .startup_jitter(Duration::ZERO)
        .token_life(Duration::from_secs(60))
        .status_page("127.0.0.1:9464".parse().unwrap())
        .build()
        .unwrap();
    assert_eq!((options.region(), options.port(), options.config().max_open), ("us-east-1", 5433, 5));
    let late = Options::builder(HOST).max_connections(5).variable("DSQL_MAX_CONNS", "7").build().unwrap();
    assert_eq!(late.config().max_open, 5);
}

#[test]
fn variables_that_settings_in_code_would_drop_are_a_problem() {
    let default = Options::builder(HOST).build().unwrap();
    for variable in variables::all() {
        let name = variable.full_name("DSQL");
        let value = match variable.kind {
            "boolean" => "false",
            "duration" => "9m",
            _ => "9",
        };
        let alone = Options::builder(HOST).variable(&name, value).build();
        let has_effect = alone.is_ok_and(|options| options.config() != default.config());
        let built = Options::builder(HOST).config(Config::default()).variable(&name, value).build();
        let told = built.err().map(|error| error.to_string()).unwrap_or_default();
        let dropped = told.contains(&format!("{name} is \"{value}\", but must be not set: `config`"));
        assert_eq!(dropped, has_effect, "{name}: {told}");
    }
    let options =
        Options::builder(HOST).config(Config::default()).reservoir(true).variable("DSQL_MAX_CONNS", " ");
    assert!(
        options.build().unwrap().reservoir_enabled(),
        "the mode is not one of them, and nothing is nothing"
    );
    let error = OptionsBuilder::from_variables([("CLUSTER_ENDPOINT", HOST), ("DSQL_MAX_CONNS", "5")]);
    assert_eq!(settings(&error.config(Config::default()).build().unwrap_err()), ["DSQL_MAX_CONNS"]);
}

#[test]
fn errors_of_options_and_of_starting_become_ours() {
    fn options() -> Result<Options, Error> {
        Ok(Options::builder("not a host").region("r").build()?)
    }
    let error = options().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Permanent);
    assert!(error.to_string().contains("must be the name of a cluster"), "{error}");
    let error = Error::from(StartError::Config(options_error()));
    assert_eq!(error.kind(), ErrorKind::Permanent);
    assert_eq!(Error::from(JoinError::Config(options_error())).kind(), ErrorKind::Permanent);
}

fn options_error() -> ConfigError {
    Options::builder("").build().unwrap_err()
}

#[test]
fn all_problems_come_at_once_each_with_its_remedy() {
    let error = Options::from_variables([
        ("CLUSTER_ENDPOINT", "not a host"),
        ("PGPORT", "70000"),
        ("PGHOSTADDR", "somewhere else"),
        ("PGSSLROOTCERT", "no/such/file.pem"),
        ("PGSSLNEGOTIATION", "maybe"),
        ("DSQL_TOKEN_DURATION", "169h"),
        ("DSQL_MAX_CONNS", "many"),
        ("DSQL_RESERVOIR_BASE_LIFETIME", "60m"),
    ])
    .unwrap_err();
    assert_eq!(
        settings(&error),
        [
            "CLUSTER_ENDPOINT",
            "PGPORT",
            "PGHOSTADDR",
            "PGSSLNEGOTIATION",
            "PGSSLROOTCERT",
            "REGION",
            "DSQL_MAX_CONNS",
            "DSQL_TOKEN_DURATION",
            "DSQL_RESERVOIR_BASE_LIFETIME"
        ]
    );
    let text = error.to_string();
    assert!(text.contains("CLUSTER_ENDPOINT is \"not a host\", but must be the name of a cluster"), "{text}");
    assert!(text.contains("DSQL_TOKEN_DURATION is \"169h\", but must be at most 168h"), "{text}");
}

#[test]
fn a_region_is_missing_only_if_the_endpoint_does_not_tell_it() {
    for variables in [&[("DSQL_MAX_CONNS", "5")][..], &[("CLUSTER_ENDPOINT", " ")]] {
        let error = Options::from_variables(variables.iter().copied()).unwrap_err();
        assert_eq!(settings(&error), ["CLUSTER_ENDPOINT"]);
        assert!(!error.to_string().contains("REGION"), "{error}");
        assert!(error.to_string().contains("CLUSTER_ENDPOINT is not set, but must be the name"), "{error}");
    }
    let error = Options::from_variables([("CLUSTER_ENDPOINT", "localhost")]).unwrap_err();
    assert_eq!(settings(&error), ["REGION"]);
    assert!(error.to_string().contains("REGION is not set, but must be given"), "{error}");
    let error = Options::from_variables([("CLUSTER_ENDPOINT", "http://foo")]).unwrap_err();
    assert_eq!(settings(&error), ["CLUSTER_ENDPOINT"]);
    assert!(
        error.to_string().contains("CLUSTER_ENDPOINT is a URL, but must be the name of a cluster alone"),
        "{error}"
    );
    let error = Options::builder("localhost").build().unwrap_err();
    assert_eq!(settings(&error), ["region"]);
    assert!(error.to_string().contains("{id}.dsql.{region}.on.aws"), "{error}");
    assert_eq!(Options::builder("localhost").region("us-east-1").build().unwrap().region(), "us-east-1");
}

#[test]
fn a_wrong_url_is_explained_and_its_password_not_repeated() {
    let error = Options::from_url("mysql://admin:hunter2@h.example/").unwrap_err();
    assert_eq!(settings(&error), ["the scheme of the URL"], "what it lacks is not known");
    assert!(!error.to_string().contains("hunter2"), "{error}");
    assert!(error.to_string().contains("is \"mysql\", but must be dsql:// or postgres://"), "{error}");
    let error = Options::from_url("admin:hunter2@h.example://").unwrap_err();
    assert!(error.to_string().contains("the scheme of the URL is missing, but must be"), "{error}");
    assert!(!error.to_string().contains("hunter2"), "{error}");
    let error = Options::from_url(&format!("postgres://admin:hunter2@{HOST}/postgres")).unwrap_err();
    assert_eq!(settings(&error), ["the password of the URL"]);
    assert!(error.to_string().contains("a token takes its place"), "{error}");
    assert!(!error.to_string().contains("hunter2"), "{error}");
    let error = Options::from_url(&format!("dsql://admin:hunter2@{HOST}?max_cons=5&region=")).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("a token takes its place") && !text.contains("hunter2"), "{text}");
    assert!(
        text.contains("a key of the URL is \"max_cons\"") && text.contains("did you mean max_conns?"),
        "{text}"
    );
    let error = Options::from_url(&format!("dsql://{HOST}?colour=blue")).unwrap_err();
    assert!(error.to_string().contains("must be region, address, "), "{error}");
}

#[test]
fn what_may_be_a_password_is_not_repeated() {
    for url in [
        "dsql://u:pa/ss@abc.dsql.us-east-1.on.aws",
        "dsql://u:pa?ss@abc.dsql.us-east-1.on.aws",
        "dsql://u:p@ss@abc.dsql.us-east-1.on.aws",
        "dsql://u:12?ss@abc.dsql.us-east-1.on.aws",
        "dsql://u:12?ss@abc.dsql.us-east-1.on.aws?region=us-east-1",
    ] {
        let error = Options::from_url(url).unwrap_err();
        assert_eq!(settings(&error)[0], "the password of the URL");
        assert!(!error.to_string().contains("ss@") && !error.to_string().contains("pa\""), "{error}");
    }
    for host in
        ["postgres://admin:SECRET@abc.dsql.us-east-1.on.aws/db", "admin:SECRET@abc.dsql.us-east-1.on.aws"]
    {
        let error = Options::builder(host).region("r").build().unwrap_err();
        assert_eq!(settings(&error), ["host"]);
        assert!(!error.to_string().contains("SECRET"), "{error}");
    }
    for cut_off in [Options::from_url("dsql://admin:hunter2"), Options::builder("admin:hunter2").build()] {
        let error = cut_off.unwrap_err();
        assert!(settings(&error).contains(&"port") && !error.to_string().contains("hunter2"), "{error}");
    }
    let fine = Options::from_url(&format!("dsql://{HOST}:5432?application_name=a@b")).unwrap();
    assert_eq!(fine.application_name(), "a@b");
}

#[test]
fn what_would_be_passed_on_wrong_or_not_at_all_is_a_problem() {
    for (url, told) in [
        (format!("dsql://u%ff@{HOST}"), "text in UTF-8"),
        (format!("dsql://{HOST}?application_name=%ff"), "text in UTF-8"),
        (format!("dsql://{HOST}?max_conns"), "followed by = and a value"),
        (format!("dsql://{HOST}?application_name=a%00options"), "without a zero byte"),
        (format!("dsql://{HOST}?region=%00"), "a name such as us-east-1"),
        (format!("dsql://{HOST}?region=us%0d%0aX"), "a name such as us-east-1"),
    ] {
        let error = Options::from_url(&url).unwrap_err();
        assert_eq!(error.problems.len(), 1, "{url}: {error}");
        assert!(error.to_string().contains(told), "{url}: {error}");
    }
    let error = Options::builder(HOST).service("a\0b").build().unwrap_err();
    assert_eq!(settings(&error), ["service"]);
    let error = Options::builder(HOST).variable("DSQL_POOL_KEEPER_TICK_INTERVAL", "1ns").build().unwrap_err();
    assert_eq!(settings(&error), ["DSQL_POOL_KEEPER_TICK_INTERVAL"]);
    let error = Options::builder(HOST).variable("DSQL_MAXCONNS", "5").build().unwrap_err();
    assert!(error.to_string().contains("did you mean DSQL_MAX_CONNS?"), "{error}");
    Options::builder(HOST).variable("DSQL_TOKEN_BUCKET_RATE", "5").build().unwrap();
}

#[test]
fn problems_are_named_as_they_are_where_they_come_from() {
    let error =
        Options::from_url("dsql://not%20a%20host/a/b?max_conns=5&max_conns=6&token_duration=x").unwrap_err();
    assert_eq!(
        settings(&error),
        ["the path of the URL", "a key of the URL", "host", "region", "token_duration"],
        "{error}"
    );
    assert!(
        error.to_string().contains("a key of the URL is \"max_conns\", but must be given once"),
        "{error}"
    );
    for (variables, named) in [
        (&[("AWS_REGION", "us east")][..], "AWS_REGION"),
        (&[("REGION", "us east")], "REGION"),
        (&[("REGION", "us east"), ("AWS_REGION", "us-east-1")], "REGION"),
    ] {
        let all = variables.iter().copied().chain([("CLUSTER_ENDPOINT", HOST)]);
        assert_eq!(settings(&Options::from_variables(all).unwrap_err()), [named]);
    }
    let error =
        Options::from_variables([("CLUSTER_ENDPOINT", HOST), ("PGSSLNEGOTIATION", "foo")]).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("PGSSLNEGOTIATION is \"foo\", but must be direct or postgres"), "{text}");
}

/// An environment is read with more patience: what is no boolean there is false, and a warning.
#[test]
fn what_is_no_boolean_is_a_problem_in_a_url_and_in_code() {
    let error = Options::from_url(&format!("dsql://{HOST}?reservoir_enabled=yes")).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("reservoir_enabled is \"yes\", but must be true or false"), "{text}");
    let error = Options::builder(HOST).variable("DSQL_STAGGERED_STARTUP", "off").build().unwrap_err();
    assert_eq!(settings(&error), ["DSQL_STAGGERED_STARTUP"]);
    let read =
        Options::from_variables([("CLUSTER_ENDPOINT", HOST), ("DSQL_RESERVOIR_ENABLED", "yes")]).unwrap();
    assert!(!read.reservoir_enabled());
    assert_eq!(read.settings().notes.len(), 1);
}

#[test]
fn settings_in_code_are_judged_against_the_hour_of_a_session() {
    let hour = Lifetime::new(Duration::from_secs(3600));
    let error = Options::builder(HOST).config(Config::default().lifetime(hour)).build().unwrap_err();
    assert_eq!(settings(&error), ["base_lifetime"]);
    let error = Options::builder(HOST).token_life(Duration::from_millis(10)).build().unwrap_err();
    assert_eq!(settings(&error), ["token_life"]);
    let error =
        Options::builder(HOST).roots(RootCertificates::Pem((*b"nothing").into())).build().unwrap_err();
    assert_eq!(settings(&error), ["roots"]);
    let broken = b"-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n";
    let error = Options::builder(HOST).roots(RootCertificates::Pem((*broken).into())).build().unwrap_err();
    assert_eq!(settings(&error), ["roots"]);
}

proptest! {
    #[test]
    fn nothing_makes_a_url_or_a_variable_panic(text in "\\PC{0,60}", tail in "[a-z_=&%@:/?0-9.]{0,40}") {
        drop(Options::from_url(&text));
        drop(Options::from_url(&format!("dsql://{text}?{tail}")));
        drop(Options::from_url(&format!("dsql://{tail}")));
        drop(Options::from_variables([("CLUSTER_ENDPOINT", &text), ("PGPORT", &tail), ("PGHOSTADDR", &tail)]));
    }
}
