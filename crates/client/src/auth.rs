//! The answer to a relay's challenge (NIP-42), and what the relay refuses until then.

use std::{borrow::Cow, time::Duration};

use ahash::HashSet;
use codecs::{ClientMessage, Event, quoted};
use corpus::Keys;

use super::{Client, Subscription, Wake, connect::ConnectionState};
use workload::{CLIENT_AUTH, Timing, schedule::nanos};

/// How long a recorded client waits for the OK to AUTH.
const PROOF_PATIENCE: Duration = Duration::from_secs(10);

/// How far a client has proven who it is, on its connection.
#[derive(Debug, Default)]
pub(super) struct Proof {
    /// The signed challenge, until it is sent.
    pub(super) event: Option<Event<'static>>,
    /// The AUTH event whose OK is missing, and when it was sent.
    sent: Option<([u8; 32], u64)>,
    accepted: bool,
    /// The challenge that was signed last, and one that came before its OK.
    signed: String,
    newer: Option<String>,
    /// What waits for OK, and what was sent again: each message once.
    held: Vec<Held>,
    again: HashSet<Held>,
}

impl Proof {
    pub(super) fn is_under_way(&self) -> bool {
        self.event.is_some() || self.sent.is_some()
    }
}

/// A message that the relay refused with `auth-required:`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Held {
    Publication(u32),
    Subscription(Subscription),
}

/// The answer to a challenge of the relay at this URL, without author and signature.
pub fn proof(url: &str, challenge: &str, created_at: i64) -> Event<'static> {
    let tag = |name: &'static str, value: &str| vec![name.into(), value.to_owned().into()];
    let tags = vec![tag("relay", url), tag("challenge", challenge)];
    Event::unsigned(CLIENT_AUTH, created_at, tags, "")
}

/// Signs the answer of a client by the key of its number, or else by a throw-away key.
pub fn sign_proof(event: &mut Event<'_>, client: usize, keys: Option<&Keys>) {
    match keys {
        Some(keys) => keys.sign(event, client, 0),
        None => corpus::sign_as(event, &format!("client {client}")),
    }
}

impl Client {
    /// Goes on without a challenge that did not come in time.
    pub(super) fn end_greeting(&mut self, now_ns: u64) {
        if self.greeting_ends_ns().is_some_and(|until_ns| until_ns <= now_ns) {
            self.report.ungreeted = true;
            self.set_up(now_ns);
        }
    }

    /// Until when the client waits for a challenge.
    pub(super) fn greeting_ends_ns(&self) -> Option<u64> {
        match self.connection {
            ConnectionState::Challenge { until_ns } if !self.proof.is_under_way() => Some(until_ns),
            _ => None,
        }
    }

    /// Signs the relay's challenge; false where NIP-42 allows to ignore it.
    pub(super) fn prove(&mut self, challenge: &str, now_ns: u64) -> bool {
        if self.is_recorded() && !self.replay.proves {
            self.replay.challenge = Some(challenge.to_owned());
            return true;
        }
        let is_signed = self.proof.signed == challenge;
        if !(self.shared.workload.auth || self.is_recorded())
            || self.proof.accepted
            || (is_signed && self.proof.event.is_none())
        {
            return false;
        }
        if self.proof.is_under_way() {
            self.proof.newer = Some(challenge.to_owned()).filter(|_| !is_signed);
            return true;
        }
        let now_s = self.unix_s + now_ns / 1_000_000_000;
        let created_at = i64::try_from(now_s).unwrap_or(i64::MAX);
        let mut event = proof(&self.url, challenge, created_at);
        sign_proof(&mut event, self.id, self.shared.workload.keys.as_ref());
        self.proof.signed = challenge.to_owned();
        self.proof.event = Some(event);
        true
    }

    /// Sends the signed challenge: AUTH is timed from here, not from the signing.
    pub(super) fn send_proof(&mut self, proof: &Event<'_>, now_ns: u64) {
        self.proof.sent = Some((proof.id, now_ns));
        if !self.started || !self.connection.is_up() {
            self.wait_for_set_up(now_ns);
        }
        if self.is_recorded() {
            self.wake_at(now_ns + nanos(PROOF_PATIENCE), Wake::TakeTurns);
        }
        self.send(&ClientMessage::Auth(Cow::Borrowed(proof)));
    }

    /// Whether a recorded client waits for the OK to AUTH.
    pub(super) fn awaits_proof(&self, now_ns: u64) -> bool {
        let is_late = |(_, sent_ns): ([u8; 32], u64)| now_ns >= sent_ns + nanos(PROOF_PATIENCE);
        self.proof.is_under_way() && !self.proof.sent.is_some_and(is_late)
    }

    /// Takes the OK to AUTH; false when the OK is for another event.
    pub(super) fn proven(&mut self, id: &[u8; 32], accepted: bool, text: &str, now_ns: u64) -> bool {
        let Some((_, since_ns)) = self.proof.sent.take_if(|(sent, _)| *sent == *id) else { return false };
        self.record_always(Timing::Auth, since_ns, now_ns);
        self.proof.accepted = accepted;
        match self.proof.newer.take() {
            Some(newer) if !accepted => return self.prove(&newer, now_ns),
            None if !accepted => self.fail(format!("the relay refused AUTH: {}", quoted(text))),
            _ if !self.connection.is_up() => self.set_up(now_ns),
            _ => self.set_up_if_open(),
        }
        if accepted {
            std::mem::take(&mut self.proof.held).into_iter().for_each(|held| self.send_again(held));
        }
        self.take_turns(now_ns);
        true
    }

    /// Keeps a message that the relay refuses for want of AUTH, to send it again after that; false
    /// when AUTH is not under way, or changed nothing.
    pub(super) fn holds(&mut self, text: &str, held: Held) -> bool {
        let proves = self.proof.is_under_way() || self.proof.accepted;
        if !proves || !text.starts_with("auth-required:") || !self.proof.again.insert(held) {
            return false;
        }
        match self.proof.accepted {
            // Its refusal came behind the OK.
            true => self.send_again(held),
            false => self.proof.held.push(held),
        }
        true
    }

    fn send_again(&mut self, held: Held) {
        match held {
            Held::Publication(n) => {
                let shared = std::sync::Arc::clone(&self.shared);
                let event = shared.workload.publications[n as usize].event;
                self.send(&ClientMessage::Event(Cow::Borrowed(&shared.workload.events[event as usize])));
            }
            Held::Subscription(Subscription::Reconciliation(session)) => self.start_reconciling(session),
            Held::Subscription(subscription) => {
                let filter = self.filter_of(subscription).map(Cow::into_owned);
                filter.iter().for_each(|filter| self.request(subscription, filter));
            }
        }
    }
}
