//! How long a run waits for what is owed: until the relay was silent for long enough, where that
//! silence is the relay's.

use std::time::{Duration, Instant};

use measure::Threads;

/// How late at least a timer fires of a process that was stopped, or did not get a core.
const STOOD_STILL: Duration = Duration::from_millis(500);

/// When the relay's silence ends a run. Reads no clock.
#[derive(Debug)]
pub(crate) struct Patience {
    drain: Duration,
    deadline: Instant,
    relay_ran: Duration,
}

impl Patience {
    /// Waits this long after the last thing was due.
    pub(crate) fn new(last_due: Instant, drain: Duration, relay: Threads) -> Patience {
        Patience { drain, deadline: last_due + drain, relay_ran: relay.ran }
    }

    /// When to ask whether it [is over](Patience::is_over).
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// An answer or a delivery came.
    pub(crate) fn heard(&mut self, now: Instant, relay: Threads) {
        self.deadline = self.deadline.max(now + self.drain);
        self.relay_ran = relay.ran;
    }

    /// Whether the run ends at its deadline.
    ///
    /// It goes on where this process did not run, and so heard nothing, or where the relay is ready
    /// to run and had a core for a small part of the silence. A relay that computes without an
    /// answer has no such excuse, nor has one that sleeps.
    pub(crate) fn is_over(&mut self, now: Instant, relay: Threads) -> bool {
        let stood_still = now.saturating_duration_since(self.deadline) >= STOOD_STILL;
        let ran = relay.ran.saturating_sub(self.relay_ran);
        let starved = relay.runnable && ran < self.drain / 4;
        if !stood_still && !starved {
            return true;
        }
        self.deadline = now + self.drain;
        self.relay_ran = relay.ran;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn relay(runnable: bool, ran: Duration) -> Threads {
        Threads { runnable, ran }
    }

    #[test]
    fn a_relay_that_sleeps_or_computes_in_silence_ends_the_run_at_its_deadline() {
        let start = Instant::now();
        for silent in [relay(false, 5 * SECOND), relay(true, 6 * SECOND)] {
            let mut patience = Patience::new(start, SECOND, relay(true, 5 * SECOND));
            assert!(patience.is_over(patience.deadline(), silent));
        }
        // Work before it last spoke was for its answer.
        let mut patience = Patience::new(start, SECOND, relay(true, Duration::ZERO));
        patience.heard(start, relay(true, 6 * SECOND));
        assert!(!patience.is_over(patience.deadline(), relay(true, 6 * SECOND)));
    }

    #[test]
    fn a_relay_without_a_core_is_waited_for() {
        let start = Instant::now();
        let mut patience = Patience::new(start, SECOND, Threads::default());
        for silence in 1..=100 {
            let little = relay(true, silence * SECOND / 10);
            assert!(!patience.is_over(patience.deadline(), little), "silence {silence}");
        }
        assert!(patience.is_over(patience.deadline(), relay(false, 10 * SECOND)));
    }

    #[test]
    fn the_silence_of_a_process_that_did_not_run_itself_is_nobodys() {
        let start = Instant::now();
        let mut patience = Patience::new(start, SECOND, Threads::default());
        for _ in 0..100 {
            let late = patience.deadline() + STOOD_STILL;
            assert!(!patience.is_over(late, Threads::default()));
            assert_eq!(patience.deadline(), late + SECOND);
        }
        assert!(patience.is_over(patience.deadline(), Threads::default()));
    }
}
