//! The report of one client.

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
    /// The first refusal or wrong message of the relay, in its words.
    pub complaint: Option<String>,
    /// The first message that answers nothing, or not in the form of its NIP, in the relay's words.
    pub passed_over: Option<String>,
    /// The first stored event that came out of order, and the one before it.
    pub out_of_order: Option<String>,
    /// The first live event that came behind a later one of its publisher, and that one.
    pub live_out_of_order: Option<String>,
    /// Why this machine could not make a connection, in the system's words.
    pub no_connection: Option<String>,
    /// Why the relay ended the connection of a slow reader.
    pub cut_off: Option<String>,
    /// Whether no challenge (NIP-42) came on a new connection.
    pub ungreeted: bool,
    /// Ids outside the plan that a reconciliation named, if the plan collects them.
    pub foreign: Vec<[u8; 32]>,
}

impl Report {
    /// The relay's first words, as the end of a sentence; empty when it said nothing.
    pub fn said(&self) -> String {
        let said = self.complaint.as_ref().or(self.passed_over.as_ref());
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
