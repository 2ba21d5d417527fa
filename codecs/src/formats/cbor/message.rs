//! Whole messages: an array that starts with a verb, as word or number.

use std::{borrow::Cow, marker::PhantomData};

use serde::de::IgnoredAny;

use super::{
    Dialect, EventCbor, OwnedEvent, build,
    filter::{read_filter, write_filter},
    head::{
        ARRAY, BYTES, UINT, read_argument, read_fixed, read_text, read_whole, write_bytes, write_head,
        write_text,
    },
    write,
};
use crate::{
    DecodeError, EncodeError, EoseHints, Event, Filter,
    model::Bounds,
    parts::{ReadParts, Registers, WriteParts},
    reader::Reader,
};

const FALSE: u8 = 0xf4;
const TRUE: u8 = 0xf5;

/// Appends a verb or the name of a field.
pub(super) fn write_name<D: Dialect>(number: u8, words: &[&str], out: &mut Vec<u8>) {
    if D::SPELLED {
        write_text(words[usize::from(number) - 1], out);
    } else {
        write_head(UINT, number.into(), out);
    }
}

/// The number of a verb or field, or the name of an unknown one.
pub(super) fn read_name<D: Dialect>(
    reader: &mut Reader<'_>,
    words: &[&str],
    what: &'static str,
) -> Result<Result<u8, String>, DecodeError> {
    let mut known = (1_u8..).zip(words);
    if D::SPELLED {
        let name = read_text(reader, what)?;
        let found = known.find(|(_, word)| **word == name);
        return Ok(found.map(|(number, _)| number).ok_or_else(|| name.to_owned()));
    }
    let name = read_argument(reader, UINT, what)?;
    let found = known.find(|(number, _)| u64::from(*number) == name);
    Ok(found.map(|(number, _)| number).ok_or_else(|| name.to_string()))
}

/// Passes over an item of an unknown name, whose text is UTF-8 like any other.
pub(super) fn skip(reader: &mut Reader<'_>) -> Result<(), DecodeError> {
    build::<IgnoredAny>(read_whole(reader)?).map(drop)
}

/// A message that is being written.
pub(super) struct Writing<'o, D> {
    verbs: &'static [&'static str],
    out: &'o mut Vec<u8>,
    dialect: PhantomData<D>,
}

impl<'o, D> Writing<'o, D> {
    pub(super) fn new(verbs: &'static [&'static str], out: &'o mut Vec<u8>) -> Self {
        Writing { verbs, out, dialect: PhantomData }
    }
}

impl<D: Dialect> WriteParts for Writing<'_, D> {
    fn format(&self) -> &'static str {
        D::NAME
    }

    fn begin(&mut self, verb: u8, parts: usize) {
        write_head(ARRAY, 1 + parts as u64, self.out);
        write_name::<D>(verb, self.verbs, self.out);
    }

    fn subscription(&mut self, subscription: &str) -> Result<(), EncodeError> {
        self.text(subscription);
        Ok(())
    }

    fn text(&mut self, text: &str) {
        write_text(text, self.out);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        write_bytes(bytes, self.out);
    }

    fn id(&mut self, id: &[u8; 32]) {
        self.bytes(id);
    }

    fn flag(&mut self, flag: bool) {
        self.out.push(if flag { TRUE } else { FALSE });
    }

    fn hints(&mut self, hints: EoseHints) {
        let count = hints.words().count();
        if count > 0 {
            write_head(ARRAY, count as u64, self.out);
            hints.words().for_each(|word| self.text(word));
        }
    }

    fn count(&mut self, count: u64, approximate: bool, hll: Option<&[u8; 256]>) {
        write_head(UINT, count, self.out);
        if approximate || hll.is_some() {
            self.flag(approximate);
        }
        if let Some(registers) = hll {
            self.bytes(registers);
        }
    }

    fn event(&mut self, event: &Event<'_>) -> Result<(), EncodeError> {
        write(&EventCbor::<D>::new(event), self.out)
    }

    fn events(&mut self, events: &[Event<'_>]) -> Result<(), EncodeError> {
        write_head(ARRAY, events.len() as u64, self.out);
        events.iter().try_for_each(|event| self.event(event))
    }

    fn filter(&mut self, filter: &Filter) -> Result<(), EncodeError> {
        write_filter::<D>(filter, self.out);
        Ok(())
    }

    fn filters(&mut self, filters: &[Filter]) -> Result<(), EncodeError> {
        filters.iter().try_for_each(|filter| self.filter(filter))
    }
}

/// A message that is being read, which the strict walk has accepted.
pub(super) struct Reading<'a, D> {
    bytes: &'a [u8],
    reader: Reader<'a>,
    /// Parts that are left.
    left: u64,
    /// The verb, if it is not known.
    unknown: String,
    dialect: PhantomData<D>,
}

impl<'a, D: Dialect> Reading<'a, D> {
    /// The number of the message's verb, 0 for an unknown one, and what is behind it.
    pub(super) fn open(bytes: &'a [u8], verbs: &[&str]) -> Result<(u8, Self), DecodeError> {
        let what = "message, an array that starts with a verb";
        let mut reader = Reader::new(bytes);
        let items = read_argument(&mut reader, ARRAY, what)?;
        let left = items.checked_sub(1).ok_or(DecodeError::Malformed(what))?;
        let (verb, unknown) = match read_name::<D>(&mut reader, verbs, what)? {
            Ok(verb) => (verb, String::new()),
            Err(name) => (0, name),
        };
        Ok((verb, Reading { bytes, reader, left, unknown, dialect: PhantomData }))
    }

    /// Takes one of the parts that are left.
    fn next(&mut self, what: &'static str) -> Result<&mut Reader<'a>, DecodeError> {
        self.left = self.left.checked_sub(1).ok_or(DecodeError::Missing(what))?;
        Ok(&mut self.reader)
    }

    /// Fails if parts are left.
    pub(super) fn finish(self) -> Result<(), DecodeError> {
        self.reader.finish()
    }
}

impl<'a, D: Dialect> ReadParts<'a> for Reading<'a, D> {
    /// Only a message whose text is UTF-8 deserves this answer.
    fn unknown(&self) -> DecodeError {
        match build::<IgnoredAny>(self.bytes) {
            Ok(_) if D::SPELLED => DecodeError::UnknownMessage(self.unknown.chars().take(32).collect()),
            Ok(_) => DecodeError::UnknownMessage(format!("opcode {}", self.unknown)),
            Err(error) => error,
        }
    }

    fn subscription(&mut self) -> Result<Cow<'a, str>, DecodeError> {
        self.text("subscription")
    }

    fn text(&mut self, what: &'static str) -> Result<Cow<'a, str>, DecodeError> {
        read_text(self.next(what)?, what).map(Cow::Borrowed)
    }

    fn bytes(&mut self) -> Result<Cow<'a, [u8]>, DecodeError> {
        let what = "negentropy's message";
        let reader = self.next(what)?;
        let len = read_argument(reader, BYTES, what)?;
        reader.bytes(len, what).map(Cow::Borrowed)
    }

    fn id(&mut self) -> Result<[u8; 32], DecodeError> {
        let what = "OK's event id";
        read_fixed(self.next(what)?, what).copied()
    }

    fn flag(&mut self, what: &'static str) -> Result<bool, DecodeError> {
        match self.next(what)?.u8(what)? {
            FALSE => Ok(false),
            TRUE => Ok(true),
            _ => Err(DecodeError::Malformed(what)),
        }
    }

    /// At least one, ascending, each once.
    fn hints(&mut self) -> Result<EoseHints, DecodeError> {
        let what = "EOSE's hints";
        let (mut hints, mut last) = (EoseHints::default(), None);
        if self.left == 0 {
            return Ok(hints);
        }
        let reader = self.next(what)?;
        for _ in 0..read_argument(reader, ARRAY, what)? {
            let word = read_text(reader, what)?;
            if last.is_some_and(|last| last >= word) {
                return Err(DecodeError::NotCanonical(what));
            }
            last = Some(word);
            hints.finish |= word == "finish";
            hints.more |= word == "more";
        }
        last.map(|_| hints).ok_or(DecodeError::NotCanonical(what))
    }

    fn count(&mut self) -> Result<(u64, bool, Option<Registers>), DecodeError> {
        let what = "COUNT's approximate";
        let count = read_argument(self.next("count")?, UINT, "count")?;
        let is_short = self.left == 0;
        let approximate = !is_short && self.flag(what)?;
        let hll = match self.left {
            0 if is_short || approximate => None,
            0 => return Err(DecodeError::NotCanonical(what)), // a lone `false` says nothing
            _ => Some(Box::new(*read_fixed(self.next("hll")?, "hll")?)),
        };
        Ok((count, approximate, hll))
    }

    fn event(&mut self) -> Result<Event<'a>, DecodeError> {
        build::<OwnedEvent<D>>(read_whole(self.next("event")?)?).map(|event| event.0)
    }

    fn events(&mut self) -> Result<Vec<Event<'a>>, DecodeError> {
        let what = "event";
        let mut events = Vec::new();
        let reader = self.next(what)?;
        for _ in 0..read_argument(reader, ARRAY, what)? {
            events.push(build::<OwnedEvent<D>>(read_whole(reader)?)?.0);
        }
        if events.is_empty() { Err(DecodeError::Missing(what)) } else { Ok(events) }
    }

    fn filter(&mut self, bounds: &Bounds<'_>) -> Result<Filter, DecodeError> {
        read_filter::<D>(self.next("filter")?, bounds)
    }

    fn filters(&mut self, bounds: &Bounds<'_>) -> Result<Vec<Filter>, DecodeError> {
        bounds.filters(usize::try_from(self.left).unwrap_or(usize::MAX))?;
        (0..self.left).map(|_| self.filter(bounds)).collect()
    }
}
