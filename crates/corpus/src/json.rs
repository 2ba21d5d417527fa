//! Events as JSON text.

use codecs::{Event, Format};

/// The event as NIP-01 writes it.
///
/// # Panics
/// Never: JSON holds every event, and is UTF-8.
pub fn json(event: &Event<'_>) -> String {
    let mut bytes = Vec::new();
    Format::JSON.spec().library.encode_event(event, &mut bytes).expect("JSON holds every event");
    String::from_utf8(bytes).expect("JSON is UTF-8")
}
