//! The true ledger: a log of what crossed the network, added up by brute force when the run is
//! over.
//!
//! Nothing here uses the clients' code. A delivery is judged by the REQ that went over the network,
//! a publication by the OK that came back.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use codecs::{ClientMessage, Codec, Filter, RelayMessage};
use measure::Counts;

use crate::{
    shared::Shared,
    workload::{Session, Workload},
};

/// One entry of the log: a message or another event, as its client saw it.
#[derive(Debug)]
enum Entry {
    Req { id: String, filter: Filter },
    Close { id: String },
    Publish { id: [u8; 32] },
    Event { id: String, event: Seen },
    Eose { id: String, now_ns: u64 },
    Ok { id: [u8; 32], accepted: bool },
    Undecodable,
    Timer { now_ns: u64 },
}

/// An event beside the plan.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Seen {
    Unknown,
    Altered,
    /// The place in the plan.
    Intact(usize),
}

/// A subscription, as far as the log was read.
#[derive(Debug)]
struct Open {
    filter: Filter,
    eose: bool,
    closed: bool,
    seen: BTreeSet<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Open,
    Acked,
    Refused,
}

#[derive(Debug)]
pub(super) struct Truth {
    /// Only its plan.
    shared: Arc<Shared>,
    /// By client, with places in one order.
    logs: Vec<Vec<(u64, Entry)>>,
    /// The place at which the run started.
    start: u64,
    place: u64,
}

impl Truth {
    pub(super) fn new(shared: Arc<Shared>) -> Truth {
        let logs = shared.workload.roles.iter().map(|_| Vec::new()).collect();
        Truth { shared, logs, start: 0, place: 0 }
    }

    pub(super) fn start(&mut self) {
        self.start = self.place;
    }

    fn note(&mut self, client: usize, entry: Entry) {
        self.place += 1;
        self.logs[client].push((self.place, entry));
    }

    pub(super) fn timer(&mut self, client: usize, now_ns: u64) {
        self.note(client, Entry::Timer { now_ns });
    }

    pub(super) fn sent(&mut self, client: usize, codec: &dyn Codec, payload: &[u8]) {
        match codec.decode_client(payload).unwrap() {
            ClientMessage::Req { subscription, mut filters } => {
                let (id, filter) = (subscription.into_owned(), filters.remove(0));
                self.note(client, Entry::Req { id, filter });
            }
            ClientMessage::Close { subscription } => {
                self.note(client, Entry::Close { id: subscription.into_owned() });
            }
            ClientMessage::Event(event) => self.note(client, Entry::Publish { id: event.id }),
            other => panic!("no role of these plans sends {other:?}"),
        }
    }

    pub(super) fn received(&mut self, client: usize, codec: &dyn Codec, payload: &[u8], now_ns: u64) {
        let Ok(message) = codec.decode_relay(payload) else { return self.note(client, Entry::Undecodable) };
        match message {
            RelayMessage::Event { subscription, event } => self.event(client, &subscription, &event),
            RelayMessage::Events { subscription, events } => {
                events.iter().for_each(|event| self.event(client, &subscription, event));
            }
            RelayMessage::Eose { subscription, .. } => {
                self.note(client, Entry::Eose { id: subscription.into_owned(), now_ns });
            }
            RelayMessage::Ok { id, accepted, text } => {
                let accepted = accepted && !text.starts_with("duplicate:");
                self.note(client, Entry::Ok { id, accepted });
            }
            other => panic!("a relay of these runs does not say {other:?}"),
        }
    }

    fn event(&mut self, client: usize, subscription: &str, event: &codecs::Event<'_>) {
        let planned = self.shared.workload.events.iter().position(|planned| planned.id == event.id);
        let event = match planned {
            None => Seen::Unknown,
            Some(n) if self.shared.workload.events[n] != *event => Seen::Altered,
            Some(n) => Seen::Intact(n),
        };
        self.note(client, Entry::Event { id: subscription.to_owned(), event });
    }

    /// Adds up the true ledger.
    pub(super) fn ledger(&self, complete: bool, cut_off: &[bool]) -> Counts {
        let workload = &self.shared.workload;
        let mut counts = Counts { planned: workload.publications.len() as u64, ..Counts::default() };
        let fates = self.fates(&mut counts);
        for fate in &fates {
            match fate {
                Fate::Acked => counts.acked += 1,
                Fate::Refused => counts.rejected += 1,
                Fate::Open if complete => counts.timed_out += 1,
                Fate::Open => counts.unknown += 1,
            }
        }
        for request in workload.sessions.iter().flat_map(|session| &session.steps).flatten() {
            counts.requests += 1;
            let stored = &workload.events[..workload.stored];
            counts.deliveries_expected +=
                stored.iter().filter(|event| request.filter.matches(event)).count() as u64;
        }
        for (client, cut_off) in cut_off.iter().enumerate() {
            let open = self.read(client, &mut counts);
            counts.readers_cut_off += u64::from(*cut_off);
            self.close_live(client, *cut_off, &open, &fates, &mut counts);
        }
        counts.requests_failed = counts.requests - counts.requests_completed;
        counts.deliveries_lost = counts.deliveries_expected - counts.deliveries;
        counts
    }

    /// The first OK to each publication; further ones are unexpected answers.
    fn fates(&self, counts: &mut Counts) -> Vec<Fate> {
        let workload = &self.shared.workload;
        let mut fates = vec![Fate::Open; workload.publications.len()];
        for log in &self.logs {
            let mut waiting: BTreeSet<[u8; 32]> = BTreeSet::new();
            for (_, entry) in log {
                match entry {
                    Entry::Publish { id } => _ = waiting.insert(*id),
                    Entry::Ok { id, .. } if !waiting.remove(id) => counts.answers_unexpected += 1,
                    Entry::Ok { id, accepted } => {
                        let is_it =
                            |p: &crate::workload::Publication| workload.events[p.event as usize].id == *id;
                        let n = workload.publications.iter().position(is_it).unwrap();
                        fates[n] = if *accepted { Fate::Acked } else { Fate::Refused };
                    }
                    _ => {}
                }
            }
        }
        fates
    }

    /// Reads one client's log: deliveries to its subscriptions, and messages that should not have
    /// come.
    fn read(&self, client: usize, counts: &mut Counts) -> HashMap<String, Open> {
        let mut subscriptions: HashMap<String, Open> = HashMap::new();
        for (place, entry) in &self.logs[client] {
            match entry {
                Entry::Req { id, filter } => {
                    // Live subscriptions of subscribers had their EOSE before the start.
                    let (eose, filter) = (*place <= self.start, filter.clone());
                    subscriptions
                        .insert(id.clone(), Open { filter, eose, closed: false, seen: BTreeSet::new() });
                }
                Entry::Close { id } => subscriptions.get_mut(id).unwrap().closed = true,
                Entry::Eose { id, .. } => {
                    let awaits = |open: &&mut Open| !open.eose;
                    match subscriptions.get_mut(id).filter(awaits) {
                        Some(open) => {
                            open.eose = true;
                            counts.requests_completed += u64::from(open.filter.limit != Some(0));
                        }
                        None => counts.answers_unexpected += 1,
                    }
                }
                Entry::Event { event: Seen::Unknown, .. } => counts.deliveries_invented += 1,
                Entry::Event { event: Seen::Altered, .. } => counts.deliveries_altered += 1,
                Entry::Event { id, event: Seen::Intact(n) } => {
                    self.judge(subscriptions.get_mut(id), *n, counts);
                }
                Entry::Undecodable => counts.decode_errors += 1,
                Entry::Publish { .. } | Entry::Ok { .. } | Entry::Timer { .. } => {}
            }
        }
        subscriptions
    }

    fn judge(&self, subscription: Option<&mut Open>, n: usize, counts: &mut Counts) {
        let workload = &self.shared.workload;
        let is_stored = n < workload.stored;
        let Some(open) = subscription.filter(|open| open.filter.matches(&workload.events[n])) else {
            counts.deliveries_misrouted += 1;
            return;
        };
        let wants_live = open.filter.limit == Some(0);
        if wants_live && open.closed {
            counts.deliveries_after_close += 1;
        } else if wants_live && is_stored {
            counts.deliveries_unexpected += 1;
        } else if !wants_live && !is_stored {
            counts.deliveries_after_close += 1;
        } else if !open.seen.insert(n) {
            counts.deliveries_duplicated += 1;
        } else if !wants_live && open.eose {
            counts.deliveries_unexpected += 1;
        } else if !wants_live {
            counts.deliveries += 1;
        }
    }

    /// Each accepted publication is due once to each live subscription that was open for it.
    fn close_live(
        &self,
        client: usize,
        cut_off: bool,
        open: &HashMap<String, Open>,
        fates: &[Fate],
        counts: &mut Counts,
    ) {
        let workload = &self.shared.workload;
        for (n, live) in workload.roles[client].filters().iter().enumerate() {
            let (open, filter) = (open.get(&format!("live-{n}")), &workload.live[*live as usize].filter);
            let seen = open.map(|open| open.seen.clone()).unwrap_or_default();
            let undelivered = close(workload, filter, &seen, fates, |_| !cut_off, counts);
            counts.deliveries_cut_off += if cut_off { undelivered } else { 0 };
        }
        for (n, session) in workload.sessions.iter().enumerate().filter(|(_, s)| s.connection == client) {
            let during = self.stay(client, n, session);
            for (filter, live) in session.live.iter().enumerate() {
                let Some(open) = open.get(&format!("v{n}-{filter}")) else { continue };
                let filter = &workload.live[*live as usize].filter;
                close(workload, filter, &open.seen, fates, |p| during.contains(&p), counts);
            }
        }
    }

    /// The publications that were sent while a session stayed: after the last EOSE and before its
    /// time was up.
    fn stay(&self, client: usize, n: usize, session: &Session) -> BTreeSet<usize> {
        let ids: BTreeSet<String> = (0..session.live.len()).map(|filter| format!("v{n}-{filter}")).collect();
        let mut missing = ids.clone();
        let mut began = None;
        let mut ended = None;
        for (place, entry) in &self.logs[client] {
            match entry {
                Entry::Eose { id, now_ns } if missing.remove(id) && missing.is_empty() => {
                    began = Some((*place, now_ns + crate::schedule::nanos(session.stay)));
                }
                Entry::Timer { now_ns } => {
                    let is_over = |(_, until): &(u64, u64)| now_ns >= until;
                    ended = ended.or(began.filter(is_over).map(|_| *place));
                }
                _ => {}
            }
        }
        let (Some((from, _)), Some(to)) = (began, ended) else { return BTreeSet::new() };
        let sent = self.logs.iter().flatten().filter(|(place, _)| (from..to).contains(place));
        let ids: BTreeSet<[u8; 32]> = sent
            .filter_map(|(_, entry)| if let Entry::Publish { id } = entry { Some(*id) } else { None })
            .collect();
        let publications = self.shared.workload.publications.iter().enumerate();
        let events = &self.shared.workload.events;
        publications.filter(|(_, p)| ids.contains(&events[p.event as usize].id)).map(|(p, _)| p).collect()
    }
}

/// Adds up one live subscription; how many accepted publications it did not get.
fn close(
    workload: &Workload,
    filter: &Filter,
    seen: &BTreeSet<usize>,
    fates: &[Fate],
    owed: impl Fn(usize) -> bool,
    counts: &mut Counts,
) -> u64 {
    let mut undelivered = 0;
    for (p, publication) in workload.publications.iter().enumerate() {
        let event = publication.event as usize;
        if !filter.matches(&workload.events[event]) {
            continue;
        }
        match (seen.contains(&event), fates[p]) {
            (true, Fate::Refused) => counts.deliveries_unexpected += 1,
            (true, _) => {
                counts.deliveries_expected += 1;
                counts.deliveries += 1;
            }
            (false, Fate::Acked) => {
                counts.deliveries_expected += u64::from(owed(p));
                undelivered += 1;
            }
            (false, _) => {}
        }
    }
    undelivered
}
