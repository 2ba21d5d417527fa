//! A gateway whose memory does not grow with what has passed.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use futures::{SinkExt, StreamExt, stream};
use tokio_tungstenite::tungstenite::Message;
use wire::{CloseCode, Offer, WireLimits};

use crate::common::{event, patiently, relay, upgraded};

/// Memory of a process that is its own, in KiB (`RssAnon`, proc_pid_status(5)).
fn own_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.unwrap().trim().trim_end_matches(" kB").parse().unwrap()
}

/// Reads all of a session's messages, then leaves in order or not; how many there were.
async fn visit(address: &str, n: usize, messages: usize) -> usize {
    let (format, compression) = [
        ("json", "none"),
        ("json", "deflate"),
        ("json", "zstd-shared"),
        ("dannypack", "zstd-dict"),
        ("cbor-packed", "deflate"),
    ][n % 5];
    let (formats, compression) = (vec![format.parse().unwrap()], compression.parse().unwrap());
    let offer = Offer { batched: false, formats, compression };
    let (url, limits) = (format!("ws://{address}"), WireLimits::default());
    let mut client = patiently(wire::connect(&url, &offer, &limits)).await.unwrap();
    for _ in 0..messages {
        patiently(client.next()).await.unwrap().unwrap();
    }
    if n.is_multiple_of(3) {
        client.reset();
    } else {
        patiently(client.close(CloseCode::Normal, "")).await;
    }
    messages
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a campaign of 1,000,000 deliveries to 5,000 clients that come and go; minutes"]
async fn campaign_of_a_weeks_traffic() {
    const ROUNDS: usize = 10;
    const VISITS: usize = 250;
    const MESSAGES: usize = 200;
    // The cache is full after the first round; the rest is room for an allocator.
    const MOST_GROWN_KIB: u64 = 16 << 10;
    static VISITED: AtomicU32 = AtomicU32::new(0);
    // A session brings what others brought, and new events.
    let relay = relay(|stream| async move {
        let (mut socket, _) = upgraded(stream).await;
        let first = 20 * VISITED.fetch_add(1, Relaxed) as usize;
        for n in first..first + MESSAGES {
            let message = format!(r#"["EVENT","s",{}]"#, event(1, &format!("{n} ")));
            if socket.feed(Message::text(message)).await.is_err() {
                return;
            }
        }
        socket.flush().await.ok();
        while let Some(Ok(_)) = socket.next().await {}
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    for records in [false, true] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gateway"));
        command.args(["--announce", "--listen", "127.0.0.1:0", "--relay", &format!("ws://{relay}")]);
        command.args(["--cache-bytes", "4194304"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        if records {
            command.arg("--record").arg(folder.path().join("day.jsonl.zst"));
        }
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.split("ws://").nth(1).unwrap().split('"').next().unwrap();
        let mut kib = Vec::new();
        for _ in 0..ROUNDS {
            let visits = (0..VISITS).map(|n| visit(address, n, MESSAGES));
            let heard: Vec<_> = stream::iter(visits).buffer_unordered(20).collect().await;
            assert_eq!(heard.iter().sum::<usize>(), VISITS * MESSAGES);
            kib.push(own_kib(child.id()));
        }
        println!("{} deliveries, recording {records}: {kib:?} KiB", ROUNDS * VISITS * MESSAGES);
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
        let most = kib[2..].iter().max().unwrap();
        assert!(*most <= kib[1] + MOST_GROWN_KIB, "{kib:?} KiB");
    }
}
