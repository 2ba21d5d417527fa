//! The emulated access links of a run (docs/links.md).

use std::{fmt::Write, future::Future, path::PathBuf};

use anyhow::{Context, bail};
use link::{Carries, CheckOrder, Demand, Emulation, Finding, Link, PROFILES, Profile};
use measure::{Exit, LinkRecord};
use tokio::sync::oneshot;

/// A plan that asks for more packets a second than this host emulates on time.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct TooMuch(String);

/// The host is too busy to tell how many packets it emulates on time.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct TooBusy(String);

/// The emulator of a run.
#[derive(Debug)]
pub(crate) struct Links {
    pub(crate) emulation: Emulation,
    ended: Option<oneshot::Receiver<()>>,
}

impl Links {
    /// Starts the emulator. The network namespace of this process becomes the relay's.
    ///
    /// # Errors
    /// When the host forbids it; the emulator's own message is on standard error.
    pub(crate) fn start(links: &[Link], seed: u64, congestion: &str) -> anyhow::Result<Links> {
        let (sender, ended) = oneshot::channel();
        let tell = move || {
            // Fails when the run is over already.
            let _ = sender.send(());
        };
        let emulation = Emulation::start(links, seed, congestion, link::UNSHAPED, tell)
            .context("cannot emulate the link (client-sim links says what this host needs)")?;
        Ok(Links { emulation, ended: Some(ended) })
    }

    /// The end that [`unless_ended`] waits for.
    pub(crate) fn ended(&mut self) -> Option<oneshot::Receiver<()>> {
        self.ended.take()
    }
}

/// Does the work, and gives up if the emulator's process ends, because packets then go nowhere.
///
/// # Errors
/// When the emulator ends, or the work fails.
pub(crate) async fn unless_ended<T>(
    ended: Option<oneshot::Receiver<()>>,
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    let end = async {
        match ended {
            Some(ended) => drop(ended.await),
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        done = work => done,
        () = end => bail!("the emulator of links ended during the run"),
    }
}

/// Refuses a plan with more packets than this host emulates on time, because none of its blocks would
/// count. `packets_per_s` is the host's capacity. Without it the capacity is measured and passed to `tell`.
///
/// # Errors
/// [`TooMuch`], or when the host is too busy to be measured.
pub(crate) fn within_capacity(
    demand: &Demand,
    packets_per_s: Option<u32>,
    tell: impl Fn(&str),
) -> anyhow::Result<()> {
    if demand.is_little() {
        return Ok(());
    }
    let most = match packets_per_s {
        Some(packets_per_s) => f64::from(packets_per_s),
        None => {
            tell("measuring how many packets a second this host emulates (--link-capacity spares that)");
            let carries = measured_capacity()?;
            tell(carried(&carries).trim_end());
            carries.packets_per_s
        }
    };
    if !demand.exceeds(most) {
        return Ok(());
    }
    let (peak, share) = (demand.peak_packets_per_s(), demand.share_beyond(most) * 100.0);
    Err(TooMuch(format!(
        "the links would carry {peak:.0} packets a second at most, and this host emulates {most:.0} on time (client-sim \
         links --capacity): {share:.0} % of the packets would be late, where 1 % makes a run invalid. Connect fewer clients \
         with --set, or take a slower link"
    ))
    .into())
}

/// The emulator's work, for the record. `links` are the run's links, each with its number of connections;
/// `run` is the link of the command line, if there is one.
pub fn record(links: &[(Link, u64)], run: Option<&Link>, mut report: LinkRecord) -> LinkRecord {
    for ((_, connections), part) in links.iter().zip(&mut report.parts) {
        part.connections = *connections;
    }
    // The cell already names a single link of the command line, so its parameters stand alone.
    if let ([(link, _)], Some(_)) = (links, run) {
        report.parameters = link.parameters();
    }
    report
}

/// The profiles with their sources, and whether this host can emulate them.
///
/// # Errors
/// When no process can be started.
pub(crate) fn list() -> anyhow::Result<String> {
    let mut text = String::from("Profiles:\n");
    for Profile { name, parameters, source } in PROFILES {
        writeln!(text, "  {name:<12} {parameters:<36} {source}").expect("writing into a String cannot fail");
    }
    text.push_str(
        "\nParameters of your own, or instead of a profile's:\n  \
         --link down=1.6mbit,up=750kbit,rtt=150ms,loss=1%,jitter=5ms,queue=100ms\n  \
         --link slow-4g,loss=0.5%\n  \
         --link down=@FILE,up=@FILE,rtt=40ms    traces in mahimahi's format\n\n",
    );
    match link::probe(&own_file()?)? {
        Ok(tcp) => writeln!(text, "This host can emulate links; TCP there has {tcp}."),
        Err(why) => writeln!(text, "{why}"),
    }
    .expect("writing into a String cannot fail");
    Ok(text)
}

/// Times transfers over a link, by one user and by `users` at once. Returns the worst outcome, and a line per
/// figure.
///
/// # Errors
/// When this host cannot emulate links.
pub(crate) fn check(users: Option<usize>) -> anyhow::Result<(Exit, String)> {
    let program = own_file()?;
    let carries = measured_capacity()?;
    let mut text = carried(&carries);
    let mut worst = Exit::Success;
    let order = CheckOrder { packets_per_s: carries.packets_per_s, ..CheckOrder::default() };
    let many = users.map(|users| CheckOrder { users: Some(users), ..order.clone() });
    for order in std::iter::once(order).chain(many) {
        let checked = link::check(&program, &order)?.map_err(anyhow::Error::msg)?;
        let busy = checked.busy();
        for finding in &checked.findings {
            let mark = match (&busy, finding.holds()) {
                (Some(_), _) => "????",
                (None, true) => "pass",
                (None, false) => "FAIL",
            };
            let Finding { what, expected, measured, tolerance, .. } = finding;
            writeln!(text, "{mark}  {what}: {measured:.2}, expected {expected:.2} ± {tolerance:.2}")
                .expect("writing into a String cannot fail");
        }
        worst = match (busy, worst) {
            (_, Exit::Error) => Exit::Error,
            (Some(why), _) => {
                writeln!(text, "not tested: {why}").expect("writing into a String cannot fail");
                Exit::Invalid
            }
            (None, _) if !checked.holds() => Exit::Error,
            (None, other) => other,
        };
    }
    Ok((worst, text))
}

/// A line with the packets a second that this host emulates on time.
///
/// # Errors
/// When this host cannot emulate links, or is too busy to tell.
pub(crate) fn capacity() -> anyhow::Result<String> {
    Ok(carried(&measured_capacity()?))
}

fn measured_capacity() -> anyhow::Result<Carries> {
    let program = own_file()?;
    link::probe(&program)?.map_err(anyhow::Error::msg)?;
    // The host can emulate links, so a failure means that it is busy.
    link::capacity(&program)?.map_err(|why| TooBusy(why).into())
}

fn carried(carries: &Carries) -> String {
    let Carries { packets_per_s, ns_per_packet, late_ns_p99 } = carries;
    format!(
        "This host emulates {packets_per_s:.0} packets a second on time: {:.1} µs of the emulator's CPU each, lateness p99 \
         {:.2} ms\n",
        ns_per_packet / 1e3,
        *late_ns_p99 as f64 / 1e6
    )
}

fn own_file() -> anyhow::Result<PathBuf> {
    measure::own_program().context("cannot find the file of this program")
}
