//! The rehearsal: the extremes of a plan are sent once, on as many connections as the plan makes, and
//! an event of each kind is asked back on several of them.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, RandomState},
    rc::Rc,
    time::Duration,
};

use codecs::{ClientMessage, Event, Filter, KindClass, Tag};
use corpus::rules::{Bound, Property, Withheld};
use futures::future::join_all;
use tokio::time::{Instant, sleep};
use wire::WireError;

use super::{
    answers::{AUTH, Answers, READ, READ_AFTER_AUTH, RECONCILE},
    needs::{CONNECTIONS, Needs, STORED, SUBSCRIPTIONS, UNLIMITED, json_bytes},
    talk::{Answer, EPHEMERAL, FIRST, Peer, Talk, is_kept, nothing, now_s},
};
use crate::sockets::resources;

/// NIP-09.
const DELETION: u16 = 5;

/// How long events ask to live (NIP-40).
const LIFETIME_S: i64 = 600;

/// Steps of a bisection, each one message, and the time of all: a relay may be silent to what it refuses.
const STEPS: usize = 8;
const TIME_TO_BISECT: Duration = Duration::from_secs(30);

/// One part in so many of its age is taken off a bound: events age until they are sent.
const AGES: i64 = 50;

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
    let read = talk.request(nothing()).await;
    if read == Answer::Silent
        && talk.publish(&peer.sign(event(EPHEMERAL, vec![]), FIRST).await).await != Answer::Taken
    {
        let foreign = talk.heard.borrow().foreign.clone();
        let said = foreign.map_or_else(String::new, |said| format!("; it said {said}"));
        answers.stopped = Some(format!("the relay answers neither EVENT nor REQ{said}"));
        return Ok(());
    }
    let mut rehearsal = Rehearsal { peer, needs, answers, tried: AFTER_AUTH };
    rehearsal.note(READ, &read);
    rehearsal.told();
    let mut links = vec![talk];
    links.extend(rehearsal.connections().await);
    let kinds = rehearsal.kinds(&mut links, needs.written.values(), FIRST).await;
    rehearsal.answers.rules.kinds_after_auth.clone_from(&kinds);
    rehearsal.answers.rules.kinds = kinds;
    if needs.auth {
        rehearsal.log_in(&mut links).await;
    }
    if rehearsal.answers.stopped.is_none() {
        let deadline = Instant::now() + TIME_TO_BISECT;
        rehearsal.bounds(&mut links[0], deadline).await;
        rehearsal.requests(&mut links[0], deadline).await;
    }
    delete(peer, &mut links[0]).await;
    join_all(links.into_iter().map(Talk::close)).await;
    Ok(())
}

/// A rehearsal under way.
struct Rehearsal<'a> {
    peer: &'a Rc<Peer>,
    needs: &'a Needs,
    answers: &'a mut Answers,
    /// The last author of a bound on a replaceable event.
    tried: usize,
}

impl Rehearsal<'_> {
    /// Notes whether the relay does this.
    fn note(&mut self, what: &str, answer: &Answer) {
        if *answer != Answer::Limited {
            self.answers.tried.insert(what.to_owned(), answer.refusal());
        }
    }

    /// Notes what the relay has too little of.
    fn bound(&mut self, what: &str, most: i64, said: String) {
        self.answers.bounds.insert(what.to_owned(), Bound { most, said });
    }

    /// Bounds that NIP-11 states.
    fn told(&mut self) {
        let wanted = [
            (SUBSCRIPTIONS, "max_subscriptions", self.needs.subscriptions()),
            (STORED, "max_limit", self.needs.most(STORED)),
            (UNLIMITED, "default_limit", self.needs.most(UNLIMITED)),
        ];
        for (what, name, wanted) in wanted {
            let stated = self.answers.info.as_ref().and_then(|info| info.limitation.get(name).copied());
            if let Some(most) = stated.filter(|most| *most < wanted) {
                self.bound(what, most, format!("{name} of NIP-11"));
            }
        }
    }

    /// Opens the other connections of the plan, each of which makes a small request, and keeps some.
    async fn connections(&mut self) -> Vec<Talk> {
        let wanted = self.needs.most(CONNECTIONS).clamp(2, MOST_CONNECTIONS) - 1;
        let wanted = usize::try_from(wanted).unwrap_or(0);
        // Where a plan needs more than this process may open, a run says so.
        let may_open = resources::raise_descriptor_limit(wanted).is_ok();
        let wanted = if may_open { wanted } else { wanted.min(READERS) };
        let (peer, asks) = (self.peer, self.answers.does(READ));
        let open = async || {
            let mut other = Talk::open(peer).await?;
            let refused = if asks { other.request(nothing()).await.refusal() } else { None };
            refused.map_or(Ok(other), |said| Err(anyhow::Error::msg(said)))
        };
        let met_here = |error: &anyhow::Error| match error.downcast_ref() {
            Some(WireError::Io(error)) => resources::ran_out(error),
            _ => false,
        };
        let (mut others, mut failed) = (Vec::new(), false);
        let deadline = Instant::now() + TIME_TO_OPEN;
        while others.len() < wanted && Instant::now() < deadline {
            match open().await {
                Ok(other) => {
                    others.push(other);
                    failed = false;
                }
                Err(error) if met_here(&error) => break,
                Err(error) if failed => {
                    let most = i64::try_from(others.len() + 1).unwrap_or(i64::MAX);
                    self.bound(CONNECTIONS, most, format!("{error:#}"));
                    break;
                }
                // The relay may bound how many come within a second.
                Err(_) => {
                    failed = true;
                    sleep(PAUSE).await;
                }
            }
        }
        let more = others.split_off(others.len().min(READERS));
        join_all(more.into_iter().map(Talk::close)).await;
        others
    }

    /// Publishes an event like each template on the first connection while the others listen, and asks
    /// for them on all. Returns what is refused or not given back.
    async fn kinds(
        &mut self,
        links: &mut [Talk],
        templates: impl Iterator<Item = &Event<'static>>,
        author: usize,
    ) -> BTreeMap<u16, Withheld> {
        let mut events = Vec::new();
        for template in templates {
            events.push(self.peer.sign(like(template), author).await);
        }
        let Some(first) = events.first() else { return BTreeMap::new() };
        let theirs =
            Filter { authors: Some(vec![first.pubkey]), since: Some(first.created_at), ..Filter::default() };
        links.iter().for_each(|link| link.look_for(&events));
        if self.needs.live {
            // As a run asks.
            let live = Filter { limit: Some(0), ..theirs.clone() };
            join_all(links.iter_mut().skip(1).map(|reader| reader.listen(live.clone()))).await;
        }
        let (mut taken, mut set_aside) = (Vec::new(), BTreeMap::new());
        let answers = links[0].publish_all(&events).await;
        for (event, answer) in events.into_iter().zip(answers) {
            match unpublished(&answer) {
                None if answer == Answer::Taken => taken.push(event),
                None => {}
                Some(why) => _ = set_aside.insert(event.kind, Withheld { why, live: false, stored: false }),
            }
        }
        // A relay may take one subscription at a time, or some time to store and to deliver.
        let deadline = Instant::now() + self.peer.patience;
        join_all(links.iter_mut().map(|link| link.stop_listening(&taken, deadline))).await;
        let kept = || taken.iter().filter(|event| is_kept(event));
        let mut pause = PAUSE / 10;
        let gives = loop {
            let answers = join_all(links.iter_mut().map(|link| link.request(theirs.clone()))).await;
            let has_all = |link: &Talk| kept().all(|event| link.heard.borrow().stored.contains(&event.id));
            if links.iter().all(has_all) || pause > self.peer.patience / 2 {
                break answers;
            }
            sleep(pause).await;
            pause *= 2;
        };
        for event in &taken {
            let withheld = self.withheld(links, &gives, event, &theirs).await;
            set_aside.extend(withheld.map(|withheld| (event.kind, withheld)));
        }
        set_aside
    }

    /// How the relay withholds an event that it took; `None` where it does not. `gives` are its answers
    /// when it was asked for the events.
    async fn withheld(
        &mut self,
        links: &mut [Talk],
        gives: &[Answer],
        event: &Event<'_>,
        theirs: &Filter,
    ) -> Option<Withheld> {
        let given = links.iter().zip(gives).filter(|(_, answer)| **answer == Answer::Taken);
        let given: Vec<_> = given.map(|(link, _)| link.heard.borrow().stored.contains(&event.id)).collect();
        let listened = links.iter().filter(|link| link.listens);
        let live: Vec<_> = listened.map(|link| link.heard.borrow().live.contains(&event.id)).collect();
        let without = given.iter().filter(|given| !**given).count();
        if is_kept(event) && without == given.len() {
            let filter = Filter { kinds: Some(vec![event.kind]), ..theirs.clone() };
            let answer = links[0].request(filter).await;
            let heard = links[0].heard.borrow();
            let why = match answer {
                Answer::Refused(said) => format!("withheld: \"{said}\""),
                _ if heard.stored.contains(&event.id) => return None,
                _ if links[0].proven => "withheld after AUTH".to_owned(),
                _ if heard.challenge.is_some() => "withheld without AUTH".to_owned(),
                _ => "accepted and not given back".to_owned(),
            };
            return Some(Withheld { why, live: live.contains(&true), stored: false });
        }
        if is_kept(event) && without > 0 {
            self.answers.stopped = Some(format!(
                "more than one relay answers behind this address: {without} of {} connections did not get an event of \
                 kind {} that another one published; name one relay, or have them pass events to each other",
                given.len(),
                event.kind
            ));
            return None;
        }
        let is_mute = !live.is_empty() && !live.contains(&true);
        let why = "accepted and not delivered to live subscriptions";
        is_mute.then(|| Withheld { why: why.to_owned(), live: false, stored: true })
    }

    /// Answers the relay's challenge, which may come with a restricted request, and publishes again what
    /// was set aside. Connections without AUTH are left.
    async fn log_in(&mut self, links: &mut Vec<Talk>) {
        let kinds = self.answers.rules.kinds.clone();
        let withheld = kinds.iter().filter(|(_, withheld)| withheld.why.starts_with("withheld"));
        let withheld: Vec<u16> = withheld.map(|(kind, _)| *kind).collect();
        let restricted = Filter { kinds: Some(withheld).filter(|kinds| !kinds.is_empty()), ..nothing() };
        let proofs = links.iter_mut().map(|link| link.authenticate(&restricted));
        let Some(proof) = join_all(proofs).await.swap_remove(0) else { return };
        self.note(AUTH, &proof);
        if proof == Answer::Taken {
            self.note(READ_AFTER_AUTH, &links[0].request(nothing()).await);
            links.retain(|link| link.proven);
            let written = &self.needs.written;
            let again = kinds.keys().filter_map(|kind| written.get(kind));
            self.answers.rules.kinds_after_auth = self.kinds(links, again, AFTER_AUTH).await;
        }
    }

    /// The largest of each property of an event, of a regular kind where the relay takes one.
    async fn bounds(&mut self, talk: &mut Talk, deadline: Instant) {
        let refused = &self.answers.rules.kinds_after_auth;
        let stays = |event: &&Event<'_>| is_kept(event) && !refused.contains_key(&event.kind);
        let is_special = |event: &&Event<'_>| event.class() != KindClass::Regular;
        let taken = self.needs.written.values().filter(stays).min_by_key(is_special);
        let Some(template) = taken.map(like) else { return };
        for property in Property::ALL {
            let Some(most) = self.needs.properties.get(&property).copied() else { continue };
            // Dates begin in 1970.
            let most = if property == Property::Oldest { most.min(0) } else { most };
            let range = (property.of(&template, json_bytes(&template)), most);
            let found = largest(range, deadline, async |value| {
                // Of one author a relay keeps the newest replaceable event, and may refuse the others.
                let author = if template.class() == KindClass::Regular {
                    FIRST
                } else {
                    self.tried += 1;
                    self.tried
                };
                let event = changed(&template, property, value);
                if self.answers.rules.refuses(&event, json_bytes(&event)).is_some() {
                    return None; // Known: many tags may be too many bytes.
                }
                talk.publish(&self.peer.sign(event, author).await).await.refusal()
            });
            if let Some((value, said)) = found.await {
                let age_s = if property == Property::Oldest { now_s() + value } else { 0 };
                self.answers.rules.bounds.insert(property, Bound { most: value - age_s / AGES, said });
            }
        }
    }

    /// The widest request of each list of kinds, subscriptions at one time, and a reconciliation.
    async fn requests(&mut self, talk: &mut Talk, deadline: Instant) {
        if !self.answers.reads(self.needs.auth) {
            return;
        }
        for (what, filter) in &self.needs.requests {
            // One that is refused for its kinds takes no entry.
            let asks = async |entries: i64| talk.request(narrowed(filter, entries)).await.refusal();
            if let Some((most, said)) = largest((0, self.needs.most(what)), deadline, asks).await {
                self.bound(what, most, said);
            }
        }
        if !self.answers.bounds.contains_key(SUBSCRIPTIONS) {
            let wanted = self.needs.subscriptions().min(MOST_SUBSCRIPTIONS);
            let (rate, mut refused) = (self.peer.rate.take(), None);
            let names: Vec<String> = (0..wanted).map(|n| format!("doctor-many-{n}")).collect();
            for (name, open) in names.iter().zip(0..) {
                let answer = talk.subscribe(name, nothing()).await;
                if answer != Answer::Taken {
                    // A refusal of the rate that outlasts pauses is about the subscriptions.
                    refused = answer.refusal().or(self.peer.rate.take()).map(|said| (open, said));
                    break;
                }
            }
            self.peer.rate.replace(rate);
            names.iter().for_each(|name| talk.unsubscribe(name));
            if let Some((open, said)) = refused {
                self.bound(SUBSCRIPTIONS, open, said);
            }
        }
        if self.needs.reconciles {
            let name = "doctor-neg";
            let open = ClientMessage::NegOpen {
                subscription: name.into(),
                filter: nothing(),
                message: NOTHING.as_slice().into(),
            };
            self.note(RECONCILE, &talk.ask(name, &open).await);
            talk.say(&ClientMessage::NegClose { subscription: name.into() });
        }
    }
}

/// Why an event was not taken; `None` also where the relay refused the rate alone.
fn unpublished(answer: &Answer) -> Option<String> {
    match answer {
        // NIP-01 asks for OK since it took in NIP-20, by which an ephemeral event had an OK only if it
        // failed.
        Answer::Silent => Some("the relay sends no OK".to_owned()),
        Answer::Refused(said) if said.starts_with("pow:") => {
            Some(format!("refused: \"{said}\"; --pow BITS gives events so many (NIP-13)"))
        }
        Answer::Refused(said) => Some(format!("refused: \"{said}\"")),
        other => other.refusal(),
    }
}

/// The largest value that the relay takes, and its words at the next; `None` when it takes `most`.
/// `least` is taken. `probe` returns why the relay refuses a value. After the deadline it steps no more.
async fn largest(
    (least, most): (i64, i64),
    deadline: Instant,
    mut probe: impl AsyncFnMut(i64) -> Option<String>,
) -> Option<(i64, String)> {
    let (mut taken, mut over) = (least, most);
    if over <= taken {
        return None;
    }
    let mut said = probe(over).await?;
    for _ in 0..STEPS {
        let middle = taken + (over - taken) / 2;
        if middle == taken || Instant::now() > deadline {
            break;
        }
        match probe(middle).await {
            None => taken = middle,
            Some(words) => (over, said) = (middle, words),
        }
    }
    Some((taken, said))
}

/// The request with so many entries in each list at most.
fn narrowed(filter: &Filter, entries: i64) -> Filter {
    let (mut filter, entries) = (filter.clone(), usize::try_from(entries).unwrap_or(0));
    [&mut filter.ids, &mut filter.authors].into_iter().flatten().for_each(|list| list.truncate(entries));
    filter.tags.iter_mut().for_each(|tag| tag.values.truncate(entries));
    filter.limit = filter.limit.map(|limit| limit.max(1));
    filter
}

/// Deletes what was published (NIP-09), of each author its own.
async fn delete(peer: &Peer, talk: &mut Talk) {
    let tag = |id: &[u8; 32]| vec!["e".into(), codecs::hex::encode(id).into()];
    let published = peer.signed.borrow().clone();
    for (author, ids) in published {
        let tags = ids.iter().map(tag).chain([expiration()]).collect();
        talk.publish(&peer.sign(event(DELETION, tags), author).await).await;
    }
}

/// An event of this second without content, author and signature.
fn event(kind: u16, tags: Vec<Tag<'static>>) -> Event<'static> {
    let (id, pubkey, created_at) = ([0; 32], [0; 32], now_s());
    Event { id, pubkey, created_at, kind, tags, content: "".into(), sig: [0; 64] }
}

/// Asks to expire soon (NIP-40).
fn expiration() -> Tag<'static> {
    vec!["expiration".into(), (now_s() + LIFETIME_S).to_string().into()]
}

/// An event of the template's kind and form, with other references, that asks to expire and is yet to
/// be signed. An ephemeral one does not ask: relays should keep one that does.
fn like(template: &Event<'static>) -> Event<'static> {
    let made = corpus::fresh::events(&[template], 1, RandomState::new().hash_one(template.id));
    let mut event = made.into_iter().next().unwrap_or_else(|| template.clone());
    event.created_at = now_s();
    event.tags.retain(|tag| tag.first().is_none_or(|name| name != "expiration"));
    if is_kept(&event) {
        event.tags.push(expiration());
    }
    event
}

/// The template with another value of a property, yet to be signed.
fn changed(template: &Event<'static>, property: Property, value: i64) -> Event<'static> {
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
    event
}
