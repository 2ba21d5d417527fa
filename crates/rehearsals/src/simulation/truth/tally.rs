//! Adds up the log.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use codecs::{ClientMessage, Event, Filter, RelayMessage};
use measure::Counts;
use negentropy::{Id, Negentropy, NegentropyStorageVector};

use super::{Entry, Truth};
use workload::{Reading, Reconciliation, Session, Task, Workload};

/// An event beside the plan.
#[derive(Debug, Clone, Copy, PartialEq)]
enum EventMatch {
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
    /// The relay said CLOSED before EOSE.
    refused: bool,
    /// The relay said CLOSED.
    ended: bool,
    /// The client said CLOSE.
    closed: bool,
    seen: BTreeSet<usize>,
    /// Events that came before EOSE or CLOSED, and not again.
    before: BTreeSet<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Open,
    Acked,
    Refused,
    NotSent,
}

/// A reconciliation, as far as the log was read.
#[derive(Debug)]
struct Reconciled {
    protocol: Negentropy<'static, NegentropyStorageVector>,
    have: Vec<Id>,
    need: Vec<Id>,
    /// The publications that were accepted before NEG-OPEN.
    before: Vec<usize>,
    state: State,
    /// The ids that must be fetched, and those that were.
    wanted: BTreeSet<[u8; 32]>,
    fetched: BTreeSet<[u8; 32]>,
    /// The subscriptions that fetched them.
    fetches: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Asking,
    Known,
    GivenUp,
}

/// The sums, as far as the log was read.
#[derive(Debug)]
pub(super) struct Tally<'t> {
    truth: &'t Truth,
    workload: &'t Workload,
    counts: Counts,
    fates: Vec<Fate>,
    sent: Vec<bool>,
    /// Events without their OK, by client; AUTH events have no publication.
    waiting: BTreeSet<(usize, [u8; 32])>,
    /// Clients that have not sent AUTH on their connection, where the relay asks for it.
    unproven: BTreeSet<usize>,
    open: HashMap<(usize, String), Open>,
    /// Events that each client with several relays has.
    known: BTreeSet<(usize, usize)>,
    reconciled: BTreeMap<(usize, String), Reconciled>,
}

impl<'t> Tally<'t> {
    pub(super) fn from_truth(truth: &'t Truth) -> Self {
        let workload = &truth.shared.workload;
        let publications = workload.publications.len();
        let mut tally = Tally {
            truth,
            workload,
            counts: Counts { planned: publications as u64, ..Counts::default() },
            fates: vec![Fate::Open; publications],
            sent: vec![false; publications],
            waiting: BTreeSet::new(),
            unproven: BTreeSet::new(),
            open: HashMap::new(),
            known: BTreeSet::new(),
            reconciled: BTreeMap::new(),
        };
        for (place, (client, entry)) in truth.log.iter().enumerate() {
            tally.read(place, *client, entry);
        }
        tally
    }

    fn read(&mut self, place: usize, client: usize, entry: &Entry) {
        match entry {
            Entry::Connected if self.workload.auth => _ = self.unproven.insert(client),
            Entry::Connected | Entry::Timer { .. } => {}
            Entry::Sent(message) => self.sent(place, client, message),
            Entry::Received { message, peeked, .. } => {
                if let Task::Reader(Reading { reader, .. }) = self.workload.roles[client].task
                    && let Some((id, event)) = peeked
                    && id.starts_with('s')
                    && self.known.contains(&(reader, *event))
                {
                    return self.delivered(client, id, EventMatch::Intact(*event), true);
                }
                match message {
                    Some(message) => self.received(client, message),
                    None => self.counts.decode_errors += 1,
                }
            }
        }
    }

    fn sent(&mut self, place: usize, client: usize, message: &ClientMessage<'_>) {
        match message {
            ClientMessage::Req { subscription, filters } => {
                self.requested(place, client, subscription, &filters[0]);
            }
            ClientMessage::Close { subscription } => {
                self.open.get_mut(&(client, subscription.to_string())).unwrap().closed = true;
            }
            ClientMessage::Event(event) => {
                self.waiting.insert((client, event.id));
                let n = self.publication(&event.id).unwrap();
                self.sent[n] = true;
            }
            ClientMessage::Auth(event) => {
                self.unproven.remove(&client);
                // Before the start each had its OK, which the log does not have.
                if place >= self.truth.start {
                    self.waiting.insert((client, event.id));
                }
            }
            ClientMessage::NegOpen { subscription, message, .. } => {
                self.asked(message.len());
                self.begin(client, subscription);
            }
            ClientMessage::NegMsg { message, .. } => self.asked(message.len()),
            ClientMessage::NegClose { .. } => {}
            ClientMessage::Count { .. } => panic!("no role of these plans sends {message:?}"),
        }
    }

    fn received(&mut self, client: usize, message: &RelayMessage<'_>) {
        match message {
            RelayMessage::Event { subscription, event } => {
                self.delivered(client, subscription, self.seen(event), false);
            }
            RelayMessage::Events { subscription, events } => {
                events.iter().for_each(|event| self.delivered(client, subscription, self.seen(event), false));
            }
            RelayMessage::Eose { subscription, .. } => self.eose(client, subscription),
            RelayMessage::Closed { subscription, .. } => self.closed(client, subscription),
            RelayMessage::Ok { id, accepted, text } if self.waiting.remove(&(client, *id)) => {
                if let Some(n) = self.publication(id) {
                    let is_acked = *accepted && !text.starts_with("duplicate:");
                    self.fates[n] = if is_acked { Fate::Acked } else { Fate::Refused };
                }
            }
            RelayMessage::Ok { .. } => self.counts.answers_unexpected += 1,
            // One after AUTH asks for nothing (NIP-42 allows to ignore it).
            RelayMessage::Auth { .. } => {
                self.counts.answers_unexpected += u64::from(!self.unproven.contains(&client));
            }
            RelayMessage::NegMsg { subscription, message } => self.compared(client, subscription, message),
            RelayMessage::NegErr { subscription, .. } => {
                match self.reconciled.get_mut(&(client, subscription.to_string())) {
                    Some(open) if open.state == State::Asking => open.state = State::GivenUp,
                    Some(_) => {}
                    None => self.counts.answers_unexpected += 1,
                }
            }
            other => panic!("a relay of these runs does not say {other:?}"),
        }
    }

    fn seen(&self, event: &Event<'_>) -> EventMatch {
        match self.workload.events.iter().position(|planned| planned.id == event.id) {
            None => EventMatch::Unknown,
            Some(n) if self.workload.events[n] != *event => EventMatch::Altered,
            Some(n) => EventMatch::Intact(n),
        }
    }

    fn publication(&self, id: &[u8; 32]) -> Option<usize> {
        let events = &self.workload.events;
        self.workload.publications.iter().position(|p| events[p.event as usize].id == *id)
    }

    // --- subscriptions ---

    fn requested(&mut self, place: usize, client: usize, id: &str, filter: &Filter) {
        if let Some(rest) = id.strip_prefix('f') {
            let session = rest.split('-').next().unwrap();
            let of = self.reconciled.get_mut(&(client, format!("n{session}"))).unwrap();
            of.fetched.extend(filter.ids.iter().flatten());
            of.fetches.push(id.to_owned());
        }
        // Live subscriptions of subscribers had their EOSE before the start.
        let (eose, filter) = (place < self.truth.start, filter.clone());
        let (seen, before) = (BTreeSet::new(), BTreeSet::new());
        let open = Open { filter, eose, refused: false, ended: false, closed: false, seen, before };
        self.open.insert((client, id.to_owned()), open);
    }

    fn eose(&mut self, client: usize, id: &str) {
        let awaits = |open: &&mut Open| !open.eose && !open.refused;
        match self.open.get_mut(&(client, id.to_owned())).filter(awaits) {
            Some(open) => {
                open.eose = true;
                open.before = open.seen.clone();
                self.counts.requests_completed += u64::from(id.starts_with('s'));
            }
            None => self.counts.answers_unexpected += 1,
        }
    }

    fn closed(&mut self, client: usize, id: &str) {
        let Some(open) = self.open.get_mut(&(client, id.to_owned())) else {
            self.counts.answers_unexpected += 1;
            return;
        };
        if !open.eose && !open.refused {
            open.refused = true;
            open.before = open.seen.clone();
        }
        if open.filter.limit == Some(0) && !open.closed && !open.ended {
            self.counts.subscriptions_closed += 1;
            open.ended = true;
        }
    }

    fn delivered(&mut self, client: usize, id: &str, event: EventMatch, is_peeked: bool) {
        let n = match event {
            EventMatch::Unknown => return self.counts.deliveries_invented += 1,
            EventMatch::Altered => return self.counts.deliveries_altered += 1,
            EventMatch::Intact(n) => n,
        };
        if self.judge(client, id, n)
            && let Task::Reader(Reading { reader, .. }) = self.workload.roles[client].task
            && !self.known.insert((reader, n))
        {
            self.counts.repeats += 1;
            self.counts.repeats_peeked += u64::from(is_peeked);
        }
    }

    /// Judges an intact event; true when it was an owed answer to a request.
    fn judge(&mut self, client: usize, id: &str, n: usize) -> bool {
        let (counts, event) = (&mut self.counts, &self.workload.events[n]);
        let is_stored = n < self.workload.stored;
        let open = self.open.get_mut(&(client, id.to_owned())).filter(|open| open.filter.matches(event));
        let Some(open) = open else {
            counts.deliveries_misrouted += 1;
            return false;
        };
        let wants_live = open.filter.limit == Some(0);
        // Ids may name published events: a reconciliation found them.
        let wants_it = is_stored || open.filter.ids.is_some();
        let count = if wants_live && open.closed {
            &mut counts.deliveries_after_close
        } else if wants_live && (is_stored || open.ended) {
            &mut counts.deliveries_unexpected
        } else if !wants_live && !wants_it {
            &mut counts.deliveries_after_close
        } else if !open.seen.insert(n) {
            // Once before EOSE and once after.
            if open.before.remove(&n) && (open.eose || open.refused) && self.workload.tolerates_seam {
                &mut counts.deliveries_duplicated_at_seam
            } else {
                &mut counts.deliveries_duplicated
            }
        } else if !wants_live && (open.eose || open.refused) {
            &mut counts.deliveries_unexpected
        } else if !wants_live {
            counts.deliveries += 1;
            return true;
        } else {
            return false;
        };
        *count += 1;
        false
    }

    // --- reconciliations ---

    fn planned(&self, client: usize, id: &str) -> Option<&'t Reconciliation> {
        let session = self.workload.sessions.get(id.strip_prefix('n')?.parse::<usize>().ok()?)?;
        session.reconciliation.as_ref().filter(|_| session.connection == client)
    }

    fn asked(&mut self, bytes: usize) {
        self.counts.negentropy_rounds += 1;
        self.counts.negentropy_bytes += bytes as u64;
    }

    fn begin(&mut self, client: usize, id: &str) {
        let planned = self.planned(client, id).unwrap();
        let mut storage = NegentropyStorageVector::new();
        for event in planned.has.iter().chain(&planned.own) {
            let Event { created_at, id, .. } = &self.workload.events[*event as usize];
            storage.insert(u64::try_from(*created_at).unwrap(), Id::from_byte_array(*id)).unwrap();
        }
        storage.seal().unwrap();
        let mut protocol = Negentropy::owned(storage, planned.frame_bytes as u64).unwrap();
        protocol.initiate().unwrap();
        let open = Reconciled {
            protocol,
            have: Vec::new(),
            need: Vec::new(),
            before: (0..self.fates.len()).filter(|p| self.fates[*p] == Fate::Acked).collect(),
            state: State::Asking,
            wanted: BTreeSet::new(),
            fetched: BTreeSet::new(),
            fetches: Vec::new(),
        };
        self.reconciled.insert((client, id.to_owned()), open);
    }

    fn compared(&mut self, client: usize, id: &str, message: &[u8]) {
        let is_open = |open: &&mut Reconciled| open.state == State::Asking;
        let Some(open) = self.reconciled.get_mut(&(client, id.to_owned())).filter(is_open) else {
            self.counts.answers_unexpected += 1;
            return;
        };
        self.counts.negentropy_bytes += message.len() as u64;
        match open.protocol.reconcile_with_ids(message, &mut open.have, &mut open.need) {
            Ok(Some(_)) => {}
            Ok(None) => self.known(client, id),
            Err(_) => {
                self.counts.decode_errors += 1;
                open.state = State::GivenUp;
            }
        }
    }

    /// Judges the difference that the relay named.
    fn known(&mut self, client: usize, id: &str) {
        let planned = self.planned(client, id).unwrap();
        let ids = |ids: &[Id]| ids.iter().map(|id| id.to_bytes()).collect::<BTreeSet<[u8; 32]>>();
        let open = &self.reconciled[&(client, id.to_owned())];
        let (need, have, before) = (ids(&open.need), ids(&open.have), open.before.clone());
        let event = |id: &[u8; 32]| self.workload.events.iter().position(|event| event.id == *id);
        let is_own = |event: usize| planned.own.iter().any(|own| *own as usize == event);
        let mut wanted = BTreeSet::new();
        for id in &need {
            match event(id) {
                Some(n) if n < self.workload.stored && planned.filter.matches(&self.workload.events[n]) => {
                    assert!(planned.lacks.iter().any(|lacks| *lacks as usize == n), "the client has it");
                    wanted.insert(*id);
                }
                Some(n) if !is_own(n) && self.publication(id).is_some_and(|p| self.sent[p]) => {
                    self.counts.deliveries_expected += 1;
                    wanted.insert(*id);
                }
                _ => self.counts.deliveries_unexpected += 1,
            }
        }
        for publication in before {
            let n = self.workload.publications[publication].event as usize;
            let event = &self.workload.events[n];
            let is_unnamed = planned.filter.matches(event) && !is_own(n) && !need.contains(&event.id);
            self.counts.deliveries_expected += u64::from(is_unnamed);
        }
        let shared = have.iter().filter(|id| !event(id).is_some_and(is_own)).count();
        self.counts.deliveries_unexpected += shared as u64;
        self.counts.reconciliations += 1;
        let open = self.reconciled.get_mut(&(client, id.to_owned())).unwrap();
        (open.state, open.wanted) = (State::Known, wanted);
    }

    /// Whether everything was fetched and published.
    fn is_completed(&self, client: usize, id: &str, reconciled: &Reconciled) -> bool {
        let own = &self.planned(client, id).unwrap().own;
        let mut publications = own.iter().map(|own| self.workload.publication_of(*own).unwrap());
        let mut fetches = reconciled.fetches.iter().map(|fetch| &self.open[&(client, fetch.clone())]);
        reconciled.state == State::Known
            && fetches.all(|fetch| fetch.eose && !fetch.refused)
            && publications.all(|p| matches!(self.fates[p], Fate::Acked | Fate::Refused))
    }

    fn close_reconciliations(&mut self) {
        for ((client, id), reconciled) in &self.reconciled {
            assert_eq!(reconciled.wanted, reconciled.fetched, "{client} {id} fetches what the relay named");
            self.counts.requests_completed += u64::from(self.is_completed(*client, id, reconciled));
            let own = &self.planned(*client, id).unwrap().own;
            for own in own.iter().filter(|_| reconciled.state == State::GivenUp) {
                self.fates[self.workload.publication_of(*own).unwrap()] = Fate::NotSent;
            }
        }
        for planned in self.workload.sessions.iter().filter_map(|session| session.reconciliation.as_ref()) {
            self.counts.requests += 1;
            self.counts.deliveries_expected += planned.lacks.len() as u64;
        }
    }

    // --- the end ---

    /// Closes all accounts: fates of publications, and expected deliveries of requests and live
    /// subscriptions. `complete` is false for a run that was cut short; `cut_off` names the clients that the
    /// relay disconnected.
    pub(super) fn close(mut self, complete: bool, cut_off: &[bool]) -> Counts {
        self.close_reconciliations();
        self.counts.repeats_expected = self.workload.repeats(|_| true);
        for (fate, sent) in self.fates.iter().zip(&self.sent) {
            match fate {
                Fate::Acked => self.counts.acked += 1,
                Fate::Refused => self.counts.rejected += 1,
                Fate::NotSent => self.counts.not_sent += 1,
                Fate::Open if !sent => self.counts.not_sent += 1,
                Fate::Open if complete => self.counts.timed_out += 1,
                Fate::Open => self.counts.unknown += 1,
            }
        }
        for request in self.workload.sessions.iter().flat_map(|session| &session.steps).flatten() {
            self.counts.requests += 1;
            let stored = &self.workload.events[..self.workload.stored];
            self.counts.deliveries_expected +=
                stored.iter().filter(|event| request.filter.matches(event)).count() as u64;
        }
        for (client, cut_off) in cut_off.iter().enumerate() {
            self.counts.readers_cut_off += u64::from(*cut_off);
            self.close_live(client, *cut_off, complete);
        }
        self.counts.requests_failed = self.counts.requests - self.counts.requests_completed;
        self.counts.deliveries_lost = self.counts.deliveries_expected - self.counts.deliveries;
        self.counts
    }

    /// Closes the accounts of a client's live subscriptions. Each publication that was not refused is due
    /// once to each subscription that was open for it. In a run that was cut short, only accepted
    /// publications are due.
    fn close_live(&mut self, client: usize, cut_off: bool, complete: bool) {
        for (n, live) in self.workload.roles[client].filters().iter().enumerate() {
            self.close_subscription(&(client, format!("live-{n}")), *live, (cut_off, complete), |_| true);
        }
        for (n, session) in self.workload.sessions.iter().enumerate().filter(|(_, s)| s.connection == client)
        {
            let during = self.stay(client, n, session);
            for (filter, live) in session.live.iter().enumerate() {
                let id = (client, format!("v{n}-{filter}"));
                if self.open.contains_key(&id) {
                    self.close_subscription(&id, *live, (cut_off, complete), |p| during.contains(&p));
                }
            }
        }
    }

    /// Adds up one live subscription. What was due after its relay had ended it is not lost.
    fn close_subscription(
        &mut self,
        id: &(usize, String),
        live: u32,
        (cut_off, complete): (bool, bool),
        was_due: impl Fn(usize) -> bool,
    ) {
        let filter = &self.workload.live[live as usize].filter;
        let (seen, ended) = self
            .open
            .get(id)
            .map_or((BTreeSet::new(), cut_off), |open| (open.seen.clone(), open.ended || cut_off));
        for (p, publication) in self.workload.publications.iter().enumerate() {
            let event = publication.event as usize;
            if !filter.matches(&self.workload.events[event]) {
                continue;
            }
            let fate = match self.fates[p] {
                Fate::Open if complete && self.sent[p] => Fate::Acked,
                fate => fate,
            };
            match (seen.contains(&event), fate) {
                (true, Fate::Refused | Fate::NotSent) => self.counts.deliveries_unexpected += 1,
                (true, _) => {
                    self.counts.deliveries_expected += 1;
                    self.counts.deliveries += 1;
                }
                (false, Fate::Acked) if ended => self.counts.deliveries_cut_off += u64::from(was_due(p)),
                (false, Fate::Acked) => self.counts.deliveries_expected += u64::from(was_due(p)),
                (false, _) => {}
            }
        }
    }

    /// The publications that were sent while a session stayed: after the last EOSE and before its
    /// time was up.
    fn stay(&self, client: usize, n: usize, session: &Session) -> BTreeSet<usize> {
        let mut missing: BTreeSet<String> =
            (0..session.live.len()).map(|filter| format!("v{n}-{filter}")).collect();
        let (mut began, mut ended) = (None, None);
        for (place, (_, entry)) in self.truth.log.iter().enumerate().filter(|(_, (of, _))| *of == client) {
            match entry {
                Entry::Received {
                    message:
                        Some(
                            RelayMessage::Eose { subscription, .. }
                            | RelayMessage::Closed { subscription, .. },
                        ),
                    now_ns,
                    ..
                } if missing.remove(&**subscription) && missing.is_empty() => {
                    began = Some((place, now_ns + workload::schedule::nanos(session.stay)));
                }
                Entry::Timer { now_ns } => {
                    let is_over = |(_, until): &(usize, u64)| now_ns >= until;
                    ended = ended.or(began.filter(is_over).map(|_| place));
                }
                _ => {}
            }
        }
        let (Some((from, _)), Some(to)) = (began, ended) else { return BTreeSet::new() };
        let sent = self.truth.log[from..to].iter().filter_map(|(_, entry)| match entry {
            Entry::Sent(ClientMessage::Event(event)) => self.publication(&event.id),
            _ => None,
        });
        sent.collect()
    }
}
