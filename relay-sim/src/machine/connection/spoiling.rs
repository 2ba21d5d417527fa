//! What the relay's faults make of a client's message and of the answer to it.

use std::{sync::Arc, time::Instant};

use codecs::{ClientMessage, Event, RelayMessage, Request};
use wire::CloseCode;

use super::{Close, Connection, Due, Time, writing::eose};
use crate::{fanout::Subscription, fault::Kind, refused::Asked, store::StoredEvent};

/// OKs that may be late at one time. Beyond it the earliest goes at once.
const LATE: usize = 1_024;

/// How far an event's time may be ahead of a clock that is off: strfry's standing setting.
const AHEAD_SECONDS: u64 = 900;

/// How a fault breaks the connection, in place of a Close frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    /// TCP is reset.
    Reset,
    /// Nothing is read and written any more.
    HalfOpen,
}

/// Messages that nobody asked for, made while they go out.
#[derive(Debug)]
pub(super) struct Storm {
    left: u32,
    of: StormOf,
}

#[derive(Debug)]
enum StormOf {
    Message(RelayMessage<'static>),
    /// Events of this time.
    Events(Arc<Subscription>, i64),
}

impl Connection {
    /// How a fault broke the connection, if one did.
    pub(crate) fn broken(&self) -> Option<Broken> {
        self.broken
    }

    /// Faults that a message sets off before it is read.
    pub(super) fn spoil_message(&mut self, time: &mut Time) -> Result<(), Close> {
        let now = time.instant;
        self.clock = time.unix_seconds;
        if let Some(hit) = self.planted.next(Kind::Clock, now) {
            time.unix_seconds = time.unix_seconds.saturating_add_signed(hit.seconds());
        }
        if let Some(hit) = self.planted.next(Kind::NoticeStorm, now) {
            let text = "planted: a storm of notices".into();
            let of = StormOf::Message(RelayMessage::Notice { text });
            self.due.push_back(Due::Storm(Storm { left: hit.number(), of }));
        }
        let close = self.planted.next(Kind::Close, now);
        if self.planted.next(Kind::HalfOpen, now).is_some() {
            self.broken = Some(Broken::HalfOpen);
        }
        if self.planted.next(Kind::Reset, now).is_some() {
            self.broken = Some(Broken::Reset);
        }
        match close.and_then(|hit| u16::try_from(hit.number()).ok()) {
            Some(code) if self.broken.is_none() => Err(Close::new(CloseCode::from(code), "planted: close")),
            _ => Ok(()),
        }
    }

    /// Answers a REQ or an EVENT by a refusal where a fault wants one.
    pub(super) fn refused_by_a_fault(&mut self, message: &ClientMessage<'_>, time: Time) -> bool {
        let now = time.instant;
        let (asked, created_at) = match message {
            ClientMessage::Event(event) => (Asked::Event(event.id), Some(event.created_at)),
            ClientMessage::Req { subscription, .. } => {
                (Asked::Request(Request::Req, subscription.to_string()), None)
            }
            _ => return false,
        };
        let storm = match &asked {
            Asked::Request(..) => self.planted.next(Kind::ClosedStorm, now),
            _ => None,
        };
        let is_limited = self.planted.next(Kind::RateLimited, now).is_some();
        let needs_auth = self.planted.next(Kind::AuthRequired, now).is_some();
        let loops = self.planted.next(Kind::AuthLoop, now).is_some();
        let is_off = time.unix_seconds != self.clock;
        let latest = i64::try_from(time.unix_seconds.saturating_add(AHEAD_SECONDS)).unwrap_or(i64::MAX);
        let text = if loops || needs_auth && !self.peer.is_authenticated() {
            let challenge = if loops { self.peer.challenge_anew() } else { self.peer.challenge() };
            if let Some(challenge) = challenge {
                self.say(challenge);
            }
            "auth-required: planted: this relay serves whom it knows"
        } else if is_limited {
            "rate-limited: planted: slow down"
        } else if storm.is_some() {
            "error: planted: a storm of CLOSED"
        } else if is_off && created_at.is_some_and(|at| at > latest) {
            "invalid: created_at is too far in the future"
        } else {
            return false;
        };
        let answer = self.peer.refused(asked, text.to_owned());
        if let (Some(hit), crate::peer::Answer::Message(message)) = (storm, &answer) {
            let of = StormOf::Message(message.clone());
            self.due.push_back(Due::Storm(Storm { left: hit.number() - 1, of }));
        }
        self.answer(answer, now);
        true
    }

    /// Faults of the answer to a REQ: how many EOSEs follow the events, and what follows these. An EOSE
    /// that comes too early is said at once.
    pub(super) fn spoil_answer(
        &mut self,
        subscription: &Arc<Subscription>,
        events: &mut [Arc<StoredEvent>],
        now: Instant,
    ) -> (u8, Option<Storm>) {
        let mut eoses = 1;
        if self.planted.is_empty() {
            return (eoses, None);
        }
        if self.planted.next(Kind::ReverseOrder, now).is_some() {
            events.reverse();
        }
        if self.planted.next(Kind::DoubleEose, now).is_some() {
            eoses = 2;
        }
        if self.planted.next(Kind::EarlyEose, now).is_some() {
            self.due.push_back(Due::Message(eose(&subscription.name)));
            eoses -= 1;
        }
        if self.planted.next(Kind::NoEose, now).is_some() {
            eoses = 0;
        }
        let flood = self.planted.next(Kind::Flood, now).map(|hit| {
            let created_at = i64::try_from(self.clock).unwrap_or(i64::MAX);
            Storm { left: hit.number(), of: StormOf::Events(Arc::clone(subscription), created_at) }
        });
        (eoses, flood)
    }

    /// What faults make of an OK; `None` for one that is left out, or late. Other messages stay.
    pub(super) fn spoilt_ok(
        &mut self,
        message: RelayMessage<'static>,
        now: Instant,
    ) -> Option<RelayMessage<'static>> {
        let RelayMessage::Ok { mut id, mut accepted, mut text } = message else { return Some(message) };
        if self.planted.is_empty() {
            return Some(RelayMessage::Ok { id, accepted, text });
        }
        if self.planted.next(Kind::FalseOk, now).is_some() {
            (accepted, text) = (false, "error: planted: not stored".into());
        }
        if self.planted.next(Kind::WrongOk, now).is_some() {
            id[31] ^= 1;
        }
        let late = self.planted.next(Kind::LateOk, now);
        if self.planted.next(Kind::NoOk, now).is_some() {
            return None;
        }
        let message = RelayMessage::Ok { id, accepted, text };
        let Some(hit) = late.filter(|_| !self.stopping) else { return Some(message) };
        let due = now + hit.time();
        let place = self.late.partition_point(|(other, _)| *other <= due);
        self.late.insert(place, (due, message));
        if self.late.len() > LATE { self.late.pop_front().map(|(_, earliest)| earliest) } else { None }
    }

    /// A storm as far as it fits. Events of a subscription that ended meanwhile stop.
    pub(super) fn put_out_storm(&mut self, mut storm: Storm) {
        while storm.left > 0 && !self.outgoing.is_full() {
            storm.left -= 1;
            match &storm.of {
                StormOf::Message(message) => self.write(message),
                StormOf::Events(subscription, _) if subscription.ended() => return,
                StormOf::Events(subscription, created_at) => {
                    let event = self.relay.forged(&flooding(storm.left, *created_at));
                    self.write_event(&subscription.name, event);
                }
            }
        }
        if storm.left > 0 {
            self.due.push_front(Due::Storm(storm));
        }
    }
}

/// A valid event of a kind that only a filter without kinds matches.
fn flooding(n: u32, created_at: i64) -> Event<'static> {
    /// Regular, and of no NIP.
    const KIND: u16 = 9_999;
    let mut event = Event {
        id: [0; 32],
        pubkey: [0; 32],
        created_at,
        kind: KIND,
        tags: Vec::new(),
        content: format!("planted: event {n} of a flood").into(),
        sig: [0; 64],
    };
    corpus::sign_as(&mut event, "a flood");
    event
}
