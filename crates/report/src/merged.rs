//! Blocks merged: counters summed, histograms added. A mean of quantiles is not a quantile.

use std::collections::BTreeMap;

use measure::{
    AddUp, Allocations, Counts, CpuTime, EncodingsRecord, FirstDelivery, Latency, LinkRecord, PageRecord,
    PopulationRecord, Quantile, RunRecord, TrafficRecord,
};
/// Candidates for the latency columns, in order of preference.
const LATENCIES: [(&str, &str); 3] = [
    ("response", "from the instant an event was due to its delivery"),
    ("publish_ok", "from the instant an event was due to the relay's OK"),
    ("eose", "from the instant a request was due to the end of its stored events"),
];

/// The name of envelopes a second among the samples of blocks.
pub(crate) const THROUGHPUT: &str = "throughput";

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
    /// Client connections.
    pub connections: u64,
    /// The populations apart, where they differ.
    pub populations: Vec<PopulationRecord>,
    /// The users' emulated access links, if every block had them: CPU times are no evidence then.
    pub link: Option<LinkRecord>,
    /// Time from the first planned instant to the last answer.
    pub elapsed_ns: u64,
    /// The part of it with work outstanding.
    pub active_ns: u64,
    /// CPU time that the relays could have used, when every block knows their cores.
    pub relay_capacity_ns: Option<u64>,
    /// CPU time that the clients could have used, when every block knows their cores.
    pub client_capacity_ns: Option<u64>,
    /// CPU of the clients.
    pub client_cpu: CpuTime,
    /// CPU of the relays and their gateways, if every block has it.
    pub relay_cpu: Option<CpuTime>,
    /// CPU of the gateways, when every block has one.
    pub gateway_cpu: Option<CpuTime>,
    /// The most memory of a relay's processes, when every block knows it.
    pub relay_peak_bytes: Option<u64>,
    /// Bytes that the relays wrote to disks, when every block knows it.
    pub relay_written_bytes: Option<u64>,
    /// Sizes of the relays' folders at the end, when every block knows them.
    pub relay_stored_bytes: Option<u64>,
    /// Memory of a connection in the gateways, when every block knows it.
    pub gateway_connection_bytes: Option<u64>,
    /// Allocations of the clients, when every block counted them.
    pub client_allocations: Option<Allocations>,
    /// Allocations of the relays, when every block counted them.
    pub relay_allocations: Option<Allocations>,
    /// Deliveries by where the relays had the bytes from, when every block knows it.
    pub encodings: Option<EncodingsRecord>,
    /// The sums of pages, when pages played every block.
    pub page: Option<PageRecord>,
    /// Cost of first deliveries to the relays before the clock started, where that was measured.
    pub first_delivery: Option<FirstDelivery>,
    /// All samples by metric, and as `THROUGHPUT` envelopes a second by interval.
    pub latency: BTreeMap<String, Latency>,
}

measure::sums! {
    Merged {
        blocks, counts, traffic, connections, populations, link, elapsed_ns, active_ns, relay_capacity_ns, client_capacity_ns,
        client_cpu, relay_cpu, gateway_cpu, relay_written_bytes, relay_stored_bytes, gateway_connection_bytes,
        client_allocations, relay_allocations, encodings, page
    }
}

impl Merged {
    /// Merges blocks.
    pub fn from_records<'a>(records: impl IntoIterator<Item = &'a RunRecord> + Clone) -> Merged {
        let mut merged = Merged::of_counts(records.clone());
        let passes = records.clone().into_iter().filter_map(|record| record.first_delivery.as_ref());
        merged.first_delivery = FirstDelivery::from_blocks(passes);
        for record in records {
            merged.latency.add_up(&record.latency);
            if let Some(throughput) = &record.throughput {
                let all = merged.latency.entry(THROUGHPUT.to_owned()).or_default();
                all.merge(&throughput.envelopes_per_s);
            }
        }
        merged
    }

    /// Merges blocks without their latencies.
    pub fn of_counts<'a>(records: impl IntoIterator<Item = &'a RunRecord>) -> Merged {
        let together = |mut sum: Merged, one: Merged| {
            let peaks = sum.relay_peak_bytes.zip(one.relay_peak_bytes);
            sum.add_up(&one);
            Merged { relay_peak_bytes: peaks.map(|(most, peak)| most.max(peak)), ..sum }
        };
        records.into_iter().map(Merged::of_block).reduce(together).unwrap_or_default()
    }

    fn of_block(record: &RunRecord) -> Merged {
        let (cores, elapsed_ns) = (record.usable_cores, record.elapsed_ns);
        Merged {
            blocks: 1,
            counts: record.counts,
            traffic: record.traffic,
            connections: record.connections,
            populations: record.populations.clone(),
            link: record.link.clone(),
            elapsed_ns,
            active_ns: record.active_ns,
            relay_capacity_ns: cores.and_then(|cores| cores.relay_capacity_ns(elapsed_ns)),
            client_capacity_ns: cores.map(|cores| cores.clients_capacity_ns(elapsed_ns)),
            client_cpu: record.client_cpu,
            relay_cpu: record.relay_cpu,
            gateway_cpu: record.gateway_cpu,
            relay_peak_bytes: record.memory.and_then(|memory| memory.relay_peak_bytes),
            relay_written_bytes: record.relay.as_ref().and_then(|relay| relay.written_bytes),
            relay_stored_bytes: record.relay.as_ref().and_then(|relay| relay.stored_bytes),
            gateway_connection_bytes: record.memory.and_then(|memory| memory.gateway_bytes_per_connection()),
            client_allocations: record.allocations.map(|both| both.client),
            relay_allocations: record.allocations.and_then(|both| both.relay),
            encodings: record.encodings,
            page: record.page.clone(),
            ..Merged::default()
        }
    }

    /// Whether clients counted deliveries unread, so that their CPU times are no evidence.
    pub(crate) fn reads_lightly(&self) -> bool {
        self.counts.deliveries_unread > 0
    }

    /// A quantile of the named samples, as far as they support it.
    pub fn quantile(&self, latency: &str, q: f64) -> Quantile {
        self.latency.get(latency).map_or(Quantile::Missing, |latency| latency.quantile_ns(q))
    }
}

/// The latency of the columns, with its meaning: the first candidate that any record has samples
/// of; over links that of sessions comes first.
pub fn latency_of<'a>(records: impl IntoIterator<Item = &'a RunRecord>) -> (&'static str, &'static str) {
    let records: Vec<&RunRecord> = records.into_iter().collect();
    let is_of_any = |candidate: &(&str, &str)| {
        let is_of = |record: &&RunRecord| {
            let has_samples = record.latency.get(candidate.0).is_some_and(|found| !found.is_empty());
            has_samples && (*candidate != SESSION || record.link.is_some())
        };
        records.iter().any(is_of)
    };
    std::iter::once(SESSION).chain(LATENCIES).find(is_of_any).unwrap_or(LATENCIES[0])
}
