//! The summary that is printed to standard output after a run.

use std::fmt::Write;

use cell::{Factor, Row, Side};
use measure::{
    Allocations, AllocationsRecord, CpuTime, EncodingsRecord, FirstDelivery, FlowRecord, Full, Latency,
    LinkRecord, NO_LINK, Quantile, RunRecord, Saturated, Status, Validity, ValidityClass,
};

/// Columns of a line.
const COLUMNS: usize = 80;

/// Most reasons that are named.
const REASONS: usize = 3;

/// Latencies, of which the first three that a run has are what its scenario is about.
const LATENCIES: [&str; 8] =
    ["reconcile", "response", "session", "publish_ok", "first_event", "eose", "auth", "handshake"];

/// At most 20 lines: what was played with whom, ledger and validity, throughput, latencies, bytes
/// and CPU. `whom` is the first line of the run, `written` names the files that hold more.
pub(crate) fn summary(record: &RunRecord, whom: &str, written: &str) -> String {
    let mut text = String::new();
    write_brief(&mut text, record, whom).expect("writing into a String cannot fail");
    let more = if written.is_empty() { "--wide, --record FILE or --html FILE" } else { "--wide" };
    text + &shortened(&format!("  {:<11}{written}more: {more}", "")) + "\n"
}

/// Everything that a record sums up.
pub(crate) fn wide(record: &RunRecord) -> String {
    let mut text = String::new();
    write_all(&mut text, record).expect("writing into a String cannot fail");
    text
}

fn write_brief(out: &mut String, record: &RunRecord, whom: &str) -> std::fmt::Result {
    let RunRecord { cell, counts, .. } = record;
    let mut line = |name: &str, text: String| writeln!(out, "{}", shortened(&format!("  {name:<11}{text}")));
    let clients = format!("{} connections, seed {}", record.connections, record.seed);
    line(&cell.scenario, format!(" {clients}, {} ({} code)", record.corpus.name, cell.implementation))?;
    line("with", whom.to_owned())?;
    if let Status::Incomplete { reason } = &record.status {
        line("INCOMPLETE", reason.clone())?;
    }
    let ledger = match record.owed().balanced() {
        Ok(()) => "balances".to_owned(),
        Err(why) => format!("does not balance: {why}"),
    };
    line("ledger", ledger)?;
    line(
        "",
        format!(
            "{} of {} deliveries, {} of {} publications accepted",
            grouped(counts.deliveries),
            grouped(counts.deliveries_expected),
            grouped(counts.acked),
            grouped(counts.planned)
        ),
    )?;
    for text in reasons(&record.validity) {
        line("", text)?;
    }
    let envelopes = counts.envelopes();
    let rate = u128::from(envelopes) * 1_000_000_000 / u128::from(record.active_ns.max(1));
    line(
        "throughput",
        format!(
            "{} envelopes/s while work was outstanding, {} in all",
            grouped(u64::try_from(rate).unwrap_or(u64::MAX)),
            grouped(envelopes)
        ),
    )?;
    let shown: Vec<(&str, &Latency)> =
        LATENCIES.iter().filter_map(|name| Some((*name, record.latency.get(*name)?))).take(3).collect();
    if !shown.is_empty() {
        line("latency", format!("{:>26}{:>14}{:>14}", "p50", "p90", "p99"))?;
    }
    let mut is_thin = false;
    for (name, latency) in shown {
        let quantiles: String = [0.5, 0.9, 0.99]
            .iter()
            .map(|q| {
                let quantile = latency.quantile_ns(*q);
                is_thin |= matches!(quantile, Quantile::Bracketed(_));
                format!("{:>14}", milliseconds(quantile))
            })
            .collect();
        line("", format!("{name:<12}{quantiles}"))?;
    }
    if is_thin {
        line("", "[few values lie above it]".to_owned())?;
    }
    let each = |total: u64| total as f64 / envelopes.max(1) as f64;
    let (down, up) = (record.traffic.to_client.wire_bytes, record.traffic.to_relay.wire_bytes);
    let per_envelope = grouped(down / envelopes.max(1));
    line(
        "bytes",
        format!("{per_envelope} an envelope: {} to clients, {} to the relay", grouped(down), grouped(up)),
    )?;
    if record.link.is_some() {
        return line("CPU", "no evidence: packets over a link cost what loopback does not".to_owned());
    }
    let cpu = |cpu: &CpuTime| format!("{:.2} µs", each(cpu.total_ns) / 1e3);
    let relay = record.relay_cpu.as_ref().map_or_else(|| "unknown".to_owned(), cpu);
    let light = if counts.deliveries_unread > 0 { " (no evidence: light readers)" } else { "" };
    line("CPU", format!("relay {relay}, clients {}{light} an envelope", cpu(&record.client_cpu)))?;
    let mut full = String::new();
    if let Some(saturated) = &record.saturated {
        write_saturated(&mut full, record, saturated)?;
    }
    full.lines().try_for_each(|line| writeln!(out, "{}", shortened(line)))
}

/// Class and reasons, those about a busy host as one.
fn reasons(validity: &Validity) -> Vec<String> {
    let is_host = |reason: &&String| reason.contains(measure::HOST_BUSY);
    let busy = validity.reasons.iter().filter(is_host).count();
    let host = (busy > 0).then(|| format!("the host was busy, by {busy} signs"));
    let others = validity.reasons.iter().filter(|reason| !is_host(reason)).take(REASONS).cloned();
    let mut lines: Vec<String> = host.into_iter().chain(others).collect();
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

fn write_all(out: &mut String, record: &RunRecord) -> std::fmt::Result {
    let (cell, counts) = (&record.cell, &record.counts);
    let settings = Factor::on_side(Side::Relay).chain(Factor::on_side(Side::Clients)).map(Factor::row);
    let setting = |row: &Row| Some(format!("{} {}", row.heading(), (row.recorded)(cell)?));
    let settings: Vec<String> = settings.filter_map(setting).collect();
    writeln!(
        out,
        "{} over {} ({}), compression {} ({}), {}",
        cell.scenario,
        cell.format,
        cell.implementation,
        cell.compression,
        cell.compression_parameters,
        settings.join(", ")
    )?;
    if cell.batching != "none" {
        writeln!(out, "batches of events: {}", cell.batching)?;
    }
    writeln!(
        out,
        "corpus {} ({}, {} events, sha256 {:.12}), seed {}, {} connections",
        record.corpus.name,
        record.corpus.origin,
        record.corpus.events,
        record.corpus.sha256,
        record.seed,
        record.connections
    )?;
    let envelopes = counts.envelopes();
    let rate = envelopes as f64 / (record.active_ns.max(1) as f64 / 1e9);
    writeln!(out, "\n  envelopes        {envelopes:>12}   {rate:>12.0} /s while work was outstanding")?;
    if let Some(throughput) = &record.throughput {
        let rate = |q| match throughput.envelopes_per_s.low_quantile_ns(q) {
            Quantile::Exact(rate) => rate.to_string(),
            Quantile::Bracketed(rate) => format!("[{rate}]"),
            Quantile::Missing => "–".to_owned(),
        };
        writeln!(
            out,
            "  throughput       envelopes/s p50 {}  p10 {}  p1 {}   ({} intervals of {} ms)",
            rate(0.5),
            rate(0.1),
            rate(0.01),
            throughput.envelopes_per_s.len(),
            throughput.interval_ns / 1_000_000
        )?;
    }
    for (name, latency) in &record.latency {
        let quantiles: Vec<_> = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)]
            .into_iter()
            .map(|(label, q)| format!("{label} {:>10}", milliseconds(latency.quantile_ns(q))))
            .collect();
        writeln!(out, "  {name:<22} {}   ({} values)", quantiles.join("  "), latency.len())?;
    }
    let per_envelope = |total: u64| total as f64 / envelopes.max(1) as f64;
    let traffic = &record.traffic;
    for (name, flow) in [("wire to clients", &traffic.to_client), ("wire to relay", &traffic.to_relay)] {
        let FlowRecord { messages, wire_bytes, .. } = flow;
        let each = per_envelope(*wire_bytes);
        writeln!(
            out,
            "  {name:<16} {wire_bytes:>12} bytes in {messages} messages, {each:.1} bytes an envelope"
        )?;
    }
    if let Some(link) = &record.link {
        write_link(out, record, link)?;
    }
    let cpu = |cpu: &CpuTime| format!("{:.2} µs an envelope", per_envelope(cpu.total_ns) / 1e3);
    if let Some(memory) = record.memory.as_ref().filter(|memory| memory.connections > 0) {
        let here = memory.client_bytes_per_connection() / 1024;
        let relay = memory.relay_bytes_per_connection();
        let relay = relay.map_or_else(|| "unknown".to_owned(), |bytes| format!("{} KiB", bytes / 1024));
        let peak = memory.relay_peak_bytes.unwrap_or(0) >> 20;
        writeln!(
            out,
            "  memory           {here} KiB a connection here, {relay} in the relay ({} connections; its peak {peak} MiB)",
            memory.connections
        )?;
    }
    if let Some(memory) = &record.compression_memory {
        writeln!(out, "  compressors      {memory}")?;
    }
    if let Some(AllocationsRecord { client, relay }) = &record.allocations {
        let each = |one: &Allocations| {
            format!("{:.1} of {:.0} bytes", per_envelope(one.count), per_envelope(one.bytes))
        };
        let relay = relay.as_ref().map_or_else(|| "unknown".to_owned(), each);
        writeln!(out, "  allocations      an envelope: {} here, {relay} in the relay", each(client))?;
    }
    for population in &record.populations {
        let counts = &population.counts;
        writeln!(
            out,
            "  {:<16} {} over {}{}{}: {} published, {} delivered, {} bytes to clients, {} to the relay",
            population.name.as_deref().unwrap_or("unnamed"),
            population.format,
            population.compression,
            population.link.as_ref().map_or_else(String::new, |link| format!(", link {link}")),
            population.decode_every.map_or_else(String::new, |every| format!(", decoded every {every}")),
            counts.acked,
            counts.deliveries,
            population.to_client.wire_bytes,
            population.to_relay.wire_bytes
        )?;
    }
    if let Some(first) = &record.first_delivery {
        let found = FirstDelivery::from_blocks([first]);
        let resolution = found.map_or(0.0, |found| found.resolution_ns / 1e3);
        let cost = match found.and_then(|found| found.cpu_ns) {
            Some(ns) => format!("{:.2} µs of relay CPU an event beyond a later one", ns / 1e3),
            None => "no more relay CPU than a later one".to_owned(),
        };
        writeln!(
            out,
            "  first delivery   {cost}, before the clock started ({} events, resolution {resolution:.2} µs)",
            first.events
        )?;
    }
    if let Some(EncodingsRecord { cold, cached, spliced }) = record.encodings {
        writeln!(
            out,
            "  encodings        {cold} encoded for a first delivery, {cached} sent from the cache, {spliced} as published"
        )?;
    }
    if record.link.is_some() {
        writeln!(out, "  CPU              no evidence: packets over a link cost what loopback does not")?;
    } else {
        writeln!(out, "  relay CPU        {}", record.relay_cpu.as_ref().map_or("unknown".to_owned(), cpu))?;
        let light = if counts.deliveries_unread > 0 { "; no evidence: light readers" } else { "" };
        writeln!(out, "  client CPU       {}{light}", cpu(&record.client_cpu))?;
    }
    writeln!(
        out,
        "  published        {} planned = {} accepted + {} refused + {} unanswered + {} unknown + {} not sent + {} dropped here",
        counts.planned,
        counts.acked,
        counts.rejected,
        counts.timed_out,
        counts.unknown,
        counts.not_sent,
        counts.dropped_by_generator
    )?;
    if counts.requests_failed > 0 {
        writeln!(
            out,
            "  requests         {} planned = {} completed + {} closed or unanswered",
            counts.requests, counts.requests_completed, counts.requests_failed
        )?;
    }
    writeln!(
        out,
        "  delivered        {} of {} expected; {} lost, {} twice, {} altered, {} misrouted, {} invented, {} unexpected",
        counts.deliveries,
        counts.deliveries_expected,
        counts.deliveries_lost,
        counts.deliveries_duplicated,
        counts.deliveries_altered,
        counts.deliveries_misrouted,
        counts.deliveries_invented,
        counts.deliveries_unexpected
    )?;
    if counts.deliveries_unread > 0 {
        writeln!(
            out,
            "  read lightly     {} deliveries decoded and compared, {} counted unread",
            counts.deliveries - counts.deliveries_unread,
            counts.deliveries_unread
        )?;
    }
    if counts.reconciliations > 0 {
        let each = |total: u64| total as f64 / counts.reconciliations as f64;
        writeln!(
            out,
            "  reconciled       {} times, with {:.1} messages and {:.0} bytes of negentropy each",
            counts.reconciliations,
            each(counts.negentropy_rounds),
            each(counts.negentropy_bytes)
        )?;
    }
    if counts.repeats_expected > 0 {
        writeln!(
            out,
            "  again            {} of {} expected; {} recognised before they were decoded",
            counts.repeats, counts.repeats_expected, counts.repeats_peeked
        )?;
    }
    if counts.deliveries_duplicated_at_seam > 0 {
        writeln!(
            out,
            "  seam             {} events came before EOSE and again after it (--strict-seam counts them as twice)",
            counts.deliveries_duplicated_at_seam
        )?;
    }
    if counts.answers_unexpected > 0 {
        writeln!(
            out,
            "  passed over      {} messages of the relay that answer nothing, or not in the form of their NIP",
            counts.answers_unexpected
        )?;
    }
    if counts.readers_cut_off + counts.subscriptions_closed > 0 {
        writeln!(
            out,
            "  cut off          {} slow readers and {} live subscriptions, with {} events undelivered",
            counts.readers_cut_off, counts.subscriptions_closed, counts.deliveries_cut_off
        )?;
    }
    if counts.not_begun + counts.sessions_not_begun > 0 {
        writeln!(
            out,
            "  not begun        {} events and {} sessions, which time did not reach",
            counts.not_begun, counts.sessions_not_begun
        )?;
    }
    if let Some(saturated) = &record.saturated {
        write_saturated(out, record, saturated)?;
    }
    if let Status::Incomplete { reason } = &record.status {
        writeln!(out, "  INCOMPLETE       {reason}")?;
    }
    match record.validity.class {
        ValidityClass::Valid => writeln!(out, "  valid"),
        class => writeln!(out, "  {class}: {}", record.validity.reasons.join("; ")),
    }
}

/// What was full, and what a core-second of each process carries.
fn write_saturated(out: &mut String, record: &RunRecord, saturated: &Saturated) -> std::fmt::Result {
    let Saturated { full, relay_utilisation, client_utilisation, .. } = saturated;
    let full = match full {
        Full::Relay => "the relay",
        Full::Clients => "the clients",
        Full::Neither => "neither",
        Full::Unknown => "unknown",
    };
    let share = |share: f64| format!("{:.0} %", share * 100.0);
    let relay = relay_utilisation.map_or_else(|| "unknown".to_owned(), share);
    let clients = share(*client_utilisation);
    writeln!(
        out,
        "  full             {full}; relay {relay}, clients {clients} of their cores in busy times"
    )?;
    let each = |cpu: &CpuTime| format!("{:.0}", record.envelopes_per_core_s(cpu));
    let relay = record.relay_cpu.as_ref().map_or_else(|| "unknown".to_owned(), each);
    writeln!(
        out,
        "  a core-second    {relay} envelopes of the relay, {} of the clients",
        each(&record.client_cpu)
    )
}

/// The link of each user, and what crossed all of them.
fn write_link(out: &mut String, record: &RunRecord, link: &LinkRecord) -> std::fmt::Result {
    let is_of_all = link.parts.is_empty() && record.cell.link != NO_LINK;
    let name = if is_of_all { format!("{}: ", record.cell.link) } else { String::new() };
    writeln!(out, "  link             {name}{}; {}", link.parameters, link.congestion)?;
    for (name, flow) in [("link to clients", &link.down), ("link to relay", &link.up)] {
        writeln!(
            out,
            "  {name:<16} {:>12} bytes in {} packets, {} dropped by the queue, {} lost, {} sent again, queueing p50 {} p99 {}",
            flow.forwarded_bytes,
            flow.forwarded,
            flow.tail_dropped,
            flow.lost,
            flow.retransmitted,
            milliseconds(flow.queued.quantile_ns(0.5)),
            milliseconds(flow.queued.quantile_ns(0.99))
        )?;
    }
    for part in &link.parts {
        writeln!(
            out,
            "  {:<16} {} bytes to {} clients and {} from them, queueing p50 {} p99 {}, {} and {} dropped or lost",
            part.link,
            part.down.forwarded_bytes,
            part.connections,
            part.up.forwarded_bytes,
            milliseconds(part.down.queued.quantile_ns(0.5)),
            milliseconds(part.down.queued.quantile_ns(0.99)),
            part.down.tail_dropped + part.down.lost,
            part.up.tail_dropped + part.up.lost
        )?;
    }
    writeln!(
        out,
        "  emulator         late by p50 {} p99 {}",
        milliseconds(link.lateness.quantile_ns(0.5)),
        milliseconds(link.lateness.quantile_ns(0.99))
    )
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
    use super::*;

    #[test]
    fn a_line_does_not_wrap() {
        let long = shortened(&"µ".repeat(COLUMNS + 1));
        assert!(long.chars().count() == COLUMNS && long.ends_with('…'), "{long}");
        assert_eq!(shortened(&"x".repeat(COLUMNS)).len(), COLUMNS);
    }

    #[test]
    fn a_busy_host_is_one_line_with_a_count() {
        let mut validity = Validity::default();
        assert_eq!(reasons(&validity), ["valid"]);
        for reason in ["host busy: a", "send lag", "host busy: b"] {
            validity.add_timing(ValidityClass::Suspect, reason.to_owned());
        }
        assert_eq!(reasons(&validity), ["suspect: the host was busy, by 2 signs", "send lag"]);
    }
}
