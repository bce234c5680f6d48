//! `forebay demo`: a pool and a reservoir side by side, with a server that limits connections.

mod backoff;
mod browser;
mod contender;
mod contest;
mod database;
mod fleet;
mod incident;
mod page;
mod plain;
mod process;
mod report;
mod scenario;
mod screen;
mod side;
#[cfg(feature = "sqlx")]
mod sqlx_pool;
mod tally;
#[cfg(test)]
mod virtual_time;

use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use forebay::Seed;
use forebay::rt::TokioRuntime;

use self::contest::Contest;
use self::page::Page;
use crate::output;
use crate::signals::Requests;

/// Compare plain pools and reservoirs while things go wrong
///
/// Local clusters of Aurora DSQL run in this process, with the same limits: 25 opens a second, and 60 connections for
/// three instances of a service. The same callers use all of them: on one side through deadpool, set up as well as it
/// can be, on the other through reservoirs that share one budget through a table; in a build with the feature sqlx,
/// also through sqlx's pool, which refills. Then all sessions expire, all sockets are cut, an instance is killed, and
/// the table is unavailable. Nothing needs to be installed.
#[derive(Clone, Copy, Debug, Args)]
#[command(
    after_help = "In the live view, q or Esc ends the demo early. The exit status is 0, or 130 after Ctrl-C; \
                  it prints the figures so far in either case. The fields of the JSON are described in \
                  crates/forebay-cli/README.md."
)]
pub(crate) struct Demo {
    /// For how long callers come: a tenth is quiet, and the incidents share the rest. Opening the first connections
    /// takes a few seconds more
    #[arg(long, value_name = "SECONDS", default_value_t = 40, allow_negative_numbers = true,
          value_parser = clap::value_parser!(u32).range(20..=3600))]
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

    /// Where to serve the live page, on loopback; 127.0.0.1:9464 or any free port by default
    #[arg(long, value_name = "ADDRESS", value_parser = page::loopback)]
    listen: Option<SocketAddr>,

    /// Do not open the live page in a browser
    #[arg(long)]
    no_browser: bool,
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
        let page = tokio.block_on(Page::serve(self.listen, runtime.clone()))?;
        let url = page.url();
        let (seed, length) = (Seed::new(self.seed), Duration::from_secs(self.seconds.into()));
        let contest = Contest::start(seed, length, page, runtime.clone())?;
        let ending = if self.is_live() {
            if !self.no_browser {
                browser::open(&url);
            }
            screen::show(&contest, &url, &requests)
        } else {
            Ok(tokio.block_on(report::progress(&contest, &url, &requests, &runtime)))
        };
        contest.end();
        let frame = contest.frame();
        // Also after an error: the clusters have files to remove.
        let failure = contest.stop();
        // Callers may still be waiting. The demo does not wait for them.
        tokio.shutdown_background();
        let ending = failure.map_or(ending, Err)?;
        let text =
            if self.json { report::record(seed, &frame, ending) } else { report::comparison(seed, &frame) };
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
    use super::contender::Contender;
    use super::contest::{Frame, Phase};
    use super::database::Traffic;
    use super::side::Snapshot;
    use super::tally::{Figures, Waits};
    use super::*;

    /// A frame in the second incident of four, for tests of how it is shown.
    pub(super) fn frame() -> Frame {
        let micros = Duration::from_micros;
        let waits = |acquires, failed, p99, max| Waits {
            acquires,
            failed,
            slow: failed,
            p50: micros(107),
            p99: micros(p99),
            max: micros(max),
            ..Waits::default()
        };
        let quiet = waits(240, 0, 900, 1_100);
        let side = |ready, opening, total, traffic| {
            let periods = [quiet, total, total, total, total];
            let latest_start = micros(900);
            let figures = Figures {
                lent: 18,
                waiting: 312,
                started: 9_300,
                latest_start,
                total,
                periods,
                ..Figures::default()
            };
            Snapshot { ready, opening, sessions: 20, figures, traffic }
        };
        let traffic = Traffic { attempts: 140, peak_attempts: 205, opened: 60, refused: 232 };
        let plain = side(20, 7, waits(8_968, 1_015, 191_000, 1_002_495), traffic);
        let traffic = Traffic { attempts: 11, peak_attempts: 26, opened: 105, refused: 0 };
        let mut fleet = side(42, 1, waits(8_968, 0, 402, 3_931), traffic);
        fleet.figures.waiting = 0;
        let length = Duration::from_secs(40);
        let sides = Contender::ALL.map(|one| if one == Contender::Reservoir { fleet } else { plain });
        Frame { phase: Phase::Over, elapsed: length / 2, length, sides }
    }
}
