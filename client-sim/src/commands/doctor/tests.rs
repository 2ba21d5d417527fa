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

use super::{answers::Answer, *};
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

/// Extremes of a plan.
fn needs() -> Needs {
    let most = [
        (Demand::EventBytes, 60_000),
        (Demand::EventTags, 500),
        (Demand::TagValueBytes, 400),
        (Demand::HexReferences, 1),
        (Demand::Connections, 12),
        (Demand::Subscriptions, 9),
        (Demand::StoredEvents, 100),
        (Demand::UnlimitedEvents, 31),
        (Demand::Rate, 30),
    ];
    let authors = Some((0..150).map(|n| [n; 32]).collect());
    let wide = codecs::Filter { kinds: Some(vec![1, 4]), authors, ..codecs::Filter::default() };
    Needs {
        most: most.into(),
        dates_s: Some((1_600_000_000, talk::now_s() + 900)),
        requests: [(needs::kinds_of(&wide), wide)].into(),
        reconciles: true,
        live: true,
        ..writes(&[0, 1, 5, 7, 1059, 30023, 20_001])
    }
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
    Needs { written: kinds.iter().map(|kind| (*kind, one(*kind))).collect(), ..Needs::default() }
}

#[test]
fn a_relay_without_bounds_takes_and_gives_back_everything() {
    let server = Server::relay(Config::default());
    let offers = handshakes::Offers {
        formats: vec![Format::JSON, "cbor-packed".parse().unwrap()],
        compressions: vec!["none".parse().unwrap(), "deflate".parse().unwrap()],
        batched: true,
    };
    let answers = ask(&server.endpoint(), &needs(), Some(&offers)).unwrap();
    assert_eq!((&answers.stopped, &answers.rules), (&None, &Rules::default()), "{:?}", answers.said);
    assert_eq!((&answers.read, &answers.reconcile), (&Answer::Taken, &Answer::Taken));
    assert!(
        answers.said.is_empty() && answers.bounds.is_empty() && answers.requests.is_empty(),
        "{answers:?}"
    );
    assert_eq!(answers.handshakes.len(), 6);
    assert!(answers.handshakes.iter().all(|one| one.granted.as_ref() == Ok(&one.compression)));
    assert_eq!(table::refusal(&answers, &needs()), None);
    assert_eq!(answers.info.as_ref().unwrap().name.as_deref(), Some("relay-sim"));
    let spent = answers.spent;
    assert!(spent.ephemeral_events <= 50 && spent.stored_events <= 20, "{spent:?}");
    // Those of the plan, of which some are closed before events are asked back, and the handshakes.
    assert!((12 + 6..=26).contains(&spent.connections), "{spent:?}");
    let json = serde_json::to_string(&answers).unwrap();
    assert_eq!(serde_json::from_str::<Answers>(&json).unwrap(), answers);
    // Of what it stored, deletions are left, one for each author.
    talk_to(&server, async |talk| assert_eq!(talk.request(codecs::Filter::default()).await.ids.len(), 2));
}

#[test]
fn bounds_are_found_to_a_few_percent_and_named_with_the_flag_that_widens_them() {
    let mut config = Config::default();
    (config.max_subscriptions, config.max_limit, config.default_limit) = (3, 50, 30);
    config.limits = Limits { max_filter_values: 100, ..Limits::default() };
    config.wire.max_message_bytes = 20_000;
    let server = Server::relay(config);
    let answers = ask(&server.endpoint(), &needs(), None).unwrap();
    let bytes = answers.rules.event_bytes.unwrap();
    assert!((19_000..20_000).contains(&bytes), "{answers:?}");
    let values = answers.requests["kinds 1, 4"].most;
    assert!((96..=100).contains(&values), "{answers:?}");
    let bound = |demand| answers.bounds[&demand].most;
    assert_eq!((bound(Demand::Subscriptions), bound(Demand::StoredEvents)), (3, 50));
    assert!(answers.said[&Demand::EventBytes].contains("ended the connection"), "{:?}", answers.said);
    let reasons = table::refusal(&answers, &needs()).unwrap();
    for flag in ["--max-subscriptions", "--max-limit", "--default-limit", "max_subscriptions of NIP-11"] {
        assert!(reasons.contains(flag), "{flag} in {reasons}");
    }
    assert!(!reasons.contains("--max-message-bytes"), "large events are set aside: {reasons}");
    let narrow = Needs { requests: Default::default(), most: Default::default(), ..needs() };
    assert_eq!(table::refusal(&answers, &narrow), None, "what a plan does not need is no reason");
}

#[test]
fn a_scenario_with_auth_needs_a_relay_that_sends_a_challenge() {
    let needs = Needs { auth: true, ..writes(&[1, 5]) };
    let mut config = Config::default();
    config.auth = true;
    let with = Server::relay(config);
    assert_eq!(table::refusal(&ask(&with.endpoint(), &needs, None).unwrap(), &needs), None);
    let without = Server::relay(Config::default());
    let why = table::refusal(&ask(&without.endpoint(), &needs, None).unwrap(), &needs);
    let expected = "it sends no AUTH challenge (NIP-42); settings for AUTH: relay-sim: --auth";
    assert_eq!(why.as_deref(), Some(expected));
}

#[test]
fn a_peer_that_is_no_relay_is_refused_soon_with_what_it_said() {
    for (server, says) in [
        (Server::answering(|_| vec![]), "the relay answers neither EVENT nor REQ"),
        (Server::answering(|message| vec![message.to_owned()]), "EVENT nor REQ; it said [\"REQ\","),
        (Server::answering(|_| vec!["hello".to_owned()]), "EVENT nor REQ; it said hello"),
    ] {
        let began = Instant::now();
        let reasons = table::refusal(&ask(&server.endpoint(), &needs(), None).unwrap(), &needs()).unwrap();
        assert!(reasons.contains(says) && reasons.len() < 500, "{reasons}");
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    }
}

/// A server on one connection that answers each event by `ok`, and each request by EOSE.
fn judging(ok: impl Fn(&serde_json::Value) -> serde_json::Value + Copy + Send + 'static) -> Server {
    Server::answering(move |message| {
        let parsed: serde_json::Value = serde_json::from_str(message).unwrap();
        match parsed[0].as_str() {
            Some("EVENT") => vec![ok(&parsed[1]).to_string()],
            Some("REQ") => vec![serde_json::json!(["EOSE", parsed[1]]).to_string()],
            _ => vec![],
        }
    })
}

#[test]
fn what_is_refused_or_not_given_back_is_set_aside_in_the_relays_words() {
    let server = judging(|event| match event["kind"].as_u64() {
        Some(7 | 30023) => serde_json::json!(["OK", event["id"], false, "blocked: kind"]),
        _ => serde_json::json!(["OK", event["id"], true, ""]),
    });
    let needs = writes(&[0, 1, 7, 30023]);
    let answers = ask(&server.endpoint(), &needs, None).unwrap();
    let said = answers.rules.kinds_set_aside();
    assert_eq!(
        said,
        ["kinds 0, 1: accepted and not given back", "kinds 7, 30023: refused: \"blocked: kind\""]
    );
    let why = table::refusal(&answers, &needs).unwrap();
    assert!(why.contains("kinds 0, 1: accepted") && why.contains("relay.writePolicy.plugin"), "{why}");
    assert_eq!(why.matches("strfry").count(), 2, "settings of unknown software, once each: {why}");
    let mut events = Corpus::bundled().events;
    events.truncate(200);
    let kept = table::refused(&answers, &events);
    assert!(kept["kinds 0, 1: accepted and not given back"] > 10, "{kept:?}");
}

#[test]
fn a_relay_that_answers_late_is_waited_for() {
    let server = judging(|event| {
        thread::sleep(Duration::from_millis(1_000));
        serde_json::json!(["OK", event["id"], true, ""])
    });
    let answers = ask(&server.endpoint(), &writes(&[1]), None).unwrap();
    assert_eq!(answers.rules.kinds[&1], "accepted and not given back", "{answers:?}");
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
        assert_eq!(talk.listen(codecs::Filter::default()).await, Answer::Taken);
        let reply = talk.request(codecs::Filter::default()).await;
        assert_eq!((reply.answer, reply.ids.len()), (Answer::Taken, talk::MAX_HEARD));
        assert_eq!(talk.heard.len(), talk::MAX_HEARD);
    });
}
