//! The zstd layer of the `+zstd…` tokens: every message is binary and begins with the transform.
//!
//! ```text
//! 00 payload              as it is
//! 01 zstd frames          on `+zstd` one; on `+zstd-shared` one or several; on `+zstd-dict2-…` one or
//!                         several with the token's dictionary
//! 02 flushed blocks       the next of the direction's one zstd frame; only on `+zstd-stream`
//! ```
//!
//! With `+zstd-shared` and `+zstd-dict2-…` the part that differs by subscription is a frame of its
//! own, uncompressed. So the frame after it is the same for all subscriptions and is compressed
//! once (docs/decisions/frames.md).
//!
//! Contexts of single frames keep nothing between messages, so those of a thread serve all its
//! connections. A stream has contexts of its own, made when its first message needs them.

use std::{cell::RefCell, sync::OnceLock};

use bytes::{BufMut, Bytes, BytesMut};
use zstd::zstd_safe::{
    self, CCtx, CParameter, DCtx, DParameter, InBuffer, OutBuffer, zstd_sys::ZSTD_EndDirective::ZSTD_e_flush,
};

use terms::{Dictionary, ZSTD_STREAM_MAX_WINDOW_BITS, ZstdMode, ZstdParams};
use tungstenite_deflate::CompressionMemory;

use crate::error::WireError;

const PLAIN: u8 = 0;
const FRAME: u8 = 1;
const STREAM: u8 = 2;

thread_local! {
    static POOL: RefCell<Pool> = const { RefCell::new(Pool { compress: Vec::new(), decompress: Vec::new() }) };
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work` with an output buffer of the thread, at least `bytes` long. So a connection keeps no
/// buffer, and a length in a frame reserves nothing. Only growth zeroes the buffer.
fn with_scratch<R>(bytes: usize, work: impl FnOnce(&mut [u8]) -> R) -> R {
    SCRATCH.with_borrow_mut(|buffer| {
        if buffer.len() < bytes {
            buffer.resize(bytes, 0);
        }
        work(buffer)
    })
}

/// Contexts of single frames, one for each set of parameters and each dictionary in use.
struct Pool {
    compress: Vec<(ZstdParams, CCtx<'static>)>,
    decompress: Vec<(Option<Dictionary>, DCtx<'static>)>,
}

/// Both directions of one connection.
#[derive(derive_more::Debug)]
pub(crate) struct ZstdLayer {
    params: ZstdParams,
    #[debug(skip)]
    compress: Option<CCtx<'static>>,
    #[debug(skip)]
    decompress: Option<DCtx<'static>>,
}

impl ZstdLayer {
    pub(crate) fn new(params: ZstdParams) -> ZstdLayer {
        ZstdLayer { params, compress: None, decompress: None }
    }

    /// Memory of the contexts, by zstd's own functions.
    pub(crate) fn memory(&self) -> CompressionMemory {
        if self.params.mode == ZstdMode::Stream {
            let compress = self.compress.as_ref().map_or(0, CCtx::sizeof);
            return CompressionMemory::own(compress + self.decompress.as_ref().map_or(0, DCtx::sizeof));
        }
        let dictionary = dictionary(&self.params);
        CompressionMemory::shared(POOL.with_borrow(|pool| {
            let compress = pool.compress.iter().find(|(params, _)| *params == self.params);
            let decompress = pool.decompress.iter().find(|(loaded, _)| *loaded == dictionary);
            compress.map_or(0, |(_, context)| context.sizeof())
                + decompress.map_or(0, |(_, context)| context.sizeof())
        }))
    }

    /// Whether [`ZstdLayer::splice`] compresses once for all connections.
    pub(crate) fn shares(params: &ZstdParams) -> bool {
        matches!(params.mode, ZstdMode::Shared | ZstdMode::Dictionary(_))
    }

    /// The message of two frames: the prefix, and the common parts from `shared`, compressed by the
    /// first caller, or plain if that is smaller. `None` if nothing is shared and for a prefix over
    /// 1 KiB: use [`ZstdLayer::compress`].
    pub(crate) fn splice<'m>(
        &self,
        prefix: &'m [u8],
        common: [&'m [u8]; 2],
        shared: &'m SharedZstd,
    ) -> Option<Spliced<'m>> {
        if !Self::shares(&self.params) || prefix.is_empty() || prefix.len() > RAW_FRAME_MAX_BYTES {
            return None;
        }
        let common_bytes = common.iter().map(|part| part.len()).sum::<usize>();
        let takes = prefix.len() + common_bytes >= self.params.min_bytes;
        let frame = if takes { shared.frame(&self.params, common) } else { None };
        Some(match frame.filter(|frame| RAW_FRAME_HEAD_BYTES + frame.len() < common_bytes) {
            Some(frame) => {
                let head = raw_frame_head(prefix.len());
                Spliced { head, head_bytes: head.len(), prefix, rest: [frame, &[]] }
            }
            None => Spliced { head: [PLAIN; RAW_FRAME_HEAD_BYTES], head_bytes: 1, prefix, rest: common },
        })
    }

    /// Appends the message for `payload` to `out`, compressed if it has at least `min_bytes`; a
    /// single frame also only if it is smaller.
    ///
    /// # Errors
    /// [`WireError::Protocol`] if zstd has no memory.
    pub(crate) fn compress(&mut self, payload: &[u8], out: &mut BytesMut) -> Result<(), WireError> {
        if payload.len() >= self.params.min_bytes && !payload.is_empty() {
            if self.params.mode == ZstdMode::Stream {
                return self.compress_next(payload, out);
            }
            if compress_smaller(&self.params, payload, out) {
                return Ok(());
            }
        }
        put_plain(payload, out);
        Ok(())
    }

    fn compress_next(&mut self, payload: &[u8], out: &mut BytesMut) -> Result<(), WireError> {
        let failed =
            |code| WireError::Protocol(format!("zstd cannot compress: {}", zstd_safe::get_error_name(code)));
        let context = match &mut self.compress {
            Some(context) => context,
            None => self.compress.insert(new_compress(&self.params).map_err(failed)?),
        };
        out.put_u8(STREAM);
        with_scratch(zstd_safe::compress_bound(payload.len()) + 64, |buffer| {
            let mut input = InBuffer::around(payload);
            loop {
                let mut output = OutBuffer::around(&mut buffer[..]);
                let left = context.compress_stream2(&mut output, &mut input, ZSTD_e_flush).map_err(failed)?;
                out.put_slice(output.as_slice());
                if left == 0 && input.pos == payload.len() {
                    return Ok(());
                }
            }
        })
    }

    /// Whether later messages refer to earlier ones, so that none may be left out.
    pub(crate) fn is_stream(&self) -> bool {
        self.params.mode == ZstdMode::Stream
    }

    /// The payload of a message. At most `limit_bytes` + 1 bytes are produced, whatever size the
    /// frame claims.
    ///
    /// # Errors
    /// [`WireError::Protocol`] for an unknown transform, [`WireError::Inflate`] for damaged bytes,
    /// [`WireError::TooLarge`].
    pub(crate) fn decompress(&mut self, message: &Bytes, limit_bytes: usize) -> Result<Bytes, WireError> {
        let stream = self.params.mode == ZstdMode::Stream;
        match message.first() {
            Some(&PLAIN) => Ok(message.slice(1..)),
            Some(&FRAME) if !stream => decompress_frames(&self.params, &message[1..], limit_bytes),
            Some(&STREAM) if stream => self.decompress_next(&message[1..], limit_bytes),
            Some(other) => Err(WireError::Protocol(format!(
                "message begins with transform {other}; known here: {PLAIN} plain, {}",
                if stream { "2 next in the zstd stream" } else { "1 zstd frame" }
            ))),
            None => Err(WireError::Protocol("empty message; a transform byte was expected".into())),
        }
    }

    fn decompress_next(&mut self, blocks: &[u8], limit_bytes: usize) -> Result<Bytes, WireError> {
        let context = match &mut self.decompress {
            Some(context) => context,
            None => self.decompress.insert(new_decompress().map_err(broken)?),
        };
        with_scratch(limit_bytes + 1, |buffer| {
            // One byte over the limit shows that there would be more.
            let mut output = OutBuffer::around(&mut buffer[..=limit_bytes]);
            let mut input = InBuffer::around(blocks);
            loop {
                let (before_in, before_out) = (input.pos, output.pos());
                let hint = context.decompress_stream(&mut output, &mut input).map_err(broken)?;
                if output.pos() > limit_bytes {
                    return Err(WireError::TooLarge { limit_bytes, inflated: true });
                }
                if hint == 0 {
                    return Err(WireError::Inflate(
                        "the zstd stream ended; it lasts as long as the connection".into(),
                    ));
                }
                // The decoder holds output back only without room for it.
                if input.pos == blocks.len() || (input.pos, output.pos()) == (before_in, before_out) {
                    return Ok(Bytes::copy_from_slice(output.as_slice()));
                }
            }
        })
    }
}

/// The common frame of messages to many connections, made by the first that needs it. One value
/// belongs to one payload.
#[derive(Debug, Default)]
pub(crate) struct SharedZstd {
    first: OnceLock<Box<SharedFrame>>,
}

/// The frame for one set of parameters, one for each set among a relay's connections.
#[derive(Debug)]
struct SharedFrame {
    params: ZstdParams,
    /// `None` if it would not be smaller.
    frame: Option<Box<[u8]>>,
    next: SharedZstd,
}

impl SharedZstd {
    /// Compressed bytes held, over all parameters.
    pub(crate) fn held_bytes(&self) -> usize {
        let (mut held, mut list) = (0, self);
        while let Some(SharedFrame { frame, next, .. }) = list.first.get().map(|shared| &**shared) {
            held += size_of::<SharedFrame>() + frame.as_ref().map_or(0, |frame| frame.len());
            list = next;
        }
        held
    }

    fn frame(&self, params: &ZstdParams, common: [&[u8]; 2]) -> Option<&[u8]> {
        let mut list = self;
        loop {
            let SharedFrame { params: made_by, frame, next } = &**list.first.get_or_init(|| {
                let frame = with_smaller_frame(params, &common.concat(), |frame| frame.into());
                Box::new(SharedFrame { params: *params, frame, next: SharedZstd::default() })
            });
            if made_by == params {
                return frame.as_deref();
            }
            list = next;
        }
    }
}

/// A message whose second part other messages share.
pub(crate) struct Spliced<'m> {
    /// The transform, and the head of the frame of the prefix if it is in one.
    head: [u8; RAW_FRAME_HEAD_BYTES],
    head_bytes: usize,
    prefix: &'m [u8],
    rest: [&'m [u8]; 2],
}

impl Spliced<'_> {
    /// The bytes on the wire, in order.
    pub(crate) fn parts(&self) -> [&[u8]; 4] {
        let [rest, end] = self.rest;
        [&self.head[..self.head_bytes], self.prefix, rest, end]
    }
}

/// The transform, magic number, descriptor, window and the block's header (RFC 8878 §3.1.1).
const RAW_FRAME_HEAD_BYTES: usize = 1 + 4 + 1 + 1 + 3;

/// The smallest window, which bounds a block (RFC 8878 §3.1.1.2.4).
const RAW_FRAME_MAX_BYTES: usize = 1 << 10;

/// The beginning of a message with a frame of one raw block of `bytes`, at most
/// [`RAW_FRAME_MAX_BYTES`]. The frame does not state its size, because decoders that reserve the
/// first frame's size would have too little for the second.
fn raw_frame_head(bytes: usize) -> [u8; RAW_FRAME_HEAD_BYTES] {
    // The last block, of type 0, and its length.
    let [low, middle, high, ..] = (1 | bytes << 3).to_le_bytes();
    [FRAME, 0x28, 0xb5, 0x2f, 0xfd, 0, 0, low, middle, high]
}

fn put_plain(payload: &[u8], out: &mut BytesMut) {
    out.reserve(1 + payload.len());
    out.put_u8(PLAIN);
    out.put_slice(payload);
}

/// The first message of a connection for `payload`.
///
/// # Errors
/// [`WireError::Protocol`] if zstd has no memory.
pub fn zstd_message(params: ZstdParams, payload: &[u8]) -> Result<Bytes, WireError> {
    let mut message = BytesMut::new();
    ZstdLayer::new(params).compress(payload, &mut message)?;
    Ok(message.freeze())
}

fn dictionary(params: &ZstdParams) -> Option<Dictionary> {
    match params.mode {
        ZstdMode::Dictionary(dictionary) => dictionary,
        ZstdMode::Frames | ZstdMode::Stream | ZstdMode::Shared => None,
    }
}

fn new_compress(params: &ZstdParams) -> Result<CCtx<'static>, zstd_safe::ErrorCode> {
    let mut context = CCtx::create();
    context.set_parameter(CParameter::CompressionLevel(params.level))?;
    context.set_parameter(CParameter::WindowLog(params.window_bits.into()))?;
    if let Some(dictionary) = dictionary(params) {
        // The token names the dictionary.
        context.set_parameter(CParameter::DictIdFlag(false))?;
        context.load_dictionary(dictionary.bytes())?;
    }
    Ok(context)
}

fn new_decompress() -> Result<DCtx<'static>, zstd_safe::ErrorCode> {
    let mut context = DCtx::create();
    context.set_parameter(DParameter::WindowLogMax(ZSTD_STREAM_MAX_WINDOW_BITS.into()))?;
    Ok(context)
}

fn compress_smaller(params: &ZstdParams, payload: &[u8], out: &mut BytesMut) -> bool {
    let put = |frame: &[u8]| {
        out.reserve(1 + frame.len());
        out.put_u8(FRAME);
        out.put_slice(frame);
    };
    with_smaller_frame(params, payload, put).is_some()
}

/// Lets `take` have the frame of a payload, if it is smaller.
fn with_smaller_frame<R>(params: &ZstdParams, payload: &[u8], take: impl FnOnce(&[u8]) -> R) -> Option<R> {
    with_scratch(payload.len(), |buffer| {
        // One byte shorter than the payload: a frame that does not fit saves nothing.
        let room = payload.len().saturating_sub(1);
        let result = POOL.with_borrow_mut(|pool| {
            let contexts = &mut pool.compress;
            let at = match contexts.iter().position(|(set_to, _)| set_to == params) {
                Some(at) => at,
                None => {
                    contexts.push((*params, new_compress(params)?));
                    contexts.len() - 1
                }
            };
            contexts[at].1.compress2(&mut buffer[..room], payload)
        });
        result.ok().map(|written| take(&buffer[..written]))
    })
}

fn broken(code: zstd_safe::ErrorCode) -> WireError {
    WireError::Inflate(zstd_safe::get_error_name(code).to_owned())
}

/// Most frames of a message where one is shared. It is far more than any end sends. Empty frames of
/// 9 bytes must cost no more time than their bytes.
const MAX_FRAMES: usize = 256;

/// Checks that `frames` are whole frames, not too many, and that they do not claim to exceed the
/// limit together.
fn check_frames(frames: &[u8], max_frames: usize, limit_bytes: usize) -> Result<(), WireError> {
    let (mut rest, mut claimed) = (frames, 0_u64);
    for _ in 0..max_frames {
        let frame_bytes = zstd_safe::find_frame_compressed_size(rest).map_err(broken)?;
        let content = zstd_safe::get_frame_content_size(rest)
            .map_err(|_| WireError::Inflate("not a zstd frame".into()))?;
        claimed = claimed.saturating_add(content.unwrap_or(0));
        if claimed > limit_bytes as u64 {
            return Err(WireError::TooLarge { limit_bytes, inflated: true });
        }
        rest = &rest[frame_bytes..];
        if rest.is_empty() {
            return Ok(());
        }
    }
    Err(WireError::Inflate(match max_frames {
        1 => "bytes after the zstd frame".into(),
        max => format!("more than {max} zstd frames"),
    }))
}

fn decompress_frames(params: &ZstdParams, frames: &[u8], limit_bytes: usize) -> Result<Bytes, WireError> {
    let dictionary = dictionary(params);
    let too_large = || WireError::TooLarge { limit_bytes, inflated: true };
    check_frames(frames, if ZstdLayer::shares(params) { MAX_FRAMES } else { 1 }, limit_bytes)?;
    with_scratch(limit_bytes, |buffer| {
        let result = POOL.with_borrow_mut(|pool| {
            let contexts = &mut pool.decompress;
            let at = match contexts.iter().position(|(loaded, _)| *loaded == dictionary) {
                Some(at) => at,
                None => {
                    let mut context = DCtx::create();
                    if let Some(dictionary) = dictionary {
                        context.load_dictionary(dictionary.bytes())?;
                    }
                    contexts.push((dictionary, context));
                    contexts.len() - 1
                }
            };
            contexts[at].1.decompress(&mut buffer[..limit_bytes], frames)
        });
        match result {
            Ok(written) => Ok(Bytes::copy_from_slice(&buffer[..written])),
            Err(code) if zstd_safe::get_error_name(code) == "Destination buffer is too small" => {
                Err(too_large())
            }
            Err(code) => Err(broken(code)),
        }
    })
}

#[cfg(test)]
mod tests;
