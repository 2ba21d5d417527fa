//! The report as people read it: the same tables for a terminal and as Markdown.

use std::fmt::Write as _;

use codecs::{Format, Implementation};

use crate::{
    escapes::SORTS,
    json_libraries::OTHERS,
    report::Report,
    rows::JSON_ROWS,
    sets::KINDS,
    sizes::{BATCHES, Batches, Sizes},
    statistics::{Estimate, MIN_ROUNDS},
    together::TOGETHER,
    what::What,
};

pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) note: String,
    pub(crate) head: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
    /// How many columns are names, which stand on the left.
    pub(crate) names: usize,
}

/// A column's name and where its figure comes from.
type Column<T, F> = (&'static str, fn(&T) -> F);

/// The implementations a table has rows for; JSON has other libraries, too.
fn implementations(format: Format) -> Vec<&'static str> {
    let mut names: Vec<_> = Implementation::ALL
        .into_iter()
        .filter(|by| format.codec(*by).is_ok())
        .map(Implementation::name)
        .collect();
    if format == Format::JSON {
        names.extend(OTHERS);
    }
    names
}

/// Every table that the report has figures for.
pub(crate) fn tables(report: &Report, formats: &[Format]) -> Vec<Table> {
    let mut tables = Vec::new();
    if report.rounds > 0 {
        tables.push(targets(report, formats));
        tables.push(times(report, formats));
        tables.push(json_libraries(report));
        tables.push(escapes(report));
        tables.push(times_together(report, formats));
    }
    tables.push(sizes(report, formats));
    tables.push(sizes_together(report));
    tables.push(batches(report));
    tables.extend(sizes_by_kind(report, formats));
    if report.rounds > 0 {
        for what in [What::Encode, What::Decode, What::PeekCold] {
            tables.push(times_by_kind(report, formats, what));
        }
    }
    tables
}

pub(crate) fn head(names: &[&str], columns: impl IntoIterator<Item = String>) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).chain(columns).collect()
}

pub(crate) fn words(columns: &[&str]) -> Vec<String> {
    columns.iter().map(|column| (*column).to_owned()).collect()
}

fn cell(estimate: Option<Estimate>, digits: usize) -> String {
    let Some(Estimate { median, interval }) = estimate else { return String::new() };
    match interval {
        Some((low, high)) => format!("{median:.digits$} [{low:.digits$}–{high:.digits$}]"),
        None => format!("{median:.digits$}"),
    }
}

// --- times ---

fn targets(report: &Report, formats: &[Format]) -> Table {
    let mut rows = Vec::new();
    for format in formats {
        let name = format.name();
        for by in implementations(*format) {
            let get = |what| report.rounds_of(name, by, what, None);
            let memcpy = report.rounds_of(name, "", What::Memcpy, None);
            let events = report.corpus.held_by.get(name).unwrap_or(&report.corpus.measured);
            let encode =
                get(What::Encode).zip(memcpy).and_then(|(over, base)| Estimate::of_ratio(over, base));
            let peeks =
                [What::PeekCold, What::PeekHot].map(|what| cell(report.time(name, by, what, None), 1));
            let mut row = vec![name.to_owned(), by.to_owned(), events.to_string(), cell(encode, 2)];
            row.extend(peeks);
            rows.push(row);
        }
    }
    Table {
        title: "Against the floor".to_owned(),
        note: "Aims for tuned binary formats: encode ≤ 10, a peek ≤ 10 ns at fixed offsets and ≤ 60 ns in Cap'n Proto."
            .to_owned(),
        head: words(&["format", "by", "events", "encode/memcpy", "peek cold ns", "peek hot ns"]),
        rows,
        names: 2,
    }
}

fn times(report: &Report, formats: &[Format]) -> Table {
    const COLUMNS: [What; 4] = [What::Encode, What::Decode, What::KeepBytes, What::PeekCold];
    let mut rows = Vec::new();
    for format in formats {
        for by in implementations(*format) {
            let memcpy = report.time(format.name(), "", What::Memcpy, None);
            let times = COLUMNS.map(|what| cell(report.time(format.name(), by, what, None), 0));
            let mut row = vec![format.name().to_owned(), by.to_owned(), cell(memcpy, 0)];
            row.extend(times);
            rows.push(row);
        }
    }
    Table {
        title: "Nanoseconds an event".to_owned(),
        note: String::new(),
        head: head(&["format", "by", "memcpy"], COLUMNS.map(|what| what.name().to_owned())),
        rows,
        names: 2,
    }
}

fn json_libraries(report: &Report) -> Table {
    let row = |by: &str| {
        let times = JSON_ROWS.map(|what| cell(report.time(Format::JSON.name(), by, what, None), 0));
        head(&[if by == "library" { "serde_json" } else { by }], times)
    };
    Table {
        title: "JSON libraries, nanoseconds an event".to_owned(),
        note: "All libraries read ids, keys and signatures as bytes. Tuned code stops after the last of the three fields."
            .to_owned(),
        head: head(&["by"], JSON_ROWS.map(|what| what.name().to_owned())),
        rows: implementations(Format::JSON).into_iter().map(row).collect(),
        names: 1,
    }
}

/// Beside each time, what it is of tuned code's in the same round.
fn escapes(report: &Report) -> Table {
    let json = Format::JSON.name();
    let mut rows = Vec::new();
    for ([written, read], label) in SORTS {
        for by in implementations(Format::JSON) {
            let mut row = head(&[label, if by == "library" { "serde_json" } else { by }], []);
            for what in [written, read] {
                let tuned = report.rounds_of(json, "tuned", what, None);
                let rounds = report.rounds_of(json, by, what, None);
                let ratio = rounds.zip(tuned).and_then(|(over, base)| Estimate::of_ratio(over, base));
                row.extend([cell(report.time(json, by, what, None), 0), cell(ratio, 2)]);
            }
            rows.push(row);
        }
    }
    Table {
        title: "JSON in JSON, nanoseconds an event".to_owned(),
        note: "Each event's content is an event in JSON, as in reposts, with every quote escaped. The other content has an \
               apostrophe for each character that JSON escapes."
            .to_owned(),
        head: words(&["content", "by", "encode", "/ tuned", "decode", "/ tuned"]),
        rows,
        names: 2,
    }
}

fn times_together(report: &Report, formats: &[Format]) -> Table {
    const COLUMNS: [What; 6] = [
        What::Encode,
        What::EncodeEvents,
        What::EncodeBatch,
        What::Decode,
        What::DecodeEvents,
        What::DecodeBatch,
    ];
    let mut rows = Vec::new();
    for format in formats {
        for by in
            Implementation::ALL.into_iter().filter(|by| format.codec(*by).is_ok()).map(Implementation::name)
        {
            let times = COLUMNS.map(|what| cell(report.time(format.name(), by, what, None), 0));
            rows.push(head(&[format.name(), by], times));
        }
    }
    Table {
        title: "Events together, nanoseconds an event".to_owned(),
        note: format!(
            "An EVENTS message, or a batch without one, has up to {TOGETHER} events of one kind. A cell is empty if the \
             format has no layout for a batch, or the layout no tuned code."
        ),
        head: head(&["format", "by"], COLUMNS.map(|what| what.name().to_owned())),
        rows,
        names: 2,
    }
}

/// The kinds that the corpus has.
fn kinds(report: &Report) -> Vec<u16> {
    KINDS.into_iter().filter(|kind| report.corpus.kinds.contains_key(kind)).collect()
}

fn kind_head(report: &Report, names: &[&str]) -> Vec<String> {
    head(names, kinds(report).iter().map(u16::to_string).chain(["all".to_owned()]))
}

/// The columns behind [`kind_head`].
pub(crate) fn columns(report: &Report) -> Vec<Option<u16>> {
    kinds(report).into_iter().map(Some).chain([None]).collect()
}

fn times_by_kind(report: &Report, formats: &[Format], what: What) -> Table {
    let mut rows = Vec::new();
    for format in formats {
        for by in implementations(*format) {
            let times =
                columns(report).into_iter().map(|kind| cell(report.time(format.name(), by, what, kind), 0));
            let times: Vec<_> = times.collect();
            if times.iter().any(|time| !time.is_empty()) {
                rows.push(head(&[format.name(), by], times));
            }
        }
    }
    let title = format!("By kind: {}, nanoseconds an event", what.name());
    Table { title, note: String::new(), head: kind_head(report, &["format", "by"]), rows, names: 2 }
}

// --- sizes ---

pub(crate) fn size_of(report: &Report, format: Format, kind: Option<u16>) -> Option<&Sizes> {
    report.sizes.iter().find(|sizes| sizes.format == format.name() && sizes.kind == kind)
}

/// Bytes, and the share of what the same events take in JSON.
fn with_share(sizes: &Sizes, get: fn(&Sizes) -> f64) -> String {
    let share = sizes.json.as_deref().map_or(100.0, |json| 100.0 * get(sizes) / get(json));
    format!("{:.0} ({share:.1}%)", get(sizes))
}

/// The columns of sizes.
const SIZES: [Column<Sizes, f64>; 5] = [
    ("bytes", |s| s.raw),
    ("gzip 6", |s| s.gzip),
    ("zstd 3", |s| s.zstd),
    ("gzip 6 stream", |s| s.gzip_stream),
    ("zstd 3 stream", |s| s.zstd_stream),
];

fn sizes(report: &Report, formats: &[Format]) -> Table {
    let mut rows = Vec::new();
    for format in formats {
        let Some(sizes) = size_of(report, *format, None) else { continue };
        let cells = SIZES.map(|(_, get)| with_share(sizes, get));
        rows.push(head(&[format.name(), &sizes.events.to_string()], cells));
    }
    Table {
        title: "Bytes an event".to_owned(),
        note: "Brackets have the share of JSON's bytes. `gzip 6` (of zlib-rs) and `zstd 3` compress every event by itself. \
               `stream` compresses all events as one, in the corpus's order."
            .to_owned(),
        head: head(&["format", "events"], SIZES.map(|(name, _)| name.to_owned())),
        rows,
        names: 1,
    }
}

fn sizes_together(report: &Report) -> Table {
    let row = |batches: &Batches| {
        let layout = batches.layout.map(|bytes| format!("{bytes:.1}")).unwrap_or_default();
        head(&[batches.format], [format!("{:.1}", batches.single), format!("{:.1}", batches.message), layout])
    };
    Table {
        title: "Events together, bytes an event".to_owned(),
        note: format!("EVENTS and batches of {TOGETHER} events in the corpus's order, not compressed."),
        head: words(&["format", "single", "EVENTS", "batch"]),
        rows: report.batches.iter().map(row).collect(),
        names: 1,
    }
}

fn batches(report: &Report) -> Table {
    let columns = |name: &str| BATCHES.map(|batch| format!("{name}, {batch}"));
    let row = |batches: &Batches| {
        let bytes = batches.gzip.iter().chain(&batches.zstd);
        head(&[batches.format], bytes.map(|bytes| format!("{bytes:.0}")))
    };
    Table {
        title: "Batches".to_owned(),
        note: "Bytes per event if this many events are compressed together, in the corpus's order."
            .to_owned(),
        head: head(&["format"], [columns("gzip 6"), columns("zstd 3")].concat()),
        rows: report.batches.iter().map(row).collect(),
        names: 1,
    }
}

fn sizes_by_kind(report: &Report, formats: &[Format]) -> Vec<Table> {
    let table = |(name, get): Column<Sizes, f64>| {
        let row = |format: &Format| {
            let sizes =
                |kind| size_of(report, *format, kind).map(|sizes| with_share(sizes, get)).unwrap_or_default();
            head(&[format.name()], columns(report).into_iter().map(sizes))
        };
        Table {
            title: format!("By kind: {name}, in bytes an event"),
            note: String::new(),
            head: kind_head(report, &["format"]),
            rows: formats.iter().map(row).collect(),
            names: 1,
        }
    };
    SIZES.into_iter().map(table).collect()
}

// --- rendering ---

/// Says what was measured, and on which machine.
fn opening(report: &Report) -> Vec<String> {
    let (corpus, machine) = (&report.corpus, &report.machine);
    let mut lines = vec![
        format!(
            "{} of {} events of {} ({}), fingerprint {}.",
            corpus.measured, corpus.events, corpus.name, corpus.origin, corpus.fingerprint
        ),
        "Every core format holds these events. A format that holds fewer is compared with JSON on those."
            .to_owned(),
    ];
    if !corpus.held_by.is_empty() {
        let held: Vec<_> =
            corpus.held_by.iter().map(|(format, events)| format!("{format} {events}")).collect();
        lines.push(format!("Events that such a format holds: {}.", held.join(", ")));
    }
    let kinds: Vec<_> =
        corpus.kinds.iter().map(|(kind, events)| format!("{events} of kind {kind}")).collect();
    lines.push(format!("Among them: {}.", kinds.join(", ")));
    if report.rounds > 0 {
        let load = machine.load_before.map_or("unknown".to_owned(), |load| load.to_string());
        let cores = machine.cores;
        lines.push(format!(
            "{} with {cores} cores, one thread; load before the start {load}.",
            machine.processor
        ));
        let interval = if report.rounds < MIN_ROUNDS {
            format!("no intervals: these need {MIN_ROUNDS} rounds")
        } else {
            "in brackets its 95 % interval by percentile bootstrap".to_owned()
        };
        lines.push(format!("Times are medians of {} interleaved rounds; {interval}.", report.rounds));
    }
    lines
}

/// For a terminal; `more` stands behind what was measured.
pub(crate) fn text(report: &Report, more: &str, tables: &[Table]) -> String {
    let mut out = opening(report).join("\n") + "\n" + more;
    for Table { title, note, head, rows, names } in tables {
        let width = |column: usize| {
            let cells = rows.iter().chain([head]).map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        };
        let widths: Vec<_> = (0..head.len()).map(width).collect();
        let gap = if note.is_empty() { "" } else { "\n" };
        write!(out, "\n{title}\n{note}{gap}\n").expect("writing to a String");
        for row in [head].into_iter().chain(rows) {
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let padded =
                    if column < *names { format!("{cell:width$}  ") } else { format!("{cell:>width$}  ") };
                out += &padded;
            }
            out.truncate(out.trim_end().len());
            out.push('\n');
        }
    }
    out
}

/// The same as Markdown.
pub(crate) fn markdown(report: &Report, more: &str, tables: &[Table]) -> String {
    let arguments = report.arguments.join(" ");
    let mut out = format!(
        "<!-- cargo bench -p corpus-cli --bench codec-report -- {arguments} -->\n\n# Codec report\n\n"
    );
    out += "`cargo bench -p corpus-cli --bench codec-report -- --recommend` makes one page of this: the first three\n\
            formats for each kind of event. [codecs.md](codecs.md) explains the tables.\n\n";
    out += &(opening(report).join("\n") + "\n" + more);
    for Table { title, note, head, rows, names } in tables {
        let gap = if note.is_empty() { "" } else { "\n\n" };
        write!(out, "\n## {title}\n\n{note}{gap}").expect("writing to a String");
        let rule =
            (0..head.len()).map(|column| if column < *names { "---" } else { "--:" }.to_owned()).collect();
        for row in [head, &rule].into_iter().chain(rows) {
            writeln!(out, "| {} |", row.join(" | ")).expect("writing to a String");
        }
    }
    out
}
