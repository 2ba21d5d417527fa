//! Live subscriptions: of subscribers for the whole run, of sessions for a while.

use std::sync::atomic::Ordering;

use codecs::Event;

use super::{Client, Wake, report::Stay};
use crate::{bits::Bits, recorder::Metric, shared::Fate};

/// The live subscriptions of a session.
#[derive(Debug)]
pub(super) struct Visit {
    /// Subscriptions whose EOSE is missing.
    pub(super) waiting_for: usize,
    /// What each has seen and is owed.
    subscriptions: Vec<Stay>,
    /// Publications sent before the last EOSE.
    before: Bits,
    /// Once it wants to leave: what is owed and has not come, by subscription.
    missing: Vec<(usize, usize)>,
}

/// The id of a live subscription of a subscriber.
pub(super) fn live_name(n: usize) -> String {
    format!("live-{n}")
}

pub(super) fn live_index(subscription: &str) -> Option<usize> {
    subscription.strip_prefix("live-")?.parse().ok()
}

/// The id of a live subscription of a session.
pub(super) fn visit_name(session: u32, n: usize) -> String {
    format!("v{session}-{n}")
}

pub(super) fn visit_index(subscription: &str) -> Option<(u32, usize)> {
    let (session, n) = subscription.strip_prefix('v')?.split_once('-')?;
    Some((session.parse().ok()?, n.parse().ok()?))
}

impl Client {
    /// A delivery on a subscription that lasts as long as the run.
    pub(super) fn live_delivery(&mut self, subscription: usize, event: &Event<'_>, now_ns: u64) {
        let Some(publication) = self.published(event) else { return };
        let Some(seen) = self.report.seen.get_mut(subscription) else {
            self.report.unexpected += 1;
            return;
        };
        if !seen.insert(publication) {
            self.report.duplicated += 1;
            return;
        }
        self.time_delivery(publication, now_ns);
        self.shared.delivered(1);
        if self.reader.is_none() {
            self.shared.done(1);
        }
    }

    /// A delivery on a subscription of a session.
    pub(super) fn visit_delivery(&mut self, (session, n): (u32, usize), event: &Event<'_>, now_ns: u64) {
        let Some(publication) = self.published(event) else { return };
        let visit = self.sessions.get_mut(&session).and_then(|session| session.visit.as_mut());
        // A live event may overtake our CLOSE.
        let Some(stay) = visit.and_then(|visit| visit.subscriptions.get_mut(n)) else { return };
        if !self.shared.workload.live[stay.live as usize].matches.contains(publication) {
            self.report.unexpected += 1;
        } else if stay.seen.insert(publication) {
            self.time_delivery(publication, now_ns);
            self.shared.delivered(1);
        } else {
            self.report.duplicated += 1;
        }
    }

    /// The publication of an event that arrived as it was sent.
    fn published(&mut self, event: &Event<'_>) -> Option<usize> {
        let shared = &self.shared;
        let Some(publication) = shared.publication_of(&event.id) else {
            self.report.unexpected += 1;
            return None;
        };
        let planned = &shared.workload.publications[publication];
        if shared.workload.events[planned.event as usize] != *event {
            self.report.altered += 1;
            return None;
        }
        Some(publication)
    }

    fn time_delivery(&mut self, publication: usize, now_ns: u64) {
        let sent_ns = self.shared.sent_ns[publication].load(Ordering::Relaxed);
        let due_ns = self.shared.due_ns(publication);
        let times = [(Metric::Response, due_ns), (Metric::Service, sent_ns)];
        if !self.shared.workload.is_measured(due_ns) {
            return;
        }
        let mut recorder = self.recorder.borrow_mut();
        for (metric, since_ns) in times {
            if self.reader.is_some() {
                recorder.record_apart(self.label, metric, now_ns.saturating_sub(since_ns));
            } else {
                recorder.record_from(self.label, metric, since_ns, now_ns);
            }
        }
    }

    /// Opens the live subscriptions of a session.
    pub(super) async fn start_visit(&mut self, session: u32) -> anyhow::Result<()> {
        let shared = std::sync::Arc::clone(&self.shared);
        let filters = &shared.workload.sessions[session as usize].live;
        let publications = shared.workload.publications.len();
        for (n, live) in filters.iter().enumerate() {
            let filter = &shared.workload.live[*live as usize].filter;
            self.feed_request(&visit_name(session, n), filter).await?;
        }
        let stay =
            |live: &u32| Stay { live: *live, during: Bits::default(), seen: Bits::of_len(publications) };
        if let Some(open) = self.sessions.get_mut(&session) {
            open.visit = Some(Visit {
                waiting_for: filters.len(),
                subscriptions: filters.iter().map(stay).collect(),
                before: Bits::default(),
                missing: Vec::new(),
            });
        }
        Ok(())
    }

    /// Notes the EOSE of one of a session's live subscriptions; with the last of them the stay begins.
    pub(super) fn visit_eose(&mut self, session: u32) {
        let stay = self.shared.workload.sessions[session as usize].stay;
        let Some(visit) = self.sessions.get_mut(&session).and_then(|open| open.visit.as_mut()) else {
            return;
        };
        visit.waiting_for = visit.waiting_for.saturating_sub(1);
        if visit.waiting_for == 0 {
            visit.before = self.shared.sent();
            self.wake_after(stay, Wake::Leave(session));
        }
    }

    /// The client wants to leave: what was sent during its stay is still owed to it.
    pub(super) fn want_to_leave(&mut self, session: u32) {
        let sent = self.shared.sent();
        let workload = &self.shared.workload;
        let Some(visit) = self.sessions.get_mut(&session).and_then(|open| open.visit.as_mut()) else {
            return;
        };
        let publications = workload.publications.len();
        for (n, stay) in visit.subscriptions.iter_mut().enumerate() {
            stay.during = (0..publications).map(|p| sent.contains(p) && !visit.before.contains(p)).collect();
            let owed = workload.live[stay.live as usize].matches.iter();
            let owed = owed.filter(|p| stay.during.contains(*p) && !stay.seen.contains(*p));
            visit.missing.extend(owed.map(|p| (n, p)));
        }
    }

    /// Whether a client that wants to leave has all that is owed to it.
    pub(super) fn has_everything(&mut self, session: u32) -> bool {
        let shared = &self.shared;
        let Some(visit) = self.sessions.get_mut(&session).and_then(|open| open.visit.as_mut()) else {
            return true;
        };
        let subscriptions = &visit.subscriptions;
        visit.missing.retain(|(n, p)| {
            !subscriptions[*n].seen.contains(*p) && !matches!(shared.fate(*p), Fate::Rejected | Fate::Dropped)
        });
        visit.missing.is_empty()
    }

    /// Keeps what a session's live subscriptions saw. A session that had no chance to leave proves nothing of what
    /// it was owed.
    pub(super) fn keep_visit(&mut self, visit: Visit) {
        self.report.stays.extend(visit.subscriptions.into_iter().map(|mut stay| {
            if stay.during.count() == 0 {
                stay.during = Bits::of_len(self.shared.workload.publications.len());
            }
            stay
        }));
    }
}
