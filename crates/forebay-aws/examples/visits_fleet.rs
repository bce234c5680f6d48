//! One process of a fleet: all processes share the connections and the connect rate of one cluster.

use std::error::Error;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use forebay_dsql::{Dsql, Options};
use tokio::net::TcpListener;

async fn visit(State(dsql): State<Dsql>) -> Result<String, StatusCode> {
    let connection = dsql.acquire().await.map_err(|error| {
        eprintln!("{error}");
        StatusCode::SERVICE_UNAVAILABLE
    })?;
    connection.simple_query("SELECT 1").await.map_err(|_| StatusCode::BAD_GATEWAY)?;
    let status = dsql.status();
    Ok(format!("{} of {} connections are open here\n", status.open, status.max_open))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::from_env()?;
    let member = forebay_aws::join(&options).await?; // this process, once for each cluster
    let dsql: Dsql = member.pool(options).connect().await?; // as many pools as it needs

    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let service = Router::new().route("/", get(visit)).with_state(dsql.clone());
    let end = async { drop(tokio::signal::ctrl_c().await) };
    axum::serve(listener, service).with_graceful_shutdown(end).await?;

    // First the connections, then the slots: the fleet can use them at once.
    dsql.drain(Duration::from_secs(10)).await;
    let left = member.leave(Duration::from_secs(10)).await;
    println!("the slots are free: {left}");
    Ok(())
}
