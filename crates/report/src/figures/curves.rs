//! CPU, latency and memory of each cell against its load.

use measure::NO_LINK;

use super::{
    cells::{self, colour, place_of},
    svg::{Axis, Curve, DASHES, Figure, INK, Sheet, padded},
};
use crate::{
    metric::Metric,
    number,
    result::{FLOOR, Role},
    view::{CellView, LoadView},
};

/// A value that is drawn against the load.
struct Panel {
    /// Its name in the caption.
    name: String,
    unit: &'static str,
    value: fn(&LoadView<'_>, &CellView<'_>) -> Option<f64>,
}

/// A cell at one load.
struct Point<'a> {
    at: (f64, f64),
    load: &'a LoadView<'a>,
    view: &'a CellView<'a>,
}

/// The loads of one scenario over one link, in their order.
fn alike<'a>(loads: &'a [LoadView<'a>]) -> Vec<Vec<&'a LoadView<'a>>> {
    let of = |load: &LoadView<'a>| (&load.cells[0].cell.cell.scenario, &load.cells[0].cell.cell.link);
    let mut groups: Vec<Vec<&LoadView<'a>>> = Vec::new();
    for load in loads {
        match groups.iter_mut().find(|group| of(group[0]) == of(load)) {
            Some(group) => group.push(load),
            None => groups.push(vec![load]),
        }
    }
    groups.retain(|group| group.len() > 1);
    groups
}

/// Values of all cells of one scenario against their load.
pub(crate) struct AgainstLoad {
    /// The heading.
    pub(crate) heading: String,
    /// The meaning of the marks, as HTML.
    pub(crate) legend: String,
    /// Figures, each with its caption: relay CPU, p50, p99 and the relay's memory.
    pub(crate) figures: Vec<(String, String)>,
}

/// One for each scenario and link that was measured at several loads.
pub(crate) fn against_load(loads: &[LoadView<'_>]) -> Vec<AgainstLoad> {
    let drawn = |group: Vec<&LoadView<'_>>| {
        let first = group[0];
        let cell = &first.cells[0].cell.cell;
        let link = if cell.link == NO_LINK { String::new() } else { format!(" over {}", cell.link) };
        let also = "<span>┈ floor</span> <span>◯ saturated</span></p>";
        AgainstLoad {
            heading: format!("{}{link} against its load", cell.scenario),
            legend: cells::legend(first).replace("</p>", also),
            figures: panels(first).iter().filter_map(|panel| draw(&group, panel)).collect(),
        }
    };
    let drawn = alike(loads).into_iter().map(drawn);
    drawn.filter(|one| !one.figures.is_empty()).collect()
}

fn panels(load: &LoadView<'_>) -> [Panel; 4] {
    fn value(metric: Metric, load: &LoadView<'_>, view: &CellView<'_>) -> Option<f64> {
        Some(view.value(metric, load.latency.0)? / metric.unit())
    }
    let latency = load.latency.0;
    [
        Panel {
            name: "Relay CPU".to_owned(),
            unit: Metric::RelayCpu.heading(),
            value: |load, view| value(Metric::RelayCpu, load, view).filter(|_| !load.counts_allocations()),
        },
        Panel {
            name: format!("p50 of {latency}"),
            unit: Metric::LatencyP50.heading(),
            value: |load, view| value(Metric::LatencyP50, load, view),
        },
        Panel {
            name: format!("p99 of {latency}"),
            unit: Metric::LatencyP99.heading(),
            value: |load, view| value(Metric::LatencyP99, load, view),
        },
        Panel {
            name: "Peak memory of the relay".to_owned(),
            unit: "MiB",
            value: |_, view| view.relay_peak_mib(),
        },
    ]
}

/// The envelopes of a load.
fn counted(load: &LoadView<'_>) -> &'static str {
    let delivers = load.cells.iter().any(|view| view.blocks_for(Metric::WireBytes).counts.deliveries > 0);
    if delivers { "deliveries" } else { "publishes" }
}

/// One value of all cells; `None` where no cell has it at two loads.
fn draw(group: &[&LoadView<'_>], panel: &Panel) -> Option<(String, String)> {
    let mut lines: Vec<(String, Vec<Point<'_>>)> = Vec::new();
    for load in group {
        for view in load.cells.iter().filter(|view| view.cell.role != Role::Control) {
            let rate = view.value(Metric::EnvelopesPerSecond, load.latency.0);
            let Some(at) = rate.zip((panel.value)(load, view)) else { continue };
            if !(at.0 > 0.0 && at.1 > 0.0 && at.0.is_finite() && at.1.is_finite()) {
                continue;
            }
            let name = name(load, view);
            let point = Point { at, load, view };
            match lines.iter_mut().find(|(line, _)| *line == name) {
                Some((_, points)) => points.push(point),
                None => lines.push((name, vec![point])),
            }
        }
    }
    lines.retain(|(_, points)| points.len() > 1);
    let all = || lines.iter().flat_map(|(_, points)| points.iter().map(|point| point.at));
    all().next()?;
    let counted = counted(group[0]);
    let x = Axis::logarithmic(&format!("{counted} per second"), padded(all().map(|at| at.0), 1.2), 5);
    let y = Axis::logarithmic(panel.unit, padded(all().map(|at| at.1), 1.2), 6);
    let name = format!("{} against {counted} per second", panel.name);
    let mut svg = Figure::begin(Sheet::phone(280.0), &name, x, y);
    for (name, points) in &mut lines {
        points.sort_by(|a, b| a.at.0.total_cmp(&b.at.0));
        line(&mut svg, name, points, panel, counted);
    }
    Some((name, svg.end()))
}

/// The name of a cell at every load.
fn name(load: &LoadView<'_>, view: &CellView<'_>) -> String {
    if view.cell.role == Role::Floor { FLOOR.to_owned() } else { load.labels(view.cell).join("+") }
}

/// A cell's line: its format's colour, its packing's dash and shape; the floor's is dotted ink.
fn line(svg: &mut Figure, name: &str, points: &[Point<'_>], panel: &Panel, counted: &str) {
    let curve: Curve = points.iter().map(|point| point.at).collect();
    let first = &points[0];
    let is_floor = first.view.cell.role == Role::Floor;
    let packing = place_of(first.load, first.view);
    let colour = colour(first.load, &first.view.cell.cell.format);
    if is_floor {
        svg.line(curve, &format!("{INK} stroke-width=\"2\" stroke-dasharray=\"1 3\""));
    } else {
        svg.curve(curve, colour, DASHES[packing % DASHES.len()]);
    }
    for Point { at: (rate, value), view, .. } in points {
        let place = svg.at(*rate, *value);
        if !is_floor {
            svg.shape(packing, place, colour);
        }
        let saturated = if view.utilisation().is_saturated() {
            svg.ring(place);
            ", saturated"
        } else {
            ""
        };
        let says = format!(
            "{name}: {} {} at {} {counted} per second{saturated}",
            number::three(*value),
            panel.unit,
            number::three(*rate)
        );
        svg.mark(place, &view.cell.id, &says);
    }
}
