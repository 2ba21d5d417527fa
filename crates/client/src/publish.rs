//! Publications, open and closed, and their OKs.

use std::{borrow::Cow, collections::VecDeque, ops::Range, sync::Arc};

use codecs::ClientMessage;

use super::Client;
use crate::{incidents::About, meaning::Verdict, shared::Fate};
use workload::{Task, Timing, schedule::nanos};

/// Publications that wait for answers rather than for an instant.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// The rest of a closed loop, of which at most `window` may be unanswered.
    flood: Range<u32>,
    window: usize,
    /// Events that only this client has, after a reconciliation.
    own: VecDeque<u32>,
}

impl Backlog {
    pub(super) fn has_next(&self, in_flight: usize) -> bool {
        !self.own.is_empty() || (!self.flood.is_empty() && in_flight < self.window)
    }

    pub(super) fn next(&mut self, in_flight: usize) -> Option<u32> {
        if !self.has_next(in_flight) {
            return None;
        }
        self.own.pop_front().or_else(|| self.flood.next())
    }

    pub(super) fn add_own(&mut self, publications: impl IntoIterator<Item = u32>) {
        self.own.extend(publications);
    }

    pub(super) fn remove_own(&mut self, publication: usize) {
        self.own.retain(|own| *own as usize != publication);
    }
}

impl Client {
    /// Publishes an event that is due.
    pub(super) fn publish_due(&mut self, n: u32, now_ns: u64) {
        let due_ns = nanos(self.shared.workload.publications[n as usize].at);
        self.record(Timing::SendLag, due_ns, now_ns);
        self.publish(n, now_ns);
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
        let Some(n) = self.in_flight.remove(id) else { return false };
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
