//! What the subcommands share: their options, their sections and their runtime.

use std::fmt::Debug;

use anyhow::Context;
use clap::{Args, ValueEnum};
use tokio::runtime::Runtime;

use crate::report::Report;

/// The options of a subcommand that has sections.
#[derive(Debug, Args)]
pub(crate) struct Selection<S: ValueEnum + Clone + Send + Sync + 'static> {
    /// Measure less, for a first look.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Measure only this section; repeat the option for several.
    #[arg(long, value_enum, value_name = "SECTION")]
    only: Vec<S>,
}

impl<S: ValueEnum + Clone + PartialEq + Debug + Send + Sync + 'static> Selection<S> {
    /// Measures the selected sections, in the order in which the enum declares them.
    pub(crate) fn run(
        &self,
        name: &'static str,
        mut measure: impl FnMut(&S, &Runtime, &mut Report) -> anyhow::Result<()>,
    ) -> anyhow::Result<Report> {
        let (mut report, runtime) = (Report::new(name), runtime()?);
        for section in S::value_variants() {
            if self.only.is_empty() || self.only.contains(section) {
                measure(section, &runtime, &mut report).with_context(|| format!("section {section:?}"))?;
            }
        }
        if cfg!(debug_assertions) {
            report.note("THIS IS A DEBUG BUILD: its numbers mean nothing, use --release");
        }
        Ok(report)
    }
}

/// The runtime that every contestant runs on: two worker threads.
pub(crate) fn runtime() -> anyhow::Result<Runtime> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.context("starting the tokio runtime")
}

/// Prints what is being measured to standard error, so that standard output holds the report and nothing
/// else.
pub(crate) fn progress(what: &str) {
    eprintln!("measuring {what} ...");
}
