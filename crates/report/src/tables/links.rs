//! Bytes and packets that crossed the emulated access links, with the headers of IP and TCP.

use measure::{Latency, LinkFlow, LinkPart, LinkRecord, NO_LINK};

use crate::{
    number,
    result::Block,
    tables::table::{NOTHING, Table, column, or_nothing},
    view::{CellView, LoadView},
};

impl LoadView<'_> {
    /// One row a cell: packets, what was sent again, and what waited; with a paragraph
    /// about the link. `None` of a load without links.
    pub(crate) fn links(&self) -> Option<(Table, String)> {
        let first = self.cells.iter().flat_map(records).next()?;
        let columns = [
            column("packets/event", |view| {
                share(sum(view, |flow| flow.forwarded), view.merged.counts.envelopes(), 1.0)
            }),
            column("sent again %", |view| {
                share(sum(view, |flow| flow.retransmitted), sum(view, |flow| flow.packets), 100.0)
            }),
            column("queueing p50 ms", |view| milliseconds(&merged(view, |link| &link.down.queued), 0.5)),
            column("p99 ms", |view| milliseconds(&merged(view, |link| &link.down.queued), 0.99)),
            column("emulator late p99 ms", |view| milliseconds(&merged(view, |link| &link.lateness), 0.99)),
        ];
        let name = match self.cells[0].cell.cell.link.as_str() {
            link if link != NO_LINK && first.parts.is_empty() => format!("{link}: {}", first.parameters),
            _ => format!("by population: {}", first.parameters),
        };
        let note = format!(
            "Each user has an access link of its own, {name}; {}. IP bytes are those of packets with their headers, both \
             ways. CPU times are left out: packets of 1,500 bytes through a TUN device cost what loopback does not.",
            first.congestion
        );
        Some((self.table(&columns), note))
    }
}

impl LoadView<'_> {
    /// One row for each link of a cell whose populations have several; `None` where all users have the same.
    pub(crate) fn links_apart(&self) -> Option<Table> {
        let mut headings = self.label_headings();
        headings.push("link".to_owned());
        let names = headings.len();
        let columns =
            ["connections", "kB to a client", "kB from it", "dropped or lost %", "queueing p50 ms", "p99 ms"];
        headings.extend(columns.map(str::to_owned));
        let mut rows = Vec::new();
        for view in &self.cells {
            let Some(first) = records(view).next() else { continue };
            for (place, part) in first.parts.iter().enumerate() {
                let parts: Vec<_> = records(view).filter_map(|link| link.parts.get(place)).collect();
                let mut row = self.labels(view.cell);
                row.push(part.link.clone());
                row.extend(part_figures(&parts));
                rows.push(row);
            }
        }
        (!rows.is_empty()).then_some(Table { names, headings, rows })
    }
}

fn part_figures(parts: &[&LinkPart]) -> Vec<String> {
    let sum = |count: fn(&LinkPart) -> u64| parts.iter().map(|part| count(part)).sum::<u64>();
    let connections = sum(|part| part.connections);
    let kilobytes = |bytes: u64| match connections {
        0 => NOTHING.to_owned(),
        connections => number::three(bytes as f64 / connections as f64 / 1e3),
    };
    let packets = sum(|part| part.down.packets + part.up.packets).max(1);
    let gone = sum(|part| part.down.tail_dropped + part.down.lost + part.up.tail_dropped + part.up.lost);
    let mut queued = Latency::new();
    parts.iter().for_each(|part| queued.merge(&part.down.queued));
    vec![
        parts[0].connections.to_string(),
        kilobytes(sum(|part| part.down.forwarded_bytes)),
        kilobytes(sum(|part| part.up.forwarded_bytes)),
        number::three(gone as f64 * 100.0 / packets as f64),
        or_nothing(milliseconds(&queued, 0.5)),
        or_nothing(milliseconds(&queued, 0.99)),
    ]
}

fn milliseconds(latency: &Latency, q: f64) -> Option<String> {
    latency.quantile_ns(q).ns().map(|ns| number::three(ns as f64 / 1e6))
}

fn records<'a>(view: &'a CellView<'_>) -> impl Iterator<Item = &'a LinkRecord> {
    view.cell.blocks.iter().filter_map(Block::usable).filter_map(|record| record.link.as_ref())
}

/// A count's sum over all usable blocks, both ways.
fn sum(view: &CellView<'_>, count: fn(&LinkFlow) -> u64) -> u64 {
    records(view).map(|link| count(&link.down) + count(&link.up)).sum()
}

fn share(part: u64, whole: u64, factor: f64) -> Option<String> {
    (whole > 0).then(|| number::three(part as f64 * factor / whole as f64))
}

fn merged(view: &CellView<'_>, of: fn(&LinkRecord) -> &Latency) -> Latency {
    let mut all = Latency::new();
    records(view).for_each(|link| all.merge(of(link)));
    all
}
