//! A page's answer for its block, which is hostile input if it comes from a device, and its record.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use measure::{
    Counts, CpuTime, FirstEvents, FlowRecord, PageRecord, ReasonKind, RunRecord, TrafficRecord, Validity,
    ValidityClass,
};
use serde::Deserialize;
use serde_json::Value;

use super::{PageCell, Pages, Seen};
use crate::generator::Task;

/// Longest text of a page that is kept.
const MAX_TEXT_CHARACTERS: usize = 300;
/// The most that a page may count; sums of many such counts fit into 64 bits.
const MOST_COUNTED: u64 = 1 << 48;
/// Steps of the clock that a measured time must have, so that its error is below 5 %.
const LEAST_CLOCK_STEPS: u64 = 20;
/// How much longer a page may say that a step took than its block: clocks of 100 ms round twice.
const CLOCKS_DIFFER: Duration = Duration::from_millis(200);

/// What a page found.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Found {
    /// Why it failed.
    pub(super) error: Option<String>,
    /// Whether it was hidden meanwhile.
    hidden: bool,
    #[serde(default)]
    events: u64,
    #[serde(default)]
    messages: u64,
    #[serde(default)]
    bytes: u64,
    #[serde(default)]
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
    pub(super) user_agent: String,
    /// The step of its clock.
    pub(super) clock_ms: f64,
}

impl Found {
    /// Reads what a page told at the end of a block that lasted so long.
    pub(super) fn read(said: Value, lasted: Duration) -> Result<Found> {
        let found: Found = serde_json::from_value(said)
            .map_err(|error| anyhow::anyhow!(plain(&error.to_string())))
            .context("the page's answer is refused")?;
        let first = found.first.unwrap_or(First { events: 0, milliseconds: 0.0 });
        let counts = [found.events, found.messages, found.bytes, first.events, found.heap_bytes.unwrap_or(0)];
        ensure!(
            counts.iter().all(|count| *count <= MOST_COUNTED),
            "the page's answer is refused: it counts too much"
        );
        let most = (lasted + CLOCKS_DIFFER).as_secs_f64() * 1e3;
        let told = [found.milliseconds, first.milliseconds];
        ensure!(
            told.iter().all(|milliseconds| (0.0..=most).contains(milliseconds)),
            "the page's answer is refused: steps of {told:.0?} ms in a block of {} ms",
            lasted.as_millis()
        );
        Ok(found)
    }
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
    let least_ns = LEAST_CLOCK_STEPS.saturating_mul(pages.clock_ns);
    let wall_ns = whole(found.milliseconds * 1e6);
    let first =
        found.first.map(|first| FirstEvents { events: first.events, ns: whole(first.milliseconds * 1e6) });
    let mut validity = Validity::default();
    if found.events == 0 {
        validity.add(ValidityClass::Invalid, ReasonKind::NothingPlanned {});
    }
    if found.hidden {
        validity.add(ValidityClass::Invalid, ReasonKind::PageHidden {});
    }
    if wall_ns < least_ns.max(1) {
        let reason = ReasonKind::CoarseClock { took_ns: wall_ns, clock_ns: pages.clock_ns };
        validity.add(ValidityClass::Invalid, reason);
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
            first: first.filter(|first| first.events > 0 && first.ns >= least_ns.max(1)),
            heap_bytes: found.heap_bytes,
            script_gzip_bytes: cell.row.script_gzip_bytes,
        }),
        ..pages.record.clone()
    }
}

/// A page's text for terminals and reports: printable ASCII without the marks of HTML and Markdown,
/// and not too long.
pub(super) fn plain(text: &str) -> String {
    let is_plain = |c: &char| (c.is_ascii_graphic() || *c == ' ') && !"<>|`[]*\\".contains(*c);
    text.chars().take(MAX_TEXT_CHARACTERS).map(|c| if is_plain(&c) { c } else { '?' }).collect()
}

/// Nanoseconds, which are neither negative nor beyond 2^53.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
pub(super) fn whole(value: f64) -> u64 {
    value.clamp(0.0, 9e15) as u64
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_answer_of_another_form_is_refused() {
        let read = |said: Value| Found::read(said, Duration::from_secs(1));
        let good = json!({ "hidden": false, "events": 9, "milliseconds": 900.0, "heap_bytes": null });
        assert_eq!(read(good).unwrap().events, 9);
        for (said, expected) in [
            (json!([1]), "invalid"),
            (json!({ "hidden": false, "more": 0 }), "unknown field"),
            (json!({ "hidden": false, "events": -1 }), "invalid value"),
            (json!({ "hidden": false, "events": u64::MAX }), "counts too much"),
            (
                json!({ "hidden": false, "milliseconds": 1e9 }),
                "steps of [1000000000, 0] ms in a block of 1000 ms",
            ),
            (json!({ "hidden": false, "error": 7 }), "invalid type"),
        ] {
            let error = format!("{:#}", read(said).unwrap_err());
            assert!(
                error.starts_with("the page's answer is refused: ") && error.contains(expected),
                "{error}"
            );
        }
        assert_eq!(plain("\u{1b}[2J<b>"), "??2J?b?");
    }
}
