//! What a run shows while it goes on, on stderr.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use forebay::duration::show;
use forebay::rt::TokioRuntime;
use forebay_schema::{Event, Finding};
use parking_lot::Mutex;

use super::report::count;
use crate::printable::printable_lines;
use crate::progress_bar::ProgressBar;

/// A bar on a terminal, and lines elsewhere.
#[derive(Clone)]
pub(super) struct Progress(Arc<Inner>);

struct Inner {
    is_quiet: bool,
    is_terminal: bool,
    bar: ProgressBar,
    state: Mutex<State>,
}

/// Where the run is.
#[derive(Default)]
struct State {
    statement: usize,
    of: usize,
    /// The job that was told about, and how many seconds ago.
    job: Option<(String, u64)>,
}

/// Without a terminal, a job that goes on is told about this often, in seconds.
const REMIND: u64 = 30;
/// How many characters fit beside the bar.
const WORDS: usize = 40;

impl Progress {
    pub(super) fn new(runtime: TokioRuntime, is_quiet: bool) -> Self {
        let is_terminal = io::stderr().is_terminal();
        Self(Arc::new(Inner {
            is_quiet,
            is_terminal,
            bar: ProgressBar::new("schema", runtime),
            state: Mutex::default(),
        }))
    }

    pub(super) fn show(&self, event: &Event) {
        if self.0.is_quiet {
            return;
        }
        let mut state = self.0.state.lock();
        match event {
            Event::Waiting { holder } => self.line(&format!("waiting: another run holds the lock ({holder})")),
            Event::TookOver { holder } => {
                self.line(&format!("took over from a run that has not moved for its lease ({holder})"));
            }
            Event::Fixed(Finding { file, line, remedy, .. }) => self.line(&format!("{file}:{line}: fixed: {remedy}")),
            Event::File { file, done: 0, of } => self.line(&format!("{file}: {}", count(*of, "statement"))),
            Event::File { file, done, of } => {
                let are = if *done == 1 { "is" } else { "are" };
                self.line(&format!("{file}: {}, {done} {are} applied already", count(*of, "statement")));
            }
            Event::Statement { file, line, number, of, summary } => {
                *state = State { statement: *number, of: *of, job: None };
                if self.0.is_terminal {
                    self.bar(&state, summary);
                } else {
                    self.line(&format!("{file}:{line}: {number} of {of}: {summary}"));
                }
            }
            Event::Recovered { file, line, applied } => self.line(&if *applied {
                format!("{file}:{line}: an earlier attempt ended without an answer; the catalog shows that it took effect")
            } else {
                format!("{file}:{line}: an earlier attempt ended without an answer, and took no effect; it runs again")
            }),
            Event::Job { job, object, status, waited } => {
                let waited = waited.as_secs();
                let told = format!("{object}: {status}, {}", show(Duration::from_secs(waited)));
                if self.0.is_terminal {
                    self.bar(&state, &told);
                }
                let is_due = match &state.job {
                    Some((known, at)) => known != job || waited >= at + REMIND,
                    None => true,
                };
                if is_due && !self.0.is_terminal {
                    self.line(&format!("{told} (job {job})"));
                }
                if is_due {
                    state.job = Some((job.clone(), waited));
                }
            }
            Event::Rebuild { index } => self.line(&format!("{index}: its build had failed; it is dropped and built again")),
            Event::Applied { file } => self.line(&format!("{file}: applied")),
            _ => {}
        }
    }

    fn bar(&self, state: &State, words: &str) {
        let done = u64::try_from(state.statement.saturating_sub(1)).unwrap_or_default();
        let of = u64::try_from(state.of).unwrap_or(u64::MAX);
        let words: String = printable_lines(words).chars().take(WORDS).collect();
        self.0.bar.show(done, of, || words);
    }

    fn line(&self, text: &str) {
        self.0.bar.clear();
        // If it cannot be written, the run goes on.
        let _ = writeln!(io::stderr(), "{}", printable_lines(text));
    }

    pub(super) fn clear(&self) {
        self.0.bar.clear();
    }
}
