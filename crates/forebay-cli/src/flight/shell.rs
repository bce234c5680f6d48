//! Runs statements and commands, one after another.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use forebay::rt::TokioRuntime;

use super::command::Command;
use super::connection::{Closing, Connection};
use super::format::Format;
use super::interrupts::{INTERRUPTED, Interrupts};
use super::options::Options;
use super::out::Out;
use super::running::RunError;
use super::splitter::{Piece, Splitter};
use super::transaction::Transaction;
use crate::access::UsageError;

mod interactive;
mod messages;
mod statements;

pub(crate) use messages::say;

/// How deep files may run files.
const MAX_DEPTH: usize = 16;

/// How a statement, a command or a shell ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// The error has been reported.
    Failed,
    Interrupted,
    /// The user leaves.
    Quit,
    /// The reader of the results has gone away.
    ReaderGone,
}

impl Outcome {
    pub(crate) fn status(self) -> ExitCode {
        match self {
            Self::Done | Self::Quit | Self::ReaderGone => ExitCode::SUCCESS,
            Self::Failed => ExitCode::FAILURE,
            Self::Interrupted => ExitCode::from(INTERRUPTED),
        }
    }
}

/// A shell and its session.
pub(crate) struct Shell {
    tokio: tokio::runtime::Runtime,
    runtime: Arc<TokioRuntime>,
    connection: Connection,
    interrupts: Interrupts,
    out: Out,
    format: Format,
    timing: bool,
    timeout: Option<Duration>,
    is_interactive: bool,
    /// The file that a statement is from, for errors.
    source: Option<String>,
    depth: usize,
    has_written_arrow: bool,
    transaction: Transaction,
    /// The last statement was cancelled.
    was_cancelled: bool,
    /// The last statement was interrupted, and the server may not have stopped it.
    may_still_run: bool,
    /// The names for completion may have changed.
    names_are_old: bool,
}

impl Shell {
    pub(crate) fn new(options: &Options, is_interactive: bool) -> anyhow::Result<Self> {
        let connection = Connection::new(options.connection()?);
        let out =
            Out::open(options.output.as_deref()).map_err(|error| UsageError::new(format!("{error:#}")))?;
        let format = options.format();
        check_format(format, &out)?;
        // Another thread keeps the connection alive while this one waits for the user.
        let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let runtime = TokioRuntime::new(tokio.handle().clone());
        let interrupts = {
            let _context = tokio.enter();
            Interrupts::listen(&runtime, is_interactive)?
        };
        Ok(Self {
            tokio,
            runtime: Arc::new(runtime),
            connection,
            interrupts,
            out,
            format,
            timing: options.timing || is_interactive,
            timeout: options.timeout,
            is_interactive,
            source: None,
            depth: 0,
            has_written_arrow: false,
            transaction: Transaction::None,
            was_cancelled: false,
            may_still_run: false,
            names_are_old: true,
        })
    }

    /// Runs the statements of the command line.
    pub(crate) fn commands(&mut self, texts: &[String]) -> Outcome {
        for (place, text) in texts.iter().enumerate() {
            self.source = (texts.len() > 1).then(|| format!("-c number {}", place + 1));
            let outcome = self.text(text.as_bytes());
            if outcome != Outcome::Done {
                return outcome;
            }
        }
        Outcome::Done
    }

    /// Runs the statements of stdin.
    pub(crate) fn stdin(&mut self) -> Outcome {
        self.source = Some("stdin".to_owned());
        self.text(io::stdin().lock())
    }

    /// Runs the statements of a file.
    pub(crate) fn file(&mut self, path: &Path) -> Outcome {
        match File::open(path) {
            Ok(file) => {
                let before = self.source.replace(path.display().to_string());
                let outcome = self.text(BufReader::new(file));
                self.source = before;
                outcome
            }
            Err(error) => self.fail(&format!("cannot read {}: {error}", path.display())),
        }
    }

    /// Runs each statement as soon as it is complete, until one fails.
    pub(crate) fn text(&mut self, mut text: impl BufRead) -> Outcome {
        let mut splitter = Splitter::default();
        let mut line = String::new();
        loop {
            line.clear();
            match text.read_line(&mut line) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => return self.fail(&format!("cannot read the statements: {error}")),
            }
            let outcome = self.pieces(splitter.feed(&line));
            if outcome != Outcome::Done {
                return outcome;
            }
        }
        match splitter.finish() {
            Ok(rest) => self.pieces(rest),
            Err(unfinished) => self.fail(&unfinished.to_string()),
        }
    }

    fn pieces(&mut self, pieces: impl IntoIterator<Item = Piece>) -> Outcome {
        for piece in pieces {
            let outcome = match piece {
                Piece::Statement(statement) => self.statement(&statement),
                Piece::Command(line) => match Command::parse(&line) {
                    Ok(command) => self.command(command),
                    Err(problem) => self.fail(&problem),
                },
            };
            if outcome != Outcome::Done {
                return outcome;
            }
        }
        Outcome::Done
    }

    fn command(&mut self, command: Command) -> Outcome {
        match command {
            Command::Help => self.note(Command::help().trim_end()),
            Command::Quit => return Outcome::Quit,
            Command::Timing(wanted) => {
                self.timing = wanted.unwrap_or(!self.timing);
                self.note(if self.timing { "Timing is on." } else { "Timing is off." });
            }
            Command::Format(None) => self.note(&format!("The format is {}.", self.format.name())),
            Command::Format(Some(format)) => match check_format(format, &self.out) {
                Ok(()) => self.format = format,
                Err(problem) => return self.fail(&problem.to_string()),
            },
            Command::Include(path) => {
                if self.depth == MAX_DEPTH {
                    return self.fail(&format!("files run files {MAX_DEPTH} deep: does one run itself?"));
                }
                self.depth += 1;
                let outcome = self.file(&path);
                self.depth -= 1;
                // \q in a file ends the file.
                return if outcome == Outcome::Quit { Outcome::Done } else { outcome };
            }
            Command::Connect => {
                self.end_session();
                return match self.connect() {
                    Ok(()) => {
                        self.note("This is a new session.");
                        Outcome::Done
                    }
                    Err(error) => self.report(RunError::Statement(error), None),
                };
            }
            Command::List(listing) => return self.list(&listing),
        }
        Outcome::Done
    }

    /// Ends the session.
    pub(crate) fn close(&mut self, outcome: Outcome) {
        // Who reads only the first rows does not want to know more.
        if self.end_session() && outcome != Outcome::ReaderGone {
            say("warning: the server has not said that it stopped the statement: it may still run it");
        }
    }

    /// Returns whether the server may still run a statement.
    fn end_session(&mut self) -> bool {
        let has_transaction = self.transaction != Transaction::None;
        self.leave_transaction();
        let state = Closing { may_still_run: std::mem::take(&mut self.may_still_run), has_transaction };
        let runtime = Arc::clone(&self.runtime);
        self.tokio.block_on(self.connection.close(&*runtime, state))
    }
}

/// Refuses binary data for a terminal.
pub(crate) fn check_format(format: Format, out: &Out) -> Result<(), UsageError> {
    if format == Format::Arrow && out.is_terminal() {
        return Err(UsageError::new(
            "Arrow is binary, and stdout is a terminal: give --output FILE, or redirect stdout",
        ));
    }
    Ok(())
}
