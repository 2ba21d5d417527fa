//! Faults of frames and of their compression, in the bytes behind the WebSocket.
//!
//! A server's frames have no mask (RFC 6455 §5.1). They are followed as they go out: data frames
//! are taken whole, control frames pass as they are.

use std::{num::NonZeroU32, time::Instant};

use flate2::{Decompress, FlushDecompress};
use wire::Tamper;

use super::{Hit, Kind, Planted};

const FIN: u8 = 0x80;
const RSV1: u8 = 0x40;
const OPCODE: u8 = 0x0f;
/// Opcodes from here on are of control frames, and a data frame of 0 would go on a message.
const CLOSE: u8 = 8;

/// Bytes that a sync flush ends with and a sender leaves out (RFC 7692 §7.2.1).
const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];

/// The longest content of a stored block (RFC 1951 §3.2.4).
const STORED_BYTES: usize = 65_535;

/// The tampering of one connection.
#[derive(Debug)]
pub(crate) struct SpoiltFrames {
    planted: Planted,
    /// The beginning of a frame whose rest has not come.
    held: Vec<u8>,
    inflater: Inflater,
}

impl SpoiltFrames {
    pub(crate) fn new(planted: Planted) -> SpoiltFrames {
        SpoiltFrames { planted, held: Vec::new(), inflater: Inflater(Some(Decompress::new(false))) }
    }

    /// A data frame of the relay's, which is a whole message.
    fn spoil(&mut self, first_byte: u8, payload: &[u8], out: &mut Vec<u8>) {
        let now = Instant::now();
        let is_deflated = first_byte & RSV1 != 0;
        let plain = if is_deflated { self.inflater.inflate(payload) } else { None };
        let mut payload = payload.to_vec();
        if is_deflated {
            // An event that counts for both, so that `message` means the same.
            let bfinal = self.planted.next(Kind::Bfinal, now);
            let flip = self.planted.next(Kind::FlipBit, now);
            if let (Some(_), Some(plain)) = (bfinal, plain) {
                payload = final_block(&plain);
            }
            if let Some(hit) = flip {
                flip_bit(&mut payload, hit);
            }
        }
        let fragment = self.planted.next(Kind::Fragment, now);
        let most = fragment.map_or(usize::MAX, |hit| hit.number() as usize);
        let mut rest = &payload[..];
        let mut first_byte = first_byte & !FIN;
        loop {
            let (piece, behind) = rest.split_at(rest.len().min(most));
            let fin = if behind.is_empty() { FIN } else { 0 };
            push_frame(first_byte | fin, piece, out);
            if behind.is_empty() {
                return;
            }
            (rest, first_byte) = (behind, 0);
        }
    }
}

impl Tamper for SpoiltFrames {
    fn pass(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.planted.refresh();
        self.held.extend_from_slice(bytes);
        let held = std::mem::take(&mut self.held);
        let mut rest = &held[..];
        while let Some((header_bytes, frame_bytes)) = frame(rest)
            && frame_bytes <= rest.len()
        {
            let (frame, behind) = rest.split_at(frame_bytes);
            if frame[0] & OPCODE < CLOSE {
                self.spoil(frame[0], &frame[header_bytes..], out);
            } else {
                out.extend_from_slice(frame);
            }
            rest = behind;
        }
        self.held = rest.to_vec();
    }

    fn bytes_per_second(&mut self) -> Option<NonZeroU32> {
        self.planted.refresh();
        NonZeroU32::new(self.planted.next(Kind::Slow, Instant::now())?.number())
    }
}

/// The bytes of the header and of the whole frame that begins here, once the header is whole.
fn frame(bytes: &[u8]) -> Option<(usize, usize)> {
    let short = usize::from(*bytes.get(1)? & 0x7f);
    let (header_bytes, payload_bytes) = match short {
        126 => (4, usize::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?))),
        127 => (10, usize::try_from(u64::from_be_bytes(bytes.get(2..10)?.try_into().ok()?)).ok()?),
        short => (2, short),
    };
    Some((header_bytes, header_bytes.checked_add(payload_bytes)?))
}

fn push_frame(first_byte: u8, payload: &[u8], out: &mut Vec<u8>) {
    let len = (payload.len() as u64).to_be_bytes();
    match payload.len() {
        0..126 => out.extend([first_byte, len[7]]),
        126..65_536 => out.extend([first_byte, 126, len[6], len[7]]),
        _ => {
            out.extend([first_byte, 127]);
            out.extend(len);
        }
    }
    out.extend_from_slice(payload);
}

/// Flips one bit behind the header of the first block, where there is any.
fn flip_bit(payload: &mut [u8], hit: Hit) {
    let bits = payload.len() as u64 * 8;
    if bits > 3 {
        let bit = 3 + hit.draw.next(1) % (bits - 3);
        payload[usize::try_from(bit / 8).expect("it is below the length")] ^= 1 << (bit % 8);
    }
}

/// A message as stored blocks, of which the last has BFINAL, and a zero byte. With the tail that the
/// receiver appends, this byte makes another, empty block (RFC 7692 §7.2.3.4).
fn final_block(plain: &[u8]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(plain.len() + 16);
    let mut blocks = plain.chunks(STORED_BYTES).peekable();
    if plain.is_empty() {
        payload.extend([1, 0, 0, 0xff, 0xff]);
    }
    while let Some(block) = blocks.next() {
        let len = u16::try_from(block.len()).expect("it is at most 65,535");
        payload.push(u8::from(blocks.peek().is_none()));
        payload.extend(len.to_le_bytes());
        payload.extend((!len).to_le_bytes());
        payload.extend_from_slice(block);
    }
    payload.push(0);
    payload
}

/// Reads what the relay compresses, since blocks may refer to earlier messages. `None` once it
/// failed.
#[derive(Debug)]
struct Inflater(Option<Decompress>);

impl Inflater {
    fn inflate(&mut self, payload: &[u8]) -> Option<Vec<u8>> {
        let inflater = self.0.as_mut()?;
        let mut plain = Vec::with_capacity(payload.len() * 4 + 64);
        for part in [payload, &TAIL] {
            let mut rest = part;
            loop {
                let before = inflater.total_in();
                let result = inflater.decompress_vec(rest, &mut plain, FlushDecompress::Sync);
                let taken = usize::try_from(inflater.total_in() - before).ok()?;
                if result.is_err() {
                    self.0 = None;
                    return None;
                }
                rest = &rest[taken..];
                if plain.len() < plain.capacity() && rest.is_empty() {
                    break;
                }
                plain.reserve(plain.len().max(64));
            }
        }
        Some(plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::{Fault, Faults};

    fn spoilt(faults: &[&str]) -> SpoiltFrames {
        let faults: Vec<Fault> = faults.iter().map(|text| text.parse().unwrap()).collect();
        SpoiltFrames::new(Planted::new(Faults::new(&faults), 0))
    }

    fn framed(first_byte: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        push_frame(first_byte, payload, &mut frame);
        frame
    }

    #[test]
    fn without_a_fault_that_hits_frames_pass_as_they_are_however_they_are_cut() {
        let frames = [
            framed(0x81, b"text"),
            framed(0x82, &[7; 200]),
            framed(0x89, b"ping"),
            framed(0x81, &vec![b'x'; 70_000]),
            framed(0x88, &[3, 0xe8]),
        ];
        let bytes = frames.concat();
        for piece in [1, 3, 1_000, bytes.len()] {
            let (mut spoilt, mut out) = (spoilt(&["fragment=1:message=99"]), Vec::new());
            bytes.chunks(piece).for_each(|piece| spoilt.pass(piece, &mut out));
            assert!(out == bytes, "in pieces of {piece}");
            assert!(spoilt.held.is_empty());
        }
    }

    #[test]
    fn a_message_is_cut_into_fragments_around_which_control_frames_stay() {
        let (mut spoilt, mut out) = (spoilt(&["fragment=2"]), Vec::new());
        let bytes = [framed(0xc1, b"abcde"), framed(0x89, b""), framed(0x82, b"f"), framed(0x81, b"")];
        spoilt.pass(&bytes.concat(), &mut out);
        assert_eq!(out, b"\x41\x02ab\x00\x02cd\x80\x01e\x89\x00\x82\x01f\x81\x00");
    }

    #[test]
    fn a_final_block_holds_the_same_message() {
        for len in [0, 5, 65_535, 65_536, 200_000] {
            let plain = vec![b'x'; len];
            let block = final_block(&plain);
            let mut inflater = Decompress::new(false);
            let mut out = Vec::with_capacity(len + 64);
            let status = inflater.decompress_vec(&block, &mut out, FlushDecompress::Sync).unwrap();
            assert_eq!((status, out.len()), (flate2::Status::StreamEnd, len));
            assert_eq!(inflater.total_in(), block.len() as u64 - 1, "one byte follows");
        }
    }
}
