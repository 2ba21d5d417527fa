//! Requests of a client and the relay's answers, as messages in and messages out: no socket and no
//! bytes, so every rule of NIP-01, 09, 40, 42, 45, 70 and 77 can be tested as values.

use std::{borrow::Cow, collections::BTreeMap, net::IpAddr, slice, sync::Arc};

use codecs::{ClientMessage, Event, Filter, Format, Limit, OverLimit, RelayMessage, Request, VerifyLevel};
use serde::Deserialize;

use crate::{
    auth::{Auth, CLIENT_AUTH},
    fanout::{Outbox, Subscription},
    reconcile::Reconciliations,
    refused::Asked,
    relay::Relay,
    store::{Outcome, StoredEvent, expires_at},
    totals::add,
};

#[cfg(test)]
mod tests;

/// One client: its subscriptions, its reconciliations and the authors that it proved to be.
#[derive(Debug)]
pub(crate) struct Peer {
    relay: Arc<Relay>,
    format: Format,
    outbox: Arc<Outbox>,
    subscriptions: BTreeMap<String, Arc<Subscription>>,
    reconciliations: Reconciliations,
    auth: Option<Auth>,
    local: IpAddr,
    /// The connection's challenge. Each later one is greater by one.
    challenge: [u8; 16],
}

/// An answer to send back.
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
        let auth = relay.config.auth.then(|| Auth::new(challenge, &relay.config.hosts, local));
        let reconciliations = Reconciliations::new(relay.config.reconcile);
        Peer {
            relay,
            format,
            outbox,
            subscriptions: BTreeMap::new(),
            reconciliations,
            auth,
            local,
            challenge,
        }
    }

    /// The relay's message before the client says anything.
    pub(crate) fn greeting(&self) -> Option<RelayMessage<'static>> {
        self.auth.as_ref().map(|auth| RelayMessage::Auth { challenge: auth.challenge().to_owned().into() })
    }

    /// Whether the client proved to be anybody (NIP-42).
    pub(crate) fn is_authenticated(&self) -> bool {
        self.auth.as_ref().is_some_and(Auth::is_answered)
    }

    /// Asks for a proof where none was asked for.
    pub(crate) fn challenge(&mut self) -> Option<RelayMessage<'static>> {
        if self.auth.is_some() {
            return None;
        }
        self.auth = Some(Auth::new(self.challenge, &self.relay.config.hosts, self.local));
        self.greeting()
    }

    /// Asks for another proof, by another challenge.
    pub(crate) fn challenge_anew(&mut self) -> Option<RelayMessage<'static>> {
        self.challenge = u128::from_le_bytes(self.challenge).wrapping_add(1).to_le_bytes();
        self.auth = None;
        self.challenge()
    }

    /// Does what the client asks, at `unix_seconds` since 1970.
    pub(crate) fn answer(&mut self, message: ClientMessage<'_>, unix_seconds: u64) -> Answer {
        match message {
            ClientMessage::Event(event) => self.publish(&event, None, unix_seconds),
            ClientMessage::Req { subscription, filters } => {
                self.request(subscription.into_owned(), filters, unix_seconds)
            }
            ClientMessage::Count { subscription, filters } => {
                self.count(subscription.into_owned(), &filters, unix_seconds)
            }
            ClientMessage::Close { subscription } => {
                self.end(&subscription);
                Answer::Silence
            }
            ClientMessage::Auth(event) => self.authenticate(&event, unix_seconds),
            ClientMessage::NegOpen { subscription, filter, message } => {
                self.reconcile(&subscription, &filter, &message, unix_seconds)
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

    /// A name for which an event would be wrong: an open subscription that the event does not
    /// match, or else one that was never opened.
    pub(crate) fn wrong_subscription(&self, event: &Event<'_>) -> String {
        let matched = self.relay.matched(event);
        let is_wrong = |other: &&Arc<Subscription>| !matched.iter().any(|one| Arc::ptr_eq(one, other));
        if let Some(wrong) = self.subscriptions.values().find(is_wrong) {
            return wrong.name.clone();
        }
        let mut nobody = "nobody".to_owned();
        while self.subscriptions.contains_key(&nobody) {
            nobody.push('-');
        }
        nobody
    }

    /// Answers a request that was read up to where it went beyond a limit, as one that was read
    /// whole.
    pub(crate) fn over_limit(&mut self, over: &OverLimit) -> Answer {
        let OverLimit { limit, request, subscription } = over;
        // The beginning of a name that is too long may be the name of another subscription.
        let is_whole = !matches!(limit, Limit::SubscriptionChars(_));
        self.refuse_request(*request, subscription, format!("invalid: {limit}"), is_whole)
    }

    /// Refuses what is asked, for this reason.
    pub(crate) fn refused(&mut self, asked: Asked, text: String) -> Answer {
        let counters = &self.relay.counters;
        match asked {
            Asked::Request(request, name) => self.refuse_request(request, &name, text, true),
            Asked::Round(name) => {
                self.reconciliations.close(&name);
                self.round(&name, Err(text))
            }
            Asked::Event(id) => {
                add(&counters.events_received, 1);
                add(&counters.events_rejected, 1);
                ok(id, false, text)
            }
            Asked::Auth(id) => ok(id, false, text),
        }
    }

    /// Refuses a request, and ends its predecessor where its name is known: after CLOSED nothing
    /// may arrive under it.
    fn refuse_request(&mut self, request: Request, name: &str, text: String, is_whole: bool) -> Answer {
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

    /// Answers an EVENT. `received` are the event's bytes, where they may be passed on.
    pub(crate) fn publish(
        &mut self,
        event: &Event<'_>,
        received: Option<&[u8]>,
        unix_seconds: u64,
    ) -> Answer {
        let counters = &self.relay.counters;
        add(&counters.events_received, 1);
        let id = event.id;
        // A check of the signature costs a hundred times what the look for the id does.
        let level = self.relay.config.verify;
        let is_known = level != VerifyLevel::None && self.relay.has(&id, unix_seconds);
        let checked = if is_known { VerifyLevel::None } else { level };
        if let Err(reason) = self.may_publish(event, checked, unix_seconds) {
            add(&counters.events_rejected, 1);
            return ok(id, false, reason);
        }
        let outcome = if is_known {
            // Not offered to the store, which may lose the event it knows before it takes another.
            Some(Outcome::Duplicate)
        } else {
            let received = received.map(|bytes| (self.format, bytes));
            self.relay.publish(event, received, unix_seconds, &self.outbox)
        };
        let Some(outcome) = outcome else {
            return Answer::Silence; // until it is on disk
        };
        let (accepted, text) = self.relay.verdict(outcome);
        ok(id, accepted, text)
    }

    fn may_publish(
        &self,
        event: &Event<'_>,
        level: VerifyLevel,
        unix_seconds: u64,
    ) -> Result<(), Cow<'static, str>> {
        self.relay.keys.verify(event, level).map_err(|error| format!("invalid: {error}"))?;
        if event.kind == CLIENT_AUTH {
            return Err("invalid: kind 22242 belongs into AUTH, not EVENT (NIP-42)".into());
        }
        if !self.relay.config.keep_expired && expires_at(event).is_some_and(|at| at <= unix_seconds) {
            return Err("invalid: this event has expired (NIP-40)".into());
        }
        if is_protected(&event.tags) && !self.auth.as_ref().is_some_and(|auth| auth.has(&event.pubkey)) {
            return Err(self.why_not_protected().into());
        }
        if let Some((format, bytes)) = self.relay.undeliverable(event) {
            let max = self.relay.max_event_bytes;
            return Err(format!(
                "invalid: in {format}, which this relay offers, the event takes {bytes} bytes, over the limit of {max}"
            )
            .into());
        }
        if REPOSTS.contains(&event.kind) && embeds_a_protected_event(&event.content) {
            return Err("blocked: a repost must not embed a protected event (NIP-70)".into());
        }
        Ok(())
    }

    /// Why this client may not publish a protected event, by a prefix that says whether AUTH would
    /// help.
    fn why_not_protected(&self) -> &'static str {
        match &self.auth {
            None => "blocked: this relay takes no protected events (NIP-70); it does with --auth",
            Some(auth) if auth.is_answered() => {
                "restricted: only its author may publish a protected event (NIP-70)"
            }
            Some(_) => "auth-required: only its author may publish a protected event (NIP-70)",
        }
    }

    fn request(&mut self, name: String, filters: Vec<Filter>, unix_seconds: u64) -> Answer {
        add(&self.relay.counters.requests, 1);
        // A refused REQ ends its predecessor too: after CLOSED nothing may arrive under that name.
        self.end(&name);
        let config = &self.relay.config;
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
            self.relay.subscribe(name.clone(), self.format, Arc::clone(&self.outbox), filters, unix_seconds);
        self.subscriptions.insert(name, Arc::clone(&subscription));
        Answer::Stored(subscription, stored)
    }

    fn count(&self, name: String, filters: &[Filter], unix_seconds: u64) -> Answer {
        add(&self.relay.counters.counts, 1);
        match self.relay.config.limits.check(&name, filters) {
            Ok(()) => Answer::Message(RelayMessage::Count {
                subscription: name.into(),
                count: self.relay.count(filters, unix_seconds) as u64,
                approximate: false,
                hll: None,
            }),
            Err(text) => self.refuse(&name, text),
        }
    }

    fn reconcile(&mut self, name: &str, filter: &Filter, message: &[u8], unix_seconds: u64) -> Answer {
        add(&self.relay.counters.reconciliations, 1);
        let Relay { config, .. } = &*self.relay;
        let answer = match config.limits.check(name, slice::from_ref(filter)) {
            Ok(()) => {
                let events = self.relay.matching(filter, self.reconciliations.enough_events(), unix_seconds);
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

    /// Formats give a subscription id one length byte, and an answer need not carry what was over
    /// the limit.
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
        match auth.accept(event, &self.relay.keys, now) {
            Ok(()) => ok(event.id, true, ""),
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

fn ok(id: [u8; 32], accepted: bool, text: impl Into<Cow<'static, str>>) -> Answer {
    Answer::Message(RelayMessage::Ok { id, accepted, text: text.into() })
}

/// NIP-18.
const REPOSTS: [u16; 2] = [6, 16];

/// NIP-70.
fn is_protected<V: PartialEq<&'static str>>(tags: &[Vec<V>]) -> bool {
    tags.iter().any(|tag| matches!(tag.as_slice(), [only] if *only == "-"))
}

/// Whether the content of a repost is an event that is protected. What is no event is none.
fn embeds_a_protected_event(content: &str) -> bool {
    #[derive(Deserialize)]
    struct Embedded<'a> {
        #[serde(borrow)]
        tags: Vec<Vec<Cow<'a, str>>>,
    }
    serde_json::from_str::<Embedded<'_>>(content).is_ok_and(|event| is_protected(&event.tags))
}
