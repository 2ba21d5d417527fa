//! As many new events as a long run needs, in the shape of those a corpus has.
//!
//! Relays drop ids they have seen, and a repeat inside a compression window flatters stateful compression, so no
//! run repeats an event. Kind, tags and content stay; author, time, id and signature are new.

use std::collections::HashMap;

use codecs::Event;

use crate::keys;

/// Makes `count` events with valid ids and signatures from `templates`, round after round in their order, each id
/// once. Same arguments, same events, on any number of cores; about 50 µs of one core each.
///
/// A template author becomes one new author per round, so authors stay as busy as they were and no round replaces
/// the profile or follow list of another.
///
/// # Panics
/// When events are wanted and there is no template.
pub fn events(templates: &[&Event<'_>], count: usize, seed: u64) -> Vec<Event<'static>> {
    assert!(count == 0 || !templates.is_empty(), "fresh events need a template");
    // A template given twice counts as two rounds of it, or both would become the same event.
    let mut uses = HashMap::new();
    let rounds: Vec<u64> = (0..count)
        .map(|i| {
            let round = uses.entry(templates[i % templates.len()].id).or_insert(0);
            *round += 1;
            *round
        })
        .collect();
    keys::in_parallel(count, |i| freshen(templates[i % templates.len()], rounds[i], seed))
}

fn freshen(template: &Event<'_>, round: u64, seed: u64) -> Event<'static> {
    let mut event = template.clone().into_owned();
    let key =
        keys::derive("relay-sim fresh key", &[&seed.to_be_bytes(), &round.to_be_bytes(), &template.pubkey]);
    // Also moves the text of the time, so that not even a run of digits repeats from round to round.
    event.created_at = template.created_at.saturating_add_unsigned(round);
    keys::sign(&mut event, &key);
    event
}
