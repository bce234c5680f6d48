//! `forebay sim`: a fleet against a modelled cluster, in virtual time.

mod bar;
mod draft;
mod seeds;
mod source;
mod watcher;

use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use forebay::rt::TokioRuntime;
use forebay_sim::{Outcome, Row, run, run_seeds, shipped};

use self::bar::Bar;
use self::draft::{Draft, keep_apart};
use self::seeds::SeedRange;
use self::source::Source;
use self::watcher::Watcher;
use crate::ending::{Ending, Requests};
use crate::output;

/// Run a fleet of reservoirs against a modelled cluster, in virtual time
///
/// The cluster, its credential service, the shared store, machines and their clocks are modelled; reservoir, refill,
/// expiry, limiter and leases are the code that ships. The same scenario and seed take the same course on every machine.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Exit status: 0 if every assertion holds, 1 if one does not, 2 if the scenario or a file is \
                        wrong, 130 after Ctrl-C.\n\nExamples:\n  forebay sim                       run the scenario \
                        'local'\n  forebay sim --list                what else is shipped\n  forebay sim mass-drop \
                        --report drop.html\n  forebay sim my.yaml --set limiterPerSec=50 --out rows.csv\n  forebay sim \
                        small-fleet --seeds 1..1000"
)]
pub(crate) struct Sim {
    /// The name of a shipped scenario, or a YAML file
    #[arg(value_name = "SCENARIO", default_value = "local")]
    scenario: String,

    /// Draw all chance from this number, instead of the scenario's own
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,

    /// Run the seeds from one number to another, both included, on all cores, up to the first that fails
    #[arg(long, value_name = "FROM..TO", conflicts_with_all = ["seed", "out", "report"])]
    seeds: Option<SeedRange>,

    /// Run all seeds, also after one has failed, and count those that do
    #[arg(long, requires = "seeds")]
    keep_going: bool,

    /// Override a key of the scenario; can be given several times
    #[arg(long = "set", value_name = "PATH=VALUE")]
    settings: Vec<String>,

    /// Write how each instance stood at each sample, as CSV
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Write one page with charts
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,

    /// Print one JSON object to stdout, and nothing else
    #[arg(long)]
    json: bool,

    /// List the shipped scenarios
    #[arg(long, exclusive = true)]
    list: bool,
}

/// The scenario or a file is wrong.
const BAD_INPUT: u8 = 2;

impl Sim {
    /// Runs the simulation to its end, and tells the exit status.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        if self.list {
            return list();
        }
        match self.simulate() {
            Err(error) => {
                // If even this cannot be written, the exit status still tells.
                let _ = writeln!(io::stderr(), "{error:#}");
                Ok(ExitCode::from(BAD_INPUT))
            }
            status => status,
        }
    }

    fn simulate(&self) -> anyhow::Result<ExitCode> {
        let source = Source::find(&self.scenario)?;
        keep_apart(source.name(), &[self.out.as_deref(), self.report.as_deref()])?;
        let scenario = source.scenario(&self.settings)?;
        // Before the work, so that a file that cannot be written is no disappointment after it.
        let mut rows = self.out.as_deref().map(Draft::of).transpose()?;
        let report = self.report.as_deref().map(Draft::of).transpose()?;
        let tokio = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .context("could not listen for signals")?;
        let runtime = TokioRuntime::new(tokio.handle().clone());
        let within_tokio = tokio.enter();
        let requests = Requests::listen(&runtime);
        drop(within_tokio);
        if let Some(range) = self.seeds {
            let bar = Bar::new(source.name(), runtime);
            let found = run_seeds(&scenario, range.seeds(), self.keep_going, &|done| {
                bar.show(done, range.count(), || format!("{done} of {} seeds", range.count()));
                requests.go_on()
            });
            bar.clear();
            return self.conclude_seeds(&source, range, &found, &requests);
        }
        if let Some(rows) = &mut rows {
            writeln!(rows, "{}", Row::HEADER).context("could not write the rows")?;
        }
        let bar = Bar::new(source.name(), runtime);
        let mut watcher = Watcher::new(&bar, &requests, scenario.duration, rows.as_mut());
        let seed = self.seed.unwrap_or(scenario.seed);
        let ran = catch_unwind(AssertUnwindSafe(|| run(&scenario, seed, &mut watcher)));
        let broken = watcher.finish();
        bar.clear();
        broken.context("could not write the rows")?;
        let outcome = ran.unwrap_or_else(|panic| {
            let _ = writeln!(
                io::stderr(),
                "the run panicked, which is a bug; replay it: {}",
                scenario.replay(seed)
            );
            resume_unwind(panic)
        });
        let Some(outcome) = outcome else {
            let _ = writeln!(io::stderr(), "broken off before its end; nothing was written");
            return Ok(requests.asked().map_or(ExitCode::SUCCESS, Ending::status));
        };
        if let Some(mut report) = report {
            report
                .write_all(forebay_sim::html_report(&outcome).as_bytes())
                .context("could not write the report")?;
            report.finish()?;
        }
        rows.map_or(Ok(()), Draft::finish)?;
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
