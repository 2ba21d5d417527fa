//! `summary.md`: what was found, how far to trust it, and what it was made of.

use std::fmt::Write as _;

use measure::{Counts, Status, Verdict as Validity};

use super::{Metric, Verdict, View, number, table};
use crate::{Block, CellResult, Profile, ResultFile, matrix};

/// How many left-out blocks the summary lists; the result file has all of them.
const LISTED_BLOCKS: usize = 20;

/// The columns a verdict speaks of, with their names in it.
const JUDGED: [(Metric, &str); 4] = [
    (Metric::WireBytes, "bytes"),
    (Metric::RelayCpu, "relay CPU"),
    (Metric::ClientCpu, "client CPU"),
    (Metric::LatencyP50, "p50"),
];

/// The summary in Markdown. Its first line is the command that made the result.
pub fn summary(result: &ResultFile) -> String {
    let view = View::new(result);
    let config = &result.config;
    let mut text = format!("`{}`\n\n# {}: wire formats compared\n\n", command(result), config.scenario);
    for warning in warnings(&view) {
        line(&mut text, format_args!("> **{warning}**\n>"));
    }
    if text.ends_with(">\n") {
        text.truncate(text.len() - 2);
        text.push('\n');
    }
    line(&mut text, format_args!("{}\n", headline(result)));
    text.push_str(&table(result).markdown());
    text.push_str("\n## Verdicts\n\n");
    for (heading, parts) in verdicts(&view) {
        line(&mut text, format_args!("- {heading}. {}.", parts.join(". ")));
    }
    text.push_str(&left_out(result));
    text.push_str("\n## How to read this\n\n");
    text.push_str(&reading(&view));
    text.push_str("\n## What was measured\n\n");
    text.push_str(&provenance(result));
    text
}

/// The same for a terminal: warnings, the headline, the table, the verdicts.
pub fn terminal(result: &ResultFile) -> String {
    let view = View::new(result);
    let mut text = String::new();
    for warning in warnings(&view) {
        line(&mut text, format_args!("{warning}"));
    }
    line(&mut text, format_args!("{}\n", headline(result)));
    text.push_str(&table(result).text());
    let (latency, meaning) = view.latency;
    line(
        &mut text,
        format_args!("p50, p99, p99.9: {latency}, {meaning}. × is to JSON without compression.\n"),
    );
    for (heading, parts) in verdicts(&view) {
        line(&mut text, format_args!("{}", heading.replace("**", "")));
        for part in parts {
            line(&mut text, format_args!("  {part}"));
        }
    }
    text
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    writeln!(text, "{arguments}").expect("writing to a string does not fail");
}

/// The command as one would type it again.
fn command(result: &ResultFile) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,=:+".contains(c);
    let quoted = |word: &String| {
        let simple = !word.is_empty() && word.chars().all(plain);
        if simple { word.clone() } else { format!("'{}'", word.replace('\'', r"'\''")) }
    };
    result.command.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// What a reader must know before any number.
fn warnings(view: &View<'_>) -> Vec<String> {
    let result = view.result;
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
    if view.base().is_none_or(|base| view.cells[base].1.blocks == 0) {
        warnings.push("JSON without compression has no usable block, so there are no ratios.".to_owned());
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
fn headline(result: &ResultFile) -> String {
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

/// For each format what it is compared with, and a part for each of its cells: JSON with the same compression; JSON
/// itself without compression.
fn verdicts(view: &View<'_>) -> Vec<(String, Vec<String>)> {
    let mut verdicts: Vec<(&str, Vec<String>)> = Vec::new();
    for (index, (cell, _)) in view.cells.iter().enumerate() {
        let format = cell.cell.format.as_str();
        if verdicts.last().is_none_or(|(last, _)| *last != format) {
            verdicts.push((format, Vec::new()));
        }
        if let (Some(verdict), Some((_, parts))) = (verdict(view, index), verdicts.last_mut()) {
            parts.push(verdict);
        }
    }
    let against = |format: &str| match format {
        matrix::BASE_FORMAT => "against no compression",
        _ => "against JSON with the same compression",
    };
    let compared = verdicts.into_iter().filter(|(_, parts)| !parts.is_empty());
    compared.map(|(format, parts)| (format!("**{format}** {}", against(format)), parts)).collect()
}

/// What one cell is against its reference, or `None` for the reference itself.
fn verdict(view: &View<'_>, cell: usize) -> Option<String> {
    let names = &view.cells[cell].0.cell;
    let like_for_like = view.find(matrix::BASE_FORMAT, &names.compression).filter(|json| *json != cell);
    let (reference, note) = match like_for_like {
        Some(json) if names.format != matrix::BASE_FORMAT => (json, ""),
        _ if names.format == matrix::BASE_FORMAT => (view.base()?, ""),
        _ => (view.base()?, " (against JSON without compression)"),
    };
    if reference == cell {
        return None;
    }
    let parts: Vec<String> = JUDGED
        .into_iter()
        .filter_map(|(metric, name)| {
            let ratio = view.ratio(cell, reference, metric)?;
            let value = number::ratio(ratio.value);
            Some(match ratio.interval {
                Some((low, high)) => format!("{name} {value} [{low:.2}, {high:.2}] {}", ratio.verdict()),
                None => format!("{name} {value}"),
            })
        })
        .collect();
    let few = JUDGED
        .into_iter()
        .filter_map(|(metric, _)| view.ratio(cell, reference, metric))
        .any(|ratio| ratio.verdict() == Verdict::TooFewRounds);
    let what = if parts.is_empty() { "no usable block".to_owned() } else { parts.join(", ") };
    let few = if few { " (too few paired rounds for an interval)" } else { "" };
    Some(format!("{}{note}: {what}{few}", names.compression))
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

fn reading(view: &View<'_>) -> String {
    let (latency, meaning) = view.latency;
    format!(
        "- An envelope is one event delivered to one subscriber (an acknowledged publish where nothing is delivered). \
         Envelopes/s divides by the time in which work was outstanding. In open-loop scenarios the plan sets the rate, \
         so it is a check, not a score.\n\
         - p50, p99 and p99.9 are of `{latency}`: {meaning}. They are quantiles of all usable blocks' samples merged. \
         [Brackets] mean 10 to 99 samples lie above, – that fewer do.\n\
         - Wire bytes are counted at the socket, both ways, with frames and masks, without handshakes. On loopback part \
         of the receiver's kernel work is charged to the sender.\n\
         - CPU is what the whole process spent (relay and clients apart), divided by the envelopes; verifying \
         signatures, matching and the network stack are in it for every format alike.\n\
         - × is the ratio to JSON without compression: the median over rounds of the ratio within a round, or the ratio \
         of the merged blocks where single blocks have too few samples. Verdicts compare with JSON under the same \
         compression.\n\
         - [low, high] contains the true median ratio in at least 95 % of repetitions (order statistics, from six \
         rounds on, not corrected for the number of comparisons). lower and higher: the interval lies beyond ±2 %. \
         same: within ±2 %. inconclusive is an answer.\n\
         - Invalid blocks stay in {}, leave the tables, and are counted above. Suspect blocks are used.\n",
        crate::RESULT_FILE
    )
}

fn provenance(result: &ResultFile) -> String {
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
    let config = &result.config;
    line(
        &mut text,
        format_args!(
            "- Codecs: {} implementation. Relay verifies: {}. Seed: {}. Profile: {}",
            config.implementation, config.verify, config.seed, config.profile
        ),
    );
    let mut compressions: Vec<(&str, &str)> = Vec::new();
    for cell in &result.cells {
        let pair = (cell.cell.compression.as_str(), cell.cell.compression_parameters.as_str());
        if !compressions.contains(&pair) && !pair.1.is_empty() {
            compressions.push(pair);
        }
    }
    for (name, parameters) in compressions {
        line(&mut text, format_args!("- Compression {name}: {parameters}"));
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
