//! Makes any number of new events from the templates of a corpus.
//!
//! Relays drop ids they have seen, and a repeat inside a compression window flatters stateful
//! compression, so no run repeats an event. Kind, text and the number and length of tags stay.
//! Author, time, id and signature are new, and so are all references to keys and events: a reply to
//! a template becomes a reply to the event made of that template.

mod originals;
mod references;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{PoisonError, RwLock},
};

use codecs::{Event, hex};
use recording::nip19;
use secp256k1::Keypair;
use sha2::{Digest, Sha256};

use self::{
    originals::Originals,
    references::{Reference, spans},
};
use crate::{Signing, keys};

/// Makes `count` events with valid ids and signatures from `templates`, round after round in their
/// order, each id once. Same arguments, same events, on any number of cores; about 50 µs of one
/// core each.
///
/// A round is a copy of all templates: a template author becomes one new author. So authors keep
/// their activity, and no round replaces another's profile or follow list. Keys and ids in
/// lowercase hex or in NIP-19's forms, in tags and in content, become those of the same round where
/// they belong to templates or events inside templates (reposts, zap requests), and otherwise
/// random ones, the same in all places. Ciphertext (kinds 4 and 1059) becomes another of the same
/// length. Addresses of relays and files stay, but for hashes in them; uppercase hex and other text
/// stay.
///
/// # Panics
/// When events are wanted and there is no template.
pub fn events(templates: &[&Event<'_>], count: usize, seed: u64) -> Vec<Event<'static>> {
    events_keeping(templates, count, seed, &Keep::default())
}

/// The parts of [`events`] that depend on other published events.
#[derive(Debug, Default)]
pub struct Keep {
    /// Tag values that stay in every round: references to events made elsewhere, such as the hot
    /// notes of `reaction-storm`.
    pub values: HashSet<String>,
    /// Whether every event has the time of its template.
    pub times: bool,
    /// Who signs.
    pub signing: Signing,
    /// The number of the key that the first author takes, where the user gives keys: each author of a
    /// round takes one, and those that find none left get a throw-away key.
    pub first_key: usize,
}

/// [`events`] that keep some of their templates.
///
/// # Panics
/// As [`events`].
pub fn events_keeping(templates: &[&Event<'_>], count: usize, seed: u64, kept: &Keep) -> Vec<Event<'static>> {
    assert!(count == 0 || !templates.is_empty(), "fresh events need a template");
    let originals = Originals::from_templates(templates);
    // By round: which original becomes which of the events.
    let mut rounds: BTreeMap<u64, Vec<(usize, usize)>> = BTreeMap::new();
    for place in 0..count {
        let (number, round) = originals.use_of(place);
        rounds.entry(round).or_default().push((number, place));
    }
    let mut next_key = kept.first_key..;
    let mut rounds: Vec<_> = rounds
        .into_iter()
        .map(|(round, wanted)| {
            let mut keys = HashMap::new();
            for (number, _) in kept.signing.keys.iter().flat_map(|_| &wanted) {
                let author = originals.template(*number, round).pubkey;
                keys.entry(author).or_insert_with(|| {
                    let given = kept.signing.keys.as_ref().zip(next_key.next());
                    given.and_then(|(keys, n)| keys.get(n)).unwrap_or_else(|| fresh_key(seed, round, author))
                });
            }
            let waves = originals.waves(wanted.iter().map(|(number, _)| *number));
            let (keys, made) = (RwLock::new(keys), HashMap::new());
            Round { originals: &originals, kept, seed, round, keys, wanted, waves, made }
        })
        .collect();
    // An event needs the ids of those that it refers to, so it is made after them.
    for wave in 0..rounds.iter().map(|round| round.waves.len()).max().unwrap_or(0) {
        let of_round = |(n, round): (usize, &Round<'_>)| {
            let due = round.waves.get(wave).into_iter().flatten();
            due.map(|number| (n, *number)).collect::<Vec<_>>()
        };
        let due: Vec<_> = rounds.iter().enumerate().flat_map(of_round).collect();
        let made = keys::in_parallel(due.len(), |n| rounds[due[n].0].freshen(due[n].1));
        for ((round, number), event) in due.into_iter().zip(made) {
            rounds[round].made.insert(number, event);
        }
    }
    let mut events: Vec<_> = rounds.into_iter().flat_map(Round::into_events).collect();
    events.sort_unstable_by_key(|(place, _)| *place);
    events.into_iter().map(|(_, event)| event).collect()
}

/// A round under construction.
struct Round<'o> {
    originals: &'o Originals<'o>,
    kept: &'o Keep,
    seed: u64,
    /// Number of the round, from 1.
    round: u64,
    /// New keys of the authors so far, by their template's key.
    keys: RwLock<HashMap<[u8; 32], Keypair>>,
    /// Which original becomes which of the events.
    wanted: Vec<(usize, usize)>,
    /// Originals to make, each in a later wave than those that it refers to.
    waves: Vec<Vec<usize>>,
    /// Events so far, by the number of their original.
    made: HashMap<usize, Event<'static>>,
}

impl Round<'_> {
    /// The wanted events with their positions, unordered.
    fn into_events(mut self) -> Vec<(usize, Event<'static>)> {
        let take = |(number, place)| {
            (place, self.made.remove(&number).expect("every wanted event is in a wave, once"))
        };
        self.wanted.into_iter().map(take).collect()
    }

    fn freshen(&self, number: usize) -> Event<'static> {
        let template = self.originals.template(number, self.round);
        let mut event = template.clone().into_owned();
        for value in event.tags.iter_mut().flat_map(|tag| tag.iter_mut().skip(1)) {
            if !self.kept.values.contains(value.as_ref())
                && let Some(renewed) = self.renewed(value)
            {
                *value = renewed.into();
            }
        }
        if let Some(renewed) = self.renewed(&event.content) {
            event.content = renewed.into();
        }
        if references::is_encrypted(event.kind) {
            let seed = self.derived("relay-sim fresh ciphertext", &template.id);
            event.content = references::other_ciphertext(&event.content, seed).into();
        }
        // Shifts the time's digits, too, so that no run of them repeats from round to round, and
        // never into the future, which relays refuse.
        let earlier = if self.kept.times { 0 } else { self.round };
        event.created_at = template.created_at.saturating_sub_unsigned(earlier);
        self.kept.signing.sign(&mut event, &self.key(template.pubkey));
        event
    }

    /// The text with renewed references; `None` if it has none.
    fn renewed(&self, text: &str) -> Option<String> {
        if let Some(inner) = references::embedded(text)
            && let Some(event) = self.originals.number_of(&inner.id).and_then(|number| self.made.get(&number))
        {
            return Some(crate::json::json(event));
        }
        let mut renewed = String::new();
        let mut copied = 0;
        for (span, reference) in spans(text) {
            renewed.push_str(&text[copied..span.start]);
            copied = span.end;
            match reference {
                Reference::Hash(hash) => renewed.push_str(&hex::encode(&self.reference(hash))),
                Reference::Signature(halves) => {
                    halves.iter().for_each(|half| renewed.push_str(&hex::encode(&self.stranger(half))));
                }
                Reference::Nip19 { prefix, mut data } => {
                    for hash in nip19::hashes(prefix, &mut data) {
                        *hash = self.reference(*hash);
                    }
                    renewed.push_str(&nip19::encode(prefix, &data));
                }
            }
        }
        (copied > 0).then(|| renewed + &text[copied..])
    }

    /// The key or id that replaces one of a template in this round.
    fn reference(&self, hash: [u8; 32]) -> [u8; 32] {
        match self.originals.number_of(&hash) {
            Some(number) => self.made.get(&number).expect("what an event names is in an earlier wave").id,
            None if self.originals.is_author(&hash) => keys::public(&self.key(hash)),
            None => self.stranger(&hash),
        }
    }

    /// A hash that replaces one from outside the templates.
    fn stranger(&self, hash: &[u8; 32]) -> [u8; 32] {
        self.derived("relay-sim fresh reference", hash)
    }

    fn derived(&self, words: &str, hash: &[u8; 32]) -> [u8; 32] {
        let hasher = Sha256::new().chain_update(words).chain_update(self.seed.to_be_bytes());
        hasher.chain_update(self.round.to_be_bytes()).chain_update(hash).finalize().into()
    }

    /// The key of a template author in this round.
    fn key(&self, author: [u8; 32]) -> Keypair {
        if let Some(key) = self.keys.read().unwrap_or_else(PoisonError::into_inner).get(&author) {
            return *key;
        }
        let key = fresh_key(self.seed, self.round, author);
        self.keys.write().unwrap_or_else(PoisonError::into_inner).insert(author, key);
        key
    }
}

/// A throw-away key of a template's author in a round.
fn fresh_key(seed: u64, round: u64, author: [u8; 32]) -> Keypair {
    keys::derive("relay-sim fresh key", &[&seed.to_be_bytes(), &round.to_be_bytes(), &author])
}
