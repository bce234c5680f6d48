//! A service that counts its visitors in Aurora DSQL, with sqlx.

use std::error::Error;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use forebay_aws::SdkSigner;
use forebay_dsql::{Options, SqlxDsql};
use tokio::net::TcpListener;

async fn visit(State(dsql): State<SqlxDsql>) -> Result<String, StatusCode> {
    let visits = dsql.run("visit", async |mut tx| {
        sqlx::query("UPDATE counter SET visits = visits + 1 WHERE id = $1")
            .bind(1_i64)
            .execute(tx.pg())
            .await?;
        let visits = sqlx::query_scalar("SELECT visits FROM counter WHERE id = $1").bind(1_i64);
        Ok::<i64, forebay_dsql::Error>(visits.fetch_one(tx.pg()).await?)
    });
    match visits.await {
        Ok(visits) => Ok(format!("You are visitor {visits}.\n")),
        Err(error) => {
            eprintln!("{error}");
            Err(StatusCode::SERVICE_UNAVAILABLE)
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // The cluster, the pool and the credentials come from the environment.
    let dsql = SqlxDsql::connect(Options::from_env()?, SdkSigner::from_env().await).await?;

    // Two transactions: a cluster takes no data in one that changes the schema.
    for statement in [
        "CREATE TABLE IF NOT EXISTS counter (id bigint PRIMARY KEY, visits bigint)",
        "INSERT INTO counter VALUES (1, 0) ON CONFLICT DO NOTHING",
    ] {
        dsql.run("set_up", async |mut tx| {
            sqlx::query(statement).execute(tx.pg()).await?;
            Ok::<_, forebay_dsql::Error>(())
        })
        .await?;
    }

    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let service = Router::new().route("/", get(visit)).with_state(dsql.clone());
    let end = async { drop(tokio::signal::ctrl_c().await) };
    axum::serve(listener, service).with_graceful_shutdown(end).await?;

    let drained = dsql.drain(Duration::from_secs(10)).await;
    println!("all connections are closed: {}", drained.is_complete());
    Ok(())
}
