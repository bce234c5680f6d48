//! What the processes share: a local Aurora DSQL that counts and refuses nothing, and a DynamoDB.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Context;
use aws_config::{Region, SdkConfig};
use aws_credential_types::Credentials as Keys;
use aws_credential_types::provider::SharedCredentialsProvider;
use dsql_local::{Cluster, Config, Counters, Credentials, Limits};
use dynoxide::Database;
use forebay::rt::{Runtime as _, TokioRuntime};
use forebay_aws::dynamo::DynamoTable;
use forebay_fleet::operator::{self, Survey};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

use super::{EACH, LIMIT, Plan};
use crate::dsql_local::{KEY, SECRET};

const TABLE: &str = "forebay";

/// Both servers, in this process. They end with it.
pub(super) struct Stage {
    cluster: Cluster,
    dynamo: SocketAddr,
    table: DynamoTable,
    plan: Plan,
    runtime: Runtime,
}

impl Stage {
    pub(super) fn start(plan: Plan) -> anyhow::Result<Self> {
        let limits =
            Limits { connections: u32::MAX, per_second: 1_000_000, burst: 1_000_000, ..Limits::default() };
        let credentials = vec![Credentials::new(KEY, SECRET)];
        let cluster = Cluster::start(Config { credentials, limits, ..Config::default() })?;
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        let dynamo = listener.local_addr()?;
        let database = Database::memory().context("no DynamoDB")?;
        runtime.spawn(dynoxide::server::serve_on(listener, database));
        let keys = Keys::new(KEY, SECRET, None, None, "bench");
        let sdk = SdkConfig::builder()
            .region(Region::new(cluster.region().to_owned()))
            .credentials_provider(SharedCredentialsProvider::new(keys))
            .endpoint_url(format!("http://{dynamo}"))
            .build();
        let table = DynamoTable::new(&sdk, TABLE)?;
        let stage = Self { cluster, dynamo, table, plan, runtime };
        stage.run(stage.table.setup(&stage.clock()))?;
        Ok(stage)
    }

    pub(super) fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    pub(super) fn entropy(&self) -> u64 {
        self.clock().entropy()
    }

    pub(super) fn counters(&self) -> Counters {
        self.cluster.counters()
    }

    /// What the table says.
    pub(super) async fn survey(&self) -> anyhow::Result<Survey> {
        Ok(operator::survey(&self.table, &self.clock(), self.cluster.endpoint()).await?)
    }

    /// The environment of a process, as an operator would write it.
    pub(super) fn variables(&self) -> Vec<(&'static str, String)> {
        let (cluster, show) = (&self.cluster, forebay::duration::show);
        vec![
            ("CLUSTER_ENDPOINT", cluster.endpoint().to_owned()),
            ("REGION", cluster.region().to_owned()),
            ("PGHOSTADDR", cluster.address().ip().to_string()),
            ("PGPORT", cluster.address().port().to_string()),
            ("PGSSLROOTCERT", cluster.ca_file().display().to_string()),
            ("AWS_ACCESS_KEY_ID", KEY.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
            ("AWS_ENDPOINT_URL_DYNAMODB", format!("http://{}", self.dynamo)),
            ("DSQL_SERVICE_NAME", "bench".to_owned()),
            ("DSQL_STAGGERED_STARTUP", "false".to_owned()),
            ("DSQL_MAX_CONNS", EACH.to_string()),
            ("DSQL_RESERVOIR_ENABLED", "true".to_owned()),
            ("DSQL_RESERVOIR_LOW_WATERMARK", "1".to_owned()),
            // Short lives, so that connections come and go also where nobody is killed.
            ("DSQL_RESERVOIR_BASE_LIFETIME", "20s".to_owned()),
            ("DSQL_RESERVOIR_LIFETIME_JITTER", "10s".to_owned()),
            ("DSQL_RESERVOIR_GUARD_WINDOW", "2s".to_owned()),
            ("DSQL_DISTRIBUTED_CONN_LEASE_ENABLED", "true".to_owned()),
            ("DSQL_DISTRIBUTED_CONN_LEASE_TABLE", TABLE.to_owned()),
            ("DSQL_DISTRIBUTED_CONN_LIMIT", LIMIT.to_string()),
            ("DSQL_DISTRIBUTED_CONN_LEASE_BEAT", show(self.plan.beat)),
            ("DSQL_DISTRIBUTED_CONN_LEASE_LENGTH", show(self.plan.lease)),
            ("DSQL_DISTRIBUTED_CONN_LEASE_BLOCK", "5".to_owned()),
            ("DSQL_DISTRIBUTED_RATE_LIMITER_ENABLED", "true".to_owned()),
            ("DSQL_DISTRIBUTED_RATE_LIMITER_TABLE", TABLE.to_owned()),
        ]
    }

    fn clock(&self) -> TokioRuntime {
        TokioRuntime::new(self.runtime.handle().clone())
    }
}
