//! Properties of any bytes and any values: the fuzz targets ask them of new inputs,
//! `tests/it/fuzz_seeds.rs` of the committed ones, on stable Rust. Both compile this file.

use std::borrow::Cow;

use codecs::{
    BatchLayout, ByteEvent, ByteMessage, ClientMessage, Codec, DecodeError, EoseHints, Event, EventHead,
    Filter, Format, Implementation, Limits, OneForm, RelayMessage, TagFilter, notepack_text,
};

/// `events`: bytes as an event. Every implementation gives the same answer, and so do its head and
/// the event that keeps bytes; what is accepted can be written, reads back the same, and is the
/// event that JSON holds.
pub(crate) fn events(format: Format, bytes: &[u8]) {
    let codecs = implementations(format);
    let decoded = codecs[0].decode_event(bytes);
    for codec in &codecs[1..] {
        let other = codec.decode_event(bytes);
        assert_eq!(decoded.as_ref().ok(), other.as_ref().ok(), "{format}: {decoded:?} or {other:?}");
    }
    for codec in &codecs {
        let kept = codec.decode_keeping_bytes(bytes).ok();
        assert_eq!(kept, decoded.clone().ok().map(ByteEvent::from), "{format}: bytes of another event");
        if let Ok(event) = &decoded {
            let head = codec.peek(bytes);
            assert_eq!(head, Ok(EventHead::from(event)), "{format}: the head is another event's");
        } else {
            let _ = codec.peek(bytes); // may succeed: it reads no further than it must
        }
    }
    as_notepack_text(bytes);
    let Ok(event) = decoded else { return };
    // Every field was read from the input, so a field can be written again by every implementation,
    // and alike.
    let written = write(|out| codecs[0].encode_event(&event, out).map_err(|error| error.to_string()))
        .unwrap_or_else(|error| panic!("{format} read what it cannot write: {error}"));
    for codec in &codecs {
        let again = write(|out| codec.encode_event(&event, out)).expect("one implementation could write it");
        assert_eq!(again, written, "{format}: the implementations write different bytes");
        assert_eq!(codec.decode_event(&again).as_ref(), Ok(&event), "{format}: written and read again");
    }
    if format.spec().one_form != OneForm::Nothing {
        assert_eq!(written, bytes, "{format}: two forms of one event");
    }
    same_in_json(&event);
    if format.name() == "notepack" {
        let mut text = Vec::new();
        notepack_text::encode(&event, &mut text);
        assert_eq!(notepack_text::decode(&text).as_ref(), Ok(&event), "as text");
    }
    if format.name() == "nson" {
        let json = Format::JSON.spec().library.decode_event(bytes);
        assert_eq!(json.as_ref(), Ok(&event), "a reader of JSON sees another event");
    }
}

/// `batches`: bytes as a batch, in formats that have one. As [`events`].
pub(crate) fn batches(format: Format, bytes: &[u8]) {
    let readers: Vec<_> = Implementation::ALL.into_iter().filter_map(|who| format.batch(who)).collect();
    let Some(first) = readers.first() else { return };
    let decoded = first.decode(bytes);
    for reader in &readers {
        let other = reader.decode(bytes);
        assert_eq!(decoded.as_ref().ok(), other.as_ref().ok(), "{format}: {decoded:?} or {other:?}");
    }
    let Ok(events) = decoded else { return };
    for batch in &readers {
        let again = write(|out| batch.encode(&events, out)).expect("its events were read from one");
        assert_eq!(batch.decode(&again).as_ref(), Ok(&events), "{format}: written and read again");
        let layout = format.spec().batch;
        let in_order = !matches!(
            layout,
            Some(BatchLayout::JsonArray | BatchLayout::CapnpList | BatchLayout::CapnpPackedList)
        );
        if in_order && format.spec().one_form != OneForm::Nothing {
            assert_eq!(again, bytes, "{format}: two forms of one batch");
        }
    }
}

/// Any bytes as Notepack's text.
fn as_notepack_text(bytes: &[u8]) {
    if let Ok(event) = notepack_text::decode(bytes) {
        let mut again = Vec::new();
        notepack_text::encode(&event, &mut again);
        assert_eq!(again, bytes, "two texts of one event");
    }
}

/// `messages`: bytes as a message of either side. As [`events`], and the relay's EVENT is what the
/// splice makes.
pub(crate) fn messages(format: Format, bytes: &[u8]) {
    let codecs = implementations(format);
    client_message(format, &codecs, bytes);
    relay_message(format, &codecs, bytes);
}

fn client_message(format: Format, codecs: &[&dyn Codec], bytes: &[u8]) {
    let read = |codec: &dyn Codec, bytes: &[u8]| codec.decode_client(bytes).map(ClientMessage::into_owned);
    let decoded = read(codecs[0], bytes);
    for codec in &codecs[1..] {
        let other = read(*codec, bytes);
        assert_eq!(decoded.as_ref().ok(), other.as_ref().ok(), "{format}: {decoded:?} or {other:?}");
    }
    for codec in codecs {
        within_limits(format, *codec, bytes, decoded.as_ref().ok());
        canonical(format, *codec, bytes);
    }
    let Ok(message) = decoded else { return };
    if has_unknown_field(&message) {
        return; // reported, never written
    }
    let written = write(|out| codecs[0].encode_client(&message, out))
        .unwrap_or_else(|error| panic!("{format} read what it cannot write: {error}, {message:?}"));
    for codec in codecs {
        let again =
            write(|out| codec.encode_client(&message, out)).expect("one implementation could write it");
        assert_eq!(again, written, "{format}: the implementations write different bytes");
        assert_eq!(read(*codec, &again).as_ref(), Ok(&message), "{format}: written and read again");
    }
    let json = Format::JSON.spec().library;
    let text = write(|out| json.encode_client(&message, out)).expect("JSON holds every message");
    assert_eq!(read(json, &text), Ok(message), "{format}: seen through JSON");
}

/// Bytes that a relay may pass on as they came are those that the codec writes.
fn canonical(format: Format, codec: &dyn Codec, bytes: &[u8]) {
    let Ok(ClientMessage::Event(event)) = codec.decode_client(bytes) else { return };
    if let Some(found) = format.canonical_event(codec, bytes, &event) {
        let written = write(|out| codec.encode_event(&event, out)).expect("the message holds the event");
        assert_eq!(found, written, "{format}: passed on in another form");
    }
}

/// A reader with limits takes what one without them takes, as far as the limits reach.
fn within_limits(format: Format, codec: &dyn Codec, bytes: &[u8], message: Option<&ClientMessage<'static>>) {
    let limits = Limits {
        max_filters: 2,
        max_filter_values: 3,
        max_subscription_chars: 8,
        max_unpacked_bytes: usize::MAX,
    };
    let within = codec.decode_client_within(bytes, &limits).map(ClientMessage::into_owned);
    match (message, &within) {
        (Some(message), Ok(same)) => {
            assert_eq!(message, same, "{format}: limits change what is read");
            assert!(is_within(message, limits), "{format}: beyond the limits, {message:?}");
        }
        (Some(message), Err(error)) => {
            assert!(matches!(error, DecodeError::OverLimit(_)), "{format}: {error:?}");
            // Where a field is not known, its lists may be counted.
            let is_odd = has_unknown_field(message);
            assert!(is_odd || !is_within(message, limits), "{format}: {error:?}, but {message:?}");
        }
        (None, _) => assert!(within.is_err(), "{format}: only limits make this a message"),
    }
}

fn is_within(message: &ClientMessage<'_>, limits: Limits) -> bool {
    let (subscription, filters) = match message {
        ClientMessage::Req { subscription, filters } | ClientMessage::Count { subscription, filters } => {
            (subscription, filters.as_slice())
        }
        ClientMessage::NegOpen { subscription, filter, .. } => (subscription, std::slice::from_ref(filter)),
        _ => return true,
    };
    let fits = |len: Option<usize>| len.is_none_or(|len| len <= limits.max_filter_values);
    subscription.chars().count() <= limits.max_subscription_chars
        && filters.len() <= limits.max_filters
        && filters.iter().all(|Filter { ids, authors, kinds, tags, .. }| {
            fits(ids.as_ref().map(Vec::len))
                && fits(authors.as_ref().map(Vec::len))
                && fits(kinds.as_ref().map(Vec::len))
                && tags.iter().all(|condition| fits(Some(condition.values.len())))
        })
}

fn relay_message(format: Format, codecs: &[&dyn Codec], bytes: &[u8]) {
    let read = |codec: &dyn Codec, bytes: &[u8]| codec.decode_relay(bytes).map(RelayMessage::into_owned);
    let decoded = read(codecs[0], bytes);
    for codec in &codecs[1..] {
        let other = read(*codec, bytes);
        assert_eq!(decoded.as_ref().ok(), other.as_ref().ok(), "{format}: {decoded:?} or {other:?}");
    }
    for codec in codecs {
        let kept = codec.decode_relay_keeping_bytes(bytes).ok();
        assert_eq!(kept, decoded.clone().ok().map(ByteMessage::from), "{format}: bytes of another message");
    }
    let Ok(message) = decoded else { return };
    let written = write(|out| codecs[0].encode_relay(&message, out))
        .unwrap_or_else(|error| panic!("{format} read what it cannot write: {error}, {message:?}"));
    for codec in codecs {
        let again =
            write(|out| codec.encode_relay(&message, out)).expect("one implementation could write it");
        assert_eq!(again, written, "{format}: the implementations write different bytes");
        assert_eq!(read(*codec, &again).as_ref(), Ok(&message), "{format}: written and read again");
        if let RelayMessage::Event { subscription, event } = &message {
            let mut spliced = Vec::new();
            let event = write(|out| codec.encode_event(event, out)).expect("the message holds the event");
            let prefix_bytes = codec.wrap_event(subscription, &event, &mut spliced);
            assert_eq!(spliced, written, "{format}: the spliced event");
            assert!(spliced[prefix_bytes..].starts_with(&event), "{format}: the event is elsewhere");
        }
        if let RelayMessage::Events { subscription, events } = &message {
            let events: Vec<_> = events
                .iter()
                .map(|event| {
                    write(|out| codec.encode_event(event, out)).expect("the message holds the event")
                })
                .collect();
            let parts: Vec<_> = events.iter().map(Vec::as_slice).collect();
            let mut spliced = Vec::new();
            codec.wrap_events(subscription, &parts, &mut spliced);
            assert_eq!(spliced, written, "{format}: the spliced batch");
        }
    }
    if format.spec().one_form == OneForm::EventsAndRelayMessages {
        assert_eq!(written, bytes, "{format}: two forms of one message");
    }
    let json = Format::JSON.spec().library;
    let text = write(|out| json.encode_relay(&message, out)).expect("JSON holds every message");
    assert_eq!(read(json, &text), Ok(message), "{format}: seen through JSON");
}

/// `values`: bytes as the recipe of an event and of messages around it. What a format writes reads
/// back the same, alike in every implementation, and it refuses nothing that it can hold.
pub(crate) fn values(format: Format, bytes: &[u8]) {
    let mut recipe = Recipe(bytes);
    let event = recipe.event();
    let subscription = recipe.subscription();
    let codecs = implementations(format);
    let written = codecs.iter().map(|codec| write(|out| codec.encode_event(&event, out)).ok());
    let written: Vec<_> = written.collect();
    let fits = format.spec().capacity.holds(&event);
    for (codec, bytes) in codecs.iter().zip(&written) {
        assert_eq!(bytes.is_some(), fits, "{format}: {event:?}");
        assert_eq!(*bytes, written[0], "{format}: the implementations differ");
        let read = bytes.as_ref().map(|bytes| codec.decode_event(bytes));
        assert!(read.is_none_or(|read| read.as_ref() == Ok(&event)), "{format}: {event:?}");
    }
    let events = vec![event.clone(); usize::from(recipe.below(3))];
    for batch in Implementation::ALL.into_iter().filter_map(|who| format.batch(who)) {
        let written = write(|out| batch.encode(&events, out));
        assert_eq!(written.is_ok(), fits || events.is_empty(), "{format}: {written:?}");
        assert!(written.is_err() || batch.decode(&written.unwrap()).as_ref() == Ok(&events), "{format}");
    }
    for message in recipe.client_messages(&subscription, &event) {
        let fits = match &message {
            ClientMessage::Event(_) => fits,
            ClientMessage::Req { filters, .. } => filters.iter().all(|filter| can_ask(format, filter)),
            ClientMessage::NegOpen { filter, .. } => can_ask(format, filter),
            _ => true,
        };
        for codec in &codecs {
            let written = write(|out| codec.encode_client(&message, out));
            assert_eq!(written.is_ok(), fits, "{format}: {written:?} of {message:?}");
            let read = written.map(|bytes| codec.decode_client(&bytes).map(ClientMessage::into_owned));
            assert!(read.is_err() || read == Ok(Ok(message.clone())), "{format}: {read:?} of {message:?}");
        }
    }
    for (codec, event_bytes) in codecs.iter().zip(written) {
        let message = write(|out| codec.encode_client(&ClientMessage::Event(Cow::Borrowed(&event)), out));
        let found = message.as_ref().ok().and_then(|message| format.canonical_event(*codec, message, &event));
        let has_one = match format.spec().one_form {
            OneForm::Nothing => format == Format::JSON && !has_two_forms(&event),
            OneForm::Events | OneForm::EventsAndRelayMessages => true,
        };
        assert_eq!(found, event_bytes.as_deref().filter(|_| has_one), "{format}: passed on");
    }
    for message in recipe.relay_messages(&subscription, &event) {
        let has_event = matches!(message, RelayMessage::Event { .. } | RelayMessage::Events { .. });
        for codec in &codecs {
            let written = write(|out| codec.encode_relay(&message, out));
            assert_eq!(written.is_ok(), fits || !has_event, "{format}: {written:?} of {message:?}");
            let read = written.map(|bytes| codec.decode_relay(&bytes).map(RelayMessage::into_owned));
            assert!(read.is_err() || read == Ok(Ok(message.clone())), "{format}: {read:?} of {message:?}");
        }
    }
}

/// Control characters without a short escape, which JSON writes with hex digits of either case.
fn has_two_forms(event: &Event<'_>) -> bool {
    let odd = |c: char| c < ' ' && !"\n\r\t\u{8}\u{c}".contains(c);
    event.tags.iter().flatten().chain([&event.content]).any(|text| text.contains(odd))
}

/// Whether a format can write the filter: proto3 cannot tell an empty list from an absent one.
fn can_ask(format: Format, filter: &Filter) -> bool {
    let Filter { ids, authors, kinds, .. } = filter;
    let lens = [ids.as_ref().map(Vec::len), authors.as_ref().map(Vec::len), kinds.as_ref().map(Vec::len)];
    !format.name().starts_with("proto-") || !lens.contains(&Some(0))
}

/// An event that these bytes are the recipe of.
#[allow(dead_code, reason = "the fuzz targets need no event by itself")]
pub(crate) fn event(bytes: &[u8]) -> Event<'static> {
    Recipe(bytes).event()
}

fn implementations(format: Format) -> Vec<&'static dyn Codec> {
    Implementation::ALL.into_iter().filter_map(|who| format.codec(who).ok()).collect()
}

fn write<E>(encode: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<Vec<u8>, E> {
    let mut out = Vec::new();
    encode(&mut out).map(|()| out)
}

fn same_in_json(event: &Event<'_>) {
    let json = Format::JSON.spec().library;
    let text = write(|out| json.encode_event(event, out)).expect("JSON holds every event");
    assert_eq!(json.decode_event(&text).as_ref(), Ok(event), "seen through JSON");
}

fn has_unknown_field(message: &ClientMessage<'_>) -> bool {
    let filters = match message {
        ClientMessage::Req { filters, .. } | ClientMessage::Count { filters, .. } => filters.as_slice(),
        ClientMessage::NegOpen { filter, .. } => std::slice::from_ref(filter),
        _ => &[],
    };
    filters.iter().any(|filter| filter.unknown.is_some())
}

/// Turns a fuzzer's bytes into values, so that its small changes become small changes of an event.
/// Bytes that are missing at the end read as zero.
struct Recipe<'b>(&'b [u8]);

impl Recipe<'_> {
    fn byte(&mut self) -> u8 {
        let Some((byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *byte
    }

    fn below(&mut self, bound: u8) -> u8 {
        self.byte() % bound
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| self.byte())
    }

    /// An array from one byte: keys need no search.
    fn key<const N: usize>(&mut self) -> [u8; N] {
        [self.byte(); N]
    }

    /// A number near a border, or any.
    fn number(&mut self) -> u64 {
        match self.below(8) {
            0 => u64::from_le_bytes(self.array()),
            1 => u64::MAX - u64::from(self.byte()),
            _ => (1_u64 << self.below(64)).wrapping_add(u64::from(self.byte())).wrapping_sub(128),
        }
    }

    fn text(&mut self) -> String {
        let (how, len) = (self.below(8), usize::from(self.byte()));
        match how {
            0 => codecs::hex::encode(&vec![self.byte(); len]),
            1 => codecs::hex::encode(&vec![self.byte(); len]).to_uppercase(),
            2 => codecs::hex::encode(&vec![self.byte(); len])[len..].to_owned(),
            // Long enough for lengths of two bytes; rarely, because it is slow.
            3 => char::from(self.byte()).to_string().repeat(if self.byte() == 0xff { len << 4 } else { len }),
            4 => "\u{1F3F4}".repeat(len >> 2),
            _ => {
                let bytes: Vec<u8> = (0..len % 48).map(|_| self.byte()).collect();
                String::from_utf8_lossy(&bytes).into_owned()
            }
        }
    }

    fn event(&mut self) -> Event<'static> {
        let kind = u16::from_le_bytes(self.array());
        let created_at = self.number().cast_signed();
        let tags = (0..self.below(6)).map(|_| match self.below(32) {
            0 => vec![Cow::Borrowed("v"); 250 + usize::from(self.below(8))],
            values => (0..values % 5).map(|_| Cow::Owned(self.text())).collect(),
        });
        let tags = tags.collect();
        Event {
            id: self.key(),
            pubkey: self.key(),
            created_at,
            kind,
            tags,
            content: self.text().into(),
            sig: self.key(),
        }
    }

    fn subscription(&mut self) -> String {
        let mut text = self.text();
        text.truncate((0..=64).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0));
        text
    }

    fn filter(&mut self) -> Filter {
        let given = self.byte();
        let asked = |bit: u8| given >> bit & 1 == 1;
        let mut filter = Filter::default();
        if asked(0) {
            filter.ids = Some((0..self.below(4)).map(|_| self.key()).collect());
        }
        if asked(1) {
            filter.authors = Some((0..self.below(4)).map(|_| self.key()).collect());
        }
        if asked(2) {
            filter.kinds = Some((0..self.below(4)).map(|_| u16::from_le_bytes(self.array())).collect());
        }
        filter.since = asked(3).then(|| self.number().cast_signed());
        filter.until = asked(4).then(|| self.number().cast_signed());
        filter.limit = asked(5).then(|| self.number());
        filter.search = asked(6).then(|| self.text());
        if asked(7) {
            for letter in ['e', 'p', 'Z'].into_iter().take(1 + usize::from(self.below(3))) {
                let values = (0..self.below(4)).map(|_| self.text()).collect();
                filter.tags.push(TagFilter { letter, values });
            }
        }
        filter
    }

    fn client_messages(&mut self, subscription: &str, event: &Event<'static>) -> [ClientMessage<'static>; 5] {
        let subscription = || subscription.to_owned().into();
        let filters = (0..self.below(4)).map(|_| self.filter()).collect();
        let (filter, message) = (self.filter(), self.text().into_bytes());
        [
            ClientMessage::Req { subscription: subscription(), filters },
            ClientMessage::NegOpen { subscription: subscription(), filter, message: message.clone().into() },
            ClientMessage::NegMsg { subscription: subscription(), message: message.into() },
            ClientMessage::Close { subscription: subscription() },
            ClientMessage::Event(Cow::Owned(event.clone())),
        ]
    }

    fn relay_messages(&mut self, subscription: &str, event: &Event<'static>) -> [RelayMessage<'static>; 10] {
        let subscription = || subscription.to_owned().into();
        let hll = (self.below(4) == 0).then(|| Box::new([self.byte(); 256]));
        let hints = EoseHints { finish: self.below(2) == 1, more: self.below(2) == 1 };
        [
            RelayMessage::Event { subscription: subscription(), event: Cow::Owned(event.clone()) },
            RelayMessage::Ok { id: self.key(), accepted: self.below(2) == 1, text: self.text().into() },
            RelayMessage::Eose { subscription: subscription(), hints },
            RelayMessage::Closed { subscription: subscription(), text: self.text().into() },
            RelayMessage::Count {
                subscription: subscription(),
                count: self.number(),
                approximate: self.below(2) == 1,
                hll,
            },
            RelayMessage::NegMsg { subscription: subscription(), message: self.text().into_bytes().into() },
            RelayMessage::Events {
                subscription: subscription(),
                events: vec![event.clone(); 1 + usize::from(self.below(3))],
            },
            RelayMessage::NegErr { subscription: subscription(), text: self.text().into() },
            RelayMessage::Notice { text: self.text().into() },
            RelayMessage::Auth { challenge: self.text().into() },
        ]
    }
}
