//! Where and when something was measured.

use std::fmt;
use std::fs;

use serde_json::{Value, json};

use crate::clock;

/// The versions this was built with.
const LOCK: &str = include_str!("../../../Cargo.lock");

/// The crates whose versions matter to a reader of the figures.
const CRATES: [&str; 9] = [
    "bb8",
    "crossbeam-queue",
    "deadpool",
    "forebay",
    "mobc",
    "parking_lot",
    "r2d2",
    "rustix",
    "tokio",
];

/// A machine at a time.
#[derive(Clone, Debug)]
pub struct Machine {
    cpu: String,
    cores: usize,
    /// How many processes wanted to run, over the last 1, 5 and 15 minutes.
    load_at_start: String,
    load_at_end: String,
    date: String,
}

impl Machine {
    /// This machine, now.
    #[must_use]
    pub fn look() -> Self {
        Self {
            cpu: cpu(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            load_at_start: load(),
            load_at_end: String::new(),
            date: clock::today(),
        }
    }

    /// Notes how busy it is at the end.
    pub fn look_again(&mut self) {
        self.load_at_end = load();
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "cpu": self.cpu,
            "cores": self.cores,
            "load_at_start": self.load_at_start,
            "load_at_end": self.load_at_end,
            "date": self.date,
            "versions": versions().map(|(name, version)| json!([name, version])).collect::<Value>(),
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpu, cores, load_at_start, load_at_end, date } = self;
        write!(f, "{date}, {cpu}, {cores} cores, load average {load_at_start} before, {load_at_end} after;")?;
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

/// Names and versions as the lock file has them; a crate that is in it twice comes twice.
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
}
