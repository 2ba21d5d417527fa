//! Demands of a plan on a relay: the extremes of what it sends and requests.

use std::collections::BTreeMap;

use codecs::{Event, Filter, Format};
use corpus::{
    Corpus,
    rules::{Property, has_odd_reference, of_kinds},
};

use workload::{Workload, scenario::Scenario};

/// What a plan may need many of.
pub(super) const CONNECTIONS: &str = "connections at one time";
pub(super) const SUBSCRIPTIONS: &str = "subscriptions at one time";
/// What a relay may take fewer of: sessions then wait for each other.
pub(super) const OVERLAPPING: &str = "subscriptions of sessions that overlap";
pub(super) const STORED: &str = "stored events for one filter";
pub(super) const UNLIMITED: &str = "events for one filter without a limit";
/// With the kinds of a request behind it.
pub(super) const ENTRIES: &str = "entries in a list of a request for ";

/// The extremes of one plan, or of several.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// The largest of each number, by what it is of.
    pub(crate) most: BTreeMap<String, i64>,
    pub(crate) properties: BTreeMap<Property, i64>,
    /// The smallest event of each kind, one with hex in `e` and `p` tags before others.
    pub(crate) written: BTreeMap<u16, Event<'static>>,
    /// The widest filter of each list of kinds; `most` has the entries of its longest list.
    pub(crate) requests: BTreeMap<String, Filter>,
    pub(crate) auth: bool,
    pub(crate) reconciles: bool,
    /// Whether live events are read, and stored ones.
    pub(crate) live: bool,
    pub(crate) stored: bool,
}

impl Needs {
    /// Adds the needs of events alone.
    pub(crate) fn add_events<'e>(&mut self, events: impl IntoIterator<Item = &'e Event<'e>>) {
        let ranked = events.into_iter().map(|event| ((has_odd_reference(event), json_bytes(event)), event));
        let mut ranked: Vec<_> = ranked.collect();
        ranked.sort_by_key(|(rank, _)| *rank);
        for ((_, bytes), event) in ranked {
            self.written.entry(event.kind).or_insert_with(|| event.clone().into_owned());
            for property in Property::ALL {
                at_least(&mut self.properties, property, property.of(event, bytes));
            }
        }
    }

    /// Adds the needs of a plan, and of the corpus events that it may have instead of what is set aside.
    pub(crate) fn add_plan(&mut self, workload: &Workload, scenario: &Scenario, corpus: &Corpus) {
        let instead = corpus.events.iter().filter(|event| scenario.may_have(event));
        self.add_events(workload.events.iter().chain(instead));
        self.auth |= workload.auth;
        self.stored |= workload.stored > 0;
        self.at_least(CONNECTIONS, workload.roles.len());
        self.at_least(OVERLAPPING, workload.overlapping_subscriptions());
        for session in &workload.sessions {
            self.at_least(SUBSCRIPTIONS, session.subscriptions());
            self.live |= !session.live.is_empty();
            for request in session.steps.iter().flatten() {
                self.at_least(STORED, request.expected.len());
                if request.filter.limit.is_none() {
                    self.at_least(UNLIMITED, request.expected.len());
                }
                self.filter(&request.filter);
            }
            if let Some(reconciliation) = &session.reconciliation {
                self.reconciles = true;
                let fetched = reconciliation.lacks.iter().take(reconciliation.chunk);
                let ids: Vec<_> = fetched.map(|event| workload.events[*event as usize].id).collect();
                self.at_least(STORED, ids.len());
                self.filter(&Filter { ids: Some(ids), ..Filter::default() });
            }
        }
        for turn in &workload.turns {
            self.live |= turn.is_request();
            turn.filters().iter().for_each(|filter| self.filter(filter));
        }
        for role in &workload.roles {
            self.at_least(SUBSCRIPTIONS, role.filters().len());
            self.live |= !role.filters().is_empty();
        }
        workload.live.iter().for_each(|live| self.filter(&live.filter));
    }

    /// The largest number of something; 0 where there is none.
    pub(super) fn most(&self, what: &str) -> i64 {
        self.most.get(what).copied().unwrap_or(0)
    }

    /// The most subscriptions on one connection.
    pub(super) fn subscriptions(&self) -> i64 {
        self.most(SUBSCRIPTIONS).max(self.most(OVERLAPPING))
    }

    fn at_least(&mut self, what: &str, number: usize) {
        at_least(&mut self.most, what.to_owned(), i64::try_from(number).unwrap_or(i64::MAX));
    }

    fn filter(&mut self, filter: &Filter) {
        let mut kinds = filter.kinds.clone().unwrap_or_default();
        kinds.sort_unstable();
        let of = if kinds.is_empty() { "events of any kind".to_owned() } else { of_kinds(&kinds) };
        let what = format!("{ENTRIES}{of}");
        let lists = [filter.ids.as_ref().map(Vec::len), filter.authors.as_ref().map(Vec::len)];
        let tags = filter.tags.iter().map(|tag| tag.values.len());
        let width = lists.into_iter().flatten().chain(tags).max().unwrap_or(1).max(1);
        let known = self.most(&what);
        self.at_least(&what, width);
        if self.most(&what) > known {
            self.requests.insert(what, filter.clone());
        }
    }
}

fn at_least<K: Ord>(of: &mut BTreeMap<K, i64>, what: K, number: i64) {
    let most = of.entry(what).or_insert(number);
    *most = number.max(*most);
}

/// Bytes of an event as JSON.
pub(crate) fn json_bytes(event: &Event<'_>) -> u64 {
    let mut bytes = Vec::new();
    // JSON holds every event that a corpus holds.
    Format::JSON.spec().library.encode_event(event, &mut bytes).ok();
    bytes.len() as u64
}
