//! Blocks merged: counters summed, histograms added. A mean of quantiles is not a quantile.

use std::collections::BTreeMap;

use measure::{
    Allocations, Counts, CpuTime, EncodingsRecord, FirstDelivery, Latency, LinkRecord, PinnedCores, Quantile,
    RunRecord, Throughput, TrafficRecord, UsableCores,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Candidates for the latency columns, in order of preference.
const LATENCIES: [(&str, &str); 3] = [
    ("response", "from the instant an event was due to its delivery"),
    ("publish_ok", "from the instant an event was due to the relay's OK"),
    ("eose", "from the instant a request was due to the end of its stored events"),
];

/// The wait of a user with an access link: the whole session.
pub(crate) const SESSION: (&str, &str) =
    ("session", "from the instant a session was due to the end of its last step, its handshake included");

/// Several blocks of one cell as one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Merged {
    /// How many blocks.
    pub blocks: u64,
    /// The sums of the ledgers.
    pub counts: Counts,
    /// The sums of the traffic.
    pub traffic: TrafficRecord,
    /// Whether users had emulated access links: CPU times are no evidence then.
    pub over_links: bool,
    /// Bytes of IP packets that crossed the links, both ways.
    pub packet_bytes: u64,
    /// Time with work outstanding.
    pub active_ns: u64,
    /// CPU time that the relays could have used, when every block knows their cores.
    pub relay_capacity_ns: Option<u64>,
    /// CPU time that the clients could have used, when every block knows their cores.
    pub client_capacity_ns: Option<u64>,
    /// CPU of the clients.
    pub client_cpu: CpuTime,
    /// CPU of the relays, when every block knows it.
    pub relay_cpu: Option<CpuTime>,
    /// The most memory of a relay's processes, when every block knows it.
    pub relay_peak_bytes: Option<u64>,
    /// Allocations of the clients, when every block counted them.
    pub client_allocations: Option<Allocations>,
    /// Allocations of the relays, when every block counted them.
    pub relay_allocations: Option<Allocations>,
    /// Deliveries by where the relays had the bytes from, when every block knows it.
    pub encodings: Option<EncodingsRecord>,
    /// Cost of first deliveries to the relays before the clock started, where that was measured.
    pub first_delivery: Option<FirstDelivery>,
    /// Envelope throughput by interval, of the blocks that know it.
    pub throughput: Option<Throughput>,
    /// All samples by metric.
    pub latency: BTreeMap<String, Latency>,
}

impl Merged {
    /// Merges blocks.
    pub fn from_records<'a>(records: impl IntoIterator<Item = &'a RunRecord> + Clone) -> Merged {
        let mut merged = Merged::of_counts(records.clone());
        let passes = records.clone().into_iter().filter_map(|record| record.first_delivery.as_ref());
        merged.first_delivery = FirstDelivery::from_blocks(passes);
        for throughput in records.clone().into_iter().filter_map(|record| record.throughput.as_ref()) {
            merged.throughput.get_or_insert_default().merge(throughput);
        }
        for (name, latency) in records.into_iter().flat_map(|record| &record.latency) {
            merged.latency.entry(name.clone()).or_default().merge(latency);
        }
        merged
    }

    /// Merges blocks without their latencies.
    pub fn of_counts<'a>(records: impl IntoIterator<Item = &'a RunRecord>) -> Merged {
        let mut merged = Merged {
            relay_cpu: Some(known(CpuTime::default())),
            relay_capacity_ns: Some(0),
            relay_peak_bytes: Some(0),
            client_capacity_ns: Some(0),
            client_allocations: Some(Allocations::default()),
            relay_allocations: Some(Allocations::default()),
            encodings: Some(EncodingsRecord::default()),
            ..Merged::default()
        };
        merged.client_cpu = known(merged.client_cpu);
        for record in records {
            merged.blocks += 1;
            merged.counts += record.counts;
            merged.traffic = merged.traffic + record.traffic;
            merged.active_ns += record.active_ns;
            merged.over_links |= record.link.is_some();
            merged.packet_bytes += record.link.as_ref().map_or(0, LinkRecord::packet_bytes);
            let (cores, elapsed_ns) = (usable_cores(record), record.elapsed_ns);
            // Both may be what an agent says of itself.
            let add = |sum: Option<u64>, ns: Option<u64>| Some(sum?.saturating_add(ns?));
            let relay_ns = cores.and_then(|cores| cores.relay_capacity_ns(elapsed_ns));
            merged.relay_capacity_ns = add(merged.relay_capacity_ns, relay_ns);
            let clients_ns = cores.map(|cores| cores.clients_capacity_ns(elapsed_ns));
            merged.client_capacity_ns = add(merged.client_capacity_ns, clients_ns);
            merged.client_cpu = merged.client_cpu + record.client_cpu;
            merged.relay_cpu = merged.relay_cpu.zip(record.relay_cpu).map(|(sum, cpu)| sum + cpu);
            let peak = record.memory.and_then(|memory| memory.relay_peak_bytes);
            merged.relay_peak_bytes = merged.relay_peak_bytes.zip(peak).map(|(most, peak)| most.max(peak));
            let (client, relay) =
                (record.allocations.map(|both| both.client), record.allocations.and_then(|both| both.relay));
            merged.client_allocations = merged.client_allocations.zip(client).map(|(sum, one)| sum + one);
            merged.encodings = merged.encodings.zip(record.encodings).map(|(sum, one)| sum + one);
            merged.relay_allocations = merged.relay_allocations.zip(relay).map(|(sum, one)| sum + one);
        }
        if merged.blocks == 0 { Merged::default() } else { merged }
    }

    /// Whether clients counted deliveries unread, so that their CPU times are no evidence.
    pub(crate) fn reads_lightly(&self) -> bool {
        self.counts.deliveries_unread > 0
    }

    /// CPU of the relays as a share of what their cores could give, from the first planned instant
    /// to the last answer.
    pub fn relay_utilisation(&self) -> Option<f64> {
        utilisation(self.relay_cpu?, self.relay_capacity_ns)
    }

    /// CPU of the clients as a share of what their cores could give.
    pub fn client_utilisation(&self) -> Option<f64> {
        utilisation(self.client_cpu, self.client_capacity_ns)
    }

    /// A quantile of envelopes a second over intervals, as far as the slower ones support it.
    pub fn low_throughput(&self, q: f64) -> Quantile {
        let throughput = self.throughput.as_ref();
        throughput.map_or(Quantile::Missing, |throughput| throughput.envelopes_per_s.low_quantile_ns(q))
    }

    /// A quantile of the named latency, as far as the samples support it.
    pub fn quantile(&self, latency: &str, q: f64) -> Quantile {
        self.latency.get(latency).map_or(Quantile::Missing, |latency| latency.quantile_ns(q))
    }
}

/// The latency of the columns, with its meaning: the first candidate that any record has samples
/// of; over links that of sessions comes first.
pub fn latency_of<'a>(records: impl IntoIterator<Item = &'a RunRecord>) -> (&'static str, &'static str) {
    let has =
        |record: &RunRecord, name: &str| record.latency.get(name).is_some_and(|found| !found.is_empty());
    let candidates = || std::iter::once(SESSION).chain(LATENCIES);
    let best = |record: &RunRecord| {
        let skipped = usize::from(record.link.is_none());
        candidates()
            .enumerate()
            .skip(skipped)
            .find(|(_, (name, _))| has(record, name))
            .map(|(place, _)| place)
    };
    let place = records.into_iter().filter_map(best).min().unwrap_or(1);
    candidates().nth(place).unwrap_or(SESSION)
}

fn utilisation(cpu: CpuTime, capacity_ns: Option<u64>) -> Option<f64> {
    let capacity_ns = capacity_ns.filter(|capacity| *capacity > 0)?;
    Some(cpu.total_ns as f64 / capacity_ns as f64)
}

/// Cores that relay and clients could use. Records without them state the pinned ones.
fn usable_cores(record: &RunRecord) -> Option<UsableCores> {
    let pinned = |cores: &PinnedCores| UsableCores {
        relay: Some(cores.relay.len() as u64),
        clients: cores.clients.len() as u64,
        ..UsableCores::default()
    };
    record.usable_cores.or_else(|| record.pinned.as_ref().map(pinned))
}

/// Zero with a known split into user and system, to add to.
fn known(zero: CpuTime) -> CpuTime {
    CpuTime { user_ns: Some(0), system_ns: Some(0), ..zero }
}

/// A column of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Deliveries (publishes where nothing is delivered) for each second with work outstanding.
    EnvelopesPerSecond,
    /// Median of envelopes a second over intervals: [`measure::Throughput`].
    ThroughputP50,
    /// The rate that one interval in a hundred stays below: the slow tail.
    ThroughputP1,
    /// The rate that one interval in ten stays below: the slow tail of few intervals.
    ThroughputP10,
    /// Median latency in nanoseconds.
    LatencyP50,
    /// The latency that 1 % exceed.
    LatencyP99,
    /// The latency that 0.1 % exceed.
    LatencyP999,
    /// Median time to the first event of a step. This one and the next three are of runs over
    /// links.
    FirstEventP50,
    /// Median time to the fiftieth event of a step: a first screen.
    FiftiethEventP50,
    /// Median time to the end of the stored events of a request.
    EoseP50,
    /// Median time of the handshakes of TCP and WebSocket.
    HandshakeP50,
    /// Bytes of the IP packets that crossed the users' links, both ways, for each envelope.
    PacketBytes,
    /// Bytes at the socket, both ways, for each envelope.
    WireBytes,
    /// Nanoseconds of the relay's CPU for each envelope.
    RelayCpu,
    /// The most memory of the relay's processes, in bytes. Of runs of several relays.
    RelayMemory,
    /// Nanoseconds of the client's CPU for each envelope.
    ClientCpu,
    /// Nanoseconds of CPU of relay and client together for each envelope.
    BothCpu,
    /// Allocations of the relay for each envelope, in builds that count them.
    RelayAllocations,
    /// Allocations of the client for each envelope, in builds that count them.
    ClientAllocations,
    /// Nanoseconds of CPU of a browser's main thread for each event. This one and the next five are
    /// of `compare browser`.
    PageMain,
    /// Nanoseconds of CPU of all of the renderer's threads for each event.
    PageRenderer,
    /// The same with the browser's network process.
    PageAndNetwork,
    /// Nanoseconds by the page's clock for each event.
    PageWall,
    /// Nanoseconds of the main thread for each of the first events of a fresh page.
    PageCold,
    /// The same by the page's clock, where CPU time cannot be read.
    PageColdWall,
}

impl Metric {
    /// The order of the columns.
    pub const ALL: [Metric; 8] = [
        Metric::ThroughputP50,
        Metric::ThroughputP1,
        Metric::LatencyP50,
        Metric::LatencyP99,
        Metric::LatencyP999,
        Metric::WireBytes,
        Metric::RelayCpu,
        Metric::ClientCpu,
    ];

    /// The same where a cell has too few intervals for p1: one column is of one quantile.
    pub const ALL_WITH_P10: [Metric; 8] = {
        let mut all = Metric::ALL;
        all[1] = Metric::ThroughputP10;
        all
    };

    /// The metrics with verdicts: costs, lower is better. The plan sets the rate, so the rate has
    /// none.
    pub const JUDGED: [Metric; 5] =
        [Metric::WireBytes, Metric::RelayCpu, Metric::ClientCpu, Metric::LatencyP50, Metric::LatencyP99];

    /// The order of the columns where relays are compared.
    pub const OF_RELAYS: [Metric; 8] = [
        Metric::ThroughputP50,
        Metric::LatencyP50,
        Metric::LatencyP99,
        Metric::LatencyP999,
        Metric::WireBytes,
        Metric::RelayCpu,
        Metric::RelayMemory,
        Metric::ClientCpu,
    ];

    /// The metrics with verdicts where relays are compared.
    pub const JUDGED_OF_RELAYS: [Metric; 6] = [
        Metric::RelayCpu,
        Metric::RelayMemory,
        Metric::LatencyP50,
        Metric::LatencyP99,
        Metric::WireBytes,
        Metric::ClientCpu,
    ];

    /// The order of the columns over links: what a user waits for, and the bytes that cross a link.
    pub const OVER_LINKS: [Metric; 8] = [
        Metric::LatencyP50,
        Metric::LatencyP99,
        Metric::FirstEventP50,
        Metric::FiftiethEventP50,
        Metric::EoseP50,
        Metric::HandshakeP50,
        Metric::PacketBytes,
        Metric::WireBytes,
    ];

    /// The metrics with verdicts over links; a narrow table shows the first five.
    pub const JUDGED_OVER_LINKS: [Metric; 7] = [
        Metric::LatencyP50,
        Metric::FirstEventP50,
        Metric::FiftiethEventP50,
        Metric::EoseP50,
        Metric::PacketBytes,
        Metric::LatencyP99,
        Metric::HandshakeP50,
    ];

    /// The metrics with verdicts where allocations were counted, which distorts latencies and CPU
    /// times.
    pub const JUDGED_COUNTING: [Metric; 3] =
        [Metric::WireBytes, Metric::RelayAllocations, Metric::ClientAllocations];

    /// The name in a verdict.
    pub fn short(self) -> &'static str {
        self.row().0
    }

    /// The column's heading with its unit.
    pub fn heading(self) -> &'static str {
        self.row().1
    }

    /// Base units in one of the column's.
    pub(crate) fn unit(self) -> f64 {
        self.row().2
    }

    /// Name, heading and unit.
    fn row(self) -> (&'static str, &'static str, f64) {
        const MS: f64 = 1e6;
        const US: f64 = 1e3;
        const MIB: f64 = 1_048_576.0;
        match self {
            Metric::EnvelopesPerSecond => ("envelopes/s", "envelopes/s", 1.0),
            Metric::ThroughputP50 => ("envelope throughput p50", "envelope throughput p50 /s", 1.0),
            Metric::ThroughputP1 => ("envelope throughput p1", "p1 /s", 1.0),
            Metric::ThroughputP10 => ("envelope throughput p10", "p10 /s", 1.0),
            Metric::LatencyP50 => ("p50", "p50 ms", MS),
            Metric::LatencyP99 => ("p99", "p99 ms", MS),
            Metric::LatencyP999 => ("p99.9", "p99.9 ms", MS),
            Metric::FirstEventP50 => ("first event p50", "first ms", MS),
            Metric::FiftiethEventP50 => ("50th event p50", "50th ms", MS),
            Metric::EoseP50 => ("EOSE p50", "EOSE ms", MS),
            Metric::HandshakeP50 => ("handshake p50", "handshake ms", MS),
            Metric::PacketBytes => ("IP bytes", "IP B/event", 1.0),
            Metric::WireBytes => ("wire bytes", "wire B/event", 1.0),
            Metric::RelayCpu => ("relay CPU", "relay µs/event", US),
            Metric::RelayMemory => ("relay memory", "relay MiB", MIB),
            Metric::ClientCpu => ("client CPU", "client µs/event", US),
            Metric::BothCpu => ("relay + client CPU", "relay + client µs/event", US),
            Metric::RelayAllocations => ("relay allocations", "relay allocations/event", 1.0),
            Metric::ClientAllocations => ("client allocations", "client allocations/event", 1.0),
            Metric::PageMain => ("main thread", "main µs/event", US),
            Metric::PageRenderer => ("renderer", "renderer µs/event", US),
            Metric::PageAndNetwork => ("renderer + network", "renderer + network µs/event", US),
            Metric::PageWall => ("wall time", "wall µs/event", US),
            Metric::PageCold => ("first 100, main thread", "first 100 µs/event", US),
            Metric::PageColdWall => ("first 100, wall time", "first 100 wall µs/event", US),
        }
    }

    /// Whether it needs a punctual generator and a quiet host; others need a balanced ledger alone.
    pub fn needs_quiet(self) -> bool {
        !matches!(
            self,
            Metric::PacketBytes
                | Metric::WireBytes
                | Metric::RelayMemory
                | Metric::RelayAllocations
                | Metric::ClientAllocations
        )
    }

    /// The quantile of a latency column.
    pub fn quantile(self) -> Option<f64> {
        match self {
            Metric::LatencyP50 => Some(0.5),
            Metric::LatencyP99 => Some(0.99),
            Metric::LatencyP999 => Some(0.999),
            Metric::FirstEventP50 | Metric::FiftiethEventP50 | Metric::EoseP50 | Metric::HandshakeP50 => {
                Some(0.5)
            }
            _ => None,
        }
    }

    /// The metric of records that a latency is of: `column` names that of the latency columns.
    pub(crate) fn latency(self, column: &str) -> &str {
        match self {
            Metric::FirstEventP50 => "first_event",
            Metric::FiftiethEventP50 => "fiftieth_event",
            Metric::EoseP50 => "eose",
            Metric::HandshakeP50 => "handshake",
            _ => column,
        }
    }

    /// Whether it is of runs over links alone.
    fn is_of_links(self) -> bool {
        self == Metric::PacketBytes || !self.latency("").is_empty()
    }

    /// The quantile of a throughput column, whose slow tail is the low one.
    pub fn low_quantile(self) -> Option<f64> {
        match self {
            Metric::ThroughputP50 => Some(0.5),
            Metric::ThroughputP1 => Some(0.01),
            Metric::ThroughputP10 => Some(0.1),
            _ => None,
        }
    }

    /// The value in the base unit (a second, a byte, a nanosecond), unless it was not measured.
    /// `latency` names the metric of the latency columns.
    pub fn value(self, measured: &Merged, latency: &str) -> Option<f64> {
        let envelopes = Some(measured.counts.envelopes()).filter(|envelopes| *envelopes > 0)? as f64;
        let is_cpu = matches!(self, Metric::RelayCpu | Metric::ClientCpu | Metric::BothCpu);
        if (is_cpu && measured.over_links) || (self.is_of_links() && !measured.over_links) {
            return None;
        }
        let is_of_clients = matches!(self, Metric::ClientCpu | Metric::BothCpu | Metric::ClientAllocations);
        if is_of_clients && measured.reads_lightly() {
            return None; // Light readers do less than clients do.
        }
        match self {
            Metric::EnvelopesPerSecond => {
                let seconds = measured.active_ns as f64 / 1e9;
                (seconds > 0.0).then(|| envelopes / seconds)
            }
            Metric::ThroughputP50 | Metric::ThroughputP1 | Metric::ThroughputP10 => {
                Some(measured.low_throughput(self.low_quantile()?).ns()? as f64)
            }
            Metric::WireBytes => Some(measured.traffic.wire_bytes() as f64 / envelopes),
            Metric::RelayCpu => Some(measured.relay_cpu?.total_ns as f64 / envelopes),
            Metric::RelayMemory => Some(measured.relay_peak_bytes? as f64),
            Metric::ClientCpu => Some(measured.client_cpu.total_ns as f64 / envelopes),
            Metric::BothCpu => {
                Some((measured.relay_cpu?.total_ns + measured.client_cpu.total_ns) as f64 / envelopes)
            }
            Metric::RelayAllocations => Some(measured.relay_allocations?.count as f64 / envelopes),
            Metric::ClientAllocations => Some(measured.client_allocations?.count as f64 / envelopes),
            Metric::PacketBytes => Some(measured.packet_bytes as f64 / envelopes),
            Metric::LatencyP50
            | Metric::LatencyP99
            | Metric::LatencyP999
            | Metric::FirstEventP50
            | Metric::FiftiethEventP50
            | Metric::EoseP50
            | Metric::HandshakeP50 => {
                Some(measured.quantile(self.latency(latency), self.quantile()?).ns()? as f64)
            }
            // No run of a swarm has a page.
            Metric::PageMain
            | Metric::PageRenderer
            | Metric::PageAndNetwork
            | Metric::PageWall
            | Metric::PageCold
            | Metric::PageColdWall => None,
        }
    }
}
