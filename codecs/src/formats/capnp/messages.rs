//! The messages around an event: builders and readers of the generated types.

use std::{borrow::Cow, slice};

use capnp::{NotInSchema, data, raw, struct_list, traits::HasStructSize};

use super::{MAX_BLOB_BYTES, fits, in_frame, library, read_text, too_large};
use crate::{
    ClientMessage, DecodeError, EncodeError, EoseHints, EventCodec, Filter, Limits, RelayMessage, Request,
    TagFilter,
    envelope::{check_filters, read_elements, write_element},
    formats::generated::nostr_capnp::{client_msg, filter, neg, relay_msg, request, tag_filter},
    model::Bounds,
    reader::Reader,
};

const SUBSCRIPTION: &str = "subscription";
const NEGENTROPY: &str = "negentropy's message";

pub(super) fn build_client(
    message: &ClientMessage<'_>,
    mut root: client_msg::Builder<'_>,
) -> Result<(), EncodeError> {
    let encode = |event| {
        let mut bytes = Vec::new();
        super::Capnp.encode_event(event, &mut bytes)?;
        fits(&bytes, "an event in bytes")?;
        Ok(bytes)
    };
    match message {
        ClientMessage::Event(event) => root.set_event(&encode(event)?),
        ClientMessage::Auth(event) => root.set_auth(&encode(event)?),
        ClientMessage::Close { subscription } => root.set_close(fits(&**subscription, SUBSCRIPTION)?),
        ClientMessage::Req { subscription, filters } => {
            build_request(subscription, filters, root.init_req())?;
        }
        ClientMessage::Count { subscription, filters } => {
            build_request(subscription, filters, root.init_count())?;
        }
        ClientMessage::NegOpen { subscription, filter, message } => {
            check_filters("capnp", slice::from_ref(filter))?;
            let mut out = root.init_neg_open();
            out.set_sub(fits(&**subscription, SUBSCRIPTION)?);
            build_filter(filter, out.reborrow().init_filter())?;
            out.set_data(fits(&**message, NEGENTROPY)?);
        }
        ClientMessage::NegMsg { subscription, message } => {
            let mut out = root.init_neg_msg();
            out.set_sub(fits(&**subscription, SUBSCRIPTION)?);
            out.set_data(fits(&**message, NEGENTROPY)?);
        }
        ClientMessage::NegClose { subscription } => {
            root.set_neg_close(fits(&**subscription, SUBSCRIPTION)?);
        }
    }
    Ok(())
}

fn build_request(
    subscription: &str,
    filters: &[Filter],
    mut request: request::Builder<'_>,
) -> Result<(), EncodeError> {
    check_filters("capnp", filters)?;
    request.set_sub(fits(subscription, SUBSCRIPTION)?);
    let mut list = request.init_filters(length(filters.len(), "a number of filters")?);
    for (index, filter) in (0..).zip(filters) {
        build_filter(filter, list.reborrow().get(index))?;
    }
    Ok(())
}

fn build_filter(filter: &Filter, mut out: filter::Builder<'_>) -> Result<(), EncodeError> {
    if let Some(ids) = &filter.ids {
        out.set_ids(fits(ids.as_flattened(), "ids in bytes")?);
    }
    if let Some(authors) = &filter.authors {
        out.set_authors(fits(authors.as_flattened(), "authors in bytes")?);
    }
    if let Some(kinds) = &filter.kinds {
        let mut list = out.reborrow().init_kinds(length(kinds.len(), "a number of kinds")?);
        (0..).zip(kinds).for_each(|(index, kind)| list.set(index, *kind));
    }
    if let Some(since) = filter.since {
        out.reborrow().get_since().set_at(since);
    }
    if let Some(until) = filter.until {
        out.reborrow().get_until().set_at(until);
    }
    if let Some(limit) = filter.limit {
        out.reborrow().get_limit().set_some(limit);
    }
    if let Some(search) = &filter.search {
        out.set_search(fits(&**search, "search text in bytes")?);
    }
    if filter.tags.is_empty() {
        return Ok(());
    }
    let mut list = out.init_tags(length(filter.tags.len(), "a number of tag conditions")?);
    let mut values = Vec::new();
    for (index, condition) in (0..).zip(&filter.tags) {
        values.clear();
        condition.values.iter().for_each(|value| write_element(value, &mut values));
        let mut out = list.reborrow().get(index);
        let letter = u8::try_from(condition.letter).expect("check_filters wants an ASCII letter");
        out.set_letter(letter);
        out.set_values(fits(&values, "a tag condition in bytes")?);
    }
    Ok(())
}

fn length(len: usize, what: &'static str) -> Result<u32, EncodeError> {
    u32::try_from(len)
        .ok()
        .filter(|_| len <= MAX_BLOB_BYTES)
        .ok_or_else(|| too_large(what, len, MAX_BLOB_BYTES))
}

/// Builds any message but EVENT and EVENTS, which are spliced.
pub(super) fn build_relay(
    message: &RelayMessage<'_>,
    mut root: relay_msg::Builder<'_>,
) -> Result<(), EncodeError> {
    match message {
        RelayMessage::Event { .. } | RelayMessage::Events { .. } => unreachable!("they are spliced"),
        RelayMessage::Ok { id, accepted, text } => {
            let mut out = root.init_ok();
            out.set_id(id);
            out.set_accepted(*accepted);
            out.set_text(fits(&**text, "OK's text in bytes")?);
        }
        RelayMessage::Eose { subscription, hints } => {
            let mut out = root.init_eose();
            out.set_sub(fits(&**subscription, SUBSCRIPTION)?);
            out.set_finish(hints.finish);
            out.set_more(hints.more);
        }
        RelayMessage::Closed { subscription, text } => {
            let mut out = root.init_closed();
            out.set_sub(fits(&**subscription, SUBSCRIPTION)?);
            out.set_text(fits(&**text, "CLOSED's text in bytes")?);
        }
        RelayMessage::Notice { text } => root.set_notice(fits(&**text, "NOTICE's text in bytes")?),
        RelayMessage::Auth { challenge } => root.set_auth(fits(&**challenge, "a challenge in bytes")?),
        RelayMessage::Count { subscription, count, approximate, hll } => {
            let mut out = root.init_count();
            out.set_sub(fits(&**subscription, SUBSCRIPTION)?);
            out.set_count(*count);
            out.set_approximate(*approximate);
            if let Some(registers) = hll {
                out.set_hll(&registers[..]);
            }
        }
        RelayMessage::NegMsg { subscription, message } => {
            let mut out = root.init_neg_msg();
            out.set_sub(fits(&**subscription, SUBSCRIPTION)?);
            out.set_data(fits(&**message, NEGENTROPY)?);
        }
        RelayMessage::NegErr { subscription, text } => {
            let mut out = root.init_neg_err();
            out.set_sub(fits(&**subscription, SUBSCRIPTION)?);
            out.set_text(fits(&**text, "NEG-ERR's text in bytes")?);
        }
    }
    Ok(())
}

pub(super) fn read_client<'a>(
    frame: &'a [u8],
    root: client_msg::Reader<'_>,
    limits: &Limits,
) -> Result<ClientMessage<'a>, DecodeError> {
    let event = |data: capnp::Result<data::Reader<'_>>| {
        super::Capnp.decode_event(in_frame(frame, data.map_err(library)?)?).map(Cow::Owned)
    };
    Ok(match root.which().map_err(unknown)? {
        client_msg::Event(data) => ClientMessage::Event(event(data)?),
        client_msg::Auth(data) => ClientMessage::Auth(event(data)?),
        client_msg::Close(text) => {
            ClientMessage::Close { subscription: read_text(frame, root.has_close(), text, SUBSCRIPTION)? }
        }
        client_msg::Req(request) => {
            let (subscription, filters) = read_request(frame, request, limits, Request::Req)?;
            ClientMessage::Req { subscription, filters }
        }
        client_msg::Count(request) => {
            let (subscription, filters) = read_request(frame, request, limits, Request::Count)?;
            ClientMessage::Count { subscription, filters }
        }
        client_msg::NegOpen(open) => {
            let open = open.map_err(library)?;
            if !open.has_filter() {
                return Err(DecodeError::Missing("filter"));
            }
            let subscription = read_text(frame, open.has_sub(), open.get_sub(), SUBSCRIPTION)?;
            let bounds = Bounds::new(limits, Request::NegOpen, &subscription)?;
            let filter = read_filter(frame, open.get_filter().map_err(library)?, &bounds)?;
            let message = read_data(frame, open.has_data(), open.get_data())?;
            ClientMessage::NegOpen { subscription, filter, message }
        }
        client_msg::NegMsg(round) => {
            let (subscription, message) = read_round(frame, round)?;
            ClientMessage::NegMsg { subscription, message }
        }
        client_msg::NegClose(text) => ClientMessage::NegClose {
            subscription: read_text(frame, root.has_neg_close(), text, SUBSCRIPTION)?,
        },
    })
}

fn read_request<'a>(
    frame: &'a [u8],
    request: capnp::Result<request::Reader<'_>>,
    limits: &Limits,
    verb: Request,
) -> Result<(Cow<'a, str>, Vec<Filter>), DecodeError> {
    let request = request.map_err(library)?;
    let subscription = read_text(frame, request.has_sub(), request.get_sub(), SUBSCRIPTION)?;
    let bounds = Bounds::new(limits, verb, &subscription)?;
    let filters = request.get_filters().map_err(library)?;
    bounds.filters(filters.len() as usize)?;
    let read = |filter| read_filter(frame, filter, &bounds);
    let filters = filters.iter().map(read).collect::<Result<_, _>>()?;
    Ok((subscription, filters))
}

fn read_round<'a>(
    frame: &'a [u8],
    round: capnp::Result<neg::Reader<'_>>,
) -> Result<(Cow<'a, str>, Cow<'a, [u8]>), DecodeError> {
    let round = round.map_err(library)?;
    let subscription = read_text(frame, round.has_sub(), round.get_sub(), SUBSCRIPTION)?;
    Ok((subscription, read_data(frame, round.has_data(), round.get_data())?))
}

fn read_data<'a>(
    frame: &'a [u8],
    is_present: bool,
    data: capnp::Result<data::Reader<'_>>,
) -> Result<Cow<'a, [u8]>, DecodeError> {
    if !is_present {
        return Err(DecodeError::Missing(NEGENTROPY));
    }
    in_frame(frame, data.map_err(library)?).map(Cow::Borrowed)
}

fn read_filter(frame: &[u8], filter: filter::Reader<'_>, bounds: &Bounds<'_>) -> Result<Filter, DecodeError> {
    let malformed = |what| move |NotInSchema(_)| DecodeError::Malformed(what);
    let ids = filter.has_ids().then(|| read_keys(filter.get_ids(), bounds, "ids"));
    let authors = filter.has_authors().then(|| read_keys(filter.get_authors(), bounds, "authors"));
    let kinds = filter.has_kinds().then(|| -> Result<Vec<u16>, DecodeError> {
        let kinds = filter.get_kinds().map_err(library)?;
        bounds.values(kinds.len() as usize)?;
        Ok(kinds.iter().collect())
    });
    let search = filter.has_search().then(|| read_text(frame, true, filter.get_search(), "search"));
    Ok(Filter {
        ids: ids.transpose()?,
        authors: authors.transpose()?,
        kinds: kinds.transpose()?,
        since: match filter.get_since().which().map_err(malformed("since"))? {
            filter::since::Any(()) => None,
            filter::since::At(time) => Some(time),
        },
        until: match filter.get_until().which().map_err(malformed("until"))? {
            filter::until::Any(()) => None,
            filter::until::At(time) => Some(time),
        },
        limit: match filter.get_limit().which().map_err(malformed("limit"))? {
            filter::limit::None(()) => None,
            filter::limit::Some(limit) => Some(limit),
        },
        search: search.transpose()?.map(Cow::into_owned),
        tags: read_conditions(filter.get_tags().map_err(library)?, bounds)?,
        unknown: has_unknown_fields(filter).then(|| "of a later schema".to_owned()),
    })
}

fn read_keys(
    data: capnp::Result<data::Reader<'_>>,
    bounds: &Bounds<'_>,
    what: &'static str,
) -> Result<Vec<[u8; 32]>, DecodeError> {
    let (keys, rest) = data.map_err(library)?.as_chunks();
    bounds.values(keys.len())?;
    if rest.is_empty() { Ok(keys.to_vec()) } else { Err(DecodeError::Truncated(what)) }
}

fn read_conditions(
    list: struct_list::Reader<'_, tag_filter::Owned>,
    bounds: &Bounds<'_>,
) -> Result<Vec<TagFilter>, DecodeError> {
    let mut conditions: Vec<TagFilter> = Vec::new();
    for condition in list {
        let letter = char::from(condition.get_letter());
        if !letter.is_ascii_alphabetic() {
            return Err(DecodeError::Malformed("tag condition's letter"));
        }
        if conditions.iter().any(|earlier| earlier.letter == letter) {
            return Err(DecodeError::Duplicate("tag condition"));
        }
        let mut reader = Reader::new(condition.get_values().map_err(library)?);
        let values = read_elements(&mut reader, bounds)?;
        conditions.push(TagFilter { letter, values });
    }
    Ok(conditions)
}

/// Whether the sender's schema has fields after ours, and used one.
fn has_unknown_fields(filter: filter::Reader<'_>) -> bool {
    let known = <filter::Builder<'_> as HasStructSize>::STRUCT_SIZE;
    let data = raw::get_struct_data_section(filter);
    let pointers = raw::get_struct_pointer_section(filter);
    data.iter().skip(usize::from(known.data) * super::WORD_BYTES).any(|byte| *byte != 0)
        || (u32::from(known.pointers)..pointers.len()).any(|index| !pointers.get(index).is_null())
}

pub(super) fn read_relay<'a>(
    frame: &'a [u8],
    root: relay_msg::Reader<'_>,
) -> Result<RelayMessage<'a>, DecodeError> {
    Ok(match root.which().map_err(unknown)? {
        relay_msg::Event(event) => {
            let event = event.map_err(library)?;
            let bytes = in_frame(frame, event.get_event().map_err(library)?)?;
            RelayMessage::Event {
                subscription: read_text(frame, event.has_sub(), event.get_sub(), SUBSCRIPTION)?,
                event: Cow::Owned(super::Capnp.decode_event(bytes)?),
            }
        }
        relay_msg::Ok(ok) => {
            let ok = ok.map_err(library)?;
            let id = ok.get_id().map_err(library)?;
            RelayMessage::Ok {
                id: id.try_into().map_err(|_| DecodeError::Malformed("OK's event id"))?,
                accepted: ok.get_accepted(),
                text: read_text(frame, ok.has_text(), ok.get_text(), "OK's text")?,
            }
        }
        relay_msg::Eose(eose) => {
            let eose = eose.map_err(library)?;
            RelayMessage::Eose {
                subscription: read_text(frame, eose.has_sub(), eose.get_sub(), SUBSCRIPTION)?,
                hints: EoseHints { finish: eose.get_finish(), more: eose.get_more() },
            }
        }
        relay_msg::Closed(closed) => {
            let closed = closed.map_err(library)?;
            RelayMessage::Closed {
                subscription: read_text(frame, closed.has_sub(), closed.get_sub(), SUBSCRIPTION)?,
                text: read_text(frame, closed.has_text(), closed.get_text(), "CLOSED's text")?,
            }
        }
        relay_msg::Notice(text) => {
            RelayMessage::Notice { text: read_text(frame, root.has_notice(), text, "NOTICE's text")? }
        }
        relay_msg::Auth(text) => {
            RelayMessage::Auth { challenge: read_text(frame, root.has_auth(), text, "challenge")? }
        }
        relay_msg::Count(count) => {
            let count = count.map_err(library)?;
            let registers = || {
                let data = count.get_hll().map_err(library)?;
                data.try_into().map(Box::new).map_err(|_| DecodeError::Malformed("hll"))
            };
            RelayMessage::Count {
                subscription: read_text(frame, count.has_sub(), count.get_sub(), SUBSCRIPTION)?,
                count: count.get_count(),
                approximate: count.get_approximate(),
                hll: count.has_hll().then(registers).transpose()?,
            }
        }
        relay_msg::NegMsg(round) => {
            let (subscription, message) = read_round(frame, round)?;
            RelayMessage::NegMsg { subscription, message }
        }
        relay_msg::NegErr(error) => {
            let error = error.map_err(library)?;
            RelayMessage::NegErr {
                subscription: read_text(frame, error.has_sub(), error.get_sub(), SUBSCRIPTION)?,
                text: read_text(frame, error.has_text(), error.get_text(), "NEG-ERR's text")?,
            }
        }
        relay_msg::Events(batch) => {
            let batch = batch.map_err(library)?;
            let event = |data: capnp::Result<data::Reader<'_>>| {
                super::Capnp.decode_event(in_frame(frame, data.map_err(library)?)?)
            };
            let events = batch.get_events().map_err(library)?;
            if events.is_empty() {
                return Err(DecodeError::Missing("event"));
            }
            RelayMessage::Events {
                subscription: read_text(frame, batch.has_sub(), batch.get_sub(), SUBSCRIPTION)?,
                events: events.iter().map(event).collect::<Result<_, _>>()?,
            }
        }
    })
}

fn unknown(NotInSchema(ordinal): NotInSchema) -> DecodeError {
    DecodeError::UnknownMessage(format!("ordinal {ordinal}"))
}
