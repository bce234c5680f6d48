//! What each may hold where not all can have what they want.

/// What one instance has, and what it wants besides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Demand {
    pub(crate) slots: u64,
    pub(crate) want: u64,
}

impl Demand {
    fn total(&self) -> u64 {
        self.slots.saturating_add(self.want)
    }
}

/// How many slots nobody is to exceed, so that all get their share: whoever wants less than that has all of it, and the others as
/// much as each other. None while there is enough for everybody, or nobody has much less than that: slots do not move
/// for a little more justice.
pub(crate) fn level(mut demands: Vec<Demand>, limit: u64) -> Option<u64> {
    demands.sort_unstable_by_key(Demand::total);
    let (mut left, mut claims) = (limit, demands.len() as u64);
    let enough_for = |demand: &&Demand| {
        let enough = demand.total() <= left / claims.max(1);
        if enough {
            left -= demand.total();
            claims -= 1;
        }
        !enough
    };
    demands.iter().find(enough_for)?;
    let level = (left / claims.max(1)).max(1);
    let starves = |demand: &Demand| demand.want > 0 && demand.slots * 4 < level.min(demand.total()) * 3;
    demands.iter().any(starves).then_some(level)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn demands(all: &[(u64, u64)]) -> Vec<Demand> {
        all.iter().map(|(slots, want)| Demand { slots: *slots, want: *want }).collect()
    }

    #[test]
    fn who_wants_little_has_it_and_the_others_share_the_rest() {
        assert_eq!(level(demands(&[(60, 0), (40, 0), (0, 0)]), 100), None, "nobody wants more");
        assert_eq!(level(demands(&[(60, 20), (10, 5), (0, 5)]), 100), None, "there is enough");
        assert_eq!(
            level(demands(&[(60, 20), (35, 0), (5, 50)]), 100),
            Some(33),
            "a third is less than it has"
        );
        assert_eq!(level(demands(&[(60, 20), (20, 0), (20, 50)]), 100), Some(40));
        assert_eq!(level(demands(&[(45, 20), (20, 0), (35, 50)]), 100), None, "near enough");
        assert_eq!(level(demands(&[(2, 2), (0, 2), (0, 2)]), 2), Some(1), "never none at all");
        assert_eq!(level(Vec::new(), 100), None);
    }

    proptest! {
        #[test]
        fn all_fit_below_it(all in prop::collection::vec((0u64..50, 0u64..50), 1..30), limit in 30u64..500) {
            if let Some(level) = level(demands(&all), limit) {
                let below = |level: u64| all.iter().map(|(slots, want)| (slots + want).min(level)).sum::<u64>();
                prop_assert!(below(level) <= limit, "{level}");
                prop_assert!(below(level + 1) > limit, "{level} is not the highest");
            }
        }
    }
}
