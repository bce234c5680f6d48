//! Where an incident happens: a cluster, a DynamoDB, a service with its environment, and Prometheus.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::{Command, Output};

use dsql_local::{Cluster, Config, Credentials};

use crate::process::{Process, free_address, until};
use crate::prometheus::{Prometheus, programs};
use crate::server::{DynamoDb, ENDPOINT};
use crate::service;

const KEY: &str = "AKIDEXAMPLE";
const SECRET: &str = "wJalrXUtnFEMI";

pub(crate) struct Scene {
    pub(crate) cluster: Cluster,
    pub(crate) dynamo: DynamoDb,
    pub(crate) prometheus: Option<Prometheus>,
    pub(crate) page: SocketAddr,
    service: Option<Process>,
    variables: BTreeMap<String, String>,
}

impl Scene {
    /// A healthy service of a fleet. It is not started yet.
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    /// The same with another cluster.
    pub(crate) fn with(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config {
            endpoint: ENDPOINT.to_owned(),
            credentials: vec![Credentials::new(KEY, SECRET)],
            ..Config::default()
        };
        change(&mut config);
        let cluster = Cluster::start(config).expect("a cluster starts");
        let (dynamo, page) = (DynamoDb::with_table(), free_address());
        let variables = [
            ("CLUSTER_ENDPOINT", ENDPOINT.to_owned()),
            ("PGHOSTADDR", cluster.address().ip().to_string()),
            ("PGPORT", cluster.address().port().to_string()),
            ("PGSSLROOTCERT", cluster.ca_file().display().to_string()),
            ("AWS_ACCESS_KEY_ID", KEY.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
            ("AWS_EC2_METADATA_DISABLED", "true".to_owned()),
            ("AWS_ENDPOINT_URL_DYNAMODB", dynamo.url()),
            ("DSQL_SERVICE_NAME", "history".to_owned()),
            ("DSQL_MAX_CONNS", "10".to_owned()),
            ("DSQL_RESERVOIR_ENABLED", "true".to_owned()),
            ("DSQL_STAGGERED_STARTUP", "false".to_owned()),
            // A service that cannot fill goes on soon.
            ("DSQL_RESERVOIR_INITIAL_FILL_TIMEOUT", "1s".to_owned()),
            ("DSQL_RESERVOIR_ACQUIRE_TIMEOUT", "1s".to_owned()),
            ("DSQL_DISTRIBUTED_CONN_LEASE_ENABLED", "true".to_owned()),
            ("DSQL_DISTRIBUTED_CONN_LEASE_TABLE", "forebay".to_owned()),
            ("DSQL_DISTRIBUTED_CONN_LIMIT", "400".to_owned()),
            // Changes show within seconds.
            ("DSQL_DISTRIBUTED_CONN_LEASE_BEAT", "1s".to_owned()),
            ("DSQL_DISTRIBUTED_CONN_LEASE_LENGTH", "10s".to_owned()),
            ("DSQL_DISTRIBUTED_RATE_LIMITER_ENABLED", "true".to_owned()),
            ("DSQL_DISTRIBUTED_RATE_LIMITER_TABLE", "forebay".to_owned()),
            ("DSQL_DESK_LISTEN", page.to_string()),
        ];
        let variables = variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Self { cluster, dynamo, prometheus: None, page, service: None, variables }
    }

    pub(crate) fn set(&mut self, name: &str, value: impl Into<String>) -> &mut Self {
        self.variables.insert(name.to_owned(), value.into());
        self
    }

    pub(crate) fn unset(&mut self, name: &str) -> &mut Self {
        self.variables.remove(name);
        self
    }

    pub(crate) fn give_keys(&mut self) -> &mut Self {
        self.set("AWS_ACCESS_KEY_ID", KEY).set("AWS_SECRET_ACCESS_KEY", SECRET)
    }

    /// Starts the service and Prometheus. If Prometheus runs already, only the service is started again.
    pub(crate) fn start(&mut self) -> &mut Self {
        self.service = None;
        self.service = Some(service::start(&self.variables));
        let page = self.page;
        self.prometheus.get_or_insert_with(|| Prometheus::start(&[page]));
        self
    }

    /// Ends the service in good order.
    pub(crate) fn stop(&mut self) {
        self.service.take().expect("the service runs").end();
    }

    pub(crate) fn prometheus(&self) -> &Prometheus {
        self.prometheus.as_ref().expect("Prometheus runs")
    }

    /// Waits until an expression has data.
    pub(crate) fn wait_for(&self, expression: &str) {
        until(|| match self.prometheus().series(expression) {
            0 => Err(format!("there is no {expression}")),
            _ => Ok(()),
        });
    }

    /// `text` of a page, with what it stands for here.
    pub(crate) fn translate(&self, text: &str) -> String {
        // A minute has four scrapes of `ops/prometheus/prometheus.yml`, and ten seconds have 25 of the Prometheus here.
        let mut text = text.replace("127.0.0.1:9464", &self.page.to_string()).replace("[1m]", "[10s]");
        if let Some(prometheus) = &self.prometheus {
            text = text.replace("127.0.0.1:9090", &prometheus.address.to_string());
        }
        text
    }

    /// Runs a command of a page where the service runs.
    pub(crate) fn shell(&self, command: &str) -> Output {
        let program = std::path::Path::new(env!("CARGO_BIN_EXE_forebay")).parent().unwrap();
        let path = format!("{}:{}:/usr/bin:/bin", program.display(), programs().display());
        let mut shell = Command::new("bash");
        shell.args(["-c", &self.translate(command)]).env_clear().envs(&self.variables).env("PATH", path);
        shell.output().expect("a shell starts")
    }
}
