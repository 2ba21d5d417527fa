//! Tables of a document over several published results. Each stands between two comments, and
//! `UPDATE_SNAPSHOTS=1` writes it anew:
//!
//! ```text
//! <!-- made: prices -->
//! <!-- end of made -->
//! ```

use std::{fs, path::Path};

use anyhow::{Context, Result};
use measure::{NO_LINK, RunRecord};
use report::{CellResult, Comparison, Role, Verdict, merged::Metric, stats};

use crate::{PUBLISHED, Published};

const BEGIN: &str = "<!-- made: ";
const END: &str = "<!-- end of made -->";

/// Rounds below which a result is a look and no evidence.
const FEWEST_ROUNDS: u32 = 8;

/// What choices cost, in the order of the columns.
const COSTS: [Metric; 3] = [Metric::WireBytes, Metric::RelayCpu, Metric::ClientCpu];

/// The cells of the estimate for many clients, each with its name there.
const CLIENTS_OF: &str = "mixed-day-load-4";
const CLIENTS: [(&str, &str); 7] = [
    ("json+none", "JSON"),
    ("json+zstd-dict", "JSON, `zstd-dict`"),
    ("json+deflate-shared", "JSON, `deflate-shared`"),
    ("json+zstd", "JSON, zstd"),
    ("json+deflate:level=2:window_bits=12", "JSON, deflate (level 2, window 12)"),
    ("json+deflate", "JSON, deflate (level 6, window 15)"),
    ("dannypack+none", "DannyPack"),
];

/// Asserts that the tables of a document are those of today's results.
pub(crate) fn check(root: &Path, document: &str) {
    let file = root.join(document);
    let text = fs::read_to_string(&file).unwrap();
    let fresh = refreshed(&text, table).unwrap();
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        fs::write(&file, &fresh).unwrap();
    }
    assert!(fs::read_to_string(&file).unwrap() == fresh, "run this test with UPDATE_SNAPSHOTS=1");
    assert_eq!(fresh.matches(BEGIN).count(), 3, "tables of {document}");
}

/// A document with each of these tables made anew.
fn refreshed(document: &str, table: impl Fn(&str) -> Result<String>) -> Result<String> {
    let (mut text, mut rest) = (String::new(), document);
    while let Some((before, behind)) = rest.split_once(BEGIN) {
        let (name, behind) = behind.split_once(" -->").context("a comment without its end")?;
        let (_, behind) = behind.split_once(END).with_context(|| format!("no {END}"))?;
        text.push_str(&format!("{before}{BEGIN}{name} -->\n\n{}\n{END}", table(name)?));
        rest = behind;
    }
    Ok(text + rest)
}

fn table(name: &str) -> Result<String> {
    match name {
        "prices" => Ok(prices(&found())),
        "price ranges" => Ok(ranges(&found())),
        "many clients" => many_clients(PUBLISHED.get(CLIENTS_OF).context("its result is not published")?),
        _ => anyhow::bail!("no table is called {name:?}"),
    }
}

/// A compression of JSON, or a format without compression, at one load of one result.
struct Price {
    result: String,
    /// Deliveries a second.
    load: f64,
    /// The share of its core that the relay takes in JSON.
    busy: f64,
    choice: [String; 2],
    costs: [Option<Comparison>; 3],
}

/// The prices of all results with CPU times that are evidence.
fn found() -> Vec<Price> {
    let mut prices: Vec<Price> = PUBLISHED
        .iter()
        .filter(|(_, Published { result, .. })| result.config.rounds >= FEWEST_ROUNDS)
        // Relays beside each other differ in nothing that has a price here.
        .filter(|(_, Published { result, .. })| result.config.relays.is_empty())
        .flat_map(|(name, published)| prices_of(name, published))
        .collect();
    prices.sort_by(|one, other| one.choice.cmp(&other.choice).then(one.load.total_cmp(&other.load)));
    prices
}

fn prices_of(name: &str, Published { result, derived }: &Published) -> Vec<Price> {
    let is_counted = |cell: &&CellResult| {
        let is_choice = cell.cell.compression == "none" || cell.cell.format == "json";
        // Checks of signatures are the same work in every format (docs/decisions/client-checks.md),
        // and what clients keep is a question of its own (docs/decisions/client-bytes.md).
        let of_clients = [&cell.cell.client_verify[..], &cell.cell.client_keeps];
        let is_usual = cell.cell.link == NO_LINK && of_clients == ["none", "text"];
        cell.role == Role::Cell && is_usual && is_choice
    };
    let price = |cell: &CellResult| {
        let of = |metric: &Metric| {
            derived.comparisons.iter().find(|one| one.cell == cell.id && one.metric == *metric).cloned()
        };
        let costs = COSTS.each_ref().map(of);
        let anchor = &costs[0].as_ref()?.reference;
        let anchor = derived.cells.iter().find(|one| one.id == *anchor)?;
        Some(Price {
            result: name.to_owned(),
            load: *anchor.figures.get(&Metric::ThroughputP50)?,
            busy: anchor.utilisation.relay?,
            choice: [cell.cell.format.clone(), cell.cell.compression.clone()],
            costs: costs.map(|cost| cost.filter(is_evidence)),
        })
    };
    result.cells.iter().filter(is_counted).filter_map(price).collect()
}

/// Whether JSON against itself came out as the same.
fn is_evidence(cost: &Comparison) -> bool {
    cost.aa_interval.is_some_and(|(low, high)| low <= 1.0 && 1.0 <= high)
}

fn ratio(value: f64) -> String {
    let decimals = if value < 9.995 { 2 } else { 1 };
    format!("{value:.decimals$}")
}

fn prices(prices: &[Price]) -> String {
    let mut text =
        "| format | compression | result | deliveries/s | relay busy in JSON % | wire bytes × JSON \
        | relay CPU × JSON | client CPU × JSON |\n| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |\n"
            .to_owned();
    for Price { result, load, busy, choice: [format, compression], costs } in prices {
        let [bytes, cpu @ ..] = costs;
        let bytes = bytes.as_ref().map_or_else(|| "–".to_owned(), |cost| ratio(cost.ratio));
        let cpu: Vec<String> = cpu.iter().map(with_interval).collect();
        let (cpu, load, busy) = (cpu.join(" | "), grouped(*load), busy * 100.0);
        text.push_str(&format!(
            "| {format} | {compression} | [{result}](published/{result}/summary.md) | {load} | {busy:.0} \
             | {bytes} | {cpu} |\n"
        ));
    }
    text
}

fn with_interval(cost: &Option<Comparison>) -> String {
    let Some(cost) = cost else { return "–".to_owned() };
    let is_decided = matches!(cost.verdict, Verdict::Better | Verdict::Worse | Verdict::Same);
    let ratio = ratio(cost.ratio);
    let ratio = if is_decided { format!("**{ratio}**") } else { ratio };
    cost.interval.map_or_else(|| ratio.clone(), |(low, high)| format!("{ratio} [{low:.2}, {high:.2}]"))
}

/// The smallest and the largest price of each choice.
fn ranges(prices: &[Price]) -> String {
    let mut text =
        "| format | compression | measurements | wire bytes × JSON | relay CPU × JSON | client CPU × JSON |\n\
        | --- | --- | ---: | ---: | ---: | ---: |\n"
            .to_owned();
    for of_choice in prices.chunk_by(|one, other| one.choice == other.choice) {
        let [format, compression] = &of_choice[0].choice;
        let range = |cost: usize| {
            let mut ratios: Vec<f64> =
                of_choice.iter().filter_map(|price| Some(price.costs[cost].as_ref()?.ratio)).collect();
            ratios.sort_by(f64::total_cmp);
            let ends = ratios.first().zip(ratios.last()).map(|(low, high)| (ratio(*low), ratio(*high)));
            match ends {
                None => "–".to_owned(),
                Some((low, high)) if low == high => low,
                Some((low, high)) => format!("{low} to {high}"),
            }
        };
        let (count, [bytes, relay, client]) = (of_choice.len(), [0, 1, 2].map(range));
        text.push_str(&format!("| {format} | {compression} | {count} | {bytes} | {relay} | {client} |\n"));
    }
    text
}

/// What 10,000 clients that get an event a second cost, from one result.
fn many_clients(Published { result, derived }: &Published) -> Result<String> {
    let mut text =
        "| JSON or DannyPack, with | relay CPU µs a delivery | wire bytes a delivery | cores | Mbit/s \
        | memory a connection KiB | memory GiB |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n"
            .to_owned();
    let json = result.cells.iter().find(|cell| cell.id == "json+none").context("no JSON")?;
    for (id, name) in CLIENTS {
        let figures = &derived.cells.iter().find(|cell| cell.id == id).context(id)?.figures;
        let micros = figures.get(&Metric::RelayCpu).context("no CPU")? / 1e3;
        let bytes = figures.get(&Metric::WireBytes).context("no bytes")?;
        let cell = result.cells.iter().find(|cell| cell.id == id).context(id)?;
        let plain = if cell.cell.compression == "none" { cell } else { json };
        let connection = median_of(plain, |record| record.memory?.relay_bytes_per_connection());
        let states = median_of(cell, |record| record.compression_memory?.relay_bytes_per_connection);
        let memory = connection.context("no memory")? + states.unwrap_or(0.0);
        text.push_str(&format!(
            "| {name} | {micros:.1} | {} | {:.3} | {:.0} | {:.0} | {:.2} |\n",
            grouped(*bytes),
            micros * 1e4 / 1e6,
            bytes * 8.0 / 100.0,
            memory / 1024.0,
            memory * 1e4 / f64::from(1 << 30)
        ));
    }
    Ok(text)
}

/// The median over the blocks of a cell.
fn median_of(cell: &CellResult, bytes: impl Fn(&RunRecord) -> Option<u64>) -> Option<f64> {
    let each: Vec<f64> =
        cell.blocks.iter().filter_map(|block| Some(bytes(block.counted()?)? as f64)).collect();
    stats::median(&each)
}

/// Thousands apart.
fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    match digits.len().checked_sub(3) {
        Some(place @ 1..) => format!("{},{}", &digits[..place], &digits[place..]),
        _ => digits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stands_between_the_comments_is_made_anew() {
        let table = |name: &str| Ok(format!("| {name} |\n"));
        let text = "a\n<!-- made: x -->\n| old |\n<!-- end of made -->\nb\n";
        let fresh = refreshed(text, table).unwrap();
        assert_eq!(fresh, "a\n<!-- made: x -->\n\n| x |\n\n<!-- end of made -->\nb\n");
        assert_eq!(refreshed(&fresh, table).unwrap(), fresh);
        assert!(refreshed("<!-- made: x -->\n", table).is_err());
    }
}
