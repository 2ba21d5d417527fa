//! Signed, reproducible events for machines that have no real ones.
//!
//! The kinds are mixed as in measured sets of real events ([`Mix`]); content lengths, tag counts
//! and tag forms are drawn from measured quantiles (`data/calibration.json`); text, follow lists,
//! threads and encrypted content follow rules fitted to how real ones compress. A test holds each
//! of the commoner kinds to the measurements. Generated events are still not real; results state
//! their origin ([`crate::Origin`]).
//!
//! Everything follows from the seed, to the bit, on every machine. A relay that loads the events
//! keeps them all: one profile, follow list or relay list per author, one address per addressable
//! event, no expiry before 2100, and deletions name events that are not here.

mod builder;
mod calibration;
mod content;
mod plan;
mod relays;
mod requests;
mod tags;
mod text;

use std::{collections::BTreeMap, convert::Infallible, sync::OnceLock};

use codecs::Event;

use self::{builder::Builder, plan::EventPlan, relays::Relays, text::Vocabulary};
use crate::{
    keys::{self, World},
    random::{Weighted, power},
};

/// Which kinds of events, in proportion to these numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mix {
    /// Events by kind.
    pub kinds: BTreeMap<u16, usize>,
}

/// Makes `count` events of the [`Mix::audit`], oldest first, in memory. `progress` is called now
/// and then with the number done.
///
/// # Panics
/// When `count` events do not fit into memory; [`Generator`] makes them block by block.
pub fn events(count: usize, seed: u64, progress: impl FnMut(usize)) -> Vec<Event<'static>> {
    Generator::new(&Mix::audit(), count as u64, seed).events(progress)
}

/// Makes events in blocks of 1,000, on all cores, in bounded memory: some 10 MB a core.
#[derive(Debug)]
pub struct Generator {
    plan: EventPlan,
    seed: u64,
    world: World,
    people: OnceLock<Vec<[u8; 32]>>,
    vocabulary: Vocabulary,
    relays: Relays,
    by_popularity: Weighted,
    /// Whether every event keeps to [`COMMON`](crate::rules::COMMON).
    strict: bool,
}

impl Generator {
    /// A generator of `count` events.
    ///
    /// # Panics
    /// When the mix names no kind.
    pub fn new(mix: &Mix, count: u64, seed: u64) -> Generator {
        Generator {
            plan: EventPlan::new(mix, count, seed),
            seed,
            world: World::Sample,
            people: OnceLock::new(),
            vocabulary: Vocabulary::new(),
            relays: Relays::new(World::Sample),
            // Fitted to 38,357 follows in real lists: their top twenty keys are 2% of them.
            by_popularity: Weighted::new((0..World::PEOPLE).map(|rank| 1.0 / power((rank + 81) as f64, 0.9))),
            strict: false,
        }
    }

    /// Makes only events that relays take by their defaults
    /// ([`COMMON`](crate::rules::COMMON)): a larger one has fewer tags and less content, and
    /// every `e` and `p` tag names an id or a key.
    #[must_use]
    pub fn strict(self) -> Generator {
        Generator { strict: true, ..self }
    }

    /// Makes events of which the newest has this time, for relays that refuse old ones.
    #[must_use]
    pub fn ending(self, newest: i64) -> Generator {
        Generator { plan: self.plan.ending(newest), ..self }
    }

    /// Makes events with other authors, words, relays and days than any other generator's, for
    /// dictionaries that are tried on the others.
    #[must_use]
    pub fn elsewhere(self) -> Generator {
        // Of one seed both worlds would draw the same numbers.
        let seed = !self.seed;
        let (world, people, relays) = (World::Elsewhere, OnceLock::new(), Relays::new(World::Elsewhere));
        let vocabulary = self.vocabulary.elsewhere();
        Generator { plan: self.plan.elsewhere(seed), seed, world, people, vocabulary, relays, ..self }
    }

    fn people(&self) -> &[[u8; 32]] {
        self.people.get_or_init(|| builder::people(self.world))
    }

    /// Gives every block to `take`, oldest first, until it fails. All cores make blocks, one each before
    /// any is taken.
    ///
    /// # Errors
    /// The error of `take`.
    pub fn stream<E>(&self, take: impl FnMut(Vec<Event<'static>>) -> Result<(), E>) -> Result<(), E> {
        keys::in_order(self.plan.blocks(), |block| self.block(block), take)
    }

    /// All events in memory. `progress` is called now and then with the number done.
    pub fn events(&self, mut progress: impl FnMut(usize)) -> Vec<Event<'static>> {
        let mut events = Vec::new();
        let Ok(()) = self.stream(|block| {
            events.extend(block);
            progress(events.len());
            Ok::<(), Infallible>(())
        });
        events
    }

    fn block(&self, block: u64) -> Vec<Event<'static>> {
        let mut builder = Builder::new(self, block);
        for planned in self.plan.block(block) {
            builder.build(&planned);
        }
        builder.finish()
    }
}
