//! An HTTP service with axum: one handle in its state, a transaction for each request, errors by what the client should do.
//!
//! `cargo run -p forebay-dsql --example axum_service` starts it, calls it, and ends it.

use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use forebay_dsql::{Dsql, Error, ErrorKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

mod local;

/// What a caller of the service is told.
struct Refusal(Error);

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl axum::response::IntoResponse for Refusal {
    fn into_response(self) -> axum::response::Response {
        let status = match self.0.kind() {
            // Try again.
            ErrorKind::NoConnection | ErrorKind::Throttled(_) | ErrorKind::Conflict(_) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            ErrorKind::ConditionFailed => StatusCode::CONFLICT,
            // Do not try again: it may have been done.
            ErrorKind::CommitUnknown => StatusCode::GATEWAY_TIMEOUT,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        eprintln!("{status}: {}", self.0);
        status.into_response()
    }
}

async fn add(State(dsql): State<Dsql>, Path(amount): Path<i64>) -> Result<String, Refusal> {
    let balance = dsql
        .run("add", async |tx| {
            tx.execute("UPDATE account SET balance = balance + $1 WHERE id = 1", &[&amount]).await?;
            let row = tx.query_one("SELECT balance FROM account WHERE id = 1", &[]).await?;
            Ok::<i64, Error>(row.get(0))
        })
        .await?;
    Ok(format!("{balance}\n"))
}

async fn balance(State(dsql): State<Dsql>) -> Result<String, Refusal> {
    // Reading conflicts, too: each connection meets a changed schema once.
    let balance = dsql
        .run("balance", async |tx| {
            let row = tx.query_one("SELECT balance FROM account WHERE id = 1", &[]).await?;
            Ok::<i64, Error>(row.get(0))
        })
        .await?;
    Ok(format!("{balance}\n"))
}

/// Ready as long as callers are served.
async fn health(State(dsql): State<Dsql>) -> StatusCode {
    let status = dsql.status();
    if status.open > 0 && !status.closed { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cluster = local::Local::start()?;
    // One process alone need not wait for others at its start.
    let options = cluster.options().startup_jitter(Duration::ZERO).build()?;
    let dsql = Dsql::connect(options, cluster.signer()).await?;
    // Two transactions: a cluster takes no data in one that changes the schema.
    for text in
        ["CREATE TABLE account (id bigint PRIMARY KEY, balance bigint)", "INSERT INTO account VALUES (1, 0)"]
    {
        dsql.run("set_up", async |tx| Ok::<_, Error>(tx.batch_execute(text).await?)).await?;
    }

    let service = Router::new()
        .route("/balance", get(balance))
        .route("/add/{amount}", post(add))
        .route("/health", get(health))
        .with_state(dsql.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = async move {
        let until = async { drop(stopped.await) };
        axum::serve(listener, service).with_graceful_shutdown(until).await
    };
    let client = async move {
        for request in ["GET /health", "POST /add/5", "POST /add/7", "GET /balance"] {
            println!("{request}: {}", call(address, request).await?);
        }
        drop(stop);
        Ok::<_, std::io::Error>(())
    };
    let (served, called) = tokio::join!(server, client);
    served?;
    called?;
    println!("drained: {}", dsql.drain(Duration::from_secs(5)).await.is_complete());
    Ok(())
}

/// The smallest HTTP client there is: status line and body.
async fn call(address: std::net::SocketAddr, request: &str) -> std::io::Result<String> {
    let mut socket = TcpStream::connect(address).await?;
    let head =
        format!("{request} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
    socket.write_all(head.as_bytes()).await?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    Ok(format!("{} {}", head.lines().next().unwrap_or_default(), body.trim()))
}
