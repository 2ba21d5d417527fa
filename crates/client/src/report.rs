//! The report of one client.

use std::collections::BTreeMap;

use measure::Counts;

use super::{Following, Subscription};

/// Deliveries, bytes and faults that one client saw on its connections.
#[derive(Debug, Default)]
pub struct Report {
    /// The client's part of the ledger. [`crate::ledger::close`] adds what follows from the plan.
    pub counts: Counts,
    /// The live subscriptions of a subscriber.
    pub live: Vec<Following>,
    /// Deliveries that a subscriber counted unread, over all its live subscriptions.
    pub unread: u64,
    /// The sessions that began, each as often as it did.
    pub began: Vec<u32>,
    /// Sessions that had no connection at the end, and never began.
    pub not_connected: Vec<u32>,
    /// Live subscriptions of sessions that are not summed up in `counts` alone.
    pub stays: Vec<Stay>,
    /// When each session began and ended its steps, in nanoseconds from the start; as one where a
    /// session began when another ended.
    pub busy_ns: Vec<(u64, u64)>,
    /// When the last delivery or acknowledgement came, in nanoseconds from the start.
    pub last_ns: u64,
    /// The first words of each sort.
    pub words: BTreeMap<Words, String>,
    /// Why the relay ended the connection of a slow reader.
    pub cut_off: Option<String>,
    /// Whether no challenge (NIP-42) came on a new connection.
    pub ungreeted: bool,
    /// Ids outside the plan that a reconciliation named, if the plan collects them.
    pub foreign: Vec<[u8; 32]>,
}

/// What is told of a client once, in the words of the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Words {
    /// A refusal or wrong message of the relay, in its words.
    Complaint,
    /// A message that answers nothing, or not in the form of its NIP, in the relay's words.
    PassedOver,
    /// A stored event that came out of order, and the one before it.
    OutOfOrder,
    /// A live event that came behind a later one of its publisher, and that one.
    LiveOutOfOrder,
    /// Why this machine could not make a connection, in the system's words.
    NoConnection,
}

impl Report {
    pub(crate) fn tell(&mut self, what: Words, words: impl FnOnce() -> String) {
        self.words.entry(what).or_insert_with(words);
    }

    /// The relay's first refusal; empty when there was none.
    pub fn complaint(&self) -> &str {
        self.words.get(&Words::Complaint).map_or("", String::as_str)
    }

    /// The relay's first words, as the end of a sentence; empty when it said nothing.
    pub fn said(&self) -> String {
        let said = self.words.get(&Words::Complaint).or_else(|| self.words.get(&Words::PassedOver));
        said.map_or_else(String::new, |said| format!("; the relay said {said}"))
    }
}

/// Open deliveries of a live subscription whose session has ended. Its deliveries of what the relay has
/// accepted are in the counts.
#[derive(Debug)]
pub struct Stay {
    /// Its id.
    pub subscription: Subscription,
    /// Its filter, as a place in `Workload::live`.
    pub live: u32,
    /// The publications that came, and that the relay had not accepted by then.
    pub seen: Box<[u32]>,
    /// The matching publications that were sent during the stay, from its EOSE to its planned end,
    /// did not come and were not refused by then. Earlier and later ones may come or not.
    pub missing: Box<[u32]>,
    /// Whether the relay ended the subscription (CLOSED).
    pub closed: bool,
}
