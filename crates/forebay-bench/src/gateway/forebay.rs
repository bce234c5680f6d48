//! The gateway: the program `forebay gateway`, in a process of its own.

use std::fmt;
use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context;

use super::behind::{Behind, PASSWORD};
use super::contestant::Contestant;
use super::door::{Access, ClientTls, DATABASE, Door, USER};
use crate::cluster::{KEY, SECRET};
use crate::process;

/// The name of the contestant in tables and goals.
pub(super) const GATEWAY: &str = "gateway";

/// How long a client keeps its connection to the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    /// For as long as it is connected.
    #[default]
    Session,
    /// Until it is idle.
    Elastic,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Session => "session",
            Self::Elastic => "elastic",
        })
    }
}

/// How it is started.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gateway<'a> {
    /// The program `forebay`; without it, this program.
    pub(super) program: Option<&'a Path>,
    pub(super) mode: Mode,
    pub(super) access: Access,
    /// What it keeps of the password.
    pub(super) verifier: Option<&'a str>,
    /// `client.crt` and `client.key` are there, for TLS with clients.
    pub(super) certificates: &'a Path,
    /// Connections to the server.
    pub(super) backends: u32,
    pub(super) variables: &'a [(&'a str, &'a str)],
}

impl Gateway<'_> {
    pub(super) fn start(&self, behind: &Behind) -> anyhow::Result<Contestant> {
        let directory = tempfile::Builder::new().prefix("forebay-bench-gateway-").tempdir()?;
        let (users, log) = (directory.path().join("users.toml"), directory.path().join("log"));
        let password = self.verifier.filter(|_| self.access.scram);
        let password = password.map(|verifier| format!("password = \"{verifier}\"\n")).unwrap_or_default();
        let role = format!("role = \"{USER}\"\ndatabase = \"{DATABASE}\"\n");
        fs::write(&users, format!("[[user]]\nname = \"{USER}\"\n{role}{password}"))?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let address = SocketAddr::from(([127, 0, 0, 1], port));

        let mut command = match self.program {
            Some(program) => {
                let mut command = Command::new(program);
                command.arg("gateway");
                command
            }
            None => process::this_program("gateway-serve")?,
        };
        command.envs(cluster(behind)).envs(reservoir(self.backends));
        command.envs(self.variables.iter().copied());
        let mut set = |setting: &str, value: &str| {
            command.env(format!("FOREBAY_GATEWAY_{setting}"), value);
        };
        set("LISTEN", &address.to_string());
        set("UNIX_SOCKET_DIR", "");
        set("USERS_FILE", &users.display().to_string());
        set("AUTH", if self.access.scram { "scram" } else { "trust" });
        set("MODE", &self.mode.to_string());
        set("MAX_CLIENTS", "11000");
        if self.access.tls {
            let file = |name: &str| self.certificates.join(name).display().to_string();
            set("TLS_CERT_FILE", &file("client.crt"));
            set("TLS_KEY_FILE", &file("client.key"));
        }
        // Its end is that of the gateway in this program.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(File::create(&log)?);
        let child = command.spawn().with_context(|| format!("starting {command:?}"))?;
        let tls = ClientTls::new(&self.certificates.join("client.crt"))?;
        let door = Door {
            address,
            tls: self.access.tls.then_some(tls),
            password: self.access.scram.then(|| PASSWORD.to_owned()),
        };
        let files = Some(directory);
        let mut contestant = Contestant { name: GATEWAY, door, processes: vec![child], _files: files };
        let listening = contestant.wait_until_it_listens();
        listening.with_context(|| fs::read_to_string(&log).unwrap_or_default())?;
        Ok(contestant)
    }
}

/// The variables that name the server, and a key that signs tokens for it. PostgreSQL does not ask for a token.
fn cluster(behind: &Behind) -> Vec<(&'static str, String)> {
    vec![
        ("CLUSTER_ENDPOINT", "localhost".to_owned()),
        ("CLUSTER_USER", USER.to_owned()),
        ("REGION", "us-east-1".to_owned()),
        ("AWS_ACCESS_KEY_ID", KEY.to_owned()),
        ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
        ("PGHOSTADDR", behind.address().ip().to_string()),
        ("PGPORT", behind.address().port().to_string()),
        ("PGDATABASE", DATABASE.to_owned()),
        ("PGSSLROOTCERT", behind.ca_file().display().to_string()),
        // PostgreSQL 15 does not have direct TLS. Connections are opened before they are measured.
        ("PGSSLNEGOTIATION", "postgres".to_owned()),
    ]
}

/// The variables of a reservoir that opens its connections at once.
fn reservoir(backends: u32) -> Vec<(&'static str, String)> {
    vec![
        ("DSQL_RESERVOIR_ENABLED", "true".to_owned()),
        ("DSQL_MAX_CONNS", backends.to_string()),
        ("DSQL_CONNECTION_RATE_LIMIT", "1000".to_owned()),
        ("DSQL_CONNECTION_BURST_LIMIT", "1000".to_owned()),
        ("DSQL_STAGGERED_STARTUP", "false".to_owned()),
    ]
}
