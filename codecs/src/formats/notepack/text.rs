//! Notepack's text form, which people paste: `notepack_` and the event's bytes in base64 (RFC 4648
//! §4) without padding, as the [`notepack`](https://docs.rs/notepack) crate writes it.
//!
//! ```
//! use codecs::{Event, notepack_text};
//!
//! let (id, pubkey, sig) = ([0; 32], [0; 32], [0; 64]);
//! let event = Event { id, pubkey, created_at: 4, kind: 1, tags: vec![], content: "hi".into(), sig };
//! let mut text = Vec::new();
//! notepack_text::encode(&event, &mut text);
//! assert!(text.starts_with(b"notepack_AQAA"));
//! assert_eq!(notepack_text::decode(&text)?, event);
//! # Ok::<(), codecs::DecodeError>(())
//! ```

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};

use super::TunedNotepack;
use crate::{DecodeError, Event, EventCodec};

/// The beginning of every text.
pub const PREFIX: &[u8] = b"notepack_";

/// Appends the event's text to `out`. Notepack holds every event.
pub fn encode(event: &Event<'_>, out: &mut Vec<u8>) {
    let mut bytes = Vec::with_capacity(event.content.len() + 160);
    TunedNotepack.encode_event(event, &mut bytes).expect("notepack has no limits");
    out.extend_from_slice(PREFIX);
    out.extend_from_slice(STANDARD_NO_PAD.encode(bytes).as_bytes());
}

/// Reads a text that holds one event. An event has one text: padding, other alphabets and bits
/// after the last byte are rejected, and so is everything that the format rejects.
///
/// # Errors
/// [`DecodeError`] with the fault of the text or of its bytes.
pub fn decode(text: &[u8]) -> Result<Event<'static>, DecodeError> {
    let digits =
        text.strip_prefix(PREFIX).ok_or(DecodeError::Malformed("notepack text: it begins with notepack_"))?;
    let bytes = STANDARD_NO_PAD
        .decode(digits)
        .map_err(|error| DecodeError::Library(format!("notepack text: {error}")))?;
    TunedNotepack.decode_event(&bytes).map(Event::into_owned)
}
