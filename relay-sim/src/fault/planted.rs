//! The faults of a running relay, and how one connection counts what they may hit.
//!
//! A fault's keys, its seed, the connection's number and a count of its targets decide whether it hits.
//! For a delivery, subscription name and event id replace the count, so that neither threads nor the
//! order of events matter.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::watch;

use super::{ActsOn, Draw, Fault, Kind};

/// The faults of a relay, which may be replaced while it runs.
#[derive(Debug)]
pub(crate) struct Faults(watch::Sender<Arc<Set>>);

/// Faults that act together, from one instant on.
#[derive(Debug)]
struct Set {
    faults: Vec<Counted>,
    began: OnceLock<Instant>,
}

/// A fault, and how often it hit.
#[derive(Debug, Clone)]
pub(super) struct Counted {
    pub(super) fault: Fault,
    pub(super) hits: Arc<AtomicU64>,
}

impl Counted {
    fn new(fault: &Fault) -> Counted {
        Counted { fault: fault.clone(), hits: Arc::default() }
    }

    pub(super) fn hit(&self) {
        self.hits.fetch_add(1, Ordering::Relaxed);
    }
}

impl Set {
    /// The time since they act. It begins with the first look at a clock.
    fn elapsed(&self, now: Instant) -> Duration {
        now.saturating_duration_since(*self.began.get_or_init(|| now))
    }
}

impl Faults {
    pub(crate) fn new(faults: &[Fault]) -> Faults {
        let faults = faults.iter().map(Counted::new).collect();
        Faults(watch::Sender::new(Arc::new(Set { faults, began: OnceLock::new() })))
    }

    /// From `now` on the times of faults count.
    pub(crate) fn begin(&self, now: Instant) {
        self.set().elapsed(now);
    }

    /// Replaces all but those of the process; times and counts begin anew.
    pub(crate) fn replace(&self, faults: &[Fault], now: Instant) {
        self.0.send_modify(|set| {
            let stay = set.faults.iter().filter(|counted| counted.fault.is_of_the_process()).cloned();
            let faults = stay.chain(faults.iter().map(Counted::new)).collect();
            *set = Arc::new(Set { faults, began: OnceLock::from(now) });
        });
    }

    /// Those of a kind.
    pub(super) fn of_kind(&self, kind: Kind) -> Vec<Counted> {
        self.set().faults.iter().filter(|counted| counted.fault.kind == kind).cloned().collect()
    }

    /// Every fault, with how often it hit.
    pub(crate) fn hits(&self) -> Vec<(String, u64)> {
        let hits = |counted: &Counted| (counted.fault.to_string(), counted.hits.load(Ordering::Relaxed));
        self.set().faults.iter().map(hits).collect()
    }

    /// One after the other, as they are written.
    pub(crate) fn names(&self) -> Vec<String> {
        self.hits().into_iter().map(|(fault, _)| fault).collect()
    }

    /// Whether there is one of this kind that acts `now`, wherever.
    pub(crate) fn acts(&self, kind: Kind, now: Instant) -> bool {
        let elapsed = self.set().elapsed(now);
        let hit = self.of_kind(kind).into_iter().find(|counted| counted.fault.when.is_now(elapsed));
        hit.inspect(Counted::hit).is_some()
    }

    fn set(&self) -> Arc<Set> {
        Arc::clone(&self.0.borrow())
    }
}

/// The faults as one connection meets them.
#[derive(Debug)]
pub(crate) struct Planted {
    relay: watch::Receiver<Arc<Set>>,
    set: Arc<Set>,
    /// Number of the handshake, from 0.
    connection: u64,
    /// How much each fault of the set saw of what it acts on.
    counts: Vec<u64>,
}

/// A fault that acts now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hit {
    pub(crate) kind: Kind,
    /// See [`Fault::value`].
    value: i64,
    /// For its details.
    pub(crate) draw: Draw,
}

impl Hit {
    /// Its time.
    pub(crate) fn time(&self) -> Duration {
        Duration::from_nanos(self.value.unsigned_abs())
    }

    /// Its number.
    pub(crate) fn number(&self) -> u32 {
        u32::try_from(self.value).unwrap_or(u32::MAX)
    }

    /// Its seconds.
    pub(crate) fn seconds(&self) -> i64 {
        self.value
    }
}

impl Planted {
    pub(crate) fn new(faults: &Faults, connection: u64) -> Planted {
        let mut relay = faults.0.subscribe();
        let set = Arc::clone(&relay.borrow_and_update());
        let counts = vec![0; set.faults.len()];
        Planted { relay, set, connection, counts }
    }

    /// Takes up faults that replaced the earlier ones.
    #[inline]
    pub(crate) fn refresh(&mut self) {
        if self.relay.has_changed().unwrap_or(false) {
            self.renew();
        }
    }

    #[cold]
    fn renew(&mut self) {
        self.set = Arc::clone(&self.relay.borrow_and_update());
        self.counts = vec![0; self.set.faults.len()];
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.set.faults.is_empty()
    }

    /// Counts a target for each fault of this kind. Returns the hit of the first fault that hits it.
    pub(crate) fn next(&mut self, kind: Kind, now: Instant) -> Option<Hit> {
        self.first(|fault| fault.kind == kind, &[], now)
    }

    /// Counts a delivery. Returns the hit of the first fault of deliveries that hits it.
    pub(crate) fn next_delivery(&mut self, subscription: &str, id: &[u8; 32], now: Instant) -> Option<Hit> {
        let is_of_deliveries = |fault: &Fault| fault.acts_on() == ActsOn::Deliveries;
        self.first(is_of_deliveries, &[id, subscription.as_bytes()], now)
    }

    fn first(&mut self, is_meant: impl Fn(&Fault) -> bool, key: &[&[u8]], now: Instant) -> Option<Hit> {
        let mut first = None;
        for (counted, count) in self.set.faults.iter().zip(&mut self.counts) {
            let fault = &counted.fault;
            if !is_meant(fault) {
                continue;
            }
            // A connection is one, however often it is asked about.
            *count = if fault.acts_on() == ActsOn::Connections { 1 } else { *count + 1 };
            if first.is_some()
                || !fault.when.is_here(self.connection + 1, *count)
                || !fault.when.is_now(self.set.elapsed(now))
            {
                continue;
            }
            let (seed, number, n) =
                (fault.when.seed.to_le_bytes(), self.connection.to_le_bytes(), count.to_le_bytes());
            let key = if key.is_empty() { &[&n[..]] } else { key };
            let parts = [fault.kind.entry().name().as_bytes(), &seed, &number];
            let draw = Draw::from(parts.into_iter().chain(key.iter().copied()));
            if fault.when.rate.takes(draw.next(0)) {
                counted.hit();
                first = Some(Hit { kind: fault.kind, value: fault.value, draw });
            }
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_choose_connections_messages_and_times() {
        let start = Instant::now();
        for (fault, connection, expected) in [
            ("no-eose", 0, "xxxxxx"),
            ("no-eose:connection=2", 0, "......"),
            ("no-eose:connection=2", 1, "xxxxxx"),
            ("no-eose:message=2", 0, ".x...."),
            ("no-eose:message=2-3", 0, ".xx..."),
            ("no-eose:message=5-", 0, "....xx"),
            ("no-eose:after=2s", 0, "..xxxx"),
            ("no-eose:after=2s:for=2s", 0, "..xx.."),
            ("no-eose:for=1s", 0, "x....."),
            ("no-eose:message=4:after=4s", 0, "......"),
        ] {
            let faults = Faults::new(&[fault.parse().unwrap()]);
            let mut planted = Planted::new(&faults, connection);
            let hits = (0..6).map(|second| {
                let hit = planted.next(Kind::NoEose, start + Duration::from_secs(second));
                if hit.is_some() { 'x' } else { '.' }
            });
            assert_eq!(hits.collect::<String>(), expected, "{fault}");
            assert_eq!(faults.hits()[0].1, expected.matches('x').count() as u64);
        }
    }
}
