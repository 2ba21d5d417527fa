//! The emulator as a process of its own: it reads packets from the device of one namespace, keeps
//! them as long as their link demands, and writes them to the device of the other.

use std::{
    ffi::OsString,
    io::{self, Write},
    net::Ipv4Addr,
    os::fd::{AsFd, OwnedFd},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Context;
use measure::{AddUp, CpuClock, Latency, LinkFlow, LinkPart, LinkRecord, runnable_wait_ns};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, ppoll},
    sys::{prctl::set_timerslack, time::TimeSpec},
    unistd,
};
use serde::Serialize;

use crate::{
    addresses::{UNSHAPED, link_of, user_of},
    capacity, check,
    emulator::{Emulator, Way},
    host,
    network::{End, KernelCounts, tcp_settings},
    profile::Link,
    protocol::{DEFAULT_CONGESTION, Order},
    trace::MTU,
};

/// Most packets read from a device in a row, half a millisecond of work, so that due packets leave
/// on time.
const BATCH: usize = 32;

/// Longest time between looks at the devices, so that a process that was stopped or had no core
/// notices: half of the least lateness that makes a block invalid.
const LOOKS_EVERY_NS: u64 = 500_000;

/// Runs the emulator. Its first argument is an order as JSON, which [`crate::Emulation`] gives;
/// `probe`, which only sets up both namespaces; `capacity`, which finds how many packets a second
/// this host emulates; or `check`, which times transfers as its second argument orders.
pub fn main(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let order = args.next().and_then(|order| order.into_string().ok()).unwrap_or_default();
    let outcome = match order.as_str() {
        "probe" => probe(),
        "capacity" => capacity::run().map(|found| say(&found)),
        "check" => {
            let order = args.next().and_then(|order| order.into_string().ok()).unwrap_or_default();
            check::run(&order).map(|checked| say(&checked))
        }
        order => serve(order),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody is left to hear when the stream is closed.
            let _ = writeln!(io::stderr(), "{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn probe() -> anyhow::Result<()> {
    host::enter()?;
    namespaces(DEFAULT_CONGESTION, UNSHAPED)?;
    say(&tcp_settings());
    Ok(())
}

/// Equips this namespace for the relay, and a new one for the users, in which the thread stays.
fn namespaces(congestion: &str, unbound: Ipv4Addr) -> anyhow::Result<[End; 2]> {
    let relay = End::of_relay(congestion).context("the relay's namespace")?;
    host::leave().map_err(|error| host::NotPossible::from_error("a second network namespace", &error))?;
    let users = End::of_users(congestion, unbound).context("the users' namespace")?;
    Ok([relay, users])
}

fn serve(order: &str) -> anyhow::Result<()> {
    let order: Order = serde_json::from_str(order).context("expected an order as JSON, or probe")?;
    let links = order.links.iter().map(|text| text.parse::<Link>()).collect::<Result<Vec<_>, _>>()?;
    let ends = namespaces(&order.congestion, order.unbound)?;
    // Without this the kernel may wake the process 50 µs late (prctl(2), PR_SET_TIMERSLACK).
    set_timerslack(1).context("cannot ask for timers that are on time")?;
    let questions = io::stdin().as_fd().try_clone_to_owned().context("standard input")?;
    let mut process = Process {
        tally: described(&links, order.congestion),
        emulator: Emulator::new(links, link_of, order.seed),
        ends,
        looks: Looks::default(),
        start: Instant::now(),
        questions,
        line: Vec::new(),
        begun: Begun::default(),
    };
    process.begin()?;
    say(&"ready");
    process.run()
}

/// What every report says of the links and of TCP at their ends, in the users' namespace.
fn described(links: &[Link], congestion: String) -> LinkRecord {
    let one =
        |link: &Link| LinkPart { link: link.label(), parameters: link.parameters(), ..LinkPart::default() };
    let parts: Vec<LinkPart> = links.iter().map(one).collect();
    let named = parts.iter().map(|part| format!("{} ({})", part.link, part.parameters));
    LinkRecord {
        parameters: named.collect::<Vec<_>>().join(", "),
        round_trip_ns: links.iter().map(|link| link.down.delay_ns + link.up.delay_ns).min(),
        parts: if links.len() > 1 { parts } else { Vec::new() },
        congestion,
        tcp: tcp_settings(),
        ..LinkRecord::default()
    }
}

fn say(line: &impl Serialize) {
    // The program that started this one may be gone, which its standard input tells.
    let _ = serde_json::to_writer(io::stdout(), line);
    let _ = writeln!(io::stdout());
}

struct Process {
    emulator: Emulator<Packet>,
    /// The relay's end and the users' end.
    ends: [End; 2],
    looks: Looks,
    start: Instant,
    questions: OwnedFd,
    /// The beginning of a question.
    line: Vec<u8>,
    /// Counts since the order to begin that are not the emulator's.
    tally: LinkRecord,
    begun: Begun,
}

/// A packet, and how late it was read by the look that found it.
struct Packet {
    bytes: Vec<u8>,
    late_ns: u64,
}

/// When the devices were looked at, and how late their packets are read: as late as the look, until
/// the device has no more packets. No clock records a packet's arrival.
#[derive(Default)]
struct Looks {
    last_ns: u64,
    late_ns: [u64; 2],
}

impl Looks {
    /// The latest time of the next look, with a packet due at `due_ns`.
    fn next_ns(&self, due_ns: Option<u64>) -> u64 {
        let next_ns = self.last_ns.saturating_add(LOOKS_EVERY_NS);
        due_ns.map_or(next_ns, |due_ns| due_ns.min(next_ns))
    }

    /// The look that was to come by `next_ns` comes; both devices may have held packets since.
    fn look(&mut self, now_ns: u64, next_ns: u64) {
        self.late_ns = self.late_ns.map(|late_ns| late_ns.max(now_ns.saturating_sub(next_ns)));
        self.last_ns = now_ns;
    }

    /// How late a packet is if it is read now.
    fn late_ns(&self, now_ns: u64, way: Way) -> u64 {
        self.late_ns[way.place()].max(now_ns.saturating_sub(self.next_ns(None)))
    }

    /// The device has no more packets.
    fn drained(&mut self, way: Way) {
        self.late_ns[way.place()] = 0;
    }
}

/// Running counts at the order to begin.
#[derive(Default)]
struct Begun {
    /// Both ways together.
    packets: LinkFlow,
    refused: u64,
    foreign: u64,
    kernel: [KernelCounts; 2],
    cpu_ns: u64,
    wait_ns: Option<u64>,
}

/// The end that a way begins at, and the one that it leads to.
fn ends(way: Way) -> (usize, usize) {
    match way {
        Way::Down => (0, 1),
        Way::Up => (1, 0),
    }
}

impl Process {
    /// Forwards packets until standard input ends.
    fn run(&mut self) -> anyhow::Result<()> {
        let mut buffer = [0; MTU];
        loop {
            self.forward();
            let [relay, users, questions] = self.wait()?;
            for (way, readable) in [(Way::Down, relay), (Way::Up, users)] {
                // A late look asks again: the core may have been gone since the wait.
                let is_empty = !readable && self.looks.late_ns[way.place()] == 0;
                if is_empty || self.take(way, &mut buffer)? {
                    self.looks.drained(way);
                }
            }
            if questions && !self.answer()? {
                return Ok(());
            }
        }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Waits for a packet, a question, the time at which a packet is due, or the next look.
    fn wait(&mut self) -> anyhow::Result<[bool; 3]> {
        let next_ns = self.looks.next_ns(self.emulator.next_ns());
        let sleep = Duration::from_nanos(next_ns.saturating_sub(self.now_ns()));
        let mut polled = [self.ends[0].as_fd(), self.ends[1].as_fd(), self.questions.as_fd()]
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        let readable = match ppoll(&mut polled, Some(TimeSpec::from_duration(sleep)), None) {
            Ok(_) => polled.map(|one| one.any().unwrap_or(true)),
            // Reading tells whether there are packets.
            Err(Errno::EINTR) => [true, true, false],
            Err(errno) => return Err(errno).context("cannot wait for packets"),
        };
        self.looks.look(self.now_ns(), next_ns);
        Ok(readable)
    }

    /// Takes what came to the beginning of a way; true when that is everything.
    fn take(&mut self, way: Way, buffer: &mut [u8]) -> anyhow::Result<bool> {
        let (from, _) = ends(way);
        for _ in 0..BATCH {
            let Some(bytes) = self.ends[from].read(buffer).context("cannot read a packet")? else {
                return Ok(true);
            };
            match user(way, &buffer[..bytes]) {
                Some(user) => {
                    let now_ns = self.now_ns();
                    let late_ns = self.looks.late_ns(now_ns, way);
                    let packet = Packet { bytes: buffer[..bytes].to_vec(), late_ns };
                    self.emulator.on_packet(now_ns, way, user, bytes, packet);
                }
                None => self.tally.foreign += 1,
            }
        }
        Ok(false)
    }

    /// Hands on everything that is due.
    fn forward(&mut self) {
        while let Some(due) = self.emulator.poll(self.now_ns()) {
            let (_, to) = ends(due.way);
            if self.ends[to].write(&due.packet.bytes).is_err() {
                self.tally.refused += 1;
            }
            let left_late_ns = self.now_ns().saturating_sub(due.at_ns);
            self.tally.lateness.record(due.packet.late_ns.saturating_add(left_late_ns));
        }
    }

    /// Answers the questions that came; false when no more will come.
    fn answer(&mut self) -> anyhow::Result<bool> {
        let mut bytes = [0; 256];
        let count = match unistd::read(&self.questions, &mut bytes) {
            Ok(0) => return Ok(false),
            Ok(count) => count,
            Err(Errno::EINTR | Errno::EAGAIN) => return Ok(true),
            Err(errno) => return Err(errno).context("cannot read a question"),
        };
        for byte in &bytes[..count] {
            if *byte != b'\n' {
                self.line.push(*byte);
                continue;
            }
            match std::mem::take(&mut self.line).as_slice() {
                b"begin" => {
                    self.begin()?;
                    say(&true);
                }
                b"report" => {
                    let report = self.report()?;
                    say(&report);
                }
                other => anyhow::bail!("unknown question {:?}", String::from_utf8_lossy(other)),
            }
        }
        Ok(true)
    }

    /// Counts from now on.
    fn begin(&mut self) -> anyhow::Result<()> {
        self.begun = Begun {
            packets: self.packets(),
            refused: self.begun.refused + self.tally.refused,
            foreign: self.begun.foreign + self.tally.foreign,
            kernel: self.kernel()?,
            cpu_ns: CpuClock::this_process().read()?.total_ns,
            wait_ns: runnable_wait_ns().ok(),
        };
        self.emulator.begin();
        (self.tally.lateness, self.tally.refused, self.tally.foreign) = (Latency::default(), 0, 0);
        Ok(())
    }

    /// Fates of all packets since the start of the process.
    fn packets(&self) -> LinkFlow {
        let mut packets = self.begun.packets.clone();
        [Way::Down, Way::Up].into_iter().for_each(|way| packets.add_up(&self.emulator.counts(way)));
        packets
    }

    fn kernel(&mut self) -> anyhow::Result<[KernelCounts; 2]> {
        Ok([self.ends[0].counts()?, self.ends[1].counts()?])
    }

    fn report(&mut self) -> anyhow::Result<LinkRecord> {
        let kernel = self.kernel()?;
        let (begun, tally) = (&self.begun, &self.tally);
        let since = |count: fn(&KernelCounts) -> u64, end: usize| {
            count(&kernel[end]).saturating_sub(count(&begun.kernel[end]))
        };
        let flow = |way: Way| LinkFlow {
            retransmitted: Some(since(|counts| counts.retransmitted, ends(way).0)),
            ..self.emulator.counts(way)
        };
        let parts = (0..).zip(&tally.parts).map(|(link, part)| {
            let [down, up] = self.emulator.counts_of(link);
            LinkPart { down, up, ..part.clone() }
        });
        Ok(LinkRecord {
            down: flow(Way::Down),
            up: flow(Way::Up),
            parts: parts.collect(),
            device_dropped: since(|counts| counts.dropped, 0) + since(|counts| counts.dropped, 1),
            emulator_cpu_ns: CpuClock::this_process().read()?.total_ns.saturating_sub(begun.cpu_ns),
            emulator_wait_ns: runnable_wait_ns()
                .ok()
                .zip(begun.wait_ns)
                .map(|(now, then)| now.saturating_sub(then)),
            unbalanced: self.unbalanced(&kernel),
            ..tally.clone()
        })
    }

    /// Where a packet is missing: every packet from the kernel came in, and every forwarded packet
    /// came back to the kernel.
    fn unbalanced(&self, kernel: &[KernelCounts; 2]) -> Option<String> {
        let packets = self.packets();
        let refused = self.begun.refused + self.tally.refused;
        let foreign = self.begun.foreign + self.tally.foreign;
        let in_flight = self.emulator.in_flight(Way::Down) + self.emulator.in_flight(Way::Up);
        let sums = [
            ("read from the devices", kernel[0].read + kernel[1].read, packets.packets + foreign),
            ("forwarded, dropped or under way", packets.packets, packets.settled() + in_flight),
            ("forwarded", packets.forwarded, kernel[0].written + kernel[1].written + refused),
        ];
        let wrong = sums.into_iter().find(|(_, one, other)| one != other);
        wrong.map(|(what, one, other)| format!("packets {what}: {one} by one count, {other} by the other"))
    }
}

/// The user of this packet, by the source of a user's packet and the destination of a relay's (RFC
/// 791 §3.1).
fn user(way: Way, packet: &[u8]) -> Option<u32> {
    let header: &[u8; 20] = packet.first_chunk()?;
    let address = match way {
        Way::Up => header[12..16].first_chunk(),
        Way::Down => header[16..20].first_chunk(),
    };
    let octets: [u8; 4] = *address?;
    user_of(Ipv4Addr::from(octets)).filter(|_| header[0] >> 4 == 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addresses::{RELAY, user_address};

    #[test]
    fn what_a_late_look_finds_is_late_until_the_device_has_no_more() {
        let mut looks = Looks::default();
        assert_eq!(looks.next_ns(None), LOOKS_EVERY_NS);
        assert_eq!(looks.next_ns(Some(7)), 7, "a packet is due before");
        looks.look(LOOKS_EVERY_NS, LOOKS_EVERY_NS);
        assert_eq!(looks.late_ns(looks.last_ns, Way::Down), 0, "on time");
        let next_ns = looks.next_ns(None);
        looks.look(next_ns + 300, next_ns);
        looks.look(next_ns + 310, next_ns + 310);
        assert_eq!(looks.late_ns, [300; 2], "the next look was on time, but packets are left");
        looks.drained(Way::Down);
        assert_eq!(looks.late_ns(looks.last_ns, Way::Down), 0);
        assert_eq!(looks.late_ns(looks.last_ns, Way::Up), 300, "up has packets left");
        let stopped_ns = looks.next_ns(None) + 900;
        assert_eq!(looks.late_ns(stopped_ns, Way::Down), 900, "stopped between a look and a read");
    }

    #[test]
    fn a_packet_belongs_to_its_user_in_both_directions() {
        let of_user = user_address(2, 5).unwrap();
        let packet = |version: u8, from: Ipv4Addr, to: Ipv4Addr| {
            let mut packet = vec![0; 40];
            packet[0] = version << 4 | 5;
            packet[12..16].copy_from_slice(&from.octets());
            packet[16..20].copy_from_slice(&to.octets());
            packet
        };
        let number = user_of(of_user);
        assert!(number.is_some());
        assert_eq!(user(Way::Up, &packet(4, of_user, RELAY)), number);
        assert_eq!(user(Way::Down, &packet(4, RELAY, of_user)), number);
        assert_eq!(user(Way::Down, &packet(4, of_user, RELAY)), None, "the relay is no user");
        assert_eq!(user(Way::Up, &packet(6, of_user, RELAY)), None, "IPv6");
        assert_eq!(user(Way::Up, &packet(4, of_user, RELAY)[..19]), None, "shorter than a header");
        assert_eq!(user(Way::Up, &[]), None);
    }
}
