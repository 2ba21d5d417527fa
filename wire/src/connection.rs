//! A connection after its handshake: whole messages in and out.

use std::{
    future::poll_fn,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use codecs::Opcode;
use futures::{Sink, SinkExt, StreamExt};
use tokio::{io::AsyncWriteExt, time};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        self,
        protocol::{
            CloseFrame, Role, WebSocketConfig,
            frame::{
                Frame, FrameHeader,
                coding::{Data, OpCode},
            },
        },
    },
};

use crate::{
    agreement::{Agreement, WireLimits},
    compression::{Compression, CompressionMemory, DeflateParams},
    deflate::{Deflater, Inflater, SharedDeflate},
    error::{CloseCode, WireError},
    http,
    socket::Socket,
    tap::{Arrival, Tap},
    traffic::{Flow, Traffic},
    zstd::ZstdLayer,
};

/// How long a closing connection may wait for its peer. RFC 6455 §7.1.1 lets the server end TCP first, so a
/// client depends on it.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Outgoing messages may be this many times larger than incoming ones: the same event is up to six times longer
/// in JSON (`\u0000` for one byte) than in the format it came in.
const OUTGOING_FACTOR: usize = 8;

/// A WebSocket connection with an agreement. It owns the socket and is not split: one task reads and writes.
#[derive(Debug)]
pub struct Connection {
    websocket: WebSocketStream<Tap>,
    agreement: Agreement,
    transform: Transform,
    /// Whether [`Connection::feed_shared`] compresses once for all.
    shares: bool,
    limits: WireLimits,
    max_outgoing_bytes: usize,
    /// Compressed messages on their way into the write buffer; its memory is used again for each.
    outgoing: BytesMut,
    sent: Flow,
    received: Flow,
    handshake: HandshakeBytes,
    peer_addr: SocketAddr,
    local_addr: SocketAddr,
    state: State,
    /// tungstenite asked for more bytes and has nothing else to do.
    drained: bool,
    /// It may hold an answer to the peer's last Ping.
    answering: bool,
}

/// A data message as its sender meant it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The frame type; behind the zstd layer, that of the agreed format.
    pub opcode: Opcode,
    /// After decompression. It may share its memory with the read buffer: copy before storing. Text is UTF-8.
    pub payload: Bytes,
}

/// How long the part of a message is that is not shared, and the part that is.
type Spliced<'a> = (usize, &'a SharedDeflate);

/// What of the socket's bytes the handshake was: the HTTP head and, with it, TLS's own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HandshakeBytes {
    pub(crate) sent: u64,
    pub(crate) received: u64,
}

impl HandshakeBytes {
    /// Everything so far but `early`, the plain bytes behind the peer's HTTP head.
    pub(crate) fn of(socket: &Socket, early: &[u8]) -> HandshakeBytes {
        let tcp = socket.tcp();
        let early_bytes = match socket {
            Socket::Plain(_) => early.len() as u64,
            // They came inside records that the head may share.
            Socket::Tls(_) => 0,
        };
        HandshakeBytes { sent: tcp.sent_bytes, received: tcp.received_bytes - early_bytes }
    }
}

/// What happens between payload and frame.
#[derive(Debug)]
enum Transform {
    Plain,
    Deflate { deflater: Deflater, inflater: Inflater, min_bytes: usize },
    Zstd(ZstdLayer),
}

impl Transform {
    fn deflate(params: &DeflateParams, role: Role) -> Transform {
        let (send, receive) = match role {
            Role::Client => (params.to_relay, params.to_client),
            Role::Server => (params.to_client, params.to_relay),
        };
        Transform::Deflate {
            deflater: Deflater::new(params.level, send),
            inflater: Inflater::new(receive),
            min_bytes: params.min_bytes,
        }
    }
}

#[derive(Debug)]
enum State {
    Open,
    /// The peer sent a Close frame; tungstenite answers it. The deadline bounds the wait for the end of TCP.
    PeerCloses {
        deadline: time::Instant,
        error: Option<WireError>,
    },
    /// Reading failed. A Close frame may still be sent.
    Failed,
    Closed,
}

impl Connection {
    /// A connection over a socket behind its handshake; `early` came along with the peer's HTTP head.
    pub(crate) async fn new(
        socket: Socket,
        role: Role,
        mut early: Vec<u8>,
        agreement: Agreement,
        limits: &WireLimits,
        handshake: HandshakeBytes,
    ) -> Result<Connection, WireError> {
        let tcp = socket.tcp().stream();
        let (peer_addr, local_addr) = (tcp.peer_addr()?, tcp.local_addr()?);
        let transform = match agreement.compression {
            Compression::None => Transform::Plain,
            Compression::Deflate(params) => Transform::deflate(&params, role),
            Compression::Zstd(params) => Transform::Zstd(ZstdLayer::new(params)),
        };
        let shares = matches!(agreement.compression, Compression::Deflate(params) if params.shared);
        let max_outgoing_bytes = limits.max_message_bytes.saturating_mul(OUTGOING_FACTOR);
        let tap = Tap::new(socket, matches!(transform, Transform::Deflate { .. }), &mut early);
        let config = websocket_config(limits, max_outgoing_bytes);
        Ok(Connection {
            websocket: WebSocketStream::from_partially_read(tap, early, role, Some(config)).await,
            agreement,
            transform,
            shares,
            limits: *limits,
            max_outgoing_bytes,
            outgoing: BytesMut::new(),
            sent: Flow::default(),
            received: Flow::default(),
            handshake,
            peer_addr,
            local_addr,
            state: State::Open,
            drained: false,
            answering: false,
        })
    }

    /// What both ends agreed on.
    pub fn agreement(&self) -> &Agreement {
        &self.agreement
    }

    /// Counts so far. Messages count when they are fed or yielded, wire bytes when they pass the socket.
    pub fn traffic(&self) -> Traffic {
        let tcp = self.websocket.get_ref().socket.tcp();
        Traffic {
            sent: Flow { wire_bytes: tcp.sent_bytes - self.handshake.sent, ..self.sent },
            received: Flow { wire_bytes: tcp.received_bytes - self.handshake.received, ..self.received },
            handshake_sent_bytes: self.handshake.sent,
            handshake_received_bytes: self.handshake.received,
        }
    }

    /// What its compressors and decompressors take now; none until a message needs them. Of zlib-rs by counted
    /// allocations, of zstd by its own account.
    pub fn compression_memory(&self) -> CompressionMemory {
        match &self.transform {
            Transform::Plain => CompressionMemory::default(),
            Transform::Deflate { deflater, inflater, .. } => deflater.memory() + inflater.memory(),
            Transform::Zstd(layer) => layer.memory(),
        }
    }

    /// Whether [`Connection::feed_shared`] shares anything here (`deflate-shared`).
    pub fn shares(&self) -> bool {
        self.shares
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer_addr
    }

    /// This end's address.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// When the last bytes of any kind came from the peer.
    pub fn last_heard(&self) -> Instant {
        self.websocket.get_ref().socket.tcp().last_heard
    }

    /// The next data message. Pings are answered with their own payload on the way. `None` when the connection
    /// is over: after an orderly close (codes 1000, 1001 and none), after [`Connection::close`], and after an error.
    ///
    /// Cancel-safe: dropping the future loses nothing.
    ///
    /// # Errors
    /// Errors end the connection; [`WireError::close_code`] says what to tell the peer. A peer that closes for
    /// another reason, or without a Close frame, is [`WireError::Closed`].
    pub async fn next(&mut self) -> Option<Result<Message, WireError>> {
        loop {
            let item = match &self.state {
                State::Open => poll_fn(|cx| self.poll_websocket(cx)).await,
                State::PeerCloses { deadline, .. } => {
                    time::timeout_at(*deadline, self.websocket.next()).await.ok().flatten()
                }
                State::Failed | State::Closed => return None,
            };
            let received = match item {
                Some(Ok(message)) => self.receive(message),
                // What goes wrong between the peer's Close frame and the end of TCP harms nobody.
                Some(Err(_)) | None if matches!(self.state, State::PeerCloses { .. }) => {
                    return self.peer_closed().await.map(Err);
                }
                Some(Err(error)) => Err(error.into()),
                None => {
                    self.state = State::Closed;
                    return None;
                }
            };
            match received {
                Ok(Some(message)) => return Some(Ok(message)),
                Ok(None) => {}
                Err(error) => {
                    self.state = State::Failed;
                    return Some(Err(error));
                }
            }
        }
    }

    /// Puts a message into the write buffer, compressed as agreed and with the frame type of the format. Past
    /// `write_buffer_bytes` the buffer is written to the socket; call [`Connection::flush`] when there is nothing
    /// more to send for now.
    ///
    /// Cancel-safe: it waits only before it takes the message.
    ///
    /// # Errors
    /// [`WireError::TooLarge`] over eight times the limit of incoming messages (nothing is sent), and what the
    /// socket says.
    pub async fn feed(&mut self, payload: Bytes) -> Result<(), WireError> {
        let opcode = self.agreement.format.spec().opcode;
        self.feed_message(Message { opcode, payload }).await
    }

    /// [`Connection::feed`] with a frame type of the caller's choice, for protocols without a [`codecs::Format`].
    /// Behind the zstd layer all frames are binary.
    ///
    /// # Errors
    /// As [`Connection::feed`].
    pub async fn feed_message(&mut self, message: Message) -> Result<(), WireError> {
        self.feed_frame(message, None).await
    }

    /// [`Connection::feed`] for a message that begins with what is only this subscription's, in `prefix_bytes`, and
    /// goes on as all messages do that are fed with the same `shared`. Under `deflate-shared` what they have in common
    /// is compressed once; otherwise this is `feed`.
    ///
    /// # Errors
    /// As [`Connection::feed`].
    ///
    /// # Panics
    /// When the prefix is longer than the message.
    pub async fn feed_shared(
        &mut self,
        payload: Bytes,
        prefix_bytes: usize,
        shared: &SharedDeflate,
    ) -> Result<(), WireError> {
        let opcode = self.agreement.format.spec().opcode;
        let spliced = self.shares.then_some((prefix_bytes, shared));
        self.feed_frame(Message { opcode, payload }, spliced).await
    }

    async fn feed_frame(&mut self, message: Message, spliced: Option<Spliced<'_>>) -> Result<(), WireError> {
        let Message { opcode, payload } = message;
        if payload.len() > self.max_outgoing_bytes {
            return Err(WireError::TooLarge { limit_bytes: self.max_outgoing_bytes, inflated: false });
        }
        // Before compression: a message that is compressed into a shared context must be sent.
        self.ready().await?;
        let payload_bytes = payload.len() as u64;
        let frame = self.frame(opcode, payload, spliced)?;
        self.websocket.start_send_unpin(tungstenite::Message::Frame(frame))?;
        self.sent.messages += 1;
        self.sent.payload_bytes += payload_bytes;
        Ok(())
    }

    /// Writes everything that was fed to the socket.
    ///
    /// # Errors
    /// What the socket says.
    pub async fn flush(&mut self) -> Result<(), WireError> {
        self.websocket.flush().await?;
        self.answering = false;
        Ok(())
    }

    /// Sends a Ping at once. The answer shows in [`Connection::last_heard`].
    ///
    /// # Errors
    /// What the socket says.
    pub async fn ping(&mut self) -> Result<(), WireError> {
        self.ready().await?;
        self.websocket.start_send_unpin(tungstenite::Message::Ping(Bytes::new()))?;
        self.flush().await
    }

    /// Sends a Close frame, waits a bounded time (2 s) for the peer's, and ends TCP. Also after an error, so
    /// that the peer learns why. `reason` is cut to the 123 bytes that fit.
    pub async fn close(&mut self, code: CloseCode, reason: &str) {
        let state = std::mem::replace(&mut self.state, State::Closed);
        if matches!(state, State::Closed) {
            return;
        }
        let reason = &reason[..reason.floor_char_boundary(MAX_REASON_BYTES)];
        let frame = CloseFrame { code: code.into(), reason: reason.into() };
        let handshake = async {
            // Errors mean that the peer is gone already, which is what closing is for.
            let sent = self.websocket.send(tungstenite::Message::Close(Some(frame))).await.is_ok();
            let mut acknowledged = false;
            if sent && !matches!(state, State::Failed) {
                while let Some(Ok(message)) = self.websocket.next().await {
                    acknowledged |= matches!(message, tungstenite::Message::Close(_));
                }
            }
            let stream = &mut self.websocket.get_mut().socket;
            if stream.shutdown().await.is_ok() && !acknowledged {
                http::discard(stream).await;
            }
        };
        // On a timeout there is nothing more to do than to drop the socket.
        let _: Result<(), time::error::Elapsed> = time::timeout(CLOSE_TIMEOUT, handshake).await;
    }

    /// Ends TCP, for which a client waits (RFC 6455 §7.1.1), and tells what the caller should hear.
    async fn peer_closed(&mut self) -> Option<WireError> {
        let state = std::mem::replace(&mut self.state, State::Closed);
        // An error means that the peer ended TCP first.
        let _: std::io::Result<()> = self.websocket.get_mut().socket.shutdown().await;
        match state {
            State::PeerCloses { error, .. } => error,
            State::Open | State::Failed | State::Closed => None,
        }
    }

    /// tungstenite fills its read buffer with zeros before it asks the socket, 8 KiB for nothing on most polls of
    /// a connection that mostly sends. So the socket is asked first where that is all there is to do.
    fn poll_websocket(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<tungstenite::Message, tungstenite::Error>>> {
        if self.drained && self.websocket.get_ref().has_nothing_to_read(cx) {
            return Poll::Pending;
        }
        let polled = self.websocket.poll_next_unpin(cx);
        self.drained = polled.is_pending() && !self.answering;
        polled
    }

    async fn ready(&mut self) -> Result<(), WireError> {
        poll_fn(|cx| Pin::new(&mut self.websocket).poll_ready(cx)).await?;
        Ok(())
    }

    /// The frame that carries a payload. Compressed or not, it takes the same way from here.
    fn frame(
        &mut self,
        opcode: Opcode,
        payload: Bytes,
        spliced: Option<Spliced<'_>>,
    ) -> Result<Frame, WireError> {
        let opcode = match opcode {
            Opcode::Text => Data::Text,
            Opcode::Binary => Data::Binary,
        };
        let (opcode, rsv1, payload) = match &mut self.transform {
            Transform::Deflate { deflater, min_bytes, .. } if payload.len() >= *min_bytes => {
                match spliced {
                    Some((prefix_bytes, shared)) => {
                        deflater.splice(&payload, prefix_bytes, shared, &mut self.outgoing);
                    }
                    None => deflater.compress(&payload, &mut self.outgoing),
                }
                (opcode, true, self.outgoing.split().freeze())
            }
            Transform::Plain | Transform::Deflate { .. } => (opcode, false, payload),
            Transform::Zstd(layer) => {
                layer.compress(&payload, &mut self.outgoing)?;
                (Data::Binary, false, self.outgoing.split().freeze())
            }
        };
        let header = FrameHeader { rsv1, opcode: OpCode::Data(opcode), ..FrameHeader::default() };
        Ok(Frame::from_payload(header, payload))
    }

    /// The data message in what tungstenite yields, if it is one.
    fn receive(&mut self, message: tungstenite::Message) -> Result<Option<Message>, WireError> {
        let (opcode, payload) = match message {
            tungstenite::Message::Text(text) => (Opcode::Text, Bytes::from(text)),
            tungstenite::Message::Binary(payload) => (Opcode::Binary, payload),
            tungstenite::Message::Close(frame) => {
                let error = frame.as_ref().and_then(disorderly);
                self.state = State::PeerCloses { deadline: time::Instant::now() + CLOSE_TIMEOUT, error };
                return Ok(None);
            }
            tungstenite::Message::Ping(_) => {
                self.answering = true;
                return Ok(None);
            }
            tungstenite::Message::Pong(_) | tungstenite::Message::Frame(_) => return Ok(None),
        };
        let message = self.restore(opcode, payload)?;
        self.received.messages += 1;
        self.received.payload_bytes += message.payload.len() as u64;
        Ok(Some(message))
    }

    fn restore(&mut self, opcode: Opcode, payload: Bytes) -> Result<Message, WireError> {
        let limit_bytes = self.limits.max_message_bytes;
        match &mut self.transform {
            Transform::Plain => Ok(Message { opcode, payload }),
            Transform::Deflate { inflater, .. } => match self.websocket.get_mut().next_arrival() {
                Some(Arrival { compressed: true, text }) => {
                    let payload = inflater.inflate(&payload, limit_bytes)?;
                    checked(if text { Opcode::Text } else { Opcode::Binary }, payload)
                }
                Some(Arrival { compressed: false, .. }) | None => Ok(Message { opcode, payload }),
            },
            Transform::Zstd(_) if opcode == Opcode::Text => {
                Err(WireError::Unsupported("text frame on a connection with the zstd layer, which is binary"))
            }
            Transform::Zstd(layer) => {
                let payload = layer.decompress(&payload, limit_bytes)?;
                checked(self.agreement.format.spec().opcode, payload)
            }
        }
    }
}

/// A Close frame's payload is at most 125 bytes, two of them the code (RFC 6455 §5.5).
const MAX_REASON_BYTES: usize = 123;

fn websocket_config(limits: &WireLimits, max_outgoing_bytes: usize) -> WebSocketConfig {
    // Feeding waits while the buffer is blocked, so it holds the unwritten rest and one message at most, and
    // pongs besides: a peer that pings and never reads meets this bound.
    let max_write_buffer_bytes =
        limits.write_buffer_bytes.saturating_add(max_outgoing_bytes.saturating_mul(2)).saturating_add(4096);
    WebSocketConfig::default()
        .read_buffer_size(limits.read_buffer_bytes)
        .write_buffer_size(limits.write_buffer_bytes)
        .max_write_buffer_size(max_write_buffer_bytes)
        .max_message_size(Some(limits.max_message_bytes))
        .max_frame_size(Some(limits.max_message_bytes))
        .accept_unmasked_frames(false)
}

/// tungstenite checks the text that it sees; this is for text that was compressed (RFC 6455 §8.1).
fn checked(opcode: Opcode, payload: Bytes) -> Result<Message, WireError> {
    if opcode == Opcode::Text && std::str::from_utf8(&payload).is_err() {
        return Err(WireError::Utf8);
    }
    Ok(Message { opcode, payload })
}

/// A close that the caller should hear of.
fn disorderly(frame: &CloseFrame) -> Option<WireError> {
    let code = u16::from(frame.code);
    let orderly = [CloseCode::Normal, CloseCode::GoingAway].iter().any(|orderly| orderly.code() == code);
    (!orderly).then(|| WireError::Closed { code, reason: frame.reason.to_string() })
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::{Accepted, Offer, ServerConfig, Support};

    #[tokio::test]
    async fn nagle_is_off_at_both_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}", listener.local_addr().unwrap());
        let support = Support { formats: vec![], compressions: vec![], batched: false, strict: false };
        let config =
            ServerConfig { support, limits: WireLimits::default(), relay_info: String::new(), tls: None };
        let offer = Offer { batched: false, formats: vec![], compression: Compression::None };
        let (client, accepted) = tokio::join!(crate::connect(&url, &offer, &config.limits), async {
            crate::accept(listener.accept().await.unwrap().0, &config).await
        });
        let Accepted::WebSocket(relay) = accepted.unwrap() else { panic!("a WebSocket was expected") };
        assert!(client.unwrap().websocket.get_ref().socket.tcp().stream().nodelay().unwrap());
        assert!(relay.websocket.get_ref().socket.tcp().stream().nodelay().unwrap());
    }
}
