//! How long connections live, and when each is to be retired.

use std::time::Duration;

use super::retirement::{Period, RetirementSchedule};
use crate::config::{Config, Lifetime};
use crate::seed::Rng;
use crate::time::{Instant, nanos};

/// Lifetimes and their schedule.
#[derive(Debug)]
pub(super) struct Lives {
    pub(super) lifetime: Lifetime,
    /// How long before it becomes useless a connection is to be retired, so that its replacement has time to open.
    lead: Duration,
    /// None where connections live to their end.
    schedule: Option<RetirementSchedule>,
    pub(super) rng: Rng,
    fleet_phase: FleetPhase,
}

/// When within a period this reservoir has its phase.
#[derive(Clone, Copy, Debug)]
struct FleetPhase {
    /// The number of this process in its fleet. None: the phase is drawn by fraction.
    instance_index: Option<u64>,
    /// The configuration says so, and nothing else matters.
    fixed: bool,
    /// How far the time of day is ahead of the reservoir's own time. Both run alike, and never mind if not quite.
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

    /// When a connection that is opened `now` and becomes useless at `stale_at` is to be retired, and the period taken for it.
    pub(super) fn book(&mut self, now: Instant, stale_at: Instant) -> (Instant, Option<Period>) {
        match &mut self.schedule {
            Some(schedule) => schedule.book(now, stale_at - self.lead),
            None => (Instant::NEVER, None),
        }
    }

    /// Gives a period back.
    pub(super) fn free(&mut self, period: Period) {
        if let Some(schedule) = &mut self.schedule {
            schedule.free(period);
        }
    }

    /// Takes the phase of process `number`, unless the configuration has said which. Whether that is another one: then the schedule
    /// is new.
    pub(super) fn set_instance_index(&mut self, number: u64, connections: usize) -> bool {
        if self.fleet_phase.fixed || self.fleet_phase.instance_index == Some(number) {
            return false;
        }
        self.fleet_phase.instance_index = Some(number);
        self.reschedule(connections);
        true
    }

    /// Begins a new schedule, for so many connections.
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
        // Multiples of the golden ratio: however many places are taken, their turns lie apart.
        let fraction =
            self.instance_index.map_or(rng.bits(), |index| index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let wall_ahead = if self.instance_index.is_some() { self.wall_ahead } else { 0 };
        RetirementSchedule::new(connections, shortest, lifetime.longest(), fraction, wall_ahead)
    }
}

/// When a connection was born and when it dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) born_at: Instant,
    /// From here on it is not handed out.
    pub(crate) stale_at: Instant,
    pub(crate) expires_at: Instant,
}

impl Life {
    /// How much is left; none if it is not limited.
    pub(crate) fn remaining(&self, now: Instant) -> Option<Duration> {
        (self.expires_at != Instant::NEVER).then(|| self.expires_at.since(now))
    }
}
