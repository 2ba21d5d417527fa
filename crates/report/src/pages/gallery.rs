//! What a page alone shows: figures with their captions, and verdicts in colour.
use crate::{
    figures::{self, escape},
    merged::Metric,
    result::Role,
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
    let who = [(Metric::RelayCpu, "relay"), (Metric::ClientCpu, "client")];
    let costs = who.into_iter().filter(|_| !load.is_over_links()).map(|(cpu, who)| {
        let caption = format!("Wire bytes against {who} CPU, frontier drawn (lower left is better)");
        (caption, figures::pareto(load, cpu))
    });
    let blocks = figures::time_series(load)
        .map(|svg| ("Every block over time, spans left out shaded".to_owned(), svg));
    let judged = load.judged().iter().copied();
    let judged = judged.filter(|metric| comparisons.iter().any(|c| c.metric == *metric)).map(|metric| {
        let caption = format!("{} against the reference (grey: ±2 %, thick: a verdict)", metric.short());
        (caption, figures::forest(load, comparisons, metric))
    });
    let all = costs.chain(blocks).chain(judged).chain(over_percentiles_and_time(load));
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

/// A line for each format: its cell without compression, or the first it has.
pub(crate) fn verdict_list(load: &LoadView<'_>, comparisons: &[Comparison]) -> String {
    let mut seen = Vec::new();
    let mut lines = String::new();
    for view in load.cells.iter().filter(|view| view.cell.role == Role::Cell) {
        let of_cell: Vec<String> = (comparisons.iter().filter(|c| c.cell == view.cell.id))
            .map(|c| {
                format!(
                    "{} <span class=\"{}\">{}</span>",
                    c.metric.short(),
                    c.verdict,
                    escape(&c.to_string())
                )
            })
            .collect();
        if !seen.contains(&&view.cell.cell.format) && !of_cell.is_empty() {
            seen.push(&view.cell.cell.format);
            let reference = load.reference(view).map_or("", |reference| reference.cell.id.as_str());
            let id = &view.cell.id;
            lines += &format!(
                "<li><b>{}</b> against {}: {}</li>\n",
                escape(id),
                escape(reference),
                of_cell.join(", ")
            );
        }
    }
    format!("<ul>\n{lines}</ul>\n")
}
