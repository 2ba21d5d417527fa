//! A connection's queue of live events, bounded by what the peer has yet to take.
//!
//! Publishers push without waiting: a peer that does not read must never hold up the others. Beyond the bound
//! the connection is told to stop instead.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use futures::{FutureExt, future::Fuse};
use tokio::sync::{mpsc, oneshot};

use crate::{store::StoredEvent, subscriptions::Subscription};

/// A live event for one subscription.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) subscription: Arc<Subscription>,
    pub(crate) event: Arc<StoredEvent>,
    /// What it counts towards the outbox's bound: the encoded event.
    pub(crate) payload_bytes: usize,
}

/// Why a connection should end, as decided outside of its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It left more than its bound unread.
    SlowConsumer,
    /// The relay goes away.
    Shutdown,
}

/// Why a delivery was not queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dropped {
    /// It went over the bound and made the peer a slow consumer.
    Overflow,
    /// The connection is ending already.
    Ended,
}

/// The end that publishers and the relay hold.
#[derive(Debug)]
pub(crate) struct Outbox {
    queue: mpsc::UnboundedSender<Delivery>,
    queued_bytes: AtomicUsize,
    max_bytes: usize,
    stopped: AtomicBool,
    stop: Mutex<Option<oneshot::Sender<Stop>>>,
}

/// The end that the session holds.
#[derive(Debug)]
pub(crate) struct Inbound {
    pub(crate) deliveries: mpsc::UnboundedReceiver<Delivery>,
    /// Never completes twice.
    pub(crate) stop: Fuse<oneshot::Receiver<Stop>>,
}

impl Outbox {
    /// A queue for encoded events of `max_bytes` together.
    pub(crate) fn new(max_bytes: usize) -> (Arc<Outbox>, Inbound) {
        let (queue, deliveries) = mpsc::unbounded_channel();
        let (sender, stop) = oneshot::channel();
        let outbox = Outbox {
            queue,
            queued_bytes: AtomicUsize::new(0),
            max_bytes,
            stopped: AtomicBool::new(false),
            stop: Mutex::new(Some(sender)),
        };
        (Arc::new(outbox), Inbound { deliveries, stop: stop.fuse() })
    }

    /// Queues a delivery, or says why it is dropped.
    pub(crate) fn push(&self, delivery: Delivery) -> Result<(), Dropped> {
        if self.stopped.load(Ordering::Relaxed) {
            return Err(Dropped::Ended);
        }
        let bytes = delivery.payload_bytes;
        let before = self.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before > 0 && before.saturating_add(bytes) > self.max_bytes {
            return Err(if self.stop(Stop::SlowConsumer) { Dropped::Overflow } else { Dropped::Ended });
        }
        self.queue.send(delivery).map_err(|_| Dropped::Ended)
    }

    /// Tells that deliveries of so many bytes went from the queue to the connection.
    pub(crate) fn taken(&self, bytes: usize) {
        self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Asks the session to end; the first reason counts. Returns whether this was it.
    pub(crate) fn stop(&self, reason: Stop) -> bool {
        self.stopped.store(true, Ordering::Relaxed);
        let sender = self.stop.lock().unwrap_or_else(PoisonError::into_inner).take();
        sender.is_some_and(|sender| sender.send(reason).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use codecs::{Event, Format};

    use super::*;
    use crate::subscriptions::Subscriptions;

    fn delivery(outbox: &Arc<Outbox>, payload_bytes: usize) -> Delivery {
        let subscription = Subscriptions::default().add("s".into(), Format::JSON, Arc::clone(outbox), vec![]);
        let event = Event {
            id: [0; 32],
            pubkey: [0; 32],
            created_at: 0,
            kind: 1,
            tags: vec![],
            content: "".into(),
            sig: [0; 64],
        };
        Delivery { subscription, event: Arc::new(StoredEvent::new(event)), payload_bytes }
    }

    #[test]
    fn a_peer_over_its_bound_is_stopped_once_and_gets_nothing_more() {
        let (outbox, mut inbound) = Outbox::new(100);
        assert_eq!(outbox.push(delivery(&outbox, 60)), Ok(()));
        assert_eq!(outbox.push(delivery(&outbox, 40)), Ok(()));
        assert_eq!(outbox.push(delivery(&outbox, 1)), Err(Dropped::Overflow), "the byte too many");
        assert_eq!(outbox.push(delivery(&outbox, 1)), Err(Dropped::Ended), "and reported once");
        assert_eq!((&mut inbound.stop).now_or_never(), Some(Ok(Stop::SlowConsumer)));
        assert_eq!(std::iter::from_fn(|| inbound.deliveries.try_recv().ok()).count(), 2);
    }

    #[test]
    fn what_the_session_takes_makes_room() {
        let (outbox, _inbound) = Outbox::new(100);
        for _ in 0..1_000 {
            assert_eq!(outbox.push(delivery(&outbox, 90)), Ok(()));
            outbox.taken(90);
        }
    }

    #[test]
    fn an_event_larger_than_the_bound_passes_an_empty_queue() {
        let (outbox, _inbound) = Outbox::new(100);
        assert_eq!(outbox.push(delivery(&outbox, 1_000)), Ok(()));
        assert_eq!(outbox.push(delivery(&outbox, 1)), Err(Dropped::Overflow));
    }

    #[test]
    fn the_first_reason_to_stop_counts() {
        let (outbox, mut inbound) = Outbox::new(100);
        assert!(outbox.stop(Stop::Shutdown));
        assert!(!outbox.stop(Stop::SlowConsumer));
        assert_eq!((&mut inbound.stop).now_or_never(), Some(Ok(Stop::Shutdown)));
    }
}
