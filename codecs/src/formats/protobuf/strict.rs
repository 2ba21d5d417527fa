//! The strict profile of protobuf: each message in the one form that prost itself writes.
//!
//! Any protobuf reader takes fields in any order, twice, with padded varints and explicit defaults,
//! and skips unknown fields. So one event has endless encodings, and `kind` 65,537 may read as 1.
//! This walk goes over the bytes before prost does and allocates nothing for a message it accepts.
//! It is part of our decoding time and not of prost's. Its tables mirror `schema/nostr.proto`, and
//! nesting is as deep as the tables: bounded.
//!
//! Two doors stay open: fields after the last one of an event are extensions and ignored, as
//! unknown fields of JSON events are, and unknown fields of a filter are reported, since a relay
//! must answer them.

use crate::{DecodeError, Limits, Request, hex, model::Bounds, reader::Reader, text};

/// Shortest hex text stored as bytes, in formats that do so.
pub(in crate::formats) const MIN_HEX_CHARS: usize = 8;

/// A message: its fields in ascending order.
#[derive(Debug)]
pub(in crate::formats) struct Shape {
    fields: &'static [Field],
    unknown: Unknown,
}

#[derive(Debug)]
struct Field {
    number: u64,
    name: &'static str,
    value: Value,
    presence: Presence,
}

#[derive(Debug)]
enum Value {
    /// A varint up to this.
    Varint(u64),
    /// Text or bytes. UTF-8 is prost's to check, lengths of ids and keys the conversion's.
    Bytes,
    /// The subscription id of a request.
    Subscription,
    /// Varints up to this in one run: a list of a filter.
    Packed(u64),
    Message(&'static Shape),
    /// A tag, as this dialect writes it.
    Tag,
    /// A tag condition, as this dialect writes it.
    Condition,
    /// A message of one field: text, or bytes of lowercase hex.
    TextOrHex,
}

/// How a format writes tag values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::formats) enum Values {
    /// As text.
    Text,
    /// As text or as the bytes of hex.
    TextOrHex,
}

#[derive(Debug, PartialEq)]
enum Presence {
    /// Absent when zero or empty.
    Implicit,
    /// Present means set, even if zero or empty: `optional`, members of a oneof, messages.
    Explicit,
    /// Always there, and never empty.
    Required,
    Repeated,
    /// Repeated: a list in a filter, which has a limit.
    Entries,
    /// Repeated, and always there.
    OneOrMore,
}

#[derive(Debug)]
enum Unknown {
    Refuse,
    Ignore,
    /// Only in filters, which are counted.
    Report,
}

use Presence::{Entries, Explicit, Implicit, OneOrMore, Repeated, Required};
use Value::{Bytes, Condition, Message, Packed, Subscription, Tag, TextOrHex, Varint};

const fn field(number: u64, name: &'static str, value: Value, presence: Presence) -> Field {
    Field { number, name, value, presence }
}

const fn shape(fields: &'static [Field]) -> Shape {
    Shape { fields, unknown: Unknown::Refuse }
}

pub(super) const KIND_MAX: u64 = u16::MAX as u64;

pub(in crate::formats) static EVENT: Shape = Shape {
    fields: &[
        field(1, "id", Bytes, Required),
        field(2, "pubkey", Bytes, Required),
        field(3, "created_at", Varint(u64::MAX), Implicit),
        field(4, "kind", Varint(KIND_MAX), Implicit),
        field(5, "tags", Tag, Repeated),
        field(6, "content", Bytes, Implicit),
        field(7, "sig", Bytes, Required),
    ],
    unknown: Unknown::Ignore,
};
// The newer dialect of binostr writes field 2 here; skipping it would empty every tag.
static TAG: Shape = shape(&[field(1, "tag value", Bytes, Repeated)]);
static COMPACT_TAG: Shape = shape(&[field(2, "tag value", TextOrHex, Repeated)]);
static FILTER: Shape = Shape {
    fields: &[
        field(1, "ids", Bytes, Entries),
        field(2, "authors", Bytes, Entries),
        field(3, "kinds", Packed(KIND_MAX), Implicit),
        field(4, "since", Varint(u64::MAX), Explicit),
        field(5, "until", Varint(u64::MAX), Explicit),
        field(6, "limit", Varint(u64::MAX), Explicit),
        field(7, "search", Bytes, Explicit),
        field(8, "tag conditions", Condition, Repeated),
    ],
    unknown: Unknown::Report,
};
static TAG_FILTER: Shape =
    shape(&[field(1, "tag condition's letter", Bytes, Implicit), field(2, "tag condition", Bytes, Entries)]);
static COMPACT_TAG_FILTER: Shape = shape(&[
    field(1, "tag condition's letter", Bytes, Implicit),
    field(2, "tag condition", TextOrHex, Entries),
]);
static REQ: Shape = shape(&[
    field(1, "subscription", Subscription, Implicit),
    field(2, "filters", Message(&FILTER), Repeated),
]);
static SUB_EVENT: Shape =
    shape(&[field(1, "subscription", Bytes, Implicit), field(2, "event", Message(&EVENT), Required)]);
static SUB_EVENTS: Shape =
    shape(&[field(1, "subscription", Bytes, Implicit), field(2, "event", Message(&EVENT), OneOrMore)]);
static NEG_OPEN: Shape = shape(&[
    field(1, "subscription", Subscription, Implicit),
    field(2, "filter", Message(&FILTER), Required),
    field(3, "negentropy's message", Bytes, Implicit),
]);
static NEG: Shape =
    shape(&[field(1, "subscription", Bytes, Implicit), field(2, "negentropy's message", Bytes, Implicit)]);
static OK: Shape = shape(&[
    field(1, "OK's event id", Bytes, Required),
    field(2, "OK's verdict", Varint(1), Implicit),
    field(3, "OK's text", Bytes, Implicit),
]);
static EOSE: Shape =
    shape(&[field(1, "subscription", Bytes, Implicit), field(2, "EOSE's hints", Bytes, Repeated)]);
static CLOSED: Shape =
    shape(&[field(1, "subscription", Bytes, Implicit), field(2, "CLOSED's text", Bytes, Implicit)]);
static COUNT: Shape = shape(&[
    field(1, "subscription", Bytes, Implicit),
    field(2, "count", Varint(u64::MAX), Implicit),
    field(3, "COUNT's approximate", Varint(1), Implicit),
    field(4, "hll", Bytes, Implicit),
]);

/// The oneof that is a whole client message.
pub(in crate::formats) static CLIENT: Shape = shape(&[
    field(1, "EVENT", Message(&EVENT), Explicit),
    field(2, "REQ", Message(&REQ), Explicit),
    field(3, "CLOSE", Bytes, Explicit),
    field(4, "AUTH", Message(&EVENT), Explicit),
    field(5, "COUNT", Message(&REQ), Explicit),
    field(6, "NEG-OPEN", Message(&NEG_OPEN), Explicit),
    field(7, "NEG-MSG", Message(&NEG), Explicit),
    field(8, "NEG-CLOSE", Bytes, Explicit),
]);
/// The oneof that is a whole relay message.
pub(in crate::formats) static RELAY: Shape = shape(&[
    field(1, "EVENT", Message(&SUB_EVENT), Explicit),
    field(2, "OK", Message(&OK), Explicit),
    field(3, "EOSE", Message(&EOSE), Explicit),
    field(4, "CLOSED", Message(&CLOSED), Explicit),
    field(5, "NOTICE", Bytes, Explicit),
    field(6, "AUTH", Bytes, Explicit),
    field(7, "COUNT", Message(&COUNT), Explicit),
    field(8, "NEG-MSG", Message(&NEG), Explicit),
    field(9, "NEG-ERR", Message(&CLOSED), Explicit),
    field(10, "EVENTS", Message(&SUB_EVENTS), Explicit),
]);

/// Fields that prost drops: fields of a filter that the schema does not have.
#[derive(Debug)]
pub(in crate::formats) struct Walk<'a> {
    values: Values,
    /// Bounds of a request.
    bounds: Bounds<'a>,
    filters: usize,
    /// The position of a filter and its unknown field.
    pub(in crate::formats) unknown_filter_fields: Vec<(usize, u64)>,
}

/// Checks an event that fills `bytes`.
pub(in crate::formats) fn check_event(values: Values, bytes: &[u8]) -> Result<(), DecodeError> {
    Walk::new(values, &Limits::MOST, Request::Req)?.message(&EVENT, Reader::new(bytes))
}

/// Checks a message that fills `bytes`: exactly one member of its oneof, and a request within the
/// limits.
pub(in crate::formats) fn check_message<'a>(
    oneof: &Shape,
    values: Values,
    bytes: &'a [u8],
    limits: &'a Limits,
) -> Result<Walk<'a>, DecodeError> {
    let mut reader = Reader::new(bytes);
    if reader.is_empty() {
        return Err(DecodeError::Missing("message"));
    }
    let (number, wire) = key(&mut reader)?;
    let request = match number {
        5 => Request::Count,
        6 => Request::NegOpen,
        _ => Request::Req,
    };
    let mut walk = Walk::new(values, limits, request)?;
    match oneof.fields.iter().find(|field| field.number == number) {
        Some(field) => walk.value(field, wire, &mut reader)?,
        None => skip(wire, &mut reader)?,
    }
    reader.finish()?;
    if oneof.fields.iter().any(|field| field.number == number) {
        Ok(walk)
    } else {
        Err(DecodeError::UnknownMessage(format!("field {number}")))
    }
}

impl<'a> Walk<'a> {
    fn new(values: Values, limits: &'a Limits, request: Request) -> Result<Self, DecodeError> {
        let bounds = Bounds::new(limits, request, "")?; // an empty id is absent
        Ok(Walk { values, bounds, filters: 0, unknown_filter_fields: Vec::new() })
    }

    fn message(&mut self, shape: &'static Shape, mut reader: Reader<'a>) -> Result<(), DecodeError> {
        let filter = self.filters;
        if matches!(shape.unknown, Unknown::Report) {
            self.filters += 1;
            self.bounds.filters(self.filters)?;
        }
        let (mut last, mut rest, mut entries) = (0, shape.fields, 0);
        while !reader.is_empty() {
            let (number, wire) = key(&mut reader)?;
            if number < last {
                return Err(DecodeError::NotCanonical("order of fields"));
            }
            let passed = rest.iter().take_while(|field| field.number < number).count();
            without_required(&rest[..passed], last)?;
            rest = &rest[passed..];
            match rest.first().filter(|field| field.number == number) {
                Some(field)
                    if number == last && !matches!(field.presence, Repeated | Entries | OneOrMore) =>
                {
                    return Err(DecodeError::Duplicate(field.name));
                }
                Some(field) => {
                    entries = if number == last { entries + 1 } else { 1 };
                    if field.presence == Entries {
                        self.bounds.values(entries)?;
                    }
                    self.value(field, wire, &mut reader)?;
                }
                None => {
                    skip(wire, &mut reader)?;
                    match shape.unknown {
                        Unknown::Refuse => return Err(DecodeError::Malformed("message: unknown field")),
                        Unknown::Ignore => {}
                        Unknown::Report => self.report(filter, number),
                    }
                }
            }
            last = number;
        }
        without_required(rest, last)
    }

    fn value(
        &mut self,
        field: &'static Field,
        wire: u64,
        reader: &mut Reader<'a>,
    ) -> Result<(), DecodeError> {
        let name = field.name;
        let is_default = match (&field.value, wire) {
            (Varint(max), 0) => varint(*max, reader, name)? == 0,
            (Bytes, 2) => sized(reader, name)?.is_empty(),
            (Subscription, 2) => {
                let subscription = text::checked(sized(reader, name)?, name)?;
                self.bounds = self.bounds.named(subscription)?;
                subscription.is_empty()
            }
            (Packed(max), 2) => {
                let mut run = Reader::new(sized(reader, name)?);
                let is_default = run.is_empty();
                let mut entries = 0;
                while !run.is_empty() {
                    entries += 1;
                    self.bounds.values(entries)?;
                    varint(*max, &mut run, name)?;
                }
                is_default
            }
            (Message(_) | Tag | Condition, 2) => {
                let shape = match (&field.value, self.values) {
                    (Message(shape), _) => shape,
                    (Tag, Values::Text) => &TAG,
                    (Tag, Values::TextOrHex) => &COMPACT_TAG,
                    (_, Values::Text) => &TAG_FILTER,
                    (_, Values::TextOrHex) => &COMPACT_TAG_FILTER,
                };
                self.message(shape, Reader::new(sized(reader, name)?))?;
                false
            }
            (TextOrHex, 2) => {
                text_or_hex(Reader::new(sized(reader, name)?), name)?;
                false
            }
            _ => return Err(DecodeError::Malformed(name)),
        };
        if is_default && matches!(field.presence, Implicit | Required) {
            Err(DecodeError::NotCanonical(name))
        } else {
            Ok(())
        }
    }

    /// Remembers the first unknown field of each filter.
    fn report(&mut self, filter: usize, number: u64) {
        if self.unknown_filter_fields.last().is_none_or(|(earlier, _)| *earlier != filter) {
            self.unknown_filter_fields.push((filter, number));
        }
    }
}

/// A oneof of `text = 1` and `hex = 2`: exactly one of them, and hex wherever the rule has it.
fn text_or_hex(mut value: Reader<'_>, what: &'static str) -> Result<(), DecodeError> {
    let (number, wire) = key(&mut value)?;
    let payload =
        if wire == 2 { sized(&mut value, what)? } else { return Err(DecodeError::Malformed(what)) };
    value.finish().map_err(|_| DecodeError::Malformed(what))?;
    let canonical = match number {
        1 => !str::from_utf8(payload).is_ok_and(|text| hex::is_compactable(text, MIN_HEX_CHARS)),
        2 => 2 * payload.len() >= MIN_HEX_CHARS,
        _ => return Err(DecodeError::Malformed(what)),
    };
    if canonical { Ok(()) } else { Err(DecodeError::NotCanonical(what)) }
}

/// Fails if a required field is missing before `last`.
fn without_required(fields: &[Field], last: u64) -> Result<(), DecodeError> {
    let is_due = |field: &&Field| matches!(field.presence, Required | OneOrMore) && field.number != last;
    match fields.iter().find(is_due) {
        Some(field) => Err(DecodeError::Missing(field.name)),
        None => Ok(()),
    }
}

/// A field's number and wire type.
fn key(reader: &mut Reader<'_>) -> Result<(u64, u64), DecodeError> {
    let key = reader.varint("field key")?;
    if (1 << 3..1 << 32).contains(&key) {
        Ok((key >> 3, key & 7))
    } else {
        Err(DecodeError::OutOfRange("field key"))
    }
}

fn varint(max: u64, reader: &mut Reader<'_>, what: &'static str) -> Result<u64, DecodeError> {
    let value = reader.varint(what)?;
    if value <= max { Ok(value) } else { Err(DecodeError::OutOfRange(what)) }
}

fn sized<'a>(reader: &mut Reader<'a>, what: &'static str) -> Result<&'a [u8], DecodeError> {
    let len = reader.varint(what)?;
    reader.bytes(len, what)
}

/// Passes over a field that no table has. Groups, gone from proto3, are refused.
fn skip(wire: u64, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
    let what = "unknown field";
    match wire {
        0 => drop(reader.varint(what)?),
        1 => drop(reader.array::<8>(what)?),
        2 => drop(sized(reader, what)?),
        5 => drop(reader.array::<4>(what)?),
        _ => return Err(DecodeError::Malformed(what)),
    }
    Ok(())
}
