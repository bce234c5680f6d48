//! The fair share of each instance when there are fewer slots than all instances want.

use std::time::Duration;

use forebay::Instant;

/// A reservoir that was refused for lack of slots tries again within ten seconds. One that does not needs no more.
const STARVED: Duration = Duration::from_secs(20);
/// One third of what is above the fair share goes at each heartbeat, so that the others can take it up.
const STEPS: u64 = 3;

/// The slots of an entry, and how many more its instance wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Demand {
    pub(super) slots: u64,
    /// Slots in the instance's other entries.
    pub(super) elsewhere: u64,
    pub(super) want: u64,
}

impl Demand {
    fn held(&self) -> u64 {
        self.slots.saturating_add(self.elsewhere)
    }

    fn total(&self) -> u64 {
        self.held().saturating_add(self.want)
    }

    /// The slots of this entry if no instance has more than `share`.
    fn within(&self, share: u64) -> u64 {
        self.total().min(share).saturating_sub(self.elsewhere)
    }
}

/// The largest number of slots per instance at which all demands fit into `capacity` (max-min fairness). None if there
/// is enough for all, or if no instance has much less than its share: small differences are not worth the writes.
fn fair_share(demands: &[Demand], capacity: u64) -> Option<u64> {
    let fits = |share: u64| demands.iter().map(|demand| demand.within(share)).sum::<u64>() <= capacity;
    let most = demands.iter().map(Demand::total).max()?;
    if fits(most) {
        return None;
    }
    let (mut share, mut above) = (0, most);
    while above - share > 1 {
        let middle = share.midpoint(above);
        *if fits(middle) { &mut share } else { &mut above } = middle;
    }
    let share = share.max(1);
    let starves = |demand: &Demand| demand.want > 0 && demand.held() * 4 < share.min(demand.total()) * 3;
    demands.iter().any(starves).then_some(share)
}

/// The fair share as one instance knows it.
#[derive(Debug, Default)]
pub(super) struct FairShare {
    /// The most slots this instance should have. None if there is enough for all.
    share: Option<u64>,
    /// The most slots this instance lends or takes. It falls to the share step by step as connections end.
    cap: Option<u64>,
    /// When the share was last computed.
    compared: Instant,
    /// When slots were last missing.
    starved: Option<Instant>,
}

impl FairShare {
    pub(super) fn cap(&self) -> Option<u64> {
        self.cap
    }

    pub(super) fn is_limited(&self) -> bool {
        self.share.is_some()
    }

    /// Slots are missing.
    pub(super) fn starved(&mut self, now: Instant) {
        self.starved = Some(now);
    }

    /// Whether slots were missing recently.
    pub(super) fn is_starved(&self, now: Instant) -> bool {
        self.starved.is_some_and(|starved| now.since(starved) < STARVED)
    }

    /// How many more slots an instance with `slots` wants. Instances close to `max_open` report no demand: nobody would
    /// give them slots, and the demand would be in every write.
    pub(super) fn want(&self, now: Instant, slots: u64, max_open: u64) -> u64 {
        let want = max_open.saturating_sub(slots);
        if self.is_starved(now) && want.saturating_mul(3) > slots { want } else { 0 }
    }

    /// When to compare again before the next heartbeat: if a caller was refused for the sake of other instances, which
    /// may have enough by now.
    pub(super) fn next_check(&self, heartbeat: Duration) -> Instant {
        let refused = self.cap.is_some() && self.starved.is_some_and(|starved| starved > self.compared);
        if refused { self.compared + heartbeat / 2 } else { Instant::NEVER }
    }

    /// Computes the share from what was seen: the demands and the capacity they share.
    pub(super) fn compare(
        &mut self,
        now: Instant,
        seen: Option<(Vec<Demand>, u64)>,
        is_new: bool,
        leases: u64,
    ) {
        self.compared = now;
        let share = seen.and_then(|(demands, capacity)| fair_share(&demands, capacity));
        // A new instance has not seen everything: it tolerates an eighth more.
        self.share = share.map(|share| if is_new { share + share / 8 } else { share });
        // Unused slots are given up at once, slots in use step by step.
        self.cap = self.share.map(|share| self.cap.unwrap_or(leases).max(share));
    }

    /// Lowers the cap by one step, at a heartbeat.
    pub(super) fn lower_cap(&mut self, leases: u64) {
        if let Some(share) = self.share {
            let above = leases.saturating_sub(share);
            self.cap = Some(share + above - above.div_ceil(STEPS));
        }
    }
}
#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn demands(all: &[(u64, u64)]) -> Vec<Demand> {
        all.iter().map(|(slots, want)| Demand { slots: *slots, elsewhere: 0, want: *want }).collect()
    }

    #[test]
    fn small_demands_are_met_and_the_rest_is_shared_equally() {
        let share = |all: &[(u64, u64)]| fair_share(&demands(all), 100);
        assert_eq!(share(&[(60, 0), (40, 0), (0, 0)]), None, "nobody wants more");
        assert_eq!(share(&[(60, 20), (10, 5), (0, 5)]), None, "there is enough");
        assert_eq!(share(&[(60, 20), (35, 0), (5, 50)]), Some(33), "a third is less than it has");
        assert_eq!(share(&[(60, 20), (20, 0), (20, 50)]), Some(40));
        assert_eq!(share(&[(45, 20), (20, 0), (35, 50)]), None, "near enough");
        assert_eq!(share(&[]), None);
    }

    #[test]
    fn slots_in_other_entries_count_towards_the_share() {
        let elsewhere = Demand { slots: 4, elsewhere: 30, want: 60 };
        let here = Demand { slots: 96, elsewhere: 0, want: 0 };
        assert_eq!(fair_share(&[elsewhere, here], 100), Some(65), "65 for one, 35 more for the other");
        let enough = Demand { slots: 4, elsewhere: 60, want: 60 };
        assert_eq!(fair_share(&[enough, here], 100), None, "it has most of its share already");
        assert_eq!(fair_share(&demands(&[(2, 2), (0, 2), (0, 2)]), 2), Some(1), "never none at all");
    }

    proptest! {
        #[test]
        fn all_demands_fit_within_the_share(all in prop::collection::vec((0u64..50, 0u64..50), 1..30), limit in 30u64..500) {
            if let Some(share) = fair_share(&demands(&all), limit) {
                let below = |share: u64| all.iter().map(|(slots, want)| (slots + want).min(share)).sum::<u64>();
                prop_assert!(below(share) <= limit, "{share}");
                prop_assert!(below(share + 1) > limit, "{share} is not the highest");
            }
        }
    }
}
