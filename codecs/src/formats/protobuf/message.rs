//! Whole messages: a oneof, whose members are messages of a field for each part. A member of one part
//! is that part itself.

use std::{borrow::Cow, marker::PhantomData};

use super::{
    Dialect, Protobuf,
    filter::{read_filter, write_filter},
    strict::{key, skip},
    tuned::{has_key, optional_bytes, optional_varint, sized, write_key},
    write_bytes,
};
use crate::{
    DecodeError, EncodeError, EoseHints, Event, EventCodec, Filter, hex,
    model::Bounds,
    parts::{ReadParts, Registers, WriteParts},
    reader::{Reader, write_varint},
    text,
};

/// Verbs of one part: EVENT, CLOSE, AUTH, NEG-CLOSE; NOTICE, AUTH.
pub(super) const BARE_CLIENT: &[u8] = &[1, 3, 4, 8];
pub(super) const BARE_RELAY: &[u8] = &[5, 6];

/// A message that is being written.
pub(super) struct Writing<D> {
    bare: &'static [u8],
    verb: u8,
    /// Fields so far; `None` if the member is a part itself.
    fields: Option<u8>,
    /// The member.
    out: Vec<u8>,
    dialect: PhantomData<D>,
}

impl<D: Dialect> Writing<D> {
    pub(super) fn new(bare: &'static [u8]) -> Self {
        Writing { bare, verb: 0, fields: None, out: Vec::new(), dialect: PhantomData }
    }

    /// Appends the message.
    pub(super) fn append_to(&self, out: &mut Vec<u8>) {
        write_bytes(self.verb << 3 | 2, &self.out, out);
    }

    /// The number of the next part's field, shifted.
    fn next(&mut self) -> u8 {
        let number = self.fields.map_or(1, |fields| fields + 1);
        self.fields = self.fields.map(|_| number);
        number << 3
    }

    /// A part that is absent when it is empty.
    fn put(&mut self, bytes: &[u8]) {
        let key = self.next() | 2;
        match self.fields {
            None => self.out.extend_from_slice(bytes),
            Some(_) if bytes.is_empty() => {}
            Some(_) => write_bytes(key, bytes, &mut self.out),
        }
    }

    /// A part that is absent when it is zero.
    fn put_number(&mut self, number: u64) {
        let key = self.next();
        if number != 0 {
            self.out.push(key);
            write_varint(number, &mut self.out);
        }
    }
}

impl<D: Dialect> WriteParts for Writing<D> {
    fn format(&self) -> &'static str {
        D::NAME
    }

    fn begin(&mut self, verb: u8, _parts: usize) {
        self.verb = verb;
        self.fields = (!self.bare.contains(&verb)).then_some(0);
    }

    fn subscription(&mut self, subscription: &str) -> Result<(), EncodeError> {
        self.put(subscription.as_bytes());
        Ok(())
    }

    fn text(&mut self, text: &str) {
        self.put(text.as_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.put(bytes);
    }

    fn id(&mut self, id: &[u8; 32]) {
        let key = self.next() | 2;
        write_key::<D, 32, 64>(key, id, &mut self.out);
    }

    fn flag(&mut self, flag: bool) {
        self.put_number(flag.into());
    }

    fn hints(&mut self, hints: EoseHints) {
        let key = self.next() | 2;
        hints.words().for_each(|word| write_bytes(key, word.as_bytes(), &mut self.out));
    }

    fn count(&mut self, count: u64, approximate: bool, hll: Option<&[u8; 256]>) {
        self.put_number(count);
        self.put_number(approximate.into());
        self.put(hll.map_or(&[], |registers| registers));
    }

    fn event(&mut self, event: &Event<'_>) -> Result<(), EncodeError> {
        let mut bytes = Vec::new();
        Protobuf::<D>::NEW.encode_event(event, &mut bytes)?;
        self.put(&bytes);
        Ok(())
    }

    fn events(&mut self, events: &[Event<'_>]) -> Result<(), EncodeError> {
        let key = self.next() | 2;
        let mut bytes = Vec::new();
        for event in events {
            bytes.clear();
            Protobuf::<D>::NEW.encode_event(event, &mut bytes)?;
            write_bytes(key, &bytes, &mut self.out);
        }
        Ok(())
    }

    fn filter(&mut self, filter: &Filter) -> Result<(), EncodeError> {
        self.filters(std::slice::from_ref(filter))
    }

    fn filters(&mut self, filters: &[Filter]) -> Result<(), EncodeError> {
        let key = self.next() | 2;
        let mut bytes = Vec::new();
        for filter in filters {
            bytes.clear();
            write_filter::<D>(filter, &mut bytes)?;
            write_bytes(key, &bytes, &mut self.out);
        }
        Ok(())
    }
}

/// A message that is being read.
pub(super) struct Reading<'a, D> {
    verb: u8,
    is_bare: bool,
    /// Fields so far.
    fields: u8,
    reader: Reader<'a>,
    dialect: PhantomData<D>,
}

impl<'a, D: Dialect> Reading<'a, D> {
    /// The number of the message's verb and its member, which fills `bytes`.
    pub(super) fn open(bytes: &'a [u8], verbs: &[&str], bare: &[u8]) -> Result<(u8, Self), DecodeError> {
        let what = "message";
        let mut reader = Reader::new(bytes);
        if reader.is_empty() {
            return Err(DecodeError::Missing(what));
        }
        let (number, wire) = key(&mut reader)?;
        let Some(verb) = u8::try_from(number).ok().filter(|verb| usize::from(*verb) <= verbs.len()) else {
            skip(wire, &mut reader)?;
            reader.finish()?;
            return Err(DecodeError::UnknownMessage(format!("field {number}")));
        };
        if wire != 2 {
            return Err(DecodeError::Malformed(what));
        }
        let member = Reader::new(sized(&mut reader, what)?);
        reader.finish()?;
        let is_bare = bare.contains(&verb);
        Ok((verb, Reading { verb, is_bare, fields: 0, reader: member, dialect: PhantomData }))
    }

    /// Fails if fields are left.
    pub(super) fn finish(self) -> Result<(), DecodeError> {
        self.reader.finish()
    }

    /// The number of the next part's field, shifted.
    fn next(&mut self) -> u8 {
        self.fields += 1;
        self.fields << 3
    }

    /// A part that is absent when it is empty.
    fn take(&mut self, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let key = self.next() | 2;
        if self.is_bare {
            return Ok(self.reader.take_rest());
        }
        Ok(optional_bytes(&mut self.reader, key, what)?.unwrap_or_default())
    }

    /// A part that is absent when it is zero.
    fn number(&mut self, max: u64, what: &'static str) -> Result<u64, DecodeError> {
        let key = self.next();
        optional_varint(&mut self.reader, key, max, what)
    }
}

impl<'a, D: Dialect> ReadParts<'a> for Reading<'a, D> {
    fn unknown(&self) -> DecodeError {
        DecodeError::UnknownMessage(format!("field {}", self.verb))
    }

    fn subscription(&mut self) -> Result<Cow<'a, str>, DecodeError> {
        self.text("subscription")
    }

    fn text(&mut self, what: &'static str) -> Result<Cow<'a, str>, DecodeError> {
        text::checked(self.take(what)?, what).map(Cow::Borrowed)
    }

    fn bytes(&mut self) -> Result<Cow<'a, [u8]>, DecodeError> {
        self.take("negentropy's message").map(Cow::Borrowed)
    }

    fn id(&mut self) -> Result<[u8; 32], DecodeError> {
        let what = "OK's event id";
        let stored = self.take(what)?;
        let id = if D::SPELLED { hex::decode_array(stored) } else { stored.try_into().ok() };
        id.ok_or(DecodeError::Malformed(what))
    }

    fn flag(&mut self, what: &'static str) -> Result<bool, DecodeError> {
        self.number(1, what).map(|flag| flag == 1)
    }

    fn hints(&mut self) -> Result<EoseHints, DecodeError> {
        let (what, key) = ("EOSE's hints", self.next() | 2);
        let mut hints = EoseHints::default();
        while has_key(&mut self.reader, key) {
            match text::checked(sized(&mut self.reader, what)?, what)? {
                "finish" => hints.finish = true,
                "more" => hints.more = true,
                _ => {} // NIP-67 lets relays add words
            }
        }
        Ok(hints)
    }

    fn count(&mut self) -> Result<(u64, bool, Option<Registers>), DecodeError> {
        let (count, approximate) = (self.number(u64::MAX, "count")?, self.flag("COUNT's approximate")?);
        let hll = match self.take("hll")? {
            [] => None,
            registers => Some(registers.try_into().map(Box::new).map_err(|_| DecodeError::Malformed("hll"))?),
        };
        Ok((count, approximate, hll))
    }

    fn event(&mut self) -> Result<Event<'a>, DecodeError> {
        Protobuf::<D>::NEW.decode_event(self.take("event")?)
    }

    fn events(&mut self) -> Result<Vec<Event<'a>>, DecodeError> {
        let (what, key) = ("event", self.next() | 2);
        let mut events = Vec::new();
        while has_key(&mut self.reader, key) {
            events.push(Protobuf::<D>::NEW.decode_event(sized(&mut self.reader, what)?)?);
        }
        if events.is_empty() { Err(DecodeError::Missing(what)) } else { Ok(events) }
    }

    fn filter(&mut self, bounds: &Bounds<'_>) -> Result<Filter, DecodeError> {
        let (what, key) = ("filter", self.next() | 2);
        if !has_key(&mut self.reader, key) {
            return Err(DecodeError::Missing(what));
        }
        read_filter::<D>(sized(&mut self.reader, what)?, bounds)
    }

    fn filters(&mut self, bounds: &Bounds<'_>) -> Result<Vec<Filter>, DecodeError> {
        let key = self.next() | 2;
        let mut filters = Vec::new();
        while has_key(&mut self.reader, key) {
            bounds.filters(filters.len() + 1)?;
            filters.push(read_filter::<D>(sized(&mut self.reader, "filter")?, bounds)?);
        }
        Ok(filters)
    }
}
