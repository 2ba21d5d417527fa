//! The relay's cost of a publication without a reader: to take it from the wire, decode it, store it, find
//! the matching subscriptions, and answer.

use std::{borrow::Cow, collections::BTreeSet, sync::Arc, time::Instant};

use anyhow::{Context, bail, ensure};
use cell::Cell;
use codecs::{ClientMessage, Codec, Event, Filter, RelayMessage};
use corpus::Corpus;
use relay_sim::machine::{self, Opening, Relay, Time};
use workload::Workload;

use super::{
    probe,
    wires::{feed, flush, next, pair, serve},
    world::config,
};

/// Subscriptions of the path with feeds: enough that one that is looked at in vain shows.
pub(super) const FEEDS: usize = 500;

const AUTHORS_OF_A_FEED: usize = 200;

/// A kind that feeds ask for, and no note is: long-form content (NIP-23).
const ANOTHER_KIND: u16 = 30_023;

/// Enough that lists of the relay's index have several chunks.
const NOTES: usize = 2_048;

/// Events that the publisher leaves unanswered, as in `cargo bench -p relay-sim --bench floor`.
const WINDOW: usize = 64;

const UNIX_S: u64 = 1_800_000_000;

/// Publishes the corpus's notes next to this number of feeds. Each author of a note is in 200 of them, as
/// far as there are as many feeds as authors. Returns the number of notes.
pub(super) fn publish(corpus: &Corpus, cell: &Cell, feeds: usize) -> anyhow::Result<u64> {
    let notes: Vec<_> = corpus.events.iter().filter(|event| event.kind == 1).take(NOTES).collect();
    ensure!(!notes.is_empty(), "the corpus has no notes");
    let codec = cell.format.codec(cell.implementation)?;
    let relay = Arc::new(Relay::new(config(&Workload::default(), cell))?);
    let time = Time { instant: Instant::now(), unix_seconds: UNIX_S };
    let _subscribers = subscribe(&relay, codec, cell, (&notes[..], feeds), time)?;
    let (mut client, mut served) = pair(cell, 1)?;
    let mut machine = relay.connect(&Opening::new(cell.format));
    let mut accepted = 0;
    for window in notes.chunks(WINDOW) {
        for note in window {
            let mut payload = Vec::new();
            codec.encode_client(&ClientMessage::Event(Cow::Borrowed(*note)), &mut payload)?;
            feed(&mut client, payload.into())?;
        }
        flush(&mut client)?;
        let mut done = Ok(());
        probe::relay_side(&mut || done = serve(&mut served, &client, &mut machine, time));
        done?;
        while let Some(message) = next(&mut client, &served)? {
            match codec.decode_relay(&message.payload)? {
                RelayMessage::Ok { accepted: true, .. } => accepted += 1,
                other => bail!("a note is answered by {other:?}"),
            }
        }
    }
    ensure!(accepted == notes.len(), "{accepted} of {} notes were accepted", notes.len());
    Ok(notes.len() as u64)
}

/// Connections with one feed each.
fn subscribe(
    relay: &Arc<Relay>,
    codec: &dyn Codec,
    cell: &Cell,
    (notes, feeds): (&[&Event<'static>], usize),
    time: Time,
) -> anyhow::Result<Vec<machine::Connection>> {
    let written: BTreeSet<_> = notes.iter().map(|note| note.pubkey).collect();
    let strangers = (0_u64..).map(|n| {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&n.to_be_bytes());
        key
    });
    // As many authors as feeds, each in as many feeds as a feed has authors.
    let authors: Vec<_> = written.into_iter().chain(strangers).take(feeds.max(AUTHORS_OF_A_FEED)).collect();
    let step = authors.len() / AUTHORS_OF_A_FEED;
    let feed = |n: usize| -> anyhow::Result<machine::Connection> {
        let followed = (0..AUTHORS_OF_A_FEED).map(|k| authors[(n + k * step) % authors.len()]).collect();
        let filter = Filter { authors: Some(followed), kinds: Some(vec![ANOTHER_KIND]), ..Filter::default() };
        let request = ClientMessage::Req { subscription: "feed".into(), filters: vec![filter] };
        let mut payload = Vec::new();
        codec.encode_client(&request, &mut payload)?;
        let mut connection = relay.connect(&Opening::new(cell.format));
        let taken = connection.receive(&payload, cell.format.spec().opcode, time);
        taken.map_err(|close| anyhow::anyhow!("a feed is refused: {}", close.reason))?;
        let answers = connection.poll_transmit(time);
        let [answer] = answers.as_slice() else { bail!("a feed is answered by {} messages", answers.len()) };
        let eose = codec.decode_relay(answer).context("the answer to a feed")?;
        ensure!(matches!(eose, RelayMessage::Eose { .. }), "a feed is answered by {eose:?}");
        Ok(connection)
    };
    (0..feeds).map(feed).collect()
}
