//! Reconciliations (NIP-77): rounds until the difference is known, then what the client lacks is fetched and what only
//! it has is published.
//!
//! Others publish meanwhile. What the relay had accepted before NEG-OPEN it must name; what was sent by the end it may.

use std::{collections::HashMap, sync::Arc};

use anyhow::Context;
use codecs::{ClientMessage, Event, Filter};
use negentropy::{Id, Negentropy, NegentropyStorageVector};

use super::{BATCH, Client};
use crate::{
    bits::Bits,
    recorder::Metric,
    shared::Fate,
    workload::{Reconciliation, Workload},
};

/// A reconciliation under way.
#[derive(Debug)]
pub(super) struct OpenReconciliation {
    due_ns: u64,
    protocol: Negentropy<'static, NegentropyStorageVector>,
    /// What the relay had accepted when it began.
    before: Bits,
    have: Vec<Id>,
    need: Vec<Id>,
    /// Events that are fetched, and whether they came.
    fetched: HashMap<u32, bool>,
    /// Requests whose EOSE is missing.
    fetching: usize,
    /// Publications whose OK is missing.
    publishing: Vec<usize>,
    /// Set once the difference is known.
    known: bool,
}

pub(super) fn round_index(subscription: &str) -> Option<u32> {
    subscription.strip_prefix('n')?.parse().ok()
}

/// The session of a request for what it lacks.
pub(super) fn fetch_index(subscription: &str) -> Option<u32> {
    subscription.strip_prefix('f')?.split_once('-')?.0.parse().ok()
}

impl Client {
    /// Sends the first message of a reconciliation that is due.
    pub(super) async fn start_reconciling(&mut self, n: u32, due_ns: u64) -> anyhow::Result<()> {
        let shared = Arc::clone(&self.shared);
        let Some(planned) = planned(&shared.workload, n) else { return Ok(()) };
        let mut protocol = begin(&shared.workload, planned).context("negentropy does not begin")?;
        let message = protocol.initiate().context("negentropy does not begin")?;
        let open = OpenReconciliation {
            due_ns,
            protocol,
            before: shared.accepted(),
            have: Vec::new(),
            need: Vec::new(),
            fetched: HashMap::new(),
            fetching: 0,
            publishing: Vec::new(),
            known: false,
        };
        self.reconciliations.insert(n, open);
        self.count_round(message.len());
        let subscription = format!("n{n}").into();
        let filter = planned.filter.clone();
        self.feed(&ClientMessage::NegOpen { subscription, filter, message: message.into() }).await
    }

    /// Answers the relay's message, or goes on with the difference once it is known.
    pub(super) async fn go_on_reconciling(
        &mut self,
        n: u32,
        message: &[u8],
        now_ns: u64,
    ) -> anyhow::Result<()> {
        self.report.negentropy_bytes += message.len() as u64;
        let Some(open) = self.reconciliations.get_mut(&n).filter(|open| !open.known) else {
            self.report.unexpected += 1;
            return Ok(());
        };
        let next = match open.protocol.reconcile_with_ids(message, &mut open.have, &mut open.need) {
            Ok(next) => next,
            Err(error) => {
                self.report.decode_errors += 1;
                self.complain(|| format!("a NEG-MSG that is not negentropy: {error}"));
                return self.give_up_reconciling(n).await;
            }
        };
        let subscription = format!("n{n}").into();
        if let Some(message) = next {
            self.count_round(message.len());
            return self.feed(&ClientMessage::NegMsg { subscription, message: message.into() }).await;
        }
        open.known = true;
        let due_ns = open.due_ns;
        self.record(Metric::Reconcile, due_ns, now_ns);
        self.report.reconciliations += 1;
        self.feed(&ClientMessage::NegClose { subscription }).await?;
        let wanted = self.what_to_fetch(n);
        self.fetch(n, &wanted).await?;
        self.publish_own(n).await?;
        self.end_reconciliations(now_ns).await
    }

    fn count_round(&mut self, bytes: usize) {
        self.report.negentropy_rounds += 1;
        self.report.negentropy_bytes += bytes as u64;
    }

    /// Judges the difference: which of the needed events are worth fetching, and what should not be among them.
    fn what_to_fetch(&mut self, n: u32) -> Vec<u32> {
        let shared = Arc::clone(&self.shared);
        let workload = &shared.workload;
        let (Some(planned), Some(open)) = (planned(workload, n), self.reconciliations.get_mut(&n)) else {
            return Vec::new();
        };
        let mut difference = [std::mem::take(&mut open.need), std::mem::take(&mut open.have)];
        // Where a frame was full, the rest of a range is compared anew and may be named again.
        for ids in &mut difference {
            ids.sort_unstable();
            ids.dedup();
        }
        let [need, have] = difference;
        let mut wanted = Vec::with_capacity(need.len());
        let mut named = Bits::of_len(workload.publications.len());
        for id in need {
            match workload.find(&id.to_bytes()) {
                Some(event) if planned.lacks.binary_search(&event).is_ok() => wanted.push(event),
                // Another client published it; the relay cannot have it before it was sent.
                Some(event) if !planned.own.contains(&event) => match workload.publication_of(event) {
                    Some(publication) if shared.was_sent(publication) && named.insert(publication) => {
                        self.report.owed += 1;
                        wanted.push(event);
                    }
                    _ => self.report.unexpected += 1,
                },
                _ => self.report.unexpected += 1,
            }
        }
        // What the relay had accepted before, it must name: what it does not name is owed and never comes.
        let open = &self.reconciliations[&n];
        let concerns = |publication: usize| {
            let event = workload.publications[publication].event;
            planned.filter.matches(&workload.events[event as usize]) && !planned.own.contains(&event)
        };
        self.report.owed += open.before.iter().filter(|p| concerns(*p) && !named.contains(*p)).count() as u64;
        // What the client has alone is what nobody else was planned to have.
        let alone = have
            .iter()
            .filter(|id| workload.find(&id.to_bytes()).is_some_and(|event| planned.own.contains(&event)));
        let alone = alone.count();
        self.report.unexpected += (have.len() - alone) as u64;
        wanted
    }

    /// Asks for events by their ids.
    async fn fetch(&mut self, n: u32, wanted: &[u32]) -> anyhow::Result<()> {
        let shared = Arc::clone(&self.shared);
        let workload = &shared.workload;
        let Some(planned) = planned(workload, n) else { return Ok(()) };
        if let Some(open) = self.reconciliations.get_mut(&n) {
            open.fetching = wanted.chunks(planned.chunk).len();
            open.fetched = wanted.iter().map(|event| (*event, false)).collect();
        }
        for (i, chunk) in wanted.chunks(planned.chunk).enumerate() {
            let ids: Vec<_> = chunk.iter().map(|event| workload.events[*event as usize].id).collect();
            let limit = Some(ids.len() as u64);
            let filter = Filter { ids: Some(ids), limit, ..Filter::default() };
            self.feed_request(&format!("f{n}-{i}"), &filter).await?;
        }
        Ok(())
    }

    async fn publish_own(&mut self, n: u32) -> anyhow::Result<()> {
        let shared = Arc::clone(&self.shared);
        let Some(planned) = planned(&shared.workload, n) else { return Ok(()) };
        let own = planned.own.iter().filter_map(|event| shared.workload.publication_of(*event));
        let own: Vec<usize> = own.collect();
        for (count, publication) in (1..).zip(&own) {
            self.publish(u32::try_from(*publication)?).await?;
            if count % BATCH == 0 {
                self.flush().await?;
            }
        }
        if let Some(open) = self.reconciliations.get_mut(&n) {
            open.publishing = own;
        }
        Ok(())
    }

    /// An event that the client lacked.
    pub(super) fn fetched(&mut self, n: u32, event: &Event<'_>, now_ns: u64) {
        let workload = &self.shared.workload;
        let open = self.reconciliations.get_mut(&n);
        let found = workload.find(&event.id);
        let Some((open, came, found)) = open.and_then(|open| {
            let (due_ns, found) = (open.due_ns, found?);
            Some((due_ns, open.fetched.get_mut(&found)?, found))
        }) else {
            self.report.unexpected += 1;
            return;
        };
        if workload.events[found as usize] != *event {
            self.report.altered += 1;
        } else if std::mem::replace(came, true) {
            self.report.duplicated += 1;
        } else {
            self.report.deliveries += 1;
            self.shared.delivered(1);
            self.record(Metric::Response, open, now_ns);
        }
    }

    pub(super) async fn end_of_fetch(
        &mut self,
        n: u32,
        subscription: &str,
        now_ns: u64,
    ) -> anyhow::Result<()> {
        let Some(open) = self.reconciliations.get_mut(&n).filter(|open| open.fetching > 0) else {
            self.report.unexpected += 1;
            return Ok(());
        };
        open.fetching -= 1;
        self.report.last_ns = now_ns;
        self.feed(&ClientMessage::Close { subscription: subscription.to_owned().into() }).await?;
        self.end_reconciliations(now_ns).await
    }

    /// Ends the sessions that have fetched and published everything.
    pub(super) async fn end_reconciliations(&mut self, now_ns: u64) -> anyhow::Result<()> {
        if self.reconciliations.is_empty() {
            return Ok(());
        }
        let settled = |p: &usize| self.shared.fate(*p) != Fate::Planned;
        let is_over = |open: &OpenReconciliation| {
            open.known && open.fetching == 0 && open.publishing.iter().all(settled)
        };
        let over: Vec<u32> =
            self.reconciliations.iter().filter(|(_, open)| is_over(open)).map(|(n, _)| *n).collect();
        for n in over {
            self.reconciliations.remove(&n);
            self.report.requests_completed += 1;
            self.report.last_ns = now_ns;
            if let Some(session) = self.sessions.get(&n) {
                self.report.busy_ns.push((session.started_ns, now_ns));
                self.record(Metric::Session, session.started_ns, now_ns);
            }
            self.end_session(n).await?;
        }
        Ok(())
    }

    /// The relay refused or does not make sense: what only this client has stays with it.
    pub(super) async fn give_up_reconciling(&mut self, n: u32) -> anyhow::Result<()> {
        if self.reconciliations.remove(&n).is_none() {
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        let own = planned(&shared.workload, n).into_iter().flat_map(|planned| &planned.own);
        for publication in own.filter_map(|event| shared.workload.publication_of(*event)) {
            if !shared.was_sent(publication) {
                shared.settle(publication, Fate::Dropped);
            }
        }
        self.end_session(n).await
    }
}

fn planned(workload: &Workload, n: u32) -> Option<&Reconciliation> {
    workload.sessions[n as usize].reconciliation.as_ref()
}

/// Negentropy over what the client has.
fn begin(
    workload: &Workload,
    planned: &Reconciliation,
) -> Result<Negentropy<'static, NegentropyStorageVector>, negentropy::Error> {
    let mut storage = NegentropyStorageVector::with_capacity(planned.has.len() + planned.own.len());
    for event in planned.has.iter().chain(&planned.own) {
        let Event { created_at, id, .. } = &workload.events[*event as usize];
        // The protocol has no time before 1970; both sides put such events at its start.
        storage.insert(u64::try_from(*created_at).unwrap_or(0), Id::from_byte_array(*id))?;
    }
    storage.seal()?;
    Negentropy::owned(storage, planned.frame_bytes as u64)
}
