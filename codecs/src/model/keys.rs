//! Keeps public keys that were parsed. Authors repeat, and to parse a key, a square root in the
//! field of the curve, is a part of each check.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use secp256k1::XOnlyPublicKey;

use super::{
    Event, VerifyError, VerifyLevel,
    verify::{parse_pubkey, verify_signature},
};

/// Keys of one set. A look-up compares with these alone.
const KEYS_OF_A_SET: usize = 4;

/// Parsed public keys of authors whose signatures verified, for all threads; at most as many as it
/// was made for, in less than 150 bytes each.
///
/// A key enters when its first signature verifies, in the last place of its set, and moves up by
/// one place each time it is used. So a flood of keys that are used once, each with a valid
/// signature, takes turns in the last places, and returning authors keep theirs. The sets are drawn
/// at random, so an attacker cannot choose keys that meet.
///
/// ```
/// use codecs::{Event, PublicKeys, VerifyError, VerifyLevel};
///
/// let keys = PublicKeys::at_most(8_192);
/// let (id, pubkey, sig) = ([0; 32], [2; 32], [3; 64]);
/// let mut event = Event { id, pubkey, created_at: 4, kind: 1, tags: vec![], content: "hi".into(), sig };
/// event.id = event.compute_id();
/// assert_eq!(keys.verify(&event, VerifyLevel::Full), Err(VerifyError::Signature));
/// assert_eq!((keys.parsed(), keys.known()), (1, 0));
/// ```
pub struct PublicKeys {
    /// Known keys; in each set recently used ones come first.
    sets: Box<[Mutex<Vec<Known>>]>,
    hasher: RandomState,
    known: AtomicU64,
    parsed: AtomicU64,
}

/// A key as events have it, and as libsecp256k1 takes it.
#[derive(Clone, Copy)]
struct Known {
    pubkey: [u8; 32],
    key: XOnlyPublicKey,
}

impl PublicKeys {
    /// Room for `count` keys, rounded up to whole sets. Memory is taken as keys come.
    pub fn at_most(count: usize) -> PublicKeys {
        let sets = count.div_ceil(KEYS_OF_A_SET).max(1);
        PublicKeys {
            sets: (0..sets).map(|_| Mutex::default()).collect(),
            hasher: RandomState::new(),
            known: AtomicU64::new(0),
            parsed: AtomicU64::new(0),
        }
    }

    /// [`Event::verify`], with the same outcome for every event.
    ///
    /// # Errors
    /// As [`Event::verify`].
    pub fn verify(&self, event: &Event<'_>, level: VerifyLevel) -> Result<(), VerifyError> {
        event.verify(level.min(VerifyLevel::Id))?;
        if level < VerifyLevel::Full {
            return Ok(());
        }
        if let Some(key) = self.find(&event.pubkey) {
            self.known.fetch_add(1, Ordering::Relaxed);
            return verify_signature(&event.id, &event.sig, &key);
        }
        self.parsed.fetch_add(1, Ordering::Relaxed);
        let key = parse_pubkey(&event.pubkey)?;
        verify_signature(&event.id, &event.sig, &key)?;
        self.keep(&event.pubkey, key);
        Ok(())
    }

    /// Signatures that were checked with a key from here.
    pub fn known(&self) -> u64 {
        self.known.load(Ordering::Relaxed)
    }

    /// Keys that were parsed to check a signature, those that are none included.
    pub fn parsed(&self) -> u64 {
        self.parsed.load(Ordering::Relaxed)
    }

    fn find(&self, pubkey: &[u8; 32]) -> Option<XOnlyPublicKey> {
        self.with_set(pubkey, |set| {
            let place = set.iter().position(|known| known.pubkey == *pubkey)?;
            let key = set[place].key;
            set.swap(place, place.saturating_sub(1));
            Some(key)
        })
    }

    fn keep(&self, pubkey: &[u8; 32], key: XOnlyPublicKey) {
        self.with_set(pubkey, |set| {
            if set.iter().any(|known| known.pubkey == *pubkey) {
                return; // another thread was first
            }
            if set.len() == KEYS_OF_A_SET {
                set.pop();
            } else if set.capacity() == 0 {
                set.reserve_exact(KEYS_OF_A_SET);
            }
            set.push(Known { pubkey: *pubkey, key });
        });
    }

    fn with_set<T>(&self, pubkey: &[u8; 32], look: impl FnOnce(&mut Vec<Known>) -> T) -> T {
        // The remainder is less than the number of sets, which is a usize.
        #[allow(clippy::cast_possible_truncation)]
        let set = (self.hasher.hash_one(pubkey) % self.sets.len() as u64) as usize;
        look(&mut self.sets[set].lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for PublicKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (known, parsed) = (self.known(), self.parsed());
        f.debug_struct("PublicKeys").field("known", &known).field("parsed", &parsed).finish_non_exhaustive()
    }
}
