//! Sentences of a result and of its loads: title, warnings, headline, control, steady state,
//! saturation, and the blocks that are left out.

use std::fmt::Write as _;

use measure::{Counts, NOT_SATURATED, Status, ValidityClass};

use crate::{
    number,
    result::{Block, CellResult, QUICK, ResultFile, Role, SelfTest},
    statistics::steady::Steadiness,
    tables::{browser, limits},
    verdicts::{
        comparison::{Comparison, Control, control_of},
        gate::rounds_to_fail,
        likeness::mixed,
    },
    view::LoadView,
};

/// The subject of the result.
pub(crate) fn title(result: &ResultFile) -> String {
    let scenarios = result.config.scenarios.join(", ");
    if result.config.browser.is_some() {
        return "Wire formats in a browser".to_owned();
    }
    match &result.search {
        Some(search) => limits::title(&result.config, search),
        None => format!("{scenarios}: wire formats compared"),
    }
}

/// The verdict of the A/A control, in a sentence.
pub(crate) fn control_line(load: &LoadView<'_>, comparisons: &[Comparison]) -> String {
    let Some(control) = load.control() else { return "There is no A/A control.".to_owned() };
    let of_control = || comparisons.iter().filter(|comparison| comparison.cell == control.cell.id);
    if of_control().next().is_none() {
        return "The A/A control has no usable block.".to_owned();
    }
    if of_control().all(|comparison| comparison.interval.is_none()) {
        return "The A/A control has too few rounds for an interval.".to_owned();
    }
    let named = |which| {
        let names: Vec<String> = of_control()
            .filter(|comparison| control_of(comparison.interval) == which)
            .map(|comparison| format!("{} {comparison}", comparison.metric.short()))
            .collect();
        names.join(", ")
    };
    let (broken, suspect) = (named(Control::Broken), named(Control::Suspect));
    let mut text = "A/A control (JSON against itself): ".to_owned();
    text.push_str(&match (broken.as_str(), suspect.as_str()) {
        ("", "") => "no interval excludes 1.".to_owned(),
        ("", suspect) => format!("suspect in {suspect}; differences of that size may be noise."),
        (broken, _) => format!("failed in {broken}; all verdicts there are withheld."),
    });
    text
}

/// Which cells were the same from the beginning of their blocks to the end, in a sentence.
pub(crate) fn steady_line(load: &LoadView<'_>) -> String {
    if load.is_of_sessions() {
        return "Steady state: not looked for; sessions begin apart, each over a link of its own.".to_owned();
    }
    let known: Vec<(&str, &Steadiness)> = (load.cells.iter().filter(|view| view.cell.role != Role::Floor))
        .filter_map(|view| Some((view.cell.id.as_str(), view.steady.as_ref()?)))
        .collect();
    let Some(seconds) = known.iter().map(|(_, found)| found.seconds).max() else {
        return "Steady state: not looked for; that takes ten seconds of work in a block.".to_owned();
    };
    let unsteady: Vec<String> = (known.iter().filter(|(_, found)| !found.is_steady()))
        .map(|(id, found)| format!("{id} ({})", found.reasons.join(", ")))
        .collect();
    let (steady, of) = (known.len() - unsteady.len(), known.len());
    let mut text = format!("Steady state over {seconds} s: {steady} of {of} cells");
    if !unsteady.is_empty() {
        let _ = write!(text, "; unsteady, so that their latency is no verdict: {}", unsteady.join("; "));
    }
    text + "."
}

/// New and warm deliveries in every table of the load, in a sentence.
pub(crate) fn warmth_line(load: &LoadView<'_>) -> String {
    let young = match load.result.config.url {
        Some(_) => "New in every block: clients, connections and compression contexts",
        None => "New in every block: processes, connections, compression contexts and allocators",
    };
    let shares = (load.cells.iter().filter(|view| view.cell.role != Role::Floor))
        .filter_map(|view| view.merged.encodings?.cold_share());
    match shares.max_by(f64::total_cmp) {
        Some(share) => format!(
            "{young}. Warm: stored events, each sent before the clock starts; {} % of the measured deliveries at most \
             are an event's first in its format.",
            number::three(share * 100.0)
        ),
        None => {
            format!("{young}; how many deliveries are an event's first, and encode it, is unknown.")
        }
    }
}

/// Which cells are saturated, in a sentence.
pub(crate) fn saturated_line(load: &LoadView<'_>) -> String {
    let measured = || load.cells.iter().filter(|view| view.cell.role != Role::Floor);
    let saturated: Vec<String> = measured()
        .map(|view| (view.cell.id.as_str(), view.saturated()))
        .filter(|(_, reasons)| !reasons.is_empty())
        .map(|(id, reasons)| format!("{id} ({})", reasons.join(", ")))
        .collect();
    match saturated.len() {
        0 => "Saturation: no process whose cores are known used more than 90 % of them.".to_owned(),
        many => format!(
            "Saturation: {many} of {} cells, whose latencies have no other verdict: {}.",
            measured().count(),
            saturated.join("; ")
        ),
    }
}

/// Warnings that stand before any number.
pub(crate) fn warnings(result: &ResultFile, loads: &[LoadView<'_>]) -> Vec<String> {
    let mut warnings = Vec::new();
    // Between relays a rule of its own decides whether rounds suffice.
    let suffices = result.config.relays.len() > 1 && result.config.rounds >= rounds_to_fail(1, None);
    if result.config.profile == QUICK && !suffices {
        warnings.push("Quick profile: not for decisions.".to_owned());
    }
    if let Some(reason) = result.incomplete() {
        warnings.push(format!("Incomplete: {reason}. What was measured until then is below."));
    }
    if !result.host.optimised {
        warnings.push(
            "Unoptimised build: no number here says anything about a format. Use --release.".to_owned(),
        );
    }
    if loads.iter().any(LoadView::counts_allocations) {
        warnings.push(
            "Allocations were counted, which slows both ends: latencies and CPU times are no evidence and get no verdict."
                .to_owned(),
        );
    }
    if loads.iter().any(|load| load.reads_lightly() && !is_at_limit(load)) {
        warnings.push(
            "Light readers counted most deliveries unread: client CPU is no evidence and gets no verdict."
                .to_owned(),
        );
    }
    if loads.iter().any(|load| load.anchor().is_none_or(|anchor| anchor.merged.blocks == 0)) {
        warnings.push("JSON without compression has no usable block, so there are no ratios.".to_owned());
    }
    let has_verdicts = loads.is_empty() || loads.iter().any(|load| !is_at_limit(load));
    if result.search.is_none() && has_verdicts && result.config.rounds < 6 {
        warnings.push("Fewer than six rounds: no intervals, so every verdict is inconclusive.".to_owned());
    }
    warnings.extend(busy_host(result));
    warnings.extend(loads.iter().filter_map(|load| {
        let noisy = load.dispersed()?;
        Some(if loads.len() > 1 { format!("{}: {noisy}", load.name()) } else { noisy })
    }));
    if let Some(failed) = result.selftest.as_ref().map(SelfTest::failed).filter(|failed| !failed.is_empty()) {
        warnings.push(format!("The instrument failed its own tests: {}.", failed.join(", ")));
    }
    if let Some(difference) =
        result.selftest.as_ref().and_then(|test| test.of_another_commit(result.git.as_ref()))
    {
        warnings.push(format!("Another commit was tested: {difference}."));
    }
    let across: Vec<String> = loads.iter().flat_map(mixed).collect();
    if !across.is_empty() {
        warnings.push(format!(
            "Compared across implementations: {}. Such a ratio says what the code does, and nothing about a format; a \
             format compares with JSON of the same code (add json to --format).",
            across.join(", ")
        ));
    }
    let faults = result.cells.iter().flat_map(|cell| &cell.blocks).filter_map(|block| {
        Some(block.record.as_ref()?.relay.as_ref()?.faults.join(" ")).filter(|faults| !faults.is_empty())
    });
    if let Some(faults) = faults.max() {
        warnings.push(format!(
            "A relay misbehaved on purpose ({faults}): this tests the instrument and nothing else."
        ));
    }
    let records =
        || result.cells.iter().flat_map(|cell| &cell.blocks).filter_map(|block| block.record.as_ref());
    if let Some(corpus) = &result.corpus
        && records().any(|record| record.corpus.sha256 != corpus.sha256)
    {
        warnings.push("The blocks used different corpora: they do not compare.".to_owned());
    }
    warnings
}

/// Whether its table is that of throughput, with intervals of its own.
fn is_at_limit(load: &LoadView<'_>) -> bool {
    load.saturates() != NOT_SATURATED
}

/// That the host took blocks away, and what to do about it.
fn busy_host(result: &ResultFile) -> Option<String> {
    let is_lost = |block: &&Block| {
        block.usable().is_none() && block.counted().is_some_and(|record| record.validity.blames_host())
    };
    let blocks = || result.cells.iter().flat_map(|cell| &cell.blocks);
    let (busy, all) = (blocks().filter(is_lost).count(), blocks().count());
    (busy > 0).then(|| {
        format!(
            "The host was too busy in {busy} of {all} blocks, which are left out. End other programs, or take an idle \
             machine, and run it again; --rounds makes up for a few."
        )
    })
}

/// How many blocks there are and how many are left out, in one sentence each.
pub(crate) fn headline(result: &ResultFile) -> String {
    if let Some(search) = &result.search {
        return limits::headline(&result.config, search);
    }
    if let Some(found) = &result.config.browser {
        return browser::headline(result, found);
    }
    let blocks: Vec<&Block> = result.cells.iter().flat_map(|cell| &cell.blocks).collect();
    let scheduled: usize = result.schedule.iter().map(Vec::len).sum();
    let of_class = |class: ValidityClass| {
        let is = |block: &&&Block| block.record.as_ref().is_some_and(|record| record.validity.class == class);
        blocks.iter().filter(is).filter(|block| !block.is_interrupted()).count()
    };
    let interrupted = blocks.iter().filter(|block| block.is_interrupted()).count();
    let failed = blocks.iter().filter(|block| block.record.is_none() && !block.is_interrupted()).count();
    let further = match result.schedule.len().saturating_sub(result.config.rounds as usize) {
        0 => String::new(),
        further => format!(" and {further} further for blocks whose times were invalid"),
    };
    let mut text = format!(
        "{} of {scheduled} blocks of {} s ran, in {}{further}; {} of {} blocks invalid, {} suspect",
        blocks.len(),
        result.config.seconds,
        number::rounds(result.config.rounds),
        of_class(ValidityClass::Invalid),
        blocks.len(),
        of_class(ValidityClass::Suspect),
    );
    if failed > 0 {
        text.push_str(&format!(", {failed} without a record"));
    }
    if interrupted > 0 {
        text.push_str(&format!(", {interrupted} interrupted"));
    }
    let records = || blocks.iter().filter_map(|block| block.record.as_ref());
    let off = records().filter(|record| record.owed().balanced().is_err()).count();
    // Messages on their way when the user ended a run are no evidence against the relay.
    let ended = || records().filter(|record| record.status != Status::Interrupted);
    let counts = ended().fold(Counts::default(), |sum, record| sum + record.counts);
    let whole = |count: u64| number::grouped(&count.to_string());
    let every = match (failed, interrupted) {
        (0, 0) => "every block",
        (_, 0) => "every block with a record",
        _ => "every block that was played to its end",
    };
    text.push_str(&match off {
        0 if ended().next().is_none() => ".".to_owned(),
        0 => format!(
            ". The ledger balances in {every}: {} of {} deliveries arrived once and unaltered, {} of {} publishes \
             were acknowledged.",
            whole(counts.deliveries),
            whole(counts.deliveries_expected),
            whole(counts.acked),
            whole(counts.planned),
        ),
        _ => format!(". The ledger does not balance in {off} of the blocks."),
    });
    text
}

/// Blocks that the tables do not use, and why.
pub(crate) fn left_out(result: &ResultFile) -> Vec<String> {
    let blocks = result.cells.iter().flat_map(|cell| cell.blocks.iter().map(move |block| (cell, block)));
    let mut left_out: Vec<(&CellResult, &Block)> =
        blocks.filter(|(_, block)| block.usable().is_none()).collect();
    left_out.sort_by_key(|(_, block)| (block.round, block.position));
    let line = |(cell, block): (&CellResult, &Block)| {
        format!("round {}, {}: {}", block.round + 1, cell.id, why(block))
    };
    left_out.into_iter().map(line).collect()
}

/// Why a block does not count, or is doubted.
pub(crate) fn why(block: &Block) -> String {
    let mut reasons = Vec::new();
    if block.is_interrupted() {
        reasons.extend(Status::Interrupted.reason().map(str::to_owned));
        // Nothing waited for other missing parts, such as unsent events.
        let damage = block.record.as_ref().and_then(|record| record.owed().balanced().err());
        reasons.extend(damage.map(|damage| format!("the ledger does not balance: {damage}")));
    } else if let Some(record) = &block.record {
        if let Some(reason) = record.status.reason() {
            reasons.push(format!("incomplete: {reason}"));
        }
        reasons.extend(record.validity.reasons.iter().map(ToString::to_string));
    }
    reasons.extend(block.failure.as_deref().map(in_a_line));
    reasons.join("; ")
}

/// A failure by its last line, behind the sentence that quotes it: the result file has the rest.
fn in_a_line(failure: &str) -> String {
    let mut lines = failure.lines();
    match (lines.next(), lines.last()) {
        (Some(sentence), Some(last)) if sentence.ends_with(':') => format!("{sentence} {last}"),
        (first, last) => last.or(first).unwrap_or_default().to_owned(),
    }
}
