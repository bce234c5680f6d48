//! A cluster to test against, and whoever signs tokens for it.

use std::sync::Arc;
use std::time::Duration;

use dsql_local::{Cluster, Config, Credentials, EngineKind, Fault, Rules};
use forebay_dsql::{
    Dsql, Options, RootCertificates, SignFuture, Signed, Signer, Token, TokenError, TokenRequest,
};
use forebay_schema::{Error, Migrations, Migrator, Summary};

/// An empty cluster, whose jobs begin at once.
pub(crate) fn start(rules: Rules) -> Arc<Cluster> {
    let cluster = Cluster::start(Config {
        engine: EngineKind::Postgres,
        rules,
        credentials: vec![Credentials::new("AKIDEXAMPLE", "not-a-secret")],
        ..Config::default()
    });
    Arc::new(cluster.unwrap())
}

struct Keys(Arc<Cluster>);

impl Signer for Keys {
    fn sign<'a>(&'a self, request: &'a TokenRequest) -> SignFuture<'a> {
        Box::pin(async {
            let token = self.0.token(&request.identity.user);
            let token = token.ok_or_else(|| TokenError::credentials("the cluster has no key"))?;
            Ok(Signed { token: Token::new(token), credentials_expire: None })
        })
    }
}

/// A pool of its own, as another process has.
pub(crate) async fn connect(cluster: &Arc<Cluster>) -> Dsql {
    connect_with(cluster, Duration::from_secs(60)).await
}

async fn connect_with(cluster: &Arc<Cluster>, deadline: Duration) -> Dsql {
    let options = Options::builder(cluster.endpoint())
        .port(cluster.address().port())
        .region(cluster.region())
        .roots(RootCertificates::Pem(cluster.ca_pem().as_bytes().into()))
        .max_connections(4)
        .deadline(deadline)
        .variable("DSQL_STAGGERED_STARTUP", "false")
        .variable("DSQL_CONNECTION_RATE_LIMIT", "1000")
        .build()
        .unwrap();
    Dsql::connect(options, Keys(Arc::clone(cluster))).await.unwrap()
}

pub(crate) fn fault(text: &str) -> Fault {
    text.parse().unwrap()
}

pub(crate) fn files(files: &[(&str, &str)]) -> Migrations {
    Migrations::embedded(files).unwrap()
}

/// Runs `setup` as a process of its own does.
pub(crate) async fn setup(cluster: &Arc<Cluster>, migrations: &Migrations) -> Result<Summary, Error> {
    // The deadline of a service does not cut migrations short.
    let dsql = connect_with(cluster, Duration::from_nanos(1)).await;
    Migrator::new(dsql, migrations.clone()).setup().await
}

/// The first column of a query.
pub(crate) async fn rows(dsql: &Dsql, sql: &str) -> Vec<String> {
    let sql = format!("SELECT x::text FROM ({sql}) AS q (x)");
    dsql.run("rows", async |tx| {
        let rows = tx.query(&sql, &[]).await?;
        Ok::<_, forebay_dsql::Error>(rows.iter().map(|row| row.get::<_, String>(0)).collect())
    })
    .await
    .unwrap()
}

/// Everything that a client can see of the tables of `orders`: the schema, and the rows.
pub(crate) async fn state(dsql: &Dsql) -> Vec<String> {
    let mut state = rows(
        dsql,
        "SELECT format('%s %s %s', table_name, column_name, data_type) FROM information_schema.columns
         WHERE table_schema = 'public' AND table_name NOT LIKE 'forebay%' ORDER BY table_name, ordinal_position",
    )
    .await;
    let indexes = "SELECT format('%s %s', indexrelid::regclass, indisvalid) FROM pg_index
                   WHERE indrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relname !~ '^forebay')
                   ORDER BY 1";
    state.extend(rows(dsql, indexes).await);
    state.extend(rows(dsql, "SELECT orders::text FROM orders ORDER BY 1").await);
    state
}
