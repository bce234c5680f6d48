//! A private PostgreSQL with TLS, to compare with, and to connect to.

use std::fs::{self, Permissions};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tempfile::TempDir;

use crate::clock;
use crate::cluster::{Variables, libpq_variables};
use crate::unprivileged::Unprivileged;

/// Debian installs the programs of each version below this directory, outside of the path.
const VERSIONS: &str = "/usr/lib/postgresql";
/// How long it may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// A PostgreSQL. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct Postgres {
    child: Child,
    port: u16,
    pub(crate) version: String,
    directory: TempDir,
}

impl Postgres {
    /// Starts one with these settings, such as `max_connections=50`. It trusts every client, and the role `admin` is its superuser.
    pub(crate) fn start(settings: &[&str]) -> anyhow::Result<Self> {
        let programs = programs()?;
        let directory = tempfile::Builder::new().prefix("forebay-bench-").tempdir()?;
        let user = Unprivileged::find()?;
        user.own(directory.path())?;
        let data = directory.path().join("data");
        let as_user = |program: &str| {
            let mut command = user.command(programs.join(program));
            command.current_dir(directory.path());
            command
        };
        let made = as_user("initdb").args(["-A", "trust", "-U", "admin", "-N", "-D"]).arg(&data).output()?;
        ensure!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        certificate(&data, "server", user)?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let version = as_user("postgres").arg("--version").output()?;
        let mut command = as_user("postgres");
        command.arg("-D").arg(&data).args(["-h", "127.0.0.1", "-p", &port.to_string(), "-c", "ssl=on"]);
        command.args(["-c", "fsync=off", "-c", "synchronous_commit=off"]);
        command.args(["-c", "unix_socket_directories=", "-c", "log_min_messages=fatal"]);
        for setting in settings {
            command.args(["-c", setting]);
        }
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
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

    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// The certificate of its authority.
    pub(crate) fn ca_file(&self) -> PathBuf {
        self.directory.path().join("data").join("server.crt")
    }

    /// Environment variables for psql and pgbench.
    pub(crate) fn variables(&self) -> Variables {
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

/// Writes a certificate and its key, `NAME.crt` and `NAME.key`, of the same kind as that of dsql-local: ECDSA on P-256.
pub(crate) fn certificate(directory: &Path, name: &str, user: Unprivileged) -> anyhow::Result<()> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()])?;
    for (extension, text) in [("crt", made.cert.pem()), ("key", made.signing_key.serialize_pem())] {
        let path = directory.join(format!("{name}.{extension}"));
        fs::write(&path, text)?;
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        user.own(&path)?;
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
