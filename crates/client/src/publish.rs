//! Publications, open and closed, and their OKs.

use std::{borrow::Cow, collections::VecDeque, ops::Range, sync::Arc};

use codecs::ClientMessage;

use super::{Client, Wake};
use crate::{auth::Held, incidents::About, meaning::Verdict, shared::Fate};
use workload::{Task, Timing, schedule::nanos};

/// Publications that wait for answers rather than for an instant.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// The rest of a closed loop, of which at most `window` may be unanswered.
    flood: Range<u32>,
    window: usize,
    /// Publications of events that only this client has, after a reconciliation.
    pub(super) own: VecDeque<u32>,
    /// The session that a loop which time ends begins next.
    pub(super) session: Option<u32>,
    /// Whether the loop waits until less is undelivered.
    pub(super) pauses: bool,
}

/// How long a loop waits while enough is undelivered: the resolution of timers.
const PAUSE_NS: u64 = 1_000_000;

impl Backlog {
    pub(super) fn has_next(&self, in_flight: usize) -> bool {
        !self.own.is_empty() || self.session.is_some() || self.may_flood(in_flight)
    }

    fn may_flood(&self, in_flight: usize) -> bool {
        !self.flood.is_empty() && in_flight < self.window && !self.pauses
    }

    /// Whether it has a part of a loop that is yet to come.
    fn loops(&self) -> bool {
        !self.flood.is_empty() || self.session.is_some()
    }
}

impl Client {
    /// Publishes an event that is due.
    pub(super) fn publish_due(&mut self, n: u32, now_ns: u64) {
        let due_ns = nanos(self.shared.workload.publications[n as usize].at);
        // A recorded client's may have waited for its connection.
        if due_ns >= self.replay.up_ns {
            self.record(Timing::SendLag, due_ns, now_ns);
        }
        self.publish(n, now_ns);
    }

    /// Does what waits for answers rather than for an instant.
    pub(super) fn go_on(&mut self, now_ns: u64) {
        if self.shared.is_over(now_ns) {
            self.end_loop();
        } else if self.backlog.may_flood(self.in_flight.len()) && self.shared.has_enough() {
            self.backlog.pauses = true;
            self.wake_at(now_ns + PAUSE_NS, Wake::GoOn);
        }
        if let Some(n) = self.backlog.session.take() {
            return self.start_session(n, now_ns, now_ns);
        }
        let may_flood = self.backlog.may_flood(self.in_flight.len());
        let Backlog { own, flood, .. } = &mut self.backlog;
        if let Some(n) = own.pop_front().or_else(|| may_flood.then(|| flood.next()).flatten()) {
            self.publish(n, now_ns);
            self.end_flood_if_empty(n);
        }
    }

    /// Ends a loop that time ends: what it did not reach is not begun.
    pub(super) fn end_loop(&mut self) {
        if self.shared.workload.until.is_some() && self.backlog.loops() {
            self.backlog.flood = 0..0;
            self.backlog.session = None;
            self.shared.done(1);
        }
    }

    /// Ends a loop that has no publication left before time ends it.
    fn end_flood_if_empty(&mut self, published: u32) {
        let is_last = self.backlog.flood.is_empty() && self.backlog.flood.end == published + 1;
        if is_last && self.shared.workload.until.is_some() {
            self.shared.done(1);
        }
    }

    pub(super) fn publish(&mut self, n: u32, now_ns: u64) {
        let shared = Arc::clone(&self.shared);
        let publication = &shared.workload.publications[n as usize];
        let event = &shared.workload.events[publication.event as usize];
        shared.note_sent(n as usize, now_ns);
        self.in_flight.insert(event.id, n);
        self.send(&ClientMessage::Event(Cow::Borrowed(event)));
    }

    pub(super) fn start_flood(&mut self, n: u32) {
        let flood = self.shared.workload.floods[n as usize];
        let Task::Publisher { window } = self.shared.workload.roles[self.id].task else { return };
        self.backlog.flood = flood.first..flood.first + flood.count;
        self.backlog.window = window;
    }

    /// Takes the OK of a publication; false when none was in flight.
    pub(super) fn acknowledged(&mut self, id: &[u8; 32], accepted: bool, text: &str, now_ns: u64) -> bool {
        let Some(n) = self.in_flight.get(id).copied() else { return false };
        if !accepted && self.holds(text, Held::Publication(n)) {
            return true;
        }
        self.in_flight.remove(id);
        self.record(Timing::PublishOk, self.shared.due_ns(n as usize), now_ns);
        let fate = match Verdict::from_ok(accepted, text) {
            Verdict::Accepted => Fate::Acked,
            Verdict::Duplicate => Fate::Duplicate,
            Verdict::Mute | Verdict::Refused => Fate::Rejected,
        };
        self.shared.settle(n as usize, fate);
        if fate != Fate::Acked || !text.is_empty() {
            self.shared.incidents.said(About::Event(*id), &format!("OK {accepted}: {text}"));
        }
        if fate != Fate::Acked {
            self.complain(|| format!("OK {accepted}: {text}"));
        }
        true
    }
}
