//! The probes. Each asks for the largest first, which a relay without that bound takes at once.

use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

use codecs::{ClientMessage, Event, Filter, KindClass, RelayMessage, TagFilter};
use corpus::{Rules, rules::longest_tag_value};
use negentropy::{Negentropy, NegentropyStorageVector};

use super::{
    answers::{Answer, Answers, Demand, Seam, Ties},
    events::{
        DELETION, Deletable, EPHEMERAL, STORED, deletions, expiration, larger, like, short_lived, small,
    },
    needs::{Needs, json_bytes},
    table::is_set_aside,
    talk::{Peer, Talk, event, now_s},
};

/// Steps of a bisection, each one message.
const STEPS: usize = 8;

/// A bound is told to one part in so many.
const PRECISION: u64 = 50;

/// Subscriptions opened at most.
const MAX_SUBSCRIPTIONS: u64 = 64;

/// Kinds asked for at most.
const MAX_KINDS: usize = 40;

/// Events of the burst that looks for a limit of rate.
const BURST: u64 = 100;

/// Events published while subscriptions are opened.
const SEAM_EVENTS: usize = 24;

/// Subscriptions opened meanwhile.
const SEAM_SUBSCRIPTIONS: u64 = 3;

/// How long to listen behind the last delivery that is due.
const AFTER_THE_LAST: Duration = Duration::from_millis(200);

/// Runs the probes that every run with `--url` needs; `answers` holds what came so far at any time.
/// Returns an event that the relay keeps, as a template.
pub(super) async fn cheap(talk: &mut Talk, needs: &Needs, answers: &mut Answers) -> Option<Event<'static>> {
    let ephemeral = small(talk, "one");
    answers.write = talk.publish(&ephemeral).await;
    answers.read = talk.request(nothing(None)).await.answer;
    answers.challenge = talk.challenged;
    if answers.read == Answer::Silent && answers.write != Answer::Taken {
        let said = talk.foreign.iter().map(|said| format!("; it said {said}")).collect::<String>();
        answers.stopped = Some(format!("the relay answers neither EVENT nor REQ{said}"));
        return None;
    }
    answers.written_kinds = kinds(talk, needs.written.values()).await;
    answers.write = talk.meanwhile(&ephemeral.id).unwrap_or(answers.write.clone());
    if needs.auth {
        log_in(talk, needs, answers).await;
    }
    let unanswered = needs.written.keys().filter(|kind| {
        answers.to_kind(**kind, needs.auth).is_some_and(|answer| is_set_aside(**kind, answer))
    });
    answers.rules.unanswered_kinds = unanswered.copied().collect();
    answers.limit_zero = talk.request(Filter { limit: Some(0), ..nothing(None) }).await.answer;
    let mut stored = Vec::new();
    // Sizes are tried with the ephemeral event, where the relay answers it.
    let ephemeral = takes_ephemeral(answers).then(|| small(talk, "one"));
    let kept = if ephemeral.is_none() || needs.oldest_s.is_some() {
        kept(talk, needs, answers, &mut stored).await
    } else {
        None
    };
    if let Some(carrier) = ephemeral.as_ref().or(kept.as_ref()) {
        events(talk, needs, (carrier, answers), &mut stored).await;
    }
    if let Some((oldest_s, template)) = needs.oldest_s.zip(kept.as_ref()) {
        age(talk, template, oldest_s, answers, &mut stored).await;
    }
    delete(talk, &stored).await;
    if answers.reads(needs.auth) {
        requests(talk, needs, answers).await;
    }
    if needs.reconciles {
        answers.reconcile = reconcile(talk).await;
    }
    answers.challenge |= talk.challenged;
    kept
}

/// Runs the probes that publish more: ties, the seam of stored and live events, a burst.
pub(super) async fn thorough(
    talk: &mut Talk,
    peer: &Peer,
    kept: Option<Event<'static>>,
    answers: &mut Answers,
) {
    let reads = [&answers.read, &answers.read_after_auth].contains(&&Answer::Taken);
    let mut stored = Vec::new();
    if let Some(template) = kept.filter(|_| reads) {
        answers.ties = ties(talk, &template, &mut stored).await;
        answers.seam = seam(talk, peer, &template, &mut stored).await;
    }
    delete(talk, &stored).await;
    if takes_ephemeral(answers) {
        burst(talk, answers).await;
    }
}

fn takes_ephemeral(answers: &Answers) -> bool {
    [&answers.write, &answers.write_after_auth].contains(&&Answer::Taken)
}

/// Answers the relay's challenge, and asks again for what was refused before.
async fn log_in(talk: &mut Talk, needs: &Needs, answers: &mut Answers) {
    let not_taken = |kind: &u16| answers.written_kinds.get(kind) != Some(&Answer::Taken);
    let refused: Vec<_> =
        needs.written.iter().filter(|(kind, _)| not_taken(kind)).map(|(_, event)| event).collect();
    if answers.write == Answer::Taken && answers.read == Answer::Taken && refused.is_empty() {
        return;
    }
    answers.write_after_auth = talk.authenticate().await;
    if answers.write_after_auth != Answer::Taken {
        return;
    }
    answers.write_after_auth = talk.publish(&small(talk, "one")).await;
    answers.read_after_auth = talk.request(nothing(None)).await.answer;
    answers.kinds_after_auth = kinds(talk, refused).await;
}

/// Publishes an event like each of these, and deletes them. All are on the way together, because a
/// relay may answer late.
async fn kinds(
    talk: &mut Talk,
    templates: impl IntoIterator<Item = &Event<'static>>,
) -> BTreeMap<u16, Answer> {
    let mut answers = BTreeMap::new();
    let (deletion, others): (Vec<_>, Vec<_>) =
        templates.into_iter().partition(|event| event.kind == DELETION);
    let events: Vec<_> = others.into_iter().map(|template| like(talk, template)).collect();
    for event in &events {
        if talk.publish_without_waiting(event).await.is_err() {
            break;
        }
    }
    let (usual, latest) = talk.deadlines();
    let is_ephemeral = |event: &Event<'_>| event.class() == KindClass::Ephemeral;
    let (ephemeral, others): (Vec<_>, Vec<_>) = events.iter().partition(|event| is_ephemeral(event));
    let (mut stored, mut together) = (Vec::new(), true);
    for event in others.into_iter().chain(ephemeral) {
        let deadline = if is_ephemeral(event) { usual } else { latest };
        let mut answer = Answer::NotAsked;
        if together {
            answer = talk.late_answer_to(&event.id, deadline).await;
            together = talk.is_open();
        }
        if !together {
            // One of them ended the connection: which one, shows alone.
            answer = talk.publish(event).await;
        }
        if !is_ephemeral(event) {
            stored.push(("kinds", event.id, event.kind));
        }
        answers.insert(event.kind, answer);
    }
    if !deletion.is_empty() {
        let one = stored.pop().unwrap_or(("kinds", key_of_nobody(0), DELETION));
        for deletes in deletions(talk, &[one]) {
            answers.insert(DELETION, talk.publish(&deletes).await);
        }
    }
    delete(talk, &stored).await;
    answers
}

/// An event that the relay keeps: of a kind that no scenario asks for, or else of a regular one
/// that the plan needs.
async fn kept(
    talk: &mut Talk,
    needs: &Needs,
    answers: &Answers,
    stored: &mut Vec<Deletable>,
) -> Option<Event<'static>> {
    if !answers.is_written() {
        return None;
    }
    let unasked = event(STORED, now_s(), vec![], String::new());
    let probe = short_lived(talk, &unasked, "one", 0);
    stored.push(("one", probe.id, STORED));
    if talk.publish(&probe).await == Answer::Taken {
        return Some(unasked);
    }
    let is_regular = |event: &&Event<'static>| event.class() == KindClass::Regular && event.kind != DELETION;
    let taken = |event: &&Event<'static>| answers.to_kind(event.kind, needs.auth) == Some(&Answer::Taken);
    needs.written.values().filter(is_regular).find(taken).map(|template| like(talk, template))
}

/// The bounds on events.
async fn events(
    talk: &mut Talk,
    needs: &Needs,
    (carrier, answers): (&Event<'static>, &mut Answers),
    stored: &mut Vec<Deletable>,
) {
    let least = larger(talk, carrier, vec![], "", &mut Vec::new());
    let own = json_bytes(&least);
    let bytes = largest(own, needs.event_bytes, async |bytes| {
        let content = "x".repeat(usize::try_from(bytes.saturating_sub(own)).unwrap_or(0));
        talk.publish(&larger(talk, carrier, vec![], &content, stored)).await.refusal()
    });
    answers.note(Demand::EventBytes, bytes.await, |rules, bound| rules.event_bytes = bound);
    let own = least.tags.len() as u64;
    let tags = largest(own.max(1), needs.event_tags, async |count| {
        let tags = (own..count).map(|n| vec!["t".into(), n.to_string().into()]).collect();
        talk.publish(&larger(talk, carrier, tags, "", stored)).await.refusal()
    });
    answers.note(Demand::EventTags, tags.await, |rules, bound| rules.event_tags = bound);
    let own = longest_tag_value(&least).max(1);
    let value = largest(own, needs.tag_value_bytes, async |bytes| {
        let value = "x".repeat(usize::try_from(bytes).unwrap_or(0));
        let tags = vec![vec!["t".into(), value.into()]];
        talk.publish(&larger(talk, carrier, tags, "", stored)).await.refusal()
    });
    answers.note(Demand::TagValueBytes, value.await, |rules, bound| rules.tag_value_bytes = bound);
    if needs.odd_references > 0 {
        for name in ["e", "p"] {
            let tags = vec![vec![name.into(), "no hex".into()]];
            if let Some(said) = talk.publish(&larger(talk, carrier, tags, "", stored)).await.refusal() {
                answers.rules.hex_references = true;
                answers.said.insert(Demand::HexReferences, said);
            }
        }
    }
}

/// The earliest `created_at`. Ephemeral events have rules of their own, so this one may be stored.
async fn age(
    talk: &mut Talk,
    template: &Event<'static>,
    oldest_s: i64,
    answers: &mut Answers,
    stored: &mut Vec<Deletable>,
) {
    // Before the plan's first, so that no request with `since` finds it.
    let most = u64::try_from(now_s() - oldest_s).unwrap_or(0) + 1;
    let found = largest(60, most, async |age_s| {
        let mut event = template.clone();
        event.created_at = now_s() - i64::try_from(age_s).unwrap_or(0);
        event.tags = vec![expiration(now_s())];
        talk.sign(&mut event, "one");
        stored.push(("one", event.id, event.kind));
        talk.publish(&event).await.refusal()
    })
    .await;
    answers.note(Demand::Age, found, |rules, bound| {
        rules.oldest_s = bound.map(|age_s| now_s() - i64::try_from(age_s).unwrap_or(0));
    });
}

/// The bounds on requests.
async fn requests(talk: &mut Talk, needs: &Needs, answers: &mut Answers) {
    let values = largest(1, needs.filter_values, async |values| {
        let authors = Some((0..values).map(key_of_nobody).collect());
        let filter = Filter { kinds: Some(vec![EPHEMERAL]), authors, limit: Some(1), ..Filter::default() };
        talk.request(filter).await.answer.refusal()
    });
    answers.note(Demand::FilterValues, values.await, |rules, bound| rules.filter_values = bound);
    subscriptions(talk, needs.subscriptions.min(MAX_SUBSCRIPTIONS), answers).await;
    for kind in needs.kinds.iter().take(MAX_KINDS) {
        if let Some(said) = talk.request(nothing(Some(*kind))).await.answer.refusal() {
            answers.unread_kinds.insert(*kind, said);
        }
    }
    let stated = answers.info.as_ref().map(|info| info.limitation.clone()).unwrap_or_default();
    answers.rules.stored_events = stated.max_limit.filter(|stated| *stated < needs.stored_events);
    answers.rules.unlimited_events = stated.default_limit.filter(|stated| *stated < needs.unlimited_events);
}

async fn subscriptions(talk: &mut Talk, wanted: u64, answers: &mut Answers) {
    let mut open = Vec::new();
    let mut refused = None;
    while (open.len() as u64) < wanted {
        let (name, reply) = talk.subscribe(nothing(None)).await;
        if let Some(said) = reply.answer.refusal() {
            refused = Some((open.len() as u64, said));
            break;
        }
        open.push(name);
    }
    for name in open {
        talk.unsubscribe(&name).await;
    }
    answers.note(Demand::Subscriptions, refused, |rules, bound| rules.subscriptions = bound);
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
    let open = ClientMessage::NegOpen {
        subscription: subscription(),
        filter: nothing(None),
        message: message.into(),
    };
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

/// Three stored events of one second, of which two are asked for.
async fn ties(talk: &mut Talk, template: &Event<'static>, stored: &mut Vec<Deletable>) -> Ties {
    let mut ids = Vec::new();
    for n in 0..3 {
        let event = short_lived(talk, template, "ties", n);
        if talk.publish(&event).await != Answer::Taken {
            return Ties::Unknown;
        }
        ids.push(event.id);
        stored.push(("ties", event.id, event.kind));
    }
    ids.sort_unstable();
    let author = short_lived(talk, template, "ties", 0).pubkey;
    let kinds = Some(vec![template.kind]);
    let filter = Filter { authors: Some(vec![author]), kinds, ..Filter::default() };
    let reply = talk.request(Filter { limit: Some(2), ..filter }).await;
    match reply.ids.as_slice() {
        [] => Ties::Unknown,
        found if *found == ids[..2] => Ties::LowestIdFirst,
        _ => Ties::Other,
    }
}

/// Publishes on one connection while another opens subscriptions to the same events.
async fn seam(
    talk: &mut Talk,
    peer: &Peer,
    template: &Event<'static>,
    stored: &mut Vec<Deletable>,
) -> Option<Seam> {
    let mut reader = Talk::open(peer).await.ok()?;
    let events: Vec<_> = (0..SEAM_EVENTS).map(|n| short_lived(talk, template, "seam", n)).collect();
    let (authors, kinds) = (Some(vec![events[0].pubkey]), Some(vec![template.kind]));
    let filter = Filter { authors, kinds, ..Filter::default() };
    let publish = async {
        for event in &events {
            talk.publish_without_waiting(event).await.ok()?;
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Some(())
    };
    let read = async {
        for _ in 0..SEAM_SUBSCRIPTIONS {
            reader.subscribe(filter.clone()).await;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let (published, ()) = tokio::join!(publish, read);
    published?;
    let mut accepted = 0;
    for event in &events {
        stored.push(("seam", event.id, event.kind));
        match talk.answer_to(&event.id).await {
            Answer::Taken => accepted += 1,
            Answer::Refused(_) => {}
            _ => break,
        }
    }
    let due = accepted * SEAM_SUBSCRIPTIONS;
    let distinct = |reader: &Talk| reader.heard.iter().collect::<HashSet<_>>().len() as u64;
    while distinct(&reader) < due && reader.hear().await {}
    // A second copy comes behind the last event.
    while matches!(tokio::time::timeout(AFTER_THE_LAST, reader.hear()).await, Ok(true)) {}
    let (came, distinct) = (reader.heard.len() as u64, distinct(&reader));
    talk.spent.connections += 1;
    let requests = reader.close().await.requests;
    talk.spent.requests += requests;
    Some(Seam { due, doubled: came - distinct, missing: due.saturating_sub(distinct) })
}

/// Ephemeral events as quickly as they can be sent.
async fn burst(talk: &mut Talk, answers: &mut Answers) {
    let events: Vec<_> = (0..BURST).map(|n| small(talk, &format!("burst {n}"))).collect();
    let mut sent = Vec::new();
    for event in &events {
        if talk.publish_without_waiting(event).await.is_err() {
            break;
        }
        sent.push(event.id);
    }
    let mut accepted = 0;
    for id in &sent {
        match talk.answer_to(id).await {
            Answer::Taken => accepted += 1,
            other => {
                if let Some(said) = other.refusal() {
                    answers.said.entry(Demand::Rate).or_insert(said);
                }
                if !matches!(other, Answer::Refused(_)) {
                    break;
                }
            }
        }
    }
    answers.burst = Some((accepted, BURST));
}

/// Deletes what the probes may have stored. Not every relay deletes: events and deletions also ask
/// to expire (NIP-40).
async fn delete(talk: &mut Talk, stored: &[Deletable]) {
    for deletion in deletions(talk, stored) {
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

impl Answers {
    /// Notes a bound with the relay's words, if one was met.
    fn note(
        &mut self,
        demand: Demand,
        found: Option<(u64, String)>,
        set: impl FnOnce(&mut Rules, Option<u64>),
    ) {
        let (bound, said) = found.unzip();
        set(&mut self.rules, bound);
        if let Some(said) = said {
            self.said.insert(demand, said);
        }
    }
}

/// A filter that no event matches.
fn nothing(kind: Option<u16>) -> Filter {
    let tags =
        vec![TagFilter { letter: 't', values: vec!["client-sim doctor: nothing has this".to_owned()] }];
    let authors = Some(vec![key_of_nobody(0)]);
    Filter {
        kinds: Some(vec![kind.unwrap_or(EPHEMERAL)]),
        authors,
        tags,
        limit: Some(1),
        ..Filter::default()
    }
}

/// Bytes in the place of a public key.
fn key_of_nobody(n: u64) -> [u8; 32] {
    let mut key = [0x5a; 32];
    key[24..].copy_from_slice(&n.to_be_bytes());
    key
}
