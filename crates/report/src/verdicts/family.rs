//! Families of verdicts: the cells that Holm's correction is over.
//!
//! A primary family is named before the first block and has few cells, so that its correction costs
//! little; all other cells are corrected apart from it.
use crate::{
    result::Role,
    statistics::judge::{Family, is_corrected},
    view::{CellView, LoadView},
};

impl LoadView<'_> {
    fn is_primary(&self, view: &CellView<'_>) -> bool {
        view.cell.role == Role::Cell && self.result.config.primary.contains(&view.cell.id)
    }

    /// The family of a cell; `None` where the load has no primary one, and of anchor, control and
    /// floor.
    pub(crate) fn family(&self, view: &CellView<'_>) -> Option<Family> {
        let named = self.cells.iter().any(|view| self.is_primary(view));
        let family = if self.is_primary(view) { Family::Primary } else { Family::Secondary };
        (named && view.cell.role == Role::Cell).then_some(family)
    }

    /// The cells of the plan in a family.
    pub(crate) fn in_family(&self, family: Option<Family>) -> usize {
        let is_in = |view: &&CellView<'_>| view.cell.role == Role::Cell && self.family(view) == family;
        self.cells.iter().filter(is_in).count()
    }

    /// Whether verdicts of a family are corrected: by the plan's rounds and cells, independent of
    /// the data.
    pub(crate) fn is_corrected(&self, family: Option<Family>) -> bool {
        is_corrected(self.result.config.rounds, self.in_family(family))
    }

    /// Which cells are primary and which are not, in a sentence; `None` where all are of one
    /// family.
    pub(crate) fn family_line(&self) -> Option<String> {
        let secondary = self.in_family(Some(Family::Secondary));
        let primary: Vec<&str> = (self.cells.iter().filter(|view| self.is_primary(view)))
            .map(|view| view.cell.id.as_str())
            .collect();
        (secondary > 0).then(|| {
            format!(
                "Primary cells (pre-registered, Holm-corrected): {}. Secondary, corrected apart, for another run to \
                 confirm: {secondary} more.",
                primary.join(", ")
            )
        })
    }
}

/// The correction of every family, in a clause.
pub(crate) fn correction(loads: &[LoadView<'_>], rounds: u32) -> String {
    let of_family = |family: &Option<Family>| {
        let cells = loads.iter().map(|load| load.in_family(*family)).max().filter(|cells| *cells > 0)?;
        let named = Family::of_cells(*family);
        let of_cells = if cells == 1 { format!("one {named}cell") } else { format!("{cells} {named}cells") };
        Some(match loads.iter().all(|load| load.is_corrected(*family)) {
            true if cells == 1 => format!("corrected by Holm over {of_cells}"),
            true => format!("corrected by Holm over the {of_cells}"),
            false => format!(
                "not corrected for {of_cells}: with {rounds} rounds no correction could find anything, so \
                 each verdict stands alone at 5 %"
            ),
        })
    };
    let all: Vec<String> = Family::ALL.iter().filter_map(of_family).collect();
    if all.is_empty() { "corrected by Holm over no cell".to_owned() } else { all.join("; apart from these ") }
}
