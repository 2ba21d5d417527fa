//! Demands of a plan on a relay: the extremes of what it sends and requests.

use std::collections::BTreeMap;

use codecs::{Event, Filter, Format};
use corpus::rules::{has_odd_reference, longest_tag_value};

use super::answers::Demand;
use workload::Workload;

/// The extremes of one plan, or of several.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// The largest of each number.
    pub(crate) most: BTreeMap<Demand, u64>,
    /// The earliest and the latest `created_at`.
    pub(crate) dates_s: Option<(i64, i64)>,
    /// The smallest event of each kind, one with hex in `e` and `p` tags before others.
    pub(crate) written: BTreeMap<u16, Event<'static>>,
    /// The filter with the longest list, by its kinds.
    pub(crate) requests: BTreeMap<String, Filter>,
    pub(crate) auth: bool,
    pub(crate) reconciles: bool,
    /// Whether live events are read.
    pub(crate) live: bool,
}

impl Needs {
    /// The needs of events alone.
    pub(crate) fn from_events(events: &[Event<'_>]) -> Needs {
        let mut needs = Needs::default();
        let mut smallest = BTreeMap::new();
        for event in events {
            let (bytes, odd, at) = (json_bytes(event), has_odd_reference(event), event.created_at);
            let (least, one) = smallest.entry(event.kind).or_insert(((odd, bytes), event));
            if (odd, bytes) < *least {
                (*least, *one) = ((odd, bytes), event);
            }
            needs.at_least(Demand::EventBytes, bytes);
            needs.at_least(Demand::EventTags, event.tags.len() as u64);
            needs.at_least(Demand::TagValueBytes, longest_tag_value(event));
            needs.at_least(Demand::HexReferences, u64::from(odd));
            let (oldest, newest) = needs.dates_s.unwrap_or((at, at));
            needs.dates_s = Some((oldest.min(at), newest.max(at)));
        }
        let written = smallest.into_iter().map(|(kind, (_, event))| (kind, event.clone().into_owned()));
        needs.written = written.collect();
        needs
    }

    /// The needs of a plan.
    pub(crate) fn from_workload(workload: &Workload) -> Needs {
        let mut needs = Needs::from_events(&workload.events);
        needs.auth = workload.auth;
        needs.at_least(Demand::Connections, workload.roles.len() as u64);
        needs.at_least(Demand::Rate, workload.published_per_s_max() as u64);
        for session in &workload.sessions {
            let together = session.steps.iter().map(Vec::len).max().unwrap_or(0).max(session.live.len());
            needs.at_least(Demand::Subscriptions, together as u64);
            needs.live |= !session.live.is_empty();
            for request in session.steps.iter().flatten() {
                let expected = request.expected.len() as u64;
                needs.at_least(Demand::StoredEvents, expected);
                if request.filter.limit.is_none() {
                    needs.at_least(Demand::UnlimitedEvents, expected);
                }
                needs.filter(&request.filter);
            }
            if let Some(reconciliation) = &session.reconciliation {
                needs.reconciles = true;
                let fetched = reconciliation.lacks.iter().take(reconciliation.chunk);
                let ids: Vec<_> = fetched.map(|event| workload.events[*event as usize].id).collect();
                needs.at_least(Demand::StoredEvents, ids.len() as u64);
                needs.filter(&Filter { ids: Some(ids), ..Filter::default() });
            }
        }
        for role in &workload.roles {
            needs.at_least(Demand::Subscriptions, role.filters().len() as u64);
            needs.live |= !role.filters().is_empty();
        }
        workload.live.iter().for_each(|live| needs.filter(&live.filter));
        needs
    }

    /// The larger of each.
    pub(crate) fn join(&mut self, other: &Needs) {
        other.most.iter().for_each(|(demand, number)| self.at_least(*demand, *number));
        let dates = [self.dates_s, other.dates_s].into_iter().flatten();
        self.dates_s = dates.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
        for (kind, event) in &other.written {
            self.written.entry(*kind).or_insert_with(|| event.clone());
        }
        other.requests.values().for_each(|filter| self.filter(filter));
        self.auth |= other.auth;
        self.reconciles |= other.reconciles;
        self.live |= other.live;
    }

    /// The largest number of a demand; 0 where there is none.
    pub(crate) fn most(&self, demand: Demand) -> u64 {
        self.most.get(&demand).copied().unwrap_or(0)
    }

    fn at_least(&mut self, demand: Demand, number: u64) {
        let most = self.most.entry(demand).or_default();
        *most = number.max(*most);
    }

    fn filter(&mut self, filter: &Filter) {
        let known = self.requests.entry(kinds_of(filter)).or_insert_with(|| filter.clone());
        if width(filter) > width(known) {
            *known = filter.clone();
        }
    }
}

/// The kinds of a filter in words.
pub(super) fn kinds_of(filter: &Filter) -> String {
    let Some(kinds) = &filter.kinds else { return "events of any kind".to_owned() };
    let mut kinds = kinds.clone();
    kinds.sort_unstable();
    corpus::rules::of_kinds(&kinds)
}

/// Entries of the longest list of a filter, and at least 1.
pub(super) fn width(filter: &Filter) -> u64 {
    let lists = [filter.ids.as_ref().map(Vec::len), filter.authors.as_ref().map(Vec::len)];
    let tags = filter.tags.iter().map(|tag| tag.values.len());
    lists.into_iter().flatten().chain(tags).max().unwrap_or(1).max(1) as u64
}

/// The filter with lists of so many entries at most.
pub(super) fn narrowed(filter: &Filter, entries: u64) -> Filter {
    let entries = usize::try_from(entries).unwrap_or(usize::MAX);
    let mut filter = filter.clone();
    filter.ids.iter_mut().chain(&mut filter.authors).for_each(|list| list.truncate(entries));
    filter.tags.iter_mut().for_each(|tag| tag.values.truncate(entries));
    filter
}

/// Bytes of an event as JSON.
pub(crate) fn json_bytes(event: &Event<'_>) -> u64 {
    let mut bytes = Vec::new();
    // JSON holds every event that a corpus holds.
    Format::JSON.spec().library.encode_event(event, &mut bytes).ok();
    bytes.len() as u64
}
