//! What a page alone shows: figures with their captions, and verdicts in colour.
use crate::{
    figures::{self, escape},
    verdicts::comparison::Comparison,
    view::LoadView,
};

/// A figure with its caption.
pub(crate) fn figure(caption: &str, svg: &str) -> String {
    format!("<figure><figcaption>{}</figcaption>{svg}</figure>\n", escape(caption))
}

/// Figures with their captions, beside each other below a legend.
pub(crate) fn gallery(legend: &str, figures: impl IntoIterator<Item = (String, String)>) -> String {
    let figures: String = figures.into_iter().map(|(caption, svg)| figure(&caption, &svg)).collect();
    format!("{legend}<div class=\"figures\">\n{figures}</div>\n")
}

/// The figures of a load.
pub(crate) fn of_load(load: &LoadView<'_>, comparisons: &[Comparison]) -> String {
    let blocks = figures::time_series(load)
        .map(|svg| ("Every block over time, spans left out shaded".to_owned(), svg));
    let judged = load.judged().into_iter();
    let judged = judged.filter(|metric| comparisons.iter().any(|c| c.metric == *metric)).map(|metric| {
        let caption = format!("{} against the reference (grey: ±2 %, thick: a verdict)", metric.short());
        (caption, figures::forest(load, comparisons, metric))
    });
    let all = blocks.into_iter().chain(judged).chain(over_percentiles_and_time(load));
    gallery(&figures::legend(load), all)
}

/// Latency and throughput by share and second by second: figures with their captions, for each
/// packing.
pub(crate) fn over_percentiles_and_time(load: &LoadView<'_>) -> Vec<(String, String)> {
    type Draw = fn(&LoadView<'_>, &str) -> Option<String>;
    let all: [(&str, &str, Draw); 4] = [
        ("Latency by percentile", "", figures::percentiles),
        ("Latency p50 second by second", ", median over rounds", figures::latency_course),
        ("Envelope throughput by share of intervals", "", figures::throughput),
        ("Envelope throughput second by second", ", median over rounds", figures::course),
    ];
    let mut drawn = Vec::new();
    for packing in figures::packings(load) {
        for (caption, of, draw) in all {
            let Some(svg) = draw(load, &packing) else { continue };
            // One run has no rounds, and nothing to tell apart.
            let caption = match load.cells.len() {
                1 => caption.to_owned(),
                _ => format!("{caption}{of}, {packing}"),
            };
            drawn.push((caption, svg));
        }
    }
    drawn
}
