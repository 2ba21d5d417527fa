//! Batches: events as one value without a message around them, as dannym-arx/binostr stores them.
//!
//! ```text
//! json                 [event,…]
//! cbor-*               an array of definite length (RFC 8949 §3.2.1) of events
//! proto-*              (0a vi(length) event)*, a message of one repeated field
//! capnp, capnp-packed  a message whose root is EventBatch in schema/nostr.capnp
//! dannypack, notepack  u32 LE events, for each: u32 LE length, event
//! ```
//!
//! EVENTS, the message, has a subscription and one event at least; a batch may hold none. Events
//! are read as strictly as single ones. A count is a claim: room is made as events prove to be
//! there, and nothing may follow the last.

use std::borrow::Borrow;

use super::{Format, Implementation, capnp, capnp_packed, cbor, json};
use crate::{
    Codec, DecodeError, EncodeError, Event,
    codec::all_or_nothing,
    reader::{Reader, write_sized},
};

/// Position of the events in a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchLayout {
    /// A JSON array.
    JsonArray,
    /// A CBOR array.
    CborArray,
    /// Field 1 of a protobuf message, repeated.
    ProtobufField,
    /// A Cap'n Proto list of structs.
    CapnpList,
    /// A Cap'n Proto list of structs, packed.
    CapnpPackedList,
    /// A count in front of all, a length in front of each.
    CountAndLengths,
}

/// Reads and writes the batches of a format; see [`Format::batch`].
///
/// ```
/// use codecs::{Event, Format, Implementation};
///
/// let (id, pubkey, sig) = ([1; 32], [2; 32], [3; 64]);
/// let event = Event { id, pubkey, created_at: 4, kind: 1, tags: vec![], content: "hi".into(), sig };
/// let batch = "dannypack".parse::<Format>()?.batch(Implementation::Library).expect("it has a layout");
/// let mut bytes = Vec::new();
/// batch.encode(&[&event, &event], &mut bytes)?;
/// assert_eq!(bytes[..4], 2_u32.to_le_bytes());
/// assert_eq!(batch.decode(&bytes)?, [event.clone(), event]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Batch {
    format: &'static str,
    layout: BatchLayout,
    by: Implementation,
    codec: &'static dyn Codec,
}

/// Field 1 of wire type 2.
const FIELD: u8 = 1 << 3 | 2;

impl Format {
    /// Reads and writes batches of this format by that implementation. `None` if the format has no
    /// such implementation or no batches, and for tuned Cap'n Proto: only the library reads its
    /// lists.
    pub fn batch(self, by: Implementation) -> Option<Batch> {
        let layout = self.spec().batch?;
        let codec = self.codec(by).ok()?;
        let is_list = matches!(layout, BatchLayout::CapnpList | BatchLayout::CapnpPackedList);
        let format = self.name();
        (by == Implementation::Library || !is_list).then_some(Batch { format, layout, by, codec })
    }
}

impl Batch {
    /// Appends the batch to `out`. On error `out` is unchanged.
    ///
    /// # Errors
    /// [`EncodeError`] if the format cannot hold an event, or this many.
    pub fn encode<'e>(
        &self,
        events: &[impl Borrow<Event<'e>>],
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        let each = events.iter().map(Borrow::borrow);
        all_or_nothing(out, |out| match self.layout {
            BatchLayout::JsonArray => {
                out.push(b'[');
                for (index, event) in each.enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    self.codec.encode_event(event, out)?;
                }
                out.push(b']');
                Ok(())
            }
            BatchLayout::CborArray => {
                cbor::write_array_head(events.len(), out);
                each.into_iter().try_for_each(|event| self.codec.encode_event(event, out))
            }
            BatchLayout::ProtobufField => each.into_iter().try_for_each(|event| {
                out.push(FIELD);
                write_sized(out, |out| self.codec.encode_event(event, out))
            }),
            BatchLayout::CapnpList => capnp::write_batch(each, out),
            BatchLayout::CapnpPackedList => capnp_packed::write_batch(each, out),
            BatchLayout::CountAndLengths => {
                out.extend_from_slice(&self.u32(events.len(), "a number of events")?);
                each.into_iter().try_for_each(|event| {
                    let start = out.len() + 4;
                    out.extend_from_slice(&[0; 4]);
                    self.codec.encode_event(event, out)?;
                    let length = self.u32(out.len() - start, "an event in bytes")?;
                    out[start - 4..start].copy_from_slice(&length);
                    Ok(())
                })
            }
        })
    }

    /// Reads a batch that fills `bytes` exactly. Never panics, never allocates more than `bytes`
    /// can justify.
    ///
    /// # Errors
    /// [`DecodeError`] for anything that the strict profile of the format does not allow in an
    /// event, a count or length beyond the end, and bytes after the last event.
    pub fn decode<'a>(&self, bytes: &'a [u8]) -> Result<Vec<Event<'a>>, DecodeError> {
        let mut events = Vec::new();
        let add = |event: &'a [u8]| self.codec.decode_event(event).map(|event| events.push(event));
        match (self.layout, self.by) {
            (BatchLayout::JsonArray, Implementation::Library) => return json::read_array(bytes),
            (BatchLayout::JsonArray, Implementation::Tuned) => return json::read_tuned_array(bytes),
            (BatchLayout::CborArray, _) => cbor::read_array(bytes, add)?,
            (BatchLayout::ProtobufField, _) => read_fields(bytes, add)?,
            (BatchLayout::CapnpList, _) => return capnp::read_batch(bytes),
            (BatchLayout::CapnpPackedList, _) => return capnp_packed::read_batch(bytes),
            (BatchLayout::CountAndLengths, _) => read_counted(bytes, add)?,
        }
        Ok(events)
    }

    fn u32(&self, actual: usize, what: &'static str) -> Result<[u8; 4], EncodeError> {
        let max = u32::MAX as usize;
        let number = u32::try_from(actual);
        number.map(u32::to_le_bytes).map_err(|_| EncodeError::TooLarge {
            format: self.format,
            what,
            actual,
            max,
        })
    }
}

fn read_fields<'a>(
    bytes: &'a [u8],
    mut add: impl FnMut(&'a [u8]) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let mut reader = Reader::new(bytes);
    while !reader.is_empty() {
        if reader.u8("field of a batch")? != FIELD {
            return Err(DecodeError::Malformed("field of a batch"));
        }
        let len = reader.varint("event's length")?;
        add(reader.bytes(len, "event")?)?;
    }
    Ok(())
}

fn read_counted<'a>(
    bytes: &'a [u8],
    mut add: impl FnMut(&'a [u8]) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let mut reader = Reader::new(bytes);
    for _ in 0..u32::from_le_bytes(reader.array("number of events")?) {
        let len = u32::from_le_bytes(reader.array("event's length")?);
        add(reader.bytes(u64::from(len), "event")?)?;
    }
    reader.finish()
}
