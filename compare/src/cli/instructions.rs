//! `compare instructions`.

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use measure::Exit;
use program::{print, report as say};
use serde_json::json;

use super::{columns, try_file};
use crate::{
    args::InstructionFlags,
    count::Program,
    matrix::{CellSpec, cells, references},
    usage::{SKIP_INVALID, refuse},
};
use program::UsageError;
use report::result::{Instructions, Role};

/// Counts, prints the table, and writes or checks what was counted.
pub(super) fn count(flags: &InstructionFlags) -> Result<Exit> {
    try_file("--out", flags.out.as_deref())?;
    if let Some(file) = flags.check.as_deref().filter(|_| flags.accept) {
        try_file("--check", Some(file))?;
        try_file("--accept", Some(&table_of(file)))?;
    }
    let file = match &flags.program {
        Some(file) => file.clone(),
        None => env::current_exe().context("cannot find this program's own file")?,
    };
    let program = Program::new(file)?;
    // Before minutes of counting.
    let committed = flags.check.as_deref().filter(|_| !flags.accept).map(Instructions::read).transpose();
    let committed = committed.map_err(UsageError)?;
    let (counted, table) = if flags.hot_paths {
        let given = [("--only", &flags.only), ("--plant", &flags.plant)];
        let given = given.into_iter().filter_map(|(flag, value)| Some([flag.to_owned(), value.clone()?]));
        let counted = program.count(&given.flatten().collect::<Vec<_>>())?;
        let table = counted.paths();
        (counted, table)
    } else {
        let cells = cells(&flags.matrix())?;
        let why =
            "instructions are counted of relay and clients alone, in one process: leave out --via gateway";
        refuse(cells.iter().any(|cell| cell.cell.via_gateway).then_some(why))?;
        let counted = program.count(&played(flags, &cells))?;
        let table = counted.cells(references(&cells).into_iter());
        (counted, table)
    };
    let printed = print(&format!("{}\n{}\n", table.text(columns()), counted.note()));
    // The file whatever becomes of stdout.
    flags.out.iter().try_for_each(|file| counted.write(file))?;
    printed?;
    match (&flags.check, committed) {
        (Some(file), Some(committed)) => check(&committed, &counted, file, flags.only.as_deref()),
        (Some(file), None) => accept(&counted, file),
        (None, _) => Ok(Exit::Success),
    }
}

/// Arguments that play the scenario in each cell; controls and floors are left out.
fn played(flags: &InstructionFlags, cells: &[CellSpec]) -> Vec<String> {
    let InstructionFlags { scenario, seconds, seed, .. } = flags;
    let mut args = vec!["--scenario".to_owned(), scenario.clone()];
    args.extend(["--seconds".to_owned(), seconds.to_string(), "--seed".to_owned(), seed.to_string()]);
    args.extend(flags.events.corpus.iter().flat_map(|file| ["--corpus".to_owned(), file.clone()]));
    args.extend(flags.events.skip_invalid.then(|| SKIP_INVALID.to_owned()));
    for cell in cells.iter().filter(|cell| matches!(cell.role, Role::Anchor | Role::Cell)) {
        args.extend(["--cell".to_owned(), json!({ "id": cell.id, "cell": cell.cell }).to_string()]);
    }
    args
}

/// Makes the counts the committed ones, and writes them as a table beside the file. Counts that did
/// not repeat are refused.
fn accept(counted: &Instructions, file: &Path) -> Result<Exit> {
    let unsteady = report::unsteady(counted);
    for row in &unsteady {
        let (name, percent) = (&row.name, row.repeat_difference * 100.0);
        say(&format!("error: {name}: two counts differ by {percent:.2} %; count again"));
    }
    if !unsteady.is_empty() {
        return Ok(Exit::Inconclusive);
    }
    counted.write(file)?;
    let table = table_of(file);
    measure::write_whole(&table, counted.page().as_bytes())
        .with_context(|| format!("cannot write {}", table.display()))?;
    say(&format!("accepted: {}", file.display()));
    Ok(Exit::Success)
}

/// Where counts stand as a table beside their file.
fn table_of(file: &Path) -> PathBuf {
    file.with_extension("md")
}

/// Compares with the committed counts.
fn check(committed: &Instructions, counted: &Instructions, file: &Path, only: Option<&str>) -> Result<Exit> {
    let found = report::check(committed, counted, only);
    if !found.changed.is_empty() {
        print(&format!("\nAgainst {}:\n{}", file.display(), found.changed.text(columns())))?;
    }
    if !found.differs.is_empty() {
        say(&format!("NOT CHECKED, for these counts are not comparable with {}:", file.display()));
        found.differs.iter().for_each(|difference| say(&format!("  {difference}")));
        return Ok(Exit::Inconclusive);
    }
    if found.failed.is_empty() {
        return Ok(Exit::Success);
    }
    found.failed.iter().for_each(|why| say(&format!("error: {why}")));
    let command: Vec<_> = env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect();
    match only {
        None => {
            say(&format!("Where that is wanted, commit what this writes:\n  {} --accept", command.join(" ")));
        }
        Some(_) => say("Where that is wanted: without --only, --accept writes what is committed"),
    }
    Ok(Exit::Regression)
}
