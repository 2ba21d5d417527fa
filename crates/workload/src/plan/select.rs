//! Selects the events of a corpus that can be streamed.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap, HashSet},
};

use codecs::{Codec, Event, Format, KindClass};
use corpus::Rules;

/// Most bytes of an event: below a relay's message limit of 1 MiB, with room for the message around
/// it.
const MAX_EVENT_BYTES: usize = 1_000_000;

/// The events of a corpus that each of `formats` can hold, that the relay takes by its rules and that a
/// relay keeps for the whole run.
pub(super) fn select<'c>(
    events: &'c [Event<'static>],
    formats: &[Format],
    rules: &Rules,
) -> (Vec<&'c Event<'static>>, BTreeMap<Cow<'static, str>, usize>) {
    let mut newest = HashMap::new();
    for event in events {
        if matches!(event.class(), KindClass::Replaceable | KindClass::Addressable) {
            let best = newest.entry((event.pubkey, event.kind, event.address())).or_insert(event);
            if (event.created_at, std::cmp::Reverse(event.id)) > (best.created_at, std::cmp::Reverse(best.id))
            {
                *best = event;
            }
        }
    }
    let ids: HashSet<[u8; 32]> = events.iter().map(|e| e.id).collect();
    let mut set_aside = BTreeMap::new();
    let mut buffer = Vec::new();
    let mut eligible = Vec::new();
    for event in events {
        let newest = newest.get(&(event.pubkey, event.kind, event.address()));
        let reason: Cow<'static, str> = if newest.is_some_and(|best| best.id != event.id) {
            "a newer version of it is in the corpus".into()
        } else if event.kind == 5 && deletes_another(event, &ids) {
            "it deletes an event of the corpus, or whatever has an address".into()
        } else if let Some(reason) = unfit(event, formats, rules, &mut buffer) {
            reason
        } else {
            eligible.push(event);
            continue;
        };
        *set_aside.entry(reason).or_default() += 1;
    }
    (eligible, set_aside)
}

/// Why an event cannot be published, whatever else is.
pub(super) fn unfit(
    event: &Event<'_>,
    formats: &[Format],
    rules: &Rules,
    buffer: &mut Vec<u8>,
) -> Option<Cow<'static, str>> {
    if event.kind == crate::CLIENT_AUTH || event.tags.iter().any(|t| t.first().is_some_and(|n| n == "-")) {
        return Some("relays take it only from its author (NIP-42, NIP-70)".into());
    }
    if !every_format_holds(formats, event, buffer) {
        return Some("not every format can hold it in one message".into());
    }
    refused(rules, event)
}

/// Whether a deletion (NIP-09) names an event of the corpus, or any address.
fn deletes_another(event: &Event<'_>, ids: &HashSet<[u8; 32]>) -> bool {
    event.tags.iter().any(|tag| match tag.as_slice() {
        [name, id, ..] if name == "e" => {
            codecs::hex::decode_array(id.as_bytes()).is_some_and(|id| ids.contains(&id))
        }
        [name, ..] => name == "a",
        [] => false,
    })
}

/// Why the relay refuses the event.
fn refused(rules: &Rules, event: &Event<'_>) -> Option<Cow<'static, str>> {
    if *rules == Rules::default() {
        return None;
    }
    rules.refuses(event, corpus::json(event).len() as u64)
}

/// Whether every format can hold an event. The registry's capacities decide for small events, because
/// encoding a whole corpus in every format takes seconds.
fn every_format_holds(formats: &[Format], event: &Event<'_>, buffer: &mut Vec<u8>) -> bool {
    let is_small = bytes_at_most(event) <= MAX_EVENT_BYTES;
    formats
        .iter()
        .map(|format| format.spec())
        .all(|spec| spec.capacity.holds(event) && (is_small || is_encoded(spec.library, event, buffer)))
}

fn is_encoded(codec: &dyn Codec, event: &Event<'_>, buffer: &mut Vec<u8>) -> bool {
    buffer.clear();
    codec.encode_event(event, buffer).is_ok() && buffer.len() <= MAX_EVENT_BYTES
}

/// No less than the bytes of the event in any format. JSON needs up to six bytes per byte of text
/// (`\u0001`). No format needs 64 bytes around a tag or a value.
fn bytes_at_most(event: &Event<'_>) -> usize {
    let part = |text: &str| 64 + 6 * text.len();
    let tags = event.tags.iter().map(|tag| 64 + tag.iter().map(|value| part(value)).sum::<usize>());
    1_024 + part(&event.content) + tags.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use codecs::Tag;
    use corpus::Corpus;

    use super::*;
    use crate::plan::tests::few;

    #[test]
    fn what_not_every_format_holds_is_set_aside_for_all() {
        let mut corpus = few(50);
        let formats: Vec<_> = Format::core().collect();
        let before = select(&corpus.events, &formats, &Rules::default()).0.len();
        let mut event = corpus.events[0].clone();
        event.id = [7; 32];
        event.kind = 1;
        event.tags = vec![vec!["summary".into(), "x".repeat(40_000).into()]];
        corpus.events.push(event);
        let (eligible, set_aside) = select(&corpus.events, &formats, &Rules::default());
        assert_eq!(eligible.len(), before, "Cap'n Proto holds 32,767 bytes in a tag value");
        assert_eq!(set_aside.get("not every format can hold it in one message"), Some(&1));
        let json = select(&corpus.events, &[Format::JSON], &Rules::default()).0;
        assert_eq!(json.len(), before + 1, "only the formats that are compared count");
    }

    /// Events whose text is long where it is written, and whose tags and values are mostly what is
    /// around them.
    fn bulky() -> impl Iterator<Item = Event<'static>> {
        let plain = Corpus::bundled().events.swap_remove(0);
        let tagged: [Vec<Tag<'static>>; 8] = [
            vec![vec![]; 200],
            vec![vec!["".into(); 200]; 100],
            vec![vec!["\u{1}".into(); 200]; 100],
            vec![vec!["\u{1}".repeat(255).into(); 2]; 50],
            vec![vec!["0".repeat(64).into(); 2]; 50],
            vec![vec!["x".into(); 255]],
            vec![vec!["x".into(); 256]],
            vec![vec!["x".repeat(40_000).into()]],
        ];
        tagged.into_iter().flat_map(move |tags| {
            ["", "\u{1}", "\u{10ffff}"].map(|text| {
                let content = text.repeat(10_000).into();
                Event { tags: tags.clone(), content, ..plain.clone() }
            })
        })
    }

    #[test]
    fn what_the_registry_says_of_an_event_is_what_encoders_do() {
        let corpus = few(200);
        let (mut buffer, mut held, mut refused) = (Vec::new(), 0, 0);
        for event in corpus.events.into_iter().chain(bulky()) {
            for format in Format::all() {
                let spec = format.spec();
                let encoded = is_encoded(spec.library, &event, &mut buffer);
                assert_eq!(spec.capacity.holds(&event), encoded, "{}: {event:?}", spec.name);
                assert!(buffer.len() <= bytes_at_most(&event), "{}: {event:?}", spec.name);
                held += u32::from(encoded);
                refused += u32::from(!encoded);
            }
        }
        assert!(held > 0 && refused > 0, "{held} held, {refused} refused");
    }

    #[test]
    fn what_is_longer_than_a_relay_takes_is_set_aside() {
        let corpus = few(1);
        let set_aside = |content: String| {
            let mut corpus = corpus.clone();
            corpus.events[0] =
                Event { kind: 1, tags: vec![], content: content.into(), ..corpus.events[0].clone() };
            select(&corpus.events, &[Format::JSON], &Rules::default()).1.len()
        };
        // As they are, and as six bytes each.
        assert_eq!((set_aside("x".repeat(990_000)), set_aside("x".repeat(1_000_000))), (0, 1));
        assert_eq!((set_aside("\u{1}".repeat(160_000)), set_aside("\u{1}".repeat(170_000))), (0, 1));
    }

    #[test]
    fn what_the_relay_refuses_is_set_aside_with_the_reason() {
        let corpus = few(300);
        let json = [Format::JSON];
        let (all, none) = select(&corpus.events, &json, &Rules::default());
        let bound = corpus::rules::Bound { most: 1_000, said: "too large".to_owned() };
        let bounds = [(corpus::rules::Property::EventBytes, bound)].into();
        let rules = Rules { bounds, ..Rules::default() };
        let reason = "more than 1000 bytes as JSON: too large";
        let (small, aside) = select(&corpus.events, &json, &rules);
        let refused = *aside.get(reason).unwrap();
        assert!(!none.contains_key(reason));
        assert!(refused > 0 && small.len() + refused == all.len(), "{aside:?}");
        let (library, mut buffer) = (Format::JSON.spec().library, Vec::new());
        assert!(small.iter().all(|event| is_encoded(library, event, &mut buffer) && buffer.len() <= 1_000));
    }
}
