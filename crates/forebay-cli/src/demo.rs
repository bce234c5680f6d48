//! `forebay demo`: a pool and a reservoir side by side, before a server that rations connections.

mod backend;
mod bucket;
mod caller;
mod comparison;
mod contest;
mod live;
mod load;
mod plain;
mod pooled;
mod record;
mod reserved;
mod scenario;
mod second;
mod settings;
mod side;
mod tally;
mod view;
mod wording;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use forebay::Seed;
use forebay::rt::TokioRuntime;

use self::contest::{Contest, Frame};
use self::scenario::Scenario;
use crate::ending::{Ending, Requests};
use crate::output;

/// See a pool and a reservoir under the same load, side by side
///
/// Two identical servers in memory let in 25 connections a second and end each session after 8 seconds; Aurora DSQL
/// lets in 100 and ends each after an hour. The same callers come to both. Before the one stands a deadpool, set up
/// as well as it can be, before the other a reservoir. No network is used.
#[derive(Clone, Copy, Debug, Args)]
#[command(
    after_help = "In the live view, q or Esc ends the demo early. The exit status is 0, or 130 after Ctrl-C; \
                        either way the figures so far are printed."
)]
pub(crate) struct Demo {
    /// For how long callers come; the first connections take some three seconds more to open
    #[arg(long, value_name = "SECONDS", default_value_t = 30, allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,

    /// Where all that is random is drawn from: the same seed gives the same callers
    #[arg(long, value_name = "NUMBER", default_value_t = 42, allow_negative_numbers = true)]
    seed: u64,

    /// Print one JSON object to stdout, and nothing else; progress goes to stderr
    #[arg(long, conflicts_with = "plain")]
    json: bool,

    /// Print plain lines instead of the live view; so it is too when stdout is not a terminal
    #[arg(long)]
    plain: bool,
}

/// What a demo is about, from beginning to end.
#[derive(Clone, Copy, Debug)]
struct Run {
    scenario: Scenario,
    seed: Seed,
    length: Duration,
}

/// What came of a run.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    run: Run,
    frame: Frame,
    ending: Ending,
}

impl Demo {
    /// Runs the demo to its end, and tells the exit status.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let tokio = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .context("could not start the threads that the demo runs on")?;
        let runtime = TokioRuntime::new(tokio.handle().clone());
        let run = Run {
            scenario: Scenario::DEMO,
            seed: Seed::new(self.seed),
            length: Duration::from_secs(self.seconds.into()),
        };
        let within_tokio = tokio.enter();
        let requests = Requests::listen(&runtime);
        drop(within_tokio);
        let contest = Contest::start(run.scenario, run.seed, run.length, runtime.clone())?;
        let ending = if self.is_live() {
            live::show(&contest, run, &requests)?
        } else {
            tokio.block_on(plain::report(&contest, run, &requests, &runtime))
        };
        contest.end();
        let outcome = Outcome { run, frame: contest.frame(), ending };
        let text = if self.json { record::record(&outcome) } else { comparison::comparison(&outcome) };
        // Callers may still wait; nobody waits for them.
        tokio.shutdown_background();
        output::print(&text)?;
        Ok(ending.status())
    }

    /// Whether there is someone to look at a live view, and a terminal that can show it.
    fn is_live(self) -> bool {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        !self.json && !self.plain && !dumb && io::stdout().is_terminal()
    }
}

#[cfg(test)]
mod tests {
    use super::backend::Traffic;
    use super::contest::Phase;
    use super::side::Figures;
    use super::tally::{Counts, Waits};
    use super::*;

    /// An outcome as it might be, for tests of what is made of one.
    pub(super) fn outcome() -> Outcome {
        let micros = Duration::from_micros;
        let pooled = Figures {
            ready: 20,
            callers: Counts {
                waiting: 312,
                served: 18,
                acquires: 8_968,
                failed: 1_015,
                slow: 2_599,
                failed_queries: 0,
            },
            waits: Waits {
                p50: micros(107),
                p99: micros(191_000),
                max: micros(1_002_495),
                latest: micros(900),
            },
            traffic: Traffic {
                attempts: 140,
                peak_attempts: 205,
                opened: 60,
                refused: 232,
                opening: 7,
                live: 38,
            },
        };
        let reserved = Figures {
            ready: 42,
            callers: Counts {
                waiting: 0,
                served: 18,
                acquires: 8_968,
                failed: 0,
                slow: 0,
                failed_queries: 0,
            },
            waits: Waits { p50: micros(96), p99: micros(402), max: micros(3_931), latest: micros(900) },
            traffic: Traffic {
                attempts: 11,
                peak_attempts: 12,
                opened: 105,
                refused: 0,
                opening: 1,
                live: 60,
            },
        };
        Outcome {
            run: Run { scenario: Scenario::DEMO, seed: Seed::new(42), length: Duration::from_secs(30) },
            frame: Frame { phase: Phase::Over, elapsed: Duration::from_secs(30), pooled, reserved },
            ending: Ending::Complete,
        }
    }
}
