//! The inside of JSON strings (RFC 8259 §7): runs of plain bytes, and escapes as they are written,
//! checked and read.

use std::{borrow::Cow, ops::Range};

use crate::{error::DecodeError, hex};

use super::UNUSUAL;

/// Appends `text` between quotes, with serde_json's escapes.
pub(super) fn write_text(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    loop {
        let (run, special) = rest.split_at(plain_len(rest));
        out.extend_from_slice(run);
        let Some((byte, after)) = special.split_first() else { break };
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            control => {
                out.extend_from_slice(b"\\u00");
                hex::encode_into(&[*control], out);
            }
        }
        rest = after;
    }
    out.push(b'"');
}

/// How many bytes stand before the first quote, backslash or control character. Long runs go by 32
/// bytes, which the compiler does with SIMD; the last few by 8 at a time.
pub(super) fn plain_len(bytes: &[u8]) -> usize {
    let (chunks, _) = bytes.as_chunks::<32>();
    let mut len = 32 * chunks.iter().take_while(|chunk| !has_special(chunk)).count();
    while let Some(chunk) = bytes[len..].first_chunk::<8>() {
        let special = special_bytes(u64::from_le_bytes(*chunk));
        if special != 0 {
            return len + special.trailing_zeros() as usize / 8;
        }
        len += 8;
    }
    len + bytes[len..].iter().position(is_special).unwrap_or(bytes.len() - len)
}

#[inline]
pub(super) fn has_special<const N: usize>(bytes: &[u8; N]) -> bool {
    bytes.iter().fold(false, |any, byte| any | is_special(byte))
}

#[inline]
pub(super) fn is_special(byte: &u8) -> bool {
    *byte < 0x20 || *byte == b'"' || *byte == b'\\'
}

/// The high bit of each special byte. Bits above the lowest that is set may be wrong: borrows run
/// upwards.
fn special_bytes(word: u64) -> u64 {
    const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
    const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);
    let is_zero = |word: u64| word.wrapping_sub(ONES) & !word;
    let is_control = word.wrapping_sub(ONES * 0x20) & !word;
    (is_control | is_zero(word ^ (ONES * u64::from(b'"'))) | is_zero(word ^ (ONES * u64::from(b'\\')))) & HIGH
}

/// The text behind an escape, whose backslash is taken already.
pub(super) fn after_escape(escape: &[u8]) -> Result<&[u8], DecodeError> {
    match escape {
        [b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', rest @ ..] => Ok(rest),
        [b'u', rest @ ..] => {
            let (unit, rest) = utf16_unit(rest)?;
            if !matches!(unit, 0xd800..=0xdfff) {
                return Ok(rest);
            }
            // Half of a pair, which must be the first half and be followed by the second.
            let (second, rest) = utf16_unit(rest.strip_prefix(b"\\u").ok_or(UNUSUAL)?)?;
            match (unit, second) {
                (0xd800..=0xdbff, 0xdc00..=0xdfff) => Ok(rest),
                _ => Err(UNUSUAL),
            }
        }
        _ => Err(UNUSUAL),
    }
}

fn utf16_unit(digits: &[u8]) -> Result<(u16, &[u8]), DecodeError> {
    let (digits, rest) = digits.split_first_chunk::<4>().ok_or(UNUSUAL)?;
    let unit = digits.iter().try_fold(0, |unit, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        Some(unit << 4 | u16::try_from(digit).ok()?)
    });
    Ok((unit.ok_or(UNUSUAL)?, rest))
}

/// The text of a string whose escapes were checked. Not inlined, so that text without escapes is.
#[inline(never)]
pub(super) fn unescaped(escaped: &str) -> Cow<'_, str> {
    let mut text = String::with_capacity(escaped.len());
    let mut rest = escaped;
    // Only backslashes are special here.
    while let Some((run, special)) = rest.split_at_checked(plain_len(rest.as_bytes())) {
        text.push_str(run);
        let Some(escape) = special.strip_prefix('\\') else { break };
        let Some((c, after)) = unescape(escape) else { break };
        text.push(c);
        rest = after;
    }
    Cow::Owned(text)
}

/// The character of an escape that was checked, and what follows.
#[inline]
fn unescape(escape: &str) -> Option<(char, &str)> {
    let c = match escape.as_bytes().first()? {
        b'n' => '\n',
        b'u' => return unescape_unicode(escape),
        b'b' => '\u{8}',
        b't' => '\t',
        b'f' => '\u{c}',
        b'r' => '\r',
        other => char::from(*other), // a quote or a slash
    };
    Some((c, escape.get(1..)?))
}

/// `u` and four hex digits, or twice that for what UTF-16 writes as a pair (RFC 8259 §7).
fn unescape_unicode(escape: &str) -> Option<(char, &str)> {
    let unit = |range: Range<usize>| u16::from_str_radix(escape.get(range)?, 16).ok();
    let first = unit(1..5)?;
    let (c, len) = match char::from_u32(first.into()) {
        Some(c) => (c, 5),
        None => (char::decode_utf16([first, unit(7..11)?]).next()?.ok()?, 11),
    };
    Some((c, escape.get(len..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every byte at every place of every length that the chunks treat differently.
    #[test]
    fn plain_runs_end_at_the_first_special_byte() {
        for len in [1, 7, 8, 9, 31, 32, 33, 40, 63, 64, 65, 72] {
            for place in 0..len {
                for byte in 0..=255_u8 {
                    let mut text = vec![b'a'; len];
                    text[place] = byte;
                    let is_special = byte < 0x20 || byte == b'"' || byte == b'\\';
                    let expected = if is_special { place } else { len };
                    assert_eq!(plain_len(&text), expected, "{byte:#x} at {place} of {len}");
                    text[len - 1] = b'"';
                    assert_eq!(plain_len(&text), expected.min(len - 1), "{byte:#x} at {place} of {len}");
                }
            }
        }
    }

    #[test]
    fn escapes_are_read_as_json_means_them() {
        let cases =
            [r"", r"plain", r"\\", r#"a\"b\/\b\f\n\r\tz"#, r"\u0041\u00e4\ud83c\udf0D!", r"\n\n", r"ä\u0000"];
        for escaped in cases {
            let text: String = serde_json::from_str(&format!("\"{escaped}\"")).expect("valid JSON");
            assert_eq!(unescaped(escaped), text);
        }
    }
}
