//! What may a client ask, and what does the relay answer? Messages in, answers out: no socket and no bytes, so
//! every rule of NIP-01, 09, 42, 45, 70 and 77 can be tested as values.

use std::{borrow::Cow, collections::BTreeMap, net::IpAddr, slice, sync::Arc};

use codecs::{
    ClientMessage, Event, Filter, Format, Limit, OverLimit, RelayMessage, Request, VerifyLevel, hex,
};

use crate::{
    fanout::Outbox,
    reconcile::Reconciliations,
    relay::Relay,
    store::{Outcome, StoredEvent},
    subscriptions::Subscription,
    totals::add,
};

/// NIP-42: proves who the client is to one relay, and is nobody else's business.
const CLIENT_AUTH: u16 = 22_242;

/// How far an AUTH event's clock may be off (NIP-42 suggests ten minutes).
const AUTH_CLOCK_SECONDS: u64 = 600;

/// Authors that one connection may prove to be, so that it cannot grow without bound.
const MAX_AUTHORS: usize = 100;

/// One client: its subscriptions and who it proved to be.
#[derive(Debug)]
pub(crate) struct Peer {
    relay: Arc<Relay>,
    format: Format,
    outbox: Arc<Outbox>,
    subscriptions: BTreeMap<String, Arc<Subscription>>,
    reconciliations: Reconciliations,
    auth: Option<Auth>,
}

#[derive(Debug)]
struct Auth {
    challenge: String,
    /// What the client may call this relay.
    hosts: Vec<String>,
    authors: Vec<[u8; 32]>,
}

/// What to send back.
#[derive(Debug)]
pub(crate) enum Answer {
    /// Nothing at all.
    Silence,
    /// One message.
    Message(RelayMessage<'static>),
    /// Stored events for this subscription, then its EOSE.
    Stored(Arc<Subscription>, Vec<Arc<StoredEvent>>),
}

impl Peer {
    /// A client that just connected to `local`, and whose AUTH challenge is this.
    pub(crate) fn new(
        relay: Arc<Relay>,
        format: Format,
        outbox: Arc<Outbox>,
        local: IpAddr,
        challenge: [u8; 16],
    ) -> Self {
        let auth = relay.config.auth.then(|| Auth {
            challenge: hex::encode(&challenge),
            hosts: own_hosts(&relay.config.hosts, local),
            authors: Vec::new(),
        });
        let reconciliations = Reconciliations::new(relay.config.reconcile);
        Peer { relay, format, outbox, subscriptions: BTreeMap::new(), reconciliations, auth }
    }

    /// What the relay says before the client says anything.
    pub(crate) fn greeting(&self) -> Option<RelayMessage<'static>> {
        self.auth.as_ref().map(|auth| RelayMessage::Auth { challenge: auth.challenge.clone().into() })
    }

    /// Does what the client asks, at `unix_seconds` since 1970.
    pub(crate) fn answer(&mut self, message: ClientMessage<'_>, unix_seconds: u64) -> Answer {
        match message {
            ClientMessage::Event(event) => self.publish(&event),
            ClientMessage::Req { subscription, filters } => self.request(subscription.into_owned(), filters),
            ClientMessage::Count { subscription, filters } => self.count(subscription.into_owned(), &filters),
            ClientMessage::Close { subscription } => {
                self.end(&subscription);
                Answer::Silence
            }
            ClientMessage::Auth(event) => self.authenticate(&event, unix_seconds),
            ClientMessage::NegOpen { subscription, filter, message } => {
                self.reconcile(&subscription, &filter, &message)
            }
            ClientMessage::NegMsg { subscription, message } => {
                let answer = self.reconciliations.answer(&subscription, &message);
                self.round(&subscription, answer)
            }
            ClientMessage::NegClose { subscription } => {
                self.reconciliations.close(&subscription);
                Answer::Silence
            }
        }
    }

    /// A name for which an event would be wrong: an open subscription that the event does not match, or else one that
    /// was never opened.
    pub(crate) fn wrong_subscription(&self, event: &Event<'_>) -> String {
        let wrong = self.subscriptions.values().find(|other| !self.relay.matches(other, event));
        wrong.map_or_else(
            || {
                let mut nobody = "nobody".to_owned();
                while self.subscriptions.contains_key(&nobody) {
                    nobody.push('-');
                }
                nobody
            },
            |other| other.name.clone(),
        )
    }

    /// Answers a request that was read up to where it went beyond a limit, as one that was read whole.
    pub(crate) fn over_limit(&mut self, over: &OverLimit) -> Answer {
        let OverLimit { limit, request, subscription: name } = over;
        let text = format!("invalid: {limit}");
        // The beginning of a name that is too long may be the name of another subscription.
        let is_whole = !matches!(limit, Limit::SubscriptionChars(_));
        let counters = &self.relay.counters;
        match request {
            Request::Req => {
                add(&counters.requests, 1);
                if is_whole {
                    self.end(name);
                }
                self.refuse(name, text)
            }
            Request::Count => {
                add(&counters.counts, 1);
                self.refuse(name, text)
            }
            Request::NegOpen => {
                add(&counters.reconciliations, 1);
                if is_whole {
                    self.reconciliations.close(name);
                }
                self.round(name, Err(text))
            }
        }
    }

    fn publish(&mut self, event: &Event<'_>) -> Answer {
        let counters = &self.relay.counters;
        add(&counters.events_received, 1);
        let id = event.id;
        if let Err(reason) = self.may_publish(event) {
            add(&counters.events_rejected, 1);
            return ok(id, false, reason);
        }
        let outcome = self.relay.publish(event);
        let (accepted, text) = match outcome {
            Outcome::Stored | Outcome::Ephemeral => (true, ""),
            Outcome::Duplicate => (true, "duplicate: already have this event"),
            Outcome::Superseded => (false, "duplicate: have a newer event"),
            Outcome::Deleted => (false, "blocked: its author deleted this event"),
            Outcome::Full => (false, "error: the store is full; restart the relay or raise --store-bytes"),
        };
        let counter = match outcome {
            Outcome::Duplicate => &counters.events_duplicate,
            _ if accepted => &counters.events_accepted,
            _ => &counters.events_rejected,
        };
        add(counter, 1);
        ok(id, accepted, text)
    }

    fn may_publish(&self, event: &Event<'_>) -> Result<(), Cow<'static, str>> {
        event.verify(self.relay.config.verify).map_err(|error| format!("invalid: {error}"))?;
        if event.kind == CLIENT_AUTH {
            return Err("invalid: kind 22242 belongs into AUTH, not EVENT (NIP-42)".into());
        }
        let protected = event.tags.iter().any(|tag| matches!(tag.as_slice(), [only] if only == "-"));
        let proven = self.auth.as_ref().is_some_and(|auth| auth.authors.contains(&event.pubkey));
        if protected && !proven {
            return Err("auth-required: only its author may publish a protected event (NIP-70)".into());
        }
        Ok(())
    }

    fn request(&mut self, name: String, filters: Vec<Filter>) -> Answer {
        let Relay { config, counters, .. } = &*self.relay;
        add(&counters.requests, 1);
        // A refused REQ ends its predecessor too: after CLOSED nothing may arrive under that name.
        let predecessor = self.subscriptions.remove(&name);
        if let Some(predecessor) = predecessor {
            self.relay.unsubscribe(&predecessor);
        }
        let checked = config.limits.check(&name, &filters).and_then(|()| {
            if self.subscriptions.len() < config.max_subscriptions {
                return Ok(());
            }
            Err(format!(
                "rate-limited: a connection has at most {} subscriptions; CLOSE one first",
                config.max_subscriptions
            ))
        });
        if let Err(text) = checked {
            return self.refuse(&name, text);
        }
        let (subscription, stored) =
            self.relay.subscribe(name.clone(), self.format, Arc::clone(&self.outbox), filters);
        self.subscriptions.insert(name, Arc::clone(&subscription));
        Answer::Stored(subscription, stored)
    }

    fn count(&self, name: String, filters: &[Filter]) -> Answer {
        add(&self.relay.counters.counts, 1);
        match self.relay.config.limits.check(&name, filters) {
            Ok(()) => Answer::Message(RelayMessage::Count {
                subscription: name.into(),
                count: self.relay.count(filters) as u64,
                approximate: false,
                hll: None,
            }),
            Err(text) => self.refuse(&name, text),
        }
    }

    fn reconcile(&mut self, name: &str, filter: &Filter, message: &[u8]) -> Answer {
        add(&self.relay.counters.reconciliations, 1);
        let Relay { config, .. } = &*self.relay;
        let answer = match config.limits.check(name, slice::from_ref(filter)) {
            Ok(()) => {
                let events = self.relay.matching(filter, self.reconciliations.enough_events());
                self.reconciliations.open(name, &events, message)
            }
            Err(text) => {
                self.reconciliations.close(name);
                Err(text)
            }
        };
        self.round(name, answer)
    }

    fn round(&self, name: &str, answer: Result<Vec<u8>, String>) -> Answer {
        let subscription = self.short(name);
        Answer::Message(match answer {
            Ok(message) => RelayMessage::NegMsg { subscription, message: message.into() },
            Err(text) => {
                add(&self.relay.counters.reconciliations_refused, 1);
                RelayMessage::NegErr { subscription, text: text.into() }
            }
        })
    }

    fn refuse(&self, name: &str, text: String) -> Answer {
        add(&self.relay.counters.requests_refused, 1);
        Answer::Message(RelayMessage::Closed { subscription: self.short(name), text: text.into() })
    }

    /// Formats give a subscription id one length byte, and an answer need not carry what was over the limit.
    fn short(&self, name: &str) -> Cow<'static, str> {
        name.chars().take(self.relay.config.limits.max_subscription_chars).collect()
    }

    fn end(&mut self, name: &str) {
        if let Some(subscription) = self.subscriptions.remove(name) {
            self.relay.unsubscribe(&subscription);
        }
    }

    fn authenticate(&mut self, event: &Event<'_>, now: u64) -> Answer {
        let Some(auth) = &mut self.auth else {
            return ok(event.id, false, "error: this relay does not ask for AUTH; start it with --auth");
        };
        match auth.check(event, now) {
            Ok(()) => {
                if !auth.authors.contains(&event.pubkey) {
                    auth.authors.push(event.pubkey);
                }
                ok(event.id, true, "")
            }
            Err(text) => ok(event.id, false, text),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        for subscription in self.subscriptions.values() {
            self.relay.unsubscribe(subscription);
        }
    }
}

impl Auth {
    fn check(&self, event: &Event<'_>, now: u64) -> Result<(), String> {
        event.verify(VerifyLevel::Full).map_err(|error| format!("invalid: {error}"))?;
        if event.kind != CLIENT_AUTH {
            return Err(format!("invalid: AUTH takes kind {CLIENT_AUTH}, not {}", event.kind));
        }
        if event.first_tag_value("challenge") != Some(&self.challenge) {
            return Err("invalid: the challenge tag is not this connection's challenge".to_owned());
        }
        let relay = event.first_tag_value("relay").and_then(host_of);
        if !relay.as_ref().is_some_and(|host| self.hosts.contains(host)) {
            return Err(format!("invalid: the relay tag must name one of: {}", self.hosts.join(" ")));
        }
        let created_at = u64::try_from(event.created_at).unwrap_or(0);
        if created_at.abs_diff(now) > AUTH_CLOCK_SECONDS {
            return Err(format!("invalid: created_at is more than {AUTH_CLOCK_SECONDS} s from now"));
        }
        if self.authors.len() >= MAX_AUTHORS {
            return Err(format!("restricted: at most {MAX_AUTHORS} authors in one connection"));
        }
        Ok(())
    }
}

fn ok(id: [u8; 32], accepted: bool, text: impl Into<Cow<'static, str>>) -> Answer {
    Answer::Message(RelayMessage::Ok { id, accepted, text: text.into() })
}

/// The names under which a client may have reached this relay.
fn own_hosts(configured: &[String], local: IpAddr) -> Vec<String> {
    let mut hosts: Vec<_> = configured.iter().map(|host| host.to_ascii_lowercase()).collect();
    hosts.push(local.to_string());
    if local.is_loopback() {
        hosts.push("localhost".to_owned());
    }
    hosts
}

/// The host of a `ws://` or `wss://` URL, in lower case and without the brackets of IPv6.
fn host_of(url: &str) -> Option<String> {
    let rest = url.strip_prefix("ws://").or_else(|| url.strip_prefix("wss://"))?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = match authority.strip_prefix('[') {
        Some(bracketed) => bracketed.split(']').next()?,
        None => authority.split(':').next()?,
    };
    (!host.is_empty()).then(|| host.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, net::Ipv4Addr, thread};

    use super::*;
    use crate::{Config, fanout::Delivery, testing::event};

    const NOW: u64 = 1_700_000_000;

    fn relay(change: impl FnOnce(&mut Config)) -> Arc<Relay> {
        let mut config = Config { verify: VerifyLevel::None, ..Config::default() };
        change(&mut config);
        Arc::new(Relay::new(config).unwrap())
    }

    fn peer(relay: &Arc<Relay>) -> (Peer, Arc<Outbox>) {
        let outbox = Outbox::new(relay.config.outbox_bytes);
        let local = Ipv4Addr::LOCALHOST.into();
        let peer = Peer::new(Arc::clone(relay), Format::JSON, Arc::clone(&outbox), local, [0; 16]);
        (peer, outbox)
    }

    fn queued(outbox: &Outbox) -> VecDeque<Delivery> {
        let mut deliveries = VecDeque::new();
        outbox.take(&mut deliveries);
        deliveries
    }

    fn publish(peer: &mut Peer, event: Event<'static>) -> (bool, String) {
        match peer.answer(ClientMessage::Event(Cow::Owned(event)), NOW) {
            Answer::Message(RelayMessage::Ok { accepted, text, .. }) => (accepted, text.into_owned()),
            other => panic!("expected OK, got {other:?}"),
        }
    }

    fn request(peer: &mut Peer, name: &str, filters: Vec<Filter>) -> Result<Vec<u8>, String> {
        match peer.answer(ClientMessage::Req { subscription: name.to_owned().into(), filters }, NOW) {
            Answer::Stored(_, events) => Ok(events.iter().map(|stored| stored.head().id[0]).collect()),
            Answer::Message(RelayMessage::Closed { text, .. }) => Err(text.into_owned()),
            other => panic!("expected stored events or CLOSED, got {other:?}"),
        }
    }

    /// Which live events a session would send now.
    fn live(outbox: &Outbox) -> Vec<(String, u8)> {
        queued(outbox)
            .into_iter()
            .filter(|delivery| !delivery.subscription.ended())
            .map(|delivery| (delivery.subscription.name.clone(), delivery.event.head().id[0]))
            .collect()
    }

    #[test]
    fn publish_is_answered_by_what_became_of_the_event() {
        let (mut peer, _outbox) = peer(&relay(|_| {}));
        assert_eq!(publish(&mut peer, event(1)), (true, String::new()));
        let (accepted, text) = publish(&mut peer, event(1));
        assert!(accepted && text.starts_with("duplicate: "), "{text}");
        let (accepted, text) = publish(&mut peer, Event { kind: CLIENT_AUTH, ..event(2) });
        assert!(!accepted && text.starts_with("invalid: "), "{text}");
        let protected = Event { tags: vec![vec!["-".into()]], ..event(3) };
        let (accepted, text) = publish(&mut peer, protected);
        assert!(!accepted && text.starts_with("auth-required: "), "{text}");
    }

    #[test]
    fn a_bad_id_is_refused_unless_nothing_is_verified() {
        for (level, accepts) in
            [(VerifyLevel::None, true), (VerifyLevel::Id, false), (VerifyLevel::Full, false)]
        {
            let (mut peer, _outbox) = peer(&relay(|config| config.verify = level));
            let (accepted, text) = publish(&mut peer, event(1));
            assert_eq!(accepted, accepts, "{level}: {text}");
            assert!(accepted || text == "invalid: event id does not match", "{text}");
        }
    }

    #[test]
    fn subscriptions_get_live_events_until_they_are_closed_or_replaced() {
        let relay = relay(|_| {});
        let (mut publisher, _outbox) = peer(&relay);
        let (mut reader, outbox) = peer(&relay);
        let kind = |kind| vec![Filter { kinds: Some(vec![kind]), ..Filter::default() }];
        assert_eq!(request(&mut reader, "a", kind(1)), Ok(vec![]));
        assert_eq!(request(&mut reader, "b", kind(7)), Ok(vec![]));
        publish(&mut publisher, event(1));
        assert_eq!(live(&outbox), [("a".into(), 1)]);

        publish(&mut publisher, event(2)); // stays in the outbox, where the replacement makes it void
        assert_eq!(request(&mut reader, "a", kind(7)), Ok(vec![]));
        publish(&mut publisher, event(3));
        assert_eq!(live(&outbox), []);
        publish(&mut publisher, Event { kind: 7, ..event(4) });
        let mut got = live(&outbox);
        got.sort();
        assert_eq!(got, [("a".into(), 4), ("b".into(), 4)]);

        assert!(matches!(
            reader.answer(ClientMessage::Close { subscription: "a".into() }, NOW),
            Answer::Silence
        ));
        drop(publisher);
        let (mut publisher, _outbox) = peer(&relay);
        publish(&mut publisher, Event { kind: 7, ..event(5) });
        assert_eq!(live(&outbox), [("b".into(), 5)]);
    }

    #[test]
    fn several_matching_filters_give_an_event_once() {
        let relay = relay(|_| {});
        let (mut reader, outbox) = peer(&relay);
        let kinds = Filter { kinds: Some(vec![1, 1]), ..Filter::default() };
        let authors = Filter { authors: Some(vec![event(1).pubkey]), ..Filter::default() };
        request(&mut reader, "a", vec![Filter::default(), kinds, authors]).unwrap();
        publish(&mut reader, event(1));
        assert_eq!(live(&outbox), [("a".into(), 1)]);
    }

    #[test]
    fn requests_over_a_limit_are_closed_and_end_their_predecessor() {
        let relay = relay(|config| config.max_subscriptions = 2);
        let (mut reader, outbox) = peer(&relay);
        let all = || vec![Filter::default()];
        let unknown = || vec![Filter { unknown: Some("colour".into()), ..Filter::default() }];
        assert_eq!(request(&mut reader, "a", all()), Ok(vec![]));
        assert_eq!(request(&mut reader, "b", all()), Ok(vec![]));
        assert!(request(&mut reader, "c", all()).unwrap_err().starts_with("rate-limited: "));
        assert_eq!(request(&mut reader, "a", all()), Ok(vec![]), "a replacement is no addition");
        assert!(request(&mut reader, "a", unknown()).unwrap_err().starts_with("unsupported: "));
        assert!(request(&mut reader, "", all()).unwrap_err().starts_with("invalid: "));
        assert!(request(&mut reader, &"x".repeat(65), all()).unwrap_err().starts_with("invalid: "));
        publish(&mut reader, event(1));
        assert_eq!(live(&outbox), [("b".into(), 1)]);
    }

    #[test]
    fn count_ignores_limits() {
        let (mut peer, _outbox) = peer(&relay(|_| {}));
        for n in 1..=20 {
            publish(&mut peer, event(n));
        }
        let filters = vec![Filter { limit: Some(3), ..Filter::default() }, Filter::default()];
        let answer = peer.answer(ClientMessage::Count { subscription: "n".into(), filters }, NOW);
        assert!(
            matches!(&answer, Answer::Message(RelayMessage::Count { count: 20, approximate: false, .. })),
            "{answer:?}"
        );
    }

    /// 10,000 events are published from two threads while a third opens subscriptions: each of those gets every
    /// event exactly once, stored or live.
    #[test]
    fn no_event_is_lost_or_doubled_around_eose() {
        const EVENTS: u32 = 10_000;
        let relay = relay(|config| {
            config.default_limit = usize::MAX;
            config.max_limit = usize::MAX;
        });
        let publish_all = |first: u32| {
            let (mut peer, _outbox) = peer(&relay);
            for n in (first..EVENTS).step_by(2) {
                let mut id = [0; 32];
                id[..4].copy_from_slice(&n.to_be_bytes());
                publish(&mut peer, Event { id, ..event(0) });
            }
        };
        let readers: Vec<_> = thread::scope(|scope| {
            let publishers = [0, 1].map(|first| scope.spawn(move || publish_all(first)));
            let mut readers = Vec::new();
            while !publishers.iter().all(thread::ScopedJoinHandle::is_finished) {
                let (mut peer, outbox) = peer(&relay);
                let filters = vec![Filter { kinds: Some(vec![1]), ..Filter::default() }];
                let Answer::Stored(_, stored) =
                    peer.answer(ClientMessage::Req { subscription: "r".into(), filters }, NOW)
                else {
                    panic!("a plain REQ is served")
                };
                readers.push((peer, outbox, stored));
                thread::sleep(std::time::Duration::from_millis(10));
            }
            readers
        });
        assert!(readers.len() >= 2);
        let mut raced = 0;
        for (_peer, outbox, stored) in readers {
            let live = queued(&outbox);
            let mut ids: Vec<_> =
                stored.iter().map(|s| s.head().id).chain(live.iter().map(|d| d.event.head().id)).collect();
            raced += usize::from((1..EVENTS as usize).contains(&stored.len()));
            assert_eq!(ids.len(), EVENTS as usize);
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), EVENTS as usize);
        }
        assert!(raced > 0, "no REQ fell between two publishes");
    }

    #[test]
    fn hosts_are_read_from_relay_urls() {
        for (url, host) in [
            ("ws://Example.com:7777/", Some("example.com")),
            ("wss://relay.example/path?x=1", Some("relay.example")),
            ("ws://[::1]:7777", Some("::1")),
            ("https://example.com", None),
            ("ws://", None),
        ] {
            assert_eq!(host_of(url).as_deref(), host, "{url}");
        }
    }

    #[test]
    fn auth_proves_an_author_for_this_connection_and_challenge() {
        let relay = relay(|config| config.auth = true);
        let (mut peer, _outbox) = peer(&relay);
        let Some(RelayMessage::Auth { challenge }) = peer.greeting() else { panic!("expected a challenge") };
        let tag = |name: &'static str, value: &str| vec![name.into(), value.to_owned().into()];
        let answer_to = |challenge: &str, relay: &str, created_at| {
            crate::testing::signed(Event {
                kind: CLIENT_AUTH,
                created_at,
                tags: vec![tag("challenge", challenge), tag("relay", relay)],
                ..event(0)
            })
        };
        let here = "ws://127.0.0.1:7777/";
        for wrong in [
            answer_to("another", here, 1_700_000_000),
            answer_to(&challenge, "wss://elsewhere.example", 1_700_000_000),
            answer_to(&challenge, here, 1_700_000_601),
            Event { sig: [1; 64], ..answer_to(&challenge, here, 1_700_000_000) },
        ] {
            let answer = peer.authenticate(&wrong, NOW);
            assert!(
                matches!(&answer, Answer::Message(RelayMessage::Ok { accepted: false, .. })),
                "{answer:?}"
            );
        }
        let right = answer_to(&challenge, here, 1_700_000_600);
        let answer = peer.authenticate(&right, NOW);
        assert!(matches!(&answer, Answer::Message(RelayMessage::Ok { accepted: true, .. })), "{answer:?}");
        let protected = Event { tags: vec![vec!["-".into()]], pubkey: right.pubkey, ..event(9) };
        assert_eq!(publish(&mut peer, protected), (true, String::new()));
    }
}
