//! The probes against relay-sim in several configurations, and against peers that are no relays.

use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use codecs::Limits;
use corpus::Rules;
use relay_sim::Config;
use tokio::{net::TcpListener, sync::oneshot};
use wire::{Accepted, ServerConfig, Support, WireLimits};

use super::{
    answers::{Answer, Demand, Ties},
    *,
};
use crate::sockets::dial::endpoint;

/// Silence takes time.
const PATIENCE: Patience =
    Patience { usual: Duration::from_millis(700), longest: Duration::from_millis(2_500) };

/// Answers of the relay at this address.
fn ask(relay: &Endpoint, needs: &Needs, offers: Option<&handshakes::Offers>) -> anyhow::Result<Answers> {
    interruption::block_on(super::ask(relay, needs, offers, PATIENCE))
}

/// A server in a thread of its own, which ends when this is dropped.
struct Server {
    url: String,
    stop: Option<oneshot::Sender<()>>,
}

impl Server {
    fn endpoint(&self) -> Endpoint {
        endpoint(&self.url, None, &[]).unwrap()
    }

    fn start<F: Future<Output = ()>>(
        serve: impl FnOnce(TcpListener, oneshot::Receiver<()>) -> F + Send + 'static,
    ) -> Server {
        let (stop, stopped) = oneshot::channel();
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                tell.send(format!("ws://{}", listener.local_addr().unwrap())).unwrap();
                serve(listener, stopped).await;
            });
        });
        Server { url: told.recv().unwrap(), stop: Some(stop) }
    }

    fn relay(config: Config) -> Server {
        Server::start(|listener, stopped| async {
            let stopped = async { drop(stopped.await) };
            relay_sim::serve(listener, config, stopped).await.unwrap();
        })
    }

    /// A WebSocket server that sends these messages for each that comes.
    fn answering(answers: impl Fn(&str) -> Vec<String> + Copy + Send + 'static) -> Server {
        Server::start(move |listener, _stopped| async move {
            let support = Support { formats: vec![], compressions: vec![], batched: false, strict: false };
            let config = ServerConfig {
                support,
                limits: WireLimits::default(),
                relay_info: "<html>".into(),
                tls: None,
            };
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(Accepted::WebSocket(mut peer)) = wire::accept(stream, &config).await else { continue };
                while let Some(Ok(message)) = peer.next().await {
                    for answer in answers(std::str::from_utf8(&message.payload).unwrap()) {
                        peer.feed(answer.into()).await.unwrap();
                    }
                    peer.flush().await.ok();
                }
            }
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
    }
}

fn needs() -> Needs {
    Needs {
        event_bytes: 60_000,
        event_tags: 500,
        tag_value_bytes: 400,
        odd_references: 1,
        oldest_s: Some(1_600_000_000),
        filter_values: 400,
        subscriptions: 9,
        stored_events: 100,
        unlimited_events: 31,
        kinds: [1, 4].into(),
        events: 10,
        reconciles: true,
        ..Needs::default()
    }
}

#[test]
fn a_relay_without_bounds_answers_every_probe_as_nip_01_has_it() {
    let server = Server::relay(Config::default());
    let offers = handshakes::Offers {
        formats: vec![Format::JSON, "cbor-packed".parse().unwrap()],
        compressions: vec!["none".parse().unwrap(), "deflate".parse().unwrap()],
        batched: true,
    };
    let answers = ask(&server.endpoint(), &needs(), Some(&offers)).unwrap();
    assert_eq!(answers.stopped, None);
    assert_eq!(answers.rules, Rules::default(), "{:?}", answers.said);
    for answer in [&answers.write, &answers.read, &answers.limit_zero, &answers.reconcile] {
        assert_eq!(*answer, Answer::Taken);
    }
    assert!(!answers.challenge && answers.unread_kinds.is_empty());
    assert_eq!(answers.ties, Ties::LowestIdFirst);
    let seam = answers.seam.unwrap();
    assert_eq!((seam.due, seam.doubled, seam.missing), (72, 0, 0), "24 events at 3 subscriptions");
    assert_eq!(answers.burst, Some((100, 100)));
    assert_eq!(answers.handshakes.len(), 6);
    assert!(answers.handshakes.iter().all(|one| one.granted.as_ref() == Ok(&one.compression)));
    assert_eq!(table::refusal(&answers, &needs()), None);
    assert_eq!(answers.info.as_ref().unwrap().name.as_deref(), Some("relay-sim"));
    let spent = answers.spent;
    assert!(
        spent.ephemeral_events <= 150 && spent.stored_events <= 60 && spent.connections <= 40,
        "{spent:?}"
    );
    let json = serde_json::to_string(&answers).unwrap();
    assert_eq!(serde_json::from_str::<Answers>(&json).unwrap(), answers);
}

#[test]
fn bounds_are_found_to_a_few_percent_and_named_with_the_flag_that_widens_them() {
    let mut config = Config::default();
    (config.max_subscriptions, config.max_limit, config.default_limit) = (3, 50, 30);
    config.limits = Limits { max_filter_values: 100, ..Limits::default() };
    config.wire.max_message_bytes = 20_000;
    let server = Server::relay(config);
    let answers = ask(&server.endpoint(), &needs(), None).unwrap();
    let rules = &answers.rules;
    assert!(rules.event_bytes.is_some_and(|bytes| (19_000..20_000).contains(&bytes)), "{rules:?}");
    assert!(rules.filter_values.is_some_and(|values| (96..=100).contains(&values)), "{rules:?}");
    assert_eq!((rules.subscriptions, rules.stored_events), (Some(3), Some(50)));
    assert!(answers.said[&Demand::EventBytes].contains("ended the connection"), "{:?}", answers.said);
    let reasons = table::refusal(&answers, &needs()).unwrap();
    for flag in ["--max-subscriptions", "--max-limit", "--default-limit"] {
        assert!(reasons.contains(flag), "{flag} in {reasons}");
    }
    assert!(!reasons.contains("--max-message-bytes"), "large events are set aside: {reasons}");
}

#[test]
fn a_scenario_with_auth_needs_a_relay_that_sends_a_challenge() {
    let needs = Needs { auth: true, ..Needs::default() };
    let mut config = Config::default();
    config.auth = true;
    let with = Server::relay(config);
    assert_eq!(table::refusal(&ask(&with.endpoint(), &needs, None).unwrap(), &needs), None);
    let without = Server::relay(Config::default());
    let why = table::refusal(&ask(&without.endpoint(), &needs, None).unwrap(), &needs);
    assert_eq!(
        why.as_deref(),
        Some("it sends no AUTH challenge (NIP-42); settings for an AUTH challenge: relay-sim: --auth")
    );
}

#[test]
fn a_silent_peer_is_given_up_soon() {
    let server = Server::answering(|_| vec![]);
    let began = Instant::now();
    let answers = ask(&server.endpoint(), &needs(), None).unwrap();
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    assert_eq!((&answers.write, &answers.read), (&Answer::Silent, &Answer::Silent));
    assert!(answers.no_info.is_some());
    let why = table::refusal(&answers, &needs());
    assert_eq!(why.as_deref(), Some("the relay answers neither EVENT nor REQ"));
}

#[test]
fn a_relay_that_takes_no_events_is_refused_in_its_own_words() {
    let server = Server::answering(|message| {
        let parsed: serde_json::Value = serde_json::from_str(message).unwrap();
        match parsed[0].as_str() {
            Some("EVENT") => {
                vec![serde_json::json!(["OK", parsed[1]["id"], false, "blocked: not you"]).to_string()]
            }
            Some("REQ") => vec![serde_json::json!(["EOSE", parsed[1]]).to_string()],
            _ => vec![],
        }
    });
    let needs = Needs { reconciles: false, ..needs() };
    let answers = ask(&server.endpoint(), &needs, None).unwrap();
    let reasons = table::reasons(&answers, &needs);
    assert!(reasons.len() == 1 && reasons[0].text.contains("blocked: not you"), "{reasons:?}");
    assert_eq!(answers.spent.ephemeral_events, 1, "one refusal is enough");
}

#[test]
fn a_peer_that_is_no_relay_is_refused() {
    let server = Server::answering(|message| vec![message.to_owned()]);
    let answers = ask(&server.endpoint(), &needs(), None).unwrap();
    let reasons = table::refusal(&answers, &needs()).unwrap();
    assert!(reasons.starts_with("the relay answers neither EVENT nor REQ; it said [\"REQ\","), "{reasons}");
    assert!(reasons.len() < 500, "{reasons}");
    let server = Server::answering(|_| vec!["hello".to_owned()]);
    let reasons = table::refusal(&ask(&server.endpoint(), &needs(), None).unwrap(), &needs()).unwrap();
    assert!(reasons.contains("no message of NIP-01"), "{reasons}");
}

#[test]
fn a_relay_that_says_yes_and_keeps_nothing_is_seen_at_the_seam() {
    let server = Server::answering(|message| {
        let parsed: serde_json::Value = serde_json::from_str(message).unwrap();
        match parsed[0].as_str() {
            Some("EVENT") => vec![serde_json::json!(["OK", parsed[1]["id"], true, ""]).to_string()],
            Some("REQ") => vec![serde_json::json!(["EOSE", parsed[1]]).to_string()],
            _ => vec![],
        }
    });
    let offers = handshakes::Offers { formats: vec![], compressions: vec![], batched: false };
    let needs = Needs { reconciles: false, ..needs() };
    let answers = ask(&server.endpoint(), &needs, Some(&offers)).unwrap();
    assert_eq!(answers.ties, Ties::Unknown);
    // The second connection of the seam is not served while the first is open.
    assert!(answers.seam.is_none_or(|seam| seam.missing == seam.due), "{:?}", answers.seam);
}

#[test]
fn an_ephemeral_event_that_nobody_listens_to_is_taken() {
    let server = Server::answering(|message| {
        let parsed: serde_json::Value = serde_json::from_str(message).unwrap();
        match parsed[0].as_str() {
            Some("EVENT") => {
                vec![serde_json::json!(["OK", parsed[1]["id"], false, "mute: nobody"]).to_string()]
            }
            Some("REQ") => vec![serde_json::json!(["EOSE", parsed[1]]).to_string()],
            _ => vec![],
        }
    });
    let needs = Needs { reconciles: false, ..needs() };
    let answers = ask(&server.endpoint(), &needs, None).unwrap();
    assert_eq!(table::refusal(&answers, &needs), None);
}

/// Needs of a plan that writes events of these kinds and nothing else.
fn writes(kinds: &[u16]) -> Needs {
    let bundled = Corpus::bundled().events;
    let one = |kind: u16| {
        let like = |event: &&codecs::Event<'static>| event.kind == kind;
        let smallest = bundled.iter().filter(like).min_by_key(|event| needs::json_bytes(event));
        let event = smallest.unwrap_or(&bundled[0]).clone();
        codecs::Event { kind, ..event }
    };
    let written = kinds.iter().map(|kind| (*kind, one(*kind))).collect();
    Needs { events: kinds.len() as u64, written, ..Needs::default() }
}

/// A relay that says `ok` to an event, by its kind and the bytes of the message.
fn judging(ok: impl Fn(u16, usize) -> Option<Result<(), &'static str>> + Copy + Send + 'static) -> Server {
    Server::answering(move |message| {
        let parsed: serde_json::Value = serde_json::from_str(message).unwrap();
        match parsed[0].as_str() {
            Some("EVENT") => {
                let kind = u16::try_from(parsed[1]["kind"].as_u64().unwrap()).unwrap();
                let ok = ok(kind, message.len()).map(|judged| {
                    let (id, why) = (&parsed[1]["id"], judged.err().unwrap_or_default());
                    serde_json::json!(["OK", id, judged.is_ok(), why]).to_string()
                });
                ok.into_iter().collect()
            }
            Some("REQ") => vec![serde_json::json!(["EOSE", parsed[1]]).to_string()],
            _ => vec![],
        }
    })
}

fn asked(server: &Server, needs: &Needs) -> (Answers, Option<String>) {
    let answers = ask(&server.endpoint(), needs, None).unwrap();
    let why = table::refusal(&answers, needs);
    (answers, why)
}

fn is_ephemeral(kind: u16) -> bool {
    codecs::KindClass::from_kind(kind) == codecs::KindClass::Ephemeral
}

#[test]
fn a_relay_without_ok_for_ephemeral_events_is_proven_by_what_a_plan_writes() {
    let server = judging(|kind, _| (!is_ephemeral(kind)).then_some(Ok(())));
    let (answers, why) = asked(&server, &writes(&[0, 1, 5, 7, 1059, 30023, 20_001]));
    assert_eq!((why, &answers.write), (None, &Answer::Silent), "{answers:?}");
    assert!([0, 1, 5, 7, 1059, 30023].iter().all(|kind| answers.written_kinds[kind] == Answer::Taken));
    let mut events = Corpus::bundled().events;
    events.truncate(10);
    assert_eq!(table::refused(&answers, &events).len(), 0);
    events[3].kind = 20_001;
    let refused = table::refused(&answers, &events);
    assert_eq!(
        refused["the relay sends no OK to ephemeral events of this kind"], 1,
        "and a run sets it aside"
    );
    // Bounds are found by events that it answers.
    let server = judging(|kind, bytes| {
        let judged = if bytes < 2_000 { Ok(()) } else { Err("invalid: too large") };
        (!is_ephemeral(kind)).then_some(judged)
    });
    let (answers, why) = asked(&server, &Needs { event_bytes: 60_000, ..writes(&[1]) });
    let bound = answers.rules.event_bytes.unwrap();
    assert!((1_500..2_000).contains(&bound) && why.is_none(), "{answers:?}");
}

#[test]
fn a_relay_that_takes_some_kinds_plays_what_writes_no_others() {
    const BLOCKED: Result<(), &str> = Err("blocked: kind");
    for also in [1, 29_999] {
        let takes = move |kind: u16, bytes: usize| match kind == 1 || kind == also {
            true if bytes < 1_000 => Ok(()),
            true => Err("invalid: too large"),
            false => BLOCKED,
        };
        let server = judging(move |kind, bytes| Some(takes(kind, bytes)));
        let (answers, why) = asked(&server, &Needs { event_bytes: 5_000, ..writes(&[1]) });
        assert_eq!(why, None, "{answers:?}");
        let bound = answers.rules.event_bytes.unwrap();
        assert!((950..1_000).contains(&bound), "{bound} by events of kind 1 or {also}");
        // All events of a kind may be too large, which are set aside.
        let mut large = writes(&[1]);
        let essay = codecs::Event { content: "x".repeat(3_000).into(), ..large.written[&1].clone() };
        large.written.insert(2, codecs::Event { kind: 2, ..essay });
        let (answers, why) = asked(&server, &Needs { event_bytes: 5_000, ..large });
        assert_eq!(why, None, "{answers:?}");
        let (_, why) = asked(&server, &writes(&[1, 3, 7, 30023]));
        let why = why.unwrap();
        assert!(why.starts_with(
            "it takes no events of kinds 3, 7, 30023: \"blocked: kind\"; settings for publishing: "
        ));
        assert_eq!(why.matches("strfry").count(), 1, "{why}");
    }
    let server = judging(|kind, _| Some(if kind == 7 { BLOCKED } else { Ok(()) }));
    let (answers, why) = asked(&server, &writes(&[1, 3, 7]));
    assert!(why.unwrap().starts_with("it takes no events of kind 7: "));
    assert_eq!(table::refusal(&answers, &writes(&[1, 3])), None);
    let server = judging(|kind, _| (kind != 7).then_some(Ok(())));
    let (_, why) = asked(&server, &writes(&[1, 3, 7]));
    assert!(why.unwrap().starts_with("it sends no OK to events of kind 7"));
}

#[test]
fn a_relay_that_ends_the_connection_at_one_kind_is_asked_for_the_others_anew() {
    let server = Server::start(|listener, _stopped| async move {
        let support = Support { formats: vec![], compressions: vec![], batched: false, strict: false };
        let limits = WireLimits::default();
        let config = ServerConfig { support, limits, relay_info: String::new(), tls: None };
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(Accepted::WebSocket(mut peer)) = wire::accept(stream, &config).await else { continue };
            while let Some(Ok(message)) = peer.next().await {
                let parsed: serde_json::Value = serde_json::from_slice(&message.payload).unwrap();
                if parsed[1]["kind"] == 3 {
                    break;
                }
                let answer = match parsed[0].as_str() {
                    Some("EVENT") => serde_json::json!(["OK", parsed[1]["id"], true, ""]),
                    _ => serde_json::json!(["EOSE", parsed[1]]),
                };
                peer.feed(answer.to_string().into()).await.unwrap();
                peer.flush().await.ok();
            }
        }
    });
    let (answers, why) = asked(&server, &writes(&[1, 3, 4, 7]));
    assert!(why.unwrap().starts_with("it takes no events of kind 3: the relay ended the connection"));
    assert!([1, 4, 7].iter().all(|kind| answers.written_kinds[kind] == Answer::Taken), "{answers:?}");
}

#[test]
fn a_relay_that_answers_late_is_waited_for() {
    let server = judging(|_, _| {
        thread::sleep(Duration::from_millis(1_000));
        Some(Ok(()))
    });
    let (answers, why) = asked(&server, &writes(&[1]));
    assert_eq!(why, None, "{answers:?}");
    assert_eq!((&answers.write, &answers.written_kinds[&1]), (&Answer::Taken, &Answer::Taken));
}

#[test]
fn answers_of_an_earlier_version_are_read_and_judged_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("doctor.json");
    let needs = writes(&[1, 7]);
    let judged = |answers: serde_json::Value| {
        std::fs::write(&file, answers.to_string()).unwrap();
        table::refusal(&read(&file, Some(&"ws://127.0.0.1:7777".parse().unwrap())).unwrap(), &needs)
    };
    let earlier = |write: serde_json::Value| {
        serde_json::json!({
            "url": "", "write": write, "read": "taken", "unread_kinds": { "4": "\"restricted: no\"" },
            "rules": { "event_bytes": 5_000, "hex_references": false }, "corpus": "x", "scenarios": [],
        })
    };
    assert_eq!(judged(earlier("taken".into())), None);
    let why = judged(earlier("silent".into())).unwrap();
    assert!(why.starts_with("it refuses a small ephemeral event: the relay was silent"), "{why}");
    // Every version reads what it writes.
    let mut answers = Answers { read: Answer::Taken, ..Answers::default() };
    answers.written_kinds = [(1, Answer::Taken), (7, Answer::Refused("no".into()))].into();
    answers.unread_kinds = [(4, "no".to_owned())].into();
    answers.rules.unanswered_kinds = [20_001].into();
    std::fs::write(&file, serde_json::to_string(&answers).unwrap()).unwrap();
    assert_eq!(read(&file, Some(&"ws://127.0.0.1:7777".parse().unwrap())).unwrap(), answers);
    assert!(table::refusal(&answers, &needs).unwrap().starts_with("it takes no events of kind 7: \"no\""));
}

#[test]
fn answers_of_another_relay_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("doctor.json");
    let written = |url: &str| {
        std::fs::write(&file, serde_json::json!({ "url": url }).to_string()).unwrap();
        read(&file, Some(&"ws://me:s3cret@127.0.0.1:7777".parse().unwrap()))
    };
    assert!(written("ws://127.0.0.1:7777").is_ok() && written("ws://127.0.0.1:7777/").is_ok());
    assert!(written("").is_ok(), "answers that name no relay");
    let error = written("ws://127.0.0.1:8888").unwrap_err().to_string();
    for says in ["doctor.json is about ws://127.0.0.1:8888, not ws://127.0.0.1:7777", "--json"] {
        assert!(error.contains(says), "{error}");
    }
}

/// A conversation with the server, about which it is asked `what`.
fn talk_to<R>(server: &Server, what: impl AsyncFnOnce(&mut Talk) -> R) -> R {
    let peer = Peer { relay: server.endpoint(), words: "a test".to_owned(), patience: PATIENCE };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut talk = Talk::open(&peer).await.unwrap();
        what(&mut talk).await
    })
}

#[test]
fn a_relay_that_sends_events_without_end_is_not_remembered_without_end() {
    let server = Server::answering(|message| {
        let parsed: serde_json::Value = serde_json::from_str(message).unwrap();
        if parsed[0] != "REQ" {
            return vec![];
        }
        let event = |n: usize| {
            let name = if n.is_multiple_of(2) { parsed[1].as_str().unwrap() } else { "another" };
            let (hex, sig) = (format!("{n:064x}"), "ab".repeat(64));
            serde_json::json!(["EVENT", name, {
                "id": hex, "pubkey": hex, "created_at": 1, "kind": 1, "tags": [], "content": "", "sig": sig,
            }])
        };
        let events = (0..4 * talk::MAX_HEARD).map(|n| event(n).to_string());
        events.chain([serde_json::json!(["EOSE", parsed[1]]).to_string()]).collect()
    });
    talk_to(&server, async |talk| {
        let reply = talk.request(codecs::Filter::default()).await;
        assert_eq!(reply.answer, Answer::Taken);
        assert_eq!((reply.ids.len(), talk.heard.len()), (talk::MAX_HEARD, talk::MAX_HEARD));
        assert!(talk.heard.iter().all(|(number, _)| *number == 1), "only its own subscriptions");
    });
}

#[test]
fn each_author_deletes_its_own_events_and_deletions_ask_to_expire() {
    let server = Server::relay(Config::default());
    let offers = handshakes::Offers { formats: vec![], compressions: vec![], batched: false };
    ask(&server.endpoint(), &needs(), Some(&offers)).unwrap();
    talk_to(&server, async |talk| {
        // Of the probe of age, of ties and of the seam.
        let reply = talk.request(codecs::Filter::default()).await;
        assert_eq!(reply.ids.len(), 3, "one deletion for each author, and nothing else");
        let ids = [[1; 32], [2; 32], [3; 32]];
        let found = events::deletions(talk, &[("seam", ids[0], 1), ("one", ids[1], 7), ("seam", ids[2], 1)]);
        let named = |deletion: &codecs::Event<'_>| -> Vec<_> {
            let of_events = deletion.tags.iter().filter(|tag| tag[0] == "e");
            of_events.filter_map(|tag| codecs::hex::decode_array::<32>(tag[1].as_bytes())).collect()
        };
        assert_eq!(found.iter().map(named).collect::<Vec<_>>(), [vec![ids[1]], vec![ids[0], ids[2]]]);
        assert_ne!(found[0].pubkey, found[1].pubkey);
        for deletion in &found {
            let at: i64 = deletion.first_tag_value("expiration").unwrap().parse().unwrap();
            assert!(deletion.kind == 5 && at > deletion.created_at, "{deletion:?}");
        }
    });
}
