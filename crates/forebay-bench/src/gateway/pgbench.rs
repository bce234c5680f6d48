//! Runs pgbench, and reads what it prints.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use super::door::Door;
use crate::clock::{self, Stopwatch};

/// How much longer than asked for it may take.
const GRACE: Duration = Duration::from_secs(60);

/// What pgbench does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pgbench {
    pub(super) clients: u32,
    pub(super) threads: u32,
    pub(super) seconds: u32,
    /// Whether each transaction has a connection of its own.
    pub(super) reconnect: bool,
    /// `simple`, `extended` or `prepared`.
    pub(super) protocol: &'static str,
}

/// What it did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Counted {
    pub(super) transactions: u64,
    pub(super) per_second: f64,
}

impl Pgbench {
    /// Repeats `SELECT 1`.
    pub(super) fn run(&self, door: &Door) -> anyhow::Result<Counted> {
        let script = tempfile::NamedTempFile::new()?;
        fs::write(script.path(), "SELECT 1;\n")?;
        let mut command = Command::new("pgbench");
        command.args(["-n", "-M", self.protocol, "-c", &self.clients.to_string()]);
        command.args(["-j", &self.threads.to_string(), "-T", &self.seconds.to_string()]);
        if self.reconnect {
            command.arg("-C");
        }
        command.arg("-f").arg(script.path()).envs(door.variables());
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.context("pgbench could not be run; it comes with PostgreSQL")?;
        let watch = Stopwatch::start();
        // What it prints fits in the pipes.
        while child.try_wait()?.is_none() {
            if watch.elapsed() > Duration::from_secs(self.seconds.into()) + GRACE {
                child.kill()?;
                child.wait()?;
                bail!("pgbench did not end: a client waits for an answer");
            }
            clock::nap(Duration::from_millis(5));
        }
        let output = child.wait_with_output()?;
        let (text, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.success(), "pgbench failed: {errors}");
        counted(&text).with_context(|| format!("pgbench printed no rate: {text}"))
    }
}

fn counted(text: &str) -> Option<Counted> {
    let after =
        |start: &str| text.lines().find_map(|line| line.strip_prefix(start)?.split([' ', '/']).next());
    Some(Counted {
        transactions: after("number of transactions actually processed: ")?.parse().ok()?,
        per_second: after("tps = ")?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_output_has_a_count_and_a_rate() {
        let text = "number of clients: 8\nnumber of transactions actually processed: 1234\n\
                    number of failed transactions: 0 (0.000%)\ntps = 617.25 (including reconnection times)\n";
        assert_eq!(counted(text), Some(Counted { transactions: 1_234, per_second: 617.25 }));
        assert_eq!(counted("number of clients: 8\n"), None);
    }
}
