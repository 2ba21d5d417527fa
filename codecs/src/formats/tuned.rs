//! Code shared by tuned formats with messages of their own. Tuned code reads and writes events and
//! the messages around them in the usual form; the library reads every other form.
//!
//! So both implementations accept the same bytes and give the same reasons. Bytes in an unusual or
//! invalid form are read twice. REQ, EOSE and the other messages without an event are left to the
//! library, and so is OK unless a format writes it; the events of a batch are read like any other.

use std::{borrow::Cow, fmt};

use crate::{
    ByteEvent, ByteMessage, ClientMessage, Codec, DecodeError, EncodeError, Event, EventCodec, EventHead,
    Limits, RelayMessage, TagValue,
    codec::{all_or_nothing, encode_batch},
    text::Value,
};

/// A format with tuned code.
pub(super) trait TunedFormat: fmt::Debug + Send + Sync + 'static {
    /// The library's codec, which reads unusual forms and handles the other messages.
    const LIBRARY: &'static dyn Codec;

    /// [`EventCodec::encode_event`].
    fn write_event(event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError>;

    /// [`EventCodec::decode_event`] or [`EventCodec::decode_keeping_bytes`], of the usual form.
    fn read<'a, V: Value<'a>>(bytes: &'a [u8]) -> Result<V::Event, DecodeError>;

    /// The event with text.
    fn read_event(bytes: &[u8]) -> Result<Event<'_>, DecodeError> {
        Self::read::<Cow<'_, str>>(bytes)
    }

    /// [`EventCodec::peek`], of the usual form.
    fn read_head(bytes: &[u8]) -> Result<EventHead, DecodeError>;

    /// Writes a client's message with an event.
    fn write_client(verb: Verb, event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError>;

    /// Finds the event in a client's message of the usual form.
    fn split_client(bytes: &[u8]) -> Option<(Verb, &[u8])>;

    /// Writes a relay's EVENT.
    fn write_relay(subscription: &str, event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError>;

    /// Finds subscription and event in a relay's EVENT of the usual form.
    fn split_relay(bytes: &[u8]) -> Option<(Cow<'_, str>, &[u8])>;

    /// Writes OK, which a relay sends for every published event.
    fn write_ok(id: &[u8; 32], accepted: bool, text: &str, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let text = Cow::Borrowed(text);
        Self::LIBRARY.encode_relay(&RelayMessage::Ok { id: *id, accepted, text }, out)
    }

    /// [`Codec::around_event`].
    fn around(subscription: &str, event: &[u8], out: &mut Vec<u8>) -> &'static [u8] {
        Self::LIBRARY.around_event(subscription, event, out)
    }

    /// Finds the subscription in a relay's EVENTS of the usual form, and calls `each` with its
    /// events one by one, at least one. Returns `None` if `each` stops, or if the form is unusual.
    fn split_batch<'a>(bytes: &'a [u8], each: impl FnMut(&'a [u8]) -> Option<()>) -> Option<Cow<'a, str>>;

    /// [`Codec::wrap_events`].
    fn wrap_batch(subscription: &str, events: &[&[u8]], out: &mut Vec<u8>) {
        Self::LIBRARY.wrap_events(subscription, events, out);
    }
}

/// The client's messages that hold an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Event,
    Auth,
}

/// The codec of a tuned format.
#[derive(Debug)]
pub(super) struct Tuned<T>(pub(super) T);

impl<T: TunedFormat> EventCodec for Tuned<T> {
    fn encode_event(&self, event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        all_or_nothing(out, |out| T::write_event(event, out))
    }

    fn decode_event<'a>(&self, bytes: &'a [u8]) -> Result<Event<'a>, DecodeError> {
        match T::read_event(bytes) {
            Ok(event) => Ok(event),
            Err(_) => T::LIBRARY.decode_event(bytes),
        }
    }

    fn decode_keeping_bytes<'a>(&self, bytes: &'a [u8]) -> Result<ByteEvent<'a>, DecodeError> {
        match T::read::<TagValue<'a>>(bytes) {
            Ok(event) => Ok(event),
            Err(_) => T::LIBRARY.decode_keeping_bytes(bytes),
        }
    }

    fn peek(&self, bytes: &[u8]) -> Result<EventHead, DecodeError> {
        match T::read_head(bytes) {
            Ok(head) => Ok(head),
            Err(_) => T::LIBRARY.peek(bytes),
        }
    }
}

impl<T: TunedFormat> Codec for Tuned<T> {
    fn encode_client(&self, message: &ClientMessage<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        all_or_nothing(out, |out| match message {
            ClientMessage::Event(event) => T::write_client(Verb::Event, event, out),
            ClientMessage::Auth(event) => T::write_client(Verb::Auth, event, out),
            _ => T::LIBRARY.encode_client(message, out),
        })
    }

    fn decode_client_within<'a>(
        &self,
        bytes: &'a [u8],
        limits: &Limits,
    ) -> Result<ClientMessage<'a>, DecodeError> {
        if let Some((verb, event)) = T::split_client(bytes)
            && let Ok(event) = T::read_event(event)
        {
            let event = Cow::Owned(event);
            return Ok(match verb {
                Verb::Event => ClientMessage::Event(event),
                Verb::Auth => ClientMessage::Auth(event),
            });
        }
        T::LIBRARY.decode_client_within(bytes, limits)
    }

    fn encode_relay(&self, message: &RelayMessage<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        all_or_nothing(out, |out| match message {
            RelayMessage::Event { subscription, event } => T::write_relay(subscription, event, out),
            RelayMessage::Ok { id, accepted, text } => T::write_ok(id, *accepted, text, out),
            RelayMessage::Events { subscription, events } if !events.is_empty() => {
                encode_batch(self, "a batch", subscription, events, out)
            }
            _ => T::LIBRARY.encode_relay(message, out),
        })
    }

    fn decode_relay<'a>(&self, bytes: &'a [u8]) -> Result<RelayMessage<'a>, DecodeError> {
        if let Some((subscription, event)) = T::split_relay(bytes)
            && let Ok(event) = T::read_event(event)
        {
            return Ok(RelayMessage::Event { subscription, event: Cow::Owned(event) });
        }
        let mut events = Vec::new();
        if let Some(subscription) =
            T::split_batch(bytes, |event| T::read_event(event).ok().map(|event| events.push(event)))
        {
            return Ok(RelayMessage::Events { subscription, events });
        }
        T::LIBRARY.decode_relay(bytes)
    }

    // Not one function with `decode_relay`: on its way through an enum the event would be copied.
    fn decode_relay_keeping_bytes<'a>(&self, bytes: &'a [u8]) -> Result<ByteMessage<'a>, DecodeError> {
        if let Some((subscription, event)) = T::split_relay(bytes)
            && let Ok(event) = T::read::<TagValue<'a>>(event)
        {
            return Ok(ByteMessage::Event { subscription, event });
        }
        let mut events = Vec::new();
        let read = |event: &'a [u8]| T::read::<TagValue<'a>>(event).ok().map(|event| events.push(event));
        if let Some(subscription) = T::split_batch(bytes, read) {
            return Ok(ByteMessage::Events { subscription, events });
        }
        T::LIBRARY.decode_relay_keeping_bytes(bytes)
    }

    fn around_event(&self, subscription: &str, event: &[u8], out: &mut Vec<u8>) -> &'static [u8] {
        T::around(subscription, event, out)
    }

    fn wrap_events(&self, subscription: &str, events: &[&[u8]], out: &mut Vec<u8>) {
        T::wrap_batch(subscription, events, out);
    }

    fn event_in<'a>(&self, message: &'a [u8]) -> Option<&'a [u8]> {
        T::split_client(message).and_then(|(verb, event)| (verb == Verb::Event).then_some(event))
    }

    fn peek_relay<'a>(&self, bytes: &'a [u8]) -> Option<(Cow<'a, str>, EventHead)> {
        let (subscription, event) = T::split_relay(bytes)?;
        T::read_head(event).ok().map(|head| (subscription, head))
    }
}
