//! PgBouncer, as a user without privileges, with the configuration in `pgbouncer/` of this crate.

use std::fmt::Write as _;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use super::behind::{Behind, PASSWORD};
use super::contestant::Contestant;
use super::door::{Access, ClientTls, DATABASE, Door, USER};
use crate::unprivileged::Unprivileged;

/// The names of contestants in tables and goals.
pub(super) const SESSION: &str = "PgBouncer, session";
pub(super) const TRANSACTION: &str = "PgBouncer, transaction";
pub(super) const TWO: &str = "two PgBouncers, transaction";

/// The committed configuration.
const FILES: &[(&str, &str)] = &[
    ("tuned.ini", include_str!("../../pgbouncer/tuned.ini")),
    ("session.ini", include_str!("../../pgbouncer/session.ini")),
    ("session-dsql.ini", include_str!("../../pgbouncer/session-dsql.ini")),
    ("transaction.ini", include_str!("../../pgbouncer/transaction.ini")),
    ("trust.ini", include_str!("../../pgbouncer/trust.ini")),
    ("scram.ini", include_str!("../../pgbouncer/scram.ini")),
    ("client-tls.ini", include_str!("../../pgbouncer/client-tls.ini")),
    ("reuseport.ini", include_str!("../../pgbouncer/reuseport.ini")),
];

/// How clients share the connections to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Session,
    Transaction,
    /// Two processes with one port, in transaction mode.
    TwoProcesses,
}

/// How it is started.
#[derive(Clone, Copy, Debug)]
pub(super) struct PgBouncer<'a> {
    pub(super) mode: Mode,
    pub(super) access: Access,
    /// What it keeps of the password.
    pub(super) verifier: Option<&'a str>,
    /// `client.crt` and `client.key` are there, for TLS with clients.
    pub(super) certificates: &'a Path,
}

impl PgBouncer<'_> {
    pub(super) fn start(&self, behind: &Behind) -> anyhow::Result<Contestant> {
        let user = Unprivileged::find()?;
        let directory = tempfile::Builder::new().prefix("forebay-bench-pgbouncer-").tempdir()?;
        let path = directory.path();
        user.own(path)?;
        let write = |name: &str, text: &[u8]| -> anyhow::Result<()> {
            fs::write(path.join(name), text)?;
            user.own(&path.join(name))
        };
        for (name, text) in FILES {
            write(name, text.as_bytes())?;
        }
        write("server.crt", &fs::read(behind.ca_file())?)?;
        for name in ["client.crt", "client.key"] {
            write(name, &fs::read(self.certificates.join(name))?)?;
        }
        let verifier = self.verifier.filter(|_| self.access.scram).unwrap_or_default();
        write("users.txt", format!("\"{USER}\" \"{verifier}\"\n").as_bytes())?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        write("pgbouncer.ini", self.main_file(behind, port)?.as_bytes())?;

        let (name, count) = match self.mode {
            Mode::Session => (SESSION, 1),
            Mode::Transaction => (TRANSACTION, 1),
            Mode::TwoProcesses => (TWO, 2),
        };
        let tls = ClientTls::new(&path.join("client.crt"))?;
        let door = Door {
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            tls: self.access.tls.then_some(tls),
            password: self.access.scram.then(|| PASSWORD.to_owned()),
        };
        let mut contestant = Contestant { name, door, processes: Vec::new(), _files: Some(directory) };
        for _ in 0..count {
            let mut command = user.command(program());
            let files = contestant._files.as_ref().context("it has files")?;
            command.args(["-q", "pgbouncer.ini"]).current_dir(files.path());
            let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
            contestant.processes.push(process.context("PgBouncer could not be run")?);
        }
        contestant.wait_until_it_listens().with_context(
            || "PgBouncer is needed: apt-get install pgbouncer, and stop the service that the package starts",
        )?;
        Ok(contestant)
    }

    /// The file that includes the others.
    fn main_file(&self, behind: &Behind, port: u16) -> anyhow::Result<String> {
        let mode = match self.mode {
            Mode::Session if behind.is_dsql() => "session-dsql.ini",
            Mode::Session => "session.ini",
            Mode::Transaction | Mode::TwoProcesses => "transaction.ini",
        };
        let mut text = format!(
            "[databases]\n{DATABASE} = host=localhost port={} dbname={DATABASE} user={USER}",
            behind.address().port()
        );
        if let Some(password) = behind.password() {
            ensure!(!password.contains('\''), "a token has no quotes");
            write!(text, " password='{password}'")?;
        }
        writeln!(text, "\n[pgbouncer]\nlisten_port = {port}\n%include tuned.ini\n%include {mode}")?;
        writeln!(text, "%include {}", if self.access.scram { "scram.ini" } else { "trust.ini" })?;
        if self.access.tls {
            writeln!(text, "%include client-tls.ini")?;
        }
        if self.mode == Mode::TwoProcesses {
            writeln!(text, "%include reuseport.ini")?;
        }
        Ok(text)
    }
}

/// Debian installs it outside of the path of ordinary users.
fn program() -> &'static str {
    let debian = "/usr/sbin/pgbouncer";
    if Path::new(debian).exists() { debian } else { "pgbouncer" }
}

/// Its version, for a note.
pub(super) fn version() -> anyhow::Result<String> {
    let output = Command::new(program()).arg("--version").output();
    let output = output.context("PgBouncer is needed: apt-get install pgbouncer")?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().next().unwrap_or_default().to_owned())
}
