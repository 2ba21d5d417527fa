//! The other end of a capture: a relay that keeps to NIP-01, and servers that follow a script.

use std::{
    borrow::Cow,
    cmp::Reverse,
    collections::HashMap,
    sync::{Arc, Mutex, mpsc},
    thread,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use codecs::{ClientMessage, Codec, EoseHints, Event, Filter, Format, Implementation, RelayMessage};
use futures::{SinkExt, StreamExt};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::broadcast,
};
use tokio_tungstenite::tungstenite::Message;
use wire::{Accepted, Connection, ServerConfig, Support, WireLimits};

use crate::Folder;

/// The information document of a relay (NIP-11).
const INFO: &str = "{\"software\":\"a peer\",\"version\":\"7\"}";

/// A server on a port of its own, for as long as the tests run.
pub(crate) fn serve<F: Future<Output = ()>>(
    server: impl FnOnce(TcpListener) -> F + Send + 'static,
) -> String {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            sender.send(format!("ws://{}", listener.local_addr().unwrap())).unwrap();
            server(listener).await;
        });
    });
    receiver.recv().unwrap()
}

/// A relay of NIP-01 behind TLS, with a certificate for `localhost` that is left in `folder`.
pub(crate) fn relay_behind_tls(events: Vec<Event<'static>>, folder: &Folder) -> String {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (cert, key) = (folder.path("cert.pem"), folder.path("key.pem"));
    folder.write("cert.pem", made.cert.pem());
    folder.write("key.pem", made.signing_key.serialize_pem());
    let tls = wire::ServerTls::from_files(&cert, &key).unwrap();
    serve(|listener| relay_of(listener, Arc::new(Mutex::new(events)), 1_000, Some(tls)))
        .replace("ws://127.0.0.1", "wss://localhost")
}

/// A relay of NIP-01 with these events, which answers with at most `max_limit` of them, the newest
/// first.
pub(crate) fn relay(events: Vec<Event<'static>>, max_limit: usize) -> String {
    changing(&Arc::new(Mutex::new(events)), max_limit)
}

/// Events of a relay that get more.
pub(crate) type Stored = Arc<Mutex<Vec<Event<'static>>>>;

/// The same with events that may change between requests.
pub(crate) fn changing(events: &Stored, max_limit: usize) -> String {
    let events = Arc::clone(events);
    serve(move |listener| relay_of(listener, events, max_limit, None))
}

async fn relay_of(listener: TcpListener, events: Stored, max_limit: usize, tls: Option<wire::ServerTls>) {
    let (live, _) = broadcast::channel(16);
    let support = Support {
        formats: Format::all().collect(),
        compressions: vec!["deflate".parse().unwrap()],
        batched: false,
    };
    let config = ServerConfig { support, limits: WireLimits::default(), relay_info: INFO.to_owned(), tls };
    let config = Arc::new(config);
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (config, events, live) = (Arc::clone(&config), Arc::clone(&events), live.clone());
        tokio::spawn(async move {
            if let Ok(Accepted::WebSocket(connection)) = wire::accept(stream, &config).await {
                talk(*connection, &events, max_limit, &live).await;
            }
        });
    }
}

/// Serves one client until it leaves: stored events, then what others publish.
async fn talk(
    mut connection: Connection,
    events: &Mutex<Vec<Event<'static>>>,
    max_limit: usize,
    live: &broadcast::Sender<Event<'static>>,
) {
    let mut published = live.subscribe();
    let mut open: HashMap<String, Vec<Filter>> = HashMap::new();
    loop {
        let mut answers = Vec::new();
        tokio::select! {
            event = published.recv() => {
                let event = event.unwrap();
                let wanted = open.iter().filter(|(_, filters)| filters.iter().any(|f| f.matches(&event)));
                answers.extend(wanted.map(|(name, _)| RelayMessage::Event {
                    subscription: name.clone().into(),
                    event: Cow::Owned(event.clone()),
                }));
            }
            message = connection.next() => {
                let Some(Ok(message)) = message else { return };
                match json().decode_client(&message.payload).unwrap().into_owned() {
                    ClientMessage::Req { subscription, filters } => {
                        let mut events = events.lock().unwrap();
                        // NIP-01: of events of one second the lowest id comes first.
                        events.sort_by_key(|event| (Reverse(event.created_at), event.id));
                        for filter in &filters {
                            let limit = filter.limit.map_or(max_limit, |limit| max_limit.min(usize::try_from(limit).unwrap()));
                            let found = events.iter().filter(|event| filter.matches(event)).take(limit);
                            answers.extend(found.map(|event| RelayMessage::Event {
                                subscription: subscription.clone(),
                                event: Cow::Owned(event.clone()),
                            }));
                        }
                        answers.push(RelayMessage::Eose { subscription: subscription.clone(), hints: EoseHints::default() });
                        open.insert(subscription.into_owned(), filters);
                    }
                    ClientMessage::Close { subscription } => drop(open.remove(&*subscription)),
                    ClientMessage::Event(event) => {
                        answers.push(RelayMessage::Ok { id: event.id, accepted: true, text: "".into() });
                        live.send(event.into_owned()).unwrap();
                    }
                    other => panic!("a capture does not say {other:?}"),
                }
            }
        }
        for answer in &answers {
            let mut bytes = Vec::new();
            json().encode_relay(answer, &mut bytes).unwrap();
            if connection.feed(Bytes::from(bytes)).await.is_err() {
                return;
            }
        }
        if connection.flush().await.is_err() {
            return;
        }
    }
}

/// A proxy before a server that answers 403 to requests without this line in their head; and the
/// heads of all requests.
pub(crate) fn guarded(server: &str, line: &'static str) -> (String, Arc<Mutex<Vec<String>>>) {
    let heads: Arc<Mutex<Vec<String>>> = Arc::default();
    let heard = Arc::clone(&heads);
    let url = before(server, move |head| {
        heard.lock().unwrap().push(head.to_owned());
        let refusal = "HTTP/1.1 403 Forbidden\r\nConnection: close\r\n\r\n";
        (!head.lines().any(|one| one.eq_ignore_ascii_case(line))).then(|| refusal.to_owned())
    });
    (url, heads)
}

/// A proxy before a relay whose NIP-11 document comes at a time so many seconds from now.
pub(crate) fn dated(server: &str, seconds: i64) -> String {
    before(server, move |head| {
        let (away, now) = (Duration::from_secs(seconds.unsigned_abs()), SystemTime::now());
        let date = httpdate::fmt_http_date(if seconds < 0 { now - away } else { now + away });
        let length = INFO.len();
        let answer = format!(
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\nDate: {date}\r\n\r\n{INFO}"
        );
        head.contains("application/nostr+json").then_some(answer)
    })
}

/// A proxy that itself answers what it has an answer to.
fn before(server: &str, answer: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> String {
    let (server, answer) = (server.strip_prefix("ws://").unwrap().to_owned(), Arc::new(answer));
    serve(move |listener| async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let (server, answer) = (server.clone(), Arc::clone(&answer));
            tokio::spawn(async move {
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") {
                    head.push(char::from(client.read_u8().await.unwrap()));
                }
                if let Some(answer) = answer(&head) {
                    return client.write_all(answer.as_bytes()).await.unwrap();
                }
                let mut server = TcpStream::connect(server).await.unwrap();
                server.write_all(head.as_bytes()).await.unwrap();
                // Either end may leave.
                tokio::io::copy_bidirectional(&mut client, &mut server).await.ok();
            });
        }
    })
}

/// The next step of a server that follows a script.
pub(crate) enum Act {
    Say(String),
    Binary(Vec<u8>),
    HangUp,
}

/// A server whose answer to a REQ depends on the number of the connection, from 0, and on the
/// request.
pub(crate) fn scripted(answer: impl Fn(usize, &ClientMessage<'_>) -> Vec<Act> + Send + 'static) -> String {
    serve(move |listener| async move {
        let mut connection = 0;
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            // The question for the NIP-11 document is no WebSocket.
            let Ok(mut socket) = tokio_tungstenite::accept_async(stream).await else { continue };
            'talk: while let Some(Ok(message)) = socket.next().await {
                let Message::Text(request) = message else { continue };
                let request = json().decode_client(request.as_bytes()).unwrap();
                if !matches!(request, ClientMessage::Req { .. }) {
                    continue;
                }
                for act in answer(connection, &request) {
                    // A client that has enough hangs up.
                    let sent = match act {
                        Act::Say(text) => socket.send(Message::text(text)).await,
                        Act::Binary(bytes) => socket.send(Message::binary(bytes)).await,
                        Act::HangUp => break 'talk,
                    };
                    if sent.is_err() {
                        break 'talk;
                    }
                }
            }
            connection += 1;
        }
    })
}

pub(crate) fn json() -> &'static dyn Codec {
    Format::JSON.codec(Implementation::Library).unwrap()
}

pub(crate) fn event_message(request: &ClientMessage<'_>, event: &Event<'_>) -> Act {
    let ClientMessage::Req { subscription, .. } = request else { panic!("a REQ") };
    let mut bytes = Vec::new();
    let event = std::borrow::Cow::Borrowed(event);
    let message = RelayMessage::Event { subscription: subscription.clone(), event };
    json().encode_relay(&message, &mut bytes).unwrap();
    Act::Say(String::from_utf8(bytes).unwrap())
}

pub(crate) fn eose(request: &ClientMessage<'_>) -> Act {
    let ClientMessage::Req { subscription, .. } = request else { panic!("a REQ") };
    Act::Say(format!("[\"EOSE\",\"{subscription}\"]"))
}

/// The events that a request matches, then EOSE.
pub(crate) fn honest(request: &ClientMessage<'_>, events: &[Event<'_>]) -> Vec<Act> {
    let ClientMessage::Req { filters, .. } = request else { panic!("a REQ") };
    let matching = events.iter().filter(|event| filters.iter().any(|filter| filter.matches(event)));
    matching.map(|event| event_message(request, event)).chain([eose(request)]).collect()
}
