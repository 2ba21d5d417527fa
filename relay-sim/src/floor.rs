//! The floor: what tokio and tungstenite cost a relay that does no Nostr work.
//!
//! A floor relay copies the text of an event behind each subscription id and answers OK with the id
//! that it finds by searching. It decodes, filters, stores and checks nothing, and has no limits: a
//! [`Script`] names the answer to each request and the subscribers of each event. Flushes and
//! buffer sizes are relay-sim's, so that the difference between the two is the relay's work. JSON
//! without compression, for clients of this workspace.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    fs,
    future::Future,
    path::Path,
    rc::Rc,
};

use anyhow::{Context, Result};
use bytes::{Bytes, BytesMut};
use futures::{FutureExt, Sink, SinkExt, StreamExt};
use serde::{Deserialize, Serialize};
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

/// Hex digits of an event's id.
const ID_DIGITS: usize = 64;

/// The answers that a floor relay is given. Filters are the text of the REQ from its first brace to
/// its last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Script {
    /// Events as JSON.
    pub events: Vec<String>,
    /// By filter, the events that answer it, as places in `events`.
    pub answers: BTreeMap<String, Vec<usize>>,
    /// By filter, the ids in hex of what its live subscribers get.
    pub live: BTreeMap<String, Vec<String>>,
}

impl Script {
    /// Reads a script from a JSON file.
    ///
    /// # Errors
    /// When it cannot be read or is none.
    pub fn read(path: &Path) -> Result<Script> {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let script: Script = serde_json::from_str(&text)
            .with_context(|| format!("{} is no script of a floor relay", path.display()))?;
        let known = |place: &usize| *place < script.events.len();
        anyhow::ensure!(
            script.answers.values().flatten().all(known),
            "{} answers with events that it does not have",
            path.display()
        );
        Ok(script)
    }
}

/// The script by what is looked up in it, and the subscribers.
#[derive(Default)]
struct Floor {
    answers: HashMap<Bytes, Vec<Bytes>>,
    /// By filter, a place in `subscribers`.
    live: HashMap<Bytes, usize>,
    /// By id, the places in `subscribers` to which the event goes.
    routes: HashMap<Bytes, Vec<usize>>,
    subscribers: RefCell<Vec<Vec<Subscriber>>>,
}

struct Subscriber {
    connection: usize,
    /// `["EVENT","name",`
    prefix: Rc<[u8]>,
    queue: UnboundedSender<(Rc<[u8]>, Bytes)>,
}

impl Floor {
    fn new(script: Script) -> Floor {
        let events: Vec<Bytes> = script.events.into_iter().map(Bytes::from).collect();
        let answers = script.answers.into_iter().map(|(filter, places)| {
            (Bytes::from(filter), places.into_iter().map(|place| events[place].clone()).collect())
        });
        let mut floor = Floor { answers: answers.collect(), ..Floor::default() };
        for (place, (filter, ids)) in script.live.into_iter().enumerate() {
            floor.live.insert(Bytes::from(filter), place);
            for id in ids {
                floor.routes.entry(Bytes::from(id)).or_default().push(place);
            }
        }
        floor.subscribers.borrow_mut().resize_with(floor.live.len(), Vec::new);
        floor
    }

    fn subscribe(&self, filter: &[u8], subscriber: Subscriber) {
        if let Some(place) = self.live.get(filter) {
            self.subscribers.borrow_mut()[*place].push(subscriber);
        }
    }

    fn unsubscribe(&self, connection: usize, prefix: Option<&[u8]>) {
        for subscribers in self.subscribers.borrow_mut().iter_mut() {
            subscribers.retain(|one| {
                one.connection != connection || prefix.is_some_and(|prefix| *prefix != *one.prefix)
            });
        }
    }

    fn publish(&self, event: &Bytes, id: &[u8]) {
        let places = self.routes.get(id).map_or(&[][..], Vec::as_slice);
        let subscribers = self.subscribers.borrow();
        for subscriber in places.iter().flat_map(|place| &subscribers[*place]) {
            // Fails when the subscriber left.
            subscriber.queue.send((Rc::clone(&subscriber.prefix), event.clone())).ok();
        }
    }
}

/// Serves until `shutdown` completes.
///
/// # Errors
/// When the listener fails.
pub async fn serve(listener: TcpListener, script: Script, shutdown: impl Future<Output = ()>) -> Result<()> {
    let floor = Rc::new(Floor::new(script));
    let accept = async {
        for connection in 0.. {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let floor = Rc::clone(&floor);
            spawn_local(async move {
                // An error is a client that left.
                session(stream, &floor, connection).await.ok();
                floor.unsubscribe(connection, None);
            });
        }
        Ok(())
    };
    LocalSet::new()
        .run_until(async {
            tokio::select! {
                served = accept => served,
                () = shutdown => Ok(()),
            }
        })
        .await
}

async fn session(stream: TcpStream, floor: &Floor, connection: usize) -> Result<(), Error> {
    let config = WebSocketConfig::default().read_buffer_size(8 << 10).write_buffer_size(FLUSH_BYTES);
    let websocket = accept_async_with_config(stream, Some(config)).await?;
    let (sender, mut queue) = unbounded_channel();
    let mut writer = Writer { websocket, chunk: BytesMut::new() };
    let mut deliveries = Vec::with_capacity(DELIVERIES);
    loop {
        tokio::select! {
            biased;
            message = writer.websocket.next() => {
                let mut next = Some(message);
                while let Some(message) = next.take() {
                    let Some(message) = message else { return Ok(()) };
                    let Message::Text(text) = message? else { break };
                    answer(&Bytes::from(text), floor, connection, &sender, &mut writer).await?;
                    next = writer.websocket.next().now_or_never();
                }
            }
            _ = queue.recv_many(&mut deliveries, DELIVERIES) => {
                for (prefix, event) in deliveries.drain(..) {
                    writer.write(&[&prefix, &event, b"]"]).await?;
                }
            }
        }
        writer.websocket.flush().await?;
    }
}

/// Does what a message asks for, told by its first letters.
async fn answer(
    text: &Bytes,
    floor: &Floor,
    connection: usize,
    sender: &UnboundedSender<(Rc<[u8]>, Bytes)>,
    writer: &mut Writer,
) -> Result<(), Error> {
    if let Some(event) = between(text, br#"["EVENT","#, b"]") {
        let id = id_of(&event);
        floor.publish(&event, id);
        return writer.write(&[br#"["OK",""#, id, br#"",true,""]"#]).await;
    }
    let name = text.split(|&byte| byte == b'"').nth(3).unwrap_or_default();
    let prefix = [br#"["EVENT",""#, name, br#"","#].concat();
    if text.starts_with(br#"["REQ","#) {
        let filter = text.get(br#"["REQ","","#.len() + name.len()..text.len() - 1).unwrap_or_default();
        for event in floor.answers.get(filter).into_iter().flatten() {
            writer.write(&[&prefix, event, b"]"]).await?;
        }
        floor.subscribe(filter, Subscriber { connection, prefix: prefix.into(), queue: sender.clone() });
        writer.write(&[br#"["EOSE",""#, name, br#""]"#]).await?;
    } else if text.starts_with(br#"["CLOSE","#) {
        floor.unsubscribe(connection, Some(&prefix));
    }
    Ok(())
}

fn between(text: &Bytes, before: &[u8], after: &[u8]) -> Option<Bytes> {
    let inner = text.strip_prefix(before)?.strip_suffix(after)?;
    Some(text.slice_ref(inner))
}

/// The 64 digits after `"id":"`, which our own events have near their start.
fn id_of(event: &[u8]) -> &[u8] {
    const MARK: &[u8] = br#""id":""#;
    let start = event.windows(MARK.len()).position(|window| window == MARK).map(|at| at + MARK.len());
    start.and_then(|start| event.get(start..start + ID_DIGITS)).unwrap_or_default()
}

struct Writer {
    websocket: WebSocketStream<TcpStream>,
    chunk: BytesMut,
}

impl Writer {
    /// A text frame from parts. Unlike `Message::text` it is not checked for UTF-8 again.
    async fn write(&mut self, parts: &[&[u8]]) -> Result<(), Error> {
        parts.iter().for_each(|part| self.chunk.extend_from_slice(part));
        let header = FrameHeader { opcode: OpCode::Data(Data::Text), ..FrameHeader::default() };
        let frame = Message::Frame(Frame::from_payload(header, self.chunk.split().freeze()));
        std::future::poll_fn(|cx| std::pin::Pin::new(&mut self.websocket).poll_ready(cx)).await?;
        self.websocket.start_send_unpin(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_with_events_it_does_not_have_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("script.json");
        let mut script = Script { events: vec!["{}".to_owned()], ..Script::default() };
        script.answers.insert("{\"kinds\":[1]}".to_owned(), vec![0]);
        fs::write(&file, serde_json::to_string(&script).unwrap()).unwrap();
        assert_eq!(Script::read(&file).unwrap(), script);
        script.answers.insert("{}".to_owned(), vec![1]);
        fs::write(&file, serde_json::to_string(&script).unwrap()).unwrap();
        let error = Script::read(&file).unwrap_err().to_string();
        assert!(error.contains("events that it does not have"), "{error}");
    }
}
