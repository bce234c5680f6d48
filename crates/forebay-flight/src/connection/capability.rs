//! Whether a server supports an optional call.

use std::sync::atomic::{AtomicU8, Ordering};

use tonic::{Code, Status};

/// Whether a server supports an optional call. Found out by trying, since a server may list an action and
/// still refuse it. The result is remembered, so that an unsupported call is tried once, or twice if the
/// first refusal is ambiguous.
#[derive(Debug, Default)]
pub(crate) struct Capability(AtomicU8);

const UNTRIED: u8 = 0;
const SUPPORTED: u8 = 1;
const UNSUPPORTED: u8 = 2;
/// Refused once, in a way that may have been about the object of the call.
const DOUBTFUL: u8 = 3;

impl Capability {
    /// Whether it is worth trying.
    pub(crate) fn may_work(&self) -> bool {
        self.0.load(Ordering::Relaxed) != UNSUPPORTED
    }

    /// Whether it has worked before.
    pub(crate) fn has_worked(&self) -> bool {
        self.0.load(Ordering::Relaxed) == SUPPORTED
    }

    pub(crate) fn record_success(&self) {
        self.0.store(SUPPORTED, Ordering::Relaxed);
    }

    /// A call that has worked once stays supported.
    pub(crate) fn record_refusal(&self, status: &Status) {
        if is_refusal(status) {
            for before in [UNTRIED, DOUBTFUL] {
                let _ = self.0.compare_exchange(before, UNSUPPORTED, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    }

    /// For an action on one object, which may be the reason for the refusal: unless the server says that it
    /// does not know the action, only the second refusal counts.
    pub(crate) fn record_object_refusal(&self, status: &Status) {
        if status.code() != Code::Unimplemented
            && is_refusal(status)
            && self.0.compare_exchange(UNTRIED, DOUBTFUL, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            return;
        }
        self.record_refusal(status);
    }

    /// For an action that has a fallback. Returns whether to use the fallback now. Only a server that says
    /// that it does not know the action is not asked again: any other refusal may be about this one moment.
    pub(crate) fn use_fallback(&self, action: &str, status: &Status) -> bool {
        if is_unknown_action(action, status) {
            self.record_refusal(status);
        }
        is_refusal(status) && !self.has_worked()
    }

    /// For a method of the service itself. Only `UNIMPLEMENTED` says that it is missing. Any other answer may
    /// be about the statement, which must not be sent again.
    pub(crate) fn record_method_refusal(&self, status: &Status) {
        if status.code() == Code::Unimplemented {
            self.record_refusal(status);
        }
    }
}

/// Whether the server does not know the action, or does not allow it. Servers built on arrow-rs answer
/// `INVALID_ARGUMENT` for an action that they do not know, not `UNIMPLEMENTED`.
fn is_refusal(status: &Status) -> bool {
    std::error::Error::source(status).is_none()
        && matches!(status.code(), Code::Unimplemented | Code::InvalidArgument | Code::PermissionDenied)
}

/// Whether the server says that it has no such action. The words matter only where the code alone is
/// ambiguous.
fn is_unknown_action(action: &str, status: &Status) -> bool {
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

/// The first is arrow-rs's text.
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
    fn a_refusal_is_remembered_unless_the_call_has_worked() {
        for refusal in
            [Status::unimplemented(""), Status::invalid_argument(""), Status::permission_denied("")]
        {
            let capability = Capability::default();
            capability.record_refusal(&refusal);
            assert!(!capability.may_work());
            let capability = Capability::default();
            capability.record_success();
            capability.record_refusal(&refusal);
            assert!(capability.may_work());
        }
        let capability = Capability::default();
        capability.record_method_refusal(&Status::invalid_argument(""));
        assert!(capability.may_work(), "that is about the statement");
        capability.record_method_refusal(&Status::unimplemented(""));
        assert!(!capability.may_work());
        let capability = Capability::default();
        for may_work in [true, false] {
            capability.record_object_refusal(&Status::invalid_argument(""));
            assert_eq!(capability.may_work(), may_work, "the first may be about the object");
        }
        let capability = Capability::default();
        capability.record_object_refusal(&Status::unimplemented(""));
        assert!(!capability.may_work());
        let capability = Capability::default();
        capability.record_refusal(&Status::unavailable(""));
        assert!(capability.may_work() && !capability.has_worked(), "that says nothing about the action");
    }

    #[test]
    fn only_an_unknown_action_is_not_tried_again() {
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
            let capability = Capability::default();
            assert!(capability.use_fallback(BEGIN, &status), "this time the fallback: {status}");
            assert_eq!(capability.may_work(), again, "{status}");
        }
        let capability = Capability::default();
        assert!(!capability.use_fallback(BEGIN, &Status::unavailable("")));
        capability.record_success();
        assert!(!capability.use_fallback(BEGIN, &Status::invalid_argument("one is open")));
    }
}
