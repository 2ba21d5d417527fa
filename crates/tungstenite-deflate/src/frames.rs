//! A server's data frames on their way to the byte stream.
//!
//! tungstenite passes a message through several layers as an owned buffer and keeps a write buffer
//! for each connection. A server's frame is less: two to ten bytes, and the payload without a mask
//! (RFC 6455 §5.1). Frames wait in memory that the connections of a thread use in turn, so that it
//! stays in the processor's caches; a connection that has nothing to write has none.

use std::{
    cell::Cell,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::AsyncWrite;

use crate::scratch::MAX_SPARE_BYTES;

pub(crate) const FIN: u8 = 0x80;
pub(crate) const RSV1: u8 = 0x40;

thread_local! {
    /// The memory of the frames that were written last.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Whole messages, each one frame, in their order.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    bytes: Vec<u8>,
    /// Bytes that the byte stream has taken.
    written: usize,
}

impl Frames {
    /// Appends a message whose payload is `parts`, in order. Returns the payload's length in bytes.
    pub(crate) fn push<'p>(
        &mut self,
        opcode: u8,
        rsv1: bool,
        parts: impl Iterator<Item = &'p [u8]> + Clone,
    ) -> usize {
        if self.bytes.capacity() == 0 {
            self.bytes = SPARE.take();
        }
        let first_byte = FIN | opcode | if rsv1 { RSV1 } else { 0 };
        let payload_bytes = parts.clone().map(<[u8]>::len).sum::<usize>();
        let len = (payload_bytes as u64).to_be_bytes();
        match payload_bytes {
            0..126 => self.bytes.extend_from_slice(&[first_byte, len[7]]),
            126..65_536 => self.bytes.extend_from_slice(&[first_byte, 126, len[6], len[7]]),
            _ => {
                self.bytes.extend_from_slice(&[first_byte, 127]);
                self.bytes.extend_from_slice(&len);
            }
        }
        parts.for_each(|part| self.bytes.extend_from_slice(part));
        payload_bytes
    }

    /// Whether to write before more is added: more than `enough_bytes` wait, or the byte stream was
    /// full.
    pub(crate) fn are_due(&self, enough_bytes: usize) -> bool {
        self.written > 0 || self.bytes.len() > enough_bytes
    }

    /// Writes all of them.
    pub(crate) fn poll_write_to(
        &mut self,
        stream: &mut (impl AsyncWrite + Unpin),
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while self.written < self.bytes.len() {
            let rest = &self.bytes[self.written..];
            let taken = ready!(Pin::new(&mut *stream).poll_write(cx, rest))?;
            if taken == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += taken;
        }
        if self.written > 0 {
            let mut bytes = std::mem::take(&mut self.bytes);
            self.written = 0;
            if bytes.capacity() <= MAX_SPARE_BYTES {
                bytes.clear();
                SPARE.set(bytes);
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_has_its_shortest_form() {
        for (len, header) in [
            (0, &[0x81, 0][..]),
            (125, &[0x81, 125]),
            (126, &[0x81, 126, 0, 126]),
            (65_535, &[0x81, 126, 0xff, 0xff]),
            (65_536, &[0x81, 127, 0, 0, 0, 0, 0, 1, 0, 0]),
        ] {
            let payload = vec![b'x'; len];
            let mut frames = Frames::default();
            let (front, rest) = payload.split_at(len / 3);
            frames.push(1, false, [front, rest].into_iter());
            assert_eq!(frames.bytes, [header, &payload[..]].concat(), "{len}");
        }
        let mut frames = Frames::default();
        frames.push(2, true, std::iter::once(&b"x"[..]));
        assert_eq!(frames.bytes, [0xc2, 1, b'x']);
    }
}
