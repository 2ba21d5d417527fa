//! Any event, and any change of bytes, for proptest.

use std::borrow::Cow;

use codecs::{Event, hex};
use proptest::{collection::vec, prelude::*, sample::Index};

pub(crate) fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => vec(any::<char>(), 0..40).prop_map(String::from_iter),
        4 => "[ -~]{0,140}",
        2 => vec(0_u8..0x20, 0..20).prop_map(|controls| controls.into_iter().map(char::from).collect()),
        1 => ("[ -~]{0,9}", any::<char>(), 1_usize..9_000).prop_map(|(start, c, n)| start + &c.to_string().repeat(n)),
        6 => hexlike(),
    ]
}

/// Hex of every length: as the rules want it, too short, odd, with capitals, almost hex.
fn hexlike() -> impl Strategy<Value = String> {
    let bytes = prop_oneof![Just(32_usize), 0_usize..10, 60_usize..70, 120_usize..130]
        .prop_flat_map(|len| vec(any::<u8>(), len));
    (bytes, 0..6, any::<Index>()).prop_map(|(bytes, how, at)| {
        let digits = hex::encode(&bytes);
        let at = if digits.is_empty() { 0 } else { at.index(digits.len()) };
        match how {
            0..=2 => digits,
            3 => digits.to_uppercase(),
            4 => digits[at..].to_owned(),
            _ => format!("{}{}{}", &digits[..at], digits[at..].to_uppercase(), "g"),
        }
    })
}

pub(crate) fn event() -> impl Strategy<Value = Event<'static>> {
    let tag = prop_oneof![
        20 => vec(text().prop_map(Cow::Owned), 0..6),
        1 => vec("[a-z]{0,2}".prop_map(Cow::Owned), 250..260),
    ];
    let created_at =
        prop_oneof![any::<i64>(), Just(i64::MIN), Just(-1), Just(0), Just(i64::MAX), 0..2_000_000_000_i64];
    let kind = prop_oneof![any::<u16>(), 0..64_u16, Just(u16::MAX)];
    (any::<[u8; 32]>(), any::<[u8; 32]>(), created_at, kind, vec(tag, 0..12), text(), any::<[[u8; 32]; 2]>())
        .prop_map(|(id, pubkey, created_at, kind, tags, content, sig)| Event {
            id,
            pubkey,
            created_at,
            kind,
            tags,
            content: content.into(),
            sig: sig.concat().try_into().expect("twice 32 bytes"),
        })
}

/// Changes of bytes: what, where, to which byte.
pub(crate) fn edits() -> impl Strategy<Value = Vec<(u8, Index, u8)>> {
    vec((any::<u8>(), any::<Index>(), any::<u8>()), 1..5)
}

/// Changes, puts in, takes out or doubles a few bytes.
pub(crate) fn mutate(bytes: &mut Vec<u8>, edits: &[(u8, Index, u8)]) {
    for (edit, at, byte) in edits {
        if bytes.is_empty() {
            return;
        }
        let at = at.index(bytes.len());
        match edit % 6 {
            0 => bytes[at] = *byte,
            1 => bytes[at] ^= 1 << (byte % 8),
            2 => bytes.insert(at, *byte),
            3 => drop(bytes.remove(at)),
            4 => bytes.truncate(at),
            _ => bytes.extend_from_within(at..),
        }
    }
}
