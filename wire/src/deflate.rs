//! permessage-deflate's two directions (RFC 7692 §7.2) on flate2.
//!
//! States are large (zlib-rs: 371 KB to compress, 47 KB to inflate, at window 15), so they are created when the
//! first message needs them, and those without context takeover are shared by all connections of a thread.

use std::cell::RefCell;

use bytes::{Bytes, BytesMut};
use flate2::{Compress, Decompress, FlushCompress, FlushDecompress, Status};

use crate::{error::WireError, extensions::Direction, scratch};

/// RFC 7692 §7.2.1: the sender drops what a sync flush leaves at the end, §7.2.2: the receiver puts it back.
const FLUSH_TAIL: [u8; 4] = [0, 0, 0xff, 0xff];

thread_local! {
    static POOL: RefCell<Pool> = const { RefCell::new(Pool { compress: Vec::new(), decompress: Vec::new() }) };
}

/// States without memory of earlier messages. Their number is that of different parameters in use.
struct Pool {
    compress: Vec<(u32, u8, Compress)>,
    decompress: Vec<(u8, Decompress)>,
}

/// Compresses the messages of one connection.
#[derive(Debug)]
pub(crate) struct Deflater {
    level: u32,
    direction: Direction,
    /// The context, with takeover only.
    context: Option<Compress>,
}

impl Deflater {
    pub(crate) fn new(level: u32, direction: Direction) -> Deflater {
        Deflater { level, direction, context: None }
    }

    /// Appends the compressed message to `out`.
    pub(crate) fn compress(&mut self, payload: &[u8], out: &mut BytesMut) {
        if payload.is_empty() {
            // RFC 7692 §7.2.3.6: an empty message is the header of an empty stored block. A second sync flush
            // in a row would yield nothing at all.
            out.extend_from_slice(&[0]);
            return;
        }
        let (level, bits) = (self.level, self.direction.window_bits);
        if self.direction.takeover {
            compress(self.context.get_or_insert_with(|| new_compress(level, bits)), payload, out);
            return;
        }
        POOL.with_borrow_mut(|pool| {
            let states = &mut pool.compress;
            let at = states.iter().position(|&(l, b, _)| (l, b) == (level, bits)).unwrap_or_else(|| {
                states.push((level, bits, new_compress(level, bits)));
                states.len() - 1
            });
            let state = &mut states[at].2;
            state.reset();
            compress(state, payload, out);
        });
    }
}

fn new_compress(level: u32, window_bits: u8) -> Compress {
    Compress::new_with_window_bits(flate2::Compression::new(level.min(9)), false, window_bits.clamp(9, 15))
}

fn compress(state: &mut Compress, payload: &[u8], out: &mut BytesMut) {
    // Fixed Huffman codes take at most 9 bits a byte and stored blocks 5 bytes each, so this nearly always holds
    // everything; where it does not, the loop goes on with twice as much.
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
    context: Option<Decompress>,
}

impl Inflater {
    pub(crate) fn new(direction: Direction) -> Inflater {
        Inflater { direction, context: None }
    }

    /// The message before compression. No more than `limit_bytes` and one are ever produced.
    ///
    /// # Errors
    /// [`WireError::TooLarge`], or [`WireError::Inflate`] for bytes that are not a deflate stream.
    pub(crate) fn inflate(&mut self, payload: &[u8], limit_bytes: usize) -> Result<Bytes, WireError> {
        let bits = self.direction.window_bits;
        if self.direction.takeover {
            return inflate(self.context.get_or_insert_with(|| new_decompress(bits)), payload, limit_bytes);
        }
        POOL.with_borrow_mut(|pool| {
            let states = &mut pool.decompress;
            let at = states.iter().position(|&(b, _)| b == bits).unwrap_or_else(|| {
                states.push((bits, new_decompress(bits)));
                states.len() - 1
            });
            let state = &mut states[at].1;
            state.reset(false);
            inflate(state, payload, limit_bytes)
        })
    }
}

fn new_decompress(window_bits: u8) -> Decompress {
    Decompress::new_with_window_bits(false, window_bits.clamp(9, 15))
}

fn inflate(state: &mut Decompress, payload: &[u8], limit_bytes: usize) -> Result<Bytes, WireError> {
    scratch::with(limit_bytes + 1, |buffer| {
        // A bounded slice: one byte over the limit tells that there would be more.
        let buffer = &mut buffer[..=limit_bytes];
        let mut written = 0;
        for mut input in [payload, &FLUSH_TAIL] {
            while !input.is_empty() {
                let (start_in, start_out) = (state.total_in(), state.total_out());
                let status = state
                    .decompress(input, &mut buffer[written..], FlushDecompress::Sync)
                    .map_err(|error| WireError::Inflate(error.to_string()))?;
                let consumed = step(start_in, state.total_in());
                let produced = step(start_out, state.total_out());
                input = &input[consumed..];
                written += produced;
                if written > limit_bytes {
                    return Err(WireError::TooLarge { limit_bytes, inflated: true });
                }
                if status == Status::StreamEnd {
                    // RFC 7692 §7.2.3.4: a message may hold final blocks; what follows is a new stream.
                    state.reset(false);
                } else if consumed == 0 && produced == 0 {
                    return Err(WireError::Inflate("the stream makes no progress".into()));
                }
            }
        }
        Ok(Bytes::copy_from_slice(&buffer[..written]))
    })
}

/// What one call did, from zlib's running totals.
fn step(before: u64, after: u64) -> usize {
    usize::try_from(after - before).expect("bounded by the length of a slice")
}
