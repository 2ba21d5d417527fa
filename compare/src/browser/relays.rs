//! The relays that pages ask: one for each compression, with the events of the set stored; and what
//! is published to them.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    ffi::OsString,
    net::Ipv4Addr,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use client_sim::own_relay::OwnRelay;
use codecs::{ClientMessage, Event, Format, Implementation};
use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{net::TcpStream, time};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async, tungstenite::Message};
use wire::Compression;

use super::{
    events::{Events, MIXED, ZSTD_LAYER, request},
    rows::PageCell,
};

/// A kind that relays pass on and do not keep (NIP-01), so that a REQ has the same answer in every
/// block.
const EPHEMERAL: u16 = 20_001;
/// Events at most that a page may await.
const MOST_PUBLISHED: usize = 2_000;
/// Time for the relay to take what is published in a step.
const TAKES_WITHIN: Duration = Duration::from_secs(30);

/// Relays that run until this is dropped, by compression.
#[derive(Debug)]
pub(crate) struct Relays {
    by_compression: BTreeMap<String, OwnRelay>,
    stored: Vec<Event<'static>>,
    /// Events published so far, which gives each an id of its own.
    published: AtomicU64,
    _folder: TempDir,
}

impl Relays {
    /// Starts a relay at this address for each compression of the cells.
    ///
    /// # Errors
    /// When a relay does not start, or refuses the compression.
    pub(crate) fn start(events: &Events, cells: &[PageCell], address: Ipv4Addr) -> Result<Relays> {
        let folder = tempfile::TempDir::with_prefix("compare-")
            .context("cannot make a folder for the relay's events")?;
        let file = folder.path().join("events.jsonl");
        let stored: Vec<Event<'static>> = events.in_set(MIXED).into_iter().cloned().collect();
        corpus::write(&file, &stored).context("cannot write the relay's events")?;
        let mut by_compression = BTreeMap::new();
        for cell in cells.iter().filter(|cell| cell.part.is_over_sockets()) {
            let compression = cell.spec.cell.compression.label();
            if by_compression.contains_key(&compression) {
                continue;
            }
            // Ids of live events are no hashes.
            let flags = ["--compression", &*compression, "--verify", "none", "--keep-expired", "--corpus"];
            let flags: Vec<OsString> =
                flags.into_iter().map(OsString::from).chain([file.clone().into_os_string()]).collect();
            let relay = OwnRelay::spawn(&flags, (address, 0).into())
                .with_context(|| format!("a relay with --compression {compression}"))?;
            by_compression.insert(compression, relay);
        }
        Ok(Relays { by_compression, stored, published: AtomicU64::new(0), _folder: folder })
    }

    /// Events like the stored ones that no relay has seen, ready to be published to the relay of a
    /// cell.
    pub(crate) async fn publication(&self, cell: &PageCell, count: &Value) -> Result<Publication> {
        let count = count.as_u64().and_then(|count| usize::try_from(count).ok());
        let count = count
            .filter(|count| *count <= MOST_PUBLISHED)
            .context("the page asks for no events, or too many")?;
        let json = Format::JSON.codec(Implementation::Library)?;
        let mut messages = Vec::with_capacity(count);
        for event in self.stored.iter().cycle().take(count) {
            let number = self.published.fetch_add(1, Ordering::Relaxed);
            let mut event = Event { kind: EPHEMERAL, ..event.clone() };
            event.id[..8].copy_from_slice(&number.to_be_bytes());
            let mut bytes = Vec::new();
            json.encode_client(&ClientMessage::Event(Cow::Owned(event)), &mut bytes)?;
            messages.push(Message::text(String::from_utf8(bytes)?));
        }
        let (socket, _) = connect_async(&self.of(cell)?.url).await.context("cannot connect to publish")?;
        Ok(Publication { socket, messages })
    }

    fn of(&self, cell: &PageCell) -> Result<&OwnRelay> {
        let compression = cell.spec.cell.compression.label();
        self.by_compression.get(&compression).with_context(|| format!("no relay for {compression}"))
    }

    /// A page's connection to the relay of a cell: row, address, what is to be agreed, and the REQ.
    pub(crate) fn connection(&self, cell: &PageCell) -> Result<Value> {
        let PageCell { spec, row, .. } = cell;
        let batches = if spec.cell.batching.is_some() { ".batched" } else { "" };
        let layer = if matches!(spec.cell.compression, Compression::Zstd(_)) { ZSTD_LAYER } else { "" };
        let token = format!("{}{batches}{layer}", spec.cell.format.spec().token);
        let request = request(spec.cell.format)?;
        let deflates = matches!(spec.cell.compression, Compression::Deflate(_));
        let url = &self.of(cell)?.url;
        Ok(json!({
            "id": spec.id, "row": row.name, "url": url, "token": token, "deflates": deflates, "request": request,
        }))
    }
}

/// Events on their way to a relay, in JSON.
#[derive(Debug)]
pub(crate) struct Publication {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    messages: Vec<Message>,
}

impl Publication {
    /// Publishes all of them at once and waits until the relay has accepted each.
    pub(crate) async fn send(self) -> Result<()> {
        let count = self.messages.len();
        let (mut sink, mut stream) = self.socket.split();
        let send = async {
            for message in self.messages {
                sink.feed(message).await.context("cannot publish")?;
            }
            sink.flush().await.context("cannot publish")
        };
        let taken = async {
            for _ in 0..count {
                let answer = stream.next().await.context("the connection closed")?.context("no answer")?;
                let text = answer.to_text().context("no text")?;
                ensure!(text.starts_with("[\"OK\"") && text.contains(",true,"), "it answered {text}");
            }
            Ok(())
        };
        let both = async { tokio::try_join!(send, taken) };
        time::timeout(TAKES_WITHIN, both).await.context("it did not take the events in time")??;
        Ok(())
    }
}
