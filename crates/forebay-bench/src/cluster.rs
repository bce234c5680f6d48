//! The local Aurora DSQL that contestants connect to, and its control port.

mod server;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use dsql_local::EngineKind;
use forebay_dsql::{SignFuture, Signed, Signer, Token, TokenError, TokenRequest};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use crate::clock::{self, Stopwatch};
#[cfg(feature = "all")]
pub(crate) use server::unlimited;
#[cfg(feature = "gateway")]
pub(crate) use server::{KEY, SECRET, Variables, libpq_variables};
pub(crate) use server::{Server, serve};

/// How long a token is reused. It is valid for a quarter of an hour.
const KEPT: Duration = Duration::from_secs(300);
/// The server's burst where there should be none: sockets do not arrive to the millisecond.
const SLACK: u32 = 10;

/// A local Aurora DSQL in a separate process. A clone is another handle to it.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    pub(crate) server: Arc<Server>,
    kept: Arc<Mutex<Option<(Stopwatch, String)>>>,
}

impl Cluster {
    pub(crate) fn start(engine: EngineKind) -> anyhow::Result<Self> {
        Ok(Self { server: Arc::new(Server::start(engine)?), kept: Arc::default() })
    }

    /// Sends a request to the control port.
    pub(crate) async fn control(&self, method: &str, path: &str, body: &str) -> anyhow::Result<String> {
        let mut socket = TcpStream::connect(self.server.control).await?;
        let length = body.len();
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}");
        socket.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await?;
        let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
        ensure!(head.starts_with("HTTP/1.1 200"), "{method} {path}: {answer}");
        Ok(body.to_owned())
    }

    /// Removes all faults and limits, sets sessions to an hour, and waits until no client is connected.
    pub(crate) async fn reset(&self) -> anyhow::Result<()> {
        self.control("DELETE", "/faults", "").await?;
        while self.count("live").await? > 0 {
            clock::pause(Duration::from_millis(10)).await;
        }
        self.set_limits("connections=20000&per_second=1000000&burst=1000000&session_life=1h").await
    }

    /// Limits the connects per second, without a burst.
    pub(crate) async fn limit_rate(&self, per_second: u32) -> anyhow::Result<()> {
        self.set_limits(&format!("per_second={per_second}&burst={SLACK}")).await
    }

    pub(crate) async fn set_limits(&self, limits: &str) -> anyhow::Result<()> {
        self.control("POST", &format!("/limits?{limits}"), "").await.map(drop)
    }

    pub(crate) async fn inject(&self, faults: &str) -> anyhow::Result<()> {
        self.control("POST", "/faults", faults).await.map(drop)
    }

    async fn counters(&self) -> anyhow::Result<Value> {
        Ok(serde_json::from_str(&self.control("GET", "/counters", "").await?)?)
    }

    /// One of the server's counters.
    pub(crate) async fn count(&self, counter: &str) -> anyhow::Result<u64> {
        self.counters().await?[counter].as_u64().with_context(|| format!("no counter {counter}"))
    }

    /// Connects that the server refused because they came too fast.
    pub(crate) async fn refused(&self) -> anyhow::Result<u64> {
        Ok(self.counters().await?["refused"]["53400"].as_u64().unwrap_or(0))
    }

    /// A token, by the server's own clock.
    pub(crate) async fn fresh_token(&self) -> anyhow::Result<String> {
        self.control("GET", "/token?role=admin", "").await
    }

    /// A token that may have been used before.
    pub(crate) async fn token(&self) -> anyhow::Result<String> {
        let mut kept = self.kept.lock().await;
        if let Some((signed, token)) = &*kept
            && signed.elapsed() < KEPT
        {
            return Ok(token.clone());
        }
        let token = self.fresh_token().await?;
        *kept = Some((Stopwatch::start(), token.clone()));
        Ok(token)
    }
}

impl Signer for Cluster {
    fn sign<'a>(&'a self, _request: &'a TokenRequest) -> SignFuture<'a> {
        Box::pin(async {
            let token =
                self.fresh_token().await.map_err(|error| TokenError::unavailable(error.to_string()))?;
            Ok(Signed { token: Token::new(token), credentials_expire: None })
        })
    }
}
