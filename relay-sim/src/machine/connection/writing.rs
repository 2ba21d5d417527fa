//! What a connection writes: stored events and their EOSE, live events, answers.

use std::{convert::Infallible, sync::Arc, time::Instant, vec};

use codecs::{EoseHints, Event, RelayMessage, hex};
use tracing::{debug, warn};

use super::{Connection, DELIVERIES, Due, StoredAnswer};
use crate::{
    fanout::{Batch, Delivery, Queued},
    fault::{Draw, Kind, with_altered_sig},
    outgoing::Shared,
    store::{Encoded, StoredEvent, Unavailable},
    totals::add,
};

impl Connection {
    /// Stored events and their EOSE, as far as they fit. Nothing of a subscription that ended
    /// meanwhile, whose name may belong to a successor.
    pub(super) fn put_out_stored(&mut self, mut stored: StoredAnswer, now: Instant) {
        if stored.subscription.ended() {
            return;
        }
        let name = &stored.subscription.name;
        let mut sent = 0;
        while !self.outgoing.is_full() {
            if self.batches.is_some() && !stored.events.as_slice().is_empty() {
                let batch = self.next_batch(&mut stored.events);
                sent += self.send_together(name, &batch, now);
                continue;
            }
            let Some(event) = stored.events.next() else {
                add(&self.relay.counters.deliveries_stored, sent);
                for _ in 0..stored.eoses {
                    self.write(&eose(name));
                }
                self.due.extend(stored.flood.map(Due::Storm));
                return;
            };
            sent += self.send(name, event, now);
        }
        add(&self.relay.counters.deliveries_stored, sent);
        self.due.push_front(Due::Stored(stored));
    }

    /// The next events that a batch has room for, without those that the format cannot hold. A snapshot
    /// has nothing to wait for, so that the limits of size are all that matters.
    fn next_batch(&self, events: &mut vec::IntoIter<Arc<StoredEvent>>) -> Vec<Arc<StoredEvent>> {
        let limits = self.relay.config.batch;
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < limits.events.max(1)
            && let [event, ..] = events.as_slice()
        {
            let encoded_bytes = self.encoded(event).map(|encoded| encoded.bytes.len());
            if encoded_bytes.is_some_and(|more| bytes > 0 && bytes + more > limits.bytes) {
                break;
            }
            bytes += encoded_bytes.unwrap_or(0);
            batch.extend(events.next().filter(|_| encoded_bytes.is_some()));
        }
        batch
    }

    /// Sends a batch of live events, or drops it if its subscription ended meanwhile.
    pub(super) fn put_out_batch(&mut self, batch: &Batch, now: Instant) {
        // Sent or dropped, its bytes leave the outbox.
        self.delivered_bytes += batch.outbox_bytes;
        if batch.subscription.ended() {
            add(&self.relay.counters.deliveries_dropped, batch.events.len() as u64);
        } else {
            let sent = self.send_together(&batch.subscription.name, &batch.events, now);
            add(&self.relay.counters.deliveries_live, sent);
        }
    }

    pub(super) fn put_out_deliveries(&mut self, now: Instant) {
        let (mut sent, mut dropped) = (0, 0);
        while !self.outgoing.is_full()
            && let Some(queued) = self.deliveries.pop_front()
        {
            match queued {
                Queued::Event(delivery) if self.batches.is_some() => self.hold(delivery, now),
                Queued::Event(Delivery { subscription, event, payload_bytes }) => {
                    self.delivered_bytes += payload_bytes;
                    if subscription.ended() {
                        dropped += 1;
                    } else {
                        sent += self.send(&subscription.name, event, now);
                    }
                }
                Queued::Answer(answer) => {
                    self.delivered_bytes += Queued::ANSWER_BYTES;
                    if let Some(message) = self.spoilt_ok(*answer, now) {
                        self.say(message);
                    }
                }
            }
        }
        add(&self.relay.counters.deliveries_live, sent);
        add(&self.relay.counters.deliveries_dropped, dropped);
        if self.stopping {
            self.release_batches();
        }
        if self.deliveries.is_empty() {
            self.deliveries.shrink_to(DELIVERIES);
        }
    }

    /// Puts a live event into the batch of its subscription, unless the format cannot hold it.
    fn hold(&mut self, delivery: Delivery, now: Instant) {
        let encoded_bytes = self.encoded(&delivery.event).map(|encoded| encoded.bytes.len());
        match (&mut self.batches, encoded_bytes) {
            (Some(batches), Some(bytes)) => {
                self.due.extend(batches.hold(delivery, bytes, now).into_iter().map(Due::Batch));
            }
            _ => self.delivered_bytes += delivery.payload_bytes,
        }
    }

    /// Sends an event for a subscription, or what the relay's faults make of that. Returns how many
    /// it sent.
    #[inline]
    fn send(&mut self, subscription: &str, event: Arc<StoredEvent>, now: Instant) -> u64 {
        if self.planted.is_empty() {
            return u64::from(self.write_event(subscription, event));
        }
        self.spoil_events(subscription, std::slice::from_ref(&event), now)
    }

    /// [`Connection::send`] for events that go out together, where that is agreed.
    fn send_together(&mut self, subscription: &str, events: &[Arc<StoredEvent>], now: Instant) -> u64 {
        if self.planted.is_empty() {
            return self.write_events(subscription, events);
        }
        self.spoil_events(subscription, events, now)
    }

    /// Sends what the relay's faults make of events for a subscription. Returns how many it sent.
    #[cold]
    fn spoil_events(&mut self, subscription: &str, events: &[Arc<StoredEvent>], now: Instant) -> u64 {
        let relay = Arc::clone(&self.relay);
        let (mut sent, mut together) = (0, Vec::with_capacity(events.len()));
        for event in events {
            if self.encoded(event).is_none() {
                continue;
            }
            let Some(hit) = self.planted.next_delivery(subscription, &event.head().id, now) else {
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
            relay.counters.add_planted(hit.kind);
            match hit.kind {
                Kind::Double => together.extend([Arc::clone(event), Arc::clone(event)]),
                Kind::Alter => together.push(self.altered(&whole, hit.draw)),
                Kind::WrongId => together.push(relay.forged(&hit.draw.invented(whole))),
                Kind::WrongSig => together.push(relay.forged(&with_altered_sig(whole))),
                Kind::Invent => {
                    together.extend([Arc::clone(event), relay.forged(&hit.draw.invented(whole))]);
                }
                Kind::Misroute => {
                    let other = self.peer.wrong_subscription(&whole);
                    sent += self.write_events(&other, std::slice::from_ref(event));
                }
                _ => {} // lost
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
        if self.batches.is_none() || events.len() < 2 {
            return events
                .iter()
                .map(|event| u64::from(self.write_event(subscription, Arc::clone(event))))
                .sum();
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
    pub(super) fn write_event(&mut self, subscription: &str, event: Arc<StoredEvent>) -> bool {
        let Some(encoded) = self.encoded(&event) else { return false };
        self.spliced += u64::from(encoded.is_received);
        let mut end = None;
        let Ok(()) = self.outgoing.add(|out| {
            if self.shares {
                end = Some(self.codec.around_event(subscription, &encoded.bytes, out));
            } else {
                self.codec.wrap_event(subscription, &encoded.bytes, out);
            }
            Ok::<_, Infallible>(())
        });
        if let Some(end) = end {
            let bytes = encoded.bytes.len() + end.len();
            self.outgoing.share(Shared { event, end }, bytes);
        }
        if let Some(burner) = &self.relay.burner {
            burner.event();
        }
        true
    }

    /// The event in the connection's format. An event that has none, or none that a message has room
    /// for, is left out and counted.
    #[inline]
    fn encoded<'e>(&self, event: &'e StoredEvent) -> Option<&'e Encoded> {
        match event.encoded(self.format, self.codec) {
            Ok(encoded) if encoded.bytes.len() <= self.relay.max_event_bytes => return Some(encoded),
            Ok(encoded) => self.left_out(event, &Unavailable::TooLong(encoded.bytes.len())),
            Err(error) => self.left_out(event, error),
        }
        None
    }

    pub(super) fn write(&mut self, message: &RelayMessage<'_>) {
        if let Err(error) = self.outgoing.add(|out| self.codec.encode_relay(message, out)) {
            add(&self.relay.counters.unencodable, 1);
            debug!(%error, "an answer is left out");
        }
    }

    fn left_out(&self, event: &StoredEvent, error: &Unavailable) {
        let id = hex::encode(&event.head().id);
        match error {
            Unavailable::Encode(_) | Unavailable::TooLong(_) => {
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

/// The end of a subscription's stored events.
pub(super) fn eose(subscription: &str) -> RelayMessage<'static> {
    RelayMessage::Eose { subscription: subscription.to_owned().into(), hints: EoseHints::default() }
}
