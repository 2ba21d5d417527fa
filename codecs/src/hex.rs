//! Lowercase hex, and the rule by which binary formats store hex text as bytes.
//!
//! `faster-hex` converts: SIMD where the processor has it, chosen at run time, scalar elsewhere.
//! Whether text is lowercase hex is found out here, because the crate's case-checking calls are not
//! reachable (0.10.1).

/// Writes `bytes` as lowercase hex into `buffer` and returns it as text.
///
/// # Panics
/// Never for `M == 2 * N`, which every caller states in its types.
#[inline]
pub fn encode_array<'b, const N: usize, const M: usize>(bytes: &[u8; N], buffer: &'b mut [u8; M]) -> &'b str {
    const { assert!(M == 2 * N) };
    let text: &str = faster_hex::hex_encode(bytes, buffer).expect("the buffer is twice as long as the bytes");
    assert!(text.len() == M, "all of the buffer is written"); // and the compiler knows the length
    text
}

/// Writes lowercase hex of `bytes` into `digits`, which has exactly the room.
pub(crate) fn encode_to<const N: usize>(bytes: &[u8; N], digits: &mut [u8]) {
    faster_hex::hex_encode(bytes, digits).expect("the room is twice as long as the bytes");
}

/// Lowercase hex of `bytes`.
pub fn encode(bytes: &[u8]) -> String {
    if let Ok(key) = <&[u8; 32]>::try_from(bytes) {
        // Ids and keys, nearly all of what is asked for, need no zeroed space.
        return encode_array(key, &mut [0; 64]).to_owned();
    }
    let mut text = String::with_capacity(2 * bytes.len());
    push_text(bytes, &mut text);
    text
}

/// Appends lowercase hex of `bytes` to `out`.
pub fn encode_into(bytes: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + 2 * bytes.len(), 0);
    faster_hex::hex_encode(bytes, &mut out[start..]).expect("the space is twice as long as the bytes");
}

/// Appends lowercase hex of `bytes` to `out`.
pub fn push_text(bytes: &[u8], out: &mut String) {
    if let Ok(key) = <&[u8; 32]>::try_from(bytes) {
        return out.push_str(encode_array(key, &mut [0; 64]));
    }
    let mut buffer = [0; 128];
    for chunk in bytes.chunks(64) {
        let digits = &mut buffer[..2 * chunk.len()];
        out.push_str(faster_hex::hex_encode(chunk, digits).expect("the space is twice as long as the bytes"));
    }
}

/// Reads exactly `2 * N` lowercase hex digits; `None` for anything else, capitals included (an id
/// in capitals would not be written back the same).
pub fn decode_array<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    decode_to(text, &mut bytes).then_some(bytes)
}

/// Reads exactly `2 * N` lowercase hex digits into `bytes`; false, and anything in `bytes`, for
/// anything else.
#[inline]
pub(crate) fn decode_to<const N: usize>(text: &[u8], bytes: &mut [u8; N]) -> bool {
    text.len() == 2 * N && decode_lower(text, bytes)
}

/// Reads lowercase hex of any even length.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = vec![0; text.len() / 2];
    (text.len().is_multiple_of(2) && decode_lower(text, &mut bytes)).then_some(bytes)
}

/// Appends the bytes that `text` spells. Ask [`is_compactable`] first: for anything else the bytes
/// mean nothing.
pub fn decode_into(text: &str, out: &mut Vec<u8>) {
    if let Ok(digits) = <&[u8; 64]>::try_from(text.as_bytes()) {
        // Ids and keys, nearly all of what is asked for, need no zeroed space and no length checks.
        let mut bytes = [0; 32];
        faster_hex::hex_decode_unchecked(digits, &mut bytes);
        out.extend_from_slice(&bytes);
        return;
    }
    let start = out.len();
    out.resize(start + text.len() / 2, 0);
    faster_hex::hex_decode_unchecked(text.as_bytes(), &mut out[start..]);
}

/// Appends one of the two values of most tags, a letter or a key, after the format's prefix. For
/// any other value it returns false and appends nothing.
///
/// The 64 digits are checked and packed in one pass, which the compiler turns into SIMD. That costs
/// half of a check and a library call.
#[inline(always)]
pub(crate) fn push_usual<const L: usize, const K: usize>(
    value: &str,
    before_letter: [u8; L],
    before_key: [u8; K],
    out: &mut Vec<u8>,
) -> bool {
    if let [letter] = value.as_bytes() {
        out.extend_from_slice(&before_letter);
        out.push(*letter);
        return true;
    }
    let key = value.as_bytes().try_into().ok().and_then(pack_key);
    if let Some(key) = key {
        out.extend_from_slice(&before_key);
        out.extend_from_slice(&key);
    }
    key.is_some()
}

/// The key that these are the lowercase digits of.
#[inline]
pub(crate) fn pack_key(digits: &[u8; 64]) -> Option<[u8; 32]> {
    let (mut nibbles, mut is_other) = ([0; 64], false);
    for (nibble, byte) in nibbles.iter_mut().zip(digits) {
        let (digit, letter) = (byte.wrapping_sub(b'0'), byte.wrapping_sub(b'a'));
        is_other |= digit >= 10 && letter >= 6;
        *nibble = if letter < 6 { letter + 10 } else { digit };
    }
    let mut key = [0; 32];
    for (byte, pair) in key.iter_mut().zip(nibbles.as_chunks().0) {
        let pair = u16::from_le_bytes(*pair);
        *byte = (pair << 4 | pair >> 8).to_le_bytes()[0];
    }
    (!is_other).then_some(key)
}

/// Whether `text` may be stored as bytes under a rule with this shortest length: even, lowercase
/// hex, so that printing the bytes gives the identical text back.
pub fn is_compactable(text: &str, min_len: usize) -> bool {
    is_hex(text.as_bytes(), min_len)
}

/// [`is_compactable`] for bytes that may not be text.
#[inline]
pub(crate) fn is_hex(text: &[u8], min_len: usize) -> bool {
    let is_digit = |byte: &u8| is_digit(*byte); // of most other text the first byte is none
    text.len() >= min_len
        && text.len().is_multiple_of(2)
        && text.first().is_none_or(is_digit)
        && is_lower(text)
}

/// Reads digits into half as many bytes. Returns false, with anything in `bytes`, if a byte is not
/// a lowercase digit.
fn decode_lower(text: &[u8], bytes: &mut [u8]) -> bool {
    let is_hex = is_lower(text);
    if is_hex {
        faster_hex::hex_decode_unchecked(text, bytes);
    }
    is_hex
}

/// Whether all bytes are lowercase hex digits. The chunks let the compiler use SIMD, and text that
/// is no hex is mostly found out by the first.
fn is_lower(text: &[u8]) -> bool {
    let (chunks, rest) = text.as_chunks::<16>();
    chunks.iter().all(|chunk| chunk.iter().fold(true, |all, byte| all & is_digit(*byte)))
        && rest.iter().all(|byte| is_digit(*byte))
}

#[inline]
fn is_digit(byte: u8) -> bool {
    byte.wrapping_sub(b'0') < 10 || byte.wrapping_sub(b'a') < 6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_comes_back() {
        let bytes: Vec<u8> = (0..=255).collect();
        for len in 0..bytes.len() {
            let text = encode(&bytes[len..]);
            assert_eq!(decode(text.as_bytes()).as_deref(), Some(&bytes[len..]));
            assert_eq!(is_compactable(&text, 8), text.len() >= 8, "{text}");
            let mut out = b"before".to_vec();
            encode_into(&bytes[len..], &mut out);
            assert_eq!(out, [b"before", text.as_bytes()].concat());
        }
    }

    /// Every byte at every place, long enough for the SIMD paths and their remainders.
    #[test]
    fn nothing_but_lowercase_digits_is_hex() {
        for len in [2, 8, 16, 30, 32, 34, 62, 64, 66, 128, 130] {
            for place in 0..len {
                for byte in 0..=255_u8 {
                    let mut text = vec![b'a'; len];
                    text[place] = byte;
                    let is_digit = matches!(byte, b'0'..=b'9' | b'a'..=b'f');
                    assert_eq!(decode(&text).is_some(), is_digit, "{byte:#x} at {place} of {len}");
                    if let Ok(text) = str::from_utf8(&text) {
                        assert_eq!(is_compactable(text, 2), is_digit, "{byte:#x} at {place} of {len}");
                    }
                }
            }
        }
    }

    #[test]
    fn letters_and_keys_are_written_at_a_glance_and_nothing_else() {
        let check = |value: &str, expected: Option<&[u8]>| {
            let mut out = vec![7];
            assert_eq!(push_usual(value, [1], [2, 3], &mut out), expected.is_some(), "{value}");
            assert_eq!(out, [&[7], expected.unwrap_or_default()].concat(), "{value}");
        };
        check("p", Some(b"\x01p"));
        for other in ["", "pp", "ä", &"ab".repeat(31), &"ab".repeat(33), &"AB".repeat(32)] {
            check(other, None);
        }
        for start in 0..=224 {
            let key: Vec<u8> = (start..=start + 31).collect();
            check(&encode(&key), Some(&[&[2, 3], &key[..]].concat()));
        }
        for place in 0..64 {
            for byte in 0..128 {
                let mut text = vec![b'0'; 64];
                text[place] = byte;
                let key = decode(&text).map(|key| [&[2, 3], &key[..]].concat());
                check(str::from_utf8(&text).expect("all of it is ASCII"), key.as_deref());
            }
        }
    }

    #[test]
    fn lengths_are_exact() {
        assert_eq!(decode_array::<2>(b"abcd"), Some([0xab, 0xcd]));
        for text in ["", "ab", "abc", "abcde", "abcdef"] {
            assert_eq!(decode_array::<2>(text.as_bytes()), None, "{text}");
        }
        assert_eq!(decode(b"abc"), None);
        assert!(!is_compactable("abcdef", 8));
        assert!(!is_compactable("abcdefabc", 8));
    }
}
