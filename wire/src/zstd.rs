//! The zstd layer of the `+zstd` tokens: every message is binary, its first byte tells the transform.
//!
//! ```text
//! 00 payload              as it is
//! 01 one zstd frame       self-contained: no dictionary, no state from earlier messages
//! ```
//!
//! Contexts carry nothing from one message to the next, so those of a thread serve all its connections.

use std::cell::RefCell;

use bytes::{BufMut, Bytes, BytesMut};
use zstd::zstd_safe::{self, CCtx, DCtx};

use crate::{compression::ZstdParams, error::WireError, scratch};

const PLAIN: u8 = 0;
const FRAME: u8 = 1;

thread_local! {
    static COMPRESS: RefCell<CCtx<'static>> = RefCell::new(CCtx::create());
    static DECOMPRESS: RefCell<DCtx<'static>> = RefCell::new(DCtx::create());
}

/// Appends the message for `payload` to `out`: compressed from `min_bytes` on, and only where that is smaller.
pub(crate) fn compress(params: &ZstdParams, payload: &[u8], out: &mut BytesMut) {
    if payload.len() >= params.min_bytes && compress_smaller(params.level, payload, out) {
        return;
    }
    out.reserve(1 + payload.len());
    out.put_u8(PLAIN);
    out.put_slice(payload);
}

fn compress_smaller(level: i32, payload: &[u8], out: &mut BytesMut) -> bool {
    scratch::with(payload.len(), |buffer| {
        // The slice is one byte shorter than the payload: a frame that does not fit would save nothing.
        let room = payload.len().saturating_sub(1);
        let result =
            COMPRESS.with_borrow_mut(|context| context.compress(&mut buffer[..room], payload, level));
        let Ok(written) = result else { return false };
        out.reserve(1 + written);
        out.put_u8(FRAME);
        out.put_slice(&buffer[..written]);
        true
    })
}

/// The payload of a message. No more than `limit_bytes` are ever produced, whatever the frame claims.
///
/// # Errors
/// [`WireError::Protocol`] without a known transform, [`WireError::Inflate`] for anything but exactly one frame,
/// [`WireError::TooLarge`].
pub(crate) fn decompress(message: &Bytes, limit_bytes: usize) -> Result<Bytes, WireError> {
    match message.first() {
        Some(&PLAIN) => Ok(message.slice(1..)),
        Some(&FRAME) => decompress_frame(&message[1..], limit_bytes),
        Some(other) => Err(WireError::Protocol(format!(
            "message begins with transform {other}; known: {PLAIN} plain, {FRAME} zstd frame"
        ))),
        None => Err(WireError::Protocol("empty message; a transform byte was expected".into())),
    }
}

fn decompress_frame(frame: &[u8], limit_bytes: usize) -> Result<Bytes, WireError> {
    let too_large = || WireError::TooLarge { limit_bytes, inflated: true };
    let broken = |code| WireError::Inflate(zstd_safe::get_error_name(code).to_owned());
    if zstd_safe::find_frame_compressed_size(frame).map_err(broken)? != frame.len() {
        return Err(WireError::Inflate("bytes after the zstd frame".into()));
    }
    match zstd_safe::get_frame_content_size(frame) {
        Ok(Some(claimed)) if claimed > limit_bytes as u64 => return Err(too_large()),
        Ok(_) => {}
        Err(_) => return Err(WireError::Inflate("not a zstd frame".into())),
    }
    scratch::with(limit_bytes, |buffer| {
        let result =
            DECOMPRESS.with_borrow_mut(|context| context.decompress(&mut buffer[..limit_bytes], frame));
        match result {
            Ok(written) => Ok(Bytes::copy_from_slice(&buffer[..written])),
            Err(code) if zstd_safe::get_error_name(code) == "Destination buffer is too small" => {
                Err(too_large())
            }
            Err(code) => Err(broken(code)),
        }
    })
}
