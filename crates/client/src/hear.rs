//! Messages of the relay: which answers what, and which are passed over.

use codecs::{ByteMessage, RelayMessage, quoted};

use super::{Client, Subscription, Words};
use crate::{auth::Held, incidents::About};

impl Client {
    /// Takes a message. One that answers nothing is passed over: a request that stays unanswered is
    /// noticed by itself.
    pub(super) fn answer(&mut self, message: RelayMessage<'_>, payload: &[u8], now_ns: u64) {
        let answers = match message {
            RelayMessage::Event { subscription, event } => {
                return self.delivery(&subscription, &*event, now_ns);
            }
            RelayMessage::Events { subscription, events } => {
                return events.iter().for_each(|event| self.delivery(&subscription, event, now_ns));
            }
            RelayMessage::Ok { id, accepted, text } => {
                self.proven(&id, accepted, &text, now_ns) || self.published(&id, accepted, &text, now_ns)
            }
            RelayMessage::Eose { subscription, .. } => self.end_of_stored(&subscription, now_ns),
            RelayMessage::Closed { subscription, text } => {
                self.closed("CLOSED", (&subscription, &text), now_ns)
            }
            RelayMessage::NegMsg { subscription, message } => {
                self.report.last_ns = now_ns;
                self.compared(&subscription, &message, now_ns)
            }
            RelayMessage::NegErr { subscription, text } => {
                self.closed("NEG-ERR", (&subscription, &text), now_ns)
            }
            RelayMessage::Auth { challenge } => self.prove(&challenge, now_ns),
            RelayMessage::Notice { text } => {
                self.shared.incidents.said(About::Connection(self.id), &format!("NOTICE {text}"));
                false
            }
            // Recorded clients ask for it.
            RelayMessage::Count { .. } => self.is_recorded(),
        };
        if !answers {
            self.pass_over(payload);
        }
    }

    /// [`Client::answer`] where the client keeps ids and keys as bytes.
    pub(super) fn answer_keeping_bytes(&mut self, message: ByteMessage<'_>, payload: &[u8], now_ns: u64) {
        match message {
            ByteMessage::Event { subscription, event } => self.delivery(&subscription, &event, now_ns),
            ByteMessage::Events { subscription, events } => {
                events.iter().for_each(|event| self.delivery(&subscription, event, now_ns));
            }
            ByteMessage::Other(message) => self.answer(message, payload, now_ns),
        }
    }

    /// Counts a message that answers nothing, or not in the form of its NIP, and keeps the first.
    #[cold]
    pub(super) fn pass_over(&mut self, payload: &[u8]) {
        self.report.counts.answers_unexpected += 1;
        let text = &payload[..payload.len().min(1 << 10)];
        self.report.tell(Words::PassedOver, || quoted(&String::from_utf8_lossy(text)));
    }

    fn published(&mut self, id: &[u8; 32], accepted: bool, text: &str, now_ns: u64) -> bool {
        self.report.last_ns = now_ns;
        let answers = self.acknowledged(id, accepted, text, now_ns);
        self.end_reconciliations(now_ns);
        self.take_turns(now_ns);
        answers
    }

    fn end_of_stored(&mut self, id: &str, now_ns: u64) -> bool {
        if self.is_recorded() {
            return self.turn_eose(id, now_ns);
        }
        let answers = match id.parse() {
            Ok(subscription @ (Subscription::Live(_) | Subscription::Stay { .. })) => {
                self.live_eose(subscription, now_ns)
            }
            Ok(subscription @ (Subscription::Fetch { .. } | Subscription::Request(_))) => {
                self.end_of_request(subscription, true, now_ns)
            }
            Ok(Subscription::Reconciliation(_)) | Err(_) => false,
        };
        self.set_up_if_open();
        answers
    }

    /// Takes CLOSED, or the NEG-ERR of a reconciliation. Returns whether it fits a subscription that was
    /// opened: NEG-ERR fits only a reconciliation.
    fn closed(&mut self, verb: &str, (id, text): (&str, &str), now_ns: u64) -> bool {
        let is_error = verb == "NEG-ERR";
        if self.is_recorded() {
            return !is_error && self.turn_closed(id, text, now_ns);
        }
        let Some(subscription) = id.parse().ok().filter(|subscription| self.has_opened(*subscription)) else {
            return false;
        };
        if is_error && !matches!(subscription, Subscription::Reconciliation(_)) {
            return false;
        }
        self.shared.incidents.said(About::Subscription(self.id, id.to_owned()), &format!("{verb} {text}"));
        // A subscription refused for want of AUTH is opened again after that.
        if self.awaits(subscription) && self.holds(text, Held::Subscription(subscription)) {
            return true;
        }
        let is_news = match subscription {
            Subscription::Live(_) if !self.started => {
                self.fail(format!("the relay refused a live subscription: {}", quoted(text)));
                true
            }
            Subscription::Live(_) | Subscription::Stay { .. } => {
                self.live_closed(subscription, now_ns);
                true
            }
            // After EOSE the request is over, and CLOSED says nothing more (NIP-01).
            Subscription::Fetch { .. } | Subscription::Request(_) => {
                self.end_of_request(subscription, false, now_ns)
            }
            // Once the difference is known, it says nothing more: NEG-CLOSE is on its way (NIP-77).
            Subscription::Reconciliation(session) => {
                if is_error && self.is_round(session) {
                    self.give_up_reconciling(session, now_ns);
                }
                true
            }
        };
        if is_news {
            self.complain(|| format!("{verb} {id}: {text}"));
        }
        true
    }

    fn compared(&mut self, id: &str, message: &[u8], now_ns: u64) -> bool {
        match id.parse() {
            Ok(Subscription::Reconciliation(session)) if self.is_round(session) => {
                self.go_on_reconciling(session, message, now_ns);
                true
            }
            _ => false,
        }
    }

    /// Whether this client opened the subscription, at any time.
    fn has_opened(&self, subscription: Subscription) -> bool {
        let workload = &self.shared.workload;
        let began = |n: u32| self.sessions.contains_key(&n) || self.ended.contains(&n);
        match subscription {
            Subscription::Live(_) | Subscription::Stay { .. } => self.followed(subscription).is_some(),
            Subscription::Request(_) | Subscription::Fetch { .. } => self.asked(subscription).is_some(),
            Subscription::Reconciliation(session) => {
                began(session) && workload.sessions[session as usize].reconciliation.is_some()
            }
        }
    }

    /// Whether the first answer to a subscription is missing.
    fn awaits(&mut self, subscription: Subscription) -> bool {
        match subscription {
            Subscription::Live(_) | Subscription::Stay { .. } => self.awaits_live(subscription),
            Subscription::Request(_) | Subscription::Fetch { .. } => {
                self.requests.contains_key(&subscription)
            }
            Subscription::Reconciliation(session) => self.is_round(session),
        }
    }
}
