//! `corpus verify`

use std::{path::PathBuf, process::ExitCode};

use corpus::{Census, Checked, CorpusError, Counted, Invalid};
use serde_json::json;

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
    let mut progress = Progress::new("checked", None, "records");
    let mut list = List::new(args)?;
    let (mut census, mut events, mut valid) = (Census::default(), 0, 0);
    let mut failure = None;
    for record in Checked::open(&args.file)? {
        match record {
            Ok(Ok(event)) => {
                census.add(&event);
                (events, valid) = (events + 1, valid + 1);
            }
            Ok(Err(invalid)) => {
                events += u64::from(invalid.id.is_some());
                list.add(&invalid)?;
            }
            Err(error) => failure = Some(error),
        }
        progress.report(valid + list.bad);
    }
    let bad = list.bad;
    let is_empty = valid + bad == 0;
    if args.json || !is_empty {
        list.end(&census.finish(), events, valid)?;
    }
    if let Some(error) = failure {
        return Err(error.into());
    }
    if is_empty {
        return Err(CorpusError::Empty { path: args.file.clone() }.into());
    }
    Ok(if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints bad records as they are found: a line for people, or an element of an array. A file may
/// have more of them than fit into memory.
struct List<'a> {
    args: &'a Args,
    bad: u64,
}

impl List<'_> {
    fn new(args: &Args) -> anyhow::Result<List<'_>> {
        if args.json {
            program::print(&format!("{{\"file\":{},\"invalid\":[", json!(args.file.display().to_string())))?;
        }
        Ok(List { args, bad: 0 })
    }

    fn add(&mut self, invalid: &Invalid) -> anyhow::Result<()> {
        self.bad += 1;
        if self.args.json {
            let comma = if self.bad > 1 { "," } else { "" };
            let element = json!({
                "line": invalid.line,
                "offset_bytes": invalid.offset_bytes,
                "id": invalid.id.as_ref().map(|id| codecs::hex::encode(id)),
                "reason": invalid.reason,
            });
            return program::print(&format!("{comma}\n{element}"));
        }
        if self.bad <= LISTED {
            tell(&invalid.to_string());
        }
        Ok(())
    }

    fn end(self, counted: &Counted, events: u64, valid: u64) -> anyhow::Result<()> {
        let List { args, bad } = self;
        let name = args.file.display();
        if args.json {
            let sums = json!({
                "events": events,
                "origin": counted.origin.name(),
                "valid": valid,
                "bad": bad,
                "duplicates": counted.duplicates,
                "not_checked_for_duplicates": counted.unchecked,
                "fingerprint": counted.fingerprint.to_string(),
            });
            // Goes on with the object that was begun.
            return say(&sums.to_string().replacen('{', "],", 1));
        }
        if bad > LISTED {
            tell(&format!("and {} more; --json lists all", bad - LISTED));
        }
        if valid == 0 {
            return say(&format!("{name}: {events} events, 0 valid, {bad} bad"));
        }
        say(&format!(
            "{name}: {events} events ({}), {valid} valid, {bad} bad, {} repeat an id, fingerprint {} of the valid ones",
            counted.origin, counted.duplicates, counted.fingerprint
        ))
    }
}
