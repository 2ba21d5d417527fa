//! The events of the probes: small, signed by throw-away keys, and gone soon.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher, RandomState},
};

use codecs::{Event, KindClass, Tag};

use super::talk::{Talk, event, now_s};

/// An ephemeral kind, which no relay stores (NIP-01) and no scenario asks for.
pub(super) const EPHEMERAL: u16 = 29_999;

/// A regular kind that no scenario asks for.
pub(super) const STORED: u16 = 9_997;

/// NIP-09.
pub(super) const DELETION: u16 = 5;

/// An event that may be stored: its author's name in [`Talk::sign`], its id and kind.
pub(super) type Deletable = (&'static str, [u8; 32], u16);

/// How long stored probes ask to live (NIP-40).
const LIFETIME_S: i64 = 600;

/// A small ephemeral event.
pub(super) fn small(talk: &Talk, words: &str) -> Event<'static> {
    signed(talk, EPHEMERAL, now_s(), vec![], words.to_owned())
}

/// A small event like the template that asks to expire soon (NIP-40), another for each `n`.
pub(super) fn short_lived(talk: &Talk, template: &Event<'static>, author: &str, n: usize) -> Event<'static> {
    let mut event = template.clone();
    // One second for all, whenever they are made.
    event.created_at = talk.began_s;
    event.content = format!("{}probe {n}", event.content).into();
    if event.first_tag_value("expiration").is_none() {
        event.tags.push(expiration(talk.began_s));
    }
    talk.sign(&mut event, author);
    event
}

/// Asks to expire a while after `from_s` (NIP-40).
pub(super) fn expiration(from_s: i64) -> Tag<'static> {
    vec!["expiration".into(), (from_s + LIFETIME_S).to_string().into()]
}

fn signed(
    talk: &Talk,
    kind: u16,
    created_at: i64,
    tags: Vec<Tag<'static>>,
    content: String,
) -> Event<'static> {
    let mut event = event(kind, created_at, tags, content);
    talk.sign(&mut event, "one");
    event
}

/// An event of the template's kind and form, by another author, with other references, that asks to
/// expire soon (NIP-40). An ephemeral one does not ask: relays should keep one that does.
pub(super) fn like(talk: &Talk, template: &Event<'static>) -> Event<'static> {
    let made = corpus::fresh::events(&[template], 1, RandomState::new().hash_one(template.id));
    let mut event = made.into_iter().next().unwrap_or_else(|| template.clone());
    event.created_at = now_s();
    event.tags.retain(|tag| tag.first().is_none_or(|name| name != "expiration"));
    if event.class() != KindClass::Ephemeral {
        event.tags.push(expiration(now_s()));
    }
    talk.sign(&mut event, "kinds");
    event
}

/// The event with more tags and more content.
pub(super) fn larger(
    talk: &Talk,
    carrier: &Event<'static>,
    tags: Vec<Tag<'static>>,
    content: &str,
    stored: &mut Vec<Deletable>,
) -> Event<'static> {
    let mut event = carrier.clone();
    event.created_at = now_s();
    event.tags.extend(tags);
    event.content = format!("{}{content}", event.content).into();
    if event.class() != KindClass::Ephemeral && event.first_tag_value("expiration").is_none() {
        event.tags.push(expiration(now_s()));
    }
    talk.sign(&mut event, "one");
    if event.class() != KindClass::Ephemeral {
        stored.push(("one", event.id, event.kind));
    }
    event
}

/// The deletions of these events (NIP-09), of each author its own, none of them large.
pub(super) fn deletions(talk: &Talk, stored: &[Deletable]) -> Vec<Event<'static>> {
    const TOGETHER: usize = 50;
    let mut events_of: BTreeMap<&'static str, Vec<Deletable>> = BTreeMap::new();
    stored.iter().for_each(|one| events_of.entry(one.0).or_default().push(*one));
    let mut deletions = Vec::new();
    for (author, events) in events_of {
        for events in events.chunks(TOGETHER) {
            let kinds: BTreeSet<u16> = events.iter().map(|(_, _, kind)| *kind).collect();
            let ids = events.iter().map(|(_, id, _)| vec!["e".into(), codecs::hex::encode(id).into()]);
            let kinds = kinds.iter().map(|kind| vec!["k".into(), kind.to_string().into()]);
            let tags = [expiration(now_s())].into_iter().chain(ids).chain(kinds).collect();
            let mut deletion = event(DELETION, now_s(), tags, String::new());
            talk.sign(&mut deletion, author);
            deletions.push(deletion);
        }
    }
    deletions
}
