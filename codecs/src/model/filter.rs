//! The filter of a REQ (NIP-01).

use super::{Event, EventHead, FlatEvent};

/// Filters in one REQ or COUNT that a decoder will look at; a relay's own limit is far lower and
/// answers with a reason. An empty filter is one or two bytes on the wire and some 150 in memory,
/// so that without a bound one frame of 1 MiB could claim 150 MiB; 4,096 filters stay under one.
pub(crate) const MAX_FILTERS: usize = 4_096;

/// A NIP-01 filter: all given conditions hold, each list is any-of. `None` means "not asked"; an
/// empty list matches nothing.
///
/// ```
/// use codecs::{Event, Filter, TagFilter};
///
/// let tags = vec![vec!["t".into(), "nostr".into()]];
/// let (id, pubkey, sig) = ([1; 32], [2; 32], [3; 64]);
/// let event = Event { id, pubkey, created_at: 4, kind: 1, tags, content: "".into(), sig };
/// let condition = TagFilter { letter: 't', values: vec!["nostr".into()] };
/// let filter = Filter { kinds: Some(vec![1]), tags: vec![condition], ..Filter::default() };
/// assert!(filter.matches(&event));
/// assert!(!Filter { since: Some(5), ..filter }.matches(&event));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Event ids.
    pub ids: Option<Vec<[u8; 32]>>,
    /// Authors' public keys.
    pub authors: Option<Vec<[u8; 32]>>,
    /// Event kinds.
    pub kinds: Option<Vec<u16>>,
    /// Earliest `created_at`, inclusive.
    pub since: Option<i64>,
    /// Latest `created_at`, inclusive.
    pub until: Option<i64>,
    /// Most stored events; live events are not limited.
    pub limit: Option<u64>,
    /// NIP-50 full-text query.
    pub search: Option<String>,
    /// `#x` conditions, each at most once, in the order given.
    pub tags: Vec<TagFilter>,
    /// The first field unknown to this codec. A relay answers CLOSED `unsupported`; encoders reject
    /// it.
    pub unknown: Option<String>,
}

/// A `#x` condition: some tag named `letter` has one of `values` as its first value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagFilter {
    /// A single ASCII letter.
    pub letter: char,
    /// Accepted first values.
    pub values: Vec<String>,
}

impl Filter {
    /// Whether a live or stored event satisfies the filter; `limit` and `search` play no part.
    pub fn matches(&self, event: &Event<'_>) -> bool {
        let Event { id, pubkey, created_at, kind, .. } = event;
        self.matches_fields(id, pubkey, *created_at, *kind)
            && self.tags.iter().all(|condition| {
                condition.matches(event.tags.iter().map(|tag| tag.iter().map(|value| &**value)))
            })
    }

    /// [`Filter::matches`] for an event in one piece of memory.
    pub fn matches_flat(&self, event: &FlatEvent) -> bool {
        let EventHead { id, pubkey, created_at, kind } = &event.head;
        self.matches_fields(id, pubkey, *created_at, *kind)
            && self.tags.iter().all(|condition| condition.matches(event.tags()))
    }

    fn matches_fields(&self, id: &[u8; 32], pubkey: &[u8; 32], created_at: i64, kind: u16) -> bool {
        self.since.is_none_or(|since| created_at >= since)
            && self.until.is_none_or(|until| created_at <= until)
            && self.kinds.as_ref().is_none_or(|kinds| kinds.contains(&kind))
            && self.authors.as_ref().is_none_or(|authors| authors.contains(pubkey))
            && self.ids.as_ref().is_none_or(|ids| ids.contains(id))
    }
}

impl Filter {
    /// Whether a decoder accepts this many filters.
    pub(crate) fn check_number(filters: &[Filter]) -> Result<(), String> {
        let number = filters.len();
        if number <= MAX_FILTERS {
            return Ok(());
        }
        Err(format!("cannot hold {number} filters; a message has at most {MAX_FILTERS}"))
    }

    /// Whether a codec may write the filter so that it reads back the same; the error names the
    /// obstacle.
    pub(crate) fn check_writable(&self) -> Result<(), String> {
        if let Some(field) = &self.unknown {
            return Err(format!("unknown filter field {field:?}"));
        }
        for (index, TagFilter { letter, .. }) in self.tags.iter().enumerate() {
            if !letter.is_ascii_alphabetic() {
                return Err(format!("tag condition {letter:?}; expected an ASCII letter"));
            }
            if self.tags[..index].iter().any(|earlier| earlier.letter == *letter) {
                return Err(format!("tag condition {letter:?} twice; a filter has one for each letter"));
            }
        }
        Ok(())
    }
}

impl TagFilter {
    fn matches<'v>(&self, mut tags: impl Iterator<Item = impl Iterator<Item = &'v str>>) -> bool {
        let mut name = [0; 4];
        let name = &*self.letter.encode_utf8(&mut name);
        tags.any(|mut values| {
            values.next() == Some(name)
                && values.next().is_some_and(|value| self.values.iter().any(|accepted| value == accepted))
        })
    }
}
