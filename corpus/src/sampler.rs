//! Which events of a corpus take part.

use codecs::Event;

use crate::random::Random;

/// Draws events without replacement; the same seed draws the same ones on every machine, and a longer draw
/// begins with the shorter one.
#[derive(Debug, Clone)]
pub struct Sampler {
    seed: u64,
    kinds: Option<Vec<u16>>,
}

impl Sampler {
    /// Draws from all events.
    pub fn new(seed: u64) -> Sampler {
        Sampler { seed, kinds: None }
    }

    /// Draws only from events of these kinds; none given means none wanted, as in a NIP-01 filter.
    #[must_use]
    pub fn kinds(mut self, kinds: &[u16]) -> Sampler {
        self.kinds = Some(kinds.to_vec());
        self
    }

    /// Positions in `events` of at most `count` of them, in drawn order; fewer only when fewer qualify.
    pub fn indices(&self, events: &[Event<'_>], count: usize) -> Vec<usize> {
        let mut indices: Vec<_> = (0..events.len())
            .filter(|&i| self.kinds.as_ref().is_none_or(|kinds| kinds.contains(&events[i].kind)))
            .collect();
        Random::new("relay-sim sampler", self.seed).draw(&mut indices, count).to_vec()
    }

    /// The events at [`Sampler::indices`].
    pub fn take<'c>(&self, events: &'c [Event<'static>], count: usize) -> Vec<&'c Event<'static>> {
        self.indices(events, count).into_iter().map(|i| &events[i]).collect()
    }
}
