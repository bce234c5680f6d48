//! The connection to the cluster that the environment names.

use std::time::Duration;

use forebay::Config;
use forebay_dsql::{Dsql, Options, OptionsBuilder};

/// The work, its heartbeat, a wait for a job, and a look at it.
const CONNECTIONS: usize = 4;

/// The variables that say where the cluster is, and how to get there. Those about pools, fleets and status pages are for services.
const VARIABLES: [&str; 13] = [
    "CLUSTER_ENDPOINT",
    "CLUSTER_USER",
    "REGION",
    "AWS_REGION",
    "PGUSER",
    "PGPORT",
    "PGDATABASE",
    "PGHOSTADDR",
    "PGSSLROOTCERT",
    "PGSSLNEGOTIATION",
    "PGAPPNAME",
    "DSQL_TOKEN_DURATION",
    "DSQL_CONNECT_TIMEOUT",
];

/// Connects as the environment says.
pub(super) async fn connect() -> anyhow::Result<Dsql> {
    // Connections are opened when they are needed, and nobody else starts at the same time.
    let config = Config::default()
        .max_open(CONNECTIONS)
        .on_demand(1)
        .startup_jitter(Duration::ZERO)
        .fill_timeout(Duration::ZERO)
        .rate(10.0, 10)
        .server_limit(Duration::from_secs(3_600));
    let variables = VARIABLES
        .iter()
        .filter_map(|name| Some((*name, std::env::var(name).ok().filter(|value| !value.is_empty())?)));
    let options = OptionsBuilder::from_variables(variables).reservoir(true).config(config).build()?;
    let dsql = sign(options).await?;
    // Whether the cluster can be reached is known before anything begins.
    drop(dsql.acquire().await?);
    Ok(dsql)
}

#[cfg(feature = "aws")]
async fn sign(options: Options) -> anyhow::Result<Dsql> {
    Ok(Dsql::connect(options, forebay_aws::SdkSigner::from_env().await).await?)
}

/// Without AWS's SDK, there is only the key of the environment.
#[cfg(not(feature = "aws"))]
async fn sign(options: Options) -> anyhow::Result<Dsql> {
    Ok(Dsql::connect(options, crate::key_signer::KeySigner::from_env("aws,schema")?).await?)
}
