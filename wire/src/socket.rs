//! The socket under a connection: counted TCP, with TLS over it for `wss://`.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Instant,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::TlsStream;

/// A byte stream to the peer.
#[derive(Debug)]
pub(crate) enum Socket {
    Plain(Counted),
    /// Boxed: a TLS session takes a kilobyte, which connections without TLS do not need.
    Tls(Box<TlsStream<Counted>>),
}

/// TCP that counts its bytes; with TLS, those of records and handshake.
#[derive(Debug)]
pub(crate) struct Counted {
    stream: TcpStream,
    pub(crate) sent_bytes: u64,
    pub(crate) received_bytes: u64,
    pub(crate) last_heard: Instant,
}

impl Socket {
    /// The counted TCP socket.
    pub(crate) fn tcp(&self) -> &Counted {
        match self {
            Socket::Plain(tcp) => tcp,
            Socket::Tls(tls) => tls.get_ref().0,
        }
    }

    /// Whether a read would return `Pending`; if so, the task is woken when it would not. `false`
    /// with TLS, which may hold decrypted bytes.
    pub(crate) fn has_nothing_to_read(&self, cx: &mut Context<'_>) -> bool {
        match self {
            Socket::Plain(tcp) => tcp.stream.poll_read_ready(cx).is_pending(),
            Socket::Tls(_) => false,
        }
    }
}

impl Counted {
    pub(crate) fn new(stream: TcpStream) -> Counted {
        Counted { stream, sent_bytes: 0, received_bytes: 0, last_heard: Instant::now() }
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
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
        let written = ready!(Pin::new(&mut tcp.stream).poll_write(cx, buf))?;
        tcp.sent_bytes += written as u64;
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
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
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Socket::Plain(tcp) => Pin::new(tcp).poll_write(cx, buf),
            Socket::Tls(tls) => Pin::new(tls).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Socket::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Socket::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Socket::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}
