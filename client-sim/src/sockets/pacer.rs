//! Waits for planned instants with a timerfd (timerfd_create(2)), because tokio's timer has a
//! resolution of one millisecond ([`tokio::time::sleep`]).

use std::{
    io,
    os::fd::{AsFd, AsRawFd, RawFd},
    time::{Duration, Instant},
};

use nix::sys::{
    time::TimeSpec,
    timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags},
};
use tokio::io::{Interest, unix::AsyncFd};

/// Sleeps until instants of the plan. Each worker has one.
#[derive(Debug)]
pub(crate) struct Pacer {
    timer: AsyncFd<Timer>,
}

#[derive(Debug)]
struct Timer(TimerFd);

impl AsRawFd for Timer {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl Pacer {
    /// Makes a timer. Call it inside a tokio runtime.
    ///
    /// # Errors
    /// When the system has no descriptor left.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        #[expect(
            deprecated,
            reason = "the undeprecated call is unsafe because a descriptor might be closed early; Timer owns its own"
        )]
        let timer = AsyncFd::with_interest(Timer(timer), Interest::READABLE)?;
        Ok(Pacer { timer })
    }

    /// Waits until `instant`; returns at once when it has passed.
    ///
    /// # Errors
    /// When the timer cannot be set or read.
    pub(crate) async fn until(&self, instant: Instant) -> io::Result<()> {
        loop {
            let wait = instant.saturating_duration_since(Instant::now());
            if wait.is_zero() {
                return Ok(());
            }
            let timer = &self.timer.get_ref().0;
            let wait = wait.max(Duration::from_nanos(1));
            timer.set(Expiration::OneShot(TimeSpec::from_duration(wait)), TimerSetTimeFlags::empty())?;
            let mut guard = self.timer.readable().await?;
            // Reading resets the timer; readiness left over from an earlier instant costs one more
            // turn of the loop.
            match guard.try_io(|timer| timer.get_ref().0.wait().map_err(io::Error::from)) {
                Ok(result) => result?,
                Err(_would_block) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
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
}
