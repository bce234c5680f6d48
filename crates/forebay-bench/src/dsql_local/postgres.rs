//! A PostgreSQL of our own, with TLS, to measure beside.

use std::fs::{self, Permissions};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tempfile::TempDir;

use crate::clock;

/// Debian keeps the programs of each version apart and out of the path.
const PLACES: &str = "/usr/lib/postgresql";
/// Who runs it if we are root, as it refuses to be.
const USER: &str = "postgres";
/// How long it may take to start.
const PATIENCE: Duration = Duration::from_secs(20);

/// A PostgreSQL, stopped on drop.
#[derive(Debug)]
pub(super) struct Postgres {
    child: Child,
    port: u16,
    version: String,
    directory: TempDir,
}

impl Postgres {
    pub(super) fn start() -> anyhow::Result<Self> {
        let programs = programs()?;
        let directory = tempfile::Builder::new().prefix("forebay-bench-").tempdir()?;
        let owner = owner()?;
        if let Some((user, group)) = owner {
            chown(directory.path(), Some(user), Some(group))?;
        }
        let data = directory.path().join("data");
        let as_owner = |program: &str| {
            let program = programs.join(program);
            let mut command = match owner {
                None => Command::new(program),
                Some((user, group)) => {
                    let mut command = Command::new("setpriv");
                    command.args([
                        format!("--reuid={user}"),
                        format!("--regid={group}"),
                        "--clear-groups".to_owned(),
                    ]);
                    command.arg(program);
                    command
                }
            };
            command.current_dir(directory.path());
            command
        };
        let made = as_owner("initdb").args(["-A", "trust", "-U", "admin", "-N", "-D"]).arg(&data).output()?;
        ensure!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        certificate(&data, owner)?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let version = as_owner("postgres").arg("--version").output()?;
        let child = as_owner("postgres")
            .arg("-D")
            .arg(&data)
            .args([
                "-h",
                "127.0.0.1",
                "-p",
                &port.to_string(),
                "-c",
                "ssl=on",
                "-c",
                "max_connections=50",
                "-c",
                "fsync=off",
                "-c",
                "synchronous_commit=off",
            ])
            .args(["-c", "unix_socket_directories=", "-c", "log_min_messages=fatal"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let version = String::from_utf8_lossy(&version.stdout).trim().to_owned();
        let postgres = Self { child, port, version, directory };
        postgres.wait(&programs)?;
        Ok(postgres)
    }

    fn wait(&self, programs: &Path) -> anyhow::Result<()> {
        let watch = clock::Stopwatch::start();
        while watch.elapsed() < PATIENCE {
            let ready = Command::new(programs.join("pg_isready")).envs(self.variables()).output()?;
            if ready.status.success() {
                return Ok(());
            }
        }
        bail!("PostgreSQL did not start in {PATIENCE:?}");
    }

    pub(super) fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// The file with the certificate of its authority.
    pub(super) fn authority(&self) -> PathBuf {
        self.directory.path().join("data").join("server.crt")
    }

    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// What libpq must know.
    pub(super) fn variables(&self) -> Vec<(&'static str, String)> {
        let authority = self.authority();
        vec![
            ("PGHOST", "localhost".to_owned()),
            ("PGHOSTADDR", "127.0.0.1".to_owned()),
            ("PGPORT", self.port.to_string()),
            ("PGUSER", "admin".to_owned()),
            ("PGDATABASE", "postgres".to_owned()),
            ("PGSSLMODE", "verify-full".to_owned()),
            ("PGSSLROOTCERT", authority.display().to_string()),
        ]
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // SIGINT is its fast shutdown. `setpriv` has become the server, so the child is the server.
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id().cast_signed()) {
            // If it is gone already, all the better.
            let (Ok(()) | Err(_)) = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        }
        drop(self.child.wait());
    }
}

/// A certificate of the same kind as the other side's: ECDSA on P-256.
fn certificate(data: &Path, owner: Option<(u32, u32)>) -> anyhow::Result<()> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let files = [("server.crt", made.cert.pem()), ("server.key", made.signing_key.serialize_pem())];
    for (name, text) in files {
        let path = data.join(name);
        fs::write(&path, text)?;
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        if let Some((user, group)) = owner {
            chown(&path, Some(user), Some(group))?;
        }
    }
    Ok(())
}

fn programs() -> anyhow::Result<PathBuf> {
    let versions = fs::read_dir(PLACES).context("install one: apt-get install postgresql")?;
    let mut found: Vec<PathBuf> = versions.flatten().map(|entry| entry.path().join("bin")).collect();
    found.retain(|bin| bin.join("initdb").exists());
    found.sort();
    found.pop().context("install one: apt-get install postgresql")
}

/// Whom to become; nobody, if we are not root.
fn owner() -> anyhow::Result<Option<(u32, u32)>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let number = |flag: &str| -> anyhow::Result<u32> {
        let output = Command::new("id").args([flag, USER]).output()?;
        String::from_utf8_lossy(&output.stdout).trim().parse().context("there is no user postgres")
    };
    Ok(Some((number("-u")?, number("-g")?)))
}
