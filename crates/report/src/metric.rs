//! The table of metrics: names and unit of each, what it needs, its value and the tables that show
//! it.

use measure::LinkRecord;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::merged::{Merged, THROUGHPUT};

/// A metric as every table knows it.
pub(crate) struct Row {
    /// The name in a verdict.
    name: &'static str,
    /// The column's heading with its unit.
    heading: &'static str,
    /// Base units (a second, a byte, a nanosecond) in one of the column's.
    unit: f64,
    needs: &'static [Need],
    /// The tables that show it, and its place in each. Where a terminal is narrow the first have room.
    shown: &'static [(ShownIn, u8)],
    pub(crate) value: Value,
}

/// What a metric needs beyond a balanced ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    /// A punctual generator and a quiet host.
    Quiet,
    /// Users with emulated access links.
    Links,
    /// CPU times that are evidence, which they are not over links.
    Cpu,
    /// Clients that decode all that they get.
    Readers,
}

/// How the value is got, in the base unit.
pub(crate) enum Value {
    /// A quantile of the latency of this name, or else of the table's latency.
    Latency(Option<&'static str>, f64),
    /// A quantile of throughput, whose slow tail is the low one.
    Throughput(f64),
    /// Divided by envelopes.
    Each(fn(&Merged) -> Option<u64>),
    Whole(fn(&Merged) -> Option<f64>),
}

/// A table in which a metric may be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShownIn {
    /// What cells cost.
    Costs,
    /// What cells of several relays cost.
    CostsOfRelays,
    /// What cells cost over links: what a user waits for, and the bytes that cross a link.
    CostsOverLinks,
    /// CPU time in user mode and in the kernel, handshakes, first deliveries, memory, disk and gateway.
    Apart,
    /// Packets of emulated links.
    Links,
    /// What both ends allocated.
    Allocations,
    /// Verdicts: costs, lower is better. The plan sets the rate, so the rate has none.
    Verdicts,
    /// Verdicts about relays, and bounds of `--fail-on`.
    VerdictsOfRelays,
    /// Verdicts over links.
    VerdictsOverLinks,
    /// Verdicts where allocations were counted, which distorts latencies and CPU times.
    VerdictsCounting,
    /// Metrics that rounds are planned for, and that the control must resolve: CPU time decides
    /// between formats and varies from round to round, and does not depend on a tail.
    Planned,
    /// What pages in a browser cost.
    CostsOfPages,
    /// Verdicts about pages.
    VerdictsOfPages,
}

const MS: f64 = 1e6;
const US: f64 = 1e3;
const KIB: f64 = 1_024.0;
const MIB: f64 = 1_048_576.0;
const PERCENT: f64 = 0.01;

/// A sum that cannot be zero: where it is, it was not measured.
fn known(sum: u64) -> Option<u64> {
    Some(sum).filter(|sum| *sum > 0)
}

/// Rows: documentation, name, heading, unit, needs, tables with the place in each, value.
macro_rules! metrics {
    ($($(#[doc = $doc:literal])* $metric:ident: $name:literal, $heading:literal, $unit:expr,
       needs [$($need:ident)*], shown in [$($table:ident $place:literal)*], $value:expr;)*) => {
        /// A column of the tables.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum Metric { $($(#[doc = $doc])* $metric,)* }

        impl Metric {
            /// Every metric.
            pub const ALL: &[Metric] = &[$(Metric::$metric),*];
        }

        /// Rows in the order of [`Metric::ALL`].
        static ROWS: &[Row] = &[$(Row {
            name: $name,
            heading: $heading,
            unit: $unit,
            needs: &[$(Need::$need),*],
            shown: &[$((ShownIn::$table, $place)),*],
            value: $value,
        }),*];
    };
}

metrics! {
    /// Deliveries (publishes where nothing is delivered) for each second with work outstanding.
    EnvelopesPerSecond: "envelopes/s", "envelopes/s", 1.0, needs [Quiet], shown in [],
        Value::Whole(|all| (all.active_ns > 0).then(|| all.counts.envelopes() as f64 / (all.active_ns as f64 / 1e9)));
    /// Median of envelopes a second over intervals: [`measure::Throughput`].
    ThroughputP50: "envelope throughput p50", "envelope throughput p50 /s", 1.0, needs [Quiet],
        shown in [Costs 6 CostsOfRelays 7], Value::Throughput(0.5);
    /// The rate that one interval in a hundred stays below: the slow tail.
    ThroughputP1: "envelope throughput p1", "p1 /s", 1.0, needs [Quiet], shown in [Costs 7],
        Value::Throughput(0.01);
    /// The rate that one interval in ten stays below: the slow tail of few intervals.
    ThroughputP10: "envelope throughput p10", "p10 /s", 1.0, needs [Quiet], shown in [Costs 8],
        Value::Throughput(0.1);
    /// Median latency in nanoseconds.
    LatencyP50: "p50", "p50 ms", MS, needs [Quiet],
        shown in [Costs 4 CostsOfRelays 3 CostsOverLinks 1 Verdicts 4 VerdictsOfRelays 3 VerdictsOverLinks 1],
        Value::Latency(None, 0.5);
    /// The latency that 1 % exceed.
    LatencyP99: "p99", "p99 ms", MS, needs [Quiet],
        shown in [Costs 5 CostsOfRelays 4 CostsOverLinks 2 Verdicts 5 VerdictsOfRelays 4 VerdictsOverLinks 6],
        Value::Latency(None, 0.99);
    /// The latency that 0.1 % exceed.
    LatencyP999: "p99.9", "p99.9 ms", MS, needs [Quiet], shown in [Costs 9 CostsOfRelays 8],
        Value::Latency(None, 0.999);
    /// Median time to the first event of a step. This one and the next three are of runs over
    /// links.
    FirstEventP50: "first event p50", "first ms", MS, needs [Quiet Links],
        shown in [CostsOverLinks 3 VerdictsOverLinks 2], Value::Latency(Some("first_event"), 0.5);
    /// Median time to the fiftieth event of a step: a first screen.
    FiftiethEventP50: "50th event p50", "50th ms", MS, needs [Quiet Links],
        shown in [CostsOverLinks 4 VerdictsOverLinks 3], Value::Latency(Some("fiftieth_event"), 0.5);
    /// Median time to the end of the stored events of a request.
    EoseP50: "EOSE p50", "EOSE ms", MS, needs [Quiet Links],
        shown in [CostsOverLinks 5 VerdictsOverLinks 4], Value::Latency(Some("eose"), 0.5);
    /// Median time of the handshakes of TCP and WebSocket.
    HandshakeP50: "handshake p50", "handshake ms", MS, needs [Quiet Links],
        shown in [CostsOverLinks 6 VerdictsOverLinks 7], Value::Latency(Some("handshake"), 0.5);
    /// Bytes of the IP packets that crossed the users' links, both ways, for each envelope.
    PacketBytes: "IP bytes", "IP B/event", 1.0, needs [Links], shown in [CostsOverLinks 7 VerdictsOverLinks 5 CostsOfPages 5 VerdictsOfPages 5],
        Value::Each(|all| all.link.as_ref().map(LinkRecord::packet_bytes));
    /// Bytes at the socket, both ways, for each envelope.
    WireBytes: "wire bytes", "wire B/event", 1.0, needs [],
        shown in [Costs 1 CostsOfRelays 5 CostsOverLinks 8 Verdicts 1 VerdictsOfRelays 5 VerdictsCounting 1
                  CostsOfPages 6],
        Value::Each(|all| known(all.traffic.wire_bytes()));
    /// Nanoseconds of the relay's CPU for each envelope.
    RelayCpu: "relay CPU", "relay µs/event", US, needs [Quiet Cpu],
        shown in [Costs 2 CostsOfRelays 1 Verdicts 2 VerdictsOfRelays 1 Planned 1],
        Value::Each(|all| Some(all.relay_cpu?.total_ns));
    /// The most memory of the relay's processes, in bytes.
    RelayMemory: "relay memory", "relay MiB", MIB, needs [],
        shown in [CostsOfRelays 2 VerdictsOfRelays 2 Apart 10],
        Value::Whole(|all| Some(all.relay_peak_bytes? as f64));
    /// Nanoseconds of the client's CPU for each envelope.
    ClientCpu: "client CPU", "client µs/event", US, needs [Quiet Cpu Readers],
        shown in [Costs 3 CostsOfRelays 6 Verdicts 3 VerdictsOfRelays 6 Planned 2 CostsOfPages 2 VerdictsOfPages 2],
        Value::Each(|all| known(all.client_cpu.total_ns));
    /// Nanoseconds of CPU of relay and client together for each envelope.
    BothCpu: "relay + client CPU", "relay + client µs/event", US, needs [Quiet Cpu Readers], shown in [],
        Value::Each(|all| Some(all.relay_cpu?.total_ns.saturating_add(all.client_cpu.total_ns)));
    /// Allocations of the relay for each envelope, in builds that count them.
    RelayAllocations: "relay allocations", "relay allocations/event", 1.0, needs [],
        shown in [VerdictsCounting 2 Allocations 1],
        Value::Each(|all| Some(all.relay_allocations?.count));
    /// Allocations of the client for each envelope, in builds that count them.
    ClientAllocations: "client allocations", "client allocations/event", 1.0, needs [Readers],
        shown in [VerdictsCounting 3 Allocations 2], Value::Each(|all| Some(all.client_allocations?.count));
    /// Nanoseconds of CPU of a renderer's main thread for each event. This one and the next five are
    /// of `compare browser`.
    PageMain: "main thread", "main µs/event", US, needs [Quiet Cpu], shown in [CostsOfPages 1 VerdictsOfPages 1],
        Value::Each(|all| all.page.as_ref()?.main_ns);
    /// Nanoseconds by the page's clock for each event.
    PageWall: "wall time", "wall µs/event", US, needs [Quiet], shown in [CostsOfPages 3 VerdictsOfPages 3],
        Value::Each(|all| Some(all.page.as_ref()?.wall_ns));
    /// Nanoseconds by the page's clock for each of the first events of a fresh page.
    PageCold: "first 100", "first 100 wall µs/event", US, needs [Quiet], shown in [CostsOfPages 4 VerdictsOfPages 4],
        Value::Whole(|all| all.page.as_ref()?.first.map(|first| first.ns as f64 / first.events as f64));
    /// Messages that an event comes in, over a WebSocket.
    PageMessages: "messages", "messages/event", 1.0, needs [], shown in [CostsOfPages 7],
        Value::Each(|all| all.page.as_ref().and(known(all.traffic.to_client.messages)));
    /// Bytes of the script that the row alone needs, under gzip.
    PageScript: "script", "script gzip KB", 1e3, needs [], shown in [CostsOfPages 8],
        Value::Whole(|all| Some(all.page.as_ref()?.script_gzip_bytes as f64 / all.blocks as f64));
    /// Bytes of the JavaScript heap after a collection.
    PageHeap: "heap", "heap MB", 1e6, needs [Quiet], shown in [CostsOfPages 9],
        Value::Whole(|all| Some(all.page.as_ref()?.heap_bytes? as f64 / all.blocks as f64));
    /// Bytes that the relay requested of its allocator for each envelope.
    RelayAllocated: "relay allocated bytes", "relay allocated B/event", 1.0, needs [], shown in [Allocations 3],
        Value::Each(|all| Some(all.relay_allocations?.bytes));
    /// Bytes that the client requested of its allocator for each envelope.
    ClientAllocated: "client allocated bytes", "client allocated B/event", 1.0, needs [Readers], shown in [Allocations 4],
        Value::Each(|all| Some(all.client_allocations?.bytes));
    /// The part of the relay's CPU that is spent in user mode.
    RelayUser: "relay user CPU", "relay user µs/event", US, needs [Quiet Cpu], shown in [Apart 1],
        Value::Each(|all| all.relay_cpu?.user_ns);
    /// The part of the relay's CPU that is spent in the kernel.
    RelaySystem: "relay system CPU", "relay system µs/event", US, needs [Quiet Cpu], shown in [Apart 2],
        Value::Each(|all| all.relay_cpu?.system_ns);
    /// The part of the client's CPU that is spent in user mode.
    ClientUser: "client user CPU", "client user µs/event", US, needs [Quiet Cpu Readers], shown in [Apart 3],
        Value::Each(|all| all.client_cpu.user_ns);
    /// The part of the client's CPU that is spent in the kernel.
    ClientSystem: "client system CPU", "client system µs/event", US, needs [Quiet Cpu Readers], shown in [Apart 4],
        Value::Each(|all| all.client_cpu.system_ns);
    /// Bytes of a connection's handshake, both ways.
    HandshakeBytes: "handshake bytes", "handshake B", 1.0, needs [Quiet], shown in [Apart 5],
        Value::Whole(|all| {
            let bytes = all.traffic.handshake_to_relay_bytes + all.traffic.handshake_to_client_bytes;
            (all.connections > 0).then(|| bytes as f64 / all.connections as f64)
        });
    /// Nanoseconds of the relay's CPU for the first delivery of a stored event beyond a later one, before
    /// the clock starts; absent when not above its resolution.
    FirstDelivery: "first delivery", "first delivery relay µs/event", US, needs [Quiet Cpu], shown in [Apart 6],
        Value::Whole(|all| all.first_delivery?.cpu_ns);
    /// By how much identical passes over the stored events differ, in nanoseconds for each event.
    FirstDeliveryResolution: "resolution of first delivery", "± µs", US, needs [Quiet Cpu], shown in [Apart 7],
        Value::Whole(|all| Some(all.first_delivery?.resolution_ns));
    /// The share of deliveries in the measured time that were an event's first in its format.
    FirstDeliveries: "first deliveries", "first deliveries %", PERCENT, needs [Quiet], shown in [Apart 8],
        Value::Whole(|all| all.encodings?.cold_share());
    /// The share of deliveries with the bytes of the publisher.
    Spliced: "spliced", "spliced %", PERCENT, needs [Quiet], shown in [Apart 9],
        Value::Whole(|all| all.encodings?.spliced_share());
    /// Bytes that the relay wrote to disks, for each envelope.
    DiskBytes: "disk bytes", "disk B/event", 1.0, needs [Quiet], shown in [Apart 11],
        Value::Each(|all| known(all.relay_written_bytes?));
    /// The size of the relay's folder at the end, in bytes: the mean over blocks.
    StoredBytes: "stored bytes", "stored MiB", MIB, needs [], shown in [Apart 12],
        Value::Whole(|all| Some(known(all.relay_stored_bytes?)? as f64 / all.blocks as f64));
    /// Nanoseconds of the gateway's CPU for each envelope, which are among the relay's.
    GatewayCpu: "gateway CPU", "gateway µs/event", US, needs [Quiet Cpu], shown in [Apart 13],
        Value::Each(|all| Some(all.gateway_cpu?.total_ns));
    /// Bytes of the gateway's memory for each connection: the mean over blocks.
    GatewayMemory: "gateway memory", "gateway KiB/connection", KIB, needs [], shown in [Apart 14],
        Value::Whole(|all| Some(all.gateway_connection_bytes? as f64 / all.blocks as f64));
    /// IP packets that crossed the users' links, both ways, for each envelope. This one and the next four
    /// are of runs over links.
    Packets: "packets", "packets/event", 1.0, needs [Quiet Links], shown in [Links 1],
        Value::Each(|all| all.link.as_ref().map(|link| link.down.forwarded + link.up.forwarded));
    /// The share of TCP segments that were sent again.
    SentAgain: "sent again", "sent again %", PERCENT, needs [Quiet Links], shown in [Links 2],
        Value::Whole(|all| {
            let LinkRecord { down, up, .. } = all.link.as_ref()?;
            let again = down.retransmitted.unwrap_or(0) + up.retransmitted.unwrap_or(0);
            Some(again as f64 / known(down.packets + up.packets)? as f64)
        });
    /// Median wait of packets to a user before the link carries them.
    QueueP50: "queueing p50", "queueing p50 ms", MS, needs [Quiet Links], shown in [Links 3],
        Value::Whole(|all| Some(all.link.as_ref()?.down.queued.quantile_ns(0.5).ns()? as f64));
    /// The wait that 1 % of these packets exceed.
    QueueP99: "queueing p99", "queueing p99 ms", MS, needs [Quiet Links], shown in [Links 4],
        Value::Whole(|all| Some(all.link.as_ref()?.down.queued.quantile_ns(0.99).ns()? as f64));
    /// How late 1 % of the packets left the emulator.
    EmulatorLate: "emulator late p99", "emulator late p99 ms", MS, needs [Quiet Links], shown in [Links 5],
        Value::Whole(|all| Some(all.link.as_ref()?.lateness.quantile_ns(0.99).ns()? as f64));
}

impl Metric {
    /// The metrics of a table, in their places.
    pub fn shown_in(table: ShownIn) -> Vec<Metric> {
        let mut shown: Vec<(u8, Metric)> =
            (Metric::ALL.iter()).filter_map(|metric| Some((metric.place(table)?, *metric))).collect();
        shown.sort_unstable();
        shown.into_iter().map(|(_, metric)| metric).collect()
    }

    fn place(self, table: ShownIn) -> Option<u8> {
        self.row().shown.iter().find(|(one, _)| *one == table).map(|(_, place)| *place)
    }

    /// Its row.
    pub(crate) fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }

    /// The name in a verdict.
    pub fn short(self) -> &'static str {
        self.row().name
    }

    /// The column's heading with its unit.
    pub fn heading(self) -> &'static str {
        self.row().heading
    }

    /// Base units in one of the column's.
    pub(crate) fn unit(self) -> f64 {
        self.row().unit
    }

    /// Whether it needs a punctual generator and a quiet host; others need a balanced ledger alone.
    pub(crate) fn needs_quiet(self) -> bool {
        self.row().needs.contains(&Need::Quiet)
    }

    /// Whether it is a quantile of a latency.
    pub fn is_latency(self) -> bool {
        matches!(self.row().value, Value::Latency(..))
    }

    /// The value in the base unit (a second, a byte, a nanosecond), unless it was not measured.
    /// `latency` names the metric of the latency columns.
    pub fn value(self, measured: &Merged, latency: &str) -> Option<f64> {
        let envelopes = Some(measured.counts.envelopes()).filter(|envelopes| *envelopes > 0)? as f64;
        let has = |need: &Need| match need {
            Need::Quiet => true,
            Need::Links => measured.link.is_some(),
            Need::Cpu => measured.link.is_none(),
            Need::Readers => !measured.reads_lightly(),
        };
        if !self.row().needs.iter().all(has) {
            return None;
        }
        match self.row().value {
            Value::Latency(name, q) => Some(measured.quantile(name.unwrap_or(latency), q).ns()? as f64),
            Value::Throughput(q) => Some(measured.quantile(THROUGHPUT, q).ns()? as f64),
            Value::Each(sum) => Some(sum(measured)? as f64 / envelopes),
            Value::Whole(value) => value(measured),
        }
    }
}
