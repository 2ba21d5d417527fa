//! The table of metrics: names and unit of each, what it needs, its value and the tables that show
//! it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::merged::Merged;

/// A metric as every table knows it.
pub(crate) struct Row {
    /// The name in a verdict.
    name: &'static str,
    /// The column's heading with its unit.
    heading: &'static str,
    /// Base units (a second, a byte, a nanosecond) in one of the column's.
    unit: f64,
    needs: &'static [Need],
    /// The tables that show it, and its place in each.
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
    /// Columns of these that a narrow table leaves out.
    Wide,
    /// Columns that a narrow table of costs over links leaves out.
    WideOverLinks,
    /// Verdicts: costs, lower is better. The plan sets the rate, so the rate has none.
    Verdicts,
    /// Verdicts about relays, and bounds of `--fail-on`.
    VerdictsOfRelays,
    /// Verdicts over links; a narrow table shows the first five.
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
const MIB: f64 = 1_048_576.0;

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
        shown in [Costs 1 CostsOfRelays 1 Wide 1], Value::Throughput(0.5);
    /// The rate that one interval in a hundred stays below: the slow tail.
    ThroughputP1: "envelope throughput p1", "p1 /s", 1.0, needs [Quiet], shown in [Costs 2 Wide 2],
        Value::Throughput(0.01);
    /// The rate that one interval in ten stays below: the slow tail of few intervals.
    ThroughputP10: "envelope throughput p10", "p10 /s", 1.0, needs [Quiet], shown in [Costs 3 Wide 3],
        Value::Throughput(0.1);
    /// Median latency in nanoseconds.
    LatencyP50: "p50", "p50 ms", MS, needs [Quiet],
        shown in [Costs 4 CostsOfRelays 2 CostsOverLinks 1 Verdicts 4 VerdictsOfRelays 3 VerdictsOverLinks 1],
        Value::Latency(None, 0.5);
    /// The latency that 1 % exceed.
    LatencyP99: "p99", "p99 ms", MS, needs [Quiet],
        shown in [Costs 5 CostsOfRelays 3 CostsOverLinks 2 Verdicts 5 VerdictsOfRelays 4 VerdictsOverLinks 6],
        Value::Latency(None, 0.99);
    /// The latency that 0.1 % exceed.
    LatencyP999: "p99.9", "p99.9 ms", MS, needs [Quiet], shown in [Costs 6 CostsOfRelays 4 Wide 4],
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
        Value::Each(|all| Some(all.packet_bytes));
    /// Bytes at the socket, both ways, for each envelope.
    WireBytes: "wire bytes", "wire B/event", 1.0, needs [],
        shown in [Costs 7 CostsOfRelays 5 CostsOverLinks 8 WideOverLinks 1 Verdicts 1 VerdictsOfRelays 5 VerdictsCounting 1
                  CostsOfPages 6],
        Value::Each(|all| known(all.traffic.wire_bytes()));
    /// Nanoseconds of the relay's CPU for each envelope.
    RelayCpu: "relay CPU", "relay µs/event", US, needs [Quiet Cpu],
        shown in [Costs 8 CostsOfRelays 6 Verdicts 2 VerdictsOfRelays 1 Planned 1],
        Value::Each(|all| Some(all.relay_cpu?.total_ns));
    /// The most memory of the relay's processes, in bytes. Of runs of several relays.
    RelayMemory: "relay memory", "relay MiB", MIB, needs [], shown in [CostsOfRelays 7 VerdictsOfRelays 2],
        Value::Whole(|all| Some(all.relay_peak_bytes? as f64));
    /// Nanoseconds of the client's CPU for each envelope.
    ClientCpu: "client CPU", "client µs/event", US, needs [Quiet Cpu Readers],
        shown in [Costs 9 CostsOfRelays 8 Verdicts 3 VerdictsOfRelays 6 Planned 2 CostsOfPages 2 VerdictsOfPages 2],
        Value::Each(|all| known(all.client_cpu.total_ns));
    /// Nanoseconds of CPU of relay and client together for each envelope.
    BothCpu: "relay + client CPU", "relay + client µs/event", US, needs [Quiet Cpu Readers], shown in [],
        Value::Each(|all| Some(all.relay_cpu?.total_ns.saturating_add(all.client_cpu.total_ns)));
    /// Allocations of the relay for each envelope, in builds that count them.
    RelayAllocations: "relay allocations", "relay allocations/event", 1.0, needs [], shown in [VerdictsCounting 2],
        Value::Each(|all| Some(all.relay_allocations?.count));
    /// Allocations of the client for each envelope, in builds that count them.
    ClientAllocations: "client allocations", "client allocations/event", 1.0, needs [Readers],
        shown in [VerdictsCounting 3], Value::Each(|all| Some(all.client_allocations?.count));
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
            Need::Links => measured.over_links,
            Need::Cpu => !measured.over_links,
            Need::Readers => !measured.reads_lightly(),
        };
        if !self.row().needs.iter().all(has) {
            return None;
        }
        match self.row().value {
            Value::Latency(name, q) => Some(measured.quantile(name.unwrap_or(latency), q).ns()? as f64),
            Value::Throughput(q) => Some(measured.low_throughput(q).ns()? as f64),
            Value::Each(sum) => Some(sum(measured)? as f64 / envelopes),
            Value::Whole(value) => value(measured),
        }
    }
}
