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
        let seen = |id| {
            let figures = derived.cells.iter().find(|cell| cell.id == id);
            let of_cell = derived.comparisons.iter().filter(|comparison| comparison.cell == id);
            let of_latency = of_cell.filter(|comparison| comparison.metric.is_latency());
            let verdicts: Vec<Verdict> = of_latency.map(|comparison| comparison.verdict).collect();
            let saturated = figures.map_or(&[][..], |figures| &figures.saturated);
            let share = figures.and_then(|figures| figures.utilisation.relay);
            (share.unwrap_or(f64::NAN), is_saturated(saturated, &verdicts))
        };
        Ok(finding(seen(FULL.0), seen(SPARE.0), busy))
    }
}

/// Whether a report says of every latency of a cell that the relay was saturated, or of none that
/// anything was; `None` where it says neither. `saturated` are the processes that it names.
fn is_saturated(saturated: &[String], verdicts: &[Verdict]) -> Option<bool> {
    let names_relay = saturated.iter().any(|process| process.starts_with("the relay "));
    match () {
        () if verdicts.is_empty() => None,
        () if names_relay && verdicts.iter().all(|one| *one == Verdict::Saturated) => Some(true),
        () if saturated.is_empty() && !verdicts.contains(&Verdict::Saturated) => Some(false),
        () => None,
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

/// The share of its core that each relay used, and what the report says of it. `busy` says that the host
/// had other things to do, of which a report that errs is no evidence.
fn finding(full: (f64, Option<bool>), spare: (f64, Option<bool>), busy: Option<String>) -> Finding {
    let passed = (full.1, spare.1) == (Some(true), Some(false));
    let shown = |(share, is_saturated): (f64, Option<bool>)| {
        let outcome = match is_saturated {
            Some(true) => "saturated",
            Some(false) => "not saturated",
            None => "neither saturated nor compared",
        };
        format!("{} ({outcome})", percent(share))
    };
    Finding {
        done: format!(
            "the relay burns {} and then {} of its core, at {RATE_PER_S} events/s",
            percent(FULL.1),
            percent(SPARE.1)
        ),
        limit: "saturated, without another verdict on latency, and then not".to_owned(),
        measured: format!("{} and {}", shown(full), shown(spare)),
        values: vec![("full_share", full.0), ("spare_share", spare.0)],
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

    #[test]
    fn a_report_withholds_the_verdicts_of_a_full_relay_alone() {
        use Verdict::{Inconclusive, Saturated, Worse};
        let (relay, generator) = ("the relay used 96 % of its cores", "the generator used 95 % of its cores");
        for (named, verdicts, expected) in [
            (Some(relay), &[Saturated, Saturated][..], Some(true)),
            (Some(relay), &[Saturated, Worse], None),
            (Some(relay), &[], None),
            (None, &[Saturated, Saturated], None),
            (Some(generator), &[Saturated, Saturated], None),
            (Some(generator), &[Inconclusive], None),
            (None, &[Inconclusive], Some(false)),
            (None, &[], None),
        ] {
            let named: Vec<String> = named.into_iter().map(str::to_owned).collect();
            assert_eq!(is_saturated(&named, verdicts), expected, "{named:?} {verdicts:?}");
        }
        for (full, spare) in
            [(Some(true), Some(false)), (Some(true), None), (None, Some(false)), (None, None)]
        {
            for busy in [None, Some("host too busy".to_owned())] {
                let found = finding((0.96, full), (0.61, spare), busy.clone());
                let passed = full.is_some() && spare.is_some();
                assert_eq!((found.passed, found.untested), (passed, busy.filter(|_| !passed)));
            }
        }
    }
}
