//! The probes against relay-sim in several configurations, and against peers that are no relays.

use std::{sync::mpsc, thread, time::Duration};

use codecs::Limits;
use corpus::rules::Property;
use relay_sim::Config;
use tokio::{net::TcpListener, sync::oneshot};
use wire::{Accepted, ServerConfig, Support, WireLimits};

use super::{answers::Answer, *};
use crate::sockets::dial::endpoint;

/// Silence takes time.
const PATIENCE: Duration = Duration::from_millis(700);

/// Answers of the relay at this address.
fn ask(relay: &Endpoint, needs: &Needs, offers: Option<Offers<'_>>) -> anyhow::Result<Answers> {
    interruption::block_on(super::ask(relay, needs, offers, (&Signing::default(), true), PATIENCE))
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
        Server::informing("<html>", answers)
    }

    /// The same, with this NIP-11 document.
    fn informing(
        document: &'static str,
        answers: impl Fn(&str) -> Vec<String> + Copy + Send + 'static,
    ) -> Server {
        Server::start(move |listener, _stopped| async move {
            let support = Support::default();
            let config = ServerConfig {
                support,
                limits: WireLimits::default(),
                relay_info: document.into(),
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
    let wide = codecs::Filter { kinds: Some(vec![1, 4]), authors, ..codecs::Filter::default() };
    Needs {
        most: most.map(|(what, number)| (what.to_owned(), number)).into(),
        properties: properties.into(),
        requests: [((lists.to_owned(), 150), wide)].into(),
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
    let written = kinds.iter().map(|kind| (*kind, one(*kind))).collect();
    Needs { written, stored: true, ..Needs::default() }
}

#[test]
fn all_but_what_has_bounds_is_taken_and_those_are_named_with_the_flag_that_widens_them() {
    let mut config = Config::default();
    (config.max_subscriptions, config.max_limit, config.default_limit) = (3, 50, 30);
    config.limits = Limits { max_filter_values: 100, ..Limits::default() };
    config.wire.max_message_bytes = 20_000;
    let server = Server::relay(config);
    let (formats, compressions) = (["json", "cbor-packed"], ["none", "deflate"]);
    let formats = formats.map(|name| name.parse().unwrap());
    let compressions = compressions.map(|name| name.parse().unwrap());
    let answers = ask(&server.endpoint(), &needs(), Some((&formats[..], &compressions[..]))).unwrap();
    let json = serde_json::to_string(&answers).unwrap();
    assert_eq!(serde_json::from_str::<Answers>(&json).unwrap(), answers);
    assert_eq!((&answers.stopped, &answers.rules.kinds), (&None, &BTreeMap::new()), "{answers:?}");
    assert_eq!((&answers.read, &answers.reconcile), (&Answer::Taken, &Answer::Taken));
    assert_eq!(answers.handshakes.len(), 6);
    assert!(answers.handshakes.iter().all(|one| one.granted.as_ref() == Ok(&one.compression)));
    let bytes = &answers.rules.bounds[&Property::EventBytes];
    assert!((19_000..20_000).contains(&bytes.most), "{answers:?}");
    assert!(bytes.said.contains("ended the connection"), "{bytes:?}");
    let bound = |what: &str| answers.bounds[what].most;
    assert_eq!((bound(needs::SUBSCRIPTIONS), bound(needs::STORED)), (3, 50));
    let reasons = table::refusal(&answers, &needs()).unwrap();
    let says =
        ["it takes 149 entries in a list of a request for kinds 1, 4, and", "max_subscriptions of NIP-11"];
    for says in ["--max-subscriptions", "--max-limit", "--default-limit"].into_iter().chain(says) {
        assert!(reasons.contains(says), "{says} in {reasons}");
    }
    assert!(!reasons.contains("--max-message-bytes"), "large events are set aside: {reasons}");
    let narrow = Needs { requests: Default::default(), most: Default::default(), ..needs() };
    assert_eq!(table::refusal(&answers, &narrow), None, "what a plan does not need is no reason");
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

#[test]
fn what_a_newer_event_replaced_is_not_missing_and_what_nobody_stores_is_not_asked_for() {
    let server = Server::answering(|message| {
        let parsed: serde_json::Value = serde_json::from_str(message).unwrap();
        if parsed[0] == "EVENT" {
            return vec![serde_json::json!(["OK", parsed[1]["id"], true, ""]).to_string()];
        }
        let newer = parsed[2]["kinds"].as_array().filter(|kinds| kinds.contains(&0.into())).map(|_| {
            let (id, sig) = ("ab".repeat(32), "ab".repeat(64));
            serde_json::json!(["EVENT", parsed[1], {
                "id": id, "pubkey": parsed[2]["authors"][0], "created_at": 4_000_000_000_i64, "kind": 0,
                "tags": [], "content": "", "sig": sig,
            }])
        });
        let end = serde_json::json!(["EOSE", parsed[1]]);
        newer.into_iter().chain([end]).map(|message| message.to_string()).collect()
    });
    let answers = ask(&server.endpoint(), &writes(&[0, 1, 20_001]), None).unwrap();
    let kinds: Vec<_> = answers.rules.kinds.iter().map(|(kind, withheld)| (*kind, &*withheld.why)).collect();
    assert_eq!(kinds, [(1, "accepted and not given back")], "{answers:?}");
}

#[test]
fn proof_of_work_is_learnt_from_the_document_and_has_a_bound() {
    let strict = |message: &str| {
        let parsed: serde_json::Value = serde_json::from_str(message).unwrap();
        let about = &parsed[1];
        let id = about["id"].as_str().and_then(|id| u8::from_str_radix(&id[..2], 16).ok());
        let answer = match id {
            Some(first) if first.leading_zeros() < 5 => {
                serde_json::json!(["OK", about["id"], false, "pow: 5 bits"])
            }
            Some(_) => serde_json::json!(["OK", about["id"], true, ""]),
            None => serde_json::json!(["EOSE", about]),
        };
        vec![answer.to_string()]
    };
    let server = Server::informing(r#"{"limitation":{"min_pow_difficulty":5}}"#, strict);
    let answers = ask(&server.endpoint(), &writes(&[20_001, 20_002]), None).unwrap();
    assert_eq!(
        (answers.work_bits, answers.rules.kinds.len(), &answers.stopped),
        (5, 0, &None),
        "{answers:?}"
    );
    let server = Server::informing(r#"{"limitation":{"min_pow_difficulty":40}}"#, strict);
    let answers = ask(&server.endpoint(), &writes(&[1]), None).unwrap();
    let refusal = table::refusal(&answers, &writes(&[1])).unwrap();
    assert!(refusal.contains("asks for 40 bits") && refusal.contains("20 at most"), "{refusal}");
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

#[test]
fn handshakes_that_take_too_long_are_not_known_and_no_reason_against_a_scenario() {
    let server = Server::start(|listener, _stopped| async move {
        let mut streams = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            streams.push(stream);
        }
    });
    let (formats, compressions) = ([Format::JSON], ["none".parse().unwrap(), "deflate".parse().unwrap()]);
    let offers = (&formats[..], &compressions[..]);
    let asking = async { Ok(handshakes::all(&server.endpoint(), offers, &[], PATIENCE).await) };
    let handshakes = interruption::block_on(asking).unwrap();
    let why = |one: &answers::Handshake| one.granted.clone().unwrap_err();
    assert!(handshakes.len() == 3 && handshakes.iter().all(|one| why(one).starts_with("not known")));
    let answers = Answers { read: Answer::Taken, handshakes, ..Answers::default() };
    assert_eq!(table::refusal(&answers, &Needs::default()), None);
}

#[test]
fn a_relay_that_sends_events_without_end_is_not_remembered_without_end() {
    let server = Server::answering(|message| {
        let parsed: serde_json::Value = serde_json::from_str(message).unwrap();
        let event = |n: usize| {
            let (hex, sig) = (format!("{n:064x}"), "ab".repeat(64));
            serde_json::json!(["EVENT", parsed[1], {
                "id": hex, "pubkey": hex, "created_at": 1, "kind": 1, "tags": [], "content": "", "sig": sig,
            }])
        };
        let events = (0..talk::MOST_HEARD + 100).map(|n| event(n).to_string());
        events.chain([serde_json::json!(["EOSE", parsed[1]]).to_string()]).collect()
    });
    let keys = Keys::derived("a test", 1);
    let (signed, rate) = (Cell::new((0, Instant::now())), RefCell::default());
    let (relay, patience) = (server.endpoint(), 10 * PATIENCE);
    let peer = Rc::new(Peer { relay, keys, work_bits: 0, quiet: true, signed, patience, rate });
    let talking = async {
        let mut talk = talk::Talk::open(&peer).await?;
        assert_eq!(talk.request(codecs::Filter::default()).await, Answer::Taken);
        assert_eq!(talk.heard().stored.len(), talk::MOST_HEARD);
        anyhow::Ok(())
    };
    interruption::block_on(talking).unwrap();
}
