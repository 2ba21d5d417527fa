//! Relays of others beside relay-sim: the same fan-outs in alternation, each relay on one core.

use std::{
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Command, Stdio},
    str::FromStr,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use codecs::Format;
use measure::CpuClock;

use crate::{
    Args, CLIENT_CORE, RELAY_CORE, Relay, Sample,
    driver::{self, Load, Outcome},
    frames, fresh, median, pin, play, relay_sim, say,
};

/// Deliveries of one fan-out: external relays take a hundred times as long as the floor, and
/// longer with each event where their store goes through all of them.
const DELIVERIES: usize = 8_000;

/// Stands for the address that a relay is to listen on.
const ADDRESS: &str = "{address}";

/// How long a relay may take until it listens.
const START: Duration = Duration::from_secs(10);

/// An external relay, and how it is started.
#[derive(Debug, Clone)]
pub(super) struct Other {
    name: String,
    command: String,
}

impl FromStr for Other {
    type Err = String;

    fn from_str(text: &str) -> Result<Other, String> {
        let parts = text.split_once('=').filter(|(_, command)| command.contains(ADDRESS));
        let (name, command) = parts.ok_or_else(|| {
            format!(
                "expected NAME=COMMAND with {ADDRESS} in the command, as in \"khatru=./khatru {ADDRESS}\""
            )
        })?;
        Ok(Other { name: name.to_owned(), command: command.to_owned() })
    }
}

/// One event to so many subscribers. All relays check signatures, since those of others do.
pub(super) fn fan_out(args: &Args, subscribers: usize) -> anyhow::Result<()> {
    let events = DELIVERIES.div_ceil(subscribers);
    let frames = frames(Format::JSON, &fresh(Sample::Notes, events));
    let load = Load {
        format: Format::JSON,
        frames: &frames,
        publishers: 1,
        subscribers,
        window: args.window.into(),
    };
    let mut rounds = Vec::new();
    for _ in 0..args.rounds {
        let mut round = vec![play(&relay_sim(args, Format::JSON, "full", 1), &[RELAY_CORE], &load)?];
        for other in &args.beside {
            round.push(other.play(&load).with_context(|| other.name.clone())?);
        }
        rounds.push(round);
    }
    let deliveries = (events * subscribers) as f64;
    let each = |outcome: &Outcome| outcome.relay_cpu_ns as f64 / deliveries / 1e3;
    let names = std::iter::once("relay-sim").chain(args.beside.iter().map(|other| other.name.as_str()));
    for (n, name) in names.enumerate() {
        say(&format!(
            "beside, 1 -> {subscribers}, signatures checked: {name} {:.1} µs CPU a delivery, {:.2} x relay-sim",
            median(rounds.iter().map(|round| each(&round[n]))),
            median(rounds.iter().map(|round| each(&round[n]) / each(&round[0]))),
        ));
    }
    Ok(())
}

impl Other {
    /// Starts the relay where relays run and plays the load against it.
    fn play(&self, load: &Load<'_>) -> anyhow::Result<Outcome> {
        let address = free_address()?;
        // Not a child of the shell's, so that the process that is measured is the relay.
        let command = format!("exec {}", self.command.replace(ADDRESS, &address.to_string()));
        pin(&[RELAY_CORE])?; // the child inherits it
        let child =
            Command::new("sh").args(["-c", &command]).stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        pin(&[CLIENT_CORE])?;
        let mut relay = Relay(child.context("cannot start sh")?);
        let started = Instant::now();
        while TcpStream::connect(address).is_err() {
            if let Some(status) = relay.0.try_wait()? {
                bail!("{command:?} ended with {status} before it listened on {address}");
            }
            ensure!(started.elapsed() < START, "{command:?} does not listen on {address} after {START:?}");
            thread::sleep(Duration::from_millis(20));
        }
        driver::play(address, &CpuClock::of_process(relay.0.id())?, load)
    }
}

/// An address that nobody listens on, unless another process takes it meanwhile.
fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
