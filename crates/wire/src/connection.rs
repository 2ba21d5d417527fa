//! A connection after its handshake: whole messages in and out.

use std::{
    future::poll_fn,
    net::SocketAddr,
    pin::Pin,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use codecs::Opcode;
use futures::{Sink, SinkExt, StreamExt};
use terms::Compression;
use tokio::{io::AsyncWriteExt, time};
use tokio_tungstenite::tungstenite::{
    self,
    protocol::{
        CloseFrame, Role, WebSocketConfig,
        frame::coding::{CloseCode, Data},
    },
};
use tungstenite_deflate::{CompressionMemory, WebSocket};

use crate::{
    agreement::{Agreement, WireLimits},
    deflate,
    error::WireError,
    shared::Shared,
    socket::{Counted, Socket},
    traffic::{Flow, Traffic},
    zstd::ZstdLayer,
};

/// Limit of the closing handshake: a client waits for the server to end TCP (RFC 6455 §7.1.1).
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// A WebSocket connection with an agreement. One task reads and writes.
#[derive(Debug)]
pub struct Connection {
    websocket: WebSocket<Socket>,
    agreement: Agreement,
    zstd: Option<ZstdLayer>,
    max_message_bytes: usize,
    max_outgoing_bytes: usize,
    /// Output of the zstd layer, reused for each message.
    outgoing: BytesMut,
    sent: Flow,
    received: Flow,
    handshake: HandshakeBytes,
    peer_addr: SocketAddr,
    local_addr: SocketAddr,
    state: State,
    /// Messages of at least this many bytes are counted and need not be readable.
    unread_from: Option<usize>,
    /// Code and reason of the peer's Close frame.
    peer_close: Option<(CloseCode, String)>,
}

/// A data message without its compression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The frame type; with the zstd layer, the agreed format's.
    pub opcode: Opcode,
    /// The decompressed payload; text is UTF-8. May share memory with the read buffer: copy before
    /// storing.
    pub payload: Bytes,
}

/// Bytes of the handshake: HTTP head and TLS.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HandshakeBytes {
    pub(crate) sent: u64,
    pub(crate) received: u64,
}

impl HandshakeBytes {
    /// All bytes so far except `early`, the plain bytes after the peer's HTTP head.
    pub(crate) fn from_socket(socket: &Socket, early: &[u8]) -> HandshakeBytes {
        let tcp = socket.tcp();
        let early_bytes = match socket {
            Socket::Plain(_) => early.len() as u64,
            // They came in TLS records that may also hold the head.
            Socket::Tls(_) | Socket::Tampered(_) => 0,
        };
        HandshakeBytes { sent: tcp.sent_bytes, received: tcp.received_bytes - early_bytes }
    }
}

#[derive(Debug)]
enum State {
    Open,
    /// The peer sent a Close frame; tungstenite answers it. The deadline bounds the wait for the
    /// end of TCP.
    PeerCloses {
        deadline: time::Instant,
    },
    /// Reading failed. A Close frame may still be sent.
    Failed,
    Closed,
}

impl Connection {
    /// A connection over a socket after its handshake; `early` are the bytes that came with the
    /// peer's HTTP head.
    pub(crate) async fn new(
        socket: Socket,
        role: Role,
        early: Vec<u8>,
        agreement: Agreement,
        limits: &WireLimits,
        handshake: HandshakeBytes,
    ) -> Result<Connection, WireError> {
        let (peer_addr, local_addr) = socket.tcp().addresses()?;
        let (deflate, zstd) = match agreement.compression {
            Compression::None => (None, None),
            Compression::Deflate(params) => (Some(deflate::transport(&params)), None),
            Compression::Zstd(params) => {
                let of_this_end = if role == Role::Client { params.of_client() } else { params };
                (None, Some(ZstdLayer::new(of_this_end)))
            }
        };
        let max_outgoing_bytes = limits.outgoing_bytes();
        let config = websocket_config(limits, max_outgoing_bytes);
        let websocket = WebSocket::from_partially_read(socket, early, role, deflate, Some(config)).await;
        Ok(Connection {
            websocket: websocket.asking_first(Socket::has_nothing_to_read),
            agreement,
            zstd,
            max_message_bytes: limits.max_message_bytes,
            max_outgoing_bytes,
            outgoing: BytesMut::new(),
            sent: Flow::default(),
            received: Flow::default(),
            handshake,
            peer_addr,
            local_addr,
            state: State::Open,
            unread_from: None,
            peer_close: None,
        })
    }

    /// The agreement of the handshake.
    pub fn agreement(&self) -> &Agreement {
        &self.agreement
    }

    /// Counts so far. Messages count when they are fed or yielded, wire bytes when they pass the
    /// socket.
    pub fn traffic(&self) -> Traffic {
        let tcp = self.tcp();
        Traffic {
            sent: Flow { wire_bytes: tcp.sent_bytes - self.handshake.sent, ..self.sent },
            received: Flow { wire_bytes: tcp.received_bytes - self.handshake.received, ..self.received },
            handshake_sent_bytes: self.handshake.sent,
            handshake_received_bytes: self.handshake.received,
        }
    }

    /// Memory of compressors and decompressors, which exist once a message needed them: zlib-rs by
    /// counted allocations, zstd by its own functions.
    pub fn compression_memory(&self) -> CompressionMemory {
        let zstd = self.zstd.as_ref().map_or(CompressionMemory::default(), ZstdLayer::memory);
        self.websocket.compression_memory() + zstd
    }

    /// Whether [`Connection::feed_shared`] compresses once for all connections (`deflate-shared`,
    /// `zstd-shared`, `zstd-dict`).
    pub fn shares(&self) -> bool {
        match &self.agreement.compression {
            Compression::None => false,
            Compression::Deflate(params) => params.shared,
            Compression::Zstd(params) => ZstdLayer::shares(params),
        }
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer_addr
    }

    /// This end's address.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// When the peer last sent any bytes.
    pub fn last_heard(&self) -> Instant {
        self.tcp().last_heard
    }

    /// The next data message. Answers Pings on the way. `None` after an orderly close (code 1000, code
    /// 1001, or a Close frame without a code), after [`Connection::close`], and after an error.
    /// Cancel-safe.
    ///
    /// # Errors
    /// Each ends the connection; [`WireError::close_code`] is the code for the peer.
    /// [`WireError::Closed`] for a peer that closes with another code or without a Close frame.
    pub async fn next(&mut self) -> Option<Result<Message, WireError>> {
        loop {
            let item = match &self.state {
                State::Open => self.websocket.next().await,
                State::PeerCloses { deadline } => {
                    time::timeout_at(*deadline, self.websocket.next()).await.ok().flatten()
                }
                State::Failed | State::Closed => return None,
            };
            let received = match item {
                Some(Ok(message)) => self.receive(message),
                // Errors between the peer's Close frame and the end of TCP lose no message.
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
                    self.websocket.fail();
                    return Some(Err(error));
                }
            }
        }
    }

    /// Code and reason of the peer's Close frame, once it came; [`CloseCode::Status`] for a frame
    /// without a code. [`Connection::next`] still waits for the end of TCP.
    pub fn peer_close(&self) -> Option<(CloseCode, &str)> {
        self.peer_close.as_ref().map(|(code, reason)| (*code, &**reason))
    }

    /// Skips decompression of messages with at least this many compressed bytes, for a reader that
    /// counts them unread. `None` reads every message. Under context takeover each is decompressed,
    /// because later ones refer to it. Call it before [`Connection::next`].
    pub fn leave_unread(&mut self, from_bytes: Option<usize>) {
        self.unread_from = from_bytes;
        self.websocket.leave_compressed(from_bytes);
    }

    /// Whether the last message was large enough for [`Connection::leave_unread`]: its payload may
    /// be compressed, and counts as it came in [`Connection::traffic`].
    pub fn is_unread(&self) -> bool {
        self.unread_from.is_some_and(|from| self.websocket.arrived_bytes() >= from)
    }

    /// Payload bytes of the last message that came, as it came: compressed.
    pub fn arrived_bytes(&self) -> usize {
        self.websocket.arrived_bytes()
    }

    /// Payload bytes of the last message that was fed, as it goes: compressed.
    pub fn departed_bytes(&self) -> usize {
        self.websocket.departed_bytes()
    }

    /// Puts a message into the write buffer, compressed as agreed, with the frame type of the
    /// format. The buffer is written from `write_buffer_bytes` on, and by [`Connection::flush`].
    /// Cancel-safe: waits only before it takes the message.
    ///
    /// # Errors
    /// [`WireError::TooLarge`] over eight times the limit of incoming messages (nothing is sent);
    /// errors of the socket.
    pub async fn feed(&mut self, payload: Bytes) -> Result<(), WireError> {
        let opcode = self.agreement.format.spec().opcode;
        self.feed_message(Message { opcode, payload }).await
    }

    /// [`Connection::feed`] with the given frame type. With the zstd layer all frames are binary.
    ///
    /// # Errors
    /// As [`Connection::feed`].
    pub async fn feed_message(&mut self, message: Message) -> Result<(), WireError> {
        let Message { opcode, payload } = message;
        let payload_bytes = payload.len();
        self.ready_for(payload_bytes).await?;
        match &mut self.zstd {
            Some(layer) => {
                layer.compress(&payload, &mut self.outgoing)?;
                self.websocket.start_data(Data::Binary, self.outgoing.split().freeze())?;
            }
            None => self.websocket.start_data(frame_type(opcode), payload)?,
        }
        self.count_sent(payload_bytes);
        Ok(())
    }

    /// [`Connection::feed`] for a payload that stays the caller's. A server copies or compresses it
    /// into its frame, without an allocation a message.
    ///
    /// # Errors
    /// As [`Connection::feed`].
    pub async fn feed_slice(&mut self, payload: &[u8]) -> Result<(), WireError> {
        self.ready_for(payload.len()).await?;
        match &mut self.zstd {
            Some(layer) => {
                layer.compress(payload, &mut self.outgoing)?;
                let started = self.websocket.start_parts(Data::Binary, &[&self.outgoing]);
                // Also of a message that is not sent.
                self.outgoing.clear();
                started?;
            }
            None => {
                let opcode = frame_type(self.agreement.format.spec().opcode);
                self.websocket.start_parts(opcode, &[payload])?;
            }
        }
        self.count_sent(payload.len());
        Ok(())
    }

    /// [`Connection::feed`] for a message of a prefix and two common parts, which are the same for
    /// all messages with the same `shared`. `deflate-shared`, `zstd-shared` and `zstd-dict`
    /// compress the common parts once and do not read them again. Other compressions ignore
    /// `shared`.
    ///
    /// ```
    /// # async fn fan_out(connections: &mut [wire::Connection]) -> Result<(), wire::WireError> {
    /// let shared = wire::Shared::default();
    /// let event = br#"{"kind":1,"content":"the same for all"}"#;
    /// for (n, connection) in connections.iter_mut().enumerate() {
    ///     let prefix = format!(r#"["EVENT","subscription {n}","#);
    ///     connection.feed_shared(prefix.as_bytes(), [event, b"]"], &shared).await?;
    ///     connection.flush().await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Connection::feed`].
    pub async fn feed_shared(
        &mut self,
        prefix: &[u8],
        common: [&[u8]; 2],
        shared: &Shared,
    ) -> Result<(), WireError> {
        let payload_bytes = prefix.len() + common[0].len() + common[1].len();
        self.ready_for(payload_bytes).await?;
        match &mut self.zstd {
            Some(layer) => match layer.splice(prefix, common, &shared.zstd) {
                Some(spliced) => self.websocket.start_parts(Data::Binary, &spliced.parts())?,
                None => {
                    layer.compress(&[prefix, common[0], common[1]].concat(), &mut self.outgoing)?;
                    self.websocket.start_data(Data::Binary, self.outgoing.split().freeze())?;
                }
            },
            None => {
                let opcode = frame_type(self.agreement.format.spec().opcode);
                self.websocket.start_shared(opcode, prefix, &common, &shared.deflate)?;
            }
        }
        self.count_sent(payload_bytes);
        Ok(())
    }

    /// Waits for room, before compression: a message that changed the compressor's window must be
    /// sent.
    async fn ready_for(&mut self, payload_bytes: usize) -> Result<(), WireError> {
        if payload_bytes > self.max_outgoing_bytes {
            return Err(WireError::TooLarge { limit_bytes: self.max_outgoing_bytes, inflated: false });
        }
        Ok(poll_fn(|cx| Pin::new(&mut self.websocket).poll_ready(cx)).await?)
    }

    fn count_sent(&mut self, payload_bytes: usize) {
        self.sent.messages += 1;
        self.sent.payload_bytes += payload_bytes as u64;
    }

    /// Writes all fed messages to the socket.
    ///
    /// # Errors
    /// Errors of the socket.
    pub async fn flush(&mut self) -> Result<(), WireError> {
        Ok(self.websocket.flush().await?)
    }

    /// Sends a Ping. The answer shows in [`Connection::last_heard`].
    ///
    /// # Errors
    /// Errors of the socket.
    pub async fn ping(&mut self) -> Result<(), WireError> {
        Ok(self.websocket.send(tungstenite::Message::Ping(Bytes::new())).await?)
    }

    /// Sends a Close frame, waits up to 2 s for the peer's, and ends TCP; after an error, too, so
    /// that the peer learns the reason. `reason` is cut to the 123 bytes that fit; with
    /// [`CloseCode::Status`] the frame is empty.
    pub async fn close(&mut self, code: CloseCode, reason: &str) {
        self.close_within(code, reason, CLOSE_TIMEOUT).await;
    }

    /// [`Connection::close`] with another patience, for a peer that first has to read earlier
    /// messages.
    pub async fn close_within(&mut self, code: CloseCode, reason: &str, patience: Duration) {
        let state = std::mem::replace(&mut self.state, State::Closed);
        if matches!(state, State::Closed) {
            return;
        }
        let reason = &reason[..reason.floor_char_boundary(MAX_REASON_BYTES)];
        let frame = (code != CloseCode::Status).then(|| CloseFrame { code, reason: reason.into() });
        // After a timeout the caller drops the socket.
        let _: Result<(), time::error::Elapsed> = time::timeout(patience, self.websocket.close(frame)).await;
    }

    /// Resets TCP: the peer gets no Close frame, and loses unread bytes.
    pub fn reset(self) {
        self.tcp().reset_when_dropped();
    }

    /// Ends TCP, for which a client waits (RFC 6455 §7.1.1). Returns the error of a close with
    /// another code than 1000 and 1001.
    async fn peer_closed(&mut self) -> Option<WireError> {
        self.state = State::Closed;
        // An error means that the peer ended TCP first.
        let _: std::io::Result<()> = self.websocket.get_mut().shutdown().await;
        let (code, reason) = self.peer_close.as_ref()?;
        let is_orderly = matches!(code, CloseCode::Normal | CloseCode::Away | CloseCode::Status);
        (!is_orderly).then(|| WireError::Closed { code: (*code).into(), reason: codecs::quoted(reason) })
    }

    /// The TCP socket.
    pub(crate) fn tcp(&self) -> &Counted {
        self.websocket.get_ref().tcp()
    }

    /// The data message among the WebSocket's messages, if it is one.
    fn receive(&mut self, message: tungstenite::Message) -> Result<Option<Message>, WireError> {
        let (opcode, payload) = match message {
            tungstenite::Message::Text(text) => (Opcode::Text, Bytes::from(text)),
            tungstenite::Message::Binary(payload) => (Opcode::Binary, payload),
            tungstenite::Message::Close(frame) => {
                self.peer_close = Some(frame.map_or((CloseCode::Status, String::new()), |frame| {
                    (frame.code, frame.reason.to_string())
                }));
                self.state = State::PeerCloses { deadline: time::Instant::now() + CLOSE_TIMEOUT };
                return Ok(None);
            }
            tungstenite::Message::Ping(_)
            | tungstenite::Message::Pong(_)
            | tungstenite::Message::Frame(_) => {
                return Ok(None);
            }
        };
        let message = self.restore(opcode, payload)?;
        self.received.messages += 1;
        self.received.payload_bytes += message.payload.len() as u64;
        Ok(Some(message))
    }

    fn restore(&mut self, opcode: Opcode, payload: Bytes) -> Result<Message, WireError> {
        match &mut self.zstd {
            None => Ok(Message { opcode, payload }),
            Some(_) if opcode == Opcode::Text => {
                Err(WireError::Unsupported("text frame on a connection with the zstd layer, which is binary"))
            }
            Some(layer)
                if self.unread_from.is_some_and(|from| payload.len() >= from) && !layer.is_stream() =>
            {
                Ok(Message { opcode: self.agreement.format.spec().opcode, payload })
            }
            Some(layer) => {
                let payload = layer.decompress(&payload, self.max_message_bytes)?;
                checked(self.agreement.format.spec().opcode, payload)
            }
        }
    }
}

fn frame_type(opcode: Opcode) -> Data {
    match opcode {
        Opcode::Text => Data::Text,
        Opcode::Binary => Data::Binary,
    }
}

/// A Close frame's payload is at most 125 bytes, two of them the code (RFC 6455 §5.5).
const MAX_REASON_BYTES: usize = 123;

fn websocket_config(limits: &WireLimits, max_outgoing_bytes: usize) -> WebSocketConfig {
    // Feeding waits while the buffer is blocked, so a client's holds its unwritten rest, one
    // message and Pongs. A relay's holds Pongs, beside as much data that waits outside of
    // tungstenite. A peer that pings and never reads meets this bound.
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

/// Text is UTF-8 (RFC 6455 §8.1), also under the zstd layer.
fn checked(opcode: Opcode, payload: Bytes) -> Result<Message, WireError> {
    if opcode == Opcode::Text && std::str::from_utf8(&payload).is_err() {
        return Err(WireError::Utf8);
    }
    Ok(Message { opcode, payload })
}
