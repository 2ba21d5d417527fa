//! Does a link on this host take the time that it should? Transfers over the kernel's TCP are
//! compared with what the link's rates and delays demand.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream},
    os::fd::AsRawFd,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, socket};
use serde::{Deserialize, Serialize};

use crate::{
    addresses::{RELAY, user_address},
    emulation::Emulation,
    host,
    profile::{Capacity, Link},
    trace::MTU,
};

/// The link that is checked: a queue that holds every transfer, so that nothing is sent twice.
const LINK: &str = "down=9mbit,up=1.5mbit,rtt=60ms,queue=1s";

/// Round trips of one byte.
const ECHOES: usize = 50;

/// Bytes of TCP payload in a full packet: 20 bytes of IP, 20 of TCP and 12 of its timestamps
/// (RFC 791, RFC 9293, RFC 7323) are the rest.
const SEGMENT: u64 = 1_448;

/// Bytes of a packet without payload.
const HEADERS: u64 = MTU as u64 - SEGMENT;

/// Segments of the initial window (RFC 6928).
const INITIAL_WINDOW: usize = 10;

/// Bytes of the transfers whose time the model of slow start gives.
const TRANSFERS: [u64; 3] = [14_000, 100_000, 1_000_000];

/// Bytes of the bulk transfer, and those of its beginning that do not count.
const BULK: (u64, u64) = (5_000_000, 1_000_000);

/// How long one read or write may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// One figure of the check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// What was measured, with its unit.
    pub what: String,
    /// What the link's rates and delays demand.
    pub expected: f64,
    /// What it was.
    pub measured: f64,
    /// How far it may be off.
    pub tolerance: f64,
}

impl Finding {
    /// Whether it is near enough.
    pub fn holds(&self) -> bool {
        (self.measured - self.expected).abs() <= self.tolerance
    }
}

/// Checks a link. Call it in a process of one thread; the process stays in the link's namespaces.
///
/// # Errors
/// When the host forbids links, or a transfer fails.
pub(crate) fn run() -> anyhow::Result<Vec<Finding>> {
    let link: Link = LINK.parse()?;
    host::enter()?;
    let mut emulation = Emulation::start(std::slice::from_ref(&link), 1, "cubic", || {})?;
    let relay = serve()?;
    emulation.join_users()?;
    emulation.begin()?;
    let mut connection = dial(user_address(0, 0).context("the first user has an address")?, relay)?;
    let mut findings = vec![echo(&mut connection, &link)?];
    for (user, bytes) in (1..).zip(TRANSFERS) {
        let user = user_address(0, user).context("so many users have addresses")?;
        // A connection of its own begins with the initial window.
        findings.push(transfer(&mut dial(user, relay)?, &link, bytes)?);
    }
    let user = user_address(0, 9).context("so many users have addresses")?;
    findings.push(bulk(&mut dial(user, relay)?, &link)?);
    let report = emulation.report()?;
    ensure!(report.unbalanced.is_none(), "packets are missing: {:?}", report.unbalanced);
    let late_ns = report.lateness.quantile_ns(0.99).ns().unwrap_or(report.lateness.max_ns());
    findings.push(Finding {
        what: "lateness of the emulator, p99 in ms".to_owned(),
        expected: 0.0,
        measured: late_ns as f64 / 1e6,
        tolerance: 1.0,
    });
    Ok(findings)
}

/// Answers each 8 bytes with as many bytes as they say, on a thread in this namespace.
fn serve() -> anyhow::Result<SocketAddrV4> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let Ok(listener) = TcpListener::bind((RELAY, 0)) else { return };
        let Ok(address) = listener.local_addr() else { return };
        sender.send(address.port()).ok();
        for connection in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || answer(connection));
        }
    });
    let port = receiver.recv().context("cannot listen in the relay's namespace")?;
    Ok(SocketAddrV4::new(RELAY, port))
}

fn answer(mut connection: TcpStream) -> std::io::Result<()> {
    connection.set_nodelay(true)?;
    let mut asked = [0; 8];
    while connection.read_exact(&mut asked).is_ok() {
        // The check asks for a few megabytes at most.
        let bytes = usize::try_from(u64::from_be_bytes(asked)).unwrap_or(0).min(1 << 24);
        connection.write_all(&vec![0; bytes])?;
    }
    Ok(())
}

fn dial(user: Ipv4Addr, relay: SocketAddrV4) -> anyhow::Result<TcpStream> {
    let fd = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    bind(fd.as_raw_fd(), &SockaddrIn::from(SocketAddrV4::new(user, 0)))
        .with_context(|| format!("cannot bind {user}"))?;
    connect(fd.as_raw_fd(), &SockaddrIn::from(relay)).context("cannot connect over the link")?;
    let connection = TcpStream::from(fd);
    connection.set_nodelay(true)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.set_write_timeout(Some(PATIENCE))?;
    Ok(connection)
}

/// Asks for so many bytes; how long until the first so many, and until all of them, are here.
fn ask(connection: &mut TcpStream, bytes: u64, first: u64) -> anyhow::Result<(Duration, Duration)> {
    let start = Instant::now();
    connection.write_all(&bytes.to_be_bytes())?;
    let mut buffer = vec![0; 1 << 16];
    let (mut here, mut early) = (0, None);
    while here < bytes {
        let count = connection.read(&mut buffer).context("a transfer over the link")?;
        ensure!(count > 0, "a transfer over the link ended after {here} of {bytes} bytes");
        here += count as u64;
        if early.is_none() && here >= first {
            early = Some(start.elapsed());
        }
    }
    let all = start.elapsed();
    Ok((early.unwrap_or(all), all))
}

fn echo(connection: &mut TcpStream, link: &Link) -> anyhow::Result<Finding> {
    let mut times = (0..ECHOES).map(|_| Ok(ask(connection, 1, 1)?.1)).collect::<anyhow::Result<Vec<_>>>()?;
    times.sort_unstable();
    let model = Model::of(link)?;
    let expected = model.request_s() + model.down_s(1);
    Ok(Finding {
        what: "round trip of a byte in ms, median".to_owned(),
        expected: expected * 1e3,
        measured: times[times.len() / 2].as_secs_f64() * 1e3,
        tolerance: 1.0,
    })
}

fn transfer(connection: &mut TcpStream, link: &Link, bytes: u64) -> anyhow::Result<Finding> {
    let expected = Model::of(link)?.transfer_s(bytes);
    let (_, all) = ask(connection, bytes, bytes)?;
    Ok(Finding {
        what: format!("{} kB on a new connection in ms", bytes / 1_000),
        expected: expected * 1e3,
        measured: all.as_secs_f64() * 1e3,
        tolerance: expected * 1e3 * 0.03,
    })
}

fn bulk(connection: &mut TcpStream, link: &Link) -> anyhow::Result<Finding> {
    let (bytes, first) = BULK;
    let (early, all) = ask(connection, bytes, first)?;
    let expected = Model::of(link)?.down_bits_per_s * SEGMENT as f64 / MTU as f64;
    Ok(Finding {
        what: "goodput of a bulk transfer in kbit/s".to_owned(),
        expected: expected / 1e3,
        measured: (bytes - first) as f64 * 8.0 / (all - early).as_secs_f64() / 1e3,
        tolerance: expected / 1e3 * 0.02,
    })
}

/// What a link without loss takes, in seconds.
struct Model {
    down_bits_per_s: f64,
    up_bits_per_s: f64,
    down_delay_s: f64,
    up_delay_s: f64,
}

impl Model {
    fn of(link: &Link) -> anyhow::Result<Model> {
        let rate = |capacity: &Capacity| match capacity {
            Capacity::BitsPerSecond(rate) => Ok(*rate as f64),
            _ => anyhow::bail!("the check is for links of a constant rate"),
        };
        Ok(Model {
            down_bits_per_s: rate(&link.down.capacity)?,
            up_bits_per_s: rate(&link.up.capacity)?,
            down_delay_s: link.down.delay_ns as f64 / 1e9,
            up_delay_s: link.up.delay_ns as f64 / 1e9,
        })
    }

    /// Until a request of 8 bytes is at the relay.
    fn request_s(&self) -> f64 {
        (HEADERS + 8) as f64 * 8.0 / self.up_bits_per_s + self.up_delay_s
    }

    /// Until a packet with so many bytes of payload is at the user.
    fn down_s(&self, payload: u64) -> f64 {
        (HEADERS + payload) as f64 * 8.0 / self.down_bits_per_s + self.down_delay_s
    }

    /// Until an answer is at the user, on a connection that has sent nothing yet. In slow start
    /// each acknowledged segment lets two more go (RFC 5681 §3.1), and each is acknowledged by
    /// itself.
    fn transfer_s(&self, bytes: u64) -> f64 {
        let ack_s = HEADERS as f64 * 8.0 / self.up_bits_per_s + self.up_delay_s;
        let segments = usize::try_from(bytes.div_ceil(SEGMENT)).unwrap_or(usize::MAX);
        let mut acked: Vec<f64> = Vec::new();
        let (mut free, mut here) = (0.0_f64, 0.0);
        for n in 0..segments {
            let go = match n.checked_sub(INITIAL_WINDOW) {
                None => self.request_s(),
                Some(beyond) => acked[beyond / 2],
            };
            let payload = if n + 1 == segments { bytes - n as u64 * SEGMENT } else { SEGMENT };
            free = free.max(go) + (HEADERS + payload) as f64 * 8.0 / self.down_bits_per_s;
            here = free + self.down_delay_s;
            acked.push(here + ack_s);
        }
        here
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_of_slow_start_counts_round_trips_and_bytes() {
        let model = Model::of(&"down=9mbit,up=1.5mbit,rtt=60ms".parse().unwrap()).unwrap();
        let close = |one: f64, other: f64| assert!((one - other).abs() < 1e-6, "{one} {other}");
        // 10 segments need one round trip and their transmission.
        close(model.transfer_s(14_480), model.request_s() + 0.030 + 10.0 * 1_500.0 * 8.0 / 9e6);
        // The eleventh waits for the first acknowledgement.
        let second = model.request_s() + model.down_s(SEGMENT) + 52.0 * 8.0 / 1.5e6 + 0.030;
        close(model.transfer_s(11 * SEGMENT), second + model.down_s(SEGMENT));
        // A long transfer goes at the rate of the link.
        let (long, longer) = (model.transfer_s(2_000 * SEGMENT), model.transfer_s(3_000 * SEGMENT));
        close(longer - long, 1_000.0 * 1_500.0 * 8.0 / 9e6);
        assert!(Model::of(&"slow-4g,rtt=10ms".parse().unwrap()).is_ok());
    }

    #[test]
    fn a_finding_holds_within_its_tolerance() {
        let finding = |measured| Finding { what: String::new(), expected: 100.0, measured, tolerance: 3.0 };
        assert!(finding(97.0).holds() && finding(103.0).holds());
        assert!(!finding(96.9).holds() && !finding(103.1).holds() && !finding(f64::NAN).holds());
    }
}
