//! The rules of a relay: events that it rejects, and bounds of a request.
//!
//! `client-sim doctor` finds them, the plan of a run keeps to them, and
//! [`Generator::strict`](crate::generate::Generator::strict) makes only events that common relays
//! accept.

use std::collections::BTreeSet;

use codecs::Event;
use serde::{Deserialize, Serialize};

/// The largest value of each that a relay accepts; `None` if no bound was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rules {
    /// Bytes of an event as JSON.
    pub event_bytes: Option<u64>,
    /// Tags of an event.
    pub event_tags: Option<u64>,
    /// Bytes of the value of a tag.
    pub tag_value_bytes: Option<u64>,
    /// Whether the value of an `e` or `p` tag must be 64 digits of lowercase hex.
    pub hex_references: bool,
    /// The earliest `created_at`, in seconds since 1970.
    pub oldest_s: Option<i64>,
    /// Entries of one list of a filter.
    pub filter_values: Option<u64>,
    /// Subscriptions of a connection at one time.
    pub subscriptions: Option<u64>,
    /// Stored events that answer one filter.
    pub stored_events: Option<u64>,
    /// Stored events that answer one filter without a limit.
    pub unlimited_events: Option<u64>,
    /// Ephemeral kinds to whose events the relay sends no OK. NIP-01 requires one since it absorbed
    /// NIP-20, which required it only for failures.
    pub unanswered_kinds: BTreeSet<u16>,
}

impl Rules {
    /// The rules on events of strfry's defaults, the strictest of the common relays:
    /// `events.maxEventSize`, `events.maxNumTags` and `events.maxTagValSize` of strfry.conf, and
    /// `e` and `p` tags of 32 bytes in hex (`src/events.cpp`; <https://github.com/hoytech/strfry>).
    /// Left out is the age, which depends on the day.
    pub const COMMON: Rules = Rules {
        event_bytes: Some(65_536),
        event_tags: Some(2_000),
        tag_value_bytes: Some(1_024),
        hex_references: true,
        oldest_s: None,
        filter_values: None,
        subscriptions: None,
        stored_events: None,
        unlimited_events: None,
        unanswered_kinds: BTreeSet::new(),
    };

    /// The rules that two relays have in common: the stricter of each.
    #[must_use]
    pub fn and(&self, other: &Rules) -> Rules {
        let least = |one: Option<u64>, other: Option<u64>| one.into_iter().chain(other).min();
        Rules {
            event_bytes: least(self.event_bytes, other.event_bytes),
            event_tags: least(self.event_tags, other.event_tags),
            tag_value_bytes: least(self.tag_value_bytes, other.tag_value_bytes),
            hex_references: self.hex_references || other.hex_references,
            oldest_s: self.oldest_s.max(other.oldest_s),
            filter_values: least(self.filter_values, other.filter_values),
            subscriptions: least(self.subscriptions, other.subscriptions),
            stored_events: least(self.stored_events, other.stored_events),
            unlimited_events: least(self.unlimited_events, other.unlimited_events),
            unanswered_kinds: self.unanswered_kinds.union(&other.unanswered_kinds).copied().collect(),
        }
    }

    /// Why the relay rejects an event of `json_bytes`.
    pub fn refuses(&self, event: &Event<'_>, json_bytes: u64) -> Option<&'static str> {
        let over = |bound: Option<u64>, found: u64| bound.is_some_and(|bound| found > bound);
        match () {
            () if over(self.event_bytes, json_bytes) => Some("the relay refuses events of this size"),
            () if over(self.event_tags, event.tags.len() as u64) => {
                Some("the relay refuses events with so many tags")
            }
            () if over(self.tag_value_bytes, longest_tag_value(event)) => {
                Some("the relay refuses tag values of this length")
            }
            () if self.hex_references && has_odd_reference(event) => {
                Some("the relay refuses e and p tags other than 64 digits of lowercase hex")
            }
            () if self.oldest_s.is_some_and(|oldest| event.created_at < oldest) => {
                Some("the relay refuses events of this age")
            }
            () if self.unanswered_kinds.contains(&event.kind) => {
                Some("the relay sends no OK to ephemeral events of this kind")
            }
            () => None,
        }
    }
}

/// Bytes of the longest tag value.
pub fn longest_tag_value(event: &Event<'_>) -> u64 {
    event.tags.iter().flat_map(|tag| tag.iter().skip(1)).map(|value| value.len()).max().unwrap_or(0) as u64
}

/// Whether an `e` or `p` tag names no id or key in the form of NIP-01.
pub fn has_odd_reference(event: &Event<'_>) -> bool {
    event.tags.iter().any(|tag| {
        let names = tag.first().is_some_and(|name| name == "e" || name == "p");
        let hex =
            |value: &str| value.len() == 64 && value.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        names && !tag.get(1).is_some_and(|value| hex(value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_refused_by_the_first_rule_that_it_breaks_and_by_none_without_rules() {
        let mut event = crate::Corpus::bundled().events.swap_remove(0);
        event.tags = vec![vec!["e".into(), "ab".repeat(32).into()], vec!["t".into(), "x".repeat(300).into()]];
        event.created_at = 1_000;
        let refused = |rules: &Rules| rules.refuses(&event, 500);
        assert_eq!(refused(&Rules::default()), None);
        let all = Rules {
            event_bytes: Some(500),
            event_tags: Some(2),
            tag_value_bytes: Some(300),
            hex_references: true,
            oldest_s: Some(1_000),
            ..Rules::default()
        };
        assert_eq!(refused(&all), None, "at the bound");
        for (rules, says) in [
            (Rules { event_bytes: Some(499), ..all.clone() }, "size"),
            (Rules { event_tags: Some(1), ..all.clone() }, "so many tags"),
            (Rules { tag_value_bytes: Some(299), ..all.clone() }, "length"),
            (Rules { oldest_s: Some(1_001), ..all.clone() }, "age"),
            (Rules { unanswered_kinds: [event.kind].into(), ..all.clone() }, "no OK"),
        ] {
            assert!(refused(&rules).is_some_and(|why| why.contains(says)), "{says}");
        }
        for odd in ["", "xyz", &"AB".repeat(32)] {
            event.tags[0][1] = odd.to_owned().into();
            assert!(all.refuses(&event, 1).is_some_and(|why| why.contains("hex")), "{odd}");
        }
        event.tags[0] = vec!["p".into()];
        assert!(has_odd_reference(&event), "a p tag without a value");
    }
}
