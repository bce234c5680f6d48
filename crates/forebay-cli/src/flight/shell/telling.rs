//! What the user is told beside results.

use std::io::{self, IsTerminal, Write};

use forebay_flight::Error;

use super::{Outcome, Shell};
use crate::flight::connection::remedy;
use crate::flight::format::Format;
use crate::flight::out::is_reader_gone;
use crate::flight::running::Trouble;
use crate::flight::statement::Statement;
use crate::flight::table::printable;
use crate::flight::transaction::Transaction;

impl Shell {
    /// Tells what went wrong, and sees to the session.
    pub(super) fn trouble(&mut self, trouble: Trouble, statement: Option<&Statement>) -> Outcome {
        match trouble {
            Trouble::Output(error) if is_reader_gone(&error) => Outcome::Unread,
            Trouble::Output(error) => self.fail(&format!("cannot write the result: {error:#}")),
            Trouble::Statement(Error::Cancelled { .. }) => {
                say("Cancelled.");
                // Once more, and not one statement was done in between: it may be the session that is stuck.
                if std::mem::replace(&mut self.was_cancelled, true) && self.is_interactive {
                    say("hint: if the server does not stop, \\c starts over with a new session");
                }
                Outcome::Interrupted
            }
            Trouble::Statement(error) => {
                let at = match (&self.source, statement) {
                    (Some(source), Some(statement)) => format!("{source}, line {}: ", statement.line),
                    (None, Some(statement)) if statement.line > 1 => format!("line {}: ", statement.line),
                    _ => String::new(),
                };
                self.tell_failure_at(&at, &error);
                if self.connection.forget_lost(&error) {
                    self.transaction = Transaction::None;
                    if self.is_interactive {
                        self.start_over();
                    }
                }
                Outcome::Failed
            }
        }
    }

    /// Whether the transaction is still open is not known, and whoever types on should know that. A shell that nobody types
    /// into ends here, and whatever is open ends with it.
    pub(super) fn tell_doubt(&self) {
        if self.is_interactive {
            say(
                "warning: the server may have ended the transaction; each statement that follows would then be \
                 committed by itself. ROLLBACK makes sure that none is open",
            );
        }
    }

    /// Warns that the session ends with an open transaction: a user who forgot to commit must not find out later.
    pub(super) fn leave_transaction(&mut self) {
        match std::mem::take(&mut self.transaction) {
            Transaction::None => {}
            Transaction::Open => {
                say("warning: the transaction was left open: what was not committed is undone")
            }
            Transaction::Doubtful => {
                say("warning: a transaction may have been left open: what was not committed is undone");
            }
        }
    }

    pub(super) fn tell_failure(&self, error: &Error) {
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

    pub(super) fn fail(&self, problem: &str) -> Outcome {
        match &self.source {
            Some(source) => say(&format!("error: {source}: {problem}")),
            None => say(&format!("error: {problem}")),
        }
        Outcome::Failed
    }

    /// Tells what is no result: beside it for people, never into what a program reads.
    pub(super) fn note(&mut self, text: &str) {
        if self.format == Format::Table && !self.out.is_file() {
            // A reader who has gone is noticed with the next result.
            let _ = writeln!(self.out, "{text}").and_then(|()| self.out.flush());
        } else if self.is_interactive || io::stderr().is_terminal() {
            say(text);
        }
    }
}

/// Tells the user. If nobody listens, nobody is told.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}
