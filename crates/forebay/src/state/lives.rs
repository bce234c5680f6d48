//! The lifetimes of connections, and when to retire each.

use std::time::Duration;

use super::retirement::{Period, RetirementSchedule};
use crate::config::{Config, Lifetime};
use crate::seed::Rng;
use crate::time::{Instant, nanos};

/// Draws lifetimes and schedules retirements.
#[derive(Debug)]
pub(super) struct Lives {
    pub(super) lifetime: Lifetime,
    /// How long before it becomes stale a connection is retired, so that its replacement has time to open.
    lead: Duration,
    /// `None` if connections live until they expire.
    schedule: Option<RetirementSchedule>,
    pub(super) rng: Rng,
    fleet_phase: FleetPhase,
}

/// The offset of this reservoir within a period, so that the processes of a fleet do not retire connections
/// together.
#[derive(Clone, Copy, Debug)]
struct FleetPhase {
    /// The number of this process in its fleet. `None`: the offset is random.
    instance_index: Option<u64>,
    /// The number comes from the configuration and does not change.
    fixed: bool,
    /// By how many nanoseconds the time of day is ahead of the reservoir's clock. A small drift between them
    /// does not matter.
    wall_ahead: u64,
}

impl Lives {
    /// `wall` is the time of day at `now`.
    pub(super) fn new(
        lifetime: Lifetime,
        config: &Config,
        mut rng: Rng,
        now: Instant,
        wall: Duration,
    ) -> Self {
        let lead = config.open_timeout.min(lifetime.shortest().saturating_sub(lifetime.guard) / 10);
        let fleet_phase = FleetPhase {
            instance_index: config.instance_index,
            fixed: config.instance_index.is_some(),
            wall_ahead: nanos(wall).saturating_sub(now.as_nanos()),
        };
        let schedule =
            config.replace_ahead.then(|| fleet_phase.schedule(lifetime, lead, config.max_open, &mut rng));
        Self { lifetime, lead, schedule, rng, fleet_phase }
    }

    /// Books the retirement of a connection that is opened `now` and becomes stale at `stale_at`. Returns its
    /// time, and its period if one was free.
    pub(super) fn book(&mut self, now: Instant, stale_at: Instant) -> (Instant, Option<Period>) {
        match &mut self.schedule {
            Some(schedule) => schedule.book(now, stale_at - self.lead),
            None => (Instant::NEVER, None),
        }
    }

    pub(super) fn free(&mut self, period: Period) {
        if let Some(schedule) = &mut self.schedule {
            schedule.free(period);
        }
    }

    /// Sets the number of this process, unless the configuration has one. Returns whether it has changed: the
    /// schedule is then new.
    pub(super) fn set_instance_index(&mut self, number: u64, connections: usize) -> bool {
        if self.fleet_phase.fixed || self.fleet_phase.instance_index == Some(number) {
            return false;
        }
        self.fleet_phase.instance_index = Some(number);
        self.reschedule(connections);
        true
    }

    /// Starts a new schedule for this number of connections.
    pub(super) fn reschedule(&mut self, connections: usize) {
        if let Some(schedule) = &mut self.schedule {
            *schedule = self.fleet_phase.schedule(self.lifetime, self.lead, connections, &mut self.rng);
        }
    }
}

impl FleetPhase {
    fn schedule(
        self,
        lifetime: Lifetime,
        lead: Duration,
        connections: usize,
        rng: &mut Rng,
    ) -> RetirementSchedule {
        let shortest = lifetime.shortest().saturating_sub(lifetime.guard).saturating_sub(lead);
        // Multiples of the golden ratio are far apart, for any number of processes.
        let fraction =
            self.instance_index.map_or(rng.bits(), |index| index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let wall_ahead = if self.instance_index.is_some() { self.wall_ahead } else { 0 };
        RetirementSchedule::new(connections, shortest, lifetime.longest(), fraction, wall_ahead)
    }
}

/// The points in time of a connection's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) born_at: Instant,
    /// From this time on, it is not lent.
    pub(crate) stale_at: Instant,
    pub(crate) expires_at: Instant,
}

impl Life {
    /// The time until it expires. `None` if it never does.
    pub(crate) fn remaining(&self, now: Instant) -> Option<Duration> {
        (self.expires_at != Instant::NEVER).then(|| self.expires_at.since(now))
    }
}
