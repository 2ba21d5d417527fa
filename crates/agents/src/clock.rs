//! How far an agent's monotonic clock is ahead of the coordinator's, from round trips.

use std::collections::VecDeque;

/// Round trips among which the shortest is believed.
pub(crate) const ROUND_TRIPS: usize = 16;

/// Four instants of a round trip, each in nanoseconds of the clock where it happened (the on-wire
/// protocol of RFC 5905 §8).
#[derive(Debug, Clone, Copy)]
pub(crate) struct RoundTrip {
    /// The request left, by the coordinator's clock.
    pub(crate) sent_ns: u64,
    /// The request arrived, by the agent's clock.
    pub(crate) arrived_there_ns: u64,
    /// The answer left, by the agent's clock.
    pub(crate) left_there_ns: u64,
    /// The answer arrived, by the coordinator's clock.
    pub(crate) received_ns: u64,
}

/// How far an agent's clock is ahead, and how wrong that can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Offset {
    /// The agent's clock minus the coordinator's.
    pub(crate) ns: i64,
    /// The error is at most this: half the round trip.
    pub(crate) bound_ns: u64,
}

impl Offset {
    /// The agent's clock when the coordinator's shows `at_ns`; `None` before its zero.
    pub(crate) fn there_ns(self, at_ns: u64) -> Option<u64> {
        at_ns.checked_add_signed(self.ns)
    }
}

impl RoundTrip {
    /// `None` when the instants contradict each other.
    pub(crate) fn offset(&self) -> Option<Offset> {
        let there = i128::from(self.left_there_ns) - i128::from(self.arrived_there_ns);
        let here = i128::from(self.received_ns) - i128::from(self.sent_ns);
        if there < 0 || here < there {
            return None;
        }
        let out = i128::from(self.arrived_there_ns) - i128::from(self.sent_ns);
        let back = i128::from(self.left_there_ns) - i128::from(self.received_ns);
        let ns = i64::try_from((out + back) / 2).ok()?;
        // One more than half: the division above may have cut half a nanosecond.
        let bound_ns = u64::try_from((here - there) / 2 + 1).ok()?;
        Some(Offset { ns, bound_ns })
    }
}

/// The last [`ROUND_TRIPS`] offsets of an agent.
#[derive(Debug, Default)]
pub(crate) struct Offsets(VecDeque<Offset>);

impl Offsets {
    pub(crate) fn add(&mut self, offset: Offset) {
        if self.0.len() == ROUND_TRIPS {
            self.0.pop_front();
        }
        self.0.push_back(offset);
    }

    pub(crate) fn is_full(&self) -> bool {
        self.0.len() == ROUND_TRIPS
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// The offset of the shortest round trip.
    pub(crate) fn best(&self) -> Option<Offset> {
        self.0.iter().copied().min_by_key(|offset| offset.bound_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trip(sent_ns: u64, arrived_there_ns: u64, left_there_ns: u64, received_ns: u64) -> Option<Offset> {
        RoundTrip { sent_ns, arrived_there_ns, left_there_ns, received_ns }.offset()
    }

    #[test]
    fn the_error_is_within_the_bound_however_unequal_the_ways() {
        for ahead in [-4_000_000_000_i64, 0, 7] {
            for (out, back) in [(0, 0), (10, 990), (990, 10), (1_001, 0)] {
                let there = |here: u64| here.checked_add_signed(ahead).unwrap();
                let sent = 10_000_000_000;
                let offset =
                    trip(sent, there(sent + out), there(sent + out) + 50, sent + out + 50 + back).unwrap();
                assert!(offset.ns.abs_diff(ahead) <= offset.bound_ns, "{offset:?}");
                assert_eq!(offset.bound_ns, (out + back) / 2 + 1);
                assert_eq!(offset.there_ns(5_000_000_000), 5_000_000_000_u64.checked_add_signed(offset.ns));
            }
        }
    }

    #[test]
    fn instants_that_contradict_each_other_have_no_offset() {
        assert_eq!(trip(0, 10, 5, 20), None, "it answered before it was asked");
        assert_eq!(trip(0, 0, 21, 20), None, "it took longer than the round trip");
        assert_eq!(trip(0, u64::MAX, u64::MAX, 20), None, "no i64 holds the offset");
        assert_eq!(Offset { ns: -6, bound_ns: 1 }.there_ns(5), None);
    }

    #[test]
    fn the_shortest_of_the_last_sixteen_is_believed() {
        let mut offsets = Offsets::default();
        offsets.add(Offset { ns: 1, bound_ns: 1 });
        for bound_ns in (100..116).rev() {
            assert!(!offsets.is_full() || bound_ns < 101);
            offsets.add(Offset { ns: 2, bound_ns });
        }
        assert_eq!(offsets.best(), Some(Offset { ns: 2, bound_ns: 100 }), "the first is forgotten");
    }
}
