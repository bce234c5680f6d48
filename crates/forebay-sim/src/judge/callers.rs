//! What callers are owed: a good connection, in their turn, in time.

use std::time::Duration;

use forebay::{CheckoutError, Instant};
use forebay_fleet::StoreOutagePolicy;

use super::{Assertion, Judge};
use crate::books::{Loan, Plight};
use crate::outcome::about;

/// What a reservoir promises callers who bring no limit of their own. Spelled out, and not asked of the reservoir.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(30);
/// What is late by less is not.
const SLACK: Duration = Duration::from_millis(10);
/// How long it takes under the policy `strict` to close what could be taken away.
const CLOSING: Duration = Duration::from_millis(100);

impl Judge {
    /// Whether the instance lacks connections, as the cluster counts: a caller who comes now and is not served at once finds it empty.
    pub(crate) fn is_short(&self, place: usize) -> bool {
        self.members[place].short_since.is_some()
    }

    /// A caller found the instance empty, whatever came of it.
    pub(crate) fn found_empty(&mut self, place: usize, now: Instant, waited: Duration) {
        if self.scenario.asserts.zero_empty_events {
            let name = self.name(place);
            self.find(Assertion::ZeroEmpty, now, || {
                format!("a caller found {name} empty {} ago", about(waited))
            });
        }
    }

    /// A caller was given a connection.
    pub(crate) fn lent(&mut self, place: usize, now: Instant, loan: &Loan) {
        let service = &self.scenario.services[place];
        let (oldest, guard) = (self.stretched(service.oldest_lent()), service.guard_window);
        let (age, remaining) = (loan.age, loan.remaining);
        if age > oldest || remaining.is_some_and(|remaining| remaining < guard) {
            let name = self.name(place);
            let left =
                remaining.map_or_else(String::new, |remaining| format!(" with {} left", about(remaining)));
            self.find(Assertion::Lives, now, || {
                format!("{name} lent a connection {} old{left}; {} is the most", about(age), about(oldest))
            });
        }
        if !loan.alive {
            let name = self.name(place);
            self.find(Assertion::Lives, now, || format!("{name} lent a dead connection"));
        }
        if !self.members[place].order.serve(loan.number, now) {
            self.overtaken(place, now, loan.number);
        }
        self.answered(place, now, loan.waited);
    }

    /// A caller got nothing.
    pub(crate) fn checkout_failed(&mut self, place: usize, now: Instant, plight: &Plight<'_>) {
        let error = plight.error;
        let member = &self.members[place];
        // While it waited, or until shortly before.
        let lacked = member.size < member.floor || now.since(member.below_until) <= plight.waited + SLACK;
        let excused = self.is_disturbed(place) && lacked && !matches!(error, CheckoutError::Closed);
        if !excused {
            let name = self.name(place);
            self.find(Assertion::NoFailedCheckouts, now, || format!("{name}: {error}"));
        }
        if !self.members[place].order.is_in_order(plight.number, now) {
            self.overtaken(place, now, plight.number);
        }
        self.answered(place, now, plight.waited);
    }

    fn overtaken(&mut self, place: usize, now: Instant, number: u64) {
        let name = self.name(place);
        self.find(Assertion::FirstComeFirstServed, now, || {
            format!("caller {number} of {name} was overtaken")
        });
    }

    /// Whether a caller has waited no longer than it was promised.
    fn answered(&mut self, place: usize, now: Instant, waited: Duration) {
        let service = &self.scenario.services[place];
        let workload = &service.workload;
        let short = self.members[place].short_since.is_some_and(|since| now.since(since) >= waited);
        let limit = match (workload.max_wait, service.empty_wait) {
            // A reservoir takes what is lent for its own until it comes back, dead or alive.
            (Duration::ZERO, Some(empty)) if short => ACQUIRE_TIMEOUT.min(empty + workload.longest_hold()),
            (Duration::ZERO, _) => ACQUIRE_TIMEOUT,
            (own, _) => own,
        };
        // Who stands still keeps no promise, and its callers do not notice.
        let stood_still = now.since(self.members[place].resumed) <= waited + SLACK;
        // It may own nothing meanwhile.
        let strict = self.scenario.away == StoreOutagePolicy::Strict && self.is_disturbed(place);
        let limit = if strict { limit + CLOSING } else { limit };
        if waited > self.stretched(limit) + SLACK && !stood_still {
            let name = self.name(place);
            self.find(Assertion::Answered, now, || {
                format!("a caller of {name} waited {}, where {} was promised", about(waited), about(limit))
            });
        }
    }
}
