//! What the processes share: a local Aurora DSQL that counts and refuses nothing, and a DynamoDB.

use std::future::Future;

use dsql_local::{Cluster, Config, Counters, Credentials, Limits};
use forebay::rt::Runtime as _;
use forebay_aws::dynamo::DynamoTable;
use forebay_fleet::operator::{self, Survey};

use super::{EACH, LIMIT, Plan};
use crate::dsql_local::{KEY, SECRET};
use crate::dynamo::DynamoDb;

/// Each in a table of its own.
const LEASES: &str = "leases";
const RATES: &str = "rates";

/// Both servers, in this process. They end with it.
pub(super) struct Stage {
    cluster: Cluster,
    dynamo: DynamoDb,
    leases: DynamoTable,
    plan: Plan,
}

impl Stage {
    pub(super) fn start(plan: Plan) -> anyhow::Result<Self> {
        let limits =
            Limits { connections: u32::MAX, per_second: 1_000_000, burst: 1_000_000, ..Limits::default() };
        let credentials = vec![Credentials::new(KEY, SECRET)];
        let cluster = Cluster::start(Config { credentials, limits, ..Config::default() })?;
        let dynamo = DynamoDb::with_tables(&[LEASES, RATES])?;
        Ok(Self { cluster, leases: dynamo.table(LEASES)?, dynamo, plan })
    }

    pub(super) fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.dynamo.run(future)
    }

    pub(super) fn entropy(&self) -> u64 {
        self.dynamo.clock().entropy()
    }

    pub(super) fn counters(&self) -> Counters {
        self.cluster.counters()
    }

    /// What the table says.
    pub(super) async fn survey(&self) -> anyhow::Result<Survey> {
        Ok(operator::survey(&self.leases, &self.dynamo.clock(), self.cluster.endpoint()).await?)
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
            ("AWS_ENDPOINT_URL_DYNAMODB", format!("http://{}", self.dynamo.address)),
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
            ("DSQL_DISTRIBUTED_CONN_LEASE_TABLE", LEASES.to_owned()),
            ("DSQL_DISTRIBUTED_CONN_LIMIT", LIMIT.to_string()),
            ("DSQL_DISTRIBUTED_CONN_LEASE_BEAT", show(self.plan.beat)),
            ("DSQL_DISTRIBUTED_CONN_LEASE_LENGTH", show(self.plan.lease)),
            ("DSQL_DISTRIBUTED_CONN_LEASE_BLOCK", "5".to_owned()),
            ("DSQL_DISTRIBUTED_RATE_LIMITER_ENABLED", "true".to_owned()),
            ("DSQL_DISTRIBUTED_RATE_LIMITER_TABLE", RATES.to_owned()),
        ]
    }
}
