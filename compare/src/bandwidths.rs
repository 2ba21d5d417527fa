//! Every cell over links of several bandwidths and round trips: the blocks of `compare search
//! --metric break-even-bandwidth`.
//!
//! In each round each link is taken once, in random order, and its cells run one after another, in
//! random order and with the same load, so that drift of the machine meets all cells of a link.

use cell::{Cell, Factor};
use link::Link;
use measure::{RunRecord, ValidityClass};
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;

use crate::{matrix::CellSpec, plan::BlockOrder};
use report::{
    merged::latency_of,
    result::{Block, BreakEven, BreakEvenConfig, CellTimes, TimedBlock},
};

/// The latency that users wait for, in scenarios that have sessions.
const SESSION: &str = "session";

/// The grid of a search with its cells.
#[derive(Debug)]
pub struct Grid<'a> {
    /// The run as asked for.
    pub config: &'a BreakEvenConfig,
    /// The cells without links.
    pub cells: &'a [CellSpec],
    /// Every cell over every link: round trip by round trip the bandwidths, each with all cells.
    pub blocks: Vec<CellSpec>,
}

impl<'a> Grid<'a> {
    /// Gives every cell every link.
    ///
    /// # Errors
    /// Names the rate or round trip that makes no link.
    pub fn new(config: &'a BreakEvenConfig, cells: &'a [CellSpec]) -> Result<Grid<'a>, String> {
        let mut blocks = Vec::new();
        for (down, rtt_ns) in links(config) {
            let up = up_bits_per_s(config, down);
            let text = format!("down={down}bit:up={up}bit:rtt={}us", rtt_ns / 1_000);
            let link = text.parse::<Link>().map_err(|error| error.why().to_owned())?;
            let over = |spec: &CellSpec| CellSpec {
                id: format!("{}+{}", spec.id, link.spelled_out()),
                cell: Cell { link: Some(link.clone()), ..spec.cell.clone() },
                ..spec.clone()
            };
            blocks.extend(cells.iter().map(over));
        }
        Ok(Grid { config, cells, blocks })
    }

    /// The order of every block, drawn from the seed.
    pub fn plan(&self) -> BlockOrder {
        let mut random = ChaCha8Rng::seed_from_u64(self.config.seed);
        let mut links: Vec<usize> = (0..links(self.config).count()).collect();
        let mut cells: Vec<usize> = (0..self.cells.len()).collect();
        let mut round = |_| {
            links.shuffle(&mut random);
            let mut order = Vec::with_capacity(self.blocks.len());
            for link in &links {
                cells.shuffle(&mut random);
                order.extend(cells.iter().map(|cell| link * self.cells.len() + cell));
            }
            order
        };
        BlockOrder { rounds: (0..self.config.rounds).map(&mut round).collect(), spare: Vec::new() }
    }

    /// Times of cells and the bandwidths at which they break even.
    pub fn found(&self, blocks: &[(usize, Block)]) -> BreakEven {
        let records = || blocks.iter().filter_map(|(_, block)| block.record.as_ref());
        let has_sessions =
            |record: &RunRecord| record.latency.get(SESSION).is_some_and(|one| !one.is_empty());
        let latency = if records().any(has_sessions) { SESSION } else { latency_of(records()).0 };
        let mut cells: Vec<CellTimes> =
            self.cells.iter().map(|cell| CellTimes { cell: cell.id.clone(), blocks: Vec::new() }).collect();
        let all: Vec<(u64, u64)> = links(self.config).collect();
        for (place, block) in blocks {
            let (link, cell) = (place / self.cells.len(), place % self.cells.len());
            cells[cell].blocks.push(timed(
                block,
                all[link],
                &(Factor::Link.row().write)(&self.blocks[*place].cell),
                latency,
            ));
        }
        BreakEven { config: self.config.clone(), latency: latency.to_owned(), cells }
    }
}

/// Every bandwidth at every round trip.
fn links(config: &BreakEvenConfig) -> impl Iterator<Item = (u64, u64)> {
    let at = |rtt_ns: &u64| {
        let rtt_ns = *rtt_ns;
        config.down_bits_per_s.iter().map(move |down| (*down, rtt_ns))
    };
    config.rtts_ns.iter().flat_map(at)
}

fn up_bits_per_s(config: &BreakEvenConfig, down_bits_per_s: u64) -> u64 {
    measure::whole((down_bits_per_s as f64 * config.uplink_share).round())
}

fn timed(block: &Block, (down_bits_per_s, rtt_ns): (u64, u64), link: &str, latency: &str) -> TimedBlock {
    let mut timed = TimedBlock {
        round: block.round,
        down_bits_per_s,
        rtt_ns,
        link: link.to_owned(),
        time_ns_p50: None,
        samples: 0,
        down_bytes: 0,
        up_bytes: 0,
        lateness_ns_p99: None,
        process_ns: block.process_ns,
        why: block.failure.iter().filter_map(|failure| failure.lines().last()).map(str::to_owned).collect(),
    };
    let Some(record) = &block.record else { return timed };
    if record.validity.class == ValidityClass::Invalid {
        timed.why.extend(record.validity.reasons.iter().map(ToString::to_string));
    }
    if let Some(link) = &record.link {
        (timed.down_bytes, timed.up_bytes) = (link.down.forwarded_bytes, link.up.forwarded_bytes);
        timed.lateness_ns_p99 = link.lateness.quantile_ns(0.99).ns();
    }
    let found = block.usable().and_then(|record| record.latency.get(latency));
    timed.samples = found.map_or(0, measure::Latency::len);
    timed.time_ns_p50 = found.and_then(|latency| latency.quantile_ns(0.5).ns());
    if timed.time_ns_p50.is_none() && timed.why.is_empty() {
        timed.why.push(format!("{} samples of {latency} are too few for a median", timed.samples));
    }
    timed
}
