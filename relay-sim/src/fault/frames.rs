//! Faults of frames and of their compression, in the bytes behind the WebSocket.
//!
//! A server's frames have no mask (RFC 6455 §5.1). They are followed as they go out: data frames
//! are taken whole, control frames pass as they are.

use std::{
    io::{Cursor, Write},
    num::NonZeroU32,
    time::Instant,
};

use flate2::{
    Compression,
    write::{DeflateDecoder, DeflateEncoder},
};
use tokio_tungstenite::tungstenite::protocol::frame::{
    FrameHeader,
    coding::{Data, OpCode},
};
use wire::Tamper;

use super::{Faults, Hit, Kind, Planted};

/// Bytes that a sync flush ends with and a sender leaves out (RFC 7692 §7.2.1).
const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];

/// The tampering of one connection.
#[derive(Debug)]
pub(crate) struct SpoiltFrames {
    planted: Planted,
    /// The beginning of a frame whose rest has not come.
    held: Vec<u8>,
    /// Reads what the relay compresses, since blocks may refer to earlier messages. `None` once it
    /// failed.
    inflater: Option<DeflateDecoder<Vec<u8>>>,
}

impl SpoiltFrames {
    pub(crate) fn new(faults: &Faults, connection: u64) -> SpoiltFrames {
        let inflater = Some(DeflateDecoder::new(Vec::new()));
        SpoiltFrames { planted: Planted::new(faults, connection), held: Vec::new(), inflater }
    }

    /// A data frame of the relay's, which is a whole message.
    fn spoil(&mut self, mut header: FrameHeader, payload: &[u8], out: &mut Vec<u8>) {
        let now = Instant::now();
        let mut payload = payload.to_vec();
        if header.rsv1 {
            let plain = self.inflate(&payload);
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
        loop {
            let (piece, behind) = rest.split_at(rest.len().min(most));
            header.is_final = behind.is_empty();
            push_frame(&header, piece, out);
            if behind.is_empty() {
                return;
            }
            header = FrameHeader { opcode: OpCode::Data(Data::Continue), ..FrameHeader::default() };
            rest = behind;
        }
    }

    fn inflate(&mut self, payload: &[u8]) -> Option<Vec<u8>> {
        let mut inflater = self.inflater.take()?;
        inflater.write_all(payload).and_then(|()| inflater.write_all(&TAIL)).ok()?;
        inflater.flush().ok()?;
        let plain = std::mem::take(inflater.get_mut());
        self.inflater = Some(inflater);
        Some(plain)
    }
}

impl Tamper for SpoiltFrames {
    fn pass(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.planted.refresh();
        self.held.extend_from_slice(bytes);
        let held = std::mem::take(&mut self.held);
        let mut rest = &held[..];
        while let Some((header, payload, behind)) = frame(rest) {
            if matches!(header.opcode, OpCode::Data(_)) {
                self.spoil(header, payload, out);
            } else {
                push_frame(&header, payload, out);
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

/// The frame that begins here, and what is behind it, once the frame is whole.
fn frame(bytes: &[u8]) -> Option<(FrameHeader, &[u8], &[u8])> {
    let mut cursor = Cursor::new(bytes);
    let (header, payload_bytes) = FrameHeader::parse(&mut cursor).ok()??;
    let rest = &bytes[header.len(payload_bytes)..];
    let (payload, behind) = rest.split_at_checked(usize::try_from(payload_bytes).ok()?)?;
    Some((header, payload, behind))
}

fn push_frame(header: &FrameHeader, payload: &[u8], out: &mut Vec<u8>) {
    header.format(payload.len() as u64, out).expect("memory takes every byte");
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
    let mut stored = DeflateEncoder::new(Vec::new(), Compression::none());
    stored.write_all(plain).expect("memory takes every byte");
    let mut payload = stored.finish().expect("memory takes every byte");
    payload.push(0);
    payload
}

#[cfg(test)]
mod tests {
    use flate2::{Decompress, FlushDecompress};
    use tokio_tungstenite::tungstenite::protocol::frame::coding::Control;

    use super::*;

    const TEXT: OpCode = OpCode::Data(Data::Text);
    const BINARY: OpCode = OpCode::Data(Data::Binary);
    const PING: OpCode = OpCode::Control(Control::Ping);

    fn spoilt(fault: &str) -> SpoiltFrames {
        SpoiltFrames::new(&Faults::new(&[fault.parse().unwrap()]), 0)
    }

    fn framed(opcode: OpCode, payload: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        push_frame(&FrameHeader { opcode, ..FrameHeader::default() }, payload, &mut frame);
        frame
    }

    #[test]
    fn without_a_fault_that_hits_frames_pass_as_they_are_however_they_are_cut() {
        let frames = [
            framed(TEXT, b"text"),
            framed(BINARY, &[7; 200]),
            framed(PING, b"ping"),
            framed(TEXT, &vec![b'x'; 70_000]),
            framed(OpCode::Control(Control::Close), &[3, 0xe8]),
        ];
        let bytes = frames.concat();
        for piece in [1, 3, 1_000, bytes.len()] {
            let (mut spoilt, mut out) = (spoilt("fragment=1:message=99"), Vec::new());
            bytes.chunks(piece).for_each(|piece| spoilt.pass(piece, &mut out));
            assert!(out == bytes, "in pieces of {piece}");
            assert!(spoilt.held.is_empty());
        }
    }

    #[test]
    fn a_message_is_cut_into_fragments_around_which_control_frames_stay() {
        let (mut spoilt, mut out) = (spoilt("fragment=2"), Vec::new());
        let mut bytes = [framed(TEXT, b"abcde"), framed(PING, b""), framed(BINARY, b"f"), framed(TEXT, b"")];
        bytes[0][0] |= 0x40; // compressed
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
