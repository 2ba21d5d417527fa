//! When each cell is measured: every cell once a round, in an order drawn anew for each round.
//!
//! Run one cell after the other, 43 % of comparisons of a workload with itself came out "different" on a shared
//! machine, because the machine drifted; in random order within rounds, 3 %.

use clap::ValueEnum;
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Profile {
    /// 3 rounds of 2 s blocks, for trying things, not for decisions
    Quick,
    /// 12 rounds of 10 s blocks, for decisions
    Standard,
}

impl Profile {
    /// Rounds and seconds a block.
    pub fn size(self) -> (u32, u32) {
        match self {
            Profile::Quick => (3, 2),
            Profile::Standard => (12, 10),
        }
    }

    /// The word on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Quick => "quick",
            Profile::Standard => "standard",
        }
    }
}

/// The order of every block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// For each round the indexes of all cells in the order they run.
    pub rounds: Vec<Vec<usize>>,
}

impl Plan {
    /// Draws the order from the seed; the same arguments give the same plan.
    pub fn new(cells: usize, rounds: u32, seed: u64) -> Plan {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let round = |_| {
            let mut order: Vec<usize> = (0..cells).collect();
            order.shuffle(&mut random);
            order
        };
        Plan { rounds: (0..rounds).map(round).collect() }
    }

    /// How many blocks there are in all.
    pub fn blocks(&self) -> usize {
        self.rounds.iter().map(Vec::len).sum()
    }
}

/// The seed of every block of a round: cells of one round send the same events at the same instants, so their ratio is
/// about the cells; rounds differ, so the result is not about one draw.
pub(crate) fn round_seed(seed: u64, round: usize) -> u64 {
    seed.wrapping_add(round as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_runs_once_a_round() {
        let plan = Plan::new(14, 12, 7);
        assert_eq!((plan.rounds.len(), plan.blocks()), (12, 168));
        for round in &plan.rounds {
            let mut sorted = round.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..14).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_seed_decides_the_order_and_rounds_differ() {
        assert_eq!(Plan::new(14, 12, 7), Plan::new(14, 12, 7));
        assert_ne!(Plan::new(14, 12, 7), Plan::new(14, 12, 8));
        let plan = Plan::new(14, 12, 7);
        assert_ne!(plan.rounds[0], plan.rounds[1]);
        // A longer run begins like a shorter one, so more rounds refine a result instead of replacing it.
        assert_eq!(Plan::new(14, 3, 7).rounds, plan.rounds[..3]);
    }
}
