//! How something that was asked for ended.

use std::process::ExitCode;

use super::interrupts::INTERRUPTED;

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
