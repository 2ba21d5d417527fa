//! Outline of a run before its first block: cells by family, blocks and time, and the differences
//! that its rounds find.

use report::{power, result::Config};

use crate::{
    matrix::CellSpec,
    plan::BlockOrder,
    primary::{self, judged},
};

/// What `--dry-run` prints.
pub(crate) fn outline(cells: &[CellSpec], config: &Config) -> String {
    let plan = BlockOrder::new(cells, config.rounds, config.seed);
    let minutes = plan.estimate(cells, config.seconds).as_secs_f64() / 60.0;
    let (blocks, seconds, rounds) = (plan.blocks(), config.seconds, report::rounds(config.rounds));
    let named = |is_primary: bool| {
        let of = judged(cells).filter(|cell| config.primary.contains(&cell.id) == is_primary);
        of.map(|cell| cell.id.as_str()).collect::<Vec<_>>().join(" ")
    };
    let families = if config.primary.is_empty() {
        vec![("Cells", named(false))]
    } else {
        vec![("Primary", named(true)), ("Secondary", named(false))]
    };
    let families = families.into_iter().filter(|(_, cells)| !cells.is_empty());
    let families: String = families.map(|(family, cells)| format!("{family}: {cells}\n")).collect();
    format!(
        "{blocks} blocks of {seconds} s in {rounds}, {minutes:.0} min\n{families}{}\n",
        power(cells, config)
    )
}

/// What the planned rounds find, in a line.
pub(crate) fn power(cells: &[CellSpec], config: &Config) -> String {
    let largest = |is: &dyn Fn(&CellSpec) -> bool| {
        let loads = primary::loads(cells).map(|load| judged(load).filter(|cell| is(cell)).count());
        loads.max().unwrap_or(0)
    };
    let primary = largest(&|cell| config.primary.contains(&cell.id));
    let plan = power::Design {
        rounds: config.rounds,
        cells: if primary > 0 { primary } else { largest(&|_| true) },
        is_primary: primary > 0,
        is_over_links: cells.iter().any(|cell| cell.cell.link.is_some()),
        pilot: config.planned_rounds.as_ref().map(|planned| &planned.deviations),
    };
    plan.power()
}
