//! `forebay plan`: what a fleet needs, what it will do, and the settings for it.

mod budget;
mod check;
mod cost;
mod crowd;
mod environment;
mod fill;
mod fleet;
mod growth;
mod input;
mod number;
mod prediction;
mod record;
mod report;
mod suggestion;
mod turnover;
mod warning;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;

use self::check::{Check, Checked};
use self::cost::{Cost, Prices, READ_PRICE, WRITE_PRICE};
use self::fleet::Fleet;
use self::growth::{Growth, growth};
use self::input::Input;
use self::prediction::Prediction;
use self::suggestion::Suggestion;
use self::warning::{Warning, warnings};
use crate::output;
use crate::signals::Ending;
use crate::sim::atomic_file::AtomicFile;
use crate::sim::session::{self, Session};

/// Plan a fleet: what it needs, what fails first, and its settings
///
/// Computes what a fleet needs of its cluster, warns about what will fail, and suggests settings. Nothing is
/// connected to. With --check, the suggested settings run in the simulator, with the code that ships, and the
/// prediction is compared with the result.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Exit status: 0, 1 if --check finds a prediction that is off by more than 10 % or an assertion \
                  that fails, 2 if the input is wrong, 130 after Ctrl-C.\n\nExamples:\n  forebay plan 4x10x2x50      \
                  4 services x 10 instances x 2 pools x 50\n  forebay plan 4x10x2x50 --check\n  forebay \
                  plan --from-env --services 4 --instances 10\n  forebay plan 4x10x2x50 --env-file fleet.env"
)]
pub(crate) struct Plan {
    #[command(flatten)]
    input: Input,

    /// Price of a million write units, in dollars [default: 0.625, since Nov 2024, us-east-1]
    #[arg(long, value_name = "DOLLARS", default_value_t = WRITE_PRICE, hide_default_value = true, value_parser = input::price)]
    write_price: f64,

    /// Price of a million read units, in dollars [default: 0.125, since Nov 2024, us-east-1]
    #[arg(long, value_name = "DOLLARS", default_value_t = READ_PRICE, hide_default_value = true, value_parser = input::price)]
    read_price: f64,

    /// Write the suggested settings to a file
    #[arg(long, value_name = "FILE")]
    env_file: Option<PathBuf>,

    /// Run the suggested settings in the simulator, and compare
    #[arg(long)]
    check: bool,

    /// The seed of the simulation
    #[arg(long, value_name = "NUMBER", default_value_t = 42, requires = "check")]
    seed: u64,

    /// Print one JSON object to stdout, and nothing else
    #[arg(long)]
    json: bool,
}

/// All that is planned for a fleet.
struct Planned {
    fleet: Fleet,
    /// Remarks about the environment.
    notes: Vec<String>,
    prediction: Prediction,
    cost: Cost,
    prices: Prices,
    warnings: Vec<Warning>,
    growth: Vec<Growth>,
    suggestion: Suggestion,
    /// The prediction for the suggestion.
    improved: Prediction,
    improved_cost: Cost,
}

impl Planned {
    fn of(fleet: Fleet, lifetime_given: bool, table: &str, prices: Prices, notes: Vec<String>) -> Self {
        let prediction = Prediction::of(&fleet);
        let suggestion = Suggestion::of(&fleet, lifetime_given, table);
        let improved = Prediction::of(&suggestion.fleet);
        let cost = |fleet: &Fleet, prediction: &Prediction| {
            Cost::of(fleet, prediction.turnover.map_or(0.0, |turnover| turnover.steady))
        };
        Self {
            warnings: warnings(&fleet, &prediction),
            growth: growth(&fleet),
            cost: cost(&fleet, &prediction),
            improved_cost: cost(&suggestion.fleet, &improved),
            prediction,
            prices,
            suggestion,
            improved,
            notes,
            fleet,
        }
    }
}

impl Plan {
    /// Plans, and checks if asked to.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        session::or_bad_input(self.json, self.plan())
    }

    fn plan(&self) -> anyhow::Result<ExitCode> {
        let input::Read { fleet, lifetime_given, table, notes } = self.input.read()?;
        // Before the work: if the file cannot be written, a check is not lost.
        let file = self.env_file.as_deref().map(AtomicFile::create).transpose()?;
        let prices = Prices { write: self.write_price, read: self.read_price };
        let planned = Planned::of(fleet, lifetime_given, &table, prices, notes);
        // Before the first line is printed: from then on a signal ends the check cleanly.
        let session = self.check.then(Session::start).transpose()?;
        if !self.json {
            output::print(&report::plan(&planned, self.env_file.as_deref()))?;
        }
        if let Some(mut file) = file {
            file.write_all(planned.suggestion.env_file().as_bytes()).context("cannot write the env file")?;
            file.finish()?;
        }
        let checked =
            match session.map(|session| self.simulate(&session, &planned.suggestion.fleet)).transpose()? {
                Some(Err(ending)) => {
                    let _ = writeln!(io::stderr(), "the check ended early");
                    return Ok(ending.status());
                }
                Some(Ok(checked)) => Some(checked),
                None => None,
            };
        if self.json {
            output::print(&format!("{:#}\n", record::plan(&planned, checked.as_ref())))?;
        } else if let Some(checked) = &checked {
            output::print(&report::check(checked))?;
        }
        Ok(session::status(checked.is_none_or(|checked| checked.passed())))
    }

    /// Runs the check. The inner error is the signal that ended it.
    fn simulate(&self, session: &Session, fleet: &Fleet) -> anyhow::Result<Result<Checked, Ending>> {
        let check = Check::of(fleet)?;
        let outcome = session.run("check", &check.scenario, self.seed, None)?;
        Ok(outcome.map(|outcome| check.compare(&outcome)))
    }
}

#[cfg(test)]
mod tests;
