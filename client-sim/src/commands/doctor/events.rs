//! The events of a rehearsal, signed by throw-away keys.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{BuildHasher, RandomState},
};

use codecs::{Event, KindClass, Tag};

use super::talk::{Talk, now_s};

/// An ephemeral kind, which no relay stores (NIP-01) and no scenario asks for.
pub(super) const EPHEMERAL: u16 = 29_999;

/// NIP-09.
pub(super) const DELETION: u16 = 5;

/// An event that may be stored: its author's name in [`Talk::sign`], its id and kind.
pub(super) type Deletable = (&'static str, [u8; 32], u16);

/// How long events ask to live (NIP-40).
const LIFETIME_S: i64 = 600;

/// An event of this second without author and signature.
pub(super) fn event(kind: u16, tags: Vec<Tag<'static>>, content: String) -> Event<'static> {
    let content = content.into();
    Event { id: [0; 32], pubkey: [0; 32], created_at: now_s(), kind, tags, content, sig: [0; 64] }
}

/// A small ephemeral event.
pub(super) fn small(talk: &Talk, words: &str) -> Event<'static> {
    let mut event = event(EPHEMERAL, vec![], words.to_owned());
    talk.sign(&mut event, "one");
    event
}

/// Asks to expire soon (NIP-40).
fn expiration() -> Tag<'static> {
    vec!["expiration".into(), (now_s() + LIFETIME_S).to_string().into()]
}

/// An event of the template's kind and form, by another author, with other references, that asks to
/// expire. An ephemeral one does not ask: relays should keep one that does.
pub(super) fn like(talk: &Talk, template: &Event<'static>, author: &str) -> Event<'static> {
    let made = corpus::fresh::events(&[template], 1, RandomState::new().hash_one(template.id));
    let mut event = made.into_iter().next().unwrap_or_else(|| template.clone());
    event.created_at = now_s();
    event.tags.retain(|tag| tag.first().is_none_or(|name| name != "expiration"));
    if event.class() != KindClass::Ephemeral {
        event.tags.push(expiration());
    }
    talk.sign(&mut event, author);
    event
}

/// The event with more tags and more content, dated so many seconds from now.
pub(super) fn changed(
    talk: &Talk,
    carrier: &Event<'static>,
    tags: Vec<Tag<'static>>,
    content: &str,
    later_s: i64,
) -> Event<'static> {
    let mut event = carrier.clone();
    event.created_at = now_s().saturating_add(later_s);
    event.tags.extend(tags);
    event.content = format!("{}{content}", event.content).into();
    talk.sign(&mut event, "one");
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
            let tags = [expiration()].into_iter().chain(ids).chain(kinds).collect();
            let mut deletion = event(DELETION, tags, String::new());
            talk.sign(&mut deletion, author);
            deletions.push(deletion);
        }
    }
    deletions
}
