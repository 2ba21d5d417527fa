//! Reconciliations (NIP-77): rounds of messages until the difference is known; then the client
//! fetches the events that it lacks and publishes those that only it has.
//!
//! Other clients publish meanwhile. The relay must name the events that it accepted before
//! NEG-OPEN, and may name those that were sent before the last round.

use std::sync::Arc;

use codecs::{ClientMessage, Event, Filter};
use fixedbitset::FixedBitSet;
use negentropy::{Id, Negentropy, NegentropyStorageVector};

use super::{
    Client, Subscription,
    session::{OpenRequest, lacked},
};
use crate::{incidents::Wrong, shared::Fate};
use workload::{Reconciliation, Timing, Workload};

/// A reconciliation under way.
#[derive(Debug)]
pub(super) struct OpenReconciliation {
    due_ns: u64,
    protocol: Negentropy<'static, NegentropyStorageVector>,
    /// Publications that the relay had accepted before NEG-OPEN.
    before: FixedBitSet,
    have: Vec<Id>,
    need: Vec<Id>,
    /// How many fetches wait for their EOSE.
    fetching: usize,
    /// Whether the relay refused a fetch.
    refused: bool,
    /// Publications whose OK is missing.
    publishing: Vec<usize>,
    /// Whether the difference is known.
    known: bool,
}

impl OpenReconciliation {
    /// Whether the difference is known.
    pub(super) fn is_known(&self) -> bool {
        self.known
    }
}

impl Client {
    /// Sends the first message of a reconciliation that is due.
    pub(super) fn start_reconciling(&mut self, n: u32) {
        let shared = Arc::clone(&self.shared);
        let Some(planned) = planned(&shared.workload, n) else { return };
        let Some(due_ns) = self.sessions.get(&n).map(|session| session.started_ns) else { return };
        let begun = begin(&shared.workload, planned)
            .and_then(|mut protocol| protocol.initiate().map(|message| (protocol, message)));
        let (protocol, message) = match begun {
            Ok(begun) => begun,
            Err(error) => return self.fail(format!("negentropy does not begin: {error}")),
        };
        let open = OpenReconciliation {
            due_ns,
            protocol,
            before: shared.accepted(),
            have: Vec::new(),
            need: Vec::new(),
            fetching: 0,
            refused: false,
            publishing: Vec::new(),
            known: false,
        };
        self.reconciliations.insert(n, open);
        self.count_round(message.len());
        let subscription = Subscription::Reconciliation(n).to_string().into();
        let filter = planned.filter.clone();
        self.send(&ClientMessage::NegOpen { subscription, filter, message: message.into() });
    }

    /// Whether a NEG-MSG is owed.
    pub(super) fn is_round(&self, n: u32) -> bool {
        self.reconciliations.get(&n).is_some_and(|open| !open.known)
    }

    /// Answers a NEG-MSG; after the last one fetches and publishes the difference.
    pub(super) fn go_on_reconciling(&mut self, n: u32, message: &[u8], now_ns: u64) {
        let Some(open) = self.reconciliations.get_mut(&n) else { return };
        self.report.counts.negentropy_bytes += message.len() as u64;
        let next = match open.protocol.reconcile_with_ids(message, &mut open.have, &mut open.need) {
            Ok(next) => next,
            Err(error) => {
                self.report.counts.decode_errors += 1;
                self.complain(|| format!("a NEG-MSG that is not negentropy: {error}"));
                return self.give_up_reconciling(n, now_ns);
            }
        };
        let subscription = Subscription::Reconciliation(n).to_string().into();
        if let Some(message) = next {
            self.count_round(message.len());
            return self.send(&ClientMessage::NegMsg { subscription, message: message.into() });
        }
        open.known = true;
        let due_ns = open.due_ns;
        self.record(Timing::Reconcile, due_ns, now_ns);
        self.report.counts.reconciliations += 1;
        self.send(&ClientMessage::NegClose { subscription });
        let wanted = self.what_to_fetch(n);
        self.fetch(n, &wanted, now_ns);
        self.publish_own(n);
        self.end_reconciliations(now_ns);
    }

    fn count_round(&mut self, bytes: usize) {
        self.report.counts.negentropy_rounds += 1;
        self.report.counts.negentropy_bytes += bytes as u64;
    }

    /// Judges the difference: returns the events to fetch, and counts those that the relay should
    /// not have named.
    fn what_to_fetch(&mut self, n: u32) -> Vec<u32> {
        let shared = Arc::clone(&self.shared);
        let workload = &shared.workload;
        let (Some(planned), Some(open)) = (planned(workload, n), self.reconciliations.get_mut(&n)) else {
            return Vec::new();
        };
        let mut difference = [std::mem::take(&mut open.need), std::mem::take(&mut open.have)];
        // Ids may come twice: the rest of a range whose frame was full is compared anew.
        for ids in &mut difference {
            ids.sort_unstable();
            ids.dedup();
        }
        let [need, have] = difference;
        let counts = &mut self.report.counts;
        let mut wanted = Vec::with_capacity(need.len());
        let mut strays = Vec::new();
        let mut lacks_named = FixedBitSet::with_capacity(planned.lacks.len());
        let mut named = FixedBitSet::with_capacity(workload.publications.len());
        // When another agent sends, only that agent knows.
        let sent = |publication| shared.was_sent(publication) || shared.is_elsewhere(publication);
        for id in need {
            let found = workload.find(&id.to_bytes());
            match (found, found.and_then(|event| planned.lacks.binary_search(&event).ok())) {
                (Some(event), Some(position)) => {
                    lacks_named.insert(position);
                    wanted.push(event);
                }
                // An event of another client; the relay cannot have one that was not sent.
                (Some(event), None) if !planned.own.contains(&event) => {
                    match workload.publication_of(event) {
                        Some(publication) if sent(publication) && !named.put(publication) => {
                            counts.deliveries_expected += 1;
                            wanted.push(event);
                        }
                        _ => strays.push(id),
                    }
                }
                (None, _) if workload.foreign.contains(&id.to_bytes()) => {}
                _ => strays.push(id),
            }
        }
        if workload.reports_foreign {
            let unknown = strays.iter().map(|id| id.to_bytes()).filter(|id| workload.find(id).is_none());
            self.report.foreign.extend(unknown);
        }
        // Events that the relay accepted before NEG-OPEN and did not name are owed, and so are
        // lost.
        let concerns = |publication: usize| {
            let event = workload.publications[publication].event;
            planned.filter.matches(&workload.events[event as usize]) && !planned.own.contains(&event)
        };
        let unnamed: Vec<_> = open.before.ones().filter(|p| concerns(*p) && !named.contains(*p)).collect();
        counts.deliveries_expected += unnamed.len() as u64;
        let lost = unnamed.into_iter().map(|publication| workload.publications[publication].event);
        let lacks = planned.lacks.iter().enumerate().filter(|(position, _)| !lacks_named.contains(*position));
        let lost = lost.chain(lacks.map(|(_, event)| *event));
        let subscription = Subscription::Reconciliation(n);
        lost.for_each(|event| self.wrong(Wrong::Lost, &subscription, event));
        // Only the events that nobody else has may be named as lacking on the relay.
        let is_own =
            |id: &Id| workload.find(&id.to_bytes()).is_some_and(|event| planned.own.contains(&event));
        strays.extend(have.into_iter().filter(|id| !is_own(id)));
        for id in strays {
            let kind = workload.find(&id.to_bytes()).map(|event| workload.events[event as usize].kind);
            self.count_wrong(Wrong::Unexpected, &subscription.to_string(), (&id.to_bytes(), kind));
        }
        wanted
    }

    /// Requests events by their ids.
    fn fetch(&mut self, n: u32, wanted: &[u32], now_ns: u64) {
        let shared = Arc::clone(&self.shared);
        let workload = &shared.workload;
        let (Some(planned), Some(open)) = (planned(workload, n), self.reconciliations.get_mut(&n)) else {
            return;
        };
        let due_ns = open.due_ns;
        open.fetching = wanted.chunks(planned.chunk).len();
        for (chunk, events) in (0..).zip(wanted.chunks(planned.chunk)) {
            let ids: Vec<_> = events.iter().map(|event| workload.events[*event as usize].id).collect();
            let limit = Some(ids.len() as u64);
            let filter = Filter { ids: Some(ids), limit, ..Filter::default() };
            let subscription = Subscription::Fetch { session: n, chunk };
            self.request(subscription, &filter);
            let mut expected = events.to_vec();
            expected.sort_unstable();
            let seen = FixedBitSet::with_capacity(expected.len());
            self.fetches.insert((n, chunk), expected);
            self.requests.insert(subscription, OpenRequest { due_ns, sent_ns: now_ns, seen, last: None });
        }
    }

    fn publish_own(&mut self, n: u32) {
        let workload = &self.shared.workload;
        let Some(planned) = planned(workload, n) else { return };
        // In a loop, the relay has them from the time before.
        let is_unsent = |publication: &usize| !self.shared.was_sent(*publication);
        let own = planned.own.iter().filter_map(|event| workload.publication_of(*event)).filter(is_unsent);
        let own: Vec<usize> = own.collect();
        self.backlog.own.extend(own.iter().filter_map(|publication| u32::try_from(*publication).ok()));
        if let Some(open) = self.reconciliations.get_mut(&n) {
            open.publishing = own;
        }
    }

    /// Takes the end of a fetch.
    pub(super) fn end_of_fetch(&mut self, n: u32, is_eose: bool, now_ns: u64) {
        if let Some(open) = self.reconciliations.get_mut(&n) {
            open.fetching -= 1;
            open.refused |= !is_eose;
        }
        self.end_reconciliations(now_ns);
    }

    /// Ends the sessions whose events have all been fetched and published.
    pub(super) fn end_reconciliations(&mut self, now_ns: u64) {
        let settled = |p: &usize| self.shared.fate(*p) != Fate::Planned;
        let is_over = |open: &OpenReconciliation| {
            open.known && open.fetching == 0 && open.publishing.iter().all(settled)
        };
        let mut over: Vec<u32> =
            self.reconciliations.iter().filter(|(_, open)| is_over(open)).map(|(n, _)| *n).collect();
        over.sort_unstable();
        for n in over {
            let refused = self.reconciliations.remove(&n).is_some_and(|open| open.refused);
            self.report.counts.requests_completed += u64::from(!refused);
            self.report.last_ns = now_ns;
            self.note_session(n, now_ns);
            self.end_session(n, now_ns);
        }
    }

    /// Ends a reconciliation that the relay refused or answered wrongly. The events that only this
    /// client has are not published.
    pub(super) fn give_up_reconciling(&mut self, n: u32, now_ns: u64) {
        if self.reconciliations.remove(&n).is_none() {
            return;
        }
        let shared = Arc::clone(&self.shared);
        for (subscription, event) in lacked(&shared.workload.sessions[n as usize], n) {
            self.wrong(Wrong::Lost, &subscription, event);
        }
        let own = planned(&shared.workload, n).into_iter().flat_map(|planned| &planned.own);
        for publication in own.filter_map(|event| shared.workload.publication_of(*event)) {
            if !shared.was_sent(publication) {
                shared.settle(publication, Fate::NotSent);
                self.backlog.own.retain(|own| *own as usize != publication);
            }
        }
        self.end_session(n, now_ns);
    }
}

fn planned(workload: &Workload, n: u32) -> Option<&Reconciliation> {
    workload.sessions.get(n as usize)?.reconciliation.as_ref()
}

/// Sets up negentropy over the events that the client has.
fn begin(
    workload: &Workload,
    planned: &Reconciliation,
) -> Result<Negentropy<'static, NegentropyStorageVector>, negentropy::Error> {
    let mut storage = NegentropyStorageVector::with_capacity(planned.has.len() + planned.own.len());
    for event in planned.has.iter().chain(&planned.own) {
        let Event { created_at, id, .. } = &workload.events[*event as usize];
        // Negentropy timestamps are unsigned; both ends count earlier events as of 1970.
        storage.insert(u64::try_from(*created_at).unwrap_or(0), Id::from_byte_array(*id))?;
    }
    storage.seal()?;
    Negentropy::owned(storage, planned.frame_bytes as u64)
}
