//! What all connections to one server share: how to get there, and what has been found out about it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use arrow_flight::sql::{CommandStatementQuery, ProstMessageExt};
use bytes::Bytes;
use forebay::rt::Runtime;
use prost::Message;
use tonic::{Code, Status};

use crate::error::Result;
use crate::options::ConnectOptions;
use crate::tls::Tls;

/// One server.
pub(crate) struct Server {
    pub(crate) options: ConnectOptions,
    pub(crate) tls: Option<Tls>,
    pub(crate) runtime: Arc<dyn Runtime>,
    /// The command that asks whether a session answers.
    pub(crate) healthcheck: Bytes,
    /// How long a session that does not answer is waited for.
    pub(crate) quarantine: Duration,
    pub(crate) cancels_flights: Ability,
    pub(crate) cancels_queries: Ability,
    pub(crate) cancels_sessions: Ability,
    /// Shared with the other places that its results are at.
    pub(crate) closes_sessions: Arc<Ability>,
    pub(crate) tells_progress: Ability,
    pub(crate) begins_transactions: Ability,
}

impl Server {
    pub(crate) fn new(
        options: ConnectOptions,
        runtime: Arc<dyn Runtime>,
        healthcheck_sql: &str,
        quarantine: Duration,
    ) -> Result<Self> {
        options.validate()?;
        Ok(Self {
            tls: Tls::new(&options)?,
            options,
            runtime,
            healthcheck: statement(healthcheck_sql, None),
            quarantine,
            cancels_flights: Ability::default(),
            cancels_queries: Ability::default(),
            cancels_sessions: Ability::default(),
            closes_sessions: Arc::default(),
            tells_progress: Ability::default(),
            begins_transactions: Ability::default(),
        })
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Server").field(&self.options.endpoint).finish()
    }
}

/// The command that runs `sql`.
pub(crate) fn statement(sql: &str, transaction_id: Option<Bytes>) -> Bytes {
    CommandStatementQuery { query: sql.to_owned(), transaction_id }.as_any().encode_to_vec().into()
}

/// Whether a server can do something. Found out by trying, since a server may list an action and still refuse it; and
/// remembered, so that it is tried in vain once, or twice where the first refusal leaves a doubt.
#[derive(Debug, Default)]
pub(crate) struct Ability(AtomicU8);

const UNTRIED: u8 = 0;
const YES: u8 = 1;
const NO: u8 = 2;
/// Refused once, in a way that may have been about what it was asked for.
const DOUBTED: u8 = 3;

impl Ability {
    /// Whether it is worth trying.
    pub(crate) fn may_be(&self) -> bool {
        self.0.load(Ordering::Relaxed) != NO
    }

    /// Whether it has worked before.
    pub(crate) fn has_worked(&self) -> bool {
        self.0.load(Ordering::Relaxed) == YES
    }

    /// It worked.
    pub(crate) fn works(&self) {
        self.0.store(YES, Ordering::Relaxed);
    }

    /// It did not. What has worked once is not given up for one refusal.
    pub(crate) fn refused(&self, status: &Status) {
        if is_unknown(status) {
            for before in [UNTRIED, DOUBTED] {
                let _ = self.0.compare_exchange(before, NO, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    }

    /// The same for an action on one object, which may have been the reason: unless the server says that it does not know the
    /// action, a second refusal decides.
    pub(crate) fn refused_for_one(&self, status: &Status) {
        if status.code() != Code::Unimplemented
            && is_unknown(status)
            && self.0.compare_exchange(UNTRIED, DOUBTED, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            return;
        }
        self.refused(status);
    }

    /// The same for `action`, for which there is another way. It is taken whenever the server does not let the action happen, and
    /// from now on only if the server says that it does not know it: any other refusal may be about this one moment. Whether it
    /// is to be taken now.
    pub(crate) fn refused_for_now(&self, action: &str, status: &Status) -> bool {
        if is_of_no_such(action, status) {
            self.refused(status);
        }
        is_unknown(status) && !self.has_worked()
    }

    /// The same for a method of the service itself, where one answer alone says that it is not there. Any other may be about the
    /// statement, which must not be sent once more for that.
    pub(crate) fn method_refused(&self, status: &Status) {
        if status.code() == Code::Unimplemented {
            self.refused(status);
        }
    }
}

/// How servers say that they do not know an action, or do not let it happen. Those built on arrow-rs answer
/// `INVALID_ARGUMENT`, not `UNIMPLEMENTED`.
fn is_unknown(status: &Status) -> bool {
    std::error::Error::source(status).is_none()
        && matches!(status.code(), Code::Unimplemented | Code::InvalidArgument | Code::PermissionDenied)
}

/// Whether the server says that it has no such action. Words are looked at only where the code alone does not tell.
fn is_of_no_such(action: &str, status: &Status) -> bool {
    match status.code() {
        Code::Unimplemented => true,
        Code::InvalidArgument => {
            let message = status.message().to_ascii_lowercase();
            let names_it = message.contains(&action.to_ascii_lowercase()) || message.contains("action");
            names_it && NO_SUCH.iter().any(|words| message.contains(words))
        }
        _ => false,
    }
}

/// How servers say it; the first is arrow-rs's.
const NO_SUCH: [&str; 8] = [
    "the defined request is invalid",
    "unknown",
    "not know",
    "unrecognized",
    "unsupported",
    "not supported",
    "not implemented",
    "no such",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_remembered_unless_it_has_worked() {
        for refusal in
            [Status::unimplemented(""), Status::invalid_argument(""), Status::permission_denied("")]
        {
            let ability = Ability::default();
            ability.refused(&refusal);
            assert!(!ability.may_be());
            let ability = Ability::default();
            ability.works();
            ability.refused(&refusal);
            assert!(ability.may_be());
        }
        let ability = Ability::default();
        ability.method_refused(&Status::invalid_argument(""));
        assert!(ability.may_be(), "that is about the statement");
        ability.method_refused(&Status::unimplemented(""));
        assert!(!ability.may_be());
        let ability = Ability::default();
        for may_be in [true, false] {
            ability.refused_for_one(&Status::invalid_argument(""));
            assert_eq!(ability.may_be(), may_be, "once it may be about what was asked for");
        }
        let ability = Ability::default();
        ability.refused_for_one(&Status::unimplemented(""));
        assert!(!ability.may_be());
        let ability = Ability::default();
        ability.refused(&Status::unavailable(""));
        assert!(ability.may_be() && !ability.has_worked(), "that says nothing about the action");
    }

    #[test]
    fn only_a_server_that_does_not_know_an_action_is_not_asked_again() {
        const BEGIN: &str = "BeginTransaction";
        for (status, again) in [
            (Status::unimplemented(""), false),
            (
                Status::invalid_argument("do_action: The defined request is invalid: \"BeginTransaction\""),
                false,
            ),
            (Status::invalid_argument("the server does not know BeginTransaction"), false),
            (Status::invalid_argument("Unknown action type"), false),
            (Status::invalid_argument("the isolation level is unknown"), true),
            (Status::invalid_argument("too many transactions"), true),
            (Status::permission_denied("not now"), true),
        ] {
            let ability = Ability::default();
            assert!(ability.refused_for_now(BEGIN, &status), "this time by words: {status}");
            assert_eq!(ability.may_be(), again, "{status}");
        }
        let ability = Ability::default();
        assert!(!ability.refused_for_now(BEGIN, &Status::unavailable("")));
        ability.works();
        assert!(!ability.refused_for_now(BEGIN, &Status::invalid_argument("one is open")));
    }
}
