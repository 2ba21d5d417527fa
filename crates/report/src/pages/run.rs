//! One run as a page or as text: the parts of a comparison's page, made of one record.

use measure::{EncodingsRecord, RunRecord, Status, Validity, ValidityClass};

use crate::{
    number::grouped,
    pages::{
        explorer::Said,
        model::details,
        part::Part,
        provenance,
        summary::{WIDTH, draw},
    },
    result::{Block, CellResult, Config, Git, Header, ResultFile, Role},
    tables::table::{NOTHING, Table, VALID, or_nothing, quantile},
    utilisation::Utilisation,
    verdicts::likeness::compression_line,
    view::{LoadView, views},
};
use cell::Factor;

const READING: &str = "\
An envelope is one event delivered to one subscriber, or an acknowledged publish where nothing is delivered. \
Envelope throughput is the envelopes that came in each interval as a rate: its median, and p1 or p10, which one \
interval in a hundred or in ten stays below.
Latencies are of this run's samples: response, publish_ok, eose and session from the instant each was due by plan. \
[Brackets]: 10 to 99 samples lie beyond; –: fewer.
Wire bytes are counted at the socket, both ways, with frames and masks, without handshakes.
CPU is the CPU time of the whole process (relay and clients apart) ÷ envelopes.
The ledger balances where every planned event has one fate and every expected delivery arrived once and unaltered.
Suspect numbers stand with a reason for doubt; those of an invalid run are no evidence.
One run has no interval: `compare run` repeats it beside JSON and says what differs.";

/// One run as an HTML page that loads nothing else: latency by share and over time, throughput, fates of
/// events, CPU and validity. The page of an incomplete or invalid run states this first.
///
/// # Errors
/// When its data cannot be written as JSON.
pub fn run_html(record: &RunRecord) -> anyhow::Result<String> {
    let result = of_one(record);
    let (title, warnings, parts) = (title(record), warnings(record), parts(record, &result));
    let parts = parts.iter().collect();
    Said { name: "this run", title: &title, warnings: &warnings, headline: "", parts }.page(&result)
}

/// One run as text for a terminal, without charts.
pub fn run_text(record: &RunRecord) -> String {
    let warnings = warnings(record).into_iter().map(Part::sentence);
    let parts = parts(record, &of_one(record));
    let all: Vec<Part> = [Part::heading(1, title(record))].into_iter().chain(warnings).chain(parts).collect();
    let mut text = String::new();
    draw(&mut text, &all, None, WIDTH);
    // A relay's own words may steer a terminal.
    text.trim_start().replace(|c: char| c.is_control() && c != '\n', "?")
}

fn title(record: &RunRecord) -> String {
    let cell = &record.cell;
    format!("{}: one run of {}+{}", cell.scenario, cell.format, cell.compression)
}

fn parts(record: &RunRecord, result: &ResultFile) -> Vec<Part> {
    let loads = views(result);
    let mut parts = Vec::new();
    if record.validity.class == ValidityClass::Valid && record.status == Status::Complete {
        parts.push(Part::sentence("Valid: nothing speaks against its numbers."));
    }
    parts.extend(loads.iter().flat_map(|load| of_load(record, load)));
    parts.extend([Part::heading(2, "How to read this"), Part::items(READING)]);
    parts.extend([Part::heading(2, "What was measured"), Part::list(measured(record, result))]);
    parts
}

/// The run as a result of one block, for tables and charts. The page has its own warnings.
fn of_one(record: &RunRecord) -> ResultFile {
    let config = Config {
        scenarios: vec![record.cell.scenario.clone()],
        rounds: 1,
        seed: record.seed,
        ..Config::default()
    };
    let header = Header {
        command: record.command.clone(),
        git: record.commit.as_deref().map(Git::described),
        host: record.environment.clone(),
        started_utc: record.started_utc.clone(),
        status: Status::Complete,
        config,
        selftest: None,
    };
    let shown = RunRecord { status: Status::Complete, validity: Validity::default(), ..record.clone() };
    let block =
        Block { seed: record.seed, process_ns: record.elapsed_ns, record: Some(shown), ..Block::default() };
    let id = format!("{}+{}", record.cell.format, record.cell.compression);
    let cell = CellResult {
        id: id.clone(),
        // Compared with nothing.
        role: Role::Anchor,
        rate_per_s: None,
        utilisation: None,
        cell: record.cell.clone(),
        blocks: vec![block],
    };
    ResultFile::assemble(header, vec![cell], vec![vec![id]])
}

/// The lines before any number.
fn warnings(record: &RunRecord) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(reason) = record.status.reason() {
        warnings.push(format!("Incomplete: {reason}. What was measured until then is below."));
    }
    let reasons = &record.validity;
    match record.validity.class {
        ValidityClass::Valid => {}
        ValidityClass::Suspect => warnings.push(format!("Suspect: {reasons}.")),
        ValidityClass::Invalid => warnings.push(format!("Invalid: {reasons}.")),
    }
    for (bound, ns) in record.missed_bounds() {
        warnings.push(format!("The scenario demands {bound}, and it was {:.3} ms.", ns as f64 / 1e6));
    }
    if !record.environment.optimised {
        warnings.push("Unoptimised build: no number here says anything about a format.".to_owned());
    }
    warnings
}

fn of_load(record: &RunRecord, load: &LoadView<'_>) -> Vec<Part> {
    let costs = load.costs().without(VALID).without("ledger");
    let mut parts = vec![Part::heading(2, "What it came to"), Part::table(costs)];
    parts.extend(compression_line(load).map(Part::sentence));
    parts.push(Part::sentence(busy(&load.cells[0].utilisation())));
    for (heading, table) in [("Latencies", latencies(record)), ("Fates of events", fates(record))] {
        if !table.is_empty() {
            parts.extend([Part::heading(2, heading), Part::table(table)]);
        }
    }
    parts.extend(details(load, 2));
    parts.extend(Some(memory(record)).filter(|items| !items.is_empty()).map(Part::list));
    parts
}

/// Memory, disk and encodings, as far as no table has them.
fn memory(record: &RunRecord) -> Vec<String> {
    let of_connections = record.memory.as_ref().filter(|memory| memory.connections > 0).map(|memory| {
        let kib = |bytes: u64| format!("{} KiB", bytes / 1024);
        let relay = memory.relay_bytes_per_connection().map_or_else(|| "unknown".to_owned(), kib);
        let client = kib(memory.client_bytes_per_connection());
        let gateway = memory
            .gateway_bytes_per_connection()
            .map(|bytes| format!(", {} of it the gateway's", kib(bytes)));
        format!(
            "Memory per connection: {client} in the clients, {relay} in the relay{} ({} connections)",
            gateway.unwrap_or_default(),
            memory.connections
        )
    });
    let compressors = record.compression_memory.as_ref().map(|memory| format!("Compressors: {memory}"));
    let encodings = record.encodings.map(|EncodingsRecord { cold, cached, spliced }| {
        format!(
            "Encodings: {cold} for a first delivery, {cached} sent from the cache, {spliced} as published"
        )
    });
    let bytes =
        |bytes: Option<u64>| bytes.map_or_else(|| "unknown".to_owned(), |bytes| grouped(&bytes.to_string()));
    let disk = record.relay.as_ref().map(|relay| {
        format!(
            "Disk: bytes that the relay wrote, {}; size of its folder at the end, {}",
            bytes(relay.written_bytes),
            bytes(relay.stored_bytes)
        )
    });
    [of_connections, disk, compressors, encodings].into_iter().flatten().collect()
}

/// CPU time as shares of the cores, in a sentence.
fn busy(utilisation: &Utilisation) -> String {
    let share = |share: Option<f64>| match share {
        Some(share) => format!("{:.0} % of its cores", share * 100.0),
        None => "an unknown share of its cores".to_owned(),
    };
    let queue =
        if utilisation.is_saturated() { ": saturated, so latency is the length of a queue" } else { "" };
    format!(
        "While work was outstanding the relay used {}, the generator {}{queue}.",
        share(utilisation.relay),
        share(utilisation.generator)
    )
}

/// One row a metric.
fn latencies(record: &RunRecord) -> Table {
    let mut table = Table::new(1, &["latency", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "samples"]);
    for (name, latency) in record.latency.iter().filter(|(_, latency)| !latency.is_empty()) {
        let quantiles = [0.5, 0.9, 0.99, 0.999].map(|q| or_nothing(quantile(latency.quantile_ns(q), 1e6)));
        let row = std::iter::once(name.clone()).chain(quantiles).chain([latency.len().to_string()]);
        table.rows.push(row.collect());
    }
    table
}

/// One row a fate; those that nothing has to do with are left out.
fn fates(record: &RunRecord) -> Table {
    let counts = &record.counts;
    // A run that ended early may have had deliveries on their way.
    let lost = if record.status == Status::Complete { "lost" } else { "not arrived" };
    let publishes = [
        ("planned", counts.planned),
        ("accepted", counts.acked),
        ("refused", counts.rejected),
        ("unanswered", counts.timed_out),
        ("unknown", counts.unknown),
        ("not sent", counts.not_sent),
        ("not begun", counts.not_begun),
        ("dropped here", counts.dropped_by_generator),
    ];
    let deliveries = [
        ("expected", counts.deliveries_expected),
        ("once and unaltered", counts.deliveries),
        (lost, counts.deliveries_lost),
        ("twice", counts.deliveries_duplicated),
        ("altered", counts.deliveries_altered),
        ("misrouted", counts.deliveries_misrouted),
        ("invented", counts.deliveries_invented),
        ("unexpected", counts.deliveries_unexpected),
    ];
    let requests = [
        ("planned", counts.requests),
        ("completed", counts.requests_completed),
        ("failed", counts.requests_failed),
    ];
    let beside = [
        ("wrong before the start", counts.deliveries_wrong_before_start),
        ("twice at the seam", counts.deliveries_duplicated_at_seam),
        ("counted unread by light readers", counts.deliveries_unread),
        ("after CLOSE", counts.deliveries_after_close),
        ("to readers cut off", counts.deliveries_cut_off),
        ("of the recording", counts.deliveries_recorded),
        ("that differ from it", counts.deliveries_diverged),
        ("again from another relay", counts.repeats),
        ("of these expected", counts.repeats_expected),
        ("of these recognised before they were decoded", counts.repeats_peeked),
        ("reconciliations", counts.reconciliations),
        ("messages of negentropy", counts.negentropy_rounds),
        ("bytes of negentropy", counts.negentropy_bytes),
        ("messages that answer nothing", counts.answers_unexpected),
        ("slow readers cut off", counts.readers_cut_off),
        ("live subscriptions closed", counts.subscriptions_closed),
        ("sessions not begun", counts.sessions_not_begun),
    ];
    let mut table = Table::new(2, &["of", "fate", "number", "share"]);
    let mut group = |name: &str, fates: &[(&str, u64)], of: u64| {
        for (fate, count) in fates {
            let share = match of {
                0 => NOTHING.to_owned(),
                of => format!("{:.2} %", 100.0 * *count as f64 / of as f64),
            };
            table.rows.push([name, fate, &count.to_string(), &share].map(str::to_owned).to_vec());
        }
    };
    for (name, fates) in [("publishes", &publishes[..]), ("deliveries", &deliveries), ("requests", &requests)]
    {
        if fates.iter().any(|(_, count)| *count > 0) {
            group(name, fates, fates[0].1);
        }
    }
    let beside: Vec<(&str, u64)> = beside.into_iter().filter(|(_, count)| *count > 0).collect();
    group("beside the ledger", &beside, 0);
    table
}

/// List items: every factor of the cell, the events, the relay, the machine.
fn measured(record: &RunRecord, result: &ResultFile) -> Vec<String> {
    let factors = Factor::ALL.into_iter().map(Factor::row);
    let factors =
        factors.filter_map(|row| Some(format!("{} {}", row.heading(), (row.recorded)(&record.cell)?)));
    let mut items = vec![
        format!("Cell: {}", factors.collect::<Vec<_>>().join(", ")),
        format!("Seed {}, {} connections", record.seed, record.connections),
    ];
    if let Some(relay) = &record.relay {
        let own = if relay.own { ", started by the run" } else { "" };
        let floor = if relay.is_floor { " --floor" } else { "" };
        items.push(format!("Relay: {}{floor} {}{own}", relay.software, relay.version));
    }
    items.extend(provenance::corpus(result));
    items.push(provenance::machine(&record.environment));
    let source = result.git.as_ref().map_or_else(String::new, |git| format!(", {git}"));
    items.push(provenance::made_by(&record.tool, &source, &record.environment, &record.started_utc));
    items
}
