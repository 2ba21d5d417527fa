//! One connection from its first message to its close: the only place where the relay reads and writes.
//!
//! One task owns the connection. It takes whatever is ready, from the peer and from the outbox, writes all the
//! answers and then flushes once: flushing is what costs most. A peer that does not take what is written is
//! still read from, up to a bound, since it may be waiting for us to read before it reads itself.

use std::{
    collections::VecDeque,
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use codecs::{Codec, DecodeError, Format, Opcode, RelayMessage};
use futures::FutureExt;
use tokio::time::{MissedTickBehavior, timeout};
use tracing::debug;
use wire::{CloseCode, Connection, Message, WireError};

use crate::{
    fanout::{Delivery, Inbound, Outbox, Stop},
    peer::{Answer, Peer},
    relay::Relay,
    store::{Encoded, StoredEvent},
    subscriptions::Subscription,
    totals::add,
};

/// How long a session works before it flushes and lets others run; a flush for every message would cost more
/// than the messages (TRANSPORT: 1,434 ns a message at 2 in a flush, 208 at 64).
const TURN: Duration = Duration::from_micros(500);

/// Deliveries taken from the outbox at once.
const DELIVERIES: usize = 64;

/// Written bytes that are flushed before more are added, so that `feed` finds room in the write buffer.
const FLUSH_BYTES: usize = 32 << 10;

/// How long the peer has to take what is left for it when the relay stops.
const FAREWELL: Duration = Duration::from_secs(2);

/// Serves one connection until it ends, and counts what it moved.
pub(crate) async fn run(relay: Arc<Relay>, conn: Connection, outbox: Arc<Outbox>, inbound: Inbound) {
    let mut session = Session::new(relay, conn, outbox, inbound);
    let end = match session.serve().await {
        Ok(never) => match never {},
        Err(end) => end,
    };
    session.finish(end).await;
}

struct Session {
    relay: Arc<Relay>,
    conn: Connection,
    format: Format,
    codec: &'static dyn Codec,
    peer: Peer,
    outbox: Arc<Outbox>,
    inbound: Inbound,
    /// Messages that arrived while a flush waited for the peer.
    unread: VecDeque<Message>,
    unread_bytes: usize,
    written_bytes: usize,
    /// Where a message is put together; it moves to `chunk`, from which the connection gets its share.
    scratch: Vec<u8>,
    chunk: BytesMut,
}

/// Why a session ended.
#[derive(Debug)]
enum End {
    /// The peer closed.
    Left,
    /// The transport failed, or the peer broke its rules.
    Wire(WireError),
    /// Somebody else decided so.
    Stopped(Stop),
    /// The session decided so.
    Close(CloseCode, String),
}

impl From<WireError> for End {
    fn from(error: WireError) -> Self {
        End::Wire(error)
    }
}

/// A session has no good end of its own.
enum Never {}

impl Session {
    fn new(relay: Arc<Relay>, conn: Connection, outbox: Arc<Outbox>, inbound: Inbound) -> Self {
        let format = conn.agreement().format;
        let local = conn.local_addr().ip();
        Session {
            codec: relay.codec(format),
            peer: Peer::new(Arc::clone(&relay), format, Arc::clone(&outbox), local),
            relay,
            conn,
            format,
            outbox,
            inbound,
            unread: VecDeque::new(),
            unread_bytes: 0,
            written_bytes: 0,
            scratch: Vec::new(),
            chunk: BytesMut::new(),
        }
    }

    async fn serve(&mut self) -> Result<Never, End> {
        if let Some(greeting) = self.peer.greeting() {
            self.send(&greeting).await?;
            self.flush().await?;
        }
        let mut deliveries = Vec::with_capacity(DELIVERIES);
        let mut pings = tokio::time::interval(self.relay.config.ping_interval);
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        pings.reset(); // the first tick would be at once
        loop {
            tokio::select! {
                biased;
                stop = &mut self.inbound.stop => return Err(End::Stopped(stop.unwrap_or(Stop::Shutdown))),
                message = read(&mut self.conn, &mut self.unread, &mut self.unread_bytes) => {
                    self.handle(message?).await?;
                }
                _ = self.inbound.deliveries.recv_many(&mut deliveries, DELIVERIES) => {
                    self.deliver(&mut deliveries).await?;
                }
                _ = pings.tick() => self.ping().await?,
            }
            let turn_is_over = self.take_what_is_ready(&mut deliveries).await?;
            self.flush().await?;
            if turn_is_over {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Works until nothing is ready or the turn is over.
    async fn take_what_is_ready(&mut self, deliveries: &mut Vec<Delivery>) -> Result<bool, End> {
        let started = Instant::now();
        loop {
            let message = read(&mut self.conn, &mut self.unread, &mut self.unread_bytes).now_or_never();
            let mut idle = message.is_none();
            if let Some(message) = message {
                self.handle(message?).await?;
            }
            while deliveries.len() < DELIVERIES
                && let Ok(delivery) = self.inbound.deliveries.try_recv()
            {
                deliveries.push(delivery);
            }
            idle &= deliveries.is_empty();
            self.deliver(deliveries).await?;
            if idle {
                return Ok(false);
            }
            if started.elapsed() >= TURN {
                return Ok(true);
            }
        }
    }

    // --- reading ---------------------------------------------------------------------------------------------

    async fn handle(&mut self, message: Message) -> Result<(), End> {
        let expected = self.format.spec().opcode;
        if message.opcode != expected {
            add(&self.relay.counters.malformed, 1);
            return match expected {
                Opcode::Text => self.notice("invalid: binary frames need a negotiated subprotocol").await,
                Opcode::Binary => Err(End::Close(
                    CloseCode::Unsupported,
                    format!("{} uses binary frames, this was text", self.format),
                )),
            };
        }
        let answer = match self.codec.decode_client(&message.payload) {
            Ok(message) => self.peer.answer(message),
            Err(error) => return self.refuse(&error).await,
        };
        match answer {
            Answer::Silence => Ok(()),
            Answer::Message(message) => self.send(&message).await,
            Answer::Stored(subscription, events) => self.send_stored(&subscription, &events).await,
        }
    }

    async fn refuse(&mut self, error: &DecodeError) -> Result<(), End> {
        if let DecodeError::UnknownMessage(name) = error {
            add(&self.relay.counters.unsupported, 1);
            return self.notice(&format!("unsupported: unknown message {name:?}")).await;
        }
        add(&self.relay.counters.malformed, 1);
        match self.format.spec().opcode {
            Opcode::Text => self.notice(&format!("invalid: {error}")).await,
            Opcode::Binary => {
                Err(End::Close(CloseCode::InvalidData, format!("not a {} message: {error}", self.format)))
            }
        }
    }

    // --- writing ---------------------------------------------------------------------------------------------

    async fn notice(&mut self, text: &str) -> Result<(), End> {
        self.send(&RelayMessage::Notice { text: text.into() }).await
    }

    async fn send(&mut self, message: &RelayMessage<'_>) -> Result<(), End> {
        self.scratch.clear();
        if let Err(error) = self.codec.encode_relay(message, &mut self.scratch) {
            add(&self.relay.counters.unencodable, 1);
            debug!(%error, "an answer is left out");
            return Ok(());
        }
        self.write().await
    }

    /// The answer to a REQ: its stored events straight from the store's snapshot, then EOSE. What is published
    /// meanwhile waits in the outbox.
    async fn send_stored(
        &mut self,
        subscription: &Arc<Subscription>,
        events: &[Arc<StoredEvent>],
    ) -> Result<(), End> {
        let mut sent = 0;
        for event in events {
            match event.encoded(self.format, self.codec) {
                Ok(encoded) => {
                    self.write_event(&subscription.name, encoded).await?;
                    sent += 1;
                }
                Err(error) => {
                    add(&self.relay.counters.unencodable, 1);
                    debug!(id = codecs::hex::encode(&event.event.id), %error, "a stored event is left out");
                }
            }
        }
        add(&self.relay.counters.deliveries_stored, sent);
        let eose = RelayMessage::Eose {
            subscription: subscription.name.as_str().into(),
            hints: codecs::EoseHints::default(),
        };
        self.send(&eose).await
    }

    async fn deliver(&mut self, deliveries: &mut Vec<Delivery>) -> Result<(), End> {
        let (mut sent, mut dropped) = (0, 0);
        for Delivery { subscription, event, payload_bytes } in deliveries.drain(..) {
            self.outbox.taken(payload_bytes);
            let Ok(encoded) = event.encoded(self.format, self.codec) else { continue };
            if subscription.ended() {
                dropped += 1;
                continue;
            }
            self.write_event(&subscription.name, encoded).await?;
            sent += 1;
        }
        if sent + dropped > 0 {
            add(&self.relay.counters.deliveries_live, sent);
            add(&self.relay.counters.deliveries_dropped, dropped);
        }
        Ok(())
    }

    /// Hands an event for a subscription to the connection.
    async fn write_event(&mut self, subscription: &str, encoded: &Encoded) -> Result<(), End> {
        self.scratch.clear();
        self.codec.wrap_event(subscription, &encoded.bytes, &mut self.scratch);
        let prefix_bytes = begin_of(&encoded.bytes, &self.scratch);
        let payload = self.payload();
        self.conn.feed_shared(payload, prefix_bytes, &encoded.shared).await?;
        self.flush_when_full().await
    }

    /// Hands `scratch` to the connection.
    async fn write(&mut self) -> Result<(), End> {
        let payload = self.payload();
        self.conn.feed(payload).await?;
        self.flush_when_full().await
    }

    /// What is in `scratch`, counted as written.
    fn payload(&mut self) -> Bytes {
        self.written_bytes += self.scratch.len();
        self.chunk.extend_from_slice(&self.scratch);
        self.chunk.split().freeze()
    }

    async fn flush_when_full(&mut self) -> Result<(), End> {
        if self.written_bytes >= FLUSH_BYTES {
            self.flush().await?;
        }
        Ok(())
    }

    /// Waits until the peer took what was written.
    async fn flush(&mut self) -> Result<(), End> {
        if self.written_bytes == 0 {
            return Ok(());
        }
        match self.conn.flush().now_or_never() {
            Some(result) => result?,
            None => self.flush_to_a_slow_peer().await?,
        }
        self.written_bytes = 0;
        Ok(())
    }

    /// Meanwhile messages are read ahead, a stop is heeded, and a peer that neither takes nor sends anything is
    /// given up like one that answers no pings.
    async fn flush_to_a_slow_peer(&mut self) -> Result<(), End> {
        let max_unread_bytes = self.relay.config.outbox_bytes;
        let mut taken = (Instant::now(), self.conn.traffic().sent.wire_bytes);
        loop {
            match timeout(self.relay.config.ping_interval, self.flushed_or_arrived()).await {
                Ok(Meanwhile::Flushed(result)) => return Ok(result?),
                Ok(Meanwhile::Stopped(stop)) => return Err(End::Stopped(stop)),
                Ok(Meanwhile::Arrived(message)) => {
                    let message = message.ok_or(End::Left)??;
                    self.unread_bytes += message.payload.len();
                    self.unread.push_back(message);
                    if self.unread_bytes > max_unread_bytes {
                        add(&self.relay.counters.slow_consumers, 1);
                        return Err(End::Stopped(Stop::SlowConsumer));
                    }
                }
                Err(_) => {
                    let wire_bytes = self.conn.traffic().sent.wire_bytes;
                    if wire_bytes > taken.1 {
                        taken = (Instant::now(), wire_bytes);
                    }
                    self.check_life(taken.0.max(self.conn.last_heard()))?;
                }
            }
        }
    }

    async fn flushed_or_arrived(&mut self) -> Meanwhile {
        let Session { conn, inbound, .. } = self;
        poll_fn(|cx| {
            if let Poll::Ready(result) = pin!(conn.flush()).poll(cx) {
                return Poll::Ready(Meanwhile::Flushed(result));
            }
            if let Poll::Ready(stop) = inbound.stop.poll_unpin(cx) {
                return Poll::Ready(Meanwhile::Stopped(stop.unwrap_or(Stop::Shutdown)));
            }
            pin!(conn.next()).poll(cx).map(Meanwhile::Arrived)
        })
        .await
    }

    async fn ping(&mut self) -> Result<(), End> {
        self.check_life(self.conn.last_heard())?;
        tokio::select! {
            // Before a full socket it waits too.
            pinged = timeout(2 * self.relay.config.ping_interval, self.conn.ping()) => match pinged {
                Ok(result) => Ok(result?),
                Err(_) => self.check_life(self.conn.last_heard()),
            },
            stop = &mut self.inbound.stop => Err(End::Stopped(stop.unwrap_or(Stop::Shutdown))),
        }
    }

    fn check_life(&self, last_sign: Instant) -> Result<(), End> {
        let silence = last_sign.elapsed();
        if silence < 2 * self.relay.config.ping_interval {
            return Ok(());
        }
        add(&self.relay.counters.silent_peers, 1);
        Err(End::Close(CloseCode::GoingAway, format!("no sign of life for {} s", silence.as_secs())))
    }

    // --- ending ----------------------------------------------------------------------------------------------

    /// What was accepted before the relay was told to stop still reaches its subscribers.
    async fn deliver_the_rest(&mut self) -> Result<(), End> {
        let mut deliveries = Vec::new();
        while let Ok(delivery) = self.inbound.deliveries.try_recv() {
            deliveries.push(delivery);
            self.deliver(&mut deliveries).await?;
        }
        self.flush().await
    }

    async fn finish(mut self, end: End) {
        debug!(?end, "connection ends");
        if matches!(end, End::Stopped(Stop::Shutdown))
            && timeout(FAREWELL, self.deliver_the_rest()).await.is_err()
        {
            debug!("the peer did not take what was left for it");
        }
        let counters = &self.relay.counters;
        let close = match end {
            End::Left => None,
            End::Wire(error) => {
                let code = error.close_code();
                add(if code.is_some() { &counters.malformed } else { &counters.connections_failed }, 1);
                code.map(|code| (code, error.to_string()))
            }
            End::Stopped(Stop::SlowConsumer) => {
                Some((CloseCode::TryAgain, "slow consumer: too much was left unread".to_owned()))
            }
            End::Stopped(Stop::Shutdown) => Some((CloseCode::GoingAway, "the relay stops".to_owned())),
            End::Close(code, reason) => Some((code, reason)),
        };
        if let Some((code, reason)) = close {
            self.conn.close(code, &reason).await;
        }
        self.inbound.deliveries.close();
        let left = std::iter::from_fn(|| self.inbound.deliveries.try_recv().ok()).count();
        add(&self.relay.counters.deliveries_dropped, left as u64);
        self.relay.counters.add_traffic(self.conn.traffic());
    }
}

/// Where the event begins in a message that a codec wrapped around it. What follows the event is the same in every
/// message: a bracket, or padding to a word. A message that is unlike that has nothing to share.
fn begin_of(event: &[u8], message: &[u8]) -> usize {
    const MAX_TRAILER_BYTES: usize = 8;
    (0..MAX_TRAILER_BYTES)
        .filter_map(|trailer_bytes| message.len().checked_sub(event.len() + trailer_bytes))
        .find(|&begin| message[begin..].starts_with(event))
        .unwrap_or(message.len())
}

/// What ended a wait for the peer to take what was written.
enum Meanwhile {
    Flushed(Result<(), WireError>),
    Arrived(Option<Result<Message, WireError>>),
    Stopped(Stop),
}

/// The next message: one that was read ahead, or one from the socket.
async fn read(
    conn: &mut Connection,
    unread: &mut VecDeque<Message>,
    unread_bytes: &mut usize,
) -> Result<Message, End> {
    if let Some(message) = unread.pop_front() {
        *unread_bytes -= message.payload.len();
        return Ok(message);
    }
    conn.next().await.ok_or(End::Left)?.map_err(End::Wire)
}
