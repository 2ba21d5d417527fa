//! Output of `compare search`: brackets, p99 against rate, and how to read them.

use std::collections::BTreeMap;

use crate::{
    number,
    result::{CellProbes, FLOOR, Played, Probe, ProbeOutcome, Purpose, Search, SearchConfig},
    statistics::{
        bracket::{End, Limit},
        stats,
    },
    tables::table::{NOTHING, Table},
};

/// The limit that each cell's probes leave.
pub(crate) fn limits(search: &Search) -> Vec<Limit> {
    search.cells.iter().map(|cell| Limit::from_probes(&search.config, cell)).collect()
}

/// The aim of the search, in words.
pub(crate) fn sought(config: &SearchConfig) -> &'static str {
    if config.at_load_1.is_some() { "most deliveries/s" } else { "highest rate" }
}

/// The unit of a rate.
pub(crate) fn counted(config: &SearchConfig) -> &'static str {
    if config.at_load_1.is_some() { "deliveries" } else { "published events" }
}

/// Its unit.
pub(crate) fn unit(config: &SearchConfig) -> &'static str {
    if config.at_load_1.is_some() { "deliveries/s" } else { "events/s" }
}

/// The capacities, for people; of a search of loads with what the highest probe that passed was
/// played with.
pub(crate) fn capacities(search: &Search) -> Table {
    let by_load = search.config.at_load_1.is_some();
    let capacity_in = if by_load { "capacity in deliveries/s" } else { "capacity" };
    let played = if by_load { &["delivered/s", "publishes/s", "connections", "load"][..] } else { &[] };
    let headings =
        [&["cell", capacity_in, "95 % interval"][..], played, &["probes", "what ended it"]].concat();
    let row = |cell: &CellProbes| {
        let limit = Limit::from_probes(&search.config, cell);
        let interval =
            limit.interval_per_s.map_or_else(|| NOTHING.to_owned(), |(low, high)| format!("{low}–{high}/s"));
        let mut row = vec![cell.cell.clone(), capacity(&limit), interval];
        if by_load {
            row.extend(at_the_highest_pass(cell));
        }
        row.extend([limit.probes.to_string(), ended(search, cell, &limit)]);
        row
    };
    let headings = headings.into_iter().map(str::to_owned).collect();
    Table { names: 1, headings, rows: search.cells.iter().map(row).collect() }
}

/// Deliveries and publishes per second, connections and load of the highest probe that passed.
fn at_the_highest_pass(cell: &CellProbes) -> [String; 4] {
    let passed = cell.probes.iter().filter(|probe| probe.outcome == ProbeOutcome::Pass);
    match passed.max_by_key(|probe| probe.rate_per_s).and_then(|probe| probe.played) {
        Some(Played { load, connections, publishes_per_s, deliveries_per_s }) => [
            format!("{deliveries_per_s:.0}/s"),
            format!("{publishes_per_s:.0}/s"),
            connections.to_string(),
            number::three(load),
        ],
        None => [NOTHING; 4].map(str::to_owned),
    }
}

/// The capacity, or what is known of it.
pub(crate) fn capacity(limit: &Limit) -> String {
    match (limit.capacity_per_s, limit.last_pass_per_s) {
        (Some(rate), _) => format!("{rate}/s"),
        _ if limit.end == End::RelayChanged => NOTHING.to_owned(),
        (None, Some(rate)) => format!("over {rate}/s"),
        (None, None) => NOTHING.to_owned(),
    }
}

/// Who ended a search, with the lowest of their misses as the example.
fn ended(search: &Search, cell: &CellProbes, limit: &Limit) -> String {
    let example = |who: ProbeOutcome| {
        let misses =
            cell.probes.iter().filter(|probe| probe.outcome == who && probe.purpose == Purpose::Search);
        misses.min_by_key(|probe| probe.rate_per_s).map_or_else(String::new, |probe| probe.why.join("; "))
    };
    match limit.end {
        End::Slo => format!("the relay: {}", example(ProbeOutcome::Fail)),
        End::NothingPassed => format!("the relay, at 1/s: {}", example(ProbeOutcome::Fail)),
        End::GeneratorLimit => format!("the generator: {}", example(ProbeOutcome::GeneratorLimit)),
        End::RelayChanged => format!(
            "the relay, which had kept {}/s before: {}",
            limit.last_pass_per_s.unwrap_or(0),
            example(ProbeOutcome::Fail)
        ),
        End::RateLimit => format!("nothing up to {}/s", search.config.limit_per_s),
        End::Disturbed => format!("the host: {}", example(ProbeOutcome::Disturbed)),
        End::Unfinished => "not finished".to_owned(),
    }
}

/// Questions that the generator and the host leave open, and what to do about them.
pub(crate) fn remarks(search: &Search) -> Vec<String> {
    let found = limits(search);
    let names = |end: End| {
        let of_end: Vec<&str> =
            found.iter().filter(|limit| limit.end == end).map(|limit| limit.cell.as_str()).collect();
        (!of_end.is_empty()).then(|| of_end.join(", "))
    };
    let generator = names(End::GeneratorLimit).map(|cells| {
        format!(
            "The generator ended the search of {cells}, so their relays sustain more. Give the clients more threads (-- \
             --workers N) on a host with more cores, of which they get half."
        )
    });
    let host = names(End::Disturbed).map(|cells| {
        let own_cores = if search.config.url.is_some() {
            " A relay of several threads on this machine is such a program, too: give it cores of its own (taskset -c 0 \
             RELAY)."
        } else {
            ""
        };
        format!(
            "The host was too busy for {cells}: end other programs, or take an idle machine, and search again.{own_cores}"
        )
    });
    let changed = names(End::RelayChanged).map(|cells| {
        format!(
            "The relay of {cells} missed far below rates that it had kept before: what the probes store makes it slower. \
             Give it an empty store and search again with a shorter --probe-seconds, or state its capacity with the \
             number of its events."
        )
    });
    let floor = found.iter().find(|limit| limit.cell == FLOOR).and_then(|limit| limit.interval_per_s);
    let near_floor: Vec<&str> = (found.iter())
        .filter(|limit| limit.cell != FLOOR)
        .filter(|limit| limit.capacity_per_s.zip(floor).is_some_and(|(rate, (low, _))| rate >= low))
        .map(|limit| limit.cell.as_str())
        .collect();
    let floor = floor.filter(|_| !near_floor.is_empty()).map(|(low, high)| {
        format!(
            "The capacity of the floor, a relay without Nostr work, is {low}–{high}/s, no higher than that of {}: their \
             figures measure sockets, generator or host.",
            near_floor.join(", ")
        )
    });
    [generator, host, changed, floor].into_iter().flatten().collect()
}

/// p99 at shares of the lowest capacity; `None` where it was not measured.
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
                Some((Some(ns), ProbeOutcome::GeneratorLimit | ProbeOutcome::Disturbed)) => {
                    format!("({})", milliseconds(ns))
                }
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
    let valid = |probe: &&Probe| matches!(probe.outcome, ProbeOutcome::Pass | ProbeOutcome::Fail);
    for probe in cell.probes.iter().filter(valid) {
        let p99 = probe.p99_ns.map(|ns| ns as f64 / 1e6);
        by_rate.entry(probe.rate_per_s).or_default().extend(p99);
    }
    by_rate.into_iter().filter_map(|(rate, p99)| Some((f64::from(rate), stats::median(&p99)?))).collect()
}

/// How many probes there are, and of what kind.
pub(crate) fn headline(search: &Search) -> String {
    let config = &search.config;
    let probes = || search.cells.iter().flat_map(|cell| &cell.probes);
    let of = |outcome| probes().filter(|probe| probe.outcome == outcome).count();
    format!(
        "The highest rate, in {} per second, at which {} keeps {}: {} probes of {} s or more; {} missed by the \
         relay, {} by the generator, {} disturbed.",
        counted(config),
        config.scenario,
        config.slo,
        probes().count(),
        config.probe_seconds,
        of(ProbeOutcome::Fail),
        of(ProbeOutcome::GeneratorLimit),
        of(ProbeOutcome::Disturbed),
    )
}

/// List items.
pub(crate) fn reading(config: &SearchConfig) -> String {
    let loads = match config.at_load_1 {
        Some(one) => format!(
            "- A rate is that of deliveries, of which the plan of {} s has {:.0} a second at load 1; a probe is played at \
             the load that asks for so many, with clients, sessions and publications in proportion. delivered/s, \
             publishes/s, connections and load are those of the highest probe that passed: a longer probe of the same \
             load delivers fewer a second where a scenario begins with requests.\n",
            config.probe_seconds, one.deliveries_per_s
        ),
        None => String::new(),
    };
    loads
        + &format!(
            "- capacity is the rate at which a probe is as likely to keep the SLO as to miss it, from all probes of the cell \
         together, with its 95 % credible interval; it is searched until two searches would differ by at most {:.0} %. It is \
         printed where the relay misses.\n\
         - A miss is the relay's when its cores were full (more than 90 %), its queue grew, events were lost, or a bound \
         would have been missed by a punctual generator, too. Otherwise it is the generator's, and the relay sustains more.\n\
         - A disturbed probe says nothing (the host was busy, or there were too few answers) and is repeated.\n\
         - A probe is open loop and has {}. It is long enough for a hundred answers above the SLO's \
         highest quantile, up to 60 s.\n\
         - p99 against rate: at 10 to 95 % of what the weakest cell sustains. Values that the generator or the host missed are \
         in brackets. The figure shows every probe that passed or that the relay missed, of a rate probed several times the median; ● is the highest \
         rate that passed, ✕ the lowest that did not.\n\
         - floor is a relay that does no Nostr work: what the generator and the sockets sustain by themselves.\n",
            config.precision * 100.0,
            if config.url.is_some() {
                "its own clients; the relay has stored what probes before it published"
            } else {
                "its own relay and clients"
            },
        )
}

fn milliseconds(ns: u64) -> String {
    number::three(ns as f64 / 1e6)
}
