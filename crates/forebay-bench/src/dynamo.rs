//! A DynamoDB in this process, over loopback HTTP.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Context;
use aws_config::{Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use dynoxide::Database;
use forebay::rt::TokioRuntime;
use forebay_aws::dynamo::DynamoTable;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle, Runtime};

use crate::cluster::{KEY, SECRET};

/// The server and the runtime of its clients. Dropping it stops the server.
pub(crate) struct DynamoDb {
    database: Database,
    pub(crate) address: SocketAddr,
    sdk: SdkConfig,
    runtime: Runtime,
}

impl DynamoDb {
    /// Starts a server with these tables, as `setup` makes them.
    pub(crate) fn with_tables(names: &[&str]) -> anyhow::Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        let address = listener.local_addr()?;
        let database = Database::memory().context("starting DynamoDB")?;
        runtime.spawn(dynoxide::server::serve_on(listener, database.clone()));
        let keys = Credentials::new(KEY, SECRET, None, None, "bench");
        let sdk = SdkConfig::builder()
            .region(Region::from_static("us-east-1"))
            .credentials_provider(SharedCredentialsProvider::new(keys))
            .endpoint_url(format!("http://{address}"))
            .build();
        let server = Self { database, address, sdk, runtime };
        for name in names {
            server.run(server.table(name)?.setup(&server.clock()))?;
        }
        Ok(server)
    }

    pub(crate) fn table(&self, name: &str) -> anyhow::Result<DynamoTable> {
        Ok(DynamoTable::new(&self.sdk, name)?)
    }

    pub(crate) fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    pub(crate) fn clock(&self) -> TokioRuntime {
        TokioRuntime::new(self.handle())
    }

    pub(crate) fn handle(&self) -> Handle {
        self.runtime.handle().clone()
    }

    /// All items of a table as they are stored, sorted by key.
    pub(crate) fn items(&self, table: &str) -> anyhow::Result<Vec<Value>> {
        let request = serde_json::from_value(json!({ "TableName": table }))?;
        let answer = serde_json::to_value(self.database.scan(request).context("scanning")?)?;
        let mut items = answer["Items"].as_array().context("no items")?.clone();
        items.sort_by_key(|item| item["pk"]["S"].as_str().unwrap_or_default().to_owned());
        Ok(items)
    }
}
