//! Proves that every planned event has exactly one fate and every expected delivery arrived once.

use measure::Counts;

use crate::{
    bits::Bits,
    client::Report,
    schedule::nanos,
    shared::{Fate, Shared},
    swarm::Outcome,
    workload::Workload,
};

/// Closes the ledger of a run: sums the clients' reports, which stand in the order of the plan, and
/// compares the sums with the plan. In an incomplete run an unanswered publication is unknown
/// rather than timed out.
pub fn close(shared: &Shared, reports: &[&Report], complete: bool) -> Counts {
    let counts = close_of(shared, reports, complete, |_| true);
    Counts { repeats_expected: shared.workload.repeats, ..counts }
}

/// Closes the ledger of some connections alone. Repeats stand in the sum of all only: the plan
/// knows their number for the whole.
pub fn close_of(
    shared: &Shared,
    reports: &[&Report],
    complete: bool,
    is_one: impl Fn(usize) -> bool,
) -> Counts {
    let workload = &shared.workload;
    let ones = || reports.iter().enumerate().filter(|(id, _)| is_one(*id)).map(|(id, report)| (id, *report));
    let mut counts: Counts = ones().map(|(_, report)| report.counts).sum();
    counts.repeats_expected = counts.repeats;
    for (n, publication) in workload.publications.iter().enumerate() {
        if !is_one(publication.connection) {
            continue;
        }
        counts.planned += 1;
        match shared.fate(n) {
            Fate::Acked => counts.acked += 1,
            Fate::Rejected | Fate::Duplicate => counts.rejected += 1,
            Fate::Dropped => counts.dropped_by_generator += 1,
            // Only a relay that ran to the end had the time to answer.
            Fate::Planned if complete => counts.timed_out += 1,
            Fate::Planned => counts.unknown += 1,
        }
    }
    for session in workload.sessions.iter().filter(|session| is_one(session.connection)) {
        for request in session.steps.iter().flatten() {
            counts.requests += 1;
            counts.deliveries_expected += request.expected.len() as u64;
        }
        if let Some(reconciliation) = &session.reconciliation {
            counts.requests += 1;
            counts.deliveries_expected += reconciliation.lacks.len() as u64;
        }
    }
    counts.requests_failed = counts.requests - counts.requests_completed;
    for (id, client) in ones() {
        for (n, (live, seen)) in workload.roles[id].filters().iter().zip(&client.seen).enumerate() {
            let matches = &workload.live[*live as usize].matches;
            if client.cut_off.is_some() || client.closed.contains(n) {
                // The relay ended the connection or the subscription: deliveries until then are
                // judged, later ones are not lost.
                close_live(shared, matches, seen, |n| seen.contains(n), &mut counts);
                let owed = matches.iter().filter(|n| shared.fate(*n) == Fate::Acked && !seen.contains(*n));
                counts.deliveries_cut_off += owed.count() as u64;
            } else {
                close_live(shared, matches, seen, |_| true, &mut counts);
            }
        }
        for stay in &client.stays {
            let matches = &workload.live[stay.live as usize].matches;
            let is_missing = |n: &usize| {
                stay.during.contains(*n) && !stay.seen.contains(*n) && shared.fate(*n) == Fate::Acked
            };
            if stay.closed {
                counts.deliveries_cut_off += matches.iter().filter(is_missing).count() as u64;
            }
            let owed = |n| (!stay.closed && stay.during.contains(n)) || stay.seen.contains(n);
            close_live(shared, matches, &stay.seen, owed, &mut counts);
        }
        counts.readers_cut_off += u64::from(client.cut_off.is_some());
    }
    counts.deliveries_lost = counts.deliveries_expected - counts.deliveries;
    counts
}

/// Adds up one live subscription: each accepted publication that matches and is owed is due once.
fn close_live(
    shared: &Shared,
    matches: &Bits,
    seen: &Bits,
    owed: impl Fn(usize) -> bool,
    counts: &mut Counts,
) {
    for n in matches.iter() {
        match (seen.contains(n), shared.fate(n)) {
            // A delivery without an OK proves that the relay accepted the event.
            (true, Fate::Acked | Fate::Planned) => {
                counts.deliveries_expected += 1;
                counts.deliveries += 1;
            }
            (true, Fate::Rejected | Fate::Duplicate | Fate::Dropped) => counts.deliveries_unexpected += 1,
            (false, Fate::Acked) => counts.deliveries_expected += u64::from(owed(n)),
            (false, _) => {}
        }
    }
}

/// How long work was outstanding, in nanoseconds: the denominator of envelopes per second. With
/// publications that is the whole run; with sessions alone it is the union of their spans, so that
/// a pause between two bursts does not count.
pub fn active_ns(workload: &Workload, outcome: &Outcome) -> u64 {
    if !workload.publications.is_empty() {
        return elapsed_ns(workload, outcome);
    }
    union(outcome.clients.iter().flat_map(|c| c.report.busy_ns.iter().copied()).collect())
        .iter()
        .map(|(from, to)| to - from)
        .sum()
}

/// The spans of envelope throughput in nanoseconds from the start, disjoint and in ascending order,
/// and the interval that they ask for. With publications it is one span, from the first planned
/// instant to the last, in a closed loop to the last answer; with sessions alone the union of
/// theirs, which may be bursts of a fraction of a second. Warm-up phases are cut out.
pub fn throughput_spans(workload: &Workload, outcome: &Outcome) -> (Vec<(u64, u64)>, u64) {
    const STREAM_NS: u64 = 100_000_000;
    const BURST_NS: u64 = 10_000_000;
    let last_ns = outcome.clients.iter().map(|c| c.report.last_ns).max().unwrap_or(0);
    let (spans, wanted_ns) = if workload.publications.is_empty() {
        let busy = outcome.clients.iter().flat_map(|client| client.report.busy_ns.iter().copied());
        (union(busy.collect()), BURST_NS)
    } else {
        let last_due_ns = workload.publications.last().map_or(0, |publication| nanos(publication.at));
        let to = if workload.is_closed() { last_ns } else { last_ns.min(last_due_ns) };
        (vec![(nanos(workload.first_due()), to)], STREAM_NS)
    };
    let warm_up = workload.warm_up.iter().map(|(from, to)| (nanos(*from), nanos(*to)));
    (warm_up.fold(spans, |spans, cut| without(&spans, cut)), wanted_ns)
}

/// Spans without a part of them.
fn without(spans: &[(u64, u64)], (from, to): (u64, u64)) -> Vec<(u64, u64)> {
    let parts = spans.iter().flat_map(|span| [(span.0, span.1.min(from)), (span.0.max(to), span.1)]);
    parts.filter(|(from, to)| from < to).collect()
}

/// Nanoseconds from the first instant at which something was due to the last answer.
pub fn elapsed_ns(workload: &Workload, outcome: &Outcome) -> u64 {
    let last_ns = outcome.clients.iter().map(|c| c.report.last_ns).max().unwrap_or(0);
    last_ns.saturating_sub(nanos(workload.first_due()))
}

/// The union of spans: disjoint, in ascending order.
fn union(mut spans: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    spans.sort_unstable();
    let mut union: Vec<(u64, u64)> = Vec::new();
    for (from, to) in spans.into_iter().filter(|(from, to)| from < to) {
        match union.last_mut().filter(|last| from <= last.1) {
            Some(last) => last.1 = last.1.max(to),
            None => union.push((from, to)),
        }
    }
    union
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_spans_count_once() {
        assert_eq!(union(vec![]), []);
        assert_eq!(union(vec![(10, 20), (0, 5), (12, 15), (18, 30), (7, 7)]), [(0, 5), (10, 30)]);
        assert_eq!(union(vec![(0, 5), (5, 9)]), [(0, 9)], "no pause between them");
    }

    #[test]
    fn a_warm_up_is_cut_out_of_the_spans() {
        let spans = [(0, 10), (20, 30)];
        assert_eq!(without(&spans, (10, 20)), spans);
        assert_eq!(without(&spans, (0, 15)), [(20, 30)]);
        assert_eq!(without(&spans, (5, 25)), [(0, 5), (25, 30)]);
        assert_eq!(without(&spans, (22, 24)), [(0, 10), (20, 22), (24, 30)]);
    }
}
