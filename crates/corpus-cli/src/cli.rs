//! The command line and its commands.

mod capture;
mod dictionary;
mod files;
mod generate;
mod import_har;
mod verify;

use std::{
    ffi::OsString,
    process::{self, ExitCode},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use clap::{Parser, Subcommand};
use program::{Interrupt, report as tell};

/// Interval of progress lines; none in the first two seconds.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);

const EXIT_CODES: &str = "Exit codes: 0 done, 1 failed, or a record is not a valid event, 2 wrong usage.";

/// Files of Nostr events for load tests: make, capture, verify, convert and sample them.
///
/// A file's format follows from its name: .jsonl .jsonl.gz .jsonl.zst (one NIP-01 object a line),
/// .pb.gz (length-delimited ProtoEvent), .notepack.txt (one notepack_… a line) or .FORMAT.batch
/// (one batch of a wire format, up to 64 MiB). A file of another name is read by its content, and -
/// is standard input. Files of any length are read in bounded memory. data/README.md describes the
/// bundled sample and sources of real events.
#[derive(Debug, Parser)]
#[command(name = "corpus", version, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make signed events shaped like real ones; the same arguments make the same events on every
    /// machine.
    Generate(generate::Args),
    /// Check every record, id and signature; counts the valid ones, lists the others and fails.
    Verify(verify::Args),
    /// Copy a corpus into another format, events in the same order.
    Convert(files::ConvertArgs),
    /// Draw events at random, without repeats; they keep their order.
    Sample(files::SampleArgs),
    /// Collect real events from live relays, verified, each once, with their provenance.
    Capture(capture::Args),
    /// Make a recording of sessions from a browser's HAR file, under pseudonyms (docs/gateway.md).
    ImportHar(import_har::Args),
    /// Train a zstd dictionary on the messages that a relay would send, for compression zstd-dict.
    TrainDictionary(dictionary::Args),
}

/// Runs the command line; `args` begins with the program's name.
pub(crate) fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let cli = match program::parse::<Cli>(&args.collect::<Vec<_>>()) {
        Ok(cli) => cli,
        Err(not_parsed) => return not_parsed.code,
    };
    run(cli).unwrap_or_else(|error| {
        tell(&format!("error: {error:#}"));
        ExitCode::FAILURE
    })
}

/// Makes signals end the program without leaving a partial file.
fn leave_no_part() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let mut interrupt = runtime.block_on(async { Interrupt::listen() })?;
    thread::Builder::new().spawn(move || {
        runtime.block_on(interrupt.wait());
        measure::remove_parts();
        process::exit(130)
    })?;
    Ok(())
}

/// Runs a command. Bad events are an exit code, everything else that goes wrong is an error.
fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    // One waits for a signal, one looks names up.
    program::try_threads(2)?;
    if !matches!(cli.command, Command::Capture(_)) {
        leave_no_part()?;
    }
    match cli.command {
        Command::Generate(args) => generate::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Convert(args) => files::convert(&args),
        Command::Sample(args) => files::sample(&args),
        Command::Capture(args) => capture::run(&args),
        Command::ImportHar(args) => import_har::run(&args),
        Command::TrainDictionary(args) => dictionary::train(&args),
    }
}

/// Prints a command's answer. A pipe that its reader closed is no error.
fn say(text: &str) -> anyhow::Result<()> {
    program::print(&format!("{}\n", text.trim_end()))
}

/// Seconds since 1970, as `created_at`.
fn unix_seconds() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

struct Progress {
    verb: &'static str,
    total: Option<u64>,
    unit: &'static str,
    started: Instant,
    last: Instant,
}

impl Progress {
    fn new(verb: &'static str, total: Option<u64>, unit: &'static str) -> Progress {
        let now = Instant::now();
        Progress { verb, total, unit, started: now, last: now }
    }

    fn report(&mut self, done: u64) {
        if self.last.elapsed() < PROGRESS_EVERY {
            return;
        }
        self.last = Instant::now();
        let Progress { verb, unit, total, .. } = self;
        let per_second = done as f64 / self.started.elapsed().as_secs_f64();
        let of = total.map_or_else(String::new, |total| format!(" of {total}"));
        tell(&format!("{verb} {done}{of} {unit}; {per_second:.0} a second"));
    }
}
