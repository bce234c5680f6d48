//! Checks the promises to callers: a good connection, in order, in time.

use std::time::Duration;

use forebay::{CheckoutError, Instant};
use forebay_fleet::StoreOutagePolicy;

use super::{Assertion, Judge};
use crate::events::{FailedCheckout, ServedCheckout};
use crate::outcome::about;

/// The documented limit for callers without their own. Not read from the reservoir, which could be wrong.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(30);
/// A shorter delay is not late.
const SLACK: Duration = Duration::from_millis(10);
/// How long the policy `strict` takes to close connections whose slots others may take.
const CLOSING: Duration = Duration::from_millis(100);

impl Judge {
    /// Whether the instance lacks connections, by the cluster's count. A caller that comes now and is not
    /// served at once finds it empty.
    pub(crate) fn is_short(&self, instance: usize) -> bool {
        self.instances[instance].short_since.is_some()
    }

    /// A caller found the instance empty, served later or not.
    pub(crate) fn found_empty(&mut self, instance: usize, now: Instant, waited: Duration) {
        if self.scenario.asserts.zero_empty_events {
            self.find_for(Assertion::ZeroEmpty, instance, now, |name| {
                format!("a caller found {name} empty {} ago", about(waited))
            });
        }
    }

    pub(crate) fn served(&mut self, instance: usize, now: Instant, served: &ServedCheckout) {
        let service = &self.scenario.services[instance];
        let (oldest, guard) = (self.stretched(service.oldest_lent()), service.guard_window);
        let (age, remaining) = (served.age, served.remaining);
        if age > oldest || remaining.is_some_and(|remaining| remaining < guard) {
            let left =
                remaining.map_or_else(String::new, |remaining| format!(" with {} left", about(remaining)));
            self.find_for(Assertion::Lives, instance, now, |name| {
                let (age, oldest) = (about(age), about(oldest));
                format!("{name} lent a connection of age {age}{left}; the maximum age is {oldest}")
            });
        }
        if !served.alive {
            self.find_for(Assertion::Lives, instance, now, |name| format!("{name} lent a dead connection"));
        }
        if !self.instances[instance].order.serve(served.number, now) {
            self.overtaken(instance, now, served.number);
        }
        self.check_wait(instance, now, served.waited);
    }

    pub(crate) fn checkout_failed(&mut self, instance: usize, now: Instant, failed: &FailedCheckout<'_>) {
        let error = failed.error;
        let state = &self.instances[instance];
        // While the caller waited, or until shortly before.
        let lacked = state.size < state.floor || now.since(state.below_until) <= failed.waited + SLACK;
        let excused = self.is_disturbed(instance) && lacked && !matches!(error, CheckoutError::Closed);
        if !excused {
            self.find_for(Assertion::NoFailedCheckouts, instance, now, |name| format!("{name}: {error}"));
        }
        if !self.instances[instance].order.is_in_order(failed.number, now) {
            self.overtaken(instance, now, failed.number);
        }
        self.check_wait(instance, now, failed.waited);
    }

    fn overtaken(&mut self, instance: usize, now: Instant, number: u64) {
        self.find_for(Assertion::FirstComeFirstServed, instance, now, |name| {
            format!("caller {number} of {name} was overtaken")
        });
    }

    fn check_wait(&mut self, instance: usize, now: Instant, waited: Duration) {
        let (service, state) = (&self.scenario.services[instance], &self.instances[instance]);
        let short = state.short_since.is_some_and(|since| now.since(since) >= waited);
        let limit = match (service.workload.max_wait, service.empty_wait) {
            // A reservoir owns what it lent until the return, dead or alive.
            (Duration::ZERO, Some(empty)) if short => {
                ACQUIRE_TIMEOUT.min(empty + service.workload.longest_hold())
            }
            (Duration::ZERO, _) => ACQUIRE_TIMEOUT,
            (own, _) => own,
        };
        // A paused instance cannot answer in time.
        let was_paused = now.since(state.resumed) <= waited + SLACK;
        // With the policy `strict` it may own nothing during a disturbance.
        let strict = self.scenario.away == StoreOutagePolicy::Strict && self.is_disturbed(instance);
        let limit = if strict { limit + CLOSING } else { limit };
        if waited > self.stretched(limit) + SLACK && !was_paused {
            self.find_for(Assertion::Answered, instance, now, |name| {
                format!("a caller of {name} waited {}; the limit is {}", about(waited), about(limit))
            });
        }
    }
}
