//! A client that asked for a format or a compression: two connections, each negotiated alone.
//!
//! One task owns both. It reads a side only while the other has room, so that whoever is slow stops
//! the reading on the other side, and nothing waits but what is in the two write buffers.

use std::{
    future::{Future, poll_fn},
    net::IpAddr,
    pin::pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::Poll,
    time::{Duration, Instant},
};

use bytes::Bytes;
use codecs::{ClientMessage, Codec, DecodeError, Format, Limits, Opcode, RelayMessage};
use recording::{Recorded, Side as Party};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::{debug, warn};
use wire::{CloseCode, Compression, Connection, Message, Traffic, WireError};

use crate::{
    metrics::Live,
    shared::Gateway,
    transcode::{self, EventMessage},
};

/// Bytes that are fed before a flush has to succeed: less than a write buffer, so that feeding does
/// not wait.
const FLUSH_BYTES: usize = 16 << 10;

/// The longest header of a frame (RFC 6455 §5.2).
const HEADER_BYTES: usize = 14;

/// A client that closes within so many messages did not understand the first ones.
const FIRST_MESSAGES: u64 = 16;

/// Time for a peer to take what is left for it, and for its Close frame.
const FAREWELL: Duration = Duration::from_secs(2);

/// The relay is gone: a client may connect again, after a delay of its own choice (IANA's registry
/// of close codes). Its subscriptions and its proof of identity went with the connection.
const RELAY_GONE: CloseCode = CloseCode::Restart;

/// The relay sent what the client's connection cannot carry. Not 1014, which says so: clients on
/// tungstenite take that for a breach of RFC 6455.
const RELAY_FAULT: CloseCode = CloseCode::Error;

/// A client and its connection to the relay.
pub(crate) struct Session {
    gateway: Arc<Gateway>,
    live: Live,
    address: IpAddr,
    client: Leg,
    relay: Leg,
    format: Format,
    codec: &'static dyn Codec,
    /// Whether frames of the client have no type: the zstd layer's are binary.
    is_layered: bool,
    /// Whether the client has sent a proof of its identity: nothing is shared from then on.
    is_authenticated: bool,
    /// The part of a message before its event.
    prefix: Vec<u8>,
    recorded: Option<Recorded>,
    /// Counts that are in the metrics.
    counted: [Traffic; 2],
}

/// One of the two connections.
struct Leg {
    conn: Connection,
    /// Bytes fed since the last flush that ended.
    unflushed: usize,
    /// When the peer last took bytes, and how many it had then.
    taken: (Instant, u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Client,
    Relay,
}

/// Code and reason of a Close frame.
type Close = (CloseCode, String);

/// Why a session ended.
#[derive(Debug)]
enum End {
    /// The peer's Close frame or its end of TCP.
    Left(Side),
    /// A side broke a rule, is silent, or failed. Without a code it is gone.
    Failed(Side, Option<CloseCode>, String),
    /// The gateway stops.
    Stopped,
}

impl End {
    fn failed(side: Side, error: &WireError) -> End {
        End::Failed(side, error.close_code(), error.to_string())
    }
}

impl Leg {
    fn new(conn: Connection) -> Leg {
        Leg { conn, unflushed: 0, taken: (Instant::now(), 0) }
    }

    fn has_room(&self) -> bool {
        self.unflushed < FLUSH_BYTES
    }

    fn fed(&mut self, payload_bytes: usize) {
        self.unflushed += payload_bytes + HEADER_BYTES;
    }

    /// Whether the peer neither sent nor took anything for this long.
    fn is_silent_for(&mut self, time: Duration) -> bool {
        let wire_bytes = self.conn.traffic().sent.wire_bytes;
        if wire_bytes > self.taken.1 {
            self.taken = (Instant::now(), wire_bytes);
        }
        // Bytes that the kernel took are no sign of life once nothing is left to take.
        let taken = if self.unflushed > 0 { self.taken.0 } else { self.conn.last_heard() };
        taken.max(self.conn.last_heard()).elapsed() >= time
    }
}

impl Session {
    pub(crate) fn new(
        gateway: Arc<Gateway>,
        live: Live,
        address: IpAddr,
        client: Connection,
        relay: Connection,
    ) -> Session {
        let agreement = client.agreement();
        let format = agreement.format;
        let recorded = gateway.recorder.as_ref().map(|recorder| {
            let agreed = agreement.token.clone().or_else(|| agreement.extensions.clone());
            recorder.open(agreed, None)
        });
        Session {
            recorded,
            gateway,
            live,
            address,
            format,
            codec: transcode::codec(format),
            is_layered: matches!(agreement.compression, Compression::Zstd(_)),
            is_authenticated: false,
            client: Leg::new(client),
            relay: Leg::new(relay),
            prefix: Vec::new(),
            counted: [Traffic::default(); 2],
        }
    }

    /// Passes messages until a side leaves, or the gateway stops.
    pub(crate) async fn run(mut self) {
        let end = match self.serve().await {
            Ok(never) => match never {},
            Err(end) => end,
        };
        debug!(?end, client = %self.address, "connection ends");
        self.finish(end).await;
        self.count();
    }

    async fn serve(&mut self) -> Result<std::convert::Infallible, End> {
        let gateway = Arc::clone(&self.gateway);
        let mut pings = interval(self.gateway.config.ping_interval);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        pings.reset(); // the first tick would be at once
        loop {
            let (side, message) = tokio::select! {
                biased;
                () = gateway.stop.cancelled() => return Err(End::Stopped),
                _ = pings.tick() => {
                    self.ping().await?;
                    continue;
                }
                next = self.next() => next?,
            };
            match side {
                Side::Client => self.take_clients(message).await?,
                Side::Relay => {
                    let payload = self.recorded.is_some().then(|| message.payload.clone());
                    self.take_relays(message).await?;
                    if let (Some(recorded), Some(payload)) = (&self.recorded, payload) {
                        let bytes = self.client.conn.departed_bytes();
                        recorded.message(Party::Relay, bytes, Format::JSON, &[&payload]);
                    }
                }
            }
        }
    }

    /// Waits for a message of a side whose other side has room. What was fed is flushed when no
    /// message is ready. Cancel-safe.
    async fn next(&mut self) -> Result<(Side, Message), End> {
        let next = poll_fn(|cx| {
            loop {
                for side in [Side::Relay, Side::Client] {
                    let (from, to) = self.legs(side);
                    if !to.has_room() {
                        continue;
                    }
                    let next = pin!(from.conn.next()).poll(cx);
                    match next {
                        Poll::Ready(Some(Ok(message))) => return Poll::Ready(Ok((side, message))),
                        // After a Close frame only the end of TCP comes.
                        _ if from.conn.peer_close().is_some() => return Poll::Ready(Err(End::Left(side))),
                        Poll::Ready(Some(Err(WireError::Closed { .. })) | None) => {
                            return Poll::Ready(Err(End::Left(side)));
                        }
                        Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(End::failed(side, &error))),
                        Poll::Pending => {}
                    }
                }
                let mut has_new_room = false;
                for side in [Side::Relay, Side::Client] {
                    let leg = self.legs(side).0;
                    if leg.unflushed == 0 {
                        continue;
                    }
                    let flushed = pin!(leg.conn.flush()).poll(cx);
                    match flushed {
                        Poll::Ready(Ok(())) => {
                            has_new_room |= !leg.has_room();
                            leg.unflushed = 0;
                        }
                        Poll::Ready(Err(error)) => return Poll::Ready(Err(End::failed(side, &error))),
                        Poll::Pending => {}
                    }
                }
                if !has_new_room {
                    return Poll::Pending;
                }
            }
        })
        .await;
        self.count();
        next
    }

    /// A side, and the other one.
    fn legs(&mut self, side: Side) -> (&mut Leg, &mut Leg) {
        match side {
            Side::Client => (&mut self.client, &mut self.relay),
            Side::Relay => (&mut self.relay, &mut self.client),
        }
    }

    // --- to the client ---

    async fn take_relays(&mut self, message: Message) -> Result<(), End> {
        let json = &message.payload;
        let text_end = |error| End::failed(Side::Client, &error);
        if message.opcode == Opcode::Binary {
            if self.is_layered || self.format != Format::JSON {
                let reason = "the relay sent a binary message, which this connection cannot mark as one";
                return Err(End::Failed(Side::Relay, Some(CloseCode::Unsupported), reason.to_owned()));
            }
            self.client.fed(json.len());
            return self.client.conn.feed_message(message).await.map_err(text_end);
        }
        let parts = EventMessage::of(json);
        let entry = parts.as_ref().filter(|_| !self.is_authenticated);
        let entry = entry.and_then(|parts| self.gateway.cache.entry(parts.rest));
        if let (Some(entry), Some(parts)) = (entry, parts)
            && let Some(encoded) = entry.encoded(self.format)
        {
            let end: &[u8] = if self.format == Format::JSON {
                self.prefix.clear();
                self.prefix.extend_from_slice(parts.prefix);
                b""
            } else if let Some(subscription) = parts.subscription() {
                self.prefix.clear();
                self.codec.around_event(&subscription, &encoded.bytes, &mut self.prefix)
            } else {
                return self.send_json(message.payload).await;
            };
            self.client.fed(self.prefix.len() + encoded.bytes.len());
            let common = [&encoded.bytes[..], end];
            self.client.conn.feed_shared(&self.prefix, common, &encoded.shared).await.map_err(text_end)?;
            self.gateway.cache.weigh(&entry);
            return Ok(());
        }
        if self.format != Format::JSON
            && let Some(bytes) = transcode::to_client(json, self.codec)
        {
            return self.send(&bytes).await;
        }
        self.send_json(message.payload).await
    }

    /// Sends a message in the client's format.
    async fn send(&mut self, bytes: &[u8]) -> Result<(), End> {
        self.client.fed(bytes.len());
        self.client.conn.feed_slice(bytes).await.map_err(|error| End::failed(Side::Client, &error))
    }

    /// Sends the relay's text: as it is to readers of JSON, to others as a text frame or, in the
    /// zstd layer, as a message that begins with `[`.
    async fn send_json(&mut self, mut payload: Bytes) -> Result<(), End> {
        if self.format != Format::JSON {
            self.gateway.metrics.json_texts.fetch_add(1, Relaxed);
            if self.is_layered {
                payload = payload.slice(payload.len() - payload.trim_ascii_start().len()..);
                if payload.first() != Some(&b'[') {
                    let reason = "the relay sent a text that is not a message of NIP-01".to_owned();
                    return Err(End::Failed(Side::Relay, Some(CloseCode::Unsupported), reason));
                }
            }
        }
        self.client.fed(payload.len());
        let message = Message { opcode: Opcode::Text, payload };
        self.client.conn.feed_message(message).await.map_err(|error| End::failed(Side::Client, &error))
    }

    // --- to the relay ---

    async fn take_clients(&mut self, message: Message) -> Result<(), End> {
        let is_json = self.format == Format::JSON;
        if !is_json && message.opcode == self.format.spec().opcode {
            let limits =
                Limits { max_unpacked_bytes: self.gateway.config.limits.max_message_bytes, ..Limits::MOST };
            match self.codec.decode_client_within(&message.payload, &limits) {
                Ok(read) => {
                    self.is_authenticated |= matches!(read, ClientMessage::Auth(_));
                    return match transcode::to_relay(&read) {
                        Ok(json) => self.ask(Message { opcode: Opcode::Text, payload: json.into() }).await,
                        Err(answer) => self.answer(&answer).await,
                    };
                }
                Err(_) if is_json_text(&message.payload) => {}
                Err(DecodeError::UnknownMessage(name)) => {
                    let text = format!("unsupported: unknown message {name:?}").into();
                    return self.answer(&RelayMessage::Notice { text }).await;
                }
                Err(error) => {
                    let reason = format!("not a {} message: {error}", self.format);
                    let is_too_large = matches!(error, DecodeError::Unpacked(_));
                    let code = if is_too_large { CloseCode::Size } else { CloseCode::Invalid };
                    return Err(End::Failed(Side::Client, Some(code), reason));
                }
            }
        }
        self.is_authenticated |= transcode::is_auth(&message.payload);
        let opcode = if is_json { message.opcode } else { Opcode::Text };
        self.ask(Message { opcode, ..message }).await
    }

    async fn ask(&mut self, message: Message) -> Result<(), End> {
        if let Some(recorded) = &self.recorded {
            let bytes = self.client.conn.arrived_bytes();
            recorded.message(Party::Client, bytes, Format::JSON, &[&message.payload]);
        }
        self.relay.fed(message.payload.len());
        self.relay.conn.feed_message(message).await.map_err(|error| match error {
            // In JSON the client's message is longer than any that is passed.
            WireError::TooLarge { .. } => End::failed(Side::Client, &error),
            error => End::failed(Side::Relay, &error),
        })
    }

    /// Answers in the relay's place.
    async fn answer(&mut self, message: &RelayMessage<'_>) -> Result<(), End> {
        let mut bytes = Vec::new();
        let written = self.codec.encode_relay(message, &mut bytes);
        written.map_err(|error| End::Failed(Side::Client, Some(CloseCode::Policy), error.to_string()))?;
        self.send(&bytes).await
    }

    // --- time ---

    /// Pings both peers, and leaves one that was silent for three Pings.
    async fn ping(&mut self) -> Result<(), End> {
        let interval = self.gateway.config.ping_interval;
        for side in [Side::Client, Side::Relay] {
            let leg = self.legs(side).0;
            if leg.is_silent_for(3 * interval) {
                let reason = format!("no sign of life for {} s", 3 * interval.as_secs());
                return Err(End::Failed(side, Some(CloseCode::Away), reason));
            }
            // A peer that is behind is not asked: its reading is the sign of life.
            if leg.unflushed == 0
                && let Ok(Err(error)) = timeout(interval, leg.conn.ping()).await
            {
                return Err(End::failed(side, &error));
            }
        }
        Ok(())
    }

    /// Adds what passed since the last time to the metrics.
    fn count(&mut self) {
        let [client, relay] = [self.client.conn.traffic(), self.relay.conn.traffic()];
        let [client_then, relay_then] = std::mem::replace(&mut self.counted, [client, relay]);
        let add = |count: &std::sync::atomic::AtomicU64, more| _ = count.fetch_add(more, Relaxed);
        let (to_client, to_relay) = (&self.live.to_client, &self.live.to_relay);
        add(&to_client.before, relay.received.payload_bytes - relay_then.received.payload_bytes);
        add(&to_client.after, client.sent.wire_bytes - client_then.sent.wire_bytes);
        add(&to_relay.before, relay.sent.payload_bytes - relay_then.sent.payload_bytes);
        add(&to_relay.after, client.received.wire_bytes - client_then.received.wire_bytes);
    }

    // --- ending ---

    /// Closes both sides: the one that stays hears why the other left. Records who ended it.
    async fn finish(&mut self, end: End) {
        let party = |side| if side == Side::Client { Party::Client } else { Party::Relay };
        let client_gone = || (CloseCode::Away, "the client is gone".to_owned());
        let (client, relay, recorded) = match end {
            End::Stopped => {
                let stops = Some((CloseCode::Away, "the gateway stops".to_owned()));
                (stops.clone(), stops, (Some(CloseCode::Away), Party::Gateway))
            }
            End::Left(side) => {
                let close = self.legs(side).0.conn.peer_close();
                let close = close.map(|(code, reason)| (code, reason.to_owned()));
                let code = close.as_ref().map(|(code, _)| *code).filter(|code| *code != CloseCode::Status);
                let (client, relay) = if side == Side::Client {
                    self.shun(close.as_ref());
                    (None, Some(close.unwrap_or_else(client_gone)))
                } else {
                    let gone = || (RELAY_GONE, "the relay ended the connection".to_owned());
                    (Some(close.unwrap_or_else(gone)), None)
                };
                (client, relay, (code, party(side)))
            }
            End::Failed(side, code, why) => {
                let blamed = code.map(|code| (code, why.clone()));
                let (client, relay) = if side == Side::Client {
                    (blamed, Some(client_gone()))
                } else {
                    warn!(client = %self.address, "the relay's connection failed: {why}");
                    let told = if code.is_some() { RELAY_FAULT } else { RELAY_GONE };
                    (Some((told, format!("the relay's connection failed: {why}"))), blamed)
                };
                (client, relay, (code, if code.is_some() { Party::Gateway } else { party(side) }))
            }
        };
        if let Some(recorder) = &self.recorded {
            let (code, by) = recorded;
            recorder.close(code.map(u16::from), by);
        }
        let Session { client: client_leg, relay: relay_leg, .. } = self;
        tokio::join!(close(client_leg, client), close(relay_leg, relay));
    }

    /// Notes a client that closed over its first compressed messages.
    fn shun(&self, close: Option<&Close>) {
        let conn = &self.client.conn;
        let is_compressed = conn.agreement().compression != Compression::None;
        let first = (1..=FIRST_MESSAGES).contains(&conn.traffic().sent.messages);
        if let Some((code, reason)) = close
            && matches!(code, CloseCode::Protocol | CloseCode::Invalid)
            && is_compressed
            && first
        {
            self.gateway.shunned.add(self.address, Instant::now());
            self.gateway.metrics.shunned.fetch_add(1, Relaxed);
            let compression = conn.agreement().compression.name();
            let (client, code) = (self.address, u16::from(*code));
            warn!(%client, code, reason, compression, "a client closed over its first messages; no compression for an hour");
        }
    }
}

/// Closes a leg after its queued messages are sent. Without a code its peer has left already: what still
/// comes is dropped until the connection ends.
async fn close(leg: &mut Leg, close: Option<Close>) {
    match close {
        Some((code, reason)) => {
            let _ = timeout(FAREWELL, leg.conn.flush()).await;
            leg.conn.close_within(code, &reason, FAREWELL).await;
        }
        None => {
            let _ = timeout(FAREWELL, async { while let Some(Ok(_)) = leg.conn.next().await {} }).await;
        }
    }
}

/// Whether a message that is none of the format is one in JSON.
fn is_json_text(payload: &[u8]) -> bool {
    payload.trim_ascii_start().starts_with(b"[") && std::str::from_utf8(payload).is_ok()
}
