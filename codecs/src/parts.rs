//! Messages as sequences of parts. The common envelope, CBOR and protobuf differ in how they write a
//! part, not in which parts a message has, nor in their order.

use std::borrow::Cow;

use crate::{
    envelope::check_filters,
    error::{DecodeError, EncodeError},
    model::{Bounds, ClientMessage, EoseHints, Event, Filter, Limits, RelayMessage, Request},
};

/// Verbs of a client's messages; the first has the number 1.
pub(crate) const CLIENT_VERBS: &[&str] =
    &["EVENT", "REQ", "CLOSE", "AUTH", "COUNT", "NEG-OPEN", "NEG-MSG", "NEG-CLOSE"];

/// Verbs of a relay's messages; the first has the number 1.
pub(crate) const RELAY_VERBS: &[&str] =
    &["EVENT", "OK", "EOSE", "CLOSED", "NOTICE", "AUTH", "COUNT", "NEG-MSG", "NEG-ERR", "EVENTS"];

/// HyperLogLog registers of COUNT (NIP-45).
pub(crate) type Registers = Box<[u8; 256]>;

/// Writes the parts of a message.
pub(crate) trait WriteParts {
    /// The format's name, for errors.
    fn format(&self) -> &'static str;
    /// The verb with this number, which so many parts follow.
    fn begin(&mut self, verb: u8, parts: usize);
    fn subscription(&mut self, subscription: &str) -> Result<(), EncodeError>;
    /// Text that ends the message.
    fn text(&mut self, text: &str);
    /// Bytes that end the message.
    fn bytes(&mut self, bytes: &[u8]);
    fn id(&mut self, id: &[u8; 32]);
    fn flag(&mut self, flag: bool);
    /// Nothing, if a format leaves out hints that say nothing.
    fn hints(&mut self, hints: EoseHints);
    /// The last two parts are left out if they say nothing, where a format can.
    fn count(&mut self, count: u64, approximate: bool, hll: Option<&[u8; 256]>);
    fn event(&mut self, event: &Event<'_>) -> Result<(), EncodeError>;
    fn events(&mut self, events: &[Event<'_>]) -> Result<(), EncodeError>;
    /// A filter that [`check_filters`] has seen.
    fn filter(&mut self, filter: &Filter) -> Result<(), EncodeError>;
    /// The rest of a request; [`check_filters`] has seen them.
    fn filters(&mut self, filters: &[Filter]) -> Result<(), EncodeError>;
}

pub(crate) fn write_client(message: &ClientMessage<'_>, to: &mut impl WriteParts) -> Result<(), EncodeError> {
    match message {
        ClientMessage::Event(event) => {
            to.begin(1, 1);
            to.event(event)?;
        }
        ClientMessage::Auth(event) => {
            to.begin(4, 1);
            to.event(event)?;
        }
        ClientMessage::Req { subscription, filters } => write_request(2, subscription, filters, to)?,
        ClientMessage::Count { subscription, filters } => write_request(5, subscription, filters, to)?,
        ClientMessage::Close { subscription } => {
            to.begin(3, 1);
            to.subscription(subscription)?;
        }
        ClientMessage::NegOpen { subscription, filter, message } => {
            check_filters(to.format(), std::slice::from_ref(filter))?;
            to.begin(6, 3);
            to.subscription(subscription)?;
            to.filter(filter)?;
            to.bytes(message);
        }
        ClientMessage::NegMsg { subscription, message } => {
            to.begin(7, 2);
            to.subscription(subscription)?;
            to.bytes(message);
        }
        ClientMessage::NegClose { subscription } => {
            to.begin(8, 1);
            to.subscription(subscription)?;
        }
    }
    Ok(())
}

fn write_request(
    verb: u8,
    subscription: &str,
    filters: &[Filter],
    to: &mut impl WriteParts,
) -> Result<(), EncodeError> {
    check_filters(to.format(), filters)?;
    to.begin(verb, 1 + filters.len());
    to.subscription(subscription)?;
    to.filters(filters)
}

pub(crate) fn write_relay(message: &RelayMessage<'_>, to: &mut impl WriteParts) -> Result<(), EncodeError> {
    match message {
        RelayMessage::Event { subscription, event } => {
            to.begin(1, 2);
            to.subscription(subscription)?;
            to.event(event)?;
        }
        RelayMessage::Ok { id, accepted, text } => {
            to.begin(2, 3);
            to.id(id);
            to.flag(*accepted);
            to.text(text);
        }
        RelayMessage::Eose { subscription, hints } => {
            to.begin(3, 1 + usize::from(hints.finish || hints.more));
            to.subscription(subscription)?;
            to.hints(*hints);
        }
        RelayMessage::Closed { subscription, text } => {
            to.begin(4, 2);
            to.subscription(subscription)?;
            to.text(text);
        }
        RelayMessage::Notice { text } => {
            to.begin(5, 1);
            to.text(text);
        }
        RelayMessage::Auth { challenge } => {
            to.begin(6, 1);
            to.text(challenge);
        }
        RelayMessage::Count { subscription, count, approximate, hll } => {
            to.begin(7, 2 + usize::from(*approximate || hll.is_some()) + usize::from(hll.is_some()));
            to.subscription(subscription)?;
            to.count(*count, *approximate, hll.as_deref());
        }
        RelayMessage::NegMsg { subscription, message } => {
            to.begin(8, 2);
            to.subscription(subscription)?;
            to.bytes(message);
        }
        RelayMessage::NegErr { subscription, text } => {
            to.begin(9, 2);
            to.subscription(subscription)?;
            to.text(text);
        }
        RelayMessage::Events { events, .. } if events.is_empty() => {
            let what = "EVENTS without an event";
            return Err(EncodeError::Unrepresentable { format: to.format(), what });
        }
        RelayMessage::Events { subscription, events } => {
            to.begin(10, 2);
            to.subscription(subscription)?;
            to.events(events)?;
        }
    }
    Ok(())
}

/// Reads the parts behind a message's verb; the counterpart of [`WriteParts`].
pub(crate) trait ReadParts<'a> {
    /// The error of a verb that the protocol does not have.
    fn unknown(&self) -> DecodeError;
    fn subscription(&mut self) -> Result<Cow<'a, str>, DecodeError>;
    fn text(&mut self, what: &'static str) -> Result<Cow<'a, str>, DecodeError>;
    fn bytes(&mut self) -> Result<Cow<'a, [u8]>, DecodeError>;
    fn id(&mut self) -> Result<[u8; 32], DecodeError>;
    fn flag(&mut self, what: &'static str) -> Result<bool, DecodeError>;
    fn hints(&mut self) -> Result<EoseHints, DecodeError>;
    fn count(&mut self) -> Result<(u64, bool, Option<Registers>), DecodeError>;
    fn event(&mut self) -> Result<Event<'a>, DecodeError>;
    fn events(&mut self) -> Result<Vec<Event<'a>>, DecodeError>;
    fn filter(&mut self, bounds: &Bounds<'_>) -> Result<Filter, DecodeError>;
    fn filters(&mut self, bounds: &Bounds<'_>) -> Result<Vec<Filter>, DecodeError>;
}

#[inline]
pub(crate) fn read_client<'a>(
    verb: u8,
    from: &mut impl ReadParts<'a>,
    limits: &Limits,
) -> Result<ClientMessage<'a>, DecodeError> {
    Ok(match verb {
        1 => ClientMessage::Event(Cow::Owned(from.event()?)),
        2 => {
            let (subscription, filters) = read_request(from, limits, Request::Req)?;
            ClientMessage::Req { subscription, filters }
        }
        3 => ClientMessage::Close { subscription: from.subscription()? },
        4 => ClientMessage::Auth(Cow::Owned(from.event()?)),
        5 => {
            let (subscription, filters) = read_request(from, limits, Request::Count)?;
            ClientMessage::Count { subscription, filters }
        }
        6 => {
            let subscription = from.subscription()?;
            let filter = from.filter(&Bounds::new(limits, Request::NegOpen, &subscription)?)?;
            ClientMessage::NegOpen { subscription, filter, message: from.bytes()? }
        }
        7 => ClientMessage::NegMsg { subscription: from.subscription()?, message: from.bytes()? },
        8 => ClientMessage::NegClose { subscription: from.subscription()? },
        _ => return Err(from.unknown()),
    })
}

fn read_request<'a>(
    from: &mut impl ReadParts<'a>,
    limits: &Limits,
    request: Request,
) -> Result<(Cow<'a, str>, Vec<Filter>), DecodeError> {
    let subscription = from.subscription()?;
    let filters = from.filters(&Bounds::new(limits, request, &subscription)?)?;
    Ok((subscription, filters))
}

#[inline]
pub(crate) fn read_relay<'a>(
    verb: u8,
    from: &mut impl ReadParts<'a>,
) -> Result<RelayMessage<'a>, DecodeError> {
    Ok(match verb {
        1 => RelayMessage::Event { subscription: from.subscription()?, event: Cow::Owned(from.event()?) },
        2 => RelayMessage::Ok {
            id: from.id()?,
            accepted: from.flag("OK's verdict")?,
            text: from.text("OK's text")?,
        },
        3 => RelayMessage::Eose { subscription: from.subscription()?, hints: from.hints()? },
        4 => RelayMessage::Closed { subscription: from.subscription()?, text: from.text("CLOSED's text")? },
        5 => RelayMessage::Notice { text: from.text("NOTICE's text")? },
        6 => RelayMessage::Auth { challenge: from.text("challenge")? },
        7 => {
            let subscription = from.subscription()?;
            let (count, approximate, hll) = from.count()?;
            RelayMessage::Count { subscription, count, approximate, hll }
        }
        8 => RelayMessage::NegMsg { subscription: from.subscription()?, message: from.bytes()? },
        9 => RelayMessage::NegErr { subscription: from.subscription()?, text: from.text("NEG-ERR's text")? },
        10 => RelayMessage::Events { subscription: from.subscription()?, events: from.events()? },
        _ => return Err(from.unknown()),
    })
}
