//! The rules of a relay: which events it refuses or does not give back.
//!
//! `client-sim doctor` finds them, the plan of a run keeps to them, and
//! [`Generator::strict`](crate::generate::Generator::strict) makes only events that common relays
//! accept.

use std::{borrow::Cow, collections::BTreeMap};

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
    /// The latest `created_at`, in seconds since 1970.
    pub newest_s: Option<i64>,
    /// Kinds that the relay refuses or does not give back, and why.
    pub kinds: BTreeMap<u16, String>,
    /// The same for clients that answer its challenge (NIP-42).
    pub kinds_after_auth: BTreeMap<u16, String>,
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
        newest_s: None,
        kinds: BTreeMap::new(),
        kinds_after_auth: BTreeMap::new(),
    };

    /// The rules that two relays have in common: the stricter of each.
    #[must_use]
    pub fn and(&self, other: &Rules) -> Rules {
        let least = |one: Option<u64>, other: Option<u64>| one.into_iter().chain(other).min();
        let all = |one: &BTreeMap<u16, String>, other: &BTreeMap<u16, String>| {
            other.iter().chain(one).map(|(kind, why)| (*kind, why.clone())).collect()
        };
        Rules {
            event_bytes: least(self.event_bytes, other.event_bytes),
            event_tags: least(self.event_tags, other.event_tags),
            tag_value_bytes: least(self.tag_value_bytes, other.tag_value_bytes),
            hex_references: self.hex_references || other.hex_references,
            oldest_s: self.oldest_s.max(other.oldest_s),
            newest_s: [self.newest_s, other.newest_s].into_iter().flatten().min(),
            kinds: all(&self.kinds, &other.kinds),
            kinds_after_auth: all(&self.kinds_after_auth, &other.kinds_after_auth),
        }
    }

    /// Why an event of so many bytes of JSON is set aside.
    pub fn refuses(&self, event: &Event<'_>, json_bytes: u64) -> Option<Cow<'static, str>> {
        let over = |bound: Option<u64>, found: u64| bound.is_some_and(|bound| found > bound);
        let at = event.created_at;
        let why = match () {
            () if self.kinds.contains_key(&event.kind) => {
                return Some(self.alike(&self.kinds[&event.kind]).into());
            }
            () if over(self.event_bytes, json_bytes) => "the relay refuses events of this size",
            () if over(self.event_tags, event.tags.len() as u64) => {
                "the relay refuses events with so many tags"
            }
            () if over(self.tag_value_bytes, longest_tag_value(event)) => {
                "the relay refuses tag values of this length"
            }
            () if self.hex_references && has_odd_reference(event) => {
                "the relay refuses e and p tags other than 64 digits of lowercase hex"
            }
            () if self.oldest_s.is_some_and(|oldest_s| at < oldest_s) => {
                "the relay refuses events of this age"
            }
            () if self.newest_s.is_some_and(|newest_s| at > newest_s) => {
                "the relay refuses events dated so far ahead"
            }
            () => return None,
        };
        Some(why.into())
    }

    /// The kinds that are set aside, with the reason: those of one reason together.
    pub fn kinds_set_aside(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.kinds.values().map(|why| self.alike(why)).collect();
        lines.sort_unstable();
        lines.dedup();
        lines
    }

    /// The kinds of one reason, and the reason.
    fn alike(&self, why: &str) -> String {
        let kinds: Vec<u16> =
            self.kinds.iter().filter(|(_, other)| *other == why).map(|(kind, _)| *kind).collect();
        format!("{}: {why}", of_kinds(&kinds))
    }
}

/// Kinds in words, the first of many.
pub fn of_kinds(kinds: &[u16]) -> String {
    const NAMED: usize = 20;
    let words = if kinds.len() == 1 { "kind" } else { "kinds" };
    let named = kinds.iter().take(NAMED).map(ToString::to_string).collect::<Vec<_>>().join(", ");
    match kinds.len().saturating_sub(NAMED) {
        0 => format!("{words} {named}"),
        more => format!("{words} {named} and {more} more"),
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
            newest_s: Some(1_000),
            ..Rules::default()
        };
        assert_eq!(refused(&all), None, "at the bound");
        for (rules, says) in [
            (Rules { event_bytes: Some(499), ..all.clone() }, "size"),
            (Rules { event_tags: Some(1), ..all.clone() }, "so many tags"),
            (Rules { tag_value_bytes: Some(299), ..all.clone() }, "length"),
            (Rules { oldest_s: Some(1_001), ..all.clone() }, "age"),
            (Rules { newest_s: Some(999), ..all.clone() }, "ahead"),
            (
                Rules {
                    kinds: [(4, "withheld".into()), (event.kind, "withheld".into())].into(),
                    ..all.clone()
                },
                "4: withheld",
            ),
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
