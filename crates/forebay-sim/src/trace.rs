//! Everything that happened, as one number.

use forebay::Instant;

/// A running hash over the events of a run. Two runs that differ in one event, or in its time, differ in their hash.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trace {
    hash: u64,
    events: u64,
}

/// What is written down.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mark {
    Connect,
    Refused,
    Opened,
    OpenFailed,
    Discarded,
    SessionEnded,
    Lent,
    CheckoutFailed,
    Returned,
    Strike,
    Started,
    Stopped,
}

impl Trace {
    /// Adds one event: what, when, to whom, and one number more.
    pub(crate) fn add(&mut self, mark: Mark, at: Instant, place: usize, detail: u64) {
        self.events += 1;
        let head = (place as u64) << 8 | mark as u64;
        for word in [at.as_nanos(), head, detail] {
            // A multiplication spreads each word over the upper bits, the rotation brings them down again.
            self.hash = (self.hash ^ word).wrapping_mul(0x9fb2_1c65_1e98_df25).rotate_left(29);
        }
    }

    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    /// The hash as 16 hexadecimal digits.
    pub(crate) fn hash(&self) -> String {
        format!("{:016x}", self.hash ^ self.events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_an_event_counts() {
        let hash = |mark, at, place, detail| {
            let mut trace = Trace::default();
            trace.add(mark, Instant::from_nanos(at), place, detail);
            trace.hash()
        };
        let first = hash(Mark::Lent, 1, 2, 3);
        assert_eq!(first, hash(Mark::Lent, 1, 2, 3));
        for other in [
            hash(Mark::Returned, 1, 2, 3),
            hash(Mark::Lent, 2, 2, 3),
            hash(Mark::Lent, 1, 3, 3),
            hash(Mark::Lent, 1, 2, 4),
        ] {
            assert_ne!(first, other);
        }
    }
}
