//! A result for other tools.

use crate::{merged::Merged, metric::Metric, pages::throughput::quoted, result::ResultFile, view::views};

/// Every observation as a line of CSV: the metrics of each block, and p50 and p99 of each of its
/// latencies. Values are in nanoseconds, bytes, allocations and envelopes per second.
pub fn observations(result: &ResultFile) -> String {
    let mut text = "cell,round,place,validity,metric,value\n".to_owned();
    for load in views(result) {
        for (cell, block) in
            load.cells.iter().flat_map(|view| view.cell.blocks.iter().map(|one| (view.cell, one)))
        {
            let Some(record) = &block.record else { continue };
            let merged = Merged::from_records([record]);
            let metrics = Metric::ALL.iter().filter(|metric| !metric.is_latency());
            let values = metrics.filter_map(|metric| {
                let name = serde_json::to_value(metric).ok()?.as_str()?.to_owned();
                Some((name, metric.value(&merged, load.latency.0)?.to_string()))
            });
            let latencies = record.latency.iter().flat_map(|(name, latency)| {
                [(0.5, "p50"), (0.99, "p99")].into_iter().filter_map(move |(q, mark)| {
                    Some((format!("{name}_ns_{mark}"), latency.quantile_ns(q).ns()?.to_string()))
                })
            });
            let (id, class) = (quoted(&cell.id), record.validity.class);
            for (name, value) in values.chain(latencies) {
                let name = quoted(&name);
                text += &format!("{id},{},{},{class},{name},{value}\n", block.round, block.position);
            }
        }
    }
    text
}
