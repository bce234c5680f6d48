//! The server that everybody connects to, and its control port.

use std::path::Path;
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
use crate::dsql_local::Server;

/// How long a token is used again. It would be good for a quarter of an hour.
const KEPT: Duration = Duration::from_secs(300);
/// What the server lets through at once where there should be no burst: sockets do not arrive to the millisecond.
const SLACK: u32 = 10;

/// A local Aurora DSQL in a process of its own. A clone is another handle to it.
#[derive(Clone, Debug)]
pub(super) struct Cluster {
    server: Arc<Server>,
    kept: Arc<Mutex<Option<(Stopwatch, String)>>>,
}

impl Cluster {
    pub(super) fn start(engine: EngineKind) -> anyhow::Result<Self> {
        Ok(Self { server: Arc::new(Server::start(engine)?), kept: Arc::default() })
    }

    /// Processor time that the server has used so far.
    pub(super) fn processor_time(&self) -> anyhow::Result<Duration> {
        self.server.processor_time()
    }

    pub(super) fn port(&self) -> u16 {
        self.server.address.port()
    }

    pub(super) fn ca_file(&self) -> &Path {
        &self.server.ca_file
    }

    /// Asks its control port.
    pub(super) async fn ask(&self, method: &str, path: &str, body: &str) -> anyhow::Result<String> {
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

    /// No faults, no limits worth the name, an hour for each session, and nobody connected.
    pub(super) async fn as_new(&self) -> anyhow::Result<()> {
        self.ask("DELETE", "/faults", "").await?;
        while self.count("live").await? > 0 {
            clock::pause(Duration::from_millis(10)).await;
        }
        self.limit("connections=20000&per_second=1000000&burst=1000000&session_life=1h").await
    }

    /// Rations connects: so many a second, and none saved up.
    pub(super) async fn ration(&self, per_second: u32) -> anyhow::Result<()> {
        self.limit(&format!("per_second={per_second}&burst={SLACK}")).await
    }

    pub(super) async fn limit(&self, limits: &str) -> anyhow::Result<()> {
        self.ask("POST", &format!("/limits?{limits}"), "").await.map(drop)
    }

    pub(super) async fn inject(&self, faults: &str) -> anyhow::Result<()> {
        self.ask("POST", "/faults", faults).await.map(drop)
    }

    /// One of its counters.
    pub(super) async fn count(&self, counter: &str) -> anyhow::Result<u64> {
        let counters: Value = serde_json::from_str(&self.ask("GET", "/counters", "").await?)?;
        counters[counter].as_u64().with_context(|| format!("no counter {counter}"))
    }

    /// Connects that it refused because they came too fast.
    pub(super) async fn refused(&self) -> anyhow::Result<u64> {
        let counters: Value = serde_json::from_str(&self.ask("GET", "/counters", "").await?)?;
        Ok(counters["refused"]["53400"].as_u64().unwrap_or(0))
    }

    /// A token, by the server's own clock.
    pub(super) async fn fresh_token(&self) -> anyhow::Result<String> {
        self.ask("GET", "/token?role=admin", "").await
    }

    /// A token that may have been used before.
    pub(super) async fn token(&self) -> anyhow::Result<String> {
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
