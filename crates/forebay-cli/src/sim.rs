//! `forebay sim`: a fleet against a modelled cluster, in virtual time.

pub(crate) mod atomic_file;
mod seeds;
pub(crate) mod session;
mod source;
mod watcher;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use forebay_sim::{Outcome, Row, run_seeds, shipped};

use self::atomic_file::{AtomicFile, check_distinct};
use self::seeds::SeedRange;
use self::session::Session;
use self::source::Source;
use crate::output;

/// Simulate a fleet of reservoirs and its cluster, in virtual time
///
/// The cluster, its credential service, the shared store, the machines and their clocks are models. The
/// reservoir, refill, expiry, limiter and leases are the code that ships. The same scenario and seed give the
/// same run on every machine.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Exit status: 0 if every assertion holds, 1 if one does not, 2 if the scenario or a file is \
                  wrong, 130 after Ctrl-C.\n\nExamples:\n  forebay sim                       run the scenario \
                  'local'\n  forebay sim --list                list the others\n  forebay sim mass-drop \
                  --report drop.html\n  forebay sim my.yaml --set limiterPerSec=50 --out rows.csv\n  forebay sim \
                  small-fleet --seeds 1..1000"
)]
pub(crate) struct Sim {
    /// The name of a shipped scenario, or a YAML file
    #[arg(value_name = "SCENARIO", default_value = "local")]
    scenario: String,

    /// The seed of everything random, instead of the scenario's
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,

    /// Run these seeds, both ends included, on all cores, up to the first that fails
    #[arg(long, value_name = "FROM..TO", conflicts_with_all = ["seed", "out", "report"])]
    seeds: Option<SeedRange>,

    /// Run all seeds, also after one fails, and count the failures
    #[arg(long, requires = "seeds")]
    keep_going: bool,

    /// Override a key of the scenario; can be given several times
    #[arg(long = "set", value_name = "PATH=VALUE")]
    settings: Vec<String>,

    /// Write the state of each instance at each sample, as CSV
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Write an HTML page with charts
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// Print one JSON object to stdout, and nothing else
    #[arg(long)]
    json: bool,

    /// List the shipped scenarios
    #[arg(long, exclusive = true)]
    list: bool,
}

impl Sim {
    /// Runs the simulation to its end.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        if self.list {
            return list();
        }
        session::or_bad_input(self.json, self.simulate())
    }

    fn simulate(&self) -> anyhow::Result<ExitCode> {
        let source = Source::find(&self.scenario)?;
        check_distinct(source.name(), &[self.out.as_deref(), self.report.as_deref()])?;
        let scenario = source.scenario(&self.settings)?;
        // Before the work: if a file cannot be written, the run is not lost.
        let mut rows = self.out.as_deref().map(AtomicFile::create).transpose()?;
        let report = self.report.as_deref().map(AtomicFile::create).transpose()?;
        let session = Session::start()?;
        if let Some(range) = self.seeds {
            let bar = session.bar(source.name());
            let found = run_seeds(&scenario, range.seeds(), self.keep_going, &|done| {
                bar.show(done, range.count(), || format!("{done} of {} seeds", range.count()));
                session.requests.go_on()
            });
            bar.clear();
            return self.conclude_seeds(&source, range, &found, &session);
        }
        if let Some(rows) = &mut rows {
            writeln!(rows, "{}", Row::HEADER).context("cannot write the rows")?;
        }
        let seed = self.seed.unwrap_or(scenario.seed);
        let outcome = match session.run(source.name(), &scenario, seed, rows.as_mut())? {
            Ok(outcome) => outcome,
            Err(ending) => {
                let _ = writeln!(io::stderr(), "ended early; nothing was written");
                return Ok(ending.status());
            }
        };
        if let Some(mut report) = report {
            report
                .write_all(forebay_sim::html_report(&outcome).as_bytes())
                .context("cannot write the report")?;
            report.finish()?;
        }
        rows.map_or(Ok(()), AtomicFile::finish)?;
        self.conclude(&outcome)
    }

    fn conclude(&self, outcome: &Outcome) -> anyhow::Result<ExitCode> {
        let text = if self.json { format!("{:#}\n", outcome.json()) } else { outcome.to_string() };
        output::print(&text)?;
        Ok(session::status(outcome.passed()))
    }

    fn conclude_seeds(
        &self,
        source: &Source,
        range: SeedRange,
        found: &forebay_sim::SeedReport,
        session: &Session,
    ) -> anyhow::Result<ExitCode> {
        let text = if self.json {
            format!("{:#}\n", seeds::record(source.name(), range, found))
        } else {
            seeds::summary(source.name(), range, found)
        };
        output::print(&text)?;
        let is_cut_short = found.first_failure.is_none() && found.broken_off;
        Ok(if is_cut_short {
            session.ending().status()
        } else {
            session::status(found.first_failure.is_none())
        })
    }
}

fn list() -> anyhow::Result<ExitCode> {
    let width = shipped().iter().map(|shipped| shipped.name.len()).max().unwrap_or(0);
    let lines: String =
        shipped().iter().map(|shipped| format!("{:<width$}  {}\n", shipped.name, shipped.about())).collect();
    output::print(&lines)?;
    Ok(ExitCode::SUCCESS)
}
