//! The machine, how busy it was, and the versions of the crates.

use std::fmt;
use std::fs;

use serde_json::{Value, json};

use crate::clock;

/// The versions this was built with.
const LOCK: &str = include_str!("../../../Cargo.lock");

/// The crates whose versions matter to a reader of the numbers.
const CRATES: [&str; 18] = [
    "adbc_driver_manager",
    "arrow-flight",
    "aurora-dsql-sqlx-connector",
    "bb8",
    "crossbeam-queue",
    "deadpool",
    "deadpool-postgres",
    "forebay",
    "h2",
    "hyper",
    "mobc",
    "parking_lot",
    "r2d2",
    "rustix",
    "sqlx",
    "tokio",
    "tokio-postgres",
    "tonic",
];

/// The machine during a run.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    cpu: String,
    cores: usize,
    /// The load averages of the last 1, 5 and 15 minutes.
    load_at_start: String,
    load_at_end: String,
    ticks_at_start: Option<Ticks>,
    /// The percentage of the machine that other processes used meanwhile. Tasks that share a core with
    /// another process contend less, so rows with several tasks need an idle machine.
    others: Option<f64>,
    date: String,
}

/// Processor time since the machine was started, in the kernel's ticks.
#[derive(Clone, Copy, Debug)]
struct Ticks {
    all: u64,
    busy: u64,
    /// Of this process and its children.
    own: u64,
}

impl Machine {
    /// Records the start of a run.
    pub(crate) fn look() -> Self {
        Self {
            cpu: cpu(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            load_at_start: load(),
            load_at_end: String::new(),
            ticks_at_start: ticks(),
            others: None,
            date: clock::today(),
        }
    }

    /// Records the end of a run.
    pub(crate) fn look_again(&mut self) {
        self.load_at_end = load();
        self.others = self.ticks_at_start.zip(ticks()).and_then(|(start, end)| others(start, end));
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "cpu": self.cpu,
            "cores": self.cores,
            "load_at_start": self.load_at_start,
            "load_at_end": self.load_at_end,
            "used_by_others_percent": self.others,
            "date": self.date,
            "versions": versions().map(|(name, version)| format!("{name} {version}")).collect::<Value>(),
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpu, cores, load_at_start, load_at_end, date, .. } = self;
        write!(f, "{date}, {cpu}, {cores} cores, load average {load_at_start} before, {load_at_end} after;")?;
        if let Some(others) = self.others {
            write!(f, " others used {others:.0} % of it;")?;
        }
        versions().try_for_each(|(name, version)| write!(f, " {name} {version}"))
    }
}

fn cpu() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, model)| model.to_owned())
}

fn load() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let averages: Vec<&str> = load.split_whitespace().take(3).collect();
    if averages.is_empty() { "unknown".to_owned() } else { averages.join(" ") }
}

fn ticks() -> Option<Ticks> {
    let numbers =
        |text: &str| text.split_whitespace().map_while(|word| word.parse().ok()).collect::<Vec<u64>>();
    let machine = fs::read_to_string("/proc/stat").ok()?;
    // user, nice, system, idle, iowait, irq, softirq, steal
    let machine = numbers(machine.lines().next()?.strip_prefix("cpu")?);
    let (all, idle) = (machine.iter().take(8).sum(), machine.iter().skip(3).take(2).sum::<u64>());
    let process = fs::read_to_string("/proc/self/stat").ok()?;
    // Fields 12 to 15 after the name are the time of this process and of its children.
    let (_, process) = process.rsplit_once(')')?;
    let own = process.split_whitespace().skip(11).take(4).filter_map(|word| word.parse::<u64>().ok()).sum();
    Some(Ticks { all, busy: all - idle, own })
}

fn others(start: Ticks, end: Ticks) -> Option<f64> {
    let all = end.all.checked_sub(start.all).filter(|all| *all > 0)?;
    let others = (end.busy - start.busy).saturating_sub(end.own - start.own);
    Some(others as f64 * 100.0 / all as f64)
}

/// Names and versions from the lock file. A crate with two versions comes twice.
fn versions() -> impl Iterator<Item = (&'static str, &'static str)> {
    LOCK.split("[[package]]").filter_map(|package| {
        let field = |name: &str| package.lines().find_map(|line| line.strip_prefix(name)?.strip_suffix('"'));
        let (name, version) = (field("name = \"")?, field("version = \"")?);
        CRATES.contains(&name).then_some((name, version))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_crate_that_matters_has_a_version() {
        for name in CRATES {
            assert!(versions().any(|(found, version)| found == name && !version.is_empty()), "{name}");
        }
    }

    #[test]
    fn time_of_others_is_neither_idle_nor_ours() {
        let start = Ticks { all: 1_000, busy: 500, own: 10 };
        let end = Ticks { all: 1_200, busy: 650, own: 60 };
        assert_eq!(others(start, end), Some(50.0));
        assert_eq!(others(start, start), None);
    }
}
