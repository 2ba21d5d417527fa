//! Do emulated access links take the time that they should, and is a late emulator noticed?

use std::{thread, time::Duration};

use anyhow::{Context, Error, Result};
use link::{CheckOrder, LINK_ROLE};
use measure::{ReasonKind, ValidityClass};
use nix::sys::signal::{Signal, kill};

use super::{bench::Bench, finding::Finding};

/// A link that takes longer than the one that the check's model is of, and how many figures show
/// it.
const WRONG: &str = "down=8.1mbit,up=1.35mbit,rtt=66ms,queue=1s";
const WRONG_FIGURES: usize = 5;

/// How long the emulator stands still, of the seconds of a run: what comes meanwhile is read late.
const STALL: Duration = Duration::from_millis(500);
const SECONDS: f64 = 3.0;

impl Bench<'_> {
    /// Round trips, transfers and goodput over a link, beside what its rates and delays demand.
    pub(super) fn links(&mut self) -> Result<Finding> {
        let checked = link::check(self.program, &CheckOrder::default())?.map_err(Error::msg)?;
        let shown = |finding: &link::Finding| {
            format!("{} {:.2} for {:.2}", finding.what, finding.measured, finding.expected)
        };
        let share =
            |finding: &link::Finding| ((finding.measured - finding.expected) / finding.tolerance).abs();
        let worst = checked.findings.iter().map(share).fold(0.0, f64::max);
        Ok(Finding {
            done: "round trips, 14 kB, 100 kB, 1 MB and a bulk transfer over a link of 9/1.5 Mbit/s and 60 ms; datagrams \
                   over one that loses 2 %"
                .to_owned(),
            limit: "1 ms of the round trip, 3 % of slow start's time, 2 % of the rate, the binomial 99.9 % of the loss"
                .to_owned(),
            measured: checked.findings.iter().map(shown).collect::<Vec<_>>().join("; "),
            values: vec![("share_of_tolerance", worst)],
            passed: checked.holds(),
            untested: checked.busy(),
        })
    }

    /// The check that accepts the right link must detect a link with other parameters.
    pub(super) fn wrong_link(&mut self) -> Result<Finding> {
        let order = CheckOrder { emulated: Some(WRONG.to_owned()), ..CheckOrder::default() };
        let checked = link::check(self.program, &order)?.map_err(Error::msg)?;
        let off = checked.findings.iter().filter(|finding| !finding.holds());
        let names: Vec<&str> = off.map(|finding| finding.what.as_str()).collect();
        Ok(Finding {
            done: format!("the same over {WRONG}, which takes 10 % longer than it says"),
            limit: "round trip, transfers and goodput are off".to_owned(),
            measured: format!("off: {}", names.join(", ")),
            values: vec![("off", names.len() as f64)],
            // The losses are those of another link.
            passed: names.len() == WRONG_FIGURES,
            untested: checked.busy(),
        })
    }

    /// A late emulator makes a block invalid: it is never a slow format.
    pub(super) fn late_link(&mut self) -> Result<Finding> {
        // An emulator that stands still is late whatever the host carries.
        let flags = ["--link", "wifi", "--link-capacity", "1000000", "--rate", "300", "--verify", "none"];
        let running = self.start(SECONDS, &flags)?;
        let emulator = running.started(LINK_ROLE)?;
        // The measured time begins when the clients are connected.
        thread::sleep(Duration::from_secs(1));
        kill(emulator, Signal::SIGSTOP).context("cannot stop the emulator")?;
        thread::sleep(STALL);
        kill(emulator, Signal::SIGCONT).context("cannot let the emulator go on")?;
        let run = running.finish()?;
        let link = run.record.link.as_ref().context("the record has no link")?;
        let noticed = run
            .record
            .validity
            .reasons
            .iter()
            .any(|reason| matches!(reason.kind, ReasonKind::LinkLate { .. }));
        let late_ms = link.late_ns_p99() as f64 / 1e6;
        Ok(Finding {
            done: format!("the emulator of links stands still for {} ms of {SECONDS} s", STALL.as_millis()),
            limit: "the block is invalid, and the reason is the emulator".to_owned(),
            measured: format!("lateness p99 {late_ms:.1} ms; {}", run.record.validity),
            values: vec![("late_ms_p99", late_ms)],
            passed: noticed && run.record.validity.class == ValidityClass::Invalid,
            untested: None,
        })
    }
}
