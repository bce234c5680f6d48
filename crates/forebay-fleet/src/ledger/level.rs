//! What each may hold where not all can have what they want.

/// What an entry has, and what its instance wants besides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Demand {
    pub(crate) slots: u64,
    /// What its instance has in other entries.
    pub(crate) elsewhere: u64,
    pub(crate) want: u64,
}

impl Demand {
    fn has(&self) -> u64 {
        self.slots.saturating_add(self.elsewhere)
    }

    fn total(&self) -> u64 {
        self.has().saturating_add(self.want)
    }

    /// What is left for this entry where nobody has more than `level`.
    fn below(&self, level: u64) -> u64 {
        self.total().min(level).saturating_sub(self.elsewhere)
    }
}

/// How many slots nobody is to exceed, so that all get their share of `capacity`: whoever wants less than that has all of it, and the
/// others as much as each other. None while there is enough for everybody, or nobody has much less than that: slots do not move
/// for a little more justice.
pub(crate) fn level(demands: &[Demand], capacity: u64) -> Option<u64> {
    let fits = |level: u64| demands.iter().map(|demand| demand.below(level)).sum::<u64>() <= capacity;
    let most = demands.iter().map(Demand::total).max()?;
    if fits(most) {
        return None;
    }
    let (mut level, mut above) = (0, most);
    while above - level > 1 {
        let middle = level.midpoint(above);
        *if fits(middle) { &mut level } else { &mut above } = middle;
    }
    let level = level.max(1);
    let starves = |demand: &Demand| demand.want > 0 && demand.has() * 4 < level.min(demand.total()) * 3;
    demands.iter().any(starves).then_some(level)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn demands(all: &[(u64, u64)]) -> Vec<Demand> {
        all.iter().map(|(slots, want)| Demand { slots: *slots, elsewhere: 0, want: *want }).collect()
    }

    #[test]
    fn who_wants_little_has_it_and_the_others_share_the_rest() {
        let level = |all: &[(u64, u64)]| level(&demands(all), 100);
        assert_eq!(level(&[(60, 0), (40, 0), (0, 0)]), None, "nobody wants more");
        assert_eq!(level(&[(60, 20), (10, 5), (0, 5)]), None, "there is enough");
        assert_eq!(level(&[(60, 20), (35, 0), (5, 50)]), Some(33), "a third is less than it has");
        assert_eq!(level(&[(60, 20), (20, 0), (20, 50)]), Some(40));
        assert_eq!(level(&[(45, 20), (20, 0), (35, 50)]), None, "near enough");
        assert_eq!(level(&[]), None);
    }

    #[test]
    fn what_one_has_elsewhere_is_not_taken_here() {
        let elsewhere = Demand { slots: 4, elsewhere: 30, want: 60 };
        let here = Demand { slots: 96, elsewhere: 0, want: 0 };
        assert_eq!(level(&[elsewhere, here], 100), Some(65), "65 for one, 35 more for the other");
        let enough = Demand { slots: 4, elsewhere: 60, want: 60 };
        assert_eq!(level(&[enough, here], 100), None, "it has most of its share already");
        assert_eq!(level(&demands(&[(2, 2), (0, 2), (0, 2)]), 2), Some(1), "never none at all");
    }

    proptest! {
        #[test]
        fn all_fit_below_it(all in prop::collection::vec((0u64..50, 0u64..50), 1..30), limit in 30u64..500) {
            if let Some(level) = level(&demands(&all), limit) {
                let below = |level: u64| all.iter().map(|(slots, want)| (slots + want).min(level)).sum::<u64>();
                prop_assert!(below(level) <= limit, "{level}");
                prop_assert!(below(level + 1) > limit, "{level} is not the highest");
            }
        }
    }
}
