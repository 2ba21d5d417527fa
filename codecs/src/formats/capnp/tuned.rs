//! Cap'n Proto, tuned. The writer puts the words of a message straight into the caller's buffer, in the
//! segments that the crate's builder would make. The reader follows an event's three pointers to its
//! fixed fields, tags and content.
//!
//! Pointers that no encoder of today writes (a larger struct, lists of other sizes, double far
//! pointers, blobs that overlap) are left to the library.

use std::borrow::Cow;

use super::{
    BYTE_LIST, Capnp, EVENTS, MAX_BLOB_BYTES, POINTER_LIST, WORD_BYTES, fits, fixed_data, read_fixed,
    read_tags, too_large, wrapping, write_subscription, write_tags,
};
use crate::{
    Codec, DecodeError, EncodeError, Event, EventHead,
    fixed::{CONTENT, Fixed, out_of_line},
    formats::tuned::{TunedFormat, Verb},
    reader::Reader,
    text::{Found, Value},
};

/// Tuned Cap'n Proto.
#[derive(Debug)]
pub(in crate::formats) struct TunedCapnp;

/// Pointer to a struct that follows at once, of three pointers: an event.
const EVENT_ROOT: u64 = 3 << 48;
/// Pointer to a struct of one data word and one pointer: a message. The data word is the ordinal of
/// its union.
const MESSAGE_ROOT: u64 = 1 << 32 | 1 << 48;
/// Pointer to a struct of two pointers: `SubEvent`.
const SUB_EVENT: u64 = 2 << 48;
const CLIENT_EVENT: u64 = 0;
const CLIENT_AUTH: u64 = 3;
const RELAY_EVENT: u64 = 0;
/// A list pointer without its length and offset: bits of its kind and of its elements' size.
const LIST_KIND: u64 = 7 << 32 | 3;
/// Words of root, three pointers, and fixedData.
const WORDS_BEFORE_TAGS: usize = 4 + 138_usize.div_ceil(WORD_BYTES);
/// Words that the crate's allocator gives a first segment, and a second one at least.
const FIRST_SEGMENT_WORDS: usize = 1024;
const SECOND_SEGMENT_WORDS: usize = 2048;

impl TunedFormat for TunedCapnp {
    const LIBRARY: &'static dyn Codec = &Capnp;

    fn write_event(event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let content = fits(&*event.content, "content of a size in bytes")?.as_bytes();
        let start = out.len();
        out.extend_from_slice(&[0; 5 * WORD_BYTES]); // segment table, root and three pointers, filled in below
        out.extend_from_slice(&fixed_data(event));
        pad(start, out);
        let tags_start = out.len();
        write_tags(&event.tags, out)?;
        let tag_bytes = out.len() - tags_start;
        if tag_bytes > MAX_BLOB_BYTES {
            return Err(too_large("tags of a size in bytes", tag_bytes, MAX_BLOB_BYTES));
        }
        pad(start, out);
        let plan = BlobLayout::for_blobs(tag_bytes, content.len() + 1);
        if plan.segments() == 1 {
            out.extend_from_slice(content);
            out.push(0);
            pad(start, out);
        } else {
            plan.part(content, start, tags_start, out);
        }
        plan.fill_in(&mut out[start..]);
        Ok(())
    }

    fn read<'a, V: Value<'a>>(bytes: &'a [u8]) -> Result<V::Event, DecodeError> {
        let frame = Frame::from_bytes(bytes, EVENT_ROOT).ok_or(UNUSUAL)?;
        let (Some(fixed_data), Some(tag_data), Some(content)) = (frame.blob(1), frame.blob(2), frame.blob(3))
        else {
            return Err(UNUSUAL);
        };
        if !frame.can_hold([fixed_data.len(), tag_data.len(), content.len()]) {
            return Err(UNUSUAL);
        }
        let mut fixed = Fixed::BLANK;
        out_of_line(|| read_fixed(fixed_data, &mut fixed))?;
        let content = Found::Bytes(content.strip_suffix(&[0]).ok_or(UNUSUAL)?);
        let tags = read_tags(Reader::new(tag_data))?;
        Ok(V::event(fixed, tags, content.text(CONTENT)?))
    }

    fn read_head(bytes: &[u8]) -> Result<EventHead, DecodeError> {
        let fixed = Frame::from_bytes(bytes, EVENT_ROOT).and_then(|frame| frame.blob(1)).ok_or(UNUSUAL)?;
        let mut read = Fixed::BLANK;
        read_fixed(fixed, &mut read)?;
        Ok(read.head)
    }

    fn write_client(verb: Verb, event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let ordinal = if verb == Verb::Event { CLIENT_EVENT } else { CLIENT_AUTH };
        let start = out.len();
        out.extend_from_slice(&[0; 4 * WORD_BYTES]); // segment table, root, ordinal, pointer
        let event_start = out.len();
        Self::write_event(event, out)?;
        let len = out.len() - event_start;
        if len > MAX_BLOB_BYTES {
            return Err(too_large("an event in bytes", len, MAX_BLOB_BYTES));
        }
        let (words, list) = (len / WORD_BYTES, BYTE_LIST | (len as u64) << 35);
        if 3 + words <= FIRST_SEGMENT_WORDS {
            put_words(&[sizes(0, 3 + words), MESSAGE_ROOT, ordinal, list], &mut out[start..]);
        } else {
            insert(2 * WORD_BYTES, event_start, out); // a longer table, and a landing pad
            let head = [sizes(1, 3), sizes(words + 1, 0), MESSAGE_ROOT, ordinal, far(1, 0), list];
            put_words(&head, &mut out[start..]);
        }
        Ok(())
    }

    fn split_client(bytes: &[u8]) -> Option<(Verb, &[u8])> {
        let frame = Frame::from_bytes(bytes, MESSAGE_ROOT)?;
        let verb = match frame.word(0, 1)? {
            CLIENT_EVENT => Verb::Event,
            CLIENT_AUTH => Verb::Auth,
            _ => return None,
        };
        frame.blob(2).map(|event| (verb, event))
    }

    fn write_relay(subscription: &str, event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        fits(subscription, "a subscription id in bytes")?;
        let start = out.len();
        out.extend_from_slice(&[0; 6 * WORD_BYTES]); // what the event's length decides
        write_subscription(subscription, out);
        let event_start = out.len();
        Self::write_event(event, out)?;
        let wrapping = wrapping(subscription, out.len() - event_start);
        put_words(&wrapping, &mut out[start..]);
        Ok(())
    }

    fn split_relay(bytes: &[u8]) -> Option<(Cow<'_, str>, &[u8])> {
        let frame = Frame::from_bytes(bytes, MESSAGE_ROOT)?;
        if frame.word(0, 1)? != RELAY_EVENT || frame.word(0, 2)? != SUB_EVENT {
            return None;
        }
        let subscription = str::from_utf8(frame.blob(3)?.strip_suffix(&[0])?).ok()?;
        Some((subscription.into(), frame.blob(4)?))
    }

    fn split_batch<'a>(
        bytes: &'a [u8],
        mut each: impl FnMut(&'a [u8]) -> Option<()>,
    ) -> Option<Cow<'a, str>> {
        let frame = Frame::from_bytes(bytes, MESSAGE_ROOT)?;
        if frame.word(0, 1)? != EVENTS || frame.word(0, 2)? != SUB_EVENT {
            return None;
        }
        let subscription = str::from_utf8(frame.blob(3)?.strip_suffix(&[0])?).ok()?;
        const EVENTS_AT: usize = 4;
        let list = frame.word(0, EVENTS_AT).filter(|list| list & LIST_KIND == POINTER_LIST)?;
        let (first, count) = target(list, EVENTS_AT + 1)?;
        if count == 0 {
            return None;
        }
        // A hostile message may point at one blob often. Events that share no bytes fit into its words.
        let mut room = frame.words().checked_sub(count)?;
        for pointer in first..first.checked_add(count)? {
            let event = frame.blob(pointer)?;
            room = room.checked_sub(event.len().div_ceil(WORD_BYTES))?;
            each(event)?;
        }
        Some(subscription.into())
    }
}

// --- writing ---

/// Where the crate's builder would put an event's blobs: into the first segment while it has room.
/// Otherwise after a landing pad in the first later segment with room.
struct BlobLayout {
    tag_bytes: usize,
    text_bytes: usize,
    /// The segments of the two blobs, and the words used of each.
    tags_in: usize,
    text_in: usize,
    used: [usize; 3],
}

impl BlobLayout {
    /// The layout for blobs of these lengths, the text's NUL included.
    fn for_blobs(tag_bytes: usize, text_bytes: usize) -> BlobLayout {
        let (tags, text) = (tag_bytes.div_ceil(WORD_BYTES), text_bytes.div_ceil(WORD_BYTES));
        let mut used = [WORDS_BEFORE_TAGS, 0, 0];
        let tags_in = usize::from(used[0] + tags > FIRST_SEGMENT_WORDS);
        used[tags_in] += tags_in + tags;
        let text_in = if used[0] + text <= FIRST_SEGMENT_WORDS {
            0
        } else if tags_in == 0 || used[1] + 1 + text <= SECOND_SEGMENT_WORDS {
            1
        } else {
            2
        };
        used[text_in] += usize::from(text_in > 0) + text;
        BlobLayout { tag_bytes, text_bytes, tags_in, text_in, used }
    }

    fn segments(&self) -> usize {
        1 + self.tags_in.max(self.text_in)
    }

    /// Makes room for a longer table and for landing pads, and moves the text into place. The tags are
    /// already written, as for one segment.
    fn part(&self, text: &[u8], start: usize, tags_start: usize, out: &mut Vec<u8>) {
        insert(WORD_BYTES, start + WORD_BYTES, out);
        let tags_start = tags_start + WORD_BYTES;
        if self.text_in == 0 {
            let text_words = self.text_bytes.div_ceil(WORD_BYTES);
            insert((text_words + 1) * WORD_BYTES, tags_start, out);
            out[tags_start..tags_start + text.len()].copy_from_slice(text);
            return;
        }
        if self.tags_in > 0 {
            insert(WORD_BYTES, tags_start, out);
        }
        out.extend_from_slice(&[0; WORD_BYTES]);
        out.extend_from_slice(text);
        out.push(0);
        pad(start, out);
    }

    /// Writes table, pointers and landing pads into the message.
    fn fill_in(&self, message: &mut [u8]) {
        let [first, second, third] = self.used;
        let last = self.segments() - 1;
        let table = [sizes(last, first), sizes(second, third)];
        let table = &table[..1 + usize::from(last > 0)];
        let tags = BYTE_LIST | (self.tag_bytes as u64) << 35;
        let text = BYTE_LIST | (self.text_bytes as u64) << 35;
        // The text ends its segment. A landing pad, if it needs one, comes before it.
        let text_words = usize::from(self.text_in > 0) + self.text_bytes.div_ceil(WORD_BYTES);
        let (tags_at, text_at) =
            (if self.tags_in == 0 { WORDS_BEFORE_TAGS } else { 0 }, self.used[self.text_in] - text_words);
        let near = |list: u64, at: usize, pointer: usize| list | ((at - pointer - 1) as u64) << 2;
        let event = [
            EVENT_ROOT,
            near(BYTE_LIST | 138 << 35, 4, 1),
            if self.tags_in == 0 { near(tags, tags_at, 2) } else { far(self.tags_in, tags_at) },
            if self.text_in == 0 { near(text, text_at, 3) } else { far(self.text_in, text_at) },
        ];
        put_words(table, message);
        put_words(&event, &mut message[table.len() * WORD_BYTES..]);
        for (segment, at, list) in [(self.tags_in, tags_at, tags), (self.text_in, text_at, text)] {
            if segment > 0 {
                let word = table.len() + self.used[..segment].iter().sum::<usize>() + at;
                put_words(&[list], &mut message[word * WORD_BYTES..]);
            }
        }
    }
}

/// A pointer to the landing pad at this word of a segment.
fn far(segment: usize, word: usize) -> u64 {
    (segment as u64) << 32 | (word as u64) << 3 | 2
}

/// Two numbers of the segment table.
fn sizes(low: usize, high: usize) -> u64 {
    low as u64 | (high as u64) << 32
}

fn put_words(words: &[u64], out: &mut [u8]) {
    for (word, place) in words.iter().zip(out.as_chunks_mut().0) {
        *place = word.to_le_bytes();
    }
}

/// Zeros up to a whole number of words from `start`.
fn pad(start: usize, out: &mut Vec<u8>) {
    out.resize(start + (out.len() - start).next_multiple_of(WORD_BYTES), 0);
}

/// Moves the bytes from `at` on by `bytes`, and zeros the gap.
fn insert(bytes: usize, at: usize, out: &mut Vec<u8>) {
    let end = out.len();
    out.resize(end + bytes, 0);
    out.copy_within(at..end, at + bytes);
    out[at..at + bytes].fill(0);
}

// --- reading ---

/// Leaves the message to the library, which distinguishes unusual from wrong.
const UNUSUAL: DecodeError = DecodeError::Malformed("Cap'n Proto message");

/// A message of up to three segments whose root is as expected.
struct Frame<'a> {
    segments: [&'a [[u8; WORD_BYTES]]; 3],
}

impl<'a> Frame<'a> {
    fn from_bytes(bytes: &'a [u8], root: u64) -> Option<Frame<'a>> {
        let (words, []) = bytes.as_chunks::<WORD_BYTES>() else { return None };
        let (table, mut rest) = words.split_first()?;
        let [last, first] = halves(*table);
        let mut counts = [first, 0, 0];
        if last > 0 {
            let (table, after) = rest.split_first()?;
            let [second, third] = halves(*table);
            counts = [first, second, third];
            rest = after;
        }
        if last > 2 || (last < 2 && counts[2] > 0) {
            return None;
        }
        let mut segments = [&[][..]; 3];
        for (segment, count) in segments.iter_mut().zip(counts) {
            (*segment, rest) = rest.split_at_checked(count as usize)?;
        }
        let frame = Frame { segments };
        (rest.is_empty() && frame.word(0, 0)? == root).then_some(frame)
    }

    fn word(&self, segment: usize, at: usize) -> Option<u64> {
        self.segments.get(segment)?.get(at).map(|word| u64::from_le_bytes(*word))
    }

    /// The bytes that the pointer at this word of the first segment points at.
    fn blob(&self, pointer: usize) -> Option<&'a [u8]> {
        let (mut list, mut segment, mut after) = (self.word(0, pointer)?, 0, pointer + 1);
        // A far pointer to a landing pad in another segment, which holds the list pointer.
        if list & 7 == 2 {
            let [at, far] = halves(list.to_le_bytes());
            (segment, after) = (far as usize, (at >> 3) as usize + 1);
            list = self.word(segment, after - 1)?;
        }
        if list & LIST_KIND != BYTE_LIST {
            return None;
        }
        let (start, bytes) = target(list, after)?;
        let words = self.segments.get(segment)?.get(start..)?.get(..bytes.div_ceil(WORD_BYTES))?;
        words.as_flattened().get(..bytes)
    }

    /// Whether blobs of these sizes fit into the message without sharing bytes. The library limits such
    /// sharing.
    fn can_hold(&self, blobs: [usize; 3]) -> bool {
        blobs.iter().map(|bytes| bytes.div_ceil(WORD_BYTES)).sum::<usize>() <= self.words()
    }

    fn words(&self) -> usize {
        self.segments.iter().map(|segment| segment.len()).sum()
    }
}

/// The first word and the length of a list. Its pointer counts the offset from the word after itself.
fn target(list: u64, after: usize) -> Option<(usize, usize)> {
    let [offset, _] = halves(list.to_le_bytes());
    let first = after.checked_add_signed((offset.cast_signed() >> 2) as isize)?;
    Some((first, usize::try_from(list >> 35).ok()?))
}

/// The low and the high half of a word.
fn halves(word: [u8; WORD_BYTES]) -> [u32; 2] {
    let [a, b, c, d, high @ ..] = word;
    [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes(high)]
}
