//! Live subscriptions: those of subscribers last as long as the run, those of sessions for a stay.

use std::sync::Arc;

use ahash::HashMap;
use codecs::hex;
use fixedbitset::FixedBitSet;

use super::{Action, Client, OpenSession, Report, Stay, Subscription, Wake, Words};
use crate::{
    incidents::Wrong,
    shared::{Fate, Shared},
};
use workload::{Live, Task, Timing, Workload, schedule::nanos};

/// The live subscriptions of a session.
#[derive(Debug)]
pub(super) struct Visit {
    subscriptions: Vec<Following>,
    /// Publications sent before the last of their EOSEs.
    before: FixedBitSet,
    /// Publications sent during the stay, once it is over.
    during: FixedBitSet,
}

/// A live subscription: of a subscriber as long as the run, or of a session for its stay.
#[derive(Debug, Default)]
pub struct Following {
    /// Its filter, as a place in `Workload::live`.
    pub live: u32,
    /// Whether its EOSE is missing.
    pub(crate) opening: bool,
    /// Whether it was sent the stored event that it asked for.
    answered: bool,
    /// The publications that came.
    pub seen: FixedBitSet,
    /// Which of them came before EOSE and have not come again.
    stored: FixedBitSet,
    /// Whether the relay ended the subscription (CLOSED).
    pub closed: bool,
    last: LastOfEach,
}

impl Following {
    /// The matching publications among these that did not come and were not refused.
    fn missing<'a>(&'a self, among: &'a FixedBitSet, shared: &'a Shared) -> impl Iterator<Item = usize> + 'a {
        let unseen = shared.workload.live[self.live as usize].matches.difference(&self.seen);
        unseen.filter(|n| among.contains(*n) && !shared.fate(*n).is_undelivered())
    }
}

/// The latest publication that came of each publisher, by its connection, plus one.
#[derive(Debug, Clone, Default)]
struct LastOfEach(Vec<u32>);

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

/// A live subscription that a client has open.
fn following<'a>(
    report: &'a mut Report,
    sessions: &'a mut HashMap<u32, OpenSession>,
    subscription: Subscription,
) -> Option<&'a mut Following> {
    match subscription {
        Subscription::Live(filter) => report.live.get_mut(filter as usize),
        Subscription::Stay { session, filter } => {
            sessions.get_mut(&session)?.visit.as_mut()?.subscriptions.get_mut(filter as usize)
        }
        _ => None,
    }
}

impl Client {
    /// The filter of a live subscription that was opened at any time, as a place in `Workload::live`.
    pub(super) fn followed(&self, subscription: Subscription) -> Option<u32> {
        let workload = &self.shared.workload;
        match subscription {
            Subscription::Live(filter) => workload.roles[self.id].filters().get(filter as usize).copied(),
            Subscription::Stay { session, filter } => {
                let is_open = self.sessions.get(&session).is_some_and(|open| open.visit.is_some());
                let was_opened = is_open || self.ended.contains(&session);
                let planned = workload.sessions.get(session as usize).filter(|_| was_opened)?;
                planned.live.get(filter as usize).copied()
            }
            _ => None,
        }
    }

    /// Whether the EOSE of a live subscription is missing.
    pub(super) fn awaits_live(&mut self, subscription: Subscription) -> bool {
        following(&mut self.report, &mut self.sessions, subscription).is_some_and(|open| open.opening)
    }

    /// Sends the REQ of a live subscription.
    pub(super) fn follow(&mut self, subscription: Subscription, live: u32) -> Following {
        let shared = Arc::clone(&self.shared);
        self.request(subscription, &shared.workload.live[live as usize].filter);
        let seen = FixedBitSet::with_capacity(shared.workload.publications.len());
        Following { live, opening: true, seen, ..Following::default() }
    }

    /// Takes a delivery on a live subscription.
    ///
    /// The delivery is one of: misrouted, the stored event that opens the subscription, a stray, late,
    /// owed, or a repeat.
    pub(super) fn live_delivery(&mut self, subscription: Subscription, found: u32, now_ns: u64) {
        let Some(live) = self.followed(subscription) else {
            return self.wrong(Wrong::Misrouted, &subscription, found);
        };
        let workload = &self.shared.workload;
        let Live { filter, matches } = &workload.live[live as usize];
        let event = &workload.events[found as usize];
        let mut open = following(&mut self.report, &mut self.sessions, subscription);
        if let Some(open) = &mut open
            && open.opening
            && filter.limit != Some(0)
            && filter.matches(event)
            && !std::mem::replace(&mut open.answered, true)
        {
            // The REQ has `limit: 1`, so the relay owes one stored event, and this is it.
            return;
        }
        let matching = workload.publication_of(found).filter(|p| matches.contains(*p));
        let Some((open, publication)) = open.zip(matching) else {
            // A live event may be on the way when the relay reads CLOSE.
            let after_close =
                matches!(subscription, Subscription::Stay { session, .. } if self.ended.contains(&session));
            let matches = filter.matches(event);
            return self.count_stray(subscription, found, matches, after_close);
        };
        if open.closed {
            return self.wrong(Wrong::Unexpected, &subscription, found);
        }
        if open.seen.put(publication) {
            if !workload.tolerates_seam || !open.stored.contains(publication) {
                return self.wrong(Wrong::Duplicated, &subscription, found);
            }
            open.stored.remove(publication);
            self.report.counts.deliveries_duplicated_at_seam += 1;
            return;
        }
        // Only live events have an order: stored ones, before EOSE, come the newest first.
        let later = if open.opening { None } else { open.last.note(workload, publication) };
        self.time_delivery(publication, now_ns);
        self.shared.delivered(1);
        if let Some(later) = later {
            self.came_behind(publication, later);
        }
        if let Subscription::Live(_) = subscription {
            if self.reader.is_none() {
                self.shared.no_longer_owed(publication);
            }
            self.light.iter_mut().for_each(|light| light.awaited = light.awaited.saturating_sub(1));
        }
    }

    /// Counts a live event that came behind a later one of its publisher.
    #[cold]
    fn came_behind(&mut self, publication: usize, later: usize) {
        self.report.counts.deliveries_live_out_of_order += 1;
        let workload = &self.shared.workload;
        let id = |n: usize| hex::encode(&workload.events[workload.publications[n].event as usize].id);
        let words = || format!("event {} behind {}", id(publication), id(later));
        self.report.tell(Words::LiveOutOfOrder, words);
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
        let filters = (0..).zip(&shared.workload.sessions[session as usize].live);
        let subscriptions = filters
            .map(|(filter, live)| self.follow(Subscription::Stay { session, filter }, *live))
            .collect();
        if let Some(open) = self.sessions.get_mut(&session) {
            let [before, during] = [FixedBitSet::new(), FixedBitSet::new()];
            open.visit = Some(Visit { subscriptions, before, during });
        }
    }

    /// Takes the EOSE of a live subscription; the last one of a session begins its stay. False when
    /// none was owed.
    pub(super) fn live_eose(&mut self, subscription: Subscription, now_ns: u64) -> bool {
        let open = following(&mut self.report, &mut self.sessions, subscription);
        let Some(open) = open.filter(|open| open.opening) else { return false };
        open.opening = false;
        let Subscription::Stay { session, .. } = subscription else { return true };
        open.stored = open.seen.clone();
        let visit = self.sessions.get_mut(&session).and_then(|open| open.visit.as_mut());
        if let Some(visit) = visit.filter(|visit| visit.subscriptions.iter().all(|open| !open.opening)) {
            visit.before = self.shared.perhaps_sent(now_ns);
            let stay = self.shared.workload.sessions[session as usize].stay;
            self.wake_at(now_ns + nanos(stay), Wake::Leave(session));
        }
        true
    }

    /// Takes a CLOSED of a live subscription: nothing more is owed to it. The other subscriptions go
    /// on.
    pub(super) fn live_closed(&mut self, subscription: Subscription, now_ns: u64) {
        let open = following(&mut self.report, &mut self.sessions, subscription);
        let Some(open) = open.filter(|open| !open.closed) else { return };
        open.closed = true;
        self.report.counts.subscriptions_closed += 1;
        self.live_eose(subscription, now_ns);
        if let Subscription::Live(filter) = subscription
            && self.reader.is_none()
        {
            let Following { live, seen, .. } = &self.report.live[filter as usize];
            let unseen = self.shared.workload.live[*live as usize].matches.difference(seen);
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
        if let Some(visit) = self.sessions.get_mut(&session).and_then(|open| open.visit.as_mut()) {
            visit.during = self.shared.sent(now_ns).difference(&visit.before).collect();
        }
    }

    /// Whether everything that is owed to a session has come, after the end of its stay.
    pub(super) fn has_everything(&self, session: u32) -> bool {
        let visit = self.sessions.get(&session).and_then(|open| open.visit.as_ref());
        visit.is_none_or(|visit| {
            let mut open = visit.subscriptions.iter().filter(|stay| !stay.closed);
            open.all(|stay| stay.missing(&visit.during, &self.shared).next().is_none())
        })
    }

    /// Sums up what a session's live subscriptions saw, and keeps what a later answer may still change.
    /// A session whose stay did not end is owed no delivery.
    pub(super) fn keep_visit(&mut self, session: u32, visit: &Visit) {
        let shared = Arc::clone(&self.shared);
        let place = |n: usize| u32::try_from(n).expect("a plan numbers its events by u32");
        for (filter, stay) in (0..).zip(&visit.subscriptions) {
            let came = |n: &usize| matches!(shared.fate(*n), Fate::Acked | Fate::Elsewhere);
            let (came, open): (Vec<_>, Vec<_>) = stay.seen.ones().partition(came);
            self.report.counts.deliveries_expected += came.len() as u64;
            self.report.counts.deliveries += came.len() as u64;
            let seen: Box<[u32]> = open.into_iter().map(place).collect();
            let missing: Box<[u32]> = stay.missing(&visit.during, &shared).map(place).collect();
            if !seen.is_empty() || !missing.is_empty() {
                let subscription = Subscription::Stay { session, filter };
                let Following { live, closed, .. } = *stay;
                self.report.stays.push(Stay { subscription, live, seen, missing, closed });
            }
        }
    }
}
