//! The latencies of one worker. Never one for each connection: at 10,000 of them that would be gigabytes.

use std::collections::BTreeMap;

use measure::Latency;

/// Everything in nanoseconds.
#[derive(Debug, Default)]
pub struct Recorder {
    /// From the instant an event or request was due to its delivery: what a user waits.
    pub response: Latency,
    /// From the instant it was sent to its delivery.
    pub service: Latency,
    /// From the instant it was due to the instant it was sent: what the generator itself added.
    pub send_lag: Latency,
    /// From the instant an event was due to its OK.
    pub publish_ok: Latency,
    /// From the instant a request was due to its EOSE.
    pub eose: Latency,
}

impl Recorder {
    /// Adds what another worker recorded.
    pub fn merge(&mut self, other: &Recorder) {
        self.response.merge(&other.response);
        self.service.merge(&other.service);
        self.send_lag.merge(&other.send_lag);
        self.publish_ok.merge(&other.publish_ok);
        self.eose.merge(&other.eose);
    }

    /// By the names used in results; those without a value are left out.
    pub fn into_named(self) -> BTreeMap<String, Latency> {
        let named = [
            ("response", self.response),
            ("service", self.service),
            ("send_lag", self.send_lag),
            ("publish_ok", self.publish_ok),
            ("eose", self.eose),
        ];
        named.into_iter().filter(|(_, l)| !l.is_empty()).map(|(name, l)| (name.to_owned(), l)).collect()
    }
}
