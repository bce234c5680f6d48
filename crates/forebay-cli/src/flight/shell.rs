//! What the user asks for, one thing after another.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use forebay::rt::{Runtime, TokioRuntime};
use forebay_flight::{CancelHandle, Error};

use super::catalog::{self, Question};
use super::command::Command;
use super::connection::{Connection, remedy};
use super::editor::{Editor, Typed};
use super::format::Format;
use super::interrupts::{INTERRUPTED, Interrupts};
use super::options::{Options, Usage};
use super::out::{Out, is_reader_gone};
use super::progress::{Spinner, timing};
use super::running::{self, Done, Manner, Trouble};
use super::splitter::{Piece, Splitter};
use super::statement::{Kind, Statement};
use super::table::printable;
use super::terminal;

/// Files that run files that run files.
const DEEPEST: usize = 16;

/// How something that was asked for ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// It has been told why.
    Failed,
    Interrupted,
    /// The user wants to leave.
    Left,
    /// Nobody reads the results any more.
    Unread,
}

impl Outcome {
    pub(crate) fn status(self) -> ExitCode {
        match self {
            Self::Done | Self::Left | Self::Unread => ExitCode::SUCCESS,
            Self::Failed => ExitCode::FAILURE,
            Self::Interrupted => ExitCode::from(INTERRUPTED),
        }
    }
}

/// A shell and its one session.
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
    /// Which file a statement is from, for errors.
    source: Option<String>,
    depth: usize,
    has_written_arrow: bool,
    /// The names for completion may be others now.
    names_are_old: bool,
}

impl Shell {
    pub(crate) fn new(options: &Options, is_interactive: bool) -> anyhow::Result<Self> {
        let connection = Connection::new(options.connection()?);
        let out = Out::open(options.output.as_deref()).map_err(|error| Usage::new(format!("{error:#}")))?;
        let format = options.format();
        check_format(format, &out)?;
        // A thread beside this one, which waits for the user: connections are kept alive meanwhile.
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
            names_are_old: true,
        })
    }

    /// Asks the user until they leave.
    pub(crate) fn converse(&mut self) -> anyhow::Result<Outcome> {
        if let Err(error) = self.connect() {
            self.tell_failure(&error);
            return Ok(Outcome::Failed);
        }
        say(&format!("Connected to {}. \\? lists the commands, \\q leaves.", self.connection.endpoint()));
        let mut editor = Editor::new()?;
        loop {
            if std::mem::take(&mut self.names_are_old) {
                editor.offer(self.names());
            }
            let text = match editor.read()? {
                Typed::Text(text) => text,
                Typed::Cleared => continue,
                Typed::End => break,
            };
            let mut splitter = Splitter::default();
            let mut pieces = splitter.feed(&text);
            pieces.extend(splitter.finish()?);
            match self.pieces(pieces) {
                Outcome::Left | Outcome::Unread => break,
                Outcome::Done | Outcome::Failed | Outcome::Interrupted => {}
            }
        }
        if let Some(trouble) = editor.trouble() {
            say(&format!("warning: {trouble}"));
        }
        Ok(Outcome::Done)
    }

    /// Runs what is given on the command line.
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

    /// Runs what it reads, each statement as soon as it is complete, until one fails.
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

    fn statement(&mut self, statement: &Statement) -> Outcome {
        if statement.kind == Kind::Query
            && self.format == Format::Arrow
            && std::mem::replace(&mut self.has_written_arrow, true)
        {
            return self.fail(
                "an Arrow stream holds one result, and there is one already: write the next with another --output",
            );
        }
        let manner = self.manner();
        let _running = self.interrupts.cancel(&manner.cancel);
        let runtime = Arc::clone(&self.runtime);
        let mut spinner = Spinner::start(runtime.now());
        let outcome = self.tokio.block_on(async {
            let session = self.connection.session(&*runtime, &mut spinner, &manner.cancel).await?;
            running::run(session, statement, &manner, &*runtime, &mut spinner).await
        });
        let elapsed = spinner.elapsed(runtime.now());
        drop(spinner);
        self.names_are_old |= statement.changes_names;
        match outcome {
            Ok(done) => {
                if let Done::Changed(count) = done {
                    self.note(&changed(statement, count));
                }
                if self.timing {
                    self.note(&timing(elapsed));
                }
                Outcome::Done
            }
            Err(trouble) => self.trouble(trouble, Some(statement)),
        }
    }

    fn command(&mut self, command: Command) -> Outcome {
        match command {
            Command::Help => self.note(Command::help().trim_end()),
            Command::Quit => return Outcome::Left,
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
                if self.depth == DEEPEST {
                    return self
                        .fail(&format!("files that run files are {DEEPEST} deep: does one run itself?"));
                }
                self.depth += 1;
                let outcome = self.file(&path);
                self.depth -= 1;
                // To leave a file is to come back from it.
                return if outcome == Outcome::Left { Outcome::Done } else { outcome };
            }
            Command::Connect => {
                self.connection.leave();
                return match self.connect() {
                    Ok(()) => {
                        self.note("This is a new session.");
                        Outcome::Done
                    }
                    Err(error) => self.trouble(Trouble::Statement(error), None),
                };
            }
            Command::Ask(question) => return self.ask(&question),
        }
        Outcome::Done
    }

    fn ask(&mut self, question: &Question) -> Outcome {
        let manner = self.manner();
        // Lists are for people, unless a program can read them.
        let format = if manner.format == Format::Arrow { Format::Table } else { manner.format };
        let manner = Manner { format, ..manner };
        let _running = self.interrupts.cancel(&manner.cancel);
        let runtime = Arc::clone(&self.runtime);
        let mut spinner = Spinner::start(runtime.now());
        let answer = self.tokio.block_on(async {
            let session = self.connection.session(&*runtime, &mut spinner, &manner.cancel).await?;
            let unless = || manner.cancel.is_cancelled().then_some(Err(Error::Cancelled));
            spinner.attend(&*runtime, catalog::ask(session, question), unless).await
        });
        drop(spinner);
        self.names_are_old = true;
        match answer {
            Ok(Ok(batches)) => match running::show(&manner, &batches[0].schema(), &batches) {
                Ok(()) => Outcome::Done,
                Err(error) => self.trouble(Trouble::Output(error), None),
            },
            Ok(Err(problem)) => self.fail(&problem),
            Err(error) => self.trouble(Trouble::Statement(error), None),
        }
    }

    fn manner(&self) -> Manner {
        let width = if self.out.is_file() { None } else { terminal::width() };
        Manner {
            out: self.out.clone(),
            format: self.format,
            width,
            timeout: self.timeout,
            cancel: CancelHandle::new(),
        }
    }

    fn connect(&mut self) -> Result<(), Error> {
        let cancel = CancelHandle::new();
        let _running = self.interrupts.cancel(&cancel);
        let runtime = Arc::clone(&self.runtime);
        let mut spinner = Spinner::start(runtime.now());
        self.tokio
            .block_on(async { self.connection.session(&*runtime, &mut spinner, &cancel).await.map(drop) })
    }

    fn names(&mut self) -> Vec<String> {
        let cancel = CancelHandle::new();
        let runtime = Arc::clone(&self.runtime);
        let mut spinner = Spinner::start(runtime.now());
        self.tokio.block_on(async {
            match self.connection.session(&*runtime, &mut spinner, &cancel).await {
                Ok(session) => catalog::names(session, &*runtime).await,
                Err(_) => Vec::new(),
            }
        })
    }

    fn trouble(&mut self, trouble: Trouble, statement: Option<&Statement>) -> Outcome {
        match trouble {
            Trouble::Output(error) if is_reader_gone(&error) => Outcome::Unread,
            Trouble::Output(error) => self.fail(&format!("cannot write the result: {error:#}")),
            Trouble::Statement(Error::Cancelled) => {
                say("Cancelled.");
                Outcome::Interrupted
            }
            Trouble::Statement(error) => {
                let at = match (&self.source, statement) {
                    (Some(source), Some(statement)) => format!("{source}, line {}: ", statement.line),
                    _ => String::new(),
                };
                self.tell_failure_at(&at, &error);
                if self.connection.forget_lost(&error) && self.is_interactive {
                    self.start_over();
                }
                Outcome::Failed
            }
        }
    }

    /// A new session for one that is lost.
    fn start_over(&mut self) {
        match self.connect() {
            Ok(()) => say(
                "warning: this is a new session: transaction, temporary tables and settings of the last are gone",
            ),
            Err(error) => {
                self.tell_failure(&error);
                say("warning: there is no session; the next statement tries again to open one");
            }
        }
    }

    fn tell_failure(&self, error: &Error) {
        self.tell_failure_at("", error);
    }

    fn tell_failure_at(&self, at: &str, error: &Error) {
        // A server may say anything, also to a terminal; but lines are lines.
        let text = error.to_string();
        let lines: Vec<String> = text.lines().map(printable).collect();
        say(&format!("error: {at}{}", lines.join("\n")));
        if let Some(remedy) = remedy(error) {
            say(&format!("hint: {remedy}"));
        }
    }

    fn fail(&self, problem: &str) -> Outcome {
        match &self.source {
            Some(source) => say(&format!("error: {source}: {problem}")),
            None => say(&format!("error: {problem}")),
        }
        Outcome::Failed
    }

    /// Tells what is no result: beside it for people, never into what a program reads.
    fn note(&mut self, text: &str) {
        if self.format == Format::Table && !self.out.is_file() {
            // A reader who has gone is noticed with the next result.
            let _ = writeln!(self.out, "{text}").and_then(|()| self.out.flush());
        } else if self.is_interactive || io::stderr().is_terminal() {
            say(text);
        }
    }

    /// Ends the session.
    pub(crate) fn close(&mut self) {
        let runtime = Arc::clone(&self.runtime);
        self.tokio.block_on(self.connection.close(&*runtime));
    }
}

/// A terminal is no place for binary data.
pub(crate) fn check_format(format: Format, out: &Out) -> Result<(), Usage> {
    if format == Format::Arrow && out.is_terminal() {
        return Err(Usage::new(
            "Arrow is binary, and stdout is a terminal: give --output FILE, or redirect it",
        ));
    }
    Ok(())
}

fn changed(statement: &Statement, count: Option<u64>) -> String {
    match count {
        Some(1) if statement.changes_rows => "1 row changed".to_owned(),
        Some(count) if statement.changes_rows => format!("{count} rows changed"),
        _ => "done".to_owned(),
    }
}

/// Tells the user. If nobody listens, nobody is told.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}
