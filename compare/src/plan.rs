//! The order of blocks: every cell once a round, in an order drawn anew for each round, anchors in
//! between.
//!
//! Neighbours share the machine's drift, so a ratio of neighbours cancels most of it
//! (docs/decisions/anchors.md).

use std::{collections::BTreeSet, time::Duration};

use clap::ValueEnum;
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use wire::Compression;

use crate::matrix::CellSpec;
use report::{
    reference::{BASE_COMPRESSION, BASE_FORMAT},
    result::{Block, QUICK, Role, with_further},
};

/// Cells between two anchors: the anchor runs at every fourth place.
const BETWEEN_ANCHORS: usize = 3;

/// Cells between two anchors of a saturated load. Its figures are sums over rounds, so anchors need no
/// neighbours.
const BETWEEN_SATURATED_ANCHORS: usize = 12;

/// The formats that the quick profile compresses by default. All formats in six rounds would take nine
/// minutes.
const QUICK_COMPRESSED: [&str; 2] = [BASE_FORMAT, "dannypack"];

/// The compressions of these two that the quick profile measures, and nothing else, in blocks of
/// five bursts: two formats with and without compression are what five minutes hold.
const QUICK_OF_BURSTS: [&str; 2] = [BASE_COMPRESSION, "deflate"];

/// Time of a block beyond its seconds: the relay starts, the corpus is read. In the published
/// results it is 0.4 to 1.3 s, the difference between `process_ns` of a block and its seconds.
const BLOCK_OVERHEAD: Duration = Duration::from_millis(1_250);

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Profile {
    /// 6 rounds of 1 s blocks, or of five bursts where a scenario has bursts, for trying things,
    /// not for decisions; unless --format or --compression is given, only JSON and
    /// DannyPack are compressed, and with bursts only these two are measured
    Quick,
    /// 12 rounds of 10 s blocks, for everyday
    Standard,
    /// 20 rounds of 20 s blocks, for claims
    Publish,
}

impl Profile {
    /// Rounds and seconds a block.
    pub fn size(self) -> (u32, u32) {
        match self {
            Profile::Quick => (6, 1),
            Profile::Standard => (12, 10),
            Profile::Publish => (20, 20),
        }
    }

    /// Its name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Quick => QUICK,
            Profile::Standard => "standard",
            Profile::Publish => "publish",
        }
    }
}

/// The order of every block.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlockOrder {
    /// For each round the indexes of its cells, in the order they run. Anchors run several times per round.
    pub rounds: Vec<Vec<usize>>,
    /// Further rounds, which replace blocks with invalid times.
    pub spare: Vec<Vec<usize>>,
}

impl BlockOrder {
    /// Draws the order from the seed; the same arguments give the same plan. Cells of one load
    /// (scenario and rate) stay together in a round, because an anchor says something only about
    /// its own load. If only one cell is compared with the first relay, each round has it twice, next
    /// to the anchor and the control, so that both relays have as many blocks.
    pub fn new(cells: &[CellSpec], rounds: u32, seed: u64) -> BlockOrder {
        let mut loads: Vec<(usize, Vec<usize>)> = Vec::new();
        for (index, cell) in cells.iter().enumerate() {
            match loads.iter_mut().find(|(anchor, _)| cells[*anchor].load() == cell.load()) {
                Some((_, others)) => others.push(index),
                None => {
                    assert!(cell.role == Role::Anchor, "the first cell of a load is its anchor");
                    loads.push((index, Vec::new()));
                }
            }
        }
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let round = |_| {
            loads.shuffle(&mut random);
            let mut order = Vec::new();
            for (anchor, others) in &mut loads {
                if let Some(mut blocks) = pair(cells, *anchor, others) {
                    blocks.shuffle(&mut random);
                    order.extend(blocks);
                    continue;
                }
                others.shuffle(&mut random);
                let is_saturated = cells[*anchor].cell.saturate.is_some();
                let between = if is_saturated { BETWEEN_SATURATED_ANCHORS } else { BETWEEN_ANCHORS };
                for some in others.chunks(between) {
                    order.push(*anchor);
                    order.extend(some);
                }
                order.push(*anchor);
            }
            order
        };
        BlockOrder { rounds: (0..rounds).map(round).collect(), spare: Vec::new() }
    }

    /// As [`BlockOrder::new`], with half as many further rounds.
    pub fn with_spare(cells: &[CellSpec], rounds: u32, seed: u64) -> BlockOrder {
        let BlockOrder { rounds: mut all, .. } = BlockOrder::new(cells, with_further(rounds), seed);
        let spare = all.split_off(rounds as usize);
        BlockOrder { rounds: all, spare }
    }

    /// The order of the next round after these blocks. Further rounds follow the planned ones while a cell
    /// lacks usable rounds and lost more to the host than further rounds were played. A block that the
    /// cell itself made late is a result and is not replaced, so the number of rounds does not depend on
    /// the measurements.
    pub(crate) fn next_round(&self, round: usize, blocks: &[(usize, Block)]) -> Option<&[usize]> {
        let Some(further) = round.checked_sub(self.rounds.len()) else { return Some(&self.rounds[round]) };
        let cells: BTreeSet<usize> = blocks.iter().map(|(cell, _)| *cell).collect();
        let lacks = |cell: &usize| {
            let rounds_of = |is: fn(&Block) -> bool| -> BTreeSet<u32> {
                blocks
                    .iter()
                    .filter(|(of, block)| of == cell && is(block))
                    .map(|(_, block)| block.round)
                    .collect()
            };
            let usable = rounds_of(|block| block.usable().is_some());
            let untimed = rounds_of(|block| {
                let counted = block.counted().filter(|_| block.usable().is_none());
                counted.is_some_and(|record| !record.validity.is_own_lateness())
            });
            usable.len() < self.rounds.len() && untimed.difference(&usable).count() > further
        };
        self.spare.get(further).map(Vec::as_slice).filter(|_| cells.iter().any(lacks))
    }

    /// Time of all blocks, before one was measured.
    pub(crate) fn estimate(&self, cells: &[CellSpec], seconds: u32) -> Duration {
        self.rounds.iter().flatten().map(|cell| cell_estimate(&cells[*cell], seconds)).sum()
    }

    /// How many blocks there are in all.
    pub fn blocks(&self) -> usize {
        self.rounds.iter().map(Vec::len).sum()
    }
}

/// The blocks of a round that compares one cell with the first relay.
fn pair(cells: &[CellSpec], anchor: usize, others: &[usize]) -> Option<[usize; 4]> {
    let [control, one] = *others else { return None };
    let roles = [cells[control].role, cells[one].role];
    let is_pair =
        roles == [Role::Control, Role::Cell] && cells[one].cell.relay_name != cells[anchor].cell.relay_name;
    is_pair.then_some([anchor, control, one, one])
}

/// Time of a block, before one was measured.
pub(crate) fn block_estimate(seconds: u32) -> Duration {
    Duration::from_secs(u64::from(seconds)) + BLOCK_OVERHEAD
}

/// Time of a block of a cell, before one was measured: over links as long as these carry what the
/// plan sends.
pub(crate) fn cell_estimate(cell: &CellSpec, seconds: u32) -> Duration {
    let lasts = cell.over_links.map_or(Duration::ZERO, |over| over.lasts + BLOCK_OVERHEAD);
    block_estimate(seconds).max(lasts)
}

/// Whether the quick profile measures a cell when neither formats nor compressions are given;
/// `of_bursts` are blocks that it made longer for their bursts.
pub(crate) fn is_quick(cell: &CellSpec, of_bursts: bool) -> bool {
    let is_of_two = QUICK_COMPRESSED.contains(&cell.cell.format.name());
    if of_bursts {
        is_of_two
            && cell.role != Role::Floor
            && QUICK_OF_BURSTS.contains(&cell.cell.compression.label().as_str())
    } else {
        cell.cell.compression == Compression::None || is_of_two
    }
}

/// The seed of every block of a round. Cells of one round share it, so they send the same events at
/// the same instants; rounds differ, so the result is not about one draw.
pub(crate) fn round_seed(seed: u64, round: usize) -> u64 {
    seed.wrapping_add(round as u64)
}

#[cfg(test)]
mod tests {
    use cell::Factor;
    use clap::Parser;

    use super::*;
    use crate::{
        args::{Cli, Command},
        matrix::{Matrix, OverLinks, cells},
    };
    use report::result::RelayCommand;

    fn matrix(scenarios: &[&str]) -> Vec<CellSpec> {
        let matrix = Matrix::default()
            .with(Factor::Scenario, scenarios.iter().copied())
            .with(Factor::Format, ["json", "cbor-schemaless", "cbor-packed", "cbor-intkey", "capnp"])
            .with(Factor::Compression, ["none", "zstd"]);
        let mut cells = cells(&matrix).unwrap();
        cells.retain(|cell| cell.role != Role::Floor);
        cells
    }

    /// The cells that `compare run` measures with these arguments, the seconds of their blocks, and
    /// the estimate.
    fn chosen(args: &str) -> (Vec<String>, u32, Duration) {
        let cli = Cli::try_parse_from(["compare", "run"].into_iter().chain(args.split_whitespace())).unwrap();
        let Command::Run(flags) = cli.command else { panic!("not `run`") };
        let matrix = flags.matrix().unwrap();
        let is_paced = matrix.values(Factor::Saturate).iter().any(|whom| whom == "none");
        let seconds = flags.block_seconds(if is_paced { matrix.values(Factor::Scenario) } else { &[] });
        let mut cells = cells(&matrix).unwrap();
        cells.retain(|cell| flags.measures(cell, seconds));
        let config = flags.config(matrix.values(Factor::Scenario).to_vec(), seconds);
        assert!(config.rounds >= 3 && config.seconds == seconds);
        let estimate = BlockOrder::new(&cells, config.rounds, 1).estimate(&cells, seconds);
        (cells.into_iter().map(|cell| cell.id).collect(), seconds, estimate)
    }

    #[test]
    fn a_run_without_other_flags_measures_the_first_table() {
        let (cells, seconds, estimate) = chosen("--scenario follow-list-burst");
        // Six formats, of four compressions at the relay's limit and of three at the clients', with
        // a control of each.
        assert_eq!((cells.len(), seconds), (25 + 19, 1));
        assert!(!cells.iter().any(|id| id.contains("floor")), "{cells:?}");
        assert!(!cells.iter().any(|id| id.contains("shared") && id.contains("clients")), "{cells:?}");
        // 48 blocks a round; a saturated relay is set up in half the time that is estimated.
        assert!(estimate < Duration::from_secs(48 * 3 * 9 / 4 + 1), "{estimate:?}");
        assert_eq!(chosen("--format cbor --compression deflate-shared").0.len(), 2 * 5);
        for paced in ["--saturate none", "--load 2", "--rounds 6", "--profile standard", "--slo p99<1s"] {
            assert!(chosen(paced).0.iter().all(|id| !id.contains("full-")), "{paced}");
        }
    }

    #[test]
    fn a_block_over_links_takes_as_long_as_the_links_carry_its_bytes() {
        let mut cells = matrix(&["one"]);
        let plan = BlockOrder::new(&cells, 2, 1);
        let blocks = u32::try_from(plan.blocks()).unwrap();
        assert_eq!(plan.estimate(&cells, 2), block_estimate(2) * blocks);
        let lasts = |seconds| OverLinks { lasts: Duration::from_secs(seconds), packets_per_s: None };
        cells.iter_mut().for_each(|cell| cell.over_links = Some(lasts(1)));
        assert_eq!(plan.estimate(&cells, 2), block_estimate(2) * blocks);
        cells.iter_mut().for_each(|cell| cell.over_links = Some(lasts(20)));
        assert_eq!(plan.estimate(&cells, 2), block_estimate(20) * blocks);
    }

    #[test]
    fn every_cell_runs_once_a_round_between_anchors() {
        // 11 cells with the control; the 10 besides the anchor stand in four groups between five
        // anchors.
        let cells = matrix(&["one"]);
        let plan = BlockOrder::new(&cells, 12, 7);
        assert_eq!((plan.rounds.len(), plan.blocks()), (12, 12 * 15));
        for round in &plan.rounds {
            let anchors: Vec<usize> =
                (0..round.len()).filter(|at| cells[round[*at]].role == Role::Anchor).collect();
            assert_eq!(anchors, [0, 4, 8, 12, 14]);
            let mut others: Vec<usize> = round.iter().copied().filter(|cell| *cell != 0).collect();
            others.sort_unstable();
            assert_eq!(others, (1..11).collect::<Vec<_>>());
        }
    }

    #[test]
    fn two_relays_have_as_many_blocks_each_and_no_place_of_their_own() {
        let relays =
            ["old", "new"].map(|name| RelayCommand { name: name.to_owned(), ..RelayCommand::default() });
        let cells = cells(&Matrix::of_relays().with_relays(&relays)).unwrap();
        let cells: Vec<CellSpec> = cells.into_iter().filter(|cell| cell.role != Role::Floor).collect();
        let roles: Vec<Role> = cells.iter().map(|cell| cell.role).collect();
        assert_eq!(roles, [Role::Anchor, Role::Control, Role::Cell]);
        let plan = BlockOrder::new(&cells, 60, 1);
        for round in &plan.rounds {
            let mut cells = round.clone();
            cells.sort_unstable();
            assert_eq!(cells, [0, 1, 2, 2]);
        }
        for place in 0..4 {
            let new = plan.rounds.iter().filter(|round| round[place] == 2).count();
            assert!((15..45).contains(&new), "{new} of 60 at place {place}");
        }
    }

    #[test]
    fn each_load_has_its_own_anchors_around_it() {
        let cells = matrix(&["one", "two"]);
        for round in BlockOrder::new(&cells, 4, 1).rounds {
            let scenarios: Vec<&str> = round.iter().map(|cell| cells[*cell].cell.scenario.as_str()).collect();
            assert_eq!(scenarios.chunk_by(|a, b| a == b).count(), 2, "{scenarios:?}");
            for half in round.chunks(15) {
                assert!([half[0], half[14]].iter().all(|cell| cells[*cell].role == Role::Anchor));
            }
        }
    }

    #[test]
    fn the_seed_decides_the_order_and_rounds_differ() {
        let cells = matrix(&["one"]);
        let plan = BlockOrder::new(&cells, 12, 7);
        assert_eq!(plan, BlockOrder::new(&cells, 12, 7));
        assert_ne!(plan, BlockOrder::new(&cells, 12, 8));
        assert_ne!(plan.rounds[0], plan.rounds[1]);
        // A longer run begins like a shorter one.
        assert_eq!(BlockOrder::new(&cells, 3, 7).rounds, plan.rounds[..3]);
    }
}
