//! What a statement leaves in the session.

use crate::session::assignment::Assignment;

/// What a statement leaves in the session once it is complete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::session) enum Effect {
    #[default]
    None,
    /// `SET name ...`; the text is what follows `SET `.
    Set {
        name: Box<str>,
        text: Box<str>,
    },
    /// `SELECT set_config('name', 'value', false)`. Its portal may be executed again, and then it sets nothing.
    SetConfig {
        name: Box<str>,
        assignment: Assignment,
    },
    /// The same with a parameter for the value, by its number from 0. Until that is known, it may set anything.
    SetConfigTo {
        name: Box<str>,
        parameter: usize,
    },
    /// `SET name TO DEFAULT`: as `Reset`, with another tag.
    SetDefault(Box<str>),
    /// `SET LOCAL client_min_messages ...`; the text is what follows `SET LOCAL `. Any other SET LOCAL is the server's.
    SetMinMessagesLocal(Box<str>),
    /// `SHOW client_min_messages`.
    ShowMinMessages,
    /// `SET LOCAL name TO DEFAULT`: it leaves nothing.
    LocalDefault(Box<str>),
    Reset(Box<str>),
    ResetAll,
    /// `SET ROLE` or `SET SESSION AUTHORIZATION`, or their reset (no text). Another client must not get this backend.
    Role {
        name: &'static str,
        text: Option<Box<str>>,
    },
    Begin,
    Commit,
    Rollback,
    /// `COMMIT AND CHAIN`: another block begins at once.
    CommitAndChain,
    RollbackAndChain,
    Savepoint(Box<[u8]>),
    Release(Box<[u8]>),
    RollbackTo(Box<[u8]>),
    /// Something that cannot be carried over to another backend.
    Pin,
    Deallocate(Box<[u8]>),
    DeallocateAll,
    DiscardAll,
    /// `DISCARD PLANS`, `SEQUENCES` or `TEMP`, with its tag.
    Discard(&'static str),
    Unlisten,
    CloseAll,
    /// `SELECT pg_advisory_unlock_all()`.
    UnlockAll,
}
