//! Checks what the cluster sees of the fleet.

use std::time::Duration;

use forebay::Instant;

use super::{Assertion, Judge};
use crate::outcome::about;
use crate::scenario::Refusal;
use crate::world::Refused;

/// How long after the end of its life a connection may be closed: the cluster's age includes a slow open.
const LINGERING: Duration = Duration::from_secs(15);

impl Judge {
    /// An instance connected to the cluster, or was refused.
    pub(crate) fn connected(&mut self, instance: usize, now: Instant, refused: Option<&Refused>) {
        self.tick(now);
        let asserts = self.scenario.asserts;
        self.draw_from_bucket(now);
        let count = self.connects.add(now);
        self.peaks.connects = self.peaks.connects.max(count);
        if count > asserts.max_connects_per_sec {
            let most = asserts.max_connects_per_sec;
            self.find(Assertion::MaxConnects, now, || {
                format!("{count} connects in one second; the limit is {most}")
            });
        }
        if self.disturbances.quiet_since().is_some_and(|since| now.since(since) >= Duration::from_secs(1)) {
            self.peaks.renewals = self.peaks.renewals.max(count);
            if let Some(most) = asserts.max_renewals_per_sec.filter(|most| count > *most) {
                self.find(Assertion::MaxRenewals, now, || {
                    format!("{count} connects in one second without a disturbance; the limit is {most}")
                });
            }
        }
        if let Some(refused) = refused.filter(|refused| refused.by_limits) {
            let remedy = match refused.with {
                Refusal::TooManyConnections => {
                    "the cluster is full: keep leases.limit within cluster.maxConnections"
                }
                Refusal::AccessDenied => "it had no valid token",
                _ => "the bucket is empty: share one limiter, or lower limiterPerSec and limiterBurst",
            };
            self.find_for(Assertion::NoRefusals, instance, now, |name| {
                format!("{name} was refused with {}; {remedy}", refused.with.name())
            });
        }
    }

    /// An instance has more sessions than slots in the table.
    pub(crate) fn unleased(&mut self, instance: usize, now: Instant, sessions: usize, slots: u64) {
        self.find_for(Assertion::Leased, instance, now, |name| {
            format!("{name} has {sessions} connections and {slots} slots in the table")
        });
    }

    /// Checks the cluster's count against the fleet's limit. `displaced` sessions are excused.
    pub(crate) fn check_limit(&mut self, now: Instant, sessions: u64, limit: u64, displaced: u64) {
        if sessions > limit + displaced {
            self.find(Assertion::WithinLimit, now, || {
                format!(
                    "{sessions} connections; the limit is {limit}, and {displaced} belong to instances that were cut off"
                )
            });
        }
    }

    pub(crate) fn ledger_inconsistent(&mut self, now: Instant, how: String) {
        self.find(Assertion::LedgerAddsUp, now, || how);
    }

    /// The cluster ended a session because of its age.
    pub(crate) fn outlived(&mut self, instance: usize, now: Instant) {
        if !self.is_disturbed(instance) {
            self.find_for(Assertion::NoAgedSessions, instance, now, |name| {
                format!("a connection of {name} was never retired, and the cluster ended it")
            });
        }
    }

    /// The maximum age of a session at the cluster: a whole life, and then one use.
    pub(crate) fn oldest(&self, instance: usize) -> Duration {
        let service = &self.scenario.services[instance];
        self.stretched(service.base_lifetime + service.jitter / 2)
            + service.workload.longest_hold()
            + LINGERING
    }

    /// A session is older than that.
    pub(crate) fn aged(&mut self, instance: usize, now: Instant, age: Duration) {
        // A paused instance closes nothing.
        if now.since(self.instances[instance].resumed) < LINGERING && self.is_disturbed(instance) {
            return;
        }
        self.find_for(Assertion::NoAgedSessions, instance, now, |name| {
            format!("a connection of {name} is {} old", about(age))
        });
    }
}
