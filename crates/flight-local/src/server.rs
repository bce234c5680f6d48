//! A server, from its start to its end.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arrow_flight::flight_service_server::FlightServiceServer;
use futures_util::Stream;
use tokio::sync::mpsc::{Receiver, channel, unbounded_channel};
use tokio::sync::oneshot;
use tonic::transport::Server;

use crate::client::ClientSocket;
use crate::config::Config;
use crate::counters::Counters;
use crate::error::StartError;
use crate::faults::Faults;
use crate::listener::{Listener, Reboot, serve_reboots};
use crate::runtime::{self, ServerRuntime};
use crate::service::Service;
use crate::shared::Shared;

/// How long to wait for interrupted statements at the end.
const PATIENCE: Duration = Duration::from_secs(5);
/// The largest number of endpoints and of listeners.
const PARTS: usize = 100;
/// The largest message from a client.
const MESSAGE: usize = 64 << 20;

/// A running Flight SQL server. Dropping it stops it.
#[derive(Debug)]
pub struct FlightLocal {
    shared: Arc<Shared>,
    address: SocketAddr,
    threads: ServerRuntime,
}

impl FlightLocal {
    /// Starts a server on its own threads.
    ///
    /// # Errors
    /// If it cannot listen, or its database, certificate or settings are invalid.
    ///
    /// # Cancel safety
    /// If dropped, nothing is left running.
    pub async fn start(config: Config) -> Result<Self, StartError> {
        if config.session_limit == 0 {
            return Err(StartError::Setting(
                "with a session limit of 0 no client could use the server; allow some",
            ));
        }
        if config.endpoints_per_result == 0 || config.max_batch_rows == 0 {
            return Err(StartError::Setting(
                "a result has at least one endpoint, and a batch at least one row; take 1 or more",
            ));
        }
        if config.endpoints_per_result > PARTS || config.further_listeners > PARTS {
            return Err(StartError::Setting("there may be at most 100 endpoints and listeners; take fewer"));
        }
        let statements = config.session_limit.saturating_add(64).clamp(512, 100_000);
        let threads = ServerRuntime::start(config.threads, statements)?;
        let (reboots, wanted) = unbounded_channel();
        let shared = Arc::new(Shared::new(config, threads.handle().clone(), reboots)?);
        let (incoming, accepted) = channel(64);
        let config = &shared.config;
        let mut server = Server::builder();
        if let Some(tls) = &config.tls {
            crate::crypto_provider::choose();
            server =
                server.tls_config(tls.server()).map_err(|error| StartError::Certificate(chain(&error)))?;
        }
        let listeners = {
            let _entered = threads.handle().enter();
            let further = SocketAddr::new(config.listen.ip(), 0);
            let addresses =
                std::iter::once(config.listen).chain(std::iter::repeat_n(further, config.further_listeners));
            let listeners: Result<Vec<Listener>, _> =
                addresses.map(|address| Listener::open(address, incoming.clone(), &shared)).collect();
            let listeners = listeners?;
            let service = FlightServiceServer::new(Service::new(shared.clone()))
                .max_decoding_message_size(MESSAGE)
                .max_encoding_message_size(usize::MAX);
            let serving = server.add_service(service).serve_with_incoming(Accepted(accepted));
            // It ends with its runtime.
            runtime::spawn(async move { serving.await.is_ok() });
            listeners
        };
        let locations = listeners.iter().skip(1).map(|listener| url(&shared, listener.address)).collect();
        let (Ok(()) | Err(_)) = shared.locations.set(locations);
        let address = listeners[0].address;
        threads.handle().spawn(serve_reboots(listeners, wanted, shared.clone()));
        Ok(Self { shared, address, threads })
    }

    /// The address that it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its URL: `grpc://127.0.0.1:PORT`, or `grpc+tls://` with certificates.
    #[must_use]
    pub fn url(&self) -> String {
        url(&self.shared, self.address)
    }

    /// The URLs of its additional listeners.
    #[must_use]
    pub fn locations(&self) -> Vec<String> {
        self.shared.locations.get().cloned().unwrap_or_default()
    }

    /// What has happened so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.shared.counters()
    }

    /// The statements that have begun, in order, if [`Config::log_statements`] is set.
    #[must_use]
    pub fn statements(&self) -> Vec<String> {
        self.shared.logged()
    }

    /// The faults that can be injected.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.shared.faults
    }

    /// Ends every session, as some servers do with idle ones, and returns how many there were. The connections stay open: the
    /// next call on one gets a new session, without a word.
    #[must_use = "a test that replaces no session tests nothing"]
    pub fn replace_sessions(&self) -> usize {
        self.shared.sessions.end_all()
    }

    /// Closes every connection and session, refuses connections for `down`, and listens again at the same
    /// address. Committed data stays.
    ///
    /// # Errors
    /// If it cannot listen again.
    ///
    /// # Cancel safety
    /// Once polled, the reboot runs to its end.
    pub async fn reboot(&self, down: Duration) -> std::io::Result<()> {
        let (done, outcome) = oneshot::channel();
        let stopped = |_| std::io::Error::other("the server has stopped");
        let reboot = Reboot { down, keep_open: None, done };
        self.shared.reboots.send(reboot).map_err(|_| stopped(()))?;
        outcome.await.map_err(|_| stopped(()))?
    }

    /// Closes every connection, session and statement, and waits for its threads. A private database is
    /// removed.
    ///
    /// # Cancel safety
    /// If dropped, the server still stops.
    pub async fn stop(mut self) {
        self.shared.clients.reset_all_but(None);
        self.shared.sessions.end_all();
        self.threads.stop(PATIENCE).await;
    }
}

/// Cancels statements without waiting for them.
impl Drop for FlightLocal {
    fn drop(&mut self) {
        self.shared.clients.reset_all_but(None);
        self.shared.sessions.end_all();
    }
}

fn url(shared: &Shared, address: SocketAddr) -> String {
    let scheme = if shared.config.tls.is_some() { "grpc+tls" } else { "grpc" };
    format!("{scheme}://{address}")
}

/// An error with its sources, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let errors = std::iter::successors(Some(error), |&error| error.source());
    errors.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// The accepted connections.
#[derive(Debug)]
struct Accepted(Receiver<std::io::Result<ClientSocket>>);

impl Stream for Accepted {
    type Item = std::io::Result<ClientSocket>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}
