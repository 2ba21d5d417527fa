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
    let workload = &shared.workload;
    let seen: Counts = reports.iter().map(|report| report.counts).sum();
    let mut counts = seen + Counts { planned: workload.publications.len() as u64, ..Counts::default() };
    for publication in 0..workload.publications.len() {
        match shared.fate(publication) {
            Fate::Acked => counts.acked += 1,
            Fate::Rejected | Fate::Duplicate => counts.rejected += 1,
            Fate::Dropped => counts.dropped_by_generator += 1,
            // Only a relay that ran to the end had the time to answer.
            Fate::Planned if complete => counts.timed_out += 1,
            Fate::Planned => counts.unknown += 1,
        }
    }
    let requests = workload.sessions.iter().flat_map(|s| &s.steps).flatten();
    for request in requests {
        counts.requests += 1;
        counts.deliveries_expected += request.expected.len() as u64;
    }
    for reconciliation in workload.sessions.iter().filter_map(|s| s.reconciliation.as_ref()) {
        counts.requests += 1;
        counts.deliveries_expected += reconciliation.lacks.len() as u64;
    }
    counts.repeats_expected = workload.repeats;
    counts.requests_failed = counts.requests - counts.requests_completed;
    for (role, client) in workload.roles.iter().zip(reports) {
        for (live, seen) in role.filters().iter().zip(&client.seen) {
            let matches = &workload.live[*live as usize].matches;
            if client.cut_off.is_some() {
                // The relay ended the connection: deliveries until then are judged, later ones are
                // not lost.
                close_live(shared, matches, seen, |n| seen.contains(n), &mut counts);
                let owed = matches.iter().filter(|n| shared.fate(*n) == Fate::Acked && !seen.contains(*n));
                counts.deliveries_cut_off += owed.count() as u64;
            } else {
                close_live(shared, matches, seen, |_| true, &mut counts);
            }
        }
        for stay in &client.stays {
            let matches = &workload.live[stay.live as usize].matches;
            let owed = |n| stay.during.contains(n) || stay.seen.contains(n);
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
    union_ns(outcome.clients.iter().flat_map(|c| c.report.busy_ns.iter().copied()).collect())
}

/// Nanoseconds from the first instant at which something was due to the last answer.
pub fn elapsed_ns(workload: &Workload, outcome: &Outcome) -> u64 {
    let last_ns = outcome.clients.iter().map(|c| c.report.last_ns).max().unwrap_or(0);
    last_ns.saturating_sub(nanos(workload.first_due()))
}

fn union_ns(mut spans: Vec<(u64, u64)>) -> u64 {
    spans.sort_unstable();
    let (mut total, mut covered_to) = (0, 0);
    for (from, to) in spans {
        let from = from.max(covered_to);
        if to > from {
            total += to - from;
            covered_to = to;
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_spans_count_once() {
        assert_eq!(union_ns(vec![]), 0);
        assert_eq!(union_ns(vec![(10, 20), (0, 5), (12, 15), (18, 30)]), 25);
    }
}
