//! Proves that every planned event has exactly one fate and every expected delivery arrived once.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
};

use codecs::Filter;
use measure::{Counts, union_of_spans};

use crate::{
    Report, Subscription,
    incidents::{Incidents, Wrong},
    lacked, planned_from,
    shared::{Fate, Shared},
};
use workload::{Live, Workload, schedule::nanos};

/// Closes the ledger of a run: sums the clients' reports, which stand in the order of the plan, and
/// compares the sums with the plan. In an incomplete run an unanswered publication is unknown
/// rather than timed out. What other agents publish is owed to the subscribers of a complete run,
/// whether or not it was sent.
pub fn close(shared: &Shared, reports: &[&Report], complete: bool) -> Counts {
    add_up(shared, reports, complete, Some(&shared.incidents), |connection| shared.carries(connection))
}

/// Closes the ledger of some connections alone, all or none of a client's: that of a population, or
/// of an agent. Parts add up to the whole.
pub fn close_of(
    shared: &Shared,
    reports: &[&Report],
    complete: bool,
    is_one: impl Fn(usize) -> bool,
) -> Counts {
    add_up(shared, reports, complete, None, is_one)
}

/// Adds up the ledger of some connections, and names what is wrong to `incidents`.
fn add_up(
    shared: &Shared,
    reports: &[&Report],
    complete: bool,
    incidents: Option<&Incidents>,
    is_one: impl Fn(usize) -> bool,
) -> Counts {
    let workload = &shared.workload;
    let ones = || reports.iter().enumerate().filter(|(id, _)| is_one(*id)).map(|(id, report)| (id, *report));
    let mut counts: Counts = ones().map(|(_, report)| report.counts).sum();
    let dropped = shared.dropped_sessions();
    let mut began: HashMap<u32, u64> = HashMap::new();
    ones().flat_map(|(_, report)| &report.began).for_each(|n| *began.entry(*n).or_default() += 1);
    // Time ends a loop, so deliveries of publications that it did not reach are not owed.
    let is_looped = workload.until.is_some();
    let waited: HashSet<u32> = ones().flat_map(|(_, report)| report.not_connected.iter().copied()).collect();
    let times = |n: u32| match is_looped {
        true => began.get(&n).copied().unwrap_or(0),
        false => u64::from(!waited.contains(&n)),
    };
    counts.repeats_expected = workload.repeats_of(&is_one, times);
    for (n, publication) in workload.publications.iter().enumerate() {
        if !is_one(publication.connection) {
            continue;
        }
        counts.planned += 1;
        match shared.fate(n) {
            Fate::Acked => counts.acked += 1,
            Fate::Rejected | Fate::Duplicate => counts.rejected += 1,
            Fate::Dropped => counts.dropped_by_generator += 1,
            Fate::NotSent => counts.not_sent += 1,
            Fate::Planned if is_looped && !shared.was_sent(n) => counts.not_begun += 1,
            Fate::Planned if !shared.was_sent(n) => counts.not_sent += 1,
            // Only a relay that ran to the end had the time to answer.
            Fate::Planned | Fate::Elsewhere if complete => counts.timed_out += 1,
            Fate::Planned | Fate::Elsewhere => counts.unknown += 1,
        }
    }
    let sessions = || (0..).zip(&workload.sessions).filter(|(_, session)| is_one(session.connection));
    counts.sessions_dropped_by_generator = sessions().filter(|(n, _)| dropped.contains(n)).count() as u64;
    counts.sessions_not_connected = waited.len() as u64;
    let is_played = |n: u32| times(n) > 0 && (is_looped || !dropped.contains(&n));
    let planned: Vec<_> = sessions().filter(|(n, _)| is_played(*n)).collect();
    if is_looped {
        counts.sessions_not_begun = (sessions().count() - planned.len()) as u64;
    }
    for (n, session) in &planned {
        let times = times(*n);
        for request in session.steps.iter().flatten() {
            counts.requests += times;
            counts.deliveries_expected += times * request.expected.len() as u64;
        }
        if let Some(reconciliation) = &session.reconciliation {
            counts.requests += times;
            counts.deliveries_expected += times * reconciliation.lacks.len() as u64;
        }
    }
    // What a recording's relay and this one sent may differ, and is set against each other as such.
    let turns = || workload.turns.iter().filter(|turn| is_one(turn.connection));
    if turns().next().is_some() {
        counts.requests += turns().filter(|turn| turn.answered).count() as u64;
        counts.deliveries_recorded = turns().map(|turn| turn.expected.len() as u64).sum();
        counts.deliveries_diverged += counts.deliveries_recorded - counts.deliveries;
        counts.deliveries_expected += counts.deliveries;
    }
    counts.requests_failed = counts.requests - counts.requests_completed;
    if incidents.is_some() {
        for (n, session) in planned.into_iter().filter(|(n, _)| !began.contains_key(n)) {
            for (subscription, event) in planned_from(session, n, 0).chain(lacked(session, n)) {
                name(shared, incidents, Wrong::Lost, (session.connection, subscription), event, || None);
            }
        }
    }
    // What is owed follows from the plan: a relay that swallows an event with its OK has lost it.
    let fate = |n| match shared.fate(n) {
        Fate::Elsewhere if complete => Fate::Acked,
        Fate::Planned if complete && shared.was_sent(n) => Fate::Acked,
        Fate::Elsewhere => Fate::Planned,
        known => known,
    };
    for (connection, client) in ones() {
        // Which events a light reader counted is not known, so what it lacks has no name.
        let incidents = incidents.filter(|_| client.unread == 0);
        for (n, one) in (0..).zip(&client.live) {
            // The relay ended the connection or the subscription: deliveries until then are judged,
            // later ones are not lost.
            let ended = client.cut_off.is_some() || one.closed;
            let subscription = (connection, Subscription::Live(n));
            let matches = &workload.live[one.live as usize].matches;
            let due = matches.ones().map(|n| (n, one.seen.contains(n), !ended));
            close_live((shared, &fate), incidents, (subscription, one.live), due, &mut counts);
            if ended {
                let missing = matches.difference(&one.seen).filter(|n| fate(*n) == Fate::Acked);
                counts.deliveries_cut_off += missing.count() as u64;
            }
        }
        for stay in &client.stays {
            let subscription = (connection, stay.subscription);
            let seen = stay.seen.iter().map(|n| (*n as usize, true, true));
            let due = seen.chain(stay.missing.iter().map(|n| (*n as usize, false, !stay.closed)));
            close_live((shared, &fate), incidents, (subscription, stay.live), due, &mut counts);
            if stay.closed {
                let acked = stay.missing.iter().filter(|n| fate(**n as usize) == Fate::Acked);
                counts.deliveries_cut_off += acked.count() as u64;
            }
        }
        set_off_unread((shared, &fate), client, &mut counts);
        counts.readers_cut_off += u64::from(client.cut_off.is_some());
    }
    counts.deliveries_lost = counts.deliveries_expected - counts.deliveries;
    counts
}

/// The state of a run, and the fate of each publication as the ledger takes it.
type Fates<'f> = (&'f Shared, &'f dyn Fn(usize) -> Fate);

/// Adds up one live subscription: each matching publication that was not refused is due once. `due`
/// says of each whether it came, and whether it is owed.
fn close_live(
    (shared, fate): Fates<'_>,
    incidents: Option<&Incidents>,
    (subscription, live): ((usize, Subscription), u32),
    due: impl Iterator<Item = (usize, bool, bool)>,
    counts: &mut Counts,
) {
    let Live { filter, .. } = &shared.workload.live[live as usize];
    let name = |wrong, n: usize| {
        let event = shared.workload.publications[n].event;
        name(shared, incidents, wrong, subscription, event, || Some(Cow::Borrowed(filter)));
    };
    for (n, came, owed) in due {
        match (came, fate(n)) {
            // A delivery without an OK proves that the relay accepted the event.
            (true, Fate::Acked | Fate::Planned | Fate::Elsewhere) => {
                counts.deliveries_expected += 1;
                counts.deliveries += 1;
            }
            (true, Fate::Rejected | Fate::Duplicate | Fate::Dropped | Fate::NotSent) => {
                counts.deliveries_unexpected += 1;
                name(Wrong::Unexpected, n);
            }
            (false, Fate::Acked) if owed => {
                counts.deliveries_expected += 1;
                name(Wrong::Lost, n);
            }
            (false, _) => {}
        }
    }
}

/// Assigns the deliveries that a light reader counted without decoding: first to owed deliveries, then to
/// those that the relay may have sent before it ended a subscription, or without an OK. The rest counts
/// as not owed.
fn set_off_unread((shared, fate): Fates<'_>, client: &Report, counts: &mut Counts) {
    let mut unread = client.unread;
    if unread == 0 {
        return;
    }
    let (mut owed, mut until_the_end, mut unanswered) = (0, 0, 0);
    for one in &client.live {
        let ended = client.cut_off.is_some() || one.closed;
        for p in shared.workload.live[one.live as usize].matches.difference(&one.seen) {
            match fate(p) {
                Fate::Acked if ended => until_the_end += 1,
                Fate::Acked => owed += 1,
                Fate::Planned if shared.was_sent(p) || shared.is_elsewhere(p) => unanswered += 1,
                _ => {}
            }
        }
    }
    let mut take = |most: u64| {
        let taken = unread.min(most);
        unread -= taken;
        taken
    };
    let (owed, until_the_end, unanswered) = (take(owed), take(until_the_end), take(unanswered));
    counts.deliveries_cut_off -= until_the_end;
    counts.deliveries_expected += until_the_end + unanswered;
    let came = owed + until_the_end + unanswered;
    counts.deliveries += came;
    counts.deliveries_unread += came;
    counts.deliveries_unexpected += unread;
}

fn name<'f>(
    shared: &Shared,
    incidents: Option<&Incidents>,
    wrong: Wrong,
    (connection, subscription): (usize, Subscription),
    event: u32,
    filter: impl FnOnce() -> Option<Cow<'f, Filter>>,
) {
    let Some(incidents) = incidents else { return };
    let event = &shared.workload.events[event as usize];
    let subscription = subscription.to_string();
    incidents.add(wrong, (&event.id, Some(event.kind)), (connection, &subscription), filter);
}

/// The spans with work outstanding, in nanoseconds from the start, disjoint and in ascending order:
/// their sum is the denominator of envelopes per second. With publications that is the whole run;
/// with sessions alone it is the union of their spans, so that a pause between two bursts does not
/// count.
pub fn active_spans(workload: &Workload, reports: &[&Report]) -> Vec<(u64, u64)> {
    if !workload.publications.is_empty() || !workload.turns.is_empty() || workload.until.is_some() {
        let first_ns = nanos(workload.first_due());
        return union_of_spans([(first_ns, first_ns + elapsed_ns(workload, reports))]);
    }
    union_of_spans(reports.iter().flat_map(|report| report.busy_ns.iter().copied()))
}

/// The spans of envelope throughput, in nanoseconds from the start, and the length of its intervals. Spans
/// are disjoint and in ascending order:
///
/// - with publications one span, from the first planned instant to the last (in a closed loop: to the
///   last answer),
/// - with sessions alone the union of their spans, which may be bursts of a fraction of a second,
/// - for loops that time ends one span until then.
///
/// Warm-up phases are cut out.
pub fn throughput_spans(workload: &Workload, reports: &[&Report]) -> (Vec<(u64, u64)>, u64) {
    const STREAM_NS: u64 = 100_000_000;
    const BURST_NS: u64 = 10_000_000;
    let last_ns = reports.iter().map(|report| report.last_ns).max().unwrap_or(0);
    let (spans, wanted_ns) = if let Some(until) = workload.until {
        (vec![(nanos(workload.first_due()), last_ns.min(nanos(until)))], BURST_NS)
    } else if !workload.turns.is_empty() {
        (vec![(nanos(workload.first_due()), last_ns.min(nanos(workload.last_due())))], STREAM_NS)
    } else if workload.publications.is_empty() {
        let busy = reports.iter().flat_map(|report| report.busy_ns.iter().copied());
        (union_of_spans(busy), BURST_NS)
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
pub fn elapsed_ns(workload: &Workload, reports: &[&Report]) -> u64 {
    let last_ns = reports.iter().map(|report| report.last_ns).max().unwrap_or(0);
    last_ns.saturating_sub(nanos(workload.first_due()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warm_up_is_cut_out_of_the_spans() {
        let spans = [(0, 10), (20, 30)];
        assert_eq!(without(&spans, (10, 20)), spans);
        assert_eq!(without(&spans, (0, 15)), [(20, 30)]);
        assert_eq!(without(&spans, (5, 25)), [(0, 5), (25, 30)]);
        assert_eq!(without(&spans, (22, 24)), [(0, 10), (20, 22), (24, 30)]);
    }
}
