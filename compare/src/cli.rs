//! The program's main: runs the chosen command and maps its outcome to an exit code.

mod agent;
mod break_even;
mod browser;
mod folder;
mod instructions;
mod links;
mod pilot;

use std::{
    env,
    ffi::OsString,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::SystemTime,
};

use anyhow::{Context, Result};
use cell::Factor;
use clap::{CommandFactory, FromArgMatches};
use codecs::Format;
use measure::{Environment, Exit, Status, command_line, utc};
use tempfile::TempDir;
use wire::Compression;

use self::{
    folder::Folder,
    pilot::{Pilot, Place, choose_rates, pilot},
};
use crate::{
    args::{Cli, Command, Run, SearchFlags, SearchMetric, SelftestFlags},
    assemble::Header,
    count::{NotInstalled, Program},
    generator::Generator,
    git,
    grants::{self, Question},
    matrix::{CellSpec, UnknownName, cells},
    plan::{Plan, Profile},
    precision,
    report::{self, Derived},
    result::{Config, Foreign, Git, Oracle, Probe, ResultFile, Role, Search, SelfTest},
    run::{Outcome, Stopped},
    search::{Probes, search},
    selftest,
    this_machine::ThisMachine,
    usage::{UsageError, read_corpus},
};

/// Does what the command line says. `args` begins with the program's name.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.collect();
    let names = format!(
        "Formats: {}\nCompressions: {}\n\nExample:\n  compare run --scenario note-stream --formats all --compressions none,deflate \
         --rounds 6",
        Format::all().map(Format::name).collect::<Vec<_>>().join(" "),
        Compression::NAMES.join(" ")
    );
    let command = Cli::command().mut_subcommand("run", |run| run.after_help(names));
    let cli = match command.try_get_matches_from(&args).and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => {
            // A closed stderr still leaves the exit code.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage } else { Exit::Success }.into();
        }
    };
    let done = match cli.command {
        Command::Run(flags) => measure(&flags, &args),
        Command::Agent(flags) => agent::attend_run(&flags),
        Command::Selftest(flags) => test_instrument(&flags),
        Command::Search(flags) => look_for(&flags, &args),
        Command::Browser(flags) => browser::measure(&flags, &args),
        Command::Instructions(flags) => instructions::count(&flags),
        Command::Export { dir, github_action_benchmark } => export(&dir, &github_action_benchmark),
        Command::Report { dir, readme, wide } => {
            rerender(&dir, readme.as_deref(), wide).map(|()| Exit::Success)
        }
        Command::Diff { before, after, force, strict } => diff(&before, &after, force, strict),
    };
    match done {
        Ok(exit) => exit.into(),
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error:#}");
            let usage = error.is::<UsageError>() || error.is::<UnknownName>();
            if usage { Exit::Usage } else { Exit::Error }.into()
        }
    }
}

/// Searches what the metric asks for.
fn look_for(flags: &SearchFlags, args: &[OsString]) -> Result<Exit> {
    let reason = flags.refusal().or_else(|| refused(&flags.client_args, false));
    if let Some(reason) = reason {
        let _ = writeln!(io::stderr(), "error: {reason}");
        return Ok(Exit::Usage);
    }
    flags.corpus.as_deref().map(|file| read_corpus(file, flags.skip_invalid)).transpose()?;
    Folder::try_out(&flags.out)?;
    match flags.metric {
        SearchMetric::Capacity => find_limits(flags, args),
        SearchMetric::BreakEvenBandwidth => break_even::find(flags, args),
    }
}

/// Searches capacities, reports each probe, and writes a result folder.
fn find_limits(flags: &SearchFlags, args: &[OsString]) -> Result<Exit> {
    let mut cells = cells(&flags.matrix().map_err(UsageError)?)?;
    let (url, ca) = (&flags.capacity.url, flags.capacity.ca.as_deref());
    // A relay of others has no floor.
    cells.retain(|cell| cell.role != Role::Control && (url.is_none() || cell.role != Role::Floor));
    let config = flags.config();
    let started = SystemTime::now();
    let program = env::current_exe().context("cannot find this program's own file")?;
    let running = tempfile::tempdir().context("cannot make a folder for records")?;
    let (foreign, answers) = match url {
        Some(url) => {
            let (corpus, skip_invalid) = (flags.corpus.as_deref(), flags.skip_invalid);
            let question = Question { client: &program, url, ca, corpus, skip_invalid };
            asked(&question, &mut cells, running.path())?
        }
        None => (None, None),
    };
    let (git, host) = (git::current(), Environment::collect());
    let machine = ThisMachine::new(&program, &config.as_run(), answers.as_deref());
    let mut probes = Probes::new(&machine, &cells, &config, running.path())?;
    let corpus = probes.corpus();
    let header = |status: Status| Header {
        command: command_line(args),
        git: git.clone(),
        host: host.clone(),
        started_utc: utc::format(started),
        status,
        config: Config { foreign: foreign.clone(), ..config.as_run() },
        selftest: None,
    };
    let folder = Folder::new(&flags.out, format!("{}-search-{}", utc::compact(started), config.seed));
    let mut so_far = Search::begun(config.clone(), cells.iter().map(|cell| cell.id.as_str()));
    let mut tell = |cell: &str, probe: &Probe| {
        let _ = writeln!(io::stderr(), "{cell}: {}", probe.line());
        so_far.add(cell, probe);
        folder.keep(&ResultFile::of_search(header(Status::Complete), so_far.clone(), corpus.get().cloned()));
    };
    let searched = search(&cells, &config, &flags.slo(), &mut probes, &mut tell);
    let found = searched.inspect_err(|_| folder.tell_left())?;
    if found.cells.iter().all(|cell| cell.probes.is_empty()) {
        let _ = writeln!(io::stderr(), "error: nothing was measured, so no result was written");
        return Ok(Exit::Interrupted);
    }
    let finished = found.finished;
    let status = match finished {
        true => Status::Complete,
        false => Status::Incomplete { reason: "interrupted".to_owned() },
    };
    let search = Search { config: config.clone(), cells: found.cells };
    let mut result = ResultFile::of_search(header(status), search, corpus.get().cloned());
    folder.publish(&mut result, false, |_, _| Ok(()))?;
    Ok(if finished { Exit::Success } else { Exit::Interrupted })
}

fn export(dir: &Path, file: &Path) -> Result<Exit> {
    try_file("--github-action-benchmark", Some(file))?;
    let entries = report::github_action_benchmark(&ResultFile::read(dir).map_err(UsageError)?);
    if entries.as_array().is_some_and(Vec::is_empty) {
        let _ = writeln!(
            io::stderr(),
            "error: {} has no ratio to JSON to export; those of `compare run` have them",
            dir.display()
        );
        return Ok(Exit::Usage);
    }
    let mut text = serde_json::to_string_pretty(&entries).context("a list serializes")?;
    text.push('\n');
    measure::write_whole(file, text.as_bytes())
        .with_context(|| format!("cannot write {}", file.display()))?;
    Ok(Exit::Success)
}

/// Runs the instrument's own tests and prints each result.
fn test_instrument(flags: &SelftestFlags) -> Result<Exit> {
    let options = selftest::Options {
        quick: flags.quick,
        only: flags.only.clone(),
        repeats: flags.repeats,
        rounds: flags.rounds,
        seconds: flags.seconds,
    };
    try_file("--out", flags.out.as_deref())?;
    let program = env::current_exe().context("cannot find this program's own file")?;
    let write = |found: &SelfTest| flags.out.iter().try_for_each(|file| found.write(file));
    let found = selftest::run(&program, &options, |found| {
        // A closed pipe still leaves the exit code, and a full disk what is printed.
        let line = found.oracles.last().map(Oracle::line);
        let _ = writeln!(io::stdout(), "{}", line.unwrap_or_default());
        if let Err(error) = write(found) {
            let _ = writeln!(io::stderr(), "warning: {error:#}");
        }
    })?;
    if let Some(untested) = &found.untested {
        let _ = writeln!(io::stderr(), "not tested: {untested}");
    }
    if found.oracles.is_empty() {
        // What was asked for by name could not be tested: that is no success.
        return Ok(Exit::Invalid);
    }
    write(&found)?;
    Ok(if found.passed() { Exit::Success } else { Exit::Invalid })
}

/// The self-test for the report: the given one, or a quick one made now for the publish profile.
fn selftest_for(flags: &Run) -> Result<Option<SelfTest>> {
    if let Some(file) = &flags.selftest {
        return Ok(Some(SelfTest::read(file).map_err(UsageError)?));
    }
    if flags.profile != Profile::Publish {
        return Ok(None);
    }
    let options = selftest::Options { quick: true, only: Vec::new(), repeats: 0, rounds: 0, seconds: 0 };
    let program = env::current_exe().context("cannot find this program's own file")?;
    let tell = |found: &SelfTest| {
        if let Some(oracle) = found.oracles.last().filter(|_| !flags.quiet) {
            let _ = writeln!(io::stderr(), "{}", oracle.line());
        }
    };
    selftest::run(&program, &options, tell).context("the instrument's own tests").map(Some)
}

fn diff(before: &Path, after: &Path, force: bool, strict: bool) -> Result<Exit> {
    let read = |dir: &Path| {
        let result = ResultFile::read(dir).map_err(UsageError)?;
        if let Some(reason) = result.incomplete() {
            let _ = writeln!(io::stderr(), "warning: {} is incomplete: {reason}", dir.display());
        }
        anyhow::Ok(result)
    };
    let (before, after) = (read(before)?, read(after)?);
    if let Some(kinds) = report::of_other_kinds(&before, &after) {
        let _ = writeln!(io::stderr(), "error: these do not compare: {kinds}");
        return Ok(Exit::Usage);
    }
    let unlike = report::unlike(&before, &after);
    if !unlike.is_empty() {
        let _ = writeln!(io::stderr(), "not comparable: {}", unlike.join("; "));
        if !force {
            let _ = writeln!(io::stderr(), "--force compares them all the same");
            return Ok(Exit::Usage);
        }
    }
    let diff = report::diff(&before, &after);
    if diff.changes.is_empty() {
        let _ = writeln!(
            io::stderr(),
            "error: nothing compares: the results share no cell with a figure in both (compare report shows each)"
        );
        return Ok(Exit::Inconclusive);
    }
    io::stdout().write_all(diff.terminal(columns()).as_bytes()).context("cannot write to stdout")?;
    Ok(match () {
        () if diff.any(report::Verdict::Worse) => Exit::Regression,
        () if strict && diff.any(report::Verdict::Inconclusive) => Exit::Inconclusive,
        () => Exit::Success,
    })
}

fn rerender(dir: &Path, readme: Option<&Path>, wide: bool) -> Result<()> {
    let result = ResultFile::read(dir).map_err(UsageError)?;
    try_file("--readme", readme)?;
    if let Some(file) = readme {
        let unread = || format!("cannot read {}", file.display());
        let document = fs::read_to_string(file).with_context(unread).map_err(UsageError)?;
        let document =
            report::refreshed(&document, dir, &result).with_context(|| format!("in {}", file.display()))?;
        measure::write_whole(file, document.as_bytes())
            .with_context(|| format!("cannot write {}", file.display()))?;
    }
    let folder = if dir.is_dir() { dir } else { dir.parent().unwrap_or(Path::new(".")) };
    let written = write_reports(&result, folder);
    show(&result, wide)?;
    written.map(|_| ())
}

fn measure(flags: &Run, args: &[OsString]) -> Result<Exit> {
    let matrix = flags.matrix().map_err(UsageError)?;
    let mut cells = cells(&matrix)?;
    let seconds = flags.block_seconds(matrix.values(Factor::Scenario));
    cells.retain(|cell| flags.measures(cell, seconds) && flags.over.can_play(cell));
    let git = git::current();
    let mut config = flags.config(matrix.values(Factor::Scenario).to_vec(), seconds);
    let arguments = || refused(&flags.client_args, flags.instructions);
    let over = || flags.over.refusal(flags.profile, flags.url.is_some());
    let profile = || refusal(flags.profile, &config, git.as_ref());
    if let Some(reason) = arguments().or_else(over).or_else(profile) {
        let _ = writeln!(io::stderr(), "error: {reason}");
        return Ok(Exit::Usage);
    }
    let chooses_rate = match flags.chooses_rate() {
        Ok(chooses) => chooses,
        Err(reason) => {
            let _ = writeln!(io::stderr(), "error: {reason}");
            return Ok(Exit::Usage);
        }
    };
    // Before anything is measured: without Valgrind nothing can be counted afterwards.
    let client = env::current_exe().context("cannot find this program's own file")?;
    let counter = match flags.instructions.then(|| Program::new(client.clone())).transpose() {
        Err(error) if error.is::<NotInstalled>() => {
            let _ = writeln!(io::stderr(), "error: {error:#}");
            return Ok(Exit::Usage);
        }
        counter => counter?,
    };
    flags.corpus.as_deref().map(|file| read_corpus(file, flags.skip_invalid)).transpose()?;
    Folder::try_out(&flags.out)?;
    let answering = tempfile::tempdir().context("cannot make a folder for a relay's answers")?;
    let mut answers = None;
    if let Some(url) = &config.url {
        let (ca, corpus, skip_invalid) = (flags.ca.as_deref(), flags.corpus.as_deref(), flags.skip_invalid);
        let question = Question { client: &client, url, ca, corpus, skip_invalid };
        (config.foreign, answers) = asked(&question, &mut cells, answering.path())?;
    }
    let note = |line: &str| {
        if !flags.quiet {
            // A closed stderr loses nothing that the result needs.
            let _ = writeln!(io::stderr(), "{line}");
        }
    };
    if let Some(reason) = links::size(flags.seconds, &mut config, &mut cells, note)? {
        let _ = writeln!(io::stderr(), "error: {reason}");
        return Ok(Exit::NotPossible);
    }
    if flags.is_longer(seconds) && config.seconds == seconds {
        note(&format!("Blocks of {seconds} s, so that each holds five bursts"));
    }
    let selftest = selftest_for(flags)?;
    if !is_of_this_commit(flags, selftest.as_ref(), git.as_ref()) {
        return Ok(Exit::Usage);
    }
    let host = Environment::collect();
    let header = |config: &Config, started: SystemTime| Header {
        command: command_line(args),
        git: git.clone(),
        host: host.clone(),
        started_utc: utc::format(started),
        status: Status::Complete,
        config: config.clone(),
        selftest: selftest.clone(),
    };
    let began = SystemTime::now();
    let commit = git.as_ref().map_or("nogit", |git| git.commit.get(..8).unwrap_or(&git.commit));
    let out = Folder::new(&flags.out, format!("{}-{commit}-{}", utc::compact(began), config.seed));
    if chooses_rate {
        let header = |config: &Config| header(config, began);
        let chosen = choose_rates(flags.quiet, &mut config, &mut cells, &header, &out);
        if !matches!(chosen, Ok(true)) {
            out.tell_left();
        }
        if !chosen? {
            let _ = writeln!(
                io::stderr(),
                "error: interrupted in the pilot of --rates auto, so no block was measured"
            );
            return Ok(Exit::Interrupted);
        }
    }
    let agents = agent::gather(flags, config.url.as_ref().zip(answers.as_deref()), &cells, config.seconds)?;
    let started = SystemTime::now();
    let folder = out.made()?;
    // Not in the result's folder, whose disk may be full. Records of agents are kept for people.
    let own = tempfile::tempdir().context("cannot make a folder for records")?;
    let running = match &agents {
        Some(_) => folder.join("running"),
        None => own.path().to_owned(),
    };
    fs::create_dir_all(&running).with_context(|| format!("cannot make {}", running.display()))?;
    let machine = ThisMachine::new(&client, &config, answers.as_deref());
    let generator: &dyn Generator = match &agents {
        Some(agents) => agents,
        None => &machine,
    };
    let place = Place { generator, cells: &cells, running: &running, folder, quiet: flags.quiet };
    let pilot = match flags.precision {
        Some(precision) => pilot(&place, &header(&config, started), precision, flags.max_time)?,
        None => Pilot::None,
    };
    let counted = |config: &Config| {
        place.measure(header(config, started), Plan::with_spare(place.cells, config.rounds, config.seed))
    };
    let (plan, outcome) = match pilot {
        Pilot::None => counted(&config)?,
        Pilot::Planned(planned) => {
            config.rounds = planned.rounds;
            config.planned_rounds = Some(planned);
            counted(&config)?
        }
        Pilot::Stopped(plan, outcome) => {
            config.rounds = precision::PILOT_ROUNDS;
            (plan, outcome)
        }
        Pilot::Refused(reason) => {
            // Agents' records of the pilot stay.
            if fs::remove_dir(&running).and_then(|()| out.abandon()).is_err() {
                let _ = writeln!(io::stderr(), "records of the pilot: {}", running.display());
            }
            agent::dismiss(agents);
            let _ = writeln!(io::stderr(), "error: {reason}");
            return Ok(Exit::Usage);
        }
    };
    let Outcome { blocks, status, stopped } = outcome;
    if blocks.iter().all(|(_, block)| block.record.is_none()) {
        // Removes empty folders; one with an unreadable record stays.
        let _ = fs::remove_dir(&running);
        let _ = out.abandon();
        leave(own);
        agent::dismiss(agents);
        let _ = writeln!(io::stderr(), "error: nothing was measured, so no result was written");
        return Ok(stopped_code(stopped).unwrap_or(Exit::Error));
    }

    let mut result =
        ResultFile::assemble(Header { status, ..header(&config, started) }, &cells, &plan, blocks);
    let published = out.publish(&mut result, flags.wide, |result, folder| {
        // Empty unless a record could not be read.
        let _ = fs::remove_dir(&running);
        if let Some(counter) = counter.filter(|_| stopped.is_none()) {
            instructions::count_for(result, &cells, &counter, folder)?;
        }
        report::write_intervals(result, started, folder)
    });
    leave(own);
    agent::dismiss(agents);
    Ok(exit_code(&result, &published?, stopped))
}

/// Removes the folder for clients' records, unless one is left that could not be read or kept.
fn leave(running: TempDir) {
    if fs::read_dir(running.path()).is_ok_and(|mut files| files.next().is_some()) {
        let _ = writeln!(io::stderr(), "records of clients: {}", running.keep().display());
    }
}

/// Asks a relay of others what it grants, and reports what is left out.
fn asked(
    question: &Question<'_>,
    cells: &mut Vec<CellSpec>,
    folder: &Path,
) -> Result<(Option<Foreign>, Option<PathBuf>)> {
    let (foreign, file) = grants::ask(question, cells, folder)?;
    let refused =
        foreign.refused_events.iter().map(|(reason, events)| format!("{events} events set aside: {reason}"));
    for note in foreign.declined.iter().cloned().chain(refused) {
        let _ = writeln!(io::stderr(), "{note}");
    }
    Ok((Some(foreign), Some(file)))
}

/// Why a profile does not measure from this source tree, or with blocks of this length.
fn refusal(profile: Profile, config: &Config, git: Option<&Git>) -> Option<String> {
    let unpublished = || git::publishable(git).err().filter(|_| profile == Profile::Publish);
    let too_short = |name: &String| client_sim::too_few_bursts(name, config.seconds);
    unpublished().or_else(|| config.scenarios.iter().find_map(too_short))
}

/// Whether the self-test may stand in the result; tells on stderr when another commit was tested,
/// which only what is published must not have.
fn is_of_this_commit(flags: &Run, selftest: Option<&SelfTest>, git: Option<&Git>) -> bool {
    let Some(difference) = selftest.and_then(|test| test.of_another_commit(git)) else { return true };
    let publish = flags.profile == Profile::Publish;
    let line = match publish {
        true => format!(
            "error: {difference}; make it anew (`compare selftest --out FILE`) or leave out --selftest"
        ),
        false => format!("warning: {difference}"),
    };
    let _ = writeln!(io::stderr(), "{line}");
    !publish
}

/// Why arguments for clients are refused: they set a factor of the matrix, or are not counted.
fn refused(client_args: &[String], instructions: bool) -> Option<String> {
    for factor in Factor::ALL.into_iter().filter(|factor| *factor != Factor::Rate) {
        let row = factor.row();
        let flag = format!("--{}", row.flag);
        let sets =
            |arg: &String| *arg == flag || arg.strip_prefix(&flag).is_some_and(|rest| rest.starts_with('='));
        if client_args.iter().any(sets) {
            let own = row.list_flag;
            return Some(format!(
                "{flag} is a factor of the matrix: give --{own} before the --, with one value or several"
            ));
        }
    }
    (instructions && !client_args.is_empty())
        .then(|| "--instructions counts without the arguments behind --: leave out either".to_owned())
}

/// Tries the file of a flag before anything is measured for it.
fn try_file(flag: &'static str, file: Option<&Path>) -> Result<()> {
    file.into_iter().try_for_each(measure::try_file).context(flag).map_err(UsageError)?;
    Ok(())
}

/// Writes everything that follows from a result.
fn write_reports(result: &ResultFile, folder: &Path) -> Result<Derived> {
    let write = |name: &str, text: String| {
        let file = folder.join(name);
        measure::write_whole(&file, text.as_bytes())
            .with_context(|| format!("cannot write {}", file.display()))
    };
    write("summary.md", report::summary(result))?;
    write("report.html", report::html(result)?)?;
    report::write_percentiles(result, folder)?;
    // A picture by itself would look whole.
    if result.incomplete().is_none() {
        report::write_pictures(result, folder)?;
    }
    let derived = Derived::of(result);
    derived.write(folder)?;
    Ok(derived)
}

/// The columns of the terminal that stdout is, or else those of COLUMNS.
fn columns() -> Option<usize> {
    let terminal = terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| usize::from(width.0));
    let stated = || env::var("COLUMNS").ok()?.parse().ok();
    terminal.filter(|columns| *columns > 0).or_else(stated).filter(|columns| *columns > 0)
}

fn show(result: &ResultFile, wide: bool) -> Result<()> {
    io::stdout()
        .write_all(report::terminal_of(result, wide, columns()).as_bytes())
        .context("cannot write to stdout")
}

/// The exit code of the worst outcome.
fn exit_code(result: &ResultFile, derived: &Derived, stopped: Option<Stopped>) -> Exit {
    // The floor is no format.
    let cells = || result.cells.iter().filter(|cell| cell.role != Role::Floor);
    let ended = |exit: &Exit| cells().flat_map(|cell| &cell.blocks).any(|block| exit.is(block.exit_code));
    if let Some(code) = stopped_code(stopped) {
        return code;
    }
    if let Some(exit) = [Exit::Unbalanced, Exit::Incomplete].into_iter().find(ended) {
        return exit;
    }
    let unrecorded = cells().flat_map(|cell| &cell.blocks).any(|block| block.record.is_none());
    if unrecorded || result.status != Status::Complete {
        return Exit::Error;
    }
    let empty = cells().any(|cell| cell.blocks.iter().all(|block| block.usable().is_none()));
    let missed = derived.slos.iter().any(|one| !one.met);
    match () {
        () if empty => Exit::Invalid,
        () if missed => Exit::BoundMissed,
        () => Exit::Success,
    }
}

fn stopped_code(stopped: Option<Stopped>) -> Option<Exit> {
    match stopped? {
        Stopped::Usage => Some(Exit::Usage),
        Stopped::Interrupted => Some(Exit::Interrupted),
        Stopped::AgentsLost => Some(Exit::Incomplete),
        Stopped::Failing => None,
    }
}
