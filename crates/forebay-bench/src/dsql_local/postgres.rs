//! A private PostgreSQL with TLS, to compare with.

use std::fs::{self, Permissions};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tempfile::TempDir;

use crate::clock;
use crate::cluster::{Variables, libpq_variables};

/// Debian installs the programs of each version below this directory, outside of the path.
const VERSIONS: &str = "/usr/lib/postgresql";
/// The user that runs it if we are root: PostgreSQL refuses to run as root.
const USER: &str = "postgres";
/// How long it may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// A PostgreSQL. Dropping it stops it.
#[derive(Debug)]
pub(super) struct Postgres {
    child: Child,
    port: u16,
    pub(super) version: String,
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
            .args(["-h", "127.0.0.1", "-p", &port.to_string(), "-c", "ssl=on", "-c", "max_connections=50"])
            .args(["-c", "fsync=off", "-c", "synchronous_commit=off"])
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
        while watch.elapsed() < START_TIMEOUT {
            let ready = Command::new(programs.join("pg_isready")).envs(self.variables()).output()?;
            if ready.status.success() {
                return Ok(());
            }
        }
        bail!("PostgreSQL did not start in {START_TIMEOUT:?}");
    }

    pub(super) fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// The certificate of its authority.
    pub(super) fn ca_file(&self) -> PathBuf {
        self.directory.path().join("data").join("server.crt")
    }

    /// Environment variables for psql and pgbench.
    pub(super) fn variables(&self) -> Variables {
        libpq_variables(self.address(), &self.ca_file())
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // SIGINT is its fast shutdown. `setpriv` executes the server, so the child is the server.
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id().cast_signed()) {
            // An error means that it has ended already.
            let (Ok(()) | Err(_)) = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        }
        drop(self.child.wait());
    }
}

/// A certificate of the same kind as that of dsql-local: ECDSA on P-256.
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
    let versions = fs::read_dir(VERSIONS).context("install one: apt-get install postgresql")?;
    let mut found: Vec<PathBuf> = versions.flatten().map(|entry| entry.path().join("bin")).collect();
    found.retain(|bin| bin.join("initdb").exists());
    found.sort();
    found.pop().context("install one: apt-get install postgresql")
}

/// The user and group to run as; `None` if we are not root.
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
