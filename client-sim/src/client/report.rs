//! What one client brings back.

use wire::Traffic;

/// What one client saw.
#[derive(Debug, Default)]
pub struct ClientReport {
    /// Bytes and messages since the start.
    pub traffic: Traffic,
    /// Requests that ended with EOSE.
    pub requests_completed: u64,
    /// Planned deliveries to requests that came, each once and unaltered.
    pub deliveries: u64,
    /// The same event twice on one subscription.
    pub duplicated: u64,
    /// An event that is not what its author published.
    pub altered: u64,
    /// An event that nobody asked for.
    pub unexpected: u64,
    /// Messages that are not of the agreed format.
    pub decode_errors: u64,
    /// For each live subscription, which publications came.
    pub seen: Vec<Bits>,
    /// From when to when sessions were at work, in nanoseconds from the start.
    pub busy_ns: Vec<(u64, u64)>,
    /// When the last delivery or acknowledgement came, in nanoseconds from the start.
    pub last_ns: u64,
    /// The first notice or refusal, in the relay's words.
    pub complaint: Option<String>,
    /// Why the connection ended early.
    pub failure: Option<String>,
}

/// A set of publications.
#[derive(Debug, Default, Clone)]
pub struct Bits(Vec<u64>);

impl Bits {
    pub(crate) fn of_len(len: usize) -> Self {
        Bits(vec![0; len.div_ceil(64)])
    }

    /// Adds a member; false when it was one already.
    pub fn insert(&mut self, member: usize) -> bool {
        let (word, bit) = (member / 64, 1 << (member % 64));
        let fresh = self.0[word] & bit == 0;
        self.0[word] |= bit;
        fresh
    }

    /// Whether `member` is in the set.
    pub fn contains(&self, member: usize) -> bool {
        self.0[member / 64] & (1 << (member % 64)) != 0
    }
}
