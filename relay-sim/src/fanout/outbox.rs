//! A connection's queue, bounded by what the peer has yet to take.
//!
//! Publishers push without waiting: a peer that does not read must never hold up the others. Beyond the
//! bound the connection is told to stop instead. A push takes one short lock, and the session takes the
//! whole queue under another. At 500 subscribers per event this is most of a relay's work next to
//! writing.

use std::{
    collections::VecDeque,
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use futures::task::AtomicWaker;

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

/// The queue. Publishers and the relay hold it to push and to stop; what a session alone may call
/// says so.
#[derive(Debug)]
pub(crate) struct Outbox<T> {
    max_bytes: usize,
    state: Mutex<State<T>>,
    /// Wakes the session, which is told of a stop and, where it waits for them, of deliveries.
    session: AtomicWaker,
}

#[derive(Debug)]
struct State<T> {
    queue: VecDeque<T>,
    /// Bytes of the queue, and of messages that the session took but has not written.
    unwritten_bytes: usize,
    /// Nothing is queued any more.
    stopped: bool,
    /// Why, until the session heard it.
    reason: Option<Stop>,
    /// Whether the session sleeps until something is queued.
    awaits_deliveries: bool,
}

impl<T> Outbox<T> {
    /// A queue for `max_bytes` together.
    pub(crate) fn new(max_bytes: usize) -> Arc<Outbox<T>> {
        let state = State {
            queue: VecDeque::new(),
            unwritten_bytes: 0,
            stopped: false,
            reason: None,
            awaits_deliveries: false,
        };
        Arc::new(Outbox { max_bytes, state: Mutex::new(state), session: AtomicWaker::new() })
    }

    /// Queues a delivery that counts as `bytes`, or says why it is dropped.
    pub(crate) fn push(&self, delivery: T, bytes: usize) -> Result<(), Dropped> {
        let mut state = self.lock();
        if state.stopped {
            return Err(Dropped::Ended);
        }
        let unwritten_bytes = state.unwritten_bytes.saturating_add(bytes);
        if state.unwritten_bytes > 0 && unwritten_bytes > self.max_bytes {
            self.stop_now(state, Stop::SlowConsumer);
            return Err(Dropped::Overflow);
        }
        state.unwritten_bytes = unwritten_bytes;
        state.queue.push_back(delivery);
        let is_awaited = std::mem::take(&mut state.awaits_deliveries);
        drop(state);
        if is_awaited {
            self.session.wake();
        }
        Ok(())
    }

    /// Asks the session to end; the first reason counts. Returns whether this is the first.
    pub(crate) fn stop(&self, reason: Stop) -> bool {
        let state = self.lock();
        let is_first = !state.stopped;
        // A session that ends, and waits for its peer, hears of the relay's stop.
        if is_first || (reason == Stop::Shutdown && state.reason.is_none()) {
            self.stop_now(state, reason);
        }
        is_first
    }

    fn stop_now(&self, mut state: MutexGuard<'_, State<T>>, reason: Stop) {
        state.stopped = true;
        state.reason = Some(reason);
        drop(state);
        self.session.wake();
    }

    // --- for the session ---

    /// Takes nothing more. From now on [`Outbox::stopped`] waits for the relay's own stop.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.stopped = true;
        state.reason.take_if(|reason| *reason == Stop::SlowConsumer);
    }

    /// Whether nothing is queued.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().queue.is_empty()
    }

    /// Takes all that is queued. It counts towards the bound until it is [`Outbox::written`].
    pub(crate) fn take(&self, into: &mut VecDeque<T>) {
        take(&mut self.lock(), into);
    }

    /// Waits until something is queued, and takes it.
    pub(crate) async fn deliveries(&self, into: &mut VecDeque<T>) {
        poll_fn(|cx| {
            self.session.register(cx.waker());
            let mut state = self.lock();
            if state.queue.is_empty() {
                state.awaits_deliveries = true;
                return Poll::Pending;
            }
            take(&mut state, into);
            Poll::Ready(())
        })
        .await;
    }

    /// Releases `bytes` of the bound.
    pub(crate) fn written(&self, bytes: usize) {
        self.lock().unwritten_bytes -= bytes;
    }

    /// Waits until the session should end. The reason is told once.
    pub(crate) async fn stopped(&self) -> Stop {
        poll_fn(|cx| self.poll_stopped(cx)).await
    }

    /// Why the session should end, if it should. Told once.
    pub(crate) fn take_reason(&self) -> Option<Stop> {
        self.lock().reason.take()
    }

    /// [`Outbox::stopped`], polled.
    pub(crate) fn poll_stopped(&self, cx: &mut Context<'_>) -> Poll<Stop> {
        self.session.register(cx.waker());
        self.take_reason().map_or(Poll::Pending, Poll::Ready)
    }

    /// Ends the queue with its session, and returns what was left in it.
    pub(crate) fn close(&self) -> VecDeque<T> {
        let mut state = self.lock();
        state.stopped = true;
        std::mem::take(&mut state.queue)
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // Nothing that could panic half-way runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where `into` is empty, the two change their memory.
fn take<T>(state: &mut State<T>, into: &mut VecDeque<T>) {
    if into.is_empty() {
        std::mem::swap(&mut state.queue, into);
    } else {
        into.append(&mut state.queue);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_peer_over_its_bound_is_stopped_once_and_gets_nothing_more() {
        // A larger event passes an empty queue.
        assert_eq!(Outbox::new(100).push((), 1_000), Ok(()));
        let outbox = Outbox::new(100);
        assert_eq!(outbox.push((), 60), Ok(()));
        assert_eq!(outbox.push((), 40), Ok(()));
        assert_eq!(outbox.push((), 1), Err(Dropped::Overflow), "the byte too many");
        assert_eq!(outbox.push((), 1), Err(Dropped::Ended), "and reported once");
        assert!(!outbox.stop(Stop::SlowConsumer), "the session does not count it again");
        assert_eq!(outbox.stopped().now_or_never(), Some(Stop::SlowConsumer));
        assert_eq!(outbox.stopped().now_or_never(), None, "the session heard it already");
        assert_eq!(outbox.close().len(), 2);
    }

    #[tokio::test]
    async fn a_session_that_waits_is_woken_for_what_it_waits_for() {
        let outbox = Outbox::new(100);
        let session = Arc::clone(&outbox);
        let sleeper = tokio::spawn(async move {
            let mut deliveries = VecDeque::new();
            session.deliveries(&mut deliveries).await;
            (deliveries.len(), session.stopped().await)
        });
        tokio::task::yield_now().await;
        assert_eq!(outbox.push((), 1), Ok(()));
        tokio::task::yield_now().await;
        outbox.stop(Stop::Shutdown);
        assert_eq!(sleeper.await.unwrap(), (1, Stop::Shutdown));
    }
}
