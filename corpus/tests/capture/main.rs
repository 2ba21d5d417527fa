//! `corpus capture` against a relay, and against servers that misbehave.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod peers;

use std::{
    collections::HashSet,
    fs,
    path::Path,
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, SystemTime},
};

use codecs::{ClientMessage, Event, VerifyLevel};
use corpus::{Corpus, EventReader, sign_as};
use futures::{SinkExt, StreamExt};
use nix::{
    sys::{
        resource::{UsageWho, getrusage},
        signal::{Signal, kill},
    },
    unistd::Pid,
};
use serde_json::Value;
use tokio_tungstenite::tungstenite::Message;

use peers::{Act, event_message, honest, json, relay, relay_behind_tls, scripted, serve};

fn capture(args: &[&str], folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_corpus"));
    command.arg("capture").args(args).current_dir(folder).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(args: &[&str], folder: &Path) -> Output {
    capture(args, folder).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn ids(file: &Path) -> HashSet<[u8; 32]> {
    let events: Vec<_> = EventReader::open(file).unwrap().map(Result::unwrap).collect();
    let ids: HashSet<_> = events.iter().map(|event| event.id).collect();
    assert_eq!(ids.len(), events.len(), "each once");
    events.iter().for_each(|event| event.verify(VerifyLevel::Full).unwrap());
    ids
}

fn ids_of(events: &[Event<'_>]) -> HashSet<[u8; 32]> {
    events.iter().map(|event| event.id).collect()
}

/// What the provenance says of the last session.
fn session(file: &Path) -> Value {
    let text = fs::read_to_string(format!("{}.provenance.json", file.display())).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    document["sessions"].as_array().unwrap().last().unwrap().clone()
}

fn some_events(count: usize) -> Vec<Event<'static>> {
    Corpus::bundled().events.into_iter().filter(|event| event.tags.len() < 50).take(count).collect()
}

#[test]
fn everything_that_relays_have_is_captured_once_and_not_asked_for_again() {
    let folder = tempfile::tempdir().unwrap();
    let events = some_events(700);
    let (a, b) = (relay(events[..500].to_vec(), 60), relay(events[300..].to_vec(), 1_000));
    let args = ["--relay", &a, "--relay", &b, "--out", "all.jsonl.zst"];
    let output = run(&args, folder.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let file = folder.path().join("all.jsonl.zst");
    assert_eq!(ids(&file), ids_of(&events));
    let first = session(&file);
    let relays = first["relays"].as_array().unwrap();
    let new: u64 = relays.iter().map(|relay| relay["events_new"].as_u64().unwrap()).sum();
    assert_eq!((new, &first["events_new"]), (700, &700.into()));
    for relay in relays {
        assert_eq!(relay["rejected"], serde_json::json!({}));
        assert_eq!(relay["failure"], Value::Null);
        assert!(relay["extensions"].as_str().unwrap().starts_with("permessage-deflate"));
        assert!(relay["duplicates"].as_u64().unwrap() > 0, "both have 200 events, and pages overlap");
    }
    let requests = |session: &Value, n: usize| session["relays"][n]["requests"].as_u64().unwrap();
    let of_a = usize::from(relays[0]["url"] != a.as_str());
    assert!(requests(&first, of_a) > 8, "500 events come 60 at a time");

    let again = run(&args, folder.path());
    assert!(again.status.success() && text(&again.stdout).contains("700 events, 0 of them new"));
    let second = session(&file);
    assert!(requests(&second, 0) <= 3 && requests(&second, 1) <= 3, "{second}");
    assert_eq!(ids(&file).len(), 700);
}

#[test]
fn a_relay_behind_tls_is_captured_when_its_certificate_is_trusted() {
    let folder = tempfile::tempdir().unwrap();
    let events = some_events(100);
    let url = relay_behind_tls(events.clone(), folder.path());
    let args = ["--relay", &url, "--out", "a.jsonl", "--ca", "cert.pem", "--patience", "5s"];
    let output = run(&args, folder.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(ids(&folder.path().join("a.jsonl")), ids_of(&events));
    assert_eq!(session(&folder.path().join("a.jsonl"))["relays"][0]["url"], url.as_str());

    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    fs::write(folder.path().join("other.pem"), other.cert.pem()).unwrap();
    let args = ["--relay", &url, "--out", "b.jsonl", "--ca", "other.pem", "--patience", "0.3s"];
    let output = run(&args, folder.path());
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("certificate"), "{}", text(&output.stderr));
}

#[test]
fn a_capture_goes_on_where_the_count_ended_it() {
    let folder = tempfile::tempdir().unwrap();
    let events = some_events(400);
    let url = relay(events.clone(), 50);
    let file = folder.path().join("some.pb.gz");
    for (count, expected) in [("130", 130), ("130", 130), ("131", 131), ("9000", 400)] {
        let output = run(&["--relay", &url, "--out", "some.pb.gz", "--count", count], folder.path());
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(ids(&file).len(), expected);
    }
    assert_eq!(ids(&file), ids_of(&events));
}

#[test]
fn filters_decide_and_their_limit_holds() {
    let folder = tempfile::tempdir().unwrap();
    let events = some_events(600);
    let url = relay(events.clone(), 1_000);
    let args = [
        "--relay",
        &url,
        "--out",
        "notes.jsonl",
        "--page",
        "40",
        "--filter",
        "{\"kinds\":[1],\"limit\":100}",
    ];
    assert!(run(&args, folder.path()).status.success());
    let taken = ids(&folder.path().join("notes.jsonl"));
    let newest: Vec<_> = events.iter().rev().filter(|event| event.kind == 1).take(90).map(|e| e.id).collect();
    assert!(taken.len() <= 100 && newest.iter().all(|id| taken.contains(id)), "{}", taken.len());
    let bad = run(&["--relay", &url, "--out", "x.jsonl", "--filter", "{\"kind\":1}"], folder.path());
    assert!(text(&bad.stderr).contains("NIP-01 filter"), "{}", text(&bad.stderr));
}

/// Starts a capture and waits until its file has something.
fn start(args: &[&str], folder: &Path, file: &str) -> Child {
    let mut child = capture(args, folder).spawn().unwrap();
    for _ in 0..400 {
        if fs::metadata(folder.join(file)).is_ok_and(|file| file.len() > 20_000) {
            return child;
        }
        thread::sleep(Duration::from_millis(25));
    }
    child.kill().unwrap();
    panic!("nothing was captured within ten seconds: {:?}", child.wait());
}

#[test]
fn a_signal_leaves_a_whole_file() {
    let events = some_events(400);
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let folder = tempfile::tempdir().unwrap();
        let url = relay(events.clone(), 100);
        let args = ["--relay", &url, "--out", "live.jsonl", "--for", "5m"];
        let child = start(&args, folder.path(), "live.jsonl");
        kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{}", text(&output.stderr));
        let file = folder.path().join("live.jsonl");
        let taken = ids(&file);
        assert!(taken.is_subset(&ids_of(&events)) && !taken.is_empty());
        let session = session(&file);
        assert_eq!(
            (&session["ended_because"], &session["events_new"]),
            (&"interrupted".into(), &taken.len().into())
        );
        assert!(run(&["--relay", &url, "--out", "live.jsonl"], folder.path()).status.success());
        assert_eq!(ids(&file), ids_of(&events), "the rest came with the second run");
    }
}

#[test]
fn what_a_crash_cut_short_is_repaired() {
    let events = some_events(300);
    let url = relay(events.clone(), 1_000);
    for name in ["cut.jsonl", "cut.jsonl.gz", "cut.jsonl.zst", "cut.pb.gz"] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(name);
        let args = ["--relay", &url, "--out", name];
        assert!(run(&args, folder.path()).status.success());
        let bytes = fs::read(&file).unwrap();
        fs::write(&file, &bytes[..bytes.len() * 2 / 3]).unwrap();
        let output = run(&args, folder.path());
        assert!(output.status.success(), "{name}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains("whole events are kept"), "{name}: {}", text(&output.stderr));
        assert_eq!(ids(&file), ids_of(&events), "{name}");
    }
}

#[test]
fn live_events_are_taken_until_the_time_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let events = some_events(100);
    let url = relay(events.clone(), 1_000);
    let args = ["--relay", &url, "--out", "live.jsonl", "--for", "4s"];
    let child = start(&args, folder.path(), "live.jsonl");
    let mut event = events[0].clone();
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    (event.kind, event.created_at) = (1, i64::try_from(now).unwrap() + 1);
    sign_as(&mut event, "live");
    let mut message = Vec::new();
    let published = std::borrow::Cow::Borrowed(&event);
    json().encode_client(&ClientMessage::Event(published), &mut message).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (mut socket, _) = tokio_tungstenite::connect_async(&url).await.unwrap();
        socket.send(Message::text(String::from_utf8(message).unwrap())).await.unwrap();
        socket.next().await.unwrap().unwrap();
    });
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && text(&output.stdout).contains("the time was over"));
    let taken = ids(&folder.path().join("live.jsonl"));
    assert!(taken.contains(&event.id) && taken.len() == 101, "{}", text(&output.stderr));
}

#[test]
fn what_is_wrong_is_refused_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let events = some_events(5);
    let sent = events.clone();
    let url = scripted(move |_, request| {
        let (mut forged, mut renamed) = (sent[1].clone(), sent[2].clone());
        forged.sig[9] ^= 1;
        renamed.content = "not what the id says".into();
        let mut stranger = sent[3].clone();
        stranger.created_at = i64::MAX;
        let mut acts = vec![
            Act::Say("{]".to_owned()),
            Act::Binary(vec![0xff; 300]),
            Act::Say("[\"EVENT\",\"page1\",{}]".to_owned()),
            event_message(request, &forged),
            event_message(request, &renamed),
            event_message(request, &stranger),
            Act::Say("[\"NOTICE\",\"be nice\"]".to_owned()),
        ];
        acts.extend(honest(request, &[sent[0].clone(), sent[0].clone(), sent[4].clone()]));
        acts
    });
    let output = run(&["--relay", &url, "--out", "a.jsonl", "--patience", "2s"], folder.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let file = folder.path().join("a.jsonl");
    assert_eq!(ids(&file), ids_of(&[events[0].clone(), events[4].clone()]));
    let relay = &session(&file)["relays"][0];
    let rejected = |reason: &str| relay["rejected"][reason].as_u64().unwrap_or(0);
    for reason in ["signature does not verify", "event id does not match", "not asked for"] {
        assert!(rejected(reason) >= 1, "{reason}: {relay}");
    }
    assert!(rejected("not a message of NIP-01") >= 3, "{relay}");
    assert!(!relay["rejected_examples"].as_array().unwrap().is_empty());
    assert_eq!(relay["notices"][0], "NOTICE be nice");
    assert!(text(&output.stderr).contains("be nice"));
}

#[test]
fn a_relay_that_hangs_up_is_asked_again() {
    let folder = tempfile::tempdir().unwrap();
    let events = some_events(9);
    let sent = events.clone();
    let url = scripted(move |connection, request| match connection {
        0 => {
            let mut acts = honest(request, &sent);
            acts.truncate(3);
            acts.push(Act::HangUp);
            acts
        }
        // A frame of 20 MiB.
        1 => vec![Act::Say(format!("[\"NOTICE\",\"{}\"]", "x".repeat(20 << 20)))],
        _ => honest(request, &sent),
    });
    let output = run(&["--relay", &url, "--out", "a.jsonl", "--patience", "2s"], folder.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let file = folder.path().join("a.jsonl");
    assert_eq!(ids(&file), ids_of(&events));
    assert_eq!(session(&file)["relays"][0]["connections"], 3);
    let peak_kb = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap().max_rss();
    assert!(peak_kb < 300 << 10, "{peak_kb} KB of memory");
}

#[test]
fn a_relay_that_never_ends_or_never_answers_is_given_up_in_bounded_time() {
    let events = some_events(4);
    let sent = events.clone();
    let endless = scripted(move |_, request| {
        let mut acts = honest(request, &sent);
        acts.pop();
        acts
    });
    let silent = serve(|listener| async move {
        let mut streams = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            streams.push(stream);
        }
    });
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nobody = format!("ws://{nobody}");
    for (url, taken, why) in
        [(&endless, 4, "no answer for 0.3 s"), (&silent, 0, "no complete handshake"), (&nobody, 0, "refused")]
    {
        let folder = tempfile::tempdir().unwrap();
        let output = run(&["--relay", url, "--out", "a.jsonl", "--patience", "0.3s"], folder.path());
        let said = text(&output.stderr);
        assert_eq!(output.status.success(), taken > 0, "{said}");
        assert!(said.contains("given up") && said.contains(why), "{said}");
        assert_eq!(ids(&folder.path().join("a.jsonl")).len(), taken);
        assert!(session(&folder.path().join("a.jsonl"))["relays"][0]["failure"].is_string());
    }
}

#[test]
fn mistakes_are_answered_before_the_work() {
    let folder = tempfile::tempdir().unwrap();
    for (args, answer) in [
        (["--relay", "https://example.com", "--out", "a.jsonl"].as_slice(), "expected wss://"),
        (&["--relay", "ws://127.0.0.1:1", "--out", "a.csv"], "known: .jsonl"),
        (&["--relay", "ws://127.0.0.1:1", "--out", "a.jsonl", "--for", "10d"], "expected s, m or h"),
        (
            &["--relay", "ws://127.0.0.1:1", "--out", "a.jsonl", "--compression", "zstd"],
            "expected none or deflate",
        ),
        (&["--relay", "wss://127.0.0.1:1", "--out", "a.jsonl", "--ca", "none.pem"], "none.pem"),
    ] {
        let output = run(args, folder.path());
        assert!(!output.status.success(), "{args:?}");
        assert!(text(&output.stderr).contains(answer), "{args:?}: {}", text(&output.stderr));
    }
    assert!(folder.path().read_dir().unwrap().next().is_none(), "nothing is left behind");
}
