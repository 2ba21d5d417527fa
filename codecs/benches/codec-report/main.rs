//! How fast and how small is an event in each format, by the library and by hand?
//!
//! `cargo bench -p codecs --bench codec-report -- --help` says what it can do; docs/codec-report.md is its output.
//!
//! Every row is a pass over the events of one kind after the other, so that caches see a stream and not one hot event;
//! a pass that is not timed goes before it, as rows would otherwise evict each other's frames and a decoder be charged for
//! the wait. Rounds are interleaved: each round times every row once, starting at another row, so that a slow phase of
//! the machine meets all rows alike, and ratios are of rows in the same round. (Criterion measures one benchmark to its end before the
//! next; see `benches/codecs`.) Everything runs on one thread, and inputs are built before the first round.

#![allow(clippy::print_stdout, reason = "the report is what this program is for")]
#![allow(clippy::cast_precision_loss, reason = "sizes and times here are far below 2^52")]

#[path = "../shared/counts.rs"]
mod counts;
mod measure;
mod report;
mod rows;
#[path = "../shared/mod.rs"]
mod shared;
mod sizes;
mod statistics;
mod tables;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context as _, bail};
use clap::Parser;

use counts::Counts;
use report::Report;
use shared::{Sets, Source};

/// Measures size, time and allocations of an event in each format, by the library and by hand
///
/// Times are nanoseconds an event: the median of the rounds with its 95 % bootstrap interval. A run on the bundled
/// events takes three minutes; `--rounds 7 --events 500 --formats core` takes seconds. Close other programs: on a busy machine
/// the intervals are wide, and only ratios of one run mean something.
#[derive(Debug, Parser)]
#[command(
    name = "codec-report",
    after_help = "Examples:\n  cargo bench -p codecs --bench codec-report -- --markdown docs/codec-report.md\n  \
        cargo bench -p codecs --bench codec-report -- my-events.jsonl.zst --formats json,capnp --rounds 7"
)]
struct Args {
    #[command(flatten)]
    source: Source,

    /// How often every row is timed; an even number is taken one up, so that the median is one of them
    #[arg(long, default_value_t = 21, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1001))]
    rounds: u16,

    /// Sizes and allocations only: these do not depend on the machine
    #[arg(long)]
    no_times: bool,

    /// Writes the tables there as Markdown; a relative path is one from the workspace's root
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,

    /// Writes everything there as JSON, with every column of every kind
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> anyhow::Result<()> {
    let formats = args.source.formats()?;
    let corpus = args.source.read()?;
    let sets = Sets::new(&corpus.events, &formats)?;
    let rounds = if args.no_times { 0 } else { usize::from(args.rounds) | 1 };
    let mut report = Report::about(&corpus, &sets, rounds);
    eprintln!("counting allocations …");
    report.allocations = allocations(&args.source)?;
    eprintln!("compressing {} events …", sets.sets[0].events.len());
    report.sizes = sizes::measure(&formats, &sets);
    report.batches = sizes::batches(&formats, &sets);
    if rounds > 0 {
        let encoded = rows::Encoded::new(&formats, &sets);
        let rows = rows::rows(&formats, &sets, &encoded);
        report.times = measure::measure(&rows, &sets, rounds);
    }
    let tables = tables::tables(&report, &formats);
    println!("{}", tables::text(&report, &tables));
    if let Some(path) = &args.markdown {
        save(path, &tables::markdown(&report, &tables))?;
    }
    if let Some(path) = &args.json {
        save(path, &(serde_json::to_string_pretty(&report)? + "\n"))?;
    }
    Ok(())
}

fn save(path: &Path, text: &str) -> anyhow::Result<()> {
    let path = shared::from_root(path);
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    eprintln!("wrote {}", path.display());
    Ok(())
}

/// What the program with the counting allocator says of the same events.
fn allocations(source: &Source) -> anyhow::Result<Vec<Counts>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args([
        "bench",
        "--quiet",
        "--locked",
        "-p",
        "codecs",
        "--bench",
        "codec-allocations",
        "--",
        "--json",
    ]);
    command.args(["--formats", &source.formats]);
    if let Some(events) = source.events {
        command.args(["--events", &events.to_string()]);
    }
    command.args(&source.corpus).current_dir(shared::from_root(Path::new(".")));
    let output = command.output().context("cannot start cargo, which runs codec-allocations")?;
    if !output.status.success() {
        bail!("codec-allocations failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    serde_json::from_slice(&output.stdout).context("codec-allocations printed something else than its counts")
}
