//! Bytes and packets that crossed the emulated access links, with the headers of IP and TCP.

use measure::{AddUp, Latency, LinkPart, LinkRecord, NO_LINK};

use crate::{
    number,
    result::Block,
    tables::table::{Table, column, or_nothing},
    view::{CellView, LoadView},
};

impl LoadView<'_> {
    /// One row a cell: packets, what was sent again, and what waited; with a paragraph
    /// about the link. `None` of a load without links.
    pub(crate) fn links(&self) -> Option<(Table, String)> {
        let first = self.cells.iter().flat_map(records).next()?;
        let columns = [
            column("packets/event", |view| {
                let LinkRecord { down, up, .. } = together(view)?;
                share(down.forwarded + up.forwarded, view.merged.counts.envelopes(), 1.0)
            }),
            column("sent again %", |view| {
                let LinkRecord { down, up, .. } = together(view)?;
                let again = down.retransmitted.unwrap_or(0) + up.retransmitted.unwrap_or(0);
                share(again, down.packets + up.packets, 100.0)
            }),
            column("queueing p50 ms", |view| milliseconds(&together(view)?.down.queued, 0.5)),
            column("p99 ms", |view| milliseconds(&together(view)?.down.queued, 0.99)),
            column("emulator late p99 ms", |view| milliseconds(&together(view)?.lateness, 0.99)),
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
            let first = records(view).next().into_iter().flat_map(|link| &link.parts);
            for (first, all) in first.zip(together(view).into_iter().flat_map(|link| link.parts)) {
                let names = self.labels(view.cell).into_iter().chain([first.link.clone()]);
                rows.push(names.chain(part_figures(first, &all)).collect());
            }
        }
        (!rows.is_empty()).then_some(Table { names, headings, rows })
    }
}

/// Figures of one link, in its first block and over all.
fn part_figures(first: &LinkPart, all: &LinkPart) -> [String; 6] {
    let (down, up) = (&all.down, &all.up);
    let gone = down.tail_dropped + down.lost + up.tail_dropped + up.lost;
    [
        first.connections.to_string(),
        or_nothing(share(down.forwarded_bytes, all.connections, 1e-3)),
        or_nothing(share(up.forwarded_bytes, all.connections, 1e-3)),
        or_nothing(share(gone, down.packets + up.packets, 100.0)),
        or_nothing(milliseconds(&down.queued, 0.5)),
        or_nothing(milliseconds(&down.queued, 0.99)),
    ]
}

fn milliseconds(latency: &Latency, q: f64) -> Option<String> {
    latency.quantile_ns(q).ns().map(|ns| number::three(ns as f64 / 1e6))
}

fn records<'a>(view: &'a CellView<'_>) -> impl Iterator<Item = &'a LinkRecord> {
    view.cell.blocks.iter().filter_map(Block::usable).filter_map(|record| record.link.as_ref())
}

/// The links of all usable blocks as one.
fn together(view: &CellView<'_>) -> Option<LinkRecord> {
    records(view).cloned().reduce(|mut all, one| {
        all.add_up(&one);
        all
    })
}

fn share(part: u64, whole: u64, factor: f64) -> Option<String> {
    (whole > 0).then(|| number::three(part as f64 * factor / whole as f64))
}
