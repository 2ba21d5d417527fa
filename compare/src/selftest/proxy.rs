//! A relay behind a proxy that counts the bytes of each socket without parsing frames.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use relay_sim::{Announcement, Totals, Traffic};

/// Upper bound on the end of the proxy's last connection.
const PATIENCE: Duration = Duration::from_secs(2);

/// A relay and the proxy before it.
pub(super) struct CountedRelay {
    relay: Child,
    output: BufReader<std::process::ChildStdout>,
    counts: Arc<Counts>,
    pub(super) url: String,
}

/// Bytes in each direction.
#[derive(Default)]
struct Counts {
    to_relay: AtomicU64,
    to_client: AtomicU64,
    /// Directions of connections that have not ended.
    open: AtomicUsize,
}

/// Bytes of all connections, handshakes included, as (to the relay, to clients), by each counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bytes {
    pub(super) relay: (u64, u64),
    pub(super) proxy: (u64, u64),
}

impl CountedRelay {
    pub(super) fn start(program: &Path) -> Result<CountedRelay> {
        let mut relay = Command::new(program)
            .args(["role:relay", "--listen", "127.0.0.1:0", "--announce", "--verify", "none"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start a relay")?;
        let mut output = BufReader::new(relay.stdout.take().context("stdout was piped")?);
        let mut line = String::new();
        output.read_line(&mut line).context("cannot read the relay's first line")?;
        let announced: Announcement =
            serde_json::from_str(&line).context("the relay did not announce itself")?;
        let address = announced.listening.strip_prefix("ws://").context("the relay speaks TLS")?;
        let address: SocketAddr = address.parse()?;
        let counts = Arc::new(Counts::default());
        let url = count(address, Arc::clone(&counts)).context("cannot start the proxy")?;
        Ok(CountedRelay { relay, output, counts, url })
    }

    /// Stops the relay and returns both counts.
    pub(super) fn stop(mut self) -> Result<Bytes> {
        drop(self.relay.stdin.take());
        let mut line = String::new();
        self.output.read_line(&mut line).context("cannot read the relay's totals")?;
        let status = self.relay.wait()?;
        ensure!(status.success(), "the relay ended with {status}");
        let totals: Totals = serde_json::from_str(&line).context("these are not the totals of a relay")?;
        let Traffic { sent, received, handshake_sent_bytes, handshake_received_bytes } = totals.traffic;
        let deadline = Instant::now() + PATIENCE;
        while self.counts.open.load(Ordering::SeqCst) > 0 && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        let Counts { to_relay, to_client, .. } = &*self.counts;
        Ok(Bytes {
            relay: (received.wire_bytes + handshake_received_bytes, sent.wire_bytes + handshake_sent_bytes),
            proxy: (to_relay.load(Ordering::SeqCst), to_client.load(Ordering::SeqCst)),
        })
    }
}

impl Drop for CountedRelay {
    fn drop(&mut self) {
        // Already gone after `stop`.
        let _ = self.relay.kill();
        let _ = self.relay.wait();
    }
}

/// Accepts connections, counts their bytes and passes them to `relay`.
fn count(relay: SocketAddr, counts: Arc<Counts>) -> io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("ws://{}", listener.local_addr()?);
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            // A connection without a relay is dropped, which fails the client's run.
            let _ = hand_on(&client, relay, &counts);
        }
    });
    Ok(url)
}

fn hand_on(client: &TcpStream, relay: SocketAddr, counts: &Arc<Counts>) -> io::Result<()> {
    let relay = TcpStream::connect(relay)?;
    client.set_nodelay(true)?;
    relay.set_nodelay(true)?;
    let pair = (client.try_clone()?, relay.try_clone()?);
    copy_in_background(pair, counts, |counts| &counts.to_relay);
    let pair = (relay, client.try_clone()?);
    copy_in_background(pair, counts, |counts| &counts.to_client);
    Ok(())
}

fn copy_in_background(
    (from, to): (TcpStream, TcpStream),
    counts: &Arc<Counts>,
    direction: fn(&Counts) -> &AtomicU64,
) {
    let counts = Arc::clone(counts);
    counts.open.fetch_add(1, Ordering::SeqCst);
    thread::spawn(move || {
        copy(from, to, direction(&counts));
        counts.open.fetch_sub(1, Ordering::SeqCst);
    });
}

fn copy(mut from: TcpStream, mut to: TcpStream, counter: &AtomicU64) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        counter.fetch_add(read as u64, Ordering::SeqCst);
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
