//! What the gateway itself tells a client, with the SQLSTATE that PostgreSQL has for it.

use std::time::Duration;

use forebay::{CheckoutError, duration};

use crate::protocol::ServerError;
use crate::users::Mode;

/// Why there is no backend, in the words of those who run a gateway: what to do about it is for them.
pub(crate) fn cause(error: &CheckoutError) -> String {
    match error {
        CheckoutError::Exhausted { max_open, .. } => format!("all {max_open} connections are in use"),
        error => error.to_string(),
    }
}

/// A client in this mode could not get a backend.
pub(crate) fn no_backend(error: &CheckoutError, mode: Mode) -> ServerError {
    let (code, hint) = match (error, mode) {
        // Those that hold them need not be in a transaction.
        (CheckoutError::Exhausted { .. }, Mode::Session) => (
            "53300",
            "in mode session, each connected client keeps its connection: make the clients' pools smaller, use mode elastic, \
             or raise DSQL_MAX_CONNS",
        ),
        (CheckoutError::Exhausted { .. }, Mode::Elastic) => {
            ("53300", "hold transactions for a shorter time, or raise DSQL_MAX_CONNS")
        }
        (CheckoutError::Closed, _) => ("57P01", "connect again"),
        (CheckoutError::Denied { .. }, _) => {
            ("28000", "the gateway's own access to the cluster is denied: see its log")
        }
        _ => ("57P03", "try again: the gateway is opening connections to the cluster"),
    };
    let message = match error {
        CheckoutError::Exhausted { waited, .. } if !waited.is_zero() => {
            let waited = duration::show(Duration::new(waited.as_secs(), waited.subsec_millis() * 1_000_000));
            format!("no connection became free within {waited}: {}", cause(error))
        }
        error => cause(error),
    };
    ServerError::error(code, message).with_hint(hint)
}

/// A reload has removed the role of this user while it logged in.
pub(crate) fn no_role() -> ServerError {
    ServerError::fatal("57P03", "the gateway has just been given other users").with_hint("connect again")
}

/// The gateway ends.
pub(crate) fn shutting_down() -> ServerError {
    ServerError::fatal("57P01", "terminating connection due to administrator command")
}

/// The client has left its results unread for too long.
pub(crate) fn unread() -> ServerError {
    ServerError::fatal("08006", "terminating connection: the client did not read its results in time")
}

/// The transaction has taken too long.
pub(crate) fn transaction_timeout() -> ServerError {
    ServerError::fatal("25P04", "terminating connection due to transaction timeout")
}

/// The client has left its transaction alone for too long.
pub(crate) fn idle_in_transaction_timeout() -> ServerError {
    ServerError::fatal("25P03", "terminating connection due to idle-in-transaction timeout")
}

/// The client has been idle for too long.
pub(crate) fn idle_timeout() -> ServerError {
    ServerError::fatal("57P05", "terminating connection due to idle-session timeout")
}

/// The statement has taken too long.
pub(crate) fn query_timeout() -> ServerError {
    ServerError::error("57014", "canceling statement due to statement timeout")
}
