//! Finds references to keys and events in an event's text.

use std::ops::Range;

use codecs::{Event, Format, hex};
use recording::nip19;

use crate::random::Random;

/// Two hashes in hex.
const SIGNATURE_DIGITS: usize = 128;

/// No event is shorter as JSON: id, key and signature alone are 256 digits.
const SHORTEST_EVENT_BYTES: usize = 300;

/// A run of base64 that is ciphertext or an initialization vector.
const SHORTEST_CIPHERTEXT: usize = 20;

/// A reference to a key or an event.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reference<'a> {
    /// 64 lowercase hex digits.
    Hash([u8; 32]),
    /// 128 of them.
    Signature([[u8; 32]; 2]),
    /// `npub1…`, `note1…`, `nprofile1…`, `nevent1…` or `naddr1…`.
    Nip19 {
        /// Before the 1.
        prefix: &'a str,
        /// Behind it.
        data: Vec<u8>,
    },
}

/// References in the text with their ranges. A reference is delimited by characters that are
/// neither letters nor digits.
pub(super) fn spans(text: &str) -> impl Iterator<Item = (Range<usize>, Reference<'_>)> {
    let bytes = text.as_bytes();
    let mut position = 0;
    std::iter::from_fn(move || {
        loop {
            let start = position + bytes[position..].iter().position(u8::is_ascii_alphanumeric)?;
            let length = bytes[start..].iter().position(|byte| !byte.is_ascii_alphanumeric());
            let end = length.map_or(bytes.len(), |length| start + length);
            position = end;
            if let Some(reference) = reference(&text[start..end]) {
                return Some((start..end, reference));
            }
        }
    })
}

fn reference(word: &str) -> Option<Reference<'_>> {
    if word.len() == 64 {
        return hex::decode_array(word.as_bytes()).map(Reference::Hash);
    }
    if word.len() == SIGNATURE_DIGITS {
        let (first, second) = word.as_bytes().split_at(64);
        return Some(Reference::Signature([hex::decode_array(first)?, hex::decode_array(second)?]));
    }
    let known = nip19::PREFIXES.iter().any(|prefix| word.starts_with(prefix));
    let (prefix, data) = known.then(|| nip19::decode(word)).flatten()?;
    Some(Reference::Nip19 { prefix, data })
}

/// Every key and id that an event names, with those of an event inside it.
pub(super) fn hashes(event: &Event<'_>) -> Vec<[u8; 32]> {
    let values = event.tags.iter().flat_map(|tag| tag.iter().skip(1));
    let mut all = Vec::new();
    for text in values.chain([&event.content]) {
        if let Some(inner) = embedded(text) {
            all.push(inner.id);
        }
        for (_, reference) in spans(text) {
            match reference {
                Reference::Hash(hash) => all.push(hash),
                Reference::Signature(_) => {}
                Reference::Nip19 { prefix, mut data } => {
                    all.extend(nip19::hashes(prefix, &mut data).into_iter().map(|hash| *hash));
                }
            }
        }
    }
    all
}

/// Parses a text that is an event, as in reposts (NIP-18) and zap receipts (NIP-57).
pub(super) fn embedded(text: &str) -> Option<Event<'static>> {
    let whole = text.len() >= SHORTEST_EVENT_BYTES && text.starts_with('{') && text.ends_with('}');
    whole
        .then(|| Format::JSON.spec().library.decode_event(text.as_bytes()).ok().map(Event::into_owned))
        .flatten()
}

/// Direct messages (NIP-04) and gift wraps (NIP-59).
pub(super) fn is_encrypted(kind: u16) -> bool {
    matches!(kind, 4 | 1059)
}

/// Replaces every long run of base64 by random digits. Keeps the first two, which encode a version,
/// and the last one of a run, whose lower bits must be zeros before padding.
pub(super) fn other_ciphertext(text: &str, seed: [u8; 32]) -> String {
    let is_other = |c: char| !(c.is_ascii_alphanumeric() || c == '+' || c == '/');
    let mut random = Random::from_seed(seed);
    let mut renewed = String::with_capacity(text.len());
    for run in text.split_inclusive(is_other) {
        let digits = run.trim_end_matches(is_other);
        if digits.len() < SHORTEST_CIPHERTEXT {
            renewed.push_str(run);
            continue;
        }
        renewed.push_str(&digits[..2]);
        renewed.push_str(&random.base64(digits.len() - 3));
        renewed.push_str(&run[digits.len() - 1..]);
    }
    renewed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_stand_alone() {
        let hash = "0123456789abcdef".repeat(4);
        let at = |text: &str| spans(text).map(|(span, _)| span.start).collect::<Vec<_>>();
        assert_eq!(at(&hash), [0]);
        assert_eq!(at(&format!("https://example.com/{hash}.jpg 30023:{hash}:d")), [20, 95]);
        assert_eq!(at(&format!("é{hash}é nostr:{}, ok", nip19::encode("npub", &[3; 32]))), [2, 75]);
        for other in [
            format!("{hash}0"),
            format!("x{hash}"),
            hash.to_uppercase(),
            hash[1..].to_owned(),
            nip19::encode("nsec", &[3; 32]),
            nip19::encode("npub", &[3; 32]).replace("npub", "note"),
            String::new(),
        ] {
            assert_eq!(at(&other), Vec::<usize>::new(), "{other}");
        }
        assert_eq!(at(&format!("{hash}{hash}")), [0]);
    }
}
