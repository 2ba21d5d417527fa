//! Does a relay without time to spare lose its verdicts on latency, and only such a relay?

use std::future;

use anyhow::{Context, Result};
use codecs::VerifyLevel;
use measure::RunRecord;

use super::{bench::Bench, finding::Finding};
use crate::{
    plan::{self, BlockOrder},
    progress::Progress,
};
use report::{Derived, Verdict, result::Role};

/// Events a second, and seconds of a block. An event burns for milliseconds, beside which the
/// relay's own work is small in a debug build, too.
const RATE_PER_S: u32 = 100;
const SECONDS: u32 = 2;

/// The cell that burns nothing, beside which the others are judged.
const ANCHOR: &str = "json+none";

/// Two cells, and the share of a core that each burns: beyond 90 %, and far below.
const FULL: (&str, f64) = ("json+burn95", 0.95);
const SPARE: (&str, f64) = ("json+burn60", 0.60);

/// A response as late as this one shows that the relay, or the generator, was kept from its core.
const LATE_MS: f64 = 40.0;

impl Bench<'_> {
    /// The relay burns 95 % of its core, and then 60 %. The report made of these blocks must call
    /// the first one saturated, without another verdict on its latency, and the second one not.
    pub(super) fn saturated(&mut self) -> Result<Finding> {
        let burning = |(id, share): (&str, f64)| {
            let burn_us = share * 1e6 / f64::from(RATE_PER_S);
            self.cell(Role::Cell, id, VerifyLevel::None, vec![format!("burn={burn_us:.0}us")])
        };
        let anchor = self.cell(Role::Anchor, ANCHOR, VerifyLevel::None, Vec::new());
        let cells = [anchor, burning(FULL), burning(SPARE)];
        let config = self.config(1, SECONDS, ["--rate", &RATE_PER_S.to_string()]);
        // A cell is divided by one anchor beside it, too.
        let plan = BlockOrder { rounds: vec![vec![0, 1, 2]], spare: Vec::new() };
        let mut progress = Progress::new(plan.blocks(), plan::block_estimate(SECONDS), true);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot start the runtime")?;
        // Ctrl-C ends this program, as in the tests before and behind.
        let compared = self.compared((&config, &cells, &plan), &mut progress, future::pending());
        let result = runtime.block_on(compared)?.context("nobody interrupts it")?;
        let derived = Derived::from_result(&result);
        let blocks = result.cells.iter().flat_map(|cell| &cell.blocks);
        let busy = blocks.filter_map(|block| block.record.as_ref()).find_map(busy);
        let seen = |id| Observed::from_derived(&derived, id);
        Ok(finding(&seen(FULL.0), &seen(SPARE.0), busy))
    }
}

/// The report's view of a cell.
#[derive(Debug, Clone)]
struct Observed {
    /// CPU of the relay as a share of its core; absent without a usable block.
    share: Option<f64>,
    /// The processes that the report calls saturated.
    saturated: Vec<String>,
    /// The verdicts on latencies.
    verdicts: Vec<Verdict>,
}

impl Observed {
    fn from_derived(derived: &Derived, id: &str) -> Observed {
        let figures = derived.cells.iter().find(|cell| cell.id == id);
        let of_cell = derived.comparisons.iter().filter(|comparison| comparison.cell == id);
        let of_latency = of_cell.filter(|comparison| comparison.metric.is_latency());
        Observed {
            share: figures.and_then(|figures| figures.utilisation.relay),
            saturated: figures.map_or_else(Vec::new, |figures| figures.saturated.clone()),
            verdicts: of_latency.map(|comparison| comparison.verdict).collect(),
        }
    }

    /// Whether the report says of every latency that the relay was saturated.
    fn is_withheld(&self) -> bool {
        let has = self.saturated.iter().any(|process| process.starts_with("the relay "));
        has && !self.verdicts.is_empty() && self.verdicts.iter().all(|one| *one == Verdict::Saturated)
    }

    /// Whether the report says of latencies, and of none that a process was saturated.
    fn is_judged(&self) -> bool {
        let saturated = self.verdicts.contains(&Verdict::Saturated) || !self.saturated.is_empty();
        !saturated && !self.verdicts.is_empty()
    }

    /// `96.4 % (saturated)`.
    fn shown(&self) -> String {
        let share = self.share.map_or_else(|| "unknown".to_owned(), percent);
        let outcome = match () {
            () if self.is_withheld() => "saturated",
            () if self.is_judged() => "not saturated",
            () if self.verdicts.is_empty() => "no latency compared",
            () => "partly saturated",
        };
        format!("{share} ({outcome})")
    }
}

/// Why a block says nothing of the instrument.
fn busy(record: &RunRecord) -> Option<String> {
    if record.validity.blames_host() {
        return Some(format!("host too busy ({})", record.validity));
    }
    let response = record.latency.get("response");
    let slowest_ms = response.map_or(0.0, |response| response.max_ns() as f64 / 1e6);
    (slowest_ms > LATE_MS).then(|| format!("host too busy (a response took {slowest_ms:.0} ms)"))
}

/// `busy` says that the host had other things to do, of which a report that errs is no evidence.
fn finding(full: &Observed, spare: &Observed, busy: Option<String>) -> Finding {
    let of = |share: Option<f64>| share.unwrap_or(f64::NAN);
    let passed = full.is_withheld() && spare.is_judged();
    Finding {
        done: format!(
            "the relay burns {} and then {} of its core, at {RATE_PER_S} events/s",
            percent(FULL.1),
            percent(SPARE.1)
        ),
        limit: "saturated, without another verdict on latency, and then not".to_owned(),
        measured: format!("{} and {}", full.shown(), spare.shown()),
        values: vec![("full_share", of(full.share)), ("spare_share", of(spare.share))],
        passed,
        untested: busy.filter(|_| !passed),
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Observed {
        Observed {
            share: Some(0.96),
            saturated: vec!["the relay used 96 % of its cores".to_owned()],
            verdicts: vec![Verdict::Saturated; 2],
        }
    }

    fn spare() -> Observed {
        Observed { share: Some(0.61), saturated: Vec::new(), verdicts: vec![Verdict::Inconclusive] }
    }

    #[test]
    fn a_report_passes_that_withholds_the_verdicts_of_the_full_relay_alone() {
        for busy in [None, Some("host too busy".to_owned())] {
            let found = finding(&full(), &spare(), busy);
            assert!(found.passed && found.untested.is_none(), "{found:?}");
            assert_eq!(found.measured, "96.0 % (saturated) and 61.0 % (not saturated)");
        }
    }

    #[test]
    fn a_report_that_errs_about_either_relay_fails_unless_the_host_was_busy() {
        let generator = vec!["the generator used 95 % of its cores".to_owned()];
        for (what, full, spare) in [
            ("a verdict all the same", Observed { verdicts: vec![Verdict::Inconclusive], ..full() }, spare()),
            (
                "one of two",
                Observed { verdicts: vec![Verdict::Saturated, Verdict::Worse], ..full() },
                spare(),
            ),
            ("no process named", Observed { saturated: Vec::new(), ..full() }, spare()),
            ("another process", Observed { saturated: generator.clone(), ..full() }, spare()),
            ("no comparison", Observed { verdicts: Vec::new(), ..full() }, spare()),
            ("withheld without cause", full(), Observed { verdicts: vec![Verdict::Saturated], ..spare() }),
            ("named without cause", full(), Observed { saturated: generator.clone(), ..spare() }),
            ("the other not compared", full(), Observed { verdicts: Vec::new(), ..spare() }),
        ] {
            for busy in [None, Some("host too busy".to_owned())] {
                let found = finding(&full, &spare, busy.clone());
                assert!(!found.passed && found.untested == busy, "{what}: {found:?}");
            }
        }
    }
}
