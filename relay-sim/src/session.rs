//! One connection from its first message to its close: the only place where the relay reads and writes.
//!
//! One task owns the connection. It takes whatever is ready, from the peer and from the outbox, writes all the
//! answers and then flushes once: flushing is what costs most. A peer that does not take what is written is
//! still read from, up to a bound, since it may be waiting for us to read before it reads itself.

use std::{
    collections::VecDeque,
    convert::Infallible,
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use codecs::{Codec, DecodeError, Format, Opcode, RelayMessage};
use futures::FutureExt;
use tokio::time::{MissedTickBehavior, timeout};
use tracing::debug;
use wire::{CloseCode, Connection, Message, WireError};

use crate::{
    fanout::{Batch, Batches, Delivery, Held, Outbox, Stop},
    outgoing::{Outgoing, Shared},
    peer::{Answer, Peer},
    relay::Relay,
    store::StoredEvent,
    subscriptions::Subscription,
    totals::add,
};

/// How long a session works before it flushes and lets others run; a flush for every message would cost more
/// than the messages (TRANSPORT: 1,434 ns a message at 2 in a flush, 208 at 64).
const TURN: Duration = Duration::from_millis(2);

/// tokio's timer counts in milliseconds and fires up to one late, which nobody should be kept waiting for.
const TIMER_LATE: Duration = Duration::from_millis(1);

/// Room for deliveries that a session keeps when it has none.
const DELIVERIES: usize = 64;

/// How long the peer has to take what is left for it when the relay stops.
const FAREWELL: Duration = Duration::from_secs(2);

/// Serves one connection until it ends, and counts what it moved.
pub(crate) async fn run(relay: Arc<Relay>, conn: Connection, outbox: Arc<Outbox>) {
    let mut session = Session::new(relay, conn, outbox);
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
    /// Messages that arrived while a flush waited for the peer.
    unread: VecDeque<Message>,
    unread_bytes: usize,
    outgoing: Outgoing,
    /// What waits to go out together, where batches are agreed.
    batches: Option<Batches>,
    /// Of deliveries that went into `outgoing`, or nowhere, and still count in the outbox.
    delivered_bytes: usize,
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
    fn new(relay: Arc<Relay>, conn: Connection, outbox: Arc<Outbox>) -> Self {
        let format = conn.agreement().format;
        let local = conn.local_addr().ip();
        let batches = conn.agreement().batched.then(|| Batches::new(relay.config.batch));
        Session {
            batches,
            codec: relay.codec(format),
            peer: Peer::new(Arc::clone(&relay), format, Arc::clone(&outbox), local),
            relay,
            conn,
            format,
            outbox,
            unread: VecDeque::new(),
            unread_bytes: 0,
            outgoing: Outgoing::default(),
            delivered_bytes: 0,
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
            let hold = self.batches.as_ref().and_then(Batches::deadline);
            tokio::select! {
                biased;
                stop = self.outbox.stopped() => return Err(End::Stopped(stop)),
                () = until(hold), if hold.is_some() => {}
                message = read(&mut self.conn, &mut self.unread, &mut self.unread_bytes) => {
                    self.handle(message?).await?;
                }
                () = self.outbox.deliveries(&mut deliveries) => self.deliver(&mut deliveries).await?,
                _ = pings.tick() => self.ping().await?,
            }
            let turn_is_over = self.take_what_is_ready(&mut deliveries).await?;
            if let Some(batches) = &mut self.batches {
                let due = batches.due(Instant::now() + TIMER_LATE);
                self.send_batches(due).await?;
            }
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
            self.outbox.take(deliveries);
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
        let answer = match self.codec.decode_client_within(&message.payload, &self.relay.config.limits) {
            Ok(message) => self.peer.answer(message),
            Err(DecodeError::OverLimit(over)) => self.peer.over_limit(&over),
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
        // What was held comes before what its reader takes for the end of it.
        let ends = matches!(
            message,
            RelayMessage::Ok { .. } | RelayMessage::Eose { .. } | RelayMessage::Closed { .. }
        );
        if ends && let Some(batches) = &mut self.batches {
            let all = batches.all();
            self.send_batches(all).await?;
        }
        if let Err(error) = self.outgoing.add(|out| self.codec.encode_relay(message, out)) {
            add(&self.relay.counters.unencodable, 1);
            debug!(%error, "an answer is left out");
            return Ok(());
        }
        self.flush_if_full().await
    }

    /// Writes an event for a subscription, unless the format cannot hold it. Returns whether it could.
    async fn send_event(&mut self, subscription: &str, event: Arc<StoredEvent>) -> Result<bool, End> {
        let encoded = match event.encoded(self.format, self.codec) {
            Ok(encoded) => encoded,
            Err(error) => {
                add(&self.relay.counters.unencodable, 1);
                debug!(id = codecs::hex::encode(&event.head().id), %error, "an event is left out");
                return Ok(false);
            }
        };
        let shares = self.conn.shares();
        let mut prefix_bytes = None;
        let Ok(()) = self.outgoing.add(|out| {
            let start = out.len();
            self.codec.wrap_event(subscription, &encoded.bytes, out);
            prefix_bytes = shares.then(|| begin_of(&encoded.bytes, &out[start..]));
            Ok::<_, Infallible>(())
        });
        if let Some(prefix_bytes) = prefix_bytes {
            self.outgoing.share(prefix_bytes, event);
        }
        if let Some(burner) = &self.relay.burner {
            burner.event();
        }
        self.flush_if_full().await?;
        Ok(true)
    }

    /// The answer to a REQ: its stored events straight from the store's snapshot, then EOSE. What is published
    /// meanwhile waits in the outbox.
    async fn send_stored(
        &mut self,
        subscription: &Arc<Subscription>,
        events: &[Arc<StoredEvent>],
    ) -> Result<(), End> {
        let mut sent = 0;
        if let Some(limits) = self.batches.as_ref().map(|_| self.relay.config.batch) {
            // A snapshot has nothing to wait for, so the limits of size are all that matters.
            let mut batches = Batches::new(limits);
            for event in events {
                for batch in self.hold(&mut batches, Arc::clone(subscription), Arc::clone(event), 0) {
                    sent += self.send_batch(&batch).await?;
                }
            }
            for batch in batches.all() {
                sent += self.send_batch(&batch).await?;
            }
        } else {
            for event in events {
                sent += u64::from(self.send_event(&subscription.name, Arc::clone(event)).await?);
            }
        }
        add(&self.relay.counters.deliveries_stored, sent);
        let eose = RelayMessage::Eose {
            subscription: subscription.name.as_str().into(),
            hints: codecs::EoseHints::default(),
        };
        self.send(&eose).await
    }

    /// Puts an event into the batch of its subscription, unless the format cannot hold it. Returns what became full.
    fn hold(
        &mut self,
        batches: &mut Batches,
        subscription: Arc<Subscription>,
        event: Arc<StoredEvent>,
        outbox_bytes: usize,
    ) -> Vec<Batch> {
        let encoded_bytes = match event.encoded(self.format, self.codec) {
            Ok(encoded) => encoded.bytes.len(),
            Err(error) => {
                add(&self.relay.counters.unencodable, 1);
                debug!(id = codecs::hex::encode(&event.head().id), %error, "an event is left out");
                self.delivered_bytes += outbox_bytes;
                return Vec::new();
            }
        };
        batches.hold(Held { subscription, event, outbox_bytes, encoded_bytes }, Instant::now())
    }

    /// Writes a batch, and returns how many events that were.
    async fn send_batch(&mut self, batch: &Batch) -> Result<u64, End> {
        let name = &batch.subscription.name;
        if let [only] = batch.events.as_slice() {
            return Ok(u64::from(self.send_event(name, Arc::clone(only)).await?));
        }
        let encoded = batch.events.iter().filter_map(|event| event.encoded(self.format, self.codec).ok());
        let parts: Vec<&[u8]> = encoded.map(|encoded| &encoded.bytes[..]).collect();
        let Ok(()) = self.outgoing.add(|out| {
            self.codec.wrap_events(name, &parts, out);
            Ok::<_, Infallible>(())
        });
        self.flush_if_full().await?;
        Ok(batch.events.len() as u64)
    }

    /// Writes batches of live events, except those whose subscription ended meanwhile.
    async fn send_batches(&mut self, batches: Vec<Batch>) -> Result<(), End> {
        for batch in batches {
            self.delivered_bytes += batch.outbox_bytes;
            if batch.subscription.ended() {
                add(&self.relay.counters.deliveries_dropped, batch.events.len() as u64);
                continue;
            }
            let sent = self.send_batch(&batch).await?;
            add(&self.relay.counters.deliveries_live, sent);
        }
        Ok(())
    }

    /// Holds live events in batches.
    async fn deliver_batched(&mut self, deliveries: &mut Vec<Delivery>) -> Result<(), End> {
        let Some(mut batches) = self.batches.take() else { return Ok(()) };
        let mut full = Vec::new();
        for Delivery { subscription, event, payload_bytes } in deliveries.drain(..) {
            full.extend(self.hold(&mut batches, subscription, event, payload_bytes));
        }
        self.batches = Some(batches);
        deliveries.shrink_to(DELIVERIES);
        self.send_batches(full).await
    }

    async fn deliver(&mut self, deliveries: &mut Vec<Delivery>) -> Result<(), End> {
        if self.batches.is_some() {
            return self.deliver_batched(deliveries).await;
        }
        let (mut sent, mut dropped) = (0, 0);
        for Delivery { subscription, event, payload_bytes } in deliveries.drain(..) {
            self.delivered_bytes += payload_bytes;
            if subscription.ended() {
                dropped += 1;
                continue;
            }
            sent += u64::from(self.send_event(&subscription.name, event).await?);
        }
        deliveries.shrink_to(DELIVERIES);
        if sent + dropped > 0 {
            add(&self.relay.counters.deliveries_live, sent);
            add(&self.relay.counters.deliveries_dropped, dropped);
        }
        Ok(())
    }

    async fn flush_if_full(&mut self) -> Result<(), End> {
        if self.outgoing.is_full() { self.flush().await } else { Ok(()) }
    }

    /// Sends what is there, and waits until the peer took it.
    async fn flush(&mut self) -> Result<(), End> {
        if !self.outgoing.is_empty() {
            self.hand_over().await?;
            match self.conn.flush().now_or_never() {
                Some(result) => result?,
                None => self.flush_to_a_slow_peer().await?,
            }
        }
        if self.delivered_bytes > 0 {
            self.outbox.written(std::mem::take(&mut self.delivered_bytes));
        }
        Ok(())
    }

    /// After the last flush there is room for everything, so that this does not wait.
    async fn hand_over(&mut self) -> Result<(), End> {
        for (payload, shared) in self.outgoing.take() {
            let encoded = shared.as_ref().and_then(|shared| {
                let encoded = shared.event.encoded(self.format, self.codec).ok()?;
                Some((shared, encoded))
            });
            match encoded {
                Some((Shared { prefix_bytes, event }, encoded)) => {
                    self.conn.feed_shared(payload, *prefix_bytes, &encoded.shared).await?;
                    event.count_compressed(encoded);
                }
                None => self.conn.feed(payload).await?,
            }
        }
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
        let Session { conn, outbox, .. } = self;
        poll_fn(|cx| {
            if let Poll::Ready(result) = pin!(conn.flush()).poll(cx) {
                return Poll::Ready(Meanwhile::Flushed(result));
            }
            if let Poll::Ready(stop) = outbox.poll_stopped(cx) {
                return Poll::Ready(Meanwhile::Stopped(stop));
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
            stop = self.outbox.stopped() => Err(End::Stopped(stop)),
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
        self.outbox.take(&mut deliveries);
        self.deliver(&mut deliveries).await?;
        if let Some(batches) = &mut self.batches {
            let all = batches.all();
            self.send_batches(all).await?;
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
            // What was answered before goes before; a peer that takes nothing gets nothing.
            let _ = self.hand_over().now_or_never();
            self.conn.close(code, &reason).await;
        }
        let held = self.batches.as_mut().map(Batches::all).unwrap_or_default();
        let held: usize = held.iter().map(|batch| batch.events.len()).sum();
        add(&self.relay.counters.deliveries_dropped, (self.outbox.close() + held) as u64);
        self.relay.counters.add_traffic(self.conn.traffic());
        self.relay.counters.add_compression(self.conn.compression_memory());
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

/// Waits until then; for ever without an instant.
async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until((instant - TIMER_LATE).into()).await,
        None => std::future::pending().await,
    }
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
