//! The shell at a terminal.

use std::sync::Arc;

use super::{Outcome, Shell, say};
use crate::flight::catalog;
use crate::flight::command::Command;
use crate::flight::editor::{Editor, Input};

impl Shell {
    /// Runs what the user enters until they leave.
    pub(crate) fn interact(&mut self) -> anyhow::Result<Outcome> {
        if let Err(error) = self.connect() {
            self.report_failure(&error);
            return Ok(Outcome::Failed);
        }
        say(&format!("Connected to {}. \\? lists the commands, \\q leaves.", self.connection.endpoint()));
        let mut editor = Editor::new()?;
        loop {
            if std::mem::take(&mut self.names_are_old) {
                editor.offer(self.names());
            }
            let text = match editor.read(self.transaction.prompt())? {
                Input::Text(text) => text,
                Input::Cleared => continue,
                Input::End => break,
            };
            let outcome = match Command::from_words(&text) {
                Some(command) => self.command(command),
                None => self.text(text.as_bytes()),
            };
            match outcome {
                Outcome::Quit | Outcome::ReaderGone => break,
                Outcome::Done | Outcome::Failed | Outcome::Interrupted => {}
            }
        }
        if let Some(error) = editor.history_error() {
            say(&format!("warning: {error}"));
        }
        Ok(Outcome::Done)
    }

    /// The names for completion. None without a session: the prompt does not wait for a connection.
    fn names(&mut self) -> Vec<String> {
        let runtime = Arc::clone(&self.runtime);
        match self.connection.current() {
            Some(session) => self.tokio.block_on(catalog::names(session, &*runtime)),
            None => Vec::new(),
        }
    }

    /// Opens a new session after one was lost.
    pub(super) fn reconnect(&mut self) {
        match self.connect() {
            Ok(()) => say(
                "warning: this is a new session: the transaction, temporary tables and settings of the last one are \
                 gone",
            ),
            Err(error) => {
                self.report_failure(&error);
                say("warning: there is no session; the next statement tries to open one");
            }
        }
    }
}
