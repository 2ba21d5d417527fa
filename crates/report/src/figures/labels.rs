//! Where the names of marks stand.

use super::svg::{Area, At, MARK, Sheet};

/// For each mark the free place nearest to it that takes its name, the most crowded first; `None`
/// where the plot is full.
pub(super) fn labels(sheet: &Sheet, places: &[At], names: &[&str]) -> Vec<Option<Area>> {
    let around =
        |(x, y): At, half: f64| Area { left: x - half, top: y - half, right: x + half, bottom: y + half };
    let mut taken: Vec<Area> = places.iter().map(|at| around(*at, MARK)).collect();
    let crowd = |at: usize| {
        let near = around(places[at], 60.0);
        places.iter().filter(|other| near.overlaps(&around(**other, 1.0))).count()
    };
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(crowd(*at)));
    let mut found = vec![None; places.len()];
    for at in order {
        let place = nearest_free(sheet, places[at], names[at], &taken);
        taken.extend(place);
        found[at] = place;
    }
    found
}

/// The free place for a name nearest to a mark; right of it before left of it, and beside it
/// before above or below.
fn nearest_free(sheet: &Sheet, (x, y): At, name: &str, taken: &[Area]) -> Option<Area> {
    const STEP: f64 = 5.0;
    let steps = |room: f64| -> i32 { measure::whole(room / STEP) };
    let (plot, line, width) = (sheet.plot, sheet.line_height(), sheet.text_width(name));
    let (rows, columns) = (steps(plot.bottom - plot.top), steps(plot.right - plot.left));
    let mut best: Option<(f64, Area)> = None;
    for row in -rows..=rows {
        let top = y - line / 2.0 + STEP * f64::from(row);
        if top < plot.top || top + line > plot.bottom {
            continue;
        }
        for column in -columns..=columns {
            let left = match column {
                0.. => x + MARK + 1.0 + STEP * f64::from(column),
                _ => x - MARK - 1.0 - width + STEP * f64::from(column + 1),
            };
            let place = Area { left, top, right: left + width, bottom: top + line };
            let near = place.nearest((x, y));
            let slant = f64::from(row.abs()) * 0.5 + if column < 0 { 1.0 } else { 0.0 };
            let cost = (near.0 - x).hypot(near.1 - y) + slant;
            let better = best.is_none_or(|(least, _)| cost < least);
            if better && plot.holds(&place) && !taken.iter().any(|other| place.overlaps(other)) {
                best = Some((cost, place));
            }
        }
    }
    best.map(|(_, place)| place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_covers_another_or_a_mark_however_crowded() {
        // Four knots of twelve marks each, as formats under one compression are.
        let places: Vec<(f64, f64)> = (0..48)
            .map(|i| {
                let (knot, at) = (f64::from(i / 12), f64::from(i % 12));
                (150.0 + 170.0 * knot + 3.0 * at, 90.0 + 100.0 * knot + (at * 7.0) % 11.0)
            })
            .collect();
        let names: Vec<&str> =
            (0..48).map(|i| ["json", "dannypack tuned", "cbor-schemaless"][i % 3]).collect();
        let found: Vec<Area> =
            labels(&Sheet::PICTURE, &places, &names).into_iter().map(Option::unwrap).collect();
        for (i, label) in found.iter().enumerate() {
            assert!(Sheet::PICTURE.plot.holds(label), "{label:?}");
            assert!(found[i + 1..].iter().all(|other| !label.overlaps(other)), "{i}: {label:?}");
            for (x, y) in &places {
                let mark = Area { left: x - 5.0, top: y - 5.0, right: x + 5.0, bottom: y + 5.0 };
                assert!(!label.overlaps(&mark), "{i}: {label:?} covers {mark:?}");
            }
        }
        // A mark with room has its name right beside it.
        let alone = labels(&Sheet::PICTURE, &[(300.0, 300.0)], &["json"])[0].unwrap();
        assert!((alone.left - 308.0).abs() < 0.1 && (alone.top - 293.0).abs() < 0.1, "{alone:?}");
    }
}
