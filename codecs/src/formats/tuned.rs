//! What tuned formats with messages of their own share: hands write events and the messages around them, and one
//! walk reads them; whatever it does not take is the library's to judge.
//!
//! So both implementations accept the same bytes and give the same reasons, and bytes in an unusual or invalid form
//! cost the library's time besides a walk. REQ, OK and the other messages without an event are the library's
//! altogether; the events of a batch are read like any other.

use std::{borrow::Cow, fmt};

use crate::{
    ClientMessage, Codec, DecodeError, EncodeError, Event, EventCodec, EventHead, EventView, FlatEvent,
    Limits, RelayMessage,
    codec::{all_or_nothing, encode_batch},
    walk::{self, Walk},
};

/// A format by hand.
pub(super) trait Tune: Walk + fmt::Debug + Send + Sync + 'static {
    /// Who judges what the walk does not take, and handles the other messages.
    const LIBRARY: &'static dyn Codec;

    /// [`EventCodec::encode_event`].
    fn write_event(event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError>;

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

    /// [`Codec::wrap_event`].
    fn wrap(subscription: &str, event: &[u8], out: &mut Vec<u8>) {
        Self::LIBRARY.wrap_event(subscription, event, out);
    }

    /// Finds the subscription in a relay's EVENTS of the usual form, and hands its events to `each` one by one, at least
    /// one, until there are no more or `each` wants none: then, as where the form is unusual, the answer is `None`.
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

/// The codec of a format by hand.
#[derive(Debug)]
pub(super) struct Tuned<T>(pub(super) T);

impl<T: Tune> EventCodec for Tuned<T> {
    fn encode_event(&self, event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        all_or_nothing(out, |out| T::write_event(event, out))
    }

    fn decode_event<'a>(&self, bytes: &'a [u8]) -> Result<Event<'a>, DecodeError> {
        match walk::decode::<T>(bytes) {
            Ok(event) => Ok(event),
            Err(_) => T::LIBRARY.decode_event(bytes),
        }
    }

    fn owned_event(&self, bytes: &[u8]) -> Result<Event<'static>, DecodeError> {
        match walk::owned::<T>(bytes) {
            Ok(event) => Ok(event),
            Err(_) => T::LIBRARY.owned_event(bytes),
        }
    }

    fn view_event<'a>(&self, bytes: &'a [u8]) -> Result<EventView<'a>, DecodeError> {
        match walk::view::<T>(bytes) {
            Ok(event) => Ok(event),
            Err(_) => T::LIBRARY.view_event(bytes),
        }
    }

    fn flat_event(&self, bytes: &[u8]) -> Result<FlatEvent, DecodeError> {
        match walk::flat::<T>(bytes) {
            Ok(event) => Ok(event),
            Err(_) => T::LIBRARY.flat_event(bytes),
        }
    }

    fn peek(&self, bytes: &[u8]) -> Result<EventHead, DecodeError> {
        match T::read_head(bytes) {
            Ok(head) => Ok(head),
            Err(_) => T::LIBRARY.peek(bytes),
        }
    }
}

impl<T: Tune> Codec for Tuned<T> {
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
            && let Ok(event) = walk::decode::<T>(event)
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
            RelayMessage::Events { subscription, events } if !events.is_empty() => {
                encode_batch(self, "a batch", subscription, events, out)
            }
            _ => T::LIBRARY.encode_relay(message, out),
        })
    }

    fn decode_relay<'a>(&self, bytes: &'a [u8]) -> Result<RelayMessage<'a>, DecodeError> {
        if let Some((subscription, event)) = T::split_relay(bytes)
            && let Ok(event) = walk::decode::<T>(event)
        {
            return Ok(RelayMessage::Event { subscription, event: Cow::Owned(event) });
        }
        let mut events = Vec::new();
        if let Some(subscription) =
            T::split_batch(bytes, |event| walk::decode::<T>(event).ok().map(|event| events.push(event)))
        {
            return Ok(RelayMessage::Events { subscription, events });
        }
        T::LIBRARY.decode_relay(bytes)
    }

    fn wrap_event(&self, subscription: &str, event: &[u8], out: &mut Vec<u8>) {
        T::wrap(subscription, event, out);
    }

    fn wrap_events(&self, subscription: &str, events: &[&[u8]], out: &mut Vec<u8>) {
        T::wrap_batch(subscription, events, out);
    }

    fn peek_relay<'a>(&self, bytes: &'a [u8]) -> Option<(Cow<'a, str>, EventHead)> {
        let (subscription, event) = T::split_relay(bytes)?;
        T::read_head(event).ok().map(|head| (subscription, head))
    }
}
