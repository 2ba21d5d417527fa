//! Light readers: clients that decode every n-th delivery and count the others, so that a core of
//! clients keeps up with a core of relay.
//!
//! While deliveries are owed, an undecoded message that is as large as a delivery counts as one. The ledger
//! then compares counts ([`crate::ledger`]): a subscriber's messages with its owed deliveries, a
//! session's messages with its open requests.

use super::{Action, Client};
use workload::Task;

/// Fewest bytes of a delivery, by its WebSocket payload as it came. Id, public key and signature
/// are 128 bytes in every format and do not compress. Smaller messages are always decoded, among
/// them EOSE, OK and CLOSED without a long text.
const DELIVERY_BYTES: usize = 128;

/// A client that decodes every n-th delivery.
#[derive(Debug)]
pub(super) struct Light {
    every: u32,
    /// Deliveries to count before one is decoded.
    until_decoded: u32,
    /// Deliveries counted, until they are set against what was owed.
    pub(super) unread: u64,
    /// Events that were owed to requests which are over, and did not come decoded.
    missing: u64,
    /// Live deliveries that the run waits for.
    pub(super) awaited: u64,
}

impl Light {
    /// Makes the light reader of connection `id`. Clients do not all decode the same delivery.
    pub(super) fn new(every: u32, id: usize) -> Light {
        let until_decoded = u32::try_from(id % every as usize).unwrap_or(0);
        Light { every, until_decoded, unread: 0, missing: 0, awaited: 0 }
    }

    /// Notes a delivery that was decoded.
    pub(super) fn decoded(&mut self) {
        self.until_decoded = self.every - 1;
    }
}

impl Client {
    /// Whether it is a light reader, which asks [`Client::counts_from`] before each message.
    pub fn reads_lightly(&self) -> bool {
        self.light.is_some()
    }

    /// Fewest payload bytes, as they come, of a next message that need not be read: the owner
    /// passes such a message to [`Client::on_unread`], every other one to [`Client::on_message`].
    /// `None` while each message must be decoded.
    pub fn counts_from(&self) -> Option<usize> {
        self.light.as_ref().filter(|light| light.until_decoded > 0 && self.started)?;
        let is_owed = match &self.shared.workload.roles[self.id].task {
            Task::Subscriber { .. } => self.is_ready(),
            _ => !self.requests.is_empty(),
        };
        is_owed.then_some(DELIVERY_BYTES)
    }

    /// Counts a message as a delivery, unread.
    pub fn on_unread(&mut self, now_ns: u64) {
        let Some(light) = &mut self.light else { return };
        light.until_decoded = light.until_decoded.saturating_sub(1);
        light.unread += 1;
        if light.awaited > 0 {
            light.awaited -= 1;
            self.shared.done(1);
        }
        self.report.last_ns = now_ns;
        self.shared.delivered(1);
        self.actions.push_back(Action::Count { now_ns });
    }

    /// Notes what a request that is over did not bring decoded. With the last open one, sets what
    /// was counted against it: more than was missing nobody was owed, and less is lost.
    pub(super) fn set_off_unread(&mut self, missing: usize) {
        let Some(light) = &mut self.light else { return };
        light.missing += missing as u64;
        if !self.requests.is_empty() {
            return;
        }
        let (unread, missing) = (std::mem::take(&mut light.unread), std::mem::take(&mut light.missing));
        let counts = &mut self.report.counts;
        let came = unread.min(missing);
        counts.deliveries += came;
        counts.deliveries_unread += came;
        counts.deliveries_unexpected += unread - came;
    }

    /// Ends the count of a light reader: requests that are still open bring nothing more.
    pub(super) fn end_unread(&mut self) {
        if self.light.is_none() {
            return;
        }
        if let Task::Subscriber { .. } = self.shared.workload.roles[self.id].task {
            self.report.unread = self.light.take().map_or(0, |light| light.unread);
            return;
        }
        let open = std::mem::take(&mut self.requests);
        let missing = open.iter().map(|(subscription, request)| {
            let expected = self.asked(*subscription).map_or(0, |asked| asked.expected.len());
            expected.saturating_sub(request.seen.count_ones(..))
        });
        let missing = missing.sum();
        self.set_off_unread(missing);
    }
}
