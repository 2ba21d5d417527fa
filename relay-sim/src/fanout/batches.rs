//! Collects the events of a subscription into EVENTS messages (docs/transport.md, "Batches").
//!
//! A batch belongs to one subscription. It is sent when its first event was held for
//! [`BatchLimits::hold`], when it is full, or before a message that ends the subscription's events.
//! The caller passes the time in.

use std::{sync::Arc, time::Instant};

use terms::BatchLimits;

use super::subscriptions::{Delivery, Subscription};
use crate::store::StoredEvent;

/// Events for one subscription, in their order.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) subscription: Arc<Subscription>,
    pub(crate) events: Vec<Arc<StoredEvent>>,
    /// Bytes that they count in the outbox.
    pub(crate) outbox_bytes: usize,
    encoded_bytes: usize,
    since: Instant,
}

/// The batches of a connection, the oldest first.
#[derive(Debug)]
pub(crate) struct Batches {
    limits: BatchLimits,
    held: Vec<Batch>,
}

impl Batches {
    pub(crate) fn new(limits: BatchLimits) -> Self {
        Batches { limits, held: Vec::new() }
    }

    /// Holds an event, and gives out what became full by it: what was held before it, it, or both.
    pub(crate) fn hold(&mut self, delivery: Delivery, encoded_bytes: usize, now: Instant) -> Vec<Batch> {
        let Delivery { subscription, event, payload_bytes } = delivery;
        let mut full = Vec::new();
        let of_it = |batch: &Batch| Arc::ptr_eq(&batch.subscription, &subscription);
        let mut at = self.held.iter().position(of_it);
        if let Some(earlier) = at
            && self.held[earlier].encoded_bytes + encoded_bytes > self.limits.bytes
        {
            full.push(self.held.remove(earlier));
            at = None;
        }
        let at = at.unwrap_or_else(|| {
            self.held.push(Batch {
                subscription,
                events: Vec::new(),
                outbox_bytes: 0,
                encoded_bytes: 0,
                since: now,
            });
            self.held.len() - 1
        });
        let batch = &mut self.held[at];
        batch.events.push(event);
        batch.outbox_bytes += payload_bytes;
        batch.encoded_bytes += encoded_bytes;
        if batch.events.len() >= self.limits.events || batch.encoded_bytes >= self.limits.bytes {
            full.push(self.held.remove(at));
        }
        full
    }

    /// When the oldest batch must go.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        Some(self.held.first()?.since + self.limits.hold)
    }

    /// Gives out what was held for long enough.
    pub(crate) fn due(&mut self, now: Instant) -> Vec<Batch> {
        let hold = self.limits.hold;
        let due = self.held.iter().take_while(|batch| batch.since + hold <= now).count();
        self.held.drain(..due).collect()
    }

    /// Gives out everything.
    pub(crate) fn all(&mut self) -> Vec<Batch> {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use codecs::Format;

    use super::*;
    use crate::{
        fanout::subscriptions::{Outbox, Subscriptions},
        testing::event,
    };

    const LIMITS: BatchLimits = BatchLimits { hold: Duration::from_millis(5), events: 3, bytes: 100 };

    /// Subscriptions with these names.
    fn subscriptions<const N: usize>(names: [&str; N]) -> [Arc<Subscription>; N] {
        let mut all = Subscriptions::default();
        names.map(|name| all.add(name.to_owned(), Format::JSON, Outbox::new(0), vec![]))
    }

    fn delivery(subscription: &Arc<Subscription>, n: u8) -> Delivery {
        let event = Arc::new(StoredEvent::new(&event(n), &Arc::default()));
        Delivery { subscription: Arc::clone(subscription), event, payload_bytes: 1 }
    }

    fn shown(batches: &[Batch]) -> Vec<(String, Vec<u8>)> {
        let ids = |batch: &Batch| batch.events.iter().map(|event| event.head().id[0]).collect();
        batches.iter().map(|batch| (batch.subscription.name.clone(), ids(batch))).collect()
    }

    #[test]
    fn bytes_bound_a_batch_and_a_larger_event_goes_alone() {
        let [a] = subscriptions(["a"]);
        let mut batches = Batches::new(LIMITS);
        let now = Instant::now();
        assert!(batches.hold(delivery(&a, 1), 60, now).is_empty());
        assert_eq!(shown(&batches.hold(delivery(&a, 2), 60, now)), [("a".to_owned(), vec![1])]);
        let full = batches.hold(delivery(&a, 3), 1_000, now);
        assert_eq!(shown(&full), [("a".to_owned(), vec![2]), ("a".to_owned(), vec![3])]);
        assert_eq!(full.iter().map(|batch| batch.outbox_bytes).sum::<usize>(), 2);
        assert_eq!(shown(&batches.hold(delivery(&a, 4), 100, now)), [("a".to_owned(), vec![4])]);
    }
}
