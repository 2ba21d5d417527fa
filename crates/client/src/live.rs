//! Live subscriptions: those of subscribers last as long as the run, those of sessions for a stay.

use std::sync::Arc;

use codecs::hex;
use fixedbitset::FixedBitSet;

use super::{Action, Client, Stay, Subscription, Wake, take_out};
use crate::{incidents::Wrong, shared::Fate};
use workload::{Task, Timing, Workload, schedule::nanos};

/// The live subscriptions of a session.
#[derive(Debug)]
pub(super) struct Visit {
    /// Subscriptions whose EOSE is missing.
    opening: FixedBitSet,
    /// Subscriptions that were sent the stored event that they asked for.
    answered: FixedBitSet,
    /// Deliveries that each subscription has seen and is owed.
    subscriptions: Vec<OpenStay>,
    /// Publications sent before the last of these EOSEs.
    before: FixedBitSet,
    /// At the end of the stay: the publications owed that have not come, by subscription.
    missing: Vec<(usize, usize)>,
}

/// A live subscription of an open session.
#[derive(Debug)]
struct OpenStay {
    /// Its filter, as a place in `Workload::live`.
    live: u32,
    /// The publications that were sent during the stay.
    during: FixedBitSet,
    /// The publications that came.
    seen: FixedBitSet,
    /// Which of them came before EOSE and have not come again.
    stored: FixedBitSet,
    /// Whether the relay ended the subscription (CLOSED).
    closed: bool,
    last: LastOfEach,
}

/// The latest publication that came of each publisher, by its connection, plus one.
#[derive(Debug, Clone, Default)]
pub(super) struct LastOfEach(Vec<u32>);

impl LastOfEach {
    /// Notes a publication that came. Returns a later one of its publisher that came before it.
    fn note(&mut self, workload: &Workload, publication: usize) -> Option<usize> {
        let connection = workload.publications[publication].connection;
        // A reconciliation decides the order of what its client sends.
        if !matches!(workload.roles[connection].task, Task::Publisher { .. }) {
            return None;
        }
        if self.0.len() <= connection {
            self.0.resize(connection + 1, 0);
        }
        let (last, this) = (&mut self.0[connection], u32::try_from(publication + 1).ok()?);
        if *last > this {
            return Some(*last as usize - 1);
        }
        *last = this;
        None
    }
}

impl Client {
    /// Takes a delivery on a subscription that lasts as long as the run.
    pub(super) fn live_delivery(&mut self, filter: u32, found: u32, now_ns: u64) {
        let workload = &self.shared.workload;
        let live = workload.roles[self.id].filters().get(filter as usize).map(|live| *live as usize);
        let Some(live) = live else {
            return self.wrong(Wrong::Misrouted, &Subscription::Live(filter), found);
        };
        let matching = workload.publication_of(found).filter(|p| workload.live[live].matches.contains(*p));
        let Some(publication) = matching else {
            let matches = workload.live[live].filter.matches(&workload.events[found as usize]);
            return self.count_stray(Subscription::Live(filter), found, matches, false);
        };
        if self.report.closed.contains(filter as usize) {
            return self.wrong(Wrong::Unexpected, &Subscription::Live(filter), found);
        }
        if self.report.seen[filter as usize].put(publication) {
            return self.wrong(Wrong::Duplicated, &Subscription::Live(filter), found);
        }
        self.time_delivery(publication, now_ns);
        self.shared.delivered(1);
        if let Some(later) = self.last[filter as usize].note(&self.shared.workload, publication) {
            self.came_behind(publication, later);
        }
        if self.reader.is_none() {
            self.shared.no_longer_owed(publication);
        }
        self.light.iter_mut().for_each(|light| light.awaited = light.awaited.saturating_sub(1));
    }

    /// Takes a delivery on a live subscription of a session, which ends before the run does.
    ///
    /// The delivery is one of: misrouted, the stored event that opens the subscription, a stray, late,
    /// owed, or a repeat.
    pub(super) fn stay_delivery(&mut self, (session, filter): (u32, u32), found: u32, now_ns: u64) {
        let subscription = Subscription::Stay { session, filter };
        let workload = &self.shared.workload;
        let planned = workload.sessions.get(session as usize).filter(|s| s.connection == self.id);
        let live = planned.and_then(|planned| planned.live.get(filter as usize));
        let mut visit = self.sessions.get_mut(&session).and_then(|session| session.visit.as_mut());
        let was_asked = visit.is_some() || self.ended.contains(&session);
        let Some(live) = live.filter(|_| was_asked).map(|live| &workload.live[*live as usize]) else {
            return self.wrong(Wrong::Misrouted, &subscription, found);
        };
        let is_answer = visit.as_ref().is_some_and(|visit| visit.opening.contains(filter as usize))
            && live.filter.limit != Some(0)
            && live.filter.matches(&workload.events[found as usize]);
        if is_answer && visit.as_mut().is_some_and(|visit| !visit.answered.put(filter as usize)) {
            // The REQ has `limit: 1`, so the relay owes one stored event, and this is it.
            return;
        }
        let matching = workload.publication_of(found).filter(|p| live.matches.contains(*p));
        let Some((visit, publication)) = visit.zip(matching) else {
            // A live event may be on the way when the relay reads CLOSE.
            let after_close = self.ended.contains(&session);
            let matches = live.filter.matches(&workload.events[found as usize]);
            return self.count_stray(subscription, found, matches, after_close);
        };
        let stay = &mut visit.subscriptions[filter as usize];
        if stay.closed {
            self.wrong(Wrong::Unexpected, &subscription, found);
        } else if !stay.seen.put(publication) {
            // Only live events have an order: stored ones, before EOSE, come the newest first.
            let is_live = !visit.opening.contains(filter as usize);
            let later = is_live.then(|| stay.last.note(workload, publication)).flatten();
            self.time_delivery(publication, now_ns);
            self.shared.delivered(1);
            if let Some(later) = later {
                self.came_behind(publication, later);
            }
        } else if take_out(&mut stay.stored, publication) && self.shared.workload.tolerates_seam {
            self.report.counts.deliveries_duplicated_at_seam += 1;
        } else {
            self.wrong(Wrong::Duplicated, &subscription, found);
        }
    }

    /// Counts a live event that came behind a later one of its publisher.
    #[cold]
    fn came_behind(&mut self, publication: usize, later: usize) {
        self.report.counts.deliveries_live_out_of_order += 1;
        let workload = &self.shared.workload;
        let id = |n: usize| hex::encode(&workload.events[workload.publications[n].event as usize].id);
        self.report
            .live_out_of_order
            .get_or_insert_with(|| format!("event {} behind {}", id(publication), id(later)));
    }

    /// Records how long a delivery took. One of another agent's event has no latency, because its
    /// ends are on two clocks; it counts in the throughput.
    pub(super) fn time_delivery(&mut self, publication: usize, now_ns: u64) {
        if self.shared.is_elsewhere(publication) {
            if self.reader.is_none() {
                self.actions.push_back(Action::Count { now_ns });
            }
            return;
        }
        let (due_ns, sent_ns) = (self.shared.due_ns(publication), self.shared.sent_ns(publication));
        if self.shared.workload.is_measured(due_ns) {
            self.record_always(Timing::Response, due_ns, now_ns);
            self.record_always(Timing::Service, sent_ns, now_ns);
        }
    }

    /// Opens the live subscriptions of a session.
    pub(super) fn start_visit(&mut self, session: u32) {
        let shared = Arc::clone(&self.shared);
        let filters = &shared.workload.sessions[session as usize].live;
        let publications = shared.workload.publications.len();
        let mut opening = FixedBitSet::with_capacity(filters.len());
        for (filter, live) in (0..).zip(filters) {
            opening.insert(filter as usize);
            self.request(
                Subscription::Stay { session, filter },
                &shared.workload.live[*live as usize].filter,
            );
        }
        let stay = |live: &u32| OpenStay {
            live: *live,
            during: FixedBitSet::new(),
            seen: FixedBitSet::with_capacity(publications),
            stored: FixedBitSet::new(),
            closed: false,
            last: LastOfEach::default(),
        };
        if let Some(open) = self.sessions.get_mut(&session) {
            open.visit = Some(Visit {
                opening,
                answered: FixedBitSet::with_capacity(filters.len()),
                subscriptions: filters.iter().map(stay).collect(),
                before: FixedBitSet::new(),
                missing: Vec::new(),
            });
        }
    }

    /// Whether the EOSE of a live subscription of a session is missing.
    pub(super) fn awaits_stay(&self, session: u32, filter: u32) -> bool {
        let visit = self.sessions.get(&session).and_then(|open| open.visit.as_ref());
        visit.is_some_and(|visit| visit.opening.contains(filter as usize))
    }

    /// Takes the EOSE of a live subscription of a session; the last one begins the stay. False when
    /// none was owed.
    pub(super) fn stay_eose(&mut self, session: u32, filter: u32, now_ns: u64) -> bool {
        let open = self.sessions.get_mut(&session).and_then(|open| open.visit.as_mut());
        let Some(visit) = open else { return false };
        if !take_out(&mut visit.opening, filter as usize) {
            return false;
        }
        let stay = &mut visit.subscriptions[filter as usize];
        stay.stored = stay.seen.clone();
        if visit.opening.is_clear() {
            visit.before = self.shared.perhaps_sent(now_ns);
            let stay = self.shared.workload.sessions[session as usize].stay;
            self.wake_at(now_ns + nanos(stay), Wake::Leave(session));
        }
        true
    }

    /// Takes a CLOSED of a live subscription of a session: nothing more is owed to it. The other
    /// subscriptions go on.
    pub(super) fn stay_closed(&mut self, session: u32, filter: u32, now_ns: u64) {
        let open = self.sessions.get_mut(&session).and_then(|open| open.visit.as_mut());
        let stay = open.and_then(|visit| visit.subscriptions.get_mut(filter as usize));
        let Some(stay) = stay.filter(|stay| !stay.closed) else { return };
        stay.closed = true;
        self.report.counts.subscriptions_closed += 1;
        self.stay_eose(session, filter, now_ns);
    }

    /// Takes a CLOSED of a subscription that lasts as long as the run: nothing more is owed to it.
    pub(super) fn live_closed(&mut self, filter: u32) {
        let Some(live) = self.shared.workload.roles[self.id].filters().get(filter as usize) else { return };
        // Nothing was subscribed to yet: a CLOSED of what was never asked for.
        if filter as usize >= self.report.closed.len() {
            return;
        }
        if self.report.closed.put(filter as usize) {
            return;
        }
        self.report.counts.subscriptions_closed += 1;
        if self.reader.is_none() {
            let seen = &self.report.seen[filter as usize];
            let matches = self.shared.workload.live[*live as usize].matches.ones();
            let unseen = matches.filter(|p| !seen.contains(*p));
            // A light reader has counted these deliveries, so the run waits for them no more.
            let (unread, mut awaited) =
                self.light.as_ref().map_or((0, u64::MAX), |light| (light.unread, light.awaited));
            for publication in unseen.skip(usize::try_from(unread).unwrap_or(usize::MAX)) {
                if awaited > 0 {
                    self.shared.no_longer_owed(publication);
                    awaited -= 1;
                }
            }
            self.light.iter_mut().for_each(|light| light.awaited = awaited);
        }
    }

    /// Ends the stay: every matching publication that was sent during the stay is owed.
    pub(super) fn want_to_leave(&mut self, session: u32, now_ns: u64) {
        let sent = self.shared.sent(now_ns);
        let workload = &self.shared.workload;
        let Some(visit) = self.sessions.get_mut(&session).and_then(|open| open.visit.as_mut()) else {
            return;
        };
        for (n, stay) in visit.subscriptions.iter_mut().enumerate() {
            stay.during = sent.difference(&visit.before).collect();
            let owed = workload.live[stay.live as usize].matches.ones().filter(|_| !stay.closed);
            let owed = owed.filter(|p| stay.during.contains(*p) && !stay.seen.contains(*p));
            visit.missing.extend(owed.map(|p| (n, p)));
        }
    }

    /// Whether everything that is owed to a session has come, after the end of its stay.
    pub(super) fn has_everything(&mut self, session: u32) -> bool {
        let shared = &self.shared;
        let Some(visit) = self.sessions.get_mut(&session).and_then(|open| open.visit.as_mut()) else {
            return true;
        };
        let subscriptions = &visit.subscriptions;
        visit.missing.retain(|(n, p)| {
            let stay = &subscriptions[*n];
            !stay.closed && !stay.seen.contains(*p) && !shared.fate(*p).is_undelivered()
        });
        visit.missing.is_empty()
    }

    /// Sums up what a session's live subscriptions saw, and keeps what a later answer may still change.
    /// A session whose stay did not end is owed no delivery.
    pub(super) fn keep_visit(&mut self, session: u32, visit: Visit) {
        let shared = Arc::clone(&self.shared);
        let place = |n: usize| u32::try_from(n).expect("a plan numbers its events by u32");
        for (filter, stay) in (0..).zip(visit.subscriptions) {
            let OpenStay { live, during, seen, closed, .. } = stay;
            let matches = &shared.workload.live[live as usize].matches;
            let missing = during.ones().filter(|n| matches.contains(*n) && !seen.contains(*n));
            let missing = missing.filter(|n| !shared.fate(*n).is_undelivered());
            let came = |n: &usize| matches!(shared.fate(*n), Fate::Acked | Fate::Elsewhere);
            let (came, open): (Vec<_>, Vec<_>) = seen.ones().partition(came);
            self.report.counts.deliveries_expected += came.len() as u64;
            self.report.counts.deliveries += came.len() as u64;
            let [seen, missing]: [Box<[u32]>; 2] =
                [open.into_iter().map(place).collect(), missing.map(place).collect()];
            if !seen.is_empty() || !missing.is_empty() {
                let subscription = Subscription::Stay { session, filter };
                self.report.stays.push(Stay { subscription, live, seen, missing, closed });
            }
        }
    }
}
