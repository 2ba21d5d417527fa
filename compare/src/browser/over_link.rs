//! The emulated access link between the page and its relays (docs/links.md).

use std::time::Duration;

use anyhow::{Context, Result};
use link::{DEFAULT_CONGESTION, Emulation, Link, Report};
use measure::may_be_late_ns;

use super::{error::BrowserError, page::Page, relays::Relays, steps::connect};
use report::result::{BrowserBlock, BrowserCell};

/// The link, with the relays at its one end and this process at the other.
#[derive(Debug)]
pub(crate) struct OverLink {
    emulation: Emulation,
    round_trip_ns: u64,
    down_bits_per_s: Option<u64>,
}

impl OverLink {
    /// Starts the emulator, then the relays by `relays` in the namespace of this process, and moves
    /// the calling thread to that of the users. Call it while this process has one thread.
    ///
    /// # Errors
    /// When the host forbids namespaces, or something does not start.
    pub(crate) fn start<T>(
        link: &Link,
        seed: u64,
        relays: impl FnOnce() -> Result<T>,
    ) -> Result<(OverLink, T)> {
        link::enter()?;
        let emulation = Emulation::for_program(link, seed, DEFAULT_CONGESTION, || {})
            .context("cannot emulate the link (client-sim links says what this host needs)")?;
        let relays = relays()?;
        emulation.join_users()?;
        let round_trip_ns = link.down.delay_ns + link.up.delay_ns;
        let down_bits_per_s = link.down.capacity.mean_bits_per_s();
        Ok((OverLink { emulation, round_trip_ns, down_bits_per_s }, relays))
    }

    /// How long so many bytes take to the page, about.
    pub(crate) fn takes(&self, bytes: u64) -> Duration {
        let ns = self.down_bits_per_s.map_or(0, |rate| bytes.saturating_mul(8_000_000_000) / rate.max(1));
        Duration::from_nanos(self.round_trip_ns + ns)
    }

    /// Measures one REQ on a new connection: over a link the first one is what a user waits for.
    pub(crate) async fn first_request(
        &mut self,
        page: &mut Page<'_>,
        cell: &BrowserCell,
        relays: &Relays,
    ) -> Result<BrowserBlock, BrowserError> {
        connect(page, cell, relays).await?;
        page.collect().await?;
        self.emulation.begin().map_err(|error| failed(&error))?;
        let stepped = page.step("bench.request(1)").await;
        // First: where the emulator has ended, the page only knows that the relay is silent.
        let report = self.emulation.report().map_err(|error| failed(&error))?;
        let mut block = BrowserBlock { warm: Some(stepped?), ..BrowserBlock::default() };
        self.note(report, &mut block);
        Ok(block)
    }

    /// Notes what the link carried, and why its times are no evidence.
    fn note(&self, report: Report, block: &mut BrowserBlock) {
        block.link_bytes = Some(report.down.forwarded_bytes);
        let late_ns = report.lateness.quantile_ns(0.99).ns().unwrap_or(report.lateness.max_ns());
        if late_ns > may_be_late_ns(self.round_trip_ns) {
            let milliseconds = late_ns as f64 / 1e6;
            block.why.push(format!("the emulator of links was late: p99 {milliseconds:.1} ms"));
        }
        let dropped = report.device_dropped + report.refused;
        if dropped > 0 {
            block.why.push(format!("the kernel dropped {dropped} packets that the link would have carried"));
        }
        block.why.extend(report.unbalanced.map(|why| format!("the link's packets do not add up: {why}")));
    }
}

fn failed(error: &anyhow::Error) -> BrowserError {
    BrowserError::Link(format!("{error:#}"))
}
