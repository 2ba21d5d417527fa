//! The summary that is printed to standard output after a run.

use std::collections::BTreeMap;

use measure::{CpuTime, Full, Latency, Quantile, RunRecord, Saturated, Validity};

/// Columns of a line.
const COLUMNS: usize = 80;

/// Most lines of reasons, so that no summary has more than 20 lines.
const REASONS: usize = 4;

/// Latencies, of which the first three that a run has are what its scenario is about.
const LATENCIES: [&str; 8] =
    ["reconcile", "response", "session", "publish_ok", "first_event", "eose", "auth", "handshake"];

/// At most 20 lines: what was played with whom, ledger and validity, throughput, latencies, bytes
/// and CPU. `whom` is the first line of the run, `lost` names lost kinds, `written` the files that
/// hold more.
pub(crate) fn summary(record: &RunRecord, whom: &str, lost: Option<String>, written: &str) -> String {
    let mut rows = rows(record, whom, lost);
    let more = if written.is_empty() { "--wide, --record FILE or --html FILE" } else { "--wide" };
    rows.push(("", format!("{written}more: {more}")));
    rows.iter().map(|(name, text)| shortened(&format!("  {name:<11}{text}")) + "\n").collect()
}

/// The lines by name.
fn rows<'a>(record: &'a RunRecord, whom: &str, lost: Option<String>) -> Vec<(&'a str, String)> {
    let RunRecord { cell, counts, .. } = record;
    let clients = format!("{} connections, seed {}", record.connections, record.seed);
    let what = format!(" {clients}, {} ({} code)", record.corpus.name, cell.implementation);
    let mut rows = vec![(&*cell.scenario, what), ("with", whom.to_owned())];
    rows.extend(record.status.reason().map(|reason| ("INCOMPLETE", reason.to_owned())));
    let ledger = match record.owed().balanced() {
        Ok(()) => "balances: nothing is lost".to_owned(),
        Err(why) => format!("does not balance: {why}"),
    };
    let [deliveries, expected] = [counts.deliveries, counts.deliveries_expected].map(grouped);
    let [acked, planned] = [counts.acked, counts.planned].map(grouped);
    let came = format!("{deliveries} of {expected} deliveries, {acked} of {planned} publications accepted");
    rows.extend([("ledger", ledger), ("", came)]);
    rows.extend(lost.into_iter().chain(reasons(&record.validity)).map(|text| ("", text)));
    let envelopes = counts.envelopes();
    let rate = u128::from(envelopes) * 1_000_000_000 / u128::from(record.active_ns.max(1));
    let (rate, all) = (grouped(u64::try_from(rate).unwrap_or(u64::MAX)), grouped(envelopes));
    rows.push(("throughput", format!("{rate} envelopes/s while work was outstanding, {all} in all")));
    let shown = latencies(&record.latency).into_iter();
    let shown: Vec<(&str, [Quantile; 3])> =
        shown.map(|(name, latency)| (name, [0.5, 0.9, 0.99].map(|q| latency.quantile_ns(q)))).collect();
    if !shown.is_empty() {
        let is_thin = |quantile: &Quantile| matches!(quantile, Quantile::Bracketed(_));
        let any_thin = shown.iter().any(|(_, all)| all.iter().any(is_thin));
        let note = if any_thin { "[few values above]" } else { "" };
        rows.push(("latency", format!("{note:<20}{:>14}{:>14}{:>14}", "p50", "p90", "p99")));
    }
    rows.extend(shown.into_iter().map(|(name, quantiles)| {
        let quantiles = quantiles.map(|quantile| format!("{:>14}", milliseconds(quantile)));
        ("", format!("{name:<20}{}", quantiles.concat()))
    }));
    let [down, up] = [&record.traffic.to_client, &record.traffic.to_relay].map(|flow| flow.wire_bytes);
    let [each, down, up] = [down / envelopes.max(1), down, up].map(grouped);
    rows.push(("bytes", format!("{each} an envelope: {down} to clients, {up} to the relay")));
    if record.link.is_some() {
        rows.push(("CPU", "no evidence: packets over a link cost what loopback does not".to_owned()));
        return rows;
    }
    let is_light = counts.deliveries_unread > 0;
    let cpu = |cpu: &CpuTime| format!("{:.2} µs", cpu.total_ns as f64 / envelopes.max(1) as f64 / 1e3);
    let or_unknown = |relay: Option<String>| relay.unwrap_or_else(|| "unknown".to_owned());
    let gateway = record.gateway_cpu.as_ref().map(|gateway| format!(" (gateway {})", cpu(gateway)));
    let relay = or_unknown(record.relay_cpu.as_ref().map(cpu)) + &gateway.unwrap_or_default();
    let clients = if is_light { "no evidence: light readers".to_owned() } else { cpu(&record.client_cpu) };
    rows.push(("CPU", format!("an envelope: relay {relay}, clients {clients}")));
    if let Some(saturated) = &record.saturated {
        let each = |cpu: &CpuTime| report::grouped(&format!("{:.0}", record.envelopes_per_core_s(cpu)));
        let relay = or_unknown(record.relay_cpu.as_ref().map(each));
        let clients = if is_light { "no evidence".to_owned() } else { each(&record.client_cpu) };
        let per_core = format!("{relay} envelopes/s of the relay, {clients} of the clients");
        rows.extend([("full", full(saturated)), ("per core", per_core)]);
    }
    rows
}

/// The first three latencies. Deliveries stand by population where several have some: stored events of
/// one and live events of another hide each other in one quantile.
fn latencies(of_all: &BTreeMap<String, Latency>) -> Vec<(&str, &Latency)> {
    let named = |name: &&str| {
        let all = || of_all.iter().map(|(metric, latency)| (&**metric, latency));
        let of = |prefix: &str| all().filter(|(metric, _)| metric.starts_with(prefix)).collect::<Vec<_>>();
        let populations = if *name == "response" { of("response.") } else { Vec::new() };
        match populations.len() {
            0 | 1 => all().filter(|(metric, _)| metric == name).collect(),
            _ => populations,
        }
    };
    LATENCIES.iter().flat_map(named).take(3).collect()
}

/// Class and reasons, those about a busy host as one. The last line counts reasons that are not named.
fn reasons(validity: &Validity) -> Vec<String> {
    let busy = validity.reasons.iter().filter(|reason| reason.blames_host()).count();
    let host = (busy > 0).then(|| format!("the host was busy, by {busy} signs"));
    let others = validity.reasons.iter().filter(|reason| !reason.blames_host()).map(ToString::to_string);
    let mut lines: Vec<String> = host.into_iter().chain(others).collect();
    if lines.len() > REASONS {
        let unnamed = lines.split_off(REASONS - 1).len();
        lines.push(format!("and {unnamed} more reasons"));
    }
    match lines.first_mut() {
        Some(first) => *first = format!("{}: {first}", validity.class),
        None => lines.push(validity.class.to_string()),
    }
    lines
}

/// A line that a terminal does not wrap.
fn shortened(line: &str) -> String {
    if line.chars().count() <= COLUMNS {
        return line.trim_end().to_owned();
    }
    line.chars().take(COLUMNS - 1).chain(['…']).collect()
}

fn grouped(number: u64) -> String {
    report::grouped(&number.to_string())
}

/// What was full, and how busy the cores of relay and clients were.
fn full(saturated: &Saturated) -> String {
    /// A thread that is so much fuller than the relay's cores are together is named.
    const FULLER: f64 = 0.05;
    let Saturated { full, relay_utilisation, relay_fullest_thread, client_utilisation, .. } = saturated;
    let full = match full {
        Full::Relay => "the relay",
        Full::Clients => "the clients",
        Full::Neither => "neither",
        Full::Unknown => "unknown",
    };
    let share = |share: f64| format!("{:.0} %", share * 100.0);
    let relay = relay_utilisation.map_or_else(|| "unknown".to_owned(), share);
    let fullest = relay_utilisation.zip(*relay_fullest_thread).filter(|(all, one)| *one > all + FULLER);
    let thread = fullest.map_or_else(String::new, |(_, one)| format!(" (a thread {})", share(one)));
    format!("{full}: cores of the relay {relay} busy{thread}, of the clients {}", share(*client_utilisation))
}

/// Formats a quantile. `[…]` marks one with few samples above it, `–` one with too few.
fn milliseconds(quantile: Quantile) -> String {
    match quantile {
        Quantile::Exact(ns) => format!("{:.3} ms", ns as f64 / 1e6),
        Quantile::Bracketed(ns) => format!("[{:.3} ms]", ns as f64 / 1e6),
        Quantile::Missing => "–".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use measure::{ReasonKind, ValidityClass};

    use super::*;

    #[test]
    fn a_line_does_not_wrap() {
        let long = shortened(&"µ".repeat(COLUMNS + 1));
        assert!(long.chars().count() == COLUMNS && long.ends_with('…'), "{long}");
        assert_eq!(shortened(&"x".repeat(COLUMNS)).len(), COLUMNS);
    }

    #[test]
    fn deliveries_stand_by_population() {
        let shown = |metrics: &[&str]| {
            let all = metrics.iter().map(|metric| ((*metric).to_owned(), Latency::new())).collect();
            latencies(&all).into_iter().map(|(name, _)| name.to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(shown(&["response", "publish_ok"]), ["response", "publish_ok"]);
        assert_eq!(shown(&["response", "response.reader", "eose"]), ["response", "eose"]);
        let day = ["response", "response.opener", "response.reader", "session", "eose"];
        assert_eq!(shown(&day), ["response.opener", "response.reader", "session"]);
    }

    #[test]
    fn a_busy_host_is_one_line_with_a_count() {
        let mut validity = Validity::default();
        assert_eq!(reasons(&validity), ["valid"]);
        for percent in [21.0, 30.0] {
            validity.add(ValidityClass::Suspect, ReasonKind::CpuPressure { percent });
        }
        validity.add(ValidityClass::Suspect, ReasonKind::NothingPlanned {});
        let (busy, other) =
            ("suspect: the host was busy, by 2 signs", "nothing was planned, so nothing was measured");
        assert_eq!(reasons(&validity), [busy, other]);
        for _ in 0..3 {
            validity.add(ValidityClass::Suspect, ReasonKind::NothingPlanned {});
        }
        assert_eq!(reasons(&validity), [busy, other, other, "and 2 more reasons"]);
    }
}
