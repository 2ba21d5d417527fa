//! One page: which format is smallest and which is quickest, for each kind of event.

use codecs::{Format, Implementation};

use crate::{
    report::Report,
    sizes::Sizes,
    statistics::Estimate,
    tables::{Table, columns, head, size_of, words},
    what::What,
};

/// The rows by which formats are ranked.
const TIMES: [(&str, What); 3] =
    [("writes", What::Encode), ("reads", What::Decode), ("peeks", What::PeekCold)];
/// The bytes that are ranked: as it is, and as one compressed stream.
type Size = (&'static str, fn(&Sizes) -> f64);
const SIZES: [Size; 2] = [("bytes", |sizes| sizes.raw), ("zstd 3 stream", |sizes| sizes.zstd_stream)];
/// Places of a ranking that are shown.
const PLACES: usize = 3;

/// A format with its figure and the interval in which that lies.
struct Entry {
    format: &'static str,
    shown: String,
    low: f64,
    high: f64,
}

/// Sizes, then times for each implementation: a ranking never mixes them.
pub(crate) fn page(report: &Report, formats: &[Format]) -> Vec<Table> {
    let formats: Vec<Format> = formats.iter().copied().filter(|format| holds_all(report, *format)).collect();
    let mut tables: Vec<Table> = SIZES
        .iter()
        .map(|size| ranking(report, &sizes_title(size.0), |kind| by_size(report, &formats, size.1, kind)))
        .collect();
    for by in [Implementation::Tuned, Implementation::Library].map(Implementation::name) {
        for (verb, what) in TIMES.iter().filter(|_| report.rounds > 0) {
            let title = format!("Which {by} code {verb} an event most quickly?");
            tables.push(ranking(report, &title, |kind| by_time(report, &formats, by, *what, kind)));
        }
    }
    if report.rounds > 0 {
        tables.push(sums(report, &formats));
    }
    tables
}

fn sizes_title(name: &str) -> String {
    format!(
        "Which format has the fewest {}?",
        if name == "bytes" { "bytes" } else { "bytes as one stream under zstd 3" }
    )
}

/// A format that holds fewer events is measured on other ones.
fn holds_all(report: &Report, format: Format) -> bool {
    !report.corpus.held_by.contains_key(format.name())
}

fn by_size(report: &Report, formats: &[Format], get: fn(&Sizes) -> f64, kind: Option<u16>) -> Vec<Entry> {
    let entry = |format: &Format| {
        let sizes = size_of(report, *format, kind)?;
        let share = sizes.json.as_deref().map_or(100.0, |json| 100.0 * get(sizes) / get(json));
        let shown = format!("{} {:.0} ({share:.1}%)", format.name(), get(sizes));
        Some(Entry { format: format.name(), shown, low: get(sizes), high: get(sizes) })
    };
    formats.iter().filter_map(entry).collect()
}

fn by_time(report: &Report, formats: &[Format], by: &str, what: What, kind: Option<u16>) -> Vec<Entry> {
    let entry = |format: &Format| {
        let Estimate { median, interval } = report.time(format.name(), by, what, kind)?;
        let (low, high) = interval.unwrap_or((median, median));
        let shown = format!("{} {median:.0} ns [{low:.0}–{high:.0}]", format.name());
        Some(Entry { format: format.name(), shown, low, high })
    };
    formats.iter().filter_map(entry).collect()
}

/// One more than how many are better beyond doubt: their interval ends before this one begins.
fn rank(entries: &[Entry], entry: &Entry) -> usize {
    1 + entries.iter().filter(|other| other.high < entry.low).count()
}

/// The first places for every kind; those that share a place are named together.
fn ranking(report: &Report, title: &str, entries: impl Fn(Option<u16>) -> Vec<Entry>) -> Table {
    let row = |kind: Option<u16>| {
        let mut entries = entries(kind);
        entries.sort_by(|a, b| a.low.midpoint(a.high).total_cmp(&b.low.midpoint(b.high)));
        let mut places: Vec<String> = vec![String::new(); PLACES];
        for entry in &entries {
            if let Some(place) = places.get_mut(rank(&entries, entry) - 1) {
                let gap = if place.is_empty() { "" } else { "; " };
                *place += &format!("{gap}{}", entry.shown);
            }
        }
        head(&[&kind_name(kind)], places)
    };
    Table {
        title: title.to_owned(),
        note: String::new(),
        head: words(&["kind", "1", "2", "3"]),
        rows: columns(report).into_iter().map(row).collect(),
        names: PLACES + 1,
    }
}

fn kind_name(kind: Option<u16>) -> String {
    kind.map_or("all".to_owned(), |kind| kind.to_string())
}

/// Ranks side by side, and who has the smallest sum.
fn sums(report: &Report, formats: &[Format]) -> Table {
    let mut rows = Vec::new();
    for by in [Implementation::Tuned, Implementation::Library].map(Implementation::name) {
        let known = |format: &Format| by.parse().is_ok_and(|by| format.codec(by).is_ok());
        let formats: Vec<Format> = formats.iter().copied().filter(known).collect();
        for kind in columns(report) {
            let mut questions: Vec<Vec<Entry>> =
                SIZES.iter().map(|size| by_size(report, &formats, size.1, kind)).collect();
            questions.extend(TIMES.iter().map(|(_, what)| by_time(report, &formats, by, *what, kind)));
            let ranks = |format: &Format| {
                let of = |entries: &Vec<Entry>| {
                    entries
                        .iter()
                        .find(|entry| entry.format == format.name())
                        .map(|entry| rank(entries, entry))
                };
                let ranks: Vec<usize> = questions.iter().filter_map(of).collect();
                (ranks.iter().sum::<usize>(), format.name(), ranks)
            };
            let mut ranked: Vec<_> = formats.iter().map(ranks).collect();
            ranked.sort();
            let shown = ranked.iter().take(PLACES).map(|(_, name, ranks)| {
                let ranks: Vec<_> = ranks.iter().map(usize::to_string).collect();
                format!("{name} {}", ranks.join("+"))
            });
            rows.push(head(&[by, &kind_name(kind)], shown));
        }
    }
    rows.iter_mut().for_each(|row: &mut Vec<String>| row.resize(PLACES + 2, String::new()));
    Table {
        title: "Which format is best in sum?".to_owned(),
        note: "Ranks, added: bytes + bytes as one stream under zstd 3 + write + read + peek. The sum weighs all \
               five alike, which no use does: choose by the tables of what you need."
            .to_owned(),
        head: words(&["by", "kind", "1", "2", "3"]),
        rows,
        names: PLACES + 2,
    }
}

/// The opening of the page.
pub(crate) fn opening(report: &Report) -> String {
    let left_out: Vec<_> = report.corpus.held_by.keys().copied().collect();
    let left_out = if left_out.is_empty() {
        String::new()
    } else {
        format!(" Not ranked, because they hold fewer events: {}.", left_out.join(", "))
    };
    format!(
        "Formats share a place where their 95 % intervals overlap; a place after them counts all of them. Tuned code \
         and libraries are ranked apart.{left_out}"
    )
}
