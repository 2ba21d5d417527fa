//! Keys and ids in bech32 (NIP-19, BIP-173), without BIP-173's limit of 90 characters, as NIP-19
//! wants it.

/// Longest reference that is parsed; an `nevent` with a few relays is shorter.
const MAX_CHARS: usize = 1_024;

/// Prefixes of references to keys and events.
pub(crate) const PREFIXES: [&str; 5] = ["npub1", "note1", "nprofile1", "nevent1", "naddr1"];

const DIGITS: &[u8; 32] = b"qpzry9x8gf2tvdw0s3jn54khce6mua7l";
const CHECKSUM_DIGITS: usize = 6;

/// `prefix1…` with a checksum.
pub(crate) fn encode(prefix: &str, data: &[u8]) -> String {
    let values = regroup(data, 8, 5, true).expect("padding makes every length fit");
    let padded = values.iter().copied().chain([0; CHECKSUM_DIGITS]);
    let checksum = polymod(expanded(prefix).chain(padded)) ^ 1;
    let checksum = (0..CHECKSUM_DIGITS).map(|place| checksum >> (5 * (CHECKSUM_DIGITS - 1 - place)));
    let digits = values.into_iter().map(u32::from).chain(checksum);
    let mut text = format!("{prefix}1");
    text.extend(digits.map(|value| char::from(DIGITS[(value & 31) as usize])));
    text
}

/// Prefix and data of a text in lower case; `None` where it is none, or its checksum is wrong.
pub(crate) fn decode(text: &str) -> Option<(&str, Vec<u8>)> {
    let (prefix, digits) = text.rsplit_once('1')?;
    if text.len() > MAX_CHARS || prefix.is_empty() || digits.len() < CHECKSUM_DIGITS {
        return None;
    }
    let value = |digit: u8| {
        DIGITS.iter().position(|&known| known == digit).and_then(|place| u8::try_from(place).ok())
    };
    let values: Vec<u8> = digits.bytes().map(value).collect::<Option<_>>()?;
    if polymod(expanded(prefix).chain(values.iter().copied())) != 1 {
        return None;
    }
    Some((prefix, regroup(&values[..values.len() - CHECKSUM_DIGITS], 5, 8, false)?))
}

/// The keys and ids in the data of a reference. Longer forms are a type, a length and a value each
/// time: values of type 0 are the key or id itself, those of type 2 its author; an `naddr` names no
/// id.
pub(crate) fn hashes<'d>(prefix: &str, data: &'d mut [u8]) -> Vec<&'d mut [u8; 32]> {
    let mut found = Vec::new();
    if matches!(prefix, "npub" | "note") {
        found.extend(<&mut [u8; 32]>::try_from(data).ok());
        return found;
    }
    let mut rest = data;
    while let Some((&mut [kind, length], behind)) = rest.split_first_chunk_mut() {
        let Some((value, next)) = behind.split_at_mut_checked(usize::from(length)) else { break };
        if kind == 2 || (kind == 0 && prefix != "naddr") {
            found.extend(<&mut [u8; 32]>::try_from(value).ok());
        }
        rest = next;
    }
    found
}

/// The prefix as BIP-173 expands it for the checksum.
fn expanded(prefix: &str) -> impl Iterator<Item = u8> {
    prefix.bytes().map(|byte| byte >> 5).chain([0]).chain(prefix.bytes().map(|byte| byte & 31))
}

fn polymod(values: impl Iterator<Item = u8>) -> u32 {
    const GENERATOR: [u32; 5] = [0x3b6a_57b2, 0x2650_8e6d, 0x1ea1_19fa, 0x3d42_33dd, 0x2a14_62b3];
    values.fold(1, |checksum: u32, value| {
        let shifted = (checksum & 0x01ff_ffff) << 5 ^ u32::from(value);
        let top = checksum >> 25;
        GENERATOR
            .iter()
            .enumerate()
            .filter(|(bit, _)| top >> bit & 1 == 1)
            .fold(shifted, |sum, (_, g)| sum ^ g)
    })
}

/// Regroups bits; `None` where the remaining bits are not zeros and `pad` is off.
fn regroup(data: &[u8], from: u32, to: u32, pad: bool) -> Option<Vec<u8>> {
    let (mut bits, mut held) = (0_u32, 0_u32);
    let mut out = Vec::with_capacity(data.len() * from as usize / to as usize + 1);
    for &value in data {
        bits = (bits << from | u32::from(value)) & 0xfff;
        held += from;
        while held >= to {
            held -= to;
            out.push((bits >> held & ((1 << to) - 1)).to_le_bytes()[0]);
        }
    }
    let rest = bits & ((1 << held) - 1);
    match pad {
        true if held > 0 => out.push((rest << (to - held)).to_le_bytes()[0]),
        false if held >= from || rest != 0 => return None,
        _ => {}
    }
    Some(out)
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
        assert_eq!(decode(&"q".repeat(2_000)), None);
        assert_eq!(decode(&encode("x", &[0; 900])), None, "longer than anybody passes on");
    }
}
