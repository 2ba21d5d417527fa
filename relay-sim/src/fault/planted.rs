//! The faults of a running relay, and how one connection counts what they may hit.
//!
//! A fault's keys, its seed, the connection's number and a count of its targets decide whether it hits.
//! For a delivery, subscription name and event id replace the count, so that neither threads nor the
//! order of events matter.

use std::{
    sync::{
        Arc, OnceLock, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use super::{ActsOn, Draw, Fault, Kind, Value};

/// The faults of a relay, which may be replaced while it runs.
#[derive(Debug)]
pub(crate) struct Faults {
    set: RwLock<Arc<Set>>,
    /// How often they were replaced: connections look at it before each message.
    generation: AtomicU64,
    /// How often those of the process hit, by [`place_of`].
    of_process: [AtomicU64; 3],
}

/// The place of a kind that acts on the process: those of one kind act together.
fn place_of(kind: Kind) -> Option<usize> {
    [Kind::Stall, Kind::Burn, Kind::Delay].iter().position(|other| *other == kind)
}

/// Faults that act together, from one instant on.
#[derive(Debug)]
struct Set {
    faults: Vec<(Fault, AtomicU64)>,
    began: OnceLock<Instant>,
}

impl Set {
    fn new(faults: impl IntoIterator<Item = Fault>) -> Arc<Set> {
        let faults = faults.into_iter().map(|fault| (fault, AtomicU64::new(0))).collect();
        Arc::new(Set { faults, began: OnceLock::new() })
    }

    /// The time since they act. It begins with the first look at a clock.
    fn elapsed(&self, now: Instant) -> Duration {
        now.saturating_duration_since(*self.began.get_or_init(|| now))
    }
}

impl Faults {
    pub(crate) fn new(faults: &[Fault]) -> Arc<Faults> {
        let set = RwLock::new(Set::new(faults.iter().cloned()));
        Arc::new(Faults { set, generation: AtomicU64::new(0), of_process: Default::default() })
    }

    /// From `now` on the times of faults count.
    pub(crate) fn begin(&self, now: Instant) {
        self.set().elapsed(now);
    }

    /// Replaces all but those of the process; times and counts begin anew.
    pub(crate) fn replace(&self, faults: &[Fault], now: Instant) {
        let mut set = self.set.write().unwrap_or_else(PoisonError::into_inner);
        let stay = set.faults.iter().map(|(fault, _)| fault.clone()).filter(Fault::is_of_the_process);
        *set = Set::new(stay.chain(faults.iter().cloned()).collect::<Vec<_>>());
        set.elapsed(now);
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Notes that those of this kind, which acts on the process, hit once.
    pub(crate) fn acted(&self, kind: Kind) {
        if let Some(place) = place_of(kind) {
            self.of_process[place].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Every fault, with how often it hit.
    pub(crate) fn hits(&self) -> Vec<(String, u64)> {
        let set = self.set();
        let counts = set.faults.iter().map(|(fault, hits)| {
            let hits = place_of(fault.kind).map_or(hits, |place| &self.of_process[place]);
            (fault.to_string(), hits.load(Ordering::Relaxed))
        });
        counts.collect()
    }

    /// One after the other, as they are written.
    pub(crate) fn names(&self) -> Vec<String> {
        self.hits().into_iter().map(|(fault, _)| fault).collect()
    }

    /// Whether there is one of this kind that acts `now`, wherever.
    pub(crate) fn acts(&self, kind: Kind, now: Instant) -> bool {
        let set = self.set();
        let elapsed = set.elapsed(now);
        let hit = set.faults.iter().find(|(fault, _)| fault.kind == kind && fault.when.is_now(elapsed));
        hit.inspect(|(_, hits)| _ = hits.fetch_add(1, Ordering::Relaxed)).is_some()
    }

    /// To be looked up before [`Faults::set`], so that a set is never older than its number.
    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    fn set(&self) -> Arc<Set> {
        Arc::clone(&self.set.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The faults as one connection meets them.
#[derive(Debug)]
pub(crate) struct Planted {
    relay: Arc<Faults>,
    generation: u64,
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
    value: Value,
    /// For its details.
    pub(crate) draw: Draw,
}

impl Hit {
    /// Its time; zero without one.
    pub(crate) fn time(&self) -> Duration {
        if let Value::Time(time) = self.value { time } else { Duration::ZERO }
    }

    /// Its number; zero without one.
    pub(crate) fn number(&self) -> u32 {
        if let Value::Number(number) = self.value { number } else { 0 }
    }

    /// Its seconds; zero without any.
    pub(crate) fn seconds(&self) -> i64 {
        if let Value::Offset(seconds) = self.value { seconds } else { 0 }
    }
}

impl Planted {
    pub(crate) fn new(relay: Arc<Faults>, connection: u64) -> Planted {
        let (generation, set) = (relay.generation(), relay.set());
        let counts = vec![0; set.faults.len()];
        Planted { relay, generation, set, connection, counts }
    }

    /// Takes up faults that replaced the earlier ones.
    #[inline]
    pub(crate) fn refresh(&mut self) {
        let generation = self.relay.generation();
        if generation != self.generation {
            self.renew(generation);
        }
    }

    #[cold]
    fn renew(&mut self, generation: u64) {
        self.generation = generation;
        self.set = self.relay.set();
        self.counts = vec![0; self.set.faults.len()];
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.set.faults.is_empty()
    }

    /// Counts a target of faults of this kind, and returns whether one of them hits it.
    pub(crate) fn next(&mut self, kind: Kind, now: Instant) -> Option<Hit> {
        self.first(|fault| fault.kind == kind, &[], now)
    }

    /// Counts a delivery; the first of the faults of deliveries that hits it.
    pub(crate) fn next_delivery(&mut self, subscription: &str, id: &[u8; 32], now: Instant) -> Option<Hit> {
        let is_of_deliveries = |fault: &Fault| fault.acts_on() == ActsOn::Deliveries;
        self.first(is_of_deliveries, &[id, subscription.as_bytes()], now)
    }

    fn first(&mut self, is_meant: impl Fn(&Fault) -> bool, key: &[&[u8]], now: Instant) -> Option<Hit> {
        let mut first = None;
        for ((fault, hits), count) in self.set.faults.iter().zip(&mut self.counts) {
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
            let (seed, number) = (fault.when.seed.to_le_bytes(), self.connection.to_le_bytes());
            let counted = count.to_le_bytes();
            let key = if key.is_empty() { &[&counted[..]] } else { key };
            let parts = [fault.kind.entry().name().as_bytes(), &seed, &number];
            let draw = Draw::from(parts.into_iter().chain(key.iter().copied()));
            if fault.when.rate.takes(draw.next(0)) {
                hits.fetch_add(1, Ordering::Relaxed);
                first = Some(Hit { kind: fault.kind, value: fault.value, draw });
            }
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planted(faults: &[&str], connection: u64) -> Planted {
        let faults: Vec<Fault> = faults.iter().map(|text| text.parse().unwrap()).collect();
        Planted::new(Faults::new(&faults), connection)
    }

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
            let mut planted = planted(&[fault], connection);
            let hits = (0..6).map(|second| {
                let hit = planted.next(Kind::NoEose, start + Duration::from_secs(second));
                if hit.is_some() { 'x' } else { '.' }
            });
            assert_eq!(hits.collect::<String>(), expected, "{fault}");
            assert_eq!(planted.relay.hits()[0].1, expected.matches('x').count() as u64);
        }
    }
}
