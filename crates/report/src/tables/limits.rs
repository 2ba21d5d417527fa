//! Output of a search: its roots, the probes against the axis, and how to read them.

use std::collections::BTreeMap;

use crate::{
    number,
    result::{Axis, CellProbes, Config, FLOOR, Played, Probe, ProbeOutcome, Purpose, Search, SearchConfig},
    statistics::{
        bracket::{End, Limit},
        stats,
    },
    tables::table::{NOTHING, Table, or_nothing},
};

/// The limit that each cell's probes leave.
pub(crate) fn limits(search: &Search) -> Vec<Limit> {
    search.cells.iter().map(|cell| Limit::from_probes(&search.config, cell)).collect()
}

/// The question of the search.
pub(crate) fn title(config: &Config, search: &Search) -> String {
    let (scenario, slo) = (config.scenarios.join(", "), &search.config.slo);
    match search.config.axis() {
        Axis::Load => format!("{scenario}: the most deliveries/s under {slo}"),
        Axis::Rate => format!("{scenario}: the highest rate under {slo}"),
        Axis::Bandwidth => format!("{scenario}: break-even bandwidths"),
    }
}

/// The axis, with its unit.
pub(crate) fn axis_name(axis: Axis) -> &'static str {
    match axis {
        Axis::Load => "deliveries per second",
        Axis::Rate => "published events per second",
        Axis::Bandwidth => "downlink, kbit/s",
    }
}

/// The value that is shown against the axis.
pub(crate) fn value_name(axis: Axis) -> &'static str {
    if axis == Axis::Bandwidth { "time ÷ time" } else { "p99 ms" }
}

/// A value on the axis: `900/s`, `12.3 Mbit/s`.
pub(crate) fn at(axis: Axis, rate: u32) -> String {
    match axis {
        Axis::Load | Axis::Rate => format!("{rate}/s"),
        Axis::Bandwidth if rate < 1_000 => format!("{rate} kbit/s"),
        Axis::Bandwidth => format!("{} Mbit/s", number::three(f64::from(rate) / 1e3)),
    }
}

/// A row per root. A search of loads adds the demand of the highest probe that passed.
pub(crate) fn roots(search: &Search) -> Table {
    let axis = search.config.axis();
    let (root, played) = match axis {
        Axis::Load => ("capacity in deliveries/s", &["publishes/s", "connections", "load"][..]),
        Axis::Rate => ("capacity", &[][..]),
        Axis::Bandwidth => ("break-even", &[][..]),
    };
    let headings = [&["cell", root, "95 % interval"][..], played, &["probes", "what ended it"]].concat();
    let row = |cell: &CellProbes| {
        let limit = Limit::from_probes(&search.config, cell);
        let interval = match limit.interval_per_s {
            Some((low, high)) if axis == Axis::Bandwidth => format!("{}–{}", at(axis, low), at(axis, high)),
            Some((low, high)) => format!("{low}–{high}/s"),
            None => NOTHING.to_owned(),
        };
        let mut row = vec![cell.cell.clone(), root_of(axis, &limit), interval];
        if axis == Axis::Load {
            row.extend(at_the_highest_pass(cell));
        }
        row.extend([limit.probes.to_string(), ended(search, cell, &limit)]);
        row
    };
    let headings = headings.into_iter().map(str::to_owned).collect();
    Table { names: 1, headings, rows: search.cells.iter().map(row).collect() }
}

/// Publishes per second, connections and load of the highest probe that passed.
fn at_the_highest_pass(cell: &CellProbes) -> [String; 3] {
    let passed = cell.probes.iter().filter(|probe| probe.outcome == ProbeOutcome::Pass);
    match passed.max_by_key(|probe| probe.rate_per_s).and_then(|probe| probe.played) {
        Some(Played { load, connections, publishes_per_s, .. }) => {
            [format!("{publishes_per_s:.0}/s"), connections.to_string(), number::three(load)]
        }
        None => [NOTHING; 3].map(str::to_owned),
    }
}

/// The root, or the bound that is known of it.
pub(crate) fn root_of(axis: Axis, limit: &Limit) -> String {
    match (limit.capacity_per_s, limit.kept_per_s()) {
        (Some(rate), _) => at(axis, rate),
        (None, Some(kept)) if axis != Axis::Bandwidth && limit.end != End::RelayChanged => {
            format!("at least {}", at(axis, kept))
        }
        _ => NOTHING.to_owned(),
    }
}

/// Who ended a search, with the lowest of their misses as the example.
fn ended(search: &Search, cell: &CellProbes, limit: &Limit) -> String {
    let example = |who: ProbeOutcome| {
        let misses =
            cell.probes.iter().filter(|probe| probe.outcome == who && probe.purpose == Purpose::Search);
        misses.min_by_key(|probe| probe.rate_per_s).map_or_else(String::new, |probe| probe.why.join("; "))
    };
    if search.config.axis() == Axis::Bandwidth && !matches!(limit.end, End::Disturbed | End::Unfinished) {
        return faster(&search.config, cell, limit);
    }
    match limit.end {
        End::Slo => format!("the relay: {}", example(ProbeOutcome::Fail)),
        End::NothingPassed => format!("the relay, at 1/s: {}", example(ProbeOutcome::Fail)),
        End::Delayed => format!("the relay, at any rate: {}", example(ProbeOutcome::Fail)),
        End::GeneratorLimit => format!("the generator: {}", example(ProbeOutcome::GeneratorLimit)),
        End::RelayChanged => format!(
            "the relay, which had kept {}/s before: {}",
            limit.last_pass_per_s.unwrap_or(0),
            example(ProbeOutcome::Fail)
        ),
        End::RateLimit => format!("nothing up to {}/s", search.config.limit_per_s),
        End::TooFewAnswers => example(ProbeOutcome::TooFewAnswers),
        End::Disturbed => format!("the host: {}", example(ProbeOutcome::Disturbed)),
        End::Unfinished => "not finished".to_owned(),
    }
}

/// Which of two cells is faster, and by how much of the slower one's time.
fn faster(config: &SearchConfig, cell: &CellProbes, limit: &Limit) -> String {
    let first = cell.probes.iter().find(|probe| probe.quotient.is_some());
    let names = match first.map(|probe| probe.outcome) {
        Some(ProbeOutcome::Fail) => ["the second", "the first"],
        _ => ["the first", "the second"],
    };
    let saved = points(cell, Axis::Bandwidth).into_iter().map(|(_, ratio)| 1.0 - ratio.min(1.0 / ratio));
    let (least, most) = saved.fold((1.0_f64, 0.0_f64), |(low, high), one| (low.min(one), high.max(one)));
    let by = format!("by {:.0} to {:.0} %", least * 100.0, most * 100.0);
    let at = |rate| at(Axis::Bandwidth, rate);
    match limit.end {
        End::Slo => format!("{} is faster below, {} above, {by}", names[0], names[1]),
        End::RateLimit => format!("{} is faster up to {}, {by}", names[0], at(config.limit_per_s)),
        End::NothingPassed => format!("{} is faster from {} up, {by}", names[1], at(config.start_per_s)),
        _ => format!("chance decides which is faster, {by}"),
    }
}

/// What leaves a question open, and what to do about it, around the names of the cells.
const ADVICE: [(End, &str, &str); 4] = [
    (
        End::GeneratorLimit,
        "The generator ended the search of",
        ", so their relays sustain more: give the clients more threads (-- --workers N) on a host with more cores.",
    ),
    (
        End::Disturbed,
        "The host was too busy for",
        ": end other programs, or take an idle machine, and search again. Give a relay on this machine cores of its own \
         (taskset -c 0 RELAY).",
    ),
    (
        End::RelayChanged,
        "Rates far below those kept before were missed by the relay of",
        ": what the probes store makes it slower. Give it an empty store and a shorter --probe-seconds.",
    ),
    (
        End::TooFewAnswers,
        "Too few answers came for",
        ": take a longer --probe-seconds, a lower quantile in --slo, or a higher --start.",
    ),
];

/// Questions that the generator and the host leave open, and what to do about them.
pub(crate) fn remarks(search: &Search) -> Vec<String> {
    let found = limits(search);
    let named = |is: &dyn Fn(&Limit) -> bool| {
        let names: Vec<&str> =
            found.iter().filter(|limit| is(limit)).map(|limit| limit.cell.as_str()).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    // Of two cells chance decides which is faster.
    let is_open = |end: End| end != End::RelayChanged || search.config.axis() != Axis::Bandwidth;
    let advice = ADVICE.into_iter().filter(|(end, ..)| is_open(*end)).filter_map(|(end, before, behind)| {
        Some(format!("{before} {}{behind}", named(&|limit| limit.end == end)?))
    });
    let floor = found.iter().find(|limit| limit.cell == FLOOR).and_then(|limit| limit.interval_per_s);
    let near = floor.and_then(|(low, high)| {
        let near = named(&|limit| limit.cell != FLOOR && limit.capacity_per_s >= Some(low))?;
        Some(format!(
            "The capacity of the floor, a relay without Nostr work, is {low}–{high}/s, no higher than that of {near}: \
             their figures measure sockets, generator or host."
        ))
    });
    let delayed = found.iter().zip(&search.cells).filter(|(limit, _)| limit.end == End::Delayed);
    advice.chain(near).chain(delayed.filter_map(|(_, cell)| delay(cell))).collect()
}

/// That a relay delays answers whatever the rate, and the SLO under which its capacity is found.
fn delay(cell: &CellProbes) -> Option<String> {
    let missed = cell.probes.iter().filter(|probe| probe.outcome == ProbeOutcome::Fail);
    let lowest = missed.clone().min_by_key(|probe| probe.rate_per_s)?;
    let highest = missed.max_by_key(|probe| probe.rate_per_s)?;
    let (low_ms, high_ms) = (lowest.p99_ns? as f64 / 1e6, highest.p99_ns? as f64 / 1e6);
    // Two digits, rounded up.
    let step = 10.0_f64.powf((2.0 * low_ms).log10().floor() - 1.0);
    Some(format!(
        "{} answers as late at any rate: p99 is {} ms at {}/s and {} ms at {}/s, so a lower rate does not help. Search \
         with a bound that it can keep: --slo 'p99<{}ms, lost=0'.",
        cell.cell,
        number::three(low_ms),
        lowest.rate_per_s,
        number::three(high_ms),
        highest.rate_per_s,
        number::short((2.0 * low_ms / step).ceil() * step),
    ))
}

/// p99 at shares of the lowest capacity; `None` where it was not measured.
pub(crate) fn curve(cells: &[CellProbes]) -> Option<Table> {
    fn points(cell: &CellProbes) -> impl Iterator<Item = &Probe> {
        cell.probes.iter().filter(|probe| probe.purpose == Purpose::Curve)
    }
    let mut rates: Vec<u32> = cells.iter().flat_map(points).map(|probe| probe.rate_per_s).collect();
    rates.sort_unstable();
    rates.dedup();
    let headings =
        std::iter::once("cell".to_owned()).chain(rates.iter().map(|rate| format!("p99 ms at {rate}/s")));
    let row = |cell: &CellProbes| {
        let shown = |rate: &u32| {
            let probe = points(cell).find(|probe| probe.rate_per_s == *rate)?;
            let p99 = milliseconds(probe.p99_ns?);
            let is_valid = matches!(probe.outcome, ProbeOutcome::Pass | ProbeOutcome::Fail);
            Some(if is_valid { p99 } else { format!("({p99})") })
        };
        std::iter::once(cell.cell.clone()).chain(rates.iter().map(|rate| or_nothing(shown(rate)))).collect()
    };
    let rows = cells.iter().map(row).collect();
    (!rates.is_empty()).then(|| Table { names: 1, headings: headings.collect(), rows })
}

/// p99 in milliseconds by rate, or time ÷ time by bandwidth, of every probe that was valid; the
/// median where a rate was probed several times.
pub(crate) fn points(cell: &CellProbes, axis: Axis) -> Vec<(f64, f64)> {
    let mut by_rate: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    let valid = |probe: &&Probe| matches!(probe.outcome, ProbeOutcome::Pass | ProbeOutcome::Fail);
    for probe in cell.probes.iter().filter(valid) {
        let p99 = probe.p99_ns.map(|ns| ns as f64 / 1e6);
        let value = if axis == Axis::Bandwidth { probe.quotient } else { p99 };
        by_rate.entry(probe.rate_per_s).or_default().extend(value.filter(|value| *value > 0.0));
    }
    by_rate.into_iter().filter_map(|(rate, all)| Some((f64::from(rate), stats::median(&all)?))).collect()
}

/// How many probes there are, and of what kind.
pub(crate) fn headline(config: &Config, search: &Search) -> String {
    let scenario = config.scenarios.join(", ");
    let probes = || search.cells.iter().flat_map(|cell| &cell.probes);
    let of = |outcome| probes().filter(|probe| probe.outcome == outcome).count();
    let (all, seconds, disturbed) = (probes().count(), config.seconds, of(ProbeOutcome::Disturbed));
    if let Some(links) = &search.config.links {
        let rtts: Vec<String> = links.rtts_ns.iter().map(|ns| number::short(*ns as f64 / 1e6)).collect();
        return format!(
            "The downlink of users' access links at which two cells of {scenario} take equally long, at round trips of {} \
             ms, each uplink {:.0} % of its downlink: {all} probes of {seconds} s, each of both cells; {disturbed} disturbed.",
            rtts.join(" and "),
            links.uplink_share * 100.0,
        );
    }
    let or_more = if probes().any(|probe| probe.seconds > seconds) { " or more" } else { "" };
    format!(
        "The highest rate, in {}, at which {scenario} keeps {}: {all} probes of {seconds} s{or_more}; {} missed by the \
         relay, {} by the generator, {disturbed} disturbed.",
        axis_name(search.config.axis()),
        search.config.slo,
        of(ProbeOutcome::Fail),
        of(ProbeOutcome::GeneratorLimit),
    )
}

/// List items.
pub(crate) fn reading(config: &Config, question: &SearchConfig) -> String {
    if question.axis() == Axis::Bandwidth {
        return "- A probe plays both cells over the same link with the same load, one after another; each user has a link of \
                its own. × is time of the first, before ÷, to time of the second.\n\
                - The break-even is the bandwidth at which either is as likely to be faster, from all probes together, \
                with its 95 % credible interval. Percentages are medians by bandwidth of the time that the faster one saves.\n"
            .to_owned();
    }
    let loads = question.at_load_1.map_or_else(String::new, |one| {
        format!(
            "- Load 1 asks for {:.0} deliveries a second. A capacity is in deliveries that came. publishes/s, connections and \
             load are of the highest probe that passed.\n",
            one.deliveries_per_s
        )
    });
    let stored = if config.url.is_some() { ", which has stored what probes before it published" } else { "" };
    format!(
        "{loads}- capacity is the rate at which a probe is as likely to keep the SLO as to miss it, with its 95 % credible \
         interval. \"at least\" marks a lower bound: something else than the relay ended the search.\n\
         - A probe is open loop and has its own clients and relay{stored}. p99 against rate is at 10 to 95 % of what the \
         weakest cell sustains; in brackets where the generator or the host missed.\n\
         - docs/methodology.md has the rest: whose a miss is, and how a search ends.\n"
    )
}

fn milliseconds(ns: u64) -> String {
    number::three(ns as f64 / 1e6)
}
