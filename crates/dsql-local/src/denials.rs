//! Records why logins were denied. Clients get no reason, as with the real service.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;

use crate::token::{Denial, TokenVerifier};

/// The shortest time between two notices with the same reason.
const PAUSE: Duration = Duration::from_secs(1);

/// Counts denials by reason and reports each reason at most once per second.
#[derive(Debug)]
pub(crate) struct Denials {
    notice: Option<fn(&str)>,
    reasons: Mutex<BTreeMap<&'static str, Reason>>,
}

#[derive(Debug, Default)]
struct Reason {
    count: u64,
    /// When it was last reported, by the machine's clock.
    last: Option<Duration>,
}

impl Denials {
    pub(crate) fn new(notice: Option<fn(&str)>) -> Self {
        Self { notice, reasons: Mutex::default() }
    }

    pub(crate) fn read(&self) -> BTreeMap<&'static str, u64> {
        self.reasons.lock().iter().map(|(reason, entry)| (*reason, entry.count)).collect()
    }

    /// The token is not valid.
    pub(crate) fn token(&self, denial: &Denial, verifier: &TokenVerifier, role: &str, now: Duration) {
        self.record(denial.reason(), role, &denial.remedy(verifier, role), now);
    }

    /// The token is valid, but the engine does not accept the role.
    pub(crate) fn role(&self, role: &str, now: Duration) {
        let problem = "the role does not exist, may not log in, or is not mapped: CREATE ROLE ... WITH LOGIN, \
                       then AWS IAM GRANT ... TO 'arn:...'";
        self.record("role", role, problem, now);
    }

    pub(crate) fn fault(&self, role: &str, now: Duration) {
        self.record("fault", role, "there is a fault refuse:how=denied", now);
    }

    fn record(&self, reason: &'static str, role: &str, problem: &str, now: Duration) {
        let count = {
            let mut reasons = self.reasons.lock();
            let entry = reasons.entry(reason).or_default();
            entry.count += 1;
            // The clock may have been set back, so the distance counts.
            if entry.last.is_some_and(|last| now.abs_diff(last) < PAUSE) {
                return;
            }
            entry.last = Some(now);
            entry.count
        };
        if let Some(notice) = self.notice {
            // The client chooses the name of the role, so it is escaped for terminals.
            notice(&format!("denied {role:?}: {problem} ({reason}: {count} so far)"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

    #[test]
    fn a_reason_is_reported_once_a_second_and_always_counted() {
        let denials = Denials::new(Some(|text| SAID.lock().push(text.to_owned())));
        let second = Duration::from_secs;
        for now in [second(100), second(100), Duration::from_millis(100_999), second(101), second(50)] {
            denials.role("app\u{1b}[2J", now);
        }
        denials.fault("admin", second(100));
        assert_eq!(denials.read(), BTreeMap::from([("fault", 1), ("role", 5)]));
        let said = std::mem::take(&mut *SAID.lock());
        let counts: Vec<&str> = said.iter().filter_map(|text| text.rsplit('(').next()).collect();
        assert_eq!(counts, ["role: 1 so far)", "role: 4 so far)", "role: 5 so far)", "fault: 1 so far)"]);
        assert!(said[0].starts_with(r#"denied "app\u{1b}[2J": the role does not exist"#), "{}", said[0]);
    }
}
