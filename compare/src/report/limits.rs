//! What `compare search` found: brackets, p99 against rate, and how to read them.

use std::collections::BTreeMap;

use super::{
    number,
    table::{NOTHING, Table},
};
use crate::{
    bracket::{End, Limit},
    result::{CellProbes, Probe, ProbeOutcome, Purpose, Search, SearchConfig},
    stats,
};

/// The bracket of each cell.
pub(crate) fn limits(search: &Search) -> Vec<Limit> {
    search.cells.iter().map(|cell| Limit::of(&search.config, cell)).collect()
}

/// The brackets, for people.
pub(crate) fn brackets(search: &Search) -> Table {
    let headings = ["cell", "sustains", "does not", "repeated", "first miss"].map(str::to_owned).to_vec();
    let config = &search.config;
    let row = |cell: &CellProbes| {
        let limit = Limit::of(config, cell);
        let rate = |rate: Option<u32>| rate.map_or_else(|| NOTHING.to_owned(), |rate| format!("{rate}/s"));
        let of = config.confirmations;
        let beyond = match limit.end {
            End::Slo | End::NothingPassed => rate(limit.first_fail_per_s),
            End::GeneratorLimit => format!("{} generator limit", rate(limit.first_fail_per_s)),
            End::RateLimit => format!("not tried beyond {}/s", config.limit_per_s),
            End::Unfinished => format!("{} not finished", rate(limit.first_fail_per_s)),
        };
        let miss = cell.probes.iter().find(|probe| Some(probe.rate_per_s) == limit.first_fail_per_s);
        let miss = miss.map_or_else(String::new, |probe| probe.why.join("; "));
        let repeated = format!("{}/{of} passed, {}/{of} did not", limit.pass_confirmed, limit.fail_confirmed);
        vec![cell.cell.clone(), rate(limit.last_pass_per_s), beyond, repeated, miss]
    };
    Table { names: 1, headings, rows: search.cells.iter().map(row).collect() }
}

/// p99 at shares of the lowest limit; `None` where it was not measured.
pub(crate) fn curve(cells: &[CellProbes]) -> Option<Table> {
    let points = |cell: &CellProbes| -> Vec<Probe> {
        cell.probes.iter().filter(|probe| probe.purpose == Purpose::Curve).cloned().collect()
    };
    let mut rates: Vec<u32> = cells.iter().flat_map(points).map(|probe| probe.rate_per_s).collect();
    rates.sort_unstable();
    rates.dedup();
    let headings =
        std::iter::once("cell".to_owned()).chain(rates.iter().map(|rate| format!("p99 ms at {rate}/s")));
    let row = |cell: &CellProbes| {
        let points = points(cell);
        let shown = |rate: &u32| {
            let probe = points.iter().find(|probe| probe.rate_per_s == *rate);
            match probe.map(|probe| (probe.p99_ns, probe.outcome)) {
                Some((Some(ns), ProbeOutcome::GeneratorLimit)) => format!("({})", milliseconds(ns)),
                Some((Some(ns), _)) => milliseconds(ns),
                _ => NOTHING.to_owned(),
            }
        };
        std::iter::once(cell.cell.clone()).chain(rates.iter().map(shown)).collect()
    };
    let rows = cells.iter().map(row).collect();
    (!rates.is_empty()).then(|| Table { names: 1, headings: headings.collect(), rows })
}

/// p99 in milliseconds by rate, of every probe that was valid; the median where a rate was probed
/// several times.
pub(crate) fn points(cell: &CellProbes) -> Vec<(f64, f64)> {
    let mut by_rate: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for probe in cell.probes.iter().filter(|probe| probe.outcome != ProbeOutcome::GeneratorLimit) {
        let p99 = probe.p99_ns.map(|ns| ns as f64 / 1e6);
        by_rate.entry(probe.rate_per_s).or_default().extend(p99);
    }
    by_rate.into_iter().filter_map(|(rate, p99)| Some((f64::from(rate), stats::median(&p99)?))).collect()
}

/// Both tables for a terminal.
pub(crate) fn terminal(search: &Search) -> String {
    let curve = curve(&search.cells).map_or_else(String::new, |curve| format!("\n{}", curve.text()));
    let SearchConfig { scenario, slo, .. } = &search.config;
    format!("{scenario} under {slo}\n{}{curve}", brackets(search).text())
}

/// The section of the summary.
pub(crate) fn markdown(search: &Search) -> String {
    let mut text = format!("\n{}", brackets(search).markdown());
    if let Some(curve) = curve(&search.cells) {
        text.push_str("\n## p99 against rate\n\n");
        text.push_str(&curve.markdown());
    }
    text
}

/// How many probes there are, and of what kind.
pub(crate) fn headline(search: &Search) -> String {
    let config = &search.config;
    let probes = || search.cells.iter().flat_map(|cell| &cell.probes);
    let limited = probes().filter(|probe| probe.outcome == ProbeOutcome::GeneratorLimit).count();
    format!(
        "The highest rate, in events published per second, at which {} keeps {}: {} probes of {} s, {limited} of them \
         invalid.",
        config.scenario,
        config.slo,
        probes().count(),
        config.probe_seconds
    )
}

/// List items.
pub(crate) fn reading(config: &SearchConfig) -> String {
    format!(
        "- sustains is the highest rate that passed, does not the lowest that did not; they differ by at most {:.0} %. \
         Both were repeated {} times, mixed over the cells.\n\
         - A probe is open loop and has its own relay and clients.\n\
         - Generator limit: the generator or the host failed there, so the relay may sustain more. Values of invalid probes \
         are in brackets.\n\
         - p99 against rate: at 10 to 95 % of what the weakest cell sustains. The figure has every valid probe, the median \
         where a rate was probed several times; ● is the last rate that passed, ✕ the first that did not.\n\
         - floor is a relay that does no Nostr work: what the generator and the sockets sustain by themselves.\n",
        config.precision * 100.0,
        config.confirmations,
    )
}

fn milliseconds(ns: u64) -> String {
    number::three(ns as f64 / 1e6)
}
