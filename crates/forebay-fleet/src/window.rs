//! Mode `window`: the specification's rate, with an item per second that counts the opens of that second.

use std::time::Duration;

use crate::counter::items::{expiry, millis};
use crate::expression::{Change, Condition};
use crate::item::Item;
use crate::rate::{Period, ReserveOutcome, Source};
use crate::table::Update;

/// The rate of one endpoint.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    endpoint: String,
    per_second: u64,
    /// Refusals in a row.
    refusals: u32,
}

/// The key of one second.
pub(crate) fn key(endpoint: &str, second: u64) -> String {
    format!("dsqlconnect#{endpoint}#{second}")
}

/// The longest extra pause after the first refusal. It doubles with each, up to most of a second.
const FIRST: Duration = Duration::from_millis(50);

impl Window {
    pub(crate) fn new(endpoint: &str, per_second: u64) -> Self {
        Self { endpoint: endpoint.to_owned(), per_second, refusals: 0 }
    }
}

impl Source for Window {
    #[allow(clippy::cast_precision_loss, reason = "a rate")]
    fn per_second(&self) -> f64 {
        self.per_second as f64
    }

    fn name(&self) -> &'static str {
        "the fleet's window"
    }

    /// All permits of one second.
    fn max_batch(&self) -> u32 {
        u32::try_from(self.per_second).unwrap_or(u32::MAX).max(1)
    }

    fn reserve(&self, count: u32, wall: Duration) -> Update {
        let most = i64::try_from(self.per_second).unwrap_or(i64::MAX) - i64::from(count);
        let room = [Condition::Missing("count".into()), Condition::AtMost("count".into(), most)];
        Update::of(key(&self.endpoint, wall.as_secs()))
            .when(Condition::Any(room.into()))
            .change(Change::Add("count".into(), i64::from(count)))
            .change(Change::set("updated_at_ms", millis(wall)))
            .change(Change::set("ttl_epoch", expiry(wall)))
    }

    fn granted(&mut self, count: u32, wall: Duration, _item: Option<&Item>) -> ReserveOutcome {
        self.refusals = 0;
        // Counted in this second, so not to be used in the next one.
        let end = Duration::from_secs(wall.as_secs() + 1) - Duration::from_nanos(1);
        let period = Period { from: wall, until: end };
        ReserveOutcome::Reserved(vec![period; usize::try_from(count).unwrap_or(0)])
    }

    fn refused(&mut self, _count: u32, wall: Duration, item: Option<&Item>) -> ReserveOutcome {
        let counted = item.and_then(|item| item.number("count")).unwrap_or(0);
        let left = i64::try_from(self.per_second).unwrap_or(i64::MAX).saturating_sub(counted);
        if let Ok(left @ 1..) = u32::try_from(left) {
            return ReserveOutcome::Retry(left);
        }
        let spread = FIRST * (1 << self.refusals.min(4));
        self.refusals = self.refusals.saturating_add(1);
        let rest = Duration::from_secs(wall.as_secs() + 1) - wall;
        ReserveOutcome::RetryAfter { pause: rest, spread }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALL: Duration = Duration::from_millis(1_800_000_000_250);

    #[test]
    fn the_item_is_as_specified() {
        let update = Window::new("host", 100).reserve(3, WALL);
        assert_eq!(update.key, "dsqlconnect#host#1800000000");
        let made = crate::expression::apply(&Item::new(), &update.changes).unwrap();
        let expected = Item::new()
            .with("count", 3)
            .with("updated_at_ms", 1_800_000_000_250)
            .with("ttl_epoch", 1_800_000_180);
        assert_eq!(made, expected);
    }

    #[test]
    fn a_permit_is_valid_in_its_second_alone() {
        let ReserveOutcome::Reserved(permits) = Window::new("host", 100).granted(2, WALL, None) else {
            panic!("the write was made")
        };
        let end = Duration::from_secs(1_800_000_001) - Duration::from_nanos(1);
        assert_eq!(permits, [Period { from: WALL, until: end }; 2]);
    }

    #[test]
    fn the_rest_of_a_second_is_used_before_waiting_for_the_next() {
        let mut window = Window::new("host", 100);
        assert!(matches!(
            window.refused(1, WALL, Some(&Item::new().with("count", 98))),
            ReserveOutcome::Retry(2)
        ));
        match window.refused(1, WALL, Some(&Item::new().with("count", 100))) {
            ReserveOutcome::RetryAfter { pause, spread } => {
                assert_eq!((pause, spread), (Duration::from_millis(750), Duration::from_millis(50)));
            }
            other => panic!("{other:?}"),
        }
    }
}
