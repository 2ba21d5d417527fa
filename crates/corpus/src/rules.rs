//! The rules of a relay: which events it refuses or does not give back.
//!
//! `client-sim doctor` finds them, the plan of a run keeps to them, and
//! [`Generator::strict`](crate::generate::Generator::strict) makes only events that common relays
//! accept.

use std::{
    borrow::Cow,
    collections::{BTreeMap, btree_map::Entry},
    sync::LazyLock,
};

use codecs::{Event, hex};
use serde::{Deserialize, Serialize};

/// A number of an event that relays bound from above.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Property {
    EventBytes,
    EventTags,
    TagValueBytes,
    /// 1 with an `e` or `p` tag other than 64 digits of lowercase hex.
    OddReferences,
    /// `-created_at`.
    Oldest,
    /// `created_at`.
    Newest,
}

impl Property {
    pub const ALL: [Property; 6] = [
        Property::EventBytes,
        Property::EventTags,
        Property::TagValueBytes,
        Property::OddReferences,
        Property::Oldest,
        Property::Newest,
    ];

    /// The property of an event of so many bytes of JSON.
    pub fn of(self, event: &Event<'_>, json_bytes: u64) -> i64 {
        let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        match self {
            Property::EventBytes => count(json_bytes),
            Property::EventTags => count(event.tags.len() as u64),
            Property::TagValueBytes => count(longest_tag_value(event)),
            Property::OddReferences => has_odd_reference(event).into(),
            Property::Oldest => event.created_at.saturating_neg(),
            Property::Newest => event.created_at,
        }
    }

    /// Events beyond a bound, in words, and the relay's.
    pub fn beyond(self, Bound { most, said }: &Bound) -> String {
        match self {
            Property::EventBytes => format!("more than {most} bytes as JSON: {said}"),
            Property::EventTags => format!("more than {most} tags: {said}"),
            Property::TagValueBytes => format!("a tag value of more than {most} bytes: {said}"),
            Property::OddReferences => {
                format!("an e or p tag other than 64 digits of lowercase hex: {said}")
            }
            Property::Oldest => format!("created_at before {}: {said}", most.saturating_neg()),
            Property::Newest => format!("created_at after {most}: {said}"),
        }
    }
}

/// The most that a relay takes, and its words at more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    pub most: i64,
    pub said: String,
}

/// Why a relay does not give back events of a kind, or refuses them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Withheld {
    pub why: String,
    /// Whether it delivers them to live subscriptions.
    pub live: bool,
    /// Whether it gives back all that it has to store.
    #[serde(default)]
    pub stored: bool,
}

/// What a relay refuses or does not give back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rules {
    pub bounds: BTreeMap<Property, Bound>,
    /// By kind.
    pub kinds: BTreeMap<u16, Withheld>,
    /// Kinds withheld from clients that answer the relay's challenge (NIP-42).
    pub kinds_after_auth: BTreeMap<u16, Withheld>,
}

/// The rules on events of strfry's defaults, the strictest of the common relays:
/// `events.maxEventSize`, `events.maxNumTags` and `events.maxTagValSize` of strfry.conf, and `e` and
/// `p` tags of 32 bytes in hex (`src/events.cpp`; <https://github.com/hoytech/strfry>). Left out is the
/// age, which depends on the day.
pub static COMMON: LazyLock<Rules> = LazyLock::new(|| {
    let bounds = [
        (Property::EventBytes, 65_536),
        (Property::EventTags, 2_000),
        (Property::TagValueBytes, 1_024),
        (Property::OddReferences, 0),
    ];
    let bound = |most| Bound { most, said: "a default of strfry".to_owned() };
    let bounds = bounds.map(|(property, most)| (property, bound(most))).into();
    Rules { bounds, ..Rules::default() }
});

impl Rules {
    /// The rules that two relays have in common: the stricter of each.
    #[must_use]
    pub fn and(mut self, other: Rules) -> Rules {
        for (property, bound) in other.bounds {
            let own = self.bounds.entry(property).or_insert_with(|| bound.clone());
            if bound.most < own.most {
                *own = bound;
            }
        }
        let all = |own: &mut BTreeMap<u16, Withheld>, others: BTreeMap<u16, Withheld>| {
            for (kind, other) in others {
                match own.entry(kind) {
                    Entry::Occupied(mut own) => {
                        let own = own.get_mut();
                        (own.live, own.stored) = (own.live && other.live, own.stored && other.stored);
                    }
                    Entry::Vacant(own) => _ = own.insert(other),
                }
            }
        };
        all(&mut self.kinds, other.kinds);
        all(&mut self.kinds_after_auth, other.kinds_after_auth);
        self
    }

    /// Why an event of so many bytes of JSON is set aside.
    pub fn refuses(&self, event: &Event<'_>, json_bytes: u64) -> Option<Cow<'static, str>> {
        if let Some(withheld) = self.kinds.get(&event.kind) {
            return Some(self.alike(&withheld.why).into());
        }
        let mut bounds = self.bounds.iter();
        let (property, bound) =
            bounds.find(|(property, bound)| property.of(event, json_bytes) > bound.most)?;
        Some(property.beyond(bound).into())
    }

    /// The kinds that are set aside, with the reason: those of one reason together.
    pub fn kinds_set_aside(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.kinds.values().map(|withheld| self.alike(&withheld.why)).collect();
        lines.sort_unstable();
        lines.dedup();
        lines
    }

    /// The kinds of one reason, and the reason.
    fn alike(&self, why: &str) -> String {
        let alike = self.kinds.iter().filter(|(_, withheld)| withheld.why == why);
        format!("{}: {why}", of_kinds(&alike.map(|(kind, _)| *kind).collect::<Vec<_>>()))
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
        names && tag.get(1).and_then(|value| hex::decode_array::<32>(value.as_bytes())).is_none()
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
        let with = |property: Property, less: i64| {
            let most = property.of(&event, 500) - less;
            Rules { bounds: [(property, Bound { most, said: "no".to_owned() })].into(), ..Rules::default() }
        };
        assert_eq!(Rules::default().refuses(&event, 500), None);
        for (property, says) in [
            (Property::EventBytes, "more than 499 bytes as JSON: no"),
            (Property::EventTags, "more than 1 tags: no"),
            (Property::TagValueBytes, "a tag value of more than 299 bytes: no"),
            (Property::Oldest, "created_at before 1001: no"),
            (Property::Newest, "created_at after 999: no"),
        ] {
            assert_eq!(with(property, 0).refuses(&event, 500), None, "at the bound");
            assert_eq!(with(property, 1).refuses(&event, 500).unwrap(), says);
            let both = with(property, 0).and(with(property, 1));
            assert_eq!(both, with(property, 1), "the stricter of two");
        }
        let withheld = |live| Withheld { why: "withheld".to_owned(), live, stored: !live };
        let kinds = |live| [(4, withheld(live)), (event.kind, withheld(live))].into();
        let rules = Rules { kinds: kinds(true), ..Rules::default() };
        assert!(rules.refuses(&event, 500).is_some_and(|why| why.contains("4: withheld")));
        let both = rules.and(Rules { kinds: kinds(false), ..Rules::default() });
        let neither = |withheld: &Withheld| !withheld.live && !withheld.stored;
        assert!(
            both.kinds.values().all(neither),
            "one does not deliver it live, the other does not store it"
        );
        for odd in ["", "xyz", &"AB".repeat(32)] {
            event.tags[0][1] = odd.to_owned().into();
            assert!(COMMON.refuses(&event, 1).is_some_and(|why| why.contains("hex")), "{odd}");
        }
        event.tags[0] = vec!["p".into()];
        assert!(has_odd_reference(&event), "a p tag without a value");
    }
}
