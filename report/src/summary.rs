//! `summary.md` and the terminal's output: findings, warnings and provenance as text.

use std::{collections::BTreeSet, fmt::Write as _};

use measure::{Counts, Status, ValidityClass};

use super::{
    answer::answer,
    break_even, browser,
    comparison::{Comparison, Control, Verdict, control_of},
    likeness::{code_line, compression_line, mixed},
    limits, number,
    provenance::{command, line, provenance, selftest_table, tested},
    reading::reading,
    slos::{slo_table, slos},
    steady::Steadiness,
    table::Form,
    text::{LEFT_OUT, fold_within},
    utilisation::Utilisation,
    view::{LoadView, views},
};
use crate::result::{Block, CellResult, QUICK, RESULT_FILE, ResultFile, Role, SelfTest};

/// How many left-out blocks the summary lists; the result file has all of them.
const LISTED_BLOCKS: usize = 20;

/// Columns of a narrow terminal.
const WIDTH: usize = 120;

/// Sentences are not folded to less.
const LEAST_WIDTH: usize = 40;

/// The summary in Markdown. Its first line is the command that made the result.
pub fn summary(result: &ResultFile) -> String {
    let loads = views(result);
    let mut text = format!("`{}`\n\n# {}\n", command(result), title(result));
    for (i, warning) in warnings(result, &loads).iter().enumerate() {
        line(&mut text, format_args!("{}> **{warning}**", if i == 0 { "\n" } else { ">\n" }));
    }
    line(&mut text, format_args!("\n{}", headline(result)));
    if let Some(search) = &result.search {
        text.push_str(&limits::markdown(search));
    }
    if let Some(found) = &result.break_even {
        text.push_str(&break_even::markdown(found, result.incomplete().is_none()));
    }
    if let Some(found) = &result.browser {
        text.push_str(&browser::markdown(found));
    }
    for load in &loads {
        let comparisons = load.comparisons();
        if loads.len() > 1 {
            line(&mut text, format_args!("\n## {}", load.name()));
        }
        line(&mut text, format_args!(""));
        for part in answer(load, &comparisons) {
            line(&mut text, format_args!("- {part}"));
        }
        let (latency, meaning) = load.latency;
        line(&mut text, format_args!("\n{}", code_line(load)));
        line(&mut text, format_args!("\np50, p99 and p99.9 are of `{latency}`: {meaning}.\n"));
        text.push_str(&load.costs().markdown());
        line(&mut text, format_args!("\n{}", load.warmth_line()));
        if let Some(starts) = load.starts_line() {
            line(&mut text, format_args!("\n{starts}"));
        }
        if let Some(sessions) = load.sessions() {
            line(&mut text, format_args!("\n### Sessions\n\n{}", sessions.markdown().trim_end()));
        }
        if let Some((links, note)) = load.links() {
            line(&mut text, format_args!("\n### Links\n\n{note}\n\n{}", links.markdown().trim_end()));
        }
        if let Some((apart, _)) = load.links_apart() {
            line(&mut text, format_args!("\n### Links apart\n\n{}", apart.markdown().trim_end()));
        }
        if let Some(apart) = load.apart() {
            let heading = "### CPU, handshakes and first deliveries apart";
            line(&mut text, format_args!("\n{heading}\n\n{}", apart.markdown().trim_end()));
        }
        if let Some((checks, _)) = load.beside_checks() {
            let heading = "### What a format saves a client beside the client's own checks";
            line(&mut text, format_args!("\n{heading}\n\n{}", checks.markdown().trim_end()));
        }
        if let Some((populations, _)) = load.populations() {
            line(&mut text, format_args!("\n### Populations\n\n{}", populations.markdown().trim_end()));
        }
        if let Some((agents, note)) = load.agents_apart() {
            let heading = "### Agents that differ from the others";
            line(&mut text, format_args!("\n{heading}\n\n{}\n{note}", agents.markdown()));
        }
        if let Some(allocations) = load.allocations() {
            line(&mut text, format_args!("\n### Allocations\n\n{}", allocations.markdown().trim_end()));
        }
        if let Some((instructions, note)) = load.instructions() {
            let instructions = instructions.markdown();
            line(&mut text, format_args!("\n### Instructions\n\n{instructions}\n{note}"));
        }
        line(&mut text, format_args!("\n### Verdicts\n\n{}\n", control_line(load, &comparisons)));
        if let Some(families) = load.family_line() {
            line(&mut text, format_args!("{families}\n"));
        }
        text.push_str(&load.verdicts(&comparisons, Form::Full).markdown());
        if let Some(settings) = compression_line(load) {
            line(&mut text, format_args!("\n{settings}"));
        }
        line(&mut text, format_args!("\n{}\n\n{}", steady_line(load), saturated_line(load)));
    }
    if let Some(slos) = slo_table(&slos(result, &loads)) {
        line(&mut text, format_args!("\n## What was demanded\n\n{}", slos.markdown().trim_end()));
    }
    text.push_str(&left_out(result));
    line(&mut text, format_args!("\n## The instrument's own tests\n\n{}", tested(result)));
    if let Some(tests) = selftest_table(result) {
        line(&mut text, format_args!("\n{}", tests.markdown().trim_end()));
    }
    text.push_str("\n## How to read this\n\n");
    text.push_str(&reading(result, &loads));
    text.push_str("\n## What was measured\n\n");
    text.push_str(&provenance(result));
    text
}

/// The subject of the result.
pub(crate) fn title(result: &ResultFile) -> String {
    let scenarios = result.config.scenarios.join(", ");
    if result.browser.is_some() {
        return "Wire formats in a browser".to_owned();
    }
    match (&result.search, &result.break_even) {
        (Some(search), _) => {
            format!("{scenarios}: the {} under {}", limits::sought(&search.config), search.config.slo)
        }
        (None, Some(_)) => format!("{scenarios}: break-even bandwidths"),
        (None, None) => format!("{scenarios}: wire formats compared"),
    }
}

/// The same for a terminal: warnings, the headline, the answer, the tables, the verdicts. Unless
/// `wide`, tables have fewer columns and marks instead of words.
pub fn terminal(result: &ResultFile, wide: bool) -> String {
    terminal_of(result, wide, None)
}

/// The same for a terminal of so many columns, in which no row of a table wraps; what it has no
/// room for is named.
pub fn terminal_of(result: &ResultFile, wide: bool, room: Option<usize>) -> String {
    let width = room.map_or(WIDTH, |room| room.clamp(LEAST_WIDTH, WIDTH));
    let fold = |text: &mut String, paragraph: &str| fold_within(text, paragraph, width);
    let loads = views(result);
    let mut text = String::new();
    for warning in warnings(result, &loads) {
        fold(&mut text, &warning);
    }
    fold(&mut text, &headline(result));
    if let Some(search) = &result.search {
        text.push_str(&limits::terminal(search, room));
    }
    if let Some(found) = &result.break_even {
        for finding in break_even::findings(found).into_iter().chain(break_even::remark(found)) {
            fold(&mut text, &finding);
        }
        line(&mut text, format_args!("\n{}", break_even::terminal(found, room).trim_end()));
    }
    if let Some(found) = &result.browser {
        browser::findings(found).iter().for_each(|finding| fold(&mut text, finding));
        text.push_str(&browser::terminal(found, room));
    }
    let slos = slos(result, &loads);
    let loads: Vec<_> = loads.iter().map(|load| (load, load.comparisons())).collect();
    for (load, comparisons) in &loads {
        if loads.len() > 1 {
            fold(&mut text, &load.name());
        }
        for part in answer(load, comparisons) {
            fold(&mut text, &part);
        }
    }
    for (load, comparisons) in &loads {
        let (latency, meaning) = load.latency;
        text.push('\n');
        fold(&mut text, &format!("{}, × is to JSON without compression", load.name()));
        text.push_str(&if wide { load.costs() } else { load.main_costs() }.text(room));
        fold(&mut text, &format!("p50, p99, p99.9: {latency}, {meaning}."));
        fold(&mut text, &code_line(load));
        if let Some(settings) = compression_line(load) {
            fold(&mut text, &settings);
        }
        for sentence in [Some(load.warmth_line()), load.starts_line()].into_iter().flatten() {
            fold(&mut text, &sentence);
        }
        if let Some(sessions) = load.sessions() {
            text.push('\n');
            fold(&mut text, "Sessions, from the instant each was due by plan");
            text.push_str(&sessions.text(room));
        }
        if let Some((links, note)) = load.links() {
            line(&mut text, format_args!("\n{}", links.text(room).trim_end()));
            fold(&mut text, &note);
        }
        if let Some((apart, _)) = load.links_apart() {
            line(&mut text, format_args!("\n{}", apart.text(room).trim_end()));
        }
        if let Some(allocations) = load.allocations() {
            line(&mut text, format_args!("\n{}", allocations.text(room).trim_end()));
        }
        if let Some((instructions, note)) = load.instructions() {
            line(&mut text, format_args!("\n{}", instructions.text(room).trim_end()));
            fold(&mut text, &note);
        }
        if comparisons.is_empty() {
            continue;
        }
        text.push('\n');
        fold(
            &mut text,
            "Verdicts, against JSON with the same compression (JSON itself: without compression); [95 % interval]",
        );
        text.push_str(&load.verdicts(comparisons, if wide { Form::Words } else { Form::Marks }).text(room));
        if !wide {
            fold(&mut text, Verdict::MARKS);
        }
        load.family_line().iter().for_each(|families| fold(&mut text, families));
        for sentence in [control_line(load, comparisons), steady_line(load), saturated_line(load)] {
            fold(&mut text, &sentence);
        }
    }
    if let Some(slos) = slo_table(&slos) {
        line(&mut text, format_args!("\n{}", slos.text(room).trim_end()));
    }
    if text.contains(LEFT_OUT) {
        fold(
            &mut text,
            "summary.md in the folder of the result has all columns; so has this output in a pipe.",
        );
    }
    text
}

/// The verdict of the A/A control, in a sentence.
pub(crate) fn control_line(load: &LoadView<'_>, comparisons: &[Comparison]) -> String {
    let Some(control) = load.control() else { return "There is no A/A control.".to_owned() };
    let of_control = || comparisons.iter().filter(|comparison| comparison.cell == control.cell.id);
    if of_control().next().is_none() {
        return "The A/A control has no usable block.".to_owned();
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

/// Which cells are saturated, in a sentence.
pub(crate) fn saturated_line(load: &LoadView<'_>) -> String {
    let measured = || load.cells.iter().filter(|view| view.cell.role != Role::Floor);
    let saturated: Vec<String> = measured()
        .map(|view| (view.cell.id.as_str(), view.utilisation().reasons()))
        .filter(|(_, reasons)| !reasons.is_empty())
        .map(|(id, reasons)| format!("{id} ({})", reasons.join(", ")))
        .collect();
    let knows =
        |share: fn(&Utilisation) -> Option<f64>| measured().any(|view| share(&view.utilisation()).is_some());
    match saturated.len() {
        0 if !knows(|one| one.generator) => {
            "Saturation: not looked for; no record states its cores.".to_owned()
        }
        0 if !knows(|one| one.relay) => {
            "Saturation: no generator used more than 90 % of its cores; those of the relay are unknown."
                .to_owned()
        }
        0 => "Saturation: none; no process used more than 90 % of its cores.".to_owned(),
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
    if result.config.profile == QUICK {
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
    if loads.iter().any(LoadView::reads_lightly) {
        warnings.push(
            "Light readers counted most deliveries unread: client CPU is no evidence and gets no verdict."
                .to_owned(),
        );
    }
    if loads.iter().any(|load| load.anchor().is_none_or(|anchor| anchor.merged.blocks == 0)) {
        warnings.push("JSON without compression has no usable block, so there are no ratios.".to_owned());
    }
    if result.search.is_none() && result.config.rounds < 6 {
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
             format compares with JSON of the same code (add json to --formats).",
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

/// That the host took blocks away, what this costs and what to do about it.
fn busy_host(result: &ResultFile) -> Option<String> {
    let lost = |block: &&Block| {
        block.usable().is_none() && block.counted().is_some_and(|record| record.validity.blames_host())
    };
    let blocks = || result.cells.iter().flat_map(|cell| &cell.blocks);
    let (busy, all) = (blocks().filter(lost).count(), blocks().count());
    let rounds = |cell: &CellResult| {
        let usable = cell.blocks.iter().filter(|block| block.usable().is_some());
        usable.map(|block| block.round).collect::<BTreeSet<_>>().len()
    };
    let short =
        result.cells.iter().filter(|cell| cell.blocks.iter().any(|b| lost(&b)) && rounds(cell) < 6).count();
    let cost = match short {
        0 => String::new(),
        1 => " One cell has fewer than six rounds left, and so no verdict on time.".to_owned(),
        _ => format!(" {short} cells have fewer than six rounds left, and so no verdict on time."),
    };
    (busy > 0).then(|| {
        format!(
            "The host was too busy in {busy} of {all} blocks, which are left out.{cost} End other programs, or take \
             an idle machine, and run it again; --rounds makes up for a few."
        )
    })
}

/// How many blocks there are and how many are left out, in one sentence each.
pub(crate) fn headline(result: &ResultFile) -> String {
    if let Some(search) = &result.search {
        return limits::headline(search);
    }
    if let Some(found) = &result.break_even {
        return break_even::headline(found);
    }
    if let Some(found) = &result.browser {
        return browser::headline(found);
    }
    let blocks: Vec<&Block> = result.cells.iter().flat_map(|cell| &cell.blocks).collect();
    let scheduled: usize = result.schedule.iter().map(Vec::len).sum();
    let of_class = |class: ValidityClass| {
        let is = |block: &&&Block| block.record.as_ref().is_some_and(|record| record.validity.class == class);
        blocks.iter().filter(is).count()
    };
    let failed = blocks.iter().filter(|block| block.record.is_none()).count();
    let further = match result.schedule.len().saturating_sub(result.config.rounds as usize) {
        0 => String::new(),
        further => format!(" and {further} further for blocks whose times were invalid"),
    };
    let mut text = format!(
        "{} of {scheduled} blocks of {} s ran, in {} rounds{further}; {} of {} blocks invalid, {} suspect",
        blocks.len(),
        result.config.seconds,
        result.config.rounds,
        of_class(ValidityClass::Invalid),
        blocks.len(),
        of_class(ValidityClass::Suspect),
    );
    if failed > 0 {
        text.push_str(&format!(", {failed} without a record"));
    }
    let records = || blocks.iter().filter_map(|block| block.record.as_ref());
    let counts = records().fold(Counts::default(), |sum, record| sum + record.counts);
    let off = records().filter(|record| record.counts.balanced().is_err()).count();
    let whole = |count: u64| number::grouped(&count.to_string());
    let every = if failed > 0 { "every block with a record" } else { "every block" };
    text.push_str(&match off {
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
fn left_out(result: &ResultFile) -> String {
    let blocks = result.cells.iter().flat_map(|cell| cell.blocks.iter().map(move |block| (cell, block)));
    let mut left_out: Vec<(&CellResult, &Block)> =
        blocks.filter(|(_, block)| block.usable().is_none()).collect();
    if left_out.is_empty() {
        return String::new();
    }
    left_out.sort_by_key(|(_, block)| (block.round, block.position));
    let mut text = "\n## Blocks left out\n\n".to_owned();
    for (cell, block) in left_out.iter().take(LISTED_BLOCKS) {
        line(&mut text, format_args!("- round {}, {}: {}", block.round + 1, cell.id, why(block)));
    }
    if left_out.len() > LISTED_BLOCKS {
        let more = left_out.len() - LISTED_BLOCKS;
        line(&mut text, format_args!("- and {more} more, see {RESULT_FILE}"));
    }
    text
}

fn why(block: &Block) -> String {
    let mut reasons = Vec::new();
    if let Some(record) = &block.record {
        if let Status::Incomplete { reason } = &record.status {
            reasons.push(format!("incomplete: {reason}"));
        }
        reasons.extend(record.validity.reasons.iter().cloned());
    }
    // Only the last line: the result file has the rest.
    reasons.extend(block.failure.as_ref().and_then(|failure| failure.lines().last()).map(str::to_owned));
    reasons.join("; ")
}
