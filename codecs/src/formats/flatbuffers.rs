//! FlatBuffers, written by the `flatbuffers` crate; see schema/nostr.fbs.
//!
//! ```text
//! buffer   u32(offset of Event), tables, vectors and strings; offsets count from where they stand, all little-endian
//! table    i32(back to its vtable), fields; vtable: u16 own bytes, u16 table's bytes, u16 for each field's place or 0
//! Event    id:[ubyte] pubkey:[ubyte] created_at:long kind:ushort tags:[Tag] content:string sig:[ubyte]
//! Tag      values:[TagValue]        TagValue   text:string or hex:[ubyte]
//! vector   u32(entries), entries    string     u32(bytes), text, 00
//! ```
//!
//! Tag values that are lowercase hex of even length from 8 digits on are `hex`. Zero numbers are
//! left out. Written in the order of generated code: id, pubkey, sig, content, each value and its
//! table, each tag, then the event.
//!
//! Read here and not by the crate: its readers are generated code full of `unsafe`, which this workspace
//! forbids. Like its verifier this one checks every offset, length, alignment and NUL. One event has many
//! layouts, and an offset may point at bytes that were read before. So all reads together, repeats
//! included, must fit into the frame, and its last byte must belong to something. Fields that a later
//! schema adds to Event or Tag are ignored.

use std::borrow::Cow;

use flatbuffers::{FlatBufferBuilder, TableFinishedWIPOffset, VOffsetT, WIPOffset};

use crate::{DecodeError, EncodeError, Event, EventCodec, Tag, hex};

/// Shortest hex text stored as bytes.
const MIN_HEX_CHARS: usize = 8;

/// The crate asserts that a buffer stays below 2 GiB.
const MAX_TEXT_BYTES: usize = 1 << 28;

/// A field's position in the vtable: 4 + 2 × its number in the schema.
mod slot {
    pub(super) const ID: u16 = 4;
    pub(super) const PUBKEY: u16 = 6;
    pub(super) const CREATED_AT: u16 = 8;
    pub(super) const KIND: u16 = 10;
    pub(super) const TAGS: u16 = 12;
    pub(super) const CONTENT: u16 = 14;
    pub(super) const SIG: u16 = 16;
    pub(super) const VALUES: u16 = 4;
    pub(super) const TEXT: u16 = 4;
    pub(super) const HEX: u16 = 6;
}

#[derive(Debug)]
pub(super) struct FlatBuffers;

impl EventCodec for FlatBuffers {
    fn encode_event(&self, event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let values = event.tags.iter().flatten();
        let actual =
            event.content.len() + event.tags.len() + values.map(|value| value.len() + 1).sum::<usize>();
        if actual > MAX_TEXT_BYTES {
            let what = "content and tags of a size in bytes";
            return Err(EncodeError::TooLarge { format: "flatbuffers", what, actual, max: MAX_TEXT_BYTES });
        }
        let mut builder = FlatBufferBuilder::new();
        let id = builder.create_vector(&event.id);
        let pubkey = builder.create_vector(&event.pubkey);
        let sig = builder.create_vector(&event.sig);
        let content = builder.create_string(&event.content);
        let tags: Vec<_> = event.tags.iter().map(|tag| write_tag(tag, &mut builder)).collect();
        let tags = builder.create_vector(&tags);
        let table = builder.start_table();
        builder.push_slot(slot::CREATED_AT, event.created_at, 0);
        builder.push_slot_always(slot::SIG, sig);
        builder.push_slot_always(slot::CONTENT, content);
        builder.push_slot_always(slot::TAGS, tags);
        builder.push_slot_always(slot::PUBKEY, pubkey);
        builder.push_slot_always(slot::ID, id);
        builder.push_slot(slot::KIND, event.kind, 0);
        let table = builder.end_table(table);
        builder.finish_minimal(table);
        out.extend_from_slice(builder.finished_data());
        Ok(())
    }

    fn decode_event<'a>(&self, bytes: &'a [u8]) -> Result<Event<'a>, DecodeError> {
        let mut buffer = Buffer { bytes, unread: bytes.len(), end: 0 };
        let root = buffer.offset(0, "root")?;
        buffer.read(0, 4, "root")?;
        let event = buffer.table(root, "event")?;
        let id = key(&mut buffer, &event, slot::ID, "id")?;
        let pubkey = key(&mut buffer, &event, slot::PUBKEY, "pubkey")?;
        let sig = key(&mut buffer, &event, slot::SIG, "sig")?;
        let created_at = buffer.number::<8>(&event, slot::CREATED_AT, "created_at")?;
        let kind = buffer.number::<2>(&event, slot::KIND, "kind")?;
        let content =
            buffer.string(&event, slot::CONTENT, "content")?.ok_or(DecodeError::Missing("content"))?;
        let tags = read_tags(&mut buffer, &event)?;
        buffer.finish()?;
        Ok(Event {
            id,
            pubkey,
            created_at: i64::from_le_bytes(created_at),
            kind: u16::from_le_bytes(kind),
            tags,
            content: Cow::Borrowed(content),
            sig,
        })
    }
}

type Finished = WIPOffset<TableFinishedWIPOffset>;

fn write_tag(tag: &Tag<'_>, builder: &mut FlatBufferBuilder<'_>) -> Finished {
    let values: Vec<_> = tag.iter().map(|value| write_value(value, builder)).collect();
    let values = builder.create_vector(&values);
    one_field(builder, slot::VALUES, values)
}

fn write_value(value: &str, builder: &mut FlatBufferBuilder<'_>) -> Finished {
    if hex::is_compactable(value, MIN_HEX_CHARS) {
        let bytes = hex::decode(value.as_bytes()).expect("the text was found to be lowercase hex");
        let bytes = builder.create_vector(&bytes);
        one_field(builder, slot::HEX, bytes)
    } else {
        let text = builder.create_string(value);
        one_field(builder, slot::TEXT, text)
    }
}

fn one_field<T>(builder: &mut FlatBufferBuilder<'_>, slot: VOffsetT, value: WIPOffset<T>) -> Finished {
    let table = builder.start_table();
    builder.push_slot_always(slot, value);
    builder.end_table(table)
}

// --- reading ---

fn read_tags<'a>(buffer: &mut Buffer<'a>, event: &Table) -> Result<Vec<Tag<'a>>, DecodeError> {
    let mut tags = Vec::new();
    for at in buffer.tables(event, slot::TAGS, "tags")? {
        let table = buffer.table(at?, "tag")?;
        let mut tag = Tag::new();
        for at in buffer.tables(&table, slot::VALUES, "tag value")? {
            let value = buffer.table(at?, "tag value")?;
            tag.push(read_value(buffer, &value)?);
        }
        tags.push(tag);
    }
    Ok(tags)
}

fn read_value<'a>(buffer: &mut Buffer<'a>, value: &Table) -> Result<Cow<'a, str>, DecodeError> {
    let what = "tag value";
    let text = buffer.string(value, slot::TEXT, what)?;
    let bytes = buffer.vector::<1>(value, slot::HEX, what)?;
    let (value, canonical) = match (text, bytes) {
        (Some(text), None) => (Cow::Borrowed(text), !hex::is_compactable(text, MIN_HEX_CHARS)),
        (None, Some(raw)) => (Cow::Owned(hex::encode(raw)), 2 * raw.len() >= MIN_HEX_CHARS),
        _ => return Err(DecodeError::Malformed("tag value, which is text or hex")),
    };
    if canonical { Ok(value) } else { Err(DecodeError::NotCanonical(what)) }
}

fn key<const N: usize>(
    buffer: &mut Buffer<'_>,
    event: &Table,
    slot: u16,
    what: &'static str,
) -> Result<[u8; N], DecodeError> {
    let bytes = buffer.vector::<1>(event, slot, what)?.ok_or(DecodeError::Missing(what))?;
    bytes.try_into().map_err(|_| DecodeError::Malformed(what))
}

/// The frame, and the allocations that it still justifies.
struct Buffer<'a> {
    bytes: &'a [u8],
    unread: usize,
    /// The end of the farthest thing read.
    end: usize,
}

/// Positions of a table and its vtable.
struct Table {
    at: usize,
    len: usize,
    vtable: usize,
    vtable_len: usize,
}

impl<'a> Buffer<'a> {
    /// Bytes at a place, aligned to their size, unpaid.
    fn array<const N: usize>(&self, at: usize, what: &'static str) -> Result<[u8; N], DecodeError> {
        if !at.is_multiple_of(N) {
            return Err(DecodeError::Malformed("alignment"));
        }
        let found = self.bytes.get(at..).and_then(<[u8]>::first_chunk);
        found.copied().ok_or(DecodeError::Truncated(what))
    }

    /// The target of the offset at a position.
    fn offset(&self, at: usize, what: &'static str) -> Result<usize, DecodeError> {
        let offset = u32::from_le_bytes(self.array(at, what)?);
        at.checked_add(offset as usize).ok_or(DecodeError::Truncated(what))
    }

    /// `len` bytes at a place, paid for.
    fn read(&mut self, at: usize, len: usize, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let end = at.checked_add(len).ok_or(DecodeError::Truncated(what))?;
        let found = self.bytes.get(at..end).ok_or(DecodeError::Truncated(what))?;
        self.unread = self.unread.checked_sub(len).ok_or(DecodeError::Malformed("offsets: parts overlap"))?;
        self.end = self.end.max(end);
        Ok(found)
    }

    /// The table at a place. Vtables are shared, so only the table is paid for.
    fn table(&mut self, at: usize, what: &'static str) -> Result<Table, DecodeError> {
        let back = i32::from_le_bytes(self.array(at, what)?);
        let vtable = i64::try_from(at).ok().and_then(|at| usize::try_from(at - i64::from(back)).ok());
        let vtable = vtable.ok_or(DecodeError::Truncated(what))?;
        let vtable_len = usize::from(u16::from_le_bytes(self.array(vtable, what)?));
        let len = usize::from(u16::from_le_bytes(self.array(vtable + 2, what)?));
        let vtable_end = vtable + vtable_len;
        if vtable_len < 4 || !vtable_len.is_multiple_of(2) || len < 4 {
            return Err(DecodeError::Malformed("vtable"));
        }
        if vtable_end > self.bytes.len() {
            return Err(DecodeError::Truncated(what));
        }
        self.end = self.end.max(vtable_end);
        self.read(at, len, what)?;
        Ok(Table { at, len, vtable, vtable_len })
    }

    /// Position of a field of `N` bytes, if it is present.
    fn field<const N: usize>(
        &self,
        table: &Table,
        slot: u16,
        what: &'static str,
    ) -> Result<Option<usize>, DecodeError> {
        let slot = usize::from(slot);
        if slot + 2 > table.vtable_len {
            return Ok(None);
        }
        match usize::from(u16::from_le_bytes(self.array(table.vtable + slot, what)?)) {
            0 => Ok(None),
            place if place < 4 || place + N > table.len => Err(DecodeError::Malformed("vtable")),
            place => Ok(Some(table.at + place)),
        }
    }

    /// A number's bytes; zero is left out, and only zero.
    fn number<const N: usize>(
        &self,
        table: &Table,
        slot: u16,
        what: &'static str,
    ) -> Result<[u8; N], DecodeError> {
        let Some(at) = self.field::<N>(table, slot, what)? else { return Ok([0; N]) };
        let number = self.array(at, what)?;
        if number == [0; N] { Err(DecodeError::NotCanonical(what)) } else { Ok(number) }
    }

    /// The entries of a vector, `N` bytes each.
    fn vector<const N: usize>(
        &mut self,
        table: &Table,
        slot: u16,
        what: &'static str,
    ) -> Result<Option<&'a [u8]>, DecodeError> {
        let Some(field) = self.field::<4>(table, slot, what)? else { return Ok(None) };
        let at = self.offset(field, what)?;
        let entries = u32::from_le_bytes(self.array(at, what)?) as usize;
        let len =
            entries.checked_mul(N).and_then(|len| len.checked_add(4)).ok_or(DecodeError::Truncated(what))?;
        Ok(Some(&self.read(at, len, what)?[4..]))
    }

    fn string(
        &mut self,
        table: &Table,
        slot: u16,
        what: &'static str,
    ) -> Result<Option<&'a str>, DecodeError> {
        let Some(text) = self.vector::<1>(table, slot, what)? else { return Ok(None) };
        let field = self.field::<4>(table, slot, what)?.ok_or(DecodeError::Missing(what))?;
        let nul = self.offset(field, what)? + 4 + text.len();
        if self.read(nul, 1, what)? != [0] {
            return Err(DecodeError::Malformed("text: a NUL follows it"));
        }
        str::from_utf8(text).map(Some).map_err(|_| DecodeError::Utf8(what))
    }

    /// Positions of the tables of a vector. No vector means an empty one, which is not canonical.
    fn tables(
        &mut self,
        table: &Table,
        slot: u16,
        what: &'static str,
    ) -> Result<impl Iterator<Item = Result<usize, DecodeError>> + use<'a>, DecodeError> {
        let entries = self.vector::<4>(table, slot, what)?.ok_or(DecodeError::Missing(what))?;
        let field = self.field::<4>(table, slot, what)?.ok_or(DecodeError::Missing(what))?;
        let start = self.offset(field, what)? + 4;
        let (offsets, _) = entries.as_chunks::<4>();
        Ok(offsets.iter().enumerate().map(move |(index, offset)| {
            let at = start + 4 * index;
            at.checked_add(u32::from_le_bytes(*offset) as usize).ok_or(DecodeError::Truncated(what))
        }))
    }

    /// Fails if bytes follow everything that was read.
    fn finish(self) -> Result<(), DecodeError> {
        match self.bytes.len() - self.end {
            0 => Ok(()),
            rest => Err(DecodeError::Trailing(rest)),
        }
    }
}
