//! A running emulator.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::net::{TcpListener, TcpSocket};

use crate::acceptor::Acceptor;
use crate::builtin::Builtin;
use crate::clock::Clock;
use crate::config::{Config, EngineKind, Limits};
use crate::control;
use crate::counters::Counters;
use crate::credentials::Credentials;
use crate::engine::Engine;
use crate::error::Error;
use crate::faults::Fault;
use crate::postgres::Postgres;
use crate::runtime::ServerRuntime;
use crate::shared::Shared;

/// How long to wait for threads at the end.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// A burst of connections must not wait for TCP retransmits. The kernel may allow less.
const BACKLOG: u32 = 4_096;

/// A local Aurora DSQL cluster. It runs on its own threads until it is stopped or dropped, and removes its
/// files.
pub struct Cluster {
    shared: Arc<Shared>,
    threads: ServerRuntime,
    address: SocketAddr,
    control: Option<SocketAddr>,
    ca_file: PathBuf,
    socket: Option<PathBuf>,
    /// Removed with everything in it.
    directory: Option<TempDir>,
}

impl Cluster {
    /// Starts a cluster with the configured engine.
    ///
    /// # Errors
    /// If a setting is invalid, an address is in use, a file cannot be written, or the engine is not
    /// installed.
    pub fn start(config: Config) -> Result<Self, Error> {
        let result_limit = config.result_limit;
        match config.engine {
            EngineKind::Builtin => {
                Self::start_with(config, |directory, clock| Builtin::open(directory, clock, result_limit))
            }
            EngineKind::Postgres => {
                let own = config.clone();
                let mut socket = None;
                let mut cluster = Self::start_with(config, |_, clock| {
                    let engine = Postgres::start(&own, clock)?;
                    socket = Some(engine.directory().to_owned());
                    Ok(engine)
                })?;
                cluster.socket = socket;
                Ok(cluster)
            }
        }
    }

    /// Starts a cluster with another engine; `Config::engine` is ignored. The engine may block a thread only
    /// inside of `tokio::task::block_in_place`.
    ///
    /// # Errors
    /// If a setting is invalid, an address is in use, a file cannot be written, or the engine does not start.
    pub fn start_with<E: Engine>(
        config: Config,
        engine: impl FnOnce(&Path, Arc<Clock>) -> Result<E, Error>,
    ) -> Result<Self, Error> {
        config.check()?;
        let directory = tempfile::Builder::new().prefix("dsql-local-").tempdir();
        let directory = directory.map_err(|source| Error::File { path: std::env::temp_dir(), source })?;
        let threads = ServerRuntime::start()?;
        let (listener, control) = {
            let _context = threads.tasks().enter();
            (listen(config.listen)?, config.control.map(listen).transpose()?)
        };
        let clock = Arc::new(Clock::new(config.speed));
        let engine = Arc::new(engine(directory.path(), clock.clone())?);
        let shared = Arc::new(Shared::new(config, clock, threads.tasks().clone())?);
        let ca_file = shared.config.ca_file.clone().unwrap_or_else(|| directory.path().join("ca.pem"));
        // A reader of this path may be in another directory.
        let ca_file =
            std::path::absolute(&ca_file).map_err(|source| Error::File { path: ca_file, source })?;
        write_authority(&ca_file, &shared.identity.ca_pem)?;

        let cluster = Self {
            address: address(&listener),
            control: control.as_ref().map(address),
            shared,
            threads,
            ca_file,
            socket: None,
            directory: Some(directory),
        };
        cluster.run(listener, control, engine);
        Ok(cluster)
    }

    fn run<E: Engine>(&self, listener: TcpListener, control: Option<TcpListener>, engine: Arc<E>) {
        let tasks = self.threads.tasks();
        tasks.spawn(Arc::new(Acceptor::new(self.shared.clone(), engine)).accept(listener));
        if let Some(control) = control {
            tasks.spawn(control::serve(self.shared.clone(), control));
        }
        let shared = self.shared.clone();
        tasks.spawn(async move { shared.sessions.expire(&shared.clock).await });
        for fault in self.shared.config.faults.clone() {
            self.shared.inject(fault);
        }
    }

    /// The address that it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of its control port.
    #[must_use]
    pub fn control_address(&self) -> Option<SocketAddr> {
        self.control
    }

    /// The host name that clients connect to and sign tokens for.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.shared.config.endpoint
    }

    /// The region that tokens are signed for.
    #[must_use]
    pub fn region(&self) -> &str {
        &self.shared.config.region
    }

    /// The certificate of its certificate authority, with which clients verify the server.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        &self.shared.identity.ca_pem
    }

    /// The file with that certificate.
    #[must_use]
    pub fn ca_file(&self) -> &Path {
        &self.ca_file
    }

    /// The directory with the socket of the private PostgreSQL, if [`Cluster::start`] has started one. See
    /// [`Postgres::directory`].
    #[must_use]
    pub fn socket_directory(&self) -> Option<&Path> {
        self.socket.as_deref()
    }

    /// Its clock.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// What has happened so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.shared.counters()
    }

    /// The admission limits.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.shared.sessions.limits()
    }

    /// Changes the admission limits.
    pub fn set_limits(&self, limits: Limits) {
        self.shared.sessions.set_limits(limits, self.shared.clock.now());
    }

    /// Fills the token bucket of new connections.
    pub fn refill(&self) {
        self.shared.sessions.refill(self.shared.clock.now());
    }

    /// Replaces the keys that may sign tokens. Open sessions stay.
    pub fn set_credentials(&self, credentials: Vec<Credentials>) {
        self.shared.verifier.write().keys = credentials;
    }

    /// Adds a fault and returns its id. A fault that severs sockets at once is not listed; its id is 0.
    pub fn inject(&self, fault: Fault) -> u64 {
        self.shared.inject(fault)
    }

    /// Removes a fault. Returns whether there was one with this id.
    pub fn heal(&self, id: u64) -> bool {
        self.shared.faults.remove(id)
    }

    /// Removes all faults.
    pub fn heal_all(&self) {
        self.shared.faults.clear();
    }

    /// Closes a fraction of the sockets without an error message. Returns how many.
    pub fn sever(&self, fraction: f64) -> u64 {
        self.shared.sever(fraction)
    }

    /// A token for a role, signed with the first key. It is valid for 15 minutes.
    #[must_use]
    pub fn token(&self, role: &str) -> Option<String> {
        self.shared.token(role)
    }

    /// Closes every socket, stops every thread and removes the files.
    pub fn stop(mut self) {
        self.clean();
    }

    fn clean(&mut self) {
        // Expires running statements, so that their threads can end.
        self.shared.clock.advance(Duration::MAX);
        self.threads.stop(STOP_TIMEOUT);
        if self.shared.config.ca_file.is_some() {
            // If the file is gone already, that is fine.
            drop(std::fs::remove_file(&self.ca_file));
        }
        drop(self.directory.take());
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.directory.is_some() {
            self.clean();
        }
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Writes the certificate. It replaces an older certificate, but no other file, because the file is removed
/// at the end.
fn write_authority(path: &Path, pem: &str) -> Result<(), Error> {
    let foreign = std::fs::read(path).is_ok_and(|found| !found.starts_with(b"-----BEGIN CERTIFICATE-----"));
    if foreign {
        let problem = format!("{} exists and is not a certificate: give another --ca-file", path.display());
        return Err(Error::Setting(problem));
    }
    std::fs::write(path, pem).map_err(|source| Error::File { path: path.to_owned(), source })
}

fn listen(address: SocketAddr) -> Result<TcpListener, Error> {
    let listener = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    listener().map_err(|source| Error::Listen { address, source })
}

fn address(listener: &TcpListener) -> SocketAddr {
    // A listening socket has an address.
    listener.local_addr().unwrap_or_else(|_| SocketAddr::from(([127, 0, 0, 1], 0)))
}
