//! Output of `compare browser`: tables and verdicts of each load (a part and its events), and how
//! to read them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    metric::{Metric, ShownIn, Value},
    number,
    result::{Browser, BrowserBlock, BrowserCell, Part, Role},
    statistics::{
        judge::{Comparison, Judged, Sample, Verdict, is_corrected, judge},
        stats,
    },
    tables::table::{NOTHING, Table},
    view::log_to_anchors,
};

/// The metrics of a part, all of them judged; the first is the one that findings are of.
fn metrics(found: &Browser, part: Part) -> Vec<Metric> {
    Metric::shown_in(match (found.has_cpu(), part) {
        (true, Part::Decode | Part::InProportion) => ShownIn::Decoding,
        (true, Part::EndToEnd | Part::Live) => ShownIn::Socket,
        (false, Part::Decode | Part::InProportion) => ShownIn::DecodingByClock,
        (false, Part::EndToEnd | Part::Live) => ShownIn::SocketByClock,
    })
}

/// One cell over the blocks that count.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PageFigures {
    /// The cell's name.
    pub id: String,
    /// Blocks that ran.
    pub blocks: u64,
    /// Of those, the ones that count.
    pub usable_blocks: u64,
    /// Medians over blocks, in nanoseconds an event.
    pub figures: BTreeMap<Metric, f64>,
    /// Median of the JavaScript heap after garbage collection.
    pub heap_bytes: Option<f64>,
    /// Median of the most memory that the renderer had.
    pub peak_bytes: Option<f64>,
}

/// A metric of a block that counts, in nanoseconds an event; never zero.
fn value(block: &BrowserBlock, metric: Metric) -> Option<f64> {
    let (step, ns) = match &metric.row().value {
        Value::Warm(ns) => (block.warm.as_ref()?, ns),
        Value::Cold(ns) => (block.cold.as_ref()?, ns),
        _ => return None,
    };
    let ns = ns(step);
    (block.why.is_empty() && step.events > 0 && ns > 0).then(|| ns as f64 / step.events as f64)
}

/// Medians over the blocks of a cell that count.
fn median_of(cell: &BrowserCell, of: impl Fn(&BrowserBlock) -> Option<f64>) -> Option<f64> {
    stats::median(&cell.blocks.iter().filter(|block| block.why.is_empty()).filter_map(of).collect::<Vec<_>>())
}

/// The cells in numbers.
pub(crate) fn figures(found: &Browser) -> Vec<PageFigures> {
    found.cells.iter().map(|cell| figures_of(found, cell)).collect()
}

fn figures_of(found: &Browser, cell: &BrowserCell) -> PageFigures {
    PageFigures {
        id: cell.id.clone(),
        blocks: cell.blocks.len() as u64,
        usable_blocks: cell.blocks.iter().filter(|block| block.why.is_empty()).count() as u64,
        figures: metrics(found, cell.part)
            .iter()
            .filter_map(|metric| Some((*metric, median_of(cell, |block| value(block, *metric))?)))
            .collect(),
        heap_bytes: median_of(cell, |block| block.heap_bytes.map(|bytes| bytes as f64)),
        peak_bytes: median_of(cell, |block| block.peak_bytes.map(|bytes| bytes as f64)),
    }
}

/// The cells of each load, its anchor first.
fn loads(found: &Browser) -> impl Iterator<Item = &[BrowserCell]> {
    found.cells.chunk_by(|one, other| (one.part, &one.events) == (other.part, &other.events))
}

/// Each cell against its load's anchor, in every metric.
pub(crate) fn comparisons(found: &Browser) -> Vec<Comparison> {
    loads(found).flat_map(|load| compare(found, load)).collect()
}

fn compare(found: &Browser, load: &[BrowserCell]) -> Vec<Comparison> {
    let Some((anchor, others)) = load.split_first() else { return Vec::new() };
    let cells = others.iter().filter(|cell| cell.role == Role::Cell).count();
    let is_corrected = is_corrected(found.config.rounds, cells);
    let mut comparisons = Vec::new();
    for metric in &metrics(found, anchor.part) {
        let of_block = |block: &BrowserBlock| Some(((block.round, block.position), value(block, *metric)?));
        let anchors: BTreeMap<(u32, u32), f64> = anchor.blocks.iter().filter_map(of_block).collect();
        let logs = |cell: &BrowserCell| -> Vec<f64> {
            let blocks = cell.blocks.iter().filter_map(of_block);
            blocks.filter_map(|(place, own)| log_to_anchors(&anchors, place, own, |ns| Some(*ns))).collect()
        };
        let sample =
            |cell: &BrowserCell| Sample { role: cell.role, family: None, is_corrected, logs: logs(cell) };
        let judged = judge(&others.iter().map(sample).collect::<Vec<_>>());
        let named = others.iter().zip(judged).filter_map(|(cell, judged): (_, Option<Judged>)| {
            Some(judged?.named(&cell.id, &anchor.id, *metric, None))
        });
        comparisons.extend(named);
    }
    comparisons
}

/// The name of a load in a heading.
fn heading(load: &[BrowserCell]) -> String {
    let set = &load[0].events;
    match load[0].part {
        Part::Decode => format!("Decoding, {set} events"),
        Part::EndToEnd => format!("REQ to EOSE over a WebSocket, {set} events"),
        Part::Live => format!("Live events over a WebSocket, {set} events"),
        Part::InProportion => format!("Decoding JSON beside what an app does with an event, {set} events"),
    }
}

/// The names of the rows: without the part and the set, which the heading has.
fn label(cell: &BrowserCell) -> String {
    match cell.role {
        Role::Control => "json-control".to_owned(),
        _ if cell.part == Part::InProportion && cell.role == Role::Anchor => "decode json".to_owned(),
        _ => cell.row.clone(),
    }
}

/// A heading and a table for each load.
pub(crate) fn tables(found: &Browser) -> Vec<(String, Table)> {
    let comparisons = comparisons(found);
    loads(found).map(|load| (heading(load), table(found, load, &comparisons))).collect()
}

fn table(found: &Browser, load: &[BrowserCell], comparisons: &[Comparison]) -> Table {
    let metrics = metrics(found, load[0].part);
    let over_sockets = load[0].part.is_over_sockets();
    let mut headings = vec!["row"];
    headings.extend(over_sockets.then_some(["compression", "batches"]).into_iter().flatten());
    let names = headings.len();
    for metric in &metrics {
        headings.extend([metric.heading(), "× json"]);
    }
    let bytes = bytes_heading(found, load[0].part);
    headings.extend(bytes);
    headings.extend(if over_sockets { ["messages/event", "blocks"] } else { ["script gzip KB", "blocks"] });
    headings.extend(found.has_cpu().then_some("heap MB"));
    let mut table = Table::new(names, &headings);
    for cell in load {
        let figures = figures_of(found, cell);
        let mut row = vec![label(cell)];
        if over_sockets {
            row.extend([cell.compression.clone(), if cell.batched { "on" } else { "off" }.to_owned()]);
        }
        for metric in &metrics {
            row.push(shown(figures.figures.get(metric).copied(), metric.unit()));
            let found = comparisons.iter().find(|c| c.cell == cell.id && c.metric == *metric);
            row.push(found.map_or_else(|| NOTHING.to_owned(), Comparison::short));
        }
        row.extend(bytes.map(|_| shown(bytes_per_event(found, cell), 1.0)));
        row.push(if over_sockets {
            let each = |block: &BrowserBlock| {
                let step = block.warm.as_ref().filter(|step| step.events > 0)?;
                Some(step.messages as f64 / step.events as f64)
            };
            shown(median_of(cell, each), 1.0)
        } else {
            number::three(cell.script_gzip_bytes as f64 / 1e3)
        });
        row.push(format!("{}/{}", figures.usable_blocks, figures.blocks));
        row.extend(found.has_cpu().then(|| shown(figures.heap_bytes, 1e6)));
        table.rows.push(row);
    }
    table
}

/// The column of bytes, where a part has them: those of a decoder's input and those of a link's
/// packets are two things.
fn bytes_heading(found: &Browser, part: Part) -> Option<&'static str> {
    match found.config.link {
        Some(_) => Some("packet B/event"),
        None => (part == Part::Decode).then_some("B/event"),
    }
}

/// Bytes of an event as the cell's decoder is given it, or as an emulated link carries it.
fn bytes_per_event(found: &Browser, cell: &BrowserCell) -> Option<f64> {
    if found.config.link.is_some() {
        return median_of(cell, |block| {
            let events = block.warm.as_ref().map(|step| step.events).filter(|events| *events > 0)?;
            Some(block.link_bytes? as f64 / events as f64)
        });
    }
    let set = found.events.iter().find(|set| set.name == cell.events && set.events > 0)?;
    Some(cell.input_bytes? as f64 / set.events as f64)
}

fn shown(value: Option<f64>, unit: f64) -> String {
    value.map_or_else(|| NOTHING.to_owned(), |value| number::three(value / unit))
}

/// Parts that could not be measured, a sentence for each load, and the share of decoding where the
/// run has it.
pub(crate) fn findings(found: &Browser) -> Vec<String> {
    let comparisons = comparisons(found);
    let not_measured = found.not_measured.iter().map(|what| format!("Not measured: {what}."));
    let sentences = loads(found).filter_map(|load| finding(found, load, &comparisons));
    not_measured.chain(sentences).chain(share_of_decoding(found)).collect()
}

fn finding(found: &Browser, load: &[BrowserCell], comparisons: &[Comparison]) -> Option<String> {
    let metric = metrics(found, load[0].part)[0];
    let what = if metric == Metric::PageMain { "CPU of the main thread" } else { "Wall time" };
    let compared = load.iter().filter(|cell| cell.role == Role::Cell && cell.implementation != "head");
    let of =
        |cell: &BrowserCell| comparisons.iter().find(|c| c.cell == cell.id && c.metric == metric).cloned();
    let mut decided: Vec<(String, Comparison)> =
        compared.filter_map(|cell| Some((name(cell), of(cell)?))).collect();
    decided.retain(|(_, c)| matches!(c.verdict, Verdict::Better | Verdict::Worse));
    decided.sort_by(|(_, one), (_, other)| one.ratio.total_cmp(&other.ratio));
    let (Some((first, least)), Some((last, most))) = (decided.first(), decided.last()) else { return None };
    Some(format!(
        "{}: {what} against JSON.parse is between {} ({first}) and {} ({last}) where it is decided, \
         {} rows cheaper and {} dearer.",
        heading(load),
        number::ratio(least.ratio),
        number::ratio(most.ratio),
        decided.iter().filter(|(_, c)| c.verdict == Verdict::Better).count(),
        decided.iter().filter(|(_, c)| c.verdict == Verdict::Worse).count(),
    ))
}

/// A cell's name in a sentence.
fn name(cell: &BrowserCell) -> String {
    match cell.part {
        Part::EndToEnd | Part::Live => {
            format!("{} {}{}", cell.row, cell.compression, if cell.batched { " in batches" } else { "" })
        }
        Part::Decode | Part::InProportion => cell.row.clone(),
    }
}

/// The share of decoding in decoding and verifying, for each library that verifies.
fn share_of_decoding(found: &Browser) -> Vec<String> {
    let Some(load) = loads(found).find(|load| load[0].part == Part::InProportion) else { return Vec::new() };
    let metric = metrics(found, Part::InProportion)[0];
    let cost = |cell: &BrowserCell| median_of(cell, |block| value(block, metric));
    let Some(decode) = cost(&load[0]) else { return Vec::new() };
    let verifying = load.iter().filter(|cell| cell.row.starts_with("verify:"));
    let share = |cell: &BrowserCell| {
        let share = 100.0 * decode / (decode + cost(cell)?);
        Some(format!("Decoding JSON is {} % of decoding and {}.", number::three(share), cell.row))
    };
    verifying.filter_map(share).collect()
}

/// The run and how much of it counts, in a sentence.
pub(crate) fn headline(found: &Browser) -> String {
    let blocks = || found.cells.iter().flat_map(|cell| &cell.blocks);
    let software = &found.software;
    let sandbox = if software.sandbox { "" } else { ", without its sandbox as root" };
    let client = if software.is_device() {
        format!("Pages on a device, wall clock only ({})", software.product)
    } else {
        format!("Pages in {} (V8 {}), headless{sandbox}", software.product, software.v8)
    };
    let each = match &found.config.link {
        Some(link) => format!("one REQ each over an emulated link, {link},"),
        None => format!("{} ms each", found.config.step_ms),
    };
    format!(
        "{client}: {} blocks, {each} in {} rounds, {} left out.",
        blocks().count(),
        found.config.rounds,
        blocks().filter(|block| !block.why.is_empty()).count(),
    )
}

/// The blocks that do not count, and why.
pub(crate) fn left_out(found: &Browser) -> Vec<String> {
    let blocks = found.cells.iter().flat_map(|cell| cell.blocks.iter().map(move |block| (cell, block)));
    let line = |(cell, block): (&BrowserCell, &BrowserBlock)| {
        format!("round {}, {}: {}", block.round + 1, cell.id, block.why.join("; "))
    };
    blocks.filter(|(_, block)| !block.why.is_empty()).map(line).collect()
}

/// List items: how figures came about, then what rows and columns are.
pub(crate) fn reading(found: &Browser) -> String {
    let cells = loads(found).map(|load| load.iter().filter(|cell| cell.role == Role::Cell).count()).max();
    let correction = if is_corrected(found.config.rounds, cells.unwrap_or(0)) {
        "corrected by Holm over the rows of a table"
    } else {
        "not corrected: with so few rounds no correction could find anything, so each verdict stands alone"
    };
    let over_link = found.config.link.is_some();
    let measured = match found.has_cpu() {
        false if over_link => {
            "Each block is a fresh page with a new connection over an emulated access link, and one REQ on it. Times are those \
             of the page's clock from REQ to EOSE, each event decoded; CPU times would be those of the emulator \
             (docs/links.md), so there are none"
        }
        true => {
            "Each block is a fresh page with a renderer of its own. Figures are CPU by the kernel's clocks of the renderer's \
             main thread, of all of the renderer's threads and of the browser's network process, an empty step subtracted"
        }
        false => {
            "Each block is a frame of its own in a page on the device. Figures are wall time by the page's clock: a page cannot \
             read CPU time, and nothing on the device reads it from outside. What else the device did meanwhile, slept and \
             collected of earlier blocks' garbage is in them"
        }
    };
    format!(
        "- {measured}; medians over blocks.\n\
         - × is to `json`, JSON.parse of text, in the blocks before and behind in the same round: the Hodges–Lehmann estimate over \
         rounds of its logarithm, with its 95 % interval. < better, > worse, = same within 2 %, ? inconclusive; by Wilcoxon's \
         signed-rank test, {correction}. `json-control` is `json` under another name: the run resolves no less than its interval.\n\
         - Behind a row's format stands what decodes it: a package of npm; `tuned`, a reader by hand; `wasm`, this repository's \
         `codecs` in WebAssembly, where the fields of an event are slices of one text: an app that keeps one field keeps that text; \
         `head`, a reader of the id alone, for events that a client has. `json:bytes` decodes UTF-8 first; `table-hex` makes hex by \
         script where other rows have the engine's toHex; `fzstd` undoes relay-sim's zstd layer first, by script.\n\
         - {columns}.\n\
         - One browser: others have other engines and other figures. Never pool these with native clients, nor CPU time with \
         wall time.\n",
        columns = columns(found),
    )
}

/// The meaning of the columns that this result has.
fn columns(found: &Browser) -> String {
    if found.config.link.is_some() {
        return "packet B/event: IP packets to the page, with the headers of IP and TCP".to_owned();
    }
    let mut text = "First 100: a page that has decoded nothing. B/event: what a decoder is given, without the frames of a WebSocket. \
                    Script: what a page needs for the row alone, minified, under gzip"
        .to_owned();
    if found.has_cpu() {
        text.push_str(
            ". Heap: JavaScript's after a garbage collection, without array buffers, memory of WebAssembly and text from \
             TextDecoder, so it does not rank rows",
        );
    }
    text
}

/// The browser and what was in its page, as list items.
pub(crate) fn provenance(found: &Browser) -> String {
    let software = &found.software;
    let libraries: Vec<String> =
        found.libraries.iter().map(|(name, version)| format!("{name} {version}")).collect();
    let mut text = format!("- Client: {}, {}, ", software.client, software.product);
    text.push_str(&if software.is_device() {
        "wall clock only; the machine below served the page and ran the relay".to_owned()
    } else {
        format!("V8 {}; flags {}", software.v8, software.flags.join(" "))
    });
    text.push_str(&found.config.link.as_ref().map_or_else(String::new, |link| format!("; over {link}")));
    let clock =
        software.clock_ns.map(|ns| format!("; a clock in steps of {} µs", number::three(ns as f64 / 1e3)));
    text.push_str(&format!(
        "; {} toHex{}\n- Libraries: {}\n",
        if software.has_to_hex { "with" } else { "without" },
        clock.unwrap_or_default(),
        libraries.join(", "),
    ));
    for set in &found.events {
        text.push_str(&format!(
            "- Events, {}: {}, {} of JSON, {} set aside because a format cannot hold them\n",
            set.name, set.events, set.json_bytes, set.set_aside
        ));
    }
    text
}

/// Everything that two runs must have in common, in a line.
pub(crate) fn conditions(found: &Browser) -> String {
    let software = &found.software;
    let libraries: Vec<String> =
        found.libraries.iter().map(|(name, version)| format!("{name} {version}")).collect();
    let sets: Vec<String> = found.events.iter().map(|set| format!("{} {}", set.events, set.name)).collect();
    format!(
        "{} {}, {}, V8 {}, {}, toHex {}, steps of {} ms, {}, {}",
        software.client,
        software.product,
        found.config.link.as_ref().map_or_else(|| "no link".to_owned(), |link| format!("over {link}")),
        software.v8,
        software.flags.join(" "),
        software.has_to_hex,
        found.config.step_ms,
        libraries.join(" "),
        sets.join(" ")
    )
}
