//! The rehearsal against relay-sim and against peers that are no relays.

use std::collections::BTreeMap;

use codecs::{Event, Filter, Limits};
use corpus::rules::Property;
use serde_json::{Value, json};
use tokio::{net::TcpListener, time::Instant};
use wire::{Accepted, ServerConfig, Support, WireLimits};

use super::{needs::json_bytes, *};
use crate::sockets::dial::endpoint;

/// Silence takes time.
const PATIENCE: Duration = Duration::from_millis(700);

async fn asked(relay: &Endpoint, needs: &Needs) -> Answers {
    ask(relay, needs, (1, &Signing::default()), true, PATIENCE).await.unwrap()
}

/// A relay that is served as this has it.
async fn serving<F: Future<Output = ()> + Send + 'static>(serve: impl FnOnce(TcpListener) -> F) -> Endpoint {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    tokio::spawn(serve(listener));
    endpoint(&url, None, &[]).unwrap()
}

/// A server with this NIP-11 document that sends these messages for each that comes.
async fn answering(document: &'static str, answers: fn(Value) -> Vec<String>) -> Endpoint {
    serving(move |listener| async move {
        let support = Support::default();
        let limits = WireLimits::default();
        let config = ServerConfig { support, limits, relay_info: document.into(), tls: None };
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(Accepted::WebSocket(mut peer)) = wire::accept(stream, &config).await else { continue };
            while let Some(Ok(message)) = peer.next().await {
                for answer in answers(serde_json::from_slice(&message.payload).unwrap()) {
                    peer.feed(answer.into()).await.unwrap();
                }
                peer.flush().await.ok();
            }
        }
    })
    .await
}

/// Needs of a plan that writes events of these kinds and nothing else.
fn writes(kinds: &[u16]) -> Needs {
    let bundled = Corpus::bundled().events;
    let one = |kind: u16| {
        let smallest =
            bundled.iter().filter(|event| event.kind == kind).min_by_key(|event| json_bytes(event));
        Event { kind, ..smallest.unwrap_or(&bundled[0]).clone() }
    };
    let written = kinds.iter().map(|kind| (*kind, one(*kind))).collect();
    Needs { written, stored: true, ..Needs::default() }
}

#[tokio::test]
async fn all_but_what_has_bounds_is_taken_and_those_are_named_with_the_flag_that_widens_them() {
    let lists = "entries in a list of a request for kinds 1, 4";
    let most = [
        (needs::CONNECTIONS, 12),
        (needs::SUBSCRIPTIONS, 9),
        (needs::STORED, 100),
        (needs::UNLIMITED, 31),
        (lists, 150),
    ];
    let properties = [
        (Property::EventBytes, 60_000),
        (Property::EventTags, 500),
        (Property::TagValueBytes, 400),
        (Property::OddReferences, 1),
        (Property::Oldest, -1_600_000_000),
        (Property::Newest, talk::now_s() + 900),
    ];
    let authors = Some((0..150).map(|n| [n; 32]).collect());
    let wide = Filter { kinds: Some(vec![1, 4]), authors, ..Filter::default() };
    let needs = Needs {
        most: most.map(|(what, number)| (what.to_owned(), number)).into(),
        properties: properties.into(),
        requests: [(lists.to_owned(), wide)].into(),
        reconciles: true,
        live: true,
        ..writes(&[0, 1, 5, 7, 1059, 30023, 20_001])
    };
    let mut config = relay_sim::Config::default();
    (config.max_subscriptions, config.max_limit, config.default_limit) = (3, 50, 30);
    config.limits = Limits { max_filter_values: 100, ..Limits::default() };
    config.wire.max_message_bytes = 20_000;
    let relay = serving(|listener| async move {
        relay_sim::serve(listener, config, std::future::pending()).await.unwrap();
    });
    let relay = relay.await;
    let answers = asked(&relay, &needs).await;
    let written = serde_json::to_string(&answers).unwrap();
    assert_eq!(serde_json::from_str::<Answers>(&written).unwrap(), answers);
    assert_eq!((&answers.stopped, &answers.rules.kinds), (&None, &BTreeMap::new()), "{answers:?}");
    assert!(answers.does(answers::READ) && answers.does(answers::RECONCILE), "{answers:?}");
    assert_eq!(answers.rules.bounds.keys().collect::<Vec<_>>(), [&Property::EventBytes], "{answers:?}");
    let bytes = &answers.rules.bounds[&Property::EventBytes];
    assert!((19_000..20_000).contains(&bytes.most) && bytes.said.contains("connection ended"), "{bytes:?}");
    let bound = |what: &str| answers.bounds[what].most;
    assert_eq!((bound(needs::SUBSCRIPTIONS), bound(needs::STORED), bound(lists)), (3, 50, 100));
    let reasons = table::refusal(&answers, &needs).unwrap();
    let flags = ["--max-subscriptions", "--max-limit", "--default-limit"];
    for says in
        [&flags[..], &["it takes 100 entries in a list of a re", "max_subscriptions of NIP-11"]].concat()
    {
        assert!(reasons.contains(says), "{says} in {reasons}");
    }
    assert!(!reasons.contains("--max-message-bytes"), "large events are set aside: {reasons}");
    let narrow = Needs { requests: BTreeMap::new(), most: BTreeMap::new(), ..needs };
    assert_eq!(table::refusal(&answers, &narrow), None, "what a plan does not need is no reason");

    let formats = ["json", "cbor-packed"].map(|name| name.parse().unwrap());
    let compressions = ["none", "deflate"].map(|name| name.parse().unwrap());
    let tokens = answers.info.unwrap().tokens;
    let granted = handshakes::all(&relay, (&formats, &compressions), &tokens, PATIENCE * 10).await;
    assert_eq!(granted.len(), 6);
    assert!(granted.iter().all(|one| one.granted.as_ref() == Ok(&one.compression)), "{granted:?}");
}

#[tokio::test]
async fn a_peer_that_is_no_relay_is_refused_soon_with_what_it_said() {
    type Answers = fn(Value) -> Vec<String>;
    let cases: [(Answers, _); 3] = [
        (|_| vec![], "the relay answers neither EVENT nor REQ"),
        (|message| vec![message.to_string()], "EVENT nor REQ; it said [\"REQ\","),
        (|_| vec!["hello".to_owned()], "EVENT nor REQ; it said hello"),
    ];
    for (answers, says) in cases {
        let began = Instant::now();
        let answers = asked(&answering("<html>", answers).await, &writes(&[1])).await;
        let reasons = table::refusal(&answers, &writes(&[1])).unwrap();
        assert!(reasons.contains(says) && reasons.len() < 500, "{reasons}");
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    }
}

#[tokio::test]
async fn what_a_newer_event_replaced_is_not_missing_and_what_nobody_stores_neither() {
    let relay = answering("<html>", |message| {
        if message[0] == "EVENT" {
            return vec![json!(["OK", message[1]["id"], true, ""]).to_string()];
        }
        let newer = message[2]["authors"][0].as_str().map(|author| {
            let (id, sig) = ("ab".repeat(32), "ab".repeat(64));
            json!(["EVENT", message[1], {
                "id": id, "pubkey": author, "created_at": 4_000_000_000_i64, "kind": 0,
                "tags": [], "content": "", "sig": sig,
            }])
        });
        let end = json!(["EOSE", message[1]]);
        newer.into_iter().chain([end]).map(|message| message.to_string()).collect()
    });
    let answers = asked(&relay.await, &writes(&[0, 1, 20_001])).await;
    let kinds: Vec<_> = answers.rules.kinds.iter().map(|(kind, withheld)| (*kind, &*withheld.why)).collect();
    assert_eq!(kinds, [(1, "accepted and not given back")], "{answers:?}");
}

#[tokio::test]
async fn proof_of_work_is_learnt_from_the_document_and_has_a_bound() {
    let strict = |message: Value| {
        let about = &message[1];
        let id = about["id"].as_str().and_then(|id| u8::from_str_radix(&id[..2], 16).ok());
        let answer = match id {
            Some(first) if first.leading_zeros() < 5 => json!(["OK", about["id"], false, "pow: 5 bits"]),
            Some(_) => json!(["OK", about["id"], true, ""]),
            None => json!(["EOSE", about]),
        };
        vec![answer.to_string()]
    };
    let relay = answering(r#"{"limitation":{"min_pow_difficulty":5}}"#, strict).await;
    let answers = asked(&relay, &writes(&[20_001, 20_002])).await;
    let found = (answers.work_bits, answers.rules.kinds.len(), &answers.stopped);
    assert_eq!(found, (5, 0, &None), "{answers:?}");
    let relay = answering(r#"{"limitation":{"min_pow_difficulty":40}}"#, strict).await;
    let refusal = table::refusal(&asked(&relay, &writes(&[1])).await, &writes(&[1])).unwrap();
    assert!(refusal.contains("asks for 40 bits") && refusal.contains("20 at most"), "{refusal}");
}

#[test]
fn answers_of_another_relay_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("doctor.json");
    let written = |url: &str| {
        std::fs::write(&file, json!({ "url": url }).to_string()).unwrap();
        read(&file, Some(&"ws://me:s3cret@127.0.0.1:7777".parse().unwrap()))
    };
    assert!(written("ws://127.0.0.1:7777").is_ok() && written("ws://127.0.0.1:7777/").is_ok());
    assert!(written("").is_ok(), "answers that name no relay");
    let error = written("ws://127.0.0.1:8888").unwrap_err().to_string();
    for says in ["doctor.json is about ws://127.0.0.1:8888, not ws://127.0.0.1:7777", "--json"] {
        assert!(error.contains(says), "{error}");
    }
}

#[tokio::test]
async fn handshakes_that_take_too_long_are_not_known_and_no_reason_against_a_scenario() {
    let mute = serving(|listener| async move {
        let mut streams = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            streams.push(stream);
        }
    });
    let compressions = ["none", "deflate"].map(|name| name.parse().unwrap());
    let handshakes = handshakes::all(&mute.await, (&[Format::JSON], &compressions), &[], PATIENCE).await;
    let why = |one: &answers::Handshake| one.granted.clone().unwrap_err();
    assert!(handshakes.len() == 3 && handshakes.iter().all(|one| why(one).starts_with("not known")));
    let answers = Answers { handshakes, ..Answers::default() };
    assert_eq!(table::refusal(&answers, &Needs::default()), None);
}
