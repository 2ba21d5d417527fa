//! The ledger of a run: what was planned and expected, and what became of it.

use derive_more::{Add, AddAssign, Sum};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::AddUp;

/// The most that one process may count of anything: sums of 65,535 such counts fit into 64 bits.
pub(crate) const MOST_COUNTED: u64 = 1 << 48;

/// The ledger: what became of everything planned and everything expected. Counts that a file does
/// not have are 0.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Add, AddAssign, Sum, Serialize, Deserialize, JsonSchema,
)]
#[serde(default)]
pub struct Counts {
    /// Events the plan wanted published.
    pub planned: u64,
    /// Answered with OK true.
    pub acked: u64,
    /// Answered with OK false.
    pub rejected: u64,
    /// Sent, and not answered in time.
    pub timed_out: u64,
    /// Sent, but the connection ended before an answer.
    pub unknown: u64,
    /// Never sent, because the run or the connection ended before.
    pub not_sent: u64,
    /// Never sent, because time ended the closed loop that they belong to (`--saturate`).
    pub not_begun: u64,
    /// Never sent because our own queue was full.
    pub dropped_by_generator: u64,
    /// Sessions that never began because our own queue was full, or this machine had no port or
    /// descriptor for their connection. Nothing is expected of them.
    pub sessions_dropped_by_generator: u64,
    /// Sessions that time ended before they began (`--saturate`). Nothing is expected of them.
    pub sessions_not_begun: u64,
    /// Sessions whose connection was not made by the end of the run. Nothing is expected of them.
    pub sessions_not_connected: u64,
    /// Subscriptions opened to read stored events.
    pub requests: u64,
    /// Requests that were answered to the end (EOSE).
    pub requests_completed: u64,
    /// Requests that were refused, timed out or cut off.
    pub requests_failed: u64,
    /// Events that should arrive at subscribers. For a recording, the recorded ones that arrived again.
    pub deliveries_expected: u64,
    /// Expected deliveries that arrived once and unaltered. The content of [`Counts::repeats_peeked`] and of
    /// [`Counts::deliveries_unread`] is not compared.
    pub deliveries: u64,
    /// Expected deliveries that never arrived.
    pub deliveries_lost: u64,
    /// Arrivals beyond the first.
    pub deliveries_duplicated: u64,
    /// Events that a subscription got before its EOSE and again after it, if that is tolerated: NIP-01 does
    /// not define how a relay passes from stored to live events.
    pub deliveries_duplicated_at_seam: u64,
    /// Arrivals with other content than was published.
    pub deliveries_altered: u64,
    /// Arrivals for a subscription whose filter does not match the event, or that no client opened.
    pub deliveries_misrouted: u64,
    /// Arrivals of events that no client published.
    pub deliveries_invented: u64,
    /// Other arrivals that were not owed: of a refused publication, or of a stored event after EOSE.
    pub deliveries_unexpected: u64,
    /// Wrong arrivals and undecodable frames before the clock started, when stored events are sent once.
    /// Missing events do not count then.
    pub deliveries_wrong_before_start: u64,
    /// Deliveries that light readers (`decode_every`) counted without decoding them.
    pub deliveries_unread: u64,
    /// Live events that matched a subscription but were not owed to it: they came after CLOSE, which has no
    /// answer in NIP-01, or among the stored events of a request. No error.
    pub deliveries_after_close: u64,
    /// Stored events under a limit that came after an older event, or after one of the same second with a
    /// higher id. No error: in NIP-01 newer events "should" come first.
    pub deliveries_out_of_order: u64,
    /// Live events that a subscription got after a later one of the same publisher. No error: no NIP
    /// defines the order of live events.
    pub deliveries_live_out_of_order: u64,
    /// Messages of the relay that answer nothing or break their NIP: NOTICE, unknown verbs, unrequested AUTH,
    /// answers to nothing or a second time. No error: unanswered messages have their own counts.
    pub answers_unexpected: u64,
    /// Deliveries of the recording that is played.
    pub deliveries_recorded: u64,
    /// Recorded deliveries that did not arrive again, and other matching events that did. No error within a
    /// bound: another relay may hold other events.
    pub deliveries_diverged: u64,
    /// Frames that could not be decoded.
    pub decode_errors: u64,
    /// Clients that read slowly on purpose and that the relay disconnected for it.
    pub readers_cut_off: u64,
    /// Live subscriptions that the relay ended (CLOSED), which NIP-01 allows.
    pub subscriptions_closed: u64,
    /// Deliveries that were due to these readers and subscriptions after their end: neither expected nor lost.
    pub deliveries_cut_off: u64,
    /// Reconciliations (NIP-77) that ended with both sides knowing the difference.
    pub reconciliations: u64,
    /// Messages that clients sent in reconciliations.
    pub negentropy_rounds: u64,
    /// Bytes of negentropy, both ways, before hex and envelopes.
    pub negentropy_bytes: u64,
    /// Deliveries of events that the same client was to get from another relay first.
    pub repeats_expected: u64,
    /// Repeats that arrived.
    pub repeats: u64,
    /// Repeats that were recognised by their id, without decoding the event. Alterations go unseen.
    pub repeats_peeked: u64,
}

impl AddUp for Counts {
    fn add_up(&mut self, other: &Self) {
        *self += *other;
    }
}

impl Counts {
    /// Proves that everything planned and expected is accounted for, and nothing was lost or
    /// damaged.
    ///
    /// # Errors
    /// The sentence names every rule that fails, with its numbers.
    pub fn balanced(&self) -> Result<(), String> {
        let mut failures = Vec::new();
        let mut equation = |left: (&str, u64), right: &[(&str, u64)]| {
            // Counts of agents are claims.
            let sum = right.iter().fold(0_u64, |sum, (_, count)| sum.saturating_add(*count));
            if left.1 != sum {
                let terms: Vec<String> =
                    right.iter().map(|(name, count)| format!("{name} {count}")).collect();
                failures.push(format!("{} {} is not {} = {sum}", left.0, left.1, terms.join(" + ")));
            }
        };
        equation(
            ("planned", self.planned),
            &[
                ("acked", self.acked),
                ("rejected", self.rejected),
                ("timed_out", self.timed_out),
                ("unknown", self.unknown),
                ("not_sent", self.not_sent),
                ("not_begun", self.not_begun),
                ("dropped_by_generator", self.dropped_by_generator),
            ],
        );
        equation(
            ("deliveries_expected", self.deliveries_expected),
            &[("deliveries", self.deliveries), ("deliveries_lost", self.deliveries_lost)],
        );
        equation(
            ("requests", self.requests),
            &[("requests_completed", self.requests_completed), ("requests_failed", self.requests_failed)],
        );
        equation(("repeats_expected", self.repeats_expected), &[("repeats", self.repeats)]);
        for (name, count) in self.damage() {
            if count > 0 {
                failures.push(format!("{name} is {count}, must be 0"));
            }
        }
        if failures.is_empty() { Ok(()) } else { Err(failures.join("; ")) }
    }

    /// The ledger of a run that its user ended, as if what was still owed had been awaited.
    #[must_use]
    pub fn as_awaited(self) -> Counts {
        Counts {
            deliveries: self.deliveries.saturating_add(self.deliveries_lost),
            deliveries_lost: 0,
            repeats: self.repeats.max(self.repeats_expected),
            ..self
        }
    }

    /// What came and was wrong, without what did not come.
    pub fn came_wrong(&self) -> u64 {
        self.damage().into_iter().skip(1).map(|(_, count)| count).sum()
    }

    /// The counters that must be 0, with their names; those of what did not come first.
    fn damage(&self) -> [(&'static str, u64); 8] {
        [
            ("deliveries_lost", self.deliveries_lost),
            ("deliveries_duplicated", self.deliveries_duplicated),
            ("deliveries_altered", self.deliveries_altered),
            ("deliveries_misrouted", self.deliveries_misrouted),
            ("deliveries_invented", self.deliveries_invented),
            ("deliveries_unexpected", self.deliveries_unexpected),
            ("deliveries_wrong_before_start", self.deliveries_wrong_before_start),
            ("decode_errors", self.decode_errors),
        ]
    }

    /// The envelopes of a run: deliveries, or acknowledged publishes where the scenario delivers
    /// nothing.
    pub fn envelopes(&self) -> u64 {
        if self.deliveries > 0 { self.deliveries } else { self.acked }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Counts {
        Counts {
            planned: 18,
            acked: 9,
            rejected: 1,
            timed_out: 2,
            unknown: 2,
            not_sent: 2,
            not_begun: 1,
            dropped_by_generator: 1,
            requests: 4,
            requests_completed: 3,
            requests_failed: 1,
            deliveries_expected: 50,
            deliveries: 50,
            ..Counts::default()
        }
    }

    #[test]
    fn the_ledger_names_each_rule_that_fails() {
        assert_eq!(good().balanced(), Ok(()));
        let talkative = Counts { answers_unexpected: 9, ..good() };
        assert_eq!(talkative.balanced(), Ok(()), "what answers nothing damages nothing");
        type Damage = fn(&mut Counts);
        let cases: [(Damage, &str); 13] = [
            (
                |c| c.acked = 8,
                "planned 18 is not acked 8 + rejected 1 + timed_out 2 + unknown 2 + not_sent 2 + not_begun 1 + dropped_by_generator 1 = 17",
            ),
            (|c| c.deliveries = 49, "deliveries_expected 50 is not deliveries 49 + deliveries_lost 0 = 49"),
            (|c| c.requests = 5, "requests 5 is not requests_completed 3 + requests_failed 1 = 4"),
            (|c| (c.deliveries, c.deliveries_lost) = (48, 2), "deliveries_lost is 2, must be 0"),
            (|c| c.deliveries_duplicated = 3, "deliveries_duplicated is 3, must be 0"),
            (|c| c.deliveries_altered = 4, "deliveries_altered is 4, must be 0"),
            (|c| c.deliveries_unexpected = 5, "deliveries_unexpected is 5, must be 0"),
            (|c| c.deliveries_misrouted = 7, "deliveries_misrouted is 7, must be 0"),
            (|c| c.deliveries_invented = 8, "deliveries_invented is 8, must be 0"),
            (|c| c.decode_errors = 6, "decode_errors is 6, must be 0"),
            (|c| c.deliveries_wrong_before_start = 9, "deliveries_wrong_before_start is 9, must be 0"),
            (|c| (c.repeats_expected, c.repeats) = (3, 2), "repeats_expected 3 is not repeats 2 = 2"),
            (|c| (c.planned, c.decode_errors) = (19, 1), "= 18; decode_errors is 1, must be 0"),
        ];
        for (damage, expected) in cases {
            let mut counts = good();
            damage(&mut counts);
            let error = counts.balanced().unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
