//! Traits of a wire format.

use std::{borrow::Cow, fmt::Debug};

use crate::{
    error::{DecodeError, EncodeError},
    model::{ByteEvent, ByteMessage, ClientMessage, Event, EventHead, Limits, RelayMessage},
};

/// Reads and writes events. Formats that define only an event implement this and get whole messages
/// from the common envelope; see [`Codec`].
///
/// ```
/// use codecs::{Event, Format};
///
/// let (id, pubkey, sig) = ([1; 32], [2; 32], [3; 64]);
/// let event = Event { id, pubkey, created_at: 4, kind: 1, tags: vec![], content: "hi".into(), sig };
/// for format in Format::all() {
///     let codec = format.spec().library;
///     let mut bytes = Vec::new();
///     codec.encode_event(&event, &mut bytes)?;
///     assert_eq!(codec.decode_event(&bytes)?, event);
///     assert_eq!(codec.peek(&bytes)?.created_at, 4);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait EventCodec: Debug + Send + Sync + 'static {
    /// Appends the event to `out`. On error `out` is unchanged.
    ///
    /// # Errors
    /// [`EncodeError`] if the format cannot hold the event. It never wraps, truncates or alters
    /// one.
    fn encode_event(&self, event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError>;

    /// Reads one event that fills `bytes` exactly. Never panics, never allocates more than `bytes`
    /// can justify.
    ///
    /// # Errors
    /// [`DecodeError`] for anything the format's strict profile does not allow.
    fn decode_event<'a>(&self, bytes: &'a [u8]) -> Result<Event<'a>, DecodeError>;

    /// [`EventCodec::decode_event`] for a client that keeps ids and keys as bytes. Tuned code makes
    /// no text of them; a library's text is made first.
    ///
    /// # Errors
    /// See [`EventCodec::decode_event`].
    fn decode_keeping_bytes<'a>(&self, bytes: &'a [u8]) -> Result<ByteEvent<'a>, DecodeError> {
        self.decode_event(bytes).map(ByteEvent::from)
    }

    /// Reads the head of an event and, in a tuned implementation, as little else as the layout
    /// allows, so the rest may be malformed. Correct for every event that
    /// [`EventCodec::decode_event`] accepts.
    ///
    /// # Errors
    /// See [`EventCodec::decode_event`].
    fn peek(&self, bytes: &[u8]) -> Result<EventHead, DecodeError> {
        self.decode_event(bytes).map(|event| EventHead::from(&event))
    }
}

/// Reads and writes whole messages.
///
/// ```
/// use codecs::{ClientMessage, Format, Implementation};
///
/// let codec = Format::JSON.codec(Implementation::Library)?;
/// let message = codec.decode_client(br#"["CLOSE","feed"]"#)?;
/// assert_eq!(message, ClientMessage::Close { subscription: "feed".into() });
///
/// let mut bytes = Vec::new();
/// codec.encode_client(&message, &mut bytes)?;
/// assert_eq!(bytes, br#"["CLOSE","feed"]"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Codec: EventCodec {
    /// Appends a client's message to `out`.
    ///
    /// # Errors
    /// See [`EventCodec::encode_event`].
    fn encode_client(&self, message: &ClientMessage<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError>;

    /// Reads a client's message that fills `bytes` exactly.
    ///
    /// # Errors
    /// [`DecodeError::UnknownMessage`] for a verb or opcode outside the protocol, otherwise the
    /// fault.
    fn decode_client<'a>(&self, bytes: &'a [u8]) -> Result<ClientMessage<'a>, DecodeError> {
        self.decode_client_within(bytes, &Limits::MOST)
    }

    /// [`Codec::decode_client`] for a relay that has limits. A REQ, COUNT or NEG-OPEN beyond them
    /// is rejected at the first entry too many, before it is allocated. [`Limits::check`] looks for
    /// an id, a filter and unsupported fields.
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

    /// [`Codec::decode_relay`] for a client that keeps ids and keys as bytes, as
    /// [`EventCodec::decode_keeping_bytes`] reads them.
    ///
    /// # Errors
    /// See [`Codec::decode_client`].
    fn decode_relay_keeping_bytes<'a>(&self, bytes: &'a [u8]) -> Result<ByteMessage<'a>, DecodeError> {
        self.decode_relay(bytes).map(ByteMessage::from)
    }

    /// Appends the relay's EVENT message for an event that [`EventCodec::encode_event`] of this
    /// codec already wrote. An event is encoded once and spliced after each subscription id, as
    /// real relays do. The bytes equal [`Codec::encode_relay`]'s. Returns the number of bytes in
    /// front of the event.
    fn wrap_event(&self, subscription: &str, event: &[u8], out: &mut Vec<u8>) -> usize {
        let start = out.len();
        let behind = self.around_event(subscription, event, out);
        let prefix_bytes = out.len() - start;
        out.extend_from_slice(event);
        out.extend_from_slice(behind);
        prefix_bytes
    }

    /// Appends the bytes that [`Codec::wrap_event`] appends before the event, and returns those
    /// that follow it: for a message whose event comes from elsewhere.
    fn around_event(&self, subscription: &str, event: &[u8], out: &mut Vec<u8>) -> &'static [u8];

    /// Appends the relay's EVENTS message for events that [`EventCodec::encode_event`] of this
    /// codec already wrote: the counterpart of [`Codec::wrap_event`]. The bytes equal
    /// [`Codec::encode_relay`]'s.
    ///
    /// # Panics
    /// When `events` is empty: an empty EVENTS does not exist.
    fn wrap_events(&self, subscription: &str, events: &[&[u8]], out: &mut Vec<u8>);

    /// The event in a client's EVENT, unchecked. `None` for other messages, unusual spellings and
    /// formats without a form that is known to be canonical; see [`Format::canonical_event`].
    ///
    /// [`Format::canonical_event`]: crate::Format::canonical_event
    fn event_in<'a>(&self, _message: &'a [u8]) -> Option<&'a [u8]> {
        None
    }

    /// The subscription and the head of a relay's EVENT, for a client that may have the event
    /// already: the rest of the message is not looked at. `None` for other messages, unusual
    /// spellings and implementations that have no shorter way than to decode: then decode.
    fn peek_relay<'a>(&self, _bytes: &'a [u8]) -> Option<(Cow<'a, str>, EventHead)> {
        None
    }
}

/// Encodes a batch as [`Codec::encode_relay`] does in every format: each event alone, then the
/// splice.
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

/// Encodes a message with events as [`Codec::encode_relay`] does where splicing is all that a format
/// has: each event alone, then the splice. `others` encodes the messages without.
pub(crate) fn encode_spliced(
    codec: &(impl Codec + ?Sized),
    format: &'static str,
    message: &RelayMessage<'_>,
    out: &mut Vec<u8>,
    others: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    match message {
        RelayMessage::Event { subscription, event } => {
            let mut bytes = Vec::new();
            codec.encode_event(event, &mut bytes)?;
            codec.wrap_event(subscription, &bytes, out);
            Ok(())
        }
        RelayMessage::Events { subscription, events } => {
            encode_batch(codec, format, subscription, events, out)
        }
        _ => others(out),
    }
}

/// Says what [`Codec::wrap_events`] demands.
pub(crate) fn assert_batch(events: &[&[u8]]) {
    assert!(!events.is_empty(), "a batch holds at least one event");
}

/// Runs an encoder, and removes its output if it fails.
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
