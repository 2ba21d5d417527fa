//! The generator's keys. They are derived from published words, so anyone can recognise generated
//! events.

use std::{num::NonZero, sync::LazyLock, thread};

use codecs::Event;
use secp256k1::{Keypair, SECP256K1, SecretKey};
use sha2::{Digest, Sha256};

/// Authors of the events of a [`World`]. Enough for 56 authors in 100 events at the bundled
/// sample's size. Few enough to derive all public keys in some 40 ms, which finding a file's origin
/// needs.
pub(crate) const AUTHOR_KEYS: usize = 4_096;

/// NIP-59.
const GIFT_WRAP: u16 = 1059;

/// The people, words, relays and days of generated events. Worlds share none of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum World {
    /// The world of the bundled sample.
    Sample,
    /// The world of a dictionary's training events.
    Elsewhere,
}

impl World {
    pub(crate) const ALL: [World; 2] = [World::Sample, World::Elsewhere];

    /// Its authors, most active first. The secret of author i of the sample is SHA-256("relay-sim
    /// key" || i as 8 bytes, big-endian); elsewhere it has i + [`World::PEOPLE`].
    pub(crate) fn authors(self) -> &'static [Keypair] {
        static AUTHORS: [LazyLock<Vec<Keypair>>; 2] =
            [LazyLock::new(|| authors_of(World::Sample)), LazyLock::new(|| authors_of(World::Elsewhere))];
        &AUTHORS[self as usize]
    }

    /// The number of its first key.
    pub(crate) fn first_key(self) -> usize {
        self as usize * World::PEOPLE
    }

    /// Keys that follow lists and mentions choose from; the first [`AUTHOR_KEYS`] are the authors.
    pub(crate) const PEOPLE: usize = 40_000;
}

fn authors_of(world: World) -> Vec<Keypair> {
    let key = |index| derive("relay-sim key", &[&((world.first_key() + index) as u64).to_be_bytes()]);
    in_parallel(AUTHOR_KEYS, key)
}

/// The key of an author of one event, see [`once_secret`].
pub(crate) fn once(event: &Event<'_>) -> Keypair {
    keypair(once_secret(event))
}

/// The secret of an author of one event. For a gift wrap (NIP-59: a new key each)
/// SHA-256("relay-sim gift wrap key" || content), for others SHA-256("relay-sim key of one event"
/// || the id that it would have if its author's key were all zeros).
pub(crate) fn once_secret(event: &Event<'_>) -> [u8; 32] {
    match event.kind {
        GIFT_WRAP => secret("relay-sim gift wrap key", &[event.content.as_bytes()]),
        _ => {
            let anonymous = Event { pubkey: [0; 32], ..event.clone() };
            secret("relay-sim key of one event", &[&anonymous.compute_id()])
        }
    }
}

/// The key whose secret is SHA-256(`words` || every part).
pub(crate) fn derive(words: &str, parts: &[&[u8]]) -> Keypair {
    keypair(secret(words, parts))
}

fn secret(words: &str, parts: &[&[u8]]) -> [u8; 32] {
    let mut hasher = Sha256::new().chain_update(words);
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize().into()
}

/// The key with this secret, which must be a hash.
pub(crate) fn keypair(secret: [u8; 32]) -> Keypair {
    let secret =
        SecretKey::from_byte_array(secret).expect("a hash is 0 or beyond the curve order once in 2^128");
    Keypair::from_secret_key(SECP256K1, &secret)
}

/// The x-only public key of NIP-01.
pub(crate) fn public(key: &Keypair) -> [u8; 32] {
    key.x_only_public_key().0.serialize()
}

/// Makes the event `key`'s: sets author, id and signature. BIP-340 with zero auxiliary randomness,
/// so that the same event always gets the same signature.
pub(crate) fn sign(event: &mut Event<'_>, key: &Keypair) {
    event.pubkey = public(key);
    event.id = event.compute_id();
    event.sig = SECP256K1.sign_schnorr_with_aux_rand(&event.id, key, &[0; 32]).to_byte_array();
}

/// Signs the event with the key whose secret is SHA-256("relay-sim key of" || words): sets author,
/// id and signature. For events of a simulated client instead of a corpus, such as its AUTH
/// (NIP-42).
pub fn sign_as(event: &mut Event<'_>, words: &str) {
    sign(event, &derive("relay-sim key of", &[words.as_bytes()]));
}

/// Passes `make(0)`, `make(1)`, … to `take` in this order until it fails. All cores make values, one
/// each before any is taken.
pub(crate) fn in_order<T: Send, E>(
    count: u64,
    make: impl Fn(u64) -> T + Sync,
    mut take: impl FnMut(T) -> Result<(), E>,
) -> Result<(), E> {
    for first in (0..count).step_by(cores()) {
        let together = usize::try_from(count - first).unwrap_or(usize::MAX).min(cores());
        in_parallel(together, |n| make(first + n as u64)).into_iter().try_for_each(&mut take)?;
    }
    Ok(())
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// `make(0)`, `make(1)`, …, made on all cores; the result does not depend on how many there are.
pub(crate) fn in_parallel<T: Send>(count: usize, make: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let share = count.div_ceil(cores()).max(1);
    let make = &make;
    thread::scope(|scope| {
        let workers: Vec<_> = (0..count)
            .step_by(share)
            .map(|start| scope.spawn(move || (start..count.min(start + share)).map(make).collect::<Vec<_>>()))
            .collect();
        let mut all = Vec::with_capacity(count);
        for worker in workers {
            all.extend(worker.join().expect("a worker panics only where the caller would"));
        }
        all
    })
}
