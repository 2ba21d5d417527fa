//! One event for 500 connections: uncompressed, and compressed once for all.

use std::net::SocketAddr;

use anyhow::Context;
use codecs::Format;
use tokio::{io::AsyncReadExt, net::TcpListener, task::JoinSet};
use wire::{Compression, Connection, Shared};

use crate::{
    PEER_CORE, SERVER_CORE, accepted, address_channel, cpu_ns, join, median, on_core, raw_client, say,
    server_config,
};

const CONNECTIONS: usize = 500;
const BATCH: usize = 8;
const BATCHES: usize = 60;

pub(crate) fn measure(rounds: usize) -> anyhow::Result<()> {
    let names = ["none", "deflate-shared"];
    let mut each: Vec<[(f64, f64); 2]> = Vec::new();
    for _ in 0..rounds {
        let mut round = [(0.0, 0.0); 2];
        for (n, name) in names.into_iter().enumerate() {
            round[n] = play(name.parse()?).with_context(|| name)?;
        }
        each.push(round);
    }
    let column = |of: fn(&[(f64, f64); 2]) -> f64| median(each.iter().map(of));
    say(&format!(
        "fan-out to {CONNECTIONS}, {BATCH} a flush, sender's CPU µs a delivery: uncompressed {:.2} ({:.0} B), deflate-shared {:.2} \
         ({:.0} B): {:.2} x",
        column(|round| round[0].0),
        column(|round| round[0].1),
        column(|round| round[1].0),
        column(|round| round[1].1),
        column(|round| round[1].0 / round[0].0),
    ));
    Ok(())
}

/// CPU in microseconds and bytes at the socket, a delivery.
fn play(compression: Compression) -> anyhow::Result<(f64, f64)> {
    let (tell, told) = address_channel();
    let sender = on_core(SERVER_CORE, async move || {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        tell.send(listener.local_addr()?)?;
        let config = server_config(compression);
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            let (stream, _) = listener.accept().await?;
            connections.push(accepted(stream, &config).await?);
        }
        let before = cpu_ns()?;
        send(&mut connections).await?;
        let deliveries = (CONNECTIONS * BATCHES * BATCH) as f64;
        let spent = cpu_ns()? - before;
        let wire_bytes: u64 = connections.iter().map(|connection| connection.traffic().sent.wire_bytes).sum();
        Ok((spent as f64 / 1e3 / deliveries, wire_bytes as f64 / deliveries))
    });
    let address = told.recv()?;
    let readers = on_core(PEER_CORE, async move || read_all(address).await);
    let figures = join(sender)?;
    join(readers)?;
    Ok(figures)
}

/// Sends each event to every connection, behind its subscription id.
async fn send(connections: &mut [Connection]) -> anyhow::Result<()> {
    let json = Format::JSON.spec().library;
    let events = events();
    for batch in events.chunks(BATCH) {
        let shared: Vec<_> = batch.iter().map(|_| Shared::default()).collect();
        for (n, connection) in connections.iter_mut().enumerate() {
            let subscription = format!("s{n:03}");
            let prefix_bytes = r#"["EVENT","","#.len() + subscription.len();
            let mut together = Vec::with_capacity(batch.iter().map(|event| event.len() + 32).sum());
            let ends = batch.iter().map(|event| {
                json.wrap_event(&subscription, event, &mut together);
                together.len()
            });
            let ends: Vec<_> = ends.collect();
            let mut start = 0;
            for (end, shared) in ends.into_iter().zip(&shared) {
                let (prefix, common) = together[start..end].split_at(prefix_bytes);
                connection.feed_shared(prefix, [common, b""], shared).await?;
                start = end;
            }
            connection.flush().await?;
        }
    }
    Ok(())
}

/// Notes as JSON: random hex, which is most of a note, and text of 16 different words.
fn events() -> Vec<Vec<u8>> {
    const WORDS: [&str; 16] = [
        "the", "relay", "was", "a", "note", "and", "of", "nobody", "zap", "this", "morning", "https://",
        "in", "bitcoin", "I", "nostr",
    ];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let note = |n: usize| {
        let mut hex = |digits: usize| {
            let text: String = (0..digits / 16).map(|_| format!("{:016x}", random())).collect();
            text
        };
        let (id, pubkey, sig) = (hex(64), hex(64), hex(128));
        let tags: Vec<_> = (0..n % 8).map(|_| format!(r#"["p","{}"]"#, hex(64))).collect();
        let digits = hex(16 * (1 + n % 12));
        let words = digits.chars().filter_map(|digit| digit.to_digit(16));
        let content: Vec<_> = words.map(|word| WORDS[word as usize]).collect();
        format!(
            r#"{{"id":"{id}","pubkey":"{pubkey}","created_at":{},"kind":1,"tags":[{}],"content":"{}","sig":"{sig}"}}"#,
            1_700_000_000 + n,
            tags.join(","),
            content.join(" "),
        )
        .into_bytes()
    };
    (0..BATCH * BATCHES).map(note).collect()
}

async fn read_all(address: SocketAddr) -> anyhow::Result<()> {
    let mut readers = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let mut stream = raw_client(address, "Sec-WebSocket-Extensions: permessage-deflate\r\n").await?;
        readers.spawn_local(async move {
            let mut buffer = vec![0; 32 << 10];
            while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
        });
    }
    while readers.join_next().await.is_some() {}
    Ok(())
}
