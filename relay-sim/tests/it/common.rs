//! A relay in this process, and a client that speaks any format and tells what it hears as NIP-01
//! JSON.

use std::{borrow::Cow, collections::VecDeque, time::Duration};

use bytes::Bytes;
use codecs::{ClientMessage, Codec, Event, Filter, Format, Implementation, RelayMessage};
use futures::{SinkExt, StreamExt};
use relay_sim::{Config, Totals};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::JoinHandle,
    time::timeout,
};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async,
    tungstenite::{Error, Message, client::IntoClientRequest},
};
use wire::{Compression, Connection, Offer, WireError, WireLimits};

/// Far beyond what anything here takes, so that a hang is a failure and not a wait.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct TestRelay {
    pub(crate) url: String,
    pub(crate) address: String,
    stop: oneshot::Sender<()>,
    task: JoinHandle<anyhow::Result<Totals>>,
}

impl TestRelay {
    pub(crate) async fn start(change: impl FnOnce(&mut Config)) -> TestRelay {
        TestRelay::start_at("127.0.0.1:0", change).await
    }

    pub(crate) async fn start_at(address: &str, change: impl FnOnce(&mut Config)) -> TestRelay {
        let mut config = Config::default();
        change(&mut config);
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(relay_sim::serve(listener, config, async {
            let _ = stopped.await;
        }));
        TestRelay { url: format!("ws://{address}"), address, stop, task }
    }

    /// Asks the relay to stop, and waits for it.
    pub(crate) async fn stop(self) -> Totals {
        let _ = self.stop.send(());
        timeout(PATIENCE, self.task).await.expect("the relay stops").unwrap().unwrap()
    }

    pub(crate) async fn client(&self, format: Format, compression: Compression) -> Client {
        self.client_that_offers(Offer { batched: false, formats: vec![format], compression }).await
    }

    pub(crate) async fn client_that_offers(&self, offer: Offer) -> Client {
        Client::connect(&self.url, offer).await
    }

    /// A bare WebSocket that offers one token.
    pub(crate) async fn socket(&self, token: &str) -> Socket {
        let mut request = self.url.as_str().into_client_request().unwrap();
        request.headers_mut().insert("sec-websocket-protocol", token.parse().unwrap());
        connect_async(request).await.unwrap().0
    }

    pub(crate) async fn json_client(&self) -> Client {
        Client::json(&self.url).await
    }
}

pub(crate) type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

pub(crate) async fn say(socket: &mut Socket, text: &str) {
    socket.send(Message::text(text)).await.unwrap();
}

pub(crate) async fn hear(socket: &mut Socket) -> Result<Message, Error> {
    timeout(PATIENCE, socket.next()).await.expect("an answer in time").expect("no end before it is told")
}

pub(crate) async fn expect(socket: &mut Socket, text: &str) {
    assert_eq!(hear(socket).await.unwrap().into_text().unwrap(), text);
}

pub(crate) struct Client {
    pub(crate) conn: Connection,
    codec: &'static dyn Codec,
    heard: VecDeque<String>,
}

impl Client {
    /// A client in JSON, of a relay that may be another process.
    pub(crate) async fn json(url: &str) -> Client {
        let offer = Offer { batched: false, formats: vec![Format::JSON], compression: Compression::None };
        Client::connect(url, offer).await
    }

    async fn connect(url: &str, offer: Offer) -> Client {
        let (format, compression) = (offer.formats[0], offer.compression);
        let limits = WireLimits { max_message_bytes: 16 << 20, ..WireLimits::default() };
        let conn = wire::connect(url, &offer, &limits).await.unwrap();
        assert_eq!((conn.agreement().format, conn.agreement().batched), (format, offer.batched));
        assert_eq!(conn.agreement().compression.name(), compression.name());
        Client { conn, codec: format.codec(Implementation::Library).unwrap(), heard: VecDeque::new() }
    }

    pub(crate) async fn send(&mut self, message: &ClientMessage<'_>) {
        let mut out = Vec::new();
        self.codec.encode_client(message, &mut out).unwrap();
        self.send_bytes(out).await;
    }

    pub(crate) async fn send_bytes(&mut self, payload: Vec<u8>) {
        self.conn.feed(payload.into()).await.unwrap();
        self.conn.flush().await.unwrap();
    }

    pub(crate) async fn publish(&mut self, event: &Event<'static>) {
        self.send(&ClientMessage::Event(Cow::Borrowed(event))).await;
    }

    pub(crate) async fn request(&mut self, subscription: &str, filters: Vec<Filter>) {
        self.send(&ClientMessage::Req { subscription: subscription.into(), filters }).await;
    }

    /// The relay's next message as NIP-01 JSON, or how the connection ended.
    pub(crate) async fn hear(&mut self) -> Result<String, Option<WireError>> {
        if let Some(heard) = self.heard.pop_front() {
            return Ok(heard);
        }
        let message = timeout(PATIENCE, self.conn.next()).await.expect("an answer in time");
        let payload: Bytes = message.ok_or(None)?.map_err(Some)?.payload;
        Ok(json(&self.codec.decode_relay(&payload).unwrap()))
    }

    pub(crate) async fn expect(&mut self, expected: &str) {
        assert_eq!(self.hear().await.unwrap(), expected);
    }

    /// Hears on to the end; the code with which the relay closes, or `None` for 1000 and 1001,
    /// which are no errors to `wire`.
    pub(crate) async fn expect_close(&mut self) -> Option<u16> {
        loop {
            match self.hear().await {
                Ok(_) => {}
                Err(Some(WireError::Closed { code, .. })) => return Some(code),
                Err(None) => return None,
                Err(Some(other)) => panic!("expected a close, got {other}"),
            }
        }
    }
}

pub(crate) fn json(message: &RelayMessage<'_>) -> String {
    let mut out = Vec::new();
    Format::JSON.spec().library.encode_relay(message, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

pub(crate) fn event_json(event: &Event<'_>) -> String {
    let mut out = Vec::new();
    Format::JSON.spec().library.encode_event(event, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

pub(crate) fn ok(event: &Event<'_>) -> String {
    format!(r#"["OK","{}",true,""]"#, codecs::hex::encode(&event.id))
}

pub(crate) fn delivery(subscription: &str, event: &Event<'_>) -> String {
    format!(r#"["EVENT","{subscription}",{}]"#, event_json(event))
}

/// A note with a valid id and signature.
pub(crate) fn note(n: usize, created_at: i64) -> Event<'static> {
    signed(
        1,
        created_at,
        vec![vec!["t".into(), "test".into()]],
        format!("note {n} with \"quotes\" and ümlauts"),
    )
}

pub(crate) fn signed(
    kind: u16,
    created_at: i64,
    tags: Vec<Vec<Cow<'static, str>>>,
    content: String,
) -> Event<'static> {
    let (content, sig) = (content.into(), [0; 64]);
    let mut event = Event { id: [0; 32], pubkey: [0; 32], created_at, kind, tags, content, sig };
    corpus::sign_as(&mut event, "a test");
    event
}

pub(crate) fn kinds(kinds: &[u16]) -> Vec<Filter> {
    vec![Filter { kinds: Some(kinds.to_vec()), ..Filter::default() }]
}

pub(crate) fn compressions() -> impl Iterator<Item = Compression> {
    let named = Compression::NAMES.into_iter().map(|name| Compression::named(name).unwrap());
    named.filter(|compression| !matches!(compression, Compression::Deflate(params) if params.shared))
}
