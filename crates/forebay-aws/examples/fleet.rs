//! Two members of a fleet share one budget of ten connections.
//!
//! `cargo run -p forebay-aws --features dynamodb --example fleet`
//!
//! It starts a local Aurora DSQL and a local DynamoDB. In production, each member is a process that calls
//! `forebay_aws::join(&options)`; the rest comes from its environment.

use std::net::Ipv4Addr;
use std::time::Duration;

use aws_config::{Region, SdkConfig};
use aws_credential_types::Credentials as Keys;
use aws_credential_types::provider::SharedCredentialsProvider;
use dsql_local::{Cluster, Config, Credentials};
use forebay::rt::{Runtime, TokioRuntime};
use forebay_aws::SdkSigner;
use forebay_aws::dynamo::DynamoTable;
use forebay_dsql::{DsqlPool, Member, Options, Postgres, RootCertificates};
use forebay_fleet::{Tables, operator};

type Dsql = DsqlPool<Postgres>;
type Failure = Box<dyn std::error::Error>;

const PATIENCE: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let runtime = TokioRuntime::current()?;
    let cluster = Cluster::start(Config {
        credentials: vec![Credentials::new("AKIDEXAMPLE", "not-a-secret")],
        ..Config::default()
    })?;
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let keys = Keys::new("AKIDEXAMPLE", "not-a-secret", None, None, "example");
    let sdk = SdkConfig::builder()
        .region(Region::new(cluster.region().to_owned()))
        .credentials_provider(SharedCredentialsProvider::new(keys))
        .endpoint_url(format!("http://{}", listener.local_addr()?))
        .build();
    let database = dynoxide::Database::memory()?;
    runtime.spawn(Box::pin(dynoxide::server::serve_on(listener, database)));
    let table = DynamoTable::new(&sdk, "forebay")?;
    table.setup(&runtime).await?; // `forebay lease setup --table forebay`

    let options = Options::builder(cluster.endpoint())
        .port(cluster.address().port())
        .region(cluster.region())
        .roots(RootCertificates::Pem(cluster.ca_pem().as_bytes().into()))
        .reservoir(true)
        .variable("DSQL_MAX_CONNS", "7")
        .variable("DSQL_RESERVOIR_LOW_WATERMARK", "1")
        .variable("DSQL_STAGGERED_STARTUP", "false")
        .variable("DSQL_DISTRIBUTED_CONN_LEASE_ENABLED", "true")
        .variable("DSQL_DISTRIBUTED_CONN_LEASE_TABLE", "forebay")
        .variable("DSQL_DISTRIBUTED_CONN_LIMIT", "10")
        .variable("DSQL_DISTRIBUTED_CONN_LEASE_BLOCK", "1")
        // A process sees the changes of another within a heartbeat: 30 s by default.
        .variable("DSQL_DISTRIBUTED_CONN_LEASE_BEAT", "2s")
        .variable("DSQL_DISTRIBUTED_CONN_LEASE_LENGTH", "20s")
        .build()?;
    let join = || {
        let member = Member::builder(&options, SdkSigner::new(sdk.clone()));
        member.tables(Tables::one(table.clone())).join()
    };
    let (one, other) = (join().await?, join().await?);
    let dsql: Dsql = one.pool(options.clone()).connect().await?;
    until(&runtime, || dsql.status().open == 7).await?;
    println!("the first wants 7 connections, and has {}", dsql.status().open);
    let late: Dsql = other.pool(options.clone()).connect().await?;
    until(&runtime, || late.status().open == 3).await?;
    println!("the second wants 7, and has {}: the fleet may hold 10", late.status().open);
    println!(
        "their numbers: {} and {}",
        one.node(PATIENCE).await.number(),
        other.node(PATIENCE).await.number()
    );

    late.acquire().await?.simple_query("SELECT 1").await?;
    let survey = operator::survey(&table, &runtime, cluster.endpoint()).await?;
    println!("the table says: {} of {} slots held", survey.totals().0, survey.totals().1);

    assert!(dsql.drain(PATIENCE).await.is_complete() && one.leave(PATIENCE).await);
    until(&runtime, || late.status().open == 7).await?;
    println!("the first has left, and the second has {}", late.status().open);
    assert!(late.drain(PATIENCE).await.is_complete() && other.leave(PATIENCE).await);
    assert!(cluster.counters().live_high_water <= 10);
    println!("the cluster never saw more than {}", cluster.counters().live_high_water);
    Ok(())
}

async fn until(runtime: &TokioRuntime, holds: impl Fn() -> bool) -> Result<(), Failure> {
    for _ in 0..1200 {
        if holds() {
            return Ok(());
        }
        runtime.sleep_until(runtime.now() + Duration::from_millis(50)).await;
    }
    Err("it has taken a minute".into())
}
