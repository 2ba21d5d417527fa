//! Tens of thousands of connections to one relay.

use std::{
    net::{Ipv4Addr, SocketAddr},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use codecs::Format;
use measure::CpuClock;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::{sleep, timeout},
};
use wire::{Compression, Offer, WireLimits};

use crate::{
    common::{delivery, event_json, note},
    processes::announced_by,
    resources::{HANDSHAKE, address, descriptors, status_kib, stop},
};

/// Below the 28,232 ports that Linux gives out for each source address.
const CONNECTIONS_OF_AN_ADDRESS: usize = 20_000;

const EVENTS: usize = 10;

const IDLE: Duration = Duration::from_secs(10);

/// Far beyond what any step takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// Prints what a connection takes: memory of the relay, its CPU while nobody says anything, and
/// while each gets one event a second. `RELAY_SIM_CONNECTIONS=10000` takes another number.
#[tokio::test]
#[ignore = "needs 100,200 descriptors and two minutes: cargo test --release -p relay-sim --test it campaign_50_000 -- --ignored --nocapture"]
async fn campaign_50_000_connections_get_an_event_a_second_each() {
    let count = std::env::var("RELAY_SIM_CONNECTIONS").map_or(50_000, |count| count.parse().unwrap());
    let descriptors_needed = count as u64 + 200;
    allow_descriptors(descriptors_needed);
    let (child, url, stdout) =
        announced_by(Command::new(env!("CARGO_BIN_EXE_relay-sim")), &["--verify", "none"]);
    let address = address(&url);
    // The first connections, so that what is allocated once is there.
    drop(open(address, 100).await);
    while descriptors(&child) > 30 {
        sleep(Duration::from_millis(10)).await;
    }
    let kib_before = status_kib(&child, "VmRSS");
    let streams = open(address, count).await;
    let bytes_each = (status_kib(&child, "VmRSS") - kib_before) * 1024 / count as u64;

    let clock = CpuClock::of_process(child.id()).unwrap();
    let before = clock.read().unwrap();
    sleep(IDLE).await;
    let idle_ns = clock.read().unwrap().since(before).total_ns;

    let notes: Vec<_> = (0..EVENTS).map(|n| note(n, 1_700_000_000)).collect();
    let expected: usize = notes.iter().map(|note| frame_bytes(delivery("a", note).len())).sum();
    let read = Arc::new(AtomicU64::new(0));
    for stream in streams {
        tokio::spawn(count_bytes(stream, expected, Arc::clone(&read)));
    }
    let offer = Offer { batched: false, formats: vec![Format::JSON], compression: Compression::None };
    let mut publisher = wire::connect(&url, &offer, &WireLimits::default()).await.unwrap();
    let before = clock.read().unwrap();
    for note in &notes {
        let due = Instant::now() + Duration::from_secs(1);
        publisher.feed(format!(r#"["EVENT",{}]"#, event_json(note)).into()).await.unwrap();
        publisher.flush().await.unwrap();
        tokio::time::sleep_until(due.into()).await;
    }
    let all_is_read = async {
        while read.load(Ordering::Relaxed) < count as u64 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, all_is_read).await.expect("every subscriber gets every event");
    let busy_ns = clock.read().unwrap().since(before).total_ns;
    eprintln!(
        "{count} connections: {bytes_each} bytes of the relay each; idle {:.1} ms CPU a second, at one event a second \
         each {:.2} µs CPU a delivery",
        idle_ns as f64 / 1e6 / IDLE.as_secs_f64(),
        busy_ns as f64 / 1e3 / (count * EVENTS) as f64,
    );
    // Sessions take several times as much without optimisation.
    assert!(bytes_each <= 8_192 || cfg!(debug_assertions), "a connection takes {bytes_each} bytes");
    drop(publisher);
    let totals = stop(child, stdout);
    assert_eq!(totals["deliveries_live"], (count * EVENTS) as u64);
    assert_eq!((&totals["sessions_panicked"], &totals["slow_consumers"]), (&0.into(), &0.into()));
}

/// Raises the limit of this process, which the relay inherits.
fn allow_descriptors(needed: u64) {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    if soft < needed {
        setrlimit(Resource::RLIMIT_NOFILE, needed, hard.max(needed)).unwrap_or_else(|error| {
            panic!("{needed} descriptors: {error}; run as root, or raise `ulimit -Hn`")
        });
    }
}

/// Connections from several addresses, each with one subscription to all notes.
async fn open(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    const AT_ONCE: usize = 50;
    let mut streams = Vec::with_capacity(count);
    for start in (0..count).step_by(AT_ONCE) {
        let together = (start..count.min(start + AT_ONCE)).map(|n| subscribe(address, n));
        streams.extend(futures::future::join_all(together).await);
    }
    streams
}

async fn subscribe(address: SocketAddr, n: usize) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    let source = Ipv4Addr::new(127, 0, 1, u8::try_from(1 + n / CONNECTIONS_OF_AN_ADDRESS).unwrap());
    socket.bind(SocketAddr::from((source, 0))).unwrap();
    let mut stream = socket.connect(address).await.unwrap();
    stream.write_all(HANDSHAKE.as_bytes()).await.unwrap();
    let request = br#"["REQ","a",{"kinds":[1],"limit":0}]"#;
    let len = u8::try_from(request.len()).unwrap();
    stream.write_all(&[&[0x81, 0x80 | len, 0, 0, 0, 0], &request[..]].concat()).await.unwrap();
    let mut heard = Vec::new();
    while !heard.ends_with(br#"["EOSE","a"]"#) {
        let read = timeout(PATIENCE, stream.read_buf(&mut heard)).await.unwrap().unwrap();
        assert!(read > 0, "the relay serves everybody");
    }
    stream
}

/// The bytes of an unmasked frame (RFC 6455 §5.2).
fn frame_bytes(payload: usize) -> usize {
    assert!((126..1 << 16).contains(&payload), "a note of usual length");
    payload + 4
}

/// Reads so many bytes, then counts one connection that has everything, and stays. A Ping of the
/// relay would be two bytes more: the totals say whether the last event was sent whole.
async fn count_bytes(mut stream: TcpStream, expected: usize, done: Arc<AtomicU64>) {
    let mut buffer = [0; 1024];
    let mut read = 0;
    while read < expected {
        match stream.read(&mut buffer).await {
            Ok(bytes @ 1..) => read += bytes,
            _ => return,
        }
    }
    done.fetch_add(1, Ordering::Relaxed);
    std::future::pending::<()>().await;
}
