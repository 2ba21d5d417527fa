//! What crossed the emulated access links, with the headers of IP and TCP.

use measure::{Latency, LinkFlow, LinkRecord};

use super::{
    number,
    table::{NOTHING, Table},
    view::{CellView, LoadView},
};
use crate::result::Block;

impl LoadView<'_> {
    /// One row a cell: bytes of IP packets, what was sent again, and what waited; with a paragraph
    /// about the link. `None` of a load without links.
    pub(crate) fn links(&self) -> Option<(Table, String)> {
        let first = self.cells.iter().flat_map(records).next()?;
        let mut headings = self.label_headings();
        let names = headings.len();
        let columns = [
            "IP B/event",
            "packets/event",
            "sent again %",
            "queueing p50 ms",
            "p99 ms",
            "emulator late p99 ms",
        ];
        headings.extend(columns.map(str::to_owned));
        let rows = self.cells.iter().map(|view| {
            let mut row = self.labels(view.cell);
            row.extend(figures(view));
            row
        });
        let note = format!(
            "Each user has an access link of its own, {}: {}; {}. Bytes are those of IP packets, both ways. CPU times \
             are left out: packets of 1,500 bytes through a TUN device cost what loopback does not.",
            self.cells[0].cell.cell.link, first.parameters, first.congestion
        );
        Some((Table { names, headings, rows: rows.collect() }, note))
    }
}

fn records<'a>(view: &'a CellView<'_>) -> impl Iterator<Item = &'a LinkRecord> {
    view.cell.blocks.iter().filter_map(Block::usable).filter_map(|record| record.link.as_ref())
}

fn figures(view: &CellView<'_>) -> Vec<String> {
    let envelopes = view.merged.counts.envelopes();
    let sum = |count: fn(&LinkFlow) -> u64| -> u64 {
        records(view).map(|link| count(&link.down) + count(&link.up)).sum()
    };
    let share = |part: u64, whole: u64, factor: f64| match whole {
        0 => NOTHING.to_owned(),
        whole => number::three(part as f64 * factor / whole as f64),
    };
    let merged = |of: fn(&LinkRecord) -> &Latency| {
        let mut all = Latency::new();
        records(view).for_each(|link| all.merge(of(link)));
        all
    };
    let ms = |latency: &Latency, q: f64| {
        latency.quantile_ns(q).ns().map_or_else(|| NOTHING.to_owned(), |ns| number::three(ns as f64 / 1e6))
    };
    let queued = merged(|link| &link.down.queued);
    vec![
        share(sum(|flow| flow.forwarded_bytes), envelopes, 1.0),
        share(sum(|flow| flow.forwarded), envelopes, 1.0),
        share(sum(|flow| flow.retransmitted), sum(|flow| flow.packets), 100.0),
        ms(&queued, 0.5),
        ms(&queued, 0.99),
        ms(&merged(|link| &link.lateness), 0.99),
    ]
}
