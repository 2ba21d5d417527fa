//! Replaces `pacer.rs` on systems without timerfd: a thread sleeps until each planned instant.

use std::{
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Instant,
};

use tokio::sync::Notify;

/// Sleeps until instants of the plan. Each worker has one.
#[derive(Debug)]
pub(crate) struct Pacer(Arc<Sleeper>);

#[derive(Debug, Default)]
struct Sleeper {
    due: Mutex<Due>,
    changed: Condvar,
    woken: Notify,
}

#[derive(Debug, Default)]
struct Due {
    at: Option<Instant>,
    ended: bool,
}

impl Pacer {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(crate) fn new() -> io::Result<Self> {
        let sleeper = Arc::new(Sleeper::default());
        let pacer = Pacer(Arc::clone(&sleeper));
        thread::Builder::new().name("pacer".to_owned()).spawn(move || sleeper.sleep())?;
        Ok(pacer)
    }

    /// Waits until `instant`; returns at once when it has passed.
    ///
    /// # Errors
    /// Never; the signature is that of `pacer.rs`, whose timerfd may fail.
    pub(crate) async fn until(&self, instant: Instant) -> io::Result<()> {
        while Instant::now() < instant {
            self.0.due().at = Some(instant);
            self.0.changed.notify_one();
            // A wake-up left over from an earlier instant costs one more turn of the loop.
            self.0.woken.notified().await;
        }
        Ok(())
    }
}

impl Drop for Pacer {
    fn drop(&mut self) {
        self.0.due().ended = true;
        self.0.changed.notify_one();
    }
}

impl Sleeper {
    fn due(&self) -> MutexGuard<'_, Due> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes who waits at each instant that is due, until the pacer is dropped.
    fn sleep(&self) {
        let mut due = self.due();
        while !due.ended {
            due = match due.at {
                None => self.changed.wait(due).unwrap_or_else(PoisonError::into_inner),
                Some(at) => match at.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
                    Some(left) => {
                        self.changed.wait_timeout(due, left).unwrap_or_else(PoisonError::into_inner).0
                    }
                    None => {
                        due.at = None;
                        self.woken.notify_one();
                        due
                    }
                },
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Weak, time::Duration};

    use super::*;

    #[tokio::test]
    async fn wakes_in_order_and_never_early() {
        let pacer = Pacer::new().unwrap();
        let start = Instant::now();
        for wait_us in [0, 200, 400, 5_000, 5_000, 1_000] {
            let instant = start + Duration::from_micros(wait_us);
            pacer.until(instant).await.unwrap();
            assert!(Instant::now() >= instant);
        }
    }

    #[tokio::test]
    async fn a_wait_that_was_given_up_does_not_delay_the_next() {
        let pacer = Pacer::new().unwrap();
        let hour = Duration::from_secs(3_600);
        let given_up = tokio::time::timeout(Duration::from_millis(5), pacer.until(Instant::now() + hour));
        assert!(given_up.await.is_err());
        let next = pacer.until(Instant::now() + Duration::from_millis(5));
        tokio::time::timeout(hour / 60, next).await.unwrap().unwrap();
    }

    #[test]
    fn its_thread_ends_with_it() {
        let pacer = Pacer::new().unwrap();
        let thread: Weak<Sleeper> = Arc::downgrade(&pacer.0);
        drop(pacer);
        while thread.strong_count() > 0 {
            thread::sleep(Duration::from_millis(1));
        }
    }
}
