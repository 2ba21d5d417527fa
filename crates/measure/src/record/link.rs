//! Counts of emulated access links in a run, and whether they kept to their own times.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Latency, ReasonKind, Validity, ValidityClass};

/// 99 % of the packets may leave the emulator this late (docs/decisions/lateness.md).
const LATE_NS: u64 = 1_000_000;
/// The round trip divided by this may be late, too.
const ROUND_TRIP_PER_LATE: u64 = 20;

/// The emulated access link of each user, over the measured time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkRecord {
    /// Rates, delays, queues, loss and jitter, in words.
    pub parameters: String,
    /// Round trip without queues, of several links the shortest; absent in older records.
    pub round_trip_ns: Option<u64>,
    /// Each link apart, where populations have several.
    #[serde(default)]
    pub parts: Vec<LinkPart>,
    /// Congestion control of every connection.
    pub congestion: String,
    /// Other settings of TCP that decide times, as the kernel states them (tcp(7)).
    pub tcp: String,
    /// From relay to users.
    pub down: LinkFlow,
    /// From users to relay.
    pub up: LinkFlow,
    /// How much later than due packets left the emulator, their late reading included, as late
    /// looks tell it.
    pub lateness: Latency,
    /// Packets that the kernel dropped before the emulator read them.
    pub device_dropped: u64,
    /// Packets that the kernel did not take back from the emulator.
    pub refused: u64,
    /// Packets that are not of a user's connection.
    pub foreign: u64,
    /// Why the packets of kernel and emulator do not add up.
    pub unbalanced: Option<String>,
    /// CPU time of the emulator: how much of a core the links took.
    pub emulator_cpu_ns: u64,
    /// How long the emulator was runnable without running, where the kernel tells.
    pub emulator_wait_ns: Option<u64>,
}

/// Packets of one direction, over all users of one link or of all. Bytes are those of IP packets, with
/// the headers of IP and TCP.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkFlow {
    /// Packets that came to the link.
    pub packets: u64,
    /// Packets that crossed it.
    pub forwarded: u64,
    /// Bytes of those.
    pub forwarded_bytes: u64,
    /// Packets that found its queue full.
    pub tail_dropped: u64,
    /// Packets that were lost by its share.
    pub lost: u64,
    /// TCP segments that were sent again (RFC 4022, `tcpRetransSegs`); the kernel does not tell them
    /// apart by link.
    pub retransmitted: Option<u64>,
    /// How long packets waited before the link began to carry them.
    pub queued: Latency,
}

/// One of several links of a run, over all its users.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkPart {
    /// A profile, or its parameters.
    pub link: String,
    /// Rates, delays, queues, loss and jitter, in words.
    pub parameters: String,
    /// Client connections over it.
    pub connections: u64,
    /// From relay to its users.
    pub down: LinkFlow,
    /// From its users to the relay.
    pub up: LinkFlow,
}

crate::sums! {
    LinkRecord { parts, down, up, lateness }
    LinkFlow { packets, forwarded, forwarded_bytes, tail_dropped, lost, retransmitted, queued }
    LinkPart { connections, down, up }
}

/// How late 99 % of the packets of a link with this round trip may leave the emulator.
pub fn may_be_late_ns(round_trip_ns: u64) -> u64 {
    LATE_NS.max(round_trip_ns / ROUND_TRIP_PER_LATE)
}

impl LinkFlow {
    /// Packets that have met their fate.
    pub fn settled(&self) -> u64 {
        self.forwarded + self.tail_dropped + self.lost
    }
}

impl LinkRecord {
    /// How late 99 % of the packets left at most; the latest of all where there are too few to
    /// tell.
    pub fn late_ns_p99(&self) -> u64 {
        self.lateness.quantile_ns(0.99).ns().unwrap_or(self.lateness.max_ns())
    }

    /// Bytes of IP packets that crossed links, both ways.
    pub fn packet_bytes(&self) -> u64 {
        self.down.forwarded_bytes + self.up.forwarded_bytes
    }

    /// Adds what is wrong with the emulation: it measures the host then, and no link.
    pub fn judge(&self, validity: &mut Validity) {
        let (ns_p99, may_be_ns) = (self.late_ns_p99(), may_be_late_ns(self.round_trip_ns.unwrap_or(0)));
        if ns_p99 > may_be_ns {
            validity.add(ValidityClass::Invalid, ReasonKind::LinkLate { ns_p99, may_be_ns });
        }
        let packets = self.device_dropped + self.refused;
        if packets > 0 {
            validity.add(ValidityClass::Invalid, ReasonKind::PacketsDropped { packets });
        }
        if let Some(why) = self.unbalanced.clone() {
            validity.add(ValidityClass::Invalid, ReasonKind::PacketsMissing { why });
        }
        if !self.tcp.contains("no_metrics_save=1") {
            validity.add(ValidityClass::Suspect, ReasonKind::TcpMetricsKept {});
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(late_ns: &[u64]) -> LinkRecord {
        let mut lateness = Latency::new();
        late_ns.iter().for_each(|ns| lateness.record(*ns));
        let (round_trip_ns, tcp) = (Some(20_000_000), "no_metrics_save=1".to_owned());
        LinkRecord { round_trip_ns, tcp, lateness, ..LinkRecord::default() }
    }

    #[test]
    fn a_late_or_lossy_emulation_is_invalid_and_never_a_slow_format() {
        use ValidityClass::{Invalid, Suspect, Valid};
        type Change = fn(&mut LinkRecord);
        let late: Change = |link| (0..20).for_each(|_| link.lateness.record(3_000_000));
        let late_and_long: Change = |link| {
            (0..20).for_each(|_| link.lateness.record(3_000_000));
            link.round_trip_ns = Some(62_000_000);
        };
        let cases: [(Change, ValidityClass, &str); 7] = [
            (|_| {}, Valid, ""),
            (|link| link.lateness.record(3_000_000), Valid, ""),
            (late, Invalid, "late: p99 3.0"),
            (late_and_long, Valid, ""),
            (|link| link.device_dropped = 2, Invalid, "dropped 2 packets"),
            (|link| link.refused = 1, Invalid, "dropped 1 packets"),
            (|link| link.tcp = "no_metrics_save=0".to_owned(), Suspect, "tcp_no_metrics_save"),
        ];
        for (change, class, says) in cases {
            let mut link = record(&[100_000; 1_500]);
            change(&mut link);
            let mut validity = Validity::default();
            link.judge(&mut validity);
            assert_eq!((validity.class, validity.counts), (class, ValidityClass::Valid), "{says}");
            assert_eq!(validity.reasons.len(), usize::from(!says.is_empty()));
            assert!(validity.to_string().contains(says), "{validity}");
        }
    }

    #[test]
    fn missing_packets_take_the_counts_away_too() {
        let mut validity = Validity::default();
        record(&[2_000_000, 10]).judge(&mut validity);
        assert_eq!(validity.class, ValidityClass::Invalid, "few packets are judged by the latest");
        LinkRecord { unbalanced: Some("3 and 4".to_owned()), ..record(&[]) }.judge(&mut validity);
        assert_eq!(validity.counts, ValidityClass::Invalid);
        assert!(validity.to_string().contains("do not add up: 3 and 4"), "{validity}");
    }
}
