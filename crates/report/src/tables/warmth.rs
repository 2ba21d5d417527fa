//! Young and steady parts of the blocks of a load: the cost of first deliveries, and their share of
//! those that were measured.

use crate::result::Role;
use crate::{
    number,
    view::{CellView, LoadView},
};

impl LoadView<'_> {
    /// Whether any cell knows where its deliveries had their bytes from.
    pub(crate) fn knows_warmth(&self) -> bool {
        let known =
            |view: &CellView<'_>| view.merged.encodings.is_some() || view.merged.first_delivery.is_some();
        self.cells.iter().any(known)
    }

    /// The headings of [`CellView::warmth`].
    pub(crate) const WARMTH: [&'static str; 3] =
        ["first delivery relay µs/event", "first deliveries %", "spliced %"];

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

impl CellView<'_> {
    /// The relay's CPU for a first delivery beyond a later one (`<` its resolution where it is not
    /// above it), and the shares of first deliveries, and of those with the publisher's bytes, in
    /// the measured time.
    pub(crate) fn warmth(&self) -> [Option<String>; 3] {
        let micros = |ns: f64| number::three(ns / 1e3);
        let first = self.merged.first_delivery.map(|first| match first.cpu_ns {
            Some(ns) => micros(ns),
            None => format!("<{}", micros(first.resolution_ns)),
        });
        let share = self.merged.encodings.and_then(measure::EncodingsRecord::cold_share).map(percent);
        let spliced = self.merged.encodings.and_then(measure::EncodingsRecord::spliced_share).map(percent);
        [first, share, spliced]
    }
}

fn percent(share: f64) -> String {
    number::three(share * 100.0)
}
