//! `corpus analyze`

use std::{
    fmt::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
};

use corpus::{
    Census, Corpus, Counted, Events, Skipped,
    analysis::{Analysis, Analyzer, Class, Quantiles, Shape},
};
use serde_json::json;

use super::{Progress, say, tell_skipped};

/// Kinds in the table; `--json` has all of them.
const KINDS: usize = 40;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The corpus; the bundled sample when absent.
    file: Option<PathBuf>,
    /// One JSON object with every kind and every number instead of tables.
    #[arg(long)]
    json: bool,
    /// Leave out invalid events, and count them; each event is then verified.
    #[arg(long, requires = "file")]
    skip_invalid: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut census = Census::default();
    let mut analyzer = Analyzer::default();
    let mut skipped = Skipped::default();
    let name = match &args.file {
        Some(file) => {
            let mut progress = Progress::new("read", None, "events");
            let mut events = Events::open(file, args.skip_invalid)?;
            for event in &mut events {
                let event = event?;
                if census.add(&event) {
                    analyzer.add(&event);
                }
                progress.report(census.events());
            }
            skipped = events.skipped().clone();
            tell_skipped(file, &skipped);
            anyhow::ensure!(census.events() > 0, "{file:?} holds no events");
            file.file_name().unwrap_or_default().to_string_lossy().into_owned()
        }
        None => {
            let corpus = Corpus::bundled();
            for event in &corpus.events {
                census.add(event);
                analyzer.add(event);
            }
            corpus.name
        }
    };
    let counted = census.finish();
    let analysis = analyzer.finish();
    if args.json {
        let answer = json!({
            "name": name,
            "origin": counted.origin.name(),
            "fingerprint": counted.fingerprint.to_string(),
            "duplicates_left_out": counted.duplicates,
            "invalid_skipped": skipped.count(),
            "analysis": analysis,
        });
        say(&answer.to_string())?;
    } else {
        say(&tables(&name, &counted, skipped.count(), &analysis)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn tables(name: &str, counted: &Counted, skipped: u64, analysis: &Analysis) -> Result<String, fmt::Error> {
    let mut out = format!(
        "{name}: {} events ({}), {} that repeat an id left out, {skipped} invalid skipped, fingerprint {}\n",
        counted.events, counted.origin, counted.duplicates, counted.fingerprint
    );
    if analysis.events_sampled < analysis.events {
        writeln!(
            out,
            "quantiles, tags and compression are those of {} events drawn at random",
            analysis.events_sampled
        )?;
    }
    writeln!(out, "\nbytes are of compact JSON; quantiles: 5% 50% 95% max\n")?;
    writeln!(
        out,
        "{:>6} {:>9} {:>7} {:>7} {:>25} {:>8} {:>17} {:>24} {:>6}",
        "kind", "events", "share", "bytes", "JSON bytes", "mean", "tags", "content bytes", "hex"
    )?;
    let shapes: Vec<_> = std::iter::once(("all".to_owned(), &analysis.all))
        .chain(analysis.kinds.iter().take(KINDS).map(|(kind, shape)| (kind.to_string(), shape)))
        .collect();
    for (kind, shape) in &shapes {
        size_row(&mut out, kind, shape)?;
    }
    if analysis.kinds.len() > KINDS {
        writeln!(out, "and {} more kinds; --json has them", analysis.kinds.len() - KINDS)?;
    }
    writeln!(
        out,
        "\ncompressed bytes per byte of JSON: each event alone | all in one stream; hex digits alone would be 0.5\n"
    )?;
    writeln!(
        out,
        "{:>6} {:>15} {:>15} {:>26}   commonest tags",
        "kind", "gzip 6", "zstd 3", "deflate 6 no|takeover"
    )?;
    for (kind, shape) in &shapes {
        ratio_row(&mut out, kind, shape)?;
    }
    classes(&mut out, "size", &analysis.size_classes)?;
    classes(&mut out, "tags", &analysis.tag_classes)?;
    Ok(out)
}

fn size_row(out: &mut String, kind: &str, shape: &Shape) -> fmt::Result {
    writeln!(
        out,
        "{kind:>6} {:>9} {:>6.1}% {:>6.1}% {:>25} {:>8.0} {:>17} {:>24} {:>5.1}%",
        shape.events,
        100.0 * shape.event_share,
        100.0 * shape.byte_share,
        quantiles(&shape.json_bytes),
        shape.json_bytes_mean,
        quantiles(&shape.tags),
        quantiles(&shape.content_bytes),
        100.0 * shape.hex_byte_share
    )
}

fn ratio_row(out: &mut String, kind: &str, shape: &Shape) -> fmt::Result {
    let ratios = &shape.ratios;
    let pair = |alone: f64, stream: f64| format!("{alone:.3} | {stream:.3}");
    let names: Vec<_> = shape
        .tag_names
        .iter()
        .take(5)
        .map(|tag| format!("{} {:.0}%", tag.name.escape_debug(), 100.0 * tag.tag_share))
        .collect();
    writeln!(
        out,
        "{kind:>6} {:>15} {:>15} {:>26}   {}",
        pair(ratios.gzip6_per_event, ratios.gzip6_stream),
        pair(ratios.zstd3_per_event, ratios.zstd3_stream),
        pair(ratios.deflate6_no_takeover, ratios.deflate6_takeover),
        names.join(", ")
    )
}

fn classes(out: &mut String, of: &str, classes: &[Class]) -> fmt::Result {
    let events: u64 = classes.iter().map(|class| class.events).sum();
    let bytes: u64 = classes.iter().map(|class| class.json_bytes).sum();
    writeln!(out, "\n{of:>9} {:>9} {:>7} {:>7}", "events", "share", "bytes")?;
    for class in classes {
        let percent = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
        writeln!(
            out,
            "{:>9} {:>9} {:>6.1}% {:>6.1}%",
            class.name,
            class.events,
            percent(class.events, events),
            percent(class.json_bytes, bytes)
        )?;
    }
    Ok(())
}

/// "p5 p50 p95 max"
fn quantiles(values: &Quantiles) -> String {
    format!("{} {} {} {}", values.p5, values.p50, values.p95, values.max)
}
