//! The memory of a plan, known before it is made: a rate or a number of clients with a few zeros
//! too many would otherwise take all that there is.

use std::{borrow::Cow, mem::size_of};

use anyhow::ensure;
use codecs::Event;

use super::{Live, PlannedRequest, Publication, Role, Session, Share};
use crate::scenario::{Arrival, LiveFilter, Scenario, Step};

/// A plan may take this part of the memory: a half. The rest is for the run's own relay, which keeps the
/// events, for the clients' notes of them, and for other programs.
const PARTS: u64 = 2;

/// The allocator's own bytes beside a small block, and the pointer to it.
const BLOCK: f64 = 40.0;

/// A part of a plan that grows with what a user asks for.
#[derive(Debug)]
struct Part {
    what: &'static str,
    count: f64,
    bytes: f64,
}

impl Part {
    fn add(&mut self, count: f64, each_bytes: f64) {
        self.count += count;
        self.bytes += count * each_bytes;
    }
}

/// Refuses a plan that needs more than its part of the memory of this process.
///
/// # Errors
/// When it does, with what would fit.
pub(super) fn check(scenario: &Scenario, eligible: &[&Event<'static>], share: Share) -> anyhow::Result<()> {
    measure::memory_bytes().map_or(Ok(()), |memory| fits(&parts(scenario, eligible, share), memory))
}

fn fits(parts: &[Part], memory: u64) -> anyhow::Result<()> {
    let limit = (memory / PARTS) as f64;
    let need: f64 = parts.iter().map(|part| part.bytes).sum();
    let Some(most) = parts.iter().max_by(|a, b| a.bytes.total_cmp(&b.bytes)) else { return Ok(()) };
    let counts: Vec<_> = parts.iter().map(|part| format!("{:.0} {}", part.count, part.what)).collect();
    ensure!(
        need <= limit,
        "the plan would have about {} and need about {}; a plan may have {}, half of the memory of this process. About \
         {:.0} {} would fit: lower --load, --rate or --seconds, or clients, rates and requests with --set",
        counts.join(", "),
        gib(need),
        gib(limit),
        (most.count * limit / need).floor(),
        most.what,
    );
    Ok(())
}

fn gib(bytes: f64) -> String {
    format!("{:.1} GiB", bytes / f64::from(1 << 30))
}

/// About what a share of the plan has.
fn parts(scenario: &Scenario, eligible: &[&Event<'static>], share: Share) -> [Part; 3] {
    let due = |arrival: Arrival, clients, phases: &Option<Vec<String>>| {
        arrival.expected(clients, &scenario.spans(phases.as_deref()))
    };
    let shared = f64::from(share.of.get());
    let session = 2.0 * size_of::<Session>() as f64 + BLOCK;
    let [mut publications, mut sessions, mut connections] =
        ["publications", "sessions", "connections"].map(|what| Part { what, count: 0.0, bytes: 0.0 });
    for publish in &scenario.publish {
        let count = due(publish.arrival, publish.connections, &publish.phases);
        publications.add(count, event_bytes(eligible, publish.kinds.as_deref()));
    }
    for reconcile in &scenario.reconcile {
        let count = due(reconcile.arrival, reconcile.connections, &reconcile.phases);
        let own = reconcile.extra as f64;
        publications.add(count * own, event_bytes(eligible, reconcile.kinds.as_deref()));
        sessions.add(count, session + (eligible.len() as f64 + own) * size_of::<u32>() as f64 + BLOCK);
    }
    for fan_in in &scenario.fan_in {
        let count = due(fan_in.arrival, fan_in.clients, &fan_in.phases) * fan_in.relays as f64;
        sessions.add(count, session + fan_in.events as f64 * size_of::<([u8; 32], u32)>() as f64 + BLOCK);
    }
    // For each publication one bit says whether it matches, and one whether it came to a reader.
    let bits = 2.0 * publications.count / 8.0;
    for request in &scenario.request {
        let count = due(request.arrival, request.connections, &request.phases) / shared;
        let steps: f64 = request.step.iter().map(|step| step_bytes(step, eligible.len())).sum();
        let live: f64 = request.live.iter().map(|live| live_bytes(live) + 2.0 * bits).sum();
        sessions.add(count, session + steps + live);
    }
    for population in scenario.populations() {
        connections.add(population.connections as f64, size_of::<Role>() as f64 + BLOCK);
    }
    for subscribe in &scenario.subscribe {
        let each: f64 = subscribe.filter.iter().map(|live| live_bytes(live) + bits).sum();
        connections.bytes += subscribe.connections as f64 / shared * each;
    }
    [publications, sessions, connections]
}

/// About the bytes of one published event of these kinds, with its template and its entries in lists.
/// Lists grow by doubling, so each is counted with room to spare.
fn event_bytes(eligible: &[&Event<'static>], kinds: Option<&[u16]>) -> f64 {
    let wanted = eligible.iter().filter(|event| kinds.is_none_or(|kinds| kinds.contains(&event.kind)));
    let value_bytes = |value: &Cow<'_, str>| value.len() as f64 + BLOCK;
    let heap_bytes = |event: &Event<'_>| {
        let tags = event.tags.iter().map(|tag| tag.iter().map(value_bytes).sum::<f64>() + BLOCK);
        event.content.len() as f64 + BLOCK + tags.sum::<f64>()
    };
    let (sum, count) = wanted.fold((0.0, 0.0), |(sum, count), event| (sum + heap_bytes(event), count + 1.0));
    let mean_heap_bytes = if count > 0.0 { sum / count } else { 0.0 };
    // Two slots in the plan's growing list, and one of the template. Event and template own their text.
    let events = 3.0 * size_of::<Event<'_>>() as f64 + 2.0 * mean_heap_bytes;
    let entries = size_of::<([u8; 32], u32)>() * 2 + size_of::<Publication>() * 3;
    events + entries as f64
}

/// About what the requests of a step take.
fn step_bytes(step: &Step, stored: usize) -> f64 {
    let values = step.tag.as_ref().map_or(0, |tag| tag.values);
    let asked = step.authors.unwrap_or(values);
    let chunks = asked.div_ceil(step.chunk.unwrap_or(asked).max(1)).max(1) as f64;
    let times = step.times.unwrap_or(1) as f64 * step.pages.unwrap_or(1) as f64;
    let answer = step.limit.map_or(0, |limit| usize::try_from(limit).unwrap_or(stored).min(stored));
    let of_authors = step.authors.map_or(0.0, |authors| authors as f64 * size_of::<[u8; 32]>() as f64);
    let of_values = values_bytes(values) * if step.authors.is_some() { chunks } else { 1.0 };
    let of_requests = size_of::<PlannedRequest>() as f64 + answer as f64 * size_of::<u32>() as f64;
    times * (of_authors + of_values + chunks * of_requests)
}

/// About what the filter of a live subscription takes.
fn live_bytes(live: &LiveFilter) -> f64 {
    let authors = live.authors.unwrap_or(0) * size_of::<[u8; 32]>();
    let values = live.tag.as_ref().map_or(0, |tag| tag.values);
    size_of::<Live>() as f64 + authors as f64 + values_bytes(values)
}

/// About what so many values of a tag take, most of which are ids in hexadecimal digits.
fn values_bytes(values: usize) -> f64 {
    values as f64 * (64.0 + BLOCK)
}

#[cfg(test)]
mod tests {
    use corpus::Corpus;

    use super::*;

    const MIB: f64 = 1024.0 * 1024.0;
    const GIB: u64 = 1 << 30;

    fn parts(corpus: &Corpus, name: &str, set: &[&str]) -> [Part; 3] {
        let set: Vec<_> = set.iter().map(ToString::to_string).collect();
        let scenario = Scenario::load_with(name, &set).unwrap();
        super::parts(&scenario, &corpus.events.iter().collect::<Vec<_>>(), Share::WHOLE)
    }

    #[test]
    fn a_rate_that_does_not_fit_is_refused_with_need_limit_and_what_would() {
        let corpus = Corpus::bundled();
        let at = |publications: f64| {
            let rate = format!("publish.arrival.rate_per_s={}", publications / 2.0);
            fits(&parts(&corpus, "note-stream", &[&rate]), 8 * GIB)
        };
        let error = at(2e7).unwrap_err().to_string();
        assert!(
            error.contains("about 20000000 publications") && error.contains("may have 4.0 GiB"),
            "{error}"
        );
        assert!(error.contains("publications would fit: lower --load, --rate or --seconds"), "{error}");
        let fitting: f64 = error.split("About ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        assert!((5e5..1e7).contains(&fitting), "{error}");
        at(fitting * 0.99).unwrap();
        at(fitting * 1.01).unwrap_err();
    }

    #[test]
    fn whatever_grows_without_bound_is_named() {
        let corpus = Corpus::bundled();
        for (name, set, what) in [
            ("publish-flood", "publish.flood.arrival.rounds=100000000", "publications would fit"),
            ("slow-consumer", "subscribe.fast.connections=1000000000", "connections would fit"),
            ("home-feed-cold-start", "request.connections=1000000000", "sessions would fit"),
            ("mixed-day", "publish.arrival.rate_per_s=1e12", "would fit"),
            ("negentropy-sync", "reconcile.connections=10000000", "publications would fit"),
            ("duplicate-fan-in", "fan_in.clients=1000000000", "sessions would fit"),
        ] {
            let error = fits(&parts(&corpus, name, &[set]), 8 * GIB).unwrap_err().to_string();
            assert!(error.contains(what), "{name}: {error}");
        }
    }

    #[test]
    fn the_scenarios_as_they_are_need_little() {
        let corpus = Corpus::bundled();
        for name in Scenario::names() {
            let need: f64 = parts(&corpus, name, &[]).iter().map(|part| part.bytes).sum();
            assert!((1.0..600.0 * MIB).contains(&need), "{name}: {:.0} MiB", need / MIB);
        }
    }
}
