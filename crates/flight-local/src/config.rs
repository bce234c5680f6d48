//! What a server is started with.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::auth::Auth;
use crate::tls::Tls;

/// What a server is started with. Every field has a default: `Config { session_limit: 5, ..Config::default() }`.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where to listen. Default: a free port of 127.0.0.1.
    pub listen: SocketAddr,
    /// Default: none; the transport is not encrypted.
    pub tls: Option<Tls>,
    /// Default: none; everybody may use it.
    pub auth: Option<Auth>,
    /// The SQLite database that all sessions share. Default: a private one, which ends with the server.
    pub database: Option<PathBuf>,
    /// How many sessions there may be, lingering ones included. Default: 100.
    pub session_limit: usize,
    /// How long a session outlives its last connection. Default: not at all.
    pub session_linger: Duration,
    /// By what a session is found again. Default: by the connection.
    pub session_key: SessionKey,
    /// What it knows beyond plain statements. Default: everything.
    pub actions: Actions,
    /// Whether a statement is interrupted when its call is dropped: a stream reset, a deadline, a closed connection.
    /// Without it an abandoned statement runs on and keeps its session's lock. Default: true.
    pub interrupt_on_drop: bool,
    /// ResultStream every SQL error with INTERNAL, as some servers do. Default: false.
    pub internal_errors: bool,
    /// Report 0 for every plain update, as some servers do. Default: false.
    pub zero_counts: bool,
    /// How many rows a batch may have. A batch is also cut at about a megabyte. Default: 65,536.
    pub max_batch_rows: usize,
    /// Over how many endpoints each result is spread, in order. More than one runs the statement before its
    /// tickets are given out, and keeps its result until they are redeemed. Default: 1.
    pub endpoints_per_result: usize,
    /// How many more listeners there are; the endpoints of a result name them in turn. Default: 0.
    pub further_listeners: usize,
    /// How long a writer waits for another session's transaction. Default: 5 s.
    pub busy_timeout: Duration,
    /// Keep the text of each statement that was begun, for [`FlightLocal::statements`](crate::FlightLocal::statements).
    /// Default: false.
    pub log_statements: bool,
    /// Whether it can be told over its own port what is to go wrong: [`tell`](crate::tell). Default: false.
    pub control: bool,
    /// ServerRuntime that serve sockets; statements have threads of their own. Default: one for each core, at least two.
    pub threads: Option<usize>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            tls: None,
            auth: None,
            database: None,
            session_limit: 100,
            session_linger: Duration::ZERO,
            session_key: SessionKey::Connection,
            actions: Actions::default(),
            interrupt_on_drop: true,
            internal_errors: false,
            zero_counts: false,
            max_batch_rows: 65_536,
            endpoints_per_result: 1,
            further_listeners: 0,
            busy_timeout: Duration::from_secs(5),
            log_statements: false,
            control: false,
            threads: None,
        }
    }
}

impl Config {
    /// A server with the habits of SwanLake: sessions that outlive their connection by a quarter of an hour, no
    /// cancelling of any kind, an abandoned statement that runs on, INTERNAL for every error, 0 rows for every update.
    #[must_use]
    pub fn like_swanlake() -> Self {
        Self {
            session_linger: Duration::from_secs(15 * 60),
            actions: Actions { begin_transaction: Support::Known, ..Actions::all(Support::Unknown) },
            interrupt_on_drop: false,
            internal_errors: true,
            zero_counts: true,
            ..Self::default()
        }
    }
}

/// By what a session is found again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionKey {
    /// By the peer's address and port: a connection is a session.
    #[default]
    Connection,
    /// By the cookie `arrow_flight_session_id`, which is set with the first answer.
    Cookie,
}

/// Whether the server knows an action.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Support {
    /// Listed, and done.
    #[default]
    Known,
    /// Listed, and refused with UNIMPLEMENTED.
    Refused,
    /// Not listed, and answered with INVALID_ARGUMENT, as servers built on arrow-rs do.
    Unknown,
}

/// What the server knows beyond plain statements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Actions {
    /// Begins a transaction. Without it, there is SQL's own `BEGIN`.
    pub begin_transaction: Support,
    /// Ends the session.
    pub close_session: Support,
    /// Changes the session's options.
    pub set_session_options: Support,
    /// Tells the session's options.
    pub get_session_options: Support,
    /// Interrupts a statement by its `FlightInfo`.
    pub cancel_flight_info: Support,
    /// Interrupts a statement by its `FlightInfo`, its ticket, its handle or its session.
    pub cancel_query: Support,
    /// Runs a statement in the background and tells how far it is. It is no action, so it is never listed.
    pub poll_flight_info: Support,
}

impl Actions {
    /// The same for all of them.
    #[must_use]
    pub fn all(support: Support) -> Self {
        Self {
            begin_transaction: support,
            close_session: support,
            set_session_options: support,
            get_session_options: support,
            cancel_flight_info: support,
            cancel_query: support,
            poll_flight_info: support,
        }
    }
}
