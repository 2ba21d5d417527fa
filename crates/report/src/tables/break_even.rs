//! Output of `compare search --metric break-even-bandwidth`: sentences, tables, and how to read
//! them.

use measure::may_be_late_ns;

use crate::{
    number,
    result::{BreakEven, BreakEvenConfig, CellTimes, TimedBlock},
    statistics::crossing::{self, Crossing, Faster, TimeRatio, Versus},
    tables::table::{NOTHING, Table},
};

/// A sentence for each pair of cells at each round trip.
pub(crate) fn findings(found: &BreakEven) -> Vec<String> {
    crossing::versus(found).iter().map(sentence).collect()
}

pub(crate) fn sentence(pair: &Versus) -> String {
    let (cell, other) = (&pair.cell, &pair.other);
    format!("{} ms, {cell} against {other}: {}", milliseconds(pair.rtt_ns as f64), says(pair))
}

fn says(pair: &Versus) -> String {
    let decided: Vec<&TimeRatio> = pair.points.iter().filter(|point| point.faster.is_some()).collect();
    let (Some(first), Some(last)) = (pair.points.first(), pair.points.last()) else {
        return "nothing was measured".to_owned();
    };
    let all =
        format!("between {} and {}", rate(first.down_bits_per_s as f64), rate(last.down_bits_per_s as f64));
    let (Some(lowest), Some(highest)) = (decided.first(), decided.last()) else {
        return if pair.points.iter().any(|point| point.interval.is_some()) {
            format!("undecided {all}, where the times differ by {}", at_most(pair.points.iter()))
        } else {
            format!("undecided {all}: no bandwidth has six rounds in which both count")
        };
    };
    let mut text = if pair.crossings.is_empty() {
        let winner = name(pair, lowest.faster.unwrap_or(Faster::Cell));
        let by = savings(&decided);
        if decided.len() == pair.points.len() {
            format!("no break-even {all}: {winner} is faster throughout, by {by}")
        } else {
            format!(
                "no break-even {all}: {winner} is faster {}, by {by}",
                span(lowest.down_bits_per_s, highest.down_bits_per_s)
            )
        }
    } else {
        pair.crossings.iter().map(|crossing| even(pair, crossing)).collect::<Vec<_>>().join("; ")
    };
    for part in undecided(pair, lowest.down_bits_per_s, highest.down_bits_per_s) {
        text.push_str("; ");
        text.push_str(&part);
    }
    text
}

/// A break-even in words.
fn even(pair: &Versus, crossing: &Crossing) -> String {
    let (below, above) = crossing.bracket_bits_per_s;
    let bracket = format!("between {} and {}", rate(below as f64), rate(above as f64));
    let at = match (crossing.bits_per_s, crossing.interval_bits_per_s) {
        (Some(at), Some((low, high))) => {
            format!("at {} [{}, {}] ({bracket})", rate(at), rate(low), rate(high))
        }
        _ => bracket,
    };
    let above = match crossing.faster_below {
        Faster::Cell => Faster::Other,
        Faster::Other => Faster::Cell,
    };
    format!(
        "break-even {at}: {} is faster below it, {} above",
        name(pair, crossing.faster_below),
        name(pair, above)
    )
}

/// The undecided part below, within and above the decided bandwidths.
fn undecided(pair: &Versus, lowest: u64, highest: u64) -> Vec<String> {
    let open = |holds: &dyn Fn(u64) -> bool| -> Vec<&TimeRatio> {
        let undecided = pair.points.iter().filter(|point| point.faster.is_none());
        undecided.filter(|point| holds(point.down_bits_per_s)).collect()
    };
    let below = open(&|down| down < lowest);
    let above = open(&|down| down > highest);
    let within = open(&|down| lowest < down && down < highest);
    let part = |points: &[&TimeRatio], text: String| {
        format!("undecided {text} (differences {})", at_most(points.iter().copied()))
    };
    let mut parts = Vec::new();
    if let Some(last) = below.last() {
        parts.push(part(&below, format!("up to {}", rate(last.down_bits_per_s as f64))));
    }
    if !within.is_empty() {
        let rates: Vec<String> = within.iter().map(|point| rate(point.down_bits_per_s as f64)).collect();
        parts.push(part(&within, format!("at {}", rates.join(", "))));
    }
    if let Some(first) = above.first() {
        parts.push(part(&above, format!("from {} up", rate(first.down_bits_per_s as f64))));
    }
    parts
}

fn name(pair: &Versus, faster: Faster) -> &str {
    match faster {
        Faster::Cell => &pair.cell,
        Faster::Other => &pair.other,
    }
}

fn span(lowest: u64, highest: u64) -> String {
    if lowest == highest {
        format!("at {}", rate(lowest as f64))
    } else {
        format!("from {} to {}", rate(lowest as f64), rate(highest as f64))
    }
}

/// How much less time the faster one takes, as a share of the slower one's.
fn savings(decided: &[&TimeRatio]) -> String {
    let saved = decided.iter().filter_map(|point| point.ratio).map(|ratio| 1.0 - ratio.min(1.0 / ratio));
    let (low, high) = saved.fold((f64::INFINITY, 0.0_f64), |(low, high), one| (low.min(one), high.max(one)));
    match (percent(low), percent(high)) {
        (low, high) if low == high => format!("{low} %"),
        (low, high) => format!("{low} to {high} %"),
    }
}

/// The largest difference of two times, as a share of the longer one.
fn at_most<'a>(points: impl Iterator<Item = &'a TimeRatio>) -> String {
    let ratios = points.filter_map(|point| point.ratio);
    let most = ratios.map(|ratio| 1.0 - ratio.min(1.0 / ratio)).reduce(f64::max);
    most.map_or_else(|| "unknown".to_owned(), |most| format!("of at most {} %", percent(most)))
}

fn percent(share: f64) -> String {
    let decimals = if share < 0.0995 { 1 } else { 0 };
    format!("{:.decimals$}", share * 100.0)
}

/// `250 kbit/s`, `12.3 Mbit/s`.
fn rate(bits_per_s: f64) -> String {
    let (value, unit) =
        if bits_per_s >= 1e6 { (bits_per_s / 1e6, "Mbit/s") } else { (bits_per_s / 1e3, "kbit/s") };
    let step = 10.0_f64.powf(value.log10().floor() - 2.0);
    format!("{} {unit}", number::short((value / step).round() * step))
}

/// A bandwidth at a round trip.
pub(crate) fn link(down_bits_per_s: u64, rtt_ns: u64) -> String {
    format!("{}, {} ms", rate(down_bits_per_s as f64), milliseconds(rtt_ns as f64))
}

fn milliseconds(ns: f64) -> String {
    number::short(ns / 1e6)
}

/// The median over rounds of each cell's time, in milliseconds.
pub(crate) fn times(found: &BreakEven) -> Table {
    let headings = headings(found, "cell");
    let mut rows = Vec::new();
    for rtt_ns in &found.config.rtts_ns {
        for cell in &found.cells {
            let medians = crossing::medians(cell, *rtt_ns);
            let shown = |down: &u64| {
                medians.get(down).map_or_else(|| NOTHING.to_owned(), |ns| number::three(ns / 1e6))
            };
            let mut row = vec![format!("{} ms", milliseconds(*rtt_ns as f64)), cell.cell.clone()];
            row.extend(found.config.down_bits_per_s.iter().map(shown));
            rows.push(row);
        }
    }
    Table { names: 2, headings, rows }
}

/// Time ÷ time of each pair, with a mark for who is faster.
pub(crate) fn ratios(found: &BreakEven) -> Table {
    let row = |pair: &Versus| {
        let rtt = format!("{} ms", milliseconds(pair.rtt_ns as f64));
        let mut row = vec![rtt, format!("{} ÷ {}", pair.cell, pair.other)];
        row.extend(pair.points.iter().map(|point| match (point.ratio, point.faster) {
            (None, _) => NOTHING.to_owned(),
            (Some(ratio), Some(Faster::Cell)) => format!("{} <", number::ratio(ratio)),
            (Some(ratio), Some(Faster::Other)) => format!("{} >", number::ratio(ratio)),
            (Some(ratio), None) => format!("{} ?", number::ratio(ratio)),
        }));
        row
    };
    let rows = crossing::versus(found).iter().map(row).collect();
    Table { names: 2, headings: headings(found, "cell ÷ cell"), rows }
}

/// A column for each downlink, in Mbit/s.
fn headings(found: &BreakEven, names: &str) -> Vec<String> {
    let downlinks = found.config.down_bits_per_s.iter().map(|down| number::short(*down as f64 / 1e6));
    ["round trip", names].map(str::to_owned).into_iter().chain(downlinks).collect()
}

/// Captions of the tables of times and of ratios.
pub(crate) fn captions(found: &BreakEven) -> [String; 2] {
    [
        format!("{} p50 in ms by downlink in Mbit/s", found.latency),
        "Time ÷ time by downlink in Mbit/s".to_owned(),
    ]
}

/// The grid and how much of it counts, in a sentence.
pub(crate) fn headline(found: &BreakEven) -> String {
    let BreakEvenConfig { scenario, uplink_share, rtts_ns, rounds, seconds, .. } = &found.config;
    let blocks = || found.cells.iter().flat_map(|cell| &cell.blocks);
    let rtts: Vec<String> = rtts_ns.iter().map(|rtt_ns| milliseconds(*rtt_ns as f64)).collect();
    format!(
        "The downlink of users' access links at which two cells take equally long: {} p50 of {scenario}, at round trips of {} \
         ms, each uplink {} % of its downlink. {} blocks of {seconds} s in {rounds} rounds, {} left out.",
        found.latency,
        rtts.join(" and "),
        number::short(uplink_share * 100.0),
        blocks().count(),
        blocks().filter(|block| block.time_ns_p50.is_none()).count(),
    )
}

/// The blocks that do not count, and why.
pub(crate) fn left_out(found: &BreakEven) -> Vec<String> {
    let blocks = found.cells.iter().flat_map(|cell| cell.blocks.iter().map(move |block| (cell, block)));
    let line = |(cell, block): (&CellTimes, &TimedBlock)| {
        format!("round {}, {} over {}: {}", block.round + 1, cell.cell, block.link, block.why.join("; "))
    };
    blocks.filter(|(_, block)| block.time_ns_p50.is_none()).map(line).collect()
}

/// Advice where the emulator could not keep up; `None` where it could.
pub(crate) fn remark(found: &BreakEven) -> Option<String> {
    let late = found.cells.iter().flat_map(|cell| &cell.blocks).filter(|block| {
        let most_ns = may_be_late_ns(block.rtt_ns);
        block.time_ns_p50.is_none() && block.lateness_ns_p99.is_some_and(|late_ns| late_ns > most_ns)
    });
    let (blocks, lowest) =
        late.fold((0, u64::MAX), |(count, low), block| (count + 1, low.min(block.down_bits_per_s)));
    (blocks > 0).then(|| {
        format!(
            "The emulator was late in {blocks} blocks, from {} up: end other programs, or take fewer users (-- --set \
             request.connections=20).",
            rate(lowest as f64)
        )
    })
}

/// The picture's file beside the result.
pub(crate) const PICTURE: &str = "time-against-bandwidth.svg";

/// List items.
pub(crate) fn reading(found: &BreakEven) -> String {
    let corrected = crossing::versus(found).iter().all(|pair| pair.corrected);
    let correction = if corrected {
        "corrected by Holm over the bandwidths of a pair at one round trip"
    } else {
        "not corrected: with so few rounds no correction could find anything, so each bandwidth stands alone"
    };
    format!(
        "- A time is the median over rounds of the blocks' p50 of {}. Each user has an access link of its own; a round has \
         the same load in all its blocks, and the cells of a link run one after another.\n\
         - × is time ÷ time of two cells over the same link in the same round, as the Hodges–Lehmann estimate over rounds of its \
         logarithm. < the first is faster, > slower, ? undecided: < and > where the 95 % interval excludes 1 and Wilcoxon's \
         signed-rank test agrees (p ≤ 0.05; {correction}). Intervals stand in derived.json.\n\
         - A break-even lies between two bandwidths at which different cells are faster. Its [95 % interval] holds each \
         bandwidth at which the signed-rank test does not reject equal times; between two bandwidths of the grid, times are taken as \
         linear in 1 ÷ bandwidth.\n\
         - Blocks with a late emulator, a late generator or an unbalanced ledger do not count. CPU times over links are no \
         evidence and are left out.\n",
        found.latency
    )
}
