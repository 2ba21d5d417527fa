//! The file one run writes and the report reads.

pub(crate) mod link;
pub(crate) mod merge;
pub(crate) mod page;
pub(crate) mod relay;
pub(crate) mod share;

use std::{collections::BTreeMap, fmt, io, path::Path};

use derive_more::{Add, Sum};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    AgentRecord, Allocations, ClockRecord, Counts, CpuQuota, CpuTime, EncodingsRecord, Environment,
    FirstDeliveryRecord, HostRecord, Latency, LatencyBound, LinkRecord, PageRecord, PinnedCores, Saturated,
    ShareRecord, Slices, Throughput, UsableCores, Validity, files::unpack, write_whole,
};

/// The layout of [`RunRecord`] and of everything that embeds it. An added field raises the second
/// number; any other change raises the first, and readers refuse a first number they do not know.
pub const SCHEMA_VERSION: &str = "2.14";

/// One run: its deliveries, bytes, times and cost, and whether they may be believed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunRecord {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema_version: String,
    /// The program that wrote this.
    pub tool: Tool,
    /// The commit that it was built from, with `-dirty` behind it where files differed. Builds that are
    /// not optimised, or were made without a checkout, know none.
    pub commit: Option<String>,
    /// The machine.
    pub environment: Environment,
    /// The command line, program name first.
    pub command: Vec<String>,
    /// Wall clock at the start, see [`crate::utc::format`]. It labels; no duration comes from it.
    pub started_utc: String,
    /// The cell that was measured.
    pub cell: Cell,
    /// The seed of everything random.
    pub seed: u64,
    /// The events that were sent.
    pub corpus: CorpusRecord,
    /// Whether the run reached its end.
    pub status: Status,
    /// Terms that client and relay agreed on.
    pub agreement: AgreementRecord,
    /// The relay's process, where it is known.
    pub relay: Option<RelayProcess>,
    /// Client connections.
    pub connections: u64,
    /// First intended instant to last delivery.
    pub elapsed_ns: u64,
    /// Time with work outstanding: the denominator of deliveries per second.
    pub active_ns: u64,
    /// The ledger.
    pub counts: Counts,
    /// Bytes and messages at the socket.
    pub traffic: TrafficRecord,
    /// CPU time of the client process during the run; with light readers no evidence of what a
    /// client costs.
    pub client_cpu: CpuTime,
    /// CPU time of the relay process during the run, where its clock can be read; with that of the
    /// gateway before it.
    pub relay_cpu: Option<CpuTime>,
    /// CPU time of the gateway during the run, where there was one.
    pub gateway_cpu: Option<CpuTime>,
    /// The populations apart, where they do not all speak the cell's format and compression, do
    /// not all have its link, or some are light readers.
    #[serde(default)]
    pub populations: Vec<PopulationRecord>,
    /// Whether the numbers may be used.
    pub validity: Validity,
    /// The most that the client process logged: off, error, warn, info, debug or trace.
    pub log_level: Option<String>,
    /// The emulated access links, in a run over links. CPU times of such a run are no evidence
    /// (docs/links.md).
    pub link: Option<LinkRecord>,
    /// What the host did meanwhile; absent in older records and where several agents played.
    pub host: Option<HostRecord>,
    /// The page that played the block, where a browser did.
    pub page: Option<PageRecord>,
    /// Memory of connections, where it was looked at.
    pub memory: Option<MemoryRecord>,
    /// Memory of compression in that, where it was looked at.
    pub compression_memory: Option<CompressionMemoryRecord>,
    /// The cores that relay and clients kept to, where a relay of our own had cores apart from the
    /// clients.
    pub pinned: Option<PinnedCores>,
    /// How many cores each process could use; absent in older records.
    pub usable_cores: Option<UsableCores>,
    /// What was full while work was outstanding; absent in older records and where several agents
    /// played.
    pub saturated: Option<Saturated>,
    /// Allocations of both processes during the run, in builds that count them. Latencies and CPU
    /// times of such a run are no evidence.
    pub allocations: Option<AllocationsRecord>,
    /// Deliveries by where the relay had the event's bytes from, of a relay of our own that ended
    /// well.
    pub encodings: Option<EncodingsRecord>,
    /// Cost of first deliveries of stored events to the relay before the clock started, where its
    /// CPU clock can be read.
    pub first_delivery: Option<FirstDeliveryRecord>,
    /// Envelope throughput: envelopes and wire bytes a second by interval; absent in older records,
    /// and where no interval had work outstanding throughout.
    pub throughput: Option<Throughput>,
    /// The run second by second.
    pub slices: Option<Slices>,
    /// The part of the plan that this run played, where several agents play it together.
    pub share: Option<ShareRecord>,
    /// The agents that this record was merged from ([`crate::Merge`]).
    #[serde(default)]
    pub agents: Vec<AgentRecord>,
    /// Bounds of the scenario on latencies. A run that misses them measured well; it is the relay
    /// that is too slow.
    #[serde(default)]
    pub latency_bounds: Vec<LatencyBound>,
    /// By metric: `response` (delivered − intended), `service` (delivered − sent), `send_lag` (sent
    /// − intended), `publish_ok`, `eose`, `first_event` and `fiftieth_event` (of a step),
    /// `session`, `handshake`, `auth`; with a dot and a name for one population of clients. Metrics
    /// a scenario does not have are absent.
    #[serde(deserialize_with = "crate::recorders::latency::by_metric")]
    pub latency: BTreeMap<String, Latency>,
}

crate::sums! {
    RunRecord {
        connections, counts, traffic, client_cpu, validity, populations, compression_memory, memory, usable_cores,
        allocations, latency; most elapsed_ns
    }
    PopulationRecord { connections, counts, to_relay, to_client }
    MemoryRecord { connections, client_before_bytes, client_after_bytes }
    CompressionMemoryRecord { client_bytes_per_connection; most client_shared_bytes }
    AllocationsRecord { client, relay }
    TrafficRecord { to_relay, to_client, handshake_to_relay_bytes, handshake_to_client_bytes }
    FlowRecord { messages, payload_bytes, wire_bytes }
}

impl RunRecord {
    /// Reads a record.
    ///
    /// # Errors
    /// [`RecordError`]; each names the file.
    pub fn read(path: &Path) -> Result<RunRecord, RecordError> {
        read_versioned(path, "record")
    }

    /// The scenario's bounds on latencies that this run is known to miss, with what it measured in
    /// nanoseconds. A share of a plan misses none: the bounds are for all agents together.
    pub fn missed_bounds(&self) -> impl Iterator<Item = (&LatencyBound, u64)> {
        let bounds = self.latency_bounds.iter().filter(|_| self.share.is_none());
        bounds.filter_map(|bound| {
            let ns = self.latency.get(&bound.metric)?.quantile_ns(bound.quantile).ns()?;
            (!bound.is_met(ns)).then_some((bound, ns))
        })
    }

    /// The ledger by which the relay is judged: what the user did not wait for, it did not lose.
    pub fn owed(&self) -> Counts {
        if self.status == Status::Interrupted { self.counts.as_awaited() } else { self.counts }
    }

    /// Envelopes per core-second of a process that spent so much: times its core-seconds that is
    /// [`Counts::envelopes`].
    pub fn envelopes_per_core_s(&self, cpu: &CpuTime) -> f64 {
        self.counts.envelopes() as f64 * 1e9 / cpu.total_ns.max(1) as f64
    }

    /// The record as indented JSON, with a newline at its end.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("records are maps with string keys") + "\n"
    }

    /// Writes the record as indented JSON; a share's, which has many numbers, in one line.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn write(&self, path: &Path) -> Result<(), RecordError> {
        if self.share.is_some() { write_line(path, self) } else { write_text(path, &self.to_json()) }
    }
}

fn write_text(path: &Path, text: &str) -> Result<(), RecordError> {
    write_whole(path, text.as_bytes())
        .map_err(|source| RecordError::because(format!("cannot write {}", path.display()), source))
}

/// Writes what goes from a player to its agent.
fn write_line(path: &Path, value: &impl Serialize) -> Result<(), RecordError> {
    write_text(path, &serde_json::to_string(value).expect("records are maps with string keys"))
}

/// Reads a JSON file that states its `schema_version`: a record, or what embeds records. `what`
/// names it in error texts. The file may be compressed with gzip (RFC 1952).
///
/// # Errors
/// [`RecordError`]; each names the file.
pub fn read_versioned<T: DeserializeOwned>(path: &Path, what: &'static str) -> Result<T, RecordError> {
    let name = path.display().to_string();
    match unpack::read(path) {
        Ok(json) => parse_versioned(&json, &name, what),
        Err(source) if source.kind() == io::ErrorKind::UnexpectedEof => Err(cut(&name, what)),
        Err(source) => Err(RecordError::because(format!("cannot read {name}"), source)),
    }
}

/// The same of bytes that somebody sent, which are never unpacked; `name` names them in error
/// texts.
///
/// # Errors
/// [`RecordError`].
pub fn parse_versioned<T: DeserializeOwned>(
    json: &[u8],
    name: &str,
    what: &'static str,
) -> Result<T, RecordError> {
    let layout = |source: serde_json::Error| {
        RecordError::because(format!("{name} is not a {what} of this tool"), source)
    };
    let value: serde_json::Value = match serde_json::from_slice(json) {
        Err(error) if error.is_eof() => return Err(cut(name, what)),
        value => value.map_err(layout)?,
    };
    // Before the fields: a file of another major version deserves that answer, not "missing field".
    let major = |version: &str| version.split('.').next().map(str::to_owned);
    let why = match value.get("schema_version").and_then(|version| version.as_str()) {
        Some(found) if major(found) == major(SCHEMA_VERSION) => {
            return serde_json::from_value(value).map_err(layout);
        }
        Some(found) => format!(
            "{name} has schema version {found}; this build reads {}.x, so take the one that wrote it",
            major(SCHEMA_VERSION).unwrap_or_default()
        ),
        None => format!("{name} states no schema_version, so it is not a {what} of this tool"),
    };
    Err(RecordError { what: why, source: None })
}

fn cut(name: &str, what: &str) -> RecordError {
    let what = format!("{name} is cut short: it ends amid its {what}; take a whole copy");
    RecordError { what, source: None }
}

/// Why a record cannot be read or written, as a sentence.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct RecordError {
    what: String,
    /// The system's or the parser's own words.
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl RecordError {
    fn because(what: String, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> RecordError {
        RecordError { what, source: Some(source.into()) }
    }
}

/// A program and its version.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tool {
    /// The binary's name.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// The name of no emulated link in a [`Cell`].
pub const NO_LINK: &str = "none";

/// The name of no gateway in a [`Cell`].
pub const NO_GATEWAY: &str = "none";

/// The name of no batches in a [`Cell`].
pub const NO_BATCHES: &str = "none";

/// The cell that one number of the table belongs to.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Cell {
    /// The scenario's name.
    pub scenario: String,
    /// The wire format's name.
    pub format: String,
    /// Who wrote the codec: `library` or `tuned`.
    pub implementation: String,
    /// Whose code that is: a crate's name, or `this repository`; of a page its row, the format and what
    /// decodes it; empty in older records.
    #[serde(default)]
    pub code: String,
    /// The compression's name.
    pub compression: String,
    /// Its parameters in full, because library defaults drift.
    pub compression_parameters: String,
    /// The check before the relay accepts an event: `none`, `id` or `full`.
    pub verify: String,
    /// Batches of events: `none`, or the relay's limits (`ms=5 n=64 bytes=65536`).
    #[serde(default = "none")]
    pub batching: String,
    /// Whether the relay encodes an event anew in its publisher's format: `always` (all that older
    /// relays could), or `never-if-canonical`.
    #[serde(default = "always")]
    pub reencode: String,
    /// Threads of the relay; `1` in older records, `unknown` of another's.
    #[serde(default = "one")]
    pub relay_threads: String,
    /// The check of each event that clients receive: `none` (all that older clients could), `id` or
    /// `full`.
    #[serde(default = "none")]
    pub client_verify: String,
    /// The form in which clients keep ids and keys in tags of what they receive: `text` (all that
    /// older clients could), or `bytes`.
    #[serde(default = "text")]
    pub client_keeps: String,
    /// How many times the scenario's clients and rates were played; `1` in older records.
    #[serde(default = "one")]
    pub load: String,
    /// The process that closed loops brought to its limit: `relay`, `clients`, or `none` (all that
    /// older records have) where the scenario's arrivals were played.
    #[serde(default = "none")]
    pub saturate: String,
    /// The relay's name, where one run started several; else empty.
    #[serde(default)]
    pub relay: String,
    /// What stood before the relay: `gateway`, or `none` (all that older records have).
    #[serde(default = "none")]
    pub via: String,
    /// The emulated access link of each user: a profile, or its parameters; `none` for loopback, or
    /// the network that is there.
    #[serde(default = "none")]
    pub link: String,
}

// Values that all older records have.

fn text() -> String {
    "text".to_owned()
}

fn one() -> String {
    "1".to_owned()
}

fn none() -> String {
    "none".to_owned()
}

fn always() -> String {
    "always".to_owned()
}

/// The events a run sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CorpusRecord {
    /// The file's name without its folder.
    pub name: String,
    /// The fingerprint in hex.
    pub sha256: String,
    /// How many events it holds.
    pub events: u64,
    /// Records of the file that are no valid events and were left out (`--skip-invalid`).
    #[serde(default)]
    pub invalid_skipped: u64,
    /// `generated`, `real` or `mixed`.
    pub origin: String,
    /// Events by kind number.
    pub kinds: BTreeMap<String, u64>,
}

/// Whether a run reached its end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Status {
    /// Everything planned was attempted.
    #[default]
    Complete,
    /// The user ended the run.
    Interrupted,
    /// The run ended early; what was measured until then is kept.
    Incomplete {
        /// Why, as a sentence for the report.
        reason: String,
    },
}

impl Status {
    /// Why the run did not reach its end.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Status::Complete => None,
            Status::Interrupted => Some("interrupted"),
            Status::Incomplete { reason } => Some(reason),
        }
    }
}

/// Clients of a scenario that speak the same, over links that are alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PopulationRecord {
    /// Its name in the scenario; those without one that speak the same count together.
    pub name: Option<String>,
    /// The wire format's name.
    pub format: String,
    /// The compression's name, with the parameters that differ from its standing ones.
    pub compression: String,
    /// The access link of its users, where the run's populations have different ones; `none`
    /// without one.
    pub link: Option<String>,
    /// Of light readers, the n of every n-th delivery that they decode and compare; absent where
    /// all are.
    pub decode_every: Option<u32>,
    /// Its connections.
    pub connections: u64,
    /// Its part of the ledger.
    pub counts: Counts,
    /// Bytes and messages from its clients to the relay.
    pub to_relay: FlowRecord,
    /// Bytes and messages from the relay to its clients.
    pub to_client: FlowRecord,
}

/// Terms that client and relay agreed on in the handshake.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgreementRecord {
    /// The subprotocol as the relay echoed it.
    pub token: Option<String>,
    /// The relay's answer about extensions.
    pub extensions: Option<String>,
    /// The address that was connected to; absent in older records.
    pub address: Option<String>,
}

/// The relay's process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RelayProcess {
    /// Its process id, where it runs on this machine.
    pub pid: Option<u32>,
    /// Further processes that were named as the relay's.
    #[serde(default)]
    pub more_pids: Vec<u32>,
    /// How many processes its CPU time and memory are those of: with all that these started, at the
    /// end of the run.
    pub processes: Option<u64>,
    /// The CPU quota of their control groups, and what it took during the run, of a relay that is
    /// not our own.
    pub cpu_quota: Option<CpuQuota>,
    /// Why it is not known whether these processes are the relay.
    pub unproven: Option<String>,
    /// Its name as it states it.
    pub software: String,
    /// Its version as it states it.
    pub version: String,
    /// True when the run started it.
    pub own: bool,
    /// True when it does no Nostr work, as `relay-sim --floor`.
    #[serde(default)]
    pub is_floor: bool,
    /// How it misbehaved, because it was told to: then the record tests the instrument, and says
    /// nothing else.
    #[serde(default)]
    pub faults: Vec<String>,
    /// How many deliveries it spoiled, because it was told to and where it is our own.
    pub planted: Option<Planted>,
    /// The format of its events on disk, where it is our own and keeps them there; otherwise they
    /// were in memory.
    pub at_rest: Option<String>,
    /// Bytes that its processes wrote to disks during the run (`write_bytes`, proc_pid_io(5)): whole
    /// pages that they changed, without sockets, pipes and file systems in memory.
    pub written_bytes: Option<u64>,
    /// Bytes that the files in its folder take up at the end of the run, as du(1) counts them; absent
    /// where no folder is known.
    pub stored_bytes: Option<u64>,
    /// The most that it logs, where it is our own.
    pub log_level: Option<String>,
    /// Its machine, where agents played against it and that differs from the machine of agent 0 in
    /// more than the load.
    pub environment: Option<Environment>,
    /// Its host's clock against the coordinator's, where an agent started it: its CPU time is from
    /// the common start on.
    pub clock: Option<ClockRecord>,
}

/// Deliveries that a relay spoiled because it was told to. Each was spoiled in one way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Add, Sum, Serialize, Deserialize, JsonSchema)]
pub struct Planted {
    /// Left out.
    pub lost: u64,
    /// Sent twice.
    pub doubled: u64,
    /// Sent with one field changed.
    pub altered: u64,
    /// Sent with an event behind it that nobody published.
    pub invented: u64,
    /// Sent under the id of another subscription.
    pub misrouted: u64,
}

/// Anonymous memory of both processes (`RssAnon`, proc_pid_status(5)), before the connections and with
/// all of them open. The relay's includes the gateway's. Records before 2.12 have all resident memory,
/// mapped files included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryRecord {
    /// Connections made between the two readings.
    pub connections: u64,
    /// Memory of the client process, before.
    pub client_before_bytes: u64,
    /// Memory of the client process, after.
    pub client_after_bytes: u64,
    /// Memory of the relay process, before, if it runs on this machine.
    pub relay_before_bytes: Option<u64>,
    /// Memory of the relay process, after.
    pub relay_after_bytes: Option<u64>,
    /// Most memory of the relay process at any reading, its events included. The last reading is at the
    /// end of the run. In records before 2.12 the peak of all resident memory.
    pub relay_peak_bytes: Option<u64>,
    /// Mapped files in the relay's memory at the end (`RssFile`), which the kernel can take back.
    pub relay_file_bytes: Option<u64>,
    /// Memory of the gateway, before, if there was one.
    pub gateway_before_bytes: Option<u64>,
    /// Memory of the gateway, after.
    pub gateway_after_bytes: Option<u64>,
}

impl MemoryRecord {
    /// Memory of one connection in the client.
    pub fn client_bytes_per_connection(&self) -> u64 {
        self.each(self.client_before_bytes, self.client_after_bytes)
    }

    /// Memory of one connection in the relay, and in the gateway before it.
    pub fn relay_bytes_per_connection(&self) -> Option<u64> {
        Some(self.each(self.relay_before_bytes?, self.relay_after_bytes?))
    }

    /// Memory of one connection in the gateway.
    pub fn gateway_bytes_per_connection(&self) -> Option<u64> {
        Some(self.each(self.gateway_before_bytes?, self.gateway_after_bytes?))
    }

    fn each(&self, before_bytes: u64, after_bytes: u64) -> u64 {
        after_bytes.saturating_sub(before_bytes) / self.connections.max(1)
    }
}

/// Allocations of both processes during a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AllocationsRecord {
    /// The client process.
    pub client: Allocations,
    /// The relay process, where it is our own.
    pub relay: Option<Allocations>,
}

/// Memory of compressors and decompressors, in bytes, as the ends count it themselves: exact, by
/// zstd's own account and by the allocations of zlib-rs. A connection's states are made when its
/// first message needs them; they are counted when it ends, and the mean is over all connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CompressionMemoryRecord {
    /// Memory per connection in the client.
    pub client_bytes_per_connection: u64,
    /// Memory per thread in the client, which serves all its connections.
    pub client_shared_bytes: u64,
    /// Memory per connection in the relay, if it is relay-sim.
    pub relay_bytes_per_connection: Option<u64>,
    /// Memory per thread in the relay.
    pub relay_shared_bytes: Option<u64>,
}

impl fmt::Display for CompressionMemoryRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kib = |bytes: u64| format!("{:.1} KiB", bytes as f64 / 1024.0);
        let (own, shared) = (self.client_bytes_per_connection, self.client_shared_bytes);
        write!(f, "{} a connection in the client and {} a thread", kib(own), kib(shared))?;
        match (self.relay_bytes_per_connection, self.relay_shared_bytes) {
            (Some(own), Some(shared)) => {
                write!(f, "; in the relay {} a connection and {} a thread", kib(own), kib(shared))
            }
            _ => write!(f, "; in the relay unknown"),
        }
    }
}

/// Messages and bytes in one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FlowRecord {
    /// Protocol messages.
    pub messages: u64,
    /// Bytes before compression; of messages that light readers left compressed, as they came.
    pub payload_bytes: u64,
    /// Bytes at the socket: frames, masks and control frames included, the handshake apart.
    pub wire_bytes: u64,
}

/// Bytes and messages that crossed the sockets of all connections of a run, counted by the client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TrafficRecord {
    /// From client to relay.
    pub to_relay: FlowRecord,
    /// From relay to client.
    pub to_client: FlowRecord,
    /// Handshake bytes from client to relay.
    pub handshake_to_relay_bytes: u64,
    /// Handshake bytes from relay to client.
    pub handshake_to_client_bytes: u64,
}

impl TrafficRecord {
    /// Bytes both ways, handshakes apart.
    pub fn wire_bytes(&self) -> u64 {
        self.to_relay.wire_bytes + self.to_client.wire_bytes
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::{Compression, read::GzEncoder};

    use super::*;

    #[test]
    fn a_file_may_be_compressed_and_what_is_sent_may_not() {
        let json = format!(r#"{{"schema_version":"{SCHEMA_VERSION}"}}"#).into_bytes();
        let mut packed = Vec::new();
        GzEncoder::new(&json[..], Compression::default()).read_to_end(&mut packed).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &packed).unwrap();
        let read: serde_json::Value = read_versioned(file.path(), "record").unwrap();
        assert_eq!(read["schema_version"], SCHEMA_VERSION);
        for end in 0..packed.len() {
            std::fs::write(file.path(), &packed[..end]).unwrap();
            let cut = read_versioned::<serde_json::Value>(file.path(), "record").unwrap_err();
            // A single byte is not known to be packed.
            assert!(cut.to_string().contains("is cut short") || end == 1, "{end} bytes: {cut:?}");
        }
        let parsed = |bytes: &[u8]| parse_versioned::<serde_json::Value>(bytes, "a message", "record");
        assert_eq!(parsed(&json).unwrap(), read);
        let error = parsed(&packed).unwrap_err();
        assert_eq!(error.to_string(), "a message is not a record of this tool");
        for cut in [&json[..json.len() - 1], b""] {
            let error = parsed(cut).unwrap_err().to_string();
            assert_eq!(error, "a message is cut short: it ends amid its record; take a whole copy");
        }
    }
}
