//! Cap'n Proto in its packed form: the messages of `capnp`, squeezed word by word.
//!
//! ```text
//! word     u8: bit i says that byte i is not zero, then those bytes
//! 00 n     a word of zeros, and n more of them
//! ff w n   a word without a zero, and n words as they are
//! ```
//!
//! The crate packs what it builds. An event that the relay wrote once is packed already, and its
//! words lie at a word's border of the message around it, so the splice is the packed head in front
//! of the packed event: unpacked as a whole it is the `capnp` message with that event inside. Only
//! there a run of zeros may end earlier than the crate would.
//!
//! This code unpacks, because the crate's unpacker allocates whatever the segment table claims and
//! does not report left-over bytes. One byte of the frame can stand for a kilobyte of zeros, so the
//! size is bounded: by the reader's limit, or by 8 MiB where it states none.

use capnp::serialize_packed;

use super::capnp::{
    Built, Capnp, batch_head, build_batch, build_client, build_event, build_relay, event_head,
    read_batch as read_plain,
};
use crate::{
    ClientMessage, Codec, DecodeError, EncodeError, Event, EventCodec, Limits, RelayMessage,
    codec::{assert_batch, encode_spliced},
    reader::Reader,
};

const WORD_BYTES: usize = 8;

/// The largest message before packing, eight times what relays here take as a frame: what they send
/// at most.
const MAX_UNPACKED_BYTES: usize = 8 << 20;

#[derive(Debug)]
pub(super) struct CapnpPacked;

impl EventCodec for CapnpPacked {
    fn encode_event(&self, event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        write(&build_event(event)?, out)
    }

    fn decode_event<'a>(&self, bytes: &'a [u8]) -> Result<Event<'a>, DecodeError> {
        Ok(Capnp.decode_event(&unpack(bytes, MAX_UNPACKED_BYTES)?)?.into_owned())
    }
}

impl Codec for CapnpPacked {
    fn encode_client(&self, message: &ClientMessage<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        write(&build_client(message)?, out)
    }

    fn decode_client_within<'a>(
        &self,
        bytes: &'a [u8],
        limits: &Limits,
    ) -> Result<ClientMessage<'a>, DecodeError> {
        let max_bytes = match limits.max_unpacked_bytes {
            usize::MAX => MAX_UNPACKED_BYTES,
            stated => stated,
        };
        Ok(Capnp.decode_client_within(&unpack(bytes, max_bytes)?, limits)?.into_owned())
    }

    fn encode_relay(&self, message: &RelayMessage<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode_spliced(self, "capnp-packed", message, out, |out| write(&build_relay(message)?, out))
    }

    fn decode_relay<'a>(&self, bytes: &'a [u8]) -> Result<RelayMessage<'a>, DecodeError> {
        Ok(Capnp.decode_relay(&unpack(bytes, MAX_UNPACKED_BYTES)?)?.into_owned())
    }

    /// # Panics
    /// When `event` is not what [`EventCodec::encode_event`] wrote.
    fn around_event(&self, subscription: &str, event: &[u8], out: &mut Vec<u8>) -> &'static [u8] {
        let event_bytes = unpacked_len(event).expect("the event was packed by this codec");
        let mut head = Vec::new();
        event_head(subscription, event_bytes, &mut head);
        pack(&head, out);
        &[]
    }

    /// # Panics
    /// When `events` is empty, or one of them is not what [`EventCodec::encode_event`] wrote.
    fn wrap_events(&self, subscription: &str, events: &[&[u8]], out: &mut Vec<u8>) {
        assert_batch(events);
        let sizes =
            events.iter().map(|event| unpacked_len(event).expect("the event was packed by this codec"));
        let mut head = Vec::new();
        batch_head(subscription, sizes, &mut head);
        pack(&head, out);
        events.iter().for_each(|event| out.extend_from_slice(event));
    }
}

/// Appends a batch.
pub(super) fn write_batch<'b, 'e: 'b>(
    events: impl ExactSizeIterator<Item = &'b Event<'e>>,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    write(&build_batch(events)?, out)
}

/// Reads a batch.
pub(super) fn read_batch<'a>(bytes: &[u8]) -> Result<Vec<Event<'a>>, DecodeError> {
    let bytes = unpack(bytes, MAX_UNPACKED_BYTES)?;
    Ok(read_plain(&bytes)?.into_iter().map(Event::into_owned).collect())
}

fn write(message: &Built, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let actual = capnp::serialize::compute_serialized_size_in_words(message) * WORD_BYTES;
    if actual > MAX_UNPACKED_BYTES {
        let what = "a message of a size in bytes before packing";
        return Err(EncodeError::TooLarge { format: "capnp-packed", what, actual, max: MAX_UNPACKED_BYTES });
    }
    serialize_packed::write_message(out, message).map_err(|error| EncodeError::Library(error.to_string()))
}

/// Packs whole words. The head of a message has no zero-free word but a subscription id's, so no
/// run of plain words begins: each is followed by the count 0.
fn pack(words: &[u8], out: &mut Vec<u8>) {
    let (words, []) = words.as_chunks::<WORD_BYTES>() else { unreachable!("heads are made of words") };
    let mut rest = words.iter().peekable();
    while let Some(word) = rest.next() {
        let at = out.len();
        out.push(0);
        for (bit, byte) in word.iter().enumerate().filter(|(_, byte)| **byte != 0) {
            out[at] |= 1 << bit;
            out.push(*byte);
        }
        match out[at] {
            0 => {
                let more = std::iter::from_fn(|| rest.next_if(|word| **word == [0; WORD_BYTES]));
                out.push(u8::try_from(more.take(255).count()).expect("at most 255 were taken"));
            }
            0xff => out.push(0),
            _ => {}
        }
    }
}

/// One step of the packed form.
enum Step<'a> {
    Word([u8; WORD_BYTES]),
    /// Zeros, in bytes.
    Zeros(usize),
    /// A word, then bytes as they are.
    Run([u8; WORD_BYTES], &'a [u8]),
}

fn step<'a>(reader: &mut Reader<'a>) -> Result<Step<'a>, DecodeError> {
    let what = "packed words";
    let tag = reader.u8(what)?;
    if tag == 0 {
        return Ok(Step::Zeros((usize::from(reader.u8(what)?) + 1) * WORD_BYTES));
    }
    let mut word = [0; WORD_BYTES];
    for (_, byte) in word.iter_mut().enumerate().filter(|(bit, _)| tag >> bit & 1 == 1) {
        *byte = reader.u8(what)?;
        if *byte == 0 {
            return Err(DecodeError::NotCanonical("a packed word"));
        }
    }
    if tag == 0xff {
        let more = u64::from(reader.u8(what)?) * WORD_BYTES as u64;
        return Ok(Step::Run(word, reader.bytes(more, what)?));
    }
    Ok(Step::Word(word))
}

fn unpack(bytes: &[u8], max_bytes: usize) -> Result<Vec<u8>, DecodeError> {
    let mut reader = Reader::new(bytes);
    let mut out = Vec::with_capacity(bytes.len() + bytes.len() / 4);
    while !reader.is_empty() {
        match step(&mut reader)? {
            Step::Word(word) => out.extend_from_slice(&word),
            Step::Zeros(len) => out.resize(out.len() + len, 0),
            Step::Run(word, rest) => {
                out.extend_from_slice(&word);
                out.extend_from_slice(rest);
            }
        }
        if out.len() > max_bytes {
            return Err(DecodeError::Unpacked(max_bytes));
        }
    }
    Ok(out)
}

fn unpacked_len(bytes: &[u8]) -> Result<usize, DecodeError> {
    let mut reader = Reader::new(bytes);
    let mut len = 0;
    while !reader.is_empty() {
        len += match step(&mut reader)? {
            Step::Word(_) => WORD_BYTES,
            Step::Zeros(len) => len,
            Step::Run(_, rest) => WORD_BYTES + rest.len(),
        };
    }
    Ok(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_packed_unpacks_the_same() {
        let plain = [1, 2, 3, 4, 5, 6, 7, 8];
        for words in
            [vec![[0; 8]; 300], vec![plain; 300], vec![[0, 1, 0, 2, 0, 3, 0, 4], [0; 8], plain, [0; 8]]]
        {
            let mut packed = Vec::new();
            pack(words.as_flattened(), &mut packed);
            let unpacked = unpack(&packed, words.len() * WORD_BYTES);
            assert_eq!(unpacked.as_deref(), Ok(words.as_flattened()));
            assert_eq!(unpacked_len(&packed), Ok(words.len() * 8));
        }
    }

    #[test]
    fn a_run_of_zeros_is_bounded() {
        let bomb = [0x00, 0xff].repeat(1 << 20);
        let unpack = |bytes: &[u8]| unpack(bytes, 1 << 20).unwrap_err();
        assert_eq!(unpack(&bomb), DecodeError::Unpacked(1 << 20));
        assert_eq!(unpack(&[0x01, 0x00]), DecodeError::NotCanonical("a packed word"));
        assert_eq!(unpack(&[0x00]), DecodeError::Truncated("packed words"));
        assert_eq!(unpack(&[0xff, 1, 1, 1, 1, 1, 1, 1, 1, 1]), DecodeError::Truncated("packed words"));
    }
}
