//! A service that counts its visitors in a Flight SQL server.

use std::error::Error;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use forebay_flight::{AsyncFlightSQLPool, QueryOptions};
use tokio::net::TcpListener;

async fn count(pool: &AsyncFlightSQLPool) -> Result<i64, forebay_flight::Error> {
    // Each statement takes any free session. The deadline covers the wait for it, the statement and its rows.
    let options = QueryOptions::new().with_timeout_ms(2_000);
    pool.update_with_options("INSERT INTO visit (at) VALUES (CURRENT_TIMESTAMP)", options.clone()).await?;
    let rows = pool.query_with_options("SELECT count(*) FROM visit", options).await?;
    Ok(rows.batches()[0].column(0).as_primitive::<Int64Type>().value(0))
}

async fn visit(State(pool): State<AsyncFlightSQLPool>) -> Result<String, StatusCode> {
    match count(&pool).await {
        Ok(visits) => Ok(format!("You are visitor {visits}.\n")),
        Err(error) => {
            eprintln!("{error}");
            Err(StatusCode::SERVICE_UNAVAILABLE)
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = std::env::var("FLIGHT_SQL_URL").unwrap_or("grpc://127.0.0.1:4214".to_owned());
    let pool = AsyncFlightSQLPool::with_default(&server).await?;
    pool.update("CREATE TABLE IF NOT EXISTS visit (at TIMESTAMP)").await?;

    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let service = Router::new().route("/", get(visit)).with_state(pool.clone());
    let end = async { drop(tokio::signal::ctrl_c().await) };
    axum::serve(listener, service).with_graceful_shutdown(end).await?;

    println!("all sessions are closed: {}", pool.drain(Duration::from_secs(10)).await);
    Ok(())
}
