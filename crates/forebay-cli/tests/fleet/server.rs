//! A DynamoDB in this process, the command before it, and a fleet that has used it.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Output};
use std::time::Duration;

use dynoxide::Database;
use forebay::Seed;
use forebay::rt::{Runtime as _, TokioRuntime};
use forebay_fleet::{
    Fleet, FleetSettings, Item, LeaseMode, LeaseSettings, MemoryTable, RateSettings, Tables, Value as Stored,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

pub(crate) const ENDPOINT: &str = "abc.dsql.us-east-1.on.aws";

/// A DynamoDB. It ends with this.
pub(crate) struct DynamoDb {
    pub(crate) database: Database,
    address: SocketAddr,
    runtime: Runtime,
}

impl DynamoDb {
    /// One without tables.
    pub(crate) fn start() -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let database = Database::memory().unwrap();
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(dynoxide::server::serve_on(listener, database.clone()));
        Self { database, address, runtime }
    }

    /// One with the table `forebay`.
    pub(crate) fn with_table() -> Self {
        let server = Self::start();
        let made = server.forebay(&["lease", "setup", "--table", "forebay"]);
        assert!(made.status.success(), "{}", text(&made.stderr));
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The time of day.
    pub(crate) fn wall(&self) -> Duration {
        TokioRuntime::new(self.runtime.handle().clone()).wall()
    }

    /// The command, on its way to this.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command_at(&self.url(), arguments);
        command.env("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE").env("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI");
        command
    }

    pub(crate) fn forebay(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the command starts")
    }

    /// The command on the table `forebay` and the cluster.
    pub(crate) fn on_cluster(&self, arguments: &[&str]) -> Output {
        let place = ["--table", "forebay", "--endpoint", ENDPOINT];
        self.forebay(&[arguments, &place].concat())
    }

    /// The JSON of such a command, which must have ended with `status`.
    pub(crate) fn record(&self, arguments: &[&str], status: i32) -> Value {
        let output = self.on_cluster(&[arguments, &["--json"]].concat());
        assert_eq!(output.status.code(), Some(status), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("stdout is one JSON object")
    }

    pub(crate) fn put(&self, key: &str, item: &Item) {
        let mut stored = json!({ "pk": { "S": key } });
        for (name, value) in item.iter() {
            stored[name] = attribute(value);
        }
        let request = json!({ "TableName": "forebay", "Item": stored });
        self.database.put_item(serde_json::from_value(request).unwrap()).unwrap();
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        let request = serde_json::from_value(json!({ "TableName": "forebay" })).unwrap();
        let answer = serde_json::to_value(self.database.scan(request).unwrap()).unwrap();
        let items = answer["Items"].as_array().unwrap();
        let mut keys: Vec<String> =
            items.iter().map(|item| item["pk"]["S"].as_str().unwrap().to_owned()).collect();
        keys.sort();
        keys
    }

    /// Puts there what two instances leave that hold `each` connections and crash. Their names.
    pub(crate) fn crashed(&self, each: usize, mode: &str) -> Vec<String> {
        let mode = if mode == "counter" { LeaseMode::Counter } else { LeaseMode::Ledger };
        let mut settings = FleetSettings::new(ENDPOINT, "fleet")
            .leases(LeaseSettings::new("forebay").mode(mode).limit(400))
            .rate(RateSettings::new("forebay"));
        settings.max_open = 10;
        let (memory, clock) = (MemoryTable::new(), TokioRuntime::new(self.runtime.handle().clone()));
        self.runtime.block_on(async {
            let mut fleets = Vec::new();
            for number in 0..2 {
                let tables = Tables::one(memory.clone());
                let fleet = Fleet::start(settings.clone(), tables, clock.clone(), Seed::new(number));
                let fleet = fleet.await.unwrap();
                for _ in 0..each {
                    fleet.leases().unwrap().acquire().await.unwrap();
                }
                fleet.limit().unwrap().acquire().await.unwrap().spend();
                fleets.push(fleet);
            }
            for (key, item) in memory.items() {
                self.put(&key, &item);
            }
            fleets.iter().map(|fleet| fleet.status().instance).collect()
        })
    }
}

/// The command, on its way to a DynamoDB at `url`, with nothing in its environment.
pub(crate) fn command_at(url: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.env_clear().env("AWS_EC2_METADATA_DISABLED", "true").args(arguments);
    command.args(["--dynamodb-endpoint", url]);
    command
}

fn attribute(value: &Stored) -> Value {
    match value {
        Stored::Text(text) => json!({ "S": text }),
        Stored::Number(number) => json!({ "N": number.to_string() }),
        Stored::Map(map) => {
            let inner: serde_json::Map<_, _> =
                map.iter().map(|(name, value)| (name.clone(), attribute(value))).collect();
            json!({ "M": inner })
        }
    }
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the output is text")
}
