//! Cost of each path by itself: codecs, compressions, the check of an event, relay and client.
//!
//! - codec: the relay's side encodes, the clients' side decodes.
//! - compression: the relay's side sends, the clients' side receives.
//! - corpus: clients find and compare the decoded events.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
};

use anyhow::Context;
use cell::{Cell, RelaySide};
use codecs::{Codec, Event, Format, Implementation, PublicKeys, RelayMessage, VerifyLevel};
use corpus::Corpus;
use wire::{Compression, Shared};

use super::{
    play_all, probe,
    publish::publish,
    wires::{feed_shared, flush, next, pair},
};
use workload::{inputs::plan_over, scenario::Scenario};

/// Events of a section: enough that one more kind of event does not change the sum.
const EVENTS: usize = 300;

/// Checks of an event cost a hundred times as much as an encoding.
const CHECKED_EVENTS: usize = 20;

/// The scenarios that relay and clients are counted in, with seconds of each: a small event to many
/// and large ones to each. Beside none, JSON has these compressions.
const PLAYED: [(&str, f64, &[&str]); 2] =
    [("note-stream", 0.2, &["deflate-shared", "zstd-shared", "zstd-dict"]), ("follow-list-burst", 2.0, &[])];

/// Work of sections that is not the code's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Planted {
    /// A format that encodes one event in so many twice.
    pub(super) codec: Option<(Format, usize)>,
    /// Subscriptions of `publish json feeds`.
    pub(super) feeds: usize,
}

/// Runs the sections whose names contain `only`.
pub(super) fn run(corpus: &Corpus, seed: u64, only: Option<&str>, planted: Planted) -> anyhow::Result<()> {
    let wanted = |name: &str| only.is_none_or(|only| name.contains(only));
    let formats: Vec<Format> = Format::core().collect();
    let events = sample(corpus, &formats);
    anyhow::ensure!(!events.is_empty(), "no event of the corpus is one that every core format can hold");
    probe::end_preparation()?;
    for format in &formats {
        for implementation in Implementation::ALL {
            let name = format!("codec {format} {implementation}");
            let Ok(codec) = format.codec(implementation) else { continue };
            if wanted(&name) {
                let twice = planted.codec.filter(|(planted, _)| planted == format).map(|(_, one_in)| one_in);
                encode_and_decode(codec, &events, twice).with_context(|| name.clone())?;
                probe::end_section(&name, events.len() as u64)?;
            }
        }
    }
    if wanted("compare corpus") {
        find_and_compare(&events)?;
        probe::end_section("compare corpus", events.len() as u64)?;
    }
    for name in Compression::NAMES {
        let section = format!("wire {name}");
        if wanted(&section) {
            send_and_receive(Compression::named(name)?, &events)?;
            probe::end_section(&section, events.len() as u64)?;
        }
    }
    checks(&events, &wanted)?;
    publications(corpus, &wanted, planted.feeds)?;
    scenarios(corpus, seed, &wanted)
}

/// Checks events: by themselves, with keys that are known, and with a map full of other keys.
fn checks(events: &[&Event<'static>], wanted: &impl Fn(&str) -> bool) -> anyhow::Result<()> {
    let mut authors = HashSet::new();
    let distinct: Vec<_> = events.iter().filter(|event| authors.insert(event.pubkey)).collect();
    let (others, checked) = distinct.split_at(distinct.len() / 2);
    let checked = &checked[..checked.len().min(CHECKED_EVENTS)];
    let known = PublicKeys::at_most(64 * CHECKED_EVENTS);
    // Full before anything is counted: each key of the flood takes the place of another.
    let flooded = PublicKeys::at_most(1);
    let each = |keys: &PublicKeys, events: &[&&Event<'static>]| {
        events.iter().all(|event| keys.verify(event, VerifyLevel::Full).is_ok())
    };
    type Check<'c> = &'c dyn Fn() -> bool;
    let full = || checked.iter().all(|event| event.verify(VerifyLevel::Full).is_ok());
    let sections: [(&str, Check<'_>, Check<'_>); 3] = [
        ("verify full", &full, &|| true),
        ("verify known key", &|| each(&known, checked), &|| each(&known, checked)),
        ("verify flood of keys", &|| each(&flooded, checked), &|| each(&flooded, others)),
    ];
    for (name, check, prepare) in sections {
        if wanted(name) {
            let mut valid = prepare();
            probe::end_preparation()?;
            probe::relay_side(&mut || valid &= check());
            anyhow::ensure!(valid, "an event of the corpus is not valid");
            probe::end_section(name, checked.len() as u64)?;
        }
    }
    Ok(())
}

/// Publishes without readers: alone, and next to subscriptions that request the authors with another kind.
fn publications(corpus: &Corpus, wanted: &impl Fn(&str) -> bool, feeds: usize) -> anyhow::Result<()> {
    let formats = [
        (Format::JSON, "json", 0),
        ("dannypack".parse()?, "dannypack", 0),
        (Format::JSON, "json feeds", feeds),
    ];
    for (format, name, feeds) in formats {
        let name = format!("publish {name}");
        if wanted(&name) {
            probe::end_preparation()?;
            let events =
                publish(corpus, &unchecked(format, Compression::None), feeds).context(name.clone())?;
            probe::end_section(&name, events)?;
        }
    }
    Ok(())
}

/// Plays scenarios in JSON, compressed or not, and in the smallest of the binary formats.
fn scenarios(corpus: &Corpus, seed: u64, wanted: &impl Fn(&str) -> bool) -> anyhow::Result<()> {
    // Sets aside what either cannot hold: to try the other formats would be most of the work.
    let formats: [Format; 2] = [Format::JSON, "dannypack".parse()?];
    for (name, seconds, compressions) in PLAYED {
        let of = |format| (format!("play {name} {format}"), unchecked(format, Compression::None));
        let mut cells = formats.map(of).to_vec();
        for compression in compressions {
            let id = format!("play {name} json {compression}");
            cells.push((id, unchecked(Format::JSON, Compression::named(compression)?)));
        }
        let cells: Vec<(&str, &Cell)> =
            cells.iter().filter(|(id, _)| wanted(id)).map(|(id, cell)| (id.as_str(), cell)).collect();
        if cells.is_empty() {
            continue;
        }
        let mut scenario = Scenario::load(name)?;
        scenario.set_seconds(seconds)?;
        let workload = plan_over(&scenario, corpus, seed, &formats)?;
        probe::end_preparation()?;
        play_all(&workload, &cells)?;
    }
    Ok(())
}

/// Checks are a section of their own.
fn unchecked(format: Format, compression: Compression) -> Cell {
    let relay = RelaySide { verify: VerifyLevel::None, ..RelaySide::default() };
    Cell { format, compression, relay: Some(relay), ..Cell::default() }
}

/// Events from all over the corpus that every format can hold.
fn sample<'c>(corpus: &'c Corpus, formats: &[Format]) -> Vec<&'c Event<'static>> {
    let holds = |event: &Event<'_>, format: &Format| {
        format.spec().library.encode_event(event, &mut Vec::new()).is_ok()
    };
    let step = (corpus.events.len() / EVENTS).max(1);
    let spread = corpus.events.iter().step_by(step);
    spread.filter(|event| formats.iter().all(|format| holds(event, format))).take(EVENTS).collect()
}

fn encode_and_decode(
    codec: &'static dyn Codec,
    events: &[&Event<'static>],
    twice_one_in: Option<usize>,
) -> anyhow::Result<()> {
    let mut out = Vec::new();
    let mut messages = Vec::new();
    for event in events {
        let (mut message, event) = (Vec::new(), Cow::Borrowed(*event));
        codec.encode_relay(&RelayMessage::Event { subscription: "live-0".into(), event }, &mut message)?;
        out.reserve(message.len());
        messages.push(message);
    }
    let mut failed = 0;
    probe::relay_side(&mut || {
        for (n, event) in events.iter().enumerate() {
            let times = if twice_one_in.is_some_and(|one_in| n % one_in == 0) { 2 } else { 1 };
            for _ in 0..times {
                out.clear();
                failed += usize::from(codec.encode_event(event, &mut out).is_err());
            }
        }
    });
    probe::client_side(&mut || {
        failed += messages.iter().filter(|message| codec.decode_relay(message).is_err()).count();
    });
    anyhow::ensure!(failed == 0, "{failed} events were not encoded or decoded");
    Ok(())
}

/// Finds each event among all by its id and compares the two, as a client does with what it has
/// decoded.
fn find_and_compare(events: &[&Event<'static>]) -> anyhow::Result<()> {
    let json = Format::JSON.spec().library;
    let mut messages = Vec::new();
    for event in events {
        let mut bytes = Vec::new();
        json.encode_event(event, &mut bytes)?;
        messages.push(bytes);
    }
    let decoded = messages.iter().map(|bytes| json.decode_event(bytes)).collect::<Result<Vec<_>, _>>()?;
    let index: HashMap<[u8; 32], usize> =
        events.iter().enumerate().map(|(place, event)| (event.id, place)).collect();
    let mut known = 0;
    probe::client_side(&mut || {
        let is_known =
            |event: &&Event<'_>| index.get(&event.id).is_some_and(|place| events[*place] == *event);
        known = decoded.iter().filter(is_known).count();
    });
    anyhow::ensure!(known == events.len(), "{known} of {} events were recognised", events.len());
    Ok(())
}

/// Sends each event as its JSON message, flushed by itself, over a connection that has sent them
/// all before: what is compressed once for all subscriptions is compressed already.
fn send_and_receive(compression: Compression, events: &[&Event<'static>]) -> anyhow::Result<()> {
    let cell = unchecked(Format::JSON, compression);
    let codec = cell.format.codec(cell.implementation)?;
    let (mut client, mut relay) = pair(&cell, 1)?;
    let mut payloads = Vec::new();
    for event in events {
        let (mut encoded, mut message) = (Vec::new(), Vec::new());
        codec.encode_event(event, &mut encoded)?;
        let prefix_bytes = codec.wrap_event("live-0", &encoded, &mut message);
        payloads.push((message, prefix_bytes, Shared::default()));
    }
    for counts in [false, true] {
        for (payload, prefix_bytes, shared) in &payloads {
            let mut sent = Ok(());
            let mut send = || {
                let fed = feed_shared(&mut relay, payload, *prefix_bytes, shared);
                sent = fed.and_then(|()| flush(&mut relay));
            };
            if counts {
                probe::relay_side(&mut send);
            } else {
                send();
            }
            sent?;
            let mut received = Ok(None);
            let mut receive = || received = next(&mut client, &relay);
            if counts {
                probe::client_side(&mut receive);
            } else {
                receive();
            }
            let received = received?.context("what was sent has arrived")?;
            anyhow::ensure!(received.payload == *payload, "what arrived is what was sent");
        }
    }
    Ok(())
}
