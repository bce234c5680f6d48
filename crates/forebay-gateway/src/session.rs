//! A virtual session: what a client believes to be its connection. Backends come and go behind it.
//!
//! It is a pure state machine. Frames of the client and of the backend go in, frames for both come out. It has no socket, no clock and no
//! randomness, so a test can split its input at every byte and replace its backend at every opportunity.
//!
//! ```text
//!  client ──▶ from_client ──▶ client.rs ── scan/      what does this statement leave in the session?
//!                │              │  ├─────── prepared    does the backend have this prepared statement?
//!                │              │  └─────── habits      statements that the server would refuse, and drivers send all the same
//!                ▼              ▼
//!              held          requests      what was sent and is not answered yet, in order; also what the gateway asks for itself
//!                ▲              ▼
//!  client ◀── from_server ◀── server.rs    takes answers off the queue; swallows or replaces some
//!                               restore.rs  attach, detach: settings and statements follow the client
//!                               ahead.rs    the next backend has the client's statements before the client asks
//!                               again.rs    the statement met a change of the schema, and nothing has happened: it is sent once more
//!                               failure.rs  the backend is gone, or the statement was cancelled: what the client is told
//! ```
//!
//! Frames pass in runs: only headers are looked at, and a run is copied once. Frames that act on the session are read whole; of an error or a
//! notice, the first MiB.

mod again;
mod ahead;
mod answer;
mod assignment;
mod client;
mod columns;
mod failure;
mod framing;
#[cfg(test)]
mod fuzz;
mod habits;
mod hang_up;
mod memory;
mod min_messages;
#[cfg(test)]
mod model;
mod portals;
mod prepared;
mod quote;
mod reported;
mod requests;
mod restore;
mod scan;
mod server;
mod settings;
mod start_value;
mod statements;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

pub use self::failure::{Cancelled, Lost};
pub use self::hang_up::{HungUp, LeftBehind};
pub use self::memory::Memory;
pub(crate) use self::min_messages::is_message_level;
pub use self::reported::Reported;
pub use self::settings::{Settings, StartSettings};
pub(crate) use self::start_value::StartValue;

use self::again::First;
use self::framing::Framing;
use self::portals::Portals;
use self::reported::ReportedNow;
use self::requests::Requests;
use self::statements::Statements;
use crate::protocol::{BadLength, ServerError, write};

/// Bytes to write. The relay owns one for each thread and empties it after every call.
#[derive(Debug, Default)]
pub struct Outbox {
    /// For the client.
    pub to_client: Vec<u8>,
    /// For the backend.
    pub to_server: Vec<u8>,
}

/// More than this is not kept for the next call.
const KEPT: usize = 1 << 20;

impl Outbox {
    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.to_client.clear();
        self.to_server.clear();
    }

    /// Gives back memory that only an unusual message needed.
    pub(crate) fn shrink(&mut self) {
        for bytes in [&mut self.to_client, &mut self.to_server] {
            if bytes.capacity() > KEPT {
                bytes.shrink_to(KEPT);
            }
        }
    }
}

/// What a client may make large.
#[derive(Clone, Copy, Debug)]
pub struct SessionLimits {
    /// The longest frame that must be read whole, such as a Query. Default: 10 MiB, which is also Aurora DSQL's limit for a message.
    pub max_message: usize,
    /// How many prepared statements are kept. Default: 10,000.
    pub max_statements: usize,
    /// How many bytes they may take together. Default: 16 MiB.
    pub max_statement_bytes: usize,
    /// How many requests may be unanswered before the client is not read any more. Default: 10,000.
    pub max_unanswered: usize,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self {
            max_message: 10 << 20,
            max_statements: 10_000,
            max_statement_bytes: 16 << 20,
            max_unanswered: 10_000,
        }
    }
}

/// The client broke the protocol or a limit: tell it why with this error, and close its connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.message)]
pub struct Violation(pub Box<ServerError>);

impl Violation {
    fn new(error: ServerError) -> Self {
        Self(Box::new(error))
    }

    fn protocol(message: impl Into<std::borrow::Cow<'static, str>>) -> Self {
        Self::new(ServerError::fatal("08P01", message))
    }
}

impl From<BadLength> for Violation {
    fn from(_: BadLength) -> Self {
        Self::protocol("invalid message length")
    }
}

/// The backend sent what no server sends: drop it, and treat it as lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the server sent something that is not the PostgreSQL protocol, or not the answer to what it was asked"
)]
pub struct Garbage;

impl From<BadLength> for Garbage {
    fn from(_: BadLength) -> Self {
        Self
    }
}

/// How much may wait before nothing more is read.
const MOST_WHILE_IT_WAITS: usize = 64 << 10;

/// Where a session is in its transaction, as the client knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransactionStatus {
    /// In none.
    #[default]
    Idle,
    /// In a transaction block.
    InTransaction,
    /// In a transaction block that has failed.
    Failed,
}

impl TransactionStatus {
    const fn as_byte(self) -> u8 {
        match self {
            Self::Idle => b'I',
            Self::InTransaction => b'T',
            Self::Failed => b'E',
        }
    }
}

/// Whether a session can do without its backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detach {
    /// Call [`VirtualSession::detach`].
    Now,
    /// Call [`VirtualSession::read_settings`] first: a statement may have changed settings in a way that was not understood.
    AfterReadingSettings,
    /// It cannot.
    Not(Tied),
}

/// Why a session needs the backend that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tied {
    /// It has something there that cannot be carried over, such as a seed, or the last value of a sequence. That stays so.
    Pinned,
    /// It is in a transaction, or something is unanswered.
    Busy,
}

/// Which frames of the client wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Hold {
    /// None.
    #[default]
    None,
    /// Those behind the next Sync or Query, until everything is answered: what they need depends on whether a request of ours was skipped.
    AtBoundary,
    /// All, until everything is answered.
    All,
}

/// What the requests may have done that are not answered yet, or lack their Sync.
#[derive(Clone, Copy, Debug, Default)]
struct Unanswered {
    /// One of them may commit.
    may_commit: bool,
    /// So may a change of the schema.
    may_change_schema: bool,
    /// One of them ends a transaction block. What follows it is outside of one.
    may_end_block: bool,
}

/// What a session knows of the backend that it has now.
#[derive(Debug)]
struct Backend {
    reported: ReportedNow,
    /// Whether this session may have used a sequence here.
    wrote: bool,
    spoilt: bool,
    /// It has announced its end.
    ending: bool,
    /// Why, in its words.
    last_words: Box<str>,
    /// The client's frames so far, in case that the first answer is a conflict with a change of the schema.
    first: Option<First>,
    /// The session changed the schema before it got this backend. On one connection it would not meet its own change, at any statement.
    behind: bool,
    /// Once the settings are restored, the client's statements are prepared.
    ahead: bool,
    /// What was in force before the settings are restored.
    restoring: Arc<Settings>,
    /// What `read_settings` has read so far.
    reading: Settings,
    /// What the server said about a failure to restore settings, or to begin a block again: an ErrorResponse.
    refusal: Vec<u8>,
}

/// A client's session. See the [module](self).
pub struct VirtualSession {
    limits: SessionLimits,
    start: StartSettings,
    /// As of the last commit.
    committed: Arc<Settings>,
    /// As they will be if the transaction commits.
    settings: Arc<Settings>,
    savepoints: Vec<(Box<[u8]>, Arc<Settings>)>,
    /// The values that the client was told.
    told: ReportedNow,
    statements: Statements,
    portals: Portals,
    requests: Requests,
    /// How many segments the client has sent. One ends with Sync or Query.
    segment: u64,
    /// How many answers have come to requests and statements.
    answers: u64,
    /// The segment that the client was in when everything was answered last.
    answered_segment: u64,
    backend: Option<Box<Backend>>,
    status: TransactionStatus,
    hold: Hold,
    /// Frames of the client that wait.
    held: Vec<u8>,
    client_side: Framing,
    server_side: Framing,
    /// An error has come since the last ReadyForQuery, or the transaction block has failed.
    failed: bool,
    /// The client was told an error, and ReadyForQuery is to come.
    told_error: bool,
    /// The server skips everything up to the next Sync.
    skipping: bool,
    /// Extended requests were sent, and no Sync behind them.
    unsynced: bool,
    /// A Flush was sent behind the last frame of the client.
    flushed: bool,
    /// Extended requests have executed something in a transaction that the Sync will end.
    implicit: bool,
    /// The server takes copy data, and its end was not sent.
    copying: bool,
    /// The Query that waits is the rest of a longer one.
    goes_on: bool,
    /// A statement may have changed settings in a way that was not understood.
    unsure: bool,
    /// The same of a statement of the transaction that is under way.
    unsure_now: bool,
    /// Whether a backslash escapes in plain strings.
    escapes: bool,
    /// The server may not read statements as the scanner does.
    doubtful: bool,
    /// It has sent a change of the schema. Of one that failed or was lost it does not matter: then there may be a copy too many.
    changed_schema: bool,
    unanswered: Unanswered,
    pinned: bool,
    /// The client has ended it, or was told of its end.
    over: bool,
    /// The client was told of its end.
    told_end: bool,
    /// Why the transaction has failed, if the client does not know yet.
    pending: Option<Box<ServerError>>,
    /// Why the statement is given up, once the row is sent of which a half is sent; and after how many answers it ran.
    giving_up: Option<(u64, Box<ServerError>)>,
}

impl VirtualSession {
    /// A session that has just logged in. [`greet`](Self::greet) it next.
    #[must_use]
    pub fn new(start: StartSettings, limits: SessionLimits) -> Self {
        let settings = Arc::clone(start.settings());
        Self {
            limits,
            committed: Arc::clone(&settings),
            settings,
            start,
            savepoints: Vec::new(),
            told: ReportedNow::default(),
            statements: Statements::default(),
            portals: Portals::default(),
            requests: Requests::default(),
            segment: 1,
            answers: 0,
            answered_segment: 1,
            backend: None,
            status: TransactionStatus::Idle,
            hold: Hold::None,
            held: Vec::new(),
            client_side: Framing::default(),
            server_side: Framing::default(),
            failed: false,
            told_error: false,
            skipping: false,
            unsynced: false,
            flushed: false,
            copying: false,
            implicit: false,
            goes_on: false,
            unsure: false,
            unsure_now: false,
            escapes: false,
            doubtful: false,
            changed_schema: false,
            unanswered: Unanswered::default(),
            pinned: false,
            over: false,
            told_end: false,
            pending: None,
            giving_up: None,
        }
    }

    /// What follows AuthenticationOk: ParameterStatus, BackendKeyData, ReadyForQuery. It needs no backend: `reported` is what any backend of this
    /// role and database reported. If the first backend reports something else, the client is told then.
    pub fn greet(&mut self, reported: &Reported, key: [u8; 8], out: &mut Outbox) {
        self.told = ReportedNow::new(reported);
        for (name, value) in self.start.values() {
            self.told.ask(name, value);
        }
        self.told_changed();
        self.told.greet(&mut out.to_client);
        write::backend_key_data(&mut out.to_client, key);
        write::ready_for_query(&mut out.to_client, TransactionStatus::Idle.as_byte());
    }

    /// Takes bytes of the client, split anywhere.
    ///
    /// # Errors
    ///
    /// If the client broke the protocol or a limit. [`terminate`](Self::terminate) the session with the error then.
    pub fn from_client(&mut self, bytes: &[u8], out: &mut Outbox) -> Result<(), Violation> {
        if self.over {
            return Ok(());
        }
        if self.held.is_empty() { self.client_bytes(bytes, out) } else { self.hold_bytes(bytes) }
    }

    /// Takes bytes of the backend, split anywhere.
    ///
    /// # Errors
    ///
    /// If it is not a server's answer. Drop the backend and call [`lost`](Self::lost).
    pub fn from_server(&mut self, bytes: &[u8], out: &mut Outbox) -> Result<(), Garbage> {
        if self.backend.is_none() {
            return Ok(());
        }
        self.server_bytes(bytes, out)?;
        self.release(out);
        Ok(())
    }

    /// Whether frames of the client wait for [`attach`](Self::attach).
    #[must_use]
    pub fn wants_backend(&self) -> bool {
        self.backend.is_none() && !self.held.is_empty() && !self.over
    }

    /// Whether to read from the client. If not, its frames wait for a backend or for an answer, and TCP must hold it back.
    #[must_use]
    pub fn takes_more(&self) -> bool {
        self.held.is_empty() && !self.over && self.requests.len() < self.limits.max_unanswered
    }

    /// Whether to read from the client although its frames wait for a backend: so it is noticed if the client leaves.
    #[must_use]
    pub fn takes_more_while_it_waits(&self) -> bool {
        self.wants_backend() && self.held.len() < MOST_WHILE_IT_WAITS
    }

    /// Whether it has a backend.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        self.backend.is_some()
    }

    /// Whether everything is answered and nothing is under way: no transaction, no unsynced request, no frame of which the backend has a part.
    /// The client may have begun another frame.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.status == TransactionStatus::Idle
            && self.requests.is_empty()
            && !self.unsynced
            && !self.skipping
            && self.held.is_empty()
            && !self.client_side.is_in_body()
            && self.server_side.is_between_frames()
    }

    /// Whether the client has begun a frame that has not ended.
    #[must_use]
    pub fn is_in_frame(&self) -> bool {
        !self.client_side.is_between_frames()
    }

    /// Whether a statement is unanswered.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.requests.iter().any(|request| !request.is_ours()) || !self.held.is_empty()
    }

    /// How many answers have come to requests and statements. It is another number when another statement runs.
    #[must_use]
    pub const fn answers(&self) -> u64 {
        self.answers
    }

    /// Where it is in its transaction.
    #[must_use]
    pub const fn transaction(&self) -> TransactionStatus {
        self.status
    }

    /// The segment of the client's frames that lacks its Sync. The server holds a transaction until that comes. While it is busy with an earlier
    /// segment, or takes copy data, it does not wait for that.
    #[must_use]
    pub fn unsynced_segment(&self) -> Option<u64> {
        (self.lacks_sync() && !self.skipping).then_some(self.segment)
    }

    fn lacks_sync(&self) -> bool {
        self.unsynced && !self.copying && self.requests.segments() == 0 && self.backend.is_some()
    }

    /// Whether the client must go on before anything happens: its Sync is to come, also if a request has failed, and it waits for no answer, as
    /// it has not asked for any.
    #[must_use]
    pub fn owes_sync(&self) -> bool {
        let waits = self.flushed && !self.requests.is_empty();
        self.lacks_sync() && !waits && self.held.is_empty()
    }

    /// Whether the client has ended the session, or was told of its end. Write what is in the outbox, and close.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.over
    }

    /// Whether the backend may be taken away.
    #[must_use]
    pub fn can_detach(&self) -> Detach {
        // A client that has ended its session needs nothing any more.
        if self.over && self.is_settled() {
            return if self.unsure { Detach::AfterReadingSettings } else { Detach::Now };
        }
        if !self.is_idle() || self.backend.as_ref().is_none_or(|backend| backend.ending) {
            Detach::Not(Tied::Busy)
        } else if self.pinned {
            Detach::Not(Tied::Pinned)
        } else if self.unsure {
            Detach::AfterReadingSettings
        } else {
            Detach::Now
        }
    }

    /// As [`is_idle`](Self::is_idle), for a session that is over: what the client began to send does not matter.
    fn is_settled(&self) -> bool {
        self.status == TransactionStatus::Idle
            && self.requests.is_empty()
            && !self.unsynced
            && !self.skipping
            && !self.client_side.is_in_body()
            && self.server_side.is_between_frames()
            && self.backend.as_ref().is_some_and(|backend| !backend.ending)
    }

    /// Tells the client something, such as why it waits.
    pub fn notice(&self, notice: &ServerError, out: &mut Outbox) {
        // In the middle of a frame nothing else can be said.
        let can_be_said = !self.over && !self.server_side.is_halfway();
        if can_be_said && self.wants_to_hear(notice.severity.as_str().as_bytes()) {
            write::notice(&mut out.to_client, notice);
        }
    }

    /// Ends the session for this reason, for instance because the gateway stops. If something may be committed all the same, the client must
    /// know that: then it gets 08007 instead.
    pub fn terminate(&mut self, error: &ServerError, out: &mut Outbox) {
        if self.may_have_committed() {
            let message =
                format!("{}, and it is not known whether the transaction was committed", error.message);
            self.end(&ServerError::fatal("08007", message), out);
        } else {
            self.end(error, out);
        }
    }

    /// Ends the session with this error.
    fn end(&mut self, error: &ServerError, out: &mut Outbox) {
        // In the middle of a frame nothing else can be said.
        if !self.over && !self.server_side.is_halfway() {
            write::error(&mut out.to_client, error);
        }
        (self.over, self.told_end) = (true, true);
    }
}

impl fmt::Debug for VirtualSession {
    // Without texts: they may hold data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VirtualSession")
            .field("status", &self.status)
            .field("attached", &self.backend.is_some())
            .field("unanswered", &self.requests.len())
            .field("statements", &self.statements.count())
            .field("pinned", &self.pinned)
            .field("unsure", &self.unsure)
            .field("over", &self.over)
            .finish_non_exhaustive()
    }
}
