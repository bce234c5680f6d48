//! What Aurora DSQL will refuse, and what to write instead.

use std::fmt;

/// A statement that Aurora DSQL will refuse.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The name of the file.
    pub file: String,
    /// The line.
    pub line: usize,
    /// What the server says, or would say.
    pub message: String,
    /// What to write instead.
    pub remedy: String,
    /// Whether `--fix` (or `Migrator::fix`) writes it so.
    pub fixable: bool,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, message, remedy, fixable } = self;
        let fix = if *fixable { " (--fix does that)" } else { "" };
        write!(f, "{file}:{line}: {message}\n    {remedy}{fix}")
    }
}

/// One below the other.
pub(crate) fn list(findings: &[Finding]) -> String {
    let lines: Vec<String> = findings.iter().map(|finding| format!("  {finding}")).collect();
    lines.join("\n")
}
