//! One run as a page or as text: the parts of a comparison's page, made of one record.

use measure::{RunRecord, Status, Validity, ValidityClass};

use crate::{
    pages::{
        model::{Report, details},
        part::Part,
        provenance,
        summary::{WIDTH, draw},
    },
    result::{Block, CellResult, Config, Git, ResultFile, Role},
    tables::table::{Table, VALID, or_nothing, quantile},
    utilisation::Utilisation,
    verdicts::likeness::compression_line,
    view::{LoadView, views},
};

const READING: &str = "\
An envelope is one event delivered to one subscriber, or an acknowledged publish where nothing is delivered. p1 and \
p10 of throughput: one interval in a hundred or in ten stays below.
Latencies count from the instant due by plan. [Brackets]: 10 to 99 samples lie beyond; –: fewer.
Wire bytes are counted at the socket, with frames and masks, without handshakes. CPU is that of the whole process.
Suspect numbers stand with a reason for doubt; those of an invalid run are no evidence.
One run has no interval: `compare run` repeats it beside JSON and says what differs.";

/// One run as an HTML page that loads nothing else: latency by share and over time, throughput, fates of
/// events, CPU and validity. The page of an incomplete or invalid run states this first.
///
/// # Errors
/// When its data cannot be written as JSON.
pub fn run_html(record: &RunRecord) -> anyhow::Result<String> {
    let result = of_one(record);
    let report = Report {
        title: title(record),
        warnings: warnings(record),
        headline: String::new(),
        first: parts(record, &result),
        loads: Vec::new(),
        end: Vec::new(),
        ..Report::from_result(&result)
    };
    report.page("this run")
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
    let git = record.commit.as_deref().map(Git::described);
    let (host, started_utc) = (record.environment.clone(), record.started_utc.clone());
    let result = ResultFile::begun(record.command.clone(), git, host, started_utc, config);
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
    result.with_cells(vec![cell], vec![vec![id]])
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

/// Memory, as far as no table has it.
fn memory(record: &RunRecord) -> Vec<String> {
    let of_connections = record.memory.as_ref().filter(|memory| memory.connections > 0).map(|memory| {
        let kib = |bytes: u64| format!("{} KiB", bytes / 1024);
        let relay = memory.relay_bytes_per_connection().map_or_else(|| "unknown".to_owned(), kib);
        let client = kib(memory.client_bytes_per_connection());
        let connections = memory.connections;
        format!(
            "Memory per connection: {client} in the clients, {relay} in the relay ({connections} connections)"
        )
    });
    let compressors = record.compression_memory.as_ref().map(|memory| format!("Compressors: {memory}"));
    of_connections.into_iter().chain(compressors).collect()
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

/// Counts of the record that are fates of a planned publish.
const OF_PUBLISHES: [&str; 8] =
    ["planned", "acked", "rejected", "timed_out", "unknown", "not_sent", "not_begun", "dropped_by_generator"];

/// One row for each count of the record that is not zero, and for deliveries lost.
fn fates(record: &RunRecord) -> Table {
    let counts = &record.counts;
    let json = serde_json::to_value(counts).unwrap_or_default();
    let mut table = Table::new(1, &["count", "number", "share"]);
    for (field, count) in json.as_object().into_iter().flatten() {
        let Some(count) = count.as_u64().filter(|count| *count > 0 || field == "deliveries_lost") else {
            continue;
        };
        let (name, whole) = match &**field {
            field if OF_PUBLISHES.contains(&field) => (format!("publishes {field}"), counts.planned),
            // Deliveries of a run that ended early may have been on their way.
            "deliveries_lost" if record.status != Status::Complete => {
                ("deliveries not arrived".to_owned(), counts.deliveries_expected)
            }
            field if field.starts_with("deliveries") => (field.to_owned(), counts.deliveries_expected),
            field if field.starts_with("requests") => (field.to_owned(), counts.requests),
            field => (field.to_owned(), 0),
        };
        let share = (whole > 0).then(|| format!("{:.2} %", 100.0 * count as f64 / whole as f64));
        table.rows.push(vec![name.replace('_', " "), count.to_string(), or_nothing(share)]);
    }
    table
}

/// List items: every factor of the cell, the events, the relay, the machine.
fn measured(record: &RunRecord, result: &ResultFile) -> Vec<String> {
    let mut items = vec![
        provenance::factors(result),
        format!("Seed {}, {} connections", record.seed, record.connections),
    ];
    if let Some(relay) = &record.relay {
        let own = if relay.own { ", started by the run" } else { "" };
        let floor = if relay.is_floor { " --floor" } else { "" };
        items.push(format!("Relay: {}{floor} {}{own}", relay.software, relay.version));
    }
    items.extend(provenance::corpus(result));
    items.push(format!("Machine: {}", provenance::machine(&record.environment)));
    let source = result.git.as_ref().map_or_else(String::new, |git| format!(", {git}"));
    items.push(provenance::made_by(&record.tool, &source, &record.environment, &record.started_utc));
    items
}
