//! A setup to examine: a cluster, a DynamoDB and the environment of a service.

use std::collections::BTreeMap;
use std::process::{Command, Output};

use dsql_local::{Cluster, Config, Credentials};
use serde_json::Value;

use crate::server::{DynamoDb, ENDPOINT, text};

const KEY: &str = "AKIDEXAMPLE";
/// None of these may ever be printed.
const SECRET: &str = "wJalrXUtnFEMI-hunter2";
const SESSION: &str = "FwoGZXIvYXdzEHIa-hunter3";
const SECRETS: [&str; 5] = [SECRET, SESSION, "hunter", "X-Amz-Signature", "X-Amz-Security-Token"];

pub(crate) struct Place {
    pub(crate) cluster: Cluster,
    pub(crate) dynamo: DynamoDb,
    variables: BTreeMap<String, String>,
}

/// What the doctor says.
pub(crate) struct Diagnosis {
    pub(crate) status: i32,
    pub(crate) text: String,
    pub(crate) record: Value,
}

impl Place {
    /// A healthy service with a fleet.
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    /// The same with another cluster.
    pub(crate) fn with(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config {
            endpoint: ENDPOINT.to_owned(),
            credentials: vec![Credentials::new(KEY, SECRET).with_session_token(SESSION)],
            ..Config::default()
        };
        change(&mut config);
        let cluster = Cluster::start(config).expect("a cluster starts");
        let dynamo = DynamoDb::with_table();
        let variables = [
            ("CLUSTER_ENDPOINT", ENDPOINT.to_owned()),
            ("PGHOSTADDR", cluster.address().ip().to_string()),
            ("PGPORT", cluster.address().port().to_string()),
            ("PGSSLROOTCERT", cluster.ca_file().display().to_string()),
            ("AWS_ACCESS_KEY_ID", KEY.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
            ("AWS_SESSION_TOKEN", SESSION.to_owned()),
            ("AWS_EC2_METADATA_DISABLED", "true".to_owned()),
            ("AWS_ENDPOINT_URL_DYNAMODB", dynamo.url()),
            ("DSQL_RESERVOIR_ENABLED", "true".to_owned()),
            ("DSQL_MAX_CONNS", "10".to_owned()),
            ("DSQL_DISTRIBUTED_CONN_LEASE_ENABLED", "true".to_owned()),
            ("DSQL_DISTRIBUTED_CONN_LEASE_TABLE", "forebay".to_owned()),
            // That of the instances in the table.
            ("DSQL_DISTRIBUTED_CONN_LIMIT", "400".to_owned()),
            ("DSQL_DISTRIBUTED_RATE_LIMITER_ENABLED", "true".to_owned()),
            ("DSQL_DISTRIBUTED_RATE_LIMITER_TABLE", "forebay".to_owned()),
        ];
        let variables = variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Self { cluster, dynamo, variables }
    }

    pub(crate) fn set(&mut self, name: &str, value: impl Into<String>) -> &mut Self {
        self.variables.insert(name.to_owned(), value.into());
        self
    }

    pub(crate) fn unset(&mut self, name: &str) -> &mut Self {
        self.variables.remove(name);
        self
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.env_clear().envs(&self.variables).arg("doctor").args(arguments);
        command
    }

    /// Runs the command. No secret may be in what it prints.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        let output = self.command(arguments).output().expect("the command starts");
        for said in [&output.stdout, &output.stderr] {
            for secret in SECRETS {
                assert!(!text(said).contains(secret), "{secret} is shown:\n{}", text(said));
            }
        }
        output
    }

    /// Runs the command twice: for people, and for programs.
    pub(crate) fn examine(&self, arguments: &[&str]) -> Diagnosis {
        let shown = self.run(arguments);
        let seen = text(&shown.stdout).to_owned();
        assert!(!seen.contains('\u{1b}'), "no escape codes in a pipe:\n{seen}");
        let recorded = self.run(&[arguments, &["--json"]].concat());
        let record: Value = serde_json::from_slice(&recorded.stdout).expect("stdout is one JSON object");
        assert_eq!(recorded.status.code(), shown.status.code(), "{seen}");
        assert_eq!(record["exit_status"], shown.status.code().expect("it ended by itself"), "{record:#}");
        Diagnosis { status: shown.status.code().expect("it ended by itself"), text: seen, record }
    }
}

impl Diagnosis {
    /// The findings of a fault.
    pub(crate) fn of(&self, fault: &str) -> Vec<&Value> {
        self.findings().filter(|finding| finding["fault"] == fault).collect()
    }

    pub(crate) fn findings(&self) -> impl Iterator<Item = &Value> {
        self.record["findings"].as_array().into_iter().flatten()
    }

    /// Checks that a fault is named in both forms, with its cause and its remedy, and sets the exit status.
    #[track_caller]
    pub(crate) fn names(&self, check: &str, fault: &str, words: &str) {
        let found = self.of(fault);
        let finding = found.iter().find(|finding| finding["check"] == check);
        let finding = finding.unwrap_or_else(|| panic!("{fault} is not found:\n{}", self.text));
        let what = finding["what"].as_str().expect("a text");
        assert!(what.contains(words), "{what}");
        let status = if finding["status"] == "failure" { 2 } else { 1 };
        assert!(self.status >= status, "{}", self.text);
        // The text is wrapped.
        let seen = self.text.split_whitespace().collect::<Vec<_>>().join(" ");
        // What differs from run to run, such as a time, is not in the words.
        for part in
            [words, finding["cause"].as_str().expect("a text"), finding["remedy"].as_str().expect("a text")]
        {
            assert!(seen.contains(part), "{part} is missing:\n{}", self.text);
        }
    }

    /// The statuses of a check.
    pub(crate) fn statuses(&self, check: &str) -> Vec<&str> {
        self.findings()
            .filter(|finding| finding["check"] == check)
            .filter_map(|finding| finding["status"].as_str())
            .collect()
    }
}
