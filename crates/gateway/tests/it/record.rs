//! What passes is recorded: all of it, and nobody in it.

use std::{
    borrow::Cow,
    collections::HashSet,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use codecs::{ClientMessage, Event, Filter, Format, hex};
use corpus::Corpus;
use futures::{SinkExt, StreamExt};
use gateway::Gateway;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use recording::{Body, Entry, Reader, Redaction, Side, What};
use tempfile::TempDir;
use tokio_tungstenite::{
    connect_async,
    tungstenite::{Message, protocol::CloseFrame},
};

use crate::common::{TestGateway, config, patiently, relay_sim, say, text_of};

/// Words that a recording has of itself: names of the protocol and of this file's fields.
const OWN_WORDS: &str = "recording redaction pseudonyms none gateway conn t_ns open close client relay from wire_bytes \
    text text_bytes kind kinds code lost end ratio_source ratio_written null true false EVENT REQ OK EOSE CLOSE CLOSED \
    NOTICE COUNT AUTH id ids authors pubkey created_at tags content sig since until limit search error invalid blocked \
    duplicate http https nostr alt amount bolt11 challenge delegation description emoji expiration image imeta name \
    nonce preimage protected proxy published_at relays subject summary title zap nostr.json warning required";

fn read(file: &Path) -> (Vec<Entry>, bool) {
    let mut reader = Reader::open(file).unwrap();
    let entries = reader.by_ref().collect::<Result<_, _>>().unwrap();
    (entries, reader.torn())
}

/// A folder with room for a recording, and its file.
fn place() -> (TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("day.jsonl.zst");
    (folder, file)
}

/// A client of JSON as there are many, which hears its answers until EOSE.
async fn plain_client(address: &str, events: &[Event<'_>], filters: Vec<Filter>) -> usize {
    let (mut client, _) = patiently(connect_async(format!("ws://{address}"))).await.unwrap();
    for event in events {
        let message = text_of(&ClientMessage::Event(Cow::Borrowed(event)));
        patiently(client.send(Message::text(message))).await.unwrap();
        let answer = patiently(client.next()).await.unwrap().unwrap();
        assert!(answer.to_text().unwrap().starts_with("[\"OK\""), "{answer}");
    }
    let request = text_of(&ClientMessage::Req { subscription: "everything about gardening".into(), filters });
    patiently(client.send(Message::text(request))).await.unwrap();
    patiently(client.send(Message::text("[\"WHISPER\",\"a secret of somebody\"]"))).await.unwrap();
    let mut found = 0;
    loop {
        let answer = patiently(client.next()).await.unwrap().unwrap();
        match answer.to_text().unwrap() {
            text if text.starts_with("[\"EVENT\"") => found += 1,
            text if text.starts_with("[\"EOSE\"") => break,
            _ => {}
        }
    }
    let frame = CloseFrame { code: 4001.into(), reason: "farewell of somebody".into() };
    patiently(client.close(Some(frame))).await.unwrap();
    while patiently(client.next()).await.is_some_and(|answer| answer.is_ok()) {}
    found
}

/// Runs of letters and digits that could name somebody or something: long enough not to come about by chance.
fn words(text: &str) -> HashSet<String> {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '.');
    let words = words.flat_map(|word| [word].into_iter().chain(word.split(['_', '.'])));
    words
        .filter(|word| word.chars().count() >= 5 && !word.bytes().all(|b| b.is_ascii_digit()))
        .map(str::to_owned)
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_key_id_or_word_of_its_source_is_in_a_recording_and_the_traffic_is() {
    let relay = relay_sim(|config| config.keep_expired = true).await;
    let (_folder, file) = place();
    let gateway = TestGateway::before(&relay, |config| config.record = Some(file.clone())).await;
    let mut events = Corpus::bundled().events;
    events.truncate(400);
    let authors = Some(vec![events[0].pubkey, events[1].pubkey]);
    let filters = vec![
        Filter { authors, ..Filter::default() },
        Filter { kinds: Some(vec![1]), limit: Some(50), ..Filter::default() },
    ];
    let found = plain_client(&gateway.address, &events, filters).await;
    // Another, in another format.
    let mut client = gateway.client("dannypack", "zstd-dict").await;
    let mut bytes = Vec::new();
    let codec = Format::all().find(|format| format.name() == "dannypack").unwrap().spec().library;
    let filters = vec![Filter { kinds: Some(vec![1]), limit: Some(3), ..Filter::default() }];
    codec.encode_client(&ClientMessage::Req { subscription: "notes".into(), filters }, &mut bytes).unwrap();
    say(&mut client, bytes).await;
    for _ in 0..4 {
        patiently(client.next()).await.unwrap().unwrap();
    }
    let received_bytes = client.traffic().received.wire_bytes;
    client.close(wire::CloseCode::Normal, "").await;
    assert_eq!(gateway.metric("recording_lost_total").await, 0);
    gateway.stop().await;

    let written = zstd::decode_all(std::fs::File::open(&file).unwrap()).unwrap();
    let written = String::from_utf8(written).unwrap();
    // Texts are JSON in JSON: without escapes words are words.
    let written = written.replace("\\\\n", " ").replace("\\n", " ").replace('\\', "");
    let own = words(OWN_WORDS);
    let of_file = words(&written);
    let mut source = HashSet::from(["gardening".to_owned(), "somebody".to_owned(), "farewell".to_owned()]);
    for event in &events {
        source.extend([&event.id[..], &event.pubkey, &event.sig].map(hex::encode));
        source.extend(words(&event.content));
        source.extend(event.tags.iter().flatten().flat_map(|value| words(value)));
    }
    assert!(source.len() > 2_000, "{}", source.len());
    let told: Vec<_> = source.intersection(&of_file).filter(|word| !own.contains(*word)).collect();
    assert!(told.is_empty(), "{told:?}");
    // Inside of longer runs, too.
    let keys = events.iter().flat_map(|event| [event.id, event.pubkey]);
    assert!(keys.map(|key| hex::encode(&key[..6])).all(|part| !written.contains(&part)));

    let (entries, torn) = read(&file);
    assert!(!torn);
    let of = |conn: u64, from: Side| -> Vec<(&Body, u64)> {
        let messages =
            entries.iter().filter(|entry| entry.conn == conn).filter_map(|entry| match &entry.what {
                What::Message(message) if message.from == from => Some((&message.body, message.wire_bytes)),
                _ => None,
            });
        messages.collect()
    };
    let asked = of(0, Side::Client);
    assert_eq!(asked.len(), events.len() + 2);
    let Body::Withheld { kind: None, .. } = asked[events.len() + 1].0 else { panic!("{asked:?}") };
    for (event, (body, wire_bytes)) in events.iter().zip(&asked) {
        let text = text_of(&ClientMessage::Event(Cow::Borrowed(event)));
        assert!((text.len() as u64 + 6..=text.len() as u64 + 14).contains(wire_bytes), "{wire_bytes}");
        let is_withheld = matches!(body, Body::Withheld { kind, .. } if *kind == Some(event.kind.into()));
        assert_eq!(is_withheld, recording::PRIVATE.contains(&event.kind), "{body:?}");
    }
    assert!(found > 50 && of(0, Side::Relay).len() > found, "{found}");

    let others: Vec<_> = entries.iter().filter(|entry| !matches!(entry.what, What::Message(_))).collect();
    let what: Vec<_> = others.iter().map(|entry| (entry.conn, &entry.what)).collect();
    assert!(matches!(what[0], (0, What::Open { client: None, relay: None })), "{what:?}");
    assert!(matches!(what[1], (0, What::Close { code: Some(4001), by: Side::Client })), "{what:?}");
    let (1, What::Open { client, relay: None }) = what[2] else { panic!("{what:?}") };
    assert!(client.as_ref().unwrap().starts_with("nostr.dannypack.v1+zstd"), "{client:?}");
    assert!(matches!(what[3], (1, What::Close { code: Some(1000), by: Side::Client })), "{what:?}");
    let (0, What::End(end)) = what[4] else { panic!("{what:?}") };
    // What compresses a text is kept.
    let kept = end.ratio_written / end.ratio_source;
    assert!(end.lost == 0 && end.ratio_source > 2.0 && (0.8..1.2).contains(&kept), "{end:?}");
    let wire_bytes: u64 = of(1, Side::Relay).iter().map(|(_, wire_bytes)| wire_bytes).sum();
    assert_eq!(wire_bytes, received_bytes);
}

#[tokio::test]
async fn a_raw_recording_is_for_a_relay_on_loopback_and_no_file_is_written_over() {
    let (_folder, file) = place();
    let open = |relay: &str, raw: bool| {
        let mut config = config(relay);
        (config.record, config.record_raw) = (Some(file.clone()), raw);
        Gateway::open(config)
    };
    let error = open("ws://10.0.0.1", true).await.unwrap_err();
    assert!(format!("{error:#}").contains("--record-raw") && !file.exists(), "{error:#}");
    let gateway = open("ws://127.0.0.1:1", true).await.unwrap();
    assert_eq!(Reader::open(&file).unwrap().header().redaction, Redaction::None);
    let error = open("ws://10.0.0.1", false).await.unwrap_err();
    let text = format!("{error:#}");
    assert!(text.contains("day.jsonl.zst: name a new file") && text.contains("exists"), "{text}");
    drop(gateway);
}

/// A gateway program before a relay, started by a shell after these words; its address, and its log.
fn program(
    before: &str,
    relay: &str,
    file: &Path,
) -> (std::process::Child, String, impl Iterator<Item = String> + use<>) {
    let gateway = env!("CARGO_BIN_EXE_gateway");
    let command = format!(
        "{before} exec '{gateway}' --listen 127.0.0.1:0 --relay ws://{relay} --record '{}'",
        file.display()
    );
    let mut child = Command::new("sh")
        .args(["-c", &command])
        .stderr(Stdio::piped())
        .env("NO_COLOR", "1")
        .spawn()
        .unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let told = log.find(|line| line.contains("RECORDING")).unwrap();
    assert!(told.contains("day.jsonl.zst") && told.contains("under pseudonyms"), "{told}");
    let listening = log.find(|line| line.contains("listening")).unwrap();
    let address = listening.split("ws://").nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    (child, address, log)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_leaves_what_was_written_more_than_a_second_ago() {
    let relay = relay_sim(|_| {}).await;
    let (_folder, file) = place();
    let (mut child, address, _log) = program("", &relay, &file);
    let events: Vec<_> =
        Corpus::bundled().events.into_iter().filter(|event| event.kind == 1).take(20).collect();
    let filters = vec![Filter { kinds: Some(vec![1]), ..Filter::default() }];
    plain_client(&address, &events, filters).await;
    tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGKILL).unwrap();
    child.wait().unwrap();
    let (entries, torn) = read(&file);
    let messages = entries.iter().filter(|entry| matches!(entry.what, What::Message(_))).count();
    assert!(torn && messages >= 20 + 2 + 20, "{torn} {messages}");
    let last = entries.last().unwrap();
    assert!(matches!(last.what, What::Close { code: Some(4001), by: Side::Client }), "{last:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_is_full_ends_the_recording_and_nothing_else() {
    let relay = relay_sim(|_| {}).await;
    let (_folder, file) = place();
    // No file of this program may become longer than 64 KiB, or 128 in some shells.
    let (mut child, address, mut log) = program("trap '' XFSZ; ulimit -f 128;", &relay, &file);
    let events: Vec<_> =
        Corpus::bundled().events.into_iter().filter(|event| event.kind == 1).take(200).collect();
    let filters = || vec![Filter { kinds: Some(vec![1]), ..Filter::default() }];
    plain_client(&address, &events[..20], filters()).await;
    tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
    let mut last = 0;
    for part in events.chunks(20) {
        last = plain_client(&address, part, filters()).await;
    }
    assert!(last > 100, "{last}");
    let told =
        tokio::task::spawn_blocking(move || (log.find(|line| line.contains("the recording has ended")), log));
    let (told, log) = patiently(told).await.unwrap();
    assert!(told.unwrap().contains("clients are served as before"));
    assert!(plain_client(&address, &events[..1], filters()).await > 100, "the gateway goes on");
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGTERM).unwrap();
    let rest = tokio::task::spawn_blocking(move || log.collect::<Vec<_>>().join("\n"));
    let rest = patiently(rest).await.unwrap();
    assert!(rest.contains("the recording ended early"), "{rest}");
    assert!(child.wait().unwrap().success());
    let (entries, torn) = read(&file);
    assert!(torn && entries.len() > 20, "{torn} {}", entries.len());
}
