//! `forebay demo`: a pool and a reservoir side by side, with a server that limits connections.

mod contest;
mod report;
mod scenario;
mod screen;
mod server;
mod side;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use forebay::Seed;
use forebay::rt::TokioRuntime;

use self::contest::Contest;
use crate::output;
use crate::signals::Requests;

/// Compare a pool and a reservoir under the same load, side by side
///
/// Two identical servers in memory accept 25 connections a second and end each session after 8 seconds.
/// Aurora DSQL accepts 100 and ends each after an hour. The same callers use both: one through a deadpool,
/// set up as well as it can be, the other through a reservoir. The demo uses no network.
#[derive(Clone, Copy, Debug, Args)]
#[command(
    after_help = "In the live view, q or Esc ends the demo early. The exit status is 0, or 130 after Ctrl-C; \
                  it prints the figures so far in either case."
)]
pub(crate) struct Demo {
    /// For how long callers come; opening the first connections takes about three seconds more
    #[arg(long, value_name = "SECONDS", default_value_t = 30, allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,

    /// The seed of everything random: the same seed gives the same callers
    #[arg(long, value_name = "NUMBER", default_value_t = 42, allow_negative_numbers = true)]
    seed: u64,

    /// Print one JSON object to stdout, and nothing else; progress goes to stderr
    #[arg(long, conflicts_with = "plain")]
    json: bool,

    /// Print plain lines instead of the live view; the default if stdout is not a terminal
    #[arg(long)]
    plain: bool,
}

impl Demo {
    /// Runs the demo to its end.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let tokio = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .context("cannot start the threads that the demo runs on")?;
        let runtime = TokioRuntime::new(tokio.handle().clone());
        let requests = {
            let _within_tokio = tokio.enter();
            Requests::listen(&runtime)
        };
        let (seed, length) = (Seed::new(self.seed), Duration::from_secs(self.seconds.into()));
        let contest = Contest::start(seed, length, Arc::new(runtime.clone()))?;
        let ending = if self.is_live() {
            screen::show(&contest, &requests)?
        } else {
            tokio.block_on(report::progress(&contest, &requests, &runtime))
        };
        contest.end();
        let frame = contest.frame();
        let text =
            if self.json { report::record(seed, &frame, ending) } else { report::comparison(seed, &frame) };
        // Callers may still be waiting. The demo does not wait for them.
        tokio.shutdown_background();
        output::print(&text)?;
        Ok(ending.status())
    }

    /// Whether stdout is a terminal that can show a live view, and nothing else was asked for.
    fn is_live(self) -> bool {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        !self.json && !self.plain && !dumb && io::stdout().is_terminal()
    }
}

#[cfg(test)]
mod tests {
    use super::contest::{Frame, Phase};
    use super::server::Traffic;
    use super::side::Figures;
    use super::*;

    /// A frame at the end of a run, for tests of how it is shown.
    pub(super) fn frame() -> Frame {
        let micros = Duration::from_micros;
        let deadpool = Figures {
            ready: 20,
            lent: 18,
            waiting: 312,
            acquires: 8_968,
            failed: 1_015,
            slow: 2_599,
            failed_queries: 0,
            p50: micros(107),
            p99: micros(191_000),
            max: micros(1_002_495),
            latest_start: micros(900),
            traffic: Traffic { attempts: 140, peak_attempts: 205, opened: 60, refused: 232, opening: 7 },
        };
        let reservoir = Figures {
            ready: 42,
            lent: 18,
            acquires: 8_968,
            p50: micros(96),
            p99: micros(402),
            max: micros(3_931),
            latest_start: micros(900),
            traffic: Traffic { attempts: 11, peak_attempts: 12, opened: 105, refused: 0, opening: 1 },
            ..Figures::default()
        };
        let length = Duration::from_secs(30);
        Frame { phase: Phase::Over, elapsed: length, length, sides: [deadpool, reservoir] }
    }
}
