//! CBOR as other encoders write it: brought into the strict profile's one form, and then read by it.
//!
//! A peer that hands an event to its language's CBOR library gets well-formed CBOR, not ours: cbor-x gives every map a
//! head of three bytes and marks byte arrays and maps with tags 64 and 259; any library may write strings and lists in
//! pieces, keys in another order, and hex as the text it was. All of that is taken here. What is not a matter of
//! spelling stays refused: unknown tags, floats, duplicates, wrong types and lengths, whatever follows the message.

use std::{borrow::Cow, marker::PhantomData};

use super::{Cbor, Dialect, Known, OwnedEvent, item::MIN_HEX_LEN, read, strict::MAX_DEPTH};
use crate::{
    ClientMessage, Codec, DecodeError, EncodeError, Event, EventCodec, Limits, RelayMessage, hex,
    reader::Reader,
};

/// A CBOR format that reads what others write. It writes what the strict one does.
#[derive(Debug)]
pub(super) struct Lenient<D>(pub(super) PhantomData<D>);

impl<D: Dialect> EventCodec for Lenient<D> {
    fn encode_event(&self, event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        Cbor::<D>::NEW.encode_event(event, out)
    }

    fn decode_event<'a>(&self, bytes: &'a [u8]) -> Result<Event<'a>, DecodeError> {
        Cbor::<D>::NEW
            .decode_event(bytes)
            .or_else(|_| read::<OwnedEvent<D>>(&normalize::<D>(bytes, Root::Event)?).map(|event| event.0))
    }
}

impl<D: Dialect> Codec for Lenient<D> {
    fn encode_client(&self, message: &ClientMessage<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        Cbor::<D>::NEW.encode_client(message, out)
    }

    fn decode_client_within<'a>(
        &self,
        bytes: &'a [u8],
        limits: &Limits,
    ) -> Result<ClientMessage<'a>, DecodeError> {
        match Cbor::<D>::NEW.decode_client_within(bytes, limits) {
            Err(error) if !matches!(error, DecodeError::OverLimit(_)) => {
                let bytes = normalize::<D>(bytes, Root::Message)?;
                Cbor::<D>::NEW.decode_client_within(&bytes, limits).map(ClientMessage::into_owned)
            }
            result => result,
        }
    }

    fn encode_relay(&self, message: &RelayMessage<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        Cbor::<D>::NEW.encode_relay(message, out)
    }

    fn decode_relay<'a>(&self, bytes: &'a [u8]) -> Result<RelayMessage<'a>, DecodeError> {
        Cbor::<D>::NEW.decode_relay(bytes).or_else(|_| {
            read::<Known<D, RelayMessage<'a>>>(&normalize::<D>(bytes, Root::Message)?)?.into_result()
        })
    }

    fn wrap_event(&self, subscription: &str, event: &[u8], out: &mut Vec<u8>) {
        Cbor::<D>::NEW.wrap_event(subscription, event, out);
    }

    fn wrap_events(&self, subscription: &str, events: &[&[u8]], out: &mut Vec<u8>) {
        Cbor::<D>::NEW.wrap_events(subscription, events, out);
    }

    fn lenient(&self) -> Option<&'static dyn Codec> {
        Some(&Lenient::<D>(PhantomData))
    }
}

/// What the outermost item is.
#[derive(Clone, Copy)]
enum Root {
    Event,
    Message,
}

impl Root {
    /// How deep the arrays lie whose texts are tag values: event, tags, tag; or filter, conditions, values. A batch has
    /// its events one level deeper, and nothing else that is text in a list.
    fn values_depth(self) -> usize {
        match self {
            Root::Event => 2,
            Root::Message => 3,
        }
    }
}

/// The item that fills `bytes` in the form that the strict profile wants: shortest heads, definite lengths, keys in
/// their order, hex as bytes, no tags 64 and 259. Never much longer than `bytes`.
fn normalize<D: Dialect>(bytes: &[u8], root: Root) -> Result<Vec<u8>, DecodeError> {
    let mut rewriter = Rewriter { rest: Reader::new(bytes), spelled: D::SPELLED, values_depth: None };
    rewriter.values_depth = D::COMPACT.then(|| root.values_depth());
    let mut out = Vec::with_capacity(bytes.len());
    rewriter.item(0, false, &mut out)?;
    rewriter.rest.finish()?;
    Ok(out)
}

struct Rewriter<'a> {
    rest: Reader<'a>,
    spelled: bool,
    /// From how deep on text in lists becomes bytes where it is hex.
    values_depth: Option<usize>,
}

/// An argument, or "until the break".
type Length = Option<u64>;

const BREAK: u8 = 0xff;
const ARRAY: u8 = 4;
const MAP: u8 = 5;
const BYTE_STRING: u8 = 2;
const TEXT: u8 = 3;

impl Rewriter<'_> {
    /// Rewrites the next item; `is_value` says that it lies where tag values do.
    fn item(&mut self, depth: usize, is_value: bool, out: &mut Vec<u8>) -> Result<(), DecodeError> {
        let (mut major, mut length) = self.head()?;
        // Tags that only say what the item is anyway.
        while major == 6 {
            if !matches!(length, Some(64 | 259)) {
                return Err(DecodeError::NotCanonical("an item with a CBOR tag"));
            }
            (major, length) = self.head()?;
        }
        match (major, length) {
            (0 | 1, Some(number)) => write_head(major, number, out),
            (BYTE_STRING | TEXT, _) => self.string(major, length, is_value, out)?,
            (ARRAY, _) => {
                let is_value = self.values_depth.is_some_and(|least| depth >= least);
                let mut items = Vec::new();
                let count = self.each(depth, length, |this| this.item(depth + 1, is_value, &mut items))?;
                write_head(ARRAY, count, out);
                out.append(&mut items);
            }
            (MAP, _) => self.map(depth, length, out)?,
            (7, Some(20 | 21)) => write_head(7, length.unwrap_or_default(), out),
            _ => return Err(DecodeError::Malformed("message: a simple value other than false and true")),
        }
        Ok(())
    }

    fn map(&mut self, depth: usize, length: Length, out: &mut Vec<u8>) -> Result<(), DecodeError> {
        let mut entries: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let count = self.each(depth, length, |this| {
            let (mut key, mut value) = (Vec::new(), Vec::new());
            this.item(depth + 1, false, &mut key)?;
            this.item(depth + 1, false, &mut value)?;
            entries.push((key, value));
            Ok(())
        })?;
        let spelled = self.spelled;
        entries.sort_by(|(a, _), (b, _)| rank(a, spelled).cmp(&rank(b, spelled)));
        write_head(MAP, count, out);
        entries.into_iter().for_each(|(mut key, mut value)| {
            out.append(&mut key);
            out.append(&mut value);
        });
        Ok(())
    }

    /// Calls `read` for each of so many entries, or until the break; returns their number.
    fn each(
        &mut self,
        depth: usize,
        length: Length,
        mut read: impl FnMut(&mut Self) -> Result<(), DecodeError>,
    ) -> Result<u64, DecodeError> {
        if depth >= MAX_DEPTH {
            return Err(DecodeError::OutOfRange("nesting depth"));
        }
        let mut count = 0;
        while match length {
            Some(length) => count < length,
            None => !self.take_break(),
        } {
            read(self)?; // an entry takes a byte at least: a claim ends where the input does
            count += 1;
        }
        Ok(count)
    }

    fn string(
        &mut self,
        major: u8,
        length: Length,
        is_value: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        let what = if major == TEXT { "a text string" } else { "a byte string" };
        let mut content = Cow::Borrowed(&[][..]);
        match length {
            Some(length) => content = Cow::Borrowed(self.rest.bytes(length, what)?),
            None => {
                while !self.take_break() {
                    let (chunk, Some(length)) = self.head()? else {
                        return Err(DecodeError::Malformed("string: a piece without a length"));
                    };
                    if chunk != major {
                        return Err(DecodeError::Malformed("string: a piece of another type"));
                    }
                    content.to_mut().extend_from_slice(self.rest.bytes(length, what)?);
                }
            }
        }
        let text = (major == TEXT && is_value).then(|| str::from_utf8(&content)).and_then(Result::ok);
        if let Some(text) = text.filter(|text| hex::is_compactable(text, MIN_HEX_LEN)) {
            write_head(BYTE_STRING, text.len() as u64 / 2, out);
            hex::decode_into(text, out);
        } else {
            write_head(major, content.len() as u64, out);
            out.extend_from_slice(&content);
        }
        Ok(())
    }

    /// The major type and the argument in whatever width.
    fn head(&mut self) -> Result<(u8, Length), DecodeError> {
        let what = "a CBOR head";
        let first = self.rest.u8(what)?;
        let (major, info) = (first >> 5, first & 0x1f);
        let argument = match info {
            0..=23 => u64::from(info),
            24 if major < 7 => self.rest.u8(what)?.into(),
            25 if major < 7 => u16::from_be_bytes(self.rest.array(what)?).into(),
            26 if major < 7 => u32::from_be_bytes(self.rest.array(what)?).into(),
            27 if major < 7 => u64::from_be_bytes(self.rest.array(what)?),
            31 if (BYTE_STRING..=MAP).contains(&major) => return Ok((major, None)),
            _ => return Err(DecodeError::Malformed("message: a float, a break or a reserved head")),
        };
        Ok((major, Some(argument)))
    }

    fn take_break(&mut self) -> bool {
        let is_break = self.rest.rest().first() == Some(&BREAK);
        if is_break {
            let _ = self.rest.u8("a break");
        }
        is_break
    }
}

/// The names of events and filters in the order that the profile has for them, and then others, which ascend.
const ORDER: &[&[u8]] = &[
    b"\x62id",
    b"\x66pubkey",
    b"\x6acreated_at",
    b"\x64kind",
    b"\x64tags",
    b"\x67content",
    b"\x63sig",
    b"\x63ids",
    b"\x67authors",
    b"\x65kinds",
    b"\x65since",
    b"\x65until",
    b"\x65limit",
    b"\x66search",
];

/// Where an encoded key stands in its map.
fn rank(key: &[u8], spelled: bool) -> (usize, usize, &[u8]) {
    let known = ORDER.iter().position(|name| spelled && *name == key);
    (known.unwrap_or(ORDER.len()), key.len(), key)
}

/// Appends a head in its shortest form.
fn write_head(major: u8, argument: u64, out: &mut Vec<u8>) {
    let bytes = argument.to_be_bytes();
    let (info, width) = match argument {
        0..=23 => (bytes[7], 0),
        24..=0xff => (24, 1),
        0x100..=0xffff => (25, 2),
        0x1_0000..=0xffff_ffff => (26, 4),
        _ => (27, 8),
    };
    out.push(major << 5 | info);
    out.extend_from_slice(&bytes[8 - width..]);
}
