//! Whether callers are served in the order of their arrival.

use forebay::Instant;

/// The queue of one reservoir, seen from outside. Callers are numbered in the order of their arrival.
///
/// A caller can be assigned a connection and pick it up later in the same instant, while a newcomer takes
/// another that is ready. So only a caller served at an earlier time counts as overtaking.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ServingOrder {
    now: Instant,
    newest: u64,
    newest_before: u64,
}

impl ServingOrder {
    /// A caller is served. Returns whether no later caller was served before.
    pub(super) fn serve(&mut self, number: u64, now: Instant) -> bool {
        let in_order = self.is_in_order(number, now);
        self.newest = self.newest.max(number);
        in_order
    }

    /// Returns whether no later caller was served before this one got its answer.
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
        let mut order = ServingOrder::default();
        assert!(order.serve(1, at(10)));
        assert!(order.serve(3, at(20)), "a newcomer in the same instant");
        assert!(order.serve(2, at(20)));
        assert!(!order.serve(2, at(30)), "number 3 was served earlier");
        assert!(order.serve(4, at(30)));
        assert!(
            order.is_in_order(5, at(40)) && !order.is_in_order(3, at(40)),
            "a caller that fails can be overtaken, too"
        );
    }
}
