//! The inside of JSON strings (RFC 8259 §7): runs of plain bytes, and escapes as they are written,
//! checked and read.

use crate::{error::DecodeError, hex};

use super::UNUSUAL;

/// Bytes of text that are looked at and copied at once: in a run that may be short, and in one that
/// is not, by SIMD of the compiler's.
const WORD_BYTES: usize = 8;
const BLOCK_BYTES: usize = 32;

/// Longest run, in blocks, that is copied by words and blocks, without a call; longer runs are
/// copied in bulk. Names, keys and signatures are between the escapes of JSON in JSON.
const SHORT_RUN_BLOCKS: usize = 4;

/// Appends `text` between quotes, with serde_json's escapes.
pub(super) fn write_text(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    loop {
        let special = write_plain(rest, out);
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

/// Appends what stands before the first special byte, and returns what begins with it.
#[inline]
fn write_plain<'a>(mut rest: &'a [u8], out: &mut Vec<u8>) -> &'a [u8] {
    /// Appends a word, without what begins with a special byte, which is returned.
    #[inline(always)]
    fn write_word<'a>(rest: &mut &'a [u8], out: &mut Vec<u8>) -> Option<&'a [u8]> {
        let (word, after) = rest.split_first_chunk::<WORD_BYTES>()?;
        out.extend_from_slice(word);
        let Some(place) = special_in(word) else {
            *rest = after;
            return None;
        };
        out.truncate(out.len() - (WORD_BYTES - place));
        Some(&rest[place..])
    }
    if let Some(special) = write_word(&mut rest, out) {
        return special;
    }
    for _ in 0..SHORT_RUN_BLOCKS {
        let Some((block, after)) = rest.split_first_chunk::<BLOCK_BYTES>() else { break };
        if has_special(block) {
            for _ in 0..BLOCK_BYTES / WORD_BYTES {
                if let Some(special) = write_word(&mut rest, out) {
                    return special;
                }
            }
        }
        out.extend_from_slice(block);
        rest = after;
    }
    let (run, special) = rest.split_at(plain_len(rest));
    out.extend_from_slice(run);
    special
}

/// Number of bytes before the first quote, backslash or control character. Long runs go by 32
/// bytes, which the compiler turns into SIMD; the first few and the last by 8.
pub(super) fn plain_len(bytes: &[u8]) -> usize {
    let mut len = 0;
    for _ in 0..2 {
        let Some(word) = bytes[len..].first_chunk() else { break };
        if let Some(place) = special_in(word) {
            return len + place;
        }
        len += WORD_BYTES;
    }
    let (chunks, _) = bytes[len..].as_chunks::<BLOCK_BYTES>();
    len += BLOCK_BYTES * chunks.iter().take_while(|chunk| !has_special(chunk)).count();
    while let Some(word) = bytes[len..].first_chunk() {
        if let Some(place) = special_in(word) {
            return len + place;
        }
        len += WORD_BYTES;
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

/// The place of the first special byte.
#[inline]
fn special_in(word: &[u8; WORD_BYTES]) -> Option<usize> {
    let special = special_bytes(u64::from_le_bytes(*word));
    (special != 0).then(|| special.trailing_zeros() as usize / 8)
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

/// Reads text that has escapes up to the quote that ends it, or up to the end. `rest` begins inside
/// the string, with `plain_bytes` bytes that are known to be plain; `room_bytes` are a guess at the
/// text's length. Returns the text, and what begins with the quote. Not inlined, so that text
/// without escapes is.
///
/// # Errors
/// An escape that JSON does not have, or a control character.
#[inline(never)]
pub(super) fn unescaped(
    rest: &str,
    plain_bytes: usize,
    room_bytes: usize,
) -> Result<(String, &str), DecodeError> {
    let (plain, rest) = rest.split_at(plain_bytes);
    let mut text = String::with_capacity(room_bytes.max(plain_bytes));
    text.push_str(plain);
    let mut rest = read_plain(rest, &mut text);
    loop {
        let one = match rest.as_bytes() {
            [b'\\', b'u', ..] => {
                let after = after_escape(&rest.as_bytes()[1..])?;
                let (escape, after) = rest.split_at(rest.len() - after.len());
                text.push(unicode(escape).ok_or(UNUSUAL)?);
                rest = read_plain(after, &mut text);
                continue;
            }
            [b'\\', escape, ..] => match escape {
                b'"' => "\"",
                b'n' => "\n",
                b'\\' => "\\",
                b'/' => "/",
                b't' => "\t",
                b'r' => "\r",
                b'b' => "\u{8}",
                b'f' => "\u{c}",
                _ => return Err(UNUSUAL),
            },
            [b'"', ..] | [] => return Ok((text, rest)),
            _ => return Err(UNUSUAL), // a control character, or half an escape
        };
        text.push_str(one);
        rest = read_plain(&rest[2..], &mut text);
    }
}

/// [`write_plain`] for text: what would cut a character goes with the rest of its run.
#[inline]
fn read_plain<'a>(mut rest: &'a str, text: &mut String) -> &'a str {
    #[inline(always)]
    fn read_word<'a>(rest: &mut &'a str, text: &mut String) -> Option<&'a str> {
        let (word, after) = rest.split_at_checked(WORD_BYTES)?;
        text.push_str(word);
        let Some(place) = special_in(word.as_bytes().first_chunk()?) else {
            *rest = after;
            return None;
        };
        text.truncate(text.len() - (WORD_BYTES - place));
        Some(&rest[place..])
    }
    if let Some(special) = read_word(&mut rest, text) {
        return special;
    }
    for _ in 0..SHORT_RUN_BLOCKS {
        let Some((block, after)) = rest.split_at_checked(BLOCK_BYTES) else { break };
        let Some(bytes) = block.as_bytes().first_chunk::<BLOCK_BYTES>() else { break };
        if has_special(bytes) {
            for _ in 0..BLOCK_BYTES / WORD_BYTES {
                if let Some(special) = read_word(&mut rest, text) {
                    return special;
                }
            }
            break; // a character lies across words
        }
        text.push_str(block);
        rest = after;
    }
    let (run, special) = rest.split_at(plain_len(rest.as_bytes()));
    text.push_str(run);
    special
}

/// The character of `\uXXXX`, or of two of them, which UTF-16 calls a pair (RFC 8259 §7). They were
/// checked.
fn unicode(escape: &str) -> Option<char> {
    let units = escape.split("\\u").skip(1).map(|digits| u16::from_str_radix(digits, 16).unwrap_or(0xd800));
    char::decode_utf16(units).next()?.ok()
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
            for plain in [0, plain_len(escaped.as_bytes())] {
                assert_eq!(unescaped(escaped, plain, 0), Ok((text.clone(), "")), "{escaped}");
            }
            let quoted = format!("{escaped}\", behind");
            assert_eq!(unescaped(&quoted, 0, 99), Ok((text, "\", behind")));
        }
    }

    /// Escapes at every place around the words that are copied at once, with characters that a cut
    /// between words would break.
    #[test]
    fn every_run_between_escapes_is_written_and_read_back() {
        for letter in ["a", "ä", "€", "🏴"] {
            for run in 0..45 {
                for escape in ["\"", "\\", "\n", "\u{1}"] {
                    let text = format!("{}{escape}{}{escape}", letter.repeat(run), letter.repeat(run / 2));
                    let mut written = Vec::new();
                    write_text(&text, &mut written);
                    assert_eq!(written, serde_json::to_vec(&text).expect("any text is JSON"));
                    let quoted = str::from_utf8(&written).expect("it is text");
                    assert_eq!(unescaped(&quoted[1..], 0, 0), Ok((text, "\"")));
                }
            }
        }
    }

    #[test]
    fn what_is_no_escape_is_refused() {
        for wrong in [r"\", r"\x", r"\u12", r"\u12g4", r"\ud800", r"\ud800\u0041", r"\udc00", r"\é", "\u{1}"]
        {
            for before in ["", "1234567", "12345678", "an escape \\n and more"] {
                assert_eq!(unescaped(&format!("{before}{wrong}"), 0, 0), Err(UNUSUAL), "{wrong:?}");
            }
        }
    }
}
