//! Checks what each instance owns, and whether the fleet is at target.

use forebay::{Discard, Instant, Status};

use super::{Assertion, Judge, ServingOrder};

impl Judge {
    /// A reservoir closed a connection.
    pub(crate) fn discarded(&mut self, now: Instant, reason: Discard) {
        // These are not the reservoir's own decision.
        if matches!(reason, Discard::Died | Discard::Bad | Discard::Draining) {
            return;
        }
        let count = self.closures.add(now);
        self.peaks.closures = self.peaks.closures.max(count);
        let most = self.scenario.asserts.max_closures_per_sec;
        if count > most {
            self.find(Assertion::MaxClosures, now, || {
                format!("{count} closed in one second; the limit is {most}")
            });
        }
    }

    /// Checks the bound of an instance, by its own status and by the cluster's count.
    pub(crate) fn check_bound(&mut self, instance: usize, now: Instant, status: &Status, sessions: usize) {
        let service = &self.scenario.services[instance];
        let (max_open, overlap) = (service.max_open, service.overlap);
        let bound = max_open + overlap.min(status.retiring);
        let (owned, closing) = (status.owned(), status.closing);
        if owned > bound || sessions > max_open + overlap + closing {
            self.find_for(Assertion::Bound, instance, now, |name| {
                format!(
                    "{name} owns {owned} and has {sessions} sessions, {closing} closing; the bound is {bound}"
                )
            });
        }
    }

    /// The process of an instance ended, and its queue with it.
    pub(crate) fn instance_gone(&mut self, instance: usize) {
        self.instances[instance].order = ServingOrder::default();
    }

    /// The number of usable connections of an instance may have changed.
    pub(crate) fn usable_changed(&mut self, instance: usize, now: Instant, size: usize, leases_held: u64) {
        self.tick(now);
        self.leases_held = leases_held;
        let state = &mut self.instances[instance];
        let (was_below, is_below) = (state.size < state.floor, size < state.floor);
        self.total = self.total - state.size + size;
        self.below = self.below + usize::from(is_below) - usize::from(was_below);
        state.size = size;
        if was_below {
            state.below_until = now;
        }
        state.short_since = (size < state.max_open).then(|| state.short_since.unwrap_or(now));
        let at_target = self.below == 0 && self.capped_target.is_none_or(|target| self.total >= target);
        match (at_target, self.disturbances.is_at_target()) {
            (true, false) => self.disturbances.reached_target(now),
            (false, true) => self.fell_below_target(instance, now),
            _ => {}
        }
    }

    fn fell_below_target(&mut self, instance: usize, now: Instant) {
        let late = self.disturbances.fell_below_target(now);
        self.report(now, late);
        if self.is_disturbed(instance) {
            return;
        }
        let (size, target) = (self.instances[instance].size, self.scenario.services[instance].target_ready);
        let total = self.total;
        let why = match self.scenario.leases {
            Some(leases) if self.leases_held >= leases.limit => {
                format!("all {} leases are held: raise leases.limit, or lower maxOpen", leases.limit)
            }
            _ => "there was no disturbance".to_owned(),
        };
        self.find_for(Assertion::Stable, instance, now, |name| {
            format!("{name} fell to {size} of {target}, {total} in the fleet; {why}")
        });
    }

    /// How many connections the fleet lacks.
    pub(super) fn missing(&self) -> usize {
        match self.capped_target {
            Some(target) => target.saturating_sub(self.total),
            None => self.instances.iter().map(|state| state.floor.saturating_sub(state.size)).sum(),
        }
    }
}
