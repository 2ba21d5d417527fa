//! Bytes of a relay that are changed, or slowed down, on their way out: for tests of clients.

use std::{
    fmt, io,
    num::NonZeroU32,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// Pieces a second of bytes that are slowed down.
const PIECES: u32 = 20;

/// Changes a relay's bytes after its handshake, for tests of clients.
pub trait Tamper: fmt::Debug + Send {
    /// Takes bytes of the stream of frames, cut anywhere, and appends their replacement to `out`.
    /// It may keep some for later.
    fn pass(&mut self, bytes: &[u8], out: &mut Vec<u8>);

    /// The most bytes to go out in a second; `None` for no bound.
    fn bytes_per_second(&mut self) -> Option<NonZeroU32>;
}

/// A socket whose outgoing bytes pass through [`Tamper`].
#[derive(Debug)]
pub(crate) struct Tampered<S> {
    pub(crate) socket: S,
    tamper: Box<dyn Tamper>,
    /// Bytes on their way out, and how many of them went.
    out: Vec<u8>,
    written: usize,
    pause: Option<Pin<Box<Sleep>>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Tampered<S> {
    pub(crate) fn new(socket: S, tamper: Box<dyn Tamper>) -> Tampered<S> {
        Tampered { socket, tamper, out: Vec::new(), written: 0, pause: None }
    }

    /// Writes the pending bytes.
    fn poll_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.out.len() {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(cx));
                self.pause = None;
            }
            let rest = &self.out[self.written..];
            let pace = self.tamper.bytes_per_second();
            let piece = pace.map_or(rest.len(), |pace| (pace.get() / PIECES).max(1) as usize);
            let taken = ready!(Pin::new(&mut self.socket).poll_write(cx, &rest[..piece.min(rest.len())]))?;
            if taken == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += taken;
            if let Some(pace) = pace {
                let length = Duration::from_secs_f64(taken as f64 / f64::from(pace.get()));
                self.pause = Some(Box::pin(sleep(length)));
            }
        }
        self.out.clear();
        self.written = 0;
        Poll::Ready(Ok(()))
    }

    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, buf)
    }

    /// Takes all bytes if nothing is pending.
    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_out(cx))?;
        self.tamper.pass(buf, &mut self.out);
        // The rest goes with the next flush.
        if let Poll::Ready(result) = self.poll_out(cx) {
            result?;
        }
        Poll::Ready(Ok(buf.len()))
    }

    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_out(cx))?;
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_out(cx))?;
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
