//! The contenders: each crate as its documentation has an echo server, with the same settings where
//! it has them.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use bytes::BytesMut;
use futures::{SinkExt, StreamExt};
use ratchet_rs::deflate::{Compression, DeflateConfig, DeflateExtProvider};
use serde::{Deserialize, Serialize};
use soketto::handshake::{Server, server::Response};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_tungstenite::tungstenite::{handshake::derive_accept_key, protocol::WebSocketConfig};
use tokio_util::compat::TokioAsyncReadCompatExt;
use tungstenite_deflate::{DeflateParams, Direction};

/// What is compressed, and how: contenders of one group do the same work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    NoCompression,
    Takeover,
    NoTakeover,
    FastestLevel,
}

impl Group {
    pub fn title(self) -> &'static str {
        match self {
            Group::NoCompression => "Without compression",
            Group::Takeover => "Deflate, level 6, window 15, context takeover in both directions (zlib-rs)",
            Group::NoTakeover => "Deflate, level 6, window 15, no context takeover (zlib-rs)",
            Group::FastestLevel => "Deflate, level 1, window 15, no context takeover (stock zlib)",
        }
    }

    /// zlib's level, where there is compression.
    pub fn level(self) -> Option<u32> {
        match self {
            Group::NoCompression => None,
            Group::Takeover | Group::NoTakeover => Some(6),
            Group::FastestLevel => Some(1),
        }
    }

    pub fn takes_over(self) -> bool {
        self == Group::Takeover
    }

    /// The client's offer, which a server answers with the same words.
    pub fn extension(self) -> Option<&'static str> {
        match self {
            Group::NoCompression => None,
            Group::Takeover => Some("permessage-deflate"),
            Group::NoTakeover | Group::FastestLevel => {
                Some("permessage-deflate; server_no_context_takeover; client_no_context_takeover")
            }
        }
    }

    fn params(self) -> Option<DeflateParams> {
        let direction = if self.takes_over() { Direction::DEFAULT } else { Direction::NO_TAKEOVER };
        let level = self.level()?;
        Some(DeflateParams { level, to_client: direction, to_server: direction, ..DeflateParams::DEFAULT })
    }
}

/// An echo server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Contender {
    pub group: Group,
    /// The crate.
    pub name: String,
    /// The crate's version, from the lock file.
    pub version: String,
    /// Settings that differ from the group's, and choices that the crate leaves open.
    pub remark: String,
}

/// The contenders of this build; the first of a group is what others are compared with.
pub fn contenders() -> Vec<Contender> {
    use Group::{FastestLevel, NoCompression, NoTakeover, Takeover};
    let versions = versions();
    let all = [
        (NoCompression, OURS, ""),
        (NoCompression, OURS, LARGE_BUFFER),
        (NoCompression, "tokio-tungstenite", ""),
        (NoCompression, "yawc", "checks UTF-8 (an option)"),
        (NoCompression, "ratchet_rs", ""),
        (NoCompression, "soketto", "UTF-8 checked by the application, as it must be"),
        (NoCompression, "fastwebsockets", ""),
        (Takeover, OURS, ""),
        (Takeover, OURS, LARGE_BUFFER),
        (Takeover, "yawc", "checks UTF-8 (an option)"),
        (Takeover, "ratchet_rs", ""),
        (NoTakeover, OURS, ""),
        (NoTakeover, OURS, LARGE_BUFFER),
        (NoTakeover, "yawc", "checks UTF-8 (an option)"),
        (NoTakeover, "yawc", POOLED),
        (NoTakeover, "ratchet_rs", ""),
        (FastestLevel, OURS, ""),
        (FastestLevel, OURS, LARGE_BUFFER),
        (FastestLevel, "soketto", "has this level only, and takes stock zlib"),
    ];
    let is_here = |group: Group| cfg!(feature = "stock-zlib") == (group == FastestLevel);
    let here = all.into_iter().filter(|(group, ..)| is_here(*group));
    here.map(|(group, name, remark)| Contender {
        group,
        name: name.to_owned(),
        version: versions.get(name).cloned().unwrap_or_default(),
        remark: remark.to_owned(),
    })
    .collect()
}

pub const OURS: &str = "tungstenite-deflate";
const LARGE_BUFFER: &str = "`read_buffer_size` 128 KiB, tungstenite's own";
const POOLED: &str = "checks UTF-8; states from a `DeflatePool`";

/// Versions of the packages that this program is built from.
fn versions() -> BTreeMap<String, String> {
    let lines: Vec<_> = include_str!("../Cargo.lock").lines().collect();
    let value = |line: &str, key: &str| Some(line.strip_prefix(key)?.trim_matches('"').to_owned());
    let pairs = lines.windows(2);
    pairs.filter_map(|pair| Some((value(pair[0], "name = ")?, value(pair[1], "version = ")?))).collect()
}

/// Serves one connection until its client closes it.
pub async fn echo(contender: &Contender, pool: &yawc::DeflatePool, tcp: TcpStream) -> anyhow::Result<()> {
    tcp.set_nodelay(true)?;
    let group = contender.group;
    match contender.name.as_str() {
        OURS => by_tungstenite_deflate(group, contender.remark == LARGE_BUFFER, tcp).await,
        "tokio-tungstenite" => by_tokio_tungstenite(tcp).await,
        "yawc" => by_yawc(group, (contender.remark == POOLED).then(|| pool.clone()), tcp).await,
        "ratchet_rs" => by_ratchet(group, tcp).await,
        "soketto" => by_soketto(tcp).await,
        "fastwebsockets" => by_fastwebsockets(tcp).await,
        other => bail!("no contender {other}"),
    }
}

async fn by_tungstenite_deflate(group: Group, large_buffer: bool, tcp: TcpStream) -> anyhow::Result<()> {
    let enabled: Vec<_> = group.params().into_iter().collect();
    let config = large_buffer.then(WebSocketConfig::default);
    let mut websocket = tungstenite_deflate::accept(tcp, &enabled, config).await?;
    while let Some(message) = websocket.next().await.transpose()? {
        if message.is_text() || message.is_binary() {
            websocket.send(message).await?;
        }
    }
    Ok(())
}

async fn by_tokio_tungstenite(tcp: TcpStream) -> anyhow::Result<()> {
    let mut websocket = tokio_tungstenite::accept_async(tcp).await?;
    while let Some(message) = websocket.next().await.transpose()? {
        if message.is_text() || message.is_binary() {
            websocket.send(message).await?;
        }
    }
    Ok(())
}

async fn by_yawc(group: Group, pool: Option<yawc::DeflatePool>, mut tcp: TcpStream) -> anyhow::Result<()> {
    handshake(group, &mut tcp).await?;
    let mut options = yawc::Options::default().without_compression().with_utf8();
    if let Some(level) = group.level() {
        options = options.with_compression_level(yawc::CompressionLevel::new(level));
    }
    if let Some(compression) = &mut options.compression {
        compression.pool = pool;
    }
    let mut websocket =
        yawc::WebSocket::from_stream_with_extensions(tcp, yawc::Role::Server, group.extension(), options)?;
    while let Some(frame) = websocket.next().await {
        match frame.opcode() {
            yawc::OpCode::Text | yawc::OpCode::Binary => websocket.send(frame).await?,
            yawc::OpCode::Close => break,
            _ => {}
        }
    }
    Ok(())
}

async fn by_ratchet(group: Group, tcp: TcpStream) -> anyhow::Result<()> {
    use ratchet_rs::{NoExtProvider, SubprotocolRegistry, WebSocketConfig, accept_with};
    let (config, protocols) = (WebSocketConfig::default(), SubprotocolRegistry::default());
    let Some(level) = group.level() else {
        let upgrader = accept_with(tcp, config, NoExtProvider, protocols).await?;
        return echo_by_ratchet(upgrader.upgrade().await?.websocket).await;
    };
    let deflate = DeflateConfig {
        accept_no_context_takeover: !group.takes_over(),
        compression_level: Compression::new(level),
        ..DeflateConfig::default()
    };
    let upgrader = accept_with(tcp, config, DeflateExtProvider::with_config(deflate), protocols).await?;
    echo_by_ratchet(upgrader.upgrade().await?.websocket).await
}

async fn echo_by_ratchet<E: ratchet_rs::Extension>(
    mut websocket: ratchet_rs::WebSocket<TcpStream, E>,
) -> anyhow::Result<()> {
    use ratchet_rs::{Message, PayloadType};
    let mut payload = BytesMut::new();
    loop {
        let kind = match websocket.read(&mut payload).await? {
            Message::Text => PayloadType::Text,
            Message::Binary => PayloadType::Binary,
            Message::Ping(_) | Message::Pong(_) => continue,
            Message::Close(_) => return Ok(()),
        };
        websocket.write(&mut payload, kind).await?;
        payload.clear();
    }
}

async fn by_soketto(tcp: TcpStream) -> anyhow::Result<()> {
    use futures::io::{BufReader, BufWriter};
    let mut server = Server::new(BufReader::new(BufWriter::new(tcp.compat())));
    #[cfg(feature = "stock-zlib")]
    server.add_extension(Box::new(soketto::extension::deflate::Deflate::new(soketto::Mode::Server)));
    let key = server.receive_request().await?.key();
    server.send_response(&Response::Accept { key, protocol: None }).await?;
    let (mut sender, mut receiver) = server.into_builder().finish();
    let mut payload = Vec::new();
    loop {
        payload.clear();
        match receiver.receive_data(&mut payload).await {
            Ok(soketto::Data::Text(_)) => sender.send_text(str::from_utf8(&payload)?).await?,
            Ok(soketto::Data::Binary(_)) => sender.send_binary_mut(&mut payload).await?,
            Err(soketto::connection::Error::Closed) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        sender.flush().await?;
    }
}

async fn by_fastwebsockets(mut tcp: TcpStream) -> anyhow::Result<()> {
    use fastwebsockets::{FragmentCollector, OpCode, Role, WebSocket};
    handshake(Group::NoCompression, &mut tcp).await?;
    let mut websocket = FragmentCollector::new(WebSocket::after_handshake(tcp, Role::Server));
    loop {
        let frame = websocket.read_frame().await?;
        match frame.opcode {
            OpCode::Text | OpCode::Binary => websocket.write_frame(frame).await?,
            OpCode::Close => return Ok(()),
            _ => {}
        }
    }
}

/// The handshake for crates that leave it to an HTTP server; nothing of it is measured.
async fn handshake(group: Group, tcp: &mut TcpStream) -> anyhow::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(tcp.read_u8().await?);
    }
    let head = String::from_utf8(head)?;
    let key = head.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: ")).context("no key")?;
    let extension = group.extension().map(|answer| format!("Sec-WebSocket-Extensions: {answer}\r\n"));
    let accept = derive_accept_key(key.as_bytes());
    let answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Accept: {accept}\r\n{}\r\n",
        extension.unwrap_or_default()
    );
    Ok(tcp.write_all(answer.as_bytes()).await?)
}
