//! Code that the protobuf formats share: the strict profile, and messages through prost.
//!
//! prost reads into and writes from its own structs, which own every text. Encoding copies each
//! text once into such a struct, and decoding moves texts out. That is what an adopter pays.

pub(in crate::formats) mod strict;
mod tuned;

pub(super) use self::tuned::{Dialect, TunedProtobuf};
use crate::{
    codec::assert_batch,
    reader::{varint_len, write_varint},
};

/// Writes `RelayMsg { event: SubEvent { sub, event } }` up to the event, which ends it and has this
/// many bytes.
pub(super) fn before_event(subscription: &str, event_bytes: usize, out: &mut Vec<u8>) {
    let sized = |len: usize| 1 + varint_len(len as u64) + len;
    let subscription_len = if subscription.is_empty() { 0 } else { sized(subscription.len()) };
    out.push(1 << 3 | 2);
    write_varint((subscription_len + sized(event_bytes)) as u64, out);
    if !subscription.is_empty() {
        write_bytes(1 << 3 | 2, subscription.as_bytes(), out);
    }
    out.push(2 << 3 | 2);
    write_varint(event_bytes as u64, out);
}

fn write_bytes(key: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(key);
    write_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Writes `RelayMsg { events: SubEvents { sub, events } }` around events that are already encoded.
pub(super) fn wrap_events(subscription: &str, events: &[&[u8]], out: &mut Vec<u8>) {
    assert_batch(events);
    let sized = |len: usize| 1 + varint_len(len as u64) + len;
    let subscription_len = if subscription.is_empty() { 0 } else { sized(subscription.len()) };
    let events_len: usize = events.iter().map(|event| sized(event.len())).sum();
    out.push(10 << 3 | 2);
    write_varint((subscription_len + events_len) as u64, out);
    if !subscription.is_empty() {
        write_bytes(1 << 3 | 2, subscription.as_bytes(), out);
    }
    events.iter().for_each(|event| write_bytes(2 << 3 | 2, event, out));
}

/// Implements the codec `$codec` by the generated module `pb`.
///
/// The two schemas differ only in the type of ids, keys and signatures, which prost turns into
/// different Rust types throughout; a third differs in how it writes tag values. Beside the call
/// stand `to_key(&[u8]) -> Key`, `from_key::<N>(Key) -> Option<[u8; N]>`, `to_value(&str) -> Value`
/// and `from_value(Value) -> String`.
macro_rules! protobuf_codec {
    ($codec:ident, $name:literal, $values:ident) => {
        impl EventCodec for $codec {
            fn encode_event(&self, event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
                encode(&to_event(event), out)
            }

            fn decode_event<'a>(&self, bytes: &'a [u8]) -> Result<Event<'a>, DecodeError> {
                strict::check_event(strict::Values::$values, bytes)?;
                from_event(decode(bytes)?)
            }
        }

        impl Codec for $codec {
            fn encode_client(
                &self,
                message: &ClientMessage<'_>,
                out: &mut Vec<u8>,
            ) -> Result<(), EncodeError> {
                use pb::client_msg::Message;
                let message = match message {
                    ClientMessage::Event(event) => Message::Event(to_event(event)),
                    ClientMessage::Auth(event) => Message::Auth(to_event(event)),
                    ClientMessage::Close { subscription } => Message::Close((**subscription).to_owned()),
                    ClientMessage::Req { subscription, filters } => {
                        Message::Req(to_req(subscription, filters)?)
                    }
                    ClientMessage::Count { subscription, filters } => {
                        Message::Count(to_req(subscription, filters)?)
                    }
                    ClientMessage::NegOpen { subscription, filter, message } => {
                        check_filters($name, std::slice::from_ref(filter))?;
                        Message::NegOpen(pb::NegOpen {
                            sub: (**subscription).to_owned(),
                            filter: Some(to_filter(filter)?),
                            data: message.to_vec(),
                        })
                    }
                    ClientMessage::NegMsg { subscription, message } => Message::NegMsg(pb::Neg {
                        sub: (**subscription).to_owned(),
                        data: message.to_vec(),
                    }),
                    ClientMessage::NegClose { subscription } => {
                        Message::NegClose((**subscription).to_owned())
                    }
                };
                encode(&pb::ClientMsg { message: Some(message) }, out)
            }

            fn decode_client_within<'a>(
                &self,
                bytes: &'a [u8],
                limits: &Limits,
            ) -> Result<ClientMessage<'a>, DecodeError> {
                use pb::client_msg::Message;
                let walk = strict::check_message(&strict::CLIENT, strict::Values::$values, bytes, limits)?;
                let message =
                    decode::<pb::ClientMsg>(bytes)?.message.ok_or(DecodeError::Missing("message"))?;
                Ok(match message {
                    Message::Event(event) => ClientMessage::Event(Cow::Owned(from_event(event)?)),
                    Message::Auth(event) => ClientMessage::Auth(Cow::Owned(from_event(event)?)),
                    Message::Close(subscription) => {
                        ClientMessage::Close { subscription: subscription.into() }
                    }
                    Message::Req(pb::Req { sub, filters }) => ClientMessage::Req {
                        subscription: sub.into(),
                        filters: from_filters(filters, &walk)?,
                    },
                    Message::Count(pb::Req { sub, filters }) => ClientMessage::Count {
                        subscription: sub.into(),
                        filters: from_filters(filters, &walk)?,
                    },
                    Message::NegOpen(pb::NegOpen { sub, filter, data }) => ClientMessage::NegOpen {
                        subscription: sub.into(),
                        filter: from_filters(filter.into_iter().collect(), &walk)?
                            .pop()
                            .ok_or(DecodeError::Missing("filter"))?,
                        message: data.into(),
                    },
                    Message::NegMsg(pb::Neg { sub, data }) => {
                        ClientMessage::NegMsg { subscription: sub.into(), message: data.into() }
                    }
                    Message::NegClose(subscription) => {
                        ClientMessage::NegClose { subscription: subscription.into() }
                    }
                })
            }

            fn encode_relay(&self, message: &RelayMessage<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
                if matches!(message, RelayMessage::Events { events, .. } if events.is_empty()) {
                    let what = "EVENTS without an event";
                    return Err(EncodeError::Unrepresentable { format: $name, what });
                }
                encode(&pb::RelayMsg { message: Some(to_relay(message)) }, out)
            }

            fn decode_relay<'a>(&self, bytes: &'a [u8]) -> Result<RelayMessage<'a>, DecodeError> {
                strict::check_message(&strict::RELAY, strict::Values::$values, bytes, &Limits::MOST)?;
                from_relay(decode::<pb::RelayMsg>(bytes)?.message.ok_or(DecodeError::Missing("message"))?)
            }

            fn around_event(&self, subscription: &str, event: &[u8], out: &mut Vec<u8>) -> &'static [u8] {
                protobuf::before_event(subscription, event.len(), out);
                &[]
            }

            fn wrap_events(&self, subscription: &str, events: &[&[u8]], out: &mut Vec<u8>) {
                protobuf::wrap_events(subscription, events, out);
            }
        }

        fn encode(message: &impl Message, out: &mut Vec<u8>) -> Result<(), EncodeError> {
            message.encode(out).map_err(|error| EncodeError::Library(error.to_string()))
        }

        fn decode<M: Message + Default>(bytes: &[u8]) -> Result<M, DecodeError> {
            M::decode(bytes).map_err(|error| DecodeError::Library(error.to_string()))
        }

        fn to_event(event: &Event<'_>) -> pb::Event {
            let to_tag = |tag: &Tag<'_>| pb::Tag { values: tag.iter().map(|v| to_value(v)).collect() };
            pb::Event {
                id: to_key(&event.id),
                pubkey: to_key(&event.pubkey),
                created_at: event.created_at,
                kind: i32::from(event.kind),
                tags: event.tags.iter().map(to_tag).collect(),
                content: (*event.content).to_owned(),
                sig: to_key(&event.sig),
            }
        }

        fn from_event(event: pb::Event) -> Result<Event<'static>, DecodeError> {
            Ok(Event {
                id: from_key(event.id).ok_or(DecodeError::Malformed("id"))?,
                pubkey: from_key(event.pubkey).ok_or(DecodeError::Malformed("pubkey"))?,
                created_at: event.created_at,
                kind: u16::try_from(event.kind).map_err(|_| DecodeError::OutOfRange("kind"))?,
                // A String and a Cow<str> are equally large, so the vectors are turned in place.
                tags: event
                    .tags
                    .into_iter()
                    .map(|tag| tag.values.into_iter().map(|value| Cow::Owned(from_value(value))).collect())
                    .collect(),
                content: event.content.into(),
                sig: from_key(event.sig).ok_or(DecodeError::Malformed("sig"))?,
            })
        }

        fn to_relay(message: &RelayMessage<'_>) -> pb::relay_msg::Message {
            use pb::relay_msg::Message;
            match message {
                RelayMessage::Event { subscription, event } => Message::Event(pb::SubEvent {
                    sub: (**subscription).to_owned(),
                    event: Some(to_event(event)),
                }),
                RelayMessage::Ok { id, accepted, text } => {
                    Message::Ok(pb::Ok { id: to_key(id), accepted: *accepted, text: (**text).to_owned() })
                }
                RelayMessage::Eose { subscription, hints } => {
                    let words = [(hints.finish, "finish"), (hints.more, "more")];
                    let said = words.into_iter().filter(|(set, _)| *set).map(|(_, word)| word.to_owned());
                    Message::Eose(pb::Eose { sub: (**subscription).to_owned(), hints: said.collect() })
                }
                RelayMessage::Closed { subscription, text } => Message::Closed(pb::Closed {
                    sub: (**subscription).to_owned(),
                    text: (**text).to_owned(),
                }),
                RelayMessage::Notice { text } => Message::Notice((**text).to_owned()),
                RelayMessage::Auth { challenge } => Message::Auth((**challenge).to_owned()),
                RelayMessage::Count { subscription, count, approximate, hll } => Message::Count(pb::Count {
                    sub: (**subscription).to_owned(),
                    count: *count,
                    approximate: *approximate,
                    hll: hll.as_ref().map_or_else(Vec::new, |registers| registers.to_vec()),
                }),
                RelayMessage::NegMsg { subscription, message } => Message::NegMsg(pb::Neg {
                    sub: (**subscription).to_owned(),
                    data: message.to_vec(),
                }),
                RelayMessage::NegErr { subscription, text } => Message::NegErr(pb::Closed {
                    sub: (**subscription).to_owned(),
                    text: (**text).to_owned(),
                }),
                RelayMessage::Events { subscription, events } => Message::Events(pb::SubEvents {
                    sub: (**subscription).to_owned(),
                    events: events.iter().map(to_event).collect(),
                }),
            }
        }

        fn from_relay<'a>(message: pb::relay_msg::Message) -> Result<RelayMessage<'a>, DecodeError> {
            use pb::relay_msg::Message;
            Ok(match message {
                Message::Event(pb::SubEvent { sub, event }) => {
                    let event = from_event(event.ok_or(DecodeError::Missing("event"))?)?;
                    RelayMessage::Event { subscription: sub.into(), event: Cow::Owned(event) }
                }
                Message::Ok(pb::Ok { id, accepted, text }) => RelayMessage::Ok {
                    id: from_key(id).ok_or(DecodeError::Malformed("OK's event id"))?,
                    accepted,
                    text: text.into(),
                },
                Message::Eose(pb::Eose { sub, hints }) => {
                    let says = |word: &str| hints.iter().any(|hint| hint == word); // NIP-67 lets relays add words
                    let hints = EoseHints { finish: says("finish"), more: says("more") };
                    RelayMessage::Eose { subscription: sub.into(), hints }
                }
                Message::Closed(pb::Closed { sub, text }) => {
                    RelayMessage::Closed { subscription: sub.into(), text: text.into() }
                }
                Message::Notice(text) => RelayMessage::Notice { text: text.into() },
                Message::Auth(challenge) => RelayMessage::Auth { challenge: challenge.into() },
                Message::Count(pb::Count { sub, count, approximate, hll }) => {
                    let registers = |hll: Vec<u8>| hll.try_into().map_err(|_| DecodeError::Malformed("hll"));
                    let hll = if hll.is_empty() { None } else { Some(registers(hll)?) };
                    RelayMessage::Count { subscription: sub.into(), count, approximate, hll }
                }
                Message::NegMsg(pb::Neg { sub, data }) => {
                    RelayMessage::NegMsg { subscription: sub.into(), message: data.into() }
                }
                Message::NegErr(pb::Closed { sub, text }) => {
                    RelayMessage::NegErr { subscription: sub.into(), text: text.into() }
                }
                Message::Events(pb::SubEvents { sub, events }) => RelayMessage::Events {
                    subscription: sub.into(),
                    events: events.into_iter().map(from_event).collect::<Result<_, _>>()?,
                },
            })
        }

        fn to_req(subscription: &str, filters: &[Filter]) -> Result<pb::Req, EncodeError> {
            check_filters($name, filters)?;
            let filters = filters.iter().map(to_filter).collect::<Result<_, _>>()?;
            Ok(pb::Req { sub: subscription.to_owned(), filters })
        }

        fn to_filter(filter: &Filter) -> Result<pb::Filter, EncodeError> {
            let Filter { ids, authors, kinds, since, until, limit, search, tags, unknown: _ } = filter;
            let is_empty = |list: &Option<Vec<[u8; 32]>>| list.as_ref().is_some_and(Vec::is_empty);
            if is_empty(ids) || is_empty(authors) || kinds.as_ref().is_some_and(Vec::is_empty) {
                let what = "an empty list in a filter, which proto3 does not tell from an absent one";
                return Err(EncodeError::Unrepresentable { format: $name, what });
            }
            let to_keys =
                |keys: &Option<Vec<[u8; 32]>>| keys.iter().flatten().map(|key| to_key(key)).collect();
            let to_condition = |condition: &TagFilter| pb::TagFilter {
                name: condition.letter.to_string(),
                values: condition.values.iter().map(|value| to_value(value)).collect(),
            };
            Ok(pb::Filter {
                ids: to_keys(ids),
                authors: to_keys(authors),
                kinds: kinds.iter().flatten().copied().map(u32::from).collect(),
                since: *since,
                until: *until,
                limit: *limit,
                search: search.clone(),
                tags: tags.iter().map(to_condition).collect(),
            })
        }

        fn from_filters(filters: Vec<pb::Filter>, walk: &strict::Walk<'_>) -> Result<Vec<Filter>, DecodeError> {
            let mut filters: Vec<_> = filters.into_iter().map(from_filter).collect::<Result<_, _>>()?;
            for (position, number) in &walk.unknown_filter_fields {
                filters[*position].unknown = Some(format!("field {number}"));
            }
            Ok(filters)
        }

        fn from_filter(filter: pb::Filter) -> Result<Filter, DecodeError> {
            let mut tags: Vec<TagFilter> = Vec::with_capacity(filter.tags.len());
            for pb::TagFilter { name, values } in filter.tags {
                let letter = match name.as_bytes() {
                    [letter] if letter.is_ascii_alphabetic() => char::from(*letter),
                    _ => return Err(DecodeError::Malformed("tag condition's letter")),
                };
                if tags.iter().any(|earlier| earlier.letter == letter) {
                    return Err(DecodeError::Duplicate("tag condition"));
                }
                let values = values.into_iter().map(from_value).collect();
                tags.push(TagFilter { letter, values });
            }
            let kinds = filter.kinds.into_iter().map(u16::try_from).collect::<Result<Vec<_>, _>>();
            Ok(Filter {
                ids: asked(filter.ids.into_iter().map(from_key).collect::<Option<_>>(), "ids")?,
                authors: asked(filter.authors.into_iter().map(from_key).collect::<Option<_>>(), "authors")?,
                kinds: asked(kinds.ok(), "kinds")?,
                since: filter.since,
                until: filter.until,
                limit: filter.limit,
                search: filter.search,
                tags,
                unknown: None,
            })
        }

        /// The list that a client sent. proto3 has no absent list, so an empty one means "no
        /// condition".
        fn asked<T>(list: Option<Vec<T>>, what: &'static str) -> Result<Option<Vec<T>>, DecodeError> {
            let list = list.ok_or(DecodeError::Malformed(what))?;
            Ok(if list.is_empty() { None } else { Some(list) })
        }
    };
}
pub(super) use protobuf_codec;
