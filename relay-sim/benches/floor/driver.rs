//! Clients that cost almost nothing: frames made before the clock starts, answers counted and not
//! decoded.

use std::{
    cell::{Cell, RefCell},
    future::Future,
    net::SocketAddr,
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use codecs::{ClientMessage, Filter, Format, Opcode};
use measure::CpuClock;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::Notify,
    task::{LocalSet, spawn_local},
    time::timeout,
};
use wire::Token;

/// Far beyond what a round takes, so that a relay that loses an event is a failure and not a wait.
const PATIENCE: Duration = Duration::from_secs(60);

/// The filter of every subscriber as JSON has it: live events alone, of all kinds.
pub(super) const FILTER_TEXT: &str = r#"{"limit":0}"#;

/// Who publishes what, and who listens.
#[derive(Debug)]
pub(super) struct Load<'e> {
    /// The format of all messages.
    pub(super) format: Format,
    /// EVENT frames; every publisher sends its share.
    pub(super) frames: &'e [Vec<u8>],
    pub(super) publishers: usize,
    pub(super) subscribers: usize,
    /// Events that a publisher leaves unanswered at most.
    pub(super) window: usize,
}

/// The relay's work for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outcome {
    pub(super) relay_cpu_ns: u64,
    pub(super) elapsed: Duration,
    pub(super) delivered_bytes: u64,
}

/// Plays the load against a relay: ends when every event was answered and reached every subscriber.
pub(super) fn play(address: SocketAddr, relay: &CpuClock, load: &Load<'_>) -> anyhow::Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let played =
        LocalSet::new().block_on(&runtime, async { timeout(PATIENCE, run(address, relay, load)).await });
    played.with_context(|| format!("the relay did not answer and deliver everything within {PATIENCE:?}"))?
}

async fn run(address: SocketAddr, relay: &CpuClock, load: &Load<'_>) -> anyhow::Result<Outcome> {
    let mut subscribers = Vec::new();
    for n in 0..load.subscribers {
        let mut client = Client::connect(address, load.format).await?;
        let (subscription, filters) =
            (format!("s{n:03}").into(), vec![Filter { limit: Some(0), ..Filter::default() }]);
        let req = ClientMessage::Req { subscription, filters };
        client.stream.write_all(&masked(load.format, &req)).await?;
        client.read_until(|frames| frames.messages == 1).await?;
        client.frames = Frames::default();
        subscribers.push(client);
    }
    let mut publishers = Vec::new();
    for _ in 0..load.publishers {
        publishers.push(Client::connect(address, load.format).await?);
    }

    let before = relay.read()?;
    let started = Instant::now();
    let share = load.frames.len().div_ceil(load.publishers);
    let work = Work::default();
    for (mut client, frames) in publishers.into_iter().zip(load.frames.chunks(share)) {
        let (frames, window) = (frames.to_vec(), load.window);
        work.start(async move { client.publish(&frames, window).await.map(|()| 0) });
    }
    let events = load.frames.len() as u64;
    for mut client in subscribers {
        work.start(async move {
            client.read_until(|frames| frames.messages == events).await?;
            Ok(client.frames.payload_bytes)
        });
    }
    let delivered_bytes = work.done().await?;
    Ok(Outcome {
        elapsed: started.elapsed(),
        relay_cpu_ns: relay.read()?.since(before).total_ns,
        delivered_bytes,
    })
}

/// Tasks that run until all are done, and the sum of what they return.
#[derive(Default)]
struct Work(Rc<WorkState>);

#[derive(Default)]
struct WorkState {
    running: Cell<usize>,
    sum: Cell<u64>,
    failed: RefCell<Option<anyhow::Error>>,
    changed: Notify,
}

impl Work {
    fn start(&self, task: impl Future<Output = anyhow::Result<u64>> + 'static) {
        let state = Rc::clone(&self.0);
        state.running.set(state.running.get() + 1);
        spawn_local(async move {
            match task.await {
                Ok(n) => state.sum.set(state.sum.get() + n),
                Err(error) => *state.failed.borrow_mut() = Some(error),
            }
            state.running.set(state.running.get() - 1);
            state.changed.notify_one();
        });
    }

    async fn done(self) -> anyhow::Result<u64> {
        while self.0.running.get() > 0 {
            self.0.changed.notified().await;
            if let Some(error) = self.0.failed.take() {
                return Err(error);
            }
        }
        Ok(self.0.sum.get())
    }
}

/// One connection behind its handshake.
struct Client {
    stream: TcpStream,
    frames: Frames,
    buffer: Vec<u8>,
}

impl Client {
    async fn connect(address: SocketAddr, format: Format) -> anyhow::Result<Client> {
        let mut stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        // Relays of others are asked for nothing.
        let token = Token { format, ..Token::JSON };
        let offer = if format == Format::JSON {
            String::new()
        } else {
            format!("Sec-WebSocket-Protocol: {token}\r\n")
        };
        let request = format!(
            "GET / HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n{offer}\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            // The relay says nothing before it is asked, so the answer ends where reading ends.
            ensure!(stream.read_buf(&mut answer).await? > 0, "the relay refused the handshake");
        }
        Ok(Client { stream, frames: Frames::default(), buffer: vec![0; 64 << 10] })
    }

    async fn read_until(&mut self, enough: impl Fn(&Frames) -> bool) -> anyhow::Result<()> {
        while !enough(&self.frames) {
            let read = self.stream.read(&mut self.buffer).await?;
            ensure!(read > 0, "the relay ended a connection after {} messages", self.frames.messages);
            self.frames.count(&self.buffer[..read]);
        }
        Ok(())
    }

    async fn publish(&mut self, frames: &[Vec<u8>], window: usize) -> anyhow::Result<()> {
        let mut sent = 0;
        loop {
            let answered = usize::try_from(self.frames.messages)?;
            if answered == frames.len() {
                return Ok(());
            }
            let end = frames.len().min(answered + window);
            if end > sent {
                self.stream.write_all(&frames[sent..end].concat()).await?;
                sent = end;
            }
            self.read_until(|frames| frames.messages > answered as u64).await?;
        }
    }
}

/// Counts unmasked frames, however they are cut into reads: those that answer. Relays do not
/// fragment here.
#[derive(Debug, Default)]
struct Frames {
    messages: u64,
    payload_bytes: u64,
    payload_left: usize,
    /// A header and the beginning of its payload.
    start: Vec<u8>,
}

/// As much of a message as tells AUTH and NOTICE from all others.
const VERB_BYTES: usize = 3;

impl Frames {
    fn count(&mut self, mut bytes: &[u8]) {
        loop {
            let skip = self.payload_left.min(bytes.len());
            self.payload_left -= skip;
            bytes = &bytes[skip..];
            let Some((&first, rest)) = bytes.split_first() else { return };
            bytes = rest;
            self.start.push(first);
            let Some((header, payload_bytes)) = header(&self.start) else { continue };
            let (begun, is_control) = (&self.start[header..], self.start[0] & 0x08 != 0);
            if begun.len() < payload_bytes.min(VERB_BYTES) {
                continue;
            }
            if !is_control && !matches!(begun, [b'[', b'"', b'A' | b'N']) {
                self.messages += 1;
                self.payload_bytes += payload_bytes as u64;
            }
            self.payload_left = payload_bytes - begun.len();
            self.start.clear();
        }
    }
}

/// The length of a complete, unmasked header, and the one that it states (RFC 6455 §5.2).
fn header(start: &[u8]) -> Option<(usize, usize)> {
    match *start {
        [_, len @ 0..126, ..] => Some((2, len.into())),
        [_, 126, a, b, ..] => Some((4, u16::from_be_bytes([a, b]).into())),
        [_, 127, a, b, c, d, e, f, g, h, ..] => {
            Some((10, usize::try_from(u64::from_be_bytes([a, b, c, d, e, f, g, h])).ok()?))
        }
        _ => None,
    }
}

/// A message's frame, with a mask of zeros, which leaves the payload as it is.
pub(super) fn masked(format: Format, message: &ClientMessage<'_>) -> Vec<u8> {
    let mut payload = Vec::new();
    format
        .spec()
        .library
        .encode_client(message, &mut payload)
        .expect("every format holds the bundled events");
    let mut frame = vec![if format.spec().opcode == Opcode::Text { 0x81 } else { 0x82 }];
    match payload.len() {
        len @ 0..126 => frame.push(0x80 | len.to_le_bytes()[0]),
        len => match u16::try_from(len) {
            Ok(len) => {
                frame.push(0x80 | 126);
                frame.extend(len.to_be_bytes());
            }
            Err(_) => {
                frame.push(0x80 | 127);
                frame.extend((len as u64).to_be_bytes());
            }
        },
    }
    frame.extend([0; 4]);
    frame.extend(&payload);
    frame
}
