//! A result for other tools.

use serde_json::{Value, json};

use crate::result::{ResultFile, Role};
use crate::view::views;

/// For github-action-benchmark, tool `customSmallerIsBetter`: a list of costs, each with its
/// interval as the range. Only ratios to JSON in the same run: absolute figures of shared machines
/// say nothing from one day to the next.
pub fn github_action_benchmark(result: &ResultFile) -> Value {
    let mut entries = Vec::new();
    let incomplete = result.incomplete().map_or_else(String::new, |reason| format!(", incomplete: {reason}"));
    for load in views(result) {
        let comparisons = load.comparisons();
        for view in load.cells.iter().filter(|view| view.cell.role == Role::Cell) {
            for metric in load.judged().iter().copied() {
                let Some(found) =
                    comparisons.iter().find(|one| one.cell == view.cell.id && one.metric == metric)
                else {
                    continue;
                };
                let mut entry = json!({
                    "name": format!("{}: {} of {}", load.name(), metric.short(), view.cell.id),
                    "unit": format!("× {}", found.reference),
                    "value": found.ratio,
                    "extra": format!("{}, {} rounds of {} s, {}{incomplete}", found.verdict, found.rounds, result.config.seconds, result.started_utc),
                });
                if let Some((low, high)) = found.interval {
                    entry["range"] = json!(format!("{low:.3} to {high:.3}"));
                }
                entries.push(entry);
            }
        }
    }
    Value::Array(entries)
}
