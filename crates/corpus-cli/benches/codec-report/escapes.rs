//! JSON in JSON, as in reposts and zap receipts: an event whose content is an event, so that every
//! quote of it is escaped; and the same without any escape.

use codecs::{Codec, Event, Format};

use crate::{
    json_libraries,
    sets::{self, EventSet},
    what::What,
};

/// Events with content of one sort.
pub(crate) struct Texts {
    /// Writing them, and reading them.
    pub(crate) what: [What; 2],
    pub(crate) events: Vec<Event<'static>>,
    pub(crate) frames: Vec<Vec<u8>>,
}

/// The rows of each sort of content, and what the table calls it.
pub(crate) const SORTS: [([What; 2], &str); 2] = [
    ([What::EncodeEscaped, What::DecodeEscaped], "an event, each quote escaped"),
    ([What::EncodeUnescaped, What::DecodeUnescaped], "the same, nothing to escape"),
];

/// Both sorts for the events of a set, each content as long as the other.
///
/// # Errors
/// A JSON library that reads or writes one of them otherwise than `codecs`.
pub(crate) fn texts(set: &EventSet<'_>) -> anyhow::Result<Vec<Texts>> {
    let codec = Format::JSON.spec().library;
    SORTS.into_iter().map(|(what, _)| Texts::new(codec, set, what)).collect()
}

impl Texts {
    fn new(codec: &dyn Codec, set: &EventSet<'_>, what: [What; 2]) -> anyhow::Result<Texts> {
        let event = |event: &&Event<'static>| {
            let json = String::from_utf8(sets::encode(codec, event)).expect("JSON is text");
            let content = match what {
                [What::EncodeEscaped, _] => json,
                _ => json.replace(is_escaped, "'"),
            };
            Event { content: content.into(), ..(*event).clone() }
        };
        let events: Vec<_> = set.events.iter().map(event).collect();
        let frames: Vec<_> = events.iter().map(|event| sets::encode(codec, event)).collect();
        let deliveries = json_libraries::deliveries(codec, &events);
        json_libraries::check(&events, &frames, &deliveries)?;
        Ok(Texts { what, events, frames })
    }
}

fn is_escaped(c: char) -> bool {
    c < ' ' || c == '"' || c == '\\'
}
