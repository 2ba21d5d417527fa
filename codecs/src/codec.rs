//! What a wire format must be able to do, and how it may fail.

use std::{borrow::Cow, fmt::Debug};

use crate::{ClientMessage, Event, EventHead, EventView, FlatEvent, Limits, OverLimit, RelayMessage};

/// Reads and writes events. Formats that define only an event implement this and get whole messages from the
/// common envelope; see [`Codec`].
pub trait EventCodec: Debug + Send + Sync + 'static {
    /// Appends the event to `out`. On error `out` is what it was.
    ///
    /// # Errors
    /// [`EncodeError`] where the format cannot hold the event; it never wraps, truncates or alters.
    fn encode_event(&self, event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError>;

    /// Reads one event that fills `bytes` exactly. Never panics, never allocates more than `bytes` can justify.
    ///
    /// # Errors
    /// [`DecodeError`] for anything the format's strict profile does not allow.
    fn decode_event<'a>(&self, bytes: &'a [u8]) -> Result<Event<'a>, DecodeError>;

    /// Reads one event that fills `bytes` exactly and owns all of it, as what is kept after its frame must. What
    /// [`EventCodec::decode_event`] gives, without borrowing first.
    ///
    /// # Errors
    /// See [`EventCodec::decode_event`].
    fn owned_event(&self, bytes: &[u8]) -> Result<Event<'static>, DecodeError> {
        self.decode_event(bytes).map(Event::into_owned)
    }

    /// Checks one event that fills `bytes` exactly and leaves it there. Accepts what
    /// [`EventCodec::decode_event`] accepts and says the same of it; a tuned implementation allocates nothing for
    /// the form that its encoder writes. Libraries without views decode, which is what this costs with them.
    ///
    /// # Errors
    /// See [`EventCodec::decode_event`].
    fn view_event<'a>(&self, bytes: &'a [u8]) -> Result<EventView<'a>, DecodeError> {
        self.decode_event(bytes).map(EventView::decoded)
    }

    /// Reads one event that fills `bytes` exactly into few allocations.
    ///
    /// # Errors
    /// See [`EventCodec::decode_event`].
    fn flat_event(&self, bytes: &[u8]) -> Result<FlatEvent, DecodeError> {
        self.decode_event(bytes).map(|event| FlatEvent::from(&event))
    }

    /// Reads the head of an event and, in a tuned implementation, as little else as the layout allows: what comes
    /// after may be malformed. Right for every event that [`EventCodec::decode_event`] accepts.
    ///
    /// # Errors
    /// See [`EventCodec::decode_event`].
    fn peek(&self, bytes: &[u8]) -> Result<EventHead, DecodeError> {
        self.decode_event(bytes).map(|event| EventHead::from(&event))
    }
}

/// Reads and writes whole messages.
pub trait Codec: EventCodec {
    /// Appends a client's message to `out`.
    ///
    /// # Errors
    /// See [`EventCodec::encode_event`].
    fn encode_client(&self, message: &ClientMessage<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError>;

    /// Reads a client's message that fills `bytes` exactly.
    ///
    /// # Errors
    /// [`DecodeError::UnknownMessage`] for a verb or opcode outside the protocol, otherwise what is wrong.
    fn decode_client<'a>(&self, bytes: &'a [u8]) -> Result<ClientMessage<'a>, DecodeError> {
        self.decode_client_within(bytes, &Limits::MOST)
    }

    /// [`Codec::decode_client`] for a relay that has limits: a REQ, COUNT or NEG-OPEN beyond them is refused at the
    /// first entry too many, without room for it. Whether there is an id, a filter and nothing unsupported is left
    /// to [`Limits::check`].
    ///
    /// # Errors
    /// [`DecodeError::OverLimit`] for such a request, otherwise see [`Codec::decode_client`].
    fn decode_client_within<'a>(
        &self,
        bytes: &'a [u8],
        limits: &Limits,
    ) -> Result<ClientMessage<'a>, DecodeError>;

    /// Appends a relay's message to `out`.
    ///
    /// # Errors
    /// See [`EventCodec::encode_event`].
    fn encode_relay(&self, message: &RelayMessage<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError>;

    /// Reads a relay's message that fills `bytes` exactly.
    ///
    /// # Errors
    /// See [`Codec::decode_client`].
    fn decode_relay<'a>(&self, bytes: &'a [u8]) -> Result<RelayMessage<'a>, DecodeError>;

    /// Appends the relay's EVENT message for an event that [`EventCodec::encode_event`] of this codec already
    /// wrote: an event is encoded once and spliced behind each subscription id, as real relays do.
    /// The bytes equal those of [`Codec::encode_relay`].
    fn wrap_event(&self, subscription: &str, event: &[u8], out: &mut Vec<u8>);

    /// Appends the relay's EVENTS message for events that [`EventCodec::encode_event`] of this codec already wrote:
    /// what [`Codec::wrap_event`] is to EVENT. The bytes equal those of [`Codec::encode_relay`].
    ///
    /// # Panics
    /// When `events` is empty: there is no such message, and a relay that has nothing to send sends nothing.
    fn wrap_events(&self, subscription: &str, events: &[&[u8]], out: &mut Vec<u8>);

    /// The subscription and the head of a relay's EVENT, for a client that may have the event already: the rest of the
    /// message is not looked at. `None` for other messages, unusual spellings and implementations that have no shorter
    /// way than to decode: then decode.
    fn peek_relay<'a>(&self, _bytes: &'a [u8]) -> Option<(Cow<'a, str>, EventHead)> {
        None
    }
}

/// What [`Codec::encode_relay`] makes of a batch in every format: each event by itself, then the splice.
pub(crate) fn encode_batch(
    codec: &(impl Codec + ?Sized),
    format: &'static str,
    subscription: &str,
    events: &[Event<'_>],
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    if events.is_empty() {
        return Err(EncodeError::Unrepresentable { format, what: "EVENTS without an event" });
    }
    let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(events.len()));
    for event in events {
        codec.encode_event(event, &mut bytes)?;
        ends.push(bytes.len());
    }
    let starts = std::iter::once(0).chain(ends.iter().copied());
    let parts: Vec<_> = starts.zip(&ends).map(|(start, end)| &bytes[start..*end]).collect();
    codec.wrap_events(subscription, &parts, out);
    Ok(())
}

/// Says what [`Codec::wrap_events`] demands.
pub(crate) fn assert_batch(events: &[&[u8]]) {
    assert!(!events.is_empty(), "a batch holds at least one event");
}

/// Runs an encoder, and takes back what it has written when it fails.
pub(crate) fn all_or_nothing(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    let start = out.len();
    let result = write(out);
    if result.is_err() {
        out.truncate(start);
    }
    result
}

/// Why bytes are not a message of the format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The input ended early.
    #[error("input ended inside {0}")]
    Truncated(&'static str),
    /// Bytes remain after the message.
    #[error("{0} bytes after the end of the message")]
    Trailing(usize),
    /// Text is not UTF-8.
    #[error("{0} is not UTF-8")]
    Utf8(&'static str),
    /// A number or length outside its range.
    #[error("{0} is out of range")]
    OutOfRange(&'static str),
    /// Well-formed, but not in the one form that the strict profile allows.
    #[error("{0} is not in its canonical form")]
    NotCanonical(&'static str),
    /// A field is absent.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A field or key occurs twice.
    #[error("{0} occurs twice")]
    Duplicate(&'static str),
    /// Of the wrong type, shape or length.
    #[error("malformed {0}")]
    Malformed(&'static str),
    /// A well-formed message with a verb or opcode outside the protocol.
    #[error("unknown message {0}")]
    UnknownMessage(String),
    /// A request beyond what the reader accepts; see [`Codec::decode_client_within`].
    #[error(transparent)]
    OverLimit(Box<OverLimit>),
    /// What the format's library said.
    #[error("{0}")]
    Library(String),
}

impl DecodeError {
    /// A library's message, short enough for a NOTICE. serde quotes the text it did not expect, which the peer may
    /// have made as long as a frame; what was expected, and where, stands at the end, so the middle is left out.
    pub(crate) fn library(reason: &str) -> Self {
        const START_CHARS: usize = 80;
        const END_CHARS: usize = 120;
        let Some((start, _)) = reason.char_indices().nth(START_CHARS) else {
            return DecodeError::Library(reason.to_owned());
        };
        match reason[start..].char_indices().nth_back(END_CHARS - 1) {
            Some((end, _)) if end > 0 => {
                DecodeError::Library(format!("{} … {}", &reason[..start], &reason[start + end..]))
            }
            _ => DecodeError::Library(reason.to_owned()),
        }
    }
}

/// Why a format cannot hold a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// A count or length beyond what the layout can express.
    #[error("{format} cannot hold {what} of {actual}; its largest is {max}")]
    TooLarge {
        /// The format.
        format: &'static str,
        /// What is too large.
        what: &'static str,
        /// Its size.
        actual: usize,
        /// The format's limit.
        max: usize,
    },
    /// A value that the layout has no form for.
    #[error("{format} cannot hold {what}")]
    Unrepresentable {
        /// The format.
        format: &'static str,
        /// The value.
        what: &'static str,
    },
    /// What the format's library said.
    #[error("{0}")]
    Library(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_messages_stay_short_and_keep_both_ends() {
        for len in [0, 79, 80, 199, 200] {
            let reason = "ä".repeat(len);
            assert_eq!(DecodeError::library(&reason), DecodeError::Library(reason));
        }
        let reason = format!("invalid type: string {:?}, expected u16", "ä".repeat(1 << 16));
        let shortened = DecodeError::library(&reason).to_string();
        assert!(shortened.starts_with("invalid type: string \"ä"), "{shortened}");
        assert!(shortened.ends_with("ä\", expected u16"), "{shortened}");
        assert_eq!(shortened.chars().count(), 80 + 3 + 120);
    }
}
