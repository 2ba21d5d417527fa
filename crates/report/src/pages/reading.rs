//! How to read a report, as list items: what each figure means and how a verdict comes about.

use cell::Factor;

use crate::{
    result::{RESULT_FILE, ResultFile},
    statistics::stats::{self, BAND},
    tables::{browser, limits},
    verdicts::family::correction,
    view::LoadView,
};

/// List items.
pub(crate) fn reading(result: &ResultFile, loads: &[LoadView<'_>]) -> String {
    if let Some(search) = &result.search {
        return limits::reading(&result.config, &search.config);
    }
    let correction = correction(loads, result.config.rounds);
    if result.config.browser.is_some() {
        return browser::reading(&correction);
    }
    let is_any = |is: fn(&LoadView<'_>) -> bool| loads.iter().any(is);
    let batched = match is_any(|load| load.varies(Factor::Batching)) {
        true => "; batches with JSON in batches, and that with JSON event by event",
        false => "",
    };
    let light = match is_any(|load| load.reads_lightly()) {
        true => {
            "- Light readers: some clients counted deliveries unread (Populations), so client CPU is no evidence.\n"
        }
        false => "",
    };
    let (band, significant) = (BAND * 100.0, stats::SIGNIFICANT);
    format!(
        "- An envelope is one event delivered to one subscriber (an acknowledged publish where nothing is delivered). In \
         open-loop scenarios the plan sets its rate, so that is a check, not a score.\n\
         {light}- × is a block divided by its nearest anchors, JSON without compression, as the Hodges–Lehmann estimate over \
         rounds. [low, high] is its 95 % interval. That of json-control is of JSON against itself: smaller effects are not \
         seen.\n\
         - Verdicts compare a format with JSON under the same compression, JSON itself with no compression{batched}. better and \
         worse: wholly beyond ±{band:.0} %, and Wilcoxon's signed-rank test agrees (p ≤ {significant}; {correction}). same: \
         within ±{band:.0} %. inconclusive: anything else. unsteady and saturated: the latency depends on the block's length.\n\
         - [Brackets]: 10 to 99 samples lie beyond; –: fewer. Bytes and allocations need a balanced ledger alone, other figures \
         a quiet host and a punctual generator, too. Invalid blocks stay in {RESULT_FILE}.\n\
         - docs/methodology.md has the rest: what is measured, anchors, first deliveries, the floor, steady state.\n"
    )
}
