//! What a connection writes: stored events and their EOSE, live events, answers.

use std::{convert::Infallible, sync::Arc, time::Instant};

use codecs::{EoseHints, Event, RelayMessage, hex};
use tracing::{debug, warn};

use super::{Connection, DELIVERIES, Due, StoredAnswer};
use crate::{
    fanout::{Answered, Batch, Batches, Delivery, Held, Queued, Subscription},
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
        let mut sent = 0;
        while !self.outgoing.is_full() {
            let Some(event) = stored.events.next() else {
                for batch in stored.batches.iter_mut().flat_map(Batches::all) {
                    sent += self.send_together(&batch.subscription.name, &batch.events, now);
                }
                add(&self.relay.counters.deliveries_stored, sent);
                for _ in 0..stored.spoilt.eoses {
                    self.write(&eose(&stored.subscription.name));
                }
                self.due.extend(stored.spoilt.flood.map(Due::Storm));
                return;
            };
            match &mut stored.batches {
                None => sent += self.send(&stored.subscription.name, event, now),
                // A snapshot has nothing to wait for, so that the limits of size are all that
                // matters.
                Some(batches) => {
                    for batch in self.hold(batches, Arc::clone(&stored.subscription), event, 0, now) {
                        sent += self.send_together(&batch.subscription.name, &batch.events, now);
                    }
                }
            }
        }
        add(&self.relay.counters.deliveries_stored, sent);
        self.due.push_front(Due::Stored(stored));
    }

    /// A batch of live events, unless its subscription ended meanwhile.
    pub(super) fn put_out_batch(&mut self, batch: &Batch, now: Instant) {
        self.delivered_bytes += batch.outbox_bytes;
        if batch.subscription.ended() {
            add(&self.relay.counters.deliveries_dropped, batch.events.len() as u64);
        } else {
            let sent = self.send_together(&batch.subscription.name, &batch.events, now);
            add(&self.relay.counters.deliveries_live, sent);
        }
    }

    pub(super) fn put_out_deliveries(&mut self, now: Instant) {
        if let Some(mut batches) = self.batches.take() {
            while let Some(queued) = self.deliveries.pop_front() {
                match queued {
                    Queued::Event(Delivery { subscription, event, payload_bytes }) => {
                        let full = self.hold(&mut batches, subscription, event, payload_bytes, now);
                        self.due.extend(full.into_iter().map(Due::Batch));
                    }
                    Queued::Answer(answered) => {
                        self.due.extend(batches.all().into_iter().map(Due::Batch));
                        let message = self.spoilt_ok(ok(&answered), now);
                        self.due.extend(message.map(Due::Message));
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
                        if let Some(message) = self.spoilt_ok(ok(&answered), now) {
                            self.write(&message);
                        }
                        continue;
                    }
                };
                self.delivered_bytes += payload_bytes;
                if subscription.ended() {
                    dropped += 1;
                } else {
                    sent += self.send(&subscription.name, event, now);
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
        let Some(encoded) = self.encoded(&event) else {
            self.delivered_bytes += outbox_bytes;
            return Vec::new();
        };
        let encoded_bytes = encoded.bytes.len();
        batches.hold(Held { subscription, event, outbox_bytes, encoded_bytes }, now)
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
        if !self.batched || events.len() < 2 {
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

fn ok(answered: &Answered) -> RelayMessage<'static> {
    let Answered { id, accepted, text } = *answered;
    RelayMessage::Ok { id, accepted, text: text.into() }
}
