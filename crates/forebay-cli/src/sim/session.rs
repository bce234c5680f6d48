//! What `sim` and `plan --check` share: a run that a signal can end, and its exit status.

use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::ExitCode;

use anyhow::Context;
use forebay::rt::TokioRuntime;
use forebay_sim::{Outcome, Scenario, run};
use serde_json::{Value, json};

use super::atomic_file::AtomicFile;
use super::watcher::Watcher;
use crate::output;
use crate::progress_bar::ProgressBar;
use crate::signals::{Ending, Requests};

/// The exit status if the input is wrong.
const BAD_INPUT: u8 = 2;

/// Listens for signals as long as it lives.
pub(crate) struct Session {
    runtime: TokioRuntime,
    pub(super) requests: Requests,
    /// It receives the signals.
    _tokio: tokio::runtime::Runtime,
}

impl Session {
    pub(crate) fn start() -> anyhow::Result<Self> {
        let tokio = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .context("cannot listen for signals")?;
        let runtime = TokioRuntime::new(tokio.handle().clone());
        let within_tokio = tokio.enter();
        let requests = Requests::listen(&runtime);
        drop(within_tokio);
        Ok(Self { runtime, requests, _tokio: tokio })
    }

    pub(super) fn bar(&self, name: &str) -> ProgressBar {
        ProgressBar::new(name, self.runtime.clone())
    }

    /// Runs a scenario, with a progress bar of this name. The inner error is the signal that ended it.
    pub(crate) fn run(
        &self,
        name: &str,
        scenario: &Scenario,
        seed: u64,
        rows: Option<&mut AtomicFile>,
    ) -> anyhow::Result<Result<Outcome, Ending>> {
        let bar = self.bar(name);
        let mut watcher = Watcher::new(&bar, &self.requests, scenario.duration, rows);
        let ran = catch_unwind(AssertUnwindSafe(|| run(scenario, seed, &mut watcher)));
        let broken = watcher.finish();
        bar.clear();
        broken.context("cannot write the rows")?;
        let outcome = ran.unwrap_or_else(|panic| {
            let replay = scenario.replay(seed);
            let _ = writeln!(io::stderr(), "the run panicked, which is a bug; replay it: {replay}");
            resume_unwind(panic)
        });
        Ok(outcome.ok_or_else(|| self.ending()))
    }

    /// The signal that came.
    pub(super) fn ending(&self) -> Ending {
        self.requests.asked().unwrap_or(Ending::Interrupted)
    }
}

/// The exit status of a run to its end.
pub(crate) fn status(passed: bool) -> ExitCode {
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Tells what is wrong with the input: to people, and with `--json` also to programs.
pub(crate) fn or_bad_input(json: bool, result: anyhow::Result<ExitCode>) -> anyhow::Result<ExitCode> {
    let Err(error) = result else { return result };
    let text = format!("{error:#}");
    output::say(&text);
    if json {
        let record: Value = json!({ "error": text });
        output::print(&format!("{record:#}\n"))?;
    }
    Ok(ExitCode::from(BAD_INPUT))
}
