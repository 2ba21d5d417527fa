//! The socket under a connection: counted TCP, with TLS over it for `wss://`; or a counted pipe in
//! memory, for load in one thread.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Instant,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::TlsStream;
use tokio_util::either::Either;

use crate::tamper::Tampered;

/// A byte stream to the peer.
#[derive(Debug)]
pub(crate) enum Socket {
    Plain(Counted),
    /// Boxed: a TLS session takes a kilobyte, which connections without TLS do not need.
    Tls(Box<TlsStream<Counted>>),
    /// Either of them, with bytes that are changed on their way out.
    Tampered(Box<Tampered<Socket>>),
}

/// TCP that counts its bytes; with TLS, bytes of records and handshake.
#[derive(Debug)]
pub(crate) struct Counted {
    stream: Either<TcpStream, DuplexStream>,
    pub(crate) sent_bytes: u64,
    pub(crate) received_bytes: u64,
    pub(crate) last_heard: Instant,
    /// Whether a peer that takes nothing more is still read: its earlier bytes, above all the
    /// reason of its close, are in this end's buffer (tcp(7)).
    hears_out: bool,
    takes_nothing: bool,
}

impl Socket {
    /// The counted TCP socket.
    pub(crate) fn tcp(&self) -> &Counted {
        match self {
            Socket::Plain(tcp) => tcp,
            Socket::Tls(tls) => tls.get_ref().0,
            Socket::Tampered(tampered) => tampered.socket.tcp(),
        }
    }

    /// Whether a read would return `Pending`; if so, the task is woken when it would not. `false`
    /// with TLS, which may hold decrypted bytes, and in memory.
    pub(crate) fn has_nothing_to_read(&self, cx: &mut Context<'_>) -> bool {
        match self {
            Socket::Plain(Counted { stream: Either::Left(tcp), .. }) => tcp.poll_read_ready(cx).is_pending(),
            Socket::Plain(_) | Socket::Tls(_) => false,
            Socket::Tampered(tampered) => tampered.socket.has_nothing_to_read(cx),
        }
    }
}

impl Counted {
    pub(crate) fn new(stream: TcpStream) -> Counted {
        Counted::over(Either::Left(stream))
    }

    /// One end of a pipe in memory.
    pub(crate) fn in_memory(pipe: DuplexStream) -> Counted {
        Counted::over(Either::Right(pipe))
    }

    fn over(stream: Either<TcpStream, DuplexStream>) -> Counted {
        Counted {
            stream,
            sent_bytes: 0,
            received_bytes: 0,
            last_heard: Instant::now(),
            hears_out: false,
            takes_nothing: false,
        }
    }

    /// From now on only reads end the connection. Bytes that cannot be written are dropped.
    pub(crate) fn hearing_out(self) -> Counted {
        Counted { hears_out: true, ..self }
    }

    /// The addresses of the peer and of this end; port 0 of 127.0.0.1 for both in memory.
    pub(crate) fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        match &self.stream {
            Either::Left(tcp) => Ok((tcp.peer_addr()?, tcp.local_addr()?)),
            Either::Right(_) => {
                let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
                Ok((nowhere, nowhere))
            }
        }
    }

    /// Resets TCP when this end is dropped.
    pub(crate) fn reset_when_dropped(&self) {
        if let Either::Left(tcp) = &self.stream {
            // An error means that the connection ended already.
            let _: io::Result<()> = tcp.set_zero_linger();
        }
    }

    #[cfg(test)]
    pub(crate) fn nodelay(&self) -> bool {
        matches!(&self.stream, Either::Left(tcp) if tcp.nodelay().is_ok_and(|nodelay| nodelay))
    }
}

impl AsyncRead for Counted {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let tcp = self.get_mut();
        let before = buf.filled().len();
        ready!(Pin::new(&mut tcp.stream).poll_read(cx, buf))?;
        let fresh = buf.filled().len() - before;
        if fresh > 0 {
            tcp.received_bytes += fresh as u64;
            tcp.last_heard = Instant::now();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Counted {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let tcp = self.get_mut();
        if tcp.takes_nothing {
            return Poll::Ready(Ok(buf.len()));
        }
        match ready!(Pin::new(&mut tcp.stream).poll_write(cx, buf)) {
            Err(error) if tcp.hears_out && is_end(&error) => {
                tcp.takes_nothing = true;
                Poll::Ready(Ok(buf.len()))
            }
            Err(error) => Poll::Ready(Err(error)),
            Ok(written) => {
                tcp.sent_bytes += written as u64;
                Poll::Ready(Ok(written))
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Whether a write failed because the peer ended the connection.
fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset)
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Plain(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Socket::Tls(tls) => match ready!(Pin::new(tls).poll_read(cx, buf)) {
                // TCP ended without close_notify (RFC 8446 §6.1). The Close frame tells whether
                // anything is missing.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
                result => Poll::Ready(result),
            },
            Socket::Tampered(tampered) => tampered.poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Socket::Plain(tcp) => Pin::new(tcp).poll_write(cx, buf),
            Socket::Tls(tls) => Pin::new(tls).poll_write(cx, buf),
            Socket::Tampered(tampered) => tampered.poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Socket::Tls(tls) => Pin::new(tls).poll_flush(cx),
            Socket::Tampered(tampered) => tampered.poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Socket::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
            Socket::Tampered(tampered) => tampered.poll_shutdown(cx),
        }
    }
}
