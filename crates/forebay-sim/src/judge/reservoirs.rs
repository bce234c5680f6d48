//! What each instance owns, and whether the fleet is whole.

use forebay::{Discard, Instant, Status};

use super::{Assertion, Judge, Order};

impl Judge {
    /// A reservoir closed a connection.
    pub(crate) fn discarded(&mut self, now: Instant, reason: Discard) {
        // What the world or an operator ends is not the reservoir's decision.
        if matches!(reason, Discard::Died | Discard::Bad | Discard::Draining) {
            return;
        }
        let count = self.closures.add(now);
        self.peaks.closures = self.peaks.closures.max(count);
        let most = self.scenario.asserts.max_closures_per_sec;
        if count > most {
            self.find(Assertion::MaxClosures, now, || {
                format!("{count} closed in one second, where {most} are allowed")
            });
        }
    }

    /// How an instance stands by its own account, and how many sessions the cluster counts.
    pub(crate) fn look(&mut self, place: usize, now: Instant, status: &Status, sessions: usize) {
        let service = &self.scenario.services[place];
        let (max_open, overlap) = (service.max_open, service.overlap);
        let bound = max_open + overlap.min(status.retiring);
        if status.owned() > bound || sessions > max_open + overlap + status.closing {
            let (name, owned, closing) = (self.name(place), status.owned(), status.closing);
            self.find(Assertion::Bound, now, || {
                format!(
                    "{name} owns {owned} and the cluster counts {sessions}, {closing} closing, where {bound} are allowed"
                )
            });
        }
    }

    /// An instance is gone, or has begun anew: nobody stands in its line.
    pub(crate) fn vanished(&mut self, place: usize) {
        self.members[place].order = Order::default();
    }

    /// An instance can use so many connections now, as the cluster counts.
    pub(crate) fn resize(&mut self, place: usize, now: Instant, size: usize, leases_held: u64) {
        self.tick(now);
        self.leases_held = leases_held;
        let member = &mut self.members[place];
        let (was_below, is_below) = (member.size < member.floor, size < member.floor);
        self.total = self.total - member.size + size;
        self.below = self.below + usize::from(is_below) - usize::from(was_below);
        member.size = size;
        if was_below {
            member.below_until = now;
        }
        member.short_since = (size < member.max_open).then(|| member.short_since.unwrap_or(now));
        let whole = self.below == 0 && self.fleet_goal.is_none_or(|goal| self.total >= goal);
        match (whole, self.windows.is_whole()) {
            (true, false) => self.windows.mend(now),
            (false, true) => self.fell_apart(place, now),
            _ => {}
        }
    }

    fn fell_apart(&mut self, place: usize, now: Instant) {
        let late = self.windows.tear(now);
        self.report(now, late);
        if self.is_disturbed(place) {
            return;
        }
        let (name, size, target) =
            (self.name(place), self.members[place].size, self.scenario.services[place].target_ready);
        let total = self.total;
        let why = match self.scenario.leases {
            Some(leases) if self.leases_held >= leases.limit => {
                format!("all {} leases are held: raise leases.limit, or lower maxOpen", leases.limit)
            }
            _ => "nothing was wrong".to_owned(),
        };
        self.find(Assertion::Stable, now, || {
            format!("{name} fell to {size} of {target}, {total} in the fleet; {why}")
        });
    }

    /// How many connections the fleet lacks.
    pub(super) fn missing(&self) -> usize {
        match self.fleet_goal {
            Some(goal) => goal.saturating_sub(self.total),
            None => self.members.iter().map(|member| member.floor.saturating_sub(member.size)).sum(),
        }
    }
}
