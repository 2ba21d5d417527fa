//! How many connections are opened at a time.

use std::time::Duration;

/// Connections that are opened at a time until the relay has shown how fast it takes them.
const FIRST: usize = 8;

/// Most connections that a worker opens at a time.
const MOST: usize = 64;

/// How long a connection may wait for those before it: half of what relays commonly give a
/// handshake (10 s: relay-sim, and `open_timeout` of Python's websockets).
const QUICK: Duration = Duration::from_secs(5);

/// The connections of a worker that are being opened. A relay that takes handshakes one by one has
/// no more of them waiting than it takes within [`QUICK`].
#[derive(Debug)]
pub(crate) struct Window {
    size: usize,
    opening: usize,
    opened: u32,
}

impl Default for Window {
    fn default() -> Self {
        Window { size: FIRST, opening: 0, opened: 0 }
    }
}

impl Window {
    /// How many more may be opened now.
    pub(crate) fn room(&self) -> usize {
        self.size.saturating_sub(self.opening)
    }

    /// Whether none is being opened.
    pub(crate) fn is_idle(&self) -> bool {
        self.opening == 0
    }

    /// Notes that one more is being opened.
    pub(crate) fn begins(&mut self) {
        self.opening += 1;
    }

    /// Notes that one is open, so long after the first one began; `None` for a client that connects
    /// later, which says nothing about the relay.
    pub(crate) fn opened(&mut self, after: Option<Duration>) {
        self.opening = self.opening.saturating_sub(1);
        let Some(after) = after else { return };
        self.opened += 1;
        let each = after / self.opened;
        self.size = usize::try_from(QUICK.as_nanos() / each.as_nanos().max(1)).unwrap_or(MOST).clamp(1, MOST);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// Opens so many connections to a relay that answers each so long after it began, or after the
    /// one before. Returns how long the slowest and all of them took.
    fn open(connections: usize, alone: Duration, one_by_one: Duration) -> (Duration, Duration) {
        let (mut window, mut begun, mut queue) = (Window::default(), 0, VecDeque::new());
        let (mut now, mut slowest) = (Duration::ZERO, Duration::ZERO);
        loop {
            for _ in 0..window.room().min(connections - begun) {
                window.begins();
                queue.push_back(now);
                begun += 1;
            }
            let Some(since) = queue.pop_front() else { break };
            now = (now + one_by_one).max(since + alone);
            slowest = slowest.max(now - since);
            window.opened(Some(now));
        }
        assert!(window.is_idle() && begun == connections);
        (slowest, now)
    }

    #[test]
    fn a_relay_that_takes_handshakes_one_by_one_has_few_waiting_and_is_never_idle() {
        for each_ms in [1, 50, 160, 500, 1_000] {
            let each = Duration::from_millis(each_ms);
            let (slowest, all) = open(1_000, Duration::ZERO, each);
            assert!(slowest < Duration::from_secs(9), "{each_ms} ms each: {slowest:?}");
            assert_eq!(all, each * 1_000);
        }
    }

    #[test]
    fn a_relay_that_is_far_away_is_asked_for_many_at_a_time() {
        for far_s in [1, 3] {
            let (slowest, all) = open(640, Duration::from_secs(far_s), Duration::ZERO);
            assert_eq!(slowest, Duration::from_secs(far_s));
            assert!(all < slowest * 24, "{far_s} s away: {all:?}");
        }
    }

    #[test]
    fn a_relay_that_takes_longer_than_it_may_is_asked_for_one_at_a_time() {
        let mut window = Window::default();
        window.begins();
        window.opened(Some(QUICK * 2));
        assert_eq!(window.room(), 1);
        window.begins();
        assert_eq!(window.room(), 0);
        window.opened(None);
        assert_eq!(window.room(), 1);
    }
}
