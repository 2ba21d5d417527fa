//! The floor: what tokio and tungstenite cost a relay that does no Nostr work.
//!
//! It copies the text of every event behind each subscriber's subscription id and answers OK with the id it finds
//! by searching. No filter, no store, no check, no limits. It writes like relay-sim (one flush for what is
//! ready) and uses relay-sim's buffer sizes, so that the difference is the relay's own work.

use std::{cell::RefCell, rc::Rc};

use bytes::{Bytes, BytesMut};
use futures::{FutureExt, Sink, SinkExt, StreamExt};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc::{UnboundedSender, unbounded_channel},
    task::{LocalSet, spawn_local},
};
use tokio_tungstenite::{
    WebSocketStream, accept_async_with_config,
    tungstenite::{
        Error, Message,
        protocol::{
            WebSocketConfig,
            frame::{
                Frame, FrameHeader,
                coding::{Data, OpCode},
            },
        },
    },
};

/// Deliveries taken from the queue at once, and written bytes before a flush: relay-sim's figures.
const DELIVERIES: usize = 64;
const FLUSH_BYTES: usize = 32 << 10;

/// Whom to send events to: each subscriber's queue. Nobody leaves before the relay ends.
type Subscribers = Rc<RefCell<Vec<UnboundedSender<Bytes>>>>;

/// Serves until the process ends.
pub(super) fn serve(listener: std::net::TcpListener) -> anyhow::Result<()> {
    listener.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let listener = TcpListener::from_std(listener)?;
        let subscribers = Subscribers::default();
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let subscribers = Rc::clone(&subscribers);
            // An error is a client that left.
            spawn_local(async move { session(stream, subscribers).await.ok() });
        }
    })
}

async fn session(stream: TcpStream, subscribers: Subscribers) -> Result<(), Error> {
    let config = WebSocketConfig::default().read_buffer_size(8 << 10).write_buffer_size(FLUSH_BYTES);
    let mut websocket = accept_async_with_config(stream, Some(config)).await?;
    let (sender, mut queue) = unbounded_channel::<Bytes>();
    let mut prefix = Vec::new();
    let mut deliveries = Vec::with_capacity(DELIVERIES);
    let mut chunk = BytesMut::new();
    loop {
        tokio::select! {
            biased;
            message = websocket.next() => {
                let mut next = Some(message);
                while let Some(message) = next.take() {
                    let Some(message) = message else { return Ok(()) };
                    let Message::Text(text) = message? else { break };
                    let text = Bytes::from(text);
                    if let Some(event) = between(&text, br#"["EVENT","#, b"]") {
                        for subscriber in subscribers.borrow().iter() {
                            // It left: nobody to send to.
                            subscriber.send(event.clone()).ok();
                        }
                        write(&mut websocket, &mut chunk, &[br#"["OK",""#, id_of(&event), br#"",true,""]"#]).await?;
                    } else if text.starts_with(br#"["REQ","#) {
                        let name = text.split(|&byte| byte == b'"').nth(3).unwrap_or_default();
                        prefix = [br#"["EVENT",""#, name, br#"","#].concat();
                        subscribers.borrow_mut().push(sender.clone());
                        write(&mut websocket, &mut chunk, &[br#"["EOSE",""#, name, br#""]"#]).await?;
                    }
                    next = websocket.next().now_or_never();
                }
            }
            _ = queue.recv_many(&mut deliveries, DELIVERIES) => {
                for event in deliveries.drain(..) {
                    write(&mut websocket, &mut chunk, &[&prefix, &event, b"]"]).await?;
                }
            }
        }
        websocket.flush().await?;
    }
}

fn between(text: &Bytes, before: &[u8], after: &[u8]) -> Option<Bytes> {
    let inner = text.strip_prefix(before)?.strip_suffix(after)?;
    Some(text.slice_ref(inner))
}

/// The 64 digits after `"id":"`, which our own events have near their start.
fn id_of(event: &[u8]) -> &[u8] {
    const MARK: &[u8] = br#""id":""#;
    let start = event.windows(MARK.len()).position(|window| window == MARK).map(|at| at + MARK.len());
    start.and_then(|start| event.get(start..start + 64)).unwrap_or_default()
}

/// A text frame from parts. Unlike `Message::text` it is not checked for UTF-8 again.
async fn write(
    websocket: &mut WebSocketStream<TcpStream>,
    chunk: &mut BytesMut,
    parts: &[&[u8]],
) -> Result<(), Error> {
    parts.iter().for_each(|part| chunk.extend_from_slice(part));
    let header = FrameHeader { opcode: OpCode::Data(Data::Text), ..FrameHeader::default() };
    let frame = Message::Frame(Frame::from_payload(header, chunk.split().freeze()));
    std::future::poll_fn(|cx| std::pin::Pin::new(&mut *websocket).poll_ready(cx)).await?;
    websocket.start_send_unpin(frame)
}
