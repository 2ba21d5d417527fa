//! A WebSocket connection after its handshake: messages in and out, compressed if both ends agreed.

use std::{
    future::poll_fn,
    iter,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use futures_sink::Sink;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        self, Message, Utf8Bytes,
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
    deflate::{CompressionMemory, Deflater, Inflater},
    error::Error,
    params::DeflateParams,
    scratch,
    shared::SharedDeflate,
    tap::{Arrival, HasNothingToRead, Tap},
};

/// A WebSocket connection over a byte stream of tokio, with permessage-deflate if it was agreed.
///
/// A `Stream` of tungstenite's messages, which ends after an error, and a `Sink` for them. As in
/// tokio-tungstenite, Pings and Close frames are answered while the stream is polled. Reading is
/// cancel-safe.
#[derive(Debug)]
pub struct WebSocket<S> {
    inner: WebSocketStream<Tap<S>>,
    deflate: Option<Deflate>,
    max_message_bytes: usize,
    /// Size from which frames are written without a flush.
    write_buffer_bytes: usize,
    /// Whether this crate makes data frames: a server's, until a Close frame comes or goes or the
    /// caller makes a frame. From then on tungstenite decides what may still be sent.
    makes_frames: bool,
    /// Compressed messages on their way into the write buffer; its memory is used again for each.
    outgoing: BytesMut,
    /// tungstenite requested more bytes and has nothing else to do.
    drained: bool,
    /// tungstenite may hold a control frame: an answer, or the caller's.
    holds_control: bool,
    /// Reading failed, or the connection is closed: the stream ended.
    failed: bool,
    /// Payload bytes of the last data message as it came.
    arrived_bytes: usize,
    /// Payload bytes of the last data message that was started, as it goes.
    departed_bytes: usize,
    /// Compressed messages of at least this size stay compressed, if no later one refers to them.
    leave_from: Option<usize>,
}

#[derive(Debug)]
struct Deflate {
    params: DeflateParams,
    deflater: Deflater,
    inflater: Inflater,
}

impl Deflate {
    fn new(params: DeflateParams, role: Role) -> Deflate {
        let (send, receive) = match role {
            Role::Client => (params.to_server, params.to_client),
            Role::Server => (params.to_client, params.to_server),
        };
        Deflate { params, deflater: Deflater::new(params.level, send), inflater: Inflater::new(receive) }
    }
}

impl<S> WebSocket<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    /// A connection over a byte stream after its handshake. `early` are the bytes that came with
    /// the peer's HTTP head, `deflate` the agreed parameters. Compressed messages are limited by
    /// `max_message_size`, too. `None` for `config` is tungstenite's with a read buffer of 4 KiB.
    pub async fn from_partially_read(
        stream: S,
        mut early: Vec<u8>,
        role: Role,
        deflate: Option<DeflateParams>,
        config: Option<WebSocketConfig>,
    ) -> WebSocket<S> {
        let config = config.unwrap_or_else(|| WebSocketConfig::default().read_buffer_size(READ_BUFFER_BYTES));
        let tap = Tap::new(stream, deflate.is_some(), &mut early);
        WebSocket {
            inner: WebSocketStream::from_partially_read(tap, early, role, Some(config)).await,
            deflate: deflate.map(|params| Deflate::new(params, role)),
            max_message_bytes: config.max_message_size.unwrap_or(usize::MAX),
            write_buffer_bytes: config.write_buffer_size,
            makes_frames: role == Role::Server,
            outgoing: BytesMut::new(),
            drained: false,
            holds_control: false,
            failed: false,
            arrived_bytes: 0,
            departed_bytes: 0,
            leave_from: None,
        }
    }

    /// Checks before each read whether the byte stream has bytes, which saves tungstenite's
    /// preparations if it has none. `has_nothing_to_read` answers `true` if a read would return
    /// `Pending`, and then wakes the task when it would not. For TCP:
    ///
    /// ```
    /// # use tokio::net::TcpStream;
    /// # fn ask(websocket: tungstenite_deflate::WebSocket<TcpStream>) -> tungstenite_deflate::WebSocket<TcpStream> {
    /// websocket.asking_first(|tcp, cx| tcp.poll_read_ready(cx).is_pending())
    /// # }
    /// ```
    #[must_use]
    pub fn asking_first(mut self, has_nothing_to_read: fn(&S, &mut Context<'_>) -> bool) -> WebSocket<S> {
        let ask: HasNothingToRead<S> = has_nothing_to_read;
        self.inner.get_mut().has_nothing_to_read = Some(ask);
        self
    }

    /// The agreed parameters; `None` if messages travel uncompressed.
    pub fn deflate(&self) -> Option<&DeflateParams> {
        self.deflate.as_ref().map(|deflate| &deflate.params)
    }

    /// Memory of the compressor and the decompressor, which exist once a message needed them:
    /// zlib-rs's allocations.
    pub fn compression_memory(&self) -> CompressionMemory {
        let Some(Deflate { deflater, inflater, .. }) = &self.deflate else {
            return CompressionMemory::default();
        };
        deflater.memory() + inflater.memory()
    }

    /// Leaves compressed messages of at least this size compressed, for a reader that only counts
    /// messages. They are yielded as `Binary`; [`WebSocket::arrived_bytes`] identifies them. With
    /// context takeover they are decompressed, because later messages refer to them. `None`, as at
    /// first, decompresses every message.
    pub fn leave_compressed(&mut self, from_bytes: Option<usize>) {
        self.leave_from = from_bytes;
    }

    /// Payload bytes of the last text or binary message as it came, compressed or not.
    pub fn arrived_bytes(&self) -> usize {
        self.arrived_bytes
    }

    /// Payload bytes of the last text or binary message that was started, compressed or not.
    pub fn departed_bytes(&self) -> usize {
        self.departed_bytes
    }

    /// The byte stream.
    pub fn get_ref(&self) -> &S {
        &self.inner.get_ref().stream
    }

    /// The byte stream. Reading from it or writing to it breaks the connection.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner.get_mut().stream
    }

    /// `Sink::start_send` for a payload in bytes: compressed if agreed, sent with the next flush.
    /// The sink must be ready. `opcode` is `Text`, for UTF-8, or `Binary`. Readiness alone bounds
    /// what a server holds of data: tungstenite's `max_write_buffer_size` is for control frames.
    ///
    /// # Errors
    /// An error of tungstenite's. After it the connection is unusable.
    ///
    /// # Panics
    /// For another opcode.
    pub fn start_data(&mut self, opcode: Data, payload: Bytes) -> Result<(), Error> {
        assert!(is_message(opcode), "a message is text or binary");
        if let Some(Deflate { deflater, .. }) = &mut self.deflate
            && deflater.takes(payload.len())
        {
            deflater.compress(&payload, &mut self.outgoing);
            return self.start_compressed(opcode);
        }
        if self.makes_own_frames() {
            return self.start_as_it_is(opcode, false, iter::once(&payload[..]));
        }
        self.start_frame(opcode, false, payload)
    }

    /// [`WebSocket::start_data`] for a payload in parts, in order, that stay the caller's. A server
    /// copies or compresses them into its frame, without an allocation for each message; a client
    /// copies them once more.
    ///
    /// # Errors
    /// As [`WebSocket::start_data`].
    ///
    /// # Panics
    /// As [`WebSocket::start_data`].
    pub fn start_parts(&mut self, opcode: Data, parts: &[&[u8]]) -> Result<(), Error> {
        self.start_in_parts(opcode, parts.iter().copied())
    }

    /// [`WebSocket::start_data`] for a payload whose parts after the prefix are common to payloads
    /// to other connections. If [`DeflateParams::shared`] was agreed, the common parts are
    /// compressed once, into `shared`, and not read again.
    ///
    /// ```
    /// use futures::{SinkExt, StreamExt};
    /// use tungstenite_deflate::{DeflateParams, Direction, SharedDeflate, accept, connect};
    /// use tungstenite_deflate::tungstenite::protocol::frame::coding::Data;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), tungstenite_deflate::Error> {
    /// let to_client = Direction::NO_TAKEOVER;
    /// let enabled = [DeflateParams { shared: true, to_client, ..DeflateParams::DEFAULT }];
    /// let common = SharedDeflate::default();
    /// let text = "something for all of you ".repeat(9);
    /// for name in ["alice: ", "bob: "] {
    ///     let (near, far) = tokio::io::duplex(4096);
    ///     let (client, server) = tokio::join!(
    ///         connect("ws://localhost/", near, Some(&DeflateParams::DEFAULT), Default::default()),
    ///         accept(far, &enabled, Default::default()),
    ///     );
    ///     let (mut client, mut server) = (client?.0, server?);
    ///     server.start_shared(Data::Text, name.as_bytes(), &[text.as_bytes()], &common)?;
    ///     server.flush().await?;
    ///     assert_eq!(client.next().await.unwrap()?.into_text()?, format!("{name}{text}"));
    /// }
    /// assert!(common.held_bytes() < 100);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`WebSocket::start_data`].
    ///
    /// # Panics
    /// As [`WebSocket::start_data`].
    pub fn start_shared(
        &mut self,
        opcode: Data,
        prefix: &[u8],
        common: &[&[u8]],
        shared: &SharedDeflate,
    ) -> Result<(), Error> {
        let payload_bytes = prefix.len() + common.iter().map(|part| part.len()).sum::<usize>();
        let spliced = match &self.deflate {
            Some(Deflate { deflater, params, .. }) if params.shared && deflater.takes(payload_bytes) => {
                deflater.splice(prefix, common, shared)
            }
            _ => None,
        };
        match spliced {
            Some(spliced) => self.start_as_it_is(opcode, true, spliced.parts().iter().copied()),
            None => self.start_in_parts(opcode, iter::once(prefix).chain(common.iter().copied())),
        }
    }

    /// Ends the stream of messages, for a caller that found one invalid: [`WebSocket::close`] then
    /// does not wait for the peer's Close frame.
    pub fn fail(&mut self) {
        self.failed = true;
    }

    /// Sends a Close frame, waits for the peer's and shuts the byte stream down. After an error,
    /// too, so that the peer learns the reason ([`Error::close_code`]). A peer that stays silent is
    /// waited for: use a timeout.
    pub async fn close(&mut self, frame: Option<CloseFrame>) {
        // Errors mean that the peer is gone already.
        let mut closing = self.send_close(frame).await.is_ok() && !self.failed;
        self.failed = true;
        let mut acknowledged = false;
        while closing {
            let message = poll_fn(|cx| Pin::new(&mut self.inner).poll_next(cx)).await;
            acknowledged |= matches!(message, Some(Ok(Message::Close(_))));
            closing = matches!(message, Some(Ok(_)));
        }
        let stream = self.get_mut();
        if stream.shutdown().await.is_ok() && !acknowledged {
            // A socket that is closed with unread bytes sends a reset, which can overtake the Close
            // frame.
            let _: std::io::Result<u64> = tokio::io::copy(stream, &mut tokio::io::sink()).await;
        }
    }

    async fn send_close(&mut self, frame: Option<CloseFrame>) -> Result<(), Error> {
        self.makes_frames = false;
        poll_fn(|cx| Pin::new(&mut self.inner).poll_ready(cx)).await?;
        Pin::new(&mut self.inner).start_send(Message::Close(frame))?;
        Ok(poll_fn(|cx| Pin::new(&mut self.inner).poll_flush(cx)).await?)
    }

    /// Sends a payload in parts, compressed if agreed.
    fn start_in_parts<'p>(
        &mut self,
        opcode: Data,
        parts: impl Iterator<Item = &'p [u8]> + Clone,
    ) -> Result<(), Error> {
        match &mut self.deflate {
            Some(Deflate { deflater, .. }) if deflater.takes(parts.clone().map(<[u8]>::len).sum()) => {
                assert!(is_message(opcode), "a message is text or binary");
                scratch::joined(parts, |payload| deflater.compress(payload, &mut self.outgoing));
                self.start_compressed(opcode)
            }
            _ => self.start_as_it_is(opcode, false, parts),
        }
    }

    /// Sends a payload in parts that need no compression any more.
    fn start_as_it_is<'p>(
        &mut self,
        opcode: Data,
        rsv1: bool,
        parts: impl Iterator<Item = &'p [u8]> + Clone,
    ) -> Result<(), Error> {
        assert!(is_message(opcode), "a message is text or binary");
        if !self.makes_own_frames() {
            return self.start_frame(opcode, rsv1, parts.collect::<Vec<_>>().concat().into());
        }
        self.departed_bytes = self.inner.get_mut().frames.push(u8::from(OpCode::Data(opcode)), rsv1, parts);
        Ok(())
    }

    /// Sends the message that was compressed into the buffer for outgoing ones.
    fn start_compressed(&mut self, opcode: Data) -> Result<(), Error> {
        if !self.makes_own_frames() {
            let payload = self.outgoing.split().freeze();
            return self.start_frame(opcode, true, payload);
        }
        let payload = iter::once(&self.outgoing[..]);
        self.departed_bytes = self.inner.get_mut().frames.push(u8::from(OpCode::Data(opcode)), true, payload);
        self.outgoing.clear();
        Ok(())
    }

    /// Whether data frames are made here now; see `makes_frames`.
    fn makes_own_frames(&self) -> bool {
        self.makes_frames && !self.failed
    }

    /// Sends a frame by tungstenite.
    fn start_frame(&mut self, opcode: Data, rsv1: bool, payload: Bytes) -> Result<(), Error> {
        self.departed_bytes = payload.len();
        let header = FrameHeader { rsv1, opcode: OpCode::Data(opcode), ..FrameHeader::default() };
        Ok(Pin::new(&mut self.inner).start_send(Message::Frame(Frame::from_payload(header, payload)))?)
    }

    /// The message in what tungstenite yields.
    fn receive(&mut self, message: Message) -> Result<Message, Error> {
        let payload: &[u8] = match &message {
            Message::Text(text) => text.as_bytes(),
            Message::Binary(payload) => payload,
            Message::Ping(_) | Message::Close(_) => {
                self.holds_control = true;
                self.makes_frames &= message.is_ping();
                return Ok(message);
            }
            Message::Pong(_) | Message::Frame(_) => return Ok(message),
        };
        self.arrived_bytes = payload.len();
        let arrival = self.inner.get_mut().next_arrival();
        let (Some(deflate), Some(Arrival { compressed: true, text })) = (&mut self.deflate, arrival) else {
            return Ok(message);
        };
        if self.leave_from.is_some_and(|from| payload.len() >= from) && !deflate.inflater.has_takeover() {
            return Ok(message);
        }
        let payload = deflate.inflater.inflate(payload, self.max_message_bytes)?;
        if !text {
            return Ok(Message::Binary(payload));
        }
        // tungstenite checks the text that it sees (RFC 6455 §8.1).
        Utf8Bytes::try_from(payload).map(Message::Text).map_err(|_| Error::Utf8)
    }
}

/// tungstenite keeps its read buffer for each connection and fills it with zeros before it reads;
/// the layer below reads all that the stream has, whatever the size.
const READ_BUFFER_BYTES: usize = 4 << 10;

fn is_message(opcode: Data) -> bool {
    matches!(opcode, Data::Text | Data::Binary)
}

impl<S> Stream for WebSocket<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    type Item = Result<Message, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.failed {
            return Poll::Ready(None);
        }
        // tungstenite fills its read buffer with zeros before it asks the stream, for nothing on
        // most polls of a connection that mostly sends.
        if this.drained && this.inner.get_ref().has_nothing_to_read(cx) {
            return Poll::Pending;
        }
        let polled = Pin::new(&mut this.inner).poll_next(cx);
        this.drained = polled.is_pending() && !this.holds_control;
        let Some(result) = ready!(polled) else { return Poll::Ready(None) };
        let received = result.map_err(Error::from).and_then(|message| this.receive(message));
        this.failed = received.is_err();
        Poll::Ready(Some(received))
    }
}

impl<S> Sink<Message> for WebSocket<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    type Error = Error;

    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let this = self.get_mut();
        let tap = this.inner.get_ref();
        if tap.in_frame || tap.frames.are_due(this.write_buffer_bytes) {
            ready!(Pin::new(&mut *this).poll_flush(cx))?;
        }
        Pin::new(&mut this.inner).poll_ready(cx).map_err(Error::from)
    }

    fn start_send(mut self: Pin<&mut Self>, message: Message) -> Result<(), Error> {
        match message {
            Message::Text(text) => self.start_data(Data::Text, text.into()),
            Message::Binary(payload) => self.start_data(Data::Binary, payload),
            other => {
                self.makes_frames &= other.is_ping() || other.is_pong();
                self.holds_control = true;
                Ok(Pin::new(&mut self.inner).start_send(other)?)
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let this = self.get_mut();
        if this.makes_own_frames() && !this.holds_control {
            // Most flushes end here: to ask tungstenite costs more than to write a small message.
            // What does not pass at once waits by its wakers, which readers share.
            let tap = this.inner.get_mut();
            if !tap.in_frame && Pin::new(tap).poll_flush(cx).map_err(tungstenite::Error::Io)?.is_ready() {
                return Poll::Ready(Ok(()));
            }
        }
        ready!(Pin::new(&mut this.inner).poll_flush(cx))?;
        this.holds_control = false;
        Poll::Ready(Ok(()))
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.makes_frames = false;
        Pin::new(&mut self.inner).poll_close(cx).map_err(Error::from)
    }
}
