//! `forebay sim`: a fleet against a modelled cluster, in virtual time.

pub(crate) mod atomic_file;
pub(crate) mod progress_bar;
mod seeds;
mod source;
pub(crate) mod watcher;

use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use forebay::rt::TokioRuntime;
use forebay_sim::{Outcome, Row, run, run_seeds, shipped};

use self::atomic_file::{AtomicFile, check_distinct};
use self::progress_bar::ProgressBar;
use self::seeds::SeedRange;
use self::source::Source;
use self::watcher::Watcher;
use crate::output;
use crate::signals::{Ending, Requests};

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

/// The exit status if the scenario or a file is wrong.
const BAD_INPUT: u8 = 2;

impl Sim {
    /// Runs the simulation to its end.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        if self.list {
            return list();
        }
        match self.simulate() {
            Err(error) => {
                output::say(&format!("{error:#}"));
                Ok(ExitCode::from(BAD_INPUT))
            }
            status => status,
        }
    }

    fn simulate(&self) -> anyhow::Result<ExitCode> {
        let source = Source::find(&self.scenario)?;
        check_distinct(source.name(), &[self.out.as_deref(), self.report.as_deref()])?;
        let scenario = source.scenario(&self.settings)?;
        // Before the work: if a file cannot be written, the run is not lost.
        let mut rows = self.out.as_deref().map(AtomicFile::create).transpose()?;
        let report = self.report.as_deref().map(AtomicFile::create).transpose()?;
        let tokio = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .context("cannot listen for signals")?;
        let runtime = TokioRuntime::new(tokio.handle().clone());
        let within_tokio = tokio.enter();
        let requests = Requests::listen(&runtime);
        drop(within_tokio);
        if let Some(range) = self.seeds {
            let bar = ProgressBar::new(source.name(), runtime);
            let found = run_seeds(&scenario, range.seeds(), self.keep_going, &|done| {
                bar.show(done, range.count(), || format!("{done} of {} seeds", range.count()));
                requests.go_on()
            });
            bar.clear();
            return self.conclude_seeds(&source, range, &found, &requests);
        }
        if let Some(rows) = &mut rows {
            writeln!(rows, "{}", Row::HEADER).context("cannot write the rows")?;
        }
        let bar = ProgressBar::new(source.name(), runtime);
        let mut watcher = Watcher::new(&bar, &requests, scenario.duration, rows.as_mut());
        let seed = self.seed.unwrap_or(scenario.seed);
        let ran = catch_unwind(AssertUnwindSafe(|| run(&scenario, seed, &mut watcher)));
        let broken = watcher.finish();
        bar.clear();
        broken.context("cannot write the rows")?;
        let outcome = ran.unwrap_or_else(|panic| {
            let _ = writeln!(
                io::stderr(),
                "the run panicked, which is a bug; replay it: {}",
                scenario.replay(seed)
            );
            resume_unwind(panic)
        });
        let Some(outcome) = outcome else {
            let _ = writeln!(io::stderr(), "ended early; nothing was written");
            return Ok(requests.asked().map_or(ExitCode::SUCCESS, Ending::status));
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
        Ok(if outcome.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn conclude_seeds(
        &self,
        source: &Source,
        range: SeedRange,
        found: &forebay_sim::SeedReport,
        requests: &Requests,
    ) -> anyhow::Result<ExitCode> {
        let text = if self.json {
            format!("{:#}\n", seeds::record(source.name(), range, found))
        } else {
            seeds::summary(source.name(), range, found)
        };
        output::print(&text)?;
        Ok(match (&found.first_failure, found.broken_off) {
            (Some(_), _) => ExitCode::FAILURE,
            (None, true) => requests.asked().map_or(ExitCode::SUCCESS, Ending::status),
            (None, false) => ExitCode::SUCCESS,
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
