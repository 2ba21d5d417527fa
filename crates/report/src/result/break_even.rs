//! The question and the blocks of `compare search --metric break-even-bandwidth`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Config;

/// How long each cell takes at each bandwidth. Where two of them take equally long follows from it,
/// see [`Versus`](crate::statistics::crossing::Versus).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BreakEven {
    /// The run as asked for.
    pub config: BreakEvenConfig,
    /// The latency that is timed: `session`, or in a scenario without sessions that of the tables.
    pub latency: String,
    /// The cells, in the order of every table.
    pub cells: Vec<CellTimes>,
}

/// The question: every cell at every bandwidth and every round trip.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BreakEvenConfig {
    /// Scenario name or file.
    pub scenario: String,
    /// Downlinks, ascending.
    pub down_bits_per_s: Vec<u64>,
    /// Uplink ÷ downlink.
    pub uplink_share: f64,
    /// Round trips without queues, ascending.
    pub rtts_ns: Vec<u64>,
    /// Rounds: in each, every cell once at every bandwidth and round trip.
    pub rounds: u32,
    /// Seconds of a block in which work starts.
    pub seconds: u32,
    /// Decides the order; block seeds follow from it.
    pub seed: u64,
    /// The corpus file, when another than the bundled one.
    pub corpus: Option<String>,
    /// Further arguments of every client.
    pub client_args: Vec<String>,
}

/// The blocks of one cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CellTimes {
    /// The cell's name, without its link.
    pub cell: String,
    /// In the order they ran.
    pub blocks: Vec<TimedBlock>,
}

/// One cell at one bandwidth and round trip in one round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimedBlock {
    /// The round, from 0. Blocks of one round have the same load.
    pub round: u32,
    /// The downlink.
    pub down_bits_per_s: u64,
    /// The round trip without queues.
    pub rtt_ns: u64,
    /// The whole link, as behind `--link`.
    pub link: String,
    /// Median of the latency; absent when the block does not count.
    pub time_ns_p50: Option<u64>,
    /// How many the median is of.
    pub samples: u64,
    /// Bytes of IP packets from the relay to the users.
    pub down_bytes: u64,
    /// Bytes of IP packets from the users to the relay.
    pub up_bytes: u64,
    /// How late the emulator forwarded packets.
    pub lateness_ns_p99: Option<u64>,
    /// How long the block took, starting the relay included.
    pub process_ns: u64,
    /// Why the block does not count; empty when it does.
    pub why: Vec<String>,
}

impl BreakEvenConfig {
    /// The configuration of every block.
    pub fn as_run(&self) -> Config {
        Config {
            scenarios: vec![self.scenario.clone()],
            profile: "search".to_owned(),
            rounds: self.rounds,
            seconds: self.seconds,
            seed: self.seed,
            corpus: self.corpus.clone(),
            client_args: self.client_args.clone(),
            ..Config::default()
        }
    }
}
