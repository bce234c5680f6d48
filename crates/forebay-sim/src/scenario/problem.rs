//! What is wrong with a scenario, and where.

use std::fmt;
use std::sync::Arc;

/// Where a value was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In a file, at this line.
    File {
        /// Its name, as it was given.
        name: Arc<str>,
        /// The line, counted from one.
        line: usize,
    },
    /// On the command line: the whole `path=value`.
    Set(Arc<str>),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { name, line } => write!(f, "{name}:{line}"),
            Self::Set(setting) => write!(f, "--set {setting}"),
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub origin: Origin,
    /// The key, with its way from the top; empty if the file as a whole is wrong.
    pub key: String,
    /// What, and what would be right.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { origin, key, text } = self;
        if key.is_empty() { write!(f, "{origin}: {text}") } else { write!(f, "{origin}: {key}: {text}") }
    }
}

/// Everything that is wrong with a scenario. Nothing was run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ScenarioError {
    /// Each problem, in the order of the file.
    pub problems: Vec<Problem>,
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.problems.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}
