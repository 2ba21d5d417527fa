//! Keys and ids in bech32 (NIP-19, BIP-173), without BIP-173's limit of 90 characters, as NIP-19
//! requires.

use bech32::{Bech32, Hrp, primitives::decode::CheckedHrpstring};

/// Prefixes of references to keys and events.
pub const PREFIXES: [&str; 5] = ["npub1", "note1", "nprofile1", "nevent1", "naddr1"];

/// `prefix1…` with a checksum, of data no longer than a decoded reference has.
///
/// # Panics
/// For a prefix that is none of NIP-19, or more than 600 bytes.
pub fn encode(prefix: &str, data: &[u8]) -> String {
    let prefix = Hrp::parse(prefix).expect("a prefix of NIP-19");
    bech32::encode_lower::<Bech32>(prefix, data).expect("1,023 digits at most")
}

/// Prefix and data of a lower-case text; `None` if it is not bech32, or its checksum is wrong.
pub fn decode(text: &str) -> Option<(&str, Vec<u8>)> {
    let checked = CheckedHrpstring::new::<Bech32>(text).ok()?;
    let prefix = &text[..checked.hrp().len()];
    let data: Vec<u8> = checked.byte_iter().collect();
    // Data has one text: of the paddings that a checksum can cover, only zeros are right.
    (encode(prefix, &data) == text).then_some((prefix, data))
}

/// The values in the data of a reference, each with its type: longer forms repeat type, length and
/// value. The whole of the short ones is a key or id (type 0). What is no whole value comes last, as
/// one of no type.
pub(crate) fn values<'d>(prefix: &str, mut data: &'d mut [u8]) -> Vec<(Option<u8>, &'d mut [u8])> {
    if matches!(prefix, "npub" | "note") {
        return vec![(Some(0), data)];
    }
    let mut found = Vec::new();
    while let Some(&[kind, length]) = data.first_chunk()
        && data.len() >= 2 + usize::from(length)
    {
        let (value, rest) = std::mem::take(&mut data).split_at_mut(2 + usize::from(length));
        found.push((Some(kind), &mut value[2..]));
        data = rest;
    }
    found.push((None, data));
    found
}

/// Whether a value is a key or an id: type 0 is the key or id itself, type 2 its author. An `naddr`
/// names no id.
pub(crate) fn is_hash(prefix: &str, kind: Option<u8>, value: &[u8]) -> bool {
    (kind == Some(2) || kind == Some(0) && prefix != "naddr") && value.len() == 32
}

/// The keys and ids in the data of a reference.
pub fn hashes<'d>(prefix: &str, data: &'d mut [u8]) -> Vec<&'d mut [u8; 32]> {
    let values = values(prefix, data).into_iter().filter(|(kind, value)| is_hash(prefix, *kind, value));
    values.filter_map(|(_, value)| value.try_into().ok()).collect()
}

#[cfg(test)]
mod tests {
    use codecs::hex;

    use super::*;

    #[test]
    fn the_examples_of_nip_19_are_met() {
        for (text, prefix, data) in [
            (
                "npub10elfcs4fr0l0r8af98jlmgdh9c8tcxjvz9qkw038js35mp4dma8qzvjptg",
                "npub",
                "7e7e9c42a91bfef19fa929e5fda1b72e0ebc1a4c1141673e2794234d86addf4e",
            ),
            (
                "nprofile1qqsrhuxx8l9ex335q7he0f09aej04zpazpl0ne2cgukyawd24mayt8gpp4mhxue69uhhytnc9e3k7mgpz4mhxue69uhkg6nzv9ejuumpv34kytnrdaksjlyr9p",
                "nprofile",
                "00203bf0c63fcb93463407af97a5e5ee64fa883d107ef9e558472c4eb9aaaefa459d\
                 010d7773733a2f2f722e782e636f6d01157773733a2f2f646a6261732e7361646b622e636f6d",
            ),
        ] {
            let (found, bytes) = decode(text).unwrap();
            assert_eq!((found, hex::encode(&bytes).as_str()), (prefix, data));
            assert_eq!(encode(prefix, &bytes), text);
        }
    }

    #[test]
    fn keys_and_ids_are_found_in_every_form() {
        let tlv = |entries: &[(u8, &[u8])]| -> Vec<u8> {
            entries
                .iter()
                .flat_map(|(kind, value)| [&[*kind, u8::try_from(value.len()).unwrap()], *value].concat())
                .collect()
        };
        let (relay, name) = (b"wss://relay.example".as_slice(), [9; 32]);
        for (prefix, mut data, expected) in [
            ("npub", vec![1; 32], vec![[1; 32]]),
            ("note", vec![1; 31], vec![]),
            ("nprofile", tlv(&[(0, &[1; 32]), (1, relay)]), vec![[1; 32]]),
            (
                "nevent",
                tlv(&[(1, relay), (0, &[1; 32]), (2, &[2; 32]), (3, &[0, 0, 0, 1])]),
                vec![[1; 32], [2; 32]],
            ),
            ("naddr", tlv(&[(0, &name), (2, &[2; 32])]), vec![[2; 32]]),
            ("nevent", vec![0, 40, 1, 1], vec![]),
            ("nevent", vec![0], vec![]),
        ] {
            let found: Vec<_> = hashes(prefix, &mut data).into_iter().map(|hash| *hash).collect();
            assert_eq!(found, expected, "{prefix}");
        }
    }

    #[test]
    fn damage_is_no_reference() {
        let whole = encode("note", &[7; 32]);
        for place in 0..whole.len() {
            let mut damaged = whole.clone().into_bytes();
            damaged[place] = if damaged[place] == b'q' { b'p' } else { b'q' };
            assert_eq!(decode(std::str::from_utf8(&damaged).unwrap()), None, "at {place}");
            assert_eq!(decode(&whole[..place]), None, "cut at {place}");
        }
        assert_eq!(decode(&whole.to_uppercase()), None);
    }
}
