//! `corpus verify`

use std::{path::PathBuf, process::ExitCode};

use corpus::{Census, CorpusError, Counted, Events, Invalid};
use serde_json::{Value, json};

use super::{Progress, say, tell};

/// Bad records that are listed for people; `--json` has all.
const LISTED: u64 = 100;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The corpus.
    file: PathBuf,
    /// One JSON object instead of a sentence, with every bad record and its reason.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut file = Events::open(&args.file, true)?;
    let mut progress = Progress::new("checked", None, "records");
    let (mut census, mut events, mut valid, mut bad) = (Census::default(), 0, 0, 0);
    let mut failure = None;
    if args.json {
        program::print(&format!("{{\"file\":{},\"invalid\":[", json!(args.file.display().to_string())))?;
    }
    // Bad records are printed as they are found: a file may have more than fit into memory.
    while let Some(record) = file.checked() {
        match record {
            Ok(Ok(event)) => {
                census.add(&event);
                (events, valid) = (events + 1, valid + 1);
            }
            Ok(Err(invalid)) => {
                (events, bad) = (events + u64::from(invalid.id.is_some()), bad + 1);
                if args.json {
                    let comma = if bad > 1 { "," } else { "" };
                    program::print(&format!("{comma}\n{}", element(&invalid)))?;
                } else if bad <= LISTED {
                    tell(&invalid.to_string());
                }
            }
            Err(error) => failure = Some(error),
        }
        progress.report(valid + bad);
    }
    let is_empty = valid + bad == 0;
    if args.json || !is_empty {
        say_sums(args, &census.finish(), [events, valid, bad])?;
    }
    if let Some(error) = failure {
        return Err(error.into());
    }
    if is_empty {
        return Err(CorpusError::Empty { path: args.file.clone() }.into());
    }
    Ok(if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn say_sums(args: &Args, counted: &Counted, [events, valid, bad]: [u64; 3]) -> anyhow::Result<()> {
    let Counted { duplicates, unchecked, origin, fingerprint, .. } = counted;
    if args.json {
        let sums = json!({
            "events": events,
            "origin": origin.name(),
            "valid": valid,
            "bad": bad,
            "duplicates": duplicates,
            "not_checked_for_duplicates": unchecked,
            "fingerprint": fingerprint.to_string(),
        });
        // Ends the list of `{"file": …, "invalid": [`, which was printed before, and its object.
        return say(&sums.to_string().replacen('{', "],", 1));
    }
    if bad > LISTED {
        tell(&format!("and {} more; --json lists all", bad - LISTED));
    }
    let name = args.file.display();
    if valid == 0 {
        return say(&format!("{name}: {events} events, 0 valid, {bad} bad"));
    }
    say(&format!(
        "{name}: {events} events ({origin}), {valid} valid, {bad} bad, {duplicates} repeat an id, fingerprint {fingerprint} \
         of the valid ones"
    ))
}

fn element(invalid: &Invalid) -> Value {
    json!({
        "line": invalid.line,
        "offset_bytes": invalid.offset_bytes,
        "id": invalid.id.as_ref().map(|id| codecs::hex::encode(id)),
        "reason": invalid.reason,
    })
}
