//! A shell that somebody types into.

use std::sync::Arc;

use super::{Outcome, Shell, say};
use crate::flight::catalog;
use crate::flight::command::Command;
use crate::flight::editor::{Editor, Typed};

impl Shell {
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
            let text = match editor.read(self.transaction.prompt())? {
                Typed::Text(text) => text,
                Typed::Cleared => continue,
                Typed::End => break,
            };
            let outcome = match Command::said_in_words(&text) {
                Some(command) => self.command(command),
                None => self.text(text.as_bytes()),
            };
            match outcome {
                Outcome::Left | Outcome::Unread => break,
                Outcome::Done | Outcome::Failed | Outcome::Interrupted => {}
            }
        }
        if let Some(trouble) = editor.trouble() {
            say(&format!("warning: {trouble}"));
        }
        Ok(Outcome::Done)
    }

    /// The names for completion; none without a session, for which nobody should have to wait at a prompt.
    fn names(&mut self) -> Vec<String> {
        let runtime = Arc::clone(&self.runtime);
        match self.connection.current() {
            Some(session) => self.tokio.block_on(catalog::names(session, &*runtime)),
            None => Vec::new(),
        }
    }

    /// A new session for one that is lost.
    pub(super) fn start_over(&mut self) {
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
}
