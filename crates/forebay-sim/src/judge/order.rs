//! Whether callers are served in the order they came.

use forebay::Instant;

/// The line of one reservoir, as seen from outside. A caller's number is its place among all that ever came.
///
/// A caller can be given a connection and pick it up a moment later, in the same instant, while a newcomer takes
/// another that is ready. So only those served at an earlier time count as overtaking.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Order {
    now: Instant,
    newest: u64,
    newest_before: u64,
}

impl Order {
    /// A caller is served. Returns whether nobody who came later was served before.
    pub(super) fn serve(&mut self, number: u64, now: Instant) -> bool {
        let in_order = self.is_in_order(number, now);
        self.newest = self.newest.max(number);
        in_order
    }

    /// A caller gets nothing, or something. Returns whether nobody who came later was served before.
    pub(super) fn is_in_order(&mut self, number: u64, now: Instant) -> bool {
        if now > self.now {
            self.newest_before = self.newest;
            self.now = now;
        }
        number >= self.newest_before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overtaking_is_seen_and_ties_are_not() {
        let at = Instant::from_nanos;
        let mut order = Order::default();
        assert!(order.serve(1, at(10)));
        assert!(order.serve(3, at(20)), "a newcomer in the same instant");
        assert!(order.serve(2, at(20)));
        assert!(!order.serve(2, at(30)), "number 3 was served earlier");
        assert!(order.serve(4, at(30)));
        assert!(
            order.is_in_order(5, at(40)) && !order.is_in_order(3, at(40)),
            "who gets nothing was overtaken, too"
        );
    }
}
