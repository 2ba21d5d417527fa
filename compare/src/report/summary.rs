//! `summary.md`: what was found, how far to trust it, and what it was made of.

use std::fmt::Write as _;

use measure::{Counts, Status, Verdict as Validity};

use super::{
    BAND, Comparison, LoadView, Steadiness, Table,
    comparison::{Control, control_of},
    limits, number,
    table::NOTHING,
    views,
};
use crate::{Block, CellResult, Profile, ResultFile, Role, selftest::SelfTest, slo::SloResult, stats};

/// How many left-out blocks the summary lists; the result file has all of them.
const LISTED_BLOCKS: usize = 20;

/// The summary in Markdown. Its first line is the command that made the result.
pub fn summary(result: &ResultFile) -> String {
    let loads = views(result);
    let mut text = format!("`{}`\n\n# {}\n", command(result), title(result));
    for (i, warning) in warnings(result, &loads).iter().enumerate() {
        line(&mut text, format_args!("{}> **{warning}**", if i == 0 { "\n" } else { ">\n" }));
    }
    line(&mut text, format_args!("\n{}", headline(result)));
    if let Some(config) = &result.search {
        text.push_str(&limits::markdown(result, config));
    }
    for load in &loads {
        let comparisons = load.comparisons();
        if loads.len() > 1 {
            line(&mut text, format_args!("\n## {}", load.name()));
        }
        let (latency, meaning) = load.latency;
        line(&mut text, format_args!("\np50, p99 and p99.9 are of `{latency}`: {meaning}.\n"));
        text.push_str(&load.costs().markdown());
        line(
            &mut text,
            format_args!("\n### CPU apart, handshakes apart\n\n{}", load.apart().markdown().trim_end()),
        );
        if let Some(allocations) = load.allocations() {
            line(&mut text, format_args!("\n### Allocations\n\n{}", allocations.markdown().trim_end()));
        }
        line(&mut text, format_args!("\n### Verdicts\n\n{}\n", control_line(load, &comparisons)));
        text.push_str(&load.verdicts(&comparisons, false).markdown());
        line(&mut text, format_args!("\n{}", steady_line(load)));
    }
    if let Some(slos) = slo_table(result) {
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

/// What the result is about.
pub(crate) fn title(result: &ResultFile) -> String {
    let scenarios = result.config.scenarios.join(", ");
    match &result.search {
        Some(config) => format!("{scenarios}: the highest rate under {}", config.slo),
        None => format!("{scenarios}: wire formats compared"),
    }
}

/// The same for a terminal: warnings, the headline, the tables, the verdicts.
pub fn terminal(result: &ResultFile) -> String {
    let loads = views(result);
    let mut text = String::new();
    for warning in warnings(result, &loads) {
        line(&mut text, format_args!("{warning}"));
    }
    line(&mut text, format_args!("{}", headline(result)));
    if let Some(config) = &result.search {
        text.push_str(&limits::terminal(result, config));
    }
    for load in &loads {
        let comparisons = load.comparisons();
        let (latency, meaning) = load.latency;
        line(&mut text, format_args!("\n{}, × is to JSON without compression", load.name()));
        text.push_str(&load.costs().text());
        line(&mut text, format_args!("p50, p99, p99.9: {latency}, {meaning}."));
        if let Some(allocations) = load.allocations() {
            line(&mut text, format_args!("\n{}", allocations.text().trim_end()));
        }
        if comparisons.is_empty() {
            continue;
        }
        line(
            &mut text,
            format_args!(
                "\nVerdicts, against JSON with the same compression (JSON itself: without compression); [95 % interval]"
            ),
        );
        text.push_str(&load.verdicts(&comparisons, true).text());
        line(&mut text, format_args!("{}\n{}", control_line(load, &comparisons), steady_line(load)));
    }
    if let Some(slos) = slo_table(result) {
        line(&mut text, format_args!("\n{}", slos.text().trim_end()));
    }
    text
}

/// What the A/A control says, in a sentence.
pub(crate) fn control_line(load: &LoadView<'_>, comparisons: &[Comparison]) -> String {
    let Some(control) = load.control() else { return "There is no A/A control.".to_owned() };
    let of_control = || comparisons.iter().filter(|comparison| comparison.cell == control.cell.id);
    if of_control().next().is_none() {
        return "The A/A control has no usable block.".to_owned();
    }
    let named = |which| {
        let names: Vec<String> = of_control()
            .filter(|comparison| control_of(comparison) == which)
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

/// What the compression's states take, as the cell's last run counted it.
fn compressors(cell: &CellResult) -> String {
    let last = cell.blocks.iter().rev().find_map(|block| block.record.as_ref()?.compression_memory);
    last.map_or_else(String::new, |memory| format!("; its states take {memory}"))
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    writeln!(text, "{arguments}").expect("writing to a string does not fail");
}

/// The command as one would type it again.
pub(crate) fn command(result: &ResultFile) -> String {
    quoted(&result.command)
}

/// The same without the program's name.
pub(crate) fn arguments(result: &ResultFile) -> String {
    quoted(result.command.get(1..).unwrap_or_default())
}

fn quoted(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,=:+".contains(c);
    let quoted = |word: &String| {
        let simple = !word.is_empty() && word.chars().all(plain);
        if simple { word.clone() } else { format!("'{}'", word.replace('\'', r"'\''")) }
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// What a reader must know before any number.
pub(crate) fn warnings(result: &ResultFile, loads: &[LoadView<'_>]) -> Vec<String> {
    let mut warnings = Vec::new();
    if result.config.profile == Profile::Quick.name() {
        warnings.push("Quick profile: not for decisions.".to_owned());
    }
    if let Status::Incomplete { reason } = &result.status {
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
    if loads.iter().any(|load| load.anchor().is_none_or(|anchor| anchor.merged.blocks == 0)) {
        warnings.push("JSON without compression has no usable block, so there are no ratios.".to_owned());
    }
    if result.search.is_none() && result.config.rounds < 6 {
        warnings.push("Fewer than six rounds: no intervals, so every verdict is inconclusive.".to_owned());
    }
    if let Some(failed) = result.selftest.as_ref().map(SelfTest::failed).filter(|failed| !failed.is_empty()) {
        warnings.push(format!("The instrument failed its own tests: {}.", failed.join(", ")));
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

/// How many blocks there are and how many are left out, in one sentence each.
pub(crate) fn headline(result: &ResultFile) -> String {
    if let Some(config) = &result.search {
        return limits::headline(result, config);
    }
    let blocks: Vec<&Block> = result.cells.iter().flat_map(|cell| &cell.blocks).collect();
    let scheduled: usize = result.schedule.iter().map(Vec::len).sum();
    let verdict = |validity: Validity| {
        let is =
            |block: &&&Block| block.record.as_ref().is_some_and(|record| record.validity.verdict == validity);
        blocks.iter().filter(is).count()
    };
    let failed = blocks.iter().filter(|block| block.record.is_none()).count();
    let mut text = format!(
        "{} of {scheduled} blocks of {} s ran, in {} rounds; {} of {} blocks invalid, {} suspect",
        blocks.len(),
        result.config.seconds,
        result.config.rounds,
        verdict(Validity::Invalid),
        blocks.len(),
        verdict(Validity::Suspect),
    );
    if failed > 0 {
        text.push_str(&format!(", {failed} without a record"));
    }
    let records = || blocks.iter().filter_map(|block| block.record.as_ref());
    let counts = records().fold(Counts::default(), |sum, record| sum + record.counts);
    let off = records().filter(|record| record.counts.balanced().is_err()).count();
    let whole = |count: u64| number::grouped(&count.to_string());
    text.push_str(&match off {
        0 => format!(
            ". The ledger balances in every block: {} of {} deliveries arrived once and unaltered, {} of {} publishes \
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

/// Whether each cell meets what was demanded.
pub(crate) fn slo_table(result: &ResultFile) -> Option<Table> {
    if result.slos.is_empty() {
        return None;
    }
    let headings = ["cell", "bound", "measured", "verdict"].map(str::to_owned).to_vec();
    let row = |one: &SloResult| {
        let times = ["p", "relay_cpu"];
        let time = times.iter().any(|time| one.bound.starts_with(time)) || one.bound.contains("_ms_p");
        let value = one.value.map_or_else(
            || NOTHING.to_owned(),
            |value| if time { format!("{} ms", number::three(value / 1e6)) } else { number::three(value) },
        );
        vec![
            one.cell.clone(),
            one.bound.clone(),
            value,
            if one.met { "met" } else { "**missed**" }.to_owned(),
        ]
    };
    Some(Table { names: 2, headings, rows: result.slos.iter().map(row).collect() })
}

/// What is known of the instrument, in a sentence.
pub(crate) fn tested(result: &ResultFile) -> String {
    match &result.selftest {
        None => {
            "Not tested for this result: `compare selftest --out FILE`, then `--selftest FILE`.".to_owned()
        }
        Some(test) => {
            let passed = test.oracles.iter().filter(|oracle| oracle.passed).count();
            let commit = test.git.as_ref().and_then(|git| git.commit.get(..8)).unwrap_or("unknown");
            format!(
                "{passed} of {} passed ({}, commit {commit}, {}).",
                test.oracles.len(),
                if test.quick { "the short form" } else { "the long form" },
                test.started_utc
            )
        }
    }
}

/// What each test did, had to see and saw.
pub(crate) fn selftest_table(result: &ResultFile) -> Option<Table> {
    let test = result.selftest.as_ref()?;
    let headings =
        ["test", "what was done", "what had to be seen", "what was seen", "verdict"].map(str::to_owned);
    let rows = test.oracles.iter().map(|oracle| {
        let verdict = if oracle.passed { "passed" } else { "**failed**" };
        [oracle.name.as_str(), &oracle.done, &oracle.limit, &oracle.measured, verdict]
            .map(str::to_owned)
            .to_vec()
    });
    Some(Table { names: 5, headings: headings.to_vec(), rows: rows.collect() })
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
        line(&mut text, format_args!("- and {more} more, see {}", crate::RESULT_FILE));
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

pub(crate) fn reading(result: &ResultFile, loads: &[LoadView<'_>]) -> String {
    if let Some(config) = &result.search {
        return limits::reading(config);
    }
    let cells = loads
        .iter()
        .map(|load| load.cells.iter().filter(|view| view.cell.role == Role::Cell).count())
        .max()
        .unwrap_or(0);
    let smallest = stats::wilcoxon_smallest(result.config.rounds as usize);
    let correction = if smallest * cells as f64 <= stats::SIGNIFICANT {
        format!("corrected by Holm over the {cells} cells")
    } else {
        format!(
            "not corrected for {cells} cells: with {} rounds no correction could find anything, so each verdict stands \
             alone at 5 %",
            result.config.rounds
        )
    };
    let batches = |load: &LoadView<'_>| load.varies(|cell| &cell.cell.batching);
    let batched = match loads.iter().any(batches) {
        true => "; what came in batches with JSON in batches, and that with JSON event by event",
        false => "",
    };
    format!(
        "- An envelope is one event delivered to one subscriber (an acknowledged publish where nothing is delivered). \
         Envelopes/s divides by the time in which work was outstanding. In open-loop scenarios the plan sets the rate, \
         so it is a check, not a score.\n\
         - Quantiles are of all usable blocks' samples merged. [Brackets] mean 10 to 99 samples lie above, – that fewer \
         do.\n\
         - Wire bytes are counted at the socket, both ways, with frames and masks, without handshakes. On loopback part \
         of the receiver's kernel work is charged to the sender.\n\
         - CPU is what the whole process spent (relay and clients apart), divided by the envelopes; verifying \
         signatures, matching and the network stack are in it for every format alike.\n\
         - User and system are the kernel's division of the same CPU time, in ticks of 10 ms for the relay. A handshake is \
         counted once for each connection, both ways.\n\
         - floor is a relay that does no Nostr work and knows by heart what to answer: what the generator and the sockets cost \
         by themselves. It is never ranked.\n\
         - × is a block divided by its nearest anchors, JSON without compression at every fourth place, as the \
         Hodges–Lehmann estimate over rounds: the median of the means of all pairs of rounds. Where single blocks have too \
         few samples it is the ratio of the merged blocks.\n\
         - Verdicts compare like with like: a format with JSON under the same compression, JSON itself with no \
         compression{batched}. [low, high] is the 95 % bootstrap interval of that estimate (10,000 resamples of rounds, \
         seed {}).\n\
         - better and worse: the interval lies wholly beyond ±{:.0} % and Wilcoxon's signed-rank test agrees \
         (p ≤ {}; {correction}). same: the interval lies within ±{:.0} %. inconclusive is an answer.\n\
         - unsteady: the medians of single seconds, each over all rounds, have a trend (Mann–Kendall, p ≤ 0.05, and beyond \
         ±2 %), or those of a block's halves differ by 5 %, or what is in flight grows. Such a latency says how long was \
         measured; bytes and CPU keep their verdicts.\n\
         - Invalid blocks stay in {}, leave the tables, and are counted above. Suspect blocks are used.\n",
        result.config.seed,
        BAND * 100.0,
        stats::SIGNIFICANT,
        BAND * 100.0,
        crate::RESULT_FILE
    )
}

/// The values a factor has in this result.
fn distinct<'a>(result: &'a ResultFile, of: impl Fn(&'a CellResult) -> &'a String) -> String {
    let mut values: Vec<&str> = Vec::new();
    for cell in &result.cells {
        if !values.contains(&of(cell).as_str()) {
            values.push(of(cell));
        }
    }
    values.join(", ")
}

/// What every block of a run had, or the values of the factors.
fn measured(result: &ResultFile) -> String {
    let config = &result.config;
    format!(
        "- Codecs: {}. Relay verifies: {}. Seed: {}. Profile: {}, {} rounds of {} s",
        distinct(result, |cell| &cell.cell.implementation),
        distinct(result, |cell| &cell.cell.verify),
        config.seed,
        config.profile,
        config.rounds,
        config.seconds
    )
}

pub(crate) fn provenance(result: &ResultFile) -> String {
    let mut text = String::new();
    let unknown = || "unknown".to_owned();
    match &result.corpus {
        Some(corpus) => line(
            &mut text,
            format_args!(
                "- Corpus: {}, {} events, {}, fingerprint {}",
                corpus.name,
                number::grouped(&corpus.events.to_string()),
                corpus.origin,
                corpus.sha256
            ),
        ),
        None => line(&mut text, format_args!("- Corpus: no run got far enough to state it")),
    }
    if let Some(search) = &result.search {
        let (seed, precision) = (search.seed, search.precision * 100.0);
        line(
            &mut text,
            format_args!("- Seed: {seed}. Probes of {} s, precision {precision:.0} %", search.probe_seconds),
        );
    } else {
        line(&mut text, format_args!("{}", measured(result)));
    }
    let mut compressions: Vec<(&str, &str)> = Vec::new();
    for cell in &result.cells {
        let pair = (cell.cell.compression.as_str(), cell.cell.compression_parameters.as_str());
        if !compressions.contains(&pair) && !pair.1.is_empty() {
            compressions.push(pair);
            line(&mut text, format_args!("- Compression {}: {}{}", pair.0, pair.1, compressors(cell)));
        }
    }
    let host = &result.host;
    let gib = |bytes: u64| format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30));
    line(
        &mut text,
        format_args!(
            "- Machine: {}, {} cores, {}{}, {}, kernel {}",
            host.cpu.clone().unwrap_or_else(unknown),
            host.cores,
            host.memory_bytes.map_or_else(unknown, gib),
            if host.virtual_machine == Some(true) { ", virtual" } else { "" },
            host.os.clone().unwrap_or_else(unknown),
            host.kernel.clone().unwrap_or_else(unknown),
        ),
    );
    let commit = result.git.as_ref().map_or_else(
        || "no git checkout".to_owned(),
        |git| format!("commit {}{}", git.commit, if git.dirty { " with local changes" } else { "" }),
    );
    line(
        &mut text,
        format_args!(
            "- Made by {} {}, {commit}, {}, started {}",
            result.tool.name,
            result.tool.version,
            host.rustc.clone().unwrap_or_else(unknown),
            result.started_utc
        ),
    );
    text
}
