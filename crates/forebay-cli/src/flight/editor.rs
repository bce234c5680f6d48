//! Reads input at the prompt: history, completion, and more lines until a statement is complete.

use std::borrow::Cow;
use std::io::{self, IsTerminal};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::{env, fs};

use rustyline::completion::{Completer, FilenameCompleter};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::{Hint, Hinter};
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Behavior, CompletionType, Config, Context, Helper};

use super::command::Command;
use super::completion::complete;
use super::splitter::Splitter;

/// What the user entered at the prompt.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Input {
    Text(String),
    /// Ctrl-C: the text is discarded.
    Cleared,
    /// Ctrl-D on an empty line.
    End,
}

/// Reads input at the prompt.
pub(crate) struct Editor {
    editor: rustyline::Editor<Help, FileHistory>,
    history: Option<PathBuf>,
    /// Why the history could not be written.
    history_error: Option<String>,
}

impl Editor {
    pub(crate) fn new() -> anyhow::Result<Self> {
        // If stdout is a file, the prompt goes to the terminal.
        let behavior = if io::stdout().is_terminal() { Behavior::Stdio } else { Behavior::PreferTerm };
        let config = Config::builder()
            .history_ignore_space(true)
            .max_history_size(10_000)?
            .completion_type(CompletionType::List)
            .behavior(behavior)
            .build();
        let mut editor = rustyline::Editor::with_config(config)?;
        editor.set_helper(Some(Help { names: Vec::new(), files: FilenameCompleter::new() }));
        let history = history_path(|name| env::var(name).ok());
        if let Some(path) = &history {
            // The shell works without a history.
            let _ = editor.load_history(path);
        }
        Ok(Self { editor, history, history_error: None })
    }

    /// Sets the names that Tab completes.
    pub(crate) fn offer(&mut self, names: Vec<String>) {
        if let Some(help) = self.editor.helper_mut() {
            help.names = names;
        }
    }

    pub(crate) fn read(&mut self, prompt: &str) -> anyhow::Result<Input> {
        match self.editor.readline(prompt) {
            Ok(text) => {
                self.keep(&text);
                Ok(Input::Text(text))
            }
            Err(ReadlineError::Interrupted) => Ok(Input::Cleared),
            Err(ReadlineError::Eof) => Ok(Input::End),
            Err(error) => Err(error.into()),
        }
    }

    /// Stores each input immediately: the shell may be killed.
    fn keep(&mut self, text: &str) {
        let Ok(true) = self.editor.add_history_entry(text) else { return };
        if let (Some(path), None) = (&self.history, &self.history_error) {
            let kept = create_directory(path)
                .map_err(ReadlineError::from)
                .and_then(|()| self.editor.append_history(path));
            self.history_error =
                kept.err().map(|error| format!("cannot write the history to {}: {error}", path.display()));
        }
    }

    pub(crate) fn history_error(&self) -> Option<&str> {
        self.history_error.as_deref()
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

/// A hint at what a statement still needs. It is on an empty line, which has no prompt.
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

    /// Tab does not insert the hint.
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
        if Command::from_words(context.input()).is_some() {
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

/// The history's file, in the state directory of the XDG base directories.
fn history_path(variable: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    // The specification says to ignore relative paths.
    let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(state.join("forebay/flight_history"))
}

/// Only the user can read the directory: statements may contain secrets.
fn create_directory(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(directory) => fs::DirBuilder::new().recursive(true).mode(0o700).create(directory),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_is_in_the_users_state_directory() {
        let with = |pairs: &[(&str, &str)]| {
            let pairs: Vec<(String, String)> =
                pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            history_path(move |name| {
                pairs.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
            })
        };
        let home = ("HOME", "/home/me");
        assert_eq!(with(&[home]), Some("/home/me/.local/state/forebay/flight_history".into()));
        assert_eq!(with(&[home, ("XDG_STATE_HOME", "/s")]), Some("/s/forebay/flight_history".into()));
        assert_eq!(with(&[home, ("XDG_STATE_HOME", "s")]), with(&[home]));
        assert_eq!(with(&[]), None);
    }

    #[test]
    fn an_empty_line_says_what_is_missing() {
        let missing = |text: &str| Missing::of(text).map(|missing| missing.0.trim().to_owned());
        assert_eq!(missing("SELECT 1"), None);
        assert_eq!(missing("SELECT 1\n").as_deref(), Some("; ends the statement"));
        assert_eq!(missing("SELECT 'a\n").as_deref(), Some("' is still open"));
        assert_eq!(missing("SELECT \"a\n").as_deref(), Some("\" is still open"));
    }
}
