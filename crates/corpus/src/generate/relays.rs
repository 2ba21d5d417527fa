//! Relay addresses.

use super::text;
use crate::{
    keys::World,
    random::{Random, Weighted},
};

const ADDRESSES: usize = 465;
/// Number of relays in a zap request; clients name the same few in each.
const SETS: usize = 24;

/// Relay addresses: ten of them are a third of all uses.
#[derive(Debug)]
pub(super) struct Relays {
    addresses: Vec<String>,
    by_rank: Weighted,
    sets: Vec<Vec<usize>>,
    by_set_rank: Weighted,
}

impl Relays {
    pub(super) fn new(world: World) -> Relays {
        let mut random = Random::new("relay-sim relays", world as u64);
        let addresses = (0..ADDRESSES)
            .map(|_| {
                let host = random.pick(&["example", "example", "example.com"]);
                let length = random.between(2, 7);
                format!("wss://{}.{host}", text::digits(&mut random, 36, length))
            })
            .collect();
        let by_rank = Weighted::new((2..ADDRESSES + 2).map(|rank| 1.0 / rank as f64));
        let sets = (0..SETS)
            .map(|_| (0..random.between(4, 11)).map(|_| by_rank.draw(&mut random)).collect())
            .collect();
        let by_set_rank = Weighted::new((1..=SETS).map(|rank| 1.0 / rank as f64));
        Relays { addresses, by_rank, sets, by_set_rank }
    }

    pub(super) fn draw(&self, random: &mut Random) -> &str {
        &self.addresses[self.by_rank.draw(random)]
    }

    /// The relays that a client names.
    pub(super) fn set(&self, random: &mut Random) -> impl Iterator<Item = &str> {
        self.sets[self.by_set_rank.draw(random)].iter().map(|&address| &*self.addresses[address])
    }
}
