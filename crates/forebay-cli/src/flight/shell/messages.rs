//! Messages beside the results.

use std::io::{self, IsTerminal, Write};

use forebay_flight::Error;

use super::{Outcome, Shell};
use crate::flight::connection::{in_terms_of_the_shell, remedy};
use crate::flight::format::Format;
use crate::flight::out::{is_reader_gone, terminal_width};
use crate::flight::running::RunError;
use crate::flight::statement::Statement;
use crate::flight::transaction::Transaction;
use crate::output::wrap;
use crate::printable::printable;

impl Shell {
    /// Reports an error, and replaces a lost session.
    pub(super) fn report(&mut self, error: RunError, statement: Option<&Statement>) -> Outcome {
        match error {
            RunError::Output(error) if is_reader_gone(&error) => Outcome::ReaderGone,
            RunError::Output(error) => self.fail(&format!("cannot write the result: {error:#}")),
            RunError::Statement(Error::Cancelled { .. }) => {
                say("Cancelled.");
                // The second cancellation without a result in between: the session may be stuck.
                if std::mem::replace(&mut self.was_cancelled, true) && self.is_interactive {
                    say("hint: if the server does not stop, \\c opens a new session");
                }
                Outcome::Interrupted
            }
            RunError::Statement(error) => {
                let at = match (&self.source, statement) {
                    (Some(source), Some(statement)) => format!("{source}, line {}: ", statement.line),
                    (None, Some(statement)) if statement.line > 1 => format!("line {}: ", statement.line),
                    _ => String::new(),
                };
                self.report_failure_at(&at, &error);
                if self.connection.drop_lost(&error) {
                    self.transaction = Transaction::None;
                    if self.is_interactive {
                        self.reconnect();
                    }
                }
                Outcome::Failed
            }
        }
    }

    /// Explains the new state of a transaction after a failure. A script ends here, and its transaction ends
    /// with it.
    pub(super) fn explain_transaction(&self) {
        if !self.is_interactive {
            return;
        }
        match self.transaction {
            Transaction::Failed => say(
                "hint: a statement of the transaction failed. ROLLBACK undoes the transaction; then start it again. Some \
                 servers have already undone it, and would commit each further statement by itself",
            ),
            Transaction::Doubtful => say(
                "warning: the server may have ended the transaction; it would then commit each further statement by \
                 itself. ROLLBACK makes sure that none is open",
            ),
            Transaction::None | Transaction::Open => {}
        }
    }

    /// Warns that the session ends with an open transaction: a user who forgot to commit must not find out
    /// later.
    pub(super) fn leave_transaction(&mut self) {
        match std::mem::take(&mut self.transaction) {
            Transaction::None => {}
            Transaction::Open => {
                say("warning: the transaction was left open: what was not committed is undone")
            }
            Transaction::Failed => {
                say("warning: a statement of the transaction failed: the transaction is undone")
            }
            Transaction::Doubtful => {
                say("warning: a transaction may still be open: what was not committed is undone");
            }
        }
    }

    pub(super) fn report_failure(&self, error: &Error) {
        self.report_failure_at("", error);
    }

    fn report_failure_at(&self, at: &str, error: &Error) {
        // A server's text must not control the terminal. Its line feeds stay.
        let text = in_terms_of_the_shell(&error.to_string());
        let lines: Vec<String> = text.lines().map(printable).collect();
        say(&format!("error: {at}{}", lines.join("\n")));
        if let Some(remedy) = remedy(error) {
            say(&format!("hint: {remedy}"));
        }
    }

    pub(super) fn fail(&self, problem: &str) -> Outcome {
        match &self.source {
            Some(source) => say(&format!("error: {source}: {problem}")),
            None => say(&format!("error: {problem}")),
        }
        Outcome::Failed
    }

    /// Prints a message that is not a result: next to it for people, never into the output that a program
    /// reads.
    pub(super) fn note(&mut self, text: &str) {
        if self.format == Format::Table && !self.out.is_file() {
            // The next result notices a reader that has gone.
            let _ = writeln!(self.out, "{text}").and_then(|()| self.out.flush());
        } else if self.is_interactive || io::stderr().is_terminal() {
            say(text);
        }
    }
}

/// Prints a message to stderr. A terminal gets no line that it would break inside a word.
pub(crate) fn say(text: &str) {
    let width = terminal_width(&io::stderr()).unwrap_or(usize::MAX);
    let _ = writeln!(io::stderr(), "{}", wrap(text, width));
}
