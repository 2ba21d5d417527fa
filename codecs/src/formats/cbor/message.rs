//! Whole messages: an array that starts with a verb, as word or number.

use std::{borrow::Cow, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, IgnoredAny, SeqAccess, Visitor},
    ser::{self, SerializeSeq},
};

use super::{
    Bytes, Dialect, EventCbor, Fixed, OwnedEvent,
    filter::{FilterCbor, OwnedFilter},
    item::{Blob, Each, List, Name, ReadName},
};
use crate::{ClientMessage, DecodeError, EoseHints, Event, Filter, RelayMessage};

pub(super) mod client {
    use super::Name;
    pub(super) const EVENT: Name = Name(1, "EVENT", "[EVENT, event]");
    pub(in crate::formats::cbor) const REQ: Name = Name(2, "REQ", "[REQ, subscription, filter…]");
    pub(super) const CLOSE: Name = Name(3, "CLOSE", "[CLOSE, subscription]");
    pub(super) const AUTH: Name = Name(4, "AUTH", "[AUTH, event]");
    pub(in crate::formats::cbor) const COUNT: Name = Name(5, "COUNT", "[COUNT, subscription, filter…]");
    pub(in crate::formats::cbor) const NEG_OPEN: Name =
        Name(6, "NEG-OPEN", "[NEG-OPEN, subscription, filter, bytes]");
    pub(super) const NEG_MSG: Name = Name(7, "NEG-MSG", "[NEG-MSG, subscription, bytes]");
    pub(super) const NEG_CLOSE: Name = Name(8, "NEG-CLOSE", "[NEG-CLOSE, subscription]");
}

pub(super) mod relay {
    use super::Name;
    pub(in crate::formats::cbor) const EVENT: Name = Name(1, "EVENT", "[EVENT, subscription, event]");
    pub(super) const OK: Name = Name(2, "OK", "[OK, id, accepted, text]");
    pub(super) const EOSE: Name = Name(3, "EOSE", "[EOSE, subscription] or [EOSE, subscription, hints]");
    pub(super) const CLOSED: Name = Name(4, "CLOSED", "[CLOSED, subscription, text]");
    pub(super) const NOTICE: Name = Name(5, "NOTICE", "[NOTICE, text]");
    pub(super) const AUTH: Name = Name(6, "AUTH", "[AUTH, challenge]");
    pub(super) const COUNT: Name =
        Name(7, "COUNT", "[COUNT, subscription, count], then approximate, then hll");
    pub(super) const NEG_MSG: Name = Name(8, "NEG-MSG", "[NEG-MSG, subscription, bytes]");
    pub(super) const NEG_ERR: Name = Name(9, "NEG-ERR", "[NEG-ERR, subscription, text]");
    pub(in crate::formats::cbor) const EVENTS: Name =
        Name(10, "EVENTS", "[EVENTS, subscription, [event, …]]");
}

// --- writing ---

pub(super) struct ClientCbor<'m, 'a, D>(&'m ClientMessage<'a>, PhantomData<D>);

impl<'m, 'a, D> ClientCbor<'m, 'a, D> {
    pub(super) fn new(message: &'m ClientMessage<'a>) -> Self {
        ClientCbor(message, PhantomData)
    }
}

impl<D: Dialect> Serialize for ClientCbor<'_, '_, D> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let verb = |name: Name| name.written(D::SPELLED);
        match self.0 {
            ClientMessage::Event(event) => {
                (verb(client::EVENT), EventCbor::<D>::new(event)).serialize(serializer)
            }
            ClientMessage::Auth(event) => {
                (verb(client::AUTH), EventCbor::<D>::new(event)).serialize(serializer)
            }
            ClientMessage::Close { subscription } => {
                (verb(client::CLOSE), subscription).serialize(serializer)
            }
            ClientMessage::Req { subscription, filters } => {
                request::<D, S>(client::REQ, subscription, filters, serializer)
            }
            ClientMessage::Count { subscription, filters } => {
                request::<D, S>(client::COUNT, subscription, filters, serializer)
            }
            ClientMessage::NegOpen { subscription, filter, message } => {
                (verb(client::NEG_OPEN), subscription, FilterCbor::<D>::new(filter), Bytes(message))
                    .serialize(serializer)
            }
            ClientMessage::NegMsg { subscription, message } => {
                (verb(client::NEG_MSG), subscription, Bytes(message)).serialize(serializer)
            }
            ClientMessage::NegClose { subscription } => {
                (verb(client::NEG_CLOSE), subscription).serialize(serializer)
            }
        }
    }
}

fn request<D: Dialect, S: Serializer>(
    verb: Name,
    subscription: &str,
    filters: &[Filter],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    Filter::check_number(filters).map_err(serde::ser::Error::custom)?;
    let mut array = serializer.serialize_seq(Some(2 + filters.len()))?;
    array.serialize_element(&verb.written(D::SPELLED))?;
    array.serialize_element(subscription)?;
    for filter in filters {
        array.serialize_element(&FilterCbor::<D>::new(filter))?;
    }
    array.end()
}

pub(super) struct RelayCbor<'m, 'a, D>(&'m RelayMessage<'a>, PhantomData<D>);

impl<'m, 'a, D> RelayCbor<'m, 'a, D> {
    pub(super) fn new(message: &'m RelayMessage<'a>) -> Self {
        RelayCbor(message, PhantomData)
    }
}

impl<D: Dialect> Serialize for RelayCbor<'_, '_, D> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let verb = |name: Name| name.written(D::SPELLED);
        match self.0 {
            RelayMessage::Event { subscription, event } => {
                (verb(relay::EVENT), subscription, EventCbor::<D>::new(event)).serialize(serializer)
            }
            RelayMessage::Ok { id, accepted, text } => {
                (verb(relay::OK), Bytes(id), accepted, text).serialize(serializer)
            }
            RelayMessage::Eose { subscription, hints } => {
                let verb = verb(relay::EOSE);
                match (hints.finish, hints.more) {
                    (false, false) => (verb, subscription).serialize(serializer),
                    (true, false) => (verb, subscription, ["finish"]).serialize(serializer),
                    (false, true) => (verb, subscription, ["more"]).serialize(serializer),
                    (true, true) => (verb, subscription, ["finish", "more"]).serialize(serializer),
                }
            }
            RelayMessage::Closed { subscription, text } => {
                (verb(relay::CLOSED), subscription, text).serialize(serializer)
            }
            RelayMessage::Notice { text } => (verb(relay::NOTICE), text).serialize(serializer),
            RelayMessage::Auth { challenge } => (verb(relay::AUTH), challenge).serialize(serializer),
            RelayMessage::Count { subscription, count, approximate, hll } => {
                let verb = verb(relay::COUNT);
                match (approximate, hll) {
                    (_, Some(hll)) => {
                        (verb, subscription, count, approximate, Bytes(&hll[..])).serialize(serializer)
                    }
                    (true, None) => (verb, subscription, count, true).serialize(serializer),
                    (false, None) => (verb, subscription, count).serialize(serializer),
                }
            }
            RelayMessage::NegMsg { subscription, message } => {
                (verb(relay::NEG_MSG), subscription, Bytes(message)).serialize(serializer)
            }
            RelayMessage::NegErr { subscription, text } => {
                (verb(relay::NEG_ERR), subscription, text).serialize(serializer)
            }
            RelayMessage::Events { events, .. } if events.is_empty() => {
                Err(ser::Error::custom("EVENTS without an event"))
            }
            RelayMessage::Events { subscription, events } => {
                (verb(relay::EVENTS), subscription, Each(events, EventCbor::<D>::new)).serialize(serializer)
            }
        }
    }
}

// --- reading ---

/// A message, or the error for a verb that the protocol does not have.
pub(super) struct ReadMessage<D, M>(pub(super) Result<M, DecodeError>, PhantomData<D>);

/// The messages of one direction.
pub(super) trait Direction: Sized {
    const VERBS: &'static [Name];

    /// Reads the elements after the verb; `None` if the protocol has no such verb.
    fn read<'de, D: Dialect, A: SeqAccess<'de>>(rest: &mut Elements<'_, A>)
    -> Result<Option<Self>, A::Error>;
}

impl<'de, D: Dialect, M: Direction> Deserialize<'de> for ReadMessage<D, M> {
    fn deserialize<R: Deserializer<'de>>(deserializer: R) -> Result<Self, R::Error> {
        deserializer.deserialize_any(MessageVisitor::<D, M>(PhantomData))
    }
}

struct MessageVisitor<D, M>(PhantomData<(D, M)>);

impl<'de, D: Dialect, M: Direction> Visitor<'de> for MessageVisitor<D, M> {
    type Value = ReadMessage<D, M>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array that starts with a verb")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Self::Value, A::Error> {
        let Some(verb) = array.next_element_seed(ReadName::<D>::with_known(M::VERBS))? else {
            return Err(de::Error::custom("expected a verb, found an empty array"));
        };
        let mut rest = Elements { array, verb: &verb, verbs: M::VERBS };
        let message = M::read::<D, A>(&mut rest)?;
        let more = rest.array.next_element::<IgnoredAny>()?.is_some();
        match message {
            Some(_) if more => {
                Err(de::Error::custom(format!("expected {} and nothing after it", rest.expected())))
            }
            Some(message) => Ok(ReadMessage(Ok(message), PhantomData)),
            None => {
                while rest.array.next_element::<IgnoredAny>()?.is_some() {}
                let verb: String = verb.chars().take(32).collect();
                let verb = if D::SPELLED { verb } else { format!("opcode {verb}") };
                Ok(ReadMessage(Err(DecodeError::UnknownMessage(verb)), PhantomData))
            }
        }
    }
}

/// The elements of a message after its verb.
pub(super) struct Elements<'v, A> {
    array: A,
    verb: &'v str,
    verbs: &'static [Name],
}

impl<'de, A: SeqAccess<'de>> Elements<'_, A> {
    fn expected(&self) -> &'static str {
        self.verbs.iter().find(|name| name.1 == self.verb).map_or("", |name| name.2)
    }

    fn next<T: Deserialize<'de>>(&mut self) -> Result<T, A::Error> {
        self.array.next_element()?.ok_or_else(|| de::Error::custom(format!("expected {}", self.expected())))
    }

    fn text(&mut self) -> Result<Cow<'static, str>, A::Error> {
        self.next::<String>().map(Cow::Owned)
    }

    fn event<'m, D: Dialect>(&mut self) -> Result<Cow<'m, Event<'m>>, A::Error> {
        self.next::<OwnedEvent<D>>().map(|event| Cow::Owned(event.0))
    }

    fn bytes<'m>(&mut self) -> Result<Cow<'m, [u8]>, A::Error> {
        self.next::<Blob>().map(|bytes| Cow::Owned(bytes.0))
    }

    fn filters<D: Dialect>(&mut self) -> Result<Vec<Filter>, A::Error> {
        let mut filters = Vec::new();
        while let Some(filter) = self.array.next_element::<OwnedFilter<D>>()? {
            filters.push(filter.into());
        }
        Ok(filters)
    }
}

impl Direction for ClientMessage<'_> {
    const VERBS: &'static [Name] = &[
        client::EVENT,
        client::REQ,
        client::CLOSE,
        client::AUTH,
        client::COUNT,
        client::NEG_OPEN,
        client::NEG_MSG,
        client::NEG_CLOSE,
    ];

    fn read<'de, D: Dialect, A: SeqAccess<'de>>(
        rest: &mut Elements<'_, A>,
    ) -> Result<Option<Self>, A::Error> {
        Ok(Some(match rest.verb {
            "EVENT" => ClientMessage::Event(rest.event::<D>()?),
            "AUTH" => ClientMessage::Auth(rest.event::<D>()?),
            "REQ" => ClientMessage::Req { subscription: rest.text()?, filters: rest.filters::<D>()? },
            "COUNT" => ClientMessage::Count { subscription: rest.text()?, filters: rest.filters::<D>()? },
            "CLOSE" => ClientMessage::Close { subscription: rest.text()? },
            "NEG-OPEN" => ClientMessage::NegOpen {
                subscription: rest.text()?,
                filter: rest.next::<OwnedFilter<D>>()?.into(),
                message: rest.bytes()?,
            },
            "NEG-MSG" => ClientMessage::NegMsg { subscription: rest.text()?, message: rest.bytes()? },
            "NEG-CLOSE" => ClientMessage::NegClose { subscription: rest.text()? },
            _ => return Ok(None),
        }))
    }
}

impl Direction for RelayMessage<'_> {
    const VERBS: &'static [Name] = &[
        relay::EVENT,
        relay::OK,
        relay::EOSE,
        relay::CLOSED,
        relay::NOTICE,
        relay::AUTH,
        relay::COUNT,
        relay::NEG_MSG,
        relay::NEG_ERR,
        relay::EVENTS,
    ];

    fn read<'de, D: Dialect, A: SeqAccess<'de>>(
        rest: &mut Elements<'_, A>,
    ) -> Result<Option<Self>, A::Error> {
        Ok(Some(match rest.verb {
            "EVENT" => RelayMessage::Event { subscription: rest.text()?, event: rest.event::<D>()? },
            "OK" => RelayMessage::Ok {
                id: rest.next::<Fixed<32>>()?.0,
                accepted: rest.next()?,
                text: rest.text()?,
            },
            "EOSE" => RelayMessage::Eose { subscription: rest.text()?, hints: hints(rest)? },
            "CLOSED" => RelayMessage::Closed { subscription: rest.text()?, text: rest.text()? },
            "NOTICE" => RelayMessage::Notice { text: rest.text()? },
            "AUTH" => RelayMessage::Auth { challenge: rest.text()? },
            "COUNT" => count(rest)?,
            "NEG-MSG" => RelayMessage::NegMsg { subscription: rest.text()?, message: rest.bytes()? },
            "NEG-ERR" => RelayMessage::NegErr { subscription: rest.text()?, text: rest.text()? },
            "EVENTS" => {
                let subscription = rest.text()?;
                let List(events, _) = rest.next::<List<OwnedEvent<D>, Event<'static>>>()?;
                if events.is_empty() {
                    return Err(de::Error::custom("expected at least one event in EVENTS"));
                }
                RelayMessage::Events { subscription, events }
            }
            _ => return Ok(None),
        }))
    }
}

fn hints<'de, A: SeqAccess<'de>>(rest: &mut Elements<'_, A>) -> Result<EoseHints, A::Error> {
    let Some(List(words, _)) = rest.array.next_element::<List<String>>()? else {
        return Ok(EoseHints::default());
    };
    if words.is_empty() || !words.is_sorted_by(|a, b| a < b) {
        return Err(de::Error::custom("EOSE hints are at least one, ascending, each once"));
    }
    let has = |hint: &str| words.iter().any(|word| word == hint);
    Ok(EoseHints { finish: has("finish"), more: has("more") })
}

fn count<'de, 'm, A: SeqAccess<'de>>(rest: &mut Elements<'_, A>) -> Result<RelayMessage<'m>, A::Error> {
    let (subscription, count) = (rest.text()?, rest.next()?);
    let approximate: Option<bool> = rest.array.next_element()?;
    let hll: Option<Fixed<256>> = rest.array.next_element()?;
    if approximate == Some(false) && hll.is_none() {
        return Err(de::Error::custom("COUNT ends with `false`; it should be left out"));
    }
    Ok(RelayMessage::Count {
        subscription,
        count,
        approximate: approximate == Some(true),
        hll: hll.map(|registers| Box::new(registers.0)),
    })
}
