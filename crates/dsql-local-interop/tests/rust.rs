//! Rust clients: `aws-sdk-dsql`, sqlx and AWS's connector for it.

use std::process::Command;

use aurora_dsql_sqlx_connector::{DsqlConnectOptionsBuilder, pool};
use aws_config::{Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_sdk_dsql::auth_token::{AuthTokenGenerator, Config as TokenConfig};
use aws_smithy_async::time::SystemTimeSource;
use dsql_local::{Cluster, Config};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions, PgSslMode};
use sqlx::{Connection, PgConnection, Row};

const KEY: &str = "AKIDINTEROP";
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

fn start(session_token: Option<&str>) -> Cluster {
    let mut keys = dsql_local::Credentials::new(KEY, SECRET);
    keys.session_token = session_token.map(str::to_owned);
    Cluster::start(Config { credentials: vec![keys], ..Config::default() }).unwrap()
}

fn provider(session_token: Option<&str>) -> SharedCredentialsProvider {
    let token = session_token.map(str::to_owned);
    SharedCredentialsProvider::new(Credentials::new(KEY, SECRET, token, None, "interop"))
}

fn sdk(session_token: Option<&str>) -> SdkConfig {
    SdkConfig::builder()
        .region(Region::new("us-east-1"))
        .credentials_provider(provider(session_token))
        .time_source(SystemTimeSource::new())
        .build()
}

async fn token(host: &str, session_token: Option<&str>, admin: bool) -> String {
    let config = TokenConfig::builder().hostname(host).expires_in(900).build().unwrap();
    let generator = AuthTokenGenerator::new(config);
    let sdk = sdk(session_token);
    let token = if admin {
        generator.db_connect_admin_auth_token(&sdk).await
    } else {
        generator.db_connect_auth_token(&sdk).await
    };
    token.unwrap().to_string()
}

fn options(cluster: &Cluster, role: &str) -> PgConnectOptions {
    PgConnectOptions::new_without_pgpass()
        .host("localhost")
        .port(cluster.address().port())
        .username(role)
        .database("postgres")
        .ssl_mode(PgSslMode::VerifyFull)
        .ssl_root_cert(cluster.ca_file())
}

#[tokio::test]
async fn the_sdks_tokens_open_sqlxs_connections() {
    for session_token in [None, Some("FwoGZXIvYXdzE/with+odd=characters==")] {
        let cluster = start(session_token);
        for (role, admin) in [("admin", true), ("app", false)] {
            let options = options(&cluster, role).password(&token("localhost", session_token, admin).await);
            let mut connection = PgConnection::connect_with(&options).await.unwrap();
            let one: i32 = sqlx::query_scalar("SELECT 1").fetch_one(&mut connection).await.unwrap();
            assert_eq!(one, 1);
            connection.close().await.unwrap();
        }
        let wrong = options(&cluster, "admin").password(&token("localhost", session_token, false).await);
        let error = PgConnection::connect_with(&wrong).await.err().unwrap();
        assert!(error.to_string().contains("unable to accept connection, access denied"), "{error}");
    }
}

#[tokio::test]
async fn sqlx_reads_and_writes() {
    let cluster = start(None);
    let options = options(&cluster, "admin").password(&token("localhost", None, true).await);
    let mut connection = PgConnection::connect_with(&options).await.unwrap();
    sqlx::query("CREATE TABLE t (id bigint PRIMARY KEY, name text, ok bool)")
        .execute(&mut connection)
        .await
        .unwrap();
    for id in 0..10_i64 {
        let insert = sqlx::query("INSERT INTO t (id, name, ok) VALUES ($1, $2, $3)");
        let done =
            insert.bind(id).bind(format!("n{id}")).bind(id % 2 == 0).execute(&mut connection).await.unwrap();
        assert_eq!(done.rows_affected(), 1);
    }
    let mut transaction = connection.begin().await.unwrap();
    sqlx::query("DELETE FROM t").execute(&mut *transaction).await.unwrap();
    transaction.rollback().await.unwrap();
    let rows = sqlx::query("SELECT id, name, ok FROM t WHERE ok ORDER BY id")
        .fetch_all(&mut connection)
        .await
        .unwrap();
    assert_eq!(rows.len(), 5);
    assert_eq!(
        (rows[1].get::<i64, _>(0), rows[1].get::<String, _>(1), rows[1].get::<bool, _>(2)),
        (2, "n2".into(), true)
    );
    let optional = sqlx::query("SELECT id FROM t WHERE id = $1")
        .bind(77_i64)
        .fetch_optional(&mut connection)
        .await
        .unwrap();
    assert!(optional.is_none());
}

#[tokio::test]
async fn awss_connector_runs_a_pool() {
    let cluster = start(None);
    let options = DsqlConnectOptionsBuilder::default()
        .pg_connect_options(options(&cluster, "admin"))
        .region(Some(Region::new("us-east-1")))
        .credentials_provider(Some(provider(None)))
        .build()
        .unwrap();
    let pool = pool::connect_with(&options, PgPoolOptions::new().max_connections(4)).await.unwrap();
    sqlx::query("CREATE TABLE t (n int)").execute(&pool).await.unwrap();
    for n in 0..8 {
        sqlx::query("INSERT INTO t VALUES ($1)").bind(n).execute(&pool).await.unwrap();
    }
    let count: i64 = sqlx::query_scalar("SELECT count(*) FROM t").fetch_one(&pool).await.unwrap();
    assert_eq!(count, 8);
    // A mass disconnect: the pool recovers.
    cluster.sever(1.0);
    let mut again = None;
    for _ in 0..8 {
        again = sqlx::query_scalar::<_, i64>("SELECT count(*) FROM t").fetch_one(&pool).await.ok().or(again);
    }
    assert_eq!(again, Some(8));
    pool.close().await;
}

/// The connector reads keys and the CA from the environment, so it runs in its own process.
#[test]
fn awss_connector_needs_only_the_environment() {
    let cluster = start(None);
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "connects_by_the_environment", "--ignored"])
        .env("AWS_ACCESS_KEY_ID", KEY)
        .env("AWS_SECRET_ACCESS_KEY", SECRET)
        .env("PGSSLROOTCERT", cluster.ca_file())
        .env(
            "ADDRESS",
            format!("postgres://admin@localhost:{}/postgres?region=us-east-1", cluster.address().port()),
        )
        .output()
        .unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
    assert_eq!(cluster.counters().accepted, 1);
}

#[tokio::test]
#[ignore = "the test above runs it, with an environment"]
async fn connects_by_the_environment() {
    let address = std::env::var("ADDRESS").unwrap();
    let mut connection = aurora_dsql_sqlx_connector::connection::connect(&address).await.unwrap();
    let one: i32 = sqlx::query_scalar("SELECT 1").fetch_one(&mut connection).await.unwrap();
    assert_eq!(one, 1);
}
