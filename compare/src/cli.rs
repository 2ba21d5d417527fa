//! The program's main: runs the chosen command and maps its outcome to an exit code.

mod agent;
mod browser;
mod contribute;
mod folder;
mod instructions;
mod last;
mod links;
mod plan;
mod rates;
mod run;
mod search;
mod site;

use std::{
    env,
    ffi::OsString,
    fs,
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use anyhow::{Context, Result, anyhow};
use cell::Factor;
use clap::CommandFactory;
use measure::Exit;

pub(crate) use self::folder::Folder;
use crate::{
    args::{Cli, Command},
    run::Stopped,
    selftest,
    usage::Ended,
};
use program::UsageError;
use report::{
    Report,
    result::{Oracle, ResultFile, SelfTest},
};

/// Does what the command line says. `args` begins with the program's name.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.collect();
    let cli = match program::parse::<Cli>(&args) {
        Ok(cli) => cli,
        Err(not_parsed) => return not_parsed.code,
    };
    let done = match cli.command {
        Command::Run(flags) => run::measure(&flags, &args),
        Command::Agent(flags) => agent::attend_run(&flags),
        Command::Selftest(flags) => test_instrument(&flags),
        Command::Search(flags) => search::find(&flags, &args),
        Command::Plan(flags) => plan::plan(&flags),
        Command::Browser(flags) => browser::measure(&flags, &args),
        Command::Instructions(flags) => instructions::count(&flags),
        Command::Contribute { dir, provenance, paid_by } => contribute::check(&dir, provenance, paid_by),
        Command::Report { dir, splice, wide, csv } => match (dir, splice) {
            (Some(dir), _) => rerender(&dir, wide, csv.as_deref()),
            (None, file) => file.map_or(Ok(()), |file| splice_file(&file)),
        }
        .map(|()| Exit::Success),
        Command::Site { dir, results } => site::write(&dir, &results).map(|()| Exit::Success),
        Command::Diff { before, after, force, strict } => diff(&before, &after, force, strict),
    };
    match done {
        Ok(exit) => exit.into(),
        Err(error) => {
            program::report(&format!("error: {error:#}"));
            if let Some(ended) = error.downcast_ref::<Ended>() {
                return ended.exit.into();
            }
            if error.is::<UsageError>() { Exit::Usage } else { Exit::Error }.into()
        }
    }
}

/// Runs the instrument's own tests and prints each result.
fn test_instrument(flags: &selftest::Options) -> Result<Exit> {
    try_file("--out", flags.out.as_deref())?;
    let program = measure::own_program().context("cannot find this program's own file")?;
    let write = |found: &SelfTest| flags.out.iter().try_for_each(|file| found.write(file));
    let found = selftest::run(&program, flags, |found| {
        // A closed pipe still leaves the exit code, and a full disk what is printed.
        let line = found.oracles.last().map(Oracle::line);
        let _ = writeln!(io::stdout(), "{}", line.unwrap_or_default());
        if let Err(error) = write(found) {
            program::report(&format!("warning: {error:#}"));
        }
    })?;
    if let Some(untested) = &found.untested {
        program::report(&format!("not tested: {untested}"));
    }
    if found.oracles.is_empty() {
        // A test asked for by name that could not run is no success.
        return Ok(Exit::Invalid);
    }
    write(&found)?;
    Ok(if found.passed() { Exit::Success } else { Exit::Invalid })
}

fn diff(before: &Path, after: &Path, force: bool, strict: bool) -> Result<Exit> {
    let read = |dir: &Path| {
        let result = ResultFile::read(dir).map_err(UsageError)?;
        if let Some(reason) = result.incomplete() {
            program::report(&format!("warning: {} is incomplete: {reason}", dir.display()));
        }
        anyhow::Ok(result)
    };
    let (before, after) = (read(before)?, read(after)?);
    let unlike = report::unlike(&before, &after);
    if !unlike.is_empty() {
        program::report(&format!("not comparable: {}", unlike.join("; ")));
        if !force {
            program::report("--force compares them all the same");
            return Ok(Exit::Usage);
        }
    }
    let diff = report::diff(&before, &after);
    if diff.changes.is_empty() {
        program::report(
            "error: nothing compares: the results share no cell with a figure in both (compare report shows each)",
        );
        return Ok(Exit::Inconclusive);
    }
    program::print(&diff.terminal(columns()))?;
    Ok(match () {
        () if diff.any(report::Verdict::Worse) => Exit::Regression,
        () if strict && diff.any(report::Verdict::Inconclusive) => Exit::Inconclusive,
        () => Exit::Success,
    })
}

fn rerender(dir: &Path, wide: bool, csv: Option<&Path>) -> Result<()> {
    let result = ResultFile::read(dir).map_err(UsageError)?;
    try_file("--csv", csv)?;
    let report = Report::from_result(&result);
    let folder = if dir.is_dir() { dir } else { dir.parent().unwrap_or(Path::new(".")) };
    let written = write_reports(&report, &result, folder);
    show(&report, wide)?;
    written?;
    csv.map_or(Ok(()), |file| write_csv(&report, file))
}

/// Writes the tables of throughput for `--csv`.
fn write_csv(report: &Report<'_>, file: &Path) -> Result<()> {
    let none = "--csv has the tables of throughput, and no cell is measured at its limit: \
                compare run --saturate relay,clients measures them";
    let text = report.csv().ok_or_else(|| UsageError(anyhow!(none)))?;
    measure::write_whole(file, text.as_bytes()).with_context(|| format!("cannot write {}", file.display()))
}

/// Makes the generated blocks of a document anew.
fn splice_file(file: &Path) -> Result<()> {
    let unread = || format!("cannot read {}", file.display());
    let document = fs::read_to_string(file).with_context(unread).map_err(UsageError)?;
    let folder = file.parent().unwrap_or(Path::new("."));
    let document = report::splice(&document, folder).with_context(|| format!("in {}", file.display()))?;
    measure::write_whole(file, document.as_bytes())
        .with_context(|| format!("cannot write {}", file.display()))
}

/// Why arguments after `--` are refused: the command has such a flag for the whole run.
pub(crate) fn refused(command: &str, client_args: &[String]) -> Option<String> {
    let program = Cli::command();
    let own = program.find_subcommand(command).into_iter().flat_map(clap::Command::get_arguments);
    let own = own.flat_map(|arg| arg.get_long().into_iter().chain(arg.get_all_aliases().unwrap_or_default()));
    // A search varies some factors, which have no flag there.
    let factors = Factor::ALL.into_iter().filter(|factor| *factor != Factor::Rate);
    for name in own.chain(factors.map(|factor| factor.row().name)) {
        let flag = format!("--{name}");
        if client_args.iter().any(|arg| sets(arg, &flag)) {
            return Some(format!("give {flag} before the --: compare {command} has it for all of a run"));
        }
    }
    client_args.iter().any(|arg| sets(arg, "--relay-at")).then(|| {
        "give a relay's address before the --, by --url: results repeat the arguments after it".to_owned()
    })
}

/// Whether an argument is this flag, with or without its value.
fn sets(arg: &str, flag: &str) -> bool {
    arg.strip_prefix(flag).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
}

/// Tries the file of a flag before anything is measured for it.
fn try_file(flag: &'static str, file: Option<&Path>) -> Result<()> {
    file.into_iter().try_for_each(measure::try_file).context(flag).map_err(UsageError)?;
    Ok(())
}

/// Writes everything that follows from a result.
fn write_reports(report: &Report<'_>, result: &ResultFile, folder: &Path) -> Result<()> {
    let write = |name: &str, text: String| {
        let file = folder.join(name);
        measure::write_whole(&file, text.as_bytes())
            .with_context(|| format!("cannot write {}", file.display()))
    };
    write("summary.md", report.summary())?;
    write("observations.csv", report::observations(result))?;
    write("report.html", report.html()?)?;
    report.derived.write(folder)
}

/// The columns of the terminal that stdout is, or else those of COLUMNS.
fn columns() -> Option<usize> {
    let terminal = terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| usize::from(width.0));
    let stated = || env::var("COLUMNS").ok()?.parse().ok();
    terminal.filter(|columns| *columns > 0).or_else(stated).filter(|columns| *columns > 0)
}

fn show(report: &Report<'_>, wide: bool) -> Result<()> {
    program::print(&report.terminal(wide, columns()))
}

fn stopped_code(stopped: Option<Stopped>) -> Option<Exit> {
    match stopped? {
        Stopped::Usage => Some(Exit::Usage),
        Stopped::Interrupted => Some(Exit::Interrupted),
        Stopped::Over => Some(Exit::Incomplete),
        Stopped::Failing => None,
    }
}
