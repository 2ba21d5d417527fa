//! The messages of one client, and those to it.

use std::{collections::VecDeque, convert::Infallible, sync::Arc, time::Instant, vec};

use bytes::Bytes;
use codecs::{ClientMessage, Codec, DecodeError, EoseHints, Event, Format, Opcode, RelayMessage, hex};
use tracing::{debug, warn};
use wire::{CloseCode, WireError};

use super::{Close, Opening, Time};
use crate::{
    config::Reencode,
    fanout::{Answered, Batch, Batches, Delivery, Held, Outbox, Queued, Stop, Subscription},
    fault::{DeliveryFault, Draw, with_altered_sig},
    outgoing::{Outgoing, Shared},
    peer::{Answer, Peer},
    refused,
    relay::Relay,
    store::{StoredEvent, Unavailable},
    totals::add,
};

#[cfg(test)]
mod tests;

/// Room for deliveries that a connection keeps when it has none.
const DELIVERIES: usize = 64;

/// Answers that may wait while one goes out. More messages are not taken then: each may have asked
/// for a snapshot of the store.
const DUE: usize = 64;

/// One client's connection. Dropping it ends its subscriptions.
#[derive(Debug)]
pub struct Connection {
    relay: Arc<Relay>,
    /// How many connections the relay opened before.
    number: u64,
    format: Format,
    codec: &'static dyn Codec,
    /// Whether messages say what they have in common with those of other connections.
    shares: bool,
    peer: Peer,
    outbox: Arc<Outbox>,
    /// The answers that go out next, before any live event.
    due: VecDeque<Due>,
    /// Deliveries that were taken from the outbox.
    deliveries: VecDeque<Queued>,
    /// Live events that wait to go out together, where batches are agreed.
    batches: Option<Batches>,
    batched: bool,
    /// Whether nothing is held any more, because the relay stops.
    stopping: bool,
    outgoing: Outgoing,
    /// Bytes of deliveries taken from the outbox and not yet credited to it.
    delivered_bytes: usize,
    /// Deliveries with the bytes of their publisher that are not counted in the totals yet.
    spliced: u64,
}

/// Something to be said.
#[derive(Debug)]
enum Due {
    Message(RelayMessage<'static>),
    Batch(Batch),
    Stored(Stored),
}

/// The answer to a REQ, straight from the store's snapshot. What is published meanwhile waits in
/// the outbox.
#[derive(Debug)]
struct Stored {
    subscription: Arc<Subscription>,
    events: vec::IntoIter<Arc<StoredEvent>>,
    batches: Option<Batches>,
}

/// How far [`Connection::advance`] came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// As much is written as one flush takes.
    Full,
    /// Everything is written.
    Done,
}

impl Connection {
    /// A connection whose live events come through `outbox`.
    pub(crate) fn new(relay: Arc<Relay>, outbox: Arc<Outbox>, opening: &Opening) -> Self {
        let Opening { format, batched, shares, local, challenge } = *opening;
        let peer = Peer::new(Arc::clone(&relay), format, Arc::clone(&outbox), local, challenge);
        let greeting = peer.greeting().map(Due::Message);
        Connection {
            number: relay.next_connection(),
            format,
            codec: relay.codec(format),
            shares,
            peer,
            outbox,
            due: greeting.into_iter().collect(),
            deliveries: VecDeque::with_capacity(DELIVERIES),
            batched,
            batches: batched.then(|| Batches::new(relay.config.batch)),
            stopping: false,
            outgoing: Outgoing::default(),
            delivered_bytes: 0,
            spliced: 0,
            relay,
        }
    }

    // --- in ---

    /// Takes a message of the client, which came in a frame of this type. The answers are for
    /// [`Connection::poll_transmit`].
    ///
    /// # Errors
    /// How to end the connection, whose client broke the rules of its format.
    pub fn receive(&mut self, payload: &[u8], opcode: Opcode, time: Time) -> Result<(), Close> {
        let expected = self.format.spec().opcode;
        if opcode != expected {
            add(&self.relay.counters.malformed, 1);
            if expected == Opcode::Text {
                self.notice("invalid: binary frames need a negotiated subprotocol".to_owned());
                return Ok(());
            }
            let reason = format!("{} uses binary frames, this was text", self.format);
            return Err(Close::new(CloseCode::Unsupported, reason));
        }
        let answer = match self.codec.decode_client_within(payload, &self.relay.config.limits) {
            Ok(ClientMessage::Event(event)) => {
                let received = self.passable(payload, &event);
                self.peer.publish(&event, received, time.unix_seconds)
            }
            Ok(message) => self.peer.answer(message, time.unix_seconds),
            Err(DecodeError::OverLimit(over)) => self.peer.over_limit(&over),
            Err(error) => return self.refuse(payload, &error),
        };
        self.answer(answer);
        Ok(())
    }

    /// The bytes of an event that may be passed on as they came.
    fn passable<'p>(&self, payload: &'p [u8], event: &Event<'_>) -> Option<&'p [u8]> {
        match self.relay.config.reencode {
            Reencode::Always => None,
            Reencode::NeverIfCanonical => self.format.canonical_event(self.codec, payload, event),
        }
    }

    fn answer(&mut self, answer: Answer) {
        match answer {
            Answer::Silence => {}
            Answer::Message(message) => self.say(message),
            Answer::Stored(subscription, events) => {
                self.release_batches();
                let batches = self.batched.then(|| Batches::new(self.relay.config.batch));
                self.due.push_back(Due::Stored(Stored { subscription, events: events.into_iter(), batches }));
            }
        }
    }

    /// Answers what does not decode as what it asked, and where nothing asks for an answer by
    /// NOTICE in text; a binary format ends the connection then.
    fn refuse(&mut self, payload: &[u8], error: &DecodeError) -> Result<(), Close> {
        if let DecodeError::UnknownMessage(name) = error {
            add(&self.relay.counters.unsupported, 1);
            self.notice(format!("unsupported: unknown message {name:?}"));
            return Ok(());
        }
        add(&self.relay.counters.malformed, 1);
        let opcode = self.format.spec().opcode;
        if let Some(asked) = refused::asked(payload, opcode, self.codec, &self.relay.config.limits) {
            let answer = self.peer.malformed(asked, format!("invalid: {error}"));
            self.answer(answer);
            return Ok(());
        }
        match opcode {
            Opcode::Text => self.notice(format!("invalid: {error}")),
            Opcode::Binary => {
                let reason = format!("not a {} message: {error}", self.format);
                return Err(Close::new(CloseCode::InvalidData, reason));
            }
        }
        Ok(())
    }

    fn notice(&mut self, text: String) {
        self.say(RelayMessage::Notice { text: text.into() });
    }

    fn say(&mut self, message: RelayMessage<'static>) {
        if matches!(message, RelayMessage::Ok { .. } | RelayMessage::Closed { .. }) {
            self.release_batches();
        }
        if self.due.is_empty() && !self.outgoing.is_full() {
            self.write(&message);
        } else {
            self.due.push_back(Due::Message(message));
        }
    }

    /// Lets go what is held for a batch. It comes before what its reader takes for the end of it.
    fn release_batches(&mut self) {
        if let Some(batches) = &mut self.batches {
            self.due.extend(batches.all().into_iter().map(Due::Batch));
        }
    }

    // --- time ---

    /// When [`Connection::on_timer`] is to be called, because events were held for long enough.
    pub fn next_timer(&self) -> Option<Instant> {
        self.batches.as_ref().and_then(Batches::deadline)
    }

    /// Lets go what was held for long enough at `now`.
    pub fn on_timer(&mut self, now: Instant) {
        if let Some(batches) = &mut self.batches {
            self.due.extend(batches.due(now).into_iter().map(Due::Batch));
        }
    }

    // --- out ---

    /// The messages that go out in one flush, as payloads; none when there is nothing to say. To be
    /// called again until then.
    pub fn poll_transmit(&mut self, time: Time) -> Vec<Bytes> {
        if self.deliveries.is_empty() {
            self.outbox.take(&mut self.deliveries);
        }
        let _ = self.advance(time.instant);
        let messages = self.outgoing.take().map(|(message, _)| message).collect();
        self.transmitted();
        messages
    }

    /// Whether [`Connection::transmit`] would send anything.
    pub fn has_to_transmit(&self) -> bool {
        !self.outgoing.is_empty()
            || !self.due.is_empty()
            || !self.deliveries.is_empty()
            || !self.outbox.is_empty()
    }

    /// Sends everything that is to be said, flush by flush.
    ///
    /// # Errors
    /// Those of the wire.
    pub async fn transmit(&mut self, conn: &mut wire::Connection, time: Time) -> Result<(), WireError> {
        loop {
            self.outbox.take(&mut self.deliveries);
            let progress = self.advance(time.instant);
            self.hand_over(conn).await?;
            conn.flush().await?;
            self.transmitted();
            if progress == Progress::Done && !self.has_to_transmit() {
                return Ok(());
            }
        }
    }

    /// Hands what is written to the wire, without a flush. What messages have in common is
    /// compressed once, where the wire can do so.
    pub(crate) async fn hand_over(&mut self, conn: &mut wire::Connection) -> Result<(), WireError> {
        if !self.shares {
            let (bytes, ends) = self.outgoing.take_whole();
            return conn.feed_each(&bytes, ends).await;
        }
        for (payload, shared) in self.outgoing.take() {
            let encoded = shared.as_ref().and_then(|shared| {
                let encoded = shared.event.encoded(self.format, self.codec).ok()?;
                Some((shared, encoded))
            });
            match encoded {
                Some((Shared { prefix_bytes, event }, encoded)) => {
                    conn.feed_shared(payload, *prefix_bytes, &encoded.shared).await?;
                    event.count_compressed(encoded);
                }
                None => conn.feed(payload).await?,
            }
        }
        Ok(())
    }

    /// Whether the relay ends this connection, and how; said once, and to be asked before
    /// [`Connection::poll_transmit`]. Of a relay that stops, what was accepted before is still
    /// there for that, held events included. A client that left too much unread gets nothing more.
    pub fn poll_stop(&mut self) -> Option<Close> {
        let stop = self.outbox.take_reason()?;
        if stop == Stop::Shutdown {
            self.hold_nothing();
        }
        Some(stop.into())
    }

    /// Asks the connection to end as when the relay stops; [`Connection::poll_stop`] says so once.
    pub fn stop(&self) {
        self.outbox.stop(Stop::Shutdown);
    }

    /// Whether another message may be received before what is due went out.
    pub(crate) fn has_room(&self) -> bool {
        self.due.len() < DUE
    }

    /// Where that goes which is taken from the outbox.
    pub(crate) fn deliveries(&mut self) -> &mut VecDeque<Queued> {
        &mut self.deliveries
    }

    /// The messages that were written, to be sent; see [`Connection::transmitted`].
    pub(crate) fn outgoing(&mut self) -> &mut Outgoing {
        &mut self.outgoing
    }

    /// Everything written so far was sent: there is room for more live events.
    pub(crate) fn transmitted(&mut self) {
        if self.delivered_bytes > 0 {
            self.outbox.written(std::mem::take(&mut self.delivered_bytes));
        }
    }

    /// Lets go what is held for a batch, now and from now on.
    pub(crate) fn hold_nothing(&mut self) {
        self.stopping = true;
        self.release_batches();
    }

    /// Writes what is to be said, until that is enough for a flush.
    pub(crate) fn advance(&mut self, now: Instant) -> Progress {
        let progress = self.write_due(now);
        if self.spliced > 0 {
            add(&self.relay.counters.encodings_spliced, std::mem::take(&mut self.spliced));
        }
        progress
    }

    fn write_due(&mut self, now: Instant) -> Progress {
        loop {
            if self.outgoing.is_full() {
                return Progress::Full;
            }
            match self.due.pop_front() {
                Some(Due::Message(message)) => self.write(&message),
                Some(Due::Batch(batch)) => self.put_out_batch(&batch),
                Some(Due::Stored(stored)) => self.put_out_stored(stored, now),
                None if self.deliveries.is_empty() => return Progress::Done,
                None => self.put_out_deliveries(now),
            }
        }
    }

    /// Stored events and their EOSE, as far as they fit. Nothing of a subscription that ended
    /// meanwhile, whose name may belong to a successor.
    fn put_out_stored(&mut self, mut stored: Stored, now: Instant) {
        if stored.subscription.ended() {
            return;
        }
        let mut sent = 0;
        while !self.outgoing.is_full() {
            let Some(event) = stored.events.next() else {
                for batch in stored.batches.iter_mut().flat_map(Batches::all) {
                    sent += self.send(&batch.subscription.name, &batch.events);
                }
                add(&self.relay.counters.deliveries_stored, sent);
                let subscription = stored.subscription.name.as_str().into();
                self.write(&RelayMessage::Eose { subscription, hints: EoseHints::default() });
                return;
            };
            match &mut stored.batches {
                None => sent += self.send(&stored.subscription.name, std::slice::from_ref(&event)),
                // A snapshot has nothing to wait for, so that the limits of size are all that
                // matters.
                Some(batches) => {
                    for batch in self.hold(batches, Arc::clone(&stored.subscription), event, 0, now) {
                        sent += self.send(&batch.subscription.name, &batch.events);
                    }
                }
            }
        }
        add(&self.relay.counters.deliveries_stored, sent);
        self.due.push_front(Due::Stored(stored));
    }

    /// A batch of live events, unless its subscription ended meanwhile.
    fn put_out_batch(&mut self, batch: &Batch) {
        self.delivered_bytes += batch.outbox_bytes;
        if batch.subscription.ended() {
            add(&self.relay.counters.deliveries_dropped, batch.events.len() as u64);
        } else {
            let sent = self.send(&batch.subscription.name, &batch.events);
            add(&self.relay.counters.deliveries_live, sent);
        }
    }

    fn put_out_deliveries(&mut self, now: Instant) {
        if let Some(mut batches) = self.batches.take() {
            while let Some(queued) = self.deliveries.pop_front() {
                match queued {
                    Queued::Event(Delivery { subscription, event, payload_bytes }) => {
                        let full = self.hold(&mut batches, subscription, event, payload_bytes, now);
                        self.due.extend(full.into_iter().map(Due::Batch));
                    }
                    Queued::Answer(answered) => {
                        self.due.extend(batches.all().into_iter().map(Due::Batch));
                        self.due.push_back(Due::Message(ok(&answered)));
                        self.delivered_bytes += Answered::BYTES;
                    }
                }
            }
            self.batches = Some(batches);
            if self.stopping {
                self.release_batches();
            }
        } else {
            let (mut sent, mut dropped) = (0, 0);
            while !self.outgoing.is_full()
                && let Some(queued) = self.deliveries.pop_front()
            {
                let Delivery { subscription, event, payload_bytes } = match queued {
                    Queued::Event(delivery) => delivery,
                    Queued::Answer(answered) => {
                        self.delivered_bytes += Answered::BYTES;
                        self.write(&ok(&answered));
                        continue;
                    }
                };
                self.delivered_bytes += payload_bytes;
                if subscription.ended() {
                    dropped += 1;
                } else {
                    sent += self.send(&subscription.name, std::slice::from_ref(&event));
                }
            }
            add(&self.relay.counters.deliveries_live, sent);
            add(&self.relay.counters.deliveries_dropped, dropped);
        }
        if self.deliveries.is_empty() {
            self.deliveries.shrink_to(DELIVERIES);
        }
    }

    /// Puts an event into the batch of its subscription, unless the format cannot hold it. Returns
    /// what became full.
    fn hold(
        &mut self,
        batches: &mut Batches,
        subscription: Arc<Subscription>,
        event: Arc<StoredEvent>,
        outbox_bytes: usize,
        now: Instant,
    ) -> Vec<Batch> {
        let encoded_bytes = match event.encoded(self.format, self.codec) {
            Ok(encoded) => encoded.bytes.len(),
            Err(error) => {
                self.left_out(&event, error);
                self.delivered_bytes += outbox_bytes;
                return Vec::new();
            }
        };
        batches.hold(Held { subscription, event, outbox_bytes, encoded_bytes }, now)
    }

    /// Sends events for a subscription, or what the relay's faults make of that. Returns how many
    /// it sent.
    fn send(&mut self, subscription: &str, events: &[Arc<StoredEvent>]) -> u64 {
        if self.relay.delivery_faults.is_empty() {
            return self.write_events(subscription, events);
        }
        let relay = Arc::clone(&self.relay);
        let (mut sent, mut together) = (0, Vec::with_capacity(events.len()));
        for event in events {
            if let Err(error) = event.encoded(self.format, self.codec) {
                self.left_out(event, error);
                continue;
            }
            let (faults, id) = (&relay.delivery_faults, &event.head().id);
            let Some((kind, draw)) = faults.hitting(self.number, subscription, id) else {
                together.push(Arc::clone(event));
                continue;
            };
            let whole = match event.whole() {
                Ok(whole) => whole,
                Err(error) => {
                    self.left_out(event, &error.into());
                    continue;
                }
            };
            add(relay.counters.planted(kind), 1);
            match kind {
                DeliveryFault::Lose => {}
                DeliveryFault::Double => together.extend([Arc::clone(event), Arc::clone(event)]),
                DeliveryFault::Alter => together.push(self.altered(&whole, draw)),
                DeliveryFault::Invent => {
                    together.extend([Arc::clone(event), relay.forged(&draw.invented(whole))]);
                }
                DeliveryFault::Misroute => {
                    let other = self.peer.wrong_subscription(&whole);
                    sent += self.write_events(&other, std::slice::from_ref(event));
                }
            }
        }
        sent + self.write_events(subscription, &together)
    }

    /// The event with one field changed, in a form that the connection's format can hold.
    fn altered(&self, event: &Event<'_>, draw: Draw) -> Arc<StoredEvent> {
        let altered = self.relay.forged(&draw.altered(event.clone()));
        match altered.encoded(self.format, self.codec) {
            Ok(_) => altered,
            // Every signature is as long as the one that the format can hold.
            Err(_) => self.relay.forged(&with_altered_sig(event.clone())),
        }
    }

    /// Writes events for a subscription, together where that is agreed; without those that the
    /// format cannot hold. Returns how many it wrote.
    fn write_events(&mut self, subscription: &str, events: &[Arc<StoredEvent>]) -> u64 {
        if !self.batched || events.len() < 2 {
            return events.iter().map(|event| u64::from(self.write_event(subscription, event))).sum();
        }
        let encoded = events.iter().filter_map(|event| event.encoded(self.format, self.codec).ok());
        let parts: Vec<&[u8]> = encoded
            .inspect(|encoded| self.spliced += u64::from(encoded.is_received))
            .map(|encoded| &encoded.bytes[..])
            .collect();
        let Ok(()) = self.outgoing.add(|out| {
            self.codec.wrap_events(subscription, &parts, out);
            Ok::<_, Infallible>(())
        });
        if let Some(burner) = &self.relay.burner {
            parts.iter().for_each(|_| burner.event());
        }
        events.len() as u64
    }

    /// Writes an event for a subscription, unless the format cannot hold it. Returns whether it
    /// could.
    fn write_event(&mut self, subscription: &str, event: &Arc<StoredEvent>) -> bool {
        let encoded = match event.encoded(self.format, self.codec) {
            Ok(encoded) => encoded,
            Err(error) => {
                self.left_out(event, error);
                return false;
            }
        };
        self.spliced += u64::from(encoded.is_received);
        let mut prefix_bytes = None;
        let Ok(()) = self.outgoing.add(|out| {
            let before_event = self.codec.wrap_event(subscription, &encoded.bytes, out);
            prefix_bytes = self.shares.then_some(before_event);
            Ok::<_, Infallible>(())
        });
        if let Some(prefix_bytes) = prefix_bytes {
            self.outgoing.share(prefix_bytes, Arc::clone(event));
        }
        if let Some(burner) = &self.relay.burner {
            burner.event();
        }
        true
    }

    fn write(&mut self, message: &RelayMessage<'_>) {
        if let Err(error) = self.outgoing.add(|out| self.codec.encode_relay(message, out)) {
            add(&self.relay.counters.unencodable, 1);
            debug!(%error, "an answer is left out");
        }
    }

    fn left_out(&self, event: &StoredEvent, error: &Unavailable) {
        let id = hex::encode(&event.head().id);
        match error {
            Unavailable::Encode(error) => {
                add(&self.relay.counters.unencodable, 1);
                debug!(id, %error, "an event is left out");
            }
            Unavailable::Read(error) => {
                add(&self.relay.counters.unreadable, 1);
                warn!(id, %error, "an event is left out");
            }
        }
    }
}

fn ok(answered: &Answered) -> RelayMessage<'static> {
    let Answered { id, accepted, text } = *answered;
    RelayMessage::Ok { id, accepted, text: text.into() }
}

impl Drop for Connection {
    /// Counts the live events that never went out.
    fn drop(&mut self) {
        self.release_batches();
        let of_a_batch = |due: &Due| if let Due::Batch(batch) = due { batch.events.len() } else { 0 };
        let held: usize = self.due.iter().map(of_a_batch).sum();
        let is_event = |queued: &&Queued| matches!(queued, Queued::Event(_));
        let left = self.outbox.close();
        let dropped = left.iter().chain(&self.deliveries).filter(is_event).count() + held;
        add(&self.relay.counters.deliveries_dropped, dropped as u64);
    }
}
