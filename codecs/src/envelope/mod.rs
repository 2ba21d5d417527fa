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

use std::{borrow::Cow, slice};

pub(crate) use self::filter::{check_filters, read_elements, write_element};
use self::filter::{read_sized_filter, write_sized_filter};
use crate::{
    codec::{Codec, EventCodec, all_or_nothing, assert_batch},
    error::{DecodeError, EncodeError},
    model::{
        Bounds, ByteEvent, ByteMessage, ClientMessage, EoseHints, Event, EventHead, Filter, Limits,
        RelayMessage, Request,
    },
    reader::{Reader, write_sized, write_varint},
};

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
        all_or_nothing(out, |out| match message {
            ClientMessage::Event(event) => {
                out.push(0x01);
                self.event.encode_event(event, out)
            }
            ClientMessage::Req { subscription, filters } => {
                out.push(0x02);
                self.write_request(subscription, filters, out)
            }
            ClientMessage::Close { subscription } => {
                out.push(0x03);
                self.write_subscription(subscription, out)
            }
            ClientMessage::Auth(event) => {
                out.push(0x04);
                self.event.encode_event(event, out)
            }
            ClientMessage::Count { subscription, filters } => {
                out.push(0x05);
                self.write_request(subscription, filters, out)
            }
            ClientMessage::NegOpen { subscription, filter, message } => {
                out.push(0x06);
                check_filters(self.name, slice::from_ref(filter))?;
                self.write_subscription(subscription, out)?;
                write_sized_filter(filter, out);
                out.extend_from_slice(message);
                Ok(())
            }
            ClientMessage::NegMsg { subscription, message } => {
                out.push(0x07);
                self.write_subscription(subscription, out)?;
                out.extend_from_slice(message);
                Ok(())
            }
            ClientMessage::NegClose { subscription } => {
                out.push(0x08);
                self.write_subscription(subscription, out)
            }
        })
    }

    fn decode_client_within<'a>(
        &self,
        bytes: &'a [u8],
        limits: &Limits,
    ) -> Result<ClientMessage<'a>, DecodeError> {
        let mut reader = Reader::new(bytes);
        let message = match reader.u8("opcode")? {
            0x01 => ClientMessage::Event(Cow::Owned(self.event.decode_event(reader.take_rest())?)),
            0x02 => {
                let (subscription, filters) = read_request(&mut reader, limits, Request::Req)?;
                ClientMessage::Req { subscription, filters }
            }
            0x03 => ClientMessage::Close { subscription: read_subscription(&mut reader)? },
            0x04 => ClientMessage::Auth(Cow::Owned(self.event.decode_event(reader.take_rest())?)),
            0x05 => {
                let (subscription, filters) = read_request(&mut reader, limits, Request::Count)?;
                ClientMessage::Count { subscription, filters }
            }
            0x06 => {
                let subscription = read_subscription(&mut reader)?;
                let bounds = Bounds::new(limits, Request::NegOpen, &subscription)?;
                let filter = read_sized_filter(&mut reader, &bounds)?;
                ClientMessage::NegOpen { subscription, filter, message: reader.take_rest().into() }
            }
            0x07 => ClientMessage::NegMsg {
                subscription: read_subscription(&mut reader)?,
                message: reader.take_rest().into(),
            },
            0x08 => ClientMessage::NegClose { subscription: read_subscription(&mut reader)? },
            opcode => return Err(unknown(opcode)),
        };
        reader.finish()?;
        Ok(message)
    }

    fn encode_relay(&self, message: &RelayMessage<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        all_or_nothing(out, |out| {
            match message {
                RelayMessage::Event { subscription, event } => {
                    out.push(0x81);
                    self.write_subscription(subscription, out)?;
                    self.event.encode_event(event, out)?;
                }
                RelayMessage::Ok { id, accepted, text } => {
                    out.push(0x82);
                    out.extend_from_slice(id);
                    out.push(u8::from(*accepted));
                    out.extend_from_slice(text.as_bytes());
                }
                RelayMessage::Eose { subscription, hints } => {
                    out.push(0x83);
                    self.write_subscription(subscription, out)?;
                    out.push(u8::from(hints.finish) | u8::from(hints.more) << 1);
                }
                RelayMessage::Closed { subscription, text } => {
                    out.push(0x84);
                    self.write_subscription(subscription, out)?;
                    out.extend_from_slice(text.as_bytes());
                }
                RelayMessage::Notice { text } => {
                    out.push(0x85);
                    out.extend_from_slice(text.as_bytes());
                }
                RelayMessage::Auth { challenge } => {
                    out.push(0x86);
                    out.extend_from_slice(challenge.as_bytes());
                }
                RelayMessage::Count { subscription, count, approximate, hll } => {
                    out.push(0x87);
                    self.write_subscription(subscription, out)?;
                    write_varint(*count, out);
                    out.push(u8::from(*approximate) | u8::from(hll.is_some()) << 1);
                    out.extend_from_slice(hll.as_ref().map_or(&[], |registers| &registers[..]));
                }
                RelayMessage::NegMsg { subscription, message } => {
                    out.push(0x88);
                    self.write_subscription(subscription, out)?;
                    out.extend_from_slice(message);
                }
                RelayMessage::NegErr { subscription, text } => {
                    out.push(0x89);
                    self.write_subscription(subscription, out)?;
                    out.extend_from_slice(text.as_bytes());
                }
                RelayMessage::Events { subscription, events } => {
                    if events.is_empty() {
                        let what = "EVENTS without an event";
                        return Err(EncodeError::Unrepresentable { format: self.name, what });
                    }
                    out.push(0x8a);
                    self.write_subscription(subscription, out)?;
                    for event in events {
                        write_sized(out, |out| self.event.encode_event(event, out))?;
                    }
                }
            }
            Ok(())
        })
    }

    fn decode_relay<'a>(&self, bytes: &'a [u8]) -> Result<RelayMessage<'a>, DecodeError> {
        let mut reader = Reader::new(bytes);
        let message = match reader.u8("opcode")? {
            0x81 => RelayMessage::Event {
                subscription: read_subscription(&mut reader)?,
                event: Cow::Owned(self.event.decode_event(reader.take_rest())?),
            },
            0x82 => RelayMessage::Ok {
                id: reader.array("OK's event id")?,
                accepted: read_flags::<1>(&mut reader, "OK's verdict")? == [true],
                text: reader.rest_text("OK's text")?.into(),
            },
            0x83 => {
                let subscription = read_subscription(&mut reader)?;
                let [finish, more] = read_flags(&mut reader, "EOSE's hints")?;
                RelayMessage::Eose { subscription, hints: EoseHints { finish, more } }
            }
            0x84 => RelayMessage::Closed {
                subscription: read_subscription(&mut reader)?,
                text: reader.rest_text("CLOSED's text")?.into(),
            },
            0x85 => RelayMessage::Notice { text: reader.rest_text("NOTICE's text")?.into() },
            0x86 => RelayMessage::Auth { challenge: reader.rest_text("challenge")?.into() },
            0x87 => {
                let subscription = read_subscription(&mut reader)?;
                let count = reader.varint("count")?;
                let [approximate, has_hll] = read_flags(&mut reader, "COUNT's flags")?;
                let hll = has_hll.then(|| reader.array("hll").map(Box::new)).transpose()?;
                RelayMessage::Count { subscription, count, approximate, hll }
            }
            0x88 => RelayMessage::NegMsg {
                subscription: read_subscription(&mut reader)?,
                message: reader.take_rest().into(),
            },
            0x89 => RelayMessage::NegErr {
                subscription: read_subscription(&mut reader)?,
                text: reader.rest_text("NEG-ERR's text")?.into(),
            },
            0x8a => RelayMessage::Events {
                subscription: read_subscription(&mut reader)?,
                events: read_batch(&mut reader, |event| self.event.decode_event(event))?,
            },
            opcode => return Err(unknown(opcode)),
        };
        reader.finish()?;
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

    fn write_request(
        &self,
        subscription: &str,
        filters: &[Filter],
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        check_filters(self.name, filters)?;
        self.write_subscription(subscription, out)?;
        write_varint(filters.len() as u64, out);
        filters.iter().for_each(|filter| write_sized_filter(filter, out));
        Ok(())
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

fn read_request<'a>(
    reader: &mut Reader<'a>,
    limits: &Limits,
    request: Request,
) -> Result<(Cow<'a, str>, Vec<Filter>), DecodeError> {
    let subscription = read_subscription(reader)?;
    let bounds = Bounds::new(limits, request, &subscription)?;
    let count = reader.varint("number of filters")?;
    bounds.filters(usize::try_from(count).unwrap_or(usize::MAX))?;
    let filters = (0..count).map(|_| read_sized_filter(reader, &bounds)).collect::<Result<_, _>>()?;
    Ok((subscription, filters))
}

fn unknown(opcode: u8) -> DecodeError {
    DecodeError::UnknownMessage(format!("{opcode:#04x}"))
}
