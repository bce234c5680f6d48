//! The node number of an instance.

use forebay::Instant;

/// The node number of an instance, until its lease ends. It can be read only with the time: a copy that was kept ends as well,
/// also while the process is cut off from the table.
///
/// The end is before any other instance can remove the entry and draw the number, even if its clock is faster. Each
/// heartbeat moves it: get the present one from [`Fleet::node_updates`](crate::Fleet::node_updates).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeNumber {
    number: u16,
    until: Instant,
}

impl NodeNumber {
    pub(crate) fn new(number: u16, until: Instant) -> Self {
        Self { number, until }
    }

    /// The number, from 0 to 1023; none if its lease has ended. `now` is the time of the runtime that the fleet was
    /// started with. For an id, read the time of day before `now`: if the process is stopped in between, there is no number, and
    /// not an id of a time when another process has it.
    #[must_use]
    pub fn at(self, now: Instant) -> Option<u16> {
        (now < self.until).then_some(self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_number_ends() {
        let at = |millis| Instant::ZERO + Duration::from_millis(millis);
        let number = NodeNumber::new(7, at(1000));
        assert_eq!([0, 999, 1000, 1001].map(|millis| number.at(at(millis))), [Some(7), Some(7), None, None]);
    }
}
