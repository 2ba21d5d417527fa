//! The rehearsal: the extremes of a plan are sent once, on as many connections as the plan makes, and
//! an event of each kind is asked back on several of them.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, RandomState},
    rc::Rc,
    time::Duration,
};

use codecs::{ClientMessage, Event, Filter, KindClass, Tag, TagFilter};
use corpus::rules::{Bound, Property, Withheld};
use futures::future::join_all;
use tokio::time::{Instant, sleep};
use wire::WireError;

use super::{
    answers::{Answer, Answers},
    needs::{CONNECTIONS, Needs, STORED, SUBSCRIPTIONS, UNLIMITED, json_bytes},
    talk::{FIRST, Peer, Talk, now_s},
};
use crate::sockets::resources;

/// An ephemeral kind, which no relay stores (NIP-01) and no scenario asks for.
const EPHEMERAL: u16 = 29_999;

/// NIP-09.
const DELETION: u16 = 5;

/// How long events ask to live (NIP-40).
const LIFETIME_S: i64 = 600;

/// Steps of a bisection, each one message, and how close it comes: one part in so many.
const STEPS: usize = 8;
const PRECISION: i64 = 50;

/// Subscriptions and connections at most.
const MOST_SUBSCRIPTIONS: i64 = 64;
const MOST_CONNECTIONS: i64 = 256;

/// The time to open connections: a relay may take handshakes one by one.
const TIME_TO_OPEN: Duration = Duration::from_secs(20);

/// Other connections on which events are asked back.
const READERS: usize = 7;

/// The pause before something is tried once more.
const PAUSE: Duration = Duration::from_secs(1);

/// NEG-OPEN of a client that has nothing, in version 1 of the protocol (NIP-77): one range without an
/// upper bound, with a list of no ids.
const NOTHING: [u8; 5] = [0x61, 0, 0, 2, 0];

/// The author of events that are published after AUTH; [`FIRST`] is that of the others.
const AFTER_AUTH: usize = 1;

/// How many keys its authors take: a bound on a replaceable event takes one for each step.
pub(super) const AUTHORS: usize = 2 + Property::ALL.len() * (STEPS + 1);

/// Rehearses a plan with these needs; `answers` holds what came so far at any time.
///
/// # Errors
/// When the relay cannot be reached.
pub(super) async fn rehearse(peer: &Rc<Peer>, needs: &Needs, answers: &mut Answers) -> Result<(), WireError> {
    let mut talk = Talk::open(peer).await?;
    answers.read = talk.request(nothing()).await;
    if answers.read == Answer::Silent
        && talk.publish(&[event(peer, EPHEMERAL, vec![], FIRST).await]).await != [Answer::Taken]
    {
        let said = talk.heard().foreign.iter().map(|said| format!("; it said {said}")).collect::<String>();
        answers.stopped = Some(format!("the relay answers neither EVENT nor REQ{said}"));
        return Ok(());
    }
    let mut rehearsal =
        Rehearsal { peer, needs, answers, published: BTreeMap::new(), template: None, tried: AFTER_AUTH };
    rehearsal.told();
    let mut links = vec![talk];
    links.extend(rehearsal.connections().await);
    let written: Vec<_> = needs.written.values().cloned().collect();
    let kinds = rehearsal.kinds(&mut links.iter_mut().collect::<Vec<_>>(), &written, FIRST).await;
    rehearsal.answers.rules.kinds_after_auth.clone_from(&kinds);
    rehearsal.answers.rules.kinds = kinds;
    if needs.auth {
        rehearsal.log_in(&mut links).await;
    }
    if rehearsal.answers.stopped.is_none() {
        rehearsal.bounds(&mut links[0]).await;
        rehearsal.requests(&mut links[0]).await;
    }
    let deletions = rehearsal.deletions().await;
    links[0].publish(&deletions).await;
    join_all(links.into_iter().map(Talk::close)).await;
    Ok(())
}

/// A rehearsal under way.
struct Rehearsal<'a> {
    peer: &'a Rc<Peer>,
    needs: &'a Needs,
    answers: &'a mut Answers,
    /// The events that may be stored, by author.
    published: BTreeMap<usize, Vec<[u8; 32]>>,
    /// An event that was taken, regular where there is one.
    template: Option<Event<'static>>,
    /// The last author of a bound on a replaceable event.
    tried: usize,
}

impl Rehearsal<'_> {
    /// Notes what the relay has too little of.
    fn bound(&mut self, what: &str, most: i64, said: String) {
        self.answers.bounds.insert(what.to_owned(), Bound { most, said });
    }

    /// Bounds that NIP-11 states.
    fn told(&mut self) {
        let all = [(SUBSCRIPTIONS, "max_subscriptions"), (STORED, "max_limit"), (UNLIMITED, "default_limit")];
        for (what, name) in all {
            let stated = self.answers.info.as_ref().and_then(|info| info.limitation.get(name).copied());
            let wanted =
                if what == SUBSCRIPTIONS { self.needs.subscriptions() } else { self.needs.most(what) };
            if let Some(most) = stated.filter(|most| *most < wanted) {
                self.bound(what, most, format!("{name} of NIP-11"));
            }
        }
    }

    /// Opens the other connections of the plan, each of which makes a small request, and keeps some.
    async fn connections(&mut self) -> Vec<Talk> {
        let wanted = self.needs.most(CONNECTIONS).clamp(2, MOST_CONNECTIONS) - 1;
        let wanted = usize::try_from(wanted).unwrap_or(0);
        resources::raise_descriptor_limit(wanted).ok();
        let asks = self.answers.read == Answer::Taken;
        let open = async |peer: &Rc<Peer>| {
            let mut other = Talk::open(peer).await?;
            let refused = if asks { other.request(nothing()).await.refusal() } else { None };
            refused.map_or(Ok(other), |said| Err(anyhow::Error::msg(said)))
        };
        let (mut others, mut tried) = (Vec::new(), false);
        let deadline = Instant::now() + TIME_TO_OPEN;
        while others.len() < wanted && Instant::now() < deadline {
            let error = match open(self.peer).await {
                Ok(other) => {
                    others.push(other);
                    tried = false;
                    continue;
                }
                Err(error) => error,
            };
            if matches!(error.downcast_ref::<WireError>(), Some(WireError::Io(error)) if resources::ran_out(error))
            {
                break; // The relay met nothing of it.
            }
            if tried {
                let most = i64::try_from(others.len() + 1).unwrap_or(i64::MAX);
                self.bound(CONNECTIONS, most, format!("{error:#}"));
                break;
            }
            // The relay may bound how many come within a second.
            tried = true;
            sleep(PAUSE).await;
        }
        let more = others.split_off(others.len().min(READERS));
        join_all(more.into_iter().map(Talk::close)).await;
        others
    }

    /// Publishes an event like each template on the first connection, and asks for them on all, the
    /// others of which listen meanwhile. Returns what is refused or not given back.
    async fn kinds(
        &mut self,
        links: &mut [&mut Talk],
        templates: &[Event<'static>],
        author: usize,
    ) -> BTreeMap<u16, Withheld> {
        let mut events = Vec::new();
        for template in templates {
            events.push(like(self.peer, template, author).await);
        }
        let Some(first) = events.first() else { return BTreeMap::new() };
        let theirs = Filter { authors: Some(vec![first.pubkey]), ..Filter::default() };
        if self.needs.live {
            // As a run asks.
            let live = Filter { limit: Some(0), ..theirs.clone() };
            join_all(links.iter_mut().skip(1).map(|reader| reader.listen(live.clone()))).await;
        }
        let answers = links[0].publish(&events).await;
        let mut set_aside = BTreeMap::new();
        for (event, answer) in events.iter().zip(&answers) {
            self.note(event, author);
            let why = match answer {
                // NIP-01 asks for OK since it took in NIP-20, by which an ephemeral event had an OK
                // only if it failed.
                Answer::Silent => Some("the relay sends no OK".to_owned()),
                Answer::Refused(said) if said.starts_with("pow:") => {
                    Some(format!("refused: \"{said}\"; --pow BITS gives events so many (NIP-13)"))
                }
                Answer::Refused(said) => Some(format!("refused: \"{said}\"")),
                other => other.refusal(),
            };
            set_aside.extend(why.map(|why| (event.kind, Withheld { why, live: false, stored: false })));
        }
        let taken = events.iter().zip(&answers).filter(|(_, answer)| **answer == Answer::Taken);
        let taken: Vec<_> = taken.map(|(event, _)| event).collect();
        let kept: Vec<_> = taken.iter().copied().filter(|event| is_kept(event)).collect();
        let mut pause = PAUSE / 10;
        let mut asked = loop {
            let asked = join_all(links.iter_mut().map(|link| link.ask_back(&kept))).await;
            let has_all = |link: &&mut Talk| {
                let heard = link.heard();
                kept.iter().all(|event| heard.has(event))
                    && (!heard.listens || taken.iter().all(|event| heard.live.contains(&event.id)))
            };
            if links.iter().all(has_all) || pause > self.peer.patience / 2 {
                break asked;
            }
            sleep(pause).await;
            pause *= 2;
        };
        // A connection that may not ask next to its live subscription asks instead of it.
        for (link, asked) in links.iter_mut().zip(&mut asked).filter(|(_, asked)| !**asked) {
            link.stop_listening();
            *asked = link.ask_back(&kept).await;
        }
        for event in &taken {
            let has = |(link, asked): (&&mut Talk, &bool)| asked.then(|| link.heard().has(event));
            let has: Vec<bool> = links.iter().zip(&asked).filter_map(has).collect();
            let live = |link: &&mut Talk| {
                let heard = link.heard();
                heard.listens.then(|| heard.live.contains(&event.id))
            };
            let live: Vec<bool> = links.iter().filter_map(live).collect();
            let without = has.iter().filter(|has| !**has).count();
            let why = match () {
                () if is_kept(event) && without == has.len() => {
                    let filter = Filter { kinds: Some(vec![event.kind]), ..theirs.clone() };
                    let answer = links[0].request(filter).await;
                    let heard = links[0].heard();
                    match answer {
                        Answer::Refused(said) => format!("withheld: \"{said}\""),
                        _ if heard.has(event) => continue,
                        _ if author == AFTER_AUTH => "withheld after AUTH".to_owned(),
                        _ if heard.challenge.is_some() => "withheld without AUTH".to_owned(),
                        _ => "accepted and not given back".to_owned(),
                    }
                }
                () if is_kept(event) && without > 0 => {
                    self.answers.stopped = Some(format!(
                        "more than one relay answers behind this address: {without} of {} connections did not get an \
                         event of kind {} that another one published; name one relay, or have them pass events to \
                         each other",
                        has.len(),
                        event.kind
                    ));
                    continue;
                }
                () if !live.is_empty() && !live.contains(&true) => {
                    "accepted and not delivered to live subscriptions".to_owned()
                }
                () => continue,
            };
            // Nobody stores an ephemeral event.
            let stored = !is_kept(event) || without < has.len();
            set_aside.insert(event.kind, Withheld { why, live: live.contains(&true), stored });
        }
        let stays =
            |event: &&Event<'_>| event.class() == KindClass::Regular && !set_aside.contains_key(&event.kind);
        let template = taken.iter().copied().find(stays);
        let template = template.or_else(|| taken.iter().copied().find(|event| is_kept(event)));
        self.template = self.template.take().or_else(|| template.cloned());
        set_aside
    }

    /// Notes an event that may be stored.
    fn note(&mut self, event: &Event<'_>, author: usize) {
        if is_kept(event) {
            self.published.entry(author).or_default().push(event.id);
        }
    }

    /// Answers the relay's challenge, which may have come with an answer, and publishes again what was
    /// set aside.
    async fn log_in(&mut self, links: &mut [Talk]) {
        let kinds = &self.answers.rules.kinds;
        let withheld = kinds.iter().filter(|(_, withheld)| withheld.why.starts_with("withheld"));
        // On a connection without a challenge such a request brings one.
        let restricted = Filter { kinds: Some(withheld.map(|(kind, _)| *kind).collect()), ..nothing() };
        let mut proofs = join_all(links.iter_mut().map(|link| prove(link, &restricted))).await;
        self.answers.auth = proofs.swap_remove(0);
        if self.answers.auth != Answer::Taken {
            return;
        }
        self.answers.read_after_auth = links[0].request(nothing()).await;
        let again: Vec<_> = kinds.keys().filter_map(|kind| self.needs.written.get(kind).cloned()).collect();
        let mut proven: Vec<_> = links.iter_mut().filter(|link| link.proven).collect();
        self.answers.rules.kinds_after_auth = self.kinds(&mut proven, &again, AFTER_AUTH).await;
    }

    /// The largest of each property of an event.
    async fn bounds(&mut self, talk: &mut Talk) {
        let Some(template) = self.template.clone() else { return };
        for property in Property::ALL {
            let now_s = now_s();
            // Dates are seconds from now.
            let base = match property {
                Property::Oldest => -now_s,
                Property::Newest => now_s,
                _ => 0,
            };
            let most = self.needs.properties.get(&property).map_or(0, |most| most.saturating_sub(base));
            let most = if property == Property::Oldest { most.min(now_s) } else { most };
            let own = property.of(&template, json_bytes(&template)) - base;
            let found = largest(own, most, async |value| {
                // Of one author a relay keeps the newest replaceable event, and may refuse the others.
                let author = match template.class() {
                    KindClass::Regular => FIRST,
                    _ => {
                        self.tried += 1;
                        self.tried
                    }
                };
                let event = changed(self.peer, &template, property, base + value, author).await;
                if self.answers.rules.refuses(&event, json_bytes(&event)).is_some() {
                    return None; // Known: many tags may be too many bytes.
                }
                self.note(&event, author);
                talk.publish(&[event]).await[0].refusal()
            });
            if let Some((value, said)) = found.await {
                // An event ages until it is sent.
                let ages = if property == Property::Oldest { value / PRECISION } else { 0 };
                self.answers.rules.bounds.insert(property, Bound { most: base + value - ages, said });
            }
        }
    }

    /// The widest request of each list of kinds, subscriptions at one time, and a reconciliation.
    async fn requests(&mut self, talk: &mut Talk) {
        if !self.answers.reads(self.needs.auth) {
            return;
        }
        for ((what, width), filter) in &self.needs.requests {
            if self.answers.bounds.contains_key(what) {
                continue;
            }
            let wide = Filter { limit: filter.limit.map(|limit| limit.max(1)), ..filter.clone() };
            let Some(said) = talk.request(wide.clone()).await.refusal() else { continue };
            // One that is refused for its kinds is not too wide.
            match talk.request(narrowest(wide)).await.refusal() {
                Some(said) => self.bound(what, 0, said),
                None => self.bound(what, width - 1, said),
            }
        }
        if !self.answers.bounds.contains_key(SUBSCRIPTIONS) {
            let wanted = self.needs.subscriptions().min(MOST_SUBSCRIPTIONS);
            let rate = self.peer.rate.take();
            let answers = talk.requests(usize::try_from(wanted).unwrap_or(0), &nothing()).await;
            // A refusal of the rate that outlasts pauses is about the subscriptions.
            let said = answers.iter().find_map(Answer::refusal).or(self.peer.rate.replace(rate));
            let open = answers.iter().filter(|answer| **answer == Answer::Taken).count() as i64;
            if let Some(said) = said.filter(|_| open < wanted) {
                self.bound(SUBSCRIPTIONS, open, said);
            }
        }
        if self.needs.reconciles {
            let name = || "doctor-neg".into();
            let open = ClientMessage::NegOpen {
                subscription: name(),
                filter: nothing(),
                message: NOTHING.as_slice().into(),
            };
            self.answers.reconcile = talk.ask(&[open]).await.remove(0);
            talk.say(&ClientMessage::NegClose { subscription: name() });
        }
    }

    /// The deletions (NIP-09) of what was published, of each author its own.
    async fn deletions(&self) -> Vec<Event<'static>> {
        let tag = |id: &[u8; 32]| vec!["e".into(), codecs::hex::encode(id).into()];
        let mut deletions = Vec::new();
        for (author, ids) in &self.published {
            let tags = ids.iter().map(tag).chain([expiration()]).collect();
            deletions.push(event(self.peer, DELETION, tags, *author).await);
        }
        deletions
    }
}

async fn prove(link: &mut Talk, restricted: &Filter) -> Answer {
    let brings = restricted.kinds.as_ref().is_some_and(|kinds| !kinds.is_empty());
    let has_challenge = link.heard().challenge.is_some();
    if brings && !has_challenge {
        link.request(restricted.clone()).await;
    }
    link.authenticate().await
}

/// The largest value that the relay takes, and its words at the next; `None` when it takes `most`.
/// `least` is known to be taken. `probe` returns why the relay refuses a value.
async fn largest(
    least: i64,
    most: i64,
    mut probe: impl AsyncFnMut(i64) -> Option<String>,
) -> Option<(i64, String)> {
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

/// The request with one entry in each list.
fn narrowest(mut filter: Filter) -> Filter {
    let lists = [&mut filter.ids, &mut filter.authors];
    lists.into_iter().flatten().for_each(|list| list.truncate(1));
    filter.tags.iter_mut().for_each(|tag| tag.values.truncate(1));
    filter
}

/// Whether a relay may store the event.
fn is_kept(event: &Event<'_>) -> bool {
    event.class() != KindClass::Ephemeral
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

/// An event of this second without content.
async fn event(peer: &Peer, kind: u16, tags: Vec<Tag<'static>>, author: usize) -> Event<'static> {
    let (id, pubkey, created_at) = ([0; 32], [0; 32], now_s());
    let event = Event { id, pubkey, created_at, kind, tags, content: "".into(), sig: [0; 64] };
    peer.sign(event, author).await
}

/// Asks to expire soon (NIP-40).
fn expiration() -> Tag<'static> {
    vec!["expiration".into(), (now_s() + LIFETIME_S).to_string().into()]
}

/// An event of the template's kind and form, by another author, with other references, that asks to
/// expire. An ephemeral one does not ask: relays should keep one that does.
async fn like(peer: &Peer, template: &Event<'static>, author: usize) -> Event<'static> {
    let made = corpus::fresh::events(&[template], 1, RandomState::new().hash_one(template.id));
    let mut event = made.into_iter().next().unwrap_or_else(|| template.clone());
    event.created_at = now_s();
    event.tags.retain(|tag| tag.first().is_none_or(|name| name != "expiration"));
    if is_kept(&event) {
        event.tags.push(expiration());
    }
    peer.sign(event, author).await
}

/// The template with another value of a property, by another author.
async fn changed(
    peer: &Peer,
    template: &Event<'static>,
    property: Property,
    value: i64,
    author: usize,
) -> Event<'static> {
    let mut event = template.clone();
    let x = |count: i64| "x".repeat(usize::try_from(count).unwrap_or(0));
    match property {
        Property::EventBytes => {
            let more = value - property.of(&event, json_bytes(&event));
            event.content = format!("{}{}", event.content, x(more)).into();
        }
        Property::EventTags => {
            let own = property.of(&event, 0);
            event.tags.extend((own..value).map(|n| vec!["t".into(), n.to_string().into()]));
        }
        Property::TagValueBytes => event.tags.push(vec!["t".into(), x(value).into()]),
        Property::OddReferences => {
            event.tags.extend(["e", "p"].map(|name| vec![name.into(), "no hex".into()]));
        }
        Property::Oldest => event.created_at = -value,
        Property::Newest => event.created_at = value,
    }
    peer.sign(event, author).await
}
