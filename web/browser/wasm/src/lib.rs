//! One format's decoder of `codecs` for script: bytes in, one text and the lengths of its slices
//! out.
//!
//! Which format is decided when this is compiled, by the environment variable `FORMAT`: a page
//! loads the code of the format that it speaks.
//!
//! The answer to [`event`], all numbers u32 LE but the time, which is i64 LE; lengths are those of
//! script, in UTF-16 code units:
//!
//! ```text
//! where the text begins, created_at, kind,
//! number of tags, for each tag: number of values, for each value: its length
//! id, pubkey and sig in hex, each value, content                      UTF-8
//! ```
//!
//! Or 0, then what is wrong as UTF-8.

use codecs::{hex, Codec, Event, FORMATS};
use wasm_minimal_protocol::wasm_func;

wasm_minimal_protocol::initiate_protocol!();

/// Found by the compiler, so that the others' code is left out.
const CODEC: &dyn Codec = codec(env!("FORMAT"));

const fn codec(name: &str) -> &'static dyn Codec {
    let mut at = 0;
    while at < FORMATS.len() {
        if is_same(FORMATS[at].name.as_bytes(), name.as_bytes()) {
            return match FORMATS[at].tuned {
                Some(tuned) => tuned,
                None => FORMATS[at].library,
            };
        }
        at += 1;
    }
    panic!("FORMAT names no format");
}

/// `==`, which constants do not have.
const fn is_same(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// Numbers of script are exact up to here: 2^53 - 1.
const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;

/// Decodes one event.
#[wasm_func]
pub fn event(bytes: &[u8]) -> Vec<u8> {
    match CODEC.decode_event(bytes) {
        Ok(event) if event.created_at.unsigned_abs() > MAX_SAFE_INTEGER => error("a number beyond 2^53"),
        Ok(event) => answer(&event),
        Err(found) => error(&found.to_string()),
    }
}

fn error(what: &str) -> Vec<u8> {
    [&[0; 4], what.as_bytes()].concat()
}

fn answer(event: &Event<'_>) -> Vec<u8> {
    let values = || event.tags.iter().flatten();
    let text_bytes = 256 + values().map(|value| value.len()).sum::<usize>() + event.content.len();
    let text_at = 4 * (5 + event.tags.len() + values().count());
    let mut out = Vec::with_capacity(text_at + text_bytes);
    push(text_at, &mut out);
    out.extend_from_slice(&event.created_at.to_le_bytes());
    push(event.kind.into(), &mut out);
    push(event.tags.len(), &mut out);
    for tag in &event.tags {
        push(tag.len(), &mut out);
        tag.iter().for_each(|value| push(utf16_length(value), &mut out));
    }
    hex::encode_into(&event.id, &mut out);
    hex::encode_into(&event.pubkey, &mut out);
    hex::encode_into(&event.sig, &mut out);
    values().for_each(|value| out.extend_from_slice(value.as_bytes()));
    out.extend_from_slice(event.content.as_bytes());
    out
}

/// A number below 2^32, as every length in the memory of WebAssembly is.
fn push(number: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&(number as u32).to_le_bytes());
}

fn utf16_length(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.encode_utf16().count() }
}
