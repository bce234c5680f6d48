//! The line that the user types: history, completion, and more lines until a statement is complete.

use std::borrow::Cow;
use std::env;
use std::io::{self, IsTerminal};
use std::path::PathBuf;

use rustyline::completion::{Completer, FilenameCompleter};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::{Hint, Hinter};
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Behavior, CompletionType, Config, Context, Helper};

use super::command::Command;
use super::completion::complete;
use super::history;
use super::splitter::Splitter;

/// What the user did at the prompt.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Typed {
    Text(String),
    /// Ctrl-C: what was typed is to be forgotten.
    Cleared,
    /// Ctrl-D on an empty line.
    End,
}

/// Reads what the user types.
pub(crate) struct Editor {
    editor: rustyline::Editor<Help, FileHistory>,
    history: Option<PathBuf>,
    /// Why the history was not kept, if it was not.
    trouble: Option<String>,
}

impl Editor {
    pub(crate) fn new() -> anyhow::Result<Self> {
        // The prompt must not end up in a file that stdout goes to.
        let behavior = if io::stdout().is_terminal() { Behavior::Stdio } else { Behavior::PreferTerm };
        let config = Config::builder()
            .history_ignore_space(true)
            .max_history_size(10_000)?
            .completion_type(CompletionType::List)
            .behavior(behavior)
            .build();
        let mut editor = rustyline::Editor::with_config(config)?;
        editor.set_helper(Some(Help { names: Vec::new(), files: FilenameCompleter::new() }));
        let history = history::path(|name| env::var(name).ok());
        if let Some(path) = &history {
            // There may be none yet, and it may be unreadable: a shell without it is a shell.
            let _ = editor.load_history(path);
        }
        Ok(Self { editor, history, trouble: None })
    }

    /// What Tab offers beside keywords.
    pub(crate) fn offer(&mut self, names: Vec<String>) {
        if let Some(help) = self.editor.helper_mut() {
            help.names = names;
        }
    }

    pub(crate) fn read(&mut self, prompt: &str) -> anyhow::Result<Typed> {
        match self.editor.readline(prompt) {
            Ok(text) => {
                self.keep(&text);
                Ok(Typed::Text(text))
            }
            Err(ReadlineError::Interrupted) => Ok(Typed::Cleared),
            Err(ReadlineError::Eof) => Ok(Typed::End),
            Err(error) => Err(error.into()),
        }
    }

    /// After each, since nobody knows which is the last.
    fn keep(&mut self, text: &str) {
        let Ok(true) = self.editor.add_history_entry(text) else { return };
        if let (Some(path), None) = (&self.history, &self.trouble) {
            let kept = history::prepare(path)
                .map_err(ReadlineError::from)
                .and_then(|()| self.editor.append_history(path));
            self.trouble = kept
                .err()
                .map(|error| format!("the history could not be kept in {}: {error}", path.display()));
        }
    }

    /// Why the history was not kept, if it was not.
    pub(crate) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }
}

struct Help {
    names: Vec<String>,
    files: FilenameCompleter,
}

impl Helper for Help {}

impl Highlighter for Help {
    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        Cow::Owned(format!("\u{1b}[2m{hint}\u{1b}[m"))
    }
}

/// What is still missing, on an empty line that goes on with a statement: such a line has no prompt.
#[derive(Debug, PartialEq, Eq)]
struct Missing(String);

impl Missing {
    fn of(text: &str) -> Option<Self> {
        if !text.ends_with('\n') {
            return None;
        }
        let mut splitter = Splitter::default();
        splitter.feed(text);
        Some(Self(match splitter.quote() {
            Some(quote) => format!("  {quote} is still open"),
            None => "  ; ends the statement".to_owned(),
        }))
    }
}

impl Hint for Missing {
    fn display(&self) -> &str {
        &self.0
    }

    /// It is to be read, not to be taken over.
    fn completion(&self) -> Option<&str> {
        None
    }
}

impl Hinter for Help {
    type Hint = Missing;

    fn hint(&self, line: &str, _: usize, _: &Context<'_>) -> Option<Missing> {
        Missing::of(line)
    }
}

impl Validator for Help {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        if Command::said_in_words(context.input()).is_some() {
            return Ok(ValidationResult::Valid(None));
        }
        let mut splitter = Splitter::default();
        splitter.feed(context.input());
        Ok(if splitter.is_complete() { ValidationResult::Valid(None) } else { ValidationResult::Incomplete })
    }
}

impl Completer for Help {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        cursor: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        if line.starts_with("\\i ") {
            let (start, found) = self.files.complete_path(line, cursor)?;
            return Ok((start, found.into_iter().map(|pair| pair.replacement).collect()));
        }
        Ok(complete(line, cursor, &self.names))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_line_says_what_is_missing() {
        let missing = |text: &str| Missing::of(text).map(|missing| missing.0.trim().to_owned());
        assert_eq!(missing("SELECT 1"), None);
        assert_eq!(missing("SELECT 1\n").as_deref(), Some("; ends the statement"));
        assert_eq!(missing("SELECT 'a\n").as_deref(), Some("' is still open"));
        assert_eq!(missing("SELECT \"a\n").as_deref(), Some("\" is still open"));
    }
}
