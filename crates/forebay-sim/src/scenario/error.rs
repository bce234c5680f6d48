//! The problems of a scenario, and where they are.

use std::fmt;
use std::sync::Arc;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A file.
    File {
        /// Its name.
        name: Arc<str>,
        /// The line, counted from one.
        line: usize,
    },
    /// The command line: the whole `path=value`.
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

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it is.
    pub origin: Origin,
    /// The path of the key; empty if the problem concerns the whole file.
    pub key: String,
    /// What is wrong, and what is expected.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { origin, key, text } = self;
        if key.is_empty() { write!(f, "{origin}: {text}") } else { write!(f, "{origin}: {key}: {text}") }
    }
}

/// All problems of a scenario.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ScenarioError {
    /// The problems, in the order of the file.
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
