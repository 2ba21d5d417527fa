//! The command line: what a person asks for, and what the exit code answers.

use std::{
    env,
    ffi::OsString,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, SystemTime},
};

use anyhow::{Context, Result};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use measure::{Environment, Status, utc};

use crate::{
    Config, Header, Known, Matrix, Plan, Profile, ResultFile, Role, cells, git,
    progress::Progress,
    report,
    run::{self, Interrupt, Outcome, Request, Stopped},
    search::{self, SearchConfig},
    selftest::{self, SelfTest},
    slo::Slo,
};

/// Something unexpected: an unreadable file, a client that cannot be started.
const EXIT_ERROR: u8 = 1;
/// An SLO was missed.
const EXIT_SLO: u8 = 99;
/// `diff` found something worse.
const EXIT_REGRESSION: u8 = 100;
/// `diff --strict` could not tell.
const EXIT_INCONCLUSIVE: u8 = 101;
/// 128 + SIGINT, as shells have it.
const EXIT_INTERRUPTED: u8 = 130;

/// A block is a little longer than its seconds: the relay starts, the corpus is read.
const BLOCK_OVERHEAD: Duration = Duration::from_secs(2);

#[derive(Debug, Parser)]
#[command(
    name = "compare",
    version,
    about = "Which wire format, with which compression, should Nostr clients and relays speak?",
    long_about = "Which wire format, with which compression, should Nostr clients and relays speak?\n\n\
        Measures every format with every compression in fresh client and relay processes, in random order within \
        rounds, and shows what each would buy against JSON.",
    after_long_help = "Examples:\n  \
        compare run                      every format, uncompressed, deflate and zstd, briefly\n  \
        compare run --profile standard   12 rounds of 10 s\n  \
        compare run --formats json,capnp --compressions none --verify full,none\n  \
        compare run --scenario note-stream --compressions none,deflate --batching off,on\n  \
        compare selftest --quick         is the instrument right?\n  \
        compare report results/20261121T080509Z-1a2b3c4d-1\n\n\
        Exit codes: 0 fine, 1 error, 2 usage, 3 a cell has no valid block or a test of the instrument failed, 4 events lost or altered, 5 relay lost, \
        99 an SLO was missed, 100 diff found a regression, 101 diff --strict is inconclusive, 130 interrupted (what was measured is kept)."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure, write a result folder, show the table
    Run(Box<Run>),
    /// Show the table of a result folder again and rewrite its summary.md and report.html, from result.json alone
    Report {
        /// The folder that `compare run` wrote
        dir: PathBuf,
    },
    /// Test the instrument itself: make the relay, the host or the plan misbehave by a known amount and look for it in
    /// the result
    Selftest(SelftestFlags),
    /// Find the highest rate that each cell sustains under an SLO
    Search(Box<SearchFlags>),
    /// Write a result for another tool
    Export {
        /// The folder that `compare run` wrote
        dir: PathBuf,
        /// Ratios to JSON, for github-action-benchmark with `tool: customSmallerIsBetter`
        #[arg(long, value_name = "FILE")]
        github_action_benchmark: PathBuf,
    },
    /// Say what became better or worse between two results, each cell compared with JSON in its own run
    Diff {
        /// The folder of the earlier result
        before: PathBuf,
        /// The folder of the later result
        after: PathBuf,
        /// Compare even if corpus, scenarios or host differ
        #[arg(long)]
        force: bool,
        /// Exit with 101 when anything is inconclusive
        #[arg(long)]
        strict: bool,
    },
}

#[derive(Debug, Args)]
struct SearchFlags {
    /// What is sent: a scenario that publishes at a rate, by name or TOML file
    #[arg(long, default_value = "note-stream")]
    scenario: String,
    /// Wire formats, separated by commas, core or all; JSON without compression is always among them
    #[arg(long, value_delimiter = ',', default_value = "core")]
    formats: Vec<String>,
    /// Compressions, separated by commas, or all
    #[arg(long, value_delimiter = ',', default_value = "none")]
    compressions: Vec<String>,
    /// Batches, separated by commas: off, on, or on with the relay's limits (on:ms=2:n=16:bytes=8192)
    #[arg(long, value_delimiter = ',', default_value = "off")]
    batching: Vec<String>,
    /// Who wrote the codecs: library or tuned
    #[arg(long, value_delimiter = ',', default_value = "library")]
    implementation: Vec<String>,
    /// What the relay checks: full, id or none
    #[arg(long, value_delimiter = ',', default_value = "full")]
    verify: Vec<String>,
    /// What must hold: bounds separated by commas, on p50, p90, p99, p99.9, lost, rejected, achieved, relay_cpu, wire_bytes
    #[arg(long, default_value = "p99<10ms, lost=0, achieved>=0.99")]
    slo: Slo,
    /// The first rate, in events published per second
    #[arg(long, default_value_t = 250, value_parser = clap::value_parser!(u32).range(1..))]
    start: u32,
    /// No probe goes beyond this rate
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    limit: u32,
    /// Seconds of a probe
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=60))]
    probe_seconds: u32,
    /// How far apart the ends of a bracket may be, as a share
    #[arg(long, default_value_t = 0.05, value_parser = precision)]
    precision: f64,
    /// How often each end is repeated
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=100))]
    confirmations: u32,
    /// Leave out p99 at 10 to 95 % of the lowest limit
    #[arg(long)]
    no_curve: bool,
    /// Events to send [default: the bundled sample]
    #[arg(long)]
    corpus: Option<String>,
    /// Decides the order of the probes and everything random in the load
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the result folder is made
    #[arg(long, default_value = "results")]
    out: PathBuf,
    /// Further arguments for every client, after --
    #[arg(last = true)]
    client_args: Vec<String>,
}

fn precision(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok().filter(|share| (0.001..=1.0).contains(share));
    share.ok_or_else(|| "expected a share from 0.001 to 1, as in 0.05".to_owned())
}

#[derive(Debug, Args)]
struct SelftestFlags {
    /// Only the tests that take seconds, and the shorter form of each
    #[arg(long)]
    quick: bool,
    /// Only these tests, separated by commas: stall, delay, cpu, starved, bytes, workers, killed, a-a, plus-10
    #[arg(long, value_delimiter = ',', value_name = "NAMES", value_parser = selftest::names())]
    only: Vec<String>,
    /// Write the result as JSON, for `compare run --selftest FILE`
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// How often the trials (a-a, plus-10) are repeated
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
    /// Rounds of a trial
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(6..=i64::from(crate::stats::MAX_PAIRS)))]
    rounds: u32,
    /// Seconds of a trial's block
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
}

#[derive(Debug, Args)]
struct Run {
    /// A TOML file that states any of scenarios, formats, compressions, batchings, implementations, verifications, rates_per_s;
    /// flags replace what it says
    #[arg(long, value_name = "FILE")]
    matrix: Option<PathBuf>,
    /// What is sent: scenario names or TOML files, separated by commas [default: mixed-day]
    #[arg(long, value_delimiter = ',')]
    scenario: Option<Vec<String>>,
    /// Wire formats, separated by commas, core (those of the question) or all. JSON without compression is always
    /// measured: every ratio refers to it [default: core]
    #[arg(long, value_delimiter = ',')]
    formats: Option<Vec<String>>,
    /// Compressions, separated by commas, each with parameters if need be (deflate:level=4:min_bytes=100), or all
    /// [default: none,deflate,zstd]
    #[arg(long, value_delimiter = ',')]
    compressions: Option<Vec<String>>,
    /// Batches, separated by commas: off is one event a message, on lets the relay put several events of a subscription
    /// into one; its limits behind colons (on:ms=2:n=16:bytes=8192) [default: off]
    #[arg(long, value_delimiter = ',')]
    batching: Option<Vec<String>>,
    /// Who wrote the codecs, separated by commas, or all: library is what an adopter gets today, tuned is what the format
    /// can do [default: library]
    #[arg(long, value_delimiter = ',')]
    implementation: Option<Vec<String>>,
    /// What the relay checks before it accepts an event, separated by commas: full, id or none [default: full]
    #[arg(long, value_delimiter = ',')]
    verify: Option<Vec<String>>,
    /// Events published per second, separated by commas, instead of the scenario's rate; several draw p99 against rate
    #[arg(long, value_delimiter = ',', value_name = "PER_SECOND")]
    rates: Option<Vec<u32>>,
    /// Events to send: .jsonl, .jsonl.gz, .jsonl.zst or .pb.gz [default: the bundled sample]
    #[arg(long)]
    corpus: Option<String>,
    /// Play against this relay (ws://host:port or wss://host:port) instead of fresh ones of our own; then formats are json
    /// and compressions none,deflate when nothing else is said. What is published stays in it, so take scenarios that do
    /// not ask for that again, and a relay that may forget
    #[arg(long, conflicts_with = "verify")]
    url: Option<String>,
    /// Root certificates (PEM) to trust for wss:// instead of the platform's
    #[arg(long, requires = "url", value_name = "FILE")]
    ca: Option<String>,
    /// Process id of the relay behind --url, when it runs on this machine: its CPU time is then reported
    #[arg(long, requires = "url", value_name = "PID")]
    relay_pid: Option<u32>,
    /// How much is measured
    #[arg(long, value_enum, default_value = "quick")]
    profile: Profile,
    /// Rounds, instead of the profile's. Intervals need 6 or more
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(crate::stats::MAX_PAIRS)))]
    rounds: Option<u32>,
    /// Seconds a block, instead of the profile's
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: Option<u32>,
    /// Decides the order of the cells and everything random in the load; round n uses seed + n [default: 1; with --url
    /// one that was not used before]
    #[arg(long)]
    seed: Option<u64>,
    /// Where the result folder is made
    #[arg(long, default_value = "results")]
    out: PathBuf,
    /// What every cell must keep, or the exit code is 99: bounds separated by commas, as in 'p99<10ms, lost=0,
    /// achieved>=0.99'; also p50, p90, p99.9, rejected, relay_cpu<50us and wire_bytes<900 (of an envelope)
    #[arg(long)]
    slo: Option<Slo>,
    /// What `compare selftest --out FILE` wrote, to stand in the report; the publish profile makes a quick one itself
    #[arg(long, value_name = "FILE")]
    selftest: Option<PathBuf>,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
    /// Further arguments for every client, after --
    #[arg(last = true)]
    client_args: Vec<String>,
}

impl Run {
    fn matrix(&self) -> Result<Matrix> {
        let mut matrix = match &self.matrix {
            Some(file) => Matrix::read(file)?,
            None if self.url.is_some() => Matrix::of_a_foreign_relay(),
            None => Matrix::default(),
        };
        let replace = |names: &mut Vec<String>, flag: &Option<Vec<String>>| {
            if let Some(flag) = flag {
                names.clone_from(flag);
            }
        };
        replace(&mut matrix.scenarios, &self.scenario);
        replace(&mut matrix.formats, &self.formats);
        replace(&mut matrix.compressions, &self.compressions);
        replace(&mut matrix.batchings, &self.batching);
        replace(&mut matrix.implementations, &self.implementation);
        replace(&mut matrix.verifications, &self.verify);
        if let Some(rates) = &self.rates {
            matrix.rates_per_s.clone_from(rates);
        }
        if self.url.is_some() {
            matrix.verifications = Matrix::of_a_foreign_relay().verifications;
        }
        Ok(matrix)
    }

    /// What every client is told, ours first.
    fn client_args(&self) -> Vec<String> {
        let ca = self.ca.iter().flat_map(|file| ["--ca".to_owned(), file.clone()]);
        let pid = self.relay_pid.iter().flat_map(|pid| ["--relay-pid".to_owned(), pid.to_string()]);
        ca.chain(pid).chain(self.client_args.iter().cloned()).collect()
    }
}

/// Does what the command line says. `args` begins with the program's name; `known` are the names the client knows.
pub fn main(args: impl Iterator<Item = OsString>, known: &Known) -> ExitCode {
    let args: Vec<OsString> = args.collect();
    let names = format!(
        "Formats: {}\nCompressions: {}\n\nExample:\n  compare run --scenario note-stream --formats all --compressions none,deflate \
         --rounds 6",
        known.formats.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" "),
        known.compressions.join(" ")
    );
    let command = Cli::command().mut_subcommand("run", |run| run.after_help(names));
    let cli = match command.try_get_matches_from(&args).and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => {
            // When even stderr is closed, the exit code still says it.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(EXIT_ERROR));
        }
    };
    let done = match cli.command {
        Command::Run(flags) => measure(&flags, &args, known),
        Command::Selftest(flags) => test_instrument(&flags),
        Command::Search(flags) => find_limits(&flags, &args, known),
        Command::Export { dir, github_action_benchmark } => export(&dir, &github_action_benchmark),
        Command::Report { dir } => rerender(&dir).map(|()| 0),
        Command::Diff { before, after, force, strict } => diff(&before, &after, force, strict),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error:#}");
            let usage = error.downcast_ref::<crate::UnknownName>().is_some();
            ExitCode::from(if usage { narrow(run::EXIT_USAGE) } else { EXIT_ERROR })
        }
    }
}

/// Searches, says of each probe what it found, and leaves a result folder.
fn find_limits(flags: &SearchFlags, args: &[OsString], known: &Known) -> Result<u8> {
    let matrix = Matrix {
        scenarios: vec![flags.scenario.clone()],
        formats: flags.formats.clone(),
        compressions: flags.compressions.clone(),
        batchings: flags.batching.clone(),
        implementations: flags.implementation.clone(),
        verifications: flags.verify.clone(),
        rates_per_s: Vec::new(),
    };
    let mut cells = cells(known, &matrix)?;
    if refused(&flags.client_args) {
        return Ok(narrow(run::EXIT_USAGE));
    }
    cells.retain(|cell| cell.role != Role::Control);
    let config = SearchConfig {
        scenario: flags.scenario.clone(),
        slo: flags.slo.to_string(),
        start_per_s: flags.start,
        limit_per_s: flags.limit,
        probe_seconds: flags.probe_seconds,
        precision: flags.precision,
        confirmations: flags.confirmations,
        curve: !flags.no_curve,
        seed: flags.seed,
        corpus: flags.corpus.clone(),
        client_args: flags.client_args.clone(),
    };
    let started = SystemTime::now();
    let program = env::current_exe().context("cannot find this program's own file")?;
    let running = tempfile::tempdir().context("cannot make a folder for records")?;
    let (git, host) = (git::current(), Environment::collect());
    let mut prober = search::Processes::new(&program, &cells, &config, running.path())?;
    let mut tell = |cell: &str, probe: &search::Probe| {
        let _ = writeln!(io::stderr(), "{cell}: {}", probe.line());
    };
    let found = search::search(&cells, &config, &flags.slo, &mut prober, &mut tell)?;
    let corpus = prober.corpus();
    if found.cells.iter().all(|cell| cell.probes.is_empty()) {
        let _ = writeln!(io::stderr(), "error: nothing was measured, so no result was written");
        return Ok(EXIT_INTERRUPTED);
    }
    let finished = found.finished;
    let status = match finished {
        true => Status::Complete,
        false => Status::Incomplete { reason: "interrupted".to_owned() },
    };
    let header = Header {
        command: command_line(args),
        git,
        host,
        started_utc: utc::format(started),
        status,
        config: config.as_run(),
        selftest: None,
    };
    let result = ResultFile::of_search(header, config, found.cells, corpus);
    let folder = make_folder(&flags.out, &format!("{}-search-{}", utc::compact(started), flags.seed))?;
    result.write(&folder)?;
    write_reports(&result, &folder)?;
    show(&result)?;
    let _ = writeln!(io::stderr(), "\nwritten to {}", folder.display());
    Ok(if finished { 0 } else { EXIT_INTERRUPTED })
}

fn export(dir: &Path, file: &Path) -> Result<u8> {
    let entries = report::github_action_benchmark(&ResultFile::read(dir)?);
    let mut text = serde_json::to_string_pretty(&entries).context("a list serializes")?;
    text.push('\n');
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(0)
}

/// Runs the tests and says of each what it found.
fn test_instrument(flags: &SelftestFlags) -> Result<u8> {
    let options = selftest::Options {
        quick: flags.quick,
        only: flags.only.clone(),
        repeats: flags.repeats,
        rounds: flags.rounds,
        seconds: flags.seconds,
    };
    let program = env::current_exe().context("cannot find this program's own file")?;
    let found = selftest::run(&program, &options, |oracle| {
        // Whoever closed the pipe still gets the exit code.
        let _ = writeln!(io::stdout(), "{}", oracle.line());
    })?;
    if let Some(file) = &flags.out {
        found.write(file)?;
    }
    Ok(if found.passed() { 0 } else { narrow(run::EXIT_INVALID) })
}

/// What stands in the report about the instrument: the given result, or for claims a quick test made now.
fn selftest_for(flags: &Run) -> Result<Option<SelfTest>> {
    if let Some(file) = &flags.selftest {
        return SelfTest::read(file).map(Some);
    }
    if flags.profile != Profile::Publish {
        return Ok(None);
    }
    let options = selftest::Options { quick: true, only: Vec::new(), repeats: 0, rounds: 0, seconds: 0 };
    let program = env::current_exe().context("cannot find this program's own file")?;
    let tell = |oracle: &selftest::Oracle| {
        if !flags.quiet {
            let _ = writeln!(io::stderr(), "{}", oracle.line());
        }
    };
    selftest::run(&program, &options, tell).context("the instrument's own tests").map(Some)
}

fn diff(before: &Path, after: &Path, force: bool, strict: bool) -> Result<u8> {
    let (before, after) = (ResultFile::read(before)?, ResultFile::read(after)?);
    let unlike = report::unlike(&before, &after);
    if !unlike.is_empty() {
        let _ = writeln!(io::stderr(), "not comparable: {}", unlike.join("; "));
        if !force {
            let _ = writeln!(io::stderr(), "--force compares them all the same");
            return Ok(narrow(run::EXIT_USAGE));
        }
    }
    let diff = report::diff(&before, &after);
    io::stdout().write_all(diff.terminal().as_bytes()).context("cannot write to stdout")?;
    Ok(match () {
        () if diff.any(report::Verdict::Worse) => EXIT_REGRESSION,
        () if strict && diff.any(report::Verdict::Inconclusive) => EXIT_INCONCLUSIVE,
        () => 0,
    })
}

fn rerender(dir: &Path) -> Result<()> {
    let result = ResultFile::read(dir)?;
    let folder = if dir.is_dir() { dir } else { dir.parent().unwrap_or(Path::new(".")) };
    write_reports(&result, folder)?;
    show(&result)
}

fn measure(flags: &Run, args: &[OsString], known: &Known) -> Result<u8> {
    let matrix = flags.matrix()?;
    let mut cells = cells(known, &matrix)?;
    if flags.url.is_some() {
        cells.retain(|cell| cell.role != Role::Floor);
    }
    if refused(&flags.client_args) {
        return Ok(narrow(run::EXIT_USAGE));
    }
    let (rounds, seconds) = flags.profile.size();
    let config = Config {
        scenarios: matrix.scenarios,
        profile: flags.profile.name().to_owned(),
        rounds: flags.rounds.unwrap_or(rounds),
        seconds: flags.seconds.unwrap_or(seconds),
        seed: flags
            .seed
            .unwrap_or_else(|| if flags.url.is_some() { rand::random::<u32>().into() } else { 1 }),
        corpus: flags.corpus.clone(),
        url: flags.url.clone(),
        client_args: flags.client_args(),
    };
    let plan = Plan::new(&cells, config.rounds, config.seed);
    let selftest = selftest_for(flags)?;
    let started = SystemTime::now();
    let git = git::current();
    let commit = git.as_ref().map_or("nogit", |git| git.commit.get(..8).unwrap_or(&git.commit));
    let name = format!("{}-{commit}-{}", utc::compact(started), config.seed);
    let folder = make_folder(&flags.out, &name)?;
    let host = Environment::collect();

    let running = folder.join("running");
    fs::create_dir(&running).with_context(|| format!("cannot make {}", running.display()))?;
    let client = env::current_exe().context("cannot find this program's own file")?;
    let request = Request { client: &client, config: &config, cells: &cells, plan: &plan, folder: &running };
    let guess = Duration::from_secs(u64::from(config.seconds)) + BLOCK_OVERHEAD;
    let mut progress = Progress::new(plan.blocks(), guess, flags.quiet);
    let outcome = run_until_signal(&request, &mut progress);
    progress.end();
    let Outcome { blocks, status, stopped } = outcome?;
    if blocks.iter().all(|(_, block)| block.record.is_none()) {
        // What could not be read of a record stays; otherwise the folders are empty and go.
        let _ = fs::remove_dir(&running).and_then(|()| fs::remove_dir(&folder));
        let _ = writeln!(io::stderr(), "error: nothing was measured, so no result was written");
        return Ok(stopped_code(stopped).unwrap_or(EXIT_ERROR));
    }

    let command = command_line(args);
    let header = Header { command, git, host, started_utc: utc::format(started), status, config, selftest };
    let mut result = ResultFile::assemble(header, &cells, &plan, blocks);
    result.slos = flags.slo.as_ref().map(|slo| report::slo_results(slo, &result)).unwrap_or_default();
    result.slos.extend(report::scenario_slos(&result));
    result.write(&folder)?;
    report::write_logs(&result, started, &folder)?;
    write_reports(&result, &folder)?;
    // Holds only what could not be read; empty after a good run, and then it goes.
    let _ = fs::remove_dir(&running);
    show(&result)?;
    let _ = writeln!(io::stderr(), "\nwritten to {}", folder.display());
    Ok(exit_code(&result, stopped))
}

/// Whether the client's arguments decide what is a factor of the matrix; says so, too.
fn refused(client_args: &[String]) -> bool {
    let refused = client_args.iter().any(|arg| arg.starts_with("--batch"));
    if refused {
        let _ = writeln!(
            io::stderr(),
            "error: batches are a factor of the matrix: --batching on, off,on or on:ms=2:n=16:bytes=8192 instead of \
             --batched and its limits behind --"
        );
    }
    refused
}

fn command_line(args: &[OsString]) -> Vec<String> {
    let given = args.iter().skip(1).map(|arg| arg.to_string_lossy().into_owned());
    std::iter::once("compare".to_owned()).chain(given).collect()
}

fn make_folder(parent: &Path, name: &str) -> Result<PathBuf> {
    fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
    let folder = parent.join(name);
    fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

fn run_until_signal(request: &Request<'_>, progress: &mut Progress) -> Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the runtime")?.block_on(async {
        let mut interrupt = Interrupt::listen()?;
        run::run(request, progress, interrupt.wait()).await
    })
}

fn write_reports(result: &ResultFile, folder: &Path) -> Result<()> {
    let write = |name: &str, text: String| {
        let file = folder.join(name);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
    };
    write("summary.md", report::summary(result))?;
    write("report.html", report::html(result)?)
}

fn show(result: &ResultFile) -> Result<()> {
    io::stdout().write_all(report::terminal(result).as_bytes()).context("cannot write to stdout")
}

/// The worst thing that happened decides.
fn exit_code(result: &ResultFile, stopped: Option<Stopped>) -> u8 {
    // What became of the floor says nothing about a format.
    let cells = || result.cells.iter().filter(|cell| cell.role != Role::Floor);
    let ended = |code: i32| cells().flat_map(|cell| &cell.blocks).any(|block| block.exit_code == Some(code));
    if let Some(code) = stopped_code(stopped) {
        return code;
    }
    if let Some(code) = [run::EXIT_LOST, run::EXIT_RELAY_LOST].into_iter().find(|code| ended(*code)) {
        return narrow(code);
    }
    let unrecorded = cells().flat_map(|cell| &cell.blocks).any(|block| block.record.is_none());
    if unrecorded || result.status != Status::Complete {
        return EXIT_ERROR;
    }
    let empty = cells().any(|cell| cell.blocks.iter().all(|block| block.usable().is_none()));
    let missed = result.slos.iter().any(|one| !one.met);
    match () {
        () if empty => narrow(run::EXIT_INVALID),
        () if missed => EXIT_SLO,
        () => 0,
    }
}

fn stopped_code(stopped: Option<Stopped>) -> Option<u8> {
    match stopped? {
        Stopped::Usage => Some(narrow(run::EXIT_USAGE)),
        Stopped::Interrupted => Some(EXIT_INTERRUPTED),
        Stopped::Failing => None,
    }
}

fn narrow(code: i32) -> u8 {
    u8::try_from(code).expect("the client's exit codes are below 6")
}
