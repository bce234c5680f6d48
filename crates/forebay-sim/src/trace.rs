//! All events of a run as one hash.

use forebay::Instant;

/// A running hash over events. Runs that differ in one event, or in its time, have different hashes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trace {
    hash: u64,
    events: u64,
}

/// The order is part of the hash: append only.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TraceEvent {
    Connect,
    Refused,
    Opened,
    OpenFailed,
    Discarded,
    SessionEnded,
    Served,
    CheckoutFailed,
    Returned,
    Fault,
    Started,
    Stopped,
}

impl Trace {
    pub(crate) fn add(&mut self, event: TraceEvent, at: Instant, instance: usize, detail: u64) {
        self.events += 1;
        let head = (instance as u64) << 8 | event as u64;
        for word in [at.as_nanos(), head, detail] {
            // The multiplication spreads each word over the upper bits; the rotation moves them down again.
            self.hash = (self.hash ^ word).wrapping_mul(0x9fb2_1c65_1e98_df25).rotate_left(29);
        }
    }

    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    /// 16 hexadecimal digits.
    pub(crate) fn hash(&self) -> String {
        format!("{:016x}", self.hash ^ self.events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_an_event_counts() {
        let hash = |event, at, instance, detail| {
            let mut trace = Trace::default();
            trace.add(event, Instant::from_nanos(at), instance, detail);
            trace.hash()
        };
        let first = hash(TraceEvent::Served, 1, 2, 3);
        assert_eq!(first, hash(TraceEvent::Served, 1, 2, 3));
        for other in [
            hash(TraceEvent::Returned, 1, 2, 3),
            hash(TraceEvent::Served, 2, 2, 3),
            hash(TraceEvent::Served, 1, 3, 3),
            hash(TraceEvent::Served, 1, 2, 4),
        ] {
            assert_ne!(first, other);
        }
    }
}
