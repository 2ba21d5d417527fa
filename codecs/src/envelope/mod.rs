//! The common envelope: whole messages for formats that define only an event.
//!
//! ```text
//! client   01 event…                relay   81 s8(sub) event…
//!          02 s8(sub) vi(n) filter*         82 id[32] u8(accepted) text…
//!          03 s8(sub)                       83 s8(sub) u8(bit 0 finish, bit 1 more)
//!          04 event…                        84 s8(sub) text…
//!          05 s8(sub) vi(n) filter*         85 text…
//!          06 s8(sub) filter bytes…         86 text…
//!          07 s8(sub) bytes…                87 s8(sub) vi(count) u8(bit 0 approximate, bit 1 hll) [256]
//!          08 s8(sub)                       88 s8(sub) bytes…
//!                                           89 s8(sub) text…
//!                                           8a s8(sub) (vi(length) event)+
//! filter   vi(byte length) field*
//! field    u8(tag) vi(length) payload: 1 ids 32n; 2 authors 32n; 3 kinds vi*; 4 since vi; 5 until vi; 6 limit vi;
//!          7 search text; 8 letter u8, then elem*
//! elem     vi(2 * length + is_bytes) payload
//! ```
//!
//! `s8` is a u8 length and UTF-8, `vi` an unsigned LEB128 number in its shortest form, `…` reaches
//! to the end of the message. `since` and `until` are cast through u64, so a time before 1970 takes
//! ten bytes. A filter's fields ascend and occur once, except 8, which occurs once for each letter;
//! an unknown field ends up in [`Filter::unknown`]. An `elem` is bytes exactly when its text is
//! lowercase hex, of even length and at least 8 digits long (the rule B of the formats that compact
//! tag values): each message has one form. `bytes` are a message of the negentropy protocol
//! (NIP-77). Room for the events of a batch is made as they prove to be there.

mod filter;

use std::borrow::Cow;

pub(crate) use self::filter::{check_filters, read_elements, read_keys, read_kinds, write_element};
use self::filter::{read_sized_filter, write_sized_filter};
use crate::{
    codec::{Codec, EventCodec, all_or_nothing, assert_batch},
    error::{DecodeError, EncodeError},
    model::{
        Bounds, ByteEvent, ByteMessage, ClientMessage, EoseHints, Event, EventHead, Filter, Limits,
        RelayMessage,
    },
    parts::{ReadParts, Registers, WriteParts, read_client, read_relay, write_client, write_relay},
    reader::{Reader, write_sized, write_varint},
};

/// Opcodes of a relay's messages have this bit.
const RELAY: u8 = 0x80;

/// An event format in the common envelope.
#[derive(Debug)]
pub(crate) struct Common<E> {
    /// The format's name, for errors.
    pub(crate) name: &'static str,
    /// Reads and writes the events.
    pub(crate) event: E,
}

impl<E: EventCodec> EventCodec for Common<E> {
    fn encode_event(&self, event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        all_or_nothing(out, |out| self.event.encode_event(event, out))
    }

    fn decode_event<'a>(&self, bytes: &'a [u8]) -> Result<Event<'a>, DecodeError> {
        self.event.decode_event(bytes)
    }

    fn decode_keeping_bytes<'a>(&self, bytes: &'a [u8]) -> Result<ByteEvent<'a>, DecodeError> {
        self.event.decode_keeping_bytes(bytes)
    }

    fn peek(&self, bytes: &[u8]) -> Result<EventHead, DecodeError> {
        self.event.peek(bytes)
    }
}

impl<E: EventCodec> Codec for Common<E> {
    fn encode_client(&self, message: &ClientMessage<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        all_or_nothing(out, |out| write_client(message, &mut Writing { common: self, side: 0, out }))
    }

    fn decode_client_within<'a>(
        &self,
        bytes: &'a [u8],
        limits: &Limits,
    ) -> Result<ClientMessage<'a>, DecodeError> {
        let mut reader = Reader::new(bytes);
        let opcode = reader.u8("opcode")?;
        let mut parts = Reading { common: self, opcode, reader };
        let message = read_client(opcode, &mut parts, limits)?;
        parts.reader.finish()?;
        Ok(message)
    }

    fn encode_relay(&self, message: &RelayMessage<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        all_or_nothing(out, |out| write_relay(message, &mut Writing { common: self, side: RELAY, out }))
    }

    fn decode_relay<'a>(&self, bytes: &'a [u8]) -> Result<RelayMessage<'a>, DecodeError> {
        let mut reader = Reader::new(bytes);
        let opcode = reader.u8("opcode")?;
        let mut parts = Reading { common: self, opcode, reader };
        let message = read_relay(opcode ^ RELAY, &mut parts)?;
        parts.reader.finish()?;
        Ok(message)
    }

    fn decode_relay_keeping_bytes<'a>(&self, bytes: &'a [u8]) -> Result<ByteMessage<'a>, DecodeError> {
        let mut reader = Reader::new(bytes);
        let message = match reader.u8("opcode")? {
            0x81 => ByteMessage::Event {
                subscription: read_subscription(&mut reader)?,
                event: self.event.decode_keeping_bytes(reader.take_rest())?,
            },
            0x8a => ByteMessage::Events {
                subscription: read_subscription(&mut reader)?,
                events: read_batch(&mut reader, |event| self.event.decode_keeping_bytes(event))?,
            },
            _ => return self.decode_relay(bytes).map(ByteMessage::Other),
        };
        reader.finish()?;
        Ok(message)
    }

    /// # Panics
    /// When `subscription` is longer than 255 bytes: this format's decoder cannot have read it from
    /// anyone.
    fn around_event(&self, subscription: &str, _event: &[u8], out: &mut Vec<u8>) -> &'static [u8] {
        out.push(0x81);
        self.write_subscription(subscription, out)
            .expect("a subscription that came in this envelope fits its one length byte");
        &[]
    }

    /// # Panics
    /// When `events` is empty, or `subscription` longer than 255 bytes, as in
    /// [`Codec::wrap_event`].
    fn wrap_events(&self, subscription: &str, events: &[&[u8]], out: &mut Vec<u8>) {
        assert_batch(events);
        out.push(0x8a);
        self.write_subscription(subscription, out)
            .expect("a subscription that came in this envelope fits its one length byte");
        for event in events {
            write_varint(event.len() as u64, out);
            out.extend_from_slice(event);
        }
    }

    fn event_in<'a>(&self, message: &'a [u8]) -> Option<&'a [u8]> {
        message.strip_prefix(&[0x01])
    }

    fn peek_relay<'a>(&self, bytes: &'a [u8]) -> Option<(Cow<'a, str>, EventHead)> {
        let mut reader = Reader::new(bytes.strip_prefix(&[0x81])?);
        let subscription = read_subscription(&mut reader).ok()?;
        self.event.peek(reader.rest()).ok().map(|head| (subscription, head))
    }
}

impl<E> Common<E> {
    fn write_subscription(&self, subscription: &str, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let len = u8::try_from(subscription.len()).map_err(|_| EncodeError::TooLarge {
            format: self.name,
            what: "a subscription id in bytes",
            actual: subscription.len(),
            max: usize::from(u8::MAX),
        })?;
        out.push(len);
        out.extend_from_slice(subscription.as_bytes());
        Ok(())
    }
}

/// A message of one side that is being written.
struct Writing<'c, 'o, E> {
    common: &'c Common<E>,
    side: u8,
    out: &'o mut Vec<u8>,
}

impl<E: EventCodec> WriteParts for Writing<'_, '_, E> {
    fn format(&self) -> &'static str {
        self.common.name
    }

    fn begin(&mut self, verb: u8, _parts: usize) {
        self.out.push(self.side | verb);
    }

    fn subscription(&mut self, subscription: &str) -> Result<(), EncodeError> {
        self.common.write_subscription(subscription, self.out)
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    fn id(&mut self, id: &[u8; 32]) {
        self.bytes(id);
    }

    fn flag(&mut self, flag: bool) {
        self.out.push(u8::from(flag));
    }

    fn hints(&mut self, hints: EoseHints) {
        self.out.push(u8::from(hints.finish) | u8::from(hints.more) << 1);
    }

    fn count(&mut self, count: u64, approximate: bool, hll: Option<&[u8; 256]>) {
        write_varint(count, self.out);
        self.out.push(u8::from(approximate) | u8::from(hll.is_some()) << 1);
        self.bytes(hll.map_or(&[], |registers| registers));
    }

    fn event(&mut self, event: &Event<'_>) -> Result<(), EncodeError> {
        self.common.event.encode_event(event, self.out)
    }

    fn events(&mut self, events: &[Event<'_>]) -> Result<(), EncodeError> {
        let codec = &self.common.event;
        events.iter().try_for_each(|event| write_sized(self.out, |out| codec.encode_event(event, out)))
    }

    fn filter(&mut self, filter: &Filter) -> Result<(), EncodeError> {
        write_sized_filter(filter, self.out);
        Ok(())
    }

    fn filters(&mut self, filters: &[Filter]) -> Result<(), EncodeError> {
        write_varint(filters.len() as u64, self.out);
        filters.iter().try_for_each(|filter| self.filter(filter))
    }
}

/// A message that is being read, behind its opcode.
struct Reading<'c, 'a, E> {
    common: &'c Common<E>,
    opcode: u8,
    reader: Reader<'a>,
}

impl<'a, E: EventCodec> ReadParts<'a> for Reading<'_, 'a, E> {
    fn unknown(&self) -> DecodeError {
        DecodeError::UnknownMessage(format!("{:#04x}", self.opcode))
    }

    fn subscription(&mut self) -> Result<Cow<'a, str>, DecodeError> {
        read_subscription(&mut self.reader)
    }

    fn text(&mut self, what: &'static str) -> Result<Cow<'a, str>, DecodeError> {
        self.reader.rest_text(what).map(Cow::Borrowed)
    }

    fn bytes(&mut self) -> Result<Cow<'a, [u8]>, DecodeError> {
        Ok(self.reader.take_rest().into())
    }

    fn id(&mut self) -> Result<[u8; 32], DecodeError> {
        self.reader.array("OK's event id")
    }

    fn flag(&mut self, what: &'static str) -> Result<bool, DecodeError> {
        read_flags::<1>(&mut self.reader, what).map(|[flag]| flag)
    }

    fn hints(&mut self) -> Result<EoseHints, DecodeError> {
        let [finish, more] = read_flags(&mut self.reader, "EOSE's hints")?;
        Ok(EoseHints { finish, more })
    }

    fn count(&mut self) -> Result<(u64, bool, Option<Registers>), DecodeError> {
        let count = self.reader.varint("count")?;
        let [approximate, has_hll] = read_flags(&mut self.reader, "COUNT's flags")?;
        let hll = has_hll.then(|| self.reader.array("hll").map(Box::new)).transpose()?;
        Ok((count, approximate, hll))
    }

    #[inline]
    fn event(&mut self) -> Result<Event<'a>, DecodeError> {
        self.common.event.decode_event(self.reader.take_rest())
    }

    fn events(&mut self) -> Result<Vec<Event<'a>>, DecodeError> {
        read_batch(&mut self.reader, |event| self.common.event.decode_event(event))
    }

    fn filter(&mut self, bounds: &Bounds<'_>) -> Result<Filter, DecodeError> {
        read_sized_filter(&mut self.reader, bounds)
    }

    fn filters(&mut self, bounds: &Bounds<'_>) -> Result<Vec<Filter>, DecodeError> {
        let count = self.reader.varint("number of filters")?;
        bounds.filters(usize::try_from(count).unwrap_or(usize::MAX))?;
        (0..count).map(|_| self.filter(bounds)).collect()
    }
}

fn read_batch<'a, T>(
    reader: &mut Reader<'a>,
    read: impl Fn(&'a [u8]) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let mut events = Vec::new();
    while !reader.is_empty() || events.is_empty() {
        let len = reader.varint("event's length")?;
        events.push(read(reader.bytes(len, "event")?)?);
    }
    Ok(events)
}

fn read_subscription<'a>(reader: &mut Reader<'a>) -> Result<Cow<'a, str>, DecodeError> {
    let len = reader.u8("subscription's length")?;
    reader.text(u64::from(len), "subscription").map(Cow::Borrowed)
}

/// A byte of flags in its lowest `N` bits; the others are zero.
fn read_flags<const N: usize>(reader: &mut Reader<'_>, what: &'static str) -> Result<[bool; N], DecodeError> {
    let byte = reader.u8(what)?;
    if byte >> N != 0 {
        return Err(DecodeError::OutOfRange(what));
    }
    Ok(std::array::from_fn(|bit| byte >> bit & 1 == 1))
}
