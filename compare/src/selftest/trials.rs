//! The tests that take minutes: whole comparisons of JSON with itself and with a JSON that costs 10
//! % more.

use std::io;

use anyhow::{Context, Result, ensure};
use codecs::VerifyLevel;

use super::{bench::Bench, finding::Finding};
use crate::{
    matrix::CellSpec,
    plan::{self, BlockOrder},
    progress::Progress,
    usage::until_signal,
};
use report::{
    Comparison, Verdict, comparisons,
    metric::Metric,
    result::{CONTROL, Config, ResultFile, Role},
    stats::median,
};

/// Extra CPU of the dearer relay, as a share.
const MORE: f64 = 0.10;

/// The dearer relay's cell.
const DEARER: &str = "json+burn";

/// Errors allowed in 20 comparisons: false alarms in one metric, or true differences missed. Other
/// numbers of trials scale it. Counted by metric, because the correction is by metric: at a level
/// of 5 %, five of 100 verdicts are chance.
const WRONG_OF_20: usize = 2;

/// The load of a trial. With it, the relay CPU of a one-second block varies by 5 % beside its
/// neighbours; with four subscribers and no signature check, where wake-ups in the kernel dominate,
/// by 20 % (`compare selftest --only a-a`).
const LOAD: [&str; 2] = ["--rate", "2000"];
const VERIFY: VerifyLevel = VerifyLevel::Full;

impl Bench<'_> {
    /// Both trials, as one experiment: the control and the dearer cell stand in the same rounds.
    pub(super) fn trials(&mut self) -> Result<[Finding; 2]> {
        let burn_ns = self.ten_percent_ns()?;
        let results = self.repeated(burn_ns)?;
        let blocks = results.iter().flat_map(|result| &result.cells).flat_map(|cell| &cell.blocks);
        let invalid = blocks.filter(|block| block.usable().is_none()).count();
        let (repeats, planned) = (results.len(), self.options.repeats as usize);
        let stopped = if repeats < planned { format!(", stopped before {planned}") } else { String::new() };
        let size = format!(
            "{repeats} comparisons of {} rounds of {} s, {invalid} blocks invalid{stopped}",
            self.options.rounds, self.options.seconds
        );
        let comparisons: Vec<Comparison> = results.iter().flat_map(comparisons).collect();
        let mut findings =
            [false_alarms(&comparisons, repeats, &size), differences(&comparisons, repeats, burn_ns, &size)];
        for finding in &mut findings {
            finding.passed &= repeats == planned;
        }
        Ok(findings)
    }

    /// 10 % of what the relay spends on an event under the trials' load.
    fn ten_percent_ns(&mut self) -> Result<u32> {
        let flags: Vec<&str> = ["--verify", VERIFY.name()].into_iter().chain(LOAD).collect();
        let mut costs = Vec::new();
        for _ in 0..5 {
            costs.push(self.run(f64::from(self.options.seconds), &flags)?.relay_ns_per_envelope()?);
        }
        let cost = median(&costs).context("there are five")?;
        ensure!(cost > 100.0 && cost < 1e9, "an event costs the relay {cost} ns, which cannot be");
        Ok(measure::whole((cost * MORE).round()))
    }

    /// The comparisons: all that were asked for, or those until Ctrl-C.
    fn repeated(&self, burn_ns: u32) -> Result<Vec<ResultFile>> {
        let trials: Vec<_> = (0..self.options.repeats).map(|n| self.trial(n.into(), burn_ns)).collect();
        let blocks = trials.iter().map(|(.., plan)| plan.blocks()).sum();
        let guess = plan::block_estimate(self.options.seconds);
        let mut progress = Progress::new(blocks, guess, !program::rewrites_lines(&io::stderr()));
        let mut results = Vec::new();
        until_signal(async |interrupt| {
            for (n, (config, cells, plan)) in trials.iter().enumerate() {
                let played = (config, &cells[..], plan);
                let compared = self.compared(played, &mut progress, interrupt.wait()).await?;
                let Some(result) = compared else { break };
                results.push(result);
                if !progress.is_live() {
                    progress.note(&format!("comparison {} of {} is done", n + 1, trials.len()));
                }
            }
            Ok(())
        })?;
        progress.end();
        Ok(results)
    }

    fn trial(&self, repeat: u64, burn_ns: u32) -> (Config, [CellSpec; 3], BlockOrder) {
        let cell = |role, id, faults| self.cell(role, id, VERIFY, faults);
        let cells = [
            cell(Role::Anchor, "json+none", Vec::new()),
            cell(Role::Control, CONTROL, Vec::new()),
            cell(Role::Cell, DEARER, vec![format!("burn={burn_ns}ns")]),
        ];
        let (rounds, seconds) = (self.options.rounds, self.options.seconds);
        // Each repeat draws its own load and order.
        let seed = 1 + repeat * u64::from(rounds);
        let config = Config { seed, ..self.config(rounds, seconds, LOAD) };
        let plan = BlockOrder::new(&cells, config.rounds, config.seed);
        (config, cells, plan)
    }
}

/// Verdicts of JSON against itself that call it different, counted by metric.
fn false_alarms(comparisons: &[Comparison], repeats: usize, size: &str) -> Finding {
    let allowed = repeats * WRONG_OF_20 / 20;
    let of_control = || comparisons.iter().filter(|comparison| comparison.cell == CONTROL);
    let called = |comparison: &&Comparison| matches!(comparison.verdict, Verdict::Better | Verdict::Worse);
    let alarms: Vec<&Comparison> = of_control().filter(called).collect();
    let of_metric = |metric| alarms.iter().filter(|alarm| alarm.metric == metric).count();
    let most = alarms.iter().map(|alarm| of_metric(alarm.metric)).max().unwrap_or(0);
    let named: Vec<String> = alarms.iter().map(|alarm| format!("{} {alarm}", alarm.metric.short())).collect();
    let verdicts = of_control().count();
    Finding {
        done: format!("JSON against itself, {size}"),
        limit: format!("at most {allowed} verdicts other than same and inconclusive in any metric"),
        measured: format!(
            "at most {most} in a metric, {} of all {verdicts}{}{}",
            alarms.len(),
            if named.is_empty() { "" } else { ": " },
            named.join(", ")
        ),
        values: vec![
            ("verdicts", verdicts as f64),
            ("false_alarms", alarms.len() as f64),
            ("false_alarms_of_one_metric", most as f64),
        ],
        passed: most <= allowed && verdicts > 0,
        untested: None,
    }
}

/// Verdicts about the dearer relay that find its extra CPU.
fn differences(comparisons: &[Comparison], repeats: usize, burn_ns: u32, size: &str) -> Finding {
    let required = repeats - repeats * WRONG_OF_20 / 20;
    let of_dearer = || {
        comparisons
            .iter()
            .filter(|comparison| comparison.cell == DEARER && comparison.metric == Metric::RelayCpu)
    };
    let found = of_dearer().filter(|comparison| comparison.verdict == Verdict::Worse).count();
    let ratio = median(&of_dearer().map(|comparison| comparison.ratio).collect::<Vec<_>>());
    let shown = ratio.map_or_else(|| "unknown".to_owned(), |ratio| format!("{ratio:.3}"));
    Finding {
        done: format!("JSON whose relay burns {burn_ns} ns for each event, 10 % of what it costs, {size}"),
        limit: format!("relay CPU worse in at least {required} of {repeats}"),
        measured: format!("worse in {found}; median ratio {shown}"),
        values: vec![
            ("worse", found as f64),
            ("median_ratio", ratio.unwrap_or(f64::NAN)),
            ("burn_ns", f64::from(burn_ns)),
        ],
        passed: found >= required,
        untested: None,
    }
}
