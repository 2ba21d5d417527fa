//! A recorded client, played again: connects, asks, closes and leaves as it did, at its own instants.
//!
//! A turn waits for the EOSE that had come last when the recorded client took it, and turns of a
//! connection keep their order. A REQ that had its EOSE when it ended has it again before it ends.
//! A REQ, COUNT or CLOSE after AUTH waits for its OK.
//! Publications wait for nothing. A client leaves when the relay has answered what it published and
//! all deliveries have come, or soon after.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use ahash::{HashMap, HashSet};
use codecs::ClientMessage;
use fixedbitset::FixedBitSet;

use super::{Action, Client, Wake};
use crate::incidents::Wrong;
use workload::{Says, Task, Timing, schedule::nanos};

/// How long after its instant a client leaves at most, while deliveries are missing.
const LEAVE_PATIENCE: Duration = Duration::from_secs(1);

/// The dialogue of a recorded client.
#[derive(Debug, Default)]
pub(super) struct Replay {
    /// Turns that are due and wait for an answer.
    held: VecDeque<u32>,
    /// The REQ of each subscription; `None` once it was closed.
    asked: HashMap<String, Option<Asked>>,
    /// REQs that the relay answered.
    answered: HashSet<u32>,
    /// Whether the recorded client has answered a challenge, and the relay's last one until then.
    pub(super) proves: bool,
    pub(super) challenge: Option<String>,
    /// When the connection was there: what was due before waited for it.
    pub(super) up_ns: u64,
}

/// A REQ that is open.
#[derive(Debug)]
struct Asked {
    /// Its place in the turns.
    turn: u32,
    due_ns: u64,
    sent_ns: u64,
    /// Which of the recorded deliveries came.
    seen: FixedBitSet,
    /// Those of them that came before EOSE, and not again.
    stored: FixedBitSet,
    has_eose: bool,
}

impl Client {
    /// Whether it plays a recorded client.
    pub(super) fn is_recorded(&self) -> bool {
        matches!(self.shared.workload.roles[self.id].task, Task::Recorded)
    }

    /// Takes a turn that is due, behind those that wait.
    pub(super) fn turn_due(&mut self, n: u32, now_ns: u64) {
        let turn = &self.shared.workload.turns[n as usize];
        let (at_ns, leaves) = (nanos(turn.at), turn.says == Says::Leave);
        if at_ns >= self.replay.up_ns && self.replay.held.is_empty() && self.may_take(n, now_ns) {
            self.record(Timing::SendLag, at_ns, now_ns);
            return self.take_turn(n, at_ns, now_ns);
        }
        if leaves {
            self.wake_at(now_ns + nanos(LEAVE_PATIENCE), Wake::TakeTurns);
        }
        self.replay.held.push_back(n);
        self.take_turns(now_ns);
    }

    /// Takes the turns that have waited long enough. They are due now: the relay kept them waiting, or
    /// the connection did.
    pub(super) fn take_turns(&mut self, now_ns: u64) {
        while let Some(n) = self.replay.held.front().copied().filter(|n| self.may_take(*n, now_ns)) {
            self.replay.held.pop_front();
            self.record(Timing::Waited, nanos(self.shared.workload.turns[n as usize].at), now_ns);
            self.take_turn(n, now_ns, now_ns);
        }
    }

    fn may_take(&self, n: u32, now_ns: u64) -> bool {
        let turn = &self.shared.workload.turns[n as usize];
        let is_answered = turn.after.is_none_or(|after| self.replay.answered.contains(&after));
        let is_late = now_ns >= nanos(turn.at + LEAVE_PATIENCE);
        match &turn.says {
            Says::Connect => true,
            Says::Prove => is_answered && self.connection.is_up(),
            Says::Message(message) => {
                let ends = match &**message {
                    ClientMessage::Req { subscription, .. } | ClientMessage::Close { subscription } => {
                        self.replay.asked.get(&**subscription).and_then(Option::as_ref)
                    }
                    _ => None,
                };
                is_answered
                    && self.connection.is_up()
                    && !self.awaits_proof(now_ns)
                    && ends.is_none_or(|asked| !self.awaits_eose(asked))
            }
            Says::Leave => {
                let is_idle = || self.in_flight.is_empty() && !self.proof.is_under_way();
                let mut open = self.replay.asked.values().flatten();
                let has_all = || is_answered && is_idle() && open.clone().all(|asked| asked.missing() == 0);
                (is_late || has_all()) && !open.any(|asked| self.awaits_eose(asked))
            }
        }
    }

    /// Whether an open REQ waits for the EOSE that the recorded one got.
    fn awaits_eose(&self, asked: &Asked) -> bool {
        self.shared.workload.turns[asked.turn as usize].answered && !asked.has_eose
    }

    fn take_turn(&mut self, n: u32, due_ns: u64, now_ns: u64) {
        let shared = Arc::clone(&self.shared);
        let turn = &shared.workload.turns[n as usize];
        match &turn.says {
            Says::Connect => {
                self.connect(now_ns);
                return shared.done(1);
            }
            Says::Leave => {
                let all = std::mem::take(&mut self.replay.asked);
                all.into_values().flatten().for_each(|asked| self.end_asked(&asked));
                self.go_down();
                self.actions.push_back(Action::Close);
                return shared.done(1);
            }
            Says::Prove => {
                self.replay.proves = true;
                if let Some(challenge) = self.replay.challenge.take() {
                    self.prove(&challenge, now_ns);
                }
            }
            Says::Message(message) => {
                let ended = match &**message {
                    ClientMessage::Req { subscription, .. } => {
                        let seen = FixedBitSet::with_capacity(turn.expected.len());
                        let stored = seen.clone();
                        let asked = Asked { turn: n, due_ns, sent_ns: now_ns, seen, stored, has_eose: false };
                        self.replay.asked.insert(subscription.clone().into_owned(), Some(asked))
                    }
                    ClientMessage::Close { subscription } => {
                        self.replay.asked.insert(subscription.clone().into_owned(), None)
                    }
                    _ => None,
                };
                ended.flatten().iter().for_each(|asked| self.end_asked(asked));
                self.send(message);
            }
        }
        // A REQ that got its EOSE is done with that.
        if !turn.answered {
            shared.done(1);
        }
    }

    /// Ends a REQ that the client or the relay ended: nothing more comes to it.
    fn end_asked(&mut self, asked: &Asked) {
        let missing = i64::try_from(asked.missing()).unwrap_or(i64::MAX);
        self.shared.done(missing + i64::from(self.awaits_eose(asked)));
        // What waits for its EOSE waits no more.
        self.replay.answered.insert(asked.turn);
    }

    /// Takes a delivery to a recorded client.
    pub(super) fn turn_delivery(&mut self, subscription: &str, found: u32, now_ns: u64) {
        let shared = Arc::clone(&self.shared);
        let workload = &shared.workload;
        let asked = match self.replay.asked.get_mut(subscription) {
            Some(Some(asked)) => asked,
            Some(None) => return self.report.counts.deliveries_after_close += 1,
            None => return self.wrong(Wrong::Misrouted, &subscription, found),
        };
        let turn = &workload.turns[asked.turn as usize];
        let Ok(place) = turn.expected.binary_search(&found) else {
            let event = &workload.events[found as usize];
            return match turn.filters().iter().any(|filter| filter.matches(event)) {
                true => self.report.counts.deliveries_diverged += 1,
                false => self.wrong(Wrong::Misrouted, &subscription, found),
            };
        };
        if asked.seen.put(place) {
            let at_seam = asked.has_eose && asked.stored.contains(place);
            if at_seam && workload.tolerates_seam {
                asked.stored.remove(place);
                self.report.counts.deliveries_duplicated_at_seam += 1;
                return;
            }
            return self.wrong(Wrong::Duplicated, &subscription, found);
        }
        let (due_ns, sent_ns, is_live) = (asked.due_ns, asked.sent_ns, asked.has_eose);
        if !is_live {
            asked.stored.insert(place);
        }
        match workload.publication_of(found).filter(|_| is_live) {
            Some(publication) => self.time_delivery(publication, now_ns),
            None => {
                self.record(Timing::Response, due_ns, now_ns);
                self.record(Timing::Service, sent_ns, now_ns);
            }
        }
        self.report.counts.deliveries += 1;
        shared.delivered(1);
        shared.done(1);
        self.take_turns(now_ns);
    }

    /// Takes the EOSE of a recorded REQ; false when none was owed.
    pub(super) fn turn_eose(&mut self, subscription: &str, now_ns: u64) -> bool {
        let asked = self.replay.asked.get_mut(subscription).and_then(Option::as_mut);
        let Some(asked) = asked.filter(|asked| !asked.has_eose) else { return false };
        asked.has_eose = true;
        let (request, due_ns) = (asked.turn, asked.due_ns);
        self.report.last_ns = now_ns;
        self.record(Timing::Eose, due_ns, now_ns);
        self.replay.answered.insert(request);
        if self.shared.workload.turns[request as usize].answered {
            self.report.counts.requests_completed += 1;
            self.shared.done(1);
        }
        self.take_turns(now_ns);
        true
    }

    /// Takes the CLOSED of a recorded REQ; false when it is not open.
    pub(super) fn turn_closed(&mut self, subscription: &str, text: &str, now_ns: u64) -> bool {
        let Some(asked) = self.replay.asked.get_mut(subscription) else { return false };
        let Some(asked) = asked.take() else { return true };
        if asked.has_eose {
            self.report.counts.subscriptions_closed += 1;
        }
        self.end_asked(&asked);
        self.complain(|| format!("CLOSED {subscription}: {text}"));
        self.take_turns(now_ns);
        true
    }
}

impl Asked {
    /// Deliveries that have not come.
    fn missing(&self) -> usize {
        self.seen.len() - self.seen.count_ones(..)
    }
}
