//! `corpus verify`

use std::{
    io::{self, BufWriter, Write},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::Context;
use corpus::{Census, Checked, CorpusError, Counted, Invalid};
use serde_json::{Map, Value, json};

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
        list.end(args, &census.finish(), events, valid)?;
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
struct List {
    bad: u64,
    json: Option<Array>,
}

impl List {
    fn new(args: &Args) -> anyhow::Result<List> {
        Ok(List { bad: 0, json: args.json.then(|| Array::begin(args)).transpose()? })
    }

    fn add(&mut self, invalid: &Invalid) -> anyhow::Result<()> {
        self.bad += 1;
        match &mut self.json {
            Some(array) => array.add(invalid)?,
            None if self.bad <= LISTED => tell(&invalid.to_string()),
            None => {}
        }
        Ok(())
    }

    fn end(self, args: &Args, counted: &Counted, events: u64, valid: u64) -> anyhow::Result<()> {
        let List { bad, json } = self;
        let name = args.file.display();
        if let Some(array) = json {
            let sums = json!({
                "events": events,
                "origin": counted.origin.name(),
                "valid": valid,
                "bad": bad,
                "duplicates": counted.duplicates,
                "not_checked_for_duplicates": counted.unchecked,
                "fingerprint": counted.fingerprint.to_string(),
            });
            return array.end(&sums);
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

/// The object of `--json`, written from its beginning.
struct Array {
    out: BufWriter<io::Stdout>,
    begun: bool,
    /// Nobody reads any more.
    closed: bool,
}

impl Array {
    fn begin(args: &Args) -> anyhow::Result<Array> {
        let mut array = Array { out: BufWriter::new(io::stdout()), begun: false, closed: false };
        array.write(&format!("{{\"file\":{},\"invalid\":[", json!(args.file.display().to_string())))?;
        Ok(array)
    }

    fn add(&mut self, invalid: &Invalid) -> anyhow::Result<()> {
        let comma = if std::mem::replace(&mut self.begun, true) { "," } else { "" };
        let element = json!({
            "line": invalid.line,
            "offset_bytes": invalid.offset_bytes,
            "id": invalid.id.as_ref().map(|id| codecs::hex::encode(id)),
            "reason": invalid.reason,
        });
        self.write(&format!("{comma}\n{element}"))
    }

    /// Ends the object with these members.
    fn end(mut self, members: &Value) -> anyhow::Result<()> {
        let none = Map::new();
        let members = members.as_object().unwrap_or(&none);
        let mut text = "]".to_owned();
        for (name, value) in members {
            text.push_str(&format!(",{}:{value}", json!(name)));
        }
        self.write(&(text + "}\n"))?;
        self.closing(|out| out.flush())
    }

    fn write(&mut self, text: &str) -> anyhow::Result<()> {
        self.closing(|out| out.write_all(text.as_bytes()))
    }

    fn closing(
        &mut self,
        act: impl FnOnce(&mut BufWriter<io::Stdout>) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        if self.closed {
            return Ok(());
        }
        match act(&mut self.out) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(())
            }
            done => done.context("cannot write to standard output"),
        }
    }
}
