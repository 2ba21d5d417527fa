//! A page's answer for its block, and its record.

use measure::{
    Counts, CpuTime, FirstEvents, FlowRecord, PageRecord, ReasonKind, RunRecord, TrafficRecord, Validity,
    ValidityClass,
};
use serde::Deserialize;

use super::{CLOCK_NS, PageCell, Pages, Seen};
use crate::generator::Task;

/// Least time of a page's first events, so that the error by its clock is below 5 %.
const LEAST_NS: u64 = 20 * CLOCK_NS;

/// What a page found.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Found {
    /// Why it failed.
    pub(super) error: Option<String>,
    events: u64,
    messages: u64,
    bytes: u64,
    milliseconds: f64,
    first: Option<First>,
    heap_bytes: Option<u64>,
    pub(super) about: Option<About>,
    /// How a decoder reads an event otherwise than `JSON.parse`.
    pub(super) differs: Option<String>,
}

/// The first events of a page.
#[derive(Debug, Clone, Copy, Deserialize)]
struct First {
    events: u64,
    milliseconds: f64,
}

/// What the engine is and has.
#[derive(Debug, Deserialize)]
pub(super) struct About {
    pub(super) has_to_hex: bool,
    pub(super) isolated: bool,
}

/// The record of a page's block.
pub(super) fn record(
    pages: &Pages<'_>,
    (task, cell): (&Task<'_>, &PageCell),
    seen: Seen,
    started_utc: String,
) -> RunRecord {
    let Seen { found, spent, link } = seen;
    let [main_ns, all_ns] = spent.map_or([None; 2], |spent| spent.map(Some));
    let wall_ns = measure::whole(found.milliseconds * 1e6);
    let first = found
        .first
        .map(|first| FirstEvents { events: first.events, ns: measure::whole(first.milliseconds * 1e6) });
    let mut validity = Validity::default();
    if found.events == 0 {
        validity.add(ValidityClass::Invalid, ReasonKind::NothingPlanned {});
    }
    if let Some(link) = &link {
        link.judge(&mut validity);
    }
    let to_client =
        FlowRecord { messages: found.messages, payload_bytes: found.bytes, wire_bytes: found.bytes };
    RunRecord {
        started_utc,
        cell: measure::Cell { code: cell.row.name.clone(), ..cell.spec.cell.recorded() },
        seed: task.seed,
        connections: u64::from(cell.part.is_over_sockets()),
        elapsed_ns: wall_ns,
        active_ns: wall_ns,
        counts: Counts { deliveries_expected: found.events, deliveries: found.events, ..Counts::default() },
        traffic: TrafficRecord { to_client, ..TrafficRecord::default() },
        client_cpu: CpuTime { total_ns: all_ns.unwrap_or(0), user_ns: None, system_ns: None },
        validity,
        link,
        page: Some(PageRecord {
            main_ns,
            wall_ns,
            first: first.filter(|first| first.events > 0 && first.ns >= LEAST_NS),
            heap_bytes: found.heap_bytes,
            script_gzip_bytes: cell.row.script_gzip_bytes,
        }),
        ..pages.record.clone()
    }
}
