//! The client of all contenders: frames that were made before, and echoes that are counted, so that
//! it costs little. Before the first timed round every echo is compared with what was sent.

use std::net::SocketAddr;

use anyhow::{Context as _, bail, ensure};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::contenders::Group;

/// How many messages are sent at once, and then waited for.
pub const BATCH: usize = 16;

const FIN: u8 = 0x80;
const RSV1: u8 = 0x40;
const OPCODE: u8 = 0x0f;
const TEXT: u8 = 1;
const CLOSE: u8 = 8;
const MASKED: u8 = 0x80;
/// Clients mask by a random key (RFC 6455 §5.3), which only proxies depend on.
const MASK: [u8; 4] = [0x9a, 0x31, 0x5c, 0xe7];
const FLUSH_TAIL: [u8; 4] = [0, 0, 0xff, 0xff];

/// A connection's messages as a client of this group frames them, batch after batch.
pub struct Script {
    group: Group,
    messages: Vec<String>,
    batches: Vec<Vec<u8>>,
}

impl Script {
    pub fn new(group: Group, messages: &[String]) -> anyhow::Result<Script> {
        let level = group.level().map(|level| Compression::new(level));
        let mut state = level.map(|level| Compress::new_with_window_bits(level, false, 15));
        let mut batches = Vec::new();
        for batch in messages.chunks(BATCH) {
            let mut frames = Vec::new();
            for message in batch {
                match &mut state {
                    None => push_frame(FIN | TEXT, message.as_bytes(), &mut frames),
                    Some(state) => {
                        if !group.takes_over() {
                            state.reset();
                        }
                        push_frame(FIN | RSV1 | TEXT, &deflated(state, message)?, &mut frames);
                    }
                }
            }
            batches.push(frames);
        }
        Ok(Script { group, messages: messages.to_vec(), batches })
    }

    /// Messages behind the first batch, which warms up.
    pub fn timed(&self) -> usize {
        self.messages.len() - self.messages.len().min(BATCH)
    }
}

fn deflated(state: &mut Compress, message: &str) -> anyhow::Result<Vec<u8>> {
    let mut out = Vec::with_capacity(message.len() + message.len() / 8 + 256);
    let before = state.total_in();
    state.compress_vec(message.as_bytes(), &mut out, FlushCompress::Sync)?;
    ensure!(state.total_in() - before == message.len() as u64, "the buffer holds a stored message");
    Ok(out.strip_suffix(&FLUSH_TAIL).context("a sync flush ends with an empty block")?.to_vec())
}

fn push_frame(first: u8, payload: &[u8], out: &mut Vec<u8>) {
    out.push(first);
    match payload.len() {
        len @ 0..126 => out.push(MASKED | len as u8),
        len @ 126..65_536 => {
            out.push(MASKED | 126);
            out.extend((len as u16).to_be_bytes());
        }
        len => {
            out.push(MASKED | 127);
            out.extend((len as u64).to_be_bytes());
        }
    }
    out.extend(MASK);
    out.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
}

/// An open connection.
pub struct Connection<'s> {
    script: &'s Script,
    tcp: TcpStream,
    inbox: Vec<u8>,
    next_batch: usize,
    echoed: usize,
    /// Bytes of echoes on the wire.
    pub wire_bytes: u64,
    /// Present if echoes are compared with what was sent.
    check: Option<Option<Decompress>>,
}

impl<'s> Connection<'s> {
    /// Connects, and makes sure that the group's extension is agreed on.
    pub async fn open(address: SocketAddr, script: &'s Script, check: bool) -> anyhow::Result<Self> {
        let mut tcp = TcpStream::connect(address).await?;
        tcp.set_nodelay(true)?;
        let offer = script.group.extension().map(|offer| format!("Sec-WebSocket-Extensions: {offer}\r\n"));
        let request = format!(
            "GET / HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{}\r\n",
            offer.unwrap_or_default()
        );
        tcp.write_all(request.as_bytes()).await?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(tcp.read_u8().await.context("the server ended the handshake")?);
        }
        let head = String::from_utf8(head)?.to_lowercase();
        ensure!(head.starts_with("http/1.1 101"), "no upgrade: {head}");
        let answer = head.lines().find_map(|line| line.strip_prefix("sec-websocket-extensions:"));
        let words = |header: &str| {
            let mut words: Vec<_> = header.split(';').map(|word| word.trim().to_owned()).collect();
            words.sort();
            words
        };
        ensure!(
            answer.map(words) == script.group.extension().map(words),
            "offered {:?}, granted {answer:?}",
            script.group.extension()
        );
        let inflater = script.group.level().map(|_| Decompress::new_with_window_bits(false, 15));
        let check = check.then_some(inflater);
        Ok(Connection { script, tcp, inbox: Vec::new(), next_batch: 0, echoed: 0, wire_bytes: 0, check })
    }

    /// Sends so many batches, each after the echoes of the one before; fewer where the script ends.
    pub async fn play(&mut self, batches: usize) -> anyhow::Result<()> {
        let script = self.script;
        for _ in 0..batches {
            let Some(frames) = script.batches.get(self.next_batch) else { break };
            self.next_batch += 1;
            let until = script.messages.len().min(self.next_batch * BATCH);
            let (mut reader, mut writer) = self.tcp.split();
            let echoes = &mut Echoes {
                script,
                inbox: &mut self.inbox,
                echoed: &mut self.echoed,
                wire_bytes: &mut self.wire_bytes,
                check: &mut self.check,
            };
            let read = async {
                while *echoes.echoed < until {
                    echoes.take()?;
                    if *echoes.echoed < until && reader.read_buf(echoes.inbox).await? == 0 {
                        bail!("the server ended the connection behind {} echoes", echoes.echoed);
                    }
                }
                Ok(())
            };
            let write = async { anyhow::Ok(writer.write_all(frames).await?) };
            tokio::try_join!(write, read)?;
        }
        Ok(())
    }

    /// Says goodbye, so that the server has nothing to complain about.
    pub async fn close(mut self) -> anyhow::Result<()> {
        let mut frame = Vec::new();
        push_frame(FIN | CLOSE, &1000_u16.to_be_bytes(), &mut frame);
        self.tcp.write_all(&frame).await?;
        self.tcp.shutdown().await?;
        self.inbox.clear();
        // A reset is as good an end.
        let _: Result<usize, _> = self.tcp.read_to_end(&mut self.inbox).await;
        Ok(())
    }
}

struct Echoes<'c> {
    script: &'c Script,
    inbox: &'c mut Vec<u8>,
    echoed: &'c mut usize,
    wire_bytes: &'c mut u64,
    check: &'c mut Option<Option<Decompress>>,
}

impl Echoes<'_> {
    /// Takes all whole frames out of the inbox.
    fn take(&mut self) -> anyhow::Result<()> {
        let mut at = 0;
        while let Some((first, payload_at, end)) = frame(&self.inbox[at..])? {
            ensure!(first & (FIN | OPCODE) == FIN | TEXT, "a frame begins with {first:#x}");
            if let Some(inflater) = &mut self.check {
                let payload = &self.inbox[at + payload_at..at + end];
                let message = self.script.messages.get(*self.echoed).context("an echo of nothing")?;
                let echo = match inflater {
                    Some(inflater) if first & RSV1 != 0 => {
                        inflated(inflater, self.script.group, payload, message.len())?
                    }
                    _ => payload.to_vec(),
                };
                ensure!(echo == message.as_bytes(), "echo {} differs from the message", self.echoed);
            }
            *self.echoed += 1;
            *self.wire_bytes += end as u64;
            at += end;
        }
        self.inbox.drain(..at);
        Ok(())
    }
}

/// First byte, start of the payload and end of the first frame, once it is here.
fn frame(bytes: &[u8]) -> anyhow::Result<Option<(u8, usize, usize)>> {
    let [first, len, rest @ ..] = bytes else { return Ok(None) };
    ensure!(len & MASKED == 0, "a server's frame is masked");
    let (payload_at, len) = match (len, rest) {
        (126, [a, b, ..]) => (4, usize::from(u16::from_be_bytes([*a, *b]))),
        (127, [a, b, c, d, e, f, g, h, ..]) => {
            (10, usize::try_from(u64::from_be_bytes([*a, *b, *c, *d, *e, *f, *g, *h]))?)
        }
        (126 | 127, _) => return Ok(None),
        (len, _) => (2, usize::from(*len)),
    };
    ensure!(len < 1 << 24, "a frame of {len} bytes");
    let end = payload_at + len;
    Ok((bytes.len() >= end).then_some((*first, payload_at, end)))
}

fn inflated(
    state: &mut Decompress,
    group: Group,
    payload: &[u8],
    expected_bytes: usize,
) -> anyhow::Result<Vec<u8>> {
    if !group.takes_over() {
        state.reset(false);
    }
    let mut out = Vec::with_capacity(expected_bytes + 64);
    let whole = [payload, &FLUSH_TAIL].concat();
    let before = state.total_in();
    state.decompress_vec(&whole, &mut out, FlushDecompress::Sync)?;
    ensure!(state.total_in() - before == whole.len() as u64, "an echo is longer than the message");
    Ok(out)
}
