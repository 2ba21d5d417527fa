//! Plans a replay: what recorded clients did, with events, ids and keys of its own.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use codecs::{ClientMessage, Event, Filter, Format, hex};
use corpus::fresh::Keep;

use super::{
    Elsewhere, Publication, Role, Share, Speaks, Task, Workload, fingerprint,
    select::{select, unfit},
    sessions::position,
};
use crate::{
    recorded::{Says, Source, Turn},
    scenario::{Replay, Scenario},
};

impl Workload {
    /// Plans a replay. Each agent plans the whole.
    ///
    /// # Errors
    /// As [`Workload::plan_share`].
    pub(super) fn plan_replay(
        scenario: &Scenario,
        replay: &Replay,
        seed: u64,
        formats: &[Format],
        share: Share,
    ) -> anyhow::Result<Workload> {
        let recorded = &*replay.recorded;
        let at = |recorded: Duration| {
            Duration::try_from_secs_f64(recorded.as_secs_f64() / scenario.load).unwrap_or(Duration::MAX)
        };
        let is_played = |recorded: &Duration| at(*recorded).as_secs_f64() < scenario.seconds;
        let mut plan = Workload {
            keys: scenario.signing.keys.clone(),
            elsewhere: Elsewhere::new(scenario, share),
            inputs: fingerprint::inputs(scenario, seed),
            ..Workload::default()
        };
        // Which events there are, as recorded: stored ones, then published ones, each with its instant
        // and connection.
        let others = recorded.connections;
        let sources = || (0..).zip(&recorded.sources);
        let stored = sources().filter(|(_, source)| **source == Source::Stored).map(|(n, _)| n);
        let stored: Vec<Event<'static>> = stored.map(|n: usize| recorded.events[n].clone()).collect();
        let (kept, set_aside) = select(&stored, formats, &scenario.rules);
        plan.set_aside = set_aside;
        let mut published: Vec<(Duration, usize, &Event<'static>)> = Vec::new();
        let mut buffer = Vec::new();
        for (n, source) in sources() {
            let (when, connection) = match source {
                Source::Client { at, connection } => (at, *connection),
                Source::Others { at } => (at, others),
                Source::Stored | Source::Nobody => continue,
            };
            let event = &recorded.events[n];
            match unfit(event, formats, &scenario.rules, &mut buffer) {
                Some(reason) => *plan.set_aside.entry(reason).or_default() += 1,
                None if is_played(when) => published.push((at(*when), connection, event)),
                None => {}
            }
        }
        published.sort_by_key(|(at, ..)| *at);
        plan.stored = kept.len();
        let templates: Vec<_> = kept.into_iter().chain(published.iter().map(|(.., event)| *event)).collect();
        let keep = Keep { values: strangers(&templates), times: true, ..Keep::default() };
        plan.events = Arc::new(plan.make(scenario, &templates, templates.len(), (seed, keep)));
        plan.fresh = plan.events.len();
        let mut renewed = Renewed::default();
        for (n, (template, made)) in templates.iter().zip(plan.events.iter()).enumerate() {
            renewed.hashes.extend([(template.id, made.id), (template.pubkey, made.pubkey)]);
            renewed.places.insert(template.id, position(n)?);
        }
        for (n, (at, connection, _)) in (plan.stored..).zip(&published) {
            let event = position(n)?;
            plan.publications.push(Publication { at: *at, connection: *connection, event, closed: false });
        }
        let role = |task| Role::new(None, Speaks::default(), task);
        plan.roles = vec![role(Task::Recorded); recorded.connections];
        if published.iter().any(|(_, connection, _)| *connection == others) {
            plan.roles.push(role(Task::Publisher { window: 1 }));
        }
        let mut numbers: HashMap<usize, u32> = HashMap::new();
        for (n, turn) in recorded.turns.iter().enumerate().filter(|(_, turn)| is_played(&turn.at)) {
            numbers.insert(n, position(plan.turns.len())?);
            let place = |event: &u32| renewed.places.get(&recorded.events[*event as usize].id).copied();
            let mut expected: Vec<u32> = turn.expected.iter().filter_map(place).collect();
            expected.sort_unstable();
            expected.dedup();
            plan.turns.push(Turn {
                at: at(turn.at),
                connection: turn.connection,
                says: renewed.says(&turn.says),
                after: turn.after.and_then(|after| numbers.get(&(after as usize)).copied()),
                answered: turn.answered,
                expected,
            });
        }
        plan.check_keys(scenario)?;
        plan.indexed()
    }
}

/// The values of tags with a key or an id that no event of a replay has: they stay, as they do in
/// filters.
fn strangers(templates: &[&Event<'static>]) -> HashSet<String> {
    let own: HashSet<[u8; 32]> = templates.iter().flat_map(|event| [event.id, event.pubkey]).collect();
    let is_strange = |part: &str| hash(part).is_some_and(|hash| !own.contains(&hash));
    let values = templates.iter().flat_map(|event| &event.tags).flat_map(|tag| tag.iter().skip(1));
    values.filter(|value| value.split(':').any(is_strange)).map(|value| value.clone().into_owned()).collect()
}

fn hash(part: &str) -> Option<[u8; 32]> {
    hex::decode_array(part.as_bytes())
}

/// New ids and keys, and places of events, by what was recorded.
#[derive(Default)]
struct Renewed {
    hashes: HashMap<[u8; 32], [u8; 32]>,
    places: HashMap<[u8; 32], u32>,
}

impl Renewed {
    fn says(&self, says: &Says) -> Says {
        let mut says = says.clone();
        if let Says::Message(message) = &mut says
            && let ClientMessage::Req { filters, .. } | ClientMessage::Count { filters, .. } = &mut **message
        {
            filters.iter_mut().for_each(|filter| self.filter(filter));
        }
        says
    }

    fn filter(&self, filter: &mut Filter) {
        let lists = [&mut filter.ids, &mut filter.authors].into_iter().flatten();
        for hash in lists.flatten() {
            *hash = self.hashes.get(hash).copied().unwrap_or(*hash);
        }
        for value in filter.tags.iter_mut().flat_map(|tag| &mut tag.values) {
            let part = |part: &str| match hash(part).and_then(|hash| self.hashes.get(&hash)) {
                Some(renewed) => hex::encode(renewed),
                None => part.to_owned(),
            };
            *value = value.split(':').map(part).collect::<Vec<_>>().join(":");
        }
    }
}

#[cfg(test)]
mod tests {
    use codecs::TagFilter;
    use corpus::Corpus;

    use super::*;
    use crate::{
        inputs::plan_over,
        recorded::tests::{asks, delivers, eose, note, publishes, read},
    };

    #[test]
    fn filters_ask_for_the_new_keys_and_ids_and_strangers_stay() {
        let tag = |name: &str, value: String| [name.to_owned(), value];
        let root = note("author", "root", &[]);
        let (id, author) = (hex::encode(&root.id), hex::encode(&root.pubkey));
        let stranger = "ab".repeat(32);
        let article = format!("30023:{author}:x");
        let tags = [("e", &id), ("p", &author), ("a", &article), ("p", &stranger)];
        let reply = note("other", "reply", &tags.map(|(name, value)| tag(name, value.clone())));
        let condition = |letter, value: &String| {
            vec![TagFilter { letter, values: vec![value.clone(), stranger.clone()] }]
        };
        let by_tag = |letter, value| Filter { tags: condition(letter, value), ..Filter::default() };
        let by_author = Filter { authors: Some(vec![root.pubkey, [0xab; 32]]), ..Filter::default() };
        let recorded = read(
            vec![
                asks(0, "x", by_author),
                delivers(1, "x", &root),
                eose(2, "x"),
                asks(3, "e", by_tag('e', &id)),
                asks(4, "p", by_tag('p', &author)),
                asks(5, "a", by_tag('a', &article)),
                publishes(10, &reply),
                delivers(11, "e", &reply),
                delivers(11, "p", &reply),
                delivers(11, "a", &reply),
                asks(1_000, "later", Filter::default()),
            ],
            1 << 20,
        );
        let replay = Replay { recorded: Arc::new(recorded.unwrap()), cut_s: Some(0.5) };
        let mut scenario = Scenario::load("note-stream").unwrap();
        (scenario.replay, scenario.seconds) = (Some(replay), 0.5);
        let plan = |seed| plan_over(&scenario, &Corpus::bundled(), seed, &[Format::JSON]).unwrap();
        let (one, other) = (plan(1), plan(2));
        assert_ne!(one.events[0].pubkey, other.events[0].pubkey);
        assert_ne!(one.sha256(), other.sha256());
        assert!(one.events.iter().all(|event| event.id != root.id && event.id != reply.id));
        assert_eq!((one.stored, one.publications.len(), one.turns.len()), (1, 1, 5), "later is cut off");
        for (turn, came) in one.turns[1..].iter().zip([0, 1, 1, 1]) {
            let [filter] = turn.filters() else { panic!("{turn:?}") };
            assert_eq!(turn.expected, [came]);
            assert!(filter.matches(&one.events[came as usize]), "{filter:?}");
            let lists = filter.tags.iter().map(|tag| tag.values[1].clone());
            let authors = filter.authors.iter().map(|authors| hex::encode(&authors[1]));
            assert!(lists.chain(authors).all(|value| value == stranger));
        }
        assert_eq!(one.events[1].tags[3][1], stranger);
        assert_eq!((one.turns[1].after, one.turns[2].after), (None, Some(1)));
        assert_eq!(one.asked(), [0]);
    }
}
