//! `compare instructions`.

use std::{
    env, fs,
    io::{self, Write},
    path::Path,
};

use anyhow::{Context, Result};
use measure::Exit;

use crate::{
    args::InstructionFlags,
    count::{self, NotInstalled, Play, Program},
    matrix::{CellSpec, Known, cells},
    report::{self, FAILS},
    result::{INSTRUCTIONS_FILE, Instructions, ResultFile},
};

/// Seconds of a plan whose cells are counted beside what is measured: two bursts of every bundled
/// scenario, or two periods of it.
const SECONDS: f64 = 2.0;

/// What stands above the committed table.
const HEAD: &str = "\
# Instructions of the hot paths

Made by `compare instructions --hot-paths --check FILE --accept`
([how, and what changes counts](decisions/instructions.md)); compiler, Valgrind, C library and
processor are in `instructions.json`. Instructions in user space for each event, message or
delivery: not time.

- `codec`: the relay's side encodes an event, the client's decodes its EVENT message; 300 events
  from all over the bundled corpus.
- `wire`: the relay's side sends such a message in JSON, the client's receives it.
- `verify`: the check of an event (NIP-01): SHA-256 of its id and BIP-340.
- `play`: a scenario at both ends, without verification; `steady` is the second half of its plan.
";

/// Counts, prints the table, and writes or checks what was counted.
pub(super) fn count(flags: &InstructionFlags, known: &Known) -> Result<Exit> {
    let file = match &flags.program {
        Some(file) => file.clone(),
        None => env::current_exe().context("cannot find this program's own file")?,
    };
    let program = match Program::new(file) {
        Err(error) if error.is::<NotInstalled>() => {
            let _ = writeln!(io::stderr(), "error: {error:#}");
            return Ok(Exit::Usage);
        }
        program => program?,
    };
    let (counted, table) = if flags.hot_paths {
        let (only, plant) = (flags.only.as_deref(), flags.plant.as_deref());
        let counted = count::count_hot_paths(&program, only, plant, &tell)?;
        let table = counted.paths();
        (counted, table)
    } else {
        let cells = cells(known, &flags.matrix())?;
        let play = Play { seconds: flags.seconds, seed: flags.seed, corpus: flags.corpus.as_deref() };
        let counted = count::count_cells(&program, &cells, &play, &tell)?;
        let table = counted.matrix(&cells);
        (counted, table)
    };
    print(&format!("{}\n{}\n", table.text(), counted.note()))?;
    if let Some(file) = &flags.out {
        counted.write(file)?;
    }
    match &flags.check {
        Some(file) if flags.accept => accept(&counted, file),
        Some(file) => check(&counted, file, flags.only.as_deref()),
        None => Ok(Exit::Success),
    }
}

/// Counts the cells of a run once, since counts have no noise, and writes them beside the result.
pub(super) fn count_for(
    result: &mut ResultFile,
    cells: &[CellSpec],
    program: &Program,
    folder: &Path,
) -> Result<()> {
    let play = Play { seconds: SECONDS, seed: result.config.seed, corpus: result.config.corpus.as_deref() };
    let counted = count::count_cells(program, cells, &play, &tell)?;
    counted.write(&folder.join(INSTRUCTIONS_FILE))?;
    result.instructions = Some(counted);
    Ok(())
}

/// Makes the counts the committed ones, and writes them as a table beside the file.
fn accept(counted: &Instructions, file: &Path) -> Result<Exit> {
    counted.write(file)?;
    let table = file.with_extension("md");
    let text = format!("{}\n{}", HEAD, counted.paths().markdown());
    fs::write(&table, text).with_context(|| format!("cannot write {}", table.display()))?;
    let _ = writeln!(io::stderr(), "accepted: {}", file.display());
    Ok(Exit::Success)
}

/// Compares with the committed counts.
fn check(counted: &Instructions, file: &Path, only: Option<&str>) -> Result<Exit> {
    let found = report::check(&Instructions::read(file)?, counted, only);
    if !found.changed.is_empty() {
        print(&format!("\nAgainst {}:\n{}", file.display(), found.changed.text()))?;
    }
    for difference in &found.differs {
        print(&format!("not compared with {}: {difference}\n", file.display()))?;
    }
    if found.passed() {
        return Ok(Exit::Success);
    }
    let limit = FAILS * 100.0;
    for side in &found.failed {
        let _ = writeln!(io::stderr(), "error: {side}: more than {limit:.0} % above {}", file.display());
    }
    for path in &found.unmatched {
        let _ = writeln!(io::stderr(), "error: {path}");
    }
    let _ = writeln!(
        io::stderr(),
        "Where that is wanted: the same command with --accept writes {}, which is committed with the change",
        file.display()
    );
    Ok(Exit::Regression)
}

fn tell(section: &str) {
    // A closed stderr does not end a count.
    let _ = writeln!(io::stderr(), "counted {section}");
}

fn print(text: &str) -> Result<()> {
    io::stdout().write_all(text.as_bytes()).context("cannot write to stdout")
}
