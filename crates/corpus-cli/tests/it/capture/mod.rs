//! `corpus capture` against a relay, and against servers that misbehave.

mod peers;

use std::{
    borrow::Cow,
    collections::HashSet,
    fs::{self, Permissions},
    os::unix::{
        fs::{PermissionsExt, symlink},
        process::CommandExt,
    },
    path::Path,
    process::{Child, Command},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, SystemTime},
};

use codecs::{ClientMessage, Event, VerifyLevel};
use corpus::{Corpus, Events, Random, sign_as};
use futures::{SinkExt, StreamExt};
use nix::sys::{
    resource::{UsageWho, getrusage},
    signal::Signal,
};
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio_tungstenite::tungstenite::Message;

use peers::{Act, event_message, guarded, honest, json, relay, relay_behind_tls, scripted, serve};

use crate::{
    Folder, packed,
    ran::{Ran, Runs, send},
};

impl Folder {
    /// A capture of this relay into this file.
    fn capture(&self, url: &str, out: &str, more: &[&str]) -> Command {
        self.corpus(&[&["capture", "--relay", url, "--out", out], more].concat())
    }

    fn captured(&self, url: &str, out: &str, more: &[&str]) -> Ran {
        self.capture(url, out, more).ran().ended(0)
    }
}

fn ids(file: &Path) -> HashSet<[u8; 32]> {
    let events: Vec<_> = Events::open(file, false).unwrap().map(Result::unwrap).collect();
    let ids: HashSet<_> = events.iter().map(|event| event.id).collect();
    assert_eq!(ids.len(), events.len(), "each once");
    events.iter().for_each(|event| event.verify(VerifyLevel::Full).unwrap());
    ids
}

fn ids_of(events: &[Event<'_>]) -> HashSet<[u8; 32]> {
    events.iter().map(|event| event.id).collect()
}

/// The provenance of the last session.
fn session(file: &Path) -> Value {
    let text = fs::read_to_string(format!("{}.provenance.json", file.display())).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    document["sessions"].as_array().unwrap().last().unwrap().clone()
}

/// Events of eight days.
fn some_events(count: usize) -> Vec<Event<'static>> {
    let small: Vec<_> = Corpus::bundled().events.into_iter().filter(|event| event.tags.len() < 50).collect();
    let step = small.len() / count;
    small.into_iter().step_by(step).take(count).collect()
}

#[test]
fn everything_that_relays_have_is_captured_once_and_what_is_old_not_asked_for_again() {
    let folder = Folder::new();
    let events = some_events(700);
    let (a, b) = (relay(events[..500].to_vec(), 60), relay(events[300..].to_vec(), 1_000));
    folder.captured(&a, "all.jsonl.zst", &["--relay", &b]);
    let file = folder.path("all.jsonl.zst");
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
    let requests = |url: &String| {
        let relays = session(&file)["relays"].as_array().unwrap().clone();
        relays.iter().find(|relay| relay["url"] == url.as_str()).unwrap()["requests"].as_u64().unwrap()
    };
    assert!(requests(&a) > 8, "500 events come 60 at a time");

    let again = folder.captured(&a, "all.jsonl.zst", &["--relay", &b]);
    let again = again.saying(&["not asked for again: what is before 17"]);
    assert!(again.out.contains("700 events, 0 of them new"), "{again}");
    assert!(requests(&a) < 8 && requests(&b) <= 3, "{}", session(&file));
    let again = folder.captured(&a, "all.jsonl.zst", &["--relay", &b, "--again"]);
    assert!(!again.said.contains("not asked for again"), "{again}");
    assert!(requests(&a) > 8, "{}", session(&file));
    assert_eq!(ids(&file).len(), 700);
}

#[test]
fn a_relay_behind_tls_is_captured_when_its_certificate_is_trusted() {
    let folder = Folder::new();
    let events = some_events(100);
    let url = relay_behind_tls(events.clone(), &folder);
    folder.captured(&url, "a.jsonl", &["--ca", "cert.pem", "--patience", "5s"]);
    assert_eq!(ids(&folder.path("a.jsonl")), ids_of(&events));
    let relay = &session(&folder.path("a.jsonl"))["relays"][0];
    assert_eq!(relay["url"], url.as_str());
    assert_eq!((&relay["software"], &relay["version"]), (&"a peer".into(), &"7".into()), "by the same --ca");

    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    folder.write("other.pem", other.cert.pem());
    let flags = ["--ca", "other.pem", "--patience", "0.3s"];
    folder.capture(&url, "b.jsonl", &flags).ran().ended(1).saying(&["certificate"]);
}

#[test]
fn a_password_is_in_no_record() {
    let folder = Folder::new();
    let url = relay(some_events(10), 100);
    let secret = url.replace("ws://", "WS://me:s3cret@") + "/";
    let file = folder.path("a.jsonl");
    for (url, events) in [(&secret, "10 of them new"), (&url, "0 of them new")] {
        let Ran { said, out, .. } = folder.captured(url, "a.jsonl", &[]);
        assert!(out.contains(events) && !(said + &out).contains("s3cret"), "{out}");
    }
    let left_out = &session(&file)["relays"][0]["left_out_before"];
    assert!(left_out.is_i64(), "one relay, however it is spelled");
    assert_eq!(session(&file)["relays"][0]["url"], url.as_str());
    let wrong = folder.capture("ws://me:s3cret@127.0.0.1:port", "b.jsonl", &[]).ran();
    assert!(wrong.code != Some(0) && !wrong.said.contains("s3cret"), "{wrong}");
    let nobody = "ws://me:s3cret@127.0.0.1:1";
    let failed = folder.capture(nobody, "c.jsonl", &["--patience", "0.1s"]).ran();
    failed.ended(1).saying(&["ws://127.0.0.1:1: "]);
    assert_no_secret(&folder);
}

fn assert_no_secret(folder: &Folder) {
    for name in folder.names() {
        assert!(!String::from_utf8_lossy(&folder.read(&name)).contains("s3cret"), "{name}");
    }
}

#[test]
fn a_header_field_is_in_every_request_and_its_value_in_no_record() {
    let folder = Folder::new();
    let (url, heads) = guarded(&relay(some_events(10), 100), "x-api-key: s3cret/value");
    let (right, wrong) = ("X-Api-Key=s3cret/value", "X-Api-Key=s3cret/other");
    let run = |out, header| {
        let ran = folder.capture(&url, out, &["--patience", "0.1s", "--header", header]).ran();
        assert!(!ran.said.contains("s3cret") && !ran.out.contains("s3cret"), "{ran}");
        ran
    };
    run("a.jsonl", right).ended(0);
    let session = session(&folder.path("a.jsonl"));
    assert_eq!(
        (&session["headers"], &session["events_new"]),
        (&serde_json::json!(["X-Api-Key"]), &10.into())
    );
    assert_eq!(session["relays"][0]["software"], "a peer", "the document was asked for with it");
    for head in heads.lock().unwrap().iter() {
        assert_eq!(head.to_ascii_lowercase().matches("x-api-key").count(), 1, "{head}");
    }
    run("b.jsonl", wrong).ended(1).saying(&["403"]);
    for (header, why) in [("s3cret", "expected NAME=VALUE"), ("Upgrade=s3cret", "leave it out")] {
        run("c.jsonl", header).ended(2).saying(&[why]);
    }
    assert_no_secret(&folder);
}

#[test]
fn filters_decide_and_their_limit_holds() {
    let folder = Folder::new();
    let events = some_events(600);
    let url = relay(events.clone(), 1_000);
    folder.captured(&url, "notes.jsonl", &["--page", "40", "--filter", r#"{"kinds":[1],"limit":100}"#]);
    let taken = ids(&folder.path("notes.jsonl"));
    let newest: Vec<_> = events.iter().rev().filter(|event| event.kind == 1).take(90).map(|e| e.id).collect();
    assert!(taken.len() <= 100 && newest.iter().all(|id| taken.contains(id)), "{}", taken.len());
}

/// Starts a capture and waits until its file has something.
fn start(url: &str, folder: &Folder, file: &str, time: &str) -> Child {
    let mut child = folder.capture(url, file, &["--for", time]).spawn().unwrap();
    for _ in 0..400 {
        if fs::metadata(folder.path(file)).is_ok_and(|file| file.len() > 20_000) {
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
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let folder = Folder::new();
        let url = relay(events.clone(), 100);
        let child = start(&url, &folder, "live.jsonl", "5m");
        send(signal, child.id());
        child.ran().ended(130);
        let file = folder.path("live.jsonl");
        let taken = ids(&file);
        assert!(taken.is_subset(&ids_of(&events)) && !taken.is_empty());
        let session = session(&file);
        assert_eq!(
            (&session["ended_because"], &session["events_new"]),
            (&"interrupted".into(), &taken.len().into())
        );
        folder.captured(&url, "live.jsonl", &[]);
        assert_eq!(ids(&file), ids_of(&events), "the rest came with the second run");
    }
}

#[test]
fn live_events_are_taken_until_the_time_is_over() {
    let folder = Folder::new();
    let events = some_events(100);
    let url = relay(events.clone(), 1_000);
    let child = start(&url, &folder, "live.jsonl", "4s");
    // Whatever their dates.
    let published = [now() + 7_200, now() - 2 * DAY, 7].map(|created_at| note(created_at, "live"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (mut socket, _) = tokio_tungstenite::connect_async(&url).await.unwrap();
        for event in &published {
            let mut message = Vec::new();
            json().encode_client(&ClientMessage::Event(Cow::Borrowed(event)), &mut message).unwrap();
            socket.send(Message::text(String::from_utf8(message).unwrap())).await.unwrap();
            socket.next().await.unwrap().unwrap();
        }
    });
    let ran = child.ran().ended(0);
    assert!(ran.out.contains("the time was over"), "{ran}");
    let expected = ids_of(&[&events[..], &published].concat());
    assert_eq!(ids(&folder.path("live.jsonl")), expected, "{ran}");
}

const DAY: i64 = 86_400;

fn now() -> i64 {
    i64::try_from(SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs()).unwrap()
}

fn note(created_at: i64, words: &str) -> Event<'static> {
    let mut event = Event::unsigned(1, created_at, Vec::new(), words.to_owned());
    sign_as(&mut event, words);
    event
}

/// Captures a relay again and again while events come to it: new ones, some dated ahead, late and
/// backdated ones, and imports of any age. Its clock runs from weeks ago to two hours ahead of the
/// one here.
fn captures_of_a_changing_relay(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let random = &mut Random::new("changing relay", seed);
        let folder = Folder::new();
        let file = folder.path("a.jsonl");
        let seconds = |random: &mut Random, most: i64| random.below(usize::try_from(most).unwrap()) as i64;
        let stored = peers::Stored::default();
        // No page holds less than the events of a second: nobody could ask for the rest.
        let url = peers::changing(&stored, 4 + random.below(30));
        // Of these a capture without --again promises nothing.
        let mut imported = HashSet::new();
        let captures = 2 + random.below(4);
        let mut clock =
            now() + seconds(random, 4 * 3_600) - 2 * 3_600 - if seed % 2 == 0 { 0 } else { 30 * DAY };
        for nth in 0..captures {
            for n in 0..random.below(30) {
                let created_at = match (nth, random.below(8)) {
                    // What is there at first is of any age.
                    (0, _) => clock - seconds(random, 60 * DAY),
                    (_, 0) => clock + seconds(random, 900),
                    (_, 1..=3) => clock - seconds(random, 2 * DAY + 2 * 3_600),
                    (_, 4) => clock - seconds(random, 60 * DAY),
                    _ => clock - seconds(random, 60),
                };
                let event = note(created_at, &format!("{seed} {nth} {n}"));
                if nth > 0 && created_at < clock - 2 * DAY - 2 * 3_600 {
                    imported.insert(event.id);
                }
                stored.lock().unwrap().push(event);
            }
            let count = stored.lock().unwrap().len().saturating_sub(random.below(3));
            let is_last = nth + 1 == captures;
            let count = if is_last || random.below(2) == 0 { usize::MAX } else { count };
            let ran = folder.capture(&url, "a.jsonl", &["--count", &count.to_string()]).ran();
            assert!(stored.lock().unwrap().is_empty() || ran.code == Some(0), "seed {seed}: {ran}");
            if count == usize::MAX {
                let mut expected = ids_of(&stored.lock().unwrap());
                let taken = ids(&file);
                expected.retain(|id| !taken.contains(id) && !imported.contains(id));
                assert!(expected.is_empty(), "seed {seed}, capture {nth}: {} are missing", expected.len());
            }
            let most = [300, 6 * DAY][random.below(2)];
            clock = (clock + seconds(random, most)).min(now() + 7_200);
        }
        folder.capture(&url, "a.jsonl", &["--again"]).ran();
        assert_eq!(ids(&file), ids_of(&stored.lock().unwrap()), "seed {seed}, all that was asked for again");
    }
}

#[test]
fn nothing_is_missing_of_a_relay_whose_history_changes() {
    captures_of_a_changing_relay(0..30);
}

#[test]
#[ignore = "a campaign of a thousand relays"]
fn campaign_of_changing_relays() {
    captures_of_a_changing_relay(0..1_000);
}

#[test]
fn an_import_is_found_where_its_newest_events_lead_to_it() {
    let (mut first, mut imported) = (some_events(600), Vec::new());
    for n in (0..60).rev() {
        imported.push(first.remove(n * 10));
    }
    let stored = std::sync::Arc::new(std::sync::Mutex::new(first));
    let url = peers::changing(&stored, 100);
    let folder = Folder::new();
    folder.captured(&url, "a.jsonl", &[]);
    stored.lock().unwrap().extend(imported);
    folder.captured(&url, "a.jsonl", &[]);
    assert_eq!(ids(&folder.path("a.jsonl")).len(), 600);
}

#[test]
fn a_clock_that_disagrees_with_the_relay_is_named_and_settles_nothing() {
    let folder = Folder::new();
    for (date, newest, words) in [
        (-7_200, -7_300, Some("the clock here is 7200 s ahead of the relay's")),
        (7_200, 7_000, Some("the clock here is 7200 s behind the relay's")),
        (0, 7_200, Some("its newest event is 7200 s ahead of the clock here")),
        (-30, -10, None),
    ] {
        let events: Vec<_> = (0..50).map(|n| note(now() + newest - n * DAY / 4, &n.to_string())).collect();
        let url = peers::dated(&relay(events, 100), date);
        let name = format!("at{date}.jsonl");
        let said = folder.capture(&url, &name, &[]).ran().said;
        // A second may pass.
        let doubts = ["the clock here is", "its newest event is"].iter().any(|words| said.contains(words));
        assert_eq!(doubts, words.is_some(), "{said}");
        let about = |words: &str| [0, 1].map(|more| words.replace("7200", &(7_200 + more - 1).to_string()));
        assert!(
            words.is_none_or(|words| said.contains(words) || about(words).iter().any(|w| said.contains(w))),
            "{said}"
        );
        let from = session(&folder.path(&name))["relays"][0]["settled"][0]["from"].as_i64().unwrap();
        assert!(from <= now() + date.min(0).min(newest) - 2 * DAY, "{from}");
    }
}

#[test]
fn what_is_wrong_is_refused_with_its_reason() {
    let folder = Folder::new();
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
            Act::Say(r#"["NOTICE","be nice\u001b[2J\r\nws://honest: 9 new"]"#.to_owned()),
            Act::Say(r#"["CLOSED","other","\u009b2J\u202e"]"#.to_owned()),
        ];
        acts.extend(honest(request, &[sent[0].clone(), sent[0].clone(), sent[4].clone()]));
        acts
    });
    let Ran { said, out, .. } = folder.captured(&url, "a.jsonl", &["--patience", "2s"]);
    let said = said + &out;
    let file = folder.path("a.jsonl");
    assert_eq!(ids(&file), ids_of(&[events[0].clone(), events[4].clone()]));
    let relay = &session(&file)["relays"][0];
    let rejected = |reason: &str| relay["rejected"][reason].as_u64().unwrap_or(0);
    for reason in ["signature does not verify", "event id does not match", "not asked for"] {
        assert!(rejected(reason) >= 1, "{reason}: {relay}");
    }
    assert!(rejected("not a message of NIP-01") >= 3, "{relay}");
    assert!(!relay["rejected_examples"].as_array().unwrap().is_empty());
    assert_eq!(relay["notices"][0], r"NOTICE be nice\u{1b}[2J\r\nws://honest: 9 new");
    assert_eq!(relay["notices"][1], r"CLOSED other: \u{9b}2J\u{202e}");
    assert!(said.contains("be nice") && !said.contains(|c: char| c.is_control() && c != '\n'), "{said:?}");
}

#[test]
fn a_relay_that_hangs_up_is_asked_again() {
    let folder = Folder::new();
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
    folder.captured(&url, "a.jsonl", &["--patience", "2s"]);
    let file = folder.path("a.jsonl");
    assert_eq!(ids(&file), ids_of(&events));
    assert_eq!(session(&file)["relays"][0]["connections"], 3);
    let peak_kb = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap().max_rss();
    assert!(peak_kb < 300 << 10, "{peak_kb} KB of memory");
}

#[test]
fn a_relay_that_is_away_for_a_while_is_not_given_up_while_live_events_are_taken() {
    let events = some_events(2);
    let sent = events.clone();
    let url = scripted(move |connection, request| match connection {
        0 => {
            let mut acts = honest(request, &sent[..1]);
            // Behind the answers to both requests it leaves.
            if matches!(request, ClientMessage::Req { subscription, .. } if *subscription != "live") {
                acts.push(Act::HangUp);
            }
            acts
        }
        1..=9 => vec![Act::HangUp],
        _ => honest(request, &sent),
    });
    let folder = Folder::new();
    let flags = ["--patience", "0.3s", "--for", "2min", "--count", "2"];
    let ran = folder.captured(&url, "a.jsonl", &flags);
    assert_eq!(ids(&folder.path("a.jsonl")), ids_of(&events), "{ran}");
    assert_eq!(session(&folder.path("a.jsonl"))["relays"][0]["failure"], Value::Null);
}

/// A server that takes connections and says nothing.
fn mute() -> String {
    serve(|listener| async move {
        let mut streams = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            streams.push(stream);
        }
    })
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
    let silent = mute();
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nobody = format!("ws://{nobody}");
    for (url, taken, why) in
        [(&endless, 4, "no answer for 0.3 s"), (&silent, 0, "no complete handshake"), (&nobody, 0, "refused")]
    {
        let folder = Folder::new();
        let ran = folder.capture(url, "a.jsonl", &["--patience", "0.3s"]).ran();
        ran.ended(i32::from(taken == 0)).saying(&["given up", why]);
        assert_eq!(ids(&folder.path("a.jsonl")).len(), taken);
        assert!(session(&folder.path("a.jsonl"))["relays"][0]["failure"].is_string());
    }
}

#[test]
fn a_flood_of_pings_takes_no_memory() {
    let url = serve(|listener| async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(socket) = tokio_tungstenite::accept_async(stream).await else { continue };
            let pings = [&[0x89, 125][..], &[7; 125]].concat().repeat(1_000);
            let mut stream = socket.into_inner();
            // The client hangs up on a peer that never reads its Pongs.
            while stream.write_all(&pings).await.is_ok() {}
        }
    });
    let folder = Folder::new();
    let mut child = folder.capture(&url, "a.jsonl", &["--patience", "1s", "--for", "3s"]).spawn().unwrap();
    let mut peak_kb = 0;
    while child.try_wait().unwrap().is_none() {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        peak_kb = line.map_or(peak_kb, |kb| kb.trim().trim_end_matches(" kB").parse().unwrap());
        thread::sleep(Duration::from_millis(20));
    }
    assert!((1..100 << 10).contains(&peak_kb), "{peak_kb} KB of memory");
}

#[test]
fn a_capture_that_waits_says_so_and_why_a_relay_is_asked_again() {
    let silent = scripted(|_, _| Vec::new());
    let folder = Folder::new();
    let ran = folder.capture(&silent, "a.jsonl", &["--patience", "2.5s", "--for", "3s"]).ran();
    let again = format!("{silent}: no answer for 2.5 s; asked again in");
    let said = ran.saying(&["captured 0 events; 0 a second", &again]).said;
    assert!(!said.contains(['\u{1b}', '\r']), "{said:?}");
}

#[test]
fn too_few_processes_end_a_capture_with_the_limit_to_raise() {
    let folder = Folder::new();
    fs::set_permissions(folder.path(""), Permissions::from_mode(0o755)).unwrap();
    // Where nobody may run it: the limit does not hold for root.
    let program = folder.path("corpus");
    fs::copy(env!("CARGO_BIN_EXE_corpus"), &program).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -u 1 2>&- || ulimit -p 1; exec \"$@\"", "sh"]);
    command.arg(&program).args(["capture", "--relay", "ws://127.0.0.1:9", "--out", "a.jsonl"]);
    if nix::unistd::geteuid().is_root() {
        command.uid(65_534);
    }
    command.current_dir(folder.path("")).ran().ended(1).saying(&["raise the limit of processes"]);
}

#[test]
fn mistakes_are_answered_before_the_work() {
    let folder = Folder::new();
    for (url, out, more, answer) in [
        ("https://example.com", "a.jsonl", [].as_slice(), "expected ws://"),
        ("ws://127.0.0.1:1", "a.csv", &[], "known: .jsonl"),
        ("ws://127.0.0.1:1", "a.jsonl", &["--for", "10d"], "as in 10, 10s, 500ms, 2m or 1h"),
        ("ws://127.0.0.1:1", "a.jsonl", &["--compression", "zstd"], "expected none or deflate"),
        ("wss://127.0.0.1:1", "a.jsonl", &["--ca", "none.pem"], "none.pem"),
        ("ws://127.0.0.1:1", "a.jsonl", &["--filter", r#"{"kind":1}"#], "NIP-01 filter"),
        ("ws://127.0.0.1:1", "a.jsonl", &["--filter", "{},{}"], "NIP-01 filter"),
        ("ws://127.0.0.1:1", "a.jsonl", &["--filter", r#"{"kinds":[65536]}"#], "NIP-01 filter"),
    ] {
        let ran = folder.capture(url, out, more).ran().saying(&[answer]);
        assert_ne!(ran.code, Some(0), "{ran}");
    }
    assert!(folder.names().is_empty(), "nothing is left behind");
    nix::unistd::mkfifo(&folder.path("a.jsonl"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    folder.capture("ws://127.0.0.1:1", "a.jsonl", &[]).ran().ended(1).saying(&["name a file"]);
}

/// Every name of a file that a capture can continue.
const NAMES: [&str; 5] = ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.pb.gz", "a.notepack.txt"];

fn lines(events: &[Event<'_>]) -> Vec<Vec<u8>> {
    events.iter().map(|event| [crate::json(event), b"\n".to_vec()].concat()).collect()
}

#[test]
fn a_last_line_without_its_end_is_an_event_like_others() {
    let events = some_events(60);
    let url = relay(events.clone(), 1_000);
    for name in ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"] {
        let folder = Folder::new();
        let mut text_of_user = lines(&events[..40]).concat();
        text_of_user.pop();
        let before = packed(name, &text_of_user);
        folder.write(name, &before);
        for _ in 0..2 {
            folder.captured(&url, name, &[]);
            assert!(folder.read(name).starts_with(&before), "{name}: nothing of the user's is changed");
            assert_eq!(ids(&folder.path(name)), ids_of(&events), "{name}");
        }
    }
}

#[test]
fn what_is_no_cut_is_named_and_left_alone() {
    let events = some_events(60);
    let url = relay(events.clone(), 1_000);
    let good = lines(&events[..40]);
    let with = |place: usize, line: &[u8]| {
        let mut lines = good.clone();
        lines.insert(place, line.to_vec());
        lines.concat()
    };
    let kind_unknown =
        String::from_utf8(good[0].clone()).unwrap().replacen("\"kind\":", "\"kind\":641204", 1);
    let mut flipped = packed("a.jsonl.gz", &good.concat());
    let middle = flipped.len() / 2;
    flipped[middle] ^= 0x40;
    let behind = |name: &str| [packed(name, &good.concat()), b"and more".to_vec()].concat();
    let half = &good.concat()[..good.concat().len() - 30];
    for (name, bytes, says) in [
        ("a.jsonl", with(9, b"{}\n"), "line 10"),
        ("a.jsonl", with(9, kind_unknown.as_bytes()), "line 10"),
        ("a.jsonl", with(40, b"{}"), "line 41"),
        ("a.jsonl", with(40, b"hello"), "line 41"),
        ("a.jsonl", with(20, b"\x00\xff\n"), "line 21"),
        ("a.jsonl.gz", packed("a.gz", &with(9, b"{}\n")), "line 10"),
        ("a.jsonl.zst", packed("a.zst", &with(9, b"{}\n")), "line 10"),
        // A whole stream: its last line was written so.
        ("a.jsonl.gz", packed("a.gz", half), "line 40"),
        ("a.jsonl.zst", packed("a.zst", half), "line 40"),
        ("a.jsonl.gz", flipped, "a.jsonl.gz"),
        ("a.jsonl.gz", behind("a.gz"), "a.jsonl.gz"),
        ("a.jsonl.zst", behind("a.zst"), "a.jsonl.zst"),
        ("a.pb.gz", packed("a.gz", &[200, 1, 7, 7]), "a.pb.gz"),
        ("a.notepack.txt", b"not this\n".to_vec(), "line 1"),
        ("a.jsonl.gz", good.concat(), "its name says gzip, its content is uncompressed"),
        ("a.jsonl", packed("a.gz", &good.concat()), "its name says uncompressed, its content is gzip"),
        ("a.jsonl.zst", packed("a.gz", &good.concat()), "its name says zstd, its content is gzip"),
    ] {
        let folder = Folder::new();
        folder.write(name, &bytes);
        folder.capture(&url, name, &[]).ran().ended(1).saying(&[says, name]);
        assert_eq!(folder.read(name), bytes, "{name}, {says}");
        assert_eq!(folder.names(), [name], "{says}: no other file");
    }
}

#[test]
fn a_cut_is_mended_only_for_new_events_and_its_bytes_are_kept() {
    let events = some_events(60);
    let url = relay(events.clone(), 1_000);
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nobody = format!("ws://{nobody}");
    for name in NAMES {
        let folder = Folder::new();
        let file = folder.path(name);
        // Two streams, of which the second is cut.
        for (count, expected) in [("20", 20), ("20", 20), ("40", 40)] {
            folder.captured(&url, name, &["--count", count]);
            assert_eq!(ids(&file).len(), expected, "{name}");
        }
        let whole = folder.read(name);
        let cut = &whole[..whole.len() - 9];
        folder.write(name, cut);
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        // A copy of another crash, which is not overwritten.
        let (stem, extension) = name.split_once('.').unwrap();
        let mine = format!("{stem}.cut-1.{extension}");
        folder.write(&mine, "mine");
        let link = format!("link.{extension}");
        symlink(name, folder.path(&link)).unwrap();

        folder.capture(&nobody, &link, &["--patience", "0.1s"]).ran().ended(1);
        assert_eq!(folder.read(name), cut, "{name}: no relay answered, nothing is changed");

        let ran = folder.captured(&url, &link, &[]);
        assert!(ran.to_string().contains("cut-2"), "{ran}");
        assert_eq!(ids(&file), ids_of(&events), "{name}");
        assert_eq!(folder.read(&mine), b"mine");
        let kept = folder.read(&format!("{stem}.cut-2.{extension}"));
        assert!(!kept.is_empty() && cut.ends_with(&kept), "{name}");
        let stays = &cut[..cut.len() - kept.len()];
        assert!(folder.read(name).starts_with(stays), "{name}");
        assert!(folder.path(&link).is_symlink(), "{name}");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640, "{name}");
    }
}

#[test]
fn one_capture_at_a_time_writes_a_file() {
    let events = some_events(400);
    let url = relay(events.clone(), 100);
    let folder = Folder::new();
    let mut first = start(&url, &folder, "a.jsonl", "5m");
    symlink("a.jsonl", folder.path("b.jsonl")).unwrap();
    for name in ["a.jsonl", "b.jsonl"] {
        folder.capture(&url, name, &[]).ran().ended(1).saying(&["another capture writes"]);
    }
    // The lock ends with its process, however that ends.
    first.kill().unwrap();
    first.wait().unwrap();
    folder.captured(&url, "b.jsonl", &[]);
    assert_eq!(ids(&folder.path("a.jsonl")), ids_of(&events));
}

/// Kills captures, or leaves them `blocks` of 512 bytes of disk, and looks what became of the file.
fn interrupted(rounds: usize) {
    let events = some_events(400);
    let url = relay(events.clone(), 40);
    for round in 0..rounds {
        let name = NAMES[round % NAMES.len()];
        let folder = Folder::new();
        let file = folder.path(name);
        folder.captured(&url, name, &["--count", "90"]);
        let before = folder.read(name);
        let mine = ids(&file);
        if round % 2 == 0 {
            let mut child = folder.capture(&url, name, &[]).spawn().unwrap();
            thread::sleep(Duration::from_millis(7 * (round as u64 % 31)));
            child.kill().unwrap();
            child.wait().unwrap();
        } else {
            let blocks = before.len() / 512 + 1 + round % 60;
            folder.starved(blocks, &["capture", "--relay", &url, "--out", name]).ran();
        }
        assert!(folder.read(name).starts_with(&before), "{name}, round {round}");
        folder.captured(&url, name, &[]);
        assert!(folder.read(name).starts_with(&before), "{name}, round {round}");
        let all = ids(&file);
        assert!(mine.is_subset(&all) && all == ids_of(&events), "{name}, round {round}");
    }
}

#[test]
fn captures_that_are_killed_or_starved_of_disk_leave_what_was_there() {
    interrupted(10);
}

#[test]
#[ignore = "a campaign of a hundred interrupted captures"]
fn campaign_of_interrupted_captures() {
    interrupted(100);
}

#[test]
fn refused_events_do_not_end_a_history() {
    let events = some_events(25);
    let mut sorted = events.clone();
    sorted.sort_by_key(|event| std::cmp::Reverse(event.created_at));
    let newest = sorted[0].created_at;
    for dated in [true, false] {
        let sent = sorted.clone();
        let url = scripted(move |_, request| {
            let ClientMessage::Req { subscription, filters } = request else { return vec![] };
            let until = filters[0].until.unwrap_or(i64::MAX);
            // Five of a kind that NIP-01 does not know, newer than all others.
            let strange = (1..=5).map(|second| newest + second).filter(|time| *time <= until).rev();
            let time = |at: i64| if dated { format!("\"created_at\":{at},") } else { String::new() };
            let strange = strange.map(|at| {
                let event = format!("{{\"id\":\"x\",{}\"kind\":641204}}", time(at));
                Act::Say(format!("[\"EVENT\",\"{subscription}\",{event}]"))
            });
            let good = sent.iter().filter(|event| filters[0].matches(event));
            let mut acts: Vec<_> =
                strange.chain(good.map(|event| event_message(request, event))).take(5).collect();
            acts.push(Act::Say(format!("[\"EOSE\",\"{subscription}\"]")));
            acts
        });
        let folder = Folder::new();
        let ran = folder.capture(&url, "a.jsonl", &["--page", "5", "--patience", "2s"]).ran();
        let (ran, file) = (ran.ended(i32::from(!dated)), folder.path("a.jsonl"));
        if dated {
            assert_eq!(ids(&file), ids_of(&events), "{ran}");
        } else {
            ran.saying(&["or have no time"]);
            assert_eq!(session(&file)["relays"][0]["settled"], serde_json::json!([]), "nothing is settled");
        }
    }
}

/// A relay's answer to a REQ, by the number of the request, and its events by days before the newest.
fn answered(
    answer: impl Fn(usize, &ClientMessage<'_>, &[Event<'static>]) -> Vec<Act> + Send + 'static,
) -> String {
    let events: Vec<_> = (0..20).map(|n| note(1_700_000_000 - n * DAY, &n.to_string())).collect();
    let requests = AtomicUsize::new(0);
    scripted(move |_, request| answer(requests.fetch_add(1, Ordering::Relaxed), request, &events))
}

#[test]
fn a_relay_that_knows_no_until_has_more_than_it_sends() {
    let url = answered(|_, request, events| {
        let newest = events.iter().take(5).map(|event| event_message(request, event));
        newest.chain([peers::eose(request)]).collect()
    });
    let folder = Folder::new();
    let ran = folder.captured(&url, "a.jsonl", &["--patience", "2s"]);
    let ran = ran.saying(&["given up: a page held nothing but events that were not asked for"]);
    assert!(ran.out.contains("5 of them new; of relays that were given up more may be missing"), "{ran}");
    let settled = session(&folder.path("a.jsonl"))["relays"][0]["settled"].clone();
    let oldest = settled.as_array().unwrap().iter().map(|span| span["to"].as_i64().unwrap()).min();
    assert!(oldest.is_none_or(|oldest| oldest >= 1_700_000_000 - 4 * DAY - 1), "{settled}");
}

#[test]
fn an_answer_that_stops_before_its_end_in_no_order_is_asked_for_again() {
    let url = answered(|nth, request, events| {
        let ClientMessage::Req { filters, .. } = request else { return vec![] };
        if nth == 0 {
            // No EOSE, and thirteen in between did not come.
            let some = events[..5].iter().chain([&events[19], &events[5]]);
            return some.map(|event| event_message(request, event)).collect();
        }
        let limit = usize::try_from(filters[0].limit.unwrap()).unwrap();
        let found = events.iter().filter(|event| filters[0].matches(event)).take(limit);
        honest(request, &found.cloned().collect::<Vec<_>>())
    });
    let folder = Folder::new();
    let file = folder.path("a.jsonl");
    folder.captured(&url, "a.jsonl", &["--patience", "0.5s"]);
    assert_eq!(ids(&file).len(), 7);
    folder.captured(&url, "a.jsonl", &["--page", "5", "--patience", "2s"]);
    assert_eq!(ids(&file).len(), 20, "{}", session(&file));
}

#[test]
fn a_crowded_second_is_asked_for_again_by_a_capture_with_larger_pages() {
    let mut events = some_events(40);
    for (n, event) in events.iter_mut().enumerate() {
        event.created_at = 1_700_000_000 - if n < 30 { 5 * (n as i64 / 15) } else { n as i64 };
        sign_as(event, &format!("author {n}"));
    }
    let url = relay(events.clone(), 1_000);
    let folder = Folder::new();
    let file = folder.path("a.jsonl");
    let capture = |page: &str| {
        folder.captured(&url, "a.jsonl", &["--page", page]);
        session(&file)["relays"][0].clone()
    };
    assert_eq!(capture("5")["crowded_seconds"], 2);
    assert!(ids(&file).len() < 40);
    let again = capture("5");
    assert_eq!(again["crowded_seconds"], 2, "what is missing is named again");
    assert_eq!(capture("20")["crowded_seconds"], 0);
    assert_eq!(ids(&file), ids_of(&events));
}
