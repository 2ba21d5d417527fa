//! Tests that a recording is played again: the same dialogue, with new keys, at any relay.

use std::{collections::BTreeSet, env, ffi::OsStr, fs, iter::repeat_with, path::Path, process::Command};

use codecs::{ClientMessage, EoseHints, Event, Filter, Format, RelayMessage};
use corpus::Corpus;
use measure::{RunRecord, Status, ValidityClass};
use nix::sys::signal::Signal;
use recording::{Body, End, Entry, Header, Message, Reader, Redaction, Side, VERSION, What, Writer};
use tempfile::TempDir;

use crate::{
    common::{Relay, program},
    ran::{Ran, Runs, send},
    setup::Setup,
};

/// Writes a recording by hand.
struct Tape(Writer<fs::File>);

impl Tape {
    fn at(&mut self, ms: u64, conn: u64, what: What) {
        self.0.write(Entry { conn, t_ns: ms * PACE * 1_000_000, what }).unwrap();
    }

    fn open(&mut self, ms: u64, conn: u64) {
        self.at(ms, conn, What::Open { client: None, relay: None });
    }

    fn close(&mut self, ms: u64, conn: u64) {
        self.at(ms, conn, What::Close { code: Some(1000), by: Side::Client });
    }

    fn text(&mut self, ms: u64, conn: u64, from: Side, text: Vec<u8>) {
        let body = Body::Text(String::from_utf8(text).unwrap());
        self.at(ms, conn, What::Message(Message { from, wire_bytes: 0, body }));
    }

    fn client(&mut self, ms: u64, conn: u64, message: &ClientMessage<'_>) {
        let mut text = Vec::new();
        Format::JSON.spec().library.encode_client(message, &mut text).unwrap();
        self.text(ms, conn, Side::Client, text);
    }

    fn relay(&mut self, ms: u64, conn: u64, message: &RelayMessage<'_>) {
        let mut text = Vec::new();
        Format::JSON.spec().library.encode_relay(message, &mut text).unwrap();
        self.text(ms, conn, Side::Relay, text);
    }

    fn asks(&mut self, ms: u64, conn: u64, id: &str, filter: &Filter) {
        let request = ClientMessage::Req { subscription: id.into(), filters: vec![filter.clone()] };
        self.client(ms, conn, &request);
    }

    fn delivers(&mut self, ms: u64, conn: u64, id: &str, events: &[Event<'static>]) {
        for event in events {
            let event = std::borrow::Cow::Borrowed(event);
            self.relay(ms, conn, &RelayMessage::Event { subscription: id.into(), event });
        }
    }

    fn ends(&mut self, ms: u64, conn: u64, id: &str) {
        self.relay(ms, conn, &RelayMessage::Eose { subscription: id.into(), hints: EoseHints::default() });
    }
}

/// How many times slower than written: a busy host is late by some ten milliseconds.
const PACE: u64 = 3;

const STORED: usize = 20;
const PUBLISHED: usize = 20;

/// A folder with `day.jsonl.zst`: a reader, a publisher and a late reader. They read 20 stored events,
/// five of these twice, and 21 live ones. The publisher sends 20 of the live ones, which both read.
fn recorded() -> TempDir {
    let folder = TempDir::new().unwrap();
    let file = fs::File::create(folder.path().join("day.jsonl.zst")).unwrap();
    let header = Header { version: VERSION, redaction: Redaction::None, by: "test".to_owned() };
    let mut tape = Tape(Writer::new(file, &header).unwrap());
    let notes = Corpus::bundled().events.into_iter().filter(|event| event.kind == 1);
    let notes: Vec<_> = notes.take(STORED + PUBLISHED + 1).collect();
    let (stored, live) = notes.split_at(STORED);
    let (published, others) = live.split_at(PUBLISHED);
    let ids = |events: &[Event<'_>]| {
        let ids = Some(events.iter().map(|event| event.id).collect());
        Filter { ids, ..Filter::default() }
    };
    let authors: BTreeSet<_> = live.iter().map(|event| event.pubkey).collect();
    let follows = Filter {
        authors: Some(authors.into_iter().collect()),
        kinds: Some(vec![1]),
        limit: Some(0),
        ..Filter::default()
    };
    let mut newest = stored.to_vec();
    newest.sort_by_key(|event| (std::cmp::Reverse(event.created_at), event.id));
    newest.truncate(5);
    tape.open(0, 7);
    tape.asks(10, 7, "all", &ids(stored));
    tape.delivers(11, 7, "all", stored);
    tape.ends(12, 7, "all");
    tape.client(13, 7, &ClientMessage::Close { subscription: "all".into() });
    let feed = Filter { kinds: Some(vec![1]), limit: Some(5), ..Filter::default() };
    tape.asks(14, 7, "feed of a long name", &feed);
    tape.delivers(15, 7, "feed of a long name", &newest);
    tape.ends(16, 7, "feed of a long name");
    tape.client(17, 7, &ClientMessage::Close { subscription: "feed of a long name".into() });
    tape.asks(18, 7, "follows", &follows);
    tape.ends(19, 7, "follows");
    tape.open(50, 8);
    for (ms, event) in (100..).step_by(10).zip(published) {
        tape.client(ms, 8, &ClientMessage::Event(std::borrow::Cow::Borrowed(event)));
        tape.relay(ms + 1, 8, &RelayMessage::Ok { id: event.id, accepted: true, text: "".into() });
        tape.delivers(ms + 2, 7, "follows", std::slice::from_ref(event));
    }
    tape.delivers(350, 7, "follows", others);
    tape.0.flush().unwrap();
    tape.open(400, 9);
    tape.asks(401, 9, "late", &ids(published));
    tape.delivers(402, 9, "late", published);
    tape.ends(403, 9, "late");
    for (ms, kind) in [(404, 1059), (405, 22_242)] {
        let withheld = Body::Withheld { text_bytes: 300, kind: Some(kind) };
        tape.at(ms, 9, What::Message(Message { from: Side::Client, wire_bytes: 308, body: withheld }));
    }
    tape.close(450, 9);
    tape.close(480, 8);
    tape.close(500, 7);
    let end = End { lost: 0, ratio_source: 3.0, ratio_written: 3.0 };
    tape.at(500, 0, What::End(end));
    tape.0.finish().unwrap();
    folder
}

fn run(folder: &TempDir, name: &str, extra: &[&str]) -> (Ran, Option<RunRecord>) {
    let played = Setup::built_in(folder.path().join(name).to_str().unwrap(), None);
    let ran = played.run(&[&["--no-pin", "--drain-seconds", "1"], extra].concat());
    (ran, played.record_if_any())
}

/// The record of a run that measured, and what it said.
fn measured(folder: &TempDir, name: &str, extra: &[&str]) -> (RunRecord, String) {
    let (ran, record) = run(folder, name, extra);
    let record = record.unwrap_or_else(|| panic!("{ran}"));
    assert_eq!(record.status, Status::Complete, "{ran}");
    (record, ran.said)
}

#[test]
fn a_recording_is_played_with_new_keys_and_brings_what_it_brought() {
    let folder = recorded();
    let due = (STORED + 5 + PUBLISHED + 1 + PUBLISHED) as u64;
    let seconds = |record: &RunRecord| record.elapsed_ns as f64 / 1e9;
    for extra in [&["--load", "1"][..], &["--format", "cbor-packed", "--compression", "zstd"]] {
        let (record, said) = measured(&folder, "day.jsonl.zst", extra);
        let counts = &record.counts;
        assert_eq!(record.validity.counts, ValidityClass::Valid, "{}", record.validity);
        assert_eq!(
            (counts.deliveries, counts.deliveries_recorded, counts.deliveries_diverged),
            (due, due, 0)
        );
        assert_eq!((counts.planned, counts.acked), (PUBLISHED as u64 + 1, PUBLISHED as u64 + 1));
        assert_eq!((counts.requests, counts.requests_completed), (4, 4));
        assert_eq!(record.cell.scenario, "day");
        assert_eq!(record.latency["auth"].len(), 1, "by the relay's own challenge");
        assert!((1.0..3.0).contains(&seconds(&record)), "{}", seconds(&record));
        assert!(said.contains("left out 1 message"), "{said}");
    }
    let cut = measured(&folder, "day.jsonl.zst", &["--load", "0.75", "--seconds", "1"]).0.counts;
    assert_eq!((cut.planned, cut.requests, cut.deliveries_diverged), (15, 3, 0), "what was due by 250 ms");
}

#[test]
fn a_relay_that_brings_other_events_than_the_recorded_one_spoils_the_run() {
    let folder = recorded();
    let (record, _) = measured(&folder, "day.jsonl.zst", &["--relay-fault", "lose=10%"]);
    let counts = &record.counts;
    assert!(counts.deliveries_diverged > 0, "{counts:?}");
    assert_eq!(counts.deliveries + counts.deliveries_diverged, counts.deliveries_recorded);
    assert_eq!(record.validity.counts, ValidityClass::Invalid);
    assert!(record.validity.to_string().contains("deliveries differ from the 66 of the recording"));
}

#[test]
fn what_is_no_recording_or_cannot_be_played_is_refused_with_the_place() {
    let folder = recorded();
    let path = |name: &str| folder.path().join(name);
    let whole = fs::read(path("day.jsonl.zst")).unwrap();
    fs::write(path("none.jsonl.zst"), b"no zstd").unwrap();
    let text =
        zstd::encode_all(&b"{\"recording\":1,\"redaction\":\"none\",\"by\":\"x\"}\n{\"conn\":1}\n"[..], 3);
    fs::write(path("line.jsonl.zst"), text.unwrap()).unwrap();
    let text = zstd::encode_all(&b"{\"recording\":1,\"redaction\":\"none\",\"by\":\"x\"}\n"[..], 3);
    fs::write(path("empty.jsonl.zst"), text.unwrap()).unwrap();
    for (name, extra, says) in [
        ("none.jsonl.zst", &[][..], "none.jsonl.zst, line 1"),
        ("line.jsonl.zst", &[], "line.jsonl.zst, line 2"),
        ("empty.jsonl.zst", &[], "nothing to play"),
        ("missing.jsonl.zst", &[], "missing.jsonl.zst"),
        ("day.jsonl.zst", &["--set", "seconds=1"], "--set changes keys of a scenario"),
        ("day.jsonl.zst", &["--corpus", "x.jsonl"], "leave it out"),
        ("day.jsonl.zst", &["--saturate=relay"], "faster with --load"),
        ("day.jsonl.zst", &["--rate", "10"], "publishes nothing at a rate"),
    ] {
        let (ran, record) = run(&folder, name, extra);
        ran.ended(2).saying(&[says]);
        assert_eq!(record, None, "{name} {extra:?}");
    }
    run(&folder, "day.jsonl.zst", &["--floor"]).0.ended(6).saying(&["no answers to a recording"]);
    // A recorder that is killed leaves what it wrote.
    fs::write(path("torn.jsonl.zst"), &whole[..whole.len() - 9]).unwrap();
    let counts = measured(&folder, "torn.jsonl.zst", &[]).0.counts;
    // What came behind the cut may come again before its client leaves.
    assert_eq!((counts.planned, counts.requests), (PUBLISHED as u64 + 1, 3));
}

/// A gateway that records in this file before a relay, with flags of its own.
fn recording(relay: &Relay, file: &Path, flags: &[&str]) -> Relay {
    let mut command = program();
    command.args(["role:gateway", "--relay", &relay.url, "--record"]).arg(file).args(flags);
    Relay::announced(command)
}

/// Plays a recording at a relay of this program, and compares it with what was recorded of the
/// messages that are played.
fn comes_again(folder: &TempDir, name: &str, at_least: u64) {
    // Messages whose text was withheld are not played.
    let bytes = |what: &What| match what {
        What::Message(Message { body: Body::Withheld { .. }, .. }) => 0,
        What::Message(message) => message.wire_bytes,
        _ => 0,
    };
    let entries = Reader::open(&folder.path().join(name)).unwrap();
    let recorded: u64 = entries.map(|entry| bytes(&entry.unwrap().what)).sum();
    // As the recorded relay did: without optimisation a signature takes longer than all else.
    let play = || measured(folder, name, &["--verify", "none"]).0;
    let differs = |record: &RunRecord| {
        let counts = &record.counts;
        assert!(counts.deliveries_recorded > at_least, "{counts:?}");
        assert_eq!(counts.requests_failed, 0, "{counts:?}");
        counts.deliveries_diverged * 100 > counts.deliveries_recorded
            || record.traffic.wire_bytes().abs_diff(recorded) * 50 > recorded
    };
    // On a busy machine sessions begin late, and other events are live than were: one of five counts.
    let differing: Vec<_> = repeat_with(play).take(5).take_while(differs).collect();
    let last = differing.last().map(|record| (&record.counts, record.traffic.wire_bytes()));
    assert!(differing.len() < 5, "{recorded} bytes were recorded, and again came {last:?}");
}

#[test]
fn a_mixed_day_that_a_relay_or_a_gateway_recorded_brings_its_deliveries_and_bytes_again() {
    for by_gateway in [false, true] {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("mixed.jsonl.zst");
        let own = ["--record", file.to_str().unwrap()];
        let mut servers = vec![Relay::start(if by_gateway { &[] } else { &own[..] })];
        if by_gateway {
            servers.push(recording(&servers[0], &file, &[]));
        }
        let recorder = servers.last_mut().unwrap();
        let few =
            ["subscribe.connections=6", "request.opener.connections=6"].map(|set| ["--set", set]).concat();
        let events = folder.path().join("few.jsonl");
        corpus::write(&events, &Corpus::bundled().events[..700]).unwrap();
        let cell = ["--format", "json", "--compression", "none", "--url", &recorder.url];
        let mut command = program();
        command.args(["mixed-day", "--seconds", "2"]).args(cell).args(few).arg("--corpus").arg(&events);
        command.ran().measured();
        send(Signal::SIGTERM, recorder.child.id());
        recorder.child.wait().unwrap();
        comes_again(&folder, "mixed.jsonl.zst", 1_000);
    }
}

/// Plays tests/peers/feed.cjs.
fn feed(args: &[&OsStr]) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/feed.cjs");
    Command::new("node").arg(script).args(args).ran().ended(0);
}

/// Deliveries of a feed: contacts, profiles, two pages and what came live.
const FEED: u64 = 1 + 3 + 20 + 10 + 20;

#[test]
#[ignore = "needs node with nostr-tools and ws"]
fn a_feed_of_nostr_tools_that_a_gateway_recorded_comes_again() {
    let folder = TempDir::new().unwrap();
    let relay = Relay::start(&[]);
    let file = folder.path().join("feed.jsonl.zst");
    let mut gateway = recording(&relay, &file, &["--compression", "none"]);
    feed(&[gateway.url.as_ref()]);
    send(Signal::SIGTERM, gateway.child.id());
    gateway.child.wait().unwrap();
    comes_again(&folder, "feed.jsonl.zst", FEED - 1);
}

#[test]
#[ignore = "needs Chromium, node with nostr-tools, and corpus beside client-sim"]
fn a_feed_of_nostr_tools_on_a_page_of_a_browser_comes_again_from_its_har() {
    let folder = TempDir::new().unwrap();
    let relay = Relay::start(&[]);
    let found = |name: &&str| {
        env::split_paths(&env::var_os("PATH").unwrap()).any(|folder| folder.join(name).is_file())
    };
    let chromium = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(found).unwrap();
    let (har, recording) = (folder.path().join("feed.har"), folder.path().join("feed.jsonl.zst"));
    feed(&[relay.url.as_ref(), har.as_ref(), chromium.as_ref()]);
    let corpus = Path::new(env!("CARGO_BIN_EXE_client-sim")).with_file_name("corpus");
    Command::new(corpus).arg("import-har").args([har, recording]).ran().ended(0);
    comes_again(&folder, "feed.jsonl.zst", FEED - 1);
}
