//! A DynamoDB in this process, over loopback HTTP.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};

use aws_config::{Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use dynoxide::Database;
use forebay::rt::TokioRuntime;
use forebay_aws::dynamo::DynamoTable;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

pub(crate) const TABLE: &str = "fleet";

/// A DynamoDB with its threads. It ends when this is dropped.
pub(crate) struct DynamoDb {
    pub(crate) database: Database,
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    runtime: Runtime,
}

impl DynamoDb {
    /// A DynamoDB without tables.
    pub(crate) fn start() -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let database = Database::memory().unwrap();
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async { drop(stopped.await) };
        runtime.spawn(dynoxide::server::serve_with_shutdown(listener, database.clone(), shutdown));
        Self { database, address, stop: Some(stop), runtime }
    }

    /// A DynamoDB with the table that setup creates.
    pub(crate) fn with_table() -> Self {
        let server = Self::start();
        let table = server.table();
        server.run(table.setup(&server.clock())).unwrap();
        server
    }

    pub(crate) fn table(&self) -> DynamoTable {
        DynamoTable::new(&sdk(self.address), TABLE).unwrap()
    }

    pub(crate) fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    pub(crate) fn clock(&self) -> TokioRuntime {
        TokioRuntime::new(self.runtime.handle().clone())
    }
}

impl Drop for DynamoDb {
    fn drop(&mut self) {
        drop(self.stop.take());
    }
}

/// The SDK, set up for a DynamoDB at `address`.
pub(crate) fn sdk(address: SocketAddr) -> SdkConfig {
    let credentials = Credentials::new("AKIDEXAMPLE", "secret", None, None, "test");
    SdkConfig::builder()
        .region(Region::new("us-east-1"))
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .endpoint_url(format!("http://{address}"))
        .build()
}
