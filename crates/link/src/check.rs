//! Does a link on this host take the time that it should? Transfers over the kernel's TCP are
//! compared with the link's rates and delays, and lost packets with the link's share.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream, UdpSocket},
    os::fd::AsRawFd,
    sync::{Arc, Barrier, mpsc},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow, ensure};
use measure::{may_be_late_ns, runnable_wait_ns};
use nix::sys::socket::{AddressFamily, SockType, SockaddrIn, bind, connect, socket};
use serde::{Deserialize, Serialize};

use crate::{
    addresses::{RELAY, UNSHAPED, user_address},
    emulation::Emulation,
    host,
    profile::{Capacity, Link},
    protocol::DEFAULT_CONGESTION,
    trace::MTU,
};

/// The link that is checked: a queue that holds every transfer, so that nothing is sent twice.
const LINK: &str = "down=9mbit,up=1.5mbit,rtt=60ms,queue=1s";

/// The link of each of many users: `slow-4g` with such a queue.
const LINK_OF_MANY: &str = "down=1.6mbit,up=750kbit,rtt=150ms,queue=1s";

/// The link whose lost packets are counted: fast, with room for every datagram.
const LOSSY: &str = "down=1gbit,up=1gbit,rtt=2ms,queue=100ms,loss=2%";

/// Datagrams sent over it, how many at once, and bytes of each.
const DATAGRAMS: u64 = 20_000;
const AT_ONCE: u64 = 100;
const DATAGRAM: [u8; 16] = [0; 16];

/// Standard deviations of a binomial count that one in a thousand exceeds.
const ONE_IN_A_THOUSAND: f64 = 3.29;

/// Bytes that each of many users requests, and the share of the host's capacity that they use.
const BYTES_OF_MANY: u64 = 100_000;
const LOAD_OF_MANY: f64 = 0.6;

/// Bytes of stack of a thread that only transfers.
const STACK: usize = 128 << 10;

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

/// Bytes of the bulk transfer, and of its beginning, which does not count.
const BULK: (u64, u64) = (5_000_000, 1_000_000);

/// How long one read or write may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// One figure of the check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The quantity, with its unit.
    pub what: String,
    /// The value that the link's rates and delays demand.
    pub expected: f64,
    /// The value that was measured.
    pub measured: f64,
    /// The allowed difference.
    pub tolerance: f64,
    /// Milliseconds of all transfers together, if they are timed.
    pub took_ms: Option<f64>,
    /// How long this process and the emulator waited for a core meanwhile.
    pub waited_ms: f64,
}

impl Finding {
    /// A time in milliseconds.
    fn of_time(what: String, expected_ms: f64, measured: Duration, tolerance_ms: f64) -> Finding {
        let measured = measured.as_secs_f64() * 1e3;
        let took_ms = Some(expected_ms);
        Finding { what, expected: expected_ms, measured, tolerance: tolerance_ms, took_ms, waited_ms: 0.0 }
    }

    /// Whether it is near enough.
    pub fn holds(&self) -> bool {
        (self.measured - self.expected).abs() <= self.tolerance
    }

    /// Whether the wait for a core explains the difference: then the host was measured, not the
    /// link.
    fn is_of_the_host(&self) -> bool {
        let off = (self.measured - self.expected).abs() - self.tolerance;
        let off_ms = self.took_ms.map(|took_ms| took_ms * off / self.expected);
        off > 0.0 && off_ms.is_some_and(|off_ms| self.waited_ms >= off_ms)
    }
}

/// The findings of a check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    /// Every figure.
    pub findings: Vec<Finding>,
    /// p99 of the emulator's lateness over the transfers.
    pub late_ns_p99: u64,
    /// Its limit for the link that was checked.
    pub late_limit_ns: u64,
}

impl Checked {
    /// Why the host cannot judge its links; `None` if it can.
    pub fn busy(&self) -> Option<String> {
        let late_ms = self.late_ns_p99 as f64 / 1e6;
        if self.late_ns_p99 > self.late_limit_ns {
            let limit_ms = self.late_limit_ns as f64 / 1e6;
            return Some(format!("host too busy (lateness p99 {late_ms:.2} ms, at most {limit_ms:.1} ms)"));
        }
        let disturbed = self.findings.iter().find(|finding| finding.is_of_the_host())?;
        Some(format!(
            "host too busy (lateness p99 {late_ms:.2} ms; {}: waited {:.1} ms for a core)",
            disturbed.what, disturbed.waited_ms
        ))
    }

    /// Whether every figure is within its tolerance. Meaningless on a host that was too busy.
    pub fn holds(&self) -> bool {
        self.findings.iter().all(Finding::holds)
    }
}

/// The checks to make.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// The link that is emulated, instead of the standing one.
    pub emulated: Option<String>,
    /// Users of a link each that transfer at the same time, instead of one after the other.
    pub users: Option<usize>,
    /// Packets a second that the host carries, by which many users are spread over time.
    pub packets_per_s: f64,
}

/// Checks a link. Call it in a process of one thread; the process stays in the link's namespaces.
///
/// # Errors
/// When the host forbids links, or a transfer fails.
pub(crate) fn run(order: &str) -> anyhow::Result<Checked> {
    let order: Order = serde_json::from_str(order).context("expected what to check, as JSON")?;
    let claimed: Link = if order.users.is_some() { LINK_OF_MANY } else { LINK }.parse()?;
    let emulated = order.emulated.as_ref().map(|text| text.parse()).transpose()?;
    let links = [emulated.unwrap_or_else(|| claimed.clone()), LOSSY.parse()?];
    host::enter()?;
    let mut emulation = Emulation::start(&links, 1, DEFAULT_CONGESTION, UNSHAPED, || {})?;
    let relay = serve()?;
    let void = echo_datagrams()?;
    emulation.join_users()?;
    emulation.begin()?;
    let mut findings = match order.users {
        Some(users) => many(users, order.packets_per_s, &claimed, relay, &mut emulation)?,
        None => one_by_one(&claimed, relay, &mut emulation)?,
    };
    let report = emulation.report()?;
    ensure!(report.unbalanced.is_none(), "packets are missing: {:?}", report.unbalanced);
    if order.users.is_none() && order.emulated.is_none() {
        findings.extend(losses(&links[1], void, &mut emulation)?);
    }
    let late_limit_ns = may_be_late_ns(claimed.down.delay_ns + claimed.up.delay_ns);
    Ok(Checked { findings, late_ns_p99: report.late_ns_p99(), late_limit_ns })
}

/// The transfers of users one after the other.
fn one_by_one(link: &Link, relay: SocketAddrV4, emulation: &mut Emulation) -> anyhow::Result<Vec<Finding>> {
    let user = |user| user_address(0, user).context("so many users have addresses");
    let mut findings = Vec::new();
    let mut find = |measure: &dyn Fn() -> anyhow::Result<Finding>| {
        let before = waited_ns(emulation)?;
        let found = measure()?;
        let waited_ms = (waited_ns(emulation)? - before) / 1e6;
        findings.push(Finding { waited_ms, ..found });
        anyhow::Ok(())
    };
    let connection = dial(user(0)?, relay)?;
    find(&|| echo(&connection, link))?;
    for (one, bytes) in (1..).zip(TRANSFERS) {
        // A connection of its own begins with the initial window.
        let connection = dial(user(one)?, relay)?;
        find(&|| transfer(&connection, link, bytes))?;
    }
    let connection = dial(user(9)?, relay)?;
    find(&|| bulk(&connection, link))?;
    Ok(findings)
}

/// Time that the threads of this process and the emulator waited for a core so far, if the kernel
/// reports it.
fn waited_ns(emulation: &mut Emulation) -> anyhow::Result<f64> {
    let emulator = emulation.report()?.emulator_wait_ns.unwrap_or(0);
    Ok(runnable_wait_ns().unwrap_or(0) as f64 + emulator as f64)
}

/// Transfers of many users. They begin at a rate whose packets the host carries.
fn many(
    users: usize,
    packets_per_s: f64,
    link: &Link,
    relay: SocketAddrV4,
    emulation: &mut Emulation,
) -> anyhow::Result<Vec<Finding>> {
    let expected_ms = Model::for_link(link)?.transfer_s(BYTES_OF_MANY) * 1e3;
    // In slow start each segment may be acknowledged by itself.
    let packets = 2 * BYTES_OF_MANY.div_ceil(SEGMENT);
    let apart = Duration::from_secs_f64(packets as f64 / (packets_per_s * LOAD_OF_MANY).max(1.0));
    let together = Arc::new(Barrier::new(users));
    // Threads stay until their waiting has been read: what ended is not in it.
    let done = Arc::new(Barrier::new(users + 1));
    let threads = (0..users).map(|user| {
        let address = user_address(0, user).context("so many users have addresses")?;
        let (together, done, user) = (Arc::clone(&together), Arc::clone(&done), u32::try_from(user)?);
        let transfer = move || {
            // Also without a connection: the others wait here.
            let connection = dial(address, relay);
            together.wait();
            thread::sleep(apart * user);
            let took = connection.and_then(|one| Ok(ask(&one, BYTES_OF_MANY, BYTES_OF_MANY)?.1));
            done.wait();
            done.wait();
            took
        };
        Ok(thread::Builder::new().stack_size(STACK).spawn(transfer)?)
    });
    let threads = threads.collect::<anyhow::Result<Vec<_>>>()?;
    done.wait();
    let waited_ms = waited_ns(emulation)? / 1e6;
    done.wait();
    let ended = threads.into_iter().map(|one| one.join().map_err(|_| anyhow!("a user's thread panicked"))?);
    let mut times = ended.collect::<anyhow::Result<Vec<_>>>()?;
    times.sort_unstable();
    let finding = |what: &str, place: usize| {
        let what = format!("{what} of {users} users with links of their own: 100 kB in ms");
        let took = times[place.min(times.len() - 1)];
        let found = Finding::of_time(what, expected_ms, took, expected_ms * 0.03);
        Finding { waited_ms: waited_ms / users as f64, ..found }
    };
    Ok(vec![finding("median", users / 2), finding("p99", users * 99 / 100)])
}

/// Sends datagrams over a link with loss, and compares the share of missing datagrams with the
/// link's. The seed is fixed, so every run loses the same datagrams.
fn losses(link: &Link, to: SocketAddrV4, emulation: &mut Emulation) -> anyhow::Result<Vec<Finding>> {
    emulation.begin()?;
    let user = UdpSocket::bind((user_address(1, 0).context("the first user has an address")?, 0))?;
    let deadline = Instant::now() + PATIENCE;
    for sent in (AT_ONCE..=DATAGRAMS).step_by(usize::try_from(AT_ONCE).context("few at once")?) {
        for _ in 0..AT_ONCE {
            user.send_to(&DATAGRAM, to).context("a datagram over the link")?;
        }
        // A TUN device takes what it is given and drops what its queue has no room for.
        while emulation.report()?.parts.get(1).is_none_or(|part| part.up.packets < sent) {
            ensure!(Instant::now() < deadline, "datagrams did not reach the link, of the first {sent}");
            thread::sleep(Duration::from_millis(1));
        }
    }
    // The relay's end sends back what it can: how much that is, shows when no more comes.
    let mut before = 0;
    let report = loop {
        thread::sleep(Duration::from_millis(50));
        let report = emulation.report()?;
        let part = report.parts.get(1).context("there are two links")?;
        let settled = part.down.settled();
        if (part.up.settled() >= DATAGRAMS && settled == before) || Instant::now() > deadline {
            break report;
        }
        before = settled;
    };
    ensure!(report.unbalanced.is_none(), "packets are missing: {:?}", report.unbalanced);
    let part = report.parts.get(1).context("there are two links")?;
    let share = f64::from(link.up.loss_ppm) / 1e6;
    let finding = |what: &str, lost: u64, sent: u64| Finding {
        what: format!("{what} lost of {sent} datagrams in %"),
        expected: share * 100.0,
        measured: lost as f64 / sent.max(1) as f64 * 100.0,
        tolerance: ONE_IN_A_THOUSAND * (share * (1.0 - share) / sent.max(1) as f64).sqrt() * 100.0,
        took_ms: None,
        waited_ms: 0.0,
    };
    Ok(vec![
        finding("up:", part.up.lost, part.up.packets),
        finding("down:", part.down.lost, part.down.packets),
    ])
}

/// Sends each datagram back, on a thread in this namespace.
fn echo_datagrams() -> anyhow::Result<SocketAddrV4> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let Ok(socket) = UdpSocket::bind((RELAY, 0)) else { return };
        let Ok(address) = socket.local_addr() else { return };
        sender.send(address.port()).ok();
        let mut buffer = [0; MTU];
        while let Ok((bytes, user)) = socket.recv_from(&mut buffer) {
            socket.send_to(&buffer[..bytes], user).ok();
        }
    });
    let port = receiver.recv().context("cannot take datagrams in the relay's namespace")?;
    Ok(SocketAddrV4::new(RELAY, port))
}

/// Reads 8 bytes as a count and answers with that number of bytes, on a thread in this namespace.
pub(crate) fn serve() -> anyhow::Result<SocketAddrV4> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let Ok(listener) = TcpListener::bind((RELAY, 0)) else { return };
        let Ok(address) = listener.local_addr() else { return };
        sender.send(address.port()).ok();
        for connection in listener.incoming().map_while(Result::ok) {
            thread::Builder::new().stack_size(STACK).spawn(move || answer(connection)).ok();
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

pub(crate) fn dial(user: Ipv4Addr, relay: SocketAddrV4) -> anyhow::Result<TcpStream> {
    let fd = socket(AddressFamily::Inet, SockType::Stream, host::CLOSE_ON_EXEC, None)?;
    bind(fd.as_raw_fd(), &SockaddrIn::from(SocketAddrV4::new(user, 0)))
        .with_context(|| format!("cannot bind {user}"))?;
    connect(fd.as_raw_fd(), &SockaddrIn::from(relay)).context("cannot connect over the link")?;
    let connection = TcpStream::from(fd);
    connection.set_nodelay(true)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.set_write_timeout(Some(PATIENCE))?;
    Ok(connection)
}

/// Requests `bytes`. Returns the time until the first `first` bytes, and until all of them, are
/// here.
fn ask(mut connection: &TcpStream, bytes: u64, first: u64) -> anyhow::Result<(Duration, Duration)> {
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

fn echo(connection: &TcpStream, link: &Link) -> anyhow::Result<Finding> {
    let mut times = (0..ECHOES).map(|_| Ok(ask(connection, 1, 1)?.1)).collect::<anyhow::Result<Vec<_>>>()?;
    times.sort_unstable();
    let model = Model::for_link(link)?;
    let expected_ms = (model.request_s() + model.down_s(1)) * 1e3;
    let what = "round trip of a byte in ms, median".to_owned();
    let found = Finding::of_time(what, expected_ms, times[times.len() / 2], 1.0);
    Ok(Finding { took_ms: Some(expected_ms * ECHOES as f64), ..found })
}

fn transfer(connection: &TcpStream, link: &Link, bytes: u64) -> anyhow::Result<Finding> {
    let expected_ms = Model::for_link(link)?.transfer_s(bytes) * 1e3;
    let (_, all) = ask(connection, bytes, bytes)?;
    let what = format!("{} kB on a new connection in ms", bytes / 1_000);
    Ok(Finding::of_time(what, expected_ms, all, expected_ms * 0.03))
}

fn bulk(connection: &TcpStream, link: &Link) -> anyhow::Result<Finding> {
    let (bytes, first) = BULK;
    let (early, all) = ask(connection, bytes, first)?;
    let expected = Model::for_link(link)?.down_bits_per_s * SEGMENT as f64 / MTU as f64;
    Ok(Finding {
        what: "goodput of a bulk transfer in kbit/s".to_owned(),
        expected: expected / 1e3,
        measured: (bytes - first) as f64 * 8.0 / (all - early).as_secs_f64() / 1e3,
        tolerance: expected / 1e3 * 0.02,
        took_ms: Some((all - early).as_secs_f64() * 1e3),
        waited_ms: 0.0,
    })
}

/// Rates and delays of a link without loss, from which follow the seconds that it takes.
#[derive(Debug)]
pub struct Model {
    down_bits_per_s: f64,
    up_bits_per_s: f64,
    down_delay_s: f64,
    up_delay_s: f64,
}

impl Model {
    /// The model of a link.
    ///
    /// # Errors
    /// When its rates are not constant.
    pub fn for_link(link: &Link) -> anyhow::Result<Model> {
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

    /// Seconds until a request of 8 bytes is at the relay.
    fn request_s(&self) -> f64 {
        (HEADERS + 8) as f64 * 8.0 / self.up_bits_per_s + self.up_delay_s
    }

    /// Seconds until a packet with `payload` bytes is at the user.
    fn down_s(&self, payload: u64) -> f64 {
        (HEADERS + payload) as f64 * 8.0 / self.down_bits_per_s + self.down_delay_s
    }

    /// Seconds from a request of a few bytes until its answer of `bytes` is at the user, on a
    /// connection that has sent nothing yet. In slow start each acknowledged segment lets two more
    /// go (RFC 5681 §3.1), and each is acknowledged by itself.
    pub fn transfer_s(&self, bytes: u64) -> f64 {
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
        let model = Model::for_link(&"down=9mbit,up=1.5mbit,rtt=60ms".parse().unwrap()).unwrap();
        let close = |one: f64, other: f64| assert!((one - other).abs() < 1e-6, "{one} {other}");
        // 10 segments need one round trip and their transmission.
        close(model.transfer_s(14_480), model.request_s() + 0.030 + 10.0 * 1_500.0 * 8.0 / 9e6);
        // The eleventh waits for the first acknowledgement.
        let second = model.request_s() + model.down_s(SEGMENT) + 52.0 * 8.0 / 1.5e6 + 0.030;
        close(model.transfer_s(11 * SEGMENT), second + model.down_s(SEGMENT));
        // A long transfer goes at the rate of the link.
        let (long, longer) = (model.transfer_s(2_000 * SEGMENT), model.transfer_s(3_000 * SEGMENT));
        close(longer - long, 1_000.0 * 1_500.0 * 8.0 / 9e6);
        assert!(Model::for_link(&"slow-4g,rtt=10ms".parse().unwrap()).is_ok());
    }

    #[test]
    fn a_finding_holds_within_its_tolerance() {
        let finding = |measured| finding(measured, 0.0);
        assert!(finding(97.0).holds() && finding(103.0).holds());
        assert!(!finding(96.9).holds() && !finding(103.1).holds() && !finding(f64::NAN).holds());
    }

    /// A transfer that should take 100 ms, give or take 3.
    fn finding(measured: f64, waited_ms: f64) -> Finding {
        Finding {
            what: "a transfer".to_owned(),
            expected: 100.0,
            measured,
            tolerance: 3.0,
            took_ms: Some(100.0),
            waited_ms,
        }
    }

    #[test]
    fn a_busy_host_is_not_tested_and_a_wrong_link_on_a_punctual_emulator_fails() {
        const LIMIT_NS: u64 = 3_000_000;
        let checked =
            |late_ns_p99, finding| Checked { findings: vec![finding], late_ns_p99, late_limit_ns: LIMIT_NS };
        let busy = checked(3_100_000, finding(100.0, 0.0)).busy().unwrap();
        assert_eq!(busy, "host too busy (lateness p99 3.10 ms, at most 3.0 ms)");
        // 5 ms beyond the tolerance, and less than that spent waiting: the link is wrong.
        let wrong = checked(LIMIT_NS, finding(108.0, 4.9));
        assert!(wrong.busy().is_none() && !wrong.holds());
        let disturbed = checked(LIMIT_NS, finding(108.0, 5.1)).busy().unwrap();
        assert!(disturbed.contains("a transfer: waited 5.1 ms for a core"), "{disturbed}");
        // Waiting that did no harm excuses nothing.
        let right = checked(LIMIT_NS, finding(102.0, 50.0));
        assert!(right.busy().is_none() && right.holds());
        // A count does not depend on a core.
        let lost = Finding { took_ms: None, ..finding(108.0, 50.0) };
        assert!(checked(LIMIT_NS, lost.clone()).busy().is_none() && !checked(LIMIT_NS, lost).holds());
    }
}
