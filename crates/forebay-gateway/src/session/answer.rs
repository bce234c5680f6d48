//! How the answer to a statement reaches the client, if not as it is.

use crate::protocol::{ServerError, server, write};

use super::scan::Effect;

/// What a statement leaves in the session, and how its answer is passed on.
#[derive(Clone, Debug, Default)]
pub(super) struct Step {
    pub(super) effect: Effect,
    pub(super) answer: Answer,
}

/// What the client gets instead of the server's answer.
#[derive(Clone, Debug, Default)]
pub(super) enum Answer {
    /// The answer as it is.
    #[default]
    Pass,
    /// Nothing: the gateway sent the statement for itself.
    Quiet,
    /// The answer with another tag.
    Tag(&'static str),
    /// The server runs something harmless instead. The client gets this tag, without rows.
    Instead(&'static str),
    /// As `Instead`, with a row of type void.
    Void,
    /// As `Instead`, with the value of `client_min_messages`.
    ShowMinMessages,
    /// The server runs something that fails. The client gets this error.
    Refuse(Box<ServerError>),
}

impl Answer {
    /// Whether rows and their description reach the client.
    pub(super) const fn passes_rows(&self) -> bool {
        matches!(self, Self::Pass | Self::Tag(_) | Self::Refuse(_))
    }

    /// The statement is complete. None if the answer passes as it is.
    pub(super) fn complete(&self, with_description: bool, to_client: &mut Vec<u8>) -> Option<()> {
        match self {
            Self::Pass | Self::Refuse(_) => return None,
            // The value is the session's.
            Self::Quiet | Self::ShowMinMessages => {}
            Self::Tag(tag) | Self::Instead(tag) => write::command_complete(to_client, tag),
            Self::Void => {
                if with_description {
                    void_description(to_client);
                }
                // One column of no length.
                write::frame(to_client, server::DATA_ROW, |out| out.extend_from_slice(&[0, 1, 0, 0, 0, 0]));
                write::command_complete(to_client, "SELECT 1");
            }
        }
        Some(())
    }
}

/// The description of `SELECT pg_advisory_unlock_all()`.
pub(super) fn void_description(to_client: &mut Vec<u8>) {
    write::frame(to_client, server::ROW_DESCRIPTION, |out| {
        out.extend_from_slice(b"\0\x01pg_advisory_unlock_all\0");
        out.extend_from_slice(&[0; 6]);
        out.extend_from_slice(&2278_u32.to_be_bytes());
        out.extend_from_slice(&[0, 4, 0xff, 0xff, 0xff, 0xff, 0, 0]);
    });
}

/// What the server runs instead of a statement that it would refuse or must not see. It needs no table, and fails in a failed transaction.
pub(super) const HARMLESS: &str = "SELECT 1";

/// What the server runs to fail, so that its transaction fails, too.
pub(super) const FAILING: &str = "SELECT 1/0";

/// What `FAILING` fails with. Any other error is the client's own.
pub(super) const FAILED: &[u8] = b"22012";
