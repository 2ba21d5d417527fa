//! The messages of one client, and those to it.

use std::{collections::VecDeque, sync::Arc, time::Instant, vec};

use bytes::Bytes;
use codecs::{ClientMessage, Codec, DecodeError, Event, Format, Opcode, RelayMessage};
use recording::{Recorded, Side};
use terms::Reencode;
use wire::{CloseCode, WireError};

use self::spoiling::Storm;
use super::{Close, Opening, Time};
use crate::{
    fanout::{Batch, Batches, Outbox, Queued, Stop, Subscription},
    fault::Planted,
    outgoing::{self, Outgoing},
    peer::{Answer, Peer},
    refused,
    relay::Relay,
    store::StoredEvent,
    totals::add,
};

mod spoiling;
mod writing;

pub(crate) use spoiling::Broken;

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
    format: Format,
    codec: &'static dyn Codec,
    /// Whether messages carry the part that they share with other connections' messages.
    shares: bool,
    peer: Peer,
    outbox: Arc<Outbox>,
    /// The answers that go out next, before any live event.
    due: VecDeque<Due>,
    /// Deliveries that were taken from the outbox.
    deliveries: VecDeque<Queued>,
    /// Live events that wait to go out together, where batches are agreed.
    batches: Option<Batches>,
    /// Whether nothing is held any more, because the relay stops.
    stopping: bool,
    outgoing: Outgoing,
    /// Bytes of deliveries taken from the outbox and not yet credited to it.
    delivered_bytes: usize,
    /// Deliveries with the bytes of their publisher that are not counted in the totals yet.
    spliced: u64,
    /// The relay's faults, as this connection meets them.
    planted: Planted,
    /// OKs that a fault sends late, the earliest first.
    late: VecDeque<(Instant, RelayMessage<'static>)>,
    broken: Option<Broken>,
    /// Seconds since 1970 by the true clock, when the last message came to a relay with faults.
    clock: u64,
}

/// Something to be said.
#[derive(Debug)]
enum Due {
    Message(RelayMessage<'static>),
    Batch(Batch),
    Stored(StoredAnswer),
    Storm(Storm),
}

/// The answer to a REQ, straight from the store's snapshot. What is published meanwhile waits in
/// the outbox.
#[derive(Debug)]
struct StoredAnswer {
    subscription: Arc<Subscription>,
    events: vec::IntoIter<Arc<StoredEvent>>,
    /// How many follow the events: one without a fault.
    eoses: u8,
    flood: Option<Storm>,
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
    /// The connection of this number, whose live events come through `outbox`.
    pub(crate) fn new(relay: Arc<Relay>, outbox: Arc<Outbox>, opening: &Opening, number: u64) -> Self {
        let Opening { format, batched, shares, local, challenge } = *opening;
        let peer = Peer::new(Arc::clone(&relay), format, Arc::clone(&outbox), local, challenge);
        let greeting = peer.greeting().map(Due::Message);
        Connection {
            format,
            codec: relay.codec(format),
            shares,
            peer,
            outbox,
            due: greeting.into_iter().collect(),
            deliveries: VecDeque::with_capacity(DELIVERIES),
            batches: batched.then(|| Batches::new(relay.config.batch)),
            stopping: false,
            outgoing: Outgoing::default(),
            delivered_bytes: 0,
            spliced: 0,
            planted: relay.planted(number),
            late: VecDeque::new(),
            broken: None,
            clock: 0,
            relay,
        }
    }

    // --- in ---

    /// Takes a message of the client, which came in a frame of this type. The answers are for
    /// [`Connection::poll_transmit`].
    ///
    /// # Errors
    /// How to end the connection, whose client broke the rules of its format.
    pub fn receive(&mut self, payload: &[u8], opcode: Opcode, mut time: Time) -> Result<(), Close> {
        self.planted.refresh();
        if !self.planted.is_empty() {
            self.spoil_message(&mut time)?;
            if self.broken.is_some() {
                return Ok(());
            }
        }
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
        let now = time.instant;
        let answer = match self.codec.decode_client_within(payload, &self.relay.config.limits) {
            Ok(message) if !self.planted.is_empty() && self.refused_by_a_fault(&message, time) => {
                return Ok(());
            }
            Ok(ClientMessage::Event(event)) => {
                let received = self.passable(payload, &event);
                self.peer.publish(&event, received, time.unix_seconds)
            }
            Ok(message) => self.peer.answer(message, time.unix_seconds),
            Err(DecodeError::OverLimit(over)) => self.peer.over_limit(&over),
            Err(error) => return self.refuse(payload, &error, now),
        };
        self.answer(answer, now);
        Ok(())
    }

    /// The bytes of an event that may be passed on as they came.
    fn passable<'p>(&self, payload: &'p [u8], event: &Event<'_>) -> Option<&'p [u8]> {
        match self.relay.config.reencode {
            Reencode::Always => None,
            Reencode::NeverIfCanonical => self.format.canonical_event(self.codec, payload, event),
        }
    }

    fn answer(&mut self, answer: Answer, now: Instant) {
        match answer {
            Answer::Silence => {}
            Answer::Message(message) => {
                if let Some(message) = self.spoilt_ok(message, now) {
                    self.say(message);
                }
            }
            Answer::Stored(subscription, mut events) => {
                self.release_batches();
                let (eoses, flood) = self.spoil_answer(&subscription, &mut events, now);
                let events = events.into_iter();
                self.due.push_back(Due::Stored(StoredAnswer { subscription, events, eoses, flood }));
            }
        }
    }

    /// Answers a message that does not decode: by the answer of its verb if the verb could be read, else
    /// by NOTICE in a text format. A binary format then ends the connection.
    fn refuse(&mut self, payload: &[u8], error: &DecodeError, now: Instant) -> Result<(), Close> {
        if let DecodeError::UnknownMessage(name) = error {
            add(&self.relay.counters.unsupported, 1);
            self.notice(format!("unsupported: unknown message {name:?}"));
            return Ok(());
        }
        add(&self.relay.counters.malformed, 1);
        let opcode = self.format.spec().opcode;
        if let Some(asked) = refused::asked(payload, opcode, self.codec, &self.relay.config.limits) {
            let answer = self.peer.refused(asked, format!("invalid: {error}"));
            self.answer(answer, now);
            return Ok(());
        }
        match opcode {
            Opcode::Text => self.notice(format!("invalid: {error}")),
            Opcode::Binary => {
                let reason = format!("not a {} message: {error}", self.format);
                let is_too_large = matches!(error, DecodeError::Unpacked(_));
                let code = if is_too_large { CloseCode::Size } else { CloseCode::Invalid };
                return Err(Close::new(code, reason));
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

    /// When [`Connection::on_timer`] is to be called, because events (or OKs, by a fault) were held
    /// for long enough.
    pub fn next_timer(&self) -> Option<Instant> {
        let held = self.batches.as_ref().and_then(Batches::deadline);
        let late = self.late.front().map(|(due, _)| *due);
        held.into_iter().chain(late).min()
    }

    /// Lets go what was held for long enough at `now`.
    pub fn on_timer(&mut self, now: Instant) {
        if let Some(batches) = &mut self.batches {
            self.due.extend(batches.due(now).into_iter().map(Due::Batch));
        }
        while let Some((_, message)) = self.late.pop_front_if(|(due, _)| *due <= now) {
            self.due.push_back(Due::Message(message));
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
        let (bytes, messages) = self.outgoing.take();
        let messages = messages
            .map(|(place, shared)| match shared {
                None => Bytes::copy_from_slice(&bytes[place]),
                Some(shared) => {
                    let event = &shared.encoded(self.format, self.codec).bytes[..];
                    [&bytes[place], event, shared.end].concat().into()
                }
            })
            .collect();
        outgoing::give_back(bytes);
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
    /// The errors of [`wire`].
    pub async fn transmit(&mut self, conn: &mut wire::Connection, time: Time) -> Result<(), WireError> {
        loop {
            self.outbox.take(&mut self.deliveries);
            let progress = self.advance(time.instant);
            self.hand_over(conn, None).await?;
            conn.flush().await?;
            self.transmitted();
            if progress == Progress::Done && !self.has_to_transmit() {
                return Ok(());
            }
        }
    }

    /// Hands what is written to the wire, without a flush. What messages have in common is
    /// compressed once, where the wire can do so. What is recorded is copied.
    pub(crate) async fn hand_over(
        &mut self,
        conn: &mut wire::Connection,
        recorded: Option<&Recorded>,
    ) -> Result<(), WireError> {
        let format = self.format;
        let record = |conn: &wire::Connection, parts: &[&[u8]]| {
            if let Some(recorded) = recorded {
                recorded.message(Side::Relay, conn.departed_bytes(), format, parts);
            }
        };
        let (bytes, messages) = self.outgoing.take();
        for (place, shared) in messages {
            match shared {
                None => {
                    conn.feed_slice(&bytes[place.clone()]).await?;
                    record(conn, &[&bytes[place]]);
                }
                Some(shared) => {
                    let encoded = shared.encoded(self.format, self.codec);
                    let common = [&encoded.bytes[..], shared.end];
                    conn.feed_shared(&bytes[place.clone()], common, &encoded.shared).await?;
                    record(conn, &[&bytes[place], common[0], common[1]]);
                    shared.event.count_compressed(encoded);
                }
            }
        }
        outgoing::give_back(bytes);
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
        self.due.extend(self.late.drain(..).map(|(_, message)| Due::Message(message)));
    }

    /// Writes what is to be said, until that is enough for a flush.
    pub(crate) fn advance(&mut self, now: Instant) -> Progress {
        self.planted.refresh();
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
                Some(Due::Batch(batch)) => self.put_out_batch(&batch, now),
                Some(Due::Stored(stored)) => self.put_out_stored(stored, now),
                Some(Due::Storm(storm)) => self.put_out_storm(storm),
                None if self.deliveries.is_empty() => return Progress::Done,
                None => self.put_out_deliveries(now),
            }
        }
    }
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
