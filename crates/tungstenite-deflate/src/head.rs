//! A byte stream that ends with the HTTP head while the handshake lasts.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Keeps the peer's bytes after its HTTP head. tungstenite's handshake rejects such bytes in a
/// server and would read compressed frames among them in a client.
#[derive(Debug)]
pub(crate) struct HeadOnly<S> {
    stream: S,
    /// The line so far, without `\r`: an empty one ends the head.
    line_bytes: usize,
    ended: bool,
    /// Bytes after the head.
    early: Vec<u8>,
}

impl<S> HeadOnly<S> {
    pub(crate) fn new(stream: S) -> HeadOnly<S> {
        HeadOnly { stream, line_bytes: 0, ended: false, early: Vec::new() }
    }

    /// The stream, and the bytes read after the head.
    pub(crate) fn into_parts(self) -> (S, Vec<u8>) {
        (self.stream, self.early)
    }

    /// Number of the bytes that belong to the head.
    fn head_bytes(&mut self, bytes: &[u8]) -> usize {
        for (at, byte) in bytes.iter().enumerate() {
            match byte {
                b'\n' if self.line_bytes == 0 => {
                    self.ended = true;
                    return at + 1;
                }
                b'\n' => self.line_bytes = 0,
                b'\r' => {}
                _ => self.line_bytes += 1,
            }
        }
        bytes.len()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for HeadOnly<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.ended {
            // The handshake has all that it may read.
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buf))?;
        let fresh = &buf.filled()[before..];
        let head_bytes = this.head_bytes(fresh);
        this.early.extend_from_slice(&fresh[head_bytes..]);
        buf.set_filled(before + head_bytes);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for HeadOnly<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
