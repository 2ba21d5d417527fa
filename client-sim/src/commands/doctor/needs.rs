//! Demands of a plan on a relay: the largest of each that it sends and requests.

use std::collections::{BTreeMap, BTreeSet};

use codecs::{Event, Filter, Format};
use corpus::rules::{has_odd_reference, longest_tag_value};

use workload::Workload;

/// The largest of each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Bytes of an event as JSON.
    pub(crate) event_bytes: u64,
    pub(crate) event_tags: u64,
    pub(crate) tag_value_bytes: u64,
    /// Events whose `e` or `p` tags are no 64 digits of lowercase hex.
    pub(crate) odd_references: u64,
    /// The earliest `created_at`.
    pub(crate) oldest_s: Option<i64>,
    /// Entries of one list of a filter.
    pub(crate) filter_values: u64,
    /// Subscriptions of a connection at one time.
    pub(crate) subscriptions: u64,
    /// Stored events that answer one filter.
    pub(crate) stored_events: u64,
    /// Stored events that answer one filter without a limit.
    pub(crate) unlimited_events: u64,
    /// Kinds in filters.
    pub(crate) kinds: BTreeSet<u16>,
    /// Events that are given to the relay or published.
    pub(crate) events: u64,
    /// The smallest of them of each kind, one with hex in `e` and `p` tags before others.
    pub(crate) written: BTreeMap<u16, Event<'static>>,
    pub(crate) auth: bool,
    pub(crate) reconciles: bool,
    /// Whether live events are read.
    pub(crate) live: bool,
}

impl Needs {
    /// The needs of events alone.
    pub(crate) fn from_events(events: &[Event<'_>]) -> Needs {
        let mut needs = Needs { events: events.len() as u64, ..Needs::default() };
        let mut smallest = BTreeMap::new();
        for event in events {
            let bytes = json_bytes(event);
            needs.event_bytes = needs.event_bytes.max(bytes);
            let size = (has_odd_reference(event), bytes);
            let (least, one) = smallest.entry(event.kind).or_insert((size, event));
            if size < *least {
                (*least, *one) = (size, event);
            }
            needs.event_tags = needs.event_tags.max(event.tags.len() as u64);
            needs.tag_value_bytes = needs.tag_value_bytes.max(longest_tag_value(event));
            needs.odd_references += u64::from(has_odd_reference(event));
            needs.oldest_s = Some(needs.oldest_s.unwrap_or(i64::MAX).min(event.created_at));
        }
        let written = smallest.into_iter().map(|(kind, (_, event))| (kind, event.clone().into_owned()));
        needs.written = written.collect();
        needs
    }

    /// The needs of a plan.
    pub(crate) fn from_workload(workload: &Workload) -> Needs {
        let mut needs = Needs::from_events(&workload.events);
        needs.auth = workload.auth;
        for session in &workload.sessions {
            let together = session.steps.iter().map(Vec::len).max().unwrap_or(0).max(session.live.len());
            needs.subscriptions = needs.subscriptions.max(together as u64);
            needs.live |= !session.live.is_empty();
            for request in session.steps.iter().flatten() {
                let expected = request.expected.len() as u64;
                needs.stored_events = needs.stored_events.max(expected);
                if request.filter.limit.is_none() {
                    needs.unlimited_events = needs.unlimited_events.max(expected);
                }
                needs.filter(&request.filter);
            }
            if let Some(reconciliation) = &session.reconciliation {
                needs.reconciles = true;
                let fetched = reconciliation.lacks.len().min(reconciliation.chunk);
                needs.stored_events = needs.stored_events.max(fetched as u64);
                needs.filter_values = needs.filter_values.max(fetched as u64);
                needs.filter(&reconciliation.filter);
            }
        }
        for role in &workload.roles {
            needs.subscriptions = needs.subscriptions.max(role.filters().len() as u64);
            needs.live |= !role.filters().is_empty();
        }
        workload.live.iter().for_each(|live| needs.filter(&live.filter));
        needs
    }

    /// The larger of each.
    pub(crate) fn join(&mut self, other: &Needs) {
        let largest = |own: &mut u64, other: u64| *own = (*own).max(other);
        largest(&mut self.event_bytes, other.event_bytes);
        largest(&mut self.event_tags, other.event_tags);
        largest(&mut self.tag_value_bytes, other.tag_value_bytes);
        largest(&mut self.odd_references, other.odd_references);
        largest(&mut self.filter_values, other.filter_values);
        largest(&mut self.subscriptions, other.subscriptions);
        largest(&mut self.stored_events, other.stored_events);
        largest(&mut self.unlimited_events, other.unlimited_events);
        largest(&mut self.events, other.events);
        self.oldest_s = [self.oldest_s, other.oldest_s].into_iter().flatten().min();
        self.kinds.extend(&other.kinds);
        for (kind, event) in &other.written {
            self.written.entry(*kind).or_insert_with(|| event.clone());
        }
        self.auth |= other.auth;
        self.reconciles |= other.reconciles;
        self.live |= other.live;
    }

    fn filter(&mut self, filter: &Filter) {
        let lists = [filter.ids.as_ref().map(Vec::len), filter.authors.as_ref().map(Vec::len)];
        let tags = filter.tags.iter().map(|tag| tag.values.len());
        let longest = lists.into_iter().flatten().chain(tags).max().unwrap_or(0);
        self.filter_values = self.filter_values.max(longest as u64);
        self.kinds.extend(filter.kinds.iter().flatten());
    }
}

/// Bytes of an event as JSON.
pub(crate) fn json_bytes(event: &Event<'_>) -> u64 {
    let mut bytes = Vec::new();
    // JSON holds every event that a corpus holds.
    Format::JSON.spec().library.encode_event(event, &mut bytes).ok();
    bytes.len() as u64
}
