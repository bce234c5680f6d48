//! What the cluster sees of the fleet.

use std::time::Duration;

use forebay::Instant;

use super::{Assertion, Judge};
use crate::outcome::about;
use crate::scenario::Refusal;
use crate::world::Refused;

/// How much later than its life a connection may be closed: a slow open counts towards its age at the cluster.
const LINGERING: Duration = Duration::from_secs(15);

impl Judge {
    /// Somebody connected to the cluster, and it may have refused.
    pub(crate) fn connected(&mut self, place: usize, now: Instant, refused: Option<&Refused>) {
        self.tick(now);
        let asserts = self.scenario.asserts;
        self.draw_from_bucket(now);
        let count = self.connects.add(now);
        self.peaks.connects = self.peaks.connects.max(count);
        if count > asserts.max_connects_per_sec {
            let most = asserts.max_connects_per_sec;
            self.find(Assertion::MaxConnects, now, || {
                format!("{count} connects in one second, where {most} are allowed")
            });
        }
        if self.windows.quiet_since().is_some_and(|since| now.since(since) >= Duration::from_secs(1)) {
            self.peaks.renewals = self.peaks.renewals.max(count);
            if let Some(most) = asserts.max_renewals_per_sec.filter(|most| count > *most) {
                self.find(Assertion::MaxRenewals, now, || {
                    format!("{count} opened in one quiet second, where {most} are allowed")
                });
            }
        }
        if let Some(refused) = refused.filter(|refused| refused.by_limits) {
            let (name, with) = (self.name(place), refused.with);
            let remedy = match with {
                Refusal::TooManyConnections => {
                    "the cluster is full: keep leases.limit within cluster.maxConnections"
                }
                Refusal::AccessDenied => "it had no token that is still good",
                _ => "the bucket is empty: share one limiter, or lower limiterPerSec and limiterBurst",
            };
            self.find(Assertion::NoRefusals, now, || {
                format!("{name} was refused with {}; {remedy}", with.name())
            });
        }
    }

    /// An instance has more sessions than the table has slots for it.
    pub(crate) fn unleased(&mut self, place: usize, now: Instant, sessions: usize, slots: u64) {
        let name = self.name(place);
        self.find(Assertion::Leased, now, || {
            format!("{name} has {sessions} connections, and the table has {slots} slots for it")
        });
    }

    /// The cluster counts so many sessions, of which those who were cut off account for so many too many.
    pub(crate) fn counted(&mut self, now: Instant, sessions: u64, limit: u64, displaced: u64) {
        if sessions > limit + displaced {
            self.find(Assertion::WithinLimit, now, || {
                format!("{sessions} connections, where {limit} are allowed and {displaced} more are of those cut off")
            });
        }
    }

    /// An item of the ledger does not add up.
    pub(crate) fn ledger_is_off(&mut self, now: Instant, how: String) {
        self.find(Assertion::LedgerAddsUp, now, || how);
    }

    /// The cluster ended a session because of its age.
    pub(crate) fn outlived(&mut self, place: usize, now: Instant) {
        if !self.is_disturbed(place) {
            let name = self.name(place);
            self.find(Assertion::NoAgedSessions, now, || {
                format!("a connection of {name} was never retired, and the cluster ended it")
            });
        }
    }

    /// How old a connection of this instance may be at the cluster: as long as it lives, and is held at the end of that.
    pub(crate) fn oldest(&self, place: usize) -> Duration {
        let service = &self.scenario.services[place];
        self.stretched(service.base_lifetime + service.jitter / 2)
            + service.workload.longest_hold()
            + LINGERING
    }

    /// A connection is older than that.
    pub(crate) fn aged(&mut self, place: usize, now: Instant, age: Duration) {
        // Who stands still closes nothing; nor does it lend what is too old.
        if now.since(self.members[place].resumed) < LINGERING && self.is_disturbed(place) {
            return;
        }
        let name = self.name(place);
        self.find(Assertion::NoAgedSessions, now, || format!("a connection of {name} is {} old", about(age)));
    }
}
