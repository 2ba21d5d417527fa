//! The two directions of permessage-deflate (RFC 7692 §7.2) on flate2.
//!
//! A compressor takes 371 KiB and a decompressor 46 KiB at window 15
//! (`states_take_what_is_said_of_them` below), so they are created when the first message needs
//! them, and those without context takeover serve all connections of a thread.

use std::{cell::RefCell, ops::Add};

use bytes::{Bytes, BytesMut};
use flate2::{Compress, Decompress, FlushCompress, FlushDecompress, Status};

use crate::{error::Error, params::Direction, scratch};

/// Memory of compressors and decompressors, in bytes. Buffers are not counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CompressionMemory {
    /// Bytes of the connection alone.
    pub own_bytes: usize,
    /// Bytes of the thread: states without context takeover serve all its connections.
    pub shared_bytes: usize,
}

impl CompressionMemory {
    /// Memory of the connection alone.
    pub fn own(bytes: usize) -> CompressionMemory {
        CompressionMemory { own_bytes: bytes, shared_bytes: 0 }
    }

    /// Memory of the thread.
    pub fn shared(bytes: usize) -> CompressionMemory {
        CompressionMemory { own_bytes: 0, shared_bytes: bytes }
    }
}

impl Add for CompressionMemory {
    type Output = CompressionMemory;

    fn add(self, other: CompressionMemory) -> CompressionMemory {
        CompressionMemory {
            own_bytes: self.own_bytes + other.own_bytes,
            shared_bytes: self.shared_bytes + other.shared_bytes,
        }
    }
}

/// The end of a sync flush, which the sender drops (RFC 7692 §7.2.1) and the receiver puts back
/// (§7.2.2).
const FLUSH_TAIL: [u8; 4] = [0, 0, 0xff, 0xff];

thread_local! {
    static POOL: RefCell<Pool> = const { RefCell::new(Pool { compress: Vec::new(), decompress: None }) };
}

/// States without context takeover: a compressor per set of parameters in use, and one decompressor
/// with the largest window, which reads all others.
struct Pool {
    compress: Vec<(u32, u8, Compress)>,
    decompress: Option<Decompress>,
}

/// Memory of zlib-rs for a compressor: two windows, a two-byte link for each byte of one, and a
/// fixed part. A test counts the allocations.
fn compress_bytes(window_bits: u8) -> usize {
    COMPRESS_FIXED_BYTES + (4 << window_bits.clamp(9, 15))
}

/// Hash heads, pending output, symbols, and the state.
const COMPRESS_FIXED_BYTES: usize = 248_960;

/// Memory of zlib-rs for a decompressor with any window.
const DECOMPRESS_BYTES: usize = 47_552;

/// Compresses the messages of one connection.
#[derive(Debug)]
pub(crate) struct Deflater {
    pub(crate) level: u32,
    pub(crate) direction: Direction,
    /// The context, with takeover only.
    context: Option<Box<Compress>>,
}

impl Deflater {
    pub(crate) fn new(level: u32, direction: Direction) -> Deflater {
        Deflater { level, direction, context: None }
    }

    /// Memory of the state.
    pub(crate) fn memory(&self) -> CompressionMemory {
        let bytes = compress_bytes(self.direction.window_bits);
        if self.direction.takeover {
            return CompressionMemory::own(if self.context.is_some() { bytes } else { 0 });
        }
        let wanted = (self.level, self.direction.window_bits);
        let pooled = POOL.with_borrow(|pool| pool.compress.iter().any(|&(l, b, _)| (l, b) == wanted));
        CompressionMemory::shared(if pooled { bytes } else { 0 })
    }

    /// Whether payloads of this size are compressed.
    pub(crate) fn takes(&self, payload_bytes: usize) -> bool {
        payload_bytes >= self.direction.min_bytes
    }

    /// Appends the compressed message to `out`.
    pub(crate) fn compress(&mut self, payload: &[u8], out: &mut BytesMut) {
        if payload.is_empty() {
            // RFC 7692 §7.2.3.6: the header of an empty stored block. zlib writes nothing for a
            // second sync flush in a row.
            out.extend_from_slice(&[0]);
            return;
        }
        let (level, bits) = (self.level, self.direction.window_bits);
        if self.direction.takeover {
            compress(self.context.get_or_insert_with(|| Box::new(new_compress(level, bits))), payload, out);
        } else {
            compress_fresh(level, bits, payload, out);
        }
    }
}

pub(crate) fn compress_fresh(level: u32, window_bits: u8, payload: &[u8], out: &mut BytesMut) {
    POOL.with_borrow_mut(|pool| {
        let states = &mut pool.compress;
        let at = states.iter().position(|&(l, b, _)| (l, b) == (level, window_bits)).unwrap_or_else(|| {
            states.push((level, window_bits, new_compress(level, window_bits)));
            states.len() - 1
        });
        let state = &mut states[at].2;
        state.reset();
        compress(state, payload, out);
    });
}

fn new_compress(level: u32, window_bits: u8) -> Compress {
    Compress::new_with_window_bits(flate2::Compression::new(level.min(9)), false, window_bits.clamp(9, 15))
}

fn compress(state: &mut Compress, payload: &[u8], out: &mut BytesMut) {
    // Fixed Huffman codes take at most 9 bits a byte and stored blocks 5 bytes each, so one round
    // is the rule.
    scratch::with(payload.len() + payload.len() / 8 + 256, |buffer| {
        let (start_in, start_out) = (state.total_in(), state.total_out());
        let mut written = 0;
        loop {
            let consumed = step(start_in, state.total_in());
            state
                .compress(&payload[consumed..], &mut buffer[written..], FlushCompress::Sync)
                .expect("deflate fails only after a finish, which is never asked for");
            written = step(start_out, state.total_out());
            if written < buffer.len() {
                break;
            }
            buffer.resize(buffer.len() * 2, 0);
        }
        let message = buffer[..written].strip_suffix(&FLUSH_TAIL);
        out.extend_from_slice(message.expect("a sync flush ends with an empty stored block"));
    });
}

/// Inflates the messages of one connection.
#[derive(Debug)]
pub(crate) struct Inflater {
    direction: Direction,
    /// The context, with takeover only.
    context: Option<Box<Decompress>>,
}

impl Inflater {
    pub(crate) fn new(direction: Direction) -> Inflater {
        Inflater { direction, context: None }
    }

    /// Memory of the state.
    pub(crate) fn memory(&self) -> CompressionMemory {
        if self.direction.takeover {
            return CompressionMemory::own(if self.context.is_some() { DECOMPRESS_BYTES } else { 0 });
        }
        let pooled = POOL.with_borrow(|pool| pool.decompress.is_some());
        CompressionMemory::shared(if pooled { DECOMPRESS_BYTES } else { 0 })
    }

    /// Whether later messages refer to earlier ones, so that none may be left out.
    pub(crate) fn has_takeover(&self) -> bool {
        self.direction.takeover
    }

    /// The message before compression. At most `limit_bytes` + 1 bytes are produced.
    ///
    /// # Errors
    /// [`Error::TooLarge`], or [`Error::Inflate`] for bytes that are not a deflate stream.
    pub(crate) fn inflate(&mut self, payload: &[u8], limit_bytes: usize) -> Result<Bytes, Error> {
        if self.direction.takeover {
            let state = || Box::new(new_decompress(self.direction.window_bits));
            return inflate(self.context.get_or_insert_with(state), payload, limit_bytes);
        }
        POOL.with_borrow_mut(|pool| {
            // flate2 resets one of this window in place, and allocates any other anew.
            let state = pool.decompress.get_or_insert_with(|| new_decompress(15));
            state.reset(false);
            inflate(state, payload, limit_bytes)
        })
    }
}

fn new_decompress(window_bits: u8) -> Decompress {
    Decompress::new_with_window_bits(false, window_bits.clamp(9, 15))
}

/// Bytes of an inflated message before the buffer grows.
const FIRST_BYTES: usize = 64 << 10;

fn inflate(state: &mut Decompress, payload: &[u8], limit_bytes: usize) -> Result<Bytes, Error> {
    // One byte over the limit shows that there would be more.
    let most_bytes = limit_bytes.saturating_add(1);
    scratch::with(most_bytes.min(FIRST_BYTES), |buffer| {
        let mut written = 0;
        for mut input in [payload, &FLUSH_TAIL] {
            loop {
                let room = buffer.len().min(most_bytes);
                let (start_in, start_out) = (state.total_in(), state.total_out());
                let status = state
                    .decompress(input, &mut buffer[written..room], FlushDecompress::Sync)
                    .map_err(|error| Error::Inflate(error.to_string()))?;
                let consumed = step(start_in, state.total_in());
                let produced = step(start_out, state.total_out());
                input = &input[consumed..];
                written += produced;
                if written > limit_bytes {
                    return Err(Error::TooLarge { limit_bytes });
                }
                if status == Status::StreamEnd {
                    // RFC 7692 §7.2.3.4: a message may hold final blocks; what follows is a new
                    // stream.
                    state.reset(false);
                }
                if written == room {
                    // The state may hold more output. The last step goes to the limit and no
                    // further, so that no copy of nearly as much stands beside it.
                    let next = if room >= most_bytes / 4 { most_bytes } else { room * 2 };
                    buffer.reserve_exact(next - buffer.len());
                    buffer.resize(next, 0);
                } else if input.is_empty() {
                    break;
                } else if status != Status::StreamEnd && consumed == 0 && produced == 0 {
                    return Err(Error::Inflate("the stream makes no progress".into()));
                }
            }
        }
        Ok(Bytes::copy_from_slice(&buffer[..written]))
    })
}

/// Bytes that one call took or made, from zlib's running totals.
fn step(before: u64, after: u64) -> usize {
    usize::try_from(after - before).expect("bounded by the length of a slice")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const LIMIT: usize = 1 << 20;
    const TAKEOVER: Direction = Direction::DEFAULT;
    pub(crate) const FRESH: Direction = Direction::NO_TAKEOVER;

    pub(crate) fn compressed(deflater: &mut Deflater, payload: &[u8]) -> Vec<u8> {
        let mut out = BytesMut::new();
        deflater.compress(payload, &mut out);
        out.to_vec()
    }

    /// A message in which each line resembles the others.
    pub(crate) fn sample(seed: usize) -> Vec<u8> {
        (0..50).map(|i| format!("[\"EVENT\",\"{seed}\",{{\"n\":{}}}]", i * seed)).collect::<String>().into()
    }

    #[test]
    fn the_examples_of_rfc_7692_inflate() {
        let examples: [(&str, &[u8]); 4] = [
            ("§7.2.3.1, one block", &[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00]),
            ("§7.2.3.3, stored", &[0x00, 0x05, 0x00, 0xfa, 0xff, 0x48, 0x65, 0x6c, 0x6c, 0x6f, 0x00]),
            ("§7.2.3.4, final block", &[0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00]),
            (
                "§7.2.3.5, two blocks",
                &[0xf2, 0x48, 0x05, 0x00, 0x00, 0x00, 0xff, 0xff, 0xca, 0xc9, 0xc9, 0x07, 0x00],
            ),
        ];
        for (example, bytes) in examples {
            for direction in [TAKEOVER, FRESH] {
                let mut inflater = Inflater::new(direction);
                for _ in 0..2 {
                    assert_eq!(inflater.inflate(bytes, LIMIT).unwrap(), "Hello", "{example}, {direction:?}");
                }
            }
        }
    }

    #[test]
    fn the_second_message_refers_to_the_first_only_with_takeover() {
        // RFC 7692 §7.2.3.2.
        let (first, second) = ([0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00], [0xf2, 0x00, 0x11, 0x00, 0x00]);
        let mut inflater = Inflater::new(TAKEOVER);
        assert_eq!(inflater.inflate(&first, LIMIT).unwrap(), "Hello");
        assert_eq!(inflater.inflate(&second, LIMIT).unwrap(), "Hello");
        let mut inflater = Inflater::new(FRESH);
        assert_eq!(inflater.inflate(&first, LIMIT).unwrap(), "Hello");
        assert!(matches!(inflater.inflate(&second, LIMIT), Err(Error::Inflate(_))));
    }

    /// RFC 7692 §7.2.3.4: BFINAL ends a stream, also within a message.
    #[test]
    fn behind_a_final_block_is_another_stream_and_no_noise() {
        let last = [0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00];
        let mut inflater = Inflater::new(TAKEOVER);
        assert_eq!(inflater.inflate(&[&last[..], &last, &[0]].concat(), LIMIT).unwrap(), "HelloHello");
        let noise = [&last[..], &[0x07, 1, 2, 3]].concat();
        assert!(matches!(inflater.inflate(&noise, LIMIT), Err(Error::Inflate(_))));
    }

    #[test]
    fn hello_compresses_to_the_bytes_of_the_rfc() {
        let mut deflater = Deflater::new(6, TAKEOVER);
        assert_eq!(compressed(&mut deflater, b"Hello"), [0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00]);
        let second = compressed(&mut deflater, b"Hello");
        let mut deflater = Deflater::new(6, FRESH);
        let fresh = compressed(&mut deflater, b"Hello");
        assert_eq!(compressed(&mut deflater, b"Hello"), fresh);
        assert!(second.len() < fresh.len(), "{second:x?}");
    }

    #[test]
    fn every_level_and_window_gives_back_every_message() {
        for level in 0..=9 {
            for window_bits in 9..=15 {
                for takeover in [true, false] {
                    let direction = Direction { takeover, window_bits, min_bytes: 0 };
                    let (mut deflater, mut inflater) =
                        (Deflater::new(level, direction), Inflater::new(direction));
                    let noise: Vec<u8> =
                        (0..70_000_u32).map(|i| i.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
                    for payload in [sample(3), vec![], vec![], sample(4), noise, sample(3), vec![7]] {
                        let bytes = compressed(&mut deflater, &payload);
                        assert_eq!(
                            inflater.inflate(&bytes, LIMIT).unwrap(),
                            payload,
                            "{level} {direction:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn states_take_what_is_said_of_them() {
        for bits in 9..=15 {
            let counted = allocation_counter::measure(|| drop(new_compress(6, bits)));
            assert_eq!(counted.bytes_max, compress_bytes(bits) as u64, "compressor, window {bits}");
            let counted = allocation_counter::measure(|| drop(new_decompress(bits)));
            assert_eq!(counted.bytes_max, DECOMPRESS_BYTES as u64, "decompressor, window {bits}");
        }
        let (mut deflater, mut inflater) = (Deflater::new(6, TAKEOVER), Inflater::new(TAKEOVER));
        assert_eq!(deflater.memory() + inflater.memory(), CompressionMemory::default(), "made when needed");
        let bytes = compressed(&mut deflater, &sample(1));
        inflater.inflate(&bytes, LIMIT).unwrap();
        assert_eq!(
            deflater.memory() + inflater.memory(),
            CompressionMemory::own(compress_bytes(15) + DECOMPRESS_BYTES)
        );
        let (mut deflater, mut inflater) = (Deflater::new(6, FRESH), Inflater::new(FRESH));
        let bytes = compressed(&mut deflater, &sample(1));
        inflater.inflate(&bytes, LIMIT).unwrap();
        let shared = CompressionMemory::shared(compress_bytes(15) + DECOMPRESS_BYTES);
        assert_eq!(deflater.memory() + inflater.memory(), shared);
    }

    #[test]
    fn a_thread_inflates_messages_of_every_window_by_the_same_state() {
        for window_bits in [9, 12, 15, 9] {
            let direction = Direction { window_bits, ..FRESH };
            let bytes = compressed(&mut Deflater::new(6, direction), &sample(1));
            let mut inflater = Inflater::new(direction);
            inflater.inflate(&bytes, LIMIT).unwrap();
            let counted = allocation_counter::measure(|| drop(inflater.inflate(&bytes, LIMIT).unwrap()));
            assert!(counted.bytes_total < DECOMPRESS_BYTES as u64 / 4, "{window_bits}: {counted:?}");
        }
    }

    #[test]
    fn the_limit_is_exact() {
        let bytes = compressed(&mut Deflater::new(6, FRESH), &[0; 1000]);
        assert_eq!(Inflater::new(FRESH).inflate(&bytes, 1000).unwrap().len(), 1000);
        let error = Inflater::new(FRESH).inflate(&bytes, 999).unwrap_err();
        assert!(matches!(error, Error::TooLarge { limit_bytes: 999 }));
    }
}
