//! The messages of NIP-01, NIP-42 (AUTH), NIP-45 (COUNT), NIP-67 (EOSE hints) and NIP-77 (NEG-*),
//! and EVENTS, which peers must have agreed on.

use std::borrow::Cow;

use super::{Event, Filter};

/// A message from client to relay.
///
/// ```
/// use codecs::{ClientMessage, Filter, Format};
///
/// let filters = vec![Filter { limit: Some(10), ..Filter::default() }];
/// let request = ClientMessage::Req { subscription: "feed".into(), filters };
/// let mut bytes = Vec::new();
/// Format::JSON.spec().library.encode_client(&request, &mut bytes)?;
/// assert_eq!(bytes, br#"["REQ","feed",{"limit":10}]"#);
/// # Ok::<(), codecs::EncodeError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientMessage<'a> {
    /// Publish an event.
    Event(Cow<'a, Event<'a>>),
    /// Open or replace a subscription.
    Req {
        /// Chosen by the client, unique within its connection.
        subscription: Cow<'a, str>,
        /// OR-ed.
        filters: Vec<Filter>,
    },
    /// End a subscription.
    Close {
        /// The one that ends.
        subscription: Cow<'a, str>,
    },
    /// Answer a challenge with a kind 22242 event (NIP-42).
    Auth(Cow<'a, Event<'a>>),
    /// Ask how many stored events match (NIP-45).
    Count {
        /// Names the answer.
        subscription: Cow<'a, str>,
        /// OR-ed.
        filters: Vec<Filter>,
    },
    /// Begin to compare which events both sides have (NIP-77).
    NegOpen {
        /// Names the reconciliation; not the name of a subscription.
        subscription: Cow<'a, str>,
        /// Which events take part.
        filter: Filter,
        /// The first message of the negentropy protocol: bytes here, hex in JSON.
        message: Cow<'a, [u8]>,
    },
    /// The next round of a reconciliation (NIP-77).
    NegMsg {
        /// Which reconciliation.
        subscription: Cow<'a, str>,
        /// A message of the negentropy protocol.
        message: Cow<'a, [u8]>,
    },
    /// End a reconciliation (NIP-77).
    NegClose {
        /// Which one.
        subscription: Cow<'a, str>,
    },
}

impl ClientMessage<'_> {
    /// Copies whatever is still borrowed, so that the message outlives its frame.
    pub fn into_owned<'o>(self) -> ClientMessage<'o> {
        match self {
            ClientMessage::Event(event) => ClientMessage::Event(owned_event(event)),
            ClientMessage::Auth(event) => ClientMessage::Auth(owned_event(event)),
            ClientMessage::Req { subscription, filters } => {
                ClientMessage::Req { subscription: owned(subscription), filters }
            }
            ClientMessage::Count { subscription, filters } => {
                ClientMessage::Count { subscription: owned(subscription), filters }
            }
            ClientMessage::Close { subscription } => {
                ClientMessage::Close { subscription: owned(subscription) }
            }
            ClientMessage::NegOpen { subscription, filter, message } => {
                let message = Cow::Owned(message.into_owned());
                ClientMessage::NegOpen { subscription: owned(subscription), filter, message }
            }
            ClientMessage::NegMsg { subscription, message } => {
                let message = Cow::Owned(message.into_owned());
                ClientMessage::NegMsg { subscription: owned(subscription), message }
            }
            ClientMessage::NegClose { subscription } => {
                ClientMessage::NegClose { subscription: owned(subscription) }
            }
        }
    }
}

/// A message from relay to client.
///
/// ```
/// use codecs::{EoseHints, Format, RelayMessage};
///
/// let bytes = br#"["EOSE","feed",["finish"]]"#;
/// let message = Format::JSON.spec().library.decode_relay(bytes)?;
/// let hints = EoseHints { finish: true, more: false };
/// assert_eq!(message, RelayMessage::Eose { subscription: "feed".into(), hints });
/// # Ok::<(), codecs::DecodeError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RelayMessage<'a> {
    /// An event that matches a subscription.
    Event {
        /// The subscription it matches.
        subscription: Cow<'a, str>,
        /// The event as published.
        event: Cow<'a, Event<'a>>,
    },
    /// The fate of a published event.
    Ok {
        /// Which event.
        id: [u8; 32],
        /// Whether the relay has it now.
        accepted: bool,
        /// Empty, or a machine-readable prefix and a reason.
        text: Cow<'a, str>,
    },
    /// End of stored events; what follows is live.
    Eose {
        /// Which subscription.
        subscription: Cow<'a, str>,
        /// NIP-67.
        hints: EoseHints,
    },
    /// The relay ended or refused a subscription.
    Closed {
        /// Which subscription.
        subscription: Cow<'a, str>,
        /// A machine-readable prefix and a reason.
        text: Cow<'a, str>,
    },
    /// Text for people.
    Notice {
        /// The text of the message.
        text: Cow<'a, str>,
    },
    /// A challenge to sign (NIP-42).
    Auth {
        /// The random text to be signed.
        challenge: Cow<'a, str>,
    },
    /// The answer to COUNT (NIP-45).
    Count {
        /// Which request.
        subscription: Cow<'a, str>,
        /// Matching events.
        count: u64,
        /// Whether `count` is an estimate.
        approximate: bool,
        /// HyperLogLog registers.
        hll: Option<Box<[u8; 256]>>,
    },
    /// The relay's next round of a reconciliation (NIP-77).
    NegMsg {
        /// Which reconciliation.
        subscription: Cow<'a, str>,
        /// A message of the negentropy protocol.
        message: Cow<'a, [u8]>,
    },
    /// The relay ended or refused a reconciliation (NIP-77).
    NegErr {
        /// Which one.
        subscription: Cow<'a, str>,
        /// A machine-readable prefix and a reason.
        text: Cow<'a, str>,
    },
    /// Several events that match one subscription, in EVENT's order. A relay sends it only if the
    /// client requested batches when it connected.
    Events {
        /// The subscription they match.
        subscription: Cow<'a, str>,
        /// At least one: no format writes or reads an empty batch.
        events: Vec<Event<'a>>,
    },
}

impl RelayMessage<'_> {
    /// Copies whatever is still borrowed, so that the message outlives its frame.
    pub fn into_owned<'o>(self) -> RelayMessage<'o> {
        match self {
            RelayMessage::Event { subscription, event } => {
                RelayMessage::Event { subscription: owned(subscription), event: owned_event(event) }
            }
            RelayMessage::Ok { id, accepted, text } => RelayMessage::Ok { id, accepted, text: owned(text) },
            RelayMessage::Eose { subscription, hints } => {
                RelayMessage::Eose { subscription: owned(subscription), hints }
            }
            RelayMessage::Closed { subscription, text } => {
                RelayMessage::Closed { subscription: owned(subscription), text: owned(text) }
            }
            RelayMessage::Notice { text } => RelayMessage::Notice { text: owned(text) },
            RelayMessage::Auth { challenge } => RelayMessage::Auth { challenge: owned(challenge) },
            RelayMessage::Count { subscription, count, approximate, hll } => {
                RelayMessage::Count { subscription: owned(subscription), count, approximate, hll }
            }
            RelayMessage::NegMsg { subscription, message } => {
                let message = Cow::Owned(message.into_owned());
                RelayMessage::NegMsg { subscription: owned(subscription), message }
            }
            RelayMessage::NegErr { subscription, text } => {
                RelayMessage::NegErr { subscription: owned(subscription), text: owned(text) }
            }
            RelayMessage::Events { subscription, events } => RelayMessage::Events {
                subscription: owned(subscription),
                events: events.into_iter().map(Event::into_owned).collect(),
            },
        }
    }
}

fn owned<'o>(text: Cow<'_, str>) -> Cow<'o, str> {
    Cow::Owned(text.into_owned())
}

fn owned_event<'o>(event: Cow<'_, Event<'_>>) -> Cow<'o, Event<'o>> {
    Cow::Owned(event.into_owned().into_owned())
}

/// NIP-67: whether the stored events were all (`finish`) or a page (`more`). Neither is the NIP-01
/// message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EoseHints {
    /// Nothing older exists.
    pub finish: bool,
    /// Older events exist.
    pub more: bool,
}
