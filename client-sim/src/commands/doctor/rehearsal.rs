//! The rehearsal: the extremes of a plan are sent once, on as many connections as the plan makes,
//! and one event of each kind is asked back on several of them.

use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

use codecs::{ClientMessage, Event, Filter, KindClass, RelayMessage, TagFilter};
use corpus::rules::longest_tag_value;
use futures::future::join_all;
use negentropy::{Negentropy, NegentropyStorageVector};
use tokio::time::{Instant, sleep};
use wire::WireError;

use super::{
    answers::{Answer, Answers, Bound, Demand},
    events::{DELETION, Deletable, EPHEMERAL, changed, deletions, like, small},
    needs::{Needs, json_bytes, narrowed, width},
    talk::{Peer, Talk, now_s},
};
use crate::sockets::resources;

/// Steps of a bisection, each one message.
const STEPS: usize = 8;

/// A bound is found to one part in so many.
const PRECISION: u64 = 50;

/// Subscriptions opened at most.
const MOST_SUBSCRIPTIONS: u64 = 64;

/// Connections opened at most, and at the same time.
const MOST_CONNECTIONS: u64 = 256;
const OPENED_TOGETHER: usize = 4;

/// Time to open them: a relay may take handshakes one by one.
const TIME_TO_OPEN: Duration = Duration::from_secs(20);

/// Other connections on which events are asked back.
const READERS: usize = 7;

/// Events of the burst at most.
const BURST: u64 = 100;

/// The pause before something is tried once more.
const PAUSE: Duration = Duration::from_millis(200);

/// Rehearses a plan with these needs; `answers` holds what came so far at any time.
pub(super) async fn rehearse(talk: &mut Talk, peer: &Peer, needs: &Needs, answers: &mut Answers) {
    answers.read = talk.request(nothing()).await.answer;
    if answers.read == Answer::Silent && talk.publish(&small(talk, "one")).await != Answer::Taken {
        let said = talk.foreign.iter().map(|said| format!("; it said {said}")).collect::<String>();
        answers.stopped = Some(format!("the relay answers neither EVENT nor REQ{said}"));
        return;
    }
    told(needs, answers);
    let mut others = connections(talk, peer, needs, answers).await;
    let readers = &mut others[..];
    let mut stored = Vec::new();
    let samples: Vec<_> = needs.written.values().filter(|event| event.kind != DELETION).collect();
    let given = give_and_take(talk, readers, (&samples, "kinds"), needs.live, &mut stored).await;
    answers.stopped = given.apart;
    answers.rules.kinds_after_auth.clone_from(&given.set_aside);
    answers.rules.kinds = given.set_aside;
    if needs.auth {
        log_in(talk, readers, needs, answers, &mut stored).await;
    }
    if answers.stopped.is_none() {
        let work = async {
            bounds(talk, needs, answers, given.carrier, &mut stored).await;
            requests(talk, needs, answers).await;
        };
        beside(readers, work).await;
    }
    delete(talk, readers, needs, answers, &stored).await;
    close(talk, others).await;
    answers.said.extend(talk.rate.clone().map(|said| (Demand::Rate, said)));
}

/// Bounds that NIP-11 states.
fn told(needs: &Needs, answers: &mut Answers) {
    let Some(info) = &answers.info else { return };
    let all = [
        (Demand::Subscriptions, "max_subscriptions"),
        (Demand::StoredEvents, "max_limit"),
        (Demand::UnlimitedEvents, "default_limit"),
    ];
    for (demand, name) in all {
        let stated = info.limitation.get(name).filter(|stated| **stated < needs.most(demand));
        let bound = |most: &u64| Bound { most: *most, said: format!("{name} of NIP-11") };
        answers.bounds.extend(stated.map(|most| (demand, bound(most))));
    }
}

/// Opens the other connections of the plan, each of which makes a small request.
async fn connections(talk: &mut Talk, peer: &Peer, needs: &Needs, answers: &mut Answers) -> Vec<Talk> {
    let wanted = needs.most(Demand::Connections).clamp(1, MOST_CONNECTIONS) - 1;
    let wanted = usize::try_from(wanted).unwrap_or(0);
    let mut lacks = resources::raise_descriptor_limit(wanted).err();
    let asks = answers.read == Answer::Taken && talk.rate.is_none();
    let open = |_: usize| async move {
        let mut other = Talk::open(peer).await?;
        let refused = if asks { other.request(nothing()).await.answer.refusal() } else { None };
        anyhow::Ok((other, refused))
    };
    let (mut others, mut tried) = (Vec::new(), false);
    let deadline = Instant::now() + TIME_TO_OPEN;
    while others.len() < wanted && Instant::now() < deadline {
        let before = others.len();
        let together = OPENED_TOGETHER.min(wanted - before);
        let (mut failed, mut refused, mut ran_out) = (None, Vec::new(), false);
        let opening = beside(&mut others, join_all((0..together).map(open)));
        for other in beside(std::slice::from_mut(talk), opening).await {
            match other {
                Ok((other, None)) => others.push(other),
                Ok((other, Some(said))) => {
                    refused.push(other);
                    failed = Some(said);
                }
                // The relay met nothing of it.
                Err(error) if is_local(&error) => {
                    ran_out = true;
                    lacks.get_or_insert(error);
                }
                Err(error) => {
                    talk.spent.connections += 1;
                    failed = Some(format!("{error:#}"));
                }
            }
        }
        close(talk, refused).await;
        if ran_out {
            break;
        }
        let Some(said) = failed else { continue };
        let none = others.len() == before;
        if std::mem::replace(&mut tried, none) && none {
            let bound = Bound { most: others.len() as u64 + 1, said };
            answers.bounds.insert(Demand::Connections, bound);
            break;
        }
        // The relay may bound how many come within a second.
        sleep(5 * PAUSE).await;
    }
    let most_open = others.len();
    let more = others.split_off(others.len().min(READERS));
    close(talk, more).await;
    if let Some(why) = lacks.filter(|_| most_open < wanted) {
        let (opened, wanted) = (1 + most_open, 1 + wanted);
        program::report(&format!("the doctor opened {opened} of {wanted} connections: {why:#}"));
    }
    others
}

/// Whether this machine had nothing left for a connection.
fn is_local(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref::<WireError>(), Some(WireError::Io(error)) if resources::ran_out(error))
}

/// Closes other connections, whose cost counts with this one's.
async fn close(talk: &mut Talk, others: Vec<Talk>) {
    for spent in join_all(others.into_iter().map(Talk::close)).await {
        talk.spent.connections += spent.connections;
        talk.spent.requests += spent.requests;
    }
}

/// Works while other connections answer pings.
async fn beside<T>(others: &mut [Talk], work: impl Future<Output = T>) -> T {
    let idle = async {
        join_all(others.iter_mut().map(Talk::idle)).await;
        std::future::pending().await
    };
    tokio::select! {
        biased;
        done = work => done,
        never = idle => never,
    }
}

/// What came of one event of each kind.
#[derive(Debug, Default)]
struct Given {
    /// Kinds that are refused or not given back, and why.
    set_aside: BTreeMap<u16, String>,
    /// Why these connections lead to several relays.
    apart: Option<String>,
    /// A regular event that was taken, as a template.
    carrier: Option<Event<'static>>,
}

/// Publishes an event like each template, and asks for them on this connection and on others, which
/// listen meanwhile.
async fn give_and_take(
    talk: &mut Talk,
    readers: &mut [Talk],
    (templates, author): (&[&Event<'static>], &'static str),
    live: bool,
    stored: &mut Vec<Deletable>,
) -> Given {
    let events: Vec<_> = templates.iter().map(|template| like(talk, template, author)).collect();
    take_back(talk, readers, (events, author), live, stored).await
}

async fn take_back(
    talk: &mut Talk,
    readers: &mut [Talk],
    (events, author): (Vec<Event<'static>>, &'static str),
    live: bool,
    stored: &mut Vec<Deletable>,
) -> Given {
    let Some(first) = events.first() else { return Given::default() };
    let theirs = Filter { authors: Some(vec![first.pubkey]), ..Filter::default() };
    let listening =
        readers.iter_mut().map(|reader| reader.listen(Filter { limit: Some(1), ..theirs.clone() }));
    let listening = join_all(listening).await.into_iter().zip(&*readers);
    let may_ask = |link: &Talk| author != AFTER_AUTH || link.proven;
    // A connection that was made anew has no subscription.
    let listening: Vec<Option<u64>> = listening
        .map(|(answer, reader)| {
            (live && answer == Answer::Taken && may_ask(reader)).then_some(reader.spent.connections)
        })
        .collect();
    let listens =
        |reader: &Talk, since: Option<u64>| reader.is_open() && since == Some(reader.spent.connections);
    let answers = beside(readers, publish(talk, &events)).await;
    let mut set_aside = BTreeMap::new();
    for (kind, answer) in &answers {
        let why = match answer {
            // NIP-01 asks for OK since it took in NIP-20, by which an ephemeral event had an OK only
            // if it failed.
            Answer::Silent => Some("the relay sends no OK".to_owned()),
            Answer::Refused(said) => Some(format!("refused: {said:?}")),
            other => other.refusal(),
        };
        set_aside.extend(why.map(|why| (*kind, why)));
    }
    let is_stored = |event: &Event<'_>| event.class() != KindClass::Ephemeral;
    stored.extend(events.iter().filter(|event| is_stored(event)).map(|event| (author, event.id, event.kind)));
    let is_taken = |event: &&Event<'_>| answers.get(&event.kind) == Some(&Answer::Taken);
    let taken: Vec<_> = events.iter().filter(is_taken).collect();
    let ids: HashSet<_> = taken.iter().filter(|event| is_stored(event)).map(|event| event.id).collect();
    let (deadline, _) = talk.deadlines();
    let mut found: Vec<Found> = vec![Found::default(); 1 + readers.len()];
    loop {
        let links = std::iter::once(&mut *talk).chain(readers.iter_mut());
        let asking = links.zip(&mut found).map(|(link, found)| {
            let may_ask = may_ask(link);
            found.ask(link, &ids, may_ask)
        });
        join_all(asking).await;
        let all_came = |(reader, since): (&Talk, Option<u64>)| {
            !listens(reader, since) || taken.iter().all(|event| reader.heard.contains(&event.id))
        };
        let is_done = found.iter().all(|found| found.ids.len() >= ids.len())
            && readers.iter().zip(listening.iter().copied()).all(all_came);
        if is_done || Instant::now() >= deadline {
            break;
        }
        sleep(PAUSE).await;
    }
    let heard = |event: &Event<'_>| -> Vec<bool> {
        let listeners =
            readers.iter().zip(listening.iter().copied()).filter(|(reader, since)| listens(reader, *since));
        listeners.map(|(reader, _)| reader.heard.contains(&event.id)).collect()
    };
    let mut given = Given::default();
    let mut withheld = Vec::new();
    for event in &taken {
        let has = match is_stored(event) {
            true => {
                found.iter().filter(|found| found.is_known).map(|one| one.ids.contains(&event.id)).collect()
            }
            false => heard(event),
        };
        let live = heard(event);
        match has.iter().filter(|has| **has).count() {
            0 if !has.is_empty() || is_stored(event) => withheld.push(*event),
            holders if holders < has.len() && is_stored(event) => {
                given.apart = Some(format!(
                    "more than one relay answers behind this address: {} of {} connections did not get an event of \
                     kind {} that another one published; name one relay, or have them pass events to each other",
                    has.len() - holders,
                    has.len(),
                    event.kind
                ));
            }
            _ if !live.is_empty() && !live.contains(&true) => {
                set_aside.insert(event.kind, "accepted and not delivered to live subscriptions".to_owned());
            }
            _ if event.class() == KindClass::Regular && given.carrier.is_none() => {
                given.carrier = Some((*event).clone());
            }
            _ => {}
        }
    }
    for event in withheld {
        let filter = Filter { kinds: Some(vec![event.kind]), ..theirs.clone() };
        let reply = talk.request(filter).await;
        let why = match reply.answer {
            Answer::Refused(said) => format!("withheld: {said:?}"),
            _ if reply.ids.contains(&event.id) => continue,
            _ if author == AFTER_AUTH => "withheld after AUTH".to_owned(),
            _ if talk.challenged => "withheld without AUTH".to_owned(),
            _ => "accepted and not given back".to_owned(),
        };
        set_aside.insert(event.kind, why);
    }
    Given { set_aside, ..given }
}

/// The author of the events that are published after AUTH.
const AFTER_AUTH: &str = "kinds after AUTH";

/// The stored events that one connection was given.
#[derive(Debug, Clone, Default)]
struct Found {
    ids: HashSet<[u8; 32]>,
    /// Whether the relay answered its request.
    is_known: bool,
}

impl Found {
    /// Asks for those of these events that have not come.
    async fn ask(&mut self, link: &mut Talk, all: &HashSet<[u8; 32]>, may_ask: bool) {
        let missing: Vec<_> = all.difference(&self.ids).copied().collect();
        // What came live meanwhile is read, too.
        let filter =
            if missing.is_empty() { nothing() } else { Filter { ids: Some(missing), ..Filter::default() } };
        let reply = link.request(filter).await;
        self.ids.extend(reply.ids.iter().filter(|id| all.contains(*id)));
        self.is_known = may_ask && reply.answer == Answer::Taken;
    }
}

/// Publishes these events of different kinds. All are on the way together, because a relay may answer
/// late.
async fn publish(talk: &mut Talk, events: &[Event<'static>]) -> BTreeMap<u16, Answer> {
    for event in events {
        if talk.send_event(event).await.is_err() {
            break;
        }
    }
    let (usual, latest) = talk.deadlines();
    let is_ephemeral = |event: &Event<'_>| event.class() == KindClass::Ephemeral;
    let (ephemeral, others): (Vec<_>, Vec<_>) = events.iter().partition(|event| is_ephemeral(event));
    let (mut answers, mut together) = (BTreeMap::new(), true);
    for event in others.into_iter().chain(ephemeral) {
        let deadline = if is_ephemeral(event) { usual } else { latest };
        let mut answer = Answer::NotAsked;
        if together {
            answer = talk.late_answer_to(&event.id, deadline).await;
            together = talk.is_open();
        }
        if !together || answer.about_rate().is_some() {
            // One of them ended the connection: which one, shows alone.
            answer = talk.publish(event).await;
        }
        answers.insert(event.kind, answer);
    }
    answers
}

/// Answers the relay's challenge, which may have come with an answer, and publishes again what was
/// set aside.
async fn log_in(
    talk: &mut Talk,
    readers: &mut [Talk],
    needs: &Needs,
    answers: &mut Answers,
    stored: &mut Vec<Deletable>,
) {
    answers.auth = talk.authenticate().await;
    if answers.auth != Answer::Taken {
        return;
    }
    // Of a connection without a challenge such a request asks for one.
    let withheld = answers.rules.kinds.iter().filter(|(_, why)| why.starts_with("withheld"));
    let restricted = Filter { kinds: Some(withheld.map(|(kind, _)| *kind).collect()), ..nothing() };
    join_all(readers.iter_mut().map(|reader| prove(reader, restricted.clone()))).await;
    answers.read_after_auth = talk.request(nothing()).await.answer;
    let again = answers.rules.kinds.keys().filter_map(|kind| needs.written.get(kind));
    let again: Vec<_> = again.filter(|event| event.kind != DELETION).collect();
    let given = give_and_take(talk, readers, (&again, AFTER_AUTH), needs.live, stored).await;
    answers.rules.kinds_after_auth = given.set_aside;
    answers.stopped = answers.stopped.take().or(given.apart);
}

async fn prove(talk: &mut Talk, restricted: Filter) -> Answer {
    if !talk.challenged {
        talk.request(restricted).await;
    }
    talk.authenticate().await
}

/// The bounds on events, by one property each. `kept` is an event that the relay stores.
async fn bounds(
    talk: &mut Talk,
    needs: &Needs,
    answers: &mut Answers,
    kept: Option<Event<'static>>,
    stored: &mut Vec<Deletable>,
) {
    let ephemeral = small(talk, "one");
    let takes_ephemeral = talk.publish(&ephemeral).await == Answer::Taken;
    if takes_ephemeral {
        burst(talk, needs.most(Demand::Rate).min(BURST), answers).await;
    }
    // Relays bound the dates of ephemeral events in other ways.
    if let Some(template) = &kept {
        dates(talk, needs, answers, template, stored).await;
    }
    let Some(carrier) = takes_ephemeral.then_some(ephemeral).or(kept) else { return };
    let mut probe = async |talk: &mut Talk, tags: Vec<codecs::Tag<'static>>, content: &str| {
        let event = changed(talk, &carrier, tags, content, 0);
        if event.class() != KindClass::Ephemeral {
            stored.push(("one", event.id, event.kind));
        }
        talk.publish(&event).await.refusal()
    };
    let own = json_bytes(&carrier);
    let bytes = largest(own, needs.most(Demand::EventBytes), async |bytes| {
        let content = "x".repeat(usize::try_from(bytes.saturating_sub(own)).unwrap_or(0));
        probe(talk, vec![], &content).await
    });
    answers.rules.event_bytes = note(&mut answers.said, Demand::EventBytes, bytes.await);
    let own = carrier.tags.len() as u64;
    let tags = largest(own.max(1), needs.most(Demand::EventTags), async |count| {
        let tags = (own..count).map(|n| vec!["t".into(), n.to_string().into()]).collect();
        probe(talk, tags, "").await
    });
    answers.rules.event_tags = note(&mut answers.said, Demand::EventTags, tags.await);
    let own = longest_tag_value(&carrier).max(1);
    let value = largest(own, needs.most(Demand::TagValueBytes), async |bytes| {
        let value = "x".repeat(usize::try_from(bytes).unwrap_or(0));
        probe(talk, vec![vec!["t".into(), value.into()]], "").await
    });
    answers.rules.tag_value_bytes = note(&mut answers.said, Demand::TagValueBytes, value.await);
    if needs.most(Demand::HexReferences) > 0 {
        for name in ["e", "p"] {
            if let Some(said) = probe(talk, vec![vec![name.into(), "no hex".into()]], "").await {
                answers.rules.hex_references = true;
                answers.said.insert(Demand::HexReferences, said);
            }
        }
    }
}

/// The earliest and the latest `created_at`.
async fn dates(
    talk: &mut Talk,
    needs: &Needs,
    answers: &mut Answers,
    template: &Event<'static>,
    stored: &mut Vec<Deletable>,
) {
    let Some((oldest_s, newest_s)) = needs.dates_s else { return };
    let now_s = now_s();
    let mut probe = async |later_s: i64| {
        let event = changed(talk, template, vec![], "", later_s);
        stored.push(("one", event.id, event.kind));
        talk.publish(&event).await.refusal()
    };
    let seconds = |seconds: u64| i64::try_from(seconds).unwrap_or(0);
    // Before the plan's first, so that no request with `since` finds it, but not before 1970.
    let age = now_s.saturating_sub(oldest_s).saturating_add(1).min(now_s);
    let age = u64::try_from(age).unwrap_or(0);
    let age = largest(60, age, async |age_s| probe(-seconds(age_s)).await).await;
    let ahead = u64::try_from(newest_s.saturating_sub(now_s)).unwrap_or(0);
    let ahead = largest(0, ahead, async |ahead_s| probe(seconds(ahead_s)).await).await;
    let said = &mut answers.said;
    // An event ages until it is sent.
    let younger = |age_s: u64| age_s - age_s / PRECISION;
    answers.rules.oldest_s =
        note(said, Demand::Age, age).map(|age_s| now_s.saturating_sub(seconds(younger(age_s))));
    answers.rules.newest_s =
        note(said, Demand::Future, ahead).map(|ahead_s| now_s.saturating_add(seconds(ahead_s)));
}

/// Ephemeral events as quickly as they can be sent, as many as the plan has in a second.
async fn burst(talk: &mut Talk, count: u64, answers: &mut Answers) {
    let events: Vec<_> = (0..count).map(|n| small(talk, &format!("burst {n}"))).collect();
    for event in &events {
        if talk.send_event(event).await.is_err() {
            break;
        }
    }
    let (usual, _) = talk.deadlines();
    let (mut taken, mut refused) = (0, None);
    for event in &events {
        match talk.late_answer_to(&event.id, usual).await {
            Answer::Taken => taken += 1,
            other => refused = refused.or(other.refusal()),
        }
    }
    if let Some(said) = refused {
        answers.said.insert(Demand::Rate, format!("{taken} of {count} events at once accepted: {said}"));
        sleep(5 * PAUSE).await;
    }
}

/// The widest request of each list of kinds, subscriptions at one time, and a reconciliation.
async fn requests(talk: &mut Talk, needs: &Needs, answers: &mut Answers) {
    if !answers.reads(needs.auth) {
        return;
    }
    for (kinds, filter) in &needs.requests {
        let limit = filter.limit.map(|limit| limit.max(1));
        let filter = Filter { limit, ..filter.clone() };
        let found = largest(0, width(&filter), async |entries| {
            talk.request(narrowed(&filter, entries)).await.answer.refusal()
        });
        answers.requests.extend(found.await.map(|(most, said)| (kinds.clone(), Bound { most, said })));
    }
    let wanted = needs.most(Demand::Subscriptions).min(MOST_SUBSCRIPTIONS);
    let mut open = Vec::new();
    while (open.len() as u64) < wanted && !answers.bounds.contains_key(&Demand::Subscriptions) {
        let (name, reply) = talk.subscribe(nothing()).await;
        if let Some(said) = reply.answer.refusal() {
            answers.bounds.insert(Demand::Subscriptions, Bound { most: open.len() as u64, said });
        }
        open.push(name);
    }
    for name in open {
        talk.unsubscribe(&name).await;
    }
    if needs.reconciles {
        answers.reconcile = reconcile(talk).await;
    }
}

async fn reconcile(talk: &mut Talk) -> Answer {
    let begin = || {
        let mut storage = NegentropyStorageVector::new();
        storage.seal()?;
        Negentropy::owned(storage, 0)?.initiate()
    };
    let message = match begin() {
        Ok(message) => message,
        Err(error) => return Answer::Refused(error.to_string()),
    };
    const NAME: &str = "doctor-neg";
    let subscription = || NAME.into();
    let open =
        ClientMessage::NegOpen { subscription: subscription(), filter: nothing(), message: message.into() };
    let answer = talk.ask(&open, |message| match message {
        RelayMessage::NegMsg { subscription, .. } if subscription == NAME => Some(Answer::Taken),
        RelayMessage::NegErr { subscription, text } | RelayMessage::Closed { subscription, text }
            if subscription == NAME =>
        {
            Some(Answer::Refused(text.clone().into_owned()))
        }
        _ => None,
    });
    let answer = answer.await;
    if answer == Answer::Taken {
        talk.say(&ClientMessage::NegClose { subscription: subscription() }).await;
    }
    answer
}

/// Deletes what may have been stored (NIP-09). A plan that writes deletions has one of them asked
/// back.
async fn delete(
    talk: &mut Talk,
    readers: &mut [Talk],
    needs: &Needs,
    answers: &mut Answers,
    stored: &[Deletable],
) {
    let mut deletions = deletions(talk, stored);
    if needs.written.contains_key(&DELETION) && !deletions.is_empty() {
        let first = (vec![deletions.remove(0)], "one");
        let given = take_back(talk, readers, first, needs.live, &mut Vec::new()).await;
        answers.rules.kinds.extend(given.set_aside.clone());
        answers.rules.kinds_after_auth.extend(given.set_aside);
    }
    for deletion in deletions {
        talk.publish(&deletion).await;
    }
}

/// The largest size that the relay takes, and its words at the next; `None` when it takes `most`.
/// `least` is known to be taken. `probe` returns why the relay refuses a size.
async fn largest(
    least: u64,
    most: u64,
    mut probe: impl AsyncFnMut(u64) -> Option<String>,
) -> Option<(u64, String)> {
    let (mut taken, mut over) = (least, most);
    if over <= taken {
        return None;
    }
    let mut said = probe(over).await?;
    for _ in 0..STEPS {
        if over - taken <= (taken / PRECISION).max(1) {
            break;
        }
        let middle = taken + (over - taken) / 2;
        match probe(middle).await {
            None => taken = middle,
            Some(words) => (over, said) = (middle, words),
        }
    }
    Some((taken, said))
}

/// Notes the relay's words at a bound, if one was met.
fn note(said: &mut BTreeMap<Demand, String>, demand: Demand, found: Option<(u64, String)>) -> Option<u64> {
    let (bound, words) = found?;
    said.insert(demand, words);
    Some(bound)
}

/// A filter that no event matches.
fn nothing() -> Filter {
    let values = vec!["client-sim doctor: nothing has this".to_owned()];
    Filter {
        kinds: Some(vec![EPHEMERAL]),
        authors: Some(vec![[0x5a; 32]]),
        tags: vec![TagFilter { letter: 't', values }],
        limit: Some(1),
        ..Filter::default()
    }
}
