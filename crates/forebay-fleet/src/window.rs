//! The specification's rate: an item for each second, which counts the opens of that second.

use std::time::Duration;

use crate::counter::items::{expiry, millis};
use crate::expression::{Change, Condition};
use crate::item::Item;
use crate::rate::Verdict;
use crate::table::Update;

/// The items of one endpoint.
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

/// The pause after a refusal is up to this, doubled with each.
const FIRST: Duration = Duration::from_millis(25);

impl Window {
    pub(crate) fn new(endpoint: &str, per_second: u64) -> Self {
        Self { endpoint: endpoint.to_owned(), per_second, refusals: 0 }
    }

    #[allow(clippy::cast_precision_loss, reason = "a rate")]
    pub(crate) fn per_second(&self) -> f64 {
        self.per_second as f64
    }

    /// Permits to ask for at a time, at most: a second that nobody has asked for has room for all its permits, and no more.
    pub(crate) fn most(&self) -> u32 {
        u32::try_from(self.per_second).unwrap_or(u32::MAX).max(1)
    }

    /// The write that takes `count` permits of this second.
    pub(crate) fn ask(&self, count: u32, wall: Duration) -> Update {
        let most = i64::try_from(self.per_second).unwrap_or(i64::MAX) - i64::from(count);
        let room = [Condition::Missing("count".into()), Condition::AtMost("count".into(), most)];
        Update::of(key(&self.endpoint, wall.as_secs()))
            .when(Condition::Any(room.into()))
            .change(Change::Add("count".into(), i64::from(count)))
            .change(Change::set("updated_at_ms", millis(wall)))
            .change(Change::set("ttl_epoch", expiry(wall)))
    }

    pub(crate) fn granted(&mut self, count: u32, wall: Duration) -> Verdict {
        self.refusals = 0;
        Verdict::Turns(vec![wall; usize::try_from(count).unwrap_or(0)])
    }

    pub(crate) fn refused(&mut self, wall: Duration, item: Option<&Item>) -> Verdict {
        let counted = item.and_then(|item| item.number("count")).unwrap_or(0);
        let left = i64::try_from(self.per_second).unwrap_or(i64::MAX).saturating_sub(counted);
        if let Ok(left @ 1..) = u32::try_from(left) {
            return Verdict::Again(left);
        }
        self.refusals = self.refusals.saturating_add(1);
        let rest = Duration::from_secs(wall.as_secs() + 1) - wall;
        // The limiter waits between half and all of it: twice, so that it is not before the next second.
        Verdict::Later((rest + FIRST * (1 << self.refusals.min(6))) * 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALL: Duration = Duration::from_millis(1_800_000_000_250);

    #[test]
    fn the_item_is_that_of_the_specification() {
        let update = Window::new("host", 100).ask(3, WALL);
        assert_eq!(update.key, "dsqlconnect#host#1800000000");
        let made = crate::expression::apply(&Item::new(), &update.changes).unwrap();
        let expected = Item::new()
            .with("count", 3)
            .with("updated_at_ms", 1_800_000_000_250)
            .with("ttl_epoch", 1_800_000_180);
        assert_eq!(made, expected);
    }

    #[test]
    fn what_is_left_of_a_second_is_taken_before_the_next_is_waited_for() {
        let mut window = Window::new("host", 100);
        assert!(matches!(window.refused(WALL, Some(&Item::new().with("count", 98))), Verdict::Again(2)));
        match window.refused(WALL, Some(&Item::new().with("count", 100))) {
            Verdict::Later(pause) => assert!(pause / 2 >= Duration::from_millis(750)),
            other => panic!("{other:?}"),
        }
    }
}
