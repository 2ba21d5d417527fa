//! Who signs new events, and with how much work: keys of the user's own for relays that let only some
//! authors write, and nonces for relays that ask for proof of work (NIP-13).

use std::{
    collections::HashMap,
    fs::File,
    io::Read,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use codecs::{Event, hex};
use recording::nip19;
use secp256k1::{Keypair, SECP256K1, SecretKey};
use sha2::{Digest, Sha256};

use crate::keys;

/// The most bits of work that are made: about a second of a core for each event, and twice as long for
/// each bit more.
pub const MOST_WORK_BITS: u8 = 20;

/// How many keys no author of a plan takes: a rehearsal writes with them, and what it wrote must replace
/// nothing of the plan.
pub const REHEARSAL_KEYS: usize = 2;

/// The longest file of keys.
const MAX_BYTES: u64 = 16 << 20;

/// Digits of a nonce.
const DIGITS: usize = 16;

/// How new events are signed.
#[derive(Debug, Clone, Default)]
pub struct Signing {
    /// The keys of the authors; throw-away keys without.
    pub keys: Option<Keys>,
    /// Zero bits at the start of each id (NIP-13).
    pub work_bits: u8,
    /// How many events have their work so far, for who watches.
    pub worked: Arc<AtomicU64>,
}

/// Secret keys, in the order in which authors take them. They are not shown.
#[derive(Clone, derive_more::Debug)]
#[debug("{} keys", _0.len())]
pub struct Keys(Arc<[Keypair]>);

/// Why a file is no list of keys. Its lines are not shown, for they may be keys.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct KeysError(String);

impl Keys {
    /// Reads one key a line, in hex or as nsec (NIP-19); empty lines and those that begin with `#` are
    /// passed over.
    ///
    /// # Errors
    /// [`KeysError`].
    pub fn read(path: &Path) -> Result<Keys, KeysError> {
        let wrong = |why: String| KeysError(format!("{}{why}", path.display()));
        let mut text = String::new();
        File::open(path)
            .and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text))
            .map_err(|error| KeysError(format!("cannot read {}: {error}", path.display())))?;
        if text.len() as u64 > MAX_BYTES {
            return Err(wrong(" is longer than 16 MiB".to_owned()));
        }
        let (mut pairs, mut lines) = (Vec::new(), HashMap::new());
        for (line, text) in (1..).zip(text.lines().map(str::trim)) {
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let pair = secret(text).ok_or_else(|| {
                wrong(format!(", line {line}: no secret key; write 64 hex digits or nsec1… on each line"))
            })?;
            if let Some(first) = lines.insert(keys::public(&pair), line) {
                return Err(wrong(format!(
                    ", line {line}: the key of line {first} again; each author takes a key of its own"
                )));
            }
            pairs.push(pair);
        }
        if pairs.is_empty() {
            return Err(wrong(" has no key".to_owned()));
        }
        Ok(Keys(pairs.into()))
    }

    /// Throw-away keys, the same for the same words.
    pub fn derived(words: &str, count: usize) -> Keys {
        let key =
            |n: usize| keys::derive("relay-sim keys of", &[words.as_bytes(), &(n as u64).to_be_bytes()]);
        Keys((0..count).map(key).collect())
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The public keys.
    pub fn public(&self) -> impl Iterator<Item = [u8; 32]> {
        self.0.iter().map(keys::public)
    }

    /// The keys in a rehearsal's order: its own first, then the others from the last one on.
    #[must_use]
    pub fn for_rehearsal(&self) -> Keys {
        let (own, others) = self.0.split_at(REHEARSAL_KEYS.min(self.0.len()));
        Keys(own.iter().chain(others.iter().rev()).copied().collect())
    }

    /// The key with this number; `None` behind the last.
    pub(crate) fn get(&self, number: usize) -> Option<Keypair> {
        self.0.get(number).copied()
    }

    /// Signs the event with the key of this number, after the last with the first again.
    pub fn sign(&self, event: &mut Event<'_>, number: usize, work_bits: u8) {
        sign(event, &self.0[number % self.0.len()], work_bits);
    }
}

impl Signing {
    /// Whether events are signed as ever, by throw-away keys without work.
    pub fn is_plain(&self) -> bool {
        self.keys.is_none() && self.work_bits == 0
    }

    pub(crate) fn sign(&self, event: &mut Event<'_>, key: &Keypair) {
        sign(event, key, self.work_bits);
        self.worked.fetch_add(1, Relaxed);
    }
}

fn secret(text: &str) -> Option<Keypair> {
    let bytes: [u8; 32] = match nip19::decode(text) {
        Some(("nsec", data)) => data.try_into().ok()?,
        Some(_) => return None,
        None => hex::decode_array(text.to_ascii_lowercase().as_bytes())?,
    };
    Some(Keypair::from_secret_key(SECP256K1, &SecretKey::from_byte_array(bytes).ok()?))
}

fn sign(event: &mut Event<'_>, key: &Keypair, work_bits: u8) {
    event.pubkey = keys::public(key);
    if work_bits > 0 {
        work(event, work_bits);
    }
    keys::sign(event, key);
}

/// Gives an event the nonce by which its id begins with so many zero bits.
fn work(event: &mut Event<'_>, bits: u8) {
    event.tags.retain(|tag| tag.first().is_none_or(|name| name != "nonce"));
    let nonce = |digits: String| vec!["nonce".into(), digits.into(), bits.to_string().into()];
    event.tags.push(nonce("0".repeat(DIGITS)));
    let canonical = event.canonical();
    // Behind it is only the content, in which quotes are escaped.
    let opening = br#"["nonce",""#;
    let at = canonical.windows(opening.len()).rposition(|found| found == opening);
    let (before, rest) = canonical.split_at(at.map_or(canonical.len(), |at| at + opening.len()));
    let (before, behind) = (Sha256::new_with_prefix(before), rest.get(DIGITS..).unwrap_or_default());
    let digits = |n: u64| format!("{n:016x}");
    let is_enough = |n: &u64| {
        let id: [u8; 32] = before.clone().chain_update(digits(*n)).chain_update(behind).finalize().into();
        zero_bits(&id) >= u32::from(bits)
    };
    let found = (0..u64::MAX).find(is_enough).unwrap_or(0);
    event.tags.pop();
    event.tags.push(nonce(digits(found)));
}

/// Zero bits at the start of an id, as far as anybody asks for.
fn zero_bits(id: &[u8; 32]) -> u32 {
    id.first_chunk().map_or(0, |head| u128::from_be_bytes(*head).leading_zeros())
}

#[cfg(test)]
mod tests {
    use codecs::VerifyLevel;

    use super::*;
    use crate::Corpus;

    #[test]
    fn keys_are_read_in_hex_and_as_nsec_and_a_wrong_line_is_named_without_its_words() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Keys::read(&path)
        };
        // The example of NIP-19.
        let nsec = "nsec1vl029mgpspedva04g90vltkh6fvh240zqtv9k0t9af8935ke9laqsnlfe5";
        let hex = "67dea2ed018072d675f5415ecfaed7d2597555e202d85b3d65ea4e58d2d92ffa";
        let one = "11".repeat(32);
        let keys = read(&format!("# mine\n\n  {nsec}\n{one}\n")).unwrap();
        assert_eq!((keys.count(), format!("{keys:?}").as_str()), (2, "2 keys"));
        assert!(keys.public().eq(read(&format!("{hex}\n{one}")).unwrap().public()));
        let none = "00".repeat(32);
        let npub = "npub10elfcs4fr0l0r8af98jlmgdh9c8tcxjvz9qkw038js35mp4dma8qzvjptg";
        for (text, says) in [
            (format!("{one}\nsecret words"), "line 2: no secret key"),
            (none, "line 1: no secret key"),
            (npub.to_owned(), "line 1: no secret key"),
            (format!("{nsec}\n{one}\n{hex}"), "line 3: the key of line 1 again"),
            ("# none\n".to_owned(), "has no key"),
        ] {
            let error = read(&text).unwrap_err().to_string();
            assert!(error.contains(says) && !error.contains("words") && !error.contains(hex), "{error}");
        }
        assert!(Keys::read(folder.path()).is_err());
    }

    #[test]
    fn work_is_in_the_id_of_any_event_and_has_one_nonce() {
        let keys = Keys::derived("a test", 3);
        for mut event in Corpus::bundled().events.into_iter().take(40) {
            event.content = format!("{}[\"nonce\",\"0000000000000000\",\"9\"]", event.content).into();
            for bits in [1, 9] {
                keys.sign(&mut event, 4, bits);
                assert_eq!(event.verify(VerifyLevel::Full), Ok(()));
                assert!(zero_bits(&event.id) >= u32::from(bits));
            }
            assert_eq!(event.pubkey, keys.public().nth(1).unwrap());
            let nonces: Vec<_> = event.tags.iter().filter(|tag| tag[0] == "nonce").collect();
            assert!(nonces.len() == 1 && nonces[0][2] == "9", "{nonces:?}");
        }
    }
}
