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
use report::{
    Derived, Verdict,
    result::{ResultFile, Role},
};

/// Events a second, and seconds of a block. An event burns for milliseconds, beside which the
/// relay's own work is small in a debug build, too.
const RATE_PER_S: u32 = 100;
const SECONDS: u32 = 2;

/// The cell that burns nothing: what the relay takes by itself.
const ANCHOR: &str = "json+none";

/// Two cells, and the share of a core that each burns: beyond 90 %, and far below.
const FULL: (&str, f64) = ("json+burn95", 0.95);
const SPARE: (&str, f64) = ("json+burn60", 0.60);

/// Tolerance of a share of the core: beneath [`FULL`] by this much is still beyond 90 %.
const TOLERANCE: f64 = 0.02;

/// A response as late as this one shows that the relay, or the generator, was kept from its core. A relay
/// that lacks [`TOLERANCE`] of its share at the end is later by at least as much, so a busy host fails
/// nothing.
const LATE_MS: f64 = TOLERANCE * SECONDS as f64 * 1e3;

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
        let seen = |id| Observed::from_result(&result, &derived, id);
        Ok(finding(&seen(ANCHOR), &seen(FULL.0), &seen(SPARE.0)))
    }
}

/// The report's view of a cell, and whether the host let it.
#[derive(Debug, Clone)]
struct Observed {
    /// CPU of the relay as a share of its core; absent without a usable block.
    share: Option<f64>,
    /// The processes that the report calls saturated.
    saturated: Vec<String>,
    /// The verdicts on latencies.
    verdicts: Vec<Verdict>,
    /// Evidence that the host had other things to do.
    busy: Option<String>,
}

impl Observed {
    fn from_result(result: &ResultFile, derived: &Derived, id: &str) -> Observed {
        let figures = derived.cells.iter().find(|cell| cell.id == id);
        let of_cell = derived.comparisons.iter().filter(|comparison| comparison.cell == id);
        let of_latency = of_cell.filter(|comparison| comparison.metric.is_latency());
        let blocks = result.cells.iter().filter(|cell| cell.id == id).flat_map(|cell| &cell.blocks);
        Observed {
            share: figures.and_then(|figures| figures.utilisation.relay),
            saturated: figures.map_or_else(Vec::new, |figures| figures.saturated.clone()),
            verdicts: of_latency.map(|comparison| comparison.verdict).collect(),
            busy: blocks.filter_map(|block| block.record.as_ref()).find_map(busy),
        }
    }

    /// Whether the relay used its burnt share, and beyond it at most its own cost. A burning core sleeps
    /// less deeply, so other work costs less than on an idle one.
    fn has_burned(&self, burned: f64, own: Option<f64>) -> bool {
        let allowed = |own: f64| burned - TOLERANCE..=burned + own + TOLERANCE;
        self.share.zip(own).is_some_and(|(share, own)| allowed(own).contains(&share))
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

/// `anchor` is the relay that burns nothing.
fn finding(anchor: &Observed, full: &Observed, spare: &Observed) -> Finding {
    let own = anchor.share;
    let has_burned = full.has_burned(FULL.1, own) && spare.has_burned(SPARE.1, own);
    let busy = [anchor, full, spare].into_iter().find_map(|seen| seen.busy.clone());
    let of = |share: Option<f64>| share.unwrap_or(f64::NAN);
    Finding {
        done: format!(
            "the relay burns {} and then {} of its core, at {RATE_PER_S} events/s",
            percent(FULL.1),
            percent(SPARE.1)
        ),
        limit: format!(
            "these shares and at most {} that it takes by itself, ±{:.0} points; saturated, without another verdict on \
             latency, and then not",
            own.map_or_else(|| "unknown".to_owned(), percent),
            TOLERANCE * 100.0
        ),
        measured: format!("{} and {}", full.shown(), spare.shown()),
        values: vec![
            ("own_share", of(own)),
            ("full_share", of(full.share)),
            ("spare_share", of(spare.share)),
        ],
        passed: has_burned && full.is_withheld() && spare.is_judged(),
        // With the right shares the report has to be right on a busy host, too.
        untested: busy.filter(|_| !has_burned),
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn anchor() -> Observed {
        Observed { share: Some(0.014), saturated: Vec::new(), verdicts: Vec::new(), busy: None }
    }

    fn full() -> Observed {
        Observed {
            share: Some(0.96),
            saturated: vec!["the relay used 96 % of its cores".to_owned()],
            verdicts: vec![Verdict::Saturated; 2],
            busy: None,
        }
    }

    fn spare() -> Observed {
        Observed {
            share: Some(0.61),
            saturated: Vec::new(),
            verdicts: vec![Verdict::Inconclusive],
            busy: None,
        }
    }

    fn disturbed(seen: Observed) -> Observed {
        Observed { busy: Some("host too busy (a response took 210 ms)".to_owned()), ..seen }
    }

    #[test]
    fn a_report_that_withholds_the_verdicts_of_the_full_relay_alone_passes() {
        let found = finding(&anchor(), &full(), &spare());
        assert!(found.passed && found.untested.is_none(), "{found:?}");
        assert_eq!(found.measured, "96.0 % (saturated) and 61.0 % (not saturated)");
        let found = finding(&anchor(), &disturbed(full()), &spare());
        assert!(found.passed && found.untested.is_none(), "what was seen on a busy host was seen: {found:?}");
    }

    #[test]
    fn a_report_that_errs_about_either_relay_fails_on_a_busy_host_too() {
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
            for full in [Observed { busy: None, ..full.clone() }, disturbed(full)] {
                let found = finding(&anchor(), &full, &spare);
                assert!(!found.passed && found.untested.is_none(), "{what}: {found:?}");
            }
        }
    }

    #[test]
    fn a_share_that_was_not_burned_fails_unless_the_host_was_busy() {
        let of = |share, seen| Observed { share, ..seen };
        for (what, anchor, full, spare) in [
            ("too low", anchor(), of(Some(0.92), full()), spare()),
            ("too high", anchor(), full(), of(Some(0.65), spare())),
            ("unknown", anchor(), of(None, full()), spare()),
            ("unknown of the relay by itself", of(None, anchor()), full(), spare()),
        ] {
            let found = finding(&anchor, &full, &spare);
            assert!(!found.passed && found.untested.is_none(), "{what}: {found:?}");
            let found = finding(&disturbed(anchor), &full, &spare);
            assert!(!found.passed, "{what}: {found:?}");
            assert_eq!(found.untested.as_deref(), Some("host too busy (a response took 210 ms)"), "{what}");
        }
    }
}
