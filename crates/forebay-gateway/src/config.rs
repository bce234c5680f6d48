//! The configuration of a gateway, from a TOML file, the environment and flags.
//!
//! Every setting has one name in three spellings: `max_clients` in the file, `FOREBAY_GATEWAY_MAX_CLIENTS` in the environment,
//! `--max-clients` as a flag. A flag overrides a variable, and a variable overrides the file. [`SETTINGS`] has all of them.
//!
//! What is behind the gateway is no part of it: the cluster comes from the variables of [`forebay_dsql::Options`].

mod builder;
mod draft;
mod place;
mod settings;
pub(crate) mod text_file;
mod value;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use builder::ConfigBuilder;
pub use draft::Draft;
pub use settings::{SETTINGS, Setting, manual};

use crate::login::ClientLimits;
use crate::users::{Mode, UserDefaults};

/// The configuration of a gateway. [`ConfigBuilder`] reads and checks one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GatewayConfig {
    /// Where it listens for TCP connections. Default: 127.0.0.1:6432.
    pub listen: Vec<SocketAddr>,
    /// Where its Unix socket is. Default: `/tmp/.s.PGSQL.6432`.
    pub unix_socket: Option<UnixSocket>,
    /// Whether other processes may listen there, too. Default: no.
    pub so_reuseport: bool,
    /// The other processes that serve the same clients. Default: none.
    pub peers: Option<Peers>,
    /// How clients prove who they are. Default: SCRAM.
    pub auth: Authentication,
    /// The file with those who may log in. Default: `users.toml`.
    pub users_file: PathBuf,
    /// The certificate for clients. Default: none, and no TLS.
    pub tls: Option<TlsFiles>,
    /// How long clients keep a backend, unless their user says otherwise. Default: `session`.
    pub mode: Mode,
    /// In mode `elastic`: how long a client may be idle before its backend is released. Default: 10 s.
    pub release_after: Duration,
    /// What a client may make large.
    pub limits: Limits,
    /// How long things may take.
    pub timeouts: Timeouts,
    /// How long clients may finish their transactions when the gateway shuts down. Default: 30 s.
    pub drain_grace: Duration,
    /// Where `/metrics`, `/healthz` and `/readyz` are served. Default: nowhere.
    pub metrics_listen: Option<SocketAddr>,
    /// How many threads serve clients. Default: one for each processor.
    pub worker_threads: usize,
    /// Start-up parameters that are dropped without an error. Default: none.
    pub ignore_startup_parameters: Vec<String>,
}

/// How clients prove who they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Authentication {
    /// With a password, by SCRAM-SHA-256, or with a certificate, as their user says.
    #[default]
    Scram,
    /// Not at all: who can connect can be any user. Only for the Unix socket and for loopback addresses.
    Trust,
}

/// A Unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixSocket {
    /// Its directory, which clients give as the host.
    pub directory: PathBuf,
    /// The port in its name.
    pub port: u16,
    /// Who may connect, as bits of a file mode.
    pub mode: u32,
}

impl UnixSocket {
    /// Its path: `.s.PGSQL.` and the port.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.directory.join(format!(".s.PGSQL.{}", self.port))
    }
}

impl fmt::Display for UnixSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path().display().fmt(f)
    }
}

/// The processes that serve the same clients, such as behind one load balancer. A cancel request that comes to one of them is passed on to
/// the one that has the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peers {
    /// The number of this process: no other one has it.
    pub id: u8,
    /// Where this process listens for requests that others pass on.
    pub listen: SocketAddr,
    /// Where the others do, by their numbers: a host and a port.
    pub addresses: BTreeMap<u8, String>,
}

/// The files of the gateway's certificate. They are read again by a reload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The gateway's certificate and those of its authorities, in PEM.
    pub cert: PathBuf,
    /// The key of the certificate, in PEM.
    pub key: PathBuf,
    /// The authorities of client certificates, in PEM. Without it, clients show none.
    pub client_ca: Option<PathBuf>,
    /// Whether clients of other machines must use TLS. Default: yes.
    pub required: bool,
}

/// What a client may make large.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Clients that are logged in. Default 10,000.
    pub clients: usize,
    /// Clients of one user, unless the user says otherwise. Default: no limit.
    pub clients_per_user: Option<usize>,
    /// Clients of one address that is not of this machine. Default: no limit.
    pub clients_per_address: Option<usize>,
    /// Clients that are logging in. Default 5,000.
    pub logins: usize,
    /// Clients of one address that are logging in. Default 1,000.
    pub logins_per_address: Option<usize>,
    /// Bytes of a message that must be read as a whole. Default 16 MiB.
    pub message_size: usize,
    /// Prepared statements of a session. Default 5,000.
    pub statements: usize,
    /// Bytes of the prepared statements of a session. Default 16 MiB.
    pub statements_size: usize,
}

impl Limits {
    /// Those that the login checks.
    #[must_use]
    pub fn client_limits(&self) -> ClientLimits {
        let Self { clients, clients_per_address, logins, logins_per_address, .. } = *self;
        ClientLimits { clients, clients_per_address, logins, logins_per_address }
    }
}

/// How long things may take. `None`: as long as they take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// The wait for a backend. Default 30 s.
    pub backend: Duration,
    /// A statement. Default: no limit.
    pub query: Option<Duration>,
    /// A transaction. Default: no limit; the cluster has one.
    pub transaction: Option<Duration>,
    /// A pause within a transaction. Default: no limit.
    pub idle_in_transaction: Option<Duration>,
    /// A pause outside a transaction. Default: no limit.
    pub idle: Option<Duration>,
    /// A login. Default 30 s.
    pub login: Duration,
    /// How long a client may not read what is sent to it. Default 2 min.
    pub write: Duration,
}

impl GatewayConfig {
    /// What holds for users that do not say it themselves.
    #[must_use]
    pub fn user_defaults(&self) -> UserDefaults {
        UserDefaults {
            mode: self.mode,
            release_after: self.release_after,
            max_clients: self.limits.clients_per_user,
            trust: self.auth == Authentication::Trust,
        }
    }

    /// Keeps what cannot change while the gateway runs as it is in `running`. Returns the settings that this concerns.
    pub(crate) fn keep_until_restart(&mut self, running: &Self) -> Vec<&'static str> {
        let mut kept = Vec::new();
        // The new file was checked with its own `listen`: on another one, it may let everybody in, or passwords travel in the open.
        keep(&mut self.auth, &running.auth, "auth", &mut kept);
        if self.tls.is_none() {
            keep(&mut self.tls, &running.tls, "tls_cert_file", &mut kept);
        }
        keep(&mut self.listen, &running.listen, "listen", &mut kept);
        if self.unix_socket != running.unix_socket {
            // Its name has the port of `listen`, and its mode depends on `auth`.
            let place = |socket: &Option<UnixSocket>| socket.as_ref().map(|socket| socket.directory.clone());
            if place(&self.unix_socket) != place(&running.unix_socket) {
                kept.push("unix_socket_dir");
            } else if self.unix_socket.as_ref().map(|socket| socket.mode)
                != running.unix_socket.as_ref().map(|socket| socket.mode)
            {
                kept.push("unix_socket_mode");
            }
            self.unix_socket.clone_from(&running.unix_socket);
        }
        keep(&mut self.so_reuseport, &running.so_reuseport, "so_reuseport", &mut kept);
        match (&mut self.peers, &running.peers) {
            (Some(peers), Some(running)) => {
                keep(&mut peers.id, &running.id, "peer_id", &mut kept);
                keep(&mut peers.listen, &running.listen, "peer_listen", &mut kept);
            }
            (peers, running) => keep(peers, running, "peer_id", &mut kept),
        }
        keep(&mut self.metrics_listen, &running.metrics_listen, "metrics_listen", &mut kept);
        keep(&mut self.worker_threads, &running.worker_threads, "worker_threads", &mut kept);
        kept
    }
}

fn keep<T: Clone + PartialEq>(value: &mut T, running: &T, name: &'static str, kept: &mut Vec<&'static str>) {
    if value != running {
        value.clone_from(running);
        kept.push(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> GatewayConfig {
        ConfigBuilder::default().toml(std::path::Path::new("gateway.toml"), text).build().unwrap()
    }

    #[test]
    fn what_needs_a_restart_stays_as_it_is() {
        let running = config("");
        for (text, expected) in [
            ("max_clients = 7\nquery_timeout = '1s'", &[][..]),
            ("listen = '127.0.0.1:7001'", &["listen"]),
            ("unix_socket_dir = '/run/x'", &["unix_socket_dir"]),
            ("unix_socket_dir = ''", &["unix_socket_dir"]),
            ("unix_socket_mode = '0770'", &["unix_socket_mode"]),
            ("so_reuseport = true", &["so_reuseport"]),
            ("auth = 'trust'", &["auth", "unix_socket_mode"]),
            ("peer_id = 1\npeer_listen = '127.0.0.1:7003'", &["peer_id"]),
            ("metrics_listen = '127.0.0.1:7002'\nworker_threads = 61", &["metrics_listen", "worker_threads"]),
        ] {
            let mut changed = config(text);
            assert_eq!(changed.keep_until_restart(&running), expected, "{text}");
            assert_eq!(changed == running, !expected.is_empty(), "{text}");
        }
        // A certificate can come, and be another one, but it cannot go.
        let with_tls =
            |name: &str| config(&format!("tls_cert_file = '{name}.pem'\ntls_key_file = '{name}.key'"));
        for (mut changed, running, expected) in [
            (with_tls("a"), config(""), (&[][..], with_tls("a"))),
            (with_tls("b"), with_tls("a"), (&[], with_tls("b"))),
            (config(""), with_tls("a"), (&["tls_cert_file"], with_tls("a"))),
        ] {
            let kept = changed.keep_until_restart(&running);
            assert_eq!((kept.as_slice(), changed), expected);
        }
        let of_peers = |id: u8, peers: &str| {
            config(&format!("peer_id = {id}\npeer_listen = '127.0.0.1:7003'\npeers = [{peers}]"))
        };
        let (running, mut changed) = (of_peers(1, ""), of_peers(2, "'3=a:1'"));
        assert_eq!(changed.keep_until_restart(&running), ["peer_id"]);
        assert_eq!(changed, of_peers(1, "'3=a:1'"));
    }
}
