//! When is an event on the disk? One thread takes all that was offered meanwhile and commits it
//! together, so that a commit costs many publishers what it costs one.
//!
//! Group commit: the queue of publications and the thread that writes them; what is done with a
//! group is the relay's matter.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
};

use crate::{fanout::Outbox, store::StoredEvent};

/// Offered events that wait for their commit, in bytes. Beyond it a publisher's thread waits, and
/// with it every client that the thread serves: with `--threads 1`, all.
const MAX_WAITING_BYTES: usize = 32 << 20;

/// An event for the store, and who waits for its OK.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) event: Arc<StoredEvent>,
    /// When it was published, in seconds since 1970.
    pub(crate) unix_seconds: u64,
    /// The publisher's outbox; `None` for an event that the relay starts with.
    pub(crate) outbox: Option<Arc<Outbox>>,
}

/// The queue and its thread.
#[derive(Debug, Default)]
pub(crate) struct Committer {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    offers: Vec<Offer>,
    bytes: usize,
    stopping: bool,
    thread: Option<JoinHandle<()>>,
}

impl Committer {
    /// Starts the thread, which calls `settle` with all that is offered, until that returns false
    /// or the queue is closed.
    pub(crate) fn start(
        self: &Arc<Self>,
        settle: impl Fn(Vec<Offer>) -> bool + Send + 'static,
    ) -> std::io::Result<()> {
        let end = End(Arc::clone(self));
        let thread = thread::Builder::new().name("committer".to_owned()).spawn(move || {
            while let Some(offers) = end.0.next() {
                if !settle(offers) {
                    break;
                }
            }
        })?;
        self.lock().thread = Some(thread);
        Ok(())
    }

    /// Queues an event; false when the thread ends or has ended. Waits while too much waits
    /// already: a publisher is no faster than the disk.
    pub(crate) fn offer(&self, offer: Offer) -> bool {
        let is_full = |state: &mut State| state.bytes > MAX_WAITING_BYTES && !state.stopping;
        let state = self.changed.wait_while(self.lock(), is_full);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        if state.stopping {
            return false;
        }
        state.bytes += offer.event.held_bytes();
        state.offers.push(offer);
        drop(state);
        self.changed.notify_all();
        true
    }

    /// All that is offered, once something is; `None` at the end.
    fn next(&self) -> Option<Vec<Offer>> {
        let has_nothing = |state: &mut State| state.offers.is_empty() && !state.stopping;
        let state = self.changed.wait_while(self.lock(), has_nothing);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        state.bytes = 0;
        let offers = std::mem::take(&mut state.offers);
        drop(state);
        self.changed.notify_all();
        (!offers.is_empty()).then_some(offers)
    }

    /// Ends the thread after it has settled all offers, and waits for it.
    pub(crate) fn close(&self) {
        self.stop();
        let thread = self.lock().thread.take();
        // A panic was logged when it happened.
        let _ = thread.map(JoinHandle::join);
    }

    /// Lets the thread end after it has settled all offers.
    pub(crate) fn stop(&self) {
        self.lock().stopping = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the queue with its thread, because offers without a thread would stay unanswered.
struct End(Arc<Committer>);

impl Drop for End {
    fn drop(&mut self) {
        if thread::panicking() {
            tracing::error!("the committer panicked: this is a bug; from now on every event is refused");
        }
        self.0.stop();
        self.0.lock().offers.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::testing::event;

    fn offer() -> Offer {
        let event = Arc::new(StoredEvent::new(&event(1), &Arc::default()));
        Offer { event, unix_seconds: 0, outbox: None }
    }

    #[test]
    fn a_panic_lets_nobody_wait() {
        let committer = Arc::new(Committer::default());
        committer.start(|_| panic!("as a bug would")).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while committer.offer(offer()) {
            assert!(Instant::now() < deadline, "offers are taken that nobody settles");
            thread::sleep(Duration::from_millis(1));
        }
        assert!(committer.lock().offers.is_empty());
        committer.close();
    }

    #[test]
    fn what_was_offered_before_the_end_is_settled_and_nothing_is_taken_behind_it() {
        let committer = Arc::new(Committer::default());
        let settled = Arc::new(Mutex::new(0));
        let count = Arc::clone(&settled);
        let settle = move |offers: Vec<Offer>| {
            *count.lock().unwrap() += offers.len();
            true
        };
        committer.start(settle).unwrap();
        assert!((0..10).all(|_| committer.offer(offer())));
        committer.close();
        assert_eq!(*settled.lock().unwrap(), 10);
        assert!(!committer.offer(offer()));
    }
}
