//! Finds, prepares, starts and stops a private PostgreSQL.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use sha2::{Digest, Sha256};

use crate::error::Error;

/// The owner of the private server. Sessions never use this role.
pub(super) const SUPERUSER: &str = "dsql_local";
/// Turns an empty PostgreSQL into an empty cluster of the service.
const TEMPLATE: &str = include_str!("template.sql");
/// The socket. The port is only a part of its name.
pub(super) const SOCKET: &str = ".s.PGSQL.5432";
/// The server logs this when it accepts connections.
const READY: &str = "database system is ready to accept connections";
/// The prefix of the first line that the script prints.
const DIRECTORY: &str = "directory=";
/// Where distributions install PostgreSQL if it is not on the PATH.
const INSTALLED: &str = "/usr/lib/postgresql";
/// Where root's programs are, if they are not on the PATH.
const SYSTEM: &str = "/usr/sbin:/sbin";
const RUNUSER: &str = "runuser";

/// Runs the server as long as its own stdin is open. Even a kill of the emulator closes that. The script
/// creates and removes every file, so that all files belong to its user.
const KEEPER: &str = r#"
set -eu
# If the reader of the output is gone, the script must still clean up.
trap '' PIPE
umask 077
cd /
exec 2>&1
export LC_ALL=C
bin=$1 cache=$2 superuser=$3 sql=$4 digest=$5
version=$("$bin/postgres" --version | cut -d' ' -f3)
template=$cache/dsql-local-empty-$(id -un)-$version-$digest
made= dir=
trap 'rm -rf "$made" "$dir"' EXIT
if [ ! -e "$template" ]; then
  made=$(mktemp -d "$template-XXXXXX")
  "$bin/initdb" -D "$made" -U "$superuser" -A trust -E UTF8 --locale=C -T simple --wal-segsize=1 --no-sync --no-instructions
  printf '%s\n\n' "$sql" |
    "$bin/postgres" --single -O -j -D "$made" -c fsync=off -c exit_on_error=on postgres >/dev/null
  # Another start may have created it meanwhile.
  mv -T "$made" "$template" || [ -e "$template" ]
fi
[ -O "$template/PG_VERSION" ] || { echo "$template belongs to another user: set TMPDIR to another directory (in code: Config::cache)"; exit 1; }
dir=$(mktemp -d "${TMPDIR:-/tmp}/dsql-local-pg-XXXXXX")
cp -r "$template" "$dir/data"
echo "directory=$dir"
"$bin/postgres" -D "$dir/data" -c unix_socket_directories="$dir" -c listen_addresses= -c port=5432 \
  -c fsync=off -c synchronous_commit=off -c full_page_writes=off -c wal_level=minimal -c max_wal_senders=0 \
  -c max_connections=1000 -c jit=off -c max_parallel_workers_per_gather=0 -c timezone=UTC \
  -c client_connection_check_interval=100ms -c log_min_messages=log -c log_destination=stderr &
server=$!
cat >/dev/null
# The data is discarded, so an immediate shutdown is enough.
kill -QUIT "$server" || true
wait "$server" || true
"#;

#[derive(Debug)]
pub(super) struct Server {
    keeper: Child,
    directory: PathBuf,
}

impl Server {
    pub(super) fn start(cache: &Path) -> Result<Self, Error> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let programs = find(&path, Path::new(INSTALLED))?;
        let mut command = shell(&path)?;
        command.args(["-c", KEEPER, "dsql-local"]).arg(&programs).arg(cache);
        command.args([SUPERUSER, TEMPLATE, &digest()]);
        // Ctrl-C must reach the emulator only, which then stops the server.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let failed = |error| Error::Engine(format!("PostgreSQL in {}: {error}", programs.display()));
        let keeper = command.spawn().map_err(|error| {
            Error::Engine(format!("cannot run {}: {error}", command.get_program().display()))
        })?;
        let mut server = Self { keeper, directory: PathBuf::new() };
        let mut said = String::new();
        // Read only until it is ready: the server does not need a reader.
        for line in server.keeper.stdout.take().map(BufReader::new).into_iter().flat_map(BufRead::lines) {
            let line = line.map_err(failed)?;
            if let Some(directory) = line.strip_prefix(DIRECTORY) {
                server.directory = directory.into();
            } else if line.contains(READY) {
                return Ok(server);
            } else {
                said.push_str(&line);
                said.push('\n');
            }
        }
        Err(Error::Engine(format!("PostgreSQL in {} did not start:\n{said}", programs.display())))
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        // Waits until the files are gone. An error means that the process is gone already.
        drop(self.keeper.wait());
    }
}

/// Names the template by its content, so that another build uses another one.
fn digest() -> String {
    let digest = Sha256::new().chain_update(KEEPER).chain_update(TEMPLATE).finalize();
    hex::encode(&digest[..6])
}

/// A shell that does not run as root, because PostgreSQL refuses to.
fn shell(path: &OsStr) -> Result<Command, Error> {
    if !rustix::process::geteuid().is_root() {
        return Ok(Command::new("sh"));
    }
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let known = |name: &&str| users.lines().any(|line| line.split(':').next() == Some(name));
    let user = ["postgres", "nobody"].into_iter().find(known);
    let user = user.ok_or_else(|| {
        Error::Engine("PostgreSQL must not run as root, and there is no user postgres or nobody".to_owned())
    })?;
    let mut command = Command::new(run_as_other_user(path, SYSTEM, user)?);
    command.args(["-u", user, "--", "sh"]);
    Ok(command)
}

/// The program with which root runs a command as another user.
fn run_as_other_user(path: &OsStr, system: &str, user: &str) -> Result<PathBuf, Error> {
    let places = std::env::split_paths(path).chain(std::env::split_paths(system));
    places.map(|place| place.join(RUNUSER)).find(|program| program.is_file()).ok_or_else(|| {
        let remedy = "install util-linux, or start it as another user than root";
        Error::Engine(format!(
            "PostgreSQL must not run as root, and there is no {RUNUSER} on the PATH or in {system} to run it as {user}: {remedy}"
        ))
    })
}

/// The directory with PostgreSQL's programs: on the PATH, or the newest version.
fn find(path: &OsStr, installed: &Path) -> Result<PathBuf, Error> {
    let on_path = std::env::split_paths(path).find(|directory| complete(directory));
    on_path.or_else(|| newest(installed)).ok_or_else(|| {
        let remedy = "install it (apt-get install postgresql), or use the builtin engine";
        Error::Engine(format!("no PostgreSQL on the PATH or in {}: {remedy}", installed.display()))
    })
}

fn newest(installed: &Path) -> Option<PathBuf> {
    let versions = std::fs::read_dir(installed).ok()?.flatten().filter_map(|entry| {
        let version: u32 = entry.file_name().to_str()?.parse().ok()?;
        let programs = entry.path().join("bin");
        complete(&programs).then_some((version, programs))
    });
    versions.max().map(|(_, programs)| programs)
}

fn complete(directory: &Path) -> bool {
    ["initdb", "postgres"].iter().all(|program| directory.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_finds_runuser_outside_of_the_path() {
        let system = tempfile::tempdir().unwrap();
        let runuser = system.path().join("runuser");
        std::fs::write(&runuser, "").unwrap();
        let found = |path: &str, system: &str| run_as_other_user(path.as_ref(), system, "nobody");
        let place = system.path().to_str().unwrap();
        assert_eq!(found("/nowhere", place).unwrap(), runuser);
        assert_eq!(found(place, "/nowhere").unwrap(), runuser);
        let problem = found("/nowhere", "/nowhere/at/all").unwrap_err().to_string();
        assert!(problem.contains("no runuser on the PATH or in /nowhere/at/all"), "{problem}");
    }

    #[test]
    fn the_newest_version_that_is_complete_is_taken() {
        let installed = tempfile::tempdir().unwrap();
        for (version, programs) in
            [("9", &["initdb", "postgres"][..]), ("15", &["initdb", "postgres"]), ("16", &["psql"])]
        {
            let bin = installed.path().join(version).join("bin");
            std::fs::create_dir_all(&bin).unwrap();
            programs.iter().for_each(|program| std::fs::write(bin.join(program), "").unwrap());
        }
        let find = |path: &str, installed: &Path| find(path.as_ref(), installed);
        assert_eq!(find("", installed.path()).unwrap(), installed.path().join("15/bin"));
        let old = installed.path().join("9/bin");
        assert_eq!(find(old.to_str().unwrap(), installed.path()).unwrap(), old);
        let remedy = find("", &old).unwrap_err().to_string();
        assert!(remedy.contains("apt-get install postgresql"), "{remedy}");
    }
}
