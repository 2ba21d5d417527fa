//! Young and steady parts of the blocks of a load: the cost of first deliveries, and their share of
//! those that were measured.

use crate::{
    number,
    result::Role,
    tables::table::{Column, column},
    view::LoadView,
};

impl LoadView<'_> {
    /// The relay's CPU for a first delivery beyond a later one (`<` its resolution where it is not
    /// above it), and the shares of first deliveries, and of those with the publisher's bytes, in
    /// the measured time.
    pub(crate) fn warmth<'t>() -> [Column<'t>; 3] {
        let micros = |ns: f64| number::three(ns / 1e3);
        [
            column("first delivery relay µs/event", move |view| {
                let first = view.merged.first_delivery?;
                Some(first.cpu_ns.map_or_else(|| format!("<{}", micros(first.resolution_ns)), micros))
            }),
            column("first deliveries %", |view| view.merged.encodings?.cold_share().map(percent)),
            column("spliced %", |view| view.merged.encodings?.spliced_share().map(percent)),
        ]
    }

    /// New and warm deliveries in every table of the load, in a sentence.
    pub(crate) fn warmth_line(&self) -> String {
        let young = match self.result.config.url {
            Some(_) => "New in every block: clients, connections and compression contexts",
            None => "New in every block: processes, connections, compression contexts and allocators",
        };
        let shares = (self.cells.iter().filter(|view| view.cell.role != Role::Floor))
            .filter_map(|view| view.merged.encodings?.cold_share());
        match shares.max_by(f64::total_cmp) {
            Some(share) => format!(
                "{young}. Warm: stored events, each sent before the clock starts; {} % of the measured deliveries at most \
                 are an event's first in its format.",
                percent(share)
            ),
            None => {
                format!("{young}; how many deliveries are an event's first, and encode it, is unknown.")
            }
        }
    }
}

fn percent(share: f64) -> String {
    number::three(share * 100.0)
}
