//! A relay's limits to requests, and the error of a message that exceeds them.
//!
//! Decoders apply them as they read
//! ([`Codec::decode_client_within`](crate::Codec::decode_client_within)): a request is refused at
//! the first entry too many, before room is made for it.

use super::{Filter, filter::MAX_FILTERS};

/// A relay's bounds on one REQ, COUNT or NEG-OPEN (advertised in NIP-11 if it has a field for it).
///
/// ```
/// use codecs::{DecodeError, Format, Limits};
///
/// let limits = Limits { max_filters: 1, ..Limits::default() };
/// let json = Format::JSON.spec().library;
/// let refused = json.decode_client_within(br#"["REQ","feed",{},{}]"#, &limits).unwrap_err();
/// assert!(matches!(&refused, DecodeError::OverLimit(over) if over.subscription == "feed"));
/// assert_eq!(refused.to_string(), "a request has 1 to 1 filters");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Filters in one REQ.
    pub max_filters: usize,
    /// Entries of one list inside a filter. strfry's 65,535-byte cap allows 2,047 ids or authors.
    pub max_filter_values: usize,
    /// Characters of a subscription id (NIP-01: 64).
    pub max_subscription_chars: usize,
    /// Bytes of a message after a format has unpacked it. A relay sets its limit of frames here.
    pub max_unpacked_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            max_filters: 200,
            max_filter_values: 2_047,
            max_subscription_chars: 64,
            max_unpacked_bytes: 1 << 20,
        }
    }
}

impl Limits {
    /// The decoder's own bounds: the number of filters that encoders write, and lists of any
    /// length.
    pub const MOST: Limits = Limits {
        max_filters: MAX_FILTERS,
        max_filter_values: usize::MAX,
        max_subscription_chars: usize::MAX,
        max_unpacked_bytes: usize::MAX,
    };

    /// Checks a REQ or COUNT; the error is the text of the CLOSED answer, with its NIP-01 prefix.
    pub fn check(&self, subscription: &str, filters: &[Filter]) -> Result<(), String> {
        let invalid = |limit: Limit| Err(format!("invalid: {limit}"));
        if subscription.is_empty() || is_longer(subscription, self.max_subscription_chars) {
            return invalid(Limit::SubscriptionChars(self.max_subscription_chars));
        }
        if filters.is_empty() || filters.len() > self.max_filters {
            return invalid(Limit::Filters(self.max_filters));
        }
        for filter in filters {
            let longest = [
                filter.ids.as_ref().map_or(0, Vec::len),
                filter.authors.as_ref().map_or(0, Vec::len),
                filter.kinds.as_ref().map_or(0, Vec::len),
                filter.tags.iter().map(|t| t.values.len()).max().unwrap_or(0),
            ]
            .into_iter()
            .max();
            if longest > Some(self.max_filter_values) {
                return invalid(Limit::FilterValues(self.max_filter_values));
            }
            if let Some(field) = &filter.unknown {
                let field: String = field.chars().take(32).collect(); // a peer's text, of any length
                return Err(format!("unsupported: unknown filter field {field:?}"));
            }
            if filter.search.is_some() {
                return Err("unsupported: search (NIP-50) is not implemented".to_owned());
            }
        }
        Ok(())
    }
}

/// One of [`Limits`], with its value; the text states what is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Limit {
    /// [`Limits::max_subscription_chars`].
    #[error("a subscription id has 1 to {0} characters")]
    SubscriptionChars(usize),
    /// [`Limits::max_filters`].
    #[error("a request has 1 to {0} filters")]
    Filters(usize),
    /// [`Limits::max_filter_values`].
    #[error("a filter list has at most {0} entries")]
    FilterValues(usize),
}

/// The messages that [`Limits`] are about. A relay answers each in its own way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// REQ, answered by CLOSED.
    Req,
    /// COUNT, answered by CLOSED.
    Count,
    /// NEG-OPEN, answered by NEG-ERR.
    NegOpen,
}

/// A request that goes beyond a limit. What follows the entry too many was not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{limit}")]
pub struct OverLimit {
    /// The limit.
    pub limit: Limit,
    /// Which message it was.
    pub request: Request,
    /// The subscription id as far as it is allowed to reach, for the answer.
    pub subscription: String,
}

/// The limits, while a request is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds<'a> {
    limits: &'a Limits,
    request: Request,
    subscription: &'a str,
}

impl<'a> Bounds<'a> {
    /// Limits of a request whose subscription id was just read; the id itself may be too long.
    pub(crate) fn new(
        limits: &'a Limits,
        request: Request,
        subscription: &'a str,
    ) -> Result<Self, Box<OverLimit>> {
        Bounds { limits, request, subscription: "" }.named(subscription)
    }

    /// Bounds of a request with this subscription id.
    pub(crate) fn named(self, subscription: &'a str) -> Result<Self, Box<OverLimit>> {
        let bounds = Bounds { subscription, ..self };
        let max = self.limits.max_subscription_chars;
        if is_longer(subscription, max) { bounds.refuse(Limit::SubscriptionChars(max)) } else { Ok(bounds) }
    }

    /// Whether a request may have this many filters.
    pub(crate) fn filters(&self, count: usize) -> Result<(), Box<OverLimit>> {
        let max = self.limits.max_filters;
        if count > max { self.refuse(Limit::Filters(max)) } else { Ok(()) }
    }

    /// Whether a list in a filter may have this many entries.
    pub(crate) fn values(&self, count: usize) -> Result<(), Box<OverLimit>> {
        let max = self.limits.max_filter_values;
        if count > max { self.refuse(Limit::FilterValues(max)) } else { Ok(()) }
    }

    #[cold]
    fn refuse<T>(&self, limit: Limit) -> Result<T, Box<OverLimit>> {
        let subscription = self.subscription.chars().take(self.limits.max_subscription_chars).collect();
        let over = OverLimit { limit, request: self.request, subscription };
        Err(Box::new(over))
    }
}

fn is_longer(text: &str, chars: usize) -> bool {
    text.len() > chars && text.chars().nth(chars).is_some()
}
