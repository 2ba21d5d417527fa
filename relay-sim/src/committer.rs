//! When is an event on the disk? One thread takes all that was offered meanwhile and commits it
//! together, so that a commit costs many publishers what it costs one.
//!
//! What is to be done with a group is the relay's matter; this is its queue and its thread.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
};

use crate::{fanout::Outbox, store::StoredEvent};

/// Offered events that wait for their commit, in bytes: beyond it publishers wait, too.
const MAX_WAITING_BYTES: usize = 32 << 20;

/// An event for the store, and who waits for its OK.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) event: Arc<StoredEvent>,
    /// When it was published, in seconds since 1970.
    pub(crate) unix_seconds: u64,
    /// Of its publisher; `None` for an event that the relay starts with.
    pub(crate) outbox: Option<Arc<Outbox>>,
}

/// The queue and its thread.
#[derive(Debug, Default)]
pub(crate) struct Committer {
    queue: Arc<Queue>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    offers: Vec<Offer>,
    bytes: usize,
    stopping: bool,
}

impl Committer {
    /// Starts the thread, which calls `settle` with all that is offered, until that returns false
    /// or the queue is closed.
    pub(crate) fn start(&self, settle: impl Fn(Vec<Offer>) -> bool + Send + 'static) -> std::io::Result<()> {
        let queue = Arc::clone(&self.queue);
        let thread = thread::Builder::new().name("committer".to_owned()).spawn(move || {
            while let Some(offers) = queue.next() {
                if !settle(offers) {
                    break;
                }
            }
        })?;
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(())
    }

    /// Queues an event. Waits while too much waits already: a publisher is no faster than the disk.
    pub(crate) fn offer(&self, offer: Offer) {
        let bytes = offer.event.held_bytes();
        let mut state = self.queue.lock();
        while state.bytes > MAX_WAITING_BYTES && !state.stopping {
            state = self.queue.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.bytes += bytes;
        state.offers.push(offer);
        drop(state);
        self.queue.changed.notify_all();
    }

    /// Ends the thread behind what was offered, and waits for it.
    pub(crate) fn close(&self) {
        self.queue.stop();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the committer panicked: this is a bug");
        }
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.queue.stop();
    }
}

impl Queue {
    /// All that is offered, once something is; `None` at the end.
    fn next(&self) -> Option<Vec<Offer>> {
        let mut state = self.lock();
        while state.offers.is_empty() {
            if state.stopping {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.bytes = 0;
        let offers = std::mem::take(&mut state.offers);
        drop(state);
        self.changed.notify_all();
        Some(offers)
    }

    fn stop(&self) {
        self.lock().stopping = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
