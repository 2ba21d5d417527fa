//! Measures how many packets a second this host emulates on time.
//!
//! Fifty users transfer over links whose rates rise step by step. The capacity is the highest step
//! whose p99 of lateness keeps its limit. It includes the kernel's TCP at both ends, and no relay
//! or client.

use std::{
    io::{self, Read, Write},
    net::{SocketAddrV4, TcpStream},
    os::fd::AsFd,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use measure::{LinkRecord, may_be_late_ns};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::{Deserialize, Serialize};

use crate::{
    addresses::{MOST_LINKS, UNSHAPED, user_address},
    check::{dial, serve},
    emulation::Emulation,
    host,
    profile::Link,
    protocol::DEFAULT_CONGESTION,
    trace::MTU,
};

/// Users of each step.
const USERS: u64 = 50;

/// Full packets a second of the first step, and the factor of each further step.
const FIRST_PACKETS_PER_S: f64 = 1_000.0;
const STEP: f64 = 1.35;

/// Run time of a step before it counts, so that slow start is over, and while it counts.
const WARM: Duration = Duration::from_millis(200);
const COUNTED: Duration = Duration::from_millis(350);

/// Longest time that packets of a step may be under way after it.
const DRAINED: Duration = Duration::from_millis(120);

/// Tries of a step, because a hiccup of the host is not a limit.
const TRIES: usize = 2;

/// Load that this host emulates on time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Carries {
    /// Packets a second, both ways together.
    pub packets_per_s: f64,
    /// CPU time of the emulator for each.
    pub ns_per_packet: f64,
    /// p99 of its lateness then.
    pub late_ns_p99: u64,
}

/// One try of one step.
struct Step {
    carries: Carries,
    holds: bool,
}

/// Tries the steps from the highest rate down, so that a hiccup of the host costs one step and not
/// all above it. Call it in a process of one thread; the process stays in the namespaces.
///
/// # Errors
/// When the host forbids links, or is so busy that not even the first step is on time.
pub(crate) fn run() -> anyhow::Result<Carries> {
    host::enter()?;
    let links = links()?;
    let mut emulation = Emulation::start(&links, 1, DEFAULT_CONGESTION, UNSHAPED, || {})?;
    let relay = serve()?;
    emulation.join_users()?;
    for (place, link) in links.iter().enumerate().rev() {
        for _ in 0..TRIES {
            let step = step(&mut emulation, relay, link, place)?;
            if step.holds {
                return Ok(step.carries);
            }
        }
    }
    bail!(
        "host too busy: the emulator of links was late with {FIRST_PACKETS_PER_S} packets a second. End other \
         programs, or take a quiet host"
    )
}

/// A link for each step: short and with a queue that does not overflow, so that only its rate
/// matters.
fn links() -> anyhow::Result<Vec<Link>> {
    let link = |step: usize| {
        let exponent = i32::try_from(step).context("there are few steps")?;
        let packets_per_s = FIRST_PACKETS_PER_S * STEP.powi(exponent) / USERS as f64;
        let kbit = packets_per_s * MTU as f64 * 8.0 / 1e3;
        Ok(format!("down={kbit:.0}kbit,up={kbit:.0}kbit,rtt=10ms,queue=100ms").parse()?)
    };
    (0..MOST_LINKS).map(link).collect()
}

/// Lets all users of a link transfer at the link's rate.
fn step(emulation: &mut Emulation, relay: SocketAddrV4, link: &Link, place: usize) -> anyhow::Result<Step> {
    let bits_per_s = link.down.capacity.mean_bits_per_s().context("each step has a rate")?;
    let span_s = (WARM + COUNTED).as_secs_f64();
    // Twice the bytes that the link carries in this time, so that no user is done early.
    let bytes: u64 = measure::whole(bits_per_s as f64 / 8.0 * span_s * 2.0);
    let user = |user| user_address(place, user).context("so many users have addresses");
    let users = usize::try_from(USERS).context("there are few users")?;
    let mut connections =
        (0..users).map(|one| dial(user(one)?, relay)).collect::<anyhow::Result<Vec<_>>>()?;
    for connection in &mut connections {
        connection.write_all(&bytes.to_be_bytes()).context("a request of the capacity's step")?;
        connection.set_nonblocking(true)?;
    }
    read_for(&mut connections, WARM)?;
    emulation.begin()?;
    let began = Instant::now();
    read_for(&mut connections, COUNTED)?;
    let report = emulation.report()?;
    let elapsed_s = began.elapsed().as_secs_f64();
    drop(connections);
    thread::sleep(DRAINED);
    ensure!(report.unbalanced.is_none(), "packets are missing: {:?}", report.unbalanced);
    Ok(Step { carries: carries(&report, elapsed_s), holds: holds(&report) })
}

fn carries(report: &LinkRecord, elapsed_s: f64) -> Carries {
    let packets = report.down.forwarded + report.up.forwarded;
    Carries {
        packets_per_s: packets as f64 / elapsed_s,
        ns_per_packet: report.emulator_cpu_ns as f64 / packets.max(1) as f64,
        late_ns_p99: report.late_ns_p99(),
    }
}

fn holds(report: &LinkRecord) -> bool {
    // As a link without a round trip demands, which is the most.
    report.late_ns_p99() <= may_be_late_ns(0) && report.device_dropped + report.refused == 0
}

/// Reads incoming bytes for `span`.
fn read_for(connections: &mut [TcpStream], span: Duration) -> anyhow::Result<()> {
    let end = Instant::now() + span;
    let mut buffer = vec![0; 1 << 16];
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        let left = PollTimeout::try_from(left).context("a step is short")?;
        let readable = {
            let mut polled: Vec<_> =
                connections.iter().map(|one| PollFd::new(one.as_fd(), PollFlags::POLLIN)).collect();
            match poll(&mut polled, left) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(errno) => return Err(errno).context("cannot wait for the transfers"),
            }
            polled.iter().map(|one| one.any().unwrap_or(false)).collect::<Vec<_>>()
        };
        for (connection, _) in connections.iter_mut().zip(readable).filter(|(_, readable)| *readable) {
            match connection.read(&mut buffer) {
                Ok(0) => bail!("a transfer of the capacity's step ended early"),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error).context("a transfer of the capacity's step"),
            }
        }
    }
    Ok(())
}
