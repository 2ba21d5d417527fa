//! Resources that peers can take from the program: memory, descriptors, tasks.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    process::Child,
    time::Duration,
};

use codecs::{Filter, Format};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::{sleep, timeout},
};
use wire::{CloseCode, Compression, Offer, WireError, WireLimits};

use crate::{
    common::{Client, PATIENCE},
    processes::{announced, announced_by, stop},
};

const HANDSHAKE: &str = "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";

/// A line of `/proc/PID/status` in KiB.
fn status_kib(child: &Child, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
}

fn descriptors(child: &Child) -> usize {
    fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap().count()
}

fn address(url: &str) -> SocketAddr {
    url.strip_prefix("ws://").unwrap().parse().unwrap()
}

/// Demands that a REQ is answered in time.
async fn check_served(url: &str) {
    let mut client = timeout(PATIENCE, Client::json(url)).await.expect("a connection in time");
    client.request("a", vec![Filter { limit: Some(0), ..Filter::default() }]).await;
    client.expect(r#"["EOSE","a"]"#).await;
    client.conn.close(CloseCode::Normal, "").await;
}

#[tokio::test]
async fn oversize_messages_are_closed_with_1009_below_twice_the_limit_of_memory() {
    const LIMIT_BYTES: usize = 16 << 20;
    const BOMB_BYTES: usize = 40 << 20;
    let limits = WireLimits { max_message_bytes: LIMIT_BYTES, ..WireLimits::default() };
    for compression in Compression::NAMES {
        let (child, url, stdout) = announced(&["--max-message-bytes", &LIMIT_BYTES.to_string()]);
        check_served(&url).await;
        let before_kib = status_kib(&child, "VmHWM");
        for _ in 0..2 {
            let offer = Offer {
                batched: false,
                formats: vec![Format::JSON],
                compression: Compression::named(compression).unwrap(),
            };
            let mut conn = wire::connect(&url, &offer, &limits).await.unwrap();
            conn.feed(vec![b' '; BOMB_BYTES].into()).await.unwrap();
            conn.flush().await.unwrap();
            let end = timeout(PATIENCE, conn.next()).await.unwrap();
            assert!(matches!(end, Some(Err(WireError::Closed { code: 1009, .. }))), "{compression}: {end:?}");
        }
        let grown_kib = status_kib(&child, "VmHWM") - before_kib;
        assert!(grown_kib < 2 * (LIMIT_BYTES >> 10) as u64, "{compression}: grew by {grown_kib} KiB");
        check_served(&url).await;
        stop(child, stdout);
    }
}

#[tokio::test]
async fn a_length_that_is_only_claimed_takes_no_memory() {
    let (child, url, stdout) = announced(&["--max-message-bytes", &(256 << 20).to_string()]);
    check_served(&url).await;
    let before_kib = status_kib(&child, "VmHWM");
    let mut streams = Vec::new();
    for _ in 0..10 {
        let mut stream = TcpStream::connect(address(&url)).await.unwrap();
        // Text, masked, a length of 200 MiB, which is allowed, and one byte of it.
        let mut bytes = [HANDSHAKE.as_bytes(), &[0x81, 0xff]].concat();
        bytes.extend((200_u64 << 20).to_be_bytes());
        bytes.extend([0, 0, 0, 0, b'[']);
        stream.write_all(&bytes).await.unwrap();
        streams.push(stream);
    }
    check_served(&url).await;
    let grown_kib = status_kib(&child, "VmHWM") - before_kib;
    assert!(grown_kib < 16 << 10, "ten claims of 200 MiB took {grown_kib} KiB");
    stop(child, stdout);
}

#[tokio::test]
async fn a_relay_out_of_descriptors_serves_again_when_there_are_some() {
    const LIMIT: usize = 40;
    let mut command = std::process::Command::new("sh");
    let script = format!("ulimit -n {LIMIT} && exec \"$0\" \"$@\"");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_relay-sim")]);
    let (child, url, stdout) = announced_by(command, &[]);
    let mut crowd = Vec::new();
    for _ in 0..2 * LIMIT {
        // The kernel accepts them all; the relay cannot.
        crowd.push(TcpStream::connect(address(&url)).await.unwrap());
    }
    while descriptors(&child) < LIMIT {
        sleep(Duration::from_millis(10)).await;
    }
    drop(crowd);
    check_served(&url).await;
    let totals = stop(child, stdout);
    assert_eq!(totals["sessions_panicked"], 0);
}

/// Connections that end in every way, a few hundred here; `RELAY_SIM_CHURN=100000 cargo test
/// --release -p relay-sim --test it nothing_is_left -- --nocapture` shows the same over 100,000,
/// with figures.
#[tokio::test]
async fn nothing_is_left_of_connections_that_ended() {
    let count: u32 = std::env::var("RELAY_SIM_CHURN").map_or(300, |count| count.parse().unwrap());
    let (child, url, stdout) = announced(&[]);
    // The first connections of each kind, so that what is allocated once is there.
    churn(&url, 0..100).await;
    let (descriptors_before, kib_before) = settled(&child).await;
    churn(&url, 100..100 + count).await;
    let (descriptors_after, kib_after) = settled(&child).await;
    eprintln!(
        "{count} connections: {descriptors_before} descriptors before, {descriptors_after} after; \
         {kib_before} KiB resident before, {kib_after} after"
    );
    assert_eq!(descriptors_before, descriptors_after);
    // A leaked task holds its read buffer, 2 KiB.
    assert!(kib_after < kib_before + 4_096 + u64::from(count), "less than 1 KiB a connection");
    let totals = stop(child, stdout);
    assert_eq!(totals["sessions_left"], 0, "sessions that outlived their connection");
    assert_eq!(totals["sessions_panicked"], 0);
}

/// Descriptors and resident memory when all sessions have ended: the count stands still.
async fn settled(child: &Child) -> (usize, u64) {
    let (mut last, mut since) = (descriptors(child), 0);
    while since < 5 {
        sleep(Duration::from_millis(50)).await;
        let now = descriptors(child);
        since = if now == last { since + 1 } else { 0 };
        last = now;
    }
    (last, status_kib(child, "VmRSS"))
}

async fn churn(url: &str, range: std::ops::Range<u32>) {
    const AT_ONCE: u32 = 50;
    let address = address(url);
    let mut at = range.start;
    while at < range.end {
        let end = range.end.min(at + AT_ONCE);
        futures::future::join_all((at..end).map(|n| come_and_go(address, n))).await;
        at = end;
    }
}

/// One connection: broken off before, in or after its handshake, with or without a subscription,
/// reset or closed.
async fn come_and_go(address: SocketAddr, n: u32) {
    let socket = TcpSocket::new_v4().unwrap();
    // 28,000 ports for each source address, and a port rests for a minute.
    let source = Ipv4Addr::new(127, 0, 0, u8::try_from(2 + n % 50).unwrap());
    socket.bind(SocketAddr::from((source, 0))).unwrap();
    let mut stream = socket.connect(address).await.unwrap();
    let handshake = HANDSHAKE.as_bytes();
    match n % 5 {
        0 => {}
        1 => stream.write_all(&handshake[..20]).await.unwrap(),
        way => {
            stream.write_all(handshake).await.unwrap();
            let request = br#"["REQ","a",{"limit":0}]"#;
            let len = u8::try_from(request.len()).unwrap();
            stream.write_all(&[&[0x81, 0x80 | len, 0, 0, 0, 0], &request[..]].concat()).await.unwrap();
            let mut heard = Vec::new();
            while !heard.ends_with(br#"["EOSE","a"]"#) {
                let read = timeout(PATIENCE, stream.read_buf(&mut heard)).await.unwrap().unwrap();
                assert!(read > 0, "the relay serves everybody");
            }
            if way == 2 {
                stream.write_all(&[0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe8]).await.unwrap();
                while timeout(PATIENCE, stream.read_buf(&mut heard)).await.unwrap().is_ok_and(|read| read > 0)
                {
                }
            } else if way == 3 {
                stream.set_zero_linger().unwrap(); // dropping it is a reset
            }
        }
    }
}
