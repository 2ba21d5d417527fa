//! Signed, reproducible events for machines that have no real ones.
//!
//! The kind mix is that of an audited archive of 50,000 events; content lengths, tag counts and tag forms are drawn
//! from measured quantiles (`data/calibration.json`); text, follow lists and encrypted content follow rules fitted to
//! how real ones compress. Generated events are still not real: results that use them say so ([`crate::Origin`]).
//!
//! Everything follows from the seed, to the bit, on every machine. A relay that loads the events keeps them all:
//! one profile, follow list or relay list per author, one address per addressable event, no expiry before 2100, and
//! deletions name events that are not here.

mod calibration;
mod content;
mod plan;
mod tags;
mod text;

use std::{collections::HashSet, sync::LazyLock};

use codecs::{Event, Format, Implementation};
use secp256k1::{Keypair, SECP256K1};
use sha2::{Digest, Sha256};

use self::{calibration::Calibration, plan::Planned, text::Vocabulary};
use crate::{
    keys,
    random::{Random, Weighted, power},
};

/// Events built before they are signed together, on all cores.
const CHUNK: usize = 2_048;

/// Keys that follow lists and mentions choose from; the first [`keys::AUTHOR_KEYS`] are the authors.
const TARGETS: usize = 40_000;

/// Why events cannot be generated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GenerateError {
    /// Each author has one follow list, and there would be more lists than authors.
    #[error(
        "{asked} events need more than the {authors} authors there are, for each has one follow list; \
         at most {max} events (to send more, runs make fresh events from these)",
        authors = keys::AUTHOR_KEYS
    )]
    TooMany {
        /// How many were asked for.
        asked: usize,
        /// How many there can be.
        max: usize,
    },
}

/// Makes `count` events, oldest first. `progress` is told now and then how many are done.
///
/// # Errors
/// [`GenerateError::TooMany`] beyond some 70,000.
pub fn events(
    count: usize,
    seed: u64,
    mut progress: impl FnMut(usize),
) -> Result<Vec<Event<'static>>, GenerateError> {
    let plan = plan::plan(count, seed)?;
    let mut builder = Builder::new(count, seed);
    for chunk in plan.chunks(CHUNK) {
        for planned in chunk {
            builder.build(planned);
        }
        builder.sign_all();
        progress(builder.events.len());
    }
    Ok(builder.events)
}

/// Events so far, and what the next one is made of.
struct Builder {
    random: Random,
    calibration: &'static Calibration,
    vocabulary: Vocabulary,
    relays: Relays,
    by_popularity: Weighted,
    events: Vec<Event<'static>>,
    /// Whose each event is.
    signers: Vec<Keypair>,
    /// Events before this one are signed.
    signed: usize,
    /// Positions of kind 1, for replies, reactions, reposts and zaps.
    notes: Vec<usize>,
}

/// What the parts of one event have in common.
struct Context {
    kind: u16,
    created_at: i64,
    /// The event's place in the corpus, which makes addresses unique.
    index: usize,
    /// The note that it answers.
    answers: Option<usize>,
    /// Whether an `e` tag names that note already.
    answered: bool,
    /// Keys in its `p` tags so far.
    mentioned: HashSet<usize>,
}

impl Builder {
    fn new(count: usize, seed: u64) -> Builder {
        Builder {
            random: Random::new("relay-sim events", seed),
            calibration: Calibration::get(),
            vocabulary: Vocabulary::new(),
            relays: Relays::new(),
            // Fitted to 38,357 follows in real lists: their top twenty keys are 2% of them.
            by_popularity: Weighted::new((0..TARGETS).map(|rank| 1.0 / power((rank + 81) as f64, 0.9))),
            events: Vec::with_capacity(count),
            signers: Vec::with_capacity(count),
            signed: 0,
            notes: Vec::new(),
        }
    }

    fn build(&mut self, planned: &Planned) {
        let shape = self.calibration.shape(planned.kind);
        // Most real answers point at events that a sample does not hold.
        let answers = (!self.notes.is_empty() && self.random.chance(0.5))
            .then(|| self.notes[self.random.below(self.notes.len())]);
        let mut context = Context {
            kind: planned.kind,
            created_at: planned.created_at,
            index: self.events.len(),
            answers,
            answered: false,
            mentioned: HashSet::new(),
        };
        let content_bytes = self.calibration.content_bytes(shape, planned.content_place);
        let content = self.content(&context, content_bytes);
        let tag_count = self.calibration.tags(shape, planned.tags_place);
        let tags = self.tags(&mut context, shape, tag_count);
        let signer = match planned.author {
            Some(author) => author_keys()[author],
            None => keys::gift_wrap(&content),
        };
        let mut event = Event {
            id: [0; 32],
            pubkey: keys::public(&signer),
            created_at: planned.created_at,
            kind: planned.kind,
            tags,
            content: content.into(),
            sig: [0; 64],
        };
        event.id = event.compute_id();
        if planned.kind == 1 {
            self.notes.push(self.events.len());
        }
        self.events.push(event);
        self.signers.push(signer);
    }

    fn sign_all(&mut self) {
        let start = self.signed;
        let (events, signers) = (&self.events, &self.signers);
        let signatures =
            keys::in_parallel(events.len() - start, |i| signature(&events[start + i], &signers[start + i]));
        for (event, signature) in self.events[start..].iter_mut().zip(signatures) {
            event.sig = signature;
        }
        self.signed = self.events.len();
    }

    /// An earlier event as it stands inside a repost.
    fn embedded(&mut self, index: usize) -> String {
        if index >= self.signed {
            self.events[index].sig = signature(&self.events[index], &self.signers[index]);
        }
        json(&self.events[index])
    }

    /// A key that many or few follow, each at most once in an event.
    fn mention(&mut self, context: &mut Context) -> [u8; 32] {
        loop {
            let target = self.by_popularity.draw(&mut self.random);
            if context.mentioned.insert(target) {
                return target_keys()[target];
            }
        }
    }
}

/// See [`keys::sign`].
fn signature(event: &Event<'_>, signer: &Keypair) -> [u8; 64] {
    SECP256K1.sign_schnorr_with_aux_rand(&event.id, signer, &[0; 32]).to_byte_array()
}

fn json(event: &Event<'_>) -> String {
    let codec = Format::JSON.codec(Implementation::Library).expect("every format has this implementation");
    let mut bytes = Vec::new();
    codec.encode_event(event, &mut bytes).expect("JSON holds every event");
    String::from_utf8(bytes).expect("JSON is UTF-8")
}

fn author_keys() -> &'static [Keypair] {
    static KEYS: LazyLock<Vec<Keypair>> =
        LazyLock::new(|| keys::in_parallel(keys::AUTHOR_KEYS, keys::author));
    &KEYS
}

/// The authors in order of their activity, then keys that are not points of the curve and sign nothing:
/// SHA-256("relay-sim follow target" || index as 8 bytes, big-endian).
fn target_keys() -> &'static [[u8; 32]] {
    static TARGET_KEYS: LazyLock<Vec<[u8; 32]>> = LazyLock::new(|| {
        let others = (keys::AUTHOR_KEYS..TARGETS).map(|index| {
            let hasher = Sha256::new().chain_update("relay-sim follow target");
            hasher.chain_update((index as u64).to_be_bytes()).finalize().into()
        });
        author_keys().iter().map(keys::public).chain(others).collect()
    });
    &TARGET_KEYS
}

/// Relay addresses: ten of them are a third of all uses.
struct Relays {
    addresses: Vec<String>,
    by_rank: Weighted,
}

impl Relays {
    fn new() -> Relays {
        let mut random = Random::new("relay-sim relays", 0);
        let addresses = (0..465)
            .map(|_| {
                let host = random.pick(&text::HOSTS);
                let length = random.between(2, 14);
                format!("wss://{}.{host}", text::digits(&mut random, 36, length))
            })
            .collect();
        let by_rank = Weighted::new((2..467).map(|rank| 1.0 / rank as f64));
        Relays { addresses, by_rank }
    }

    fn draw(&self, random: &mut Random) -> &str {
        &self.addresses[self.by_rank.draw(random)]
    }
}
