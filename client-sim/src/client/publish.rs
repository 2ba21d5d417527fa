//! Publishing, when an event is due or when an answer makes room for it, and what the relay says to it.

use std::{
    borrow::Cow,
    sync::{Arc, atomic::Ordering},
};

use codecs::ClientMessage;

use super::{BATCH, Client, nanos};
use crate::{recorder::Metric, shared::Fate, workload::Task};

/// Closed-loop publications under way.
#[derive(Debug)]
pub(super) struct OpenFlood {
    next: u32,
    end: u32,
    window: usize,
}

impl Client {
    /// Publishes what is due.
    pub(super) async fn publish_due(&mut self, n: u32) -> anyhow::Result<()> {
        let due_ns = nanos(self.shared.workload.publications[n as usize].at);
        self.record(Metric::SendLag, due_ns, self.now_ns());
        self.publish(n).await
    }

    pub(super) async fn publish(&mut self, n: u32) -> anyhow::Result<()> {
        let shared = Arc::clone(&self.shared);
        let publication = &shared.workload.publications[n as usize];
        let event = &shared.workload.events[publication.event as usize];
        shared.sent_ns[n as usize].store(self.now_ns().max(1), Ordering::Relaxed);
        self.in_flight.insert(event.id, n);
        self.feed(&ClientMessage::Event(Cow::Borrowed(event))).await
    }

    pub(super) async fn start_flood(&mut self, n: u32) -> anyhow::Result<()> {
        let flood = self.shared.workload.floods[n as usize];
        let Task::Publisher { window } = self.shared.workload.roles[self.id].task else { return Ok(()) };
        self.flood = Some(OpenFlood { next: flood.first, end: flood.first + flood.count, window });
        self.go_on_flooding().await
    }

    /// Publishes as much as the window has room for.
    pub(super) async fn go_on_flooding(&mut self) -> anyhow::Result<()> {
        for unflushed in 1.. {
            let Some(flood) = &mut self.flood else { break };
            if flood.next == flood.end || self.in_flight.len() >= flood.window {
                break;
            }
            let n = flood.next;
            flood.next += 1;
            self.publish(n).await?;
            if unflushed % BATCH == 0 {
                self.flush().await?;
            }
        }
        Ok(())
    }

    pub(super) fn acknowledged(&mut self, id: [u8; 32], accepted: bool, text: &str, now_ns: u64) {
        let Some(n) = self.in_flight.remove(&id) else {
            self.complain(|| format!("OK for an event that was not in flight: {text}"));
            return;
        };
        self.record(Metric::PublishOk, self.shared.due_ns(n as usize), now_ns);
        // A relay that had the event already says true and delivers nothing.
        let duplicate = text.starts_with("duplicate:");
        if accepted && !duplicate {
            self.shared.settle(n as usize, Fate::Acked);
        } else {
            self.shared.settle(n as usize, Fate::Rejected);
            self.complain(|| format!("OK {accepted}: {text}"));
        }
    }
}
