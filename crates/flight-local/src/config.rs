//! The configuration of a server.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::auth::Auth;
use crate::tls::Tls;

/// The configuration of a server. Every field has a default: `Config { session_limit: 5, ..Config::default()
/// }`.
#[derive(Clone, Debug)]
pub struct Config {
    /// The address to listen on. Default: a free port of 127.0.0.1.
    pub listen: SocketAddr,
    /// The certificates. Default: none, no encryption.
    pub tls: Option<Tls>,
    /// Authentication. Default: none, every client is accepted.
    pub auth: Option<Auth>,
    /// The SQLite database that all sessions share. Default: a private one, which is removed with the server.
    pub database: Option<PathBuf>,
    /// The largest number of sessions, including lingering ones. Default: 100.
    pub session_limit: usize,
    /// How long a session outlives its last connection. Default: zero.
    pub session_linger: Duration,
    /// How the server finds the session of a call. Default: by the connection.
    pub session_key: SessionKey,
    /// Which optional actions the server supports. Default: all.
    pub actions: Actions,
    /// Whether a statement is interrupted when its call ends early: by a stream reset, a deadline or a closed
    /// connection. If not, the statement continues and keeps its session's lock. Default: true.
    pub interrupt_on_drop: bool,
    /// Return INTERNAL for every SQL error, as some servers do. Default: false.
    pub internal_errors: bool,
    /// Report 0 for every plain update, as some servers do. Default: false.
    pub zero_counts: bool,
    /// What some servers do, and clients do not expect. Default: nothing of it.
    pub quirks: Quirks,
    /// The largest number of rows in a batch. A batch also ends at about a megabyte. Default: 65,536.
    pub max_batch_rows: usize,
    /// The number of endpoints of each result. With more than one, the statement runs before its tickets are
    /// returned, and its result is kept until they are redeemed. Default: 1.
    pub endpoints_per_result: usize,
    /// The number of additional listeners. The endpoints of a result name them in turn. Default: 0.
    pub further_listeners: usize,
    /// How long a writer waits for another session's transaction. Default: 5 s.
    pub busy_timeout: Duration,
    /// Keep the text of each statement, for [`FlightLocal::statements`](crate::FlightLocal::statements).
    /// Default: false.
    pub log_statements: bool,
    /// Whether [`tell`](crate::tell) can inject faults over the server's own port. Default: false.
    pub control: bool,
    /// The number of threads that serve sockets. Statements have other threads. Default: one per core, at
    /// least two.
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
            quirks: Quirks::default(),
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
    /// A server that behaves like SwanLake: sessions outlive their connection by 15 minutes, nothing can be
    /// cancelled, an abandoned statement continues, every error is INTERNAL, every update reports 0 rows, and it has all
    /// [quirks](Quirks).
    #[must_use]
    pub fn like_swanlake() -> Self {
        Self {
            session_linger: Duration::from_secs(15 * 60),
            actions: Actions { begin_transaction: Support::Known, ..Actions::all(Support::Unknown) },
            interrupt_on_drop: false,
            internal_errors: true,
            zero_counts: true,
            quirks: Quirks {
                plans_by_running: true,
                consumes_bindings: true,
                rolls_back_on_error: true,
                alters_session_on_insert: true,
                prepares_by_running: true,
                ignores_unknown_transactions: true,
            },
            ..Self::default()
        }
    }
}

/// What some servers do, and clients do not expect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quirks {
    /// `GetFlightInfo` runs a statement that begins with WITH, to find its columns, also if it writes. Its ticket runs it again.
    pub plans_by_running: bool,
    /// A prepared query uses its bound parameters once.
    pub consumes_bindings: bool,
    /// A failed statement rolls the transaction back. Later statements run outside of it.
    pub rolls_back_on_error: bool,
    /// An update with parameters leaves a temporary table, `flight_local_inserted`, in its session. SwanLake changes the current
    /// catalog, which SQLite does not have.
    pub alters_session_on_insert: bool,
    /// `CreatePreparedStatement` runs a statement that begins with WITH, with NULLs as its parameters, also if it writes.
    pub prepares_by_running: bool,
    /// A statement that names an unknown transaction runs outside of one, and ending an unknown transaction succeeds. So a
    /// client does not notice that its session was [replaced](crate::FlightLocal::replace_sessions).
    pub ignores_unknown_transactions: bool,
}

/// How the server finds the session of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionKey {
    /// By the peer's address and port: each connection is a session.
    #[default]
    Connection,
    /// By the cookie `arrow_flight_session_id`, which the first answer sets.
    Cookie,
}

/// Whether the server supports an action.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Support {
    /// It is listed and works.
    #[default]
    Known,
    /// It is listed, and fails with UNIMPLEMENTED.
    Refused,
    /// It is not listed, and fails with INVALID_ARGUMENT, as in servers built on arrow-rs.
    Unknown,
}

/// Which optional actions the server supports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Actions {
    /// Begins a transaction. Without it, SQL's own `BEGIN` works.
    pub begin_transaction: Support,
    /// Ends the session.
    pub close_session: Support,
    /// Changes the session's options.
    pub set_session_options: Support,
    /// Returns the session's options.
    pub get_session_options: Support,
    /// Cancels a statement by its `FlightInfo`.
    pub cancel_flight_info: Support,
    /// Cancels a statement by its `FlightInfo`, ticket, handle or session.
    pub cancel_query: Support,
    /// Runs a statement in the background and reports its progress. It is a call, not an action, so it is
    /// never listed.
    pub poll_flight_info: Support,
}

impl Actions {
    /// The same support for all actions.
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
