//! A plan's demand on the emulator, known before anything runs: packets over time.

use std::time::Duration;

/// The window in which packets are counted.
const TENTH_S: f64 = 0.1;

/// Bytes of TCP payload in a full packet, and of headers in each: 20 of IP, 20 of TCP, 12 of its
/// timestamps (RFC 791, RFC 9293, RFC 7323).
const SEGMENT: f64 = 1_448.0;
const HEADERS: f64 = 52.0;

/// Acknowledgements for each segment: every second segment is acknowledged (RFC 9293 §3.8.6.3).
const ACKS: f64 = 0.5;

/// The longest run, an hour, in windows.
const MOST_TENTHS: usize = 36_000;

/// Packets that links must carry, by tenths of a second, and how long they are at it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Demand {
    /// Packets both ways in each tenth of a second from the start.
    tenths: Vec<f64>,
    /// From the start until the last session ends, stays for live events included.
    pub lasts: Duration,
    /// The longest session from the instant at which it is due to the end of its steps; zero
    /// without sessions.
    pub session: Duration,
}

impl Demand {
    /// Packets a second that every host emulates that can at all.
    const LITTLE_PACKETS_PER_S: f64 = 2_000.0;

    /// The share of packets beyond which lateness would exceed its limit, which is on p99.
    const MOST_BEYOND: f64 = 0.01;

    /// Adds a transfer of `bytes` between two instants, in seconds.
    pub fn add(&mut self, bytes: u64, from_s: f64, to_s: f64) {
        let segments = (bytes as f64 / SEGMENT).ceil();
        let packets = segments + (segments * ACKS).ceil();
        let tenth = |at_s: f64| measure::whole::<usize>(at_s / TENTH_S).min(MOST_TENTHS - 1);
        let (first, last) = (tenth(from_s), tenth(to_s));
        if self.tenths.len() <= last {
            self.tenths.resize(last + 1, 0.0);
        }
        let each = packets / (last - first + 1) as f64;
        self.tenths[first..=last].iter_mut().for_each(|tenth| *tenth += each);
    }

    /// The seconds that a link at this rate takes for `bytes`, headers included.
    pub fn carried_s(bytes: u64, bits_per_s: f64) -> f64 {
        let segments = (bytes as f64 / SEGMENT).ceil();
        (bytes as f64 + segments * HEADERS) * 8.0 / bits_per_s
    }

    /// Packets a second in the busiest tenth.
    pub fn peak_packets_per_s(&self) -> f64 {
        self.tenths.iter().copied().fold(0.0, f64::max) / TENTH_S
    }

    /// Whether the demand is so small that the host's capacity need not be measured.
    pub fn is_little(&self) -> bool {
        self.peak_packets_per_s() <= Self::LITTLE_PACKETS_PER_S
    }

    /// The share of packets in tenths of a second that demand more than `packets_per_s`.
    pub fn share_beyond(&self, packets_per_s: f64) -> f64 {
        let most = packets_per_s * TENTH_S;
        let beyond: f64 = self.tenths.iter().filter(|tenth| **tenth > most).sum();
        let all: f64 = self.tenths.iter().sum();
        if all > 0.0 { beyond / all } else { 0.0 }
    }

    /// Whether an emulator with this capacity would be late with more than one packet in a hundred.
    /// Then no block of the plan could count.
    pub fn exceeds(&self, packets_per_s: f64) -> bool {
        self.share_beyond(packets_per_s) > Self::MOST_BEYOND
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_spread_over_the_time_that_a_transfer_takes() {
        let mut demand = Demand::default();
        // 100 segments and 50 acknowledgements in five tenths.
        demand.add(144_800, 1.0, 1.49);
        assert!((demand.peak_packets_per_s() - 300.0).abs() < 1e-6, "{demand:?}");
        assert_eq!(demand.tenths.len(), 15);
        // A message of its own: a packet and its acknowledgement, at once.
        demand.add(80, 0.25, 0.25);
        assert!((demand.tenths[2] - 2.0).abs() < 1e-9);
        assert!((Demand::carried_s(144_800, 1.2e6) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_plan_exceeds_a_capacity_when_more_than_one_packet_in_a_hundred_does() {
        let mut demand = Demand::default();
        (0..100).for_each(|n| demand.add(1_448 * 10, f64::from(n) / 10.0 + 0.05, f64::from(n) / 10.0 + 0.05));
        assert!(!demand.exceeds(150.0) && demand.exceeds(149.0));
        // A burst of less than one packet in a hundred is late, and does not matter.
        demand.add(1_448, 3.05, 3.05);
        assert!((demand.share_beyond(150.0) - 17.0 / 1_502.0).abs() < 1e-9);
        assert!(demand.exceeds(150.0), "a tenth is late as a whole");
        (0..100).for_each(|n| demand.add(1_448 * 2, f64::from(n) + 20.0, f64::from(n) + 20.0));
        assert!(!demand.exceeds(150.0));
        assert_eq!(Demand::default().share_beyond(1.0), 0.0);
    }

    #[test]
    fn an_endless_plan_stays_bounded() {
        let mut demand = Demand::default();
        demand.add(1, 1e12, f64::INFINITY);
        assert_eq!(demand.tenths.len(), MOST_TENTHS);
    }
}
