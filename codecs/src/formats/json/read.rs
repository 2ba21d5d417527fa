//! JSON to messages: text borrows from the frame unless it held an escape.

use std::{borrow::Cow, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

use super::{
    filter::{FilterSeed, Over, stop},
    item::{Hex, HexBytes, Text, Whole, missing, once},
};
use crate::{
    ClientMessage, DecodeError, EoseHints, Event, Filter, Limits, RelayMessage, Request, Tag, model::Bounds,
};

/// One tag; its elements borrow.
struct TagText<'a>(Tag<'a>);

impl<'de> Deserialize<'de> for TagText<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TagVisitor;
        impl<'de> Visitor<'de> for TagVisitor {
            type Value = TagText<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of text")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<TagText<'de>, A::Error> {
                let mut tag = Vec::new();
                while let Some(Text(value)) = elements.next_element()? {
                    tag.push(value);
                }
                Ok(TagText(tag))
            }
        }
        deserializer.deserialize_seq(TagVisitor)
    }
}

/// All tags.
struct Tags<'a>(Vec<Tag<'a>>);

impl<'de> Deserialize<'de> for Tags<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TagsVisitor;
        impl<'de> Visitor<'de> for TagsVisitor {
            type Value = Tags<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of tags")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Tags<'de>, A::Error> {
                let mut tags = Vec::new();
                while let Some(TagText(tag)) = elements.next_element()? {
                    tags.push(tag);
                }
                Ok(Tags(tags))
            }
        }
        deserializer.deserialize_seq(TagsVisitor)
    }
}

impl<'a> From<Tags<'a>> for Vec<Tag<'a>> {
    fn from(tags: Tags<'a>) -> Self {
        tags.0
    }
}

pub(super) struct OwnedEvent<'a>(pub(super) Event<'a>);

impl<'de> Deserialize<'de> for OwnedEvent<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Not a derived struct: serde's derive would also accept a bare array of seven elements.
        deserializer.deserialize_map(EventVisitor)
    }
}

struct EventVisitor;

impl<'de> Visitor<'de> for EventVisitor {
    type Value = OwnedEvent<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<OwnedEvent<'de>, A::Error> {
        let (mut id, mut pubkey, mut created_at, mut kind) = (None, None, None, None);
        let (mut tags, mut content, mut sig) = (None, None, None);
        while let Some(Text(key)) = object.next_key()? {
            match &*key {
                "id" => once::<Hex<32>, _, _>(&mut id, "id", &mut object)?,
                "pubkey" => once::<Hex<32>, _, _>(&mut pubkey, "pubkey", &mut object)?,
                "created_at" => once::<Whole<i64>, _, _>(&mut created_at, "created_at", &mut object)?,
                "kind" => once::<Whole<u16>, _, _>(&mut kind, "kind", &mut object)?,
                "tags" => once::<Tags<'de>, _, _>(&mut tags, "tags", &mut object)?,
                "content" => once::<Text<'de>, _, _>(&mut content, "content", &mut object)?,
                "sig" => once::<Hex<64>, _, _>(&mut sig, "sig", &mut object)?,
                _ => drop(object.next_value::<IgnoredAny>()?),
            }
        }
        Ok(OwnedEvent(Event {
            id: id.ok_or_else(|| missing("id"))?,
            pubkey: pubkey.ok_or_else(|| missing("pubkey"))?,
            created_at: created_at.ok_or_else(|| missing("created_at"))?,
            kind: kind.ok_or_else(|| missing("kind"))?,
            tags: tags.ok_or_else(|| missing("tags"))?,
            content: content.ok_or_else(|| missing("content"))?,
            sig: sig.ok_or_else(|| missing("sig"))?,
        }))
    }
}

/// An array of events.
pub(super) struct EventArray<'a>(pub(super) Vec<Event<'a>>);

impl<'de> Deserialize<'de> for EventArray<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ArrayVisitor;
        impl<'de> Visitor<'de> for ArrayVisitor {
            type Value = EventArray<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of events")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<EventArray<'de>, A::Error> {
                let mut events = Vec::new();
                while let Some(OwnedEvent(event)) = elements.next_element()? {
                    events.push(event);
                }
                Ok(EventArray(events))
            }
        }
        deserializer.deserialize_seq(ArrayVisitor)
    }
}

/// The events of EVENTS, at least one.
struct Batch<'a>(Vec<Event<'a>>);

impl<'de> Deserialize<'de> for Batch<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match EventArray::deserialize(deserializer)?.0 {
            events if events.is_empty() => {
                Err(de::Error::invalid_length(0, &"an array of at least one event"))
            }
            events => Ok(Batch(events)),
        }
    }
}

/// The answer of COUNT.
struct CountAnswer {
    count: u64,
    approximate: bool,
    hll: Option<Box<[u8; 256]>>,
}

impl<'de> Deserialize<'de> for CountAnswer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CountVisitor;
        impl<'de> Visitor<'de> for CountVisitor {
            type Value = CountAnswer;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with a count")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<CountAnswer, A::Error> {
                let (mut count, mut approximate, mut hll) = (None, None, None);
                while let Some(Text(key)) = object.next_key()? {
                    match &*key {
                        "count" => once::<Whole<u64>, _, _>(&mut count, "count", &mut object)?,
                        "approximate" => once::<bool, _, _>(&mut approximate, "approximate", &mut object)?,
                        "hll" => once::<Hex<256>, _, _>(&mut hll, "hll", &mut object)?,
                        _ => drop(object.next_value::<IgnoredAny>()?),
                    }
                }
                Ok(CountAnswer {
                    count: count.ok_or_else(|| missing("count"))?,
                    approximate: approximate.unwrap_or(false),
                    hll: hll.map(Box::new),
                })
            }
        }
        // Not a derived struct, which would also accept an array.
        deserializer.deserialize_map(CountVisitor)
    }
}

/// A message, or the verb that the protocol does not have.
pub(super) enum Known<M> {
    Yes(M),
    No(String),
}

impl<M> Known<M> {
    pub(super) fn into_result(self) -> Result<M, DecodeError> {
        match self {
            Known::Yes(message) => Ok(message),
            Known::No(verb) => Err(DecodeError::UnknownMessage(verb)),
        }
    }
}

/// The elements of a message after its verb.
struct Elements<'v, A> {
    array: A,
    verb: &'v str,
    forms: &'static [&'static str],
}

/// The subscription and the filters of a request.
type NamedFilters<'a> = (Cow<'a, str>, Vec<Filter>);

impl<'de, A: SeqAccess<'de>> Elements<'_, A> {
    fn expected(&self) -> &'static str {
        let form = self.forms.iter().find(|form| form.split('"').nth(1) == Some(self.verb));
        form.copied().unwrap_or(MESSAGE)
    }

    fn next<T: Deserialize<'de>>(&mut self) -> Result<T, A::Error> {
        self.next_seed(PhantomData)
    }

    fn next_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        let next = self.array.next_element_seed(seed)?;
        next.ok_or_else(|| de::Error::custom(format!("expected {}", self.expected())))
    }

    fn text(&mut self) -> Result<Cow<'de, str>, A::Error> {
        self.next::<Text<'de>>().map(|text| text.0)
    }

    fn event(&mut self) -> Result<Cow<'de, Event<'de>>, A::Error> {
        self.next::<OwnedEvent<'de>>().map(|event| Cow::Owned(event.0))
    }

    fn hex(&mut self) -> Result<Cow<'de, [u8]>, A::Error> {
        self.next::<HexBytes>().map(|bytes| Cow::Owned(bytes.0))
    }

    fn request(&mut self, request: Request, seed: ClientSeed<'_>) -> Result<NamedFilters<'de>, A::Error> {
        let ClientSeed { limits, over } = seed;
        let subscription = self.text()?;
        let bounds = stop(Bounds::new(limits, request, &subscription), over)?;
        let (filter, mut filters) = (FilterSeed { bounds: &bounds, over }, Vec::new());
        while let Some(filter) = self.array.next_element_seed(filter)? {
            stop(bounds.filters(filters.len() + 1), over)?;
            filters.push(filter);
        }
        Ok((subscription, filters))
    }

    fn finish<M>(mut self, message: M) -> Result<Known<M>, A::Error> {
        match self.array.next_element::<IgnoredAny>()? {
            None => Ok(Known::Yes(message)),
            Some(_) => Err(de::Error::custom(format!("expected {} and nothing after it", self.expected()))),
        }
    }
}

/// Reads a client's message within limits.
#[derive(Clone, Copy)]
pub(super) struct ClientSeed<'s> {
    pub(super) limits: &'s Limits,
    pub(super) over: Over<'s>,
}

impl<'de> DeserializeSeed<'de> for ClientSeed<'_> {
    type Value = Known<ClientMessage<'de>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for ClientSeed<'_> {
    type Value = Known<ClientMessage<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MESSAGE)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Self::Value, A::Error> {
        let verb = verb(&mut array)?;
        read_client(Elements { array, verb: &verb, forms: CLIENT }, self)
    }
}

impl<'de> Deserialize<'de> for Known<RelayMessage<'de>> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct RelayVisitor;
        impl<'de> Visitor<'de> for RelayVisitor {
            type Value = Known<RelayMessage<'de>>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(MESSAGE)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Self::Value, A::Error> {
                let verb = verb(&mut array)?;
                read_relay(Elements { array, verb: &verb, forms: RELAY })
            }
        }
        deserializer.deserialize_seq(RelayVisitor)
    }
}

const MESSAGE: &str = "an array that starts with a verb";

fn verb<'de, A: SeqAccess<'de>>(array: &mut A) -> Result<Cow<'de, str>, A::Error> {
    let verb: Option<Text<'de>> = array.next_element()?;
    verb.map(|verb| verb.0).ok_or_else(|| de::Error::custom("expected a verb, found an empty array"))
}

/// What a client's messages look like, for errors.
const CLIENT: &[&str] = &[
    r#"["EVENT",event]"#,
    r#"["AUTH",event]"#,
    r#"["REQ",subscription,filter…]"#,
    r#"["COUNT",subscription,filter…]"#,
    r#"["CLOSE",subscription]"#,
    r#"["NEG-OPEN",subscription,filter,hex]"#,
    r#"["NEG-MSG",subscription,hex]"#,
    r#"["NEG-CLOSE",subscription]"#,
];

/// Forms of a relay's messages.
const RELAY: &[&str] = &[
    r#"["EVENT",subscription,event]"#,
    r#"["OK",id,accepted,text]"#,
    r#"["EOSE",subscription] or ["EOSE",subscription,[hint…]]"#,
    r#"["CLOSED",subscription,text]"#,
    r#"["NOTICE",text]"#,
    r#"["AUTH",challenge]"#,
    r#"["COUNT",subscription,{"count":N}]"#,
    r#"["NEG-MSG",subscription,hex]"#,
    r#"["NEG-ERR",subscription,text]"#,
    r#"["EVENTS",subscription,[event,…]]"#,
];

fn read_client<'de, A: SeqAccess<'de>>(
    mut rest: Elements<'_, A>,
    seed: ClientSeed<'_>,
) -> Result<Known<ClientMessage<'de>>, A::Error> {
    let message = match rest.verb {
        "EVENT" => ClientMessage::Event(rest.event()?),
        "AUTH" => ClientMessage::Auth(rest.event()?),
        "REQ" => {
            let (subscription, filters) = rest.request(Request::Req, seed)?;
            ClientMessage::Req { subscription, filters }
        }
        "COUNT" => {
            let (subscription, filters) = rest.request(Request::Count, seed)?;
            ClientMessage::Count { subscription, filters }
        }
        "CLOSE" => ClientMessage::Close { subscription: rest.text()? },
        "NEG-OPEN" => {
            let subscription = rest.text()?;
            let bounds = stop(Bounds::new(seed.limits, Request::NegOpen, &subscription), seed.over)?;
            let filter = rest.next_seed(FilterSeed { bounds: &bounds, over: seed.over })?;
            ClientMessage::NegOpen { subscription, filter, message: rest.hex()? }
        }
        "NEG-MSG" => ClientMessage::NegMsg { subscription: rest.text()?, message: rest.hex()? },
        "NEG-CLOSE" => ClientMessage::NegClose { subscription: rest.text()? },
        _ => return unknown(rest),
    };
    rest.finish(message)
}

fn read_relay<'de, A: SeqAccess<'de>>(
    mut rest: Elements<'_, A>,
) -> Result<Known<RelayMessage<'de>>, A::Error> {
    let message = match rest.verb {
        "EVENT" => RelayMessage::Event { subscription: rest.text()?, event: rest.event()? },
        "OK" => {
            RelayMessage::Ok { id: rest.next::<Hex<32>>()?.0, accepted: rest.next()?, text: rest.text()? }
        }
        "EOSE" => {
            let subscription = rest.text()?;
            let mut hints = EoseHints::default();
            for word in rest.array.next_element::<Vec<Text<'de>>>()?.into_iter().flatten() {
                match &*word.0 {
                    "finish" => hints.finish = true,
                    "more" => hints.more = true,
                    _ => {} // NIP-67 lets relays add words
                }
            }
            RelayMessage::Eose { subscription, hints }
        }
        "CLOSED" => RelayMessage::Closed { subscription: rest.text()?, text: rest.text()? },
        "NOTICE" => RelayMessage::Notice { text: rest.text()? },
        "AUTH" => RelayMessage::Auth { challenge: rest.text()? },
        "COUNT" => {
            let (subscription, answer) = (rest.text()?, rest.next::<CountAnswer>()?);
            let CountAnswer { count, approximate, hll } = answer;
            RelayMessage::Count { subscription, count, approximate, hll }
        }
        "NEG-MSG" => RelayMessage::NegMsg { subscription: rest.text()?, message: rest.hex()? },
        "NEG-ERR" => RelayMessage::NegErr { subscription: rest.text()?, text: rest.text()? },
        "EVENTS" => RelayMessage::Events { subscription: rest.text()?, events: rest.next::<Batch<'de>>()?.0 },
        _ => return unknown(rest),
    };
    rest.finish(message)
}

/// Reads on to the end of the array: only well-formed JSON deserves the answer "unknown verb".
fn unknown<'de, A: SeqAccess<'de>, M>(mut rest: Elements<'_, A>) -> Result<Known<M>, A::Error> {
    while rest.array.next_element::<IgnoredAny>()?.is_some() {}
    Ok(Known::No(rest.verb.chars().take(32).collect()))
}
