//! The emulated access links of a run (docs/links.md).

use std::{fmt::Write, future::Future, path::PathBuf};

use anyhow::{Context, bail};
use link::{Emulation, Finding, Link, PROFILES, Report, TcpSettings, WayCounts};
use measure::{Latency, LinkFlow, LinkRecord};
use tokio::sync::oneshot;

/// The emulator of a run.
#[derive(Debug)]
pub(crate) struct Links {
    pub(crate) emulation: Emulation,
    ended: Option<oneshot::Receiver<()>>,
}

impl Links {
    /// Starts the emulator. This process is in a network namespace of its own, which becomes that
    /// of the relay.
    ///
    /// # Errors
    /// When the host forbids it; the emulator's own message is on standard error.
    pub(crate) fn start(link: &Link, seed: u64, congestion: &str) -> anyhow::Result<Links> {
        let (sender, ended) = oneshot::channel();
        let tell = move || {
            // Fails when the run is over already.
            let _ = sender.send(());
        };
        let emulation = Emulation::start(std::slice::from_ref(link), seed, congestion, tell)
            .context("cannot emulate the link (client-sim links says what this host needs)")?;
        Ok(Links { emulation, ended: Some(ended) })
    }

    /// What [`unless_ended`] waits for.
    pub(crate) fn ended(&mut self) -> Option<oneshot::Receiver<()>> {
        self.ended.take()
    }
}

/// Does the work, unless the emulator's process ends meanwhile: then packets go nowhere.
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

/// What the emulator did, for the record.
pub(crate) fn record(link: &Link, tcp: &TcpSettings, report: &Report) -> LinkRecord {
    let flow = |counts: WayCounts, retransmitted, queued: &Latency| LinkFlow {
        packets: counts.sent,
        forwarded: counts.forwarded,
        forwarded_bytes: counts.forwarded_bytes,
        tail_dropped: counts.tail_dropped,
        lost: counts.lost,
        retransmitted,
        queued: queued.clone(),
    };
    LinkRecord {
        parameters: link.parameters(),
        congestion: tcp.congestion.clone(),
        tcp: format!(
            "no_metrics_save={} slow_start_after_idle={} rmem={} wmem={}",
            tcp.no_metrics_save, tcp.slow_start_after_idle, tcp.rmem, tcp.wmem
        ),
        down: flow(report.down, report.retransmitted_down, &report.queued_down),
        up: flow(report.up, report.retransmitted_up, &report.queued_up),
        lateness: report.lateness.clone(),
        device_dropped: report.device_dropped,
        refused: report.refused,
        foreign: report.foreign,
        unbalanced: report.unbalanced.clone(),
        emulator_cpu_ns: report.cpu_ns,
        emulator_wait_ns: report.wait_ns,
    }
}

/// The profiles with their sources, and whether this host can emulate them.
///
/// # Errors
/// When no process can be started.
pub(crate) fn list() -> anyhow::Result<String> {
    let mut text = String::from("Profiles (down / up Mbit/s, round trip):\n");
    for profile in PROFILES {
        let rate = |bits_per_s: u64| bits_per_s as f64 / 1e6;
        let rates = format!("{} / {}", rate(profile.down_bits_per_s), rate(profile.up_bits_per_s));
        let line = format!("  {:<12} {rates:>13} {:>5} ms  {}", profile.name, profile.rtt_ms, profile.source);
        writeln!(text, "{line}").expect("writing into a String cannot fail");
    }
    text.push_str(
        "\nParameters of your own, or instead of a profile's:\n  \
         --link down=1.6mbit,up=750kbit,rtt=150ms,loss=1%,jitter=5ms,queue=100ms\n  \
         --link slow-4g,loss=0.5%\n  \
         --link down=@FILE,up=@FILE,rtt=40ms    traces in mahimahi's format\n\n",
    );
    match link::probe(&own_file()?)? {
        Ok(tcp) => {
            let line = format!("This host can emulate links; its receive buffers are {} bytes.\n", tcp.rmem);
            text.push_str(&line);
        }
        Err(why) => writeln!(text, "{why}").expect("writing into a String cannot fail"),
    }
    Ok(text)
}

/// Times transfers over a link: whether all took what they should, and a line for each.
///
/// # Errors
/// When this host cannot emulate links.
pub(crate) fn check() -> anyhow::Result<(bool, String)> {
    let findings = link::check(&own_file()?)?.map_err(anyhow::Error::msg)?;
    let mut text = String::new();
    for finding in &findings {
        let mark = if finding.holds() { "pass" } else { "FAIL" };
        let Finding { what, expected, measured, tolerance } = finding;
        writeln!(text, "{mark}  {what}: {measured:.2}, expected {expected:.2} ± {tolerance:.2}")
            .expect("writing into a String cannot fail");
    }
    Ok((findings.iter().all(Finding::holds), text))
}

fn own_file() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("cannot find the file of this program")
}
