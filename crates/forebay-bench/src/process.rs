//! What Linux says about a process in `/proc`, and how this program starts itself again.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;
use std::{env, fs};

use anyhow::{Context, ensure};
use serde_json::Value;

/// Memory of a process in bytes. `process` is its number or `self`; `field` is `VmRSS` for now, `VmHWM` for
/// the peak.
pub(crate) fn memory(process: &str, field: &str) -> anyhow::Result<f64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).context("this needs Linux's /proc")?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kilobytes = line.with_context(|| format!("no {field}"))?.trim().trim_end_matches(" kB");
    Ok(kilobytes.parse::<f64>()? * 1_024.0)
}

/// Processor time so far of all threads of a process, user and kernel.
pub(crate) fn processor_time(process: &str) -> anyhow::Result<Duration> {
    let mut nanos = 0;
    for thread in fs::read_dir(format!("/proc/{process}/task"))? {
        let text = fs::read_to_string(thread?.path().join("schedstat"))?;
        nanos += text.split_whitespace().next().context("no schedstat")?.parse::<u64>()?;
    }
    ensure!(nanos > 0, "the kernel keeps no processor time here");
    Ok(Duration::from_nanos(nanos))
}

/// Processor time of this process in user mode, in seconds. The kernel counts in ticks of 10 ms.
pub(crate) fn user_time() -> anyhow::Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat").context("this needs Linux's /proc")?;
    // The name, in parentheses, may contain anything; user time is the twelfth field after it.
    let after_name = stat.rsplit(')').next().unwrap_or("");
    Ok(after_name.split_whitespace().nth(11).context("no user time")?.parse::<f64>()? / 100.0)
}

/// This program, with other arguments.
pub(crate) fn this_program(subcommand: &str) -> anyhow::Result<Command> {
    let mut command = Command::new(env::current_exe().context("finding this program")?);
    command.arg(subcommand);
    Ok(command)
}

/// Runs a program to its end, and parses what it prints as JSON.
pub(crate) fn json_of(command: &mut Command) -> anyhow::Result<Value> {
    let output = command.output().with_context(|| format!("starting {command:?}"))?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed: {}", errors.trim());
    serde_json::from_slice(&output.stdout).with_context(|| format!("reading the output of {command:?}"))
}

/// Starts a server, and reads the line of JSON that it prints when it listens. The server stops when its
/// input ends.
pub(crate) fn start_server(command: &mut Command) -> anyhow::Result<(Child, BufReader<ChildStdout>, Value)> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut output = BufReader::new(child.stdout.take().context("no output")?);
    let mut line = String::new();
    output.read_line(&mut line)?;
    let ready = serde_json::from_str(&line).context("the server did not start")?;
    Ok((child, output, ready))
}

/// Processor time so far of a process, user and kernel, also of its threads that have ended. The kernel counts in ticks of 10 ms.
pub(crate) fn total_time(process: &str) -> anyhow::Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).context("this needs Linux's /proc")?;
    // The name, in parentheses, may contain anything; user time is the twelfth field after it, kernel time the next.
    let after_name = stat.rsplit(')').next().unwrap_or("");
    let ticks = after_name.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    let ticks: u64 = ticks.sum::<Result<u64, _>>().context("no processor time")?;
    Ok(Duration::from_millis(ticks * 10))
}

/// Raises the limit of file descriptors as far as it may be raised, for this process and those that it starts. Returns the limit;
/// `None` is no limit.
pub(crate) fn raise_descriptors() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    match setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    }
}
