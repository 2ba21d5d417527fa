//! The answer in five lines: what each format buys and costs, which verdicts are missing, and how long
//! settling them would take.

use crate::{
    metric::Metric,
    number,
    reference::{BASE_COMPRESSION, BASE_FORMAT},
    result::{Block, MAX_ROUNDS, ResultFile, Role},
    statistics::stats::BAND,
    verdicts::comparison::{Comparison, Family, Verdict},
    view::LoadView,
};

/// Cells named in a list before it ends with a count.
const NAMED: usize = 7;

/// Rounds below which no comparison has an interval.
const FEWEST_ROUNDS: u32 = 6;

/// One line for each cost, then one about missing verdicts.
pub(crate) fn answer(load: &LoadView<'_>, comparisons: &[Comparison]) -> Vec<String> {
    // One quantile stands for both; over links a block has too few sessions for their p99.
    let other = if load.is_over_links() { Metric::LatencyP99 } else { Metric::LatencyP50 };
    let judged = load.judged().into_iter().filter(|metric| *metric != other);
    let mut lines: Vec<String> = judged.filter_map(|metric| of_metric(load, comparisons, metric)).collect();
    let of_cells: Vec<&Comparison> = comparisons.iter().filter(|c| is_cell(load, &c.cell)).collect();
    if !of_cells.is_empty() {
        lines.push(not_significant(load.result, &of_cells));
    }
    lines
}

fn is_cell(load: &LoadView<'_>, id: &str) -> bool {
    load.cells.iter().any(|view| view.cell.id == id && view.cell.role == Role::Cell)
}

/// The cells that stand for the choices: each format by its first cell, JSON by each of its own.
fn stands_for_a_choice(load: &LoadView<'_>, id: &str) -> bool {
    let Some(view) = load.cells.iter().find(|view| view.cell.id == id) else { return false };
    let format = &view.cell.cell.format;
    let mut of_format =
        load.cells.iter().filter(|other| other.cell.role == Role::Cell && other.cell.cell.format == *format);
    format == BASE_FORMAT || of_format.next().is_some_and(|first| first.cell.id == id)
}

fn of_metric(load: &LoadView<'_>, comparisons: &[Comparison], metric: Metric) -> Option<String> {
    let mut found: Vec<&Comparison> = (comparisons.iter())
        .filter(|c| c.metric == metric && is_cell(load, &c.cell) && stands_for_a_choice(load, &c.cell))
        .collect();
    found.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
    let named = |what: &str, verdict: Verdict| {
        let all: Vec<String> = (found.iter().filter(|c| c.verdict == verdict))
            .map(|c| {
                let secondary = if c.family == Some(Family::Secondary) { " (secondary)" } else { "" };
                let name = format!("{}{secondary}", choice(&c.cell));
                match verdict {
                    Verdict::Better | Verdict::Worse => format!("{name} {}", number::ratio(c.ratio)),
                    Verdict::Inconclusive => format!("{name}{}", bound(c.interval)),
                    _ => name,
                }
            })
            .collect();
        let more = all.len().saturating_sub(NAMED);
        let shown = all.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        (!all.is_empty()).then(|| format!("{what} {shown}{more}"))
    };
    let parts = [
        named("less:", Verdict::Better),
        named("more:", Verdict::Worse),
        named("same:", Verdict::Same),
        named("not significant:", Verdict::Inconclusive),
        named("unsteady:", Verdict::Unsteady),
        named("saturated:", Verdict::Saturated),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("{}: {}", metric.short(), parts.join("; ")))
}

/// The differences that an inconclusive interval leaves possible.
fn bound(interval: Option<(f64, f64)>) -> String {
    let Some((low, high)) = interval else { return String::new() };
    let percent = |ratio: f64| format!("{:.0} %", (ratio - 1.0).abs() * 100.0);
    match () {
        () if high <= 1.0 => format!(" ({} to {} less)", percent(high), percent(low)),
        () if low >= 1.0 => format!(" ({} to {} more)", percent(low), percent(high)),
        () => format!(" (at most {} less, at most {} more)", percent(low), percent(high)),
    }
}

/// A cell's name; no compression goes without saying.
fn choice(id: &str) -> &str {
    id.strip_suffix(&format!("+{BASE_COMPRESSION}")).unwrap_or(id)
}

/// How many verdicts of each family are missing, and the rounds that would bring half of the first
/// family's.
fn not_significant(result: &ResultFile, comparisons: &[&Comparison]) -> String {
    let of_family = |family| comparisons.iter().copied().filter(move |c| c.family == family);
    let open_of = |family| of_family(family).filter(|c| c.verdict == Verdict::Inconclusive);
    let families = || Family::ALL.into_iter().filter(|family| of_family(*family).next().is_some());
    let counts = families().map(|family| {
        let (open, all) = (open_of(family).count(), of_family(family).count());
        let open = if open == 0 { "none".to_owned() } else { open.to_string() };
        format!("{open} of {all} {}verdicts", Family::of_cells(family))
    });
    let mut text = format!("not significant: {}", counts.collect::<Vec<_>>().join(", "));
    let first = families().next().flatten();
    let mut needed: Vec<f64> = open_of(first).map(|c| rounds_to_settle(c).unwrap_or(f64::INFINITY)).collect();
    needed.sort_by(f64::total_cmp);
    if let Some(half) = needed.get(needed.len().saturating_sub(1) / 2) {
        let them = if first.is_some() { "the primary ones" } else { "them" };
        text.push_str(&if result.config.rounds < FEWEST_ROUNDS {
            format!("; none can be below {FEWEST_ROUNDS} rounds{}", time(result, f64::from(FEWEST_ROUNDS)))
        } else if *half <= f64::from(MAX_ROUNDS) {
            format!("; about {half:.0} rounds{} would settle half of {them}", time(result, *half))
        } else {
            format!("; half of {them} need more than {MAX_ROUNDS} rounds")
        });
    }
    let withheld = comparisons.iter().filter(|c| c.verdict.is_withheld()).count();
    if withheld > 0 {
        text.push_str(&format!("; {withheld} saturated or unsteady, which more rounds do not change"));
    }
    text
}

/// Rounds after which an interval that shrinks with their square root lies wholly on one side of an
/// edge of the band.
fn rounds_to_settle(comparison: &Comparison) -> Option<f64> {
    let (low, high) = comparison.interval?;
    let reach = (high.ln() - low.ln()) / 2.0;
    let effect = comparison.ratio.ln();
    let edges = [(1.0 - BAND).ln(), (1.0 + BAND).ln()];
    let margin = edges.iter().map(|edge| (effect - edge).abs()).fold(f64::INFINITY, f64::min);
    let times = (reach / margin).powi(2).max(1.0);
    // An effect on the edge of the band is never settled.
    times.is_finite().then(|| (f64::from(comparison.rounds) * times).ceil())
}

/// Time of so many rounds, by those that ran.
fn time(result: &ResultFile, rounds: f64) -> String {
    let end = |block: &Block| block.started_after_ns + block.process_ns;
    let blocks = || result.cells.iter().flat_map(|cell| &cell.blocks);
    let (Some(end), Some(last)) = (blocks().map(end).max(), blocks().map(|block| block.round).max()) else {
        return String::new();
    };
    let minutes = end as f64 / 60e9 / f64::from(last + 1) * rounds;
    format!(" ({minutes:.0} min)")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comparison(ratio: f64, interval: Option<(f64, f64)>) -> Comparison {
        Comparison {
            cell: "a".to_owned(),
            reference: "b".to_owned(),
            metric: Metric::RelayCpu,
            ratio,
            interval,
            rounds: 10,
            p: 1.0,
            corrected: false,
            family: None,
            aa_interval: None,
            verdict: Verdict::Inconclusive,
        }
    }

    #[test]
    fn an_inconclusive_interval_still_has_a_bound() {
        for (interval, said) in [
            (Some((0.92, 1.05)), " (at most 8 % less, at most 5 % more)"),
            (Some((0.89, 0.99)), " (1 % to 11 % less)"),
            (Some((1.01, 1.5)), " (1 % to 50 % more)"),
            (None, ""),
        ] {
            assert_eq!(bound(interval), said);
        }
    }

    #[test]
    fn an_interval_four_times_too_wide_needs_sixteen_times_the_rounds() {
        let at = |ratio: f64, half: f64| {
            rounds_to_settle(&comparison(ratio, Some((ratio * (-half).exp(), ratio * half.exp()))))
        };
        let margin = 1.1_f64.ln() - 1.02_f64.ln();
        assert_eq!(at(1.1, 3.999 * margin), Some(160.0));
        // Nothing beyond the present rounds: the test or its correction was what failed.
        assert_eq!(at(1.1, 0.5 * margin), Some(10.0));
        assert!(at(1.02, 0.1).is_none_or(|rounds| rounds > 1e6));
        assert_eq!(rounds_to_settle(&comparison(1.1, None)), None);
    }
}
