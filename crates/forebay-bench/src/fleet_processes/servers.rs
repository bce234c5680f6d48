//! The servers that the processes share: a local Aurora DSQL that refuses no connection, and a DynamoDB.

use dsql_local::{Cluster, Config};
use forebay_aws::dynamo::DynamoTable;
use forebay_fleet::operator::{self, Survey};

use super::{EACH, LIMIT, Plan};
use crate::cluster::{KEY, SECRET, unlimited};
use crate::dynamo::DynamoDb;

/// Leases and rates each have a table.
const LEASES: &str = "leases";
const RATES: &str = "rates";

/// Both servers, in this process.
pub(super) struct Servers {
    pub(super) cluster: Cluster,
    pub(super) dynamo: DynamoDb,
    leases: DynamoTable,
    plan: Plan,
}

impl Servers {
    pub(super) fn start(plan: Plan) -> anyhow::Result<Self> {
        let cluster = Cluster::start(unlimited(Config::default()))?;
        let dynamo = DynamoDb::with_tables(&[LEASES, RATES])?;
        Ok(Self { cluster, leases: dynamo.table(LEASES)?, dynamo, plan })
    }

    /// What the table of leases holds.
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
            // Short lifetimes, so that connections open and close even where no process is killed.
            ("DSQL_RESERVOIR_BASE_LIFETIME", "20s".to_owned()),
            ("DSQL_RESERVOIR_LIFETIME_JITTER", "10s".to_owned()),
            ("DSQL_RESERVOIR_GUARD_WINDOW", "2s".to_owned()),
            ("DSQL_DISTRIBUTED_CONN_LEASE_ENABLED", "true".to_owned()),
            ("DSQL_DISTRIBUTED_CONN_LEASE_TABLE", LEASES.to_owned()),
            ("DSQL_DISTRIBUTED_CONN_LIMIT", LIMIT.to_string()),
            ("DSQL_DISTRIBUTED_CONN_LEASE_BEAT", show(self.plan.heartbeat)),
            ("DSQL_DISTRIBUTED_CONN_LEASE_LENGTH", show(self.plan.lease)),
            ("DSQL_DISTRIBUTED_CONN_LEASE_BLOCK", "5".to_owned()),
            ("DSQL_DISTRIBUTED_RATE_LIMITER_ENABLED", "true".to_owned()),
            ("DSQL_DISTRIBUTED_RATE_LIMITER_TABLE", RATES.to_owned()),
        ]
    }
}
