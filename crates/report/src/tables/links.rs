//! The emulated access links of a load: a sentence about them, and each of several links apart.

use measure::{LinkPart, NO_LINK, Quantile};

use crate::{number, tables::table::Table, view::LoadView};

impl LoadView<'_> {
    /// What the links are, in a sentence; `None` of a load without links.
    pub(crate) fn links_line(&self) -> Option<String> {
        let first = self.cells.iter().find_map(|view| view.merged.link.as_ref())?;
        let name = match self.cells[0].cell.cell.link.as_str() {
            link if link != NO_LINK && first.parts.is_empty() => format!("{link}: {}", first.parameters),
            _ => format!("by population: {}", first.parameters),
        };
        Some(format!(
            "Each user has an access link of its own, {name}; {}. IP bytes are those of packets with their headers, both \
             ways. CPU times are left out: packets of 1,500 bytes through a TUN device cost what loopback does not.",
            first.congestion
        ))
    }

    /// One row for each link of a cell whose populations have several; `None` where all users have the same.
    pub(crate) fn links_apart(&self) -> Option<Table> {
        let numbers =
            ["connections", "kB to a client", "kB from it", "dropped or lost %", "queueing p50 ms", "p99 ms"];
        let parts = self.cells.iter().flat_map(|view| {
            let parts = view.merged.link.iter().flat_map(|link| &link.parts);
            parts.map(move |part| (view, of_part(part, view.merged.blocks)))
        });
        self.table_of_parts(&["link"], &numbers, parts)
    }
}

/// The name and the figures of one link over so many blocks.
fn of_part(part: &LinkPart, blocks: u64) -> Vec<Option<String>> {
    let LinkPart { link, connections, down, up, .. } = part;
    let share = |of: u64, whole: u64, factor: f64| {
        (whole > 0).then(|| number::three(of as f64 * factor / whole as f64))
    };
    let milliseconds = |queued: Quantile| queued.ns().map(|ns| number::three(ns as f64 / 1e6));
    let gone = down.tail_dropped + down.lost + up.tail_dropped + up.lost;
    vec![
        Some(link.clone()),
        Some((connections / blocks.max(1)).to_string()),
        share(down.forwarded_bytes, *connections, 1e-3),
        share(up.forwarded_bytes, *connections, 1e-3),
        share(gone, down.packets + up.packets, 100.0),
        milliseconds(down.queued.quantile_ns(0.5)),
        milliseconds(down.queued.quantile_ns(0.99)),
    ]
}
