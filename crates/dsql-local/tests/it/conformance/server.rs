//! A plain PostgreSQL.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

pub(super) const USER: &str = "postgres";

/// It runs as long as its stdin is open, and removes its files.
const KEEPER: &str = r#"
set -eu
umask 077
cd /
exec 2>&1
export LC_ALL=C TZ=UTC
PATH=$PATH:$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
dir=$(mktemp -d "${TMPDIR:-/tmp}/plain-pg-XXXXXX")
trap 'rm -rf "$dir"' EXIT
initdb -D "$dir/data" -U "$1" -A trust -E UTF8 --locale=C --no-sync --no-instructions >/dev/null
echo "directory=$dir"
postgres -D "$dir/data" -c unix_socket_directories="$dir" -c listen_addresses= -c fsync=off -c log_destination=stderr &
server=$!
cat >/dev/null
kill -QUIT "$server"
wait "$server" || true
"#;

pub(super) struct Server {
    keeper: Child,
    directory: PathBuf,
}

impl Server {
    /// Blocks until the server is ready.
    pub(super) fn start() -> Self {
        // It refuses to run as root.
        let mut command = match rustix::process::geteuid().is_root() {
            true => {
                let mut command = Command::new("runuser");
                command.args(["-u", "postgres", "--", "sh"]);
                command
            }
            false => Command::new("sh"),
        };
        command.args(["-c", KEEPER, "plain", USER]);
        let mut keeper =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(keeper.stdout.take().unwrap()).lines();
        let mut server = Self { keeper, directory: PathBuf::new() };
        let mut said = Vec::new();
        for line in lines.map_while(Result::ok) {
            if let Some(directory) = line.strip_prefix("directory=") {
                server.directory = directory.into();
            } else if line.contains("ready to accept connections") {
                return server;
            }
            said.push(line);
        }
        panic!("PostgreSQL did not start: {said:#?}");
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        drop(self.keeper.wait());
    }
}
